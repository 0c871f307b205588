"""Kafka as a source, on a real broker: offsets without Spark, and sealing with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from conftest import Workbench
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from benchmarks.sink_servers import kafka_broker, make_topic
from flux_runtime.spark import Job, Producers, Punctuation, sql
from flux_runtime.spark.ends.kafka_source import KafkaReader, KafkaSourceError, format_of
from flux_runtime.spark.query import Query


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def topic(broker: str, tmp_path: Path) -> str:
    make_topic(broker, tmp_path.name)
    return tmp_path.name


def send(
    broker: str,
    topic: str,
    values: Sequence[tuple[int, bytes]],
    *,
    commit: bool = True,
    by: str = "a",
) -> None:
    """Send (partition, value) in one transaction, whose producer is in a header."""
    producer = Producer({"bootstrap.servers": broker, "transactional.id": f"{topic} {by}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition, value in values:
        producer.produce(
            topic, value, key=b"k", partition=partition, headers=[("by", b"?"), ("by", by.encode())]
        )
    (producer.commit_transaction if commit else producer.abort_transaction)(30)


def reader(broker: str, topic: str, **options: str) -> KafkaReader:
    return KafkaReader(
        {
            "kafka.bootstrap.servers": broker,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **options,
        }
    )


def values(of: KafkaReader, start: Any, end: Any) -> list[bytes]:
    parts = of.partitions(start, end)
    return sorted(
        value for part in parts for batch in of.read(part) for value in batch["value"].to_pylist()
    )


def test_what_was_committed_is_read_once_whatever_the_limit(broker: str, topic: str) -> None:
    of = reader(broker, topic)
    begin = of.initialOffset()
    send(broker, topic, [(n % 2, b"%d" % n) for n in range(7)])
    send(broker, topic, [(0, b"given up"), (1, b"given up")], commit=False)
    send(broker, topic, [(1, b"7"), (0, b"8")])
    end = of.latestOffset(begin, ReadAllAvailable())
    truth = [b"%d" % n for n in range(9)]
    assert values(of, begin, end) == truth
    found, at = [], begin
    while at != end:
        upto = of.latestOffset(at, ReadMaxRows(3))
        found += values(of, at, upto)
        at = upto
    assert sorted(found) == truth
    assert reader(broker, topic, startingOffsets="latest").initialOffset() == end
    some = {topic: {"0": 1, "1": -2}}
    given = reader(broker, topic, startingOffsets=json.dumps(some))
    assert given.initialOffset() == {topic: {"0": 1, "1": 0}}
    of.prepareForTriggerAvailableNow()
    send(broker, topic, [(0, b"later")])
    assert of.latestOffset(end, ReadAllAvailable()) == end


def test_a_new_partition_is_read_from_its_beginning_and_a_topic_that_went_is_told(
    broker: str, topic: str
) -> None:
    of = reader(broker, topic)
    send(broker, topic, [(0, b"1")])
    before = of.latestOffset({}, ReadAllAvailable())
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    send(broker, topic, [(2, b"2")])
    after = of.latestOffset(before, ReadAllAvailable())
    assert values(of, before, after) == [b"2"]
    with pytest.raises(KafkaSourceError, match="was read up to offset 99"):
        of.partitions({topic: {**after[topic], "2": 99}}, after)
    admin.delete_topics([topic])[topic].result(30)
    with pytest.raises(KafkaSourceError, match=f"the topic {topic} is not there"):
        of.latestOffset(after, ReadAllAvailable())


def test_a_source_that_cannot_be_decoded_is_refused_when_it_is_declared(tmp_path: Path) -> None:
    job = Job(root=tmp_path, results=tmp_path)
    with pytest.raises(ValueError, match="value is `json`, of kafka"):
        job.source("a", format="json", value="json", schema="k INT")
    with pytest.raises(ValueError, match="has a schema"):
        job.source("b", format="kafka", value="json")


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_query_knows_how_far_it_is_behind_in_each_partition(
    spark: SparkSession, broker: str, topic: str, tmp_path: Path
) -> None:
    options = reader(broker, topic, maxOffsetsPerTrigger="4")._options
    rows = spark.readStream.format(format_of(spark)).options(**options).load()
    lags = []

    def on_batch(_: DataFrame, batch: int) -> int:
        lags.append(query.lag())
        return 0

    query = Query("lag", rows, (tmp_path / "checkpoint").as_uri(), on_batch)
    send(broker, topic, [(n % 2, b"") for n in range(6)])
    query.start(available_now=True)
    query.running.awaitTermination()
    behind = [{place.removeprefix(topic): count for place, count in lag.items()} for lag in lags]
    assert behind[0] == {}
    assert behind[1] == {"/0": 2, "/1": 2}  # a transaction ends with a mark, which is a message
    assert set(query.lag().values()) == {0}


def total(item: DataFrame) -> DataFrame:
    return sql("SELECT k, sum(v) AS s, count(*) AS n FROM item GROUP BY k", item=item)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_partitions_are_sealed_by_counts_over_all_partitions_of_a_topic(
    bench: Workbench, broker: str, topic: str
) -> None:
    def build(job: Job) -> None:
        items = job.source(
            "items",
            format="kafka",
            options={
                "kafka.bootstrap.servers": broker,
                "subscribe": topic,
                "startingOffsets": "earliest",
            },
            schema="k INT, v INT, count BIGINT, producer STRING, at BIGINT",
            value="json",
            columns={"producer": "headers.by", "at": "offset"},
            producer="producer",
            punctuation=Punctuation(when="count IS NOT NULL", count="count"),
        )
        totals = job.seal(
            "Total",
            total,
            waits={"item": [items]},
            key=("k",),
            producers={"items": Producers.all(["a", "b"])},
        )
        job.sink("out", [totals])

    def record(**fields: int) -> bytes:
        return json.dumps(fields).encode()

    first = [(n % 2, record(k=1, v=n)) for n in range(5)]
    send(broker, topic, [*first, (0, b"{poison"), (1, record(k=1, count=5))], by="a")
    send(broker, topic, [(0, record(k=1, v=99))], by="b", commit=False)
    send(broker, topic, [(1, record(k=1, v=10)), (1, record(k=2, v=1))], by="b")
    bench.run(build)
    assert bench.results() == []  # b has not voted
    send(broker, topic, [(0, record(k=1, count=1))], by="b")
    bench.run(build)
    assert bench.results() == [{"k": 1, "s": 20, "n": 6}]
    (letter,) = bench.dead_letters("Total")
    assert letter["reason"] == "unreadable"
    assert "{poison" in json.dumps(letter["record"])
