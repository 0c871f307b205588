"""Events of a gate, and the findings that follow from them, as values.

Events go into `Tracker.handle`; findings come out of it.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias, get_args, overload

KeyText: TypeAlias = str
"""A key value as text; `flux_runtime.sealing.keys` says how."""


class Group(NamedTuple):
    """The records of one micro-batch that agree in key, producer and punctuation."""

    key: KeyText
    producer: str
    promised: int | None
    """What the punctuation promises; None: these are data records."""
    digest: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class Groups(Sequence[Group]):
    """The groups of one micro-batch in columns: there is one for each key and producer.

    Those of a key stand together, those of records before those of punctuations.
    """

    keys: Sequence[KeyText]
    """Each once."""
    starts: Sequence[int]
    """Where the groups of each key begin, and the number of groups."""
    middles: Sequence[int]
    """Where the punctuations of each key begin."""
    producers: Sequence[str]
    promised: Sequence[int | None]
    digests: Sequence[str | None]
    rows: Sequence[int]

    @classmethod
    def of(cls, groups: Iterable[Group]) -> Groups:
        """Groups in any order.

        >>> groups = Groups.of([Group("k", "a", 1, None, 1), Group("k", "a", None, None, 1)])
        >>> groups.keys, groups.starts, groups.middles, groups.promised
        (['k'], [0, 2], [1], [None, 1])
        """
        by_key: dict[KeyText, tuple[list[Group], list[Group]]] = {}
        for group in groups:
            by_key.setdefault(group.key, ([], []))[group.promised is not None].append(group)
        starts, middles, every = [0], [], list[Group]()
        for records, punctuations in by_key.values():
            middles.append(len(every) + len(records))
            every += records + punctuations
            starts.append(len(every))
        _, producers, promised, digests, rows = zip(*every, strict=True) if every else ((),) * 5
        return cls([*by_key], starts, middles, [*producers], [*promised], [*digests], [*rows])

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, position: int) -> Group: ...

    @overload
    def __getitem__(self, position: slice) -> list[Group]: ...

    def __getitem__(self, position: int | slice) -> Group | list[Group]:
        if isinstance(position, slice):
            return [self[i] for i in range(*position.indices(len(self)))]
        at = range(len(self))[position]
        return Group(
            self.keys[bisect_right(self.starts, at) - 1],
            self.producers[at],
            self.promised[at],
            self.digests[at],
            self.rows[at],
        )


@dataclass(frozen=True, slots=True)
class Coverage:
    """The content of a micro-batch, in the words of its source (SE-10).

    A number alone does not identify a micro-batch: where the checkpoint is lost, Spark counts from
    0 again and may cut the input differently.
    """

    query: str = ""
    """The identity of the streaming query; a new checkpoint has a new one."""
    start: str = ""
    """The source's offsets before the micro-batch, as Spark logs them."""
    end: str = ""
    files: str = ""
    """A digest of the files that it reads, where its source is one of files."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """The content of a chunk of the buffer, so that damage to it is noticed."""

    form: str = "records"
    rows: int = 0
    keys: int = 0
    """Key values that have data records in it, whatever becomes of them."""
    rejected: int = 0
    """Records in it that cannot be processed."""
    files: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Name -> (bytes, CRC-32)."""

    def name(self, number: int) -> str:
        """Of the chunk's folder."""
        return chunk_name(number, self.form)


def chunk_name(number: int, form: str) -> str:
    """The name of a chunk's folder.

    >>> chunk_name(7, "records"), chunk_name(-1, "partials")
    ('000000007.records', '-00000001.partials')
    """
    return f"{number:09d}.{form}"


def chunk_number(name: str) -> int:
    """The number of the chunk with that name."""
    return int(name.partition(".")[0])


@dataclass(frozen=True, slots=True)
class Ingested:
    """A micro-batch of a waiting input is durable as a chunk of the same number."""

    input: str
    batch: int
    time: float
    groups: Groups
    rejected: int = 0
    """Records without a usable key or producer, unreadable ones, punctuations without a count."""
    coverage: Coverage = Coverage()
    chunk: Chunk = Chunk()


@dataclass(frozen=True, slots=True)
class Requested:
    """A micro-batch of requests is durable; `keys` are the partitions they want to read."""

    input: str
    batch: int
    time: float
    keys: Mapping[KeyText, int]
    rejected: int = 0
    coverage: Coverage = Coverage()
    chunk: Chunk = Chunk()


