"""Code that Spark does not run over a stream: it refuses the query when the job starts.

What is found here runs over records that are kept, or is refused when the job is compiled. The
rules are those of Spark's `UnsupportedOperationChecker`; what nothing shows is taken to run.
`benchmarks/streaming_on_spark.py` compares them with Spark over random queries and functions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Column,
    Deduplicate,
    Expression,
    Filter,
    Join,
    JoinKind,
    Limit,
    Opaque,
    Project,
    Relation,
    Sample,
    SetOperation,
    Sort,
    Source,
    Union,
    Watermark,
    Window,
    inputs_of,
    nodes_of,
    references,
    walk,
)
from annotations.whitebox.joining import conjuncts
from codegen.duckdb_sql import parsed

_SORTING: Final = {"order": "ORDER BY", "sort": "SORT BY", "cluster": "CLUSTER BY"}
"""Clauses of a query, by their names in sqlglot's trees."""
_OF_WINDOWS: Final = {"window", "session_window", "window_time", "field", "interval"}
"""Functions that keep what Spark knows of a watermark."""


def refused(sql: str | None, plan: Relation, *, appends: bool) -> str | None:
    """The first construct of a query that Spark does not run over a stream; None: it runs.

    Args:
        sql: the query; None where it is a function of DataFrames.
        plan: the same, as `annotations.whitebox` reads it.
        appends: whether only new rows are put out, and not those of groups that change.
    """
    return next(_constructs(sql, plan, appends=appends), None)


def gives_sets(plan: Relation) -> bool:
    """Whether equal rows that a query over streams puts out count as one.

    A confluent query of which only the rows matter, not how many, can be asked again and again of
    all records that are kept.
    """
    nodes = list(nodes_of(plan))
    return not any(isinstance(node, Watermark) for node in nodes) and any(
        isinstance(node, Aggregate | Deduplicate | SetOperation)
        or (isinstance(node, Join) and node.kind is not JoinKind.INNER)
        for node in nodes
    )


def _marked(plan: Relation) -> set[Column]:
    """The columns whose values a watermark passes, under each of their names."""
    marked = {node.column for node in nodes_of(plan) if isinstance(node, Watermark)}
    before = -1
    while marked and before < len(marked):
        before = len(marked)
        for node in nodes_of(plan):
            if isinstance(node, Project | Aggregate):
                marked |= {column for column, value in node.outputs if _closes(value, marked)}
            elif isinstance(node, Union):
                for one in node.inputs:
                    named = zip(node.columns, one.columns, strict=False)
                    marked |= {column for column, same in named if same in marked}
    return marked


def _closes(key: Expression, marked: Collection[Column]) -> bool:
    """Whether a watermark closes the groups of a key: a time, or a window of one."""
    calls = {part.function for part in walk(key) if isinstance(part, Call)}
    return bool(references(key) & set(marked)) and calls <= _OF_WINDOWS


def _constructs(sql: str | None, plan: Relation, *, appends: bool) -> Iterator[str]:
    marked = _marked(plan)
    for node in filter(_is_stream, nodes_of(plan)):
        match node:
            case Window():
                yield "a function over a window of rows"
            case Sort(keys=order) | Limit(order=order) if order:
                yield "an order of rows"
            case Sample():
                yield "a sample of rows"
            case Limit(skips=skips) if skips or not appends:
                yield "OFFSET" if skips else "LIMIT"
            case SetOperation(kind=kind):
                yield kind.name
            case Union(inputs=inputs) if not all(map(_is_stream, inputs)):
                yield "a UNION of a stream and a table"
            case Join(kind=kind):
                if kind is not JoinKind.INNER and not _ends(node, marked, appends=appends):
                    yield f"a join with a stream that is {kind.value}"
                elif _meets_streams(node) and not _has_equality(node, plan):
                    yield "a join of streams without columns that are equal"
            case Aggregate(pivots=True):
                yield "PIVOT"
            case Aggregate(keys=keys) if appends and not any(_closes(k, marked) for k in keys):
                yield "groups"
            case Deduplicate(grouped=True, columns=columns) if appends and marked.isdisjoint(
                columns
            ):
                yield "DISTINCT"
            case Aggregate(keys=keys) if not appends and any(
                isinstance(key, Call) and key.function == "session_window" for key in keys
            ):
                yield "groups by session_window, when groups that change are put out"
            case Aggregate(outputs=outputs) if any(
                isinstance(part, Call) and part.distinct for _, e in outputs for part in walk(e)
            ):
                yield "an aggregate of DISTINCT values"
            case Deduplicate(expires=True, columns=columns) if marked.isdisjoint(columns):
                yield "dropDuplicatesWithinWatermark without a watermark"
        if (
            not appends
            and _keeps_state(node)
            and any(_groups(below) for one in inputs_of(node) for below in nodes_of(one))
        ):
            yield "groups below a join, or below other groups"
    if sql is not None:
        yield from _in_text(sql, plan)


