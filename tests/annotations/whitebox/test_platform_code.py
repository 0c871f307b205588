"""Code for a platform: what it has beside PySpark is known, and lets no query be lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from annotations.dataflow import Component
from annotations.diagnostics import BadInput
from annotations.file import importing
from annotations.file.importing import load_all
from annotations.whitebox import pyspark_code
from annotations.whitebox.following.program import program
from annotations.whitebox.sandbox import Limits

_NOTEBOOK = "# Databricks notebook source\n"
FILES: dict[str, tuple[str, dict[str, str]]] = {
    "expectations.py": (
        """
from pyspark import pipelines as dp

@dp.table(name="rides", row_filter="ROW FILTER f ON (k)")
@dp.expect_or_drop("valid", "v > 0")
@dp.expect("known", "k IS NOT NULL")
def rides():
    return spark.readStream.schema("k STRING, v INT").json("/in/rides")

@dp.materialized_view(private=True)
@dp.expect_all_or_fail({"one": "n = 1"})
def counted():
    return spark.read.table("rides").groupBy("k").count()

@dp.unheard_of("option")
@dp.table
def guarded():
    return dp.read_stream("rides")
""",
        {"rides": "CR", "counted": "OW[k]", "guarded": "CR"},
    ),
    "options.py": (
        """
df = spark.readStream.format("kafka").option("subscribe", "t").option("delimeter", ",").load()
kept = spark.readStream.schema("k INT").option("maxFilePerTrigger", 1).json("/in/k")
df.writeStream.queryName("read").format("console").option("nunRows", 5).start()
kept.writeStream.queryName("kept").format("jsn").start("/out/kept")
""",
        {"read": "CR", "kept": "CR"},
    ),
    "schema_of_files.py": (
        """
from pyspark.sql import functions as F

schema = spark.read.option("header", True).csv("/in/users").limit(10).schema
users = spark.readStream.schema(schema).csv("/in/users").withColumn("file", F.lit("users"))
users.writeStream.toTable("users")
by_gender = spark.readStream.table("users").groupBy("gender").agg(F.max("weight").alias("most"))
by_gender.writeStream.outputMode("complete").queryName("heaviest").toTable("heaviest")
""",
        {"users": "CR", "heaviest": "OW[gender]"},
    ),
    "groups.py": (
        """
from company import settings

df = spark.readStream.schema("k STRING, v INT").json("/in/df")
groups = {
    "counted": df.groupBy(settings.key).count(),
    "pivoted": df.groupBy("k").pivot(settings.by, settings.values).sum("v"),
    "rolled": df.rollup(*settings.keys).max("v"),
    "wrong": df.cube(1.5).min(),
    "known": df.groupBy("k").count(),
}
for name, query in groups.items():
    query.writeStream.queryName(name).outputMode("update").format("console").start()
""",
        {
            "counted": "OW[*], chance",
            "pivoted": "OW[*], chance",
            "rolled": "OW[*], chance",
            "wrong": "OW[*], chance",
            "known": "OW[k]",
        },
    ),
    "changes.py": (
        """
import dlt

dlt.create_streaming_table("history")
dlt.apply_changes_from_snapshot(
    target="history", source="customers", keys=["id"], stored_as_scd_type=2
)
""",
        {"history": "OW[*], chance"},
    ),
    "folders.py": (
        """
from pyspark import pipelines as dp

def create(name):
    @dp.table(name=name + "_raw")
    def raw():
        return spark.readStream.schema("k STRING").json("/in/" + name)

for folder in dbutils.fs.ls("/in"):
    create(folder.name[:-1])
""",
        {"folder_name_-1__raw": "CR"},
    ),
    "failing.py": (
        """
import dlt

@dlt.table
def broken():
    return spark.sql("SELECT (1 FROM")
""",
        {"broken": "OW[*], chance"},
    ),
    "tables.py": (
        """
import dlt
from pyspark.sql import functions as F

@dlt.table
def drawn():
    return spark.read.table("t").withColumn("x", F.rand())

