"""OR-8: what is kept, looked up and merged gives what all records would; crashes; damage."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from codegen.summaries import summarise
from flux_runtime.ordering.recorded import recorded
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.spark import Job, sql
from flux_runtime.spark.stateful import catalogue
from flux_runtime.spark.stateful.unit import Stateful

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SCHEMAS = {"put": "k INT, v INT, s STRING", "ask": "id INT, k BIGINT"}
TYPES = {
    name: {column.split()[0]: column.split()[1] for column in ddl.split(", ")}
    for name, ddl in SCHEMAS.items()
}
COUNTED = "SELECT a.id, count(p.v) AS n FROM ask a LEFT JOIN put p ON a.k = p.k GROUP BY a.id"
BELOW = "SELECT a.id, count(p.v) AS n FROM ask a LEFT JOIN put p ON p.k < a.k GROUP BY a.id"
PAIRS = "SELECT a.id, p.s FROM ask a JOIN put p ON a.k = p.k"
MANY = (
    "SELECT a.id FROM ask a JOIN (SELECT k FROM put GROUP BY k HAVING count(*) > 3) p ON a.k = p.k"
)
LARGER = "SELECT a.id, p.v FROM ask a JOIN put p ON p.v > a.id"
STORY = (
    "SELECT k, array_join(collect_list(s), '') AS story, sum(asked) AS asked FROM"
    " (SELECT k, s, 0 AS asked FROM put UNION ALL SELECT CAST(k AS INT), NULL, 1 FROM ask)"
    " GROUP BY k"
)


class Unit:
    """A component, how it runs, and what it must put out."""

    def __init__(self, mode: str, query: str, *, partial: bool = False, gate: Any = None) -> None:
        self.mode = mode
        self.query = query
        self.gate = gate
        self.partial = None
        if partial:
            inputs = SCHEMAS if mode == "monotone" else ["put"]
            found = summarise(query, TYPES, inputs=inputs, as_set=mode == "monotone")
            assert found is not None
            kept = {
                name: (over(each.of_record), None if each.again is None else over(each.again))
                for name, each in found.kept.items()
            }
            self.partial = (kept, over(found.query))

    def declare(self, job: Job, name: str, put: Any, ask: Any) -> None:
        given: dict[str, Any] = {"partial": self.partial, "order_by": ("k",)}
        match self.mode:
            case "reads":
                given |= {"writes": {"put": [put]}, "reads": {"ask": [ask]}, "monotone": False}
            case "changed":
                given |= {"writes": {"put": [put], "ask": [ask]}, "monotone": False}
                given |= {"changed_by": self.gate}
            case "monotone":
                given |= {"writes": {"put": [put], "ask": [ask]}, "monotone": True}
        job.sink(name, [job.stateful(name, over(self.query), ordered=True, **given)])

    def expected(self, session: SparkSession, rounds: list[dict[str, Any]]) -> list[Any]:
        """The rows that the last of some rounds adds, computed from all records."""
        frames = {name: frame(session, name, rounds) for name in SCHEMAS}
        plain = {name: each.drop("batch") for name, each in frames.items()}
        if self.mode == "monotone":
            now = rows(sql(self.query, **plain).distinct())
            before = frames_before(frames, len(rounds) - 1)
            return list(Counter(now) - Counter(rows(sql(self.query, **before).distinct())))
        ordered = {n: recorded(f, ("k",), batch="batch") for n, f in frames.items()}
        if self.mode == "reads":
            last = frames["ask"].where(f"batch = {len(rounds) - 1}").drop("batch")
            return rows(sql(self.query, put=ordered["put"], ask=last))
        touched = {row[self.gate[0]] for part in rounds[-1].values() for row in part}
        stories = sql(self.query, **ordered)
        return [r for r in rows(stories) if dict(r)[self.gate[0]] in touched]


def over(query: str) -> Callable[..., DataFrame]:
    def component(**frames: DataFrame) -> DataFrame:
        return sql(query, **frames)

    return component


UNITS = {
    "counted": Unit("reads", COUNTED),
    "summed": Unit("reads", COUNTED, partial=True),
    "below": Unit("reads", BELOW),
    "below_summed": Unit("reads", BELOW, partial=True),
    "story": Unit("changed", STORY, gate=("k",)),
    "pairs": Unit("monotone", PAIRS),
    "pairs_distinct": Unit("monotone", PAIRS, partial=True),
    "many": Unit("monotone", MANY),
    "many_summed": Unit("monotone", MANY, partial=True),
    "larger": Unit("monotone", LARGER),
}


def declare(names: Any) -> Callable[[Job], None]:
    def build(job: Job) -> None:
        one = {"maxFilesPerTrigger": "1"}
        put = job.source("put", format="json", path="data/put", schema=SCHEMAS["put"], options=one)
        ask = job.source("ask", format="json", path="data/ask", schema=SCHEMAS["ask"], options=one)
        for name in names:
            UNITS[name].declare(job, name, put, ask)

    return build


def frame(session: SparkSession, name: str, rounds: list[dict[str, Any]]) -> DataFrame:
    """All records of an input, with the round that they came in."""
    columns = TYPES[name]
    found = [
        (*(row.get(column) for column in columns), number)
        for number, part in enumerate(rounds)
        for row in part[name]
    ]
    return session.createDataFrame(found, f"{SCHEMAS[name]}, batch INT").coalesce(1)


def frames_before(frames: Mapping[str, DataFrame], number: int) -> dict[str, DataFrame]:
    return {name: each.where(f"batch < {number}").drop("batch") for name, each in frames.items()}


def rows(frame: DataFrame) -> list[Any]:
    return [tuple(sorted(row.asDict().items())) for row in frame.collect()]


class Traffic:
    """Rounds of records: one file of each input makes one micro-batch."""

    def __init__(self, bench: Any, seed: int) -> None:
        self.bench = bench
        self.source = random.Random(seed)
        self.rounds: list[dict[str, Any]] = []

    def more(self) -> None:
        def maybe(value: Any) -> Any:
            return None if self.source.random() < 0.1 else value

        number = len(self.rounds)
        puts = [
            {
                "k": maybe(self.source.randrange(6)),
                "v": maybe(self.source.randrange(-3, 30)),
                "s": self.source.choice("abcdef"),
            }
            for _ in range(self.source.randrange(1, 12))
        ]
        asks = [
            {"id": 10 * number + each, "k": maybe(self.source.randrange(7))}
            for each in range(self.source.randrange(1, 4))
        ]
        self.rounds.append({"put": puts, "ask": asks})
        self.bench.file("put", puts)
        self.bench.file("ask", asks)

    def check(self, names: Any) -> None:
        for name in names:
            expected: Counter[Any] = Counter()
            for number in range(1, len(self.rounds) + 1):
                expected.update(UNITS[name].expected(self.bench.session, self.rounds[:number]))
            got = Counter(tuple(sorted(row.items())) for row in self.bench.results(name))
            assert got == expected, name


def test_all_ways_come_to_what_all_records_give(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four micro-batches, in two runs, with merges after every second, and of what was merged."""
    monkeypatch.setattr(catalogue, "FANOUT", 2)
    ways: dict[str, Any] = {}
    start = Stateful.__init__

    def noted(self: Stateful, *arguments: Any) -> None:
        start(self, *arguments)
        ways[self.name] = self._reach

    monkeypatch.setattr(Stateful, "__init__", noted)
    traffic = Traffic(bench, 1)
    for _ in range(2):
        for _ in range(2):
            traffic.more()
        bench.run(declare(UNITS))
    traffic.check(UNITS)
    assert {name for name, way in ways.items() if any(map(way.needs_all, way.interfaces))} == {
        "below",
        "below_summed",
        "larger",
    }
    assert ways["many"].apart == {"ask": ("k",), "put": ("k",)}
    assert [*ways["many"].alone] == ["ask"]
    assert {*ways["pairs"].alone} == {"ask", "put"}
    for name in UNITS:  # no more than two parts of a level are left, and nothing else
        folder = bench.path / "state" / "units" / name
        assert len(list((folder / "kept").iterdir())) <= 12, name
        assert not (folder / "staged").exists()
        assert not (folder / "results").exists()