@dataclass(frozen=True, slots=True)
class Found:
    """The registry answered: who contributes to partitions of an input. Frozen from now on."""

    input: str
    time: float
    producers: Mapping[KeyText, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Count:
    """The records of one producer in the buffer, counted one by one."""

    received: int
    """All that were looked at."""
    rows: int
    """The same without repeats of known ids."""
    digest: str | None = None
    conflicts: int = 0
    """Ids that several different records have."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The records received for a partition were counted again, by producer (SE-1, D6)."""

    input: str
    key: KeyText
    time: float
    counts: Mapping[str, Count]


@dataclass(frozen=True, slots=True)
class Excused:
    """A person decided that a partition need not wait for a producer (SE-8)."""

    input: str
    key: KeyText
    producer: str
    reason: str
    by: str
    time: float


class Resolution(enum.StrEnum):
    """A person's decision about a partition in quarantine (SE-6)."""

    RELEASE = "release"
    """Release it as it is."""
    DISCARD = "discard"
    """Its records become dead letters; what comes later is late."""
    RECOUNT = "recount"
    """The newest punctuation of every producer is its promise, and what came is counted again."""


@dataclass(frozen=True, slots=True)
class Resolved:
    """A person decided what becomes of a partition in quarantine (SE-6)."""

    key: KeyText
    resolution: Resolution
    reason: str
    by: str
    time: float


@dataclass(frozen=True, slots=True)
class Compacted:
    """Chunks of an input were written anew as one that holds only what is still needed (SE-9)."""

    input: str
    old: tuple[int, ...]
    number: int
    """Of the new chunk; below 0, so that no micro-batch has it."""
    chunk: Chunk


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Releases that are older than what the gate remembers (SE-9)."""

    keys: tuple[KeyText, ...]


@dataclass(frozen=True, slots=True)
class Release:
    """Partitions to release and requests to answer, in one step."""

    number: int
    keys: tuple[KeyText, ...]
    """Partitions released by this step."""
    process: tuple[KeyText, ...]
    """Partitions that the component has to see; with requests, those that are asked for."""
    answers: Mapping[str, Mapping[KeyText, tuple[int, ...]]] = field(default_factory=dict)
    """Requesting input -> partition -> micro-batches that hold requests to be answered now."""
    discarded: tuple[KeyText, ...] = ()
    """Those of `keys` whose records become dead letters instead."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The parts of one input's buffer that are to be read."""

    keys: Mapping[int, tuple[KeyText, ...]]
    """Chunk -> the partitions to read of it."""
    whole: frozenset[int] = frozenset()
    """Chunks that hold nothing else."""
    excluded: tuple[tuple[KeyText, str], ...] = ()
    """(partition, producer) that are in the chunks and belong to nobody (SE-7)."""


@dataclass(frozen=True, slots=True)
class ReleaseStarted:
    """A release is about to be done; it is redone from here after a crash (SE-10)."""

    release: Release
    time: float


@dataclass(frozen=True, slots=True)
class ReleaseFinished:
    """The outputs of a release are committed."""

    number: int
    time: float


Event: TypeAlias = (
    Ingested
    | Requested
    | Found
    | Counted
    | Excused
    | Resolved
    | Compacted
    | Forgotten
    | ReleaseStarted
    | ReleaseFinished
)


_EVENTS: Final = {event.__name__: event for event in get_args(Event)}


def event_from_json(kind: str, fields: dict[str, Any]) -> Event:
    """An event from the name of its class and its fields as JSON.

    >>> event_from_json("ReleaseFinished", {"number": 3, "time": 5.0})
    ReleaseFinished(number=3, time=5.0)
    """
    event: Event = _EVENTS[kind](
        **{n: _READ[n](value) if n in _READ else value for n, value in fields.items()}
    )
    return event


def release_from_json(fields: Sequence[Any] | Mapping[str, Any]) -> Release:
    """A release from its fields as JSON, by name or in their order."""
    number, keys, process, answers, discarded = (
        fields.values() if isinstance(fields, Mapping) else fields
    )
    asked = {
        name: {key: tuple(batches) for key, batches in wanted.items()}
        for name, wanted in answers.items()
    }
    return Release(number, tuple(keys), tuple(process), asked, tuple(discarded))


def chunk_from_json(
    form: str, rows: int, keys: int, rejected: int, files: Mapping[str, Sequence[int]]
) -> Chunk:
    """A chunk from its fields as JSON."""
    sizes = {name: (size, crc) for name, (size, crc) in files.items()}
    return Chunk(form, rows, keys, rejected, sizes)


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "groups": lambda fields: Groups(**fields),
    "coverage": lambda fields: Coverage(**fields),
    "chunk": lambda fields: chunk_from_json(**fields),
    "producers": lambda by_key: {key: tuple(producers) for key, producers in by_key.items()},
    "counts": lambda by_producer: {p: Count(**count) for p, count in by_producer.items()},
    "resolution": Resolution,
    "old": tuple,
    "release": release_from_json,
}
"""Field of an event that is not as JSON has it -> its value."""


@dataclass(frozen=True, slots=True)
class Quarantined:
    """A partition contradicts itself; it is kept and not released (SE-6)."""

    key: KeyText
    input: str
    producer: str
    why: str
    promised: str
    found: str


@dataclass(frozen=True, slots=True)
class Sealed:
    """A partition is complete (SE-1)."""

    key: KeyText


@dataclass(frozen=True, slots=True)
class Outsider:
    """Records were buffered before the producer set was known, and belong to none of it (SE-7)."""

    key: KeyText
    input: str
    producer: str
    rows: int
    """Data records; there may be punctuations too."""


@dataclass(frozen=True, slots=True)
class Unneeded:
    """No partition or request needs this chunk any more."""

    input: str
    batch: int


Finding: TypeAlias = Quarantined | Sealed | Outsider | Unneeded
