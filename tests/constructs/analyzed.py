"""Two readings of one query side by side: ours without a JVM, and Spark's own analyzer's.

`ours` and `sparks` give the same kind of value, a `Reading`: the columns with their types, and the
operators that decide annotations, each with what matters about it. Where they differ, one of the
two has misread the query.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from annotations.whitebox import ir
from annotations.whitebox.datatypes import DataType, parse_type
from annotations.whitebox.functions import AGGREGATES
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import inputs_of
from annotations.whitebox.sql import read
from annotations.whitebox.type_text import schema_text

Operator = tuple[str, ...]


@dataclass(frozen=True)
class Reading:
    """What a query is taken for."""

    columns: tuple[tuple[str, DataType], ...]
    operators: tuple[tuple[Operator, int], ...]
    """Each with how often it occurs, sorted."""


def _reading(columns: Iterator[tuple[str, DataType]], operators: Iterator[Operator]) -> Reading:
    return Reading(tuple(columns), tuple(sorted(Counter(operators).items())))


# ---- ours


def ours(sql: str, schemas: Mapping[str, Mapping[str, str]]) -> Reading:
    """What the front end reads."""
    query = read(sql, inputs={name: Input(dict(columns)) for name, columns in schemas.items()})
    assert query.problem is None, query.problem
    columns = (
        (column.name, parse_type(schema_text(column.type))[0]) for column in query.plan.columns
    )
    return _reading(columns, _operators(query.plan))


def _operators(node: ir.Relation) -> Iterator[Operator]:
    for below in inputs_of(node):
        yield from _operators(below)
    match node:
        case ir.Aggregate():
            keys = len(node.keys) + (node.sets is not None)
            yield ("aggregate", str(keys), *sorted(_aggregates(node)))
        case ir.Join():
            yield ("join", node.kind.value)
        case ir.Deduplicate():
            yield ("distinct",)
        case ir.Union():
            yield ("union", str(len(node.inputs)))
        case ir.SetOperation():
            yield (node.kind.value, "all" if node.all else "distinct")
        case ir.Window():
            for _, call in node.outputs:
                assert isinstance(call, ir.Call)
                yield ("window", str(len(node.partition)), _spelled(call.function))
        case ir.Limit():
            yield ("limit", "sorted" if node.order else "as they come")
        case ir.Generate():
            yield ("generate",)
        case ir.Sample():
            yield ("sample",)


def _aggregates(node: ir.Aggregate) -> set[str]:
    return {
        ("distinct " if each.distinct else "") + _spelled(each.function)
        for _, expression in node.outputs
        for each in ir.walk(expression)
        if isinstance(each, ir.Call) and each.function in AGGREGATES
    }


SPELLED: Final[Mapping[str, str]] = {
    "approx_count_distinct": "hyperloglogplusplus",
    "array_agg": "collectlist",
    "avg": "average",
    "count_if": "countif",
    "first_value": "first",
    "last_value": "last",
    "mean": "average",
    "percentile_approx": "approximatepercentile",
    "stddev": "stddevsamp",
    "string_agg": "listagg",
}
"""Our names of functions -> Spark's classes, where they differ by more than underscores."""


def _spelled(function: str) -> str:
    return SPELLED.get(function, function.replace("_", ""))


# ---- Spark's


def register(schemas: Mapping[str, Mapping[str, str]], spark: Any) -> None:
    """Make empty tables of these schemas known to Spark."""
    for name, columns in schemas.items():
        ddl = ", ".join(f"`{column}` {type_}" for column, type_ in columns.items())
        spark.createDataFrame([], ddl).createOrReplaceTempView(f"`{name}`")


def sparks(sql: str, spark: Any) -> Reading:
    """What Spark's analyzer makes of the query, over tables that are registered."""
    frame = spark.sql(sql)
    plan = json.loads(frame._jdf.queryExecution().analyzed().toJSON())
    columns = (
        (field.name, parse_type(field.dataType.simpleString())[0]) for field in frame.schema.fields
    )
    return _reading(columns, _Analyzed().operators(plan))


