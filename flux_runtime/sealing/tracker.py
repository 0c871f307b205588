"""The seal protocol of one gate as a state machine: events in, findings out, no I/O.

Rules SE-1 to SE-12 (`docs/explanation/sealing.md`; Blazes sections III-C and V-B) stand beside the
lines that implement them. Every event is handled once, in the order of the journal; the state is a
function of the journal alone, so that a restart continues where the journal ends. What has to be
done is read off the state (`lookups_due`, `digests_due`, `next_release`), not remembered as a
message that a crash could lose.

    tracker = Tracker(Rules(inputs={"clicks": All(("ads-1", "ads-2"))}))
    for finding in tracker.handle(Ingested("clicks", 0, now, groups)): ...
    release = tracker.next_release()
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from flux_runtime.sealing.events import (
    Digested,
    Event,
    Excused,
    Finding,
    Found,
    Group,
    Ingested,
    KeyText,
    Outsider,
    Release,
    ReleaseFinished,
    ReleaseStarted,
    Requested,
    Sealed,
    Unneeded,
)
from flux_runtime.sealing.partition import (
    Partition,
    Share,
    Status,
    Vote,
)

REMEMBER: Final = 50_000
"""How many released partitions are remembered by default (SE-9)."""


@dataclass(frozen=True, slots=True)
class One:
    """Each partition has one producer, the first that is seen of it (SE-2)."""


@dataclass(frozen=True, slots=True)
class All:
    """Every one of `members` contributes to every partition."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Registered:
    """The registry knows; the answer comes as a `Found`."""


Set: TypeAlias = One | All | Registered
"""How the producer set of a partition is found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a gate waits for."""

    inputs: Mapping[str, Set]
    """Waiting inputs: a partition is complete when it is complete in each of them."""
    requests: tuple[str, ...] = ()
    """Requesting inputs (SE-12). With any, released partitions stay buffered for later requests."""
    remember: int = REMEMBER
    """Released partitions that are recognised when late records come (SE-5, SE-9). Past this
    bound the oldest are forgotten: a record for one of those opens the partition anew, where it
    waits for punctuations that will not come, and is seen by its age (SE-8). With requests
    nothing is forgotten, because the partitions themselves are kept."""


class Verdict(enum.Enum):
    """What becomes of records and punctuations."""

    TAKEN = enum.auto()
    UNDECIDED = enum.auto()
    """Taken, though the producer set is not known yet."""
    LATE = enum.auto()
    """For a partition that was complete before (SE-5)."""
    UNKNOWN = enum.auto()
    """From a producer outside the set (SE-7)."""
    REPEATED = enum.auto()
    """A punctuation of a complete partition that says what it said before (SE-6)."""


@dataclass(frozen=True, slots=True)
class Released:
    """What is remembered of a released partition, each by waiting input."""

    votes: Mapping[str, Mapping[str, Vote]]
    batches: Mapping[str, list[int]]
    outsiders: Mapping[str, list[str]]


@dataclass(slots=True)
class Counters:
    """What the run's report says of a gate (specification 4)."""

    rows: int = 0
    late: int = 0
    unknown: int = 0
    rejected: int = 0
    released: int = 0
    answered: int = 0
    seal_wait_s: float = 0.0
    """Of the newest released partition, from its last record to its release."""


