"""The right side of a rule as a relation: what collections and their methods mean.

A collection is a set of facts. `Translator.rows` gives the relation of an expression with, for each
collection that takes part, the columns that a block sees as one of its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from annotations.dataflow import Position
from annotations.diagnostics import Findings
from annotations.whitebox.bloom.expressions import Clock, Environment, Reader, Result, Row
from annotations.whitebox.bloom.modules import Module, ModuleRule
from annotations.whitebox.bloom.tree import (
    Array,
    Block,
    Expr,
    Name,
    Operation,
    Pair,
    Send,
    Symbol,
    Value,
)
from annotations.whitebox.datatypes import BIGINT, BOOLEAN
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Column,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Literal,
    Opaque,
    Output,
    Project,
    Ref,
    Relation,
    Role,
    SortKey,
    Source,
    Union,
    Window,
)
from annotations.whitebox.monotone import type_of
from annotations.whitebox.traits import asks, keeps

AGGREGATES: Final[Mapping[str, str]] = {
    "count": "count",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "avg": "avg",
    "bool_and": "bool_and",
    "bool_or": "bool_or",
    "choose": "any_value",
    "choose_rand": "any_value",
    "accum": "collect_set",
    "accum_pair": "collect_set",
}
JOINS: Final = frozenset({"pairs", "combos", "matches", "lefts", "rights", "outer", "flatten"})
SAME: Final = frozenset({"to_collection", "sort", "uniq", "each", "inspected", "to_set"})
"""Methods that give the same set of facts, as a set."""
METHODS: Final = (
    JOINS
    | SAME
    | {"map", "flat_map", "select", "reject", "group", "argmax", "argmin", "argagg", "notin"}
    | {"payloads", "keys", "values", "reduce", "inject", "reveal", "when_true", "schema"}
)


@dataclass(frozen=True, slots=True)
class Rows:
    """A relation, and the columns of each collection in it."""

    relation: Relation
    rows: tuple[Row | Clock, ...]

    @property
    def columns(self) -> Row:
        """All columns."""
        return tuple(c for row in self.rows if isinstance(row, tuple) for c in row)


Collections = Callable[[str, Position], Rows]
"""The facts of a collection by its full name: a new relation each time."""


class Translator:
    """The sources of the rules of one module."""

    def __init__(
        self,
        module: Module,
        out: Findings,
        collections: Collections,
        lattices: Callable[[Expr, ModuleRule], Rows | None],
    ) -> None:
        self.module, self.out = module, out
        self.collection, self.lattice = collections, lattices
        self._widths: dict[str, tuple[int, ...]] = {}

    def shaped(self, name: str, columns: Row) -> tuple[Row, ...]:
        """The rows of a collection: those of a join that a `temp` holds are still apart."""
        widths = self._widths.get(name, ())
        if sum(widths) != len(columns):
            return (columns,)
        starts = [sum(widths[:at]) for at in range(len(widths))]
        return tuple(columns[a : a + width] for a, width in zip(starts, widths, strict=True))

    def source(self, rule: ModuleRule, width: int | None) -> Relation:
        """What a rule puts into its target, with `width` columns; None: as many as there are."""
        found, widths = _Source(self, rule, width).relation()
        if len(widths) > 1 and self.module.collections[rule.target].kind == "temp":
            self._widths[rule.target] = widths
        return found

    def blocked(self, found: Rows, block: Block | None, rule: ModuleRule) -> Rows:
        """Rows after a block of a rule."""
        return _Source(self, rule, None).blocked(found, block, rule.position)


class _Source:
    """The source of one rule."""

    def __init__(self, translator: Translator, rule: ModuleRule, width: int | None) -> None:
        self.translator, self.rule, self.width = translator, rule, width
        self.module, self.out = translator.module, translator.out
        self.reader = Reader(self.out, rule.place, self._is_collection)
        self._seen: set[str] = set()
        """The collections that the relation is made of."""

    def _lattices(self, expression: Expr) -> set[str]:
        """The lattice that a value is computed from, outside of blocks."""
        name = self.module.named(expression, self.rule.scope)
        match expression:
            case _ if name is not None:
                return {name}
            case Send(receiver=receiver) if receiver is not None:
                return self._lattices(receiver)
            case Operation(operands=(first, *_)):
                return self._lattices(first)
        return set()

    def _is_collection(self, expression: Expr) -> bool:
        return self.module.named(expression, self.rule.scope) is not None

    def relation(self) -> tuple[Relation, tuple[int, ...]]:
        """What the rule puts into its target, and how many columns each row of it has."""
        found = self._with_all(self.rows(self.rule.source))
        if any(isinstance(row, Clock) for row in found.rows):
            return self._timer(found), ()
        widths = tuple([len(row) for row in found.rows if isinstance(row, tuple)])
        if found.relation.columns == found.columns:
            return found.relation, widths
        return _projected(found.relation, found.columns, self.rule.position), widths

    def _with_all(self, found: Rows) -> Rows:
        """The relation with everything that the rule reads: nothing that it names is left out."""
        left_out = [
            name
            for name in self.module.read_by(self.rule)
            if name not in self._seen and self.module.collections[name].kind != "periodic"
        ]
        if not left_out:
            return found
        position = self.rule.position
        others = [self.translator.collection(name, position).relation for name in left_out]
        columns = tuple([Column(c.name, c.type) for c in found.columns])
        shown = ", ".join(f"`{name}`" for name in left_out)
        reason = f"a block looks into {shown}, which only a join or `notin` may do"
        node = Opaque((found.relation, *others), columns, reason, position=position)
        return Rows(node, (columns,))

    def _timer(self, found: Rows) -> Relation:
        reason = "all facts of a timer are used, which depend on the clock"
        columns = tuple(
            Column(name)
            for row in found.rows
            for name in (row.columns if isinstance(row, Clock) else [c.name for c in row])
        )
        return Opaque(
            (found.relation,), columns, reason, nondeterministic=True, position=self.rule.position
        )

    # ---- expressions

    def rows(self, expression: Expr) -> Rows:
        """The relation of an expression."""
        position = self.rule.place(expression.at)
        if isinstance(expression, Send) and expression.block is not None:
            bare = replace(expression, block=None)
            if self._is_collection(bare):
                # `store.got {|t| ...}`: the collection of an imported module, with a block.
                return self.blocked(self.rows(bare), expression.block, position)
        name = self.module.named(expression, self.rule.scope)
        lattice = self.translator.lattice(expression, self.rule)
        if lattice is not None:
            self._seen |= self._lattices(expression)
            return lattice
        if name is not None:
            self._seen.add(name)
            return self.translator.collection(name, position)
        match expression:
            case Array(items=items):
                return self._constants(items, position)
            case Operation(operator="*"):
                return self._join(expression, "combos", (), position)
            case Send(receiver=None):
                return self._opaque(
                    (), f"`{expression.method}` is a method of the program", position
                )
            case Send():
                return self._method(expression, position)
            case Name(text=text):
                known = [each.rpartition(".")[2] for each in self.module.collections]
                near = self.out.suggest(text, known)
                self.out.add("BLZ091", f"there is no collection `{text}`{near}", position)
                return self._opaque((), f"there is no collection `{text}`", position)
        return self._opaque((), "this is no collection", position)

    def _opaque(self, inputs: Sequence[Rows], reason: str, position: Position) -> Rows:
        width = 1 if self.width is None else self.width
        columns = tuple([Column(f"c{at}") for at in range(width)])
        node = Opaque(tuple([each.relation for each in inputs]), columns, reason, position=position)
        return Rows(node, (columns,))

    def _constants(self, items: tuple[Expr, ...], position: Position) -> Rows:
        rows = [each for each in items if isinstance(each, Array)]
        if len(rows) < len(items) or not rows:
            if not items:
                return self._constant_rows(self.width or 0, position)
            return self._opaque((), "a list whose elements are no lists", position)
        return self._constant_rows(max(len(each.items) for each in rows), position)

    def _constant_rows(self, width: int, position: Position) -> Rows:
        columns = tuple([Column(f"c{at}") for at in range(width)])
        source = Source("(constants)", columns, Role.TABLE, position=position)
        return Rows(source, (columns,))

    def _method(self, expression: Send, position: Position) -> Rows:
        method, receiver = expression.method, expression.receiver
        assert receiver is not None
        if method in JOINS:
            factors = receiver
            if method == "flatten" and not _is_product(receiver):
                return self.blocked(self.rows(receiver), expression.block, position)
            return self.blocked(
                self._join(factors, method, expression.arguments, position),
                expression.block,
                position,
            )
        inner = self.rows(receiver)
        if any(isinstance(row, Clock) for row in inner.rows) and method != "map":
            return self._opaque((inner,), "what a timer sends depends on the clock", position)
        if method in SAME or method == "map":
            return self.blocked(inner, expression.block, position)
        made = {
            "flat_map": self._flat_map,
            "select": self._select,
            "reject": self._select,
            "group": self._group,
            "argmax": self._extreme,
            "argmin": self._extreme,
            "argagg": self._extreme,
            "notin": self._notin,
            "payloads": self._payloads,
            "keys": self._keys,
            "values": self._keys,
        }.get(method)
        if made is not None:
            return made(expression, inner, position)
        if method in ("reduce", "inject"):
            return self._opaque((inner,), f"`{method}` goes through the facts one by one", position)
        near = self.out.suggest(method, METHODS)
        reason = f"`{method}` is no method of collections that is known{near}"
        return self._opaque((inner,), reason, position)

    # ---- blocks

    def _environment(self, rows: tuple[Row | Clock, ...], block: Block) -> Environment:
        """What the block's parameters stand for."""
        found: dict[str, Row | Clock | Expression] = {}
        parameters = block.parameters
        if len(rows) == 1 and isinstance(rows[0], tuple) and len(parameters) > 1:
            # One row, taken apart.
            names = [each for each in parameters if isinstance(each, str)]
            return {n: Ref(column) for n, column in zip(names, rows[0], strict=False)}
        if len(rows) > 1 and len(parameters) == 1 and isinstance(parameters[0], str):
            whole = tuple(c for row in rows if isinstance(row, tuple) for c in row)
            return {parameters[0]: whole}
        for parameter, row in zip(parameters, rows, strict=False):
            if isinstance(parameter, str):
                found[parameter] = row
            elif isinstance(row, tuple):
                found |= {n: Ref(column) for n, column in zip(parameter, row, strict=False)}
        return found

    def blocked(self, found: Rows, block: Block | None, position: Position) -> Rows:
        """The rows after a block; a block with several ways through it makes a union."""
        if block is None:
            return found
        results = list(self.reader.results(block.body, self._environment(found.rows, block)))
        if len(results) == 1:
            return self._result(found.relation, results[0], position)
        if not results:
            return self._constant_rows(self.width or 0, position)
        return self._ways(found, results, position)

    def _ways(self, found: Rows, results: list[Result], position: Position) -> Rows:
        """Several ways: each fact takes one, so that a column is a choice between their values."""
        lists = [list(self._values(each)) for each in results]
        if len({len(each) for each in lists}) > 1:
            return self._opaque(
                (found,), "the ways through the block give different widths", position
            )
        conditions = [_all(each.conditions) for each in results]
        taken = _any(conditions)
        relation = found.relation
        if taken is not None:
            relation = Filter(relation, taken, position)
        outputs: list[Output] = []
        for at, (name, value) in enumerate(lists[0]):
            values = [each[at][1] for each in lists]
            if all(each == value for each in values):
                outputs.append((_column(name, value), value))
                continue
            parts = [
                part
                for condition, each in zip(conditions, values, strict=True)
                for part in (condition or Literal(True, BOOLEAN), each)
            ]
            chosen = Call("case", (*parts, Literal(None)))
            outputs.append((_column(name, chosen), chosen))
        node = Project(relation, tuple(outputs), position)
        return Rows(node, (node.columns,))

    def _result(self, relation: Relation, result: Result, position: Position) -> Rows:
        condition = _all(result.conditions)
        if condition is not None:
            relation = Filter(relation, condition, position)
        outputs = tuple([(_column(name, value), value) for name, value in self._values(result)])
        node = Project(relation, outputs, position)
        return Rows(node, (node.columns,))

    def _values(self, result: Result) -> Iterator[tuple[str, Expression]]:
        if result.values is not None:
            yield from result.values
            return
        assert result.whole is not None
        if self.width is None or self.width == 1:
            yield "c0", result.whole
            return
        for at in range(self.width):
            yield f"c{at}", Call("element_at", (result.whole, Literal(at, BIGINT)))

    def _flat_map(self, expression: Send, inner: Rows, position: Position) -> Rows:
        width = 1 if self.width is None else self.width
        made = tuple([Column(f"c{at}") for at in range(width)])
        block = expression.block
        values: tuple[Expression, ...] = tuple(map(Ref, inner.columns))
        if block is not None:
            results = self.reader.results(block.body, self._environment(inner.rows, block))
            values = tuple(part for each in results for part in _parts(each))
        node = Generate(inner.relation, Call("explode", values), made, position)
        return Rows(node, (made,))

    def _select(self, expression: Send, inner: Rows, position: Position) -> Rows:
        block = expression.block
        if block is None or len(block.body) != 1:
            return self._opaque((inner,), f"`{expression.method}` needs a condition", position)
        [statement] = block.body
        environment = self._environment(inner.rows, block)
        test = self.reader.condition(statement, environment)  # type: ignore[arg-type]
        if expression.method == "reject":
            test = Call("not", (test,), BOOLEAN)
        return Rows(Filter(inner.relation, test, position), inner.rows)

    # ---- joins

    def _join(
        self, product: Expr, method: str, arguments: tuple[Expr, ...], position: Position
    ) -> Rows:
        factors = list(_factors(product))
        several = [self.rows(each) for each in factors]
        names = [self.module.named(each, self.rule.scope) or "" for each in factors]
        if len(several) < 2:
            return self._opaque(several, f"`{method}` belongs to a join `(a * b)`", position)
        several = [_named_columns(each) for each in several]
        pairs = list(self._pairs(arguments, several, names, natural=method == "matches"))
        timers = [row for each in several for row in each.rows if isinstance(row, Clock)]
        if timers:
            return self._with_timer(several, pairs, position)
        if method in ("lefts", "rights") and len(several) == 2:
            return self._half(several, pairs, method, position)
        kind = JoinKind.LEFT if method == "outer" else JoinKind.INNER
        found = several[0]
        for other in several[1:]:
            mine = set(found.columns) | set(other.columns)
            here = [p for p in pairs if {p[0], p[1]} <= mine]
            pairs = [p for p in pairs if p not in here]
            relation = self._joined(found, other, kind, here, position)
            found = Rows(relation, (*found.rows, *other.rows))
        return found

    def _joined(
        self,
        left: Rows,
        right: Rows,
        kind: JoinKind,
        pairs: list[tuple[Column, Column]],
        position: Position,
    ) -> Relation:
        condition = _all([Call("=", (Ref(a), Ref(b)), BOOLEAN) for a, b in pairs])
        node: Relation = Join(left.relation, right.relation, kind, condition, position=position)
        return self._again(node, left.relation, right.relation, position)

    def _again(
        self, node: Relation, left: Relation, right: Relation, position: Position
    ) -> Relation:
        """The assumption that makes asking what still grows confluent."""
        for one, other in ((left, right), (right, left)):
            if asks(one) and not asks(other) and keeps(other):
                who = " and ".join(sorted(asks(one)))
                claim = f"a fact of {who} that finds no partner yet is sent again, or waits"
                promise = Call("coalesce", (Literal(True, BOOLEAN),), BOOLEAN, user=claim)
                return Filter(node, replace(promise, position=position), position)
        return node

    def _with_timer(
        self, several: list[Rows], pairs: list[tuple[Column, Column]], position: Position
    ) -> Rows:
        """A timer fires for ever: what it is joined with is looked at again and again."""
        others = [each for each in several if not isinstance(each.rows[0], Clock)]
        if not others:
            return self._opaque(several, "only a timer decides what is sent", position)
        relation, rows = others[0].relation, others[0].rows
        for other in others[1:]:
            relation = self._joined(Rows(relation, rows), other, JoinKind.INNER, pairs, position)
            rows = (*rows, *other.rows)
        by_place = iter(rows)
        ordered = tuple(
            each.rows[0] if isinstance(each.rows[0], Clock) else next(by_place) for each in several
        )
        return Rows(relation, ordered)

    def _half(
        self,
        several: list[Rows],
        pairs: list[tuple[Column, Column]],
        method: str,
        position: Position,
    ) -> Rows:
        """`lefts` and `rights`: the facts of one side that have a partner; a set of them."""
        keep, other = several if method == "lefts" else several[::-1]
        relation = self._joined(keep, other, JoinKind.SEMI, pairs, position)
        return Rows(relation, keep.rows)

    def _pairs(
        self,
        arguments: tuple[Expr, ...],
        several: list[Rows],
        names: list[str],
        *,
        natural: bool = False,
    ) -> Iterator[tuple[Column, Column]]:
        """The columns that a join makes equal."""
        if natural:
            for at, left in enumerate(several):
                for right in several[at + 1 :]:
                    by_name = {c.name: c for c in right.columns}
                    yield from ((c, by_name[c.name]) for c in left.columns if c.name in by_name)
        for argument in _flat(arguments):
            if not isinstance(argument, Pair):
                self._not_a_pair(argument)
                continue
            one = self._side(argument.left, several, names, 0)
            other = self._side(argument.right, several, names, 1)
            if one is not None and other is not None:
                yield one, other

    def _not_a_pair(self, argument: Expr) -> None:
        where = self.rule.place(argument.at)
        self.out.add("BLZ092", "a join pairs columns: `:a => :b`", where)

    def _side(
        self, expression: Expr, several: list[Rows], names: list[str], at: int
    ) -> Column | None:
        """One side of a pair: `:column` of the side's own collection, or `collection.column`."""
        match expression:
            case Symbol(text=text):
                return self._find(several[min(at, len(several) - 1)], text, expression.at)
            case Send(receiver=receiver, method=column, arguments=()) if receiver is not None:
                name = self.module.named(receiver, self.rule.scope)
                for each, rows in zip(names, several, strict=False):
                    if each and each == name:
                        return self._find(rows, column, expression.at)
        message = "expected `:column` or `collection.column` of one of the joined collections"
        self.out.add("BLZ092", message, self.rule.place(expression.at))
        return None

    def _find(self, rows: Rows, name: str, at: int) -> Column | None:
        for column in rows.columns:
            if column.name == name:
                return column
        known = [column.name for column in rows.columns]
        near = self.out.suggest(name, known)
        remedy = f"The columns are {', '.join(known)}." if known else None
        message = f"there is no column `{name}`{near}"
        self.out.add("BLZ091", message, self.rule.place(at), remedy)
        return None

    def _notin(self, expression: Send, inner: Rows, position: Position) -> Rows:
        if not expression.arguments:
            return self._opaque((inner,), "`notin` needs a collection", position)
        first, *rest = expression.arguments
        other = _named_columns(self.rows(first))
        inner = _named_columns(inner)
        assert expression.receiver is not None
        names = [
            self.module.named(each, self.rule.scope) or "" for each in (expression.receiver, first)
        ]
        pairs = list(self._pairs(tuple(rest), [inner, other], names))
        if not rest and expression.block is None:
            if len(inner.columns) != len(other.columns):
                message = f"`notin` compares {len(inner.columns)} columns with {len(other.columns)}"
                self.out.add("BLZ092", message, position, "Say which columns: `:a => :b`.")
            pairs = list(zip(inner.columns, other.columns, strict=False))
        conditions: list[Expression] = [Call("=", (Ref(a), Ref(b)), BOOLEAN) for a, b in pairs]
        if expression.block is not None:
            environment = self._environment((*inner.rows, *other.rows), expression.block)
            for result in self.reader.results(expression.block.body, environment):
                conditions += result.conditions
                conditions += [result.whole] if result.whole is not None else []
        condition = _all(conditions)
        node = Join(inner.relation, other.relation, JoinKind.ANTI, condition, position=position)
        return Rows(node, inner.rows)

    # ---- groups

    def _group(self, expression: Send, inner: Rows, position: Position) -> Rows:
        keys_at, *aggregates = expression.arguments or (Array((), expression.at),)
        keys = self._keys_of(keys_at, inner)
        outputs: list[Output] = [(Column(c.name, c.type), Ref(c)) for c in keys]
        relation = inner.relation
        for each in aggregates:
            made = self._aggregate(each, inner, keys, position)
            if made is None:
                return self._opaque((inner,), "an aggregate that is not known", position)
            column, value, claim = made
            outputs.append((column, value))
            if claim is not None:
                relation = Filter(relation, claim, position)
        node = Aggregate(relation, tuple(map(Ref, keys)), tuple(outputs), position=position)
        return self.blocked(Rows(node, (node.columns,)), expression.block, position)

    def _keys_of(self, keys: Expr, inner: Rows) -> list[Column]:
        if isinstance(keys, Value) and keys.value is None:
            return []
        items = keys.items if isinstance(keys, Array) else (keys,)
        found: list[Column] = []
        for each in items:
            match each:
                case Symbol(text=text) | Send(method=text, arguments=()):
                    column = self._find(inner, text, each.at)
                    if column is not None:
                        found.append(column)
                case _:
                    where = self.rule.place(each.at)
                    self.out.add("BLZ092", "a group is made by columns: `[:a, :b]`", where)
        return found

    def _aggregate(
        self, expression: Expr, inner: Rows, keys: list[Column], position: Position
    ) -> tuple[Column, Expression, Expression | None] | None:
        """Column, value, and an assumption of one aggregate; None where it is not known."""
        match expression:
            case Send(receiver=None, method=name, arguments=arguments):
                pass
            case Name(text=name):
                arguments = ()
            case _:
                name, arguments = "", ()
        where = self.rule.place(expression.at)
        if name not in AGGREGATES:
            near = self.out.suggest(name, AGGREGATES)
            self.out.add("BLZ091", f"`{name}` is no aggregate{near}", where)
            return None
        columns = [self._find(inner, *named) for named in map(_column_of, arguments) if named]
        found = [Ref(each, where) for each in columns if each is not None]
        if name != "count" and not found:
            if len(columns) == len(found):
                self.out.add("BLZ092", f"`{name}` needs a column: `{name}(:a)`", where)
            return None
        return _aggregated(name, found, where)

    def _extreme(self, expression: Send, inner: Rows, position: Position) -> Rows:
        """`argmax`: every fact of the group that has the greatest value; ties are all kept."""
        arguments = list(expression.arguments)
        down = expression.method == "argmax"
        if expression.method == "argagg":
            which = arguments.pop(0) if arguments else None
            name = which.text if isinstance(which, Symbol) else ""
            if name not in ("min", "max"):
                return self._opaque((inner,), f"`argagg` with `{name}`", position)
            down = name == "max"
        if len(arguments) != 2:
            return self._opaque((inner,), f"`{expression.method}` needs two arguments", position)
        keys = self._keys_of(arguments[0], inner)
        by = self._keys_of(arguments[1], inner)
        if not by:
            return self._opaque((inner,), f"`{expression.method}` needs a column", position)
        rank = Column("rank", BIGINT)
        node = Window(
            inner.relation,
            ((rank, Call("rank", (), BIGINT, position=position)),),
            tuple(map(Ref, keys)),
            (SortKey(Ref(by[0]), down),),
            position=position,
        )
        first = Call("=", (Ref(rank), Literal(1, BIGINT)), BOOLEAN)
        kept = Filter(node, first, position)
        outputs = tuple([(Column(c.name, c.type), Ref(c)) for c in inner.columns])
        made = Project(kept, outputs, position)
        return self.blocked(Rows(made, (made.columns,)), expression.block, position)

    # ---- parts of the columns

    def _payloads(self, expression: Send, inner: Rows, position: Position) -> Rows:
        assert expression.receiver is not None
        name = self.module.named(expression.receiver, self.rule.scope)
        address = self.module.collections[name].address if name else None
        columns = tuple(c for c in inner.columns if c.name != address)
        return self.blocked(_only(inner, columns, position), expression.block, position)

    def _keys(self, expression: Send, inner: Rows, position: Position) -> Rows:
        assert expression.receiver is not None
        name = self.module.named(expression.receiver, self.rule.scope)
        if name is None:
            return self._opaque((inner,), f"`{expression.method}` of what has no keys", position)
        declared = self.module.collections[name].keys
        keep = expression.method == "keys"
        columns = tuple(c for c in inner.columns if (c.name in declared) == keep)
        return self.blocked(_only(inner, columns, position), expression.block, position)


