"""Functions of `foreachBatch`, with what they call, beside what they write when Spark calls them.

    python -m benchmarks.batch_functions [--functions 60] [--seed 0]

Each function is drawn: it filters, joins what never changes or what is appended to meanwhile,
counts, removes duplicates, calls helpers and functions of its own for each record (pure, left to
chance, keeping something), looks at its micro-batch or its number, and writes in some mode or
merges, in one of the ways to write a merge; Delta then merges as `deltalake` has it. The script is
read without being run. Where a function is said to give the same answers in any order,
Spark calls it for the same records in several orders, cut into micro-batches in several ways, with
and without a repeated micro-batch, while the table that is appended to grows. Rows that one run
writes and another does not refute that; then the exit status is 1. Files of `read.parquet` outside
of functions stay as they are, as the derivation says that it assumes. The price of caution is how
many of the others wrote the same rows in every run.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import deltalake

from annotations.whitebox.existing import derived, read
from annotations.whitebox.sandbox import Limits

COLUMNS: Final = "id INT, k INT, n INT, w STRING"
HEAD: Final = """\
import functools, random, threading, time, uuid
import pandas as pd
from datetime import datetime, timedelta
from pyspark.sql import SparkSession, Window, functions as F
spark = SparkSession.builder.getOrCreate()
fixed = spark.read.schema("k INT, v STRING").parquet("{lake}/fixed")
seen, counts = set(), {{}}
TABLE = {{1: "one", 2: "two"}}
@F.udf("int")
def pure(x): return None if x is None else x * 2
@F.udf("string")
def looked(x): return TABLE.get(x)
@F.udf("double")
def drawn(x): return random.random()
@F.udf("string")
def named(x): return str(uuid.uuid4()) + str(x)
@F.udf("int")
def counted(x):
    counts[x] = counts.get(x, 0) + 1
    return counts[x]
@F.pandas_udf("long")
def times(s: pd.Series) -> pd.Series: return s * len(s)
@F.pandas_udf("double")
def centred(s: pd.Series) -> pd.Series: return apart(s)
def apart(s): return s - s.mean()
declared = F.udf(lambda x: int(time.time_ns() % 1000), "int").asNondeterministic()
def positive(df): return df.where("n > 0")
def with_live(df): return df.join(spark.read.schema("k INT, v STRING").parquet("{lake}/live"), "k")
def most(df, count): return df.orderBy("id", "k", "n", "w").limit(count)
def sized(df): return df.withColumn("size", F.lit(df.count()))
class Writer:
    def __init__(self, path): self.path = path
    def write(self, df, number): df.write.mode("append").parquet(self.path)
