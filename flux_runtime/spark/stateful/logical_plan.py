"""A component's optimised logical plan, as far as `relevance` has words for it.

The component is applied to frames over empty files, without running anything; Spark writes its plan
as JSON. By then views, subqueries and set operations are joins and groups, and types are resolved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    FractionalType,
    IntegerType,
    IntegralType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
    YearMonthIntervalType,
)

from flux_runtime.spark.frames import column
from flux_runtime.spark.stateful.relevance import (
    Attribute,
    Constant,
    Groups,
    Input,
    Join,
    Node,
    Opaque,
    Rows,
    Union,
)

_INTEGERS: Final = ("byte", "short", "integer", "long")
_EXACT_NAMES: Final = ("binary", "boolean", "date", "string", "timestamp", "timestamp_ntz")
_ATTRIBUTE: Final = "AttributeReference"
_EXACT: Final = (BinaryType, BooleanType, DateType, DecimalType, TimestampNTZType, TimestampType)
_NUMBERS: Final = (FractionalType, IntegralType)
_COPIED: Final = (*_EXACT, *_NUMBERS, DayTimeIntervalType, StringType, YearMonthIntervalType)
_KINDS: Final = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left",
    "RightOuter": "right",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
}
_SAME_ROWS: Final = frozenset(
    {"Filter", "RebalancePartitions", "Repartition", "RepartitionByExpression"}
    | {"ResolvedHint", "Sort", "SubqueryAlias"}
)
"""Operators whose rows are some of their input's, each by its own merit."""
_ADDING: Final = frozenset({"ArrowEvalPython", "BatchEvalPython", "Generate"})
"""Operators that add columns to each row of their input, and may repeat or leave out the row."""
_GROUPING: Final = frozenset(
    {"FlatMapGroupsInArrow", "FlatMapGroupsInPandas", "FlatMapGroupsInPandasWithState"}
)
_CONSTANT: Final = frozenset({"EmptyRelation", "LocalRelation", "OneRowRelation", "Range"})


class UnknownPlanError(Exception):
    """The plan cannot be read; nothing is known of the component."""


def comparable(of: DataType) -> bool:
    """Whether values of a type are equal just where they are the same, so that they hash alike."""
    if isinstance(of, StringType):
        return of == StringType()  # under a collation, different texts can be equal
    return isinstance(of, (IntegralType, *_EXACT))


def can_be_kept(of: DataType) -> bool:
    """Whether values of a type come back from Parquet files that Arrow has copied."""
    match of:
        case ArrayType():
            return can_be_kept(of.elementType)
        case MapType():
            return can_be_kept(of.keyType) and can_be_kept(of.valueType)
        case StructType():
            return all(can_be_kept(field.dataType) for field in of.fields)
        case _:
            return isinstance(of, _COPIED)


def key(schema: Mapping[str, DataType], names: Sequence[str]) -> Column:
    """The hash of some columns; equal values of any two comparable types have one hash.

    Args:
        schema: type of each column of the frame.
        names: of the columns.
    """
    values = [
        sf.col(column(name)).cast(LongType())
        if isinstance(schema[name], ByteType | ShortType | IntegerType | LongType)
        else sf.col(column(name))
        for name in names
    ]
    return sf.xxhash64(*values)


