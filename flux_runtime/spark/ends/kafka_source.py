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
        self._asking: Any = None
        """The driver's consumer, by which it asks for offsets."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_asking": None}  # tasks have consumers of their own

    def stop(self) -> None:
        """The query has ended."""
        if self._asking is not None:
            self._asking.close()
            self._asking = None

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
            known = start.get(topic)
            for partition, upto in of_topic.items():
                first = low.get(topic, {}).get(partition, 0)
                # a topic is taken as it is found; a partition of a known one begins with 0
                begin = first if known is None else known.get(partition, 0)
                if begin < first or begin > upto:
                    self._lost(topic, partition, begin, first if begin < first else upto)
                    begin = first
                if begin < upto:
                    slices.append(Slice(topic, int(partition), begin, upto))
        for topic, of_topic in start.items():
            for partition in sorted(of_topic.keys() - end.get(topic, {}).keys()):
                self._lost(topic, partition, of_topic[partition], 0)
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

        for again in (True, False):
            try:
                if self._asking is None:
                    self._asking = kafka.Consumer(self._settings)
                topics = map(str.strip, self._options["subscribe"].split(","))
                return {topic: self._watermarks_of(topic, which) for topic in topics}
            except kafka.KafkaException as error:
                self.stop()  # it may know a topic that was made anew by its old partitions
                if not again:
                    raise KafkaSourceError(
                        f"no connection to {self._options['kafka.bootstrap.servers']}: "
                        f"{error.args[0].str()}. Look at the options that begin with `kafka.`"
                    ) from None
        raise AssertionError("unreachable")

    def _watermarks_of(self, topic: str, which: int) -> dict[str, int]:
        import confluent_kafka as kafka

        found = self._asking.list_topics(topic, TIMEOUT_S).topics[topic]
        if found.error is not None or not found.partitions:
            raise KafkaSourceError(
                f"the topic {topic} is not there ({found.error}). If it was deleted, what was not "
                "read of it is lost: make it anew and start with --fresh, or take it out of "
                "`subscribe` and set `failOnDataLoss: false`"
            )
        return {
            str(partition): self._asking.get_watermark_offsets(
                kafka.TopicPartition(topic, partition), TIMEOUT_S
            )[which]
            for partition in sorted(found.partitions)
        }

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
        for message in consumer.consume(min(BATCH, part.end - reached), 0.1):
            error = message.error()
            if error is not None and error.code() in (
                KafkaError.OFFSET_OUT_OF_RANGE,
                KafkaError._AUTO_OFFSET_RESET,
            ):
                raise KafkaSourceError(
                    f"partition {part.partition} of topic {part.topic} has lost what was to be "
                    f"read from offset {reached} on: messages were deleted before they were read. "
                    "Start the job again, which says what is there"
                )
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
    stamps = [m.timestamp() for m in messages]  # of kind 0 where a message has none
    columns = {
        "key": [m.key() for m in messages],
        "value": [m.value() for m in messages],
        "topic": [m.topic() for m in messages],
        "partition": [m.partition() for m in messages],
        "offset": [m.offset() for m in messages],
        "timestamp": [at * 1000 if kind else None for kind, at in stamps],
        "timestampType": [kind - 1 for kind, _ in stamps],
        "headers": [
            None if m.headers() is None else [{"key": k, "value": v} for k, v in m.headers()]
            for m in messages
        ],
    }
    return pa.RecordBatch.from_pydict(columns, schema=_ARROW)
