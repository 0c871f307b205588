"""Kafka as a source, where Spark's own jar of it is not at hand: over confluent-kafka.

The columns and the options are those of Spark's source: `subscribe` (topics, with commas between),
`startingOffsets` (`latest`, `earliest`, or JSON), `startingTimestamp`, `maxOffsetsPerTrigger`,
`failOnDataLoss`, and `kafka.` before any setting of librdkafka. Where a job begins to read is
resolved once and kept in its state (`began`). Only committed transactions are read, unless
`kafka.isolation.level` says otherwise. A partition that is new is read from its beginning. What was
deleted before it was read, with its topic or by retention, stops the query. So does a topic that
was made anew, however long it is by now: an offset carries the topics' ids, and digests of the last
messages before it, which are read again and compared (`MARKS`).
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
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

from flux_runtime.past_range import End, Offsets
from flux_runtime.sealing.storage import Storage, file_name

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

STARTS: Final = "starts"
"""In the state folder: where the job began to read each source."""
BEGIN: Final = "keptOffsets"
"""Option: where the job began, or a range of its own begins."""
END: Final = "endingOffsets"
"""Option: where a range ends; a query ends there, too."""
IDS: Final = "#ids"
MARKS: Final = "#marks"
"""In an offset, beside the topics, whose names have no `#`: topic -> its id, where the broker gives
one; and topic -> partition -> [offset, digest] of the last messages before the offset."""
CHECK_S: Final = 5.0
"""How often marks are compared and made anew, at most."""
_MARKS: Final = 3
_WINDOW: Final = 8
"""So many messages are marks, and so many offsets before the position are looked at for them."""
_AGAIN_S: Final = 0.5
_IDS_S: Final = 10.0
"""How long ids of topics are waited for; without them marks decide."""
_CALENDAR: Final = range(-62_135_596_800_000, 253_402_300_800_000)
"""Milliseconds since 1970 in the years 1 to 9999, which Python and tables have; producers may give
others, such as nanoseconds."""
_NO_ID: Final = "A" * 22
"""What brokers without ids give for one."""
_NOT_SUPPORTED: Final = ("startingOffsetsByTimestamp", "assign", "subscribePattern")
"""Options of Spark's source that say what is read, and that this one does not have."""


class KafkaSourceError(Exception):
    """A topic that cannot be read as it should be; the message says what to do."""


def format_of(session: SparkSession, *, ends: bool = False) -> str:
    """The format by which a session reads Kafka: Spark's own where its jar is there.

    Args:
        session: that reads.
        ends: whether it reads a range that ends somewhere, which Spark's own cannot.
    """
    jvm: Any = session._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_SPARKS_OWN)
    except Py4JJavaError:
        ends = True
    if not ends:
        return "kafka"
    session.dataSource.register(KafkaSource)
    return FORMAT


def began(state: Storage, source: str) -> Offsets | None:
    """Where a job began to read a source; None: it has not begun, or that was not kept."""
    text = state.read(f"{STARTS}/{file_name(source)}")
    offsets: Offsets | None = None if text is None else json.loads(text)
    return offsets


def begin(state: Storage, source: str, options: Mapping[str, str]) -> Offsets:
    """Resolve where a job begins to read a source, and keep it: it is resolved once."""
    reader = KafkaReader(options)
    offsets = began(state, source)
    if offsets is None or offsets.keys() != {*reader._topics()}:
        try:
            offsets = reader.resolved()
        finally:
            reader.stop()
        state.write(f"{STARTS}/{file_name(source)}", json.dumps(offsets).encode())
    return offsets


class KafkaSource(DataSource):
    """The format `blazes_kafka`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> str:
        """See `COLUMNS`."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> KafkaReader:  # noqa: N802
        """A reader of the topics."""
        return KafkaReader(dict(self.options))


