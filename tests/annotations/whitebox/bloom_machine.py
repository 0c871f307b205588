"""A small machine that runs Bloom modules: one node, timesteps, a fixpoint for each stratum.

It shares the syntax with the derivation and nothing else, so that what a module does when its input
comes in another order can be held against what was derived. Facts are tuples; the value of an
expression is a list of schemas, one for each collection that takes part, and a set of tuples with a
row for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any

from annotations.whitebox.bloom import tree as ast
from annotations.whitebox.bloom.modules import SENT, Module, ModuleRule

Row = tuple[Any, ...]
Relation = tuple[list[tuple[str, ...]], set[tuple[Row, ...]]]
STEPS_MAX = 12

NUMBERS: Mapping[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
}
REDUCE: Mapping[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": sum,
    "min": min,
    "max": max,
    "accum": frozenset,
    "choose": lambda values: values[0],
}
MERGE: Mapping[str, Callable[[Iterable[Any]], Any]] = {
    "lmax": lambda values: max(values, default=float("-inf")),
    "lmin": lambda values: min(values, default=float("inf")),
    "lbool": any,
    "lset": frozenset,
}
TESTS: Mapping[str, Callable[[Any, Any], Any]] = {
    "gt": lambda a, b: a > b,
    "gt_eq": lambda a, b: a >= b,
    "lt": lambda a, b: a < b,
    "lt_eq": lambda a, b: a <= b,
    "contains?": lambda a, b: b in a,
}


class Machine:
    """A node that runs a module."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.tables: dict[str, list[Row]] = {}
        """What persists, in the order in which it came."""
        self.lattices: dict[str, set[Any]] = {}
        self.now: dict[str, list[Row]] = {}
        self.later: dict[str, list[Row]] = {}
        self.widths: dict[str, list[tuple[str, ...]]] = {}
        self.emitted: dict[str, set[Row]] = {name: set() for name in module.outputs}
        self.strata = _strata(module)

    def run(self, batches: Iterable[Mapping[str, list[Row]]]) -> dict[str, frozenset[Row]]:
        """Everything that was ever put out, after each batch had a timestep of its own."""
        for batch in batches:
            self.step(batch)
        for _ in range(STEPS_MAX):
            before = {name: set(facts) for name, facts in self.tables.items()}
            self.step({})
            if not self.later and before == {n: set(f) for n, f in self.tables.items()}:
                break
        return {name: frozenset(facts) for name, facts in self.emitted.items()}

    def step(self, batch: Mapping[str, list[Row]]) -> None:
        """One timestep."""
        self.now, self.later = dict(self.later), {}
        for name, facts in batch.items():
            self.now[name] = [*self.now.get(name, ()), *facts]
        for name, each in self.module.collections.items():
            if each.kind == "periodic":
                self.now[name] = [(0, 0)]
        instant = [rule for rule in self.module.rules if rule.operator == "<="]
        for stratum in range(max(self.strata.values(), default=0) + 1):
            mine = [rule for rule in instant if self.strata[rule.target] == stratum]
            changed = True
            while changed:
                changed = sum(self._merge(rule) for rule in mine) > 0
        self._put_out()
        self._end()

    def _put_out(self) -> None:
        for name in self.module.outputs:
            if self.module.collections[name].kind not in SENT:
                self.emitted[name] |= set(self._facts(name))

    def _end(self) -> None:
        """What takes effect in the next timestep."""
        gone: dict[str, set[Row]] = {}
        new: dict[str, list[Row]] = {}
        for rule in self.module.rules:
            if rule.operator == "<=":
                continue
            facts = self._result(rule)
            each = self.module.collections[rule.target]
            if each.kind in SENT:
                self.emitted[rule.target] |= set(facts)
            elif rule.operator == "<-":
                gone.setdefault(rule.target, set()).update(facts)
            elif rule.operator == "<+-":
                at = [each.columns.index(key) for key in each.keys]
                keys = {tuple(fact[i] for i in at) for fact in facts}
                old = {f for f in self._facts(rule.target) if tuple(f[i] for i in at) in keys}
                gone.setdefault(rule.target, set()).update(old)
                new.setdefault(rule.target, []).extend(facts)
            elif each.persistent:
                new.setdefault(rule.target, []).extend(facts)
            else:
                _add(self.later.setdefault(rule.target, []), facts)
        for name in gone.keys() | new.keys():
            facts = [each for each in self._facts(name) if each not in gone.get(name, ())]
            _add(facts, new.get(name, ()))
            self.tables[name] = facts

    def _merge(self, rule: ModuleRule) -> bool:
        each = self.module.collections[rule.target]
        if each.lattice:
            held = self.lattices.setdefault(rule.target, set())
            before = len(held)
            held |= set(self._values(rule))
            return len(held) > before
        store = self.tables if each.persistent else self.now
        return _add(store.setdefault(rule.target, []), self._result(rule))

    def _values(self, rule: ModuleRule) -> list[Any]:
        """What a rule merges into a lattice."""
        if self._is_lattice(rule.source, rule):
            return [self._lattice(rule.source, rule)]
        return [row[0] for row in self._result(rule)]

    def _result(self, rule: ModuleRule) -> list[Row]:
        schemas, facts = self._relation(rule.source, rule)
        if self.module.collections[rule.target].kind == "temp" and schemas != [()]:
            self.widths[rule.target] = schemas
        ordered = sorted(facts, key=repr)
        width = len(self.module.collections[rule.target].columns)
        rows = [tuple(v for row in fact for v in row) for fact in ordered]
        return [row + (None,) * (width - len(row)) for row in rows]

    def _facts(self, name: str) -> list[Row]:
        each = self.module.collections[name]
        return (self.tables if each.persistent else self.now).get(name, [])

    # ---- lattices

    def _is_lattice(self, expression: ast.Expr, rule: ModuleRule) -> bool:
        name = self.module.named(expression, rule.scope)
        if name is not None:
            return self.module.collections[name].lattice
        match expression:
            case ast.Send(receiver=receiver, method=method) if receiver is not None:
                return method not in ("when_true", "map", "reveal") and self._is_lattice(
                    receiver, rule
                )
        return False

    def _lattice(self, expression: ast.Expr, rule: ModuleRule) -> Any:
        name = self.module.named(expression, rule.scope)
        if name is not None:
            kind = self.module.collections[name].kind
            if kind not in MERGE:
                raise NotImplementedError(kind)
            return MERGE[kind](self.lattices.get(name, set()))
        assert isinstance(expression, ast.Send)
        assert expression.receiver is not None
        inner = self._lattice(expression.receiver, rule)
        if expression.method == "size":
            return len(inner)
        return TESTS[expression.method](inner, _value(expression.arguments[0], {}))

    # ---- relations

    def _relation(self, expression: ast.Expr, rule: ModuleRule) -> Relation:
        name = self.module.named(expression, rule.scope)
        if name is not None:
            if self.module.collections[name].lattice:
                return [("(element)",)], {((v,),) for v in self._lattice(expression, rule)}
            return self._split(name)
        match expression:
            case ast.Array(items=items):
                rows = {(tuple(_value(v, {}) for v in each.items),) for each in items}  # type: ignore[union-attr]
                return [()], rows
            case ast.Operation(operator="*"):
                return self._product(expression, rule)
            case ast.Send(receiver=receiver, method="when_true", block=block) if block is not None:
                assert receiver is not None
                holds = self._lattice(receiver, rule)
                return [()], {(_result(block.body, {}),)} if holds else set()
            case ast.Send(receiver=receiver, method="reveal") if receiver is not None:
                return [("value",)], {((self._lattice(receiver, rule),),)}
            case ast.Send():
                return self._method(expression, rule)
        raise NotImplementedError(expression)

    def _split(self, name: str) -> Relation:
        schemas = self.widths.get(name)
        facts = self._facts(name)
        if schemas is None or self.module.collections[name].kind != "temp":
            return [self.module.collections[name].columns], {(row,) for row in facts}
        found = set()
        for row in facts:
            at, parts = 0, []
            for schema in schemas:
                parts.append(row[at : at + len(schema)])
                at += len(schema)
            found.add(tuple(parts))
        return schemas, found

    def _product(self, expression: ast.Expr, rule: ModuleRule) -> Relation:
        if isinstance(expression, ast.Operation) and expression.operator == "*":
            left, right = (self._product(each, rule) for each in expression.operands)
            return [*left[0], *right[0]], {a + b for a, b in product(left[1], right[1])}
        return self._relation(expression, rule)

    def _method(self, expression: ast.Send, rule: ModuleRule) -> Relation:
        assert expression.receiver is not None
        schemas, facts = self._relation(expression.receiver, rule)
        method, arguments, block = expression.method, expression.arguments, expression.block
        names = [self.module.named(each, rule.scope) for each in _factors(expression.receiver)]
        if method in ("pairs", "combos", "lefts", "rights", "outer", "matches"):
            tests = _tests(arguments, schemas, names, natural=method == "matches")
            kept = {fact for fact in facts if all(test(fact) for test in tests)}
            if method == "outer":
                assert isinstance(expression.receiver, ast.Operation)
                _, lefts = self._product(expression.receiver.operands[0], rule)
                with_partner = {fact[:1] for fact in kept}
                nothing = (None,) * len(schemas[1])
                kept |= {(*left, nothing) for left in lefts if left not in with_partner}
            if method in ("lefts", "rights"):
                at = 0 if method == "lefts" else 1
                schemas, kept = [schemas[at]], {(fact[at],) for fact in kept}
            return _blocked(schemas, kept, block)
        if method == "notin":
            other_schemas, others = self._relation(arguments[0], rule)
            names = [names[0], self.module.named(arguments[0], rule.scope)]
            tests = _tests(arguments[1:], [*schemas, *other_schemas], names)
            if len(arguments) == 1 and block is None:
                tests = [lambda fact: fact[0] == fact[1]]
            taken = {
                fact
                for fact, other in product(facts, others)
                if all(test(fact + other) for test in tests)
                and (
                    block is None
                    or _result(block.body, _bound(block, fact + other, [*schemas, *other_schemas]))
                )
            }
            return schemas, facts - taken
        if method == "group":
            return _blocked(*_group(schemas[0], facts, arguments), block)
        if method in ("argmax", "argmin"):
            return _blocked(schemas, _extreme(schemas[0], facts, expression), block)
        if method == "payloads":
            each = self.module.collections[names[0] or ""]
            keep = [at for at, name in enumerate(each.columns) if name != each.address]
            return [tuple(each.columns[at] for at in keep)], {
                (tuple(row[at] for at in keep),) for (row,) in facts
            }
        if method == "keys":
            each = self.module.collections[names[0] or ""]
            keep = [each.columns.index(name) for name in each.keys]
            return [each.keys], {(tuple(row[at] for at in keep),) for (row,) in facts}
        if method == "flat_map":
            assert block is not None
            made = (_result(block.body, _bound(block, fact, schemas)) for fact in facts)
            return [()], {(tuple(row),) for rows in made for row in rows or ()}
        if method == "map":
            return _blocked(schemas, facts, block)
        raise NotImplementedError(method)