def _in_text(sql: str, plan: Relation) -> Iterator[str]:
    """Constructs that the plan does not show."""
    from sqlglot import exp

    text = sql.lower()
    unseen = any(isinstance(node, Opaque | Sort) for node in nodes_of(plan))
    if not unseen and text.count("select") < 2:
        return
    try:
        tree = parsed(sql)
    except ValueError:
        return
    streams = {
        node.name.lower() for node in nodes_of(plan) if isinstance(node, Source) and node.comes
    }
    for query in tree.find_all(exp.Query):
        for clause, name in _SORTING.items():
            if query.args.get(clause):
                yield name
        inside = query.parent.parent if isinstance(query.parent, exp.Subquery) else query.parent
        is_value = isinstance(inside, exp.Condition | exp.Lateral | exp.Exists | exp.In | exp.Alias)
        if is_value and streams & {table.name.lower() for table in query.find_all(exp.Table)}:
            yield "a subquery over a stream"
    if any(isinstance(view.this, exp.Subquery) for view in tree.find_all(exp.Lateral)):
        yield "a LATERAL subquery"
    if any(clause.args.get("recursive") for clause in tree.find_all(exp.With)):
        yield "WITH RECURSIVE"
    if any(not clause.args.get("unpivot") for clause in tree.find_all(exp.Pivot)):
        yield "PIVOT"


def _is_stream(relation: Relation) -> bool:
    return any(isinstance(node, Source) and node.comes for node in nodes_of(relation))


def _meets_streams(join: Join) -> bool:
    return _is_stream(join.left) and _is_stream(join.right)


def _ends(join: Join, marked: Collection[Column], *, appends: bool) -> bool:
    """Whether Spark knows when a row of an outer or semi join will have no other any more."""
    if not _is_stream(join.right):
        return join.kind is not JoinKind.FULL
    if join.kind is JoinKind.ANTI or not _is_stream(join.left) or join.condition is None:
        return False
    if not appends and join.kind is not JoinKind.SEMI:
        return False
    of_right = {column for column in join.right.columns if column in marked}
    return any(
        (isinstance(part, Call) and part.function == "=" and references(part) & set(marked))
        or references(part) & of_right
        for part in _always(join.condition)
    )


def _groups(node: Relation) -> bool:
    """Whether Spark makes groups of it; of a stream."""
    grouped = isinstance(node, Aggregate) or (isinstance(node, Deduplicate) and node.grouped)
    return grouped and _is_stream(node)


def _keeps_state(node: Relation) -> bool:
    """Whether it fails above groups that change: Spark refuses it, or takes two states for one."""
    return isinstance(node, Aggregate | Deduplicate) or (
        isinstance(node, Join) and _meets_streams(node)
    )


def _has_equality(join: Join, plan: Relation) -> bool:
    """Whether a condition may say that a value of one side is one of the other.

    Spark looks for one in all filters above, where columns may have been given other names.
    """
    nodes = list(nodes_of(plan))
    sides = _computed_of(join.left.columns, nodes), _computed_of(join.right.columns, nodes)
    conditions = [node.condition for node in nodes if isinstance(node, Join | Filter)]
    for part in (part for condition in conditions for part in _always(condition)):
        if isinstance(part, Call) and part.function in ("=", "<=>") and len(part.arguments) == 2:
            one, other = map(references, part.arguments)
            ways = ((one, other), (other, one))
            if one and other and any(a <= sides[0] and b <= sides[1] for a, b in ways):
                return True
    return False


def _computed_of(columns: Collection[Column], nodes: Collection[Relation]) -> set[Column]:
    """Those columns, and those that are computed of them alone."""
    known, before = set(columns), -1
    while before < len(known):
        before = len(known)
        for node in nodes:
            if isinstance(node, Project | Aggregate | Window):
                known |= {c for c, value in node.outputs if references(value) <= known}
    return known


def _always(condition: Expression | None) -> Iterator[Expression]:
    """The parts of a condition that hold wherever it does, in each way of an OR among them."""
    for part in conjuncts(condition):
        if isinstance(part, Call) and part.function == "or":
            first, *others = ([*_always(way)] for way in part.arguments)
            yield from (one for one in first if all(one in way for way in others))
        else:
            yield part
