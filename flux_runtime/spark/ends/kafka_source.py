"""Kafka as a source, where Spark's own jar of it is not at hand: over confluent-kafka.

The columns and the options are those of Spark's source: `subscribe` (topics, with commas between),
`startingOffsets` (`latest`, `earliest`, or JSON), `maxOffsetsPerTrigger`, `failOnDataLoss`, and
`kafka.` before any setting of librdkafka. Only committed transactions are read, unless
`kafka.isolation.level` says otherwise. A partition that is new is read from its beginning. What was
deleted before it was read, with its topic or by retention, stops the query.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

FORMAT: Final = "blazes_kafka"
COLUMNS: Final = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, "
    "timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)
TIMEOUT_S: Final = 60.0
"""How long the broker is waited for."""
BATCH: Final = 10_000
"""Messages that are handed to Spark together."""
_SPARKS_OWN: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
_ARROW: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)

Offsets = dict[str, dict[str, int]]
"""Topic -> partition, as text -> the next offset to read."""


class KafkaSourceError(Exception):
    """A topic that cannot be read as it should be; the message says what to do."""


def format_of(session: SparkSession) -> str:
    """The format by which a session reads Kafka: Spark's own where its jar is there."""
    jvm: Any = session._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_SPARKS_OWN)
    except Py4JJavaError:
        session.dataSource.register(KafkaSource)
        return FORMAT
    return "kafka"