# ---- strata


def _strata(module: Module) -> dict[str, int]:
    """The stratum of each collection: above what it depends on by absence or by a whole group."""
    found = dict.fromkeys(module.collections, 0)
    instant = [rule for rule in module.rules if rule.operator == "<="]
    for _ in range(len(found) + 1):
        for rule in instant:
            for name, refutable in module.read_by(rule).items():
                needed = found[name] + (1 if refutable else 0)
                found[rule.target] = max(found[rule.target], needed)
    return found


def _add(to: list[Row], facts: Iterable[Row]) -> bool:
    before = len(to)
    for fact in facts:
        if fact not in to:
            to.append(fact)
    return len(to) > before


# ---- joins and groups


def _factors(expression: ast.Expr) -> list[ast.Expr]:
    if isinstance(expression, ast.Operation) and expression.operator == "*":
        return [part for each in expression.operands for part in _factors(each)]
    return [expression]


def _tests(
    arguments: Iterable[ast.Expr],
    schemas: list[tuple[str, ...]],
    names: list[str | None],
    *,
    natural: bool = False,
) -> list[Callable[[tuple[Row, ...]], bool]]:
    pairs: list[tuple[tuple[int, int], tuple[int, int]]] = []
    if natural:
        shared = set(schemas[0]) & set(schemas[1])
        pairs += [((0, schemas[0].index(n)), (1, schemas[1].index(n))) for n in shared]
    for each in arguments:
        assert isinstance(each, ast.Pair)
        left, right = (
            _place(side, at, schemas, names) for at, side in enumerate((each.left, each.right))
        )
        pairs.append((left, right))
    return [_equal(left, right) for left, right in pairs]


