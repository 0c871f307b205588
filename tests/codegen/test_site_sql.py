"""What sites take of SQL, and what they make of it; with Spark, that it means the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pytest

from annotations.whitebox.functions import known
from annotations.whitebox.inputs import Input
from annotations.whitebox.sql import read
from benchmarks import site_functions_on_spark
from benchmarks.function_values import BY_NAME
from benchmarks.settings_on_spark import search
from benchmarks.site_sql_on_spark import AGGREGATED, OVER, TEMPLATES, Case, Prover, cases, prove
from codegen import site_sql as sites
from codegen.settings import ON_SITES as SETTINGS
from codegen.site_sql import ON_SITES, site_refusals, site_sql
from codegen.sites import OWN_COLUMNS
from flux_runtime.operators.event_time import END, START
from flux_runtime.operators.query import TAGS
from flux_runtime.operators.rows import SN
from flux_runtime.operators.unprocessable import DEAD_LETTER

SALES = Input(
    {
        "city": "STRING",
        "n": "INT",
        "b": "BIGINT",
        "price": "DOUBLE",
        "at": "TIMESTAMP",
        "low": "STRING COLLATE UTF8_LCASE",
        "took": "INTERVAL DAY TO SECOND",
        "laps": "ARRAY<STRUCT<lap: INT, took: INTERVAL SECOND>>",
    }
)


def refused(sql: str) -> list[str]:
    return list(site_refusals(sql, read(sql, inputs={"sales": SALES}).plan))


def test_every_function_is_in_the_registry_and_is_tried() -> None:
    assert all(known(name) for name in ON_SITES)
    assert {case.function for case in cases(None)} >= ON_SITES.keys()
    assert {*TEMPLATES, *AGGREGATED, *OVER} <= ON_SITES.keys()
    assert Case("sum", "SELECT g, sum(x0) AS y FROM v GROUP BY g").kind == " GROUP BY g"


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT city, price, low, at FROM sales",
        "SELECT city, count(*) AS n, sum(b) AS s, avg(n) AS a FROM sales GROUP BY city",
        "SELECT a.n, b.city FROM sales a LEFT JOIN sales b ON a.n = b.b AND a.at < b.at",
        "SELECT CAST(n AS BIGINT) AS n, coalesce(city, 'none') AS c FROM sales WHERE n % 2 = 1",
        "WITH q AS (SELECT DISTINCT n FROM sales) SELECT max(n) AS m FROM q",
    ],
)
def test_what_means_the_same_is_taken(sql: str) -> None:
    assert refused(sql) == []


def test_of_nulls_alone_a_site_counts_none_and_collects_none() -> None:
    with duckdb.connect() as database:
        database.execute("CREATE TABLE sales AS SELECT CAST(NULL AS INTEGER) AS n")
        query = "SELECT count_if(n > 1) AS c, collect_list(n) AS l, sum(n) AS s FROM sales"
        assert database.execute(site_sql(query)).fetchall() == [(0, [], None)]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n + 1 AS m, count(*) AS c FROM sales GROUP BY n + 1",
        "SELECT n + 1 AS m, count(*) AS c FROM sales GROUP BY 1 HAVING count(*) > 1",
        "SELECT CASE WHEN n = 2 THEN n ELSE 0 END AS m FROM sales GROUP BY GROUPING SETS "
        "((CASE WHEN n = 2 THEN n ELSE 0 END), ()) ORDER BY 1",
        "SELECT n FROM sales GROUP BY n ORDER BY n + 1",
    ],
)
def test_a_site_can_evaluate_what_is_grouped_by_an_expression(sql: str) -> None:
    with duckdb.connect() as database:
        database.execute("CREATE TABLE sales (n INTEGER)")
        database.execute(site_sql(sql))


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("SELECT upper(city) AS c FROM sales", "upper is not known"),
        ("SELECT sum(price) AS s FROM sales", "sum(DOUBLE) is not known"),
        ("SELECT n FROM sales INTERSECT SELECT city FROM sales", "INT and STRING in one column"),
        ("SELECT n FROM sales UNION ALL SELECT price FROM sales", "DOUBLE and INT in one column"),
        ("SELECT count(DISTINCT price) AS c FROM sales", "count(DOUBLE) is not known"),
        (
            "SELECT count(DISTINCT n, low) AS c FROM sales",
            "count(INT, STRING COLLATE ANY) is not known",
        ),
        ("SELECT avg(b) AS s FROM sales", "avg(BIGINT) is not known"),
        ("SELECT n FROM sales WHERE city = n", "=(STRING, INT) is not known"),
        ("SELECT n % b AS m FROM sales", "%(INT, BIGINT) is not known"),
        ("SELECT n % -1 AS m FROM sales", "%(INT, INT) is not known"),
        (
            "SELECT try_cast(n AS TINYINT) AS m FROM sales",
            "TRY_CAST(n AS TINYINT) (TryCast) is not",
        ),
        ("SELECT price, count(*) AS n FROM sales GROUP BY price", "grouping by DOUBLE is not"),
        ("SELECT n, took FROM sales", "`took`, INTERVAL, is not known"),
        ("SELECT s.laps FROM sales s JOIN sales t ON s.n = t.n", "`laps`, ARRAY<STRUCT<"),
        ("SELECT DISTINCT low FROM sales", "distinct rows of STRING COLLATE ANY is not"),
        ("SELECT split(city, '[a-c]') AS s FROM sales", "split(STRING, STRING) is not"),
        ("SELECT substring(city, 0) AS s FROM sales", "substring(STRING, INT) is not"),
        ("SELECT n FROM sales LIMIT 3", "limit is not known"),
        ("SELECT first(n) AS f FROM sales", "first is not known"),
    ],
)
def test_what_may_not_is_refused_with_its_name(sql: str, reason: str) -> None:
    assert any(said.startswith(reason) for said in refused(sql)), refused(sql)


def test_the_columns_of_sites_are_those_that_they_add() -> None:
    assert {*SN, *TAGS, DEAD_LETTER, START, END} == OWN_COLUMNS


def test_results_are_as_wide_as_those_of_spark() -> None:
    text = site_sql(
        "SELECT length(city) + 1 AS n, n DIV 2 AS d, CAST(n AS TINYINT) AS t FROM sales"
    )
    assert "CAST(LENGTH(city) AS INT) + CAST(1 AS INT)" in text
    assert "CAST(n AS BIGINT) // " in text
    assert "CAST(n AS TINYINT)" in text
    assert "TRY_CAST" not in text


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    from benchmarks.functions_on_spark import session

    session = session()
    yield session
    session.stop()


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_site_and_spark_give_the_same(spark: Any) -> None:
    """All types with `python -m benchmarks.site_sql_on_spark`."""
    report = prove(spark, types=("int", "text"), mixed=0, queries=6, rows=16, functions=2)
    assert report.differences == []
    assert report.queries > 150
    assert report.failed > 20


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_site_hands_python_what_spark_does(spark: Any) -> None:
    """A text among the columns makes Spark convert the integers in another way."""
    prover = Prover(spark, 3)
    rows, _ = prover.columns([BY_NAME[name] for name in ("int", "text", "instant")], 24)
    site_functions_on_spark.prove(prover, rows, 12)
    assert prover.report.differences == []


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_function_that_means_something_else_is_noticed(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ON_SITES, "upper", ON_SITES["trim"])  # type: ignore[arg-type]
    monkeypatch.setattr(sites, "refusals", lambda _: [])
    report = prove(spark, only="upper", types=("text",), mixed=0, rows=60)
    assert [each.sql for each in report.differences] == ["SELECT i, upper(x0) AS y FROM v"]


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_settings_that_change_what_sites_compute_are_known(spark: Any) -> None:
    """All settings with `python -m benchmarks.settings_on_spark`."""
    few = r"timeZone|caseSensitive|spark\.sql\.(json|files|execution\.arrow)\."
    tried, changes = search(spark, seed=0, only=few, types=("instant",))
    assert tried > 20
    assert "spark.sql.session.timeZone" in changes
    assert changes.keys() <= SETTINGS.keys()
