"""Topics of Kafka: rows that are committed exactly once, by Kafka's transactions.

Every unit that writes to a sink has a transactional id. One transaction holds the rows of a commit
and its number, which is kept as the offset of a consumer group of that name in the topic's first
partition, with the state and the driver's epoch in the offset's metadata. A driver that takes the
topic over begins with `init_transactions`, which fences the driver before: nothing that this one
has sent, or sends when it wakes up, is ever committed.

Consumers see each row once where they read with `isolation.level=read_committed`. A broker forgets
the offsets of groups that nobody uses (`offsets.retention.minutes`, a week): a job that stands
still for longer is refused, as it cannot be told any more what it has written.

The columns are those of Spark's own Kafka sink: `value`, and where they are there `key`, `headers`,
`partition` and `topic`. Rows without a column `value` are sent as JSON objects; with a schema of
Avro's, all other columns are the value.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql import types as st

from flux_runtime.commits.owner import Ownership
from flux_runtime.spark import faults
from flux_runtime.spark.ends.avro import Avro, AvroError
from flux_runtime.spark.ends.sinks import Claim, Note, SinkError, covers_digest, package
from flux_runtime.spark.frames import column

ATTEMPTS: Final = 5
"""So often a transaction is tried that the broker or the network has ended."""
TIMEOUT_S: Final = 60.0
"""How long the broker is waited for."""
DEFAULTS: Final[Mapping[str, Any]] = {
    "transaction.timeout.ms": 900_000,  # the most that a broker allows by default
    "linger.ms": 50,
    "compression.type": "lz4",
}
"""Settings of the producer that the options of the sink win over."""
MESSAGE: Final = ("topic", "partition", "key", "value", "headers")
"""The columns that a message is made of, as Spark's own Kafka sink calls them."""

