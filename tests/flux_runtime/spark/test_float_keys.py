"""Floating-point keys: what Spark takes for equal is one partition, by text, by hash and in order.

-0.0 is 0.0, and all NaNs are one, inside of arrays and structs too.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from flux_runtime.operators.rows import stable_hash
from flux_runtime.ordering.recorded import canonical
from flux_runtime.spark.frames import deduplicated
from flux_runtime.spark.key_columns import refusal, text_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

VALUES = ("0.0", "-0.0", "NaN", "Infinity", "0.5", "-0.5")
GROUPS = 5
"""Of the values, and of two NaNs with different bits, those that Spark tells apart."""
COLUMNS = ("double", "float", "array", "struct", "structs")


@pytest.fixture(scope="module")
def numbers(spark: SparkSession) -> DataFrame:
    """A row for each value, in every kind of column; the second NaN comes of arithmetic."""
    values = spark.createDataFrame([(n, each) for n, each in enumerate(VALUES)], "n INT, t STRING")
    double = sf.col("t").cast("double")
    more = values.where("t = 'Infinity'").select(sf.lit(9).alias("n"), (double - double).alias("k"))
    frame = values.select("n", double.alias("k")).unionAll(more)
    return frame.select(
        "n",
        sf.col("k").alias("double"),
        sf.col("k").cast("float").alias("float"),
        sf.array("k").alias("array"),
        sf.struct("k").alias("struct"),
        sf.array(sf.struct("k")).alias("structs"),
    ).localCheckpoint()


@pytest.mark.parametrize("name", COLUMNS)
def test_what_spark_takes_for_equal_is_one_key(numbers: DataFrame, name: str) -> None:
    pairs = numbers.alias("a").join(numbers.alias("b"), sf.expr(f"a.{name} = b.{name}"))
    together = {(row[0], row[1]) for row in pairs.select("a.n", "b.n").collect()}
    assert numbers.groupBy(name).count().count() == GROUPS
    assert len(together) == 2 * 2 + 2 * 2 + 3  # zeros, NaNs, and three others
    table = numbers.toArrow()
    (rows,) = table.select([name]).combine_chunks().to_batches()
    hashes = dict(zip(table["n"].to_pylist(), stable_hash(rows, [name]).tolist(), strict=True))
    assert {(a, b) for a in hashes for b in hashes if hashes[a] == hashes[b]} == together
    of = numbers.schema[name].dataType
    if refusal(of) is None:
        found = numbers.select("n", text_of(sf.col(name), of)).collect()
        assert {(a, b) for a, s in found for b, t in found if s == t} == together
    assert (refusal(of) is None) == (name in ("double", "float"))


@pytest.mark.parametrize("name", COLUMNS)
def test_an_id_that_came_before_is_known_in_another_micro_batch(
    spark: SparkSession, numbers: DataFrame, name: str, tmp_path: Path
) -> None:
    source = tmp_path / "source"
    for place in range(len(VALUES) + 1):
        one = numbers.orderBy("n").offset(place).limit(1).coalesce(1)
        one.write.mode("append").parquet(source.as_uri())
    frame = spark.readStream.schema(numbers.schema).option("maxFilesPerTrigger", 1)
    once = deduplicated(frame.parquet(source.as_uri()), [name]).select("n")
    sink = once.writeStream.format("parquet").option("path", (tmp_path / "out").as_uri())
    sink = sink.option("checkpointLocation", (tmp_path / "checkpoint").as_uri())
    sink.trigger(availableNow=True).start().awaitTermination()
    assert spark.read.parquet((tmp_path / "out").as_uri()).count() == GROUPS


def test_se_11_the_canonical_order_leaves_only_equal_rows_unordered(spark: SparkSession) -> None:
    """Rows that differ in the sign of zero, or in letters that a collation ignores."""
    rows = [(1, zero, [zero], text) for zero in (0.0, -0.0) for text in ("a", "A")]
    schema = "k INT, zero DOUBLE, zeros ARRAY<DOUBLE>, text STRING COLLATE UTF8_LCASE"
    orders = set()
    for seed in range(6):
        shuffled = random.Random(seed).sample(rows, len(rows))
        frame = spark.createDataFrame(shuffled, schema).coalesce(1)
        orders.add(str(canonical(frame, ["k"], within=["k"]).collect()))
    assert len(orders) == 1