"""
RECORD: Final = (
    'df = df.where("n > 1")',
    'df = df.withColumn("m", F.col("n") + 1)',
    'df = df.withColumn("u", F.upper("w"))',
    "df = positive(df)",
    "df = df.transform(positive)",
    'df = df.join(fixed, "k", "left")',
    'df = df.select("*", F.explode(F.array("id", "k")).alias("e"))',
    'df = df.withColumn("p", pure("n"))',
    'df = df.withColumn("t", looked("k"))',
    "df = df.persist()",
    "df = df.coalesce(1)",
    'df.createOrReplaceTempView("batch"); df = df.sparkSession.sql("SELECT * FROM batch")',
    "df = df.unionByName(df)",
    'df = df.drop("w")',
    'df = df.withColumn("hidden", F.expr("n + size(array(k))"))',
)
"""What is done to each record by itself."""
OTHER: Final = (
    "df = with_live(df)",
    'df = df.join(spark.read.schema("k INT, v STRING").parquet("{lake}/live"), "k", "left_anti")',
    "df = df.distinct()",
    'df = df.dropDuplicates(["k"])',
    'df = df.groupBy("k").count()',
    'df = df.groupBy("k").agg(F.max("n").alias("n"))',
    "df = most(df, 2)",
    'df = df.withColumn("r", F.row_number().over(Window.partitionBy("k").orderBy("id", "n", "w")))',
    "df = sized(df)",
    'df = df.withColumn("b", F.lit(number))',
    'df = df.withColumn("d", drawn("n"))',
    'df = df.withColumn("c", counted("k"))',
    'df = df.withColumn("g", named("k"))',
    'df = df.withColumn("e", declared("k"))',
    'df = df.withColumn("now", F.current_timestamp())',
    'df = df.crossJoin(df.agg(F.sum("n").alias("all")))',
    'df = df.join(df.groupBy("k").agg(F.min("n").alias("least")), "k")',
    'df = df.where(~F.col("k").isin([r.k for r in df.where("n > 2").collect()]))',
    'df = df.where(F.col("id") > F.lit(len(seen))); seen.add(number)',
    "seen.update(r.id for r in df.collect())\n    df = df.where(F.col('n') < len(seen))",
    "if df.count() < 2: return",
    "if number % 2: return",
    'if df.isEmpty(): df = fixed.selectExpr("k AS id")',
    'df = df.withColumn("o", F.lit(spark.read.schema("k INT").parquet("{lake}/live").count()))',
    "df = df.sample(0.5, seed=3)",
    'df = df.withColumn("i", F.monotonically_increasing_id())',
    'df = df.intersect(df.where("n > 0"))',
    'df = df.withColumn("s", F.lit(str(datetime.now())))',
    'df = df.withColumn("s", F.lit("%s" % (datetime.now() - timedelta(days=1))))',
    'df = df.where(F.col("n") > int(time.time_ns() % 3))',
    'df = df.where(F.col("n").isin([random.randint(0, 3) for _ in range(2)]))',
    'df.createOrReplaceTempView("batch")\n    '
    'df = spark.sql(f"SELECT * FROM batch WHERE n > {random.random() * 3}")',
    'df = df.withColumn("z", times("n"))',
    'df = df.withColumn("z", centred("n"))',
    'spark.conf.set("spark.sql.session.timeZone", "UTC" if number % 2 else "Asia/Tokyo")\n    '
    'df = df.withColumn("h", F.expr("CAST(timestamp_seconds(n) AS STRING)"))',
)
"""What looks at more than a record, or is not the same each time."""
WRITE: Final = (
    *('df.write.mode("append").parquet("{out}")',) * 5,
    'df.write.mode("append").json("{out}")',
    'Writer("{out}").write(df, number)',
    'functools.partial(Writer("{out}").write, number=number)(df)',
    'df.write.mode("overwrite").parquet("{out}")',
    'df.write.mode("ignore").parquet("{out}")',
    'df.write.mode("append" if number else "overwrite").parquet("{out}")',
    'df.write.mode("append").partitionBy("id").parquet("{out}")',
    'df.write.mode("append").save("{out}")',
    'df.write.mode("append").parquet(f"{out}/day={time.time_ns() % 7}")',
    "try:\n        if random.random() < 0.3: raise OSError\n        "
    'df.write.mode("append").parquet("{out}")\n    except OSError: pass',
    'one = threading.Thread(target=df.where("n > 1").write.mode("append").parquet, '
    'args=["{out}"])\n    one.start(); one.join()',
    'df.join(spark.read.schema("id INT").parquet("{out}"), "id", "left_anti")'
    '.write.mode("append").parquet("{out}")',
)
MERGED_FROM: Final = (
    *RECORD[:1], *RECORD[3:5], *RECORD[9:10], *RECORD[12:13], 'df = df.dropDuplicates(["id"])',
    'df = df.groupBy("id").agg(*(F.max(each).alias(each) for each in ("k", "n", "w")))',
)  # fmt: skip
"""Steps before a merge, which leave the columns of its table."""
CLAUSES: Final = {
    "matched": ("update n = s.n", "update n = t.n + s.n", "update n = s.n, b = {number}",
                "update k = s.k, w = s.w", "delete"),
    "not matched": ("insert", "insert"),
    "not matched by source": ("update n = 0", "update n = t.n + 1", "delete"),
}  # fmt: skip
WHERE: Final = {
    "matched": ("s.n > t.n", "s.n > 1", "t.b < {number}", "t.k <> s.k", "s.w = 'a'"),
    "not matched": ("s.n > 1", "{number} < 2"),
    "not matched by source": ("t.n > 1", "t.b < {number}"),
}
"""Conditions of a merge, some of which guard by the number of the micro-batch."""
ON: Final = ("t.id = s.id", "t.id = s.id", "t.k = s.k", "t.id = s.id AND t.k = s.k",
             "t.id = s.id AND t.b < {number}")  # fmt: skip
TARGET: Final = {"id": "s.id", "k": "s.k", "n": "s.n", "w": "s.w", "b": "{number}"}
"""Columns of the table that is merged into -> what is inserted."""
RUNS: Final = 4


class Function(NamedTuple):
    """A drawn function; `written` is below the lake, `runs` what is called in place of its text."""

    name: str
    text: str
    written: str
    runs: str = ""


Row = tuple[Any, ...]


def functions(rng: random.Random, number: int) -> Iterator[Function]:
    """So many functions."""
    for at in range(number):
        if rng.random() < 0.15:
            yield merging(rng, at)
            continue
        steps = rng.sample(RECORD, rng.randint(0, 3))
        if rng.random() < 0.5:
            steps.insert(rng.randint(0, len(steps)), rng.choice(OTHER))
        write = rng.choice(WRITE).replace("{out}", f"{{lake}}/out_{at}")
        body = "\n    ".join([*steps, write])
        yield Function(f"body_{at}", f"def body_{at}(df, number):\n    {body}\n", f"out_{at}")


def merging(rng: random.Random, at: int) -> Function:
    """A function that merges its micro-batch into a table, and may append to another one."""
    on, clauses = rng.choice(ON), []
    for place in rng.choice([("matched",), ("not matched",), (*CLAUSES,), tuple(CLAUSES)[:2]]):
        condition = rng.choice(WHERE[place]) if rng.random() < 0.5 else ""
        clauses.append((place, rng.choice(CLAUSES[place]), condition))
    steps = rng.sample(MERGED_FROM, rng.randint(0, 2))
    if rng.random() < 0.15:
        steps.insert(0, "if number > 2: return")
    spark = rng.choice([_in_sql, _of_delta, _merged_into])(f"{{lake}}/merged_{at}", on, clauses)
    rust = _of_deltalake(f"{{lake}}/merged_{at}", on, clauses)
    texts, written = [[*steps, spark], [*steps, rust]], f"merged_{at}"
    if rng.random() < 0.3:
        written, meets = f"out_{at}", rng.random() < 0.5
        table = f"{{lake}}/merged_{at}"
        for text, held in zip(
            texts,
            (f'spark.read.format("delta").load("{table}")',
             f'spark.createDataFrame(deltalake.DeltaTable("{table}").to_pandas())'),
            strict=True,
        ):  # fmt: skip
            text += [f'df = df.join({held}.select("id"), "id")'] if meets else []
            text += [f'df.write.mode("append").parquet("{{lake}}/out_{at}")']
    texts[1].insert(0, "import deltalake")
    one, other = (f"def body_{at}(df, number):\n    " + "\n    ".join(t) + "\n" for t in texts)
    return Function(f"body_{at}", one, written, other)


Clause = tuple[str, str, str]
"""When, what is done then, and under which condition."""


def _set(action: str) -> dict[str, str]:
    """Column -> its new value."""
    return TARGET if action == "insert" else dict(re.findall(r"(\w+) = ([^,]+)", action))


def _mapping(action: str, of: str = 'f"{}"') -> str:
    return "{" + ", ".join(f'"{n}": {of.format(value)}' for n, value in _set(action).items()) + "}"


def _in_sql(table: str, on: str, clauses: Sequence[Clause]) -> str:
    text = f"MERGE INTO delta.`{table}` t USING batch s ON {on}"
    for place, action, condition in clauses:
        text += f" WHEN {place.upper()}" + f" AND {condition}" * bool(condition) + " THEN "
        if action == "insert":
            text += f"INSERT ({', '.join(TARGET)}) VALUES ({', '.join(TARGET.values())})"
        else:
            text += action.replace("update ", "UPDATE SET ").replace("delete", "DELETE")
    return f'df.createOrReplaceTempView("batch"); df.sparkSession.sql(f"{text}")'


def _of_delta(table: str, on: str, clauses: Sequence[Clause]) -> str:
    text = f'DeltaTable.forPath(spark, "{table}").alias("t").merge(df.alias("s"), f"{on}")'
    for place, action, condition in clauses:
        where = [f'condition=f"{condition}"'] if condition else []
        kind, name = action.partition(" ")[0], "set" if "update" in action else "values"
        where += [f"{name}={_mapping(action)}"] if action != "delete" else []
        text += f".when{place.title().replace(' ', '')}{kind.title()}({', '.join(where)})"
    return f"from delta.tables import DeltaTable; {text}.execute()"


def _merged_into(table: str, on: str, clauses: Sequence[Clause]) -> str:
    text = f'df.alias("s").mergeInto("{table.rpartition("/")[2]}", F.expr(f"{on}"))'
    for place, action, condition in clauses:
        place = place.title().replace(" ", "")
        text += f".when{place}(" + f'F.expr(f"{condition}")' * bool(condition) + ")."
        given = _mapping(action, 'F.expr(f"{}")') if action != "delete" else ""
        text += f"{action.partition(' ')[0]}({given})"
    return f"{text}.merge()"


def _of_deltalake(table: str, on: str, clauses: Sequence[Clause]) -> str:
    text = f'deltalake.DeltaTable("{table}").merge(df.toArrow(), f"{on}", "s", "t")'
    for place, action, condition in clauses:
        where = [f"updates={_mapping(action)}"] if action != "delete" else []
        where += [f'predicate=f"{condition}"'] if condition else []
        kind = action.partition(" ")[0]
        text += f".when_{place.replace(' ', '_')}_{kind}({', '.join(where)})"
    return f"{text}.execute()"


def text_of(several: Sequence[Function], lake: Path, *, started: bool) -> str:
    """The script; `started` with the queries that hand micro-batches to the functions."""
    text = HEAD + "".join(each.text if started else each.runs or each.text for each in several)
    if started:
        text += f'clicks = spark.readStream.schema("{COLUMNS}").json("/in/clicks")\n'
        for each in several:
            text += f"clicks.writeStream.foreachBatch({each.name})"
            text += f'.option("checkpointLocation", "/checkpoints/{each.name}").start()\n'
    return text.replace("{lake}", str(lake)).replace("{{", "{").replace("}}", "}")


def labels(several: Sequence[Function], folder: Path) -> dict[str, bool]:
    """Name of a function -> whether it is said to give the same answers in any order."""
    file = folder / "script.py"
    file.write_text(text_of(several, folder / "lake", started=True))
    graph = read(file, execute=Limits(seconds=300.0), follow=True)
    nodes = derived(graph)
    said = {}
    for each in several:
        own = [paths for name, paths in nodes.items() if each.written in name]
        paths = [path for node in own for path in node.paths.values()]
        said[each.name] = bool(paths) and all(
            path.annotation.kind.confluent and path.nondeterministic is None for path in paths
        )
    return said


def records(rng: random.Random) -> list[Row]:
    """Records that share keys."""
    return [
        (rng.randrange(4), rng.randrange(3), rng.choice([None, 0, 1, 2, 3]), rng.choice("ab"))
        for _ in range(rng.randint(3, 7))
    ]


def cut(rng: random.Random, rows: Sequence[Row]) -> list[list[Row]]:
    """The records in some order, in some micro-batches, of which one may be repeated."""
    rows = rng.sample(rows, len(rows))
    batches: list[list[Row]] = [[]]
    for row in rows:
        if rng.random() < 0.4:
            batches.append([])
        batches[-1].append(row)
    return batches


def written(
    spark: Any, function: Function, several: Sequence[Function], batches: list[list[Row]],
    rng: random.Random, folder: Path,
) -> Counter[str]:  # fmt: skip
    """The rows in the sink when Spark has called a function for these micro-batches."""
    lake = folder / "run"
    shutil.rmtree(lake, ignore_errors=True)
    spark.createDataFrame([(0, "x"), (1, "y")], "k INT, v STRING").write.parquet(f"{lake}/fixed")
    live = spark.createDataFrame([(rng.randrange(3), "z")], "k INT, v STRING")
    live.write.parquet(f"{lake}/live")
    if function.runs:
        held = spark.createDataFrame([(0, 1, 2, "a", -1), (5, 0, 1, "b", -1)], f"{COLUMNS}, b INT")
        deltalake.write_deltalake(f"{lake}/merged_{function.name[5:]}", held.toArrow())
    space: dict[str, Any] = {"__name__": "script"}
    exec(compile(text_of(several, lake, started=False), "script", "exec"), space)
    again = rng.randrange(len(batches)) if rng.random() < 0.4 else -1
    for number, batch in enumerate(batches):
        for _ in range(1 + (number == again)):
            space[function.name](spark.createDataFrame(batch, COLUMNS).coalesce(1), number)
        if rng.random() < 0.5:
            live.write.mode("append").parquet(f"{lake}/live")
    path = lake / function.written
    if function.written.startswith("merged"):
        rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
        return Counter(str(sorted(row.items())) for row in rows)
    if not any(path.rglob("part-*")):
        return Counter()
    kind = "json" if any(path.rglob("*.json")) else "parquet"
    frame = spark.read.format(kind).load(str(path))
    return Counter(frame.selectExpr(f"to_json(struct({', '.join(sorted(frame.columns))}))")
                   .toPandas().iloc[:, 0] if frame.columns else [])  # fmt: skip


def outcomes(
    spark: Any, function: Function, several: Sequence[Function], rng: random.Random, folder: Path
) -> list[Counter[str]]:
    """What is in the sink after each of several runs over the same records."""
    rows = records(rng)
    runs = (cut(rng, rows) for _ in range(RUNS))
    return [written(spark, function, several, batches, rng, folder) for batches in runs]


def differ(runs: Sequence[Counter[str]]) -> tuple[Counter[str], Counter[str]] | None:
    """Two runs of which one has a row that the other has not; how often may differ."""
    pairs = ((runs[0], run) for run in runs[1:] if set(run) != set(runs[0]))
    return next(pairs, None)


def main() -> int:
    """Print what is found; 1 where something is refuted."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--functions", type=int, default=60)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    from benchmarks.functions_on_spark import session

    rng = random.Random(options.seed)
    several = list(functions(rng, options.functions))
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="batches_") as name:
        folder = Path(name)
        said = labels(several, folder)
        spark = session()
        for function in several:
            same = said[function.name]
            if not same and rng.random() < 0.9:
                found["cautious, not run"] += 1
                continue
            try:
                runs = outcomes(spark, function, several, rng, folder)
            except Exception as error:
                found["not run"] += 1
                print(f"not run: {function.text}  {str(error)[:200]}")
                continue
            agree = differ(runs) is None
            if same and not agree:
                found["refuted"] += 1
                print(f"REFUTED: {function.text}    {differ(runs)}")
            else:
                found[f"{'said' if same else 'not said'} to be the same, "
                      f"{'was' if agree else 'was not'}"] += 1  # fmt: skip
        spark.stop()
    print(f"{len(several)} functions: " + ", ".join(f"{n} {what}" for what, n in found.items()))
    return int(found["refuted"] > 0)


if __name__ == "__main__":
    sys.exit(main())
