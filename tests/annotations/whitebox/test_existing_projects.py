"""Pipelines and scripts become dataflows; code that fails is named with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from annotations.diagnostics import BadInput
from annotations.file import importing, load
from annotations.vocabulary import Label, Within
from annotations.whitebox.following.statements import Statement, statements
from annotations.whitebox.pyspark_code import Script, Unreadable, read_script
from annotations.whitebox.sandbox import Limits
from blazes.analysis import analyze

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "pipelines"
SCRIPT = """\
from pyspark.sql import SparkSession, functions as F

spark = SparkSession.builder.master("local[2]").appName("ads").getOrCreate()
spark.sparkContext.setLogLevel("WARN")
raw = spark.readStream.format("kafka").option("subscribe", "clicks").load()
clicks = raw.select(F.from_json(F.col("value").cast("string"), "id BIGINT, w INT").alias("j"))
clicks = clicks.select("j.*")
clicks.createOrReplaceTempView("clicks")
spark.sql("SELECT id FROM clicks GROUP BY id HAVING COUNT(*) > 9").writeStream.outputMode(
    "update"
).queryName("busy").format("console").start()
counts = clicks.groupBy("id").count()
counts.writeStream.outputMode("update").queryName("counts").format("console").start()
spark.streams.awaitAnyTermination()
"""


def test_the_example_project_is_the_file_that_is_committed_beside_it() -> None:
    specification = EXAMPLE / "spark-pipeline.yml"
    made = importing.imported(specification, module="shop_code", execute=Limits())
    assert made.text == (EXAMPLE / "shop.yaml").read_text(encoding="utf-8")
    assert made.module is not None
    assert made.module.text == (EXAMPLE / "shop_code.py").read_text(encoding="utf-8")


def test_project_and_imported_file_get_the_same_labels() -> None:
    project, warnings = importing.load(EXAMPLE / "spark-pipeline.yml", execute=Limits())
    imported, _ = load(EXAMPLE / "shop.yaml")
    assert not warnings
    one, other = analyze(project), analyze(imported)
    assert one.verdict is other.verdict is Label.RUN
    assert project.components.keys() == imported.components.keys()
    annotated = {n: [str(p.annotation) for p in c.paths] for n, c in project.components.items()}
    assert annotated["revenue"] == ["OW[channel,day]"]
    assert annotated["good_customers"] == ["CW"]
    assert annotated["kept_orders"] == ["OW[order_id]", "OW[order_id]"]
    position = project.components["first_orders"].position
    assert position is not None
    assert Path(position.file).name == "orders.py"
    lines = Path(position.file).read_text(encoding="utf-8").splitlines()
    assert lines[position.line - 1] == "@dp.table"


def test_an_unmodified_script_is_read_without_spark(tmp_path: Path) -> None:
    file = tmp_path / "ads.py"
    file.write_text(SCRIPT)
    dataflow, warnings = importing.load(file, execute=Limits())
    assert not warnings
    labels = {n: str(c.paths[0].annotation) for n, c in dataflow.components.items()}
    assert labels == {"busy": "CW", "counts": "OW[*]"}


@pytest.mark.parametrize(
    "setting",
    [
        "conf.set('{0}', 'false')",
        "sql('SET {0} = false')",
        "conf.set('{0}', 'false')\nspark.conf.set('{0}', 'true')",
        "sql('SET {0} = false')\nspark.conf.unset('{0}')",
    ],
)
def test_queries_are_not_read_under_settings_that_change_what_they_mean(
    setting: str, tmp_path: Path
) -> None:
    file = tmp_path / "ads.py"
    line = f"spark.{setting.format('spark.sql.groupByOrdinal')}\n"
    file.write_text(SCRIPT.replace("spark.streams", line + "spark.streams"))
    dataflow, _ = importing.load(file)
    assert {str(c.paths[0].annotation) for c in dataflow.components.values()} == {"OW[*]"}


def test_a_script_that_fails_after_a_query_keeps_the_query(tmp_path: Path) -> None:
    file = tmp_path / "fails.py"
    file.write_text(SCRIPT + "raise RuntimeError('no more')\n")
    script = read_script(file, limits=Limits())
    assert isinstance(script, Script)
    assert [query.name for query in script.queries] == ["busy", "counts"]
    ((text, position),) = script.problems
    assert text == "RuntimeError: no more"
    assert position is not None
    assert position.line == len(SCRIPT.splitlines()) + 1
    _, warnings = importing.load(file, execute=Limits())
    assert [warning.code.id for warning in warnings] == ["BLZ081"]


def test_code_that_describes_nothing_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import sys\n\nnothing()\n")
    with pytest.raises(BadInput) as refused:
        importing.load(file, execute=Limits())
    (found,) = refused.value.diagnostics
    assert found.code.id == "BLZ080"
    assert found.position is not None
    assert found.position.line == 3


def test_an_action_is_refused_in_words(tmp_path: Path) -> None:
    file = tmp_path / "acts.py"
    file.write_text(
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "print(spark.range(3).count())\n"
    )
    with pytest.raises(Unreadable, match="an action needs data") as refused:
        read_script(file, limits=Limits())
    assert refused.value.position is not None
    assert refused.value.position.line == 3


def test_code_that_does_not_end_is_ended(tmp_path: Path) -> None:
    file = tmp_path / "waits.py"
    file.write_text("while True:\n    pass\n")
    with pytest.raises(Unreadable, match="did not end within"):
        read_script(file, limits=Limits(seconds=4))


def test_code_that_kills_its_process_is_an_answer(tmp_path: Path) -> None:
    file = tmp_path / "dies.py"
    file.write_text("import os\nprint('bye', flush=True)\nos._exit(7)\n")
    with pytest.raises(Unreadable, match=r"exit status 7.*bye"):
        read_script(file, limits=Limits())


def test_statements_of_a_pipeline() -> None:
    text = (
        "-- first; not a statement\nSET a = b;\n"
        "CREATE STREAMING TABLE t (x INT) COMMENT 'AS ; ' AS\nSELECT 1;\n"
        "CREATE FLOW f AS INSERT INTO t BY NAME SELECT 2;\n"
        "CREATE FLOW c AS AUTO CDC INTO u FROM STREAM e KEYS (k, l) SEQUENCE BY s "
        "STORED AS SCD TYPE 2;\nDROP TABLE t"
    )
    table, flow, change, unknown = statements(text)
    assert isinstance(table, Statement)
    assert (table.query, table.line, table.query_line) == ("SELECT 1", 3, 4)
    assert isinstance(flow, Statement)
    assert (flow.target, flow.query) == ("t", "SELECT 2")
    assert isinstance(change, Statement)
    assert (change.keys, change.sequence, change.history) == (("k", "l"), "s", True)
    assert "DROP TABLE t" in str(unknown)


def labels_of(code: str, tmp_path: Path) -> dict[str, str]:
    file = tmp_path / "script.py"
    file.write_text(BEGINNING + code, encoding="utf-8")
    dataflow, _ = importing.load(file, execute=Limits())
    return {name: str(each.paths[0].annotation) for name, each in dataflow.components.items()}


BEGINNING = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
clicks = spark.readStream.schema("id INT, n INT").json("clicks")
"""


