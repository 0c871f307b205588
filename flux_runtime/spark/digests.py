"""Digests of buffered records, as `flux_runtime.sealing.digest` defines them, computed by Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from flux_runtime.sealing.digest import NULL, SEPARATOR
from flux_runtime.sealing.events import KeyText
from flux_runtime.sealing.keys import key_text
from flux_runtime.spark.feed import PRODUCER
from flux_runtime.spark.frames import column, empty
from flux_runtime.spark.source import Source


def digested_columns(session: SparkSession, source: Source) -> list[str]:
    """The columns of a record that its digest covers, in the order of the schema."""
    schema = source.schema(session)
    punctuation = source.punctuation
    others = {source.producer}
    if punctuation is not None:
        for expression in (punctuation.when, punctuation.count, punctuation.digest):
            others |= columns_of(session, schema, expression or "0")
    return [name for name in schema.fieldNames() if name not in others]


def columns_of(session: SparkSession, schema: StructType, expression: str) -> set[str]:
    """The columns that an SQL expression mentions."""
    frame = empty(session, schema).select(sf.expr(expression).alias("value"))
    plan: Any = frame._jdf.queryExecution().analyzed()
    references = plan.projectList().head().references().toSeq()
    return {references.apply(i).name() for i in range(references.size())}


def digests(
    rows: DataFrame, key: Sequence[str], columns: Sequence[str]
) -> dict[KeyText, dict[str, str]]:
    """Partition -> producer -> digest of the data records that it sent.

    The sum is taken over the halves of the hashes: it cannot overflow below 2^31 records.
    """
    texts = [sf.coalesce(sf.col(column(c)).cast("string"), sf.lit(NULL)) for c in columns]
    value = sf.xxhash64(sf.concat_ws(SEPARATOR, *texts))
    grouped = (
        rows.groupBy(
            *(_text(k).alias(f"__key_{i}") for i, k in enumerate(key)),
            sf.col(PRODUCER).cast("string"),
        )
        .agg(
            sf.sum(sf.shiftrightunsigned(value, 32)).alias("high"),
            sf.sum(value.bitwiseAND(sf.lit(0xFFFFFFFF))).alias("low"),
        )
        .collect()
    )
    found: dict[KeyText, dict[str, str]] = {}
    for *values, producer, high, low in grouped:
        total = ((high << 32) + low) & ((1 << 64) - 1)
        found.setdefault(key_text(values), {})[producer] = str(total)
    return found


def due_by_input(
    due: Iterable[tuple[str, KeyText, tuple[str, ...], tuple[int, ...]]],
) -> dict[str, dict[KeyText, tuple[tuple[str, ...], tuple[int, ...]]]]:
    """The tracker's `digests_due`, by input and partition."""
    by_input: dict[str, dict[KeyText, tuple[tuple[str, ...], tuple[int, ...]]]] = {}
    for name, key, producers, batches in due:
        by_input.setdefault(name, {})[key] = (producers, batches)
    return by_input


def _text(name: str) -> Column:
    return sf.col(column(name)).cast("string")