def test_a_micro_batch_that_spark_replays_changes_nothing(bench) -> None:
    traffic = Traffic(bench, 3)
    names = ("story", "many")
    traffic.more()
    bench.run(declare(names))
    for checkpoint in (bench.path / "state" / "units").glob("*/checkpoint"):
        commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda f: int(f.name))
        commits[-1].unlink()
        (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    traffic.more()
    bench.run(declare(names))
    traffic.check(names)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def first(folder: Path, pattern: str) -> Path:
    return min(folder.rglob(pattern))


DAMAGE: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a file of a run deleted": (
        lambda unit: first(unit / "kept", "rows.arrow").unlink(),
        "rows.arrow",
        "the file is missing",
    ),
    "a byte of a run flipped": (
        lambda unit: flip(first(unit / "kept", "rows.arrow")),
        "rows.arrow",
        "not what was written",
    ),
    "a byte of the hashes flipped": (
        lambda unit: flip(first(unit / "kept", "hashes")),
        "hashes",
        "not what was written",
    ),
    "a run deleted": (
        lambda unit: shutil.rmtree(first(unit / "kept", "rows.arrow").parent),
        "kept",
        "the folder is missing",
    ),
    "the catalogue deleted": (
        lambda unit: (unit / "catalogue.json").unlink(),
        "catalogue.json",
        "the file is missing",
    ),
    "a byte of the catalogue flipped": (
        lambda unit: flip(unit / "catalogue.json"),
        "catalogue.json",
        "not what was written",
    ),
    "an older catalogue": (
        lambda unit: shutil.copy(unit.parent / "older.json", unit / "catalogue.json"),
        "catalogue.json",
        "older than the checkpoint",
    ),
    "the checkpoint deleted": (
        lambda unit: shutil.rmtree(unit / "checkpoint"),
        "checkpoint",
        "missing in it",
    ),
    "an older state": (
        lambda unit: (shutil.rmtree(unit), shutil.copytree(unit.parent.parent / "older", unit)),
        "catalogue.json",
        "older than the results",
    ),
    "the results deleted": (
        lambda unit: shutil.rmtree(unit.parent.parent.parent / "results" / "story"),
        "results/story",
        "results have gone",
    ),
}