# ---- pieces


def _aggregated(
    name: str, arguments: list[Ref], position: Position
) -> tuple[Column, Expression, Expression | None]:
    claim: Expression | None = None
    values: tuple[Expression, ...] = tuple(arguments)
    if name == "sum" and not type_of(arguments[0]).numeric:
        text = f"{arguments[0].column.name} holds exact numbers, whose sum has no order"
        claim = Call("coalesce", (Literal(True, BOOLEAN),), BOOLEAN, user=text, position=position)
        values = (Call("cast", values, BIGINT),)
    kind = BIGINT if name in ("count", "sum") else values[0].column.type if arguments else BIGINT  # type: ignore[union-attr]
    if name == "accum_pair":
        values = (Call("struct", values),)
    call = Call(AGGREGATES[name], values, kind, position=position)
    if name in ("accum", "accum_pair"):
        # A set of Ruby: what it holds counts, not in which order.
        call = Call("array_sort", (call,), position=position)
    if name == "choose_rand":
        call = replace(call, function="any_value")
        claim = Call("isnotnull", (Call("rand", position=position),), BOOLEAN)
    return Column(name, kind), call, claim


def _column_of(expression: Expr) -> tuple[str, int] | None:
    """The column that `:a` or `collection.a` names, and where."""
    match expression:
        case Symbol(text=text, at=at) | Send(receiver=Name(), method=text, arguments=(), at=at):
            return text, at
    return None


