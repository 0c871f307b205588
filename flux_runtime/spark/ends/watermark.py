"""Rows that Spark's watermark kept out of a unit's state: how many, and which records.

An operator with state drops what is older than the watermark *where it would have been counted*: an
aggregation, rows whose window has ended by then; a deduplication and a join, rows whose own time
has passed. A record behind the watermark whose window is still open is counted like any other, and
is not reported here. What is compared is the watermark that the operator says it applied, which is
the one of the micro-batch before.

The number is Spark's own (`numRowsDroppedByWatermark`), read off every micro-batch's execution. An
aggregation drops what its first step made of the records, one row for each group and task, so there
can be more records than rows.

Which records: where something was dropped, the micro-batch is read once more, every record with
itself attached in a column; the component is planned on them, and what the operator is handed is
compared with the watermark. So that a record is found only if the component does not leave out
that column before the operator, by a SELECT of its own. A record of which some windows are open is
none that was dropped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from flux_runtime.spark.feed import Feed
from flux_runtime.spark.frames import ARRIVED, column
from flux_runtime.spark.units import NativeUnit

METRIC: Final = "numRowsDroppedByWatermark"
_DELAY: Final = "spark.watermarkDelayMs"
"""Spark's mark of the column that a watermark is on."""
_SOURCE: Final = "__source"
_UNCHECKED: Final = "spark.sql.streaming.unsupportedOperationCheck"

_LOGICAL: Final[Mapping[str, str]] = {
    "SessionWindowStateStoreRestoreExec": "Aggregate",
    "StateStoreSaveExec": "Aggregate",
    "StreamingDeduplicateExec": "Deduplicate",
    "StreamingDeduplicateWithinWatermarkExec": "DeduplicateWithinWatermark",
    "StreamingSymmetricHashJoinExec": "Join",
}
"""Physical operators that drop rows -> what they are in a logical plan."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The rows that a micro-batch lost.

    Args:
        rows: as Spark counts them.
        watermark_ms: what the operator compared with, since 1970; None: there were several.
        records: (stream, record); None: it cannot be told which.
    """

    rows: int
    watermark_ms: int | None = None
    records: Sequence[tuple[str, Any]] | None = None


def marked(rows: DataFrame, number: int, watermark: tuple[str, str]) -> DataFrame:
    """The rows of a feed with a watermark; its number is found again in the plan."""
    return rows.alias(_name(number)).withWatermark(*watermark)


def dropped(unit: NativeUnit, execution: Any, session: SparkSession) -> Dropped:
    """The records that a micro-batch lost, once it has been computed.

    Args:
        unit: whose frames with a watermark were `marked` by the place of the feed in `inputs`.
        execution: Spark's, of the micro-batch.
        session: the micro-batch's own.
    """
    operators = [
        node for node in _nodes(execution.executedPlan()) if node.metrics().contains(METRIC)
    ]
    counts = [int(node.metrics().apply(METRIC).value()) for node in operators]
    rows = sum(counts)
    if not rows or unit.watermark is None:
        return Dropped(rows)
    dropping = [node for node, count in zip(operators, counts, strict=True) if count]
    marks = {mark for node in dropping if (mark := _mark(node)) is not None}
    if len(marks) != 1:
        return Dropped(rows)
    (mark,) = marks
    try:
        records = _records(unit, execution, session, dropping, mark)
    except (Py4JError, PySparkException, _UnknownError):
        records = None
    return Dropped(rows, mark, records)


class _UnknownError(Exception):
    """It cannot be told which records were dropped."""


def _records(
    unit: NativeUnit, execution: Any, session: SparkSession, dropping: Sequence[Any], mark: int
) -> list[tuple[str, Any]]:
    """The records behind the rows that an operator dropped."""
    feeds = [feed for _, feed in unit.inputs()]
    own = _own_rows(execution.analyzed(), session, len(feeds))

    def rows_of(feed: Feed) -> DataFrame:
        number = feeds.index(feed)
        if number not in own:
            raise _UnknownError
        rows = own[number]
        columns = [column(name) for name in rows.columns if name != ARRIVED]
        record = sf.to_json(sf.struct(*columns), {"ignoreNullFields": "false"})
        source = sf.struct(
            sf.lit(number).alias("feed"),
            sf.monotonically_increasing_id().alias("row"),
            record.alias("record"),
        )
        return feed.apply(rows.withColumn(_SOURCE, source))

    marks: list[tuple[int, str]] = []
    try:
        plan = unit.compute(unit.frames(rows_of))._jdf.queryExecution().analyzed()
        for node in dropping:
            for side in _sides(node, plan):
                marks += _behind(side, session, mark)
    finally:
        for rows in own.values():
            rows.unpersist()
    return [(feeds[number].origin.name, json.loads(record)) for number, record in marks]


