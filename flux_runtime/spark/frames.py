"""Small things about DataFrames that several parts need: SQL over frames, empty ones, schemas."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import Any, Final, TypeAlias

from py4j.protocol import Py4JError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    StringType,
    StructField,
    StructType,
)

Operator: TypeAlias = Callable[..., DataFrame]
"""A component's function: one DataFrame for each input interface, by name; returns one."""

OWN_COLUMNS: Final = re.compile(
    "__(alone|arrived|batch|chunk|chunks|count|count_of|differ|digest|hash|producer"
    "|producer_of_key|reason|reason_of|records|remainder|rows|size|source|times|unreadable|value"
    "|(feed|gate|id|key|row|text)_[0-9]+)",
    re.IGNORECASE,
)
"""The names of columns that the runtime has beside those of records."""

ARRIVED: Final = "__arrived"
"""When a record came to its source; beside the records where a component asks for it."""

EXACT_TEXT: Final = (StringType, IntegralType, BooleanType, DateType)
"""Types whose values have the same text here as Spark casts them to."""

_views = threading.Lock()


def check_own(at: str, names: Iterable[str]) -> None:
    """Return if no column has a name of `OWN_COLUMNS`.

    Raises:
        ValueError: some have; the message begins with `at`.
    """
    own = [name for name in names if OWN_COLUMNS.fullmatch(name)]
    if own:
        raise ValueError(
            f"{at}: the runtime has columns of its own with the names of {', '.join(own)}; give "
            "them others"
        )


def deduplicated(records: DataFrame, id: Sequence[str]) -> DataFrame:
    """The records without those that came before, known by these columns.

    A record that lacks one of them is like no other. On a stream the ids stay in Spark's state,
    which is committed with what the query puts out; where the time of arrival stands beside the
    records, with a watermark, until that has passed by its delay.
    """
    known = reduce(and_, (sf.col(column(name)).isNotNull() for name in id))
    unknown, again = records.where(~known), records.where(known)
    if ARRIVED in records.columns:
        again = again.dropDuplicatesWithinWatermark(list(id))
        return unknown.unionByName(again).drop(ARRIVED)
    return unknown.unionByName(again.dropDuplicates(list(id)))


def sql(query: str, /, **frames: DataFrame) -> DataFrame:
    """Run a query over DataFrames by the names they are given.

    Safe under threads: the names exist, as temporary views of the frames' session, only while
    the query is analysed.

    >>> sql("SELECT word, count(*) FROM words GROUP BY word", words=words)  # doctest: +SKIP
    """
    if not frames:
        raise TypeError("sql() needs at least one DataFrame")
    session = next(iter(frames.values())).sparkSession
    with _views:
        try:
            for name, frame in frames.items():
                frame.createOrReplaceTempView(column(name))
            return session.sql(query)
        finally:
            for name in frames:
                session.catalog.dropTempView(name)


def estimated_bytes(frame: DataFrame) -> int:
    """Spark's estimate of the size, after that of the files; too large by far where it has none."""
    plan: Any = frame._jdf.queryExecution().optimizedPlan()
    return int(plan.stats().sizeInBytes())


def grouped_in_tasks(grouped: DataFrame) -> DataFrame:
    """The groups that each task makes of its own records, without the shuffle that joins them.

    A group comes once from every task that has some of it: for those who group them again. A frame
    comes back as it is where Spark does not aggregate by hashing, where what it hands from task to
    task is not the result, as for averages, and where its plans are made in another way.
    """
    planned: Any = grouped._jdf.queryExecution().sparkPlan()
    if planned.getClass().getSimpleName() != "HashAggregateExec":
        return grouped
    try:
        of_tasks, session = planned.child(), grouped._jdf.sparkSession()
        spark: Any = grouped.sparkSession._jvm.org.apache.spark.sql  # type: ignore[union-attr]
        alike = spark.types.DataType.equalsStructurally(planned.schema(), of_tasks.schema(), True)
        if not alike or not _as_aggregated(planned):
            return grouped
        ready = spark.execution.QueryExecution.prepareExecutedPlan(session, of_tasks)
        rows = session.internalCreateDataFrame(ready.execute(), planned.schema(), False)
    except (Py4JError, TypeError):
        return grouped
    return DataFrame(rows, grouped.sparkSession)


