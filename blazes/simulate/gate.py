"""A gate of a simulated run: the tracker and the census of a running job, without Spark.

It does what `flux_runtime.spark.sealed.gate` does with micro-batches, releases and crashes. Chunks
are lists, the ledger is the list of events, and who is registered is what has been delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from blazes.simulate.compiled import Gate, Origin
from blazes.simulate.messages import Message
from blazes.verify.records import Row
from flux_runtime.sealing.events import (
    Chunk,
    Count,
    Counted,
    Coverage,
    Event,
    Found,
    Ingested,
    KeyText,
    Release,
    ReleaseFinished,
    ReleaseStarted,
    Requested,
    Unneeded,
)
from flux_runtime.sealing.keys import key_text
from flux_runtime.sealing.tracker import Registered, Rules, Tracker
from flux_runtime.spark.feed import COUNT, DATA, PRODUCER
from flux_runtime.spark.sealed import chunks
from flux_runtime.spark.sealed.counting import RECORDS, SIZE

Handed: TypeAlias = Mapping[str, list[Row]]
"""Input of a gate -> records."""


class Enveloped(NamedTuple):
    """A record or a punctuation as a gate sees it."""

    texts: tuple[str | None, ...]
    """Of the key's values."""
    producer: str
    promises: int
    """`DATA`, or what the punctuation promises."""
    row: Row

    @property
    def key(self) -> KeyText | None:
        """Its partition; None where a value of the key is missing, and with it the partition."""
        known = [text for text in self.texts if text is not None]
        return key_text(known) if len(known) == len(self.texts) else None


class Put(NamedTuple):
    """The records that a release hands over."""

    released: tuple[Row, ...]
    """Key values."""
    whole: Handed
    """The records of these partitions."""
    visible: Handed
    """The records that the component sees."""
    asked: list[tuple[str, Row]]
    """The requests that it answers."""


def texts_of(value: Row) -> tuple[str | None, ...]:
    """The texts of a key's values."""
    return tuple(None if part is None else str(part) for part in value)