@dataclass
class Slice(InputPartition):
    """The share of one task: messages of a partition, from an offset up to another."""

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
        unknown = [n for n in _NOT_SUPPORTED if n.lower() in self._options]
        if unknown:
            raise KafkaSourceError(f"{', '.join(unknown)}: only Spark's own Kafka source has that")
        missing = [n for n in ("kafka.bootstrap.servers", "subscribe") if n not in self._options]
        if missing:
            raise KafkaSourceError(f"a kafka source needs the options {missing}")
        self._target: Offsets | None = None
        self._newest: Offsets | None = None
        self._asking: Any = None
        """The driver's consumer, by which it asks for offsets."""
        self._compared: tuple[float, Any, set[tuple[str, str]]] = (0.0, None, set())
        """When marks were compared last, which, and the partitions that are others."""
        self._marked = 0.0

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
        offsets = self._offsets_of(BEGIN)
        if offsets is None:
            return self.resolved()
        if self._end is not None:
            return offsets
        low = self._watermarks(0)
        earliest = self._begins == "earliest"
        return {
            topic: {
                partition: max(offsets.get(topic, {}).get(partition, 0), first if earliest else 0)
                for partition, first in of_topic.items()
            }
            for topic, of_topic in low.items()
        }

    def resolved(self) -> Offsets:
        """Where a query would begin now, after its options."""
        if "startingtimestamp" in self._options:
            moment = int(self._options["startingtimestamp"])
            strategy = self._options.get("startingoffsetsbytimestampstrategy", "error").lower()
            return self.at(moment, else_latest=strategy == "latest")
        if self._begins in ("earliest", "latest"):
            return self._watermarks(0 if self._begins == "earliest" else 1)
        given: Offsets = json.loads(self._begins)
        ends = (self._watermarks(0), self._watermarks(1))
        return {
            topic: {
                partition: self._given(given, topic, partition, low, ends[1][topic][partition])
                for partition, low in of_topic.items()
            }
            for topic, of_topic in ends[0].items()
        }

    def at(self, moment_ms: int, *, else_latest: bool) -> Offsets:
        """The first offsets whose messages are not older than a moment; else where they end.

        Raises:
            KafkaSourceError: there is none in some partition, and the end is not wanted.
        """
        import confluent_kafka as kafka

        offsets = self._watermarks(1)
        places = [
            kafka.TopicPartition(topic, int(partition), moment_ms)
            for topic, of_topic in offsets.items()
            for partition in of_topic
        ]
        for offset in self._asking.offsets_for_times(places, TIMEOUT_S):
            if offset.error is not None:
                raise kafka.KafkaException(offset.error)
            if offset.offset >= 0:
                offsets[offset.topic][str(offset.partition)] = offset.offset
            elif not else_latest:
                raise KafkaSourceError(
                    f"partition {offset.partition} of topic {offset.topic} has no message from "
                    f"{datetime.fromtimestamp(moment_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC on. "
                    "Begin earlier, or set `startingOffsetsByTimestampStrategy: latest`"
                )
        return offsets

    def between(self, begin: End, end: End, job_began: Offsets) -> tuple[Offsets, Offsets]:
        """A range of messages as offsets of all partitions.

        Raises:
            ValueError: it is not there, or has not passed yet.
        """
        low, high = self._watermarks(0), self._watermarks(1)
        first, last = self._resolved(begin, low), self._resolved(end, job_began)
        if end is None:  # a partition that came later is the job's from its beginning
            last = {t: {p: last[t].get(p, 0) for p in of} for t, of in high.items()}
            first = {t: {p: min(n, last[t][p]) for p, n in of.items()} for t, of in first.items()}
        problems = []
        for topic, of_topic in high.items():
            for partition, upto in of_topic.items():
                place = f"partition {partition} of topic {topic}"
                one, two = first[topic].get(partition), last[topic].get(partition)
                if one is None or two is None:
                    problems.append(f"{place}: the range names no offset of it")
                elif two < one:
                    problems.append(f"{place}: the range ends at offset {two}, before {one}")
                elif two > upto or (one < low[topic][partition] and one < two):
                    there = f"{low[topic][partition]} to {upto}"
                    problems.append(f"{place} has the offsets {there}, not {one} to {two}")
        if problems:
            raise ValueError("\n".join(problems))
        return first, last

    def _resolved(self, end: End, otherwise: Offsets) -> Offsets:
        if isinstance(end, datetime):
            if end > datetime.now(UTC):
                raise ValueError(f"{end.isoformat()} is not over; a range is of the past")
            return self.at(round(end.timestamp() * 1000), else_latest=True)
        given = otherwise if end is None else end
        topics = self._topics()
        others = ", ".join(sorted(given.keys() - {*topics}))
        if others:
            raise ValueError(f"the source does not read the topic {others}")
        return {topic: dict(given.get(topic, {})) for topic in topics}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """See the option `maxOffsetsPerTrigger`."""
        most = self._options.get("maxoffsetspertrigger")
        return ReadAllAvailable() if most is None else ReadMaxRows(int(most))

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Take note of what there is."""
        self._target = self._watermarks(1)

    def latestOffset(self, start: Any, limit: ReadLimit) -> Any:  # noqa: N802
        """Up to where the next micro-batch reads; the same offset again where nothing is new."""
        end = self._limited(_positions(start), limit)
        return start if end == _positions(start) else {**end, **self._marks(start, end)}

    def _limited(self, start: Offsets, limit: ReadLimit) -> Offsets:
        end = self._end or self._target or self._watermarks(1)
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

    def partitions(self, start: Any, end: Any) -> Sequence[Slice]:
        """Slices to read between two offsets, one for each partition of a topic."""
        low, others = self._watermarks(0), self._others(start)
        start, end = _positions(start), _positions(end)
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
                elif (topic, partition) in others:
                    self._made_anew(topic, partition, begin)
                    begin = first
                if begin < upto:
                    slices.append(Slice(topic, int(partition), begin, upto))
        for topic, of_topic in start.items():
            for partition in sorted(of_topic.keys() - end.get(topic, {}).keys()):
                self._lost(topic, partition, of_topic[partition], 0)
        return slices

    # ---- whether a topic is still the one that was read

    def _others(self, start: Any) -> set[tuple[str, str]]:
        """The (topic, partition) of which something else is there than what was read."""
        known = {name: start[name] for name in (IDS, MARKS) if name in start}
        at, compared, others = self._compared
        if compared == known and time.monotonic() < at + CHECK_S:
            return others
        ids = self._ids() if IDS in known else {}
        others = {
            (topic, partition)
            for topic, was in known.get(IDS, {}).items()
            if ids.get(topic, was) != was
            for partition in start.get(topic, {})
        }
        marks = {
            (topic, partition): dict(of)
            for topic, of_topic in known.get(MARKS, {}).items()
            for partition, of in of_topic.items()
            if (topic, partition) not in others
        }
        windows = {place: (min(of), max(of) + 1) for place, of in marks.items()}
        for place, digests in self._digests(windows).items():
            if any(digests.get(at, digest) != digest for at, digest in marks[place].items()):
                others.add(place)
        self._compared = (time.monotonic(), known, others)
        return others

    def _marks(self, start: Any, end: Offsets) -> dict[str, Any]:
        """By what it will be known that what comes before an offset is still there."""
        others = self._others(start)
        known = {name: start[name] for name in (IDS, MARKS) if name in start}
        if not others and time.monotonic() < self._marked + CHECK_S:
            return known
        windows = {
            (topic, partition): (max(0, upto - _WINDOW), upto)
            for topic, of_topic in end.items()
            for partition, upto in of_topic.items()
        }
        marks: dict[str, dict[str, Any]] = {}
        for (topic, partition), digest in self._digests(windows).items():
            newest = [[offset, digest[offset]] for offset in sorted(digest)[-_MARKS:]]
            if not newest and (topic, partition) not in others:
                newest = known.get(MARKS, {}).get(topic, {}).get(partition, [])
            if newest:
                marks.setdefault(topic, {})[partition] = newest
        ids = self._ids()
        self._marked = time.monotonic()
        return {**({IDS: ids} if ids else {}), **({MARKS: marks} if marks else {})}

    def _ids(self) -> dict[str, str]:
        """Topic -> its id, of those that have one; a topic that is made anew gets another."""
        import confluent_kafka as kafka

        try:
            given = self._given_ids()
        except (kafka.KafkaException, TimeoutError):  # older brokers, and jobs that may not ask
            return {}
        return {topic: topic_id for topic, topic_id in given.items() if topic_id != _NO_ID}

    def _given_ids(self) -> dict[str, str]:
        """Topic -> what the broker gives for its id."""
        import confluent_kafka as kafka
        from confluent_kafka.admin import AdminClient

        asked = kafka.TopicCollection(self._topics())
        quiet = {**self._settings, "log_level": 3}  # settings of consumers are not its own
        admin = AdminClient(quiet)  # an answer comes only while it is there
        descriptions = admin.describe_topics(asked, request_timeout=_IDS_S)
        return {topic: str(of.result(2 * _IDS_S).topic_id) for topic, of in descriptions.items()}

    def _digests(
        self, windows: Mapping[tuple[str, str], tuple[int, int]]
    ) -> dict[tuple[str, str], dict[int, str]]:
        """The digests of the messages of some offsets, by offset; of those that are there."""
        import confluent_kafka as kafka

        try:
            return self._read_digests(windows)
        except kafka.KafkaException:  # a topic that was made anew is not there at once
            time.sleep(_AGAIN_S)
            return self._read_digests(windows)

    def _read_digests(
        self, windows: Mapping[tuple[str, str], tuple[int, int]]
    ) -> dict[tuple[str, str], dict[int, str]]:
        import confluent_kafka as kafka

        low, high = self._watermarks(0), self._watermarks(1)
        digests: dict[tuple[str, str], dict[int, str]] = {place: {} for place in windows}
        upto = {}
        places = []
        for (topic, partition), (begin, end) in windows.items():
            first, last = (of.get(topic, {}).get(partition, 0) for of in (low, high))
            if max(begin, first) < min(end, last):
                upto[topic, partition] = min(end, last)
                place = kafka.TopicPartition(topic, int(partition), max(begin, first))
                places.append(place)
        if not places:
            return digests
        small = {"fetch.message.max.bytes": 1 << 16, "enable.partition.eof": True}
        consumer = kafka.Consumer({**self._settings, **small})
        try:
            consumer.assign(places)
            deadline = time.monotonic() + TIMEOUT_S
            while upto and time.monotonic() < deadline:
                message = consumer.poll(0.1)
                if message is None:
                    continue
                error, at = message.error(), message.offset()
                if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
                    raise kafka.KafkaException(error)
                of = (str(message.topic()), str(message.partition()))
                end = upto.get(of, 0)
                if error is None and at is not None and at < end:
                    digests[of][at] = _digest(message)
                if error is not None or at is None or at >= end - 1:
                    upto.pop(of, None)
        finally:
            consumer.close()
        return digests

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
    def _begins(self) -> str:
        begins = self._options.get("startingoffsets", "latest")
        return begins.lower() if begins.lower() in ("earliest", "latest") else begins

    @property
    def _end(self) -> Offsets | None:
        """Where the range ends that is read; None: it goes on."""
        return self._offsets_of(END)

    def _offsets_of(self, option: str) -> Offsets | None:
        text = self._options.get(option.lower())
        offsets: Offsets | None = None if text is None else json.loads(text)
        return offsets

    def _topics(self) -> list[str]:
        return [*map(str.strip, self._options["subscribe"].split(","))]

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
                return {topic: self._watermarks_of(topic, which) for topic in self._topics()}
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

        description = self._asking.list_topics(topic, TIMEOUT_S).topics[topic]
        if description.error is not None or not description.partitions:
            raise KafkaSourceError(
                f"the topic {topic} is not there ({description.error}). If it was deleted, what "
                "was not read of it is lost: make it anew and start with --fresh, or take it out "
                "of `subscribe` and set `failOnDataLoss: false`"
            )
        return {
            str(partition): self._asking.get_watermark_offsets(
                kafka.TopicPartition(topic, partition), TIMEOUT_S
            )[which]
            for partition in sorted(description.partitions)
        }

    def _given(self, given: Offsets, topic: str, partition: str, low: int, high: int) -> int:
        """The offset in `startingOffsets` of a partition; -2 is the earliest, -1 the latest."""
        offset = given.get(topic, {}).get(partition, -1)
        return {-2: low, -1: high}.get(offset, offset)

    def _made_anew(self, topic: str, partition: str, position: int) -> None:
        if self._options.get("failondataloss", "true").lower() == "false":
            return
        raise KafkaSourceError(
            f"topic {topic} was made anew: partition {partition} was read up to offset {position}, "
            "and has other messages before it now, so that nobody knows which of those that are "
            "there were read. Start with --fresh (a range: under another name), or set "
            "`failOnDataLoss: false` to read it from its beginning"
        )

    def _lost(self, topic: str, partition: str, wanted: int, there: int) -> None:
        if self._options.get("failondataloss", "true").lower() == "false":
            return
        raise KafkaSourceError(
            f"partition {partition} of topic {topic} was read up to offset {wanted}, and what is "
            f"there goes from or up to {there}: messages were deleted before they were read, or "
            "the topic was made anew. Start with --fresh (a range: bring the rest in under another "
            "name), or set `failOnDataLoss: false` to go on without them"
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


def _positions(offset: Any) -> Offsets:
    """An offset without its marks."""
    return {topic: of for topic, of in offset.items() if topic[0] != "#"}


def _digest(message: Any) -> str:
    parts = (message.timestamp(), message.key(), message.value(), message.headers())
    return hashlib.blake2b(repr(parts).encode(), digest_size=8).hexdigest()


def _batch(messages: Sequence[Any]) -> pa.RecordBatch:
    stamps = [m.timestamp() for m in messages]  # of kind 0 where a message has none
    columns = {
        "key": [m.key() for m in messages],
        "value": [m.value() for m in messages],
        "topic": [m.topic() for m in messages],
        "partition": [m.partition() for m in messages],
        "offset": [m.offset() for m in messages],
        "timestamp": [at * 1000 if kind and at in _CALENDAR else None for kind, at in stamps],
        "timestampType": [kind - 1 for kind, _ in stamps],
        "headers": [
            None if m.headers() is None else [{"key": k, "value": v} for k, v in m.headers()]
            for m in messages
        ],
    }
    return pa.RecordBatch.from_pydict(columns, schema=_ARROW)
