"""What a query needs of its inputs: by hand for some, and tried on random rows for many."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flux_runtime.spark.stateful.relevance import (
    Constant,
    Groups,
    Input,
    Join,
    LookUp,
    Node,
    Opaque,
    Probe,
    Rows,
    Union,
    inputs_of,
    is_distributive,
    look_ups,
    probes,
    shared_keys,
)

ASK = Input("ask", {1: "id", 2: "k"})
PUT = Input("put", {3: "k", 4: "v"})
MET = frozenset({(2, 3), (3, 2)})
BY_K = Probe(("k",), frozenset({("ask", ("k",))}))


def joined(kind: str, left: Node = ASK, right: Node = PUT) -> Join:
    return Join(left, right, kind, MET)


@pytest.mark.parametrize(
    ("kind", "of_put", "of_ask"),
    [
        ("inner", True, True),
        ("left", True, False),
        ("right", False, True),
        ("full", False, False),
        ("semi", True, True),
        ("anti", True, False),
    ],
)
def test_what_a_join_needs(kind: str, of_put: bool, of_ask: bool) -> None:
    """Rows that meet nothing do not matter, unless they are put out for it."""
    assert (probes(joined(kind), ["ask"])["put"] == BY_K) is of_put
    by_put = Probe(("k",), frozenset({("put", ("k",))}))
    assert (probes(joined(kind), ["put"])["ask"] == by_put) is of_ask


@pytest.mark.parametrize(
    ("kind", "of_ask", "of_put"),
    [
        ("inner", True, True),
        ("left", True, False),
        ("right", False, True),
        ("full", False, False),
        ("semi", True, True),
        ("anti", True, False),
    ],
)
def test_new_rows_alone(kind: str, of_ask: bool, of_put: bool) -> None:
    """A row that met nothing, and was put out for it, must not meet something later."""
    assert is_distributive(joined(kind), "ask") is of_ask
    assert is_distributive(joined(kind), "put") is of_put


def test_groups_on_the_key_are_needed_whole_and_others_are_lost() -> None:
    by_key = Groups(PUT, frozenset({3}), {3: 3})
    assert probes(joined("left", right=by_key), ["ask"])["put"] == BY_K
    by_value = Groups(PUT, frozenset({4}), {4: 4, 3: 3})
    assert probes(joined("left", right=by_value), ["ask"])["put"] is None
    assert not is_distributive(joined("inner", right=by_key), "put")
    assert is_distributive(
        joined("inner", right=Groups(PUT, frozenset({3, 4}), {3: 3}, True)), "put"
    )


def test_an_opaque_operator_hides_what_is_below_and_not_what_was_found() -> None:
    assert probes(joined("inner", right=Opaque((PUT,))), ["ask"])["put"] is None
    assert probes(Opaque((joined("inner"),)), ["ask"])["put"] == BY_K
    assert shared_keys(Opaque((joined("inner"),))) is None


def test_all_pairs_of_one_join_are_one_probe() -> None:
    both = Join(ASK, PUT, "inner", frozenset({(2, 3), (1, 4)}))
    assert probes(both, ["ask"])["put"] == Probe(("k", "v"), frozenset({("ask", ("k", "id"))}))
    assert shared_keys(both) == {"ask": ("id", "k"), "put": ("v", "k")}


def test_pairs_from_different_rows_are_not_one_probe() -> None:
    """`ask a JOIN ask b` gives pairs of columns that no row of `ask` has."""
    other = Input("ask", {11: "id", 12: "k"})
    twice = Join(ASK, other, "inner", frozenset())
    met = Join(twice, PUT, "inner", frozenset({(2, 3), (11, 4)}))
    assert probes(met, ["ask"])["put"] == Probe(("k",), frozenset({("ask", ("k",))}))


def test_one_look_up_asks_for_what_another_found() -> None:
    item = Input("item", {7: "v", 8: "price"})
    plan = Join(joined("inner"), item, "left", frozenset({(4, 7)}))
    found = look_ups(plan, ["ask"])
    by_put = Probe(("v",), frozenset({("put", ("v",))}))
    assert found == (LookUp("put", BY_K), LookUp("item", by_put))


def test_a_branch_without_what_is_new_adds_nothing() -> None:
    """Reachability: an edge is a path, and a path goes on by an edge."""
    edge, further = Input("edge", {1: "a", 2: "b"}), Input("edge", {3: "a", 4: "b"})
    path = Input("path", {5: "a", 6: "b"})
    longer = Rows(Join(path, further, "inner", frozenset({(6, 3)})), {5: 5, 4: 4})
    reach = Groups(Union((edge, longer), {1: (1, 5), 2: (2, 4)}), frozenset({1, 2}), {}, True)
    by_path = Probe(("a",), frozenset({("path", ("b",))}))
    assert look_ups(reach, ["path"], adding=True) == (LookUp("edge", by_path),)
    assert look_ups(reach, ["path"]) == (LookUp("edge", None),)
    assert shared_keys(reach) == {"edge": ("a",), "path": ("b",)}
    counted = Groups(edge, frozenset({1}), {1: 1})
    harmed = Union((counted, longer), {1: (1, 5)})
    assert look_ups(harmed, ["path"], adding=True) == (LookUp("edge", None),)


def test_rows_that_are_there_anyway() -> None:
    assert shared_keys(Union((PUT, Constant()), {3: (3, 0)})) is None
    assert shared_keys(Join(PUT, Constant(), "inner", frozenset())) == {"put": ("k", "v")}
    assert shared_keys(Join(PUT, Constant(), "full", frozenset())) is None


# ---- on Spark: what is derived from a plan, tried on rows

SCHEMAS = {
    "ask": "id INT, k BIGINT, s STRING",
    "put": "k INT, v INT, s STRING",
    "item": "v SMALLINT, name STRING",
}
QUERIES = [
    "SELECT a.id, p.v FROM ask a JOIN put p ON a.k = p.k",
    "SELECT a.id, p.v FROM ask a LEFT JOIN put p ON a.k = p.k AND a.s = p.s",
    "SELECT a.id, p.v FROM ask a RIGHT JOIN put p ON a.k = p.k",
    "SELECT a.id, p.v FROM ask a FULL JOIN put p ON a.k = p.k",
    "SELECT a.id, p.v FROM ask a JOIN put p ON a.k <=> p.k",
    "SELECT a.id, p.v FROM ask a JOIN put p ON a.k > p.k",
    "SELECT a.id, p.v FROM ask a JOIN put p ON a.k = p.k + 1",
    "SELECT a.id, p.v FROM ask a, put p WHERE a.k = p.k AND p.v > a.id",
    "SELECT a.id FROM ask a WHERE EXISTS (SELECT 1 FROM put p WHERE p.k = a.k AND p.v > 2)",
    "SELECT a.id FROM ask a WHERE a.k NOT IN (SELECT k FROM put WHERE k IS NOT NULL)",
    "SELECT a.id FROM ask a WHERE NOT EXISTS (SELECT 1 FROM put p WHERE p.k = a.k)",
    "SELECT a.id, (SELECT count(*) FROM put p WHERE p.k = a.k) AS n FROM ask a",
    "SELECT a.id, (SELECT max(v) FROM put) AS n FROM ask a",
    "SELECT a.id, count(p.v) AS n FROM ask a LEFT JOIN put p ON a.k = p.k GROUP BY a.id",
    "SELECT a.id, n FROM ask a JOIN (SELECT k, count(*) AS n FROM put GROUP BY k HAVING n > 2) c"
    " ON a.k = c.k",
    "SELECT a.id, n FROM ask a JOIN (SELECT s, count(*) AS n FROM put GROUP BY s) c ON a.s = c.s",
    "SELECT DISTINCT a.s, i.name FROM ask a JOIN put p ON a.k = p.k JOIN item i ON p.v = i.v",
    "SELECT a.id, i.name FROM ask a LEFT JOIN put p ON a.k = p.k LEFT JOIN item i ON p.v = i.v",
    "SELECT a.id, p.v, i.name FROM ask a JOIN put p ON a.k = p.k JOIN item i ON a.id = i.v",
    "SELECT id, k FROM ask UNION SELECT k, v FROM put",
    "SELECT id, s FROM ask UNION ALL SELECT p.v, a.s FROM put p JOIN ask a ON p.k = a.k",
    "SELECT k, count(*) AS n FROM put GROUP BY k UNION SELECT id, k FROM ask",
    "SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM put"
    " WHERE k IN (SELECT k FROM ask)",
    "SELECT a.id, r FROM ask a JOIN (SELECT k, rank() OVER (ORDER BY v) AS r FROM put) p"
    " ON a.k = p.k",
    "SELECT a.id, p.v FROM ask a JOIN (SELECT * FROM put ORDER BY v LIMIT 3) p ON a.k = p.k",
    "SELECT count(*) AS n FROM ask a JOIN put p ON a.k = p.k",
    "SELECT a.id, b.id AS other, p.v FROM ask a JOIN ask b ON a.s = b.s JOIN put p ON a.k = p.k"
    " AND b.id = p.v",
    "SELECT k, sum(n) AS n FROM (SELECT k, v AS n FROM put UNION ALL SELECT k, id FROM ask)"
    " GROUP BY k",
    "SELECT p.k, e FROM (SELECT k, e FROM put LATERAL VIEW explode(array(v, k)) AS e) p"
    " JOIN ask a ON a.k = p.e OR a.k = p.k",
    "SELECT p.k, e FROM (SELECT k, e FROM put LATERAL VIEW explode(array(v, k)) AS e) p"
    " JOIN ask a ON a.k = p.k",
    "SELECT a.id, count(DISTINCT p.v) AS n, count(DISTINCT p.s) AS m FROM ask a JOIN put p"
    " ON a.k = p.k GROUP BY a.id",
    "SELECT p.k, p.v FROM put p JOIN put q ON p.k = q.v",
    "SELECT 7 AS seven FROM put UNION SELECT id FROM ask",
    "WITH c AS (SELECT k, min(v) AS v FROM put GROUP BY k) SELECT a.id, c.v, i.name FROM ask a"
    " JOIN c ON a.k = c.k JOIN item i ON c.v = i.v",
]
TYPES = {
    "ask": {"id": pa.int32(), "k": pa.int64(), "s": pa.string()},
    "put": {"k": pa.int32(), "v": pa.int32(), "s": pa.string()},
    "item": {"v": pa.int16(), "name": pa.string()},
}
Table = list[tuple[Any, ...]]
SMALL = {
    "codegen.wholeStage": "false",
    "codegen.factoryMode": "NO_CODEGEN",
    "adaptive.enabled": "false",
    "shuffle.partitions": "1",
    "optimizer.maxIterations": "2",
}
"""Settings of Spark for many queries over a few rows each."""


def rows_of(name: str, source: random.Random) -> Table:
    def maybe(value: Any) -> Any:
        return None if source.random() < 0.1 else value

    def number() -> Any:
        return maybe(source.randrange(6))

    made = {
        "ask": lambda: (number(), number(), maybe(source.choice("ab"))),
        "put": lambda: (number(), number(), maybe(source.choice("ab"))),
        "item": lambda: (number(), maybe(source.choice("xyz"))),
    }[name]
    return [made() for _ in range(source.randrange(1, 14))]


class Tables:
    """Rows of every input, and what is looked up of them."""

    def __init__(self, tables: Mapping[str, Table]) -> None:
        self.tables = tables
        self.names = {
            name: [column.split()[0] for column in ddl.split(", ")] for name, ddl in SCHEMAS.items()
        }

    def values(self, name: str, columns: Sequence[str], rows: Table) -> set[tuple[Any, ...]]:
        places = [self.names[name].index(column) for column in columns]
        return {tuple(row[place] for place in places) for row in rows}

    def find(self, name: str, columns: Sequence[str], wanted: set[tuple[Any, ...]]) -> Table:
        places = [self.names[name].index(column) for column in columns]
        return [row for row in self.tables[name] if tuple(row[p] for p in places) in wanted]

    def look_up(self, steps: Iterable[LookUp], given: Mapping[str, Table]) -> dict[str, Table]:
        found = dict(given)
        for step in steps:
            if step.probe is None:
                found[step.name] = self.tables[step.name]
                continue
            wanted = set[tuple[Any, ...]]()
            for name, columns in step.probe.by:
                wanted |= self.values(name, columns, found[name])
            found[step.name] = self.find(step.name, step.probe.columns, wanted)
        return found


@pytest.mark.spark
def test_what_is_derived_from_plans_holds_for_random_rows(spark, tmp_path: Path) -> None:
    from pyspark.sql import DataFrame

    from flux_runtime.spark import sql
    from flux_runtime.spark.stateful.logical_plan import UnknownPlanError, read_plan

    quick = spark.newSession()
    for setting, value in SMALL.items():
        quick.conf.set(f"spark.sql.{setting}", value)
    places = {name: (tmp_path / name).as_uri() for name in SCHEMAS}
    for name in SCHEMAS:
        (tmp_path / name).mkdir()
    source = random.Random(5)
    narrowed = derived = 0

    known: dict[str, list[str]] = {}

    def frame(name: str, rows: Table) -> DataFrame:
        columns = zip(*rows, strict=True) if rows else [[] for _ in TYPES[name]]
        arrays = [pa.array(c, t) for c, t in zip(columns, TYPES[name].values(), strict=True)]
        return quick.createDataFrame(pa.table(arrays, names=list(TYPES[name])))

    def run(query: str, given: Mapping[str, Table]) -> list[str]:
        tables = {name: given.get(name, []) for name in SCHEMAS if name in query}
        case = repr((query, tables))
        if case not in known:
            made = sql(query, **{name: frame(name, rows) for name, rows in tables.items()})
            known[case] = sorted(repr(tuple(row)) for row in made.collect())
        return known[case]

    for query in QUERIES:
        files = {n: spark.read.schema(ddl).parquet(places[n]) for n, ddl in SCHEMAS.items()}
        try:
            plan = read_plan(sql(query, **files), places)
        except UnknownPlanError:
            continue
        derived += 1
        used = sorted(set(inputs_of(plan)))
        tables = Tables({name: rows_of(name, source) for name in SCHEMAS})
        before = {name: rows[: len(rows) // 2] for name, rows in tables.tables.items()}
        for driver in used:  # given all rows of one, those of the others that matter
            found = look_ups(plan, [driver])
            given = tables.look_up(found, {driver: tables.tables[driver]})
            assert run(query, given) == run(query, tables.tables), (query, driver, found)
            narrowed += any(each.probe is not None for each in found)
        for name in used:
            new = tables.tables[name][len(before[name]) :]
            grown = {**before, name: tables.tables[name]}
            everything = set(run(query, grown))
            if is_distributive(plan, name):
                steps = look_ups(plan, [name], adding=True)
                added = run(query, Tables(grown).look_up(steps, {name: new}))
                assert everything == set(run(query, before)) | set(added), (query, name, steps)
            keys = shared_keys(plan)
            if keys is not None:
                wanted = tables.values(name, keys[name], new)
                apart = {n: Tables(grown).find(n, of, wanted) for n, of in keys.items()}
                added = run(query, apart)
                assert everything >= set(added), (query, name, keys)
                rest = {n: [r for r in grown[n] if r not in apart[n]] for n in keys}
                assert everything == set(added) | set(run(query, rest)), (query, name, keys)
    assert derived > 25
    assert narrowed > 20