class KafkaSource(DataSource):
    """The format `blazes_kafka`."""

    @classmethod
    def name(cls) -> str:
        """What it is called."""
        return FORMAT

    def schema(self) -> str:
        """See `COLUMNS`."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> KafkaReader:  # noqa: N802
        """A reader of the topics."""
        return KafkaReader(dict(self.options))


@dataclass
class Slice(InputPartition):
    """What one task reads: messages of a partition, from an offset up to another."""

    topic: str
    partition: int
    start: int
    end: int


class KafkaReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics between offsets.

    Args:
        options: of the source; names in lower case.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): text for name, text in options.items()}
        missing = [n for n in ("kafka.bootstrap.servers", "subscribe") if n not in self._options]
        if missing:
            raise KafkaSourceError(f"a kafka source needs the options {missing}")
        self._target: Offsets | None = None
        self._newest: Offsets | None = None

    # ---- offsets

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Where a new query begins."""
        begins = self._options.get("startingoffsets", "latest")
        if begins.lower() in ("earliest", "latest"):
            at = 0 if begins.lower() == "earliest" else 1
            return self._watermarks(at)
        given: Offsets = json.loads(begins)
        ends = (self._watermarks(0), self._watermarks(1))
        return {
            topic: {
                partition: self._given(given, topic, partition, low, ends[1][topic][partition])
                for partition, low in of_topic.items()
            }
            for topic, of_topic in ends[0].items()
        }

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """See the option `maxOffsetsPerTrigger`."""
        most = self._options.get("maxoffsetspertrigger")
        return ReadAllAvailable() if most is None else ReadMaxRows(int(most))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take note of what there is."""
        self._target = self._watermarks(1)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Up to where the next micro-batch reads."""
        end = self._watermarks(1) if self._target is None else self._target
        self._newest = end
        if not isinstance(limit, ReadMaxRows):
            return end
        waiting = {
            (topic, partition): upto - start.get(topic, {}).get(partition, 0)
            for topic, of_topic in end.items()
            for partition, upto in of_topic.items()
        }
        total = sum(max(0, count) for count in waiting.values())
        if total <= limit.max_rows:
            return end
        return {
            topic: {
                partition: upto
                - waiting[topic, partition]
                + max(1, waiting[topic, partition] * limit.max_rows // total)
                if waiting[topic, partition] > 0
                else upto
                for partition, upto in of_topic.items()
            }
            for topic, of_topic in end.items()
        }

    def reportLatestOffset(self) -> Offsets | None:  # noqa: N802
        """The end of the topics when it was last asked for, for those who watch the query."""
        return self._newest

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[Slice]:
        """What is read between two offsets, one slice for each partition of a topic."""
        low = self._watermarks(0)
        slices = []
        for topic, of_topic in end.items():
            for partition, upto in of_topic.items():
                begin = start.get(topic, {}).get(partition, 0)
                first = low.get(topic, {}).get(partition, 0)
                is_new = partition not in start.get(topic, {})
                if (begin < first and not is_new) or begin > upto:
                    self._lost(topic, partition, begin, first if begin < first else upto)
                begin = max(begin, first)
                if begin < upto:
                    slices.append(Slice(topic, int(partition), begin, upto))
        for topic in start.keys() - end.keys():
            self._lost(topic, "0", min(start[topic].values(), default=0), 0)
        return slices

    # ---- messages

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a slice; runs on an executor."""
        import confluent_kafka as kafka

        assert isinstance(partition, Slice)
        consumer = kafka.Consumer({**self._settings, "enable.partition.eof": True})
        place = kafka.TopicPartition(partition.topic, partition.partition, partition.start)
        consumer.assign([place])
        try:
            rows: list[Any] = []
            for message in _messages(consumer, partition):
                rows.append(message)
                if len(rows) >= BATCH:
                    yield _batch(rows)
                    rows = []
            if rows:
                yield _batch(rows)
        finally:
            consumer.close()

    # ---- parts

    @property
    def _settings(self) -> dict[str, Any]:
        given = {
            name.removeprefix("kafka."): text
            for name, text in self._options.items()
            if name.startswith("kafka.")
        }
        usual = {"isolation.level": "read_committed", "group.id": "blazes-source"}
        return {**usual, **given, "enable.auto.commit": False, "auto.offset.reset": "error"}

    def _watermarks(self, which: int) -> Offsets:
        """The first (0) or the next (1) offset of every partition of the topics."""
        import confluent_kafka as kafka

        consumer = kafka.Consumer(self._settings)
        try:
            offsets: Offsets = {}
            for topic in map(str.strip, self._options["subscribe"].split(",")):
                found = consumer.list_topics(topic, TIMEOUT_S).topics[topic]
                if found.error is not None or not found.partitions:
                    raise KafkaSourceError(
                        f"the topic {topic} is not there ({found.error}). If it was deleted, what "
                        "was not read of it is lost: make it anew and start with --fresh, or take "
                        "it out of `subscribe`"
                    )
                offsets[topic] = {
                    str(partition): consumer.get_watermark_offsets(
                        kafka.TopicPartition(topic, partition), TIMEOUT_S
                    )[which]
                    for partition in sorted(found.partitions)
                }
            return offsets
        except kafka.KafkaException as error:
            raise KafkaSourceError(
                f"no connection to {self._options['kafka.bootstrap.servers']}: "
                f"{error.args[0].str()}. Look at the options that begin with `kafka.`"
            ) from None
        finally:
            consumer.close()

    def _given(self, given: Offsets, topic: str, partition: str, low: int, high: int) -> int:
        """What `startingOffsets` says of a partition; -2 is the earliest, -1 the latest."""
        offset = given.get(topic, {}).get(partition, -1)
        return {-2: low, -1: high}.get(offset, offset)

    def _lost(self, topic: str, partition: str, wanted: int, there: int) -> None:
        if self._options.get("failondataloss", "true").lower() == "false":
            return
        raise KafkaSourceError(
            f"partition {partition} of topic {topic} was read up to offset {wanted}, and what is "
            f"there goes from or up to {there}: messages were deleted before they were read, or "
            "the topic was made anew. Start with --fresh, or set `failOnDataLoss: false` to go on "
            "without them"
        )


def _messages(consumer: Any, part: Slice) -> Iterator[Any]:
    """The messages of a slice, one after the other.

    Raises:
        KafkaSourceError: the broker does not give all of them.
    """
    from confluent_kafka import KafkaError, KafkaException

    reached, deadline = part.start, time.monotonic() + TIMEOUT_S
    while reached < part.end:
        for message in consumer.consume(BATCH, 0.1):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                raise KafkaException(error)
            deadline = time.monotonic() + TIMEOUT_S
            if error is not None:  # what is left up to there are marks of transactions
                reached = max(reached, message.offset())
                continue
            if message.offset() >= part.end:
                return
            reached = message.offset() + 1
            yield message
        if time.monotonic() > deadline:
            raise KafkaSourceError(
                f"partition {part.partition} of topic {part.topic} gives nothing after offset "
                f"{reached}, and was to give all before {part.end}"
            )


def _batch(messages: Sequence[Any]) -> pa.RecordBatch:
    columns = {
        "key": [m.key() for m in messages],
        "value": [m.value() for m in messages],
        "topic": [m.topic() for m in messages],
        "partition": [m.partition() for m in messages],
        "offset": [m.offset() for m in messages],
        "timestamp": [m.timestamp()[1] * 1000 for m in messages],
        "timestampType": [m.timestamp()[0] - 1 for m in messages],
        "headers": [
            None if m.headers() is None else [{"key": k, "value": v} for k, v in m.headers()]
            for m in messages
        ],
    }
    return pa.RecordBatch.from_pydict(columns, schema=_ARROW)
