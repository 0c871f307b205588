"""Aggregates in two steps: which are split, and that two steps come to what one did."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Iterator
from functools import reduce
from typing import Any

import pytest

from codegen.partial import Steps, split

SCHEMA = {"day": "INT", "shop": "STRING", "n": "BIGINT", "small": "TINYINT", "price": "DOUBLE"}
SCHEMA |= {"cents": "DECIMAL(10,2)", "ok": "BOOLEAN", "window": "INT", "at": "TIMESTAMP"}


def parts(sql: str, *key: str) -> Steps | None:
    return split(sql, view="clicks", key=key or ("day",), schema=SCHEMA)


@pytest.mark.parametrize(
    ("why", "sql"),
    [
        ("not SQL", "SELECT day, FROM"),
        ("not grouped", "SELECT count(*) AS n FROM clicks"),
        ("grouped on less than the key", "SELECT shop, count(*) AS c FROM clicks GROUP BY shop"),
        ("grouped by place", "SELECT day, count(*) AS c FROM clicks GROUP BY 1"),
        ("grouped by all", "SELECT day, count(*) AS c FROM clicks GROUP BY ALL"),
        ("rolled up", "SELECT day, count(*) AS c FROM clicks GROUP BY day WITH ROLLUP"),
        ("cubed", "SELECT day, count(*) AS c FROM clicks GROUP BY CUBE (day)"),
        ("grouping sets", "SELECT day, count(*) AS c FROM clicks GROUP BY GROUPING SETS ((day))"),
        ("grouped by an expression", "SELECT day, count(*) AS c FROM clicks GROUP BY day, n + 1"),
        ("ordered", "SELECT day, count(*) AS c FROM clicks GROUP BY day ORDER BY c"),
        ("limited", "SELECT day, count(*) AS c FROM clicks GROUP BY day LIMIT 3"),
        ("distinct", "SELECT DISTINCT day, count(*) AS c FROM clicks GROUP BY day"),
        ("distinct aggregate", "SELECT day, count(DISTINCT n) AS c FROM clicks GROUP BY day"),
        ("two arguments", "SELECT day, count(n, shop) AS c FROM clicks GROUP BY day"),
        ("filtered", "SELECT day, count(*) FILTER (WHERE ok) AS c FROM clicks GROUP BY day"),
        ("windowed", "SELECT day, sum(n) OVER (PARTITION BY day) AS c FROM clicks GROUP BY day, n"),
        ("doubles", "SELECT day, sum(price) AS s FROM clicks GROUP BY day"),
        ("mean of doubles", "SELECT day, avg(price) AS s FROM clicks GROUP BY day"),
        ("decimals", "SELECT day, sum(cents) AS s FROM clicks GROUP BY day"),
        ("half a double", "SELECT day, sum(n / 2) AS s FROM clicks GROUP BY day"),
        ("a huge number", "SELECT day, sum(99999999999999999999) AS s FROM clicks GROUP BY day"),
        ("depends on order", "SELECT day, first(n) AS f FROM clicks GROUP BY day"),
        ("collects", "SELECT day, collect_list(n) AS f FROM clicks GROUP BY day"),
        ("random", "SELECT day, rand() AS r, count(*) AS c FROM clicks GROUP BY day"),
        ("random inside", "SELECT day, max(rand()) AS r FROM clicks GROUP BY day"),
        ("random filter", "SELECT day, count(*) AS c FROM clicks WHERE rand() < 1 GROUP BY day"),
        ("a function of the user", "SELECT day, mine(n) AS c FROM clicks GROUP BY day"),
        ("without a name", "SELECT day, count(*) FROM clicks GROUP BY day"),
        ("all columns", "SELECT *, count(*) AS c FROM clicks GROUP BY day"),
        ("a join", "SELECT day, count(*) AS c FROM clicks JOIN b USING (day) GROUP BY day"),
        ("a comma join", "SELECT clicks.day, count(*) AS c FROM clicks, b GROUP BY clicks.day"),
        (
            "a lateral view",
            "SELECT day, count(*) AS c FROM clicks LATERAL VIEW explode(n) GROUP BY day",
        ),
        ("another table", "SELECT day, count(*) AS c FROM others GROUP BY day"),
        ("a table of a database", "SELECT day, count(*) AS c FROM db.clicks GROUP BY day"),
        ("a sample", "SELECT day, count(*) AS c FROM clicks TABLESAMPLE (5 ROWS) GROUP BY day"),
        ("a subquery", "SELECT day, count(*) AS c FROM (SELECT * FROM clicks) GROUP BY day"),
        (
            "a scalar subquery",
            "SELECT day, (SELECT 1) AS x, count(*) AS c FROM clicks GROUP BY day",
        ),
        (
            "a subquery in a condition",
            "SELECT day, count(*) AS c FROM clicks WHERE n IN (SELECT 1) GROUP BY day",
        ),
        (
            "a common table",
            "WITH a AS (SELECT 1) SELECT day, count(*) AS c FROM clicks GROUP BY day",
        ),
        ("a union", "SELECT day, count(*) AS c FROM clicks GROUP BY day UNION ALL SELECT 1, 2"),
        ("an unknown column", "SELECT day, sum(nowhere) AS c FROM clicks GROUP BY day"),
        ("a column beside the groups", "SELECT day, n, count(*) AS c FROM clicks GROUP BY day"),
        ("nested", "SELECT day, max(count(*)) AS c FROM clicks GROUP BY day"),
        ("a backslash", "SELECT day, count(*) AS c FROM clicks WHERE shop = '\\\\' GROUP BY day"),
        ("a qualified stranger", "SELECT x.day, count(*) AS c FROM clicks y GROUP BY x.day"),
        (
            "an alias that hides a column",
            "SELECT day, sum(n) AS n FROM clicks GROUP BY day HAVING n > 1",
        ),
    ],
)
def test_in_doubt_a_query_stays_whole(why: str, sql: str) -> None:
    assert parts(sql) is None, why


def test_names_that_the_steps_use_keep_a_query_whole() -> None:
    sql = "SELECT day, count(*) AS c FROM clicks GROUP BY day"
    for name in ("partial_1", "partial_kept", "__rows"):
        assert split(sql, view="clicks", key=["day"], schema={**SCHEMA, name: "INT"}) is None


def test_a_simple_aggregate_needs_no_guard() -> None:
    found = parts("SELECT day, count(*) AS c, max(price) AS most FROM clicks GROUP BY day")
    assert found == Steps(
        "SELECT day, __producer, __count, COUNT(*) AS __rows, "
        "MAX(price) AS partial_1 FROM clicks GROUP BY day, __producer, __count",
        "SELECT day, SUM(__rows) AS c, MAX(partial_1) AS most FROM clicks GROUP BY day",
    )


def test_the_same_aggregate_is_computed_once() -> None:
    found = parts("SELECT day, sum(n) AS s, sum(n) * 2 AS t FROM clicks GROUP BY day")
    assert found is not None
    assert found.first.count("SUM(n)") == 1


def test_a_condition_drops_no_row_of_the_first_step() -> None:
    found = parts("SELECT day, count(*) AS c FROM clicks WHERE n > 1 GROUP BY day")
    assert found is not None
    assert "WHERE n > 1" not in found.first
    assert "WHERE partial_kept" in found.second


AGGREGATES = [
    "count(*)",
    "count(n)",
    "count(1) + 1",
    "sum(n)",
    "sum(small)",
    "sum(n * 2 - small)",
    "sum(CASE WHEN ok THEN 1 ELSE 0 END)",
    "sum(IF(shop = 'b', n, NULL))",
    "sum(CAST(shop = 'b' AS INT))",
    "sum(coalesce(n, 0))",
    "min(price)",
    "max(price)",
    "min(shop)",
    "max(at)",
    "max(cents)",
    "avg(n)",
    "avg(small) * 2",
    "sum(n) / count(*)",
    "count_if(n > 3)",
    "bool_and(ok)",
    "bool_or(n % 2 = 0)",
    "coalesce(max(n), -1)",
    "CASE WHEN count(*) > 2 THEN max(n) ELSE min(n) END",
    "max(100 / (n - 3))",
]
NOT_NUMBERS = ["min(shop)", "max(at)", "bool_and(ok)", "bool_or(n % 2 = 0)"]
GROUPS = ["day", "day, shop", "shop, Day", "c.day, `window`", "day, ok"]
CONDITIONS = ["", "n <> 3", "n > 2 AND NOT ok", "shop IN ('a', 'b')", "shop IS NULL OR price < 5"]
CONDITIONS += ["n BETWEEN 1 AND 6", "100 / n > 20", "upper(c.shop) = 'A'", "n <=> NULL"]
HAVING = ["", "count(*) > 1", "a1 > 2", "max(n) > 4 AND day < 3", "a1 IS NOT NULL"]


def queries(count: int) -> Iterator[str]:
    """Every aggregate at least once, with conditions that guard those that could fail."""
    source = random.Random(3)
    pool = itertools.cycle(AGGREGATES)
    for _ in range(count):
        chosen = [next(pool) for _ in range(3)]
        groups = source.choice(GROUPS)
        condition, having = source.choice(CONDITIONS), source.choice(HAVING)
        if any("n - 3" in each for each in chosen):
            condition = "n <> 3"
        if "100 / n" in condition:
            condition = "n <> 0 AND n IS NOT NULL"
        if having.startswith("a1 >") and chosen[0] in NOT_NUMBERS:
            having = ""
        named = ", ".join(f"{each} AS a{number}" for number, each in enumerate(chosen, 1))
        sql = f"SELECT {groups}, {named} FROM clicks c"
        sql += f" WHERE {condition}" if condition else ""
        sql += f" GROUP BY {groups}"
        yield sql + (f" HAVING {having}" if having else "")


def test_the_queries_of_the_property_are_split() -> None:
    for sql in queries(40):
        assert parts(sql) is not None, sql


def rows(count: int) -> list[tuple[Any, ...]]:
    """Data records and punctuations, with nulls, in the columns of a chunk."""
    source = random.Random(5)

    def maybe(value: Any) -> Any:
        return None if source.random() < 0.15 else value

    found: list[tuple[Any, ...]] = []
    for _ in range(count):
        number = source.randrange(8)
        values = (
            source.randrange(3),
            maybe(source.choice("abc")),
            maybe(number),
            maybe(source.randrange(-9, 9)),
            maybe(source.choice([0.5, 2.25, float("nan"), 9.0, -1.5])),
            maybe(f"{source.randrange(100)}.25"),
            maybe(source.random() < 0.5),
            source.randrange(2),
            maybe(f"2024-01-0{source.randrange(1, 9)} 10:00:00"),
        )
        punctuation = source.random() < 0.1
        found.append((*values, source.choice("pq"), number if punctuation else -1))
    return found


@pytest.mark.spark
def test_two_steps_over_chunks_come_to_what_one_step_does() -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as sf

    from flux_runtime.spark import sql as run
    from flux_runtime.spark.frames import grouped_in_tasks

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.shuffle.partitions", 1)
        .config("spark.ui.enabled", False)
        .config("spark.sql.codegen.wholeStage", False)
        .config("spark.sql.adaptive.enabled", False)
        .getOrCreate()
    )
    try:
        columns = [*SCHEMA, "__producer", "__count"]
        types = {**SCHEMA, "__producer": "STRING", "__count": "BIGINT"}
        text = session.createDataFrame(
            [tuple(None if each is None else str(each) for each in row) for row in rows(400)],
            ", ".join(f"`{name}` STRING" for name in columns),
        )
        everything = text.select([sf.col(n).cast(types[n]).alias(n) for n in columns])
        everything = everything.repartition(3).cache()
        data = everything.where("__count < 0").drop("__producer", "__count")
        chunks = [everything.where(f"crc32(to_json(struct(*))) % 3 = {each}") for each in range(3)]
        for sql in queries(32):
            found = parts(sql)
            assert found is not None
            steps = [grouped_in_tasks(run(found.first, clicks=chunk)) for chunk in chunks]
            for step in steps:  # Spark does not aggregate texts by hashing
                added = shuffles(step) - shuffles(everything)
                assert added == ("min(shop)" in sql), found.first
            partials = reduce(lambda one, other: one.unionByName(other), steps).cache()
            assert partials.agg(sf.sum("__rows")).collect()[0][0] == 400, found.first
            finished = run(found.second, clicks=partials.where("__count < 0"))
            whole = run(sql, clicks=data)
            assert finished.dtypes == whole.dtypes, sql
            assert bag(finished) == bag(whole), f"{sql}\n{found.first}\n{found.second}"
        for entries in ("day, avg(n) AS a, count(*) AS c", "day, 2 * count(*) AS c",
                         "count(*) AS c, day"):  # fmt: skip
            other = run(
                f"SELECT {entries} FROM (SELECT bigint(n) AS day, n FROM t) GROUP BY day",
                t=everything,
            )
            assert grouped_in_tasks(other) is other
    finally:
        session.stop()


def shuffles(frame: Any) -> int:
    lineage: str = frame._jdf.queryExecution().toRdd().toDebugString()
    return lineage.count("ShuffledRowRDD")


def bag(frame: Any) -> Counter[str]:
    return Counter(repr(tuple(row)) for row in frame.collect())
