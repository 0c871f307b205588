"""Endless input for the attacked job, made by a seed, and what must become of each record."""

from __future__ import annotations

import datetime
import enum
import json
import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.seal_attack import hostile
from benchmarks.seal_attack.job import MEMBERS
from flux_runtime.sealing.keys import KEY_BYTES_MAX
from flux_runtime.zookeeper.znode_names import partition_key

Key: TypeAlias = tuple[str, ...]
"""The texts of a partition's key: (k,) of `items`, (g, d) of `works`."""


class Kind(enum.Enum):
    """What a message is; the values are the reasons of dead letters that it may become."""

    RECORD = ("a record that was promised", ("discarded",))
    PROMISE = ("a punctuation", ())
    REPEAT = ("a record that came before, with its id", ("late", "discarded"))
    PROMISED_AGAIN = ("an equal punctuation", ())
    CONFLICT = ("another record with the same id", ("late", "discarded"))
    SURPLUS = ("a record more than promised", ("late", "discarded"))
    LATE = ("a record for a released partition", ("late", "discarded"))
    LATE_PROMISE = ("another punctuation for a released partition", ("late",))
    STRANGER = ("a record of a producer outside the set", ("unknown_producer", "late"))
    STRANGE_PROMISE = ("a punctuation of such a one", ("unknown_producer", "late"))
    NO_KEY = ("no key", ("no_key",))
    BAD_KEY = ("a key that cannot be one", ("bad_key",))
    NO_PRODUCER = ("no producer", ("no_producer",))
    BAD_PRODUCER = ("a name that cannot be one", ("bad_producer",))
    NO_COUNT = ("a punctuation without a count", ("no_count",))
    UNREADABLE = ("cannot be parsed", ("unreadable",))

    def __init__(self, _meaning: str, reasons: tuple[str, ...]) -> None:
        self.reasons = reasons


ALWAYS_DEAD: Final = frozenset(
    {
        Kind.STRANGER,
        Kind.STRANGE_PROMISE,
        Kind.NO_KEY,
        Kind.BAD_KEY,
        Kind.NO_PRODUCER,
        Kind.BAD_PRODUCER,
        Kind.NO_COUNT,
        Kind.UNREADABLE,
    }
)
BUFFERED: Final = frozenset({Kind.RECORD, Kind.REPEAT, Kind.CONFLICT, Kind.SURPLUS, Kind.LATE})
"""Records of members: they go out, unless they are late."""


@dataclass(eq=False, slots=True)
class Message:
    """A record or a punctuation. No two have the same `mark`, save for repeats."""

    mark: int
    kind: Kind
    row: dict[str, Any] | str
    partition: Partition | None = None
    producer: str = ""
    deliveries: int = 0


@dataclass(eq=False, slots=True)
class Partition:
    """A partition, and what was made for it."""

    stream: str
    key: Key
    members: tuple[str, ...]
    messages: list[Message] = field(default_factory=list)
    registered: bool = True
    """Its producers are known, where they are registered; else they are all members."""
    contradictory: bool = False
    """It may come into quarantine: something was sent that was not promised."""
    released: bool = False
    """That was seen after a run."""
    wrong_promise: str = ""
    """The producer who promised too many records, until it is put right."""

    @property
    def whole(self) -> bool:
        """All that was promised has been delivered, with the promises."""
        due = (Kind.RECORD, Kind.PROMISE)
        return not self.wrong_promise and all(m.deliveries for m in self.messages if m.kind in due)

    def marks(self, *kinds: Kind) -> set[int]:
        """Of the messages of these kinds that were delivered."""
        return {m.mark for m in self.messages if m.kind in kinds and m.deliveries}