@dlt.table
def stamped():
    return spark.createDataFrame([(1,)], "i INT").withColumn("at", F.current_timestamp())

@dlt.table
def some():
    return spark.read.table("t").limit(5)

@dlt.table
def scored():
    return helper(spark.read.table("t"))

@dlt.table
def first():
    return spark.read.schema("k INT, v INT").parquet("/t").groupBy("k").agg(F.first("v"))

@dlt.table
def counted():
    return spark.read.schema("k INT, v INT").parquet("/t").groupBy("k").count()

@dlt.table
def joined():
    other = spark.read.schema("k INT").parquet("/u")
    return spark.read.schema("k INT, v INT").parquet("/t").join(other, "k", "left").distinct()
""",
        {
            "drawn": "CR, chance",
            "stamped": "CR, chance",
            "some": "OW[*]",
            "scored": "OW[*], chance",
            "first": "OW[k]",
            "counted": "CR",
            "joined": "CR",
        },
    ),
    "catalogs.py": (
        """
catalog = dbutils.widgets.get("catalog")
rows = spark.sql(f"SELECT k, count(*) AS n FROM STREAM {catalog}.raw_{catalog}.events GROUP BY k")
rows.writeStream.queryName("named").outputMode("complete").format("console").start()
""",
        {"named": "OW[k]"},
    ),
    "notebook.py": (
        _NOTEBOOK
        + """
%pip install company
sc = spark.sparkContext
sc._jsc.hadoopConfiguration().set("fs.s3a.endpoint", "http://minio:9000")
events = spark.readStream.schema("k STRING, `unit price` INT").json("/in")
display(events)
print(events.rdd, flush=True)

# COMMAND ----------

(events.where(events["k"]
!= "x")
  .writeStream.queryName("kept").option("checkpointLocation", "/c").table("kept"))
""",
        {"kept": "CR"},
    ),
    "spaces.py": (
        """
df = spark.readStream.schema("`product line` STRING, v INT").json("/in")
counts = df.groupBy("product line").count()
counts.writeStream.queryName("counts").outputMode("update").format("console").start()
""",
        {"counts": "OW[`product line`]"},
    ),
    "environment.py": (
        """
import os
secret = os.environ.get("TOKEN_SECRET", "").encode("utf-8")
if not secret:
    raise EnvironmentError("TOKEN_SECRET must be set")
df = spark.readStream.schema("k STRING").json("/in")
df.writeStream.queryName("tokens").format("console").start()
""",
        {"tokens": "CR"},
    ),
    "functions.sql": (
        """
CREATE OR REFRESH STREAMING TABLE logs AS
  SELECT id, AI_CLASSIFY(text, array('a', 'b')) AS kind FROM STREAM(raw);
CREATE OR REFRESH STREAMING TABLE quoted AS
  SELECT '(' || id || ');' AS id FROM STREAM(raw);
""",
        {"logs": "OW[*], chance", "quoted": "CR"},
    ),
    "sessions.py": (
        """
from databricks.connect import DatabricksSession
from company.spark import get_session, helpers

spark = get_session("app")
df = spark.readStream.schema("k STRING").json("/in/one")
df.writeStream.queryName("of_a_function").format("console").start()
spark = helpers.spark
df = spark.sql("SELECT k, count(*) AS n FROM STREAM events GROUP BY k")
df.writeStream.queryName("of_a_member").outputMode("complete").format("console").start()
spark = DatabricksSession.builder.profile("dev").serverless(True).getOrCreate()
df = spark.readStream.schema("k STRING").json("/in/two")
df.writeStream.queryName("of_a_cluster").format("console").start()
""",
        {"of_a_function": "CR", "of_a_member": "OW[k]", "of_a_cluster": "CR"},
    ),
    "frames.py": (
        """
from company.readers import read, shop

read("rides").groupBy("k").count().writeStream.queryName("rides").format("console").start()
stream = shop.orders.stream()
stream.writeStream.foreachBatch(lambda rows, _: rows.write.saveAsTable("orders")).start()
""",
        {"rides": "OW[*], chance", "orders": "OW[*], chance"},
    ),
    "settings.py": (
        """