def _equal(left: tuple[int, int], right: tuple[int, int]) -> Callable[[tuple[Row, ...]], bool]:
    return lambda fact: fact[left[0]][left[1]] == fact[right[0]][right[1]]


def _place(
    side: ast.Expr, at: int, schemas: list[tuple[str, ...]], names: list[str | None]
) -> tuple[int, int]:
    if isinstance(side, ast.Symbol):
        return at, schemas[at].index(side.text)
    assert isinstance(side, ast.Send)
    assert isinstance(side.receiver, ast.Name)
    which = names.index(side.receiver.text)
    return which, schemas[which].index(side.method)


def _group(
    schema: tuple[str, ...], facts: set[tuple[Row, ...]], arguments: tuple[ast.Expr, ...]
) -> Relation:
    keys = [each.text for each in arguments[0].items]  # type: ignore[union-attr]
    groups: dict[Row, list[Row]] = {}
    for (row,) in sorted(facts, key=repr):
        groups.setdefault(tuple(row[schema.index(key)] for key in keys), []).append(row)
    names, made = list(keys), {key: list(key) for key in groups}
    for each in arguments[1:]:
        name = each.text if isinstance(each, ast.Name) else each.method  # type: ignore[union-attr]
        columns = [] if isinstance(each, ast.Name) else each.arguments  # type: ignore[union-attr]
        names.append(name)
        for key, rows in groups.items():
            at = schema.index(columns[0].text) if columns else 0
            made[key].append(REDUCE[name]([row[at] for row in rows]))
    return [tuple(names)], {(tuple(row),) for row in made.values()}


