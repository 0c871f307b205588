"""The seal protocol against real Spark: exact results, and every way a stream can be wrong."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable

import pytest
from pyspark.sql import DataFrame

from flux_runtime.spark import Feed, Job, Producers, Punctuation, sql
from flux_runtime.spark.sealed.intake import LateDataError

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SCHEMA = "k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT"


def data(k: int | None, p: str | None, *values: int) -> list[dict]:
    return [{"k": k, "v": v, "p": p} for v in values]


def vote(k: int, p: str, n: int | None) -> dict:
    return {"k": k, "p": p, "sealed": True, "n": n}


def source(job: Job, name: str = "items", **options: str) -> Feed:
    return job.source(
        name,
        format="json",
        path=f"data/{name}",
        options={"maxFilesPerTrigger": "1", **options},
        schema=SCHEMA,
        producer="p",
        punctuation=Punctuation(when="sealed", count="n"),
    )


def total(item: DataFrame) -> DataFrame:
    return sql("SELECT k, sum(v) AS s, count(*) AS c FROM item GROUP BY k", item=item)


def sealed(
    producers: Producers, fn: Callable[..., DataFrame] = total, **options: object
) -> Callable[[Job], None]:
    """A job of one gate over the stream `items`."""

    def build(job: Job) -> None:
        items = source(job)
        totals = job.seal(
            "Total",
            fn,
            waits={"item": [items]},
            key=("k",),
            producers={"items": producers},
            **options,
        )
        job.sink("out", [totals])

    return build


def sums(rows: Iterable[dict]) -> dict[int, tuple[int, int]]:
    """Partition -> (sum, count), and no partition twice (SE-3)."""
    found = {}
    for row in rows:
        assert row["k"] not in found, f"SE-3: {row['k']} twice"
        found[row["k"]] = (row["s"], row["c"])
    return found


AB = Producers.all(["a", "b"])


def test_result_is_exact_whatever_the_arrival_order(bench) -> None:
    """SE-1, SE-3, SE-9: 12 partitions, 3 producers, everything shuffled over 6 files."""
    rng = random.Random(7)
    producers = ["a", "b", "c"]
    rows, expected = [], {}
    for k in range(12):
        values = {p: [rng.randrange(100) for _ in range(rng.randrange(6))] for p in producers}
        rows += [row for p in producers for row in data(k, p, *values[p])]
        rows += [vote(k, p, len(values[p])) for p in producers]
        rows += [vote(k, "a", len(values["a"]))]  # an equal duplicate (SE-6)
        everything = [v for p in producers for v in values[p]]
        if everything:
            expected[k] = (sum(everything), len(everything))
    rng.shuffle(rows)
    for start in range(0, len(rows), len(rows) // 6 + 1):
        bench.file("items", rows[start : start + len(rows) // 6 + 1])
    bench.run(sealed(Producers.all(producers)))
    assert sums(bench.results()) == expected
    metrics = bench.metrics("Total")
    assert metrics["released_partitions"] == 12
    assert metrics["open_partitions"] == metrics["dead_letters"] == 0
    assert metrics["rows_in"] == len(rows)
    assert bench.chunks("Total") == []


def test_incomplete_partitions_stay_inside_and_say_what_they_wait_for(bench) -> None:
    """SE-4, SE-8: a punctuation is missing; another's count is not reached; a third is fine."""
    bench.file("items", [*data(1, "a", 5), vote(1, "a", 1), *data(1, "b", 6)])
    bench.file("items", [*data(2, "a", 7), vote(2, "a", 2), vote(2, "b", 0)])
    bench.file("items", [*data(3, "a", 8), vote(3, "b", 0), vote(3, "a", 1)])
    build = sealed(AB, seal_timeout_s=0.0)
    bench.run(build)
    assert sums(bench.results()) == {3: (8, 1)}
    metrics = bench.metrics("Total")
    assert metrics["open_partitions"] == 2
    assert metrics["votes_missing"] == {"b": 1}
    bench.file("items", [vote(1, "b", 1)])
    bench.file("items", data(2, "a", 9))
    bench.run(build)
    assert sums(bench.results()) == {1: (11, 2), 2: (16, 2), 3: (8, 1)}


