"""Groups and aggregates of the Connect client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect.expressions import AGGREGATING, title
from annotations.whitebox.connect.scope import Built
from annotations.whitebox.datatypes import BOOLEAN
from annotations.whitebox.functions import AGGREGATES
from annotations.whitebox.ir import Call, Expression

if TYPE_CHECKING:
    from annotations.whitebox.connect.relations import Relations


def has_aggregate(expression: Any) -> bool:
    """True where a select list with this entry makes one group of everything."""
    kind = expression.WhichOneof("expr_type")
    match kind:
        case "alias":
            return has_aggregate(expression.alias.expr)
        case "cast":
            return has_aggregate(expression.cast.expr)
        case "unresolved_function" | "call_function":
            function = getattr(expression, kind)
            if function.function_name.lower() in AGGREGATES:
                return True
            return any(map(has_aggregate, function.arguments))
        case "common_inline_user_defined_function":
            function = expression.common_inline_user_defined_function
            return function.python_udf.eval_type in AGGREGATING
    return False


def total(home: Relations, over: Built, entries: Sequence[Any], at: Position | None) -> Built:
    """A select list of aggregates without GROUP BY: one group, all rows."""
    outputs = [output for entry in entries for output in home.expressions.outputs(entry, over)]
    named = tuple(home.output(name, value) for name, value in outputs)
    return home.node(ir.Aggregate(over.relation, (), named, None, at), [over])


def grouped(home: Relations, proto: Any, at: Position | None) -> Built:
    """`groupBy`, `rollup`, `cube`, `groupingSets`, and `pivot` with values that are written out."""
    over = home.build(proto.input)
    entries = [
        output
        for expression in proto.grouping_expressions
        for output in home.expressions.outputs(expression, over)
    ]
    keys = tuple(value for _, value in entries)
    outputs: list[tuple[str, Expression]] = list(entries)
    pivots = proto.group_type == 4
    if pivots:
        if not proto.pivot.values:
            reason = "a pivot whose columns are the values that the data happen to have"
            return home.user_code([over], reason, at)
        outputs += _pivoted(home, proto, over)
    else:
        for expression in proto.aggregate_expressions:
            outputs += home.expressions.outputs(expression, over)
    named = tuple(home.output(name, value) for name, value in outputs)
    sets = _sets(proto, entries)
    return home.node(ir.Aggregate(over.relation, keys, named, sets, at, pivots), [over])


def _sets(
    proto: Any, entries: Sequence[tuple[str, Expression]]
) -> tuple[frozenset[int], ...] | None:
    """The grouping sets, as places among the keys; None: one, of all keys."""
    places = range(len(entries))
    match proto.group_type:
        case 2:
            return tuple(frozenset(range(n)) for n in range(len(entries), -1, -1))
        case 3:
            sizes = range(len(entries), -1, -1)
            return tuple(frozenset(c) for size in sizes for c in combinations(places, size))
        case 5:
            names = [name.lower() for name, _ in entries]
            written = [
                [title(e).lower() for e in of_set.grouping_set] for of_set in proto.grouping_sets
            ]
            known = [
                [names.index(name) for name in set_names if name in names] for set_names in written
            ]
            return tuple(frozenset(item) for item in known)
    return None


def _pivoted(home: Relations, proto: Any, over: Built) -> Iterator[tuple[str, Expression]]:
    """For each value of the pivot's column the aggregates over the rows that have it."""
    column = home.expressions.value(proto.pivot.col, over)
    several = len(proto.aggregate_expressions) > 1
    for literal in proto.pivot.values:
        value = type(proto.pivot.col)(literal=literal)
        only = Call("<=>", (column, home.expressions.value(value, over)), BOOLEAN, False)
        for expression in proto.aggregate_expressions:
            for name, aggregate in home.expressions.outputs(expression, over):
                shown = f"{title(value)}_{name}" if several else title(value)
                yield shown, _filtered(aggregate, only)


def _filtered(value: Expression, only: Expression) -> Expression:
    """The expression with a condition at each of its aggregates."""
    if not isinstance(value, Call):
        return value
    if value.function in AGGREGATES:
        both = only if value.condition is None else Call("and", (value.condition, only), BOOLEAN)
        return _with(value, value.arguments, both)
    return _with(value, tuple(_filtered(a, only) for a in value.arguments), value.condition)


def _with(call: Call, arguments: tuple[Expression, ...], condition: Expression | None) -> Call:
    return replace(call, arguments=arguments, condition=condition)
