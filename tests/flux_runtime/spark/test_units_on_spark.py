"""Native and stateful units, loops, sinks: against real Spark and plain Python."""

from __future__ import annotations

from collections import Counter

import pytest
from pyspark.sql import DataFrame

from flux_runtime.spark import Job, sql

pytestmark = pytest.mark.spark


def test_native_unit_removes_punctuations_and_keeps_unreadable_records(bench) -> None:
    bench.file("words", [{"word": "a"}, {"word": "b", "sealed": True}, "{broken"])
    bench.file("words", [{"word": "a"}, {"word": "c"}])

    def count(words: DataFrame) -> DataFrame:
        return sql("SELECT word, count(*) AS n FROM words GROUP BY word", words=words)

    def build(job: Job) -> None:
        from flux_runtime.spark import Punctuation

        words = job.source(
            "words",
            format="json",
            path="data/words",
            options={"maxFilesPerTrigger": "1"},
            schema="word STRING, sealed BOOLEAN",
            punctuation=Punctuation(when="sealed", count="1"),
        )
        counts = job.native("Count", count, inputs={"words": [words]}, output_mode="update")
        job.sink("out", [counts])

    bench.run(build)
    newest = {row["word"]: row["n"] for row in sorted(bench.results(), key=lambda r: r["n"])}
    assert newest == {"a": 2, "c": 1}
    (letter,) = bench.dead_letters("Count")
    assert (letter["reason"], letter["record"]) == ("unreadable", "{broken")
    bench.run(build)  # nothing new, nothing again
    assert len(bench.results()) == 3
    assert bench.metrics("Count")["rows_in"] == 0


def test_loop_reaches_its_fixpoint(bench) -> None:
    """Reachability in a graph: the component's own output comes back to it."""
    edges = [(1, 2), (2, 3), (3, 4), (4, 2), (5, 6)]
    for a, b in edges:
        bench.file("edges", [{"a": a, "b": b}])

    def reach(edge: DataFrame, path: DataFrame) -> DataFrame:
        return sql(
            "SELECT a, b FROM edge UNION SELECT p.a, e.b FROM path p JOIN edge e ON p.b = e.a",
            edge=edge,
            path=path,
        )

    def build(job: Job) -> None:
        edge = job.source("edges", format="json", path="data/edges", schema="a INT, b INT")
        known = job.loop("known", schema="a INT, b INT")
        paths = job.stateful(
            "Reach", reach, writes={"edge": [edge], "path": [known]}, monotone=True
        )
        job.close_loop(known, [paths])
        job.sink("out", [paths])

    bench.run(build)
    expected = {(a, b) for a, b in edges}
    while more := {(a, d) for a, b in expected for c, d in expected if b == c} - expected:
        expected |= more
    assert Counter((r["a"], r["b"]) for r in bench.results()) == Counter(expected)
    bench.file("edges", [{"a": 6, "b": 1}])
    bench.run(build)
    expected |= {(6, 1)}
    while more := {(a, d) for a, b in expected for c, d in expected if b == c} - expected:
        expected |= more
    assert Counter((r["a"], r["b"]) for r in bench.results()) == Counter(expected)


def test_reads_are_answered_once_with_the_writes_so_far(bench) -> None:
    """OR-8: what a read sees is fixed by the micro-batch it came in."""

    def answer(put: DataFrame, ask: DataFrame) -> DataFrame:
        return sql(
            "SELECT ask.id, count(put.v) AS n FROM ask LEFT JOIN put ON ask.k = put.k"
            " GROUP BY ask.id",
            put=put,
            ask=ask,
        )

    def build(job: Job) -> None:
        put = job.source("puts", format="json", path="data/puts", schema="k INT, v INT")
        ask = job.source("asks", format="json", path="data/asks", schema="k INT, id INT")
        got = job.stateful(
            "Store",
            answer,
            writes={"put": [put]},
            reads={"ask": [ask]},
            monotone=False,
            ordered=True,
        )
        job.sink("out", [got])

    bench.file("puts", [{"k": 1, "v": 1}, {"k": 1, "v": 2}])
    bench.file("asks", [{"k": 1, "id": 10}, {"k": 2, "id": 20}])
    bench.run(build)
    bench.file("puts", [{"k": 1, "v": 3}])
    bench.run(build)
    bench.file("asks", [{"k": 1, "id": 11}])
    bench.run(build)
    assert {r["id"]: r["n"] for r in bench.results()} == {10: 2, 20: 0, 11: 3}


def test_changed_partitions_are_recomputed_in_recorded_order(bench) -> None:
    """OR-8, within: sequence."""

    def story(event: DataFrame) -> DataFrame:
        return sql(
            "SELECT k, concat_ws('', collect_list(v)) AS story FROM event GROUP BY k", event=event
        )

    def build(job: Job) -> None:
        event = job.source("events", format="json", path="data/events", schema="k INT, v STRING")
        told = job.stateful(
            "Story",
            story,
            writes={"event": [event]},
            monotone=False,
            ordered=True,
            order_by=("v",),
            changed_by=("k",),
        )
        job.sink("out", [told])

    bench.file("events", [{"k": 1, "v": "c"}, {"k": 1, "v": "b"}, {"k": 2, "v": "x"}])
    bench.run(build)
    bench.file("events", [{"k": 1, "v": "a"}])
    bench.run(build)
    stories = [(r["k"], r["story"]) for r in bench.results()]
    assert sorted(stories) == [(1, "bc"), (1, "bca"), (2, "x")]
