"""Canonical order: a total order of records that every replay comes to (SE-11, OR-8).

Spark's offset log fixes which records a micro-batch holds before it is processed; a total key
fixes their order inside it. Together they are the recorded order of an unreplicated component, and
no ZooKeeper is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    VariantType,
)


def canonical(frame: DataFrame, order_by: Sequence[str], *, within: Sequence[str]) -> DataFrame:
    """The rows with those of equal `within` side by side in one partition, in canonical order.

    Aggregations that group by attributes which determine `within`, or by more, see the rows of a
    group in this order: a group's rows come from one task, and a shuffle keeps the order of what
    one task sends.

    Args:
        frame: the rows.
        order_by: a total key; what it leaves equal is ordered by all columns.
        within: columns whose values are never apart.
    """
    together = [c for c in within if c in frame.columns]
    placed = frame.repartition(*map(_col, together)) if together else frame.coalesce(1)
    return placed.sortWithinPartitions(*map(_col, together), *total_order(frame.schema, order_by))


def recorded(
    frame: DataFrame, order_by: Sequence[str], *, batch: str, within: Sequence[str] = ()
) -> DataFrame:
    """The rows in recorded order: by micro-batch, and canonically inside it.

    Args:
        frame: the rows.
        order_by: a total key; what it leaves equal is ordered by all columns.
        batch: the column that holds the number of a row's micro-batch; it is dropped.
        within: columns whose values are never apart; none: one order for all rows.
    """
    schema = StructType([field for field in frame.schema.fields if field.name != batch])
    placed = frame.repartition(*map(_col, within)) if within else frame.repartition(1)
    order = [*map(_col, within), _col(batch), *total_order(schema, order_by)]
    return placed.sortWithinPartitions(*order).drop(batch)


def total_order(schema: StructType, order_by: Sequence[str]) -> list[Column]:
    """Columns to sort by, so that only equal rows are left unordered."""
    rest = [f.name for f in schema.fields if f.name not in order_by]
    return [
        column
        for name in (*order_by, *rest)
        for column in _sortable(schema[name].dataType, _col(name))
    ]


def _sortable(of: DataType, value: Column) -> Iterator[Column]:
    if _orderable(of):
        yield value
    if not _orderable(of) or not _identical(of):
        yield sf.to_json(sf.struct(value))


def _identical(of: DataType) -> bool:
    """False where values that are ordered alike differ: 0.0 and -0.0, texts under a collation."""
    match of:
        case FloatType() | DoubleType():
            return False
        case StringType():
            return bool(of.isUTF8BinaryCollation())
        case ArrayType():
            return _identical(of.elementType)
        case StructType():
            return all(_identical(field.dataType) for field in of.fields)
        case _:
            return True


def _orderable(of: DataType) -> bool:
    match of:
        case MapType() | VariantType():
            return False
        case ArrayType():
            return _orderable(of.elementType)
        case StructType():
            return all(_orderable(field.dataType) for field in of.fields)
        case _:
            return True


def _col(name: str) -> Column:
    return sf.col("`" + name.replace("`", "``") + "`")