class Traffic:
    """Makes messages, and writes them as files into the folders of the sources.

    Args:
        folder: of the job.
        seed: decides everything.
        hostile_keys: False: keys are short numbers.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.partitions: list[Partition] = []
        self.messages: dict[int, Message] = {}
        self.asks: dict[int, Key | None] = {}
        self.held: list[Message] = []
        self.kinds: dict[Kind, int] = dict.fromkeys(Kind, 0)
        self._keys: dict[str, set[Key]] = {"items": set(), "works": set()}
        self._files = 0
        self._marks = 0
        self.members = tuple(hostile.name(self.rng, number) for number in range(2))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MEMBERS).write_text(json.dumps(self.members))
        for stream in ("items", "works", "asks"):
            (folder / "data" / stream).mkdir(parents=True)
        self._register()

    # ---- what is sent

    def more(self, *, partitions: int = 3, hold: float = 0.4) -> None:
        """New partitions in both streams, some of which stay open, and what does not belong."""
        rng = self.rng
        for stream in ("items", "works"):
            due = [m for m in self.held if m.row and self._stream(m) == stream]
            due = [m for m in due if rng.random() < 0.3]
            self.held = [m for m in self.held if m not in due]
            for _ in range(rng.randint(1, partitions)):
                made = self._partition(stream)
                if rng.random() < hold:
                    kept = rng.sample(made, rng.randint(1, min(2, len(made))))
                    self.held += kept
                    made = [m for m in made if m not in kept]
                due += made
            due += self._misfits(stream)
            rng.shuffle(due)
            self._deliver(stream, due, files=rng.randint(1, 2))
        for partition in self.partitions:
            if not partition.registered and rng.random() < 0.3:
                partition.registered = True
        self._register()
        self._ask(rng.randint(0, 3))

    def complete(self) -> None:
        """Everything that was held back, so that all partitions become complete."""
        for partition in self.partitions:
            partition.registered = True
            if partition.wrong_promise:
                self._put_right(partition)
        self._register()
        for stream in ("items", "works"):
            due = [m for m in self.held if self._stream(m) == stream]
            self.rng.shuffle(due)
            self._deliver(stream, due, files=self.rng.randint(1, 2))
        self.held.clear()

    def promise_again(self, partition: Partition) -> None:
        """What every member has sent, promised once more: the newest promises, which are kept."""
        for member in partition.members:
            sent = [m for m in partition.messages if m.kind is Kind.RECORD and m.producer == member]
            self.held.append(self._message(Kind.PROMISE, partition, member, promised=len(sent)))

    def begin_anew(self) -> None:
        """The job begins from the sources: what was late may now come in time, as one too many."""
        for partition in self.partitions:
            partition.released = False
            if partition.marks(Kind.LATE, Kind.LATE_PROMISE):
                partition.contradictory = True

    def _partition(self, stream: str) -> list[Message]:
        """The messages of a new partition."""
        rng = self.rng
        if stream == "items":
            members = self.members
        else:
            members = tuple(hostile.name(rng, n) for n in range(rng.randint(1, 3)))
        partition = Partition(stream, self._key(stream), members)
        self.partitions.append(partition)
        if stream == "works":
            partition.registered = rng.random() < 0.8
        made = []
        for member in members:
            records = [
                self._message(Kind.RECORD, partition, member) for _ in range(rng.randint(0, 4))
            ]
            promised = len(records)
            if rng.random() < 0.04:
                partition.wrong_promise = member
                partition.contradictory = True
                promised += 1
            promise = self._message(Kind.PROMISE, partition, member, promised=promised)
            made += [*records, promise]
            if rng.random() < 0.1:
                made.append(self._again(Kind.PROMISED_AGAIN, promise))
            if rng.random() < 0.04:
                partition.contradictory = True
                made.append(self._message(Kind.SURPLUS, partition, member))
            if stream == "items" and records:
                made += [
                    self._again(Kind.REPEAT, rng.choice(records)) for _ in range(rng.randrange(3))
                ]
                if rng.random() < 0.04:
                    partition.contradictory = True
                    made.append(self._conflict(rng.choice(records)))
        if rng.random() < 0.3:
            stranger = self._stranger(partition)
            made += [self._message(Kind.STRANGER, partition, stranger)]
            if rng.random() < 0.5:
                made.append(self._message(Kind.STRANGE_PROMISE, partition, stranger, promised=1))
        return made

    def _misfits(self, stream: str) -> Iterator[Message]:
        """Late records, and what has no place."""
        rng = self.rng
        released = [p for p in self.partitions if p.released and p.stream == stream]
        for partition in rng.sample(released, min(len(released), rng.randrange(3))):
            member = rng.choice(partition.members)
            partition.contradictory = True  # where everything is done anew
            yield self._message(Kind.LATE, partition, member)
            if rng.random() < 0.3:
                yield self._message(Kind.LATE_PROMISE, partition, member, promised=77)
            records = [m for m in partition.messages if m.kind is Kind.RECORD]
            if stream == "items" and records:
                yield self._again(Kind.REPEAT, rng.choice(records))
        for kind in (
            Kind.NO_KEY,
            Kind.BAD_KEY,
            Kind.NO_PRODUCER,
            Kind.BAD_PRODUCER,
            Kind.NO_COUNT,
            *([Kind.UNREADABLE] if stream == "works" else []),
        ):
            if rng.random() < 0.15:
                yield self._misfit(kind, stream)

    def _misfit(self, kind: Kind, stream: str) -> Message:
        rng = self.rng
        nobody = Partition(stream, self._key(stream), self.members)
        message = self._message(kind, nobody, rng.choice(self.members))
        nobody.registered = False
        message.partition = None
        row = message.row
        assert isinstance(row, dict)
        of_key = "k" if stream == "items" else "g"
        if kind is Kind.NO_KEY:
            row[of_key if rng.random() < 0.5 or stream == "items" else "d"] = None
        elif kind is Kind.BAD_KEY:
            not_text = stream == "items" and rng.random() < 0.5
            row[of_key] = hostile.not_text(rng) if not_text else hostile.too_long(rng)
        elif kind is Kind.NO_PRODUCER:
            row["p"] = None
        elif kind is Kind.BAD_PRODUCER:
            not_text = stream == "items" and rng.random() < 0.5
            row["p"] = hostile.not_text(rng) if not_text else hostile.too_long(rng)
        elif kind is Kind.NO_COUNT:
            row |= {"sealed": True, "n": rng.choice([None, -1, -2, -3, -(2**63)])}
        else:
            message.row = f'{{"v": {message.mark}, "g": ' + rng.choice(["", '"x', "{", "]"])
        return message

    def _message(
        self, kind: Kind, partition: Partition, producer: str, *, promised: int | None = None
    ) -> Message:
        self._marks += 1
        mark = (self._marks << 20) + self.rng.randrange(1 << 20)
        row: dict[str, Any] = {"v": mark, "p": producer}
        if partition.stream == "items":
            (row["k"],) = partition.key
            row["rid"] = mark if self.rng.random() < 0.95 or promised is not None else None
        else:
            row["g"], row["d"] = partition.key
        if promised is not None:
            row |= {"sealed": True, "n": promised}
        message = Message(mark, kind, row, partition, producer)
        self.messages[mark] = message
        partition.messages.append(message)
        return message

    def _again(self, kind: Kind, message: Message) -> Message:
        """The same once more; a record without an id is no repeat, so it gets one."""
        assert isinstance(message.row, dict)
        if kind is Kind.REPEAT and message.row["rid"] is None:
            if message.deliveries:
                return self._again(Kind.PROMISED_AGAIN, self._promise_of(message))
            message.row["rid"] = message.mark
        return Message(message.mark, kind, message.row, message.partition, message.producer)

    def _promise_of(self, message: Message) -> Message:
        assert message.partition is not None
        return next(
            m
            for m in message.partition.messages
            if m.kind is Kind.PROMISE and m.producer == message.producer
        )

    def _conflict(self, record: Message) -> Message:
        assert record.partition is not None
        assert isinstance(record.row, dict)
        record.row["rid"] = record.mark
        message = self._message(Kind.CONFLICT, record.partition, record.producer)
        assert isinstance(message.row, dict)
        message.row["rid"] = record.mark
        return message

    def _put_right(self, partition: Partition) -> None:
        """The promise that was wrong, once more and right: the second one that differs."""
        member, partition.wrong_promise = partition.wrong_promise, ""
        kinds = (Kind.RECORD, Kind.SURPLUS, Kind.CONFLICT)
        of = [m for m in partition.messages if m.kind in kinds and m.producer == member]
        self.held.append(self._message(Kind.PROMISE, partition, member, promised=len(of)))

    def _stranger(self, partition: Partition) -> str:
        member = self.rng.choice(partition.members)
        while True:
            rng = self.rng
            name = hostile.variant(rng, member) if rng.random() < 0.5 else hostile.text(rng)
            if name not in partition.members:
                return name

    def _key(self, stream: str) -> Key:
        known = self._keys[stream]
        while True:
            others = [key[0] for key in known]
            if stream == "items":
                key: Key = (hostile.key(self.rng, others),)
            else:
                text = hostile.key(self.rng, others, KEY_BYTES_MAX - len("0001-01-01"))
                day = datetime.date(1, 1, 1) + datetime.timedelta(
                    self.rng.choice([0, 738_000, 738_001, 3_652_058])
                )
                key = (text, day.isoformat())
            if key not in known:
                known.add(key)
                return key

    def ask_again(self) -> None:
        """A request for every partition, so that everything that is kept for them is read."""
        self._ask_for([p.key for p in self.partitions if p.stream == "items"])

    def _ask(self, asks: int) -> None:
        rng = self.rng
        keys = [p.key for p in self.partitions if p.stream == "items"]
        self._ask_for([rng.choice(keys) if rng.random() < 0.9 else None for _ in range(asks)])

    def _ask_for(self, keys: list[Key | None]) -> None:
        rows = []
        for key in keys:
            number = len(self.asks) + 1
            self.asks[number] = key
            rows.append(json.dumps({"ask": number, "k": None if key is None else key[0]}))
        if rows:
            self._write_lines("asks", rows)

    # ---- files

    def _stream(self, message: Message) -> str:
        assert message.partition is not None
        return message.partition.stream

    def _deliver(self, stream: str, messages: list[Message], *, files: int) -> None:
        for part in range(files):
            some = messages[part::files]
            if not some:
                continue
            for message in some:
                self.messages[message.mark].deliveries += 1
                self.kinds[message.kind] += 1
            if stream == "items":
                self._write_parquet([m.row for m in some if isinstance(m.row, dict)])
            else:
                lines = [m.row if isinstance(m.row, str) else json.dumps(m.row) for m in some]
                self._write_lines(stream, lines)

    def _write_lines(self, stream: str, lines: list[str]) -> None:
        hidden, file = self._names(stream, "json")
        hidden.write_text("\n".join(lines) + "\n")
        self._put(hidden, file)

    def _write_parquet(self, rows: list[dict[str, Any]]) -> None:
        hidden, file = self._names("items", "parquet")
        columns: dict[str, Any] = {
            "rid": pa.array([row.get("rid") for row in rows], pa.int64()),
            "k": _strings([row["k"] for row in rows]),
            "v": pa.array([row["v"] for row in rows], pa.int64()),
            "p": _strings([row["p"] for row in rows]),
            "sealed": pa.array([row.get("sealed") for row in rows], pa.bool_()),
            "n": pa.array([row.get("n") for row in rows], pa.int64()),
        }
        pq.write_table(pa.table(columns), hidden)
        self._put(hidden, file)

    def _names(self, stream: str, suffix: str) -> tuple[Path, Path]:
        self._files += 1
        file = self.folder / "data" / stream / f"{self._files:06d}.{suffix}"
        return file.with_name(f".{file.name}"), file

    def _put(self, hidden: Path, file: Path) -> None:
        os.utime(hidden, (1_700_000_000 + self._files,) * 2)  # Spark takes the oldest first
        hidden.rename(file)

    def _register(self) -> None:
        """All partitions of `works` whose producers are known."""
        entries = [
            {"key": partition_key([p.key[1], p.key[0]]), "producers": p.members}
            for p in self.partitions
            if p.stream == "works" and p.registered
        ]
        (self.folder / "who.json").write_text(json.dumps(entries))


def _strings(values: list[str | bytes | None]) -> pa.Array:
    """Texts, valid or not."""
    raw = [v.encode() if isinstance(v, str) else v for v in values]
    binary = pa.array(raw, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(binary), binary.buffers(), binary.null_count)
