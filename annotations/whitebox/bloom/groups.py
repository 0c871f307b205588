"""Groups: `group` with its aggregates, and `argmax` and the like."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from annotations.dataflow import Position
from annotations.whitebox.bloom.blocks import Blocks
from annotations.whitebox.bloom.rows import Rows, assumption, copy, projected
from annotations.whitebox.bloom.scope import Scope
from annotations.whitebox.bloom.tree import Array, Expr, Name, Send, Symbol
from annotations.whitebox.datatypes import BIGINT, BOOLEAN, VALUE
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Column,
    Expression,
    Filter,
    Literal,
    Output,
    Ref,
    SortKey,
    Window,
)
from annotations.whitebox.monotone import type_of

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


class Groups:
    """The groups of one rule."""

    def __init__(self, scope: Scope, blocks: Blocks) -> None:
        self.scope, self.blocks = scope, blocks

    def group(self, call: Send, inner: Rows, position: Position) -> Rows:
        """A row for each group, with its aggregates."""
        keys_at, *aggregates = call.arguments or (Array((), call.at),)
        keys = self.scope.columns(keys_at, inner)
        outputs: list[Output] = [(copy(c), Ref(c)) for c in keys]
        relation = inner.relation
        for aggregate in aggregates:
            computed = self._aggregate(aggregate, inner)
            if computed is None:
                return self.scope.opaque((inner,), "an aggregate that is not known", position)
            output, claim = computed
            outputs.append(output)
            if claim is not None:
                relation = Filter(relation, claim, position)
        node = Aggregate(relation, tuple(map(Ref, keys)), tuple(outputs), position=position)
        return self.blocks.after(Rows.of(node), call.block, position)

    def extreme(self, call: Send, inner: Rows, position: Position) -> Rows:
        """`argmax`: every fact of the group that has the greatest value; ties are all kept."""
        arguments = list(call.arguments)
        down = call.method == "argmax"
        if call.method == "argagg":
            which = arguments.pop(0) if arguments else None
            name = which.text if isinstance(which, Symbol) else ""
            if name not in ("min", "max"):
                return self.scope.opaque((inner,), f"`argagg` with `{name}`", position)
            down = name == "max"
        if len(arguments) != 2:
            return self.scope.opaque((inner,), f"`{call.method}` needs two arguments", position)
        keys, by = (self.scope.columns(argument, inner) for argument in arguments)
        if not by:
            return self.scope.opaque((inner,), f"`{call.method}` needs a column", position)
        rank = Column("rank", BIGINT)
        node = Window(
            inner.relation,
            ((rank, Call("rank", (), BIGINT, position=position)),),
            tuple(map(Ref, keys)),
            (SortKey(Ref(by[0]), down),),
            position=position,
        )
        first = Call("=", (Ref(rank), Literal(1, BIGINT)), BOOLEAN)
        chosen = projected(Filter(node, first, position), inner.columns, position)
        return self.blocks.after(Rows.of(chosen), call.block, position)

    def _aggregate(self, expression: Expr, inner: Rows) -> tuple[Output, Expression | None] | None:
        """One aggregate, and what is assumed of it; None where it is not known."""
        match expression:
            case Send(receiver=None, method=name, arguments=arguments):
                pass
            case Name(text=name):
                arguments = ()
            case _:
                name, arguments = "", ()
        where = self.scope.rule.place(expression.at)
        if name not in AGGREGATES:
            near = self.scope.out.suggest(name, AGGREGATES)
            self.scope.out.add("BLZ091", f"`{name}` is no aggregate{near}", where)
            return None
        columns = [
            self.scope.column(inner, *named) for named in map(_column_of, arguments) if named
        ]
        refs = [Ref(column, where) for column in columns if column is not None]
        if name != "count" and not refs:
            if not columns:
                message = f"`{name}` needs a column: `{name}(:a)`"
                self.scope.out.add("BLZ092", message, where)
            return None
        return _aggregated(name, refs, where)


def _aggregated(
    name: str, arguments: list[Ref], position: Position
) -> tuple[Output, Expression | None]:
    claim: Expression | None = None
    values: tuple[Expression, ...] = tuple(arguments)
    kind = BIGINT if name == "count" or not arguments else arguments[0].column.type
    match name:
        case "sum":
            if not type_of(arguments[0]).numeric:
                text = f"{arguments[0].column.name} holds exact numbers, whose sum has no order"
                claim = assumption(text, position)
                values = (Call("cast", values, BIGINT),)
            kind = BIGINT
        case "accum_pair":
            values = (Call("struct", values, VALUE),)
        case "choose_rand":
            claim = Call("isnotnull", (Call("rand", position=position),), BOOLEAN)
    call = Call(AGGREGATES[name], values, kind, position=position)
    if name in ("accum", "accum_pair"):
        # A set of Ruby: what it holds counts, not in which order.
        call = Call("array_sort", (call,), position=position)
    return (Column(name, kind), call), claim


def _column_of(expression: Expr) -> tuple[str, int] | None:
    """The column that `:a` or `collection.a` names, and where."""
    match expression:
        case Symbol(text=text, at=at) | Send(receiver=Name(), method=text, arguments=(), at=at):
            return text, at
    return None