VARIABLES: Final = (
    ("DECLARE VARIABLE v = now()", "v", True),
    ("DECLARE OR REPLACE v TIMESTAMP DEFAULT current_timestamp()", "session.v", True),
    ("DECLARE v INT", "v", False),
    ("SET VAR v = CAST(rand() * 10 AS INT)", "v", True),
    ("DECLARE VARIABLE other = now()", "v", False),
    ("DECLARE VARIABLE n = now()", "n", False),
)


def test_a_variable_is_left_to_chance_where_its_value_is(tmp_path: Path) -> None:
    files = [tmp_path / f"script{at}.py" for at in range(len(VARIABLES))]
    for file, (declared, column, _) in zip(files, VARIABLES, strict=True):
        query = f"SELECT id FROM clicks WHERE n > {column}"
        file.write_text(
            f"{BEGINNING}spark.sql({declared!r})\nclicks.createOrReplaceTempView('clicks')\n"
            f"spark.sql({query!r}).writeStream.format('json').start('out')\n",
            encoding="utf-8",
        )
    for outcome, (declared, _, chance) in zip(
        importing.load_all(files, execute=None), VARIABLES, strict=True
    ):
        assert not isinstance(outcome, BadInput), outcome
        (path,) = outcome[0].components["out"].paths
        assert (path.nondeterministic is not None) is chance, declared


