"""Operations that look at one row after the other, or order and choose rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect.datatypes import from_proto
from annotations.whitebox.connect.expressions import position, sort_key, title
from annotations.whitebox.connect.grouping import has_aggregate, total
from annotations.whitebox.connect.relations import Converter, Relations
from annotations.whitebox.connect.scope import Built
from annotations.whitebox.datatypes import INT, STRING, UNKNOWN, DataType, Family
from annotations.whitebox.following.outside import MODEL, UNREAD
from annotations.whitebox.functions import GENERATORS
from annotations.whitebox.ir import Call, Column, Expression, Literal, Ref
from annotations.whitebox.monotone import type_of


def _select_list(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input) if proto.HasField("input") else home.one_row()
    if any(has_aggregate(expression) for expression in proto.expressions):
        return total(home, over, proto.expressions, at)
    return _selected(home, over, proto.expressions, at)


def _selected(
    home: Relations, over: Built, expressions: Iterable[Any], at: Position | None
) -> Built:
    """A select list; window functions and generators become nodes below it."""
    outputs: list[tuple[str, Expression]] = []
    below = over
    for expression in expressions:
        below, entry_outputs = _entry(home, below, over, expression, at)
        outputs += entry_outputs
    return home.project(below, outputs, at)


def _entry(
    home: Relations, below: Built, over: Built, expression: Any, at: Position | None
) -> tuple[Built, list[tuple[str, Expression]]]:
    inner = expression
    names: list[str] = []
    while inner.WhichOneof("expr_type") == "alias":
        names = names or list(inner.alias.name)
        inner = inner.alias.expr
    for window in _windows(inner):
        below = _windowed(home, below, over, window, at)
    if inner.unresolved_function.function_name.lower() in GENERATORS:
        below, outputs = _generated(home, below, inner, names, at)
    else:
        value = replace(over, relation=below.relation)
        outputs = home.expressions.outputs(expression, value)
    home.expressions.windows.clear()
    return below, outputs


def _windows(proto: Any) -> Iterator[Any]:
    """The window functions inside of an expression."""
    if proto.DESCRIPTOR.name == "Expression" and proto.WhichOneof("expr_type") == "window":
        yield proto.window
        return
    for part, value in proto.ListFields():
        if part.message_type is not None and not part.message_type.GetOptions().map_entry:
            for inside in value if isinstance(value, Sequence) else (value,):
                yield from _windows(inside)


def _windowed(
    home: Relations, below: Built, over: Built, window: Any, at: Position | None
) -> Built:
    """The plan with a column for a window function, which its expression refers to."""
    here = position(window.window_function) or at
    over = replace(over, relation=below.relation)
    value = home.expressions.value(window.window_function, over)
    column = Column(title(window.window_function), type_of(value), True, here)
    home.expressions.windows[window.SerializeToString()] = column
    relation = ir.Window(
        below.relation,
        ((column, value),),
        tuple(home.expressions.value(key, over) for key in window.partition_spec),
        tuple(
            sort_key(key, lambda e: home.expressions.value(e, over)) for key in window.order_spec
        ),
        _counts_rows(window),
        here,
    )
    return home.node(relation, [below], below.columns)


def _counts_rows(window: Any) -> bool:
    frame = window.frame_spec
    every = frame.lower.unbounded and frame.upper.unbounded
    return bool(frame.frame_type == frame.FRAME_TYPE_ROW and not every)


def _generated(
    home: Relations, below: Built, proto: Any, names: list[str], at: Position | None
) -> tuple[Built, list[tuple[str, Expression]]]:
    here = position(proto) or at
    value = home.expressions.value(proto, below)
    argument = value.arguments[0] if isinstance(value, Call) and value.arguments else value
    function = proto.unresolved_function.function_name.lower()
    columns = _generated_columns(function, type_of(argument), names, here)
    relation = ir.Generate(below.relation, value, columns, here)
    outputs: list[tuple[str, Expression]] = [(c.name, Ref(c, here)) for c in columns]
    return home.node(relation, [below], below.columns), outputs


def _generated_columns(
    function: str, argument: DataType, names: list[str], at: Position | None
) -> tuple[Column, ...]:
    """The columns that a generator puts out, under the names given or those that Spark gives."""
    element = argument.element or UNKNOWN
    kinds: list[tuple[str, DataType]]
    if function.startswith("inline"):
        kinds = [(name, type_) for name, type_, _ in element.fields]
    elif argument.family is Family.MAP:
        kinds = [("key", argument.key or UNKNOWN), ("value", element)]
    else:
        kinds = [("col", element)]
    if function.startswith("posexplode"):
        kinds = [("pos", INT), *kinds]
    if function in ("stack", "json_tuple"):
        kinds = [(f"c{place}", UNKNOWN) for place in range(max(len(names), 1))]
    if len(names) == len(kinds):
        kinds = [(name, type_) for name, (_, type_) in zip(names, kinds, strict=True)]
    return tuple(Column(name, type_, True, at) for name, type_ in kinds)


def _filter(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    condition = home.expressions.value(proto.condition, over)
    relation = ir.Filter(over.relation, condition, getattr(condition, "position", None) or at)
    return home.node(relation, [over], over.columns)


def _aliased(
    home: Relations, below: Built, over: Built, alias: Any, at: Position | None
) -> tuple[Built, list[tuple[str, Expression]]]:
    """An entry with its name, as `withColumn` sends it."""
    import pyspark.sql.connect.proto as pb

    return _entry(home, below, over, pb.Expression(alias=alias), at)


def _with_columns(home: Relations, proto: Any, at: Position | None) -> Built:
    over = below = home.build(proto.input)
    changed: dict[str, tuple[str, Expression]] = {}
    for alias in proto.aliases:
        below, outputs = _aliased(home, below, over, alias, at)
        for name, value in outputs:
            changed[name.lower()] = (name, value)
    known = {column.name.lower() for column in over.columns}
    outputs = [
        changed.get(column.name.lower(), (column.name, Ref(column))) for column in over.columns
    ]
    outputs += [output for name, output in changed.items() if name not in known]
    return home.project(below, outputs, at)


def _with_columns_renamed(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    names = {rename.col_name.lower(): rename.new_col_name for rename in proto.renames}
    names |= {old.lower(): new for old, new in proto.rename_columns_map.items()}
    outputs = [(names.get(c.name.lower(), c.name), Ref(c)) for c in over.columns]
    return home.project(over, outputs, at)


def _to_df(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    if len(over.columns) != len(proto.column_names):
        return home.user_code([over], "new names for columns that are not known", at)
    named = zip(proto.column_names, over.columns, strict=True)
    return home.project(over, [(name, Ref(column)) for name, column in named], at)


def _to_schema(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    outputs: list[tuple[str, Expression]] = []
    for name, type_, _ in from_proto(proto.schema).fields:
        value = home.names.resolve(f"`{name}`", over, None, at)
        same = type_of(value) == type_
        outputs.append((name, value if same else Call("cast", (value,), type_, True, at)))
    return home.project(over, outputs, at)


def _drop(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    names = {name.lower() for name in proto.column_names}
    values = [home.expressions.value(column, over) for column in proto.columns]
    gone = {value.column for value in values if isinstance(value, Ref)}
    remaining = [c for c in over.columns if c not in gone and c.name.lower() not in names]
    return home.project(over, [(column.name, Ref(column)) for column in remaining], at)


def _subquery_alias(home: Relations, proto: Any, at: Position | None) -> Built:
    return home.called(home.build(proto.input), proto.alias, at)


def _fill_na(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    chosen = {name.lower() for name in proto.cols}
    outputs: list[tuple[str, Expression]] = []
    for column in over.columns:
        filled = not chosen or column.name.lower() in chosen
        # Columns of another type than the constant stay as they are.
        fill = Call("coalesce", (Ref(column), Literal(0)), column.type, column.nullable, at)
        outputs.append((column.name, fill if filled else Ref(column)))
    return home.project(over, outputs, at)


def _drop_na(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    chosen = {name.lower() for name in proto.cols}
    tested = [c for c in over.columns if not chosen or c.name.lower() in chosen]
    condition: Expression = Call("coalesce", tuple(Ref(column) for column in tested))
    relation = ir.Filter(over.relation, Call("is not null", (condition,), position=at), at)
    return home.node(relation, [over], over.columns)


def _replace(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    chosen = {name.lower() for name in proto.cols}
    outputs: list[tuple[str, Expression]] = []
    for column in over.columns:
        new = Call("coalesce", (Ref(column), Literal(0)), column.type, True, at)
        replaced = not chosen or column.name.lower() in chosen
        outputs.append((column.name, new if replaced else Ref(column)))
    return home.project(over, outputs, at)


def _sort(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    keys = tuple(sort_key(key, lambda e: home.expressions.value(e, over)) for key in proto.order)
    return home.node(ir.Sort(over.relation, keys, at), [over], over.columns)


def _limit(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    below = over.relation
    skips = proto.DESCRIPTOR.name == "Offset"
    limit = ir.Limit(below, (), at, skips)
    if isinstance(below, ir.Sort) and below.keys:
        limit = ir.Limit(below.input, below.keys, at, skips)
    return home.node(limit, [over], over.columns)


def _sample(home: Relations, proto: Any, at: Position | None) -> Built:
    over = home.build(proto.input)
    return home.node(ir.Sample(over.relation, at), [over], over.columns)


def _same(home: Relations, proto: Any, at: Position | None) -> Built:
    """Hints and metrics change nothing about which rows there are."""
    inner = home.build(proto.input)
    return home.node(inner.relation, [inner], inner.columns)


def _repartition(home: Relations, proto: Any, at: Position | None) -> Built:
    """Rows in other partitions; `coalesce` moves none."""
    inner = home.build(proto.input)
    if not getattr(proto, "shuffle", True):
        return home.node(inner.relation, [inner], inner.columns)
    return home.node(ir.Sort(inner.relation, (), at), [inner], inner.columns)


def _hint(home: Relations, proto: Any, at: Position | None) -> Built:
    """A hint of Spark's changes no rows; ours marks what went through unknown code."""
    if proto.name != UNREAD:
        moves = proto.name.upper().startswith(("REPARTITION", "REBALANCE"))
        return (_repartition if moves else _same)(home, proto, at)
    reason, *kind = (parameter.literal.string for parameter in proto.parameters)
    if kind == [MODEL]:
        return _scored(home, proto, at)
    left_open = "place" if kind else "text"
    inside = [home.build(proto.input)]
    return home.user_code(inside, reason, at, deterministic=False, left_open=left_open)