class _Analyzed:
    """A plan as Spark writes it: nodes in prefix order, each with the number of its children."""

    def __init__(self) -> None:
        self.named: dict[int, list[Any]] = {}
        """Named queries by their number; Spark writes each once, however often it is used."""

    def operators(self, plan: Sequence[Any]) -> Iterator[Operator]:
        for at, node in enumerate(plan):
            if _class(node) == "CTERelationDef":
                self.named[node["id"]] = _subtree(plan, at + 1)
        at = 0
        while at < len(plan):
            if _class(plan[at]) == "CTERelationDef":
                at += len(_subtree(plan, at))
                continue
            above = _class(plan[at - 1]) if at else ""
            yield from self._node(plan[at], _below(plan, at), above)
            at += 1

    def _node(self, node: Mapping[str, Any], below: str, above: str) -> Iterator[Operator]:
        yield from self._subqueries(node)
        match _class(node):
            case "CTERelationRef":
                yield from self.operators(self.named[node["cteId"]])
            case "Aggregate":
                keys = node["groupingExpressions"]
                yield ("aggregate", str(len(keys)), *sorted(_functions(node)))
            case "Join":
                kind = re.findall(r"(\w+)\$", json.dumps(node["joinType"]))[-1]
                yield ("join", KINDS[kind])
            case "Distinct":
                yield ("distinct",)
            case "Union":
                yield ("union", str(node["num-children"]))
            case "Except" | "Intersect" as name:
                yield (name.lower(), "all" if node["isAll"] else "distinct")
            case "Window":
                expressions = _expressions(node["windowExpressions"])
                names = [_class(each).lower() for each in expressions if _class(each) in RANKS]
                names += [each.removeprefix("distinct ") for each in _functions(node)]
                yield from (("window", str(len(node["partitionSpec"])), name) for name in names)
            case "GlobalLimit" | "Offset" if above != "LocalLimit":  # LIMIT with an OFFSET is one
                yield ("limit", "sorted" if below == "Sort" else "as they come")
            case "Generate":
                yield ("generate",)
            case "Sample":
                yield ("sample",)

    def _subqueries(self, node: Mapping[str, Any]) -> Iterator[Operator]:
        """Subqueries of a condition, as the joins that they stand for."""
        before = ""
        for each in _expressions(node.get("condition") or ()):
            name = _class(each)
            if name in ("Exists", "InSubquery"):
                yield ("join", "anti" if before == "Not" else "semi")
            if name in ("Exists", "ListQuery") and isinstance(each.get("plan"), list):
                yield from self.operators(each["plan"])
            before = name


KINDS: Final[Mapping[str, str]] = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left outer",
    "RightOuter": "left outer",
    "FullOuter": "full outer",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
}
RANKS: Final = frozenset({"RowNumber", "Rank", "DenseRank", "Lag", "Lead", "NTile", "CumeDist"})


def _class(node: Mapping[str, Any]) -> str:
    return str(node["class"]).rsplit(".", 1)[-1]


def _subtree(plan: Sequence[Any], at: int) -> list[Any]:
    """The node at a place with everything below it."""
    end, open_ = at, 1
    while open_:
        open_ += plan[end]["num-children"] - 1
        end += 1
    return list(plan[at:end])


def _below(plan: Sequence[Any], at: int) -> str:
    """The class of what stands below a node, through what only cuts or renames."""
    for node in plan[at + 1 :]:
        if _class(node) not in ("LocalLimit", "GlobalLimit", "Offset", "Project", "SubqueryAlias"):
            return _class(node)
    return ""


def _expressions(value: Any) -> Iterator[Mapping[str, Any]]:
    """The expressions of a field, in the order of the text, without plans inside of them."""
    if isinstance(value, list):
        for each in value:
            yield from _expressions(each)
    elif isinstance(value, dict) and "class" in value:
        yield value


def _functions(node: Mapping[str, Any]) -> set[str]:
    found = set()
    fields = node.get("aggregateExpressions") or node.get("windowExpressions")
    expressions = list(_expressions(fields))
    for each, argument in pairwise(expressions):
        if _class(each) == "AggregateExpression":
            distinct = "distinct " if each["isDistinct"] else ""
            found.add(distinct + _class(argument).lower())
    return found