@dataclass
class Running:
    """A gate of one instance.

    Args:
        gate: as compiled.
        inputs: waiting input -> its origin, once for each instance that feeds it.
    """

    gate: Gate
    inputs: Mapping[str, Origin]
    journal: list[Event] = field(default_factory=list)
    tracker: Tracker = field(init=False)
    buffer: dict[tuple[str, int], list[Enveloped]] = field(default_factory=dict)
    last: dict[str, tuple[int, list[Enveloped]]] = field(default_factory=dict)
    """Input -> its last micro-batch."""
    registered: dict[str, dict[KeyText, tuple[str, ...]]] = field(default_factory=dict)
    values: dict[KeyText, Row] = field(default_factory=dict)
    committed: set[int] = field(default_factory=set)
    interrupted: bool = False
    """The next release is to be done twice, because of a crash in between."""

    def __post_init__(self) -> None:
        self.tracker = self._fresh()

    def _fresh(self) -> Tracker:
        return Tracker(
            Rules(
                inputs={name: origin.awaited for name, origin in self.inputs.items()},
                requests=self.gate.reads,
                identified=frozenset(n for n, origin in self.inputs.items() if origin.id),
            )
        )

    # ---- micro-batches

    def take(self, name: str, rows: Iterable[Enveloped]) -> None:
        """A micro-batch of a waiting input."""
        number, _ = self.last.get(name, (-1, []))
        self.last[name] = number + 1, list(rows)
        self._ingest(name)

    def ask(self, name: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """A micro-batch of requests."""
        number, _ = self.tracker.ingested.get(name, (-1, Coverage()))
        places = [columns.index(attribute) for attribute in self.gate.key]
        sent = [self._sent(tuple(row[n] for n in places), "", DATA, row) for row in rows]
        keys = Counter(envelope.key for envelope in sent if envelope.key is not None)
        self.buffer[name, number + 1] = sent
        chunk = Chunk("records", len(sent), len(keys))
        rejected = len(sent) - keys.total()
        covered = self._coverage(number + 1)
        event = Requested(name, number + 1, 0.0, dict(keys), rejected, covered, chunk)
        self._record(event)

    def register(self, name: str, value: Row) -> None:
        """The producers of a partition have been registered."""
        key = self._sent(value, "", DATA).key
        if key is not None:
            self.registered.setdefault(name, {})[key] = self.inputs[name].members(value)
        for stream, due in self.tracker.lookups_due().items():
            self._look_up(stream, due)

    def crash(self, name: str) -> None:
        """Forget what is not durable; the last micro-batch of an input comes again."""
        self._restart()
        self.interrupted = True
        if name in self.last:
            self._ingest(name)

    def complete(self, value: Row) -> bool:
        """Whether a partition has been released."""
        key = self._sent(value, "", DATA).key
        return key is not None and self.tracker.released.get(key) is not None

    def _ingest(self, name: str) -> None:
        number, rows = self.last[name]
        covered = self._coverage(number)
        if self.tracker.replayed(name, number, covered):  # SE-10
            return
        self.buffer[name, number] = [envelope for envelope in rows if envelope.promises == DATA]
        counted = self._census(rows)
        event = Ingested(
            name, number, 0.0, counted.groups, counted.rejected, covered, counted.chunk
        )
        self._look_up(name, self.tracker.sets_to_look_up(event))
        self._record(event)

    def _census(self, rows: Sequence[Enveloped]) -> chunks.Census:
        known = self.gate.counted
        held = tuple(sorted((envelope[:3] for envelope in rows), key=repr))
        if held not in known:
            known[held] = census(held, len(self.gate.key))
        counted: chunks.Census = known[held]
        return counted

    def _look_up(self, name: str, keys: Iterable[KeyText]) -> None:
        known = self.registered.get(name, {})
        registered = {key: known[key] for key in keys if key in known}
        if registered and isinstance(self.tracker.rules.inputs[name], Registered):
            self._record(Found(name, 0.0, registered))

    def _restart(self) -> None:
        self.tracker = self._fresh()
        for event in self.journal:
            self.tracker.handle(event)

    def _record(self, event: Event) -> None:
        self.journal.append(event)
        for finding in self.tracker.handle(event):
            if isinstance(finding, Unneeded):
                self.buffer.pop((finding.input, finding.batch), None)

    def _sent(self, value: Row, producer: str, count: int, row: Row = ()) -> Enveloped:
        sent = Enveloped(texts_of(value), producer, count, row)
        if sent.key is not None:
            self.values[sent.key] = value
        return sent

    def punctuation(self, message: Message, count: int) -> Enveloped:
        """A punctuation that promises so many records."""
        return self._sent(message.value, message.producer, count)

    def record(self, name: str, row: Row, producer: str | None = None) -> Enveloped:
        """A record of an input, from whoever sends it."""
        origin = self.inputs[name]
        who = producer or (str(origin.unit) if origin.unit else origin.producer(row))
        return self._sent(origin.value(row), who, DATA, row)

    @staticmethod
    def _coverage(number: int) -> Coverage:
        return Coverage("query", str(number - 1), str(number))

    # ---- releases

    def releases(self) -> Iterator[Put]:
        """Do every release that is due."""
        while True:
            self._count()
            release = self.tracker.next_release()
            if release is None:
                return
            if self.tracker.pending is None:
                self._record(ReleaseStarted(release, 0.0))
            put = self._put(release)
            if release.number not in self.committed:
                self.committed.add(release.number)
                yield put
            if self.interrupted:
                self.interrupted = False
                self._restart()
                continue
            self._record(ReleaseFinished(release.number, 0.0))

    def _count(self) -> None:
        """SE-1, D6: what has an id counts once."""
        for name, due in self.tracker.counts_due().items():
            for key, producers in due.items():
                rows = list(self._read(name, [key]))
                counts = {}
                for producer in producers:
                    own = [envelope.row for envelope in rows if envelope.producer == producer]
                    counts[producer] = Count(len(own), len(self._once(name, own)))
                self._record(Counted(name, key, 0.0, counts))

    def _put(self, release: Release) -> Put:
        asked = [
            (name, envelope.row)
            for name, wanted in release.answers.items()
            for key, batches in wanted.items()
            for batch in batches
            for envelope in self.buffer[name, batch]
            if envelope.key == key
        ]
        return Put(
            tuple(self.values[key] for key in release.keys),
            self._handed(release.keys),
            self._handed(release.process),
            asked,
        )

    def _handed(self, keys: Iterable[KeyText]) -> Handed:
        wanted = list(keys)
        return {
            name: self._once(name, [envelope.row for envelope in self._read(name, wanted)])
            for name in self.inputs
        }

    def _once(self, name: str, rows: Sequence[Row]) -> list[Row]:
        return once(self.inputs[name], rows)

    def _read(self, name: str, keys: Iterable[KeyText]) -> Iterator[Enveloped]:
        """The records of partitions, as they are read of chunks."""
        reading = self.tracker.reading(name, keys)
        excluded = set(reading.excluded)
        for number, of_chunk in reading.keys.items():
            complete, wanted = number in reading.whole, set(of_chunk)
            for envelope in self.buffer[name, number]:
                if (complete or envelope.key in wanted) and (
                    envelope.key,
                    envelope.producer,
                ) not in excluded:
                    yield envelope


def once(origin: Origin, rows: Iterable[Row]) -> list[Row]:
    """The records without those whose id came before."""
    distinct: list[Row] = []
    known: set[Row] = set()
    for row in rows:
        identity = origin.identity(row)
        if identity is None or (origin.value(row), identity) not in known:
            distinct.append(row)
        if identity is not None:
            known.add((origin.value(row), identity))
    return distinct


def census(held: Sequence[tuple[tuple[str | None, ...], str, int]], width: int) -> chunks.Census:
    """The census of a micro-batch, as the running job takes it; `width` is that of the key."""
    table = pa.table(
        {
            **{
                f"key {n}": pa.array([key[n] for key, _, _ in held], pa.string())
                for n in range(width)
            },
            PRODUCER: pa.array([producer for _, producer, _ in held], pa.string()),
            COUNT: pa.array([count for _, _, count in held], pa.int64()),
        }
    )
    names = table.column_names
    counted = table.group_by(names, use_threads=False).aggregate([([], "count_all")])
    columns = [counted.column(name) for name in (*names, "count_all", "count_all")]
    return chunks.census_of(pa.table(columns, names=[*names, RECORDS, SIZE]), width, "records", {})


@dataclass
class Omniscient:
    """The gate as it should be: it hands over everything, when nothing more can come.

    Args:
        judge: knows what has a key.
        announced: the partitions that there are; nobody waits for others.
    """

    judge: Running
    announced: Collection[Row]
    held: dict[str, list[Row]] = field(default_factory=dict)
    shown: dict[str, list[Row]] = field(default_factory=dict)
    asked: list[tuple[str, Row]] = field(default_factory=list)

    def take(self, name: str, rows: Iterable[Enveloped]) -> None:
        """See `Running`."""
        data = [
            envelope.row
            for envelope in rows
            if envelope.promises == DATA and envelope.key is not None
        ]
        self.held.setdefault(name, []).extend(data)

    def ask(self, name: str, rows: Sequence[Row], columns: Sequence[str]) -> None:
        """See `Running`."""
        places = [columns.index(attribute) for attribute in self.judge.gate.key]
        self.asked += [
            (name, row) for row in rows if tuple(row[n] for n in places) in self.announced
        ]

    @property
    def waits(self) -> bool:
        """Whether it holds anything back."""
        return any(self.held.values()) or bool(self.asked)

    def put(self) -> Put:
        """Everything."""
        handed, self.held = self.held, {}
        values = {
            self.judge.inputs[name].value(row): None
            for name, rows in handed.items()
            for row in rows
        }
        for name, rows in handed.items():
            self.shown.setdefault(name, []).extend(rows)
        asked, self.asked = self.asked, []
        return Put(tuple(values), handed, self.shown, asked)