Message = tuple[str | None, int | None, Any, Any, Any]
"""See `MESSAGE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that a sink sends rows to.

    Args:
        name: of the sink.
        options: as for Spark's own sink: `kafka.bootstrap.servers`, `topic`, and `kafka.` before
            any setting of librdkafka.
        value: what values are, where they are in Avro.
        ownership: the driver's claim; without one nothing can be committed.
        producers: unit -> its producer, once it is taken over.
        groups: unit -> the consumer by which its notes are read and written.
    """

    exact: ClassVar[bool] = True
    needs_channel: ClassVar[bool] = True
    name: str
    options: Mapping[str, str] = field(repr=False)
    value: Avro | None = None
    ownership: Ownership | None = None
    producers: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    groups: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        missing = [
            option for option in ("kafka.bootstrap.servers", "topic") if option not in self.options
        ]
        if missing:
            raise ValueError(f"sink {self.name}: a kafka sink needs the options {missing}")

    @property
    def target(self) -> str:
        """The topic, which also holds the numbers of the commits."""
        return self.options["topic"]

    @property
    def place(self) -> str:
        """The name that messages have for it."""
        return f"topic {self.target}"

    # ---- taking over

    def taken(self, session: SparkSession, ownership: Ownership, units: Iterable[str]) -> Topic:
        """See `CommitSink`."""
        mine = replace(self, ownership=ownership, producers={}, groups={})
        for unit in units:
            mine._take(unit)
        return mine

    def _take(self, unit: str) -> None:
        kafka = self._kafka
        claim = self._claim
        claim.begins(self._note(unit), unit)  # refused before anybody is fenced
        try:
            producer = kafka.Producer(
                {**DEFAULTS, **self._settings, "transactional.id": claim.writer(unit)}
            )
            producer.init_transactions(TIMEOUT_S)
        except kafka.KafkaException as error:
            raise self._refused(f"no transactions with {self.place}", error) from None
        self.producers[unit] = producer
        note = self._note(unit)  # nobody else can change it from now
        begins = claim.begins(note, unit)
        newest = (-1, "") if begins or note is None else (note.number, note.covers)
        self._transact(unit, (), *newest)

    # ---- commits

    def newest(self, unit: str) -> int | None:
        """See `CommitSink`."""
        note = self._note(unit)
        return None if note is None or note.number < 0 else note.number

    def commit(self, unit: str, number: int, rows: DataFrame, *, covers: Any = None) -> int:
        """See `CommitSink`."""
        try:
            messages = Messages(rows, self.value, self.target)
        except (AvroError, MessageError) as error:
            raise SinkError(f"sink {self.name}: {error}") from None
        return self.send(unit, number, messages, covers)

    def send(self, unit: str, number: int, messages: Iterable[Message], covers: Any = None) -> int:
        """A commit of messages, which are gone through once for each attempt; see `CommitSink`."""
        digest = covers_digest(covers)
        self._owner.fence.check()
        if self._claim.is_made(self._note(unit), unit, number, digest):
            self._claim.note_commit(unit, number)
            return 0
        faults.point("topic-begun")
        count = self._transact(unit, messages, number, digest)
        faults.point("topic-committed")
        self._claim.note_commit(unit, number)
        return count

    def _transact(self, unit: str, messages: Iterable[Message], number: int, covers: str) -> int:
        """Send messages and the number of the commit in one transaction; how many there are."""
        kafka = self._kafka
        producer = self.producers[unit]
        for attempt in range(ATTEMPTS):
            try:
                producer.begin_transaction()
                count = self._send(producer, messages)
                self._note_down(producer, unit, number, covers)
                if number >= 0:
                    producer.flush(TIMEOUT_S)
                    faults.point("topic-sent")
                self._finish(producer)
                return count
            except kafka.KafkaException as error:
                problem = error.args[0]
                if problem.fatal():
                    if problem.code() in _fenced(kafka):
                        raise self._claim.replaced(self._note(unit)) from None
                    raise self._refused(f"{self.place} does not go on", error) from None
                if problem.txn_requires_abort():
                    producer.abort_transaction(TIMEOUT_S)
                if attempt == ATTEMPTS - 1 or not problem.txn_requires_abort():
                    problem_text = f"{self.place} did not take commit {number} of {unit}"
                    raise self._refused(problem_text, error) from None
            except Exception:  # of the rows: consumers are not to wait for the end of this
                with contextlib.suppress(kafka.KafkaException):
                    producer.abort_transaction(TIMEOUT_S)
                raise
        raise AssertionError("unreachable")

    def _send(self, producer: Any, messages: Iterable[Message]) -> int:
        count = 0
        for topic, partition, key, value, headers in messages:
            more = {} if partition is None else {"partition": partition}
            while True:
                try:
                    producer.produce(
                        topic or self.target, value=value, key=key, headers=headers, **more
                    )
                    break
                except BufferError:  # what is on its way goes first
                    producer.poll(1)
            producer.poll(0)
            count += 1
        return count

    def _note_down(self, producer: Any, unit: str, number: int, covers: str) -> None:
        kafka, claim = self._kafka, self._claim
        says = {"state": claim.state, "epoch": claim.epoch, "covers": covers}
        note = kafka.TopicPartition(self.target, 0, number + 1, json.dumps(says))
        group = self._group(unit).consumer_group_metadata()
        producer.send_offsets_to_transaction([note], group, TIMEOUT_S)

    def _finish(self, producer: Any) -> None:
        """Commit; an answer that was lost is asked for again."""
        kafka = self._kafka
        for attempt in range(ATTEMPTS):
            try:
                producer.commit_transaction(TIMEOUT_S)
                return
            except kafka.KafkaException as error:
                if not error.args[0].retriable() or attempt == ATTEMPTS - 1:
                    raise

    # ---- notes

    def _note(self, unit: str) -> Note | None:
        kafka = self._kafka
        place = kafka.TopicPartition(self.target, 0)
        try:
            (committed,) = self._group(unit).committed([place], TIMEOUT_S)
        except kafka.KafkaException as error:
            raise self._refused(f"no connection to {self.place}", error) from None
        if committed.error is not None or committed.offset < 0 or not committed.metadata:
            return None
        says = json.loads(committed.metadata)
        return Note(says["state"], says["epoch"], committed.offset - 1, says["covers"])

    def _group(self, unit: str) -> Any:
        if unit not in self.groups:
            named = {"group.id": self._claim.writer(unit), "enable.auto.commit": False}
            self.groups[unit] = self._kafka.Consumer({**self._settings, **named})
        return self.groups[unit]

    # ---- parts

    @property
    def _settings(self) -> dict[str, Any]:
        """Settings of librdkafka: the options that begin with `kafka.`."""
        given = self.options.items()
        return {n.removeprefix("kafka."): text for n, text in given if n.startswith("kafka.")}

    @property
    def _kafka(self) -> Any:
        return package("confluent_kafka", "kafka", sink=self.name)

    @property
    def _owner(self) -> Ownership:
        if self.ownership is None:
            raise ValueError(f"nobody owns {self.target}")
        return self.ownership

    @property
    def _claim(self) -> Claim:
        return Claim(self.name, self.place, self._owner, "the broker")

    def _refused(self, problem: str, error: Exception) -> SinkError:
        return SinkError(
            f"sink {self.name}: {problem}: {error.args[0].str()}. Look at the options and at the "
            "broker; nothing was committed, and the rows are kept in the state"
        )