def test_late_records_are_dead_letters(bench) -> None:
    """SE-5: after the release, whole and with reason; SE-6: a repeated punctuation is not late."""
    bench.file("items", [*data(1, "a", 5), vote(1, "a", 1), vote(1, "b", 0)])
    bench.file("items", [*data(1, "b", 99), *data(2, "a", 1), vote(1, "a", 1), vote(1, "b", 1)])
    bench.file("items", [vote(2, "a", 1), vote(2, "b", 0)])
    bench.run(sealed(AB))
    assert sums(bench.results()) == {1: (5, 1), 2: (1, 1)}
    letters = bench.dead_letters("Total")
    assert [(x["reason"], x["rule"], x["stream"], x["batch"]) for x in letters] == [
        ("late", "SE-5", "items", 1)
    ] * 2
    assert Counter(x["record"]["v"] for x in letters) == Counter([99, None])
    assert letters[0]["record"].keys() == {"k", "v", "p", "sealed", "n"}
    assert bench.metrics("Total")["late_records"] == 2


def test_late_fail_stops_the_job_and_takes_nothing(bench) -> None:
    """SE-5, late: fail: the records stay in the source until somebody decides."""
    bench.file("items", [*data(1, "a", 5), vote(1, "a", 1), vote(1, "b", 0)])
    bench.file("items", [*data(1, "b", 99), *data(2, "a", 1)])
    bench.file("items", [vote(2, "a", 1), vote(2, "b", 0)])
    for _ in range(2):  # a restart changes nothing
        with pytest.raises(LateDataError, match="SE-5"):
            bench.run(sealed(AB, late="fail"))
        assert sums(bench.results()) == {1: (5, 1)}
        assert bench.dead_letters("Total") == []
    bench.run(sealed(AB))
    assert sums(bench.results()) == {1: (5, 1), 2: (1, 1)}
    assert [x["record"]["v"] for x in bench.dead_letters("Total")] == [99]


def test_contradictions_are_quarantined_with_both_values(bench) -> None:
    """SE-6: more than promised, and a second punctuation that differs; neither is released."""
    bench.file("items", [*data(1, "a", 5, 6), vote(1, "a", 1), vote(1, "b", 0)])
    bench.file("items", [*data(2, "a", 7), vote(2, "a", 1), vote(2, "a", 2), vote(2, "b", 0)])
    bench.file("items", [*data(3, "a", 8), vote(3, "a", 1), vote(3, "b", 0)])
    bench.run(sealed(AB))
    assert sums(bench.results()) == {3: (8, 1)}
    found = {
        e["partition"][0]: (e["promised"], e["found"])
        for e in bench.events("partition_quarantined")
    }
    assert found == {"1": ("1", "2"), "2": ("1 records", "2 records")}
    assert bench.metrics("Total")["quarantined_partitions"] == 2
    assert len(bench.chunks("Total")) == 2, "SE-6: the records are kept"


def test_records_nobody_can_place_are_dead_letters(bench) -> None:
    """SE-7 and what has no key, no producer, no count, no form: none of it blocks a partition."""
    bench.file(
        "items",
        [
            *data(1, "a", 5),
            *data(1, "stranger", 50),
            vote(1, "stranger", 1),
            *data(None, "a", 51),
            *data(1, None, 52),
            vote(1, "a", None),
            "{not json",
            vote(1, "a", 1),
            vote(1, "b", 0),
        ],
    )
    bench.run(sealed(AB))
    assert sums(bench.results()) == {1: (5, 1)}
    letters = bench.dead_letters("Total")
    assert Counter(x["reason"] for x in letters) == {
        "unknown_producer": 2,
        "no_key": 1,
        "no_producer": 1,
        "no_count": 1,
        "unreadable": 1,
    }
    by_reason = {x["reason"]: x for x in letters}
    assert by_reason["unreadable"]["record"] == "{not json"
    assert by_reason["unknown_producer"]["rule"] == "SE-7"
    assert bench.metrics("Total")["dead_letters"] == 6


def test_one_producer_needs_no_vote(bench) -> None:
    """SE-2: its punctuation and count decide; another producer does not belong there."""
    bench.file("items", [*data(1, "a", 5), *data(2, "b", 6), vote(2, "b", 1)])
    bench.file("items", [*data(1, "c", 77), vote(1, "a", 1)])
    bench.run(sealed(Producers.one()))
    assert sums(bench.results()) == {1: (5, 1), 2: (6, 1)}
    assert [x["record"]["v"] for x in bench.dead_letters("Total")] == [77]