def _as_aggregated(planned: Any) -> bool:
    """Whether an aggregate puts out its groups and values as they are, in the order of its plan."""
    planned_columns = [
        *_items(planned.groupingExpressions()),
        *_items(planned.aggregateAttributes()),
    ]
    given = [
        item.child() if item.getClass().getSimpleName() == "Alias" else item
        for item in _items(planned.resultExpressions())
    ]
    return len(planned_columns) == len(given) and all(
        item.getClass().getSimpleName() == "AttributeReference"
        and item.exprId().id() == value.toAttribute().exprId().id()
        for item, value in zip(given, planned_columns, strict=True)
    )


def _items(sequence: Any) -> Iterator[Any]:
    """The items of a sequence of Scala's."""
    return (sequence.apply(at) for at in range(sequence.size()))


def empty(session: SparkSession, schema: StructType) -> DataFrame:
    """A frame of no rows."""
    return session.createDataFrame([], schema)


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """All rows of frames whose columns have the same names."""
    first, *others = frames
    for other in others:
        first = first.unionByName(other)
    return first


def nullable(schema: StructType) -> StructType:
    """The schema as it is read back from files, where every column may be null."""
    return StructType([StructField(f.name, f.dataType, True) for f in schema.fields])


def parse_schema(ddl: str) -> StructType:
    """The schema of `name TYPE, ...`."""
    parsed = StructType.fromDDL(ddl)
    if not isinstance(parsed, StructType):
        raise ValueError(f"not a list of columns: {ddl}")
    return parsed


def extended(schema: StructType, **types: str | DataType) -> StructType:
    """The schema with further columns; types as `StructType.add` names them."""
    longer = StructType(list(schema.fields))
    for name, of in types.items():
        longer = longer.add(name, of)
    return longer


def column(name: str) -> str:
    """A column's name as SQL has it.

    >>> column("a b`c")
    '`a b``c`'
    """
    return "`" + name.replace("`", "``") + "`"


def columns_read(
    build: Callable[[Mapping[str, DataFrame]], DataFrame],
    files: Mapping[str, DataFrame],
    paths: Mapping[str, str],
) -> Mapping[str, frozenset[str]]:
    """Which columns of each file-backed frame a computation reads, by planning it.

    Args:
        build: makes the result from the frames, without running anything.
        files: frames over (empty) files.
        paths: where the files are.

    Returns:
        Name -> columns. A frame is missing where that cannot be said: its scan is not in the plan
        or the computation ran a Spark job of its own while it was being built.
    """
    session = next(iter(files.values())).sparkSession
    scheduler: Any = session.sparkContext._jsc.sc().dagScheduler()
    jobs = scheduler.numTotalJobs()
    plan: Any = build(files)._jdf.queryExecution().sparkPlan()
    if scheduler.numTotalJobs() != jobs:
        return {}
    result: dict[str, frozenset[str]] = {}
    for leaf in _leaves(plan):
        if leaf.getClass().getSimpleName() != "FileSourceScanExec":
            continue
        root = leaf.relation().location().rootPaths().head().toString()
        for name, path in paths.items():
            if _same_place(root, path):
                read = frozenset(leaf.requiredSchema().fieldNames())
                result[name] = result.get(name, frozenset()) | read
    return result


def _same_place(one: str, other: str) -> bool:
    """Whether two addresses are one; Hadoop writes `file:/x` for `file:///x`."""
    return one.replace(":///", ":/").rstrip("/") == other.replace(":///", ":/").rstrip("/")


def _leaves(plan: Any) -> Iterable[Any]:
    for tree in (plan, *_each(plan.subqueriesAll())):
        yield from _each(tree.collectLeaves())


def _each(scala_seq: Any) -> Iterable[Any]:
    return [scala_seq.apply(i) for i in range(scala_seq.size())]


def completed(present: Iterable[str], schema: StructType) -> list[Column]:
    """All columns of `schema` on a frame; those it lacks fail when somebody reads them.

    They cost some twenty calls of Java each: whoever selects them again and again keeps them. A
    column is left out of the buffer only if planning the component showed that it is not read.
    Should that have been wrong, the job stops instead of computing with nulls.
    """
    present = set(present)
    columns = []
    for field in schema.fields:
        if field.name in present:
            columns.append(sf.col(column(field.name)))
        else:
            message = (
                f"column {field.name} was not buffered, because planning the component on empty "
                "frames showed that it is not read; set BLAZES_KEEP_ALL_COLUMNS=1 and run --fresh"
            )
            missing = sf.raise_error(sf.lit(message)).cast(field.dataType)
            columns.append(missing.alias(field.name))
    return columns