@dataclass(slots=True)
class Tracker:
    """The state of one gate. `handle` is its only mutator."""

    rules: Rules
    partitions: dict[KeyText, Partition] = field(default_factory=dict)
    """What is not released, oldest first."""
    released: dict[KeyText, Released] = field(default_factory=dict)
    """What is remembered of released partitions, oldest first (SE-9)."""
    ingested: dict[str, int] = field(default_factory=dict)
    """Input -> last micro-batch (SE-10)."""
    references: dict[str, dict[int, int]] = field(default_factory=dict)
    """Input -> chunk -> how many partitions, or requested keys, need it."""
    wanted: dict[str, dict[KeyText, dict[int, int]]] = field(default_factory=dict)
    """Requesting input -> partition -> chunk -> number of unanswered requests (SE-12)."""
    pending: Release | None = None
    """Logged and not finished."""
    releases: int = 0
    """Number of the last release."""
    counters: Counters = field(default_factory=Counters)

    # ---- questions

    def assess(self, event: Ingested) -> list[tuple[Group, Verdict]]:
        """What would become of each group of records, without changing anything."""
        decided = self._decide_ones(event)
        return [(group, self._verdict(event.input, group, decided)) for group in event.groups]

    def replayed(self, name: str, batch: int) -> bool:
        """Whether a micro-batch has been ingested before: then it changes nothing (SE-10)."""
        return batch <= self.ingested.get(name, -1)

    def lookups_due(self) -> dict[str, list[KeyText]]:
        """Input -> partitions whose producer set has to be looked up."""
        due: dict[str, list[KeyText]] = {}
        for name, rule in self.rules.inputs.items():
            if isinstance(rule, Registered):
                due[name] = [
                    key
                    for key, partition in self.partitions.items()
                    if partition.shares[name].producers is None
                ]
        return {name: keys for name, keys in due.items() if keys}

    def unknown_sets(self, event: Ingested) -> list[KeyText]:
        """Partitions of a micro-batch whose producer set has not been looked up yet."""
        if not isinstance(self.rules.inputs[event.input], Registered):
            return []
        keys = dict.fromkeys(group.key for group in event.groups)
        return [
            key
            for key in keys
            if key not in self.released
            and (
                key not in self.partitions
                or self.partitions[key].shares[event.input].producers is None
            )
        ]

    def outsiders_of(self, event: Found) -> list[tuple[KeyText, str]]:
        """(partition, producer) that a `Found` would show to be outsiders (SE-7)."""
        outsiders = []
        for key, producers in event.producers.items():
            partition = self.partitions.get(key)
            share = None if partition is None else partition.shares[event.input]
            if share is not None and share.producers is None:
                came = share.received.keys() | share.votes.keys()
                outsiders += [(key, producer) for producer in sorted(came - set(producers))]
        return outsiders

    def digests_due(self) -> list[tuple[str, KeyText, tuple[str, ...], tuple[int, ...]]]:
        """(input, partition, producers, chunks) that only a digest keeps from being complete."""
        return [
            (name, key, share.undigested, tuple(share.batches))
            for key, partition in self.partitions.items()
            if partition.status is Status.OPEN
            and all(share.counted for share in partition.shares.values())
            for name, share in partition.shares.items()
            if share.undigested
        ]

    def next_release(self) -> Release | None:
        """The release to do now: the unfinished one (SE-10), else all that is complete (SE-3)."""
        if self.pending is not None:
            return self.pending
        keys = tuple(k for k, p in self.partitions.items() if p.status is Status.SEALED)
        answers = self._answers()
        if not keys and not answers:
            return None
        process = keys
        if self.rules.requests:  # SE-12: only what somebody asked for
            process = tuple(sorted({key for wanted in answers.values() for key in wanted}))
        return Release(
            self.releases + 1,
            keys,
            process,
            self._chunks_of(process),
            self._excluded_of(process),
            answers,
        )

    # ---- changes

    def handle(self, event: Event) -> list[Finding]:
        """Apply an event that is in the journal already; what follows from it."""
        match event:
            case Ingested():
                return list(self._on_ingested(event))
            case Requested():
                return list(self._on_requested(event))
            case Found():
                return list(self._on_found(event))
            case Digested():
                return list(self._on_digested(event))
            case Excused():
                return list(self._on_excused(event))
            case ReleaseStarted():
                return list(self._on_release_started(event))
            case ReleaseFinished():
                return list(self._on_release_finished(event))

    def _on_ingested(self, event: Ingested) -> Iterator[Finding]:
        if self.replayed(event.input, event.batch):  # SE-10
            return
        verdicts = self.assess(event)
        decided = self._decide_ones(event)
        self.ingested[event.input] = event.batch
        self.counters.rejected += event.rejected
        touched: dict[KeyText, None] = {}
        for group, verdict in verdicts:
            if group.count is None:
                self.counters.rows += group.rows
            if verdict is Verdict.LATE:  # SE-5
                self.counters.late += group.rows
            elif verdict is Verdict.UNKNOWN:  # SE-7
                self.counters.unknown += group.rows
            elif verdict is not Verdict.REPEATED:
                share = self._share(event.input, group.key, event.time, decided)
                self.partitions[group.key].last = event.time
                touched[group.key] = None
                self._take(event, group, share)
        for key in touched:
            yield from self._check(key, event.input)

    def _take(self, event: Ingested, group: Group, share: Share) -> None:
        if group.count is not None:
            share.vote(group.producer, Vote(group.count, group.digest))  # SE-6: equal ones are one
            return
        before = len(share.batches)
        share.add(group.producer, group.rows, event.batch)
        if len(share.batches) > before:
            self._refer(event.input, event.batch)

    def _check(self, key: KeyText, name: str) -> Iterator[Finding]:
        """After a change of a partition: is it contradictory (SE-6) or complete (SE-1)?"""
        partition = self.partitions[key]
        share = partition.shares[name]
        for wrong in share.contradictions(key, name):
            if partition.status is not Status.QUARANTINED:
                partition.status = Status.QUARANTINED
                partition.quarantine = wrong
                yield wrong
        if partition.status is Status.OPEN and partition.complete:
            partition.status = Status.SEALED
            yield Sealed(key)

    def _on_requested(self, event: Requested) -> Iterator[Finding]:
        if self.replayed(event.input, event.batch):  # SE-10
            return
        self.ingested[event.input] = event.batch
        self.counters.rejected += event.rejected
        wanted = self.wanted.setdefault(event.input, {})
        for key, rows in sorted(event.keys.items()):
            self.counters.rows += rows
            wanted.setdefault(key, {})[event.batch] = rows
            self._refer(event.input, event.batch)
        if not event.keys:
            yield Unneeded(event.input, event.batch)

    def _on_found(self, event: Found) -> Iterator[Finding]:
        for key, producers in event.producers.items():
            if key in self.released:
                continue
            share = self._share(event.input, key, event.time, {})
            if share.producers is not None:  # frozen at the first look-up
                continue
            outsiders = self.outsiders_of(Found(event.input, event.time, {key: producers}))
            share.producers = tuple(sorted(producers))
            for _, producer in outsiders:  # SE-7
                rows = share.received.pop(producer, 0)
                if rows:
                    share.outsiders.append(producer)
                votes = [x for x in (share.votes, share.disputes) if x.pop(producer, None)]
                self.counters.unknown += rows + len(votes)
                yield Outsider(key, event.input, producer, rows)
            yield from self._check(key, event.input)

    def _on_digested(self, event: Digested) -> Iterator[Finding]:
        partition = self.partitions.get(event.key)
        if partition is None or partition.status is not Status.OPEN:
            return
        share = partition.shares[event.input]
        if share.counted:
            share.digests.update({p: event.digests[p] for p in share.undigested})
            yield from self._check(event.key, event.input)

    def _on_excused(self, event: Excused) -> Iterator[Finding]:
        partition = self.partitions.get(event.key)
        if partition is not None and partition.status is Status.OPEN:
            partition.shares[event.input].excused[event.producer] = event.reason
            yield from self._check(event.key, event.input)

    def _on_release_started(self, event: ReleaseStarted) -> Iterator[Finding]:
        if self.pending is not None or event.release.number != self.releases + 1:
            raise ValueError(f"release {event.release.number} started out of turn")
        for key in event.release.keys:
            partition = self.partitions[key]
            if partition.status is not Status.SEALED:  # SE-4
                raise ValueError(f"{key} is {partition.status}, not complete")
            partition.status = Status.RELEASING
        self.pending = event.release
        self.releases = event.release.number
        yield from ()

    def _on_release_finished(self, event: ReleaseFinished) -> Iterator[Finding]:
        release = self.pending
        if release is None or release.number != event.number:
            raise ValueError(f"release {event.number} finished without having started")
        self.pending = None
        for name, wanted in release.answers.items():
            for key, batches in wanted.items():
                of_key = self.wanted[name][key]
                self.counters.answered += sum(of_key.pop(batch) for batch in batches)
                if not of_key:
                    del self.wanted[name][key]
                yield from self._unrefer(name, batches)
        for key in release.keys:
            yield from self._remember(key, event.time)
        self._forget()

    def _remember(self, key: KeyText, time: float) -> Iterator[Finding]:
        partition = self.partitions.pop(key)
        self.counters.released += 1
        self.counters.seal_wait_s = max(0.0, time - partition.last)
        shares = partition.shares.items()
        self.released[key] = Released(
            votes={name: dict(share.votes) for name, share in shares},
            batches={name: list(share.batches) for name, share in shares if share.batches},
            outsiders={name: list(share.outsiders) for name, share in shares if share.outsiders},
        )
        if not self.rules.requests:  # SE-9: it leaves the buffer
            for name, share in shares:
                yield from self._unrefer(name, share.batches)

    def _forget(self) -> None:
        """SE-9: forget the oldest, save those whose records are still in somebody's chunk."""
        excess = len(self.released) - self.rules.remember
        if excess <= 0 or self.rules.requests:
            return
        oldest = itertools.islice(self.released.items(), excess)
        gone = [key for key, was in oldest if not self._still_buffered(was.batches)]
        for key in gone:
            del self.released[key]

    # ---- parts

    def _decide_ones(self, event: Ingested) -> dict[KeyText, str]:
        """Under `One`: the producer of each partition that this micro-batch brings first (SE-2).

        Whoever punctuates, else the first by name, so that a replay decides alike.
        """
        if not isinstance(self.rules.inputs[event.input], One):
            return {}
        decided: dict[KeyText, tuple[bool, str]] = {}
        for group in event.groups:
            partition = self.partitions.get(group.key)
            if partition is None or partition.shares[event.input].producers is None:
                mine = (group.count is None, group.producer)
                decided[group.key] = min(mine, decided.get(group.key, mine))
        return {key: producer for key, (_, producer) in decided.items()}

    def _verdict(self, name: str, group: Group, decided: Mapping[KeyText, str]) -> Verdict:
        partition = self.partitions.get(group.key)
        if group.key in self.released:
            return _late(group, self.released[group.key].votes.get(name, {}))
        if partition is not None and partition.status in (Status.SEALED, Status.RELEASING):
            return _late(group, partition.shares[name].votes)
        producers = None if partition is None else partition.shares[name].producers
        if producers is None:
            producers = self._initial_set(name, group.key, decided)
        if producers is None:
            return Verdict.UNDECIDED
        return Verdict.TAKEN if group.producer in producers else Verdict.UNKNOWN  # SE-7

    def _initial_set(
        self, name: str, key: KeyText, decided: Mapping[KeyText, str]
    ) -> tuple[str, ...] | None:
        match self.rules.inputs[name]:
            case All(members):
                return members
            case One():
                return (decided[key],) if key in decided else None
            case Registered():
                return None

    def _share(self, name: str, key: KeyText, time: float, decided: Mapping[KeyText, str]) -> Share:
        partition = self.partitions.get(key)
        if partition is None:
            shares = {n: Share(self._initial_set(n, key, {})) for n in self.rules.inputs}
            partition = self.partitions[key] = Partition(time, time, shares)
        share = partition.shares[name]
        if share.producers is None:
            share.producers = self._initial_set(name, key, decided)
        return share

    def _answers(self) -> dict[str, dict[KeyText, tuple[int, ...]]]:
        """Requests whose partition is complete, by input (SE-12)."""
        answers = {
            name: {key: tuple(batches) for key, batches in wanted.items() if self._readable(key)}
            for name, wanted in self.wanted.items()
        }
        return {name: wanted for name, wanted in answers.items() if wanted}

    def _readable(self, key: KeyText) -> bool:
        partition = self.partitions.get(key)
        return key in self.released if partition is None else partition.status is Status.SEALED

    def _holders(self, key: KeyText) -> Iterator[tuple[str, list[int], list[str]]]:
        """(input, chunks, outsiders) of a partition, released or not."""
        if key in self.partitions:
            for name, share in self.partitions[key].shares.items():
                yield name, share.batches, share.outsiders
        else:
            was = self.released[key]
            for name, batches in was.batches.items():
                yield name, batches, was.outsiders.get(name, [])

    def _chunks_of(self, keys: Iterable[KeyText]) -> dict[str, tuple[int, ...]]:
        chunks: dict[str, set[int]] = {}
        for key in keys:
            for name, batches, _ in self._holders(key):
                chunks.setdefault(name, set()).update(batches)
        return {name: tuple(sorted(batches)) for name, batches in chunks.items()}

    def _excluded_of(self, keys: Iterable[KeyText]) -> dict[str, tuple[tuple[KeyText, str], ...]]:
        excluded: dict[str, list[tuple[KeyText, str]]] = {}
        for key in keys:
            for name, _, outsiders in self._holders(key):
                if outsiders:
                    excluded.setdefault(name, []).extend((key, p) for p in outsiders)
        return {name: tuple(pairs) for name, pairs in excluded.items()}

    def _refer(self, name: str, batch: int) -> None:
        of_input = self.references.setdefault(name, {})
        of_input[batch] = of_input.get(batch, 0) + 1

    def _unrefer(self, name: str, batches: Iterable[int]) -> Iterator[Finding]:
        of_input = self.references.get(name, {})
        for batch in batches:
            of_input[batch] -= 1
            if not of_input[batch]:
                del of_input[batch]
                yield Unneeded(name, batch)

    def _still_buffered(self, chunks: Mapping[str, list[int]]) -> bool:
        return any(
            batch in self.references.get(name, {})
            for name, batches in chunks.items()
            for batch in batches
        )


def _late(group: Group, votes: Mapping[str, Vote]) -> Verdict:
    """What comes for a complete partition: late (SE-5), unless it repeats its vote (SE-6)."""
    if group.count is not None and votes.get(group.producer) == Vote(group.count, group.digest):
        return Verdict.REPEATED
    return Verdict.LATE