SQL_MERGE: Final = """
    rows{0}.createOrReplaceTempView("news")
    rows.sparkSession.sql("MERGE INTO t USING news ON t.id = news.id {1}")
"""
DELTA_MERGE: Final = """
    (DeltaTable.forName(spark, "t").alias("t")
        .merge(rows{0}.alias("s"), "t.id = s.id").{1}.execute())
"""
OWN_MERGE: Final = """
    rows{0}.alias("s").mergeInto("t", F.col("t.id") == F.col("s.id")).{1}.merge()
"""
UPDATES: Final = "WHEN MATCHED THEN UPDATE SET n = news.n"
INSERTS: Final = "WHEN NOT MATCHED THEN INSERT *"
FIRST: Final = ".dropDuplicates(['id'])"


MERGES: Final = (
    (SQL_MERGE, "", UPDATES, "OW[*]"),
    (SQL_MERGE, FIRST, f"{UPDATES} {INSERTS}", "OW[*]"),
    (SQL_MERGE, "", INSERTS, "OW[*]"),
    (SQL_MERGE, FIRST, INSERTS, "OW[id]"),
    (SQL_MERGE, f".where('n > 0'){FIRST}", f"{INSERTS};", "OW[id]"),
    (SQL_MERGE, FIRST, f"AND news.n > 0 {INSERTS}", "OW[*]"),
    (SQL_MERGE, FIRST, "WHEN NOT MATCHED AND news.n > 0 THEN INSERT *", "OW[*]"),
    (SQL_MERGE, FIRST, f"{INSERTS} WHEN NOT MATCHED BY SOURCE THEN DELETE", "OW[*]"),
    (SQL_MERGE, ".dropDuplicates(['id', 'n'])", INSERTS, "OW[*]"),
    (SQL_MERGE, ".limit(5).dropDuplicates(['id'])", INSERTS, "OW[*]"),
    (DELTA_MERGE, FIRST, "whenNotMatchedInsertAll()", "OW[id]"),
    (DELTA_MERGE, FIRST, "whenNotMatchedInsertAll('s.n > 0')", "OW[*]"),
    (DELTA_MERGE, FIRST, "whenMatchedUpdateAll().whenNotMatchedInsertAll()", "OW[*]"),
    (DELTA_MERGE, FIRST, "whenNotMatchedBySourceDelete().whenNotMatchedInsertAll()", "OW[*]"),
    (OWN_MERGE, FIRST, "whenNotMatched().insertAll()", "OW[id]"),
    (OWN_MERGE, FIRST, "whenNotMatched(F.col('s.n') > 0).insertAll()", "OW[*]"),
    (OWN_MERGE, FIRST, "whenMatched().delete().whenNotMatched().insertAll()", "OW[*]"),
)


def test_what_a_merge_of_micro_batches_keeps(tmp_path: Path) -> None:
    code = "from delta.tables import DeltaTable\nfrom pyspark.sql import functions as F\n"
    for at, (body, of, does, _) in enumerate(MERGES):
        code += f"def merge{at}(rows, batch):{body.format(of, does)}\n"
        code += f"clicks.writeStream.queryName('q{at}').foreachBatch(merge{at}).start()\n"
    labels = {f"q{at}": label for at, (*_, label) in enumerate(MERGES)}
    assert labels_of(code, tmp_path) == labels


def test_rows_of_several_types_have_one_that_holds_them_all(tmp_path: Path) -> None:
    code = """
from pyspark.sql import functions as F
other = spark.readStream.schema("id INT, n DOUBLE, t STRING, c STRING COLLATE UTF8_LCASE").json("o")
def start(df, name):
    df.writeStream.queryName(name).outputMode("complete").format("memory").start()
start(clicks.union(other.select("id", "n")).groupBy("id").agg(F.sum("n")), "floats")
start(clicks.unionByName(clicks).groupBy("id").agg(F.sum("n")), "integers")
start(other.select("t").union(other.select("c")).distinct(), "texts")
"""
    file = tmp_path / "script.py"
    file.write_text(BEGINNING + code, encoding="utf-8")
    dataflow, _ = importing.load(file, execute=Limits())
    within = {name: each.paths[0].within for name, each in dataflow.components.items()}
    every, sequence = Within.SET, Within.SEQUENCE
    assert within == {"floats": sequence, "integers": every, "texts": sequence}


