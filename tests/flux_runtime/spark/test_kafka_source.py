"""Kafka as a source, on a real broker: offsets without Spark, and sealing with it."""

from __future__ import annotations

import io
import json
import random
import time
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from conftest import Workbench
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from benchmarks.sink_servers import (
    committed_messages,
    make_topic,
    schema_registry,
)
from flux_runtime.past_range import Offsets
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark import Avro, Job, Producers, Punctuation, sql
from flux_runtime.spark.ends import kafka_source
from flux_runtime.spark.ends.avro import HEADER, registered
from flux_runtime.spark.ends.kafka_source import (
    BEGIN,
    KafkaReader,
    KafkaSourceError,
    _batch,
    _positions,
    begin,
    format_of,
)
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.feed import UNREADABLE_TEXT
from flux_runtime.spark.query import Query


def send(
    broker: str,
    topic: str,
    values: Sequence[tuple[int, bytes | None]],
    *,
    commit: bool = True,
    by: str = "a",
) -> dict[tuple[int, int], bytes | None]:
    """Send (partition, value) in one transaction, whose producer is in a header.

    One that is given up is another producer's: to a reader that begins behind it, this broker names
    it still, as Kafka does not, and librdkafka drops what the same producer sent after it.

    Returns:
        (partition, offset) -> value.
    """
    sent = {}

    def took(error: Any, message: Message) -> None:
        sent[message.partition(), message.offset()] = message.value()

    producer = Producer({"bootstrap.servers": broker, "transactional.id": f"{topic} {by} {commit}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for partition, value in values:
        producer.produce(
            topic,
            value,
            key=b"k",
            partition=partition,
            headers=[("by", b"?"), ("by", by.encode())],
            on_delivery=took,
        )
    producer.flush(30)
    (producer.commit_transaction if commit else producer.abort_transaction)(30)
    return sent


def encoded(schema: Any, record: Any) -> bytes:
    into = io.BytesIO()
    fastavro.schemaless_writer(into, fastavro.parse_schema(json.loads(json.dumps(schema))), record)
    return into.getvalue()


def delete_records(broker: str, topic: str, partition: int, upto: int) -> None:
    """Have messages deleted, as retention does."""
    admin = AdminClient({"bootstrap.servers": broker})
    (deleted,) = admin.delete_records([TopicPartition(topic, partition, upto)]).values()
    deleted.result(30)


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
    while _positions(at) != _positions(end):
        upto = of.latestOffset(at, ReadMaxRows(3))
        found += values(of, at, upto)
        at = upto
    assert sorted(found) == truth
    assert reader(broker, topic, startingOffsets="latest").initialOffset() == _positions(end)
    some = {topic: {"0": 1, "1": -2}}
    given = reader(broker, topic, startingOffsets=json.dumps(some))
    assert given.initialOffset() == {topic: {"0": 1, "1": 0}}
    of.prepareForTriggerAvailableNow()
    send(broker, topic, [(0, b"later")])
    assert of.latestOffset(end, ReadAllAvailable()) == end


def test_where_a_job_begins_to_read_is_resolved_once(
    broker: str, topic: str, tmp_path: Path
) -> None:
    state, options = LocalStorage(tmp_path), reader(broker, topic)._options
    send(broker, topic, [(0, b"before")])
    latest = {**options, "startingoffsets": "latest"}
    kept = begin(state, "items", latest)
    send(broker, topic, [(n % 2, b"%d" % n) for n in range(3)])
    admin = AdminClient({"bootstrap.servers": broker})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    send(broker, topic, [(2, b"3")])
    assert begin(state, "items", latest) == kept  # as after a kill before the first micro-batch
    of = KafkaReader({**latest, BEGIN: json.dumps(kept)})
    start = of.initialOffset()
    assert values(of, start, of.latestOffset(start, ReadAllAvailable())) == [
        b"%d" % n for n in range(4)
    ]
    delete_records(broker, topic, 0, 2)
    earliest = KafkaReader({**options, BEGIN: json.dumps({topic: {"0": 0, "1": 0}})})
    assert earliest.initialOffset() == {topic: {"0": 2, "1": 0, "2": 0}}


def test_a_query_begins_at_a_time_and_is_refused_where_it_cannot(broker: str, topic: str) -> None:
    now = round(time.time() * 1000)
    producer = Producer({"bootstrap.servers": broker})
    for n in range(4):
        producer.produce(topic, b"%d" % n, partition=n % 2, timestamp=now - 4000 + 1000 * n)
    producer.flush(30)
    at = {"startingTimestamp": str(now - 2500)}
    assert reader(broker, topic, **at).initialOffset() == {topic: {"0": 1, "1": 1}}
    late = {"startingTimestamp": str(now - 1500)}
    with pytest.raises(KafkaSourceError, match=r"partition 0 .* has no message from"):
        reader(broker, topic, **late).initialOffset()
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert reader(broker, topic, **late, **strategy).initialOffset() == {topic: {"0": 2, "1": 1}}
    with pytest.raises(KafkaSourceError, match="assign: only Spark's own"):
        reader(broker, topic, assign="{}")


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
    delete_records(broker, topic, 2, 1)
    with pytest.raises(KafkaSourceError, match=r"partition 2 .* deleted before they were read"):
        of.partitions(before, after)
    with pytest.raises(KafkaSourceError, match="was read up to offset 99"):
        of.partitions({topic: {**after[topic], "2": 99}}, after)
    admin.delete_topics([topic])[topic].result(30)
    with pytest.raises(KafkaSourceError, match=f"the topic {topic} is not there"):
        of.latestOffset(after, ReadAllAvailable())


NOW_MS = round(time.time() * 1000)


class Parts(NamedTuple):
    """A message, without its place."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None
    time_ms: int

    @property
    def row(self) -> list[Any]:
        """As a reader gives it; a time after the year 9999 is none."""
        micros = self.time_ms * 1000 if self.time_ms < 253_402_300_800_000 else None
        headers = self.headers and [{"key": k, "value": v} for k, v in self.headers]
        return [self.key, self.value, headers, micros]


def messages(of: KafkaReader, parts: Sequence[Any]) -> list[Any]:
    """(partition, offset) and the other parts of all messages of some slices, in order."""
    found = []
    for batch in (batch for part in parts for batch in of.read(part)):
        micros = batch["timestamp"].cast(pa.int64())
        columns = (batch[name] for name in ("partition", "offset", "key", "value", "headers"))
        found += zip(*(column.to_pylist() for column in (*columns, micros)), strict=True)
    return [((p, o), rest) for p, o, *rest in sorted(found, key=lambda row: row[:2])]


@dataclass
class Topic:
    """A topic that changes as the seed says, and what a reader of it is to get.

    Messages of a partition are known by their offsets; those that were given up have none.
    """

    broker: str
    name: str
    rng: random.Random
    partitions: int = 2
    sent: int = 0
    there: dict[tuple[int, int], Parts] = field(default_factory=dict)
    """(partition, offset) -> parts, of committed messages that were not deleted."""

    generation: int = 0

    def __post_init__(self) -> None:
        self.admin = AdminClient({"bootstrap.servers": self.broker})
        make_topic(self.broker, self.name, self.partitions)

    def message(self) -> Parts:
        """Parts as producers may set them: none, empty, doubled, out of all calendars."""
        self.sent += 1
        names = self.rng.choices("ab", k=self.rng.randrange(4))
        headers = [(name, self.rng.choice([None, b"", b"\xff", b"x"])) for name in names]
        return Parts(
            key=self.rng.choice([None, b"", b"k"]),
            value=self.rng.choice([None, b"", *[b"%d" % self.sent] * 4]),
            headers=headers or None,
            time_ms=self.rng.choice([NOW_MS, NOW_MS - 10**6, NOW_MS * 10**3, NOW_MS * 10**6]),
        )

    def send(self) -> None:
        """Messages; now and then in a transaction, whose mark is a message to the broker, too."""
        within, commit = self.rng.random() < 0.1, self.rng.random() < 0.5
        named = {"transactional.id": f"{self.name} {commit}"} if within else {}
        producer = Producer({"bootstrap.servers": self.broker, **named})
        if within:
            producer.init_transactions(30)
            producer.begin_transaction()
        sent: dict[tuple[int, int], Parts] = {}

        def took(parts: Parts, error: Any, message: Message) -> None:
            sent[message.partition(), message.offset()] = parts

        for _ in range(self.rng.randint(1, 6)):
            parts = self.message()
            producer.produce(
                self.name,
                parts.value,
                key=parts.key,
                partition=self.rng.randrange(self.partitions),
                headers=parts.headers,
                timestamp=parts.time_ms,
                on_delivery=partial(took, parts),
            )
        producer.flush(30)
        if within:
            (producer.commit_transaction if commit else producer.abort_transaction)(30)
        self.there |= sent if commit or not within else {}

    def add_partition(self) -> None:
        self.partitions += 1
        new = NewPartitions(self.name, self.partitions)
        self.admin.create_partitions([new])[self.name].result(30)

    def delete_records(self) -> None:
        """What retention does: the oldest messages of a partition go."""
        partition = self.rng.choice([0, self.partitions - 1])  # the oldest one or the newest
        of = reader(self.broker, self.name)
        low, high = (of._watermarks(which)[self.name][str(partition)] for which in (0, 1))
        upto = self.rng.randint(low, high)
        delete_records(self.broker, self.name, partition, upto)
        self.there = {(p, o): v for (p, o), v in self.there.items() if p != partition or o >= upto}

    def marks(self, offset: Any) -> set[tuple[int, int]]:
        """The last three messages before an offset, of the eight offsets before it."""
        before = [
            [(p, o) for o in range(upto - 8, upto) if (p, o) in self.there]
            for p, upto in ((int(p), upto) for p, upto in offset[self.name].items())
        ]
        return {place for of in before for place in of[-3:]}

    def make_anew(self) -> None:
        self.admin.delete_topics([self.name])[self.name].result(30)
        self.there, self.partitions = {}, self.rng.randint(1, 2)
        self.generation += 1
        self.__post_init__()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [2, 4])
def test_what_goes_while_a_topic_is_read_is_told_and_nothing_else(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Messages, partitions and topics go and come; each message is read once, or was deleted.

    A message is read with all of its parts, whatever they are, a tombstone too. What goes between
    the plan of a micro-batch and its tasks is told by these.

    A topic that was made anew is told, though it is longer than what was read, wherever one of the
    last three messages that were there before the position has another one in its place.
    """
    monkeypatch.setattr(kafka_source, "CHECK_S", 0.0)
    rng = random.Random(seed)
    topic = Topic(broker, tmp_path.name, rng)
    of = reader(broker, topic.name)
    at: Offsets = of.initialOffset()
    told, told_anew, told_late, generation = 0, 0, 0, 0
    marks: set[tuple[int, int]] = set()
    events = [topic.send, topic.delete_records, topic.add_partition, topic.make_anew]
    for _ in range(40):
        for event in rng.choices(events, (5, 2, 1, 2), k=rng.randint(1, 6)):
            event()
        if rng.random() < 0.3:
            of.stop()
            of, at = reader(broker, topic.name), json.loads(json.dumps(at))  # another driver
        anew = topic.generation != generation and any(at[topic.name].values())
        limit = ReadMaxRows(rng.randint(1, 5)) if rng.random() < 0.5 else ReadAllAvailable()
        upto = of.latestOffset(at, limit)
        starts, ends = at[topic.name], upto[topic.name]
        wanted = {
            (p, o): v
            for (p, o), v in topic.there.items()
            if (starts.get(str(p), 0) <= o or starts[str(p)] > ends[str(p)]) and o < ends[str(p)]
        }
        low = of._watermarks(0)[topic.name]
        lost = any(
            starts.get(p, 0) < low[p] or starts.get(p, 0) > end for p, end in ends.items()
        ) or bool(starts.keys() - ends.keys())
        if lost or (anew and marks & topic.there.keys()):
            told += 1
            told_anew += not lost
            why = "deleted before they were read|was made anew" if lost else "was made anew"
            with pytest.raises(KafkaSourceError, match=why):
                of.partitions(at, upto)
            if anew:
                at, generation = of.latestOffset({}, ReadAllAvailable()), topic.generation
                marks = topic.marks(at)
                continue
            goes_on = reader(broker, topic.name, failOnDataLoss="false")
            found = messages(goes_on, goes_on.partitions(at, upto))
        else:
            parts = of.partitions(at, upto)
            if rng.random() < 0.3:  # between the plan and the task
                rng.choice([topic.send, topic.delete_records, topic.add_partition])()
                low = reader(broker, topic.name)._watermarks(0)[topic.name]
                if any(part.start < low[str(part.partition)] for part in parts):
                    told_late += 1
                    with pytest.raises(KafkaSourceError, match="deleted before they were read"):
                        messages(of, parts)
                    continue
            found = messages(of, parts)
        assert found == [(place, parts.row) for place, parts in sorted(wanted.items())]
        if upto != at:
            generation, marks = topic.generation, topic.marks(upto)
        at = upto
    assert told_anew
    assert told_late


def test_a_broker_is_heard_about_the_ids_of_topics(broker: str, topic: str) -> None:
    assert reader(broker, topic)._given_ids() == {topic: kafka_source._NO_ID}


def test_messages_that_go_between_the_plan_and_the_task_are_told(broker: str, topic: str) -> None:
    of = reader(broker, topic)
    send(broker, topic, [(0, b"%d" % n) for n in range(3)])
    end = of.latestOffset({}, ReadAllAvailable())
    (part, *_) = of.partitions(of.initialOffset(), end)
    delete_records(broker, topic, 0, 2)
    with pytest.raises(KafkaSourceError, match="deleted before they were read"):
        list(of.read(part))


def test_a_message_without_a_time_has_none() -> None:
    message = Message(topic="t", value=b"1", timestamp=(0, -1), partition=0, offset=3)
    assert _batch([message])["timestamp"].to_pylist() == [None]


def test_a_source_that_cannot_be_decoded_is_refused_when_it_is_declared(tmp_path: Path) -> None:
    job = Job(root=tmp_path, results=tmp_path)
    with pytest.raises(ValueError, match="value is `json` or Avro, of kafka"):
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


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_values_in_avro_go_in_and_out_by_the_schemas_of_a_registry(
    bench: Workbench, broker: str, topic: str
) -> None:
    k, at = {"name": "k", "type": "long"}, {"type": "long", "logicalType": "timestamp-micros"}
    tags = {"name": "tags", "type": {"type": "map", "values": "double"}, "default": {}}
    old = {"type": "record", "name": "R", "fields": [k]}
    new = {"type": "record", "name": "R", "fields": [k, tags]}
    out = {"type": "record", "name": "Out", "fields": [k, tags, {"name": "at", "type": at}]}
    with schema_registry() as registry:
        numbers = [registered(registry, topic, json.dumps(each)) for each in (old, new)]

        def build(job: Job) -> None:
            where = {"kafka.bootstrap.servers": broker}
            items = job.source(
                "items",
                format="kafka",
                options={**where, "subscribe": topic, "startingOffsets": "earliest"},
                schema="k BIGINT, tags MAP<STRING, DOUBLE>, key STRING, at TIMESTAMP",
                value=Avro(json.dumps(new), registry),
                columns={"key": "key", "at": "timestamp"},
            )
            options = {**where, "topic": f"{topic}-out"}
            value = Avro(json.dumps(out), registry)
            job.sink("out", [items], format="kafka", options=options, value=value)

        make_topic(broker, f"{topic}-out")
        rows = [(number, {"k": n, "tags": {"é": n / 2}}) for n, number in enumerate(numbers * 3)]
        good = [
            HEADER.pack(0, number) + encoded(new if number == numbers[1] else old, row)
            for number, row in rows
        ]
        poison = [good[0][:-1], good[1] + b"x", b"", b"\0\0\0\1\1", b"{}"]
        send(broker, topic, [(n % 2, each) for n, each in enumerate([*good, *poison, None])])
        bench.run(build)
        bench.run(build)
        sent = committed_messages(broker, f"{topic}-out")
        number = registered(registry, f"{topic}-out", json.dumps(out))
    assert {HEADER.unpack_from(each) for each in sent} == {(0, number)}
    schema = fastavro.parse_schema(out)
    found = [fastavro.schemaless_reader(io.BytesIO(each[5:]), schema, None) for each in sent]
    assert sorted((row["k"], row["tags"]) for row in found) == [
        (row["k"], row["tags"] if number == numbers[1] else {}) for number, row in rows
    ]
    assert all(abs(row["at"].timestamp() - time.time()) < 600 for row in found)
    letters = [letter["record"] for letter in bench.dead_letters("out.1")]
    assert sorted(each.partition("base64 ")[2] for each in letters) == sorted(
        ["", *(b64encode(each).decode() for each in poison)]
    )


def total(item: DataFrame) -> DataFrame:
    return sql("SELECT k, sum(v) AS s, count(*) AS n FROM item GROUP BY k", item=item)


def _json_object(rng: random.Random, depth: int = 0) -> str:
    """An object with keys and values of every kind that JSON has."""
    plain = ["1", "-2.5e3", '"x"', '"}"', '"{"', '"\\\\""', '"]"', "null", "true", '"\u20ac"']
    values = [rng.choice(plain) for _ in range(rng.randrange(4))]
    if depth < 2 and rng.random() < 0.4:
        values.append(_json_object(rng, depth + 1))
    if rng.random() < 0.2:
        values.append(f"[{', '.join(rng.sample(plain, 2))}]")
    fields = [f'"{rng.choice("kvxy")}": {value}' for value in values]
    return "{" + ", ".join(fields) + "}"


def _damaged(rng: random.Random) -> bytes:
    """A value that may be one JSON object, several, none, or a part of one."""
    text = _json_object(rng)
    parts = ["{", "}", "[", "]", '"', ",", ":", " ", "\n", "1", "null", "x", "\ufeff", ",0]", "//"]
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(4):
            case 0:
                text = text[:at] + rng.choice(parts) + text[at:]
            case 1:
                text = text[:at] + text[at + 1 :]
            case 2:
                text += rng.choice(["", ",", " ", "\n", "]"]) + _json_object(rng)
            case 3:
                text += rng.choice(parts)
    return text.encode() + (b"\xff" if rng.random() < 0.02 else b"")


def _is_one_object(value: bytes) -> bool:
    try:
        return isinstance(json.loads(value.decode()), dict)
    except ValueError:
        return False


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_value_is_readable_that_is_one_json_object(spark: SparkSession) -> None:
    rng = random.Random(1)
    values = [_damaged(rng) for _ in range(20_000)]
    source = Source(name="s", format="kafka", value="json", ddl="k STRING, v STRING")
    rows = spark.createDataFrame([*enumerate(values)], "key INT, value BINARY")
    read = source._decoded(rows, source.schema(spark)).collect()
    assert len(read) == len(values)
    wrong = [
        value
        for value, row in zip(values, read, strict=True)
        if (row[UNREADABLE_TEXT] is None) != _is_one_object(value)
    ]
    assert not wrong
    assert 0.2 < sum(map(_is_one_object, values)) / len(values) < 0.8


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
    poison = [
        *(b"{poison", b"null", b" ", b"[]", b'{"k":1}{"k":1}', b'{"k":1},{"k":1}', b'{"k":1}]'),
        *(b'{"k":1},0]}', b'{"k":"x"}', b'{"k":1}\n{"k":1}', b'{"k":1} more'),
    ]
    others = [b"\xff", b'{"k":1, "x":"\xff"}', None]
    send(broker, topic, [*first, *((0, each) for each in poison + others)], by="a")
    send(broker, topic, [(1, record(k=1, count=5))], by="a")
    send(broker, topic, [(0, record(k=1, v=99))], by="b", commit=False)
    more = [record(k=1, v=10)[:-1] + b', "x": "}{ NaN", "y": -Infinity}\n', record(k=2, v=1)]
    send(broker, topic, [(1, each) for each in more], by="b")
    bench.run(build)
    assert bench.results() == []  # b has not voted
    send(broker, topic, [(0, record(k=1, count=1))], by="b")
    bench.run(build)
    assert bench.results() == [{"k": 1, "s": 20, "n": 6}]
    letters = bench.dead_letters("Total")
    assert {letter["reason"] for letter in letters} == {"unreadable"}
    encoded = [f"not UTF-8, base64 {b64encode(each).decode()}" for each in others[:2]]
    texts = [each.decode() for each in poison]
    none = "no value (a tombstone), key k"
    assert sorted(letter["record"] for letter in letters) == sorted([*texts, *encoded, none])
