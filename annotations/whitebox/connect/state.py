"""Operations that remember: aggregates, duplicates, joins, set operations, watermarks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect.grouping import grouped
from annotations.whitebox.connect.relations import Converter, Relations
from annotations.whitebox.connect.scope import Built
from annotations.whitebox.ir import Call, Column, Expression, Literal, Ref, Relation, Unknown
from annotations.whitebox.monotone import type_of
from annotations.whitebox.result_types import common

_JOINS: Final = {
    1: ir.JoinKind.INNER,
    2: ir.JoinKind.FULL,
    3: ir.JoinKind.LEFT,
    4: ir.JoinKind.LEFT,
    5: ir.JoinKind.ANTI,
    6: ir.JoinKind.SEMI,
    7: ir.JoinKind.INNER,
}
"""Connect's types of joins -> ours; a right outer join (4) is a left one of swapped inputs."""


def _aggregate(home: Relations, proto: Any, at: Position | None) -> Built:
    return grouped(home, proto, at)


def _deduplicate(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    keys = over.columns
    if not proto.all_columns_as_keys:
        values = [home.names.resolve(f"`{n}`", over, None, at) for n in proto.column_names]
        if not all(isinstance(value, Ref) for value in values):
            return home.user_code([over], "duplicates by columns that are not known", at)
        keys = tuple(value.column for value in values if isinstance(value, Ref))
    relation = ir.Deduplicate(over.relation, keys, proto.within_watermark, at)
    return home.node(relation, [over], over.columns)


def _with_watermark(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    value = home.names.resolve(proto.event_time, over, None, at)
    if not isinstance(value, Ref):
        return home.user_code([over], f"a watermark on `{proto.event_time}`", at)
    from annotations.whitebox.sql_dialect import seconds_of

    delay = seconds_of(proto.delay_threshold)
    relation = ir.Watermark(over.relation, value.column, delay, at)
    return home.node(relation, [over], over.columns)


def _join(home: Relations, proto: Any, at: Position | None) -> Built:
    left, right = home.build(proto.left), home.build(proto.right)
    kind = _JOINS.get(proto.join_type)
    if kind is ir.JoinKind.FULL or proto.join_type == 4:
        left = _padded(home, left)
    if kind is ir.JoinKind.FULL or proto.join_type == 3:
        right = _padded(home, right)
    both = home.node(
        ir.Join(left.relation, right.relation, ir.JoinKind.INNER, None, position=at),
        [left, right],
        left.columns + right.columns,
    )
    conditions: list[Expression] = []
    if proto.HasField("join_condition"):
        conditions.append(home.expressions.value(proto.join_condition, both))
    pairs: list[tuple[str, Expression, Expression]] = []
    for name in proto.using_columns:
        of_left = home.names.resolve(f"`{name}`", left, None, at)
        of_right = home.names.resolve(f"`{name}`", right, None, at)
        named = (v.column.name for v in (of_left, of_right) if isinstance(v, Ref))
        pairs.append((next(named, name), of_left, of_right))
        conditions.append(Call("=", (of_left, of_right), position=at))
    condition = conditions[0] if conditions else None
    for conjunct in conditions[1:]:
        assert condition is not None
        condition = Call("and", (condition, conjunct), position=at)
    if kind is None:
        return home.user_code([left, right], "a join of an unknown type", at)
    swapped = proto.join_type == 4
    ends = (right, left) if swapped else (left, right)
    relation = ir.Join(ends[0].relation, ends[1].relation, kind, condition, position=at)
    if kind in (ir.JoinKind.SEMI, ir.JoinKind.ANTI):
        return home.node(relation, [left], left.columns)
    if not pairs:
        return home.node(relation, [left, right], left.columns + right.columns)
    return _using(home, relation, left, right, pairs, swapped, at)


def _padded(home: Relations, side: Built) -> Built:
    """A side of an outer join that may be missing, with columns that may be NULL there."""
    relation, exchange = ir.padded(side.relation)
    if not exchange:
        return side
    for old, new in exchange.items():
        home.names.copy(new, old)
    return home.node(relation, [side], tuple(exchange.get(c, c) for c in side.columns))


def _using(
    home: Relations,
    join: ir.Join,
    left: Built,
    right: Built,
    pairs: Sequence[tuple[str, Expression, Expression]],
    swapped: bool,
    at: Position | None,
) -> Built:
    """USING: the common columns once and first, then the others of both sides."""
    inner = home.node(join, [left, right], left.columns + right.columns)
    gone = {value.column for _, *pair in pairs for value in pair if isinstance(value, Ref)}
    outputs: list[tuple[str, Expression]] = []
    for name, of_left, of_right in pairs:
        value = of_right if swapped else of_left
        if join.kind is ir.JoinKind.FULL:
            value = Call("coalesce", (of_left, of_right), type_of(of_left), True, at)
        outputs.append((name, value))
    rest = [column for column in inner.columns if column not in gone]
    built = home.project(inner, [*outputs, *((c.name, Ref(c)) for c in rest)], at)
    if join.kind is ir.JoinKind.INNER:
        for (_, of_left, of_right), column in zip(pairs, built.columns, strict=False):
            if isinstance(of_left, Ref) and isinstance(of_right, Ref):
                _also(home, column, of_right.column)
    return built


def _also(home: Relations, column: Column, other: Column) -> None:
    """The hidden column of the other side, equal in an inner join, can still be named."""
    names = home.names
    both = names.qualifiers.get(column, frozenset()) | names.qualifiers.get(other, frozenset())
    if both:
        names.qualifiers[column] = both
    names.copies.setdefault(names.origin(other), column)


def _set_op(home: Relations, proto: Any, at: Position | None) -> Built:
    left, right = home.build(proto.left_input), home.build(proto.right_input)
    if proto.by_name:
        right = _by_name(home, left, right, proto.allow_missing_columns, at)
    if len(left.columns) != len(right.columns):
        return home.user_code([left, right], "a union of different columns", at)
    ends = [home.shown(left).relation, home.shown(right).relation]
    columns = tuple(
        Column(a.name, common((a.type, b.type)), a.nullable or b.nullable)
        for a, b in zip(left.columns, right.columns, strict=True)
    )
    if proto.set_op_type == 2:
        union: Relation = ir.Union((ends[0], ends[1]), columns, at)
        return home.node(union, [])
    kind = ir.SetKind.INTERSECT if proto.set_op_type == 1 else ir.SetKind.EXCEPT
    relation = ir.SetOperation(ends[0], ends[1], kind, columns, proto.is_all, at)
    return home.node(relation, [])


def _by_name(
    home: Relations, left: Built, right: Built, missing: bool, at: Position | None
) -> Built:
    outputs: list[tuple[str, Expression]] = []
    for column in left.columns:
        same = [c for c in right.columns if c.name.lower() == column.name.lower()]
        absent: Expression = Literal(None) if missing else Unknown("a missing column", (), at)
        outputs.append((column.name, Ref(same[0]) if len(same) == 1 else absent))
    return home.project(right, outputs, at)


CONVERTERS: Final[dict[str, Converter]] = {
    "aggregate": _aggregate,
    "deduplicate": _deduplicate,
    "with_watermark": _with_watermark,
    "join": _join,
    "set_op": _set_op,
}
"""Kind of a relation -> what makes its plan."""
