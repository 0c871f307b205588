"""What is said of SQL when a file is read, held against Spark's own analyser."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from annotations.file.formats import unknown_option
from annotations.type_names import TYPES, unknown_type
from annotations.whitebox.checking import findings
from annotations.whitebox.functions import FUNCTIONS
from tests.random_queries import TABLES, Queries

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

COUNT = 400
KNOWN = {table: frozenset(map(str.lower, columns)) for table, columns in TABLES.items()}
OPTIONS_IN_SPARK = {
    "json": "org.apache.spark.sql.catalyst.json.JSONOptions",
    "csv": "org.apache.spark.sql.catalyst.csv.CSVOptions",
    "xml": "org.apache.spark.sql.catalyst.xml.XmlOptions",
    "parquet": "org.apache.spark.sql.execution.datasources.parquet.ParquetOptions",
    "orc": "org.apache.spark.sql.execution.datasources.orc.OrcOptions",
    "text": "org.apache.spark.sql.execution.datasources.text.TextOptions",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from flux_runtime.spark.session import start_session

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    log: Path = tmp_path_factory.mktemp("log") / "spark.log"
    spark = start_session("checking", master="local[1]", conf={}, log=log)
    for table, columns in TABLES.items():
        schema = ", ".join(f"{name} {type}" for name, type in columns.items())
        spark.createDataFrame([], schema).createOrReplaceTempView(table)
    yield spark
    spark.stop()


def refusal(session: SparkSession, query: str) -> str | None:
    """Spark's message; None where it takes the query."""
    from pyspark.errors import PySparkException

    try:
        session.sql(query)
    except PySparkException as error:
        return str(error).splitlines()[0]
    return None


def test_no_query_that_spark_takes_is_refused_and_most_broken_ones_are(
    session: SparkSession,
) -> None:
    source = random.Random(11)
    queries = Queries(source)
    right = [queries.right() for _ in range(COUNT)]
    broken = [queries.broken() for _ in range(COUNT)]
    told = {query: findings(query, tables=KNOWN) for query in (*right, *broken)}
    said = {query: refusal(session, query) for query in told}
    false_alarms = [(q, told[q]) for q in told if told[q] and said[q] is None]
    assert not false_alarms, "\n".join(f"{q}\n    {f[0].message}" for q, f in false_alarms[:5])
    refused = [query for query in told if said[query] is not None]
    missed = [query for query in refused if not told[query]]
    sample = "\n".join(f"{query}\n    {said[query]}" for query in missed[:8])
    assert len([q for q in right if said[q] is None]) > 0.8 * COUNT, sample
    assert len(refused) > 0.5 * COUNT
    assert len(missed) < 0.35 * len(refused), f"{len(missed)} of {len(refused)}:\n{sample}"


def test_every_function_of_spark_is_known(session: SparkSession) -> None:
    names = {row[0].lower() for row in session.sql("SHOW FUNCTIONS").collect()}
    unknown = {name for name in names if name.isidentifier()} - FUNCTIONS.keys()
    assert not unknown


def test_every_option_of_sparks_formats_is_known(session: SparkSession) -> None:
    jvm = session.sparkContext._jvm
    assert jvm is not None
    for format, name in OPTIONS_IN_SPARK.items():
        module = jvm.java.lang.Class.forName(f"{name}$").getField("MODULE$").get(None)
        options = module.getAllOptions().mkString(" ").split()
        assert options
        assert [each for each in options if unknown_option(format, each)] == [], format


def test_every_type_that_is_known_is_one_of_sparks(session: SparkSession) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    arguments = {
        "array": "array<int>",
        "map": "map<int, string>",
        "struct": "struct<a: int>",
        "interval": "interval day to second",
        "char": "char(3)",
        "character": "character(3)",
        "varchar": "varchar(3)",
        "geometry": "geometry(4326)",
        "geography": "geography(4326)",
    }
    for name in sorted(TYPES):
        assert unknown_type(arguments.get(name, name)) is None
        StructType.fromDDL(f"c {arguments.get(name, name)}")
    for wrong in ("doubel", "array<strng>", "struct<a: itn>", "text"):
        assert unknown_type(wrong)
        with pytest.raises(PySparkException):
            StructType.fromDDL(f"c {wrong}")
