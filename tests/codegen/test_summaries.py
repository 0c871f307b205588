"""Partial aggregates in place of records: which queries can do with them, and that these do."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from codegen.summaries import Summaries, summarise

SCHEMAS = {
    "ask": {"id": "INT", "k": "BIGINT", "x": "INT"},
    "put": {
        "k": "INT",
        "v": "INT",
        "w": "BIGINT",
        "s": "STRING",
        "ok": "BOOLEAN",
        "price": "DOUBLE",
        "tags": "MAP<STRING, INT>",
    },
}


def found(sql: str, *, as_set: bool = False, beside: tuple[str, ...] = ()) -> Summaries | None:
    return summarise(sql, SCHEMAS, inputs=["put"], beside=beside, as_set=as_set)


JOINED = "SELECT a.id, {} AS r FROM ask a LEFT JOIN put p ON a.k = p.k GROUP BY a.id"


@pytest.mark.parametrize(
    ("why", "sql"),
    [
        ("not SQL", "SELECT id, FROM"),
        ("not aggregated", "SELECT a.id, p.v FROM ask a JOIN put p ON a.k = p.k"),
        ("another aggregate", JOINED.format("collect_list(p.v)")),
        ("depends on order", JOINED.format("first(p.v)")),
        ("a function of the user", JOINED.format("mine(p.v)")),
        ("random", JOINED.format("sum(p.v) + rand()")),
        ("doubles", JOINED.format("sum(p.price)")),
        ("the greatest of 0.0 and -0.0", JOINED.format("max(p.price)")),
        ("the other side", JOINED.format("sum(a.x)")),
        ("both sides", JOINED.format("sum(a.x * p.v)")),
        ("what could fail where it meets nothing", JOINED.format("sum(p.v * 2)")),
        ("a null that counts", JOINED.format("count_if(p.v IS NULL)")),
        ("filtered", JOINED.format("count(*) FILTER (WHERE p.ok)")),
        ("windowed", JOINED.format("sum(count(p.v)) OVER ()")),
        ("grouped by a double", JOINED.replace("a.id", "p.price").format("count(*)")),
        ("grouped by a map", JOINED.replace("a.id", "p.tags").format("count(*)")),
        ("rolled up", JOINED.format("count(p.v)") + " WITH ROLLUP"),
        ("limited", JOINED.format("count(p.v)") + " LIMIT 3"),
        ("a name that hides a column", JOINED.format("count(p.v)").replace("AS r", "AS v")),
        ("no name", "SELECT a.id, count(p.v) FROM ask a JOIN put p ON a.k = p.k GROUP BY a.id"),
        ("a natural join", "SELECT id, count(v) AS r FROM ask NATURAL JOIN put GROUP BY id"),
        ("USING", "SELECT a.id, count(p.v) AS r FROM ask a JOIN put p USING (k) GROUP BY a.id"),
        ("ambiguous", "SELECT id, count(v) AS r FROM ask, put WHERE k = 1 GROUP BY id"),
        ("all columns", "SELECT DISTINCT * FROM put"),
        ("all of its columns", "SELECT DISTINCT a.id, p.* FROM ask a JOIN put p ON a.k = p.k"),
        ("twice", "SELECT k, count(*) AS r FROM put WHERE v IN (SELECT v FROM put) GROUP BY k"),
        ("a sample", "SELECT k, count(*) AS r FROM put TABLESAMPLE (5 ROWS) GROUP BY k"),
        (
            "a lateral view",
            "SELECT k, count(*) AS r FROM put LATERAL VIEW explode(tags) GROUP BY k",
        ),
        ("a common table of its name", "WITH put AS (SELECT 1 AS k) SELECT DISTINCT k FROM put"),
        ("a backslash", "SELECT k, count(*) AS r FROM put WHERE s = '\\\\' GROUP BY k"),
        (
            "correlated",
            "SELECT a.id, (SELECT count(*) FROM put p WHERE p.k = a.k) AS r FROM ask a",
        ),
        ("no column", "SELECT a.id FROM ask a WHERE EXISTS (SELECT 1 FROM put)"),
        ("an unknown column", JOINED.format("count(p.nowhere)")),
    ],
)
def test_in_doubt_records_are_kept(why: str, sql: str) -> None:
    assert found(sql) is None, why


def test_names_that_the_texts_use_keep_the_records() -> None:
    schemas = {"put": {**SCHEMAS["put"], "partial_1": "INT"}}
    sql = "SELECT k, count(*) AS r FROM put GROUP BY k"
    assert summarise(sql, schemas, inputs=["put"], as_set=False) is None


def test_distinct_values_are_enough_where_the_output_is_a_set() -> None:
    sql = "SELECT a.id, p.v FROM ask a JOIN put p ON a.k = p.k"
    kept = found(sql, as_set=True)
    assert kept is not None
    assert kept.query == sql
    assert kept.kept["put"].of_record == "SELECT v, k FROM put"
    assert kept.kept["put"].again is None
    assert found(sql + " LIMIT 3", as_set=True) is None
    assert found(f"{sql} EXCEPT SELECT 1, 2", as_set=True) is None


def test_the_gate_stays_apart() -> None:
    kept = found("SELECT s, count(*) AS r FROM put GROUP BY s", beside=("k",))
    assert kept is not None
    assert kept.kept["put"].again is not None
    assert kept.kept["put"].again.endswith("GROUP BY k, s")


def test_a_condition_on_records_is_applied_to_records() -> None:
    kept = found(
        "SELECT a.id, n FROM ask a JOIN (SELECT p.k, count(*) AS n FROM put p WHERE p.v > 1"
        " GROUP BY p.k HAVING count(*) > 2) c ON a.k = c.k"
    )
    assert kept is not None
    assert kept.kept["put"].of_record.endswith("FROM put WHERE v > 1")
    assert "WHERE" not in kept.query


OVER_JOIN = [
    "count(*)",
    "count(1) + 1",
    "count(p.v)",
    "sum(p.v)",
    "sum(p.w)",
    "avg(p.v)",
    "min(p.s)",
    "max(p.w)",
    "count_if(p.ok)",
    "bool_or(p.ok)",
    "bool_and(p.ok)",
    "count(DISTINCT p.v)",
    "max(a.x)",
    "coalesce(max(p.v), -1)",
    "CASE WHEN count(p.v) > 1 THEN sum(p.v) ELSE min(p.v) END",
]
OVER_RECORDS = ["sum(v)", "count(s)", "count_if(v > 3)", "bool_and(v > 1)"]
JOINS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]


def queries() -> Iterator[tuple[str, bool]]:
    """Queries that can do with partial aggregates, and whether their output is a set."""
    chosen = itertools.cycle(OVER_JOIN)
    for join in JOINS:
        for group in ("a.id", "a.id, p.s", "p.k"):
            some = ", ".join(f"{next(chosen)} AS r{number}" for number in range(4))
            sql = f"SELECT {group}, {some} FROM ask a {join} put p ON a.k = p.k"
            yield f"{sql} AND p.v > a.x GROUP BY {group} HAVING count(*) > 0", False
    for aggregate in OVER_RECORDS:
        inner = f"SELECT k, {aggregate} AS r FROM put WHERE v <> 3 GROUP BY k"
        yield inner, False
        yield f"SELECT a.id, c.r FROM ask a LEFT JOIN ({inner}) c ON a.k = c.k", False
    yield "SELECT count(*) AS n, sum(v) AS total, max(w) AS m FROM put WHERE k = 99", False
    yield "SELECT a.id, count(*) AS n FROM ask a, put p WHERE a.k = p.k GROUP BY id", False
    yield "SELECT count(*) AS n, count(p.v) AS m FROM ask a JOIN put p ON a.k = -p.k", False
    yield "SELECT a.id FROM ask a WHERE EXISTS (SELECT 1 FROM put p WHERE p.k = a.k)", False
    yield "SELECT a.id FROM ask a WHERE a.k NOT IN (SELECT k FROM put WHERE ok)", False
    yield "SELECT DISTINCT p.s, a.id FROM put p LEFT JOIN ask a ON a.k = p.k WHERE p.v < 4", False
    yield "SELECT p.s, a.id FROM put p LEFT JOIN ask a ON a.k = p.k", True
    yield "SELECT a.id, a.x FROM ask a UNION ALL SELECT p.k, p.v FROM put p WHERE p.ok", True


def test_the_queries_of_the_property_can_do_without_records() -> None:
    for sql, as_set in queries():
        assert found(sql, as_set=as_set) is not None, sql


def records(source: random.Random) -> tuple[list[Any], list[Any]]:
    """Requests and what was written, with nulls."""

    def maybe(value: Any) -> Any:
        return None if source.random() < 0.15 else value

    asked = [
        (number % 7, maybe(source.randrange(5)), maybe(source.randrange(3))) for number in range(20)
    ]
    put = [
        (
            maybe(source.randrange(5)),
            maybe(source.randrange(7)),
            maybe(source.randrange(-9, 9)),
            maybe(source.choice("abc")),
            maybe(source.random() < 0.5),
            maybe(source.choice([0.5, -0.0, 0.0, float("nan"), 9.0])),
            None,
        )
        for _ in range(120)
    ]
    return asked, put


@pytest.mark.spark
def test_partial_aggregates_come_to_what_the_records_do() -> None:
    """Records come in shares; partial aggregates of some shares are combined, of others not."""
    from pyspark.sql import SparkSession

    from flux_runtime.spark import sql as run

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.ui.enabled", False)
        .config("spark.sql.codegen.wholeStage", False)
        .config("spark.sql.adaptive.enabled", False)
        .getOrCreate()
    )
    try:
        source = random.Random(11)
        ddl = {
            name: ", ".join(f"{column} {of}" for column, of in schema.items())
            for name, schema in SCHEMAS.items()
        }
        asked, written = records(source)
        ask = session.createDataFrame(asked, ddl["ask"]).cache()
        put = session.createDataFrame(written, ddl["put"]).cache()
        for sql, as_set in queries():
            summaries = found(sql, as_set=as_set)
            assert summaries is not None
            kept = summaries.kept["put"]
            rows = run(kept.of_record, put=put)
            start = source.randrange(len(written))
            some = rows.limit(start)
            combined = run(kept.again, put=some) if kept.again else some.distinct()
            assert combined.dtypes == rows.dtypes, kept.again
            both = combined.unionAll(rows.exceptAll(some))
            frames = {"ask": ask} if "ask" in sql else {}
            got, whole = run(summaries.query, put=both, **frames), run(sql, put=put, **frames)
            assert got.dtypes == whole.dtypes, sql
            shown = f"{sql}\n{summaries}"
            if as_set:
                assert bag(got.distinct()) == bag(whole.distinct()), shown
            else:
                assert bag(got) == bag(whole), shown
    finally:
        session.stop()


def bag(frame: Any) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in frame.collect())
