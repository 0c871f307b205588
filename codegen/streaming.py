"""SQL that Spark does not run over a stream: it refuses the query when the job starts.

What is found here runs over records that are kept, or is refused when the job is compiled. The
rules are those of Spark's `UnsupportedOperationChecker`; what nothing shows is taken to run.
`benchmarks/streaming_on_spark.py` compares them with Spark over random queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Deduplicate,
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
from codegen.duckdb_sql import parsed

_SORTING: Final = {"order": "ORDER BY", "sort": "SORT BY", "cluster": "CLUSTER BY"}
"""Clauses of a query, by their names in sqlglot's trees."""


def refused(sql: str, plan: Relation, *, appends: bool) -> str | None:
    """The first construct of a query that Spark does not run over a stream; None: it runs.

    Args:
        sql: the query.
        plan: the same, as `annotations.whitebox.sql` reads it.
        appends: whether only new rows are put out, and not those of groups that change.
    """
    if _closes_groups(plan):  # so that more is allowed
        return None
    return next(_constructs(sql, plan, appends=appends), None)


def gives_sets(plan: Relation) -> bool:
    """Whether equal rows that a query over streams puts out count as one.

    A confluent query of which only the rows matter, not how many, can be asked again and again of
    all records that are kept.
    """
    return not _closes_groups(plan) and any(
        isinstance(node, Aggregate | Deduplicate | SetOperation)
        or (isinstance(node, Join) and node.kind is not JoinKind.INNER)
        for node in nodes_of(plan)
    )


def _closes_groups(plan: Relation) -> bool:
    return any(isinstance(node, Watermark) for node in nodes_of(plan))


def _constructs(sql: str, plan: Relation, *, appends: bool) -> Iterator[str]:
    for node in filter(_is_stream, nodes_of(plan)):
        match node:
            case Window():
                yield "a function over a window of rows"
            case Sample():
                yield "TABLESAMPLE"
            case Limit() if not appends:
                yield "LIMIT"
            case SetOperation(kind=kind):
                yield kind.name
            case Union(inputs=inputs) if not all(map(_is_stream, inputs)):
                yield "a UNION of a stream and a table"
            case Join(kind=JoinKind.INNER):
                if _meets_streams(node) and not _has_equality(node, plan):
                    yield "a join of streams without columns that are equal"
            case Join(kind=kind):
                if _is_stream(node.right) or kind is JoinKind.FULL:
                    yield f"a join with a stream that is {kind.value}"
            case Aggregate() | Deduplicate() if appends:
                yield "groups" if isinstance(node, Aggregate) else "DISTINCT"
            case Aggregate(outputs=outputs) if any(
                isinstance(part, Call) and part.distinct for _, e in outputs for part in walk(e)
            ):
                yield "an aggregate of DISTINCT values"
        if _keeps_state(node) and any(
            _groups(below) for one in inputs_of(node) for below in nodes_of(one)
        ):
            yield "groups below a join, or below other groups"
    yield from _in_text(sql, plan)


def _in_text(sql: str, plan: Relation) -> Iterator[str]:
    """Constructs that the plan does not show."""
    from sqlglot import exp

    text = sql.lower()
    unseen = any(isinstance(node, Opaque | Sort) for node in nodes_of(plan))
    if not unseen and "pivot" not in text and text.count("select") < 2:
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


def _groups(node: Relation) -> bool:
    """Whether Spark makes groups of it; of a stream."""
    grouped = isinstance(node, Aggregate) or (isinstance(node, Deduplicate) and node.grouped)
    return grouped and _is_stream(node)


def _keeps_state(node: Relation) -> bool:
    return isinstance(node, Aggregate | Deduplicate) or (
        isinstance(node, Join) and _meets_streams(node)
    )


def _has_equality(join: Join, plan: Relation) -> bool:
    """Whether a condition may say that a value of one side is one of the other.

    Spark looks for one in all filters above, where columns may have been given other names.
    """
    nodes = list(nodes_of(plan))
    renamed = {
        column
        for node in nodes
        if isinstance(node, Project | Aggregate | Window)
        for column, _ in node.outputs
    }
    sides = {*join.left.columns, *renamed}, {*join.right.columns, *renamed}
    conditions = [node.condition for node in nodes if isinstance(node, Join | Filter)]
    for part in (part for one in conditions if one is not None for part in walk(one)):
        if isinstance(part, Call) and part.function in ("=", "<=>") and len(part.arguments) == 2:
            one, other = map(references, part.arguments)
            ways = ((one, other), (other, one))
            if one and other and any(a <= sides[0] and b <= sides[1] for a, b in ways):
                return True
    return False