import csv
from company.settings import settings

def write(rows):
    with open("/out/rows.csv", "w") as file:
        csv.DictWriter(file, fieldnames=rows.columns).writerows([row.asDict() for row in rows])

df = spark.readStream.schema("k STRING").json("/in")
timed = df.writeStream.trigger(processingTime=settings.get("interval"))
timed.queryName("rides").format("console").start()
kafka = spark.readStream.format("kafka").options(**settings.kafka).load()
kafka.selectExpr("CAST(value AS STRING)").writeStream.queryName("values").format("console").start()
write(settings)
""",
        {"rides": "CR", "values": "CR"},
    ),
    "tables_in_sql.py": (
        """
from pyspark import pipelines as dp

@dp.table
def kept():
    return spark.sql("SELECT k, v FROM STREAM raw.events WHERE v > 0")

@dp.table
def through_a_view():
    spark.readStream.table("raw.events").createOrReplaceTempView("events")
    return spark.sql("SELECT DISTINCT k, v FROM events WHERE v > 0")

@dp.table
def numbered():
    spark.readStream.table("raw.events").createOrReplaceTempView("events")
    return spark.sql(
        "SELECT *, row_number() OVER (PARTITION BY k ORDER BY v) AS n"
        " FROM (SELECT DISTINCT * FROM events)"
    )
""",
        {"kept": "CR", "through_a_view": "CW", "numbered": "OW[k], chance"},
    ),
    "columns.py": (
        """
def started(df, name):
    df.writeStream.queryName(name).format("console").start()

df = spark.readStream.table("raw")
if missing := [name for name in ("a", "b") if name not in df.columns]:
    raise RuntimeError(f"missing {missing}")
if {"a", "b"} - set(df.columns) or len(df.columns) < 2:
    raise RuntimeError("missing")
started(df.select([name for name in df.columns if name != "z"]), "some")
renamed = df
for name in df.columns:
    renamed = renamed.withColumnRenamed(name, name.lower())
started(renamed, "renamed")
started(df.limit(3) if "late" in df.columns else df, "late")
names = [field.name for field in spark.table("other").schema.fields]
started(df.limit(3) if "late" in names else df, "of_another")
known = df.select("a", "b")
started(known.limit(3) if "late" in known.columns else known, "known")
typed = spark.readStream.schema(spark.read.json("/sample").schema).json("/in")
started(typed, "typed")
""",
        {
            "some": "CR",
            "renamed": "CR",
            "late": "OW[*], chance",
            "of_another": "OW[*], chance",
            "known": "CR",
            "typed": "CR",
        },
    ),
    "checks.py": (
        """
from company.flags import flag

def first(names):
    for name in names:
        if flag(name):
            return name
    raise KeyError(names)

def check(names):
    for name in names:
        if flag(name) == 3:
            continue
        raise ValueError(name)

def wait(tries):
    while True:
        if flag("ready"):
            break
        raise TimeoutError(tries)

def either(names):
    for name in names:
        if flag(name):
            break
        raise ValueError(name)
    else:
        raise KeyError(names)

first(["a", "b"])
check(["a", "b"])
wait(3)
either(["a", "b"])
df = spark.readStream.schema("k STRING").json("/in")
df.writeStream.queryName("checked").format("console").start()
""",
        {"checked": "CR"},
    ),
    "raw_columns.py": (
        """
from pyspark import pipelines as dp
from pyspark.sql import functions as F

@dp.table
def landed():
    df = spark.readStream.format("cloudFiles").load("/landing")
    df = df.withColumn("n", F.lit(1)).where("v > 0")
    return df.withColumn("file", F.col("_metadata.file_path"))

@dp.temporary_view
def cleaned():
    return spark.sql("SELECT *, v * 2 AS w FROM STREAM landed")

@dp.table
def kept():
    return spark.readStream.table("cleaned").select("k", "w")