def read_plan(frame: DataFrame, inputs: Mapping[str, str]) -> Node:
    """The plan of a frame.

    Args:
        frame: what a component makes of its inputs.
        inputs: interface -> where the files of its frame are.

    Raises:
        UnknownPlanError: it has parts that may hide inputs.
    """
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    try:
        return _Reader(json.loads(plan.toJSON()), inputs).node(plan)
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise UnknownPlanError(f"{type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class _Expression:
    """An expression: what it is, its fields, and what it is made of."""

    kind: str
    fields: Mapping[str, Any]
    children: tuple[_Expression, ...]

    @property
    def id(self) -> Attribute:
        """Of an attribute or an alias."""
        return int(self.fields["exprId"]["id"])

    def all(self) -> Iterator[_Expression]:
        """It, and everything below."""
        yield self
        for child in self.children:
            yield from child.all()


class _Reader:
    """Reads nodes in the order in which Spark writes them: each before its children."""

    def __init__(self, nodes: Sequence[Mapping[str, Any]], inputs: Mapping[str, str]) -> None:
        self._nodes = iter(nodes)
        self._inputs = inputs

    def node(self, plan: Any) -> Node:
        """The next node, with what is below; `plan` is Spark's."""
        fields = next(self._nodes)
        kind = fields["class"].rpartition(".")[2]
        below = [plan.children().apply(i) for i in range(fields["num-children"])]
        children = tuple(map(self.node, below))
        expressions = [e for value in fields.values() for tree in _trees(value) for e in tree.all()]
        if any("Subquery" in e.kind or e.kind in ("Exists", "ListQuery") for e in expressions):
            raise UnknownPlanError("a subquery is left in an expression")
        if not children:
            return self._leaf(fields, plan)
        child = children[0]
        match kind:
            case _ if kind in _SAME_ROWS:
                return child
            case "Project":
                return Rows(child, _passed(fields["projectList"]))
            case _ if kind in _ADDING:
                return Rows(child, None)
            case "Expand":
                return Rows(child, _expanded(fields))
            case "Window":
                return Groups(child, _attributes(fields["partitionSpec"]), None)
            case _ if kind in _GROUPING:
                return Groups(child, _attributes(fields["groupingAttributes"]), {})
            case "Aggregate":
                grouping, outputs = fields["groupingExpressions"], fields["aggregateExpressions"]
                aggregates = any("Aggregate" in e.kind or "UDAF" in e.kind for e in expressions)
                plain = bool(grouping) and not aggregates
                return Groups(child, _attributes(grouping), _passed(outputs), plain)
            case "Join":
                joined = _KINDS.get(fields["joinType"]["object"].rpartition(".")[2].rstrip("$"))
                if joined is None:
                    return Opaque(children)
                left, right = children
                return Join(left, right, joined, frozenset(_equated(fields.get("condition"))))
            case "Union":
                outputs = [_outputs(child) for child in below]
                first, *_ = outputs
                return Union(children, dict(zip(first, zip(*outputs, strict=True), strict=True)))
            case _:
                return Opaque(children)

    def _leaf(self, fields: Mapping[str, Any], plan: Any) -> Node:
        kind = plan.getClass().getSimpleName()
        if kind in _CONSTANT:
            return Constant()
        if kind != "LogicalRelation":
            raise UnknownPlanError(f"a leaf is a {kind}")
        root = _plain(plan.relation().location().rootPaths().head().toString())
        names = [name for name, uri in self._inputs.items() if _plain(uri) == root]
        if len(names) != 1:
            raise UnknownPlanError(f"{root} is no input")
        columns = [_tree(field) for field in fields["output"]]
        return Input(names[0], {c.id: c.fields["name"] for c in columns if _is_comparable(c)})


def _plain(uri: str) -> str:
    """Hadoop writes `file:/x` for `file:///x`."""
    return uri.replace(":///", ":/").rstrip("/")


def _outputs(plan: Any) -> list[Attribute]:
    output = plan.output()
    return [output.apply(i).exprId().id() for i in range(output.size())]


def _trees(value: Any) -> Iterator[_Expression]:
    """The expressions of a field."""
    if isinstance(value, list) and value:
        if isinstance(value[0], dict) and "class" in value[0]:
            yield _tree(value)
        else:
            for part in value:
                yield from _trees(part)


def _tree(nodes: Iterable[Mapping[str, Any]]) -> _Expression:
    remaining = iter(nodes)

    def read() -> _Expression:
        fields = next(remaining)
        kind = fields["class"].rpartition(".")[2]
        return _Expression(kind, fields, tuple(read() for _ in range(fields["num-children"])))

    return read()


def _passed(outputs: Iterable[Any]) -> dict[Attribute, Attribute]:
    """Attributes that are passed on, maybe under another name."""
    result = {}
    for output in map(_tree, outputs):
        source = output.children[0] if output.kind == "Alias" else output
        if source.kind == _ATTRIBUTE:
            result[output.id] = source.id
    return result


def _expanded(fields: Mapping[str, Any]) -> dict[Attribute, Attribute]:
    """Attributes that are the same in all projections of an Expand."""
    result: dict[Attribute, Attribute] = {}
    columns = zip(*fields["projections"], strict=True)
    for output, projected in zip(fields["output"], columns, strict=True):
        sources = [_tree(expression) for expression in projected]
        if (
            len(
                {(source.kind, source.id if source.kind == _ATTRIBUTE else 0) for source in sources}
            )
            == 1
        ):
            result |= {_tree(output).id: sources[0].id} if sources[0].kind == _ATTRIBUTE else {}
    return result


def _attributes(expressions: Iterable[Any]) -> frozenset[Attribute]:
    return frozenset(
        expression.id for expression in map(_tree, expressions) if expression.kind == _ATTRIBUTE
    )


def _equated(condition: Any) -> Iterator[tuple[Attribute, Attribute]]:
    """Pairs of attributes that a condition equates, each both ways round."""
    todo = list(_trees(condition))
    while todo:
        expression = todo.pop()
        if expression.kind == "And":
            todo += expression.children
        elif expression.kind == "EqualTo":
            one, other = map(_compared, expression.children)
            if one is not None and other is not None and one[1] == other[1]:
                yield one[0], other[0]
                yield other[0], one[0]


def _compared(side: _Expression) -> tuple[Attribute, str] | None:
    """An attribute that is compared, and as what; integers are hashed as the longest of them."""
    source = side
    if side.kind == "Cast" and side.fields["dataType"] in _INTEGERS:
        source = side.children[0]
        widened = source.fields.get("dataType")
        if widened not in _INTEGERS[: _INTEGERS.index(side.fields["dataType"])]:
            return None
    if source.kind != _ATTRIBUTE or not _is_comparable(source):
        return None
    of = source.fields["dataType"]
    return source.id, "integer" if of in _INTEGERS else of


def _is_comparable(attribute: _Expression) -> bool:
    """`comparable`, of a type as Spark writes it."""
    of = attribute.fields["dataType"]
    return isinstance(of, str) and (of in (*_INTEGERS, *_EXACT_NAMES) or of.startswith("decimal("))