def _unpivot(home: Relations, proto: Any, at: Position | None) -> Built:
    """For each row a row for each of several columns, with its name and value."""
    over = home.build(proto.input)
    ids = [output for e in proto.ids for output in home.expressions.outputs(e, over)]
    listed = proto.values.values if proto.HasField("values") else ()
    values = [value for e in listed for _, value in home.expressions.outputs(e, over)]
    if not listed:
        id_columns = {value.column for _, value in ids if isinstance(value, Ref)}
        values = [Ref(column) for column in over.columns if column not in id_columns]
    named = Column(proto.variable_column_name, STRING), Column(proto.value_column_name)
    stack = Call("stack", tuple(values), UNKNOWN, True, at)
    below = home.node(ir.Generate(over.relation, stack, named, at), [over])
    outputs = [*ids, *((column.name, Ref(column)) for column in named)]
    return home.project(below, outputs, at)


def _scored(home: Relations, proto: Any, at: Position | None) -> Built:
    """The rows with what a model says of each of them: columns that the plan names, and that its
    input does not have."""
    built = home.build(proto.input)
    own = {column.name.lower(): (column.name, Ref(column)) for column in built.columns}
    claim = "the model that is loaded stays the same, and is taken to score each record alone"
    score = Call("udf.model", tuple(map(Ref, built.columns)), UNKNOWN, True, at, user=claim)
    outputs = {low: (name, score) for low, name in home.mentioned.items()} | own
    return home.project(built, outputs.values(), at)


CONVERTERS: Final[dict[str, Converter]] = {
    "project": _select_list,
    "filter": _filter,
    "with_columns": _with_columns,
    "with_columns_renamed": _with_columns_renamed,
    "to_df": _to_df,
    "to_schema": _to_schema,
    "drop": _drop,
    "subquery_alias": _subquery_alias,
    "fill_na": _fill_na,
    "drop_na": _drop_na,
    "replace": _replace,
    "sort": _sort,
    "limit": _limit,
    "offset": _limit,
    "tail": _limit,
    "sample": _sample,
    "hint": _hint,
    "repartition": _repartition,
    "repartition_by_expression": _repartition,
    "collect_metrics": _same,
    "unpivot": _unpivot,
}
"""Kind of a relation -> what makes its plan."""
