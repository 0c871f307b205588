"""Counting buffered records again: without repeats of ids (D6), and with digests (SE-1).

The digest is that of `flux_runtime.sealing.digest`, computed by Spark.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from flux_runtime.sealing.digest import NULL, SEPARATOR
from flux_runtime.sealing.events import Count, KeyText
from flux_runtime.sealing.keys import key_text
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.feed import PRODUCER
from flux_runtime.spark.frames import column, empty
from flux_runtime.spark.key_columns import KeyColumns


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


def recount(
    rows: DataFrame, key: KeyColumns, *, identity: Sequence[str], digested: Sequence[str]
) -> dict[KeyText, dict[str, Count]]:
    """Partition -> producer -> what there is of its records.

    Args:
        rows: data records, with their producer.
        key: their key columns.
        identity: columns that identify a record; none: each record is one of its own.
        digested: columns that a digest covers, in their order; none: no digests.
    """
    named = [text.alias(f"__text_{i}") for i, text in enumerate(key.texts())]
    groups = [*(f"__text_{i}" for i in range(len(named))), PRODUCER]
    ids = [sf.col(column(c)).alias(f"__id_{i}") for i, c in enumerate(identity)]
    hashed = _hash(digested or [c for c in rows.columns if not c.startswith("__")])
    records = rows.select(*named, sf.col(PRODUCER).cast("string"), *ids, hashed.alias("__hash"))
    high = sf.shiftrightunsigned("__hash", 32)
    low = sf.col("__hash").bitwiseAND(sf.lit(0xFFFFFFFF))
    times: Column = sf.lit(1)
    differ: Column = sf.lit(0)
    if identity:
        names = [f"__id_{i}" for i in range(len(ids))]
        known = reduce(lambda a, b: a & b, (sf.col(name).isNotNull() for name in names))
        alone = sf.when(~known, sf.monotonically_increasing_id())  # what has no id is no repeat
        by = [*groups, *names, "__alone"]
        records = (
            records.withColumn("__alone", alone)
            .groupBy(*by)
            .agg(
                sf.count(sf.lit(1)).alias("__times"),
                sf.min("__hash").alias("__hash"),
                (sf.min("__hash") != sf.max("__hash")).cast("int").alias("__differ"),
            )
        )
        times, differ = sf.col("__times"), sf.col("__differ")
    # the sum over the halves of the hashes cannot overflow below 2^31 records
    counted = records.groupBy(*groups).agg(
        sf.sum(times), sf.count(sf.lit(1)), sf.sum(differ), sf.sum(high), sf.sum(low)
    )
    result: dict[KeyText, dict[str, Count]] = {}
    for *texts, producer, received, distinct, differing, upper, lower in counted.collect():
        digest = str(((upper << 32) + lower) & ((1 << 64) - 1)) if digested else None
        of_key = result.setdefault(key_text(texts), {})
        of_key[producer] = Count(received, distinct, digest, differing)
    return result


def nothing(digested: bool) -> Count:
    """The count of a producer who sent no records."""
    return Count(0, 0, "0" if digested else None)


def _hash(columns: Sequence[str]) -> Column:
    texts = [sf.coalesce(sf.col(column(c)).cast("string"), sf.lit(NULL)) for c in columns]
    return sf.xxhash64(sf.concat_ws(SEPARATOR, *texts))