def _is_product(expression: Expr) -> bool:
    match expression:
        case Operation(operator="*"):
            return True
        case Send(receiver=receiver, method=method) if receiver is not None and method in JOINS:
            return _is_product(receiver)
    return False


def _factors(expression: Expr) -> Iterator[Expr]:
    match expression:
        case Operation(operator="*", operands=operands):
            for each in operands:
                yield from _factors(each)
        case Send(receiver=receiver, method="matches" | "pairs", arguments=(), block=None) if (
            receiver is not None and _is_product(receiver)
        ):
            yield from _factors(receiver)
        case _:
            yield expression


def _flat(arguments: tuple[Expr, ...]) -> Iterator[Expr]:
    """Pairs also where they stand in `[...]`."""
    for each in arguments:
        if isinstance(each, Array):
            yield from each.items
        elif not (isinstance(each, Value) and each.value is None):
            yield each


def _named_columns(found: Rows) -> Rows:
    """Rows whose columns are columns of the relation, so that a condition can name them."""
    return found


def _parts(result: Result) -> Iterator[Expression]:
    yield from result.conditions
    if result.whole is not None:
        yield result.whole
    yield from (value for _, value in result.values or ())


def _column(name: str, value: Expression) -> Column:
    return Column(name, type_of(value))


def _all(conditions: Sequence[Expression]) -> Expression | None:
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), BOOLEAN)


def _any(conditions: Sequence[Expression | None]) -> Expression | None:
    found = [each for each in conditions if each is not None]
    if len(found) < len(conditions) or not found:
        return None
    return found[0] if len(found) == 1 else Call("or", tuple(found), BOOLEAN)


def _only(inner: Rows, columns: Row, position: Position) -> Rows:
    node = _projected(inner.relation, columns, position)
    return Rows(node, (node.columns,))


def _projected(relation: Relation, columns: Row, position: Position) -> Project:
    return Project(relation, tuple([(Column(c.name, c.type), Ref(c)) for c in columns]), position)


def unioned(inputs: Sequence[Relation], names: Sequence[str], position: Position) -> Relation:
    """The facts of all inputs under these names."""
    if len(inputs) == 1:
        [only] = inputs
        outputs = [
            (Column(name, c.type), Ref(c)) for name, c in zip(names, only.columns, strict=False)
        ]
        return Project(only, tuple(outputs), position)
    columns = tuple([Column(name) for name in names])
    return Union(tuple(inputs), columns, position)