@dataclass(frozen=True, slots=True)
class _Side:
    """The input of an operator, and the column that it compares with the watermark."""

    plan: Any
    name: str


def _sides(node: Any, plan: Any) -> Iterator[_Side]:
    """The inputs of the operator that a physical one stands for."""
    kind = node.getClass().getSimpleName()
    if kind not in _LOGICAL:
        raise _UnknownError
    kinds = set(_LOGICAL.values())
    same = [
        operator
        for operator in _nodes(plan)
        if _kind(operator) in kinds
        and not any(
            _kind(below) in kinds for child in _children(operator) for below in _nodes(child)
        )
    ]
    if len(same) != 1 or _kind(same[0]) != _LOGICAL[kind]:
        raise _UnknownError  # one of several, behind another, or none
    for given, logical in zip(_children(node), _children(same[0]), strict=True):
        output = given.output()
        timed = [output.apply(i) for i in range(output.size())]
        names = {attribute.name() for attribute in timed if attribute.metadata().contains(_DELAY)}
        if len(names) != 1:
            raise _UnknownError
        yield _Side(logical, names.pop())


def _behind(side: _Side, session: SparkSession, mark: int) -> list[tuple[int, str]]:
    """(feed, record) of those that are nowhere after the watermark."""
    output = side.plan.output()
    names = [output.apply(i).name() for i in range(output.size())]
    if names.count(side.name) != 1 or names.count(_SOURCE) != 1:
        raise _UnknownError
    rows = _frame(side.plan, session).toDF(*map(str, range(len(names))))
    place = str(names.index(side.name))
    time = sf.col(place)
    if "struct" in dict(rows.dtypes)[place]:
        time = time.getField("end")
    until = rows.select(sf.col(str(names.index(_SOURCE))).alias("source"), time.alias("time"))
    last = until.groupBy("source").agg(sf.max("time").alias("time"))
    lost = last.where(sf.col("time") <= sf.timestamp_millis(sf.lit(mark)))
    return [(row.feed, row.record) for row in lost.select("source.*").collect()]


def _own_rows(plan: Any, session: SparkSession, number: int) -> dict[int, DataFrame]:
    """Feed -> the records of the micro-batch, before the watermark."""
    result: dict[int, DataFrame] = {}
    names = {_name(place): place for place in range(number)}
    for node in _nodes(plan):
        if _kind(node) == "SubqueryAlias" and node.alias() in names:
            result.setdefault(names[node.alias()], _again(node.child(), session))
    return result


def _again(plan: Any, session: SparkSession) -> DataFrame:
    """The rows of a part of a micro-batch's plan, as a frame that is not a stream."""
    before = session.conf.get(_UNCHECKED, "true")
    session.conf.set(_UNCHECKED, "false")  # the session is the query's own
    try:
        frame: Any = _frame(plan, session)._jdf
        rows = frame.queryExecution().toRdd()
    finally:
        session.conf.set(_UNCHECKED, str(before))
    batch = session._jsparkSession.internalCreateDataFrame(rows, frame.schema(), False)
    return DataFrame(batch, session).persist()


def _frame(plan: Any, session: SparkSession) -> DataFrame:
    jvm: Any = session.sparkContext._jvm
    return DataFrame(
        jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan), session
    )


def _mark(node: Any) -> int | None:
    """The watermark that an operator applied, in ms."""
    mark = node.eventTimeWatermarkForLateEvents()
    return int(mark.get()) if mark.isDefined() else None


def _name(number: int) -> str:
    return f"__feed_{number}"


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(i) for i in range(children.size())]


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in _children(plan):
        yield from _nodes(child)