def test_damage_is_refused_with_a_remedy(bench) -> None:
    """Every kind in turn, on a copy of one state."""
    traffic = Traffic(bench, 4)
    unit = bench.path / "state" / "units" / "story"
    traffic.more()
    bench.run(declare(["story"]))
    shutil.copytree(unit, bench.path / "state" / "older")
    shutil.copy(unit / "catalogue.json", unit.parent / "older.json")
    traffic.more()
    bench.run(declare(["story"]))
    traffic.more()
    saved = bench.path / "saved"
    for name in ("state", "results"):
        shutil.copytree(bench.path / name, saved / name)
    for kind, (damage, place, problem) in DAMAGE.items():
        damage(unit)
        before = bench.commits("story") if "results" not in kind else []
        with pytest.raises(DamagedError, match=problem) as error:
            bench.run(declare(["story"]))
        assert place in error.value.place, kind
        assert "--fresh" in error.value.remedy, kind
        if "results" not in kind:
            assert bench.commits("story") == before, kind
        for name in ("state", "results"):
            shutil.rmtree(bench.path / name, ignore_errors=True)
            shutil.copytree(saved / name, bench.path / name)
    bench.run(declare(["story"]))
    traffic.check(["story"])


def test_damage_to_what_spark_reads_and_to_a_begun_micro_batch(bench) -> None:
    traffic = Traffic(bench, 5)
    unit = bench.path / "state" / "units" / "below"
    traffic.more()
    bench.run(declare(["below"]))
    kept = first(unit / "chunks", "*.parquet")
    content = kept.read_bytes()
    kept.unlink()
    traffic.more()
    with pytest.raises(DamagedError, match="missing"):
        bench.run(declare(["below"]))
    kept.write_bytes(content)

    # The failed run has begun the micro-batch already; its chunk is read again from here.
    begun = max((unit / "chunks").iterdir())
    flip(first(begun, "*.parquet"))
    with pytest.raises(DamagedError, match="not what was written"):
        bench.run(declare(["below"]))
    flip(first(begun, "*.parquet"))
    bench.run(declare(["below"]))
    traffic.check(["below"])
