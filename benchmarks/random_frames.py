"""Random components in PySpark: functions of DataFrames, as text.

Each makes a few steps from two streams and a table; `random_queries.py` does the same in SQL.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from annotations.whitebox.ir import Role

COLUMNS: Final = {"k": "STRING", "n": "INT", "t": "TIMESTAMP"}
"""Of every input."""
INPUTS: Final = {"a": Role.STREAM, "b": Role.STREAM, "d": Role.TABLE}

HEAD: Final = """\
from pyspark.sql import Window
from pyspark.sql import functions as F


def same(batches):
    for batch in batches:
        yield batch


def first(rows):
    return rows.head(1)
"""

ROW_STEPS: Final = (
    'where(F.col("n") > 1)',
    'withColumn("n", F.col("n") * 2)',
    'withColumn("n", F.when(F.col("n") > 1, F.lit(1)).otherwise(F.col("n")).cast("int"))',
    'select("k", F.explode(F.array("n", "n")).alias("n"), "t")',
    'dropna(subset=["n"])',
    'fillna({"n": 0})',
    'replace({1: 2}, subset=["n"])',
    'mapInPandas(same, "k STRING, n INT, t TIMESTAMP")',
    'mapInArrow(same, "k STRING, n INT, t TIMESTAMP")',
    'hint("broadcast")',
    'alias("other")',
    'unpivot(["k", "t"], ["n"], "of", "n").drop("of")',
    "repartition(2)",
    'repartition(2, "k")',
    "coalesce(1)",
    'transform(lambda rows: rows.where("n < 5"))',
    'select("k", "n", "t")',
)
"""Of which the columns stay; `rows` is what there is before."""
OTHER_STEPS: Final = (
    "distinct()",
    'dropDuplicates(["k"])',
    'dropDuplicates(["k", "n"])',
    'orderBy("n")',
    'sort(F.desc("k"))',
    'sortWithinPartitions("n")',
    "limit(2)",
    "offset(1)",
    "sample(0.5, seed=1)",
    'withColumn("n", F.row_number().over(Window.partitionBy("k").orderBy("n")))',
    'withColumn("n", F.sum("n").over(Window.partitionBy("k")).cast("int"))',
    'withColumn("n", F.lag("n").over(Window.partitionBy("k").orderBy("t")))',
    'groupBy("k").agg(F.max("n").alias("n"), F.max("t").alias("t"))',
    'groupBy("k").agg(F.count_distinct("n").cast("int").alias("n"), F.max("t").alias("t"))',
    'groupBy("k").agg(F.sum_distinct("n").cast("int").alias("n"), F.max("t").alias("t"))',
    'groupBy("k").agg(F.approx_count_distinct("n").cast("int").alias("n"), F.max("t").alias("t"))',
    'rollup("k").agg(F.max("n").alias("n"), F.max("t").alias("t"))',
    'cube("k").agg(F.max("n").alias("n"), F.max("t").alias("t"))',
    'groupBy("k", "t").pivot("n", [1, 2]).agg(F.count("n"))'
    '.select("k", F.col("1").alias("n"), "t")',
    'groupBy("k").applyInPandas(first, "k STRING, n INT, t TIMESTAMP")',
    'groupBy("k").agg(F.array_max(F.collect_list("n")).alias("n"), F.max("t").alias("t"))',
    'agg(F.max("k").alias("k"), F.max("n").alias("n"), F.max("t").alias("t"))',
    'withWatermark("t", "1 hour")',
    'groupBy("t", "k").agg(F.max("n").alias("n"))',
    'groupBy(F.date_trunc("hour", "t").alias("t"), "k").agg(F.max("n").alias("n"))',
    'groupBy(F.session_window("t", "1 hour").alias("w"), "k").agg(F.max("n").alias("n"))'
    '.select("k", "n", F.col("w.start").alias("t"))',
    'groupBy(F.window("t", "1 hour").alias("w"), "k").agg(F.max("n").alias("n"))'
    '.select("k", "n", F.window_time("w").alias("t"))',
    'select("k", F.window("t", "1 hour").alias("w"), "n").groupBy("w", "k")'
    '.agg(F.max("n").alias("n")).select("k", "n", F.col("w.end").alias("t"))',
    'dropDuplicatesWithinWatermark(["k"])',
    'groupBy(F.window("t", "1 hour"), "k").agg(F.max("n").alias("n"), F.max("t").alias("t"))'
    '.drop("window")',
)
"""The same; Spark may refuse them over a stream, each for itself or after another."""
JOINS: Final = (
    'join({0}, "k").select(rows["k"], rows["n"], rows["t"])',
    'join({0}, "k", "left").select(rows["k"], rows["n"], rows["t"])',
    'join({0}, "k", "right").select("k", rows["n"], rows["t"])',
    'join({0}, "k", "full").select("k", rows["n"], rows["t"])',
    'join({0}, "k", "semi")',
    'join({0}, "k", "anti")',
    'join({0}, rows["n"] < {0}["n"]).select(rows["k"], rows["n"], rows["t"])',
    'join({0}, (rows["k"] == {0}["k"]) | (rows["n"] == {0}["n"]))'
    '.select(rows["k"], rows["n"], rows["t"])',
    'join({0}, (rows["k"] == {0}["k"]) & (rows["n"] < {0}["n"]))'
    '.select(rows["k"], rows["n"], rows["t"])',
    'crossJoin({0}.select(F.col("n").alias("m"))).drop("m")',
    "union({0})",
    "unionByName({0})",
    "intersect({0})",
    "subtract({0})",
    "exceptAll({0})",
)


@dataclass(frozen=True)
class Function:
    """A component: the text of its function, and the inputs that it takes."""

    name: str
    text: str
    inputs: tuple[str, ...]


def random_function(rng: random.Random, name: str) -> Function:
    """A function that begins with a stream and makes one to four steps."""
    inputs = ["a"]
    lines = ["rows = a"]
    if rng.random() < 0.3:
        lines.append('rows = rows.withWatermark("t", "1 hour")')
    for _ in range(rng.choice((1, 1, 2, 2, 3, 4))):
        kind = rng.random()
        if kind < 0.25:
            other = rng.choice(("b", "b", "d"))
            if other not in inputs:
                inputs.append(other)
            step = rng.choice(JOINS).format(other)
        else:
            step = rng.choice(ROW_STEPS if kind < 0.5 else OTHER_STEPS)
        lines.append(f"rows = rows.{step}")
    body = "".join(f"    {line}\n" for line in [*lines, "return rows"])
    return Function(name, f"\n\ndef {name}({', '.join(inputs)}):\n{body}", tuple(inputs))