_KINDS: Final = {
    "topic": "STRING",
    "partition": "INT",
    "key": "STRING or BINARY",
    "value": "STRING or BINARY",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
}
"""Part of a message -> what a column for it has to be."""


class MessageError(Exception):
    """A column that is no part of a message, for all that it is called."""


def _is_part(part: str, of: st.DataType) -> bool:
    """Whether the values of a type can be a part of a message."""
    match part, of:
        case _, st.NullType():
            return True
        case "topic", st.StringType():
            return True
        case "partition", st.IntegralType():
            return True
        case "key" | "value", st.StringType() | st.BinaryType():
            return True
        case "headers", st.ArrayType(elementType=st.StructType(fields=[key, value])):
            named = (key.name.lower(), value.name.lower()) == ("key", "value")
            return named and _is_part("topic", key.dataType) and _is_part("value", value.dataType)
    return False


class Messages:
    """The rows of a frame as messages, as often as they are gone through."""

    def __init__(self, rows: DataFrame, avro: Avro | None = None, topic: str = "") -> None:
        names = {name.lower(): name for name in reversed(rows.columns)}  # in any case, as in SQL
        parts = {part: names[part] for part in MESSAGE if part in names}
        if avro is not None:
            parts.pop("value", None)
            record = rows.drop(*parts.values())
            row = sf.struct(*map(column, record.columns))
            value = avro.encoded(row, record.schema, topic).alias("value")
            rows = rows.select(*map(column, parts.values()), value)
            parts["value"] = "value"
        elif "value" not in parts:
            rows = rows.select(sf.to_json(sf.struct("*")).alias("value"))
            parts = {"value": "value"}
        for part, name in parts.items():
            of = rows.schema[name].dataType
            if not _is_part(part, of):
                raise MessageError(
                    f"column {name} is {of.simpleString().upper()}; as the {part} of a message it "
                    f"has to be {_KINDS[part]}. CAST it in the component"
                )
        null = sf.lit(None)
        columns = [sf.col(column(parts[n])) if n in parts else null for n in MESSAGE]
        self._rows = rows.select(*(of.alias(n) for of, n in zip(columns, MESSAGE, strict=True)))

    def __iter__(self) -> Iterator[Message]:
        for topic, partition, key, value, headers in self._rows.toLocalIterator():
            yield topic, partition, _bytes(key), _bytes(value), _headers(headers)


def _headers(headers: Any) -> list[tuple[str, bytes | None]] | None:
    return None if headers is None else [(key, _bytes(value)) for key, value in headers]


def _bytes(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def _fenced(kafka: Any) -> tuple[int, ...]:
    codes = kafka.KafkaError
    return (codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH)