def _extreme(
    schema: tuple[str, ...], facts: set[tuple[Row, ...]], expression: ast.Send
) -> set[tuple[Row, ...]]:
    keys = [schema.index(each.text) for each in expression.arguments[0].items]  # type: ignore[union-attr]
    by = schema.index(expression.arguments[1].text)  # type: ignore[union-attr]
    best: dict[Row, Any] = {}
    choose = max if expression.method == "argmax" else min
    for (row,) in facts:
        key = tuple(row[at] for at in keys)
        best[key] = choose(best.get(key, row[by]), row[by])
    return {(row,) for (row,) in facts if row[by] == best[tuple(row[at] for at in keys)]}


# ---- blocks


def _blocked(
    schemas: list[tuple[str, ...]], facts: set[tuple[Row, ...]], block: ast.Block | None
) -> Relation:
    if block is None:
        return schemas, facts
    made = [_result(block.body, _bound(block, fact, schemas)) for fact in facts]
    rows = [row if isinstance(row, tuple) else (row,) for row in made if row is not None]
    return [()], {(row,) for row in rows}


def _bound(
    block: ast.Block, fact: tuple[Row, ...], schemas: list[tuple[str, ...]]
) -> dict[str, Any]:
    rows = [_named(s, row) for s, row in zip(schemas, fact, strict=True)]
    if len(fact) == 1 and len(block.parameters) > 1:
        return dict(zip(block.parameters, fact[0], strict=False))  # type: ignore[arg-type]
    return dict(zip(block.parameters, rows, strict=False))  # type: ignore[arg-type]


def _named(schema: tuple[str, ...], row: Row) -> Any:
    """A row by its columns; of a set, the element itself."""
    if schema == ("(element)",):
        return row[0]
    return dict(zip(schema, row, strict=False)) | {"*": row}


def _result(body: tuple[ast.Statement, ...], bound: dict[str, Any]) -> Any:
    value: Any = None
    for statement in body:
        match statement:
            case ast.Assign(name=name, value=expression):
                bound = {**bound, name: _value(expression, bound)}
            case ast.Branch(condition=condition, then=then, otherwise=otherwise):
                value = _result(then if _value(condition, bound) else otherwise, bound)
            case ast.Array(items=items):
                value = tuple(_value(each, bound) for each in items)
            case _:
                value = _value(statement, bound)
                value = value["*"] if isinstance(value, dict) else value
    return value


def _value(expression: ast.Expr, bound: Mapping[str, Any]) -> Any:
    match expression:
        case ast.Value(value=value):
            return value
        case ast.Array(items=items):
            return tuple(_value(each, bound) for each in items)
        case ast.Name(text=name) if name in bound:
            return bound[name]
        case ast.Operation(operator="||", operands=(left, right)):
            found = _value(left, bound)
            return _value(right, bound) if found is None or found is False else found
        case ast.Operation(operator="!", operands=(inner,)):
            return not _value(inner, bound)
        case ast.Operation(operator="negative", operands=(inner,)):
            return -_value(inner, bound)
        case ast.Operation(operator="&&", operands=(left, right)):
            return _value(left, bound) and _value(right, bound)
        case ast.Operation(operator="if", operands=(test, then, otherwise)):
            return _value(then if _value(test, bound) else otherwise, bound)
        case ast.Index(receiver=receiver, arguments=(ast.Value(value=int() as at),)):
            return _value(receiver, bound)["*"][at]
        case ast.Operation(operator=operator, operands=(left, right)):
            return NUMBERS[operator](_value(left, bound), _value(right, bound))
        case ast.Send(receiver=receiver, method=method) if receiver is not None:
            inner = _value(receiver, bound)
            if method == "size":
                return len(inner)
            if isinstance(inner, dict) and method in inner:
                return inner[method]
    raise NotImplementedError(expression)
