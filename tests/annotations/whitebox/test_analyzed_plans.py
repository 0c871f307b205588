"""Spark's own analyzer as an oracle: it and the SQL front end take a query for the same thing.

Columns, their types, and the operators that decide annotations: aggregations with their keys and
functions, joins with their kinds, distinct, set operations, windows, limits, generators.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from annotations.file import load
from annotations.whitebox.code import Code
from annotations.whitebox.datatypes import Family
from tests.constructs.analyzed import ours, register, sparks
from tests.constructs.catalogue import CONSTRUCTS, SCHEMAS
from tests.constructs.observe import session
from tests.constructs.queries import AGGREGATED, EXPRESSIONS, QUERIES, TEXTS

EXAMPLES = Path(__file__).parents[3] / "examples"
FILES = ("ad_network/ad_network.yaml", "settlement/settlement.yaml", "wordcount/wordcount.yaml")
VARIANTS = ("THRESH", "POOR", "WINDOW", "CAMPAIGN")

NOT_SAID = {"price / 2", "round(price, 1)"}
"""Expressions whose digits follow from rules of Spark's that are not repeated here."""

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    started = session()
    started.sparkContext.setLogLevel("OFF")
    register(SCHEMAS, started)
    yield started
    started.stop()


@pytest.mark.parametrize(
    "sql", [c.sql for c in CONSTRUCTS if c.sql], ids=[c.name for c in CONSTRUCTS if c.sql]
)
def test_the_constructs_are_read_as_spark_reads_them(sql: str, spark: Any) -> None:
    assert ours(sql, SCHEMAS) == sparks(sql, spark)


@pytest.mark.parametrize("sql", QUERIES)
def test_queries_are_read_as_spark_reads_them(sql: str, spark: Any) -> None:
    assert ours(sql, SCHEMAS) == sparks(sql, spark)


@pytest.mark.parametrize("expressions", [EXPRESSIONS, AGGREGATED], ids=["rows", "groups"])
def test_expressions_have_the_types_that_spark_gives_them(
    expressions: Sequence[str], spark: Any
) -> None:
    named = (f"{each} AS x{place}" for place, each in enumerate(expressions))
    sql = f"SELECT {', '.join(named)} FROM clicks"
    types = [
        {each: kind for each, (_, kind) in zip(expressions, reading.columns, strict=True)}
        for reading in (ours(sql, SCHEMAS), sparks(sql, spark))
    ]
    for expression in NOT_SAID & types[0].keys():
        assert types[0].pop(expression).family is Family.UNKNOWN
        del types[1][expression]
    assert types[0] == types[1]


@pytest.mark.parametrize("text", ["{}", "array({})", "named_struct('x', {}).x"])
def test_what_spark_compares_under_a_collation_is_taken_for_collated(text: str, spark: Any) -> None:
    """The type of a function of a text says how the text is compared that it gives."""
    given = text.format("collate(campaign, 'UTF8_LCASE')")
    found: dict[str, bool] = {}
    name = re.compile(r"\bcampaign\b")
    for plain in filter(name.search, [*EXPRESSIONS, *AGGREGATED, *TEXTS]):
        sql = f"SELECT {name.sub(lambda _: given, plain)} AS x FROM clicks"
        try:
            kind = spark.sql(sql).schema[0].dataType.simpleString()
        except PySparkException:  # Spark has no type for some mixed texts
            continue
        if "collate" in kind:
            ((_, read),) = ours(sql, SCHEMAS).columns
            found[plain] = read.collated
    assert not [plain for plain, collated in found.items() if not collated]
    assert len(found) > 10


def queries() -> Iterator[tuple[str, str, Mapping[str, Mapping[str, str]]]]:
    """The queries of the examples: name, text, the schemas of what comes in."""
    for file in FILES:
        for variant in VARIANTS if file.startswith("ad_network") else ("",):
            dataflow, _ = load(EXAMPLES / file, variants={"Report": variant} if variant else {})
            code = Code(dataflow)
            for component in dataflow.components.values():
                for output, by in component.implementations.items():
                    if by.sql is None:
                        continue
                    given = code.inputs(component, output)
                    schemas = {name: each.schema for name, each in given.items() if each.schema}
                    yield f"{component.name}-{output}-{variant}", by.sql, schemas


@pytest.mark.parametrize(
    ("name", "sql", "schemas"), list(queries()), ids=lambda value: str(value)[:24]
)
def test_the_examples_are_read_as_spark_reads_them(
    name: str, sql: str, schemas: Mapping[str, Mapping[str, str]], spark: Any
) -> None:
    own = spark.newSession()
    register(schemas, own)
    assert ours(sql, schemas) == sparks(sql, own)