dp.create_streaming_table("newest")
dp.create_auto_cdc_flow(target="newest", source="cleaned", keys=["id"], sequence_by="at")
""",
        {"landed": "CR", "cleaned": "CR", "kept": "CR", "newest": "OW[id]"},
    ),
    "named_elsewhere.py": (
        """
import os
table, query = os.environ["TABLE"], os.environ["QUERY"]

def started(text, name):
    spark.sql(text).writeStream.queryName(name).format("console").start()

started(f"SELECT k FROM STREAM {table} WHERE v > 0", "whole")
started(f"SELECT k FROM STREAM(raw_{table}) WHERE v > 0", "in_part")
started(f"SELECT k FROM ({query})", "of_a_query")
started(f"SELECT extract(YEAR FROM {query}) FROM STREAM events", "of_a_column")
""",
        {
            "whole": "CR",
            "in_part": "CR",
            "of_a_query": "OW[*], chance",
            "of_a_column": "OW[*]",
        },
    ),
    "described.py": (
        """
from typing import TYPE_CHECKING
from pyspark import pipelines as dp
from pyspark.sql import functions as F
from company.config import config, options_for

if TYPE_CHECKING:
    F = None

@dp.table(
    name="silver",
    comment=config.comment,
    schema=config.schema,
    table_properties=config.properties("silver"),
    cluster_by=config.columns,
)
def latest():
    return spark.read.table("bronze").groupBy("id").agg(F.first("at"))

@dp.table(**options_for("some"))
def some():
    return spark.read.table("bronze").limit(3)

@dp.table(name=config.name)
def few():
    return spark.read.table("bronze").limit(3)

@dp.foreach_batch_sink(name="merged")
def merge(rows, batch):
    rows.write.mode("append").saveAsTable("t")

@dp.append_flow(target="merged", name="events")
def events():
    return spark.readStream.table("events")
""",
        {
            "silver": "OW[id]",
            "some": "OW[*]",
            "company_config_config_name": "OW[*]",
            "merged": "OW[*]",
        },
    ),
    "unknown_datasets.py": (
        """
import dlt
from company.readers import read

@dlt.table
def rides():
    return read("rides").select("k")
""",
        {"rides": "OW[*], chance"},
    ),
    "files.sql": (
        """
CREATE OR REFRESH STREAMING TABLE named AS
  SELECT *, _metadata.file_path AS f FROM STREAM read_files('/in/a/', format => 'csv');
CREATE OR REFRESH STREAMING TABLE fields AS
  SELECT r.payload.user.id, r._metadata.file_name FROM STREAM read_files('/in/b/') AS r;
CREATE OR REFRESH STREAMING TABLE typed AS
  SELECT k, _metadata.file_size FROM STREAM(cloud_files('/in/c/', 'json', map('schema', 'k INT')));
CREATE OR REFRESH STREAMING TABLE cut AS
  SELECT _metadata.file_block_start AS s FROM STREAM read_files('/in/d/');
CREATE OR REFRESH STREAMING TABLE whole AS
  SELECT k, _metadata FROM STREAM read_files('/in/e/', schema => 'k INT');
CREATE OR REFRESH STREAMING TABLE joined AS
  SELECT a.k FROM STREAM read_files('/one/rides/') AS a JOIN STREAM read_files('/other/rides/') AS b
  ON a.k = b.k;
""",
        {
            "named": "CR",
            "fields": "CR",
            "typed": "CR",
            "cut": "CR, chance",
            "whole": "CR, chance",
            "joined": "CW",
        },
    ),
    "structures.py": (
        """
import random, attr
from attrs import define, frozen, field
from collections import namedtuple
from dataclasses import dataclass
from types import SimpleNamespace

df = spark.readStream.schema("k STRING, v INT").json("/in")
space, made = SimpleNamespace(key="v", least=3), SimpleNamespace(key="k")
space.__dict__.update(key="k")
vars(made)["key"] = random.choice(["k", "v"])
Pair = namedtuple("Pair", "key least", defaults=(3,))
first, _ = Pair("k")

