"""What a gate does beside voting: repeats, quarantines that people resolve, chunks written anew."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import pytest
from py4j.finalizer import ThreadSafeFinalizer
from pyspark.sql import DataFrame

from flux_runtime.observe import decisions
from flux_runtime.observe.decisions import Resolve
from flux_runtime.sealing.events import Resolution
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.spark import Job, Producers, Punctuation, faults, sql
from flux_runtime.spark.sealed.gate import SPARSE_CHUNKS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SCHEMA = "k INT, v INT, id STRING, p STRING, sealed BOOLEAN, n BIGINT"


def data(k: int, *values: int, **more: object) -> list[dict[str, Any]]:
    return [{"k": k, "v": v, "p": "a", **more} for v in values]


def vote(k: int, n: int) -> dict[str, Any]:
    return {"k": k, "p": "a", "sealed": True, "n": n}


def total(item: DataFrame) -> DataFrame:
    return sql("SELECT k, sum(v) AS s, count(*) AS c FROM item GROUP BY k", item=item)


def gate(id: tuple[str, ...] = (), **options: Any) -> Callable[[Job], None]:
    def build(job: Job) -> None:
        items = job.source(
            "items",
            format="json",
            path="data/items",
            options={"maxFilesPerTrigger": "1"},
            schema=SCHEMA,
            producer="p",
            punctuation=Punctuation(when="sealed", count="n"),
            id=id,
        )
        totals = job.seal(
            "Total",
            total,
            waits={"item": [items]},
            key=("k",),
            producers={"items": Producers.all(["a"])},
            **options,
        )
        job.sink("out", [totals])

    return build


def sums(bench: Any) -> dict[int, tuple[int, int]]:
    rows = bench.results()
    assert len({row["k"] for row in rows}) == len(rows), "SE-3"
    return {row["k"]: (row["s"], row["c"]) for row in rows}


class CrashError(Exception):
    """Stands for the end of the process."""


def test_a_stuck_partition_keeps_its_own_records_only(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SE-9: chunks of which little is needed are written anew, also where that is interrupted."""
    rounds = SPARSE_CHUNKS + 2
    for k in range(1, rounds + 1):
        others = [r for i in range(6) for r in (*data(10 * k + i, i), vote(10 * k + i, 1))]
        bench.file("items", [*data(0, k), *others])

    def crash(name: str) -> None:
        if name == "chunks-compacted":
            raise CrashError(name)

    monkeypatch.setattr(faults, "point", crash)
    with pytest.raises(CrashError):
        bench.run(gate())
    monkeypatch.undo()
    bench.run(gate())
    assert len(sums(bench)) == 6 * rounds
    numbers = [int(name.partition(".")[0]) for name in bench.chunks("Total")]
    assert min(numbers) < 0, "there is a chunk that holds what is left of others"
    assert len(numbers) <= SPARSE_CHUNKS
    folders = bench.path / "state" / "units" / "Total" / "buffer" / "items"
    compacted = bench.session.read.parquet((folders / bench.chunks("Total")[0]).as_uri())
    assert {row["k"] for row in compacted.select("k").collect()} == {0}
    bench.file("items", [vote(0, rounds)])
    bench.run(gate())
    assert sums(bench)[0] == (sum(range(1, rounds + 1)), rounds)
    assert bench.chunks("Total") == []


def test_d6_known_ids_are_dropped_before_they_count(bench: Any) -> None:
    """A comes twice before B: without its id the partition would be {A, A}, and B late."""
    bench.file("items", [*data(1, 5, id="A"), vote(1, 2)])
    bench.file("items", [*data(1, 5, id="A"), *data(2, 1), *data(2, 1), vote(2, 2)])
    bench.run(gate(id=("id",)))
    assert sums(bench) == {2: (2, 2)}, "records without an id are no repeats"
    bench.file("items", [*data(1, 6, id="B"), *data(1, 5, id="A"), *data(2, 1, id="late")])
    bench.run(gate(id=("id",)))
    assert sums(bench) == {1: (11, 2), 2: (2, 2)}
    assert bench.metrics("Total")["repeated_records"] == 2
    assert [x["record"]["id"] for x in bench.dead_letters("Total")] == ["late"]


def test_d6_two_records_with_one_id_are_a_contradiction(bench: Any) -> None:
    bench.file("items", [*data(1, 5, id="A"), *data(1, 6, id="A"), vote(1, 1)])
    bench.run(gate(id=("id",)))
    assert sums(bench) == {}
    (event,) = bench.events("partition_quarantined")
    assert event["reason"] == "ids that several different records have"


@pytest.mark.parametrize("resolution", list(Resolution))
def test_se_6_a_person_resolves_a_quarantine(bench: Any, resolution: Resolution) -> None:
    bench.file("items", [*data(1, 5, 6), vote(1, 1)])
    bench.run(gate())
    assert sums(bench) == {}
    if resolution is Resolution.RECOUNT:
        bench.file("items", [vote(1, 2)])
    decision = Resolve(
        key=("1",), resolution=resolution, by="ann", reason="asked west", time=time.time()
    )
    bench.run(gate())
    decisions.request(bench.path / "state", "Total", decision)
    bench.run(gate())
    bench.file("items", data(1, 7))
    bench.run(gate())
    letters = [(x["reason"], x["rule"], x["record"]["v"]) for x in bench.dead_letters("Total")]
    late = ("late", "SE-5", 7)
    if resolution is Resolution.DISCARD:
        assert sums(bench) == {}
        assert sorted(letters) == [("discarded", "SE-6", 5), ("discarded", "SE-6", 6), late]
    else:
        assert sums(bench) == {1: (11, 2)}
        assert letters == [late]
    (event,) = bench.events("quarantine_resolved")
    assert (event["by"], event["resolution"]) == ("ann", resolution.value)
    assert bench.metrics("Total")["quarantined_partitions"] == 0


def test_se_9_released_partitions_are_remembered_for_as_long_as_the_file_says(bench: Any) -> None:
    bench.file("items", [*data(1, 5), vote(1, 1)])
    bench.run(gate(remember_s=0.0))
    bench.run(gate(remember_s=0.0))  # which forgets what the first run released
    bench.file("items", data(1, 6))
    bench.run(gate(remember_s=0.0))
    assert bench.dead_letters("Total") == []
    assert bench.metrics("Total")["open_partitions"] == 1


def test_micro_batches_leave_nothing_behind_in_java(
    bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java frees a micro-batch's plans without Python's collector, which runs seldom."""
    held: list[int] = []
    record = Ledger.record

    def counted(self: Ledger, *events: Any) -> Any:
        held.append(len(ThreadSafeFinalizer.finalizers))
        return record(self, *events)

    monkeypatch.setattr(Ledger, "record", counted)
    for k in range(12):
        bench.file("items", [*data(k, 1), vote(k, 1)])
    gc.collect()
    gc.disable()
    try:
        bench.run(gate())
    finally:
        gc.enable()
    assert len(held) >= 12
    assert held[-1] - held[1] < 5 * len(held)  # of some 40 in each
