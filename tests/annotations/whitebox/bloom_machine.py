"""A small machine that runs Bloom modules: one node, timesteps, a fixpoint for each stratum.

It shares the syntax with the derivation and nothing else, so that what a module does when its input
comes in another order can be held against what was derived. Facts are tuples; the value of an
expression is a list of schemas, one for each collection that takes part, and a set of tuples with a
row for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Any

from annotations.whitebox.bloom import tree as ast
from annotations.whitebox.bloom.modules import SENT, Module, ModuleRule
from tests.annotations.whitebox.bloom_sets import equalities, extreme, factors, group
from tests.annotations.whitebox.bloom_values import (
    Relation,
    Row,
    bind,
    blocked,
    evaluate,
    run_block,
)

STEPS_MAX = 12

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
            facts = self._made(rule)
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
        return _add(store.setdefault(rule.target, []), self._made(rule))

    def _values(self, rule: ModuleRule) -> list[Any]:
        """What a rule merges into a lattice."""
        if self._is_lattice(rule.source, rule):
            return [self._lattice(rule.source, rule)]
        return [row[0] for row in self._made(rule)]

    def _made(self, rule: ModuleRule) -> list[Row]:
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
        return TESTS[expression.method](inner, evaluate(expression.arguments[0], {}))

    # ---- relations

    def _relation(self, expression: ast.Expr, rule: ModuleRule) -> Relation:
        name = self.module.named(expression, rule.scope)
        if name is not None:
            if self.module.collections[name].lattice:
                return [("(element)",)], {((v,),) for v in self._lattice(expression, rule)}
            return self._split(name)
        match expression:
            case ast.Array(items=items):
                rows = {(tuple(evaluate(v, {}) for v in each.items),) for each in items}  # type: ignore[union-attr]
                return [()], rows
            case ast.Operation(operator="*"):
                return self._product(expression, rule)
            case ast.Send(receiver=receiver, method="when_true", block=block) if block is not None:
                assert receiver is not None
                holds = self._lattice(receiver, rule)
                return [()], {(run_block(block.body, {}),)} if holds else set()
            case ast.Send(receiver=receiver, method="reveal") if receiver is not None:
                return [("value",)], {((self._lattice(receiver, rule),),)}
            case ast.Send(receiver=receiver) if receiver is not None:
                return self._method(expression, receiver, rule)
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

    def _method(self, call: ast.Send, receiver: ast.Expr, rule: ModuleRule) -> Relation:
        schemas, facts = self._relation(receiver, rule)
        names = [self.module.named(each, rule.scope) for each in factors(receiver)]
        match call.method:
            case "pairs" | "combos" | "lefts" | "rights" | "outer" | "matches":
                return self._join(call, receiver, (schemas, facts), names, rule)
            case "notin":
                return self._notin(call, (schemas, facts), names, rule)
            case "group":
                return blocked(*group(schemas[0], facts, call.arguments), call.block)
            case "argmax" | "argmin":
                return blocked(schemas, extreme(schemas[0], facts, call), call.block)
            case "payloads":
                each = self.module.collections[names[0] or ""]
                return _only([c for c in each.columns if c != each.address], each.columns, facts)
            case "keys":
                each = self.module.collections[names[0] or ""]
                return _only(each.keys, each.columns, facts)
            case "flat_map" if call.block is not None:
                made = (run_block(call.block.body, bind(call.block, f, schemas)) for f in facts)
                return [()], {(tuple(row),) for rows in made for row in rows or ()}
            case "map":
                return blocked(schemas, facts, call.block)
        raise NotImplementedError(call.method)

    def _join(
        self,
        call: ast.Send,
        receiver: ast.Expr,
        crossed: Relation,
        names: list[str | None],
        rule: ModuleRule,
    ) -> Relation:
        """The facts of a product that pass, or one side of them (`lefts`, `rights`)."""
        schemas, facts = crossed
        equal = equalities(call.arguments, schemas, names, natural=call.method == "matches")
        kept = {fact for fact in facts if all(test(fact) for test in equal)}
        if call.method == "outer":
            assert isinstance(receiver, ast.Operation)
            _, lefts = self._product(receiver.operands[0], rule)
            with_partner = {fact[:1] for fact in kept}
            nothing = (None,) * len(schemas[1])
            kept |= {(*left, nothing) for left in lefts if left not in with_partner}
        if call.method in ("lefts", "rights"):
            at = 0 if call.method == "lefts" else 1
            schemas, kept = [schemas[at]], {(fact[at],) for fact in kept}
        return blocked(schemas, kept, call.block)

    def _notin(
        self, call: ast.Send, inner: Relation, names: list[str | None], rule: ModuleRule
    ) -> Relation:
        """The facts that find no partner."""
        (schemas, facts), block = inner, call.block
        first, *rest = call.arguments
        other_schemas, others = self._relation(first, rule)
        both = [*schemas, *other_schemas]
        equal = equalities(rest, both, [names[0], self.module.named(first, rule.scope)])
        if not rest and block is None:
            equal = [lambda fact: fact[0] == fact[1]]
        taken = {
            fact
            for fact, other in product(facts, others)
            if all(test(fact + other) for test in equal)
            and (block is None or run_block(block.body, bind(block, fact + other, both)))
        }
        return schemas, facts - taken


def _only(keep: Sequence[str], schema: tuple[str, ...], facts: set[tuple[Row, ...]]) -> Relation:
    """Some columns of facts of one collection."""
    at = [schema.index(name) for name in keep]
    return [tuple(keep)], {(tuple(row[i] for i in at),) for (row,) in facts}


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