class Other(Pair):
    @property
    def key(self):
        return "v"

@define
class Job:
    key: str
    keys: list = field(factory=lambda: ["k", "v"])

@frozen
class Later:
    key: str = "v"
    def __attrs_post_init__(self):
        object.__setattr__(self, "key", "k")

@attr.s
class Older:
    key = attr.ib(default="k")

@attr.s
class Converted:
    key = attr.ib(default="k", converter=lambda _: "v")

@attr.s(these={"key": attr.ib(default="v")})
class These:
    key = "k"

keys = {
    "space": space.key, "drawn": made.key, "pair": Pair(key="k").key, "item": Pair("k")[0],
    "unpacked": first, "changed": Pair("v")._replace(key="k").key,
    "dict": Pair("k")._asdict()["key"],
    "other": Other("k").key, "job": Job("k").key, "later": Later().key, "older": Older().key,
    "converted": Converted().key, "these": These().key,
}
for name, column in keys.items():
    df.groupBy(column).count().writeStream.queryName(name).outputMode("update").start()
df.groupBy(*Job("k").keys).count().writeStream.queryName("keys").outputMode("update").start()
df.where(df.v > space.least).writeStream.queryName("least").format("console").start()
""",
        dict.fromkeys(
            ("space", "pair", "item", "unpacked", "changed", "dict", "job", "later", "older"),
            "OW[k]",
        )
        | dict.fromkeys(("drawn", "converted", "these"), "OW[*], chance")
        | {"other": "OW[v]", "keys": "OW[k,v]", "least": "CR"},
    ),
    "perhaps.py": (
        """
import os
df = spark.readStream.schema("k STRING, v INT").json("/in")

def grow(names):
    names.append("v")
    return True

a, b, c, d, e, f, g, h, i, j = ([*"k"] for _ in range(10))
os.environ.get("MORE") and a.append("v")
b.append("v") if os.environ.get("MORE") else None
if os.environ.get("MORE") and grow(c):
    pass
if os.environ.get("MORE"):
    d.append("v")
[e.append("v") for _ in [1] if os.environ.get("MORE")]
True and f.append("v")
assert os.environ.get("MORE") or grow(g)
os.environ.get("MORE") and grow(h) and True
assert grow(i)
assert os.environ.get("MORE") == 1 == grow(j)
for name, columns in dict(a=a, b=b, c=c, d=d, e=e, f=f, g=g, h=h, i=i, j=j).items():
    df.groupBy(*columns).count().writeStream.queryName(name).outputMode("update").start()
""",
        dict.fromkeys("abcdeghj", "OW[*], chance") | dict.fromkeys("fi", "OW[k,v]"),
    ),
    "arrow.py": (
        """
import pyarrow as pa
import pyarrow.compute as pc
df = spark.readStream.schema("k STRING, v INT").json("/in")

def large(batches):
    for batch in batches:
        yield batch.filter(pc.greater(batch["v"], 3))

def named(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"k": pc.utf8_upper(batch.column("k")), "v": batch["v"]})

def through_pandas(batches):
    for batch in batches:
        frame = batch.to_pandas()
        frame["v"] = frame["v"] * 2
        yield pa.RecordBatch.from_pandas(frame)

def ranked(batches):
    for batch in batches:
        yield batch.filter(pc.equal(batch["v"], pc.max(batch["v"])))

def first(batches):
    for batch in batches:
        yield batch.slice(0, 1)

def counted(batches):
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"k": batch["k"], "v": [batch.num_rows] * 3})

for function in (large, named, through_pandas, ranked, first, counted):
    rows = df.mapInArrow(function, df.schema)
    rows.writeStream.queryName(function.__name__).format("console").start()
""",
        dict.fromkeys(("large", "named", "through_pandas"), "CR")
        | dict.fromkeys(("ranked", "first", "counted"), "OR[*]"),
    ),
    "names_of_versions.py": (
        """
