"""What happens to a gate, and what follows from it, as values that can be written down.

Events go into `Tracker.handle` and into the journal; findings come out of it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

KeyText: TypeAlias = str
"""A key value as text; `flux_runtime.sealing.keys` says how."""


@dataclass(frozen=True, slots=True)
class Group:
    """The records of one micro-batch that agree in key, producer and punctuation."""

    key: KeyText
    producer: str
    count: int | None
    """What the punctuation promises; None: these are data records."""
    digest: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class Ingested:
    """A micro-batch of a waiting input is durable as a chunk of the same number."""

    input: str
    batch: int
    time: float
    groups: tuple[Group, ...]
    rejected: int = 0
    """Records without key or producer, unreadable records, punctuations without a count."""


@dataclass(frozen=True, slots=True)
class Requested:
    """A micro-batch of requests is durable; `keys` are the partitions they want to read."""

    input: str
    batch: int
    time: float
    keys: Mapping[KeyText, int]
    rejected: int = 0


@dataclass(frozen=True, slots=True)
class Found:
    """The registry answered: who contributes to partitions of an input. Frozen from now on."""

    input: str
    time: float
    producers: Mapping[KeyText, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Digested:
    """The digests of what was received for a partition, by producer."""

    input: str
    key: KeyText
    time: float
    digests: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Excused:
    """A person decided that a partition need not wait for a producer (SE-8)."""

    input: str
    key: KeyText
    producer: str
    reason: str
    by: str
    time: float


@dataclass(frozen=True, slots=True)
class Release:
    """Partitions to release and requests to answer, in one step."""

    number: int
    keys: tuple[KeyText, ...]
    """Partitions released by this step."""
    process: tuple[KeyText, ...]
    """Partitions that the component has to see; with requests, those that are asked for."""
    chunks: Mapping[str, tuple[int, ...]]
    """Waiting input -> micro-batches that hold records of the partitions to process."""
    excluded: Mapping[str, tuple[tuple[KeyText, str], ...]] = field(default_factory=dict)
    """Waiting input -> (partition, producer) that are in the chunks and belong to nobody (SE-7)."""
    answers: Mapping[str, Mapping[KeyText, tuple[int, ...]]] = field(default_factory=dict)
    """Requesting input -> partition -> micro-batches that hold requests to be answered now."""


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
    Ingested | Requested | Found | Digested | Excused | ReleaseStarted | ReleaseFinished
)


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

_EVENTS: Final = {
    kind.__name__: kind
    for kind in (Ingested, Requested, Found, Digested, Excused, ReleaseStarted, ReleaseFinished)
}


def event_to_json(event: Event) -> dict[str, Any]:
    """An object that `json.dumps` takes and `event_from_json` reads back."""
    name = type(event).__name__
    if isinstance(event, Ingested):
        groups = [[g.key, g.producer, g.count, g.digest, g.rows] for g in event.groups]
        return {"event": name, **_shallow(event), "groups": groups}
    return {"event": name, **dataclasses.asdict(event)}


def event_from_json(data: Mapping[str, Any]) -> Event:
    """The event that `event_to_json` wrote."""
    fields = {name: value for name, value in data.items() if name != "event"}
    kind: Any = _EVENTS[data["event"]]
    if kind is Ingested:
        fields["groups"] = tuple(Group(*group) for group in fields["groups"])
    elif kind is Found:
        fields["producers"] = {key: tuple(who) for key, who in fields["producers"].items()}
    elif kind is ReleaseStarted:
        fields["release"] = release_from_json(fields["release"])
    event: Event = kind(**fields)
    return event


def release_from_json(data: Mapping[str, Any]) -> Release:
    """A release from what `dataclasses.asdict` made of it, through JSON."""
    return Release(
        number=data["number"],
        keys=tuple(data["keys"]),
        process=tuple(data["process"]),
        chunks={name: tuple(batches) for name, batches in data["chunks"].items()},
        excluded={
            name: tuple((key, producer) for key, producer in pairs)
            for name, pairs in data["excluded"].items()
        },
        answers={
            name: {key: tuple(batches) for key, batches in wanted.items()}
            for name, wanted in data["answers"].items()
        },
    )


def _shallow(event: Any) -> dict[str, Any]:
    return {f.name: getattr(event, f.name) for f in dataclasses.fields(event)}
