"""What repeats do to queries: the rules of delivery on samples, and queries run with copies."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import duckdb
import pytest
import sqlglot

from annotations.file import loads
from annotations.vocabulary import Repeats, Rows

FILE = """
components:
  It:
    output_mode: {mode}
    sql: |
      {query}
streams:
  a: {{to: It.a, schema: {{k: INT, v: INT}}}}
  b: {{to: It.b, schema: {{k: INT, v: INT}}}}
  out: {{from: It.out}}
"""
ONE_INPUT = FILE.replace("  b: {{to: It.b, schema: {{k: INT, v: INT}}}}\n", "")

ENGINE = duckdb.connect()
ENGINE.execute("SET threads = 1")

QUERIES: dict[str, tuple[str, str]] = {
    "SELECT k FROM a WHERE v > 1": ("pass", "one"),
    "SELECT k, explode(array(1, v)) AS e FROM a": ("pass", "many"),
    "SELECT DISTINCT k FROM a": ("absorb", "one"),
    "SELECT k FROM a UNION SELECT v FROM a": ("absorb", "many"),
    "SELECT k FROM a UNION ALL SELECT v FROM a": ("pass", "many"),
    "SELECT k, max(v) AS m FROM a GROUP BY k": ("absorb", "one"),
    "SELECT k FROM a GROUP BY k": ("absorb", "one"),
    "SELECT k, e, max(v) AS m FROM a LATERAL VIEW explode(array(1, v)) x AS e GROUP BY k, e": (
        "absorb",
        "many",
    ),
    "SELECT k, count(DISTINCT v) AS n FROM a GROUP BY k": ("absorb", "one"),
    "SELECT k, count(*) AS n FROM a GROUP BY k": ("corrupt", "one"),
    "SELECT k, sum(v) + max(v) AS s FROM a GROUP BY k": ("corrupt", "one"),
    "SELECT count(*) AS n FROM (SELECT DISTINCT k FROM a)": ("absorb", "one"),
    "SELECT k FROM a GROUP BY k HAVING count(*) > 2": ("corrupt", "one"),
    "SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM a": ("corrupt", "many"),
    "SELECT k FROM a EXCEPT SELECT v FROM a": ("absorb", "many"),
    "SELECT k FROM a EXCEPT ALL SELECT v FROM a": ("corrupt", "many"),
    "SELECT x.k FROM a x JOIN a y ON x.k = y.v": ("pass", "many"),
    "SELECT k FROM a WHERE k IN (SELECT v FROM a)": ("pass", "many"),
}
PAIRS: dict[str, tuple[tuple[str, str], tuple[str, str]]] = {
    "SELECT a.k, b.v FROM a JOIN b ON a.k = b.k": (("pass", "joined"), ("pass", "joined")),
    "SELECT k FROM a WHERE k IN (SELECT k FROM b)": (("pass", "one"), ("absorb", "many")),
    "SELECT k FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE a.k = b.k)": (
        ("pass", "one"),
        ("absorb", "many"),
    ),
    "SELECT a.k, b.n FROM a JOIN (SELECT k, count(*) AS n FROM b GROUP BY k) b ON a.k = b.k": (
        ("pass", "joined"),
        ("corrupt", "joined"),
    ),
    "SELECT a.k FROM a JOIN b ON a.k = b.k UNION ALL SELECT v FROM a": (
        ("pass", "many"),
        ("pass", "many"),
    ),
    "SELECT a.k, b.v FROM (SELECT k FROM a UNION ALL SELECT 0) a JOIN b ON a.k = b.k": (
        ("pass", "many"),
        ("pass", "many"),
    ),
    "SELECT a.k, b.v FROM a LEFT JOIN b ON a.k = b.k": (("pass", "many"), ("pass", "many")),
}


def paths(query: str, *, mode: str = "append", file: str = FILE) -> dict[str, tuple[str, str]]:
    dataflow, _ = loads(file.format(query=query, mode=mode))
    return {
        path.source: ((path.repeats or Repeats.CORRUPT).value, path.rows.value)
        for path in dataflow.components["It"].paths
    }


@pytest.mark.parametrize("query", QUERIES)
def test_what_repeats_do(query: str) -> None:
    assert paths(query, file=ONE_INPUT) == {"a": QUERIES[query]}


@pytest.mark.parametrize("query", PAIRS)
def test_what_repeats_do_to_either_side(query: str) -> None:
    assert paths(query) == dict(zip("ab", PAIRS[query], strict=True))


@pytest.mark.parametrize(
    ("query", "repeats"),
    [
        ("SELECT k, max(v) AS m FROM a GROUP BY k", "make"),
        ("SELECT DISTINCT k FROM a", "make"),
        ("SELECT k + 1 AS n FROM (SELECT DISTINCT k FROM a) WHERE k > 0", "make"),
        ("SELECT k FROM a UNION SELECT v FROM a", "make"),
        ("SELECT k FROM (SELECT DISTINCT k FROM a) UNION ALL SELECT v FROM a", "make"),
        ("SELECT count(*) AS n FROM (SELECT DISTINCT k FROM a)", "make"),
        ("SELECT k, count(*) AS n FROM (SELECT DISTINCT k, v FROM a) GROUP BY k", "make"),
        ("SELECT k, count(*) AS n FROM a GROUP BY k", "corrupt"),
    ],
)
def test_in_update_mode_a_group_is_put_out_again(query: str, repeats: str) -> None:
    """Spark makes groups of DISTINCT, too."""
    assert paths(query, mode="update", file=ONE_INPUT) == {"a": (repeats, "many")}


@pytest.mark.parametrize(
    ("rows", "repeats"),
    [
        ("SELECT v FROM a WHERE a.v = t.x", "make"),
        ("SELECT v FROM a WHERE a.v > t.x", "make"),
        ("SELECT DISTINCT v FROM a WHERE a.v = t.x", "make"),
        ("SELECT v FROM a WHERE a.v = t.x GROUP BY v HAVING count(*) > 2", "corrupt"),
    ],
)
def test_a_row_of_a_table_is_put_out_with_each_micro_batch_that_names_it(
    rows: str, repeats: str
) -> None:
    query = f"SELECT x FROM (VALUES (1), (2)) AS t(x) WHERE EXISTS ({rows})"
    assert paths(query, file=ONE_INPUT) == {"a": (repeats, "many")}


@pytest.mark.parametrize("query", [*QUERIES, *PAIRS])
def test_duckdb_does_not_refute_it(query: str) -> None:
    """Copies of some records of one input: the rows, or the set of them, stay what they were."""
    both = query in PAIRS
    claims = paths(query, file=FILE if both else ONE_INPUT)
    rng = random.Random(3)
    text = sqlglot.transpile(query, read="spark", write="duckdb")[0]
    for _ in range(20):
        data = {name: rows_of(rng) for name in claims}
        before = run(text, data)
        for name, (repeats, rows) in claims.items():
            copied = [*data[name], *rng.choices(data[name], k=rng.randint(1, 4))]
            after = run(text, {**data, name: copied})
            if repeats == Repeats.ABSORB.value:
                assert after == before
            elif repeats == Repeats.PASS.value:
                assert after.keys() == before.keys()
                assert after >= before
            if rows == Rows.ONE.value and repeats == Repeats.PASS.value:
                (alone,) = [run(text, {**data, name: data[name][:1]})]
                assert alone.total() <= 1


def rows_of(rng: random.Random) -> list[tuple[int, int]]:
    return [(rng.randint(0, 3), rng.randint(0, 3)) for _ in range(rng.randint(1, 6))]


def run(query: str, data: dict[str, list[tuple[int, int]]]) -> Counter[tuple[Any, ...]]:
    for name, rows in data.items():
        values = ", ".join(map(str, rows))
        ENGINE.execute(f"CREATE OR REPLACE TABLE {name} AS FROM (VALUES {values}) AS t(k, v)")
    return Counter(ENGINE.execute(query).fetchall())


@pytest.mark.parametrize(
    ("join", "lineage"),
    [
        ("JOIN", {"x": "k", "y": "k"}),
        ("LEFT JOIN", {"x": "k", "y": "v"}),
        ("FULL JOIN", {}),
    ],
)
def test_columns_agree_through_a_partner_only_where_there_is_one(
    join: str, lineage: dict[str, str]
) -> None:
    """A row without a partner keeps k and v apart, though a partner would be equal to both."""
    query = f"SELECT a.k AS x, a.v AS y FROM a {join} b ON a.k = b.k AND a.v = b.k"
    dataflow, _ = loads(FILE.format(query=query, mode="append"))
    path = next(each for each in dataflow.components["It"].paths if each.source == "a")
    assert dict(path.lineage or {}) == lineage