@pytest.mark.parametrize(
    ("body", "of", "does", "assumed"),
    [
        (SQL_MERGE, "", UPDATES, True),
        (SQL_MERGE, "", f"{UPDATES} {INSERTS}", True),
        (SQL_MERGE, FIRST, f"{UPDATES} {INSERTS}", False),
        (SQL_MERGE, ".dropDuplicates(['id', 'n'])", UPDATES, True),
        (SQL_MERGE, "", INSERTS, False),
        (DELTA_MERGE, "", "whenMatchedUpdateAll()", True),
        (DELTA_MERGE, FIRST, "whenMatchedUpdateAll()", False),
        (OWN_MERGE, "", "whenMatched().updateAll()", True),
    ],
)
def test_a_merge_that_updates_assumes_that_no_two_records_meet_one_row(
    body: str, of: str, does: str, assumed: bool, tmp_path: Path
) -> None:
    code = "from delta.tables import DeltaTable\nfrom pyspark.sql import functions as F\n"
    code += f"def merge(rows, batch):{body.format(of, does)}\n"
    code += "clicks.writeStream.queryName('q').foreachBatch(merge).start()\n"
    file = tmp_path / "job.py"
    file.write_text(BEGINNING + code, encoding="utf-8")
    (outcome,) = importing.load_all([file], execute=None)
    assert not isinstance(outcome, BadInput), outcome
    said = [each.text for path in outcome[0].components["q"].paths for each in path.assumed]
    text = "no two records of a micro-batch meet one row of t, at which Spark stops the job"
    assert (text in said) is assumed


TABLES: Final = (
    ("spark.read.table('prices')", "OR[*]"),
    ("spark.read.format('delta').load('prices')", "OR[*]"),
    ("spark.read.schema('id INT').json('prices')", "CR"),
    ("spark.read.format('delta').option('versionAsOf', 3).load('prices')", "CR"),
    ("spark.read.option('timestampAsOf', '2024-01-01').table('prices')", "CR"),
)


def test_a_table_that_may_change_is_no_constant(tmp_path: Path) -> None:
    code = "".join(
        f"clicks.join({table}, 'id').writeStream.queryName('q{at}').format('console').start()\n"
        for at, (table, _) in enumerate(TABLES)
    )
    assert labels_of(code, tmp_path) == {f"q{at}": label for at, (_, label) in enumerate(TABLES)}


_SINKS: Final = (
    ("es", "'org.elasticsearch.spark.sql', **{'es.mapping.id': 'id'}", ["id"]),
    ("es", "'es', **{'es.mapping.id': 'id'}", ["id"]),
    ("es", "'org.elasticsearch.spark.sql'", []),
    ("es", "'opensearch', **{'opensearch.mapping.id': 'other'}", []),
    ("mongo", "'mongodb', idFieldList='id, n'", ["id", "n"]),
    ("mongo", "'mongodb', idFieldList='id', operationType='insert'", []),
    ("cosmos", "'cosmos.oltp'", ["id"]),
    ("hudi", "'hudi', **{'hoodie.datasource.write.recordkey.field': 'id'}", ["id"]),
    ("redis", "'org.apache.spark.sql.redis', **{'key.column': 'n'}", ["n"]),
    ("kafka", "'kafka', topic='id'", []),
)
"""A kind of sink, its format and options, and the columns by which it replaces rows."""


def test_a_sink_that_replaces_rows_has_a_key(tmp_path: Path) -> None:
    file = tmp_path / "script.py"
    starts = "".join(f"start('q{n}', {given})\n" for n, (_, given, _) in enumerate(_SINKS))
    write = "clicks.writeStream.queryName(name).format(format).options(**options).start('/out')"
    file.write_text(f"{BEGINNING}def start(name, format, **options): {write}\n{starts}")
    dataflow, _ = importing.load(file)
    for number, (kind, _, key) in enumerate(_SINKS):
        sink = dataflow.streams[f"q{number}"].sink
        assert sink is not None
        assert [*sink.key] == key, kind
    file.write_text(BEGINNING + "clicks.writeStream.format('cassandra').start()\n")
    dataflow, _ = importing.load(file)
    (component,) = dataflow.components.values()
    assert any("one primary key" in each.text for each in component.paths[0].assumed)