from pyspark.sql.functions import *
from pyspark.sql.functions import of_a_later_spark
df = spark.readStream.schema("k STRING, v INT").json("/in")
older = df.groupBy("k").agg(countDistinct("v").alias("n"))
older.writeStream.queryName("older").outputMode("complete").format("console").start()
df.where(col("v") > 3).writeStream.queryName("kept").format("console").start()
df.select(of_a_later_spark(col("v"))).writeStream.queryName("later").format("console").start()
""",
        {"older": "OW[k]", "kept": "CR", "later": "OW[*], chance"},
    ),
    "unlike.py": (
        """
import scoring
left = scoring.of(spark.readStream.schema("k STRING").json("/in/left"))
right = scoring.of(spark.readStream.schema("k STRING").json("/in/right"))
left.join(right, ["k"]).writeStream.queryName("joined").format("console").start()
""",
        {"joined": "OW[*], chance"},
    ),
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What reading each of the files gave."""
    folder = tmp_path_factory.mktemp("platform")
    paths = [folder / name for name in FILES]
    for path in paths:
        path.write_text(FILES[path.name][0], encoding="utf-8")
    return dict(zip(FILES, load_all(paths, execute=None), strict=True))


@pytest.mark.parametrize("name", FILES)
def test_what_a_platform_has_is_known(name: str, outcomes: dict[str, Any]) -> None:
    assert not isinstance(outcomes[name], BadInput), outcomes[name]
    dataflow, _ = outcomes[name]
    assert {c.name: _label(c) for c in dataflow.components.values()} == FILES[name][1]


_SETTINGS = (
    'os.environ["LEAST"]',
    'int(os.getenv("LEAST", "3"))',
    'os.getenv("LEAST", "3")',
    "settings.LEAST",
    "f\"{os.environ['LEAST']}\"",
)


@pytest.mark.parametrize("setting", _SETTINGS)
def test_no_code_has_what_stands_for_a_setting(setting: str, tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import os, settings\ndf = spark.readStream.schema('v INT').json('/in')\n"
        f"kept = df.where(df.v > {setting})\n"
        "kept.writeStream.queryName('kept').format('parquet').start('/out')\n"
        "df.writeStream.queryName('all').format('parquet').start('/all')\n"
    )
    imported = importing.imported(script, module="job_code", execute=None)
    assert imported.module is not None
    assert "$" not in imported.module.text
    assert [*imported.reasons] == ["kept"]


def test_files_that_are_called_alike_are_two_sources(outcomes: dict[str, Any]) -> None:
    dataflow, _ = outcomes["files.sql"]
    read = {stream.source.path for stream in dataflow.streams.values() if stream.source is not None}
    assert {"/one/rides/", "/other/rides/"} <= read


def _label(component: Component) -> str:
    worst = max(component.paths, key=lambda path: path.annotation.kind)
    chance = any(path.nondeterministic for path in component.paths)
    return f"{worst.annotation}{', chance' if chance else ''}"


def test_a_notebook_in_another_language_is_not_read_as_python(tmp_path: Path) -> None:
    notebook = {"cells": [], "metadata": {"language_info": {"name": "scala"}}}
    file = tmp_path / "notebook.ipynb"
    file.write_text(json.dumps(notebook), encoding="utf-8")
    with pytest.raises(ValueError, match="its language is scala"):
        program(file)


def test_the_others_are_read_where_the_reader_fails_on_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistake of the reader, and an answer that makes no sense, cost one file each."""
    answers = [{"error": "a mistake of the reader"}, {"queries": 1, "seen": {"outside": 1}}]
    monkeypatch.setattr(pyspark_code, "_run", lambda *_, **__: {"answers": answers})
    monkeypatch.setattr(pyspark_code.answer_cache, "keep", lambda *_, **__: None)
    paths = [tmp_path / "one.py", tmp_path / "other.py"]
    for path in paths:
        path.touch()
    found = pyspark_code.read_scripts(paths, limits=Limits(), follow=True)
    assert all(isinstance(each, pyspark_code.Unreadable) for each in found)
