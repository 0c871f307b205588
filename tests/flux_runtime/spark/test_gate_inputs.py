"""What a gate waits for: registered producers, several inputs, requests, digests, excuses."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections import Counter

import pytest
from pyspark.sql import DataFrame

from flux_runtime.observe import decisions
from flux_runtime.observe.decisions import Excuse
from flux_runtime.sealing.digest import digest
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark import Job, Producers, Punctuation, sql
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.registry import ProducerRegistry

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SCHEMA = "k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT"
AB = Producers.all(["a", "b"])


def data(k: int, p: str, *values: int) -> list[dict]:
    return [{"k": k, "v": v, "p": p} for v in values]


def vote(k: int, p: str, n: int, **more: object) -> dict:
    return {"k": k, "p": p, "sealed": True, "n": n, **more}


def source(job: Job, name: str, schema: str = SCHEMA, digest: str | None = None):
    return job.source(
        name,
        format="json",
        path=f"data/{name}",
        options={"maxFilesPerTrigger": "1"},
        schema=schema,
        producer="p",
        punctuation=Punctuation(when="sealed", count="n", digest=digest),
    )


def total(item: DataFrame) -> DataFrame:
    return sql("SELECT k, sum(v) AS s FROM item GROUP BY k", item=item)


def gate(producers: Producers, **options: object):
    def build(job: Job) -> None:
        totals = job.seal(
            "Total",
            total,
            waits={"item": [source(job, "items")]},
            key=("k",),
            producers={"items": producers},
            **options,
        )
        job.sink("out", [totals])

    return build


def sums(bench) -> dict[int, int]:
    rows = bench.results()
    assert len({row["k"] for row in rows}) == len(rows), "SE-3"
    return {row["k"]: row["s"] for row in rows}


def test_registered_producers_are_looked_up_once(bench, zookeeper_hosts: str) -> None:
    """SE-7: unknown until registered; then frozen, and outsiders become whole dead letters."""
    with connect(zookeeper_hosts) as client:
        registry = ProducerRegistry(client, f"gate-{uuid.uuid4().hex}")
        asked: Counter = Counter()

        def look_up(stream, keys):
            asked.update((stream, key) for key in keys)
            return registry.lookup_many(stream, keys)

        bench.look_up = look_up
        build = gate(Producers.registered("items"))
        registry.register("items", ("1",), ["a"])
        bench.file("items", [*data(1, "a", 5), vote(1, "a", 1), *data(1, "c", 50)])
        bench.file("items", [*data(2, "a", 6), vote(2, "a", 1), *data(2, "c", 60), vote(2, "c", 1)])
        bench.run(build)
        assert sums(bench) == {1: 5}, "nobody knows who contributes to 2"
        assert [x["record"]["v"] for x in bench.dead_letters("Total")] == [50]
        assert asked["items", ("1",)] == 1
        registry.register("items", ("2",), ["a"])
        bench.run(build)
        assert sums(bench) == {1: 5, 2: 6}
        letters = bench.dead_letters("Total")
        assert Counter((x["reason"], x["record"]["v"]) for x in letters) == {
            ("unknown_producer", 50): 1,
            ("unknown_producer", 60): 1,
            ("unknown_producer", None): 1,
        }
        assert bench.metrics("Total")["dead_letters"] == 3
        undecided = bench.path / "state" / "units" / "Total" / "undecided" / "items"
        assert list(undecided.iterdir()) == []


def test_partition_is_complete_in_every_input(bench) -> None:
    """SE-1 over two streams, one through a record-wise transform; keys of other names and types."""

    def double(order: DataFrame) -> DataFrame:
        return sql("SELECT k, v * 2 AS v FROM `order`", order=order)

    def joined(sale: DataFrame, item: DataFrame) -> DataFrame:
        return sql(
            "SELECT s.k, sum(s.v) AS s, (SELECT count(*) FROM item) AS items FROM sale s"
            " LEFT SEMI JOIN item i ON s.k = i.k GROUP BY s.k",
            sale=sale,
            item=item,
        )

    def build(job: Job) -> None:
        orders = source(job, "orders").transform("Double.sale", double)
        refunds = source(job, "refunds").transform("Double.sale", double)
        items = source(job, "items", SCHEMA.replace("k INT", "key BIGINT, k INT"))
        joint = job.seal(
            "Joint",
            joined,
            waits={"sale": [orders, refunds], "item": [items]},
            key=("k",),
            renamed={"items": ("key",)},
            producers={"orders": AB, "refunds": Producers.one(), "items": Producers.one()},
        )
        job.sink("out", [joint])

    bench.file("orders", [*data(1, "a", 5), vote(1, "a", 1), vote(1, "b", 0), *data(2, "b", 7)])
    bench.file("refunds", [*data(1, "r", -1), vote(1, "r", 1), vote(2, "r", 0)])
    bench.file("items", [])
    bench.run(build)
    assert bench.results() == []
    bench.file("items", [{"key": 1, "k": 1, "v": 0, "p": "i"}, {**vote(1, "i", 1), "key": 1}])
    bench.run(build)
    assert bench.results() == [{"k": 1, "s": 8, "items": 1}]
    assert bench.metrics("Joint")["open_partitions"] == 1


def test_requests_wait_for_their_partition_and_are_answered_once(bench) -> None:
    """SE-12."""

    def answer(item: DataFrame, ask: DataFrame) -> DataFrame:
        return sql(
            "SELECT a.id, a.k, sum(i.v) AS s FROM ask a JOIN item i ON a.k = i.k"
            " GROUP BY a.id, a.k",
            item=item,
            ask=ask,
        )

    def build(job: Job) -> None:
        asks = job.source(
            "asks",
            format="json",
            path="data/asks",
            schema="id INT, kk INT",
            options={"maxFilesPerTrigger": "1"},
        )
        renamed = asks.transform("Cache.ask", lambda ask: ask.withColumnRenamed("kk", "k"))
        answers = job.seal(
            "Report",
            answer,
            waits={"item": [source(job, "items")]},
            reads={"ask": [renamed]},
            key=("k",),
            producers={"items": AB},
        )
        job.sink("out", [answers])

    bench.file("asks", [{"id": 1, "kk": 1}, {"id": 2, "kk": 2}, {"id": 3}, "{no"])
    bench.file("items", [*data(1, "a", 5, 6), vote(1, "a", 2), *data(2, "a", 8), vote(2, "a", 1)])
    bench.run(build)
    assert bench.results() == []
    assert bench.metrics("Report")["waiting_requests"] == 2
    assert Counter(x["reason"] for x in bench.dead_letters("Report")) == {
        "no_key": 1,
        "unreadable": 1,
    }
    bench.file("items", [vote(1, "b", 0)])
    bench.run(build)
    assert bench.results() == [{"id": 1, "k": 1, "s": 11}]
    bench.file("asks", [{"id": 4, "kk": 1}, {"id": 5, "kk": 1}, {"id": 6, "kk": 2}])
    bench.run(build)
    assert [r["id"] for r in bench.results()] == [1, 4, 5]
    bench.file("items", [*data(2, "b", 1), vote(2, "b", 1), *data(1, "b", 1000)])
    bench.run(build)
    assert {r["id"]: r["s"] for r in bench.results()} == {1: 11, 4: 11, 5: 11, 2: 9, 6: 9}
    bench.file("asks", [{"id": 7, "kk": 1}])
    bench.run(build)
    assert [r["s"] for r in bench.results() if r["id"] == 7] == [11], "without the late record"
    assert bench.metrics("Report")["waiting_requests"] == 0


def test_digests_are_compared_where_they_are_given(bench) -> None:
    """SE-1, SE-6: Python's digests of the data attributes, k and v, against Spark's."""
    rng = random.Random(3)
    with_digest = f"{SCHEMA}, sum STRING"

    def build(job: Job) -> None:
        items = source(job, "items", with_digest, digest="sum")
        totals = job.seal(
            "Total", total, waits={"item": [items]}, key=("k",), producers={"items": AB}
        )
        job.sink("out", [totals])

    expected = {}
    for k in range(4):
        values = {p: [rng.randrange(10**6) for _ in range(20)] for p in "ab"}
        for p in "ab":
            right = digest([str(k), str(v)] for v in values[p])
            wrong = digest([str(k), str(v + (k == 2))] for v in values[p])
            bench.file("items", data(k, p, *values[p]))
            given = {"sum": wrong if p == "a" else right} if k != 3 else {}
            bench.file("items", [vote(k, p, 20, **given)])
        if k != 2:
            expected[k] = sum(values["a"]) + sum(values["b"])
    bench.run(build)
    assert sums(bench) == expected
    (event,) = bench.events("partition_quarantined")
    assert (event["partition"], event["producer"]) == (["2"], "a")
    assert event["reason"] == "another digest than promised"
    assert event["promised"] != event["found"]


def test_an_excused_producer_is_not_waited_for(bench) -> None:
    """SE-8: it is taken up, recorded, and what the producer sent stays."""
    bench.file("items", [*data(1, "a", 5), vote(1, "a", 1), *data(1, "b", 6)])
    bench.run(gate(AB))
    assert sums(bench) == {}
    excuse = Excuse(
        stream="items", key=("1",), producer="b", by="ann", reason="disk", time=time.time()
    )
    decisions.request(bench.path / "state", "Total", excuse)
    bench.run(gate(AB))
    assert sums(bench) == {1: 11}
    (event,) = bench.events("producer_excused")
    assert (event["by"], event["reason"], event["partition"]) == ("ann", "disk", ["1"])
    assert list(decisions.pending(LocalStorage(bench.path / "state"), "Total")) == []


def test_gate_json_and_journal_can_be_read_from_outside(bench) -> None:
    from flux_runtime.observe.gates import read_gates

    bench.file("items", [*data(1, "a", 5), vote(1, "a", 1), *data(1, "b", 6)])
    bench.run(gate(AB))
    (view,) = read_gates(bench.path / "state")
    assert (view.unit, view.key, view.released) == ("Total", ("k",), 0)
    assert [p.waits_for for p in view.partitions] == [("items: no punctuation of b",)]
    assert json.dumps([p.records for p in view.partitions]) == "[2]"
