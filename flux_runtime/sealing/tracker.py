"""The seal protocol of one gate as a state machine: events in, findings out, no I/O.

Rules SE-1 to SE-12 (`docs/explanation/sealing.md`; Blazes sections III-C and V-B) stand beside the
lines that implement them. What has to be done is read off the state (`lookups_due`, `counts_due`,
`next_release`), not remembered as a message that a crash could lose. `changes` says which parts of
the state an event changed, so that the ledger writes those only: what a micro-batch costs depends
on what it brings, never on how many partitions are open or have been released.

    tracker = Tracker(Rules(inputs={"clicks": All(("ads-1", "ads-2"))}))
    for finding in tracker.handle(Ingested("clicks", 0, now, groups)): ...
    release = tracker.next_release()
"""

from __future__ import annotations

import base64
import enum
import functools
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

from flux_runtime.sealing.events import (
    Chunk,
    Compacted,
    Counted,
    Coverage,
    Event,
    Excused,
    Finding,
    Forgotten,
    Found,
    Group,
    Ingested,
    KeyText,
    Outsider,
    Reading,
    Release,
    ReleaseFinished,
    ReleaseStarted,
    Requested,
    Resolution,
    Resolved,
    Sealed,
    Unneeded,
)
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.partition import NOTHING, Partition, Share, Status, Vote

FRESH: Final = "run with --fresh, which deletes state and results and starts from the sources"

MARKS_KEPT: Final = 4096
"""Marks of punctuations at hand: one does not depend on the partition, and counts repeat."""


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
    """The rules of a gate: what it waits for."""

    inputs: Mapping[str, Set]
    """Waiting inputs: a partition is complete when it is complete in each of them."""
    requests: tuple[str, ...] = ()
    """Requesting inputs (SE-12). With any, released partitions stay buffered for later requests."""
    identified: frozenset[str] = frozenset()
    """Inputs whose records have an id, by which repeats are dropped before they count (D6)."""
    remember_s: float | None = None
    """Seconds for which released partitions are recognised when late records come (SE-5, SE-9);
    None: for ever. A record for one that is forgotten opens the partition anew, where it waits for
    punctuations that will not come, and is seen by its age (SE-8). With requests nothing is
    forgotten, because the partitions themselves are kept."""


def rules_to_json(rules: Rules) -> dict[str, Any]:
    """Rules as JSON data."""
    return {
        "inputs": {name: _set_to_json(rule) for name, rule in rules.inputs.items()},
        "requests": list(rules.requests),
        "identified": sorted(rules.identified),
        "remember_s": rules.remember_s,
    }


def rules_from_json(data: Mapping[str, Any]) -> Rules:
    """The reverse of `rules_to_json`.

    >>> rules = Rules(inputs={"a": One(), "b": All(("x", "y"))}, identified=frozenset({"a"}))
    >>> rules_from_json(rules_to_json(rules)) == rules
    True
    """
    return Rules(
        inputs={name: _set_from_json(rule) for name, rule in data["inputs"].items()},
        requests=tuple(data["requests"]),
        identified=frozenset(data["identified"]),
        remember_s=data["remember_s"],
    )


def _set_to_json(rule: Set) -> dict[str, Any]:
    match rule:
        case One():
            return {"rule": "one"}
        case All(members):
            return {"rule": "all", "members": list(members)}
        case Registered():
            return {"rule": "registered"}


def _set_from_json(data: Mapping[str, Any]) -> Set:
    match data["rule"]:
        case "one":
            return One()
        case "all":
            return All(tuple(data["members"]))
        case _:
            return Registered()


class Verdict(enum.Enum):
    """The verdict on records and punctuations."""

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
    """A released partition, as far as it is remembered."""

    number: int
    """Of the release."""
    votes: tuple[str, ...]
    """Marks of its punctuations, sorted; see `vote_mark`."""
    batches: Mapping[str, list[int]] = field(default_factory=lambda: NOTHING)
    """Where there are requests: waiting input -> chunks that hold its records."""
    outsiders: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: NOTHING)


@dataclass(slots=True)
class Counters:
    """The counters of a gate in the run's report (specification 4)."""

    rows: int = 0
    late: int = 0
    unknown: int = 0
    rejected: int = 0
    repeats: int = 0
    """Records of released partitions that came more than once and counted once (D6)."""
    discarded: int = 0
    """Records of partitions that a person discarded."""
    released: int = 0
    answered: int = 0
    seal_wait_s: float = 0.0
    """Of the newest released partition, from its last record to its release."""


@dataclass(slots=True)
class Changes:
    """Parts of the state that changed since the ledger was written; its owner clears it."""

    partitions: set[KeyText] = field(default_factory=set)
    wanted: set[tuple[str, KeyText]] = field(default_factory=set)
    chunks: set[tuple[str, int]] = field(default_factory=set)
    pending: bool = False


@dataclass(slots=True)
class Tracker:
    """The state of one gate. `handle` is its only mutator."""

    rules: Rules
    released: MutableMapping[KeyText, Released] = field(default_factory=dict)
    """What is remembered of released partitions (SE-9); the ledger's is on disk."""
    partitions: dict[KeyText, Partition] = field(default_factory=dict)
    """What is not released, oldest first."""
    ingested: dict[str, tuple[int, Coverage]] = field(default_factory=dict)
    """Input -> last micro-batch and what it covers (SE-10)."""
    chunks: dict[str, dict[int, Chunk]] = field(default_factory=dict)
    """Input -> the chunks that somebody needs, and what they must hold."""
    references: dict[str, dict[int, int]] = field(default_factory=dict)
    """Input -> chunk -> how many partitions, or requested keys, need it."""
    wanted: dict[str, dict[KeyText, dict[int, int]]] = field(default_factory=dict)
    """Requesting input -> partition -> chunk -> number of unanswered requests (SE-12)."""
    pending: Release | None = None
    """Logged and not finished."""
    releases: int = 0
    """Number of the last release."""
    compactions: int = 0
    counters: Counters = field(default_factory=Counters)
    changes: Changes = field(default_factory=Changes)
    sealed: dict[KeyText, None] = field(default_factory=dict)
    """Index: partitions that are complete and not part of a release."""
    quarantined: dict[KeyText, None] = field(default_factory=dict)
    """Index."""
    counting: dict[KeyText, None] = field(default_factory=dict)
    """Index: partitions whose records have to be counted again."""
    unknown_sets: dict[str, dict[KeyText, None]] = field(default_factory=dict)
    """Index: input -> partitions whose producer set has to be looked up."""
    _assessed: tuple[Ingested, dict[int, Verdict]] | None = None
    """The last answer of `_exceptions`, as long as nothing has changed since."""

    # ---- questions

    def assess(self, event: Ingested) -> list[tuple[Group, Verdict]]:
        """The groups of records that would not just be taken, without changing anything."""
        return [(event.groups[i], verdict) for i, verdict in self._exceptions(event).items()]

    def replayed(self, name: str, batch: int, coverage: Coverage) -> bool:
        """Whether a micro-batch has been ingested before: then it changes nothing (SE-10).

        Raises:
            DamagedError: it is not the next one, nor the last one once more.
        """
        last, covered = self.ingested.get(name, (-1, Coverage()))
        if batch == last and coverage == covered:
            return True
        problem = None
        if last >= 0 and coverage.query != covered.query:
            problem = "its checkpoint is not the one that the state goes with"
        elif batch == last:
            problem = f"micro-batch {batch} holds other records than when it was taken"
        elif batch < last:
            problem = f"the checkpoint is at micro-batch {batch}, the state took {last} already"
        elif batch > last + 1:
            problem = f"micro-batches {last + 1} to {batch - 1} were taken and are not in the state"
        elif last >= 0 and coverage.start != covered.end:
            problem = f"micro-batch {batch} does not begin where {last} ended"
        if problem is None:
            return False
        raise self._damaged(name, problem)

    def compare(self, name: str, *, planned: int, committed: int) -> None:
        """Return if a checkpoint goes with this state.

        Each micro-batch is first planned there, then taken here, then committed there.

        Args:
            name: of the input.
            planned: the newest micro-batch that the checkpoint has planned; -1: none.
            committed: the newest one that it has committed.

        Raises:
            DamagedError: one of the two has lost entries, or is older than the other.
        """
        last, _ = self.ingested.get(name, (-1, Coverage()))
        if committed > last:
            problem = f"the checkpoint has done {_upto(committed)}, the state took {_upto(last)}"
            raise self._damaged(name, problem)
        if planned < last:
            problem = f"the checkpoint knows of {_upto(planned)}, the state took {_upto(last)}"
            raise self._damaged(name, problem)

    def _damaged(self, name: str, problem: str) -> DamagedError:
        return DamagedError(
            f"input {name}",
            problem,
            f"nothing of it was taken, and what was put out before, {self.releases} releases, is "
            f"right. Put back checkpoint and state of one moment, or {FRESH}",
        )

    def lookups_due(self) -> dict[str, list[KeyText]]:
        """Input -> partitions whose producer set has to be looked up."""
        return {name: list(keys) for name, keys in self.unknown_sets.items() if keys}

    def sets_to_look_up(self, event: Ingested) -> list[KeyText]:
        """Partitions of a micro-batch whose producer set has not been looked up yet."""
        if not isinstance(self.rules.inputs[event.input], Registered):
            return []
        unknown = self.unknown_sets.get(event.input, {})
        return [
            key
            for key in event.groups.keys
            if key in unknown or (key not in self.partitions and self.released.get(key) is None)
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

    def sent(self, name: str, key: KeyText, producer: str) -> int:
        """Records and punctuations that a partition took of a producer, equal ones counted once."""
        share = self.partitions[key].shares[name]
        votes = int(producer in share.votes) + int(producer in share.disputes)
        return share.received.get(producer, 0) + votes

    def counts_due(self) -> dict[str, dict[KeyText, tuple[str, ...]]]:
        """Input -> partition -> producers whose records have to be counted, or digested (SE-1)."""
        due: dict[str, dict[KeyText, tuple[str, ...]]] = {}
        for key in self.counting:
            for name, producers in self.partitions[key].to_count():
                due.setdefault(name, {})[key] = producers
        return due

    def next_release(self) -> Release | None:
        """The release to do now: the unfinished one (SE-10), else all that is complete (SE-3)."""
        if self.pending is not None:
            return self.pending
        keys = tuple(self.sealed)
        answers = self._answers()
        if not keys and not answers:
            return None
        discarded = tuple(k for k in keys if self.partitions[k].resolution is Resolution.DISCARD)
        process = tuple(k for k in keys if k not in set(discarded)) if discarded else keys
        if self.rules.requests:  # SE-12: only what somebody asked for
            process = tuple(sorted({key for wanted in answers.values() for key in wanted}))
        return Release(self.releases + 1, keys, process, answers, discarded)

    def reading(self, name: str, keys: Iterable[KeyText]) -> Reading:
        """The parts of an input's buffer that hold partitions, released or not."""
        by_chunk: dict[int, list[KeyText]] = {}
        excluded: list[tuple[KeyText, str]] = []
        for key in keys:
            batches, outsiders = self._holdings(name, key)
            for batch in batches:
                by_chunk.setdefault(batch, []).append(key)
            excluded += [(key, producer) for producer in outsiders]
        chunks = self.chunks.get(name, {})
        return Reading(
            {batch: tuple(of_chunk) for batch, of_chunk in sorted(by_chunk.items())},
            frozenset(
                number
                for number, of_chunk in by_chunk.items()
                if len(of_chunk) == chunks[number].keys and not chunks[number].rejected
            ),
            tuple(excluded),
        )

    def sparse(self, name: str, share_max: float) -> tuple[int, ...]:
        """Chunks of which at most such a part of the partitions is still needed (SE-9)."""
        chunks, needed = self.chunks.get(name, {}), self.references.get(name, {})
        return tuple(n for n in self._at_rest(name) if needed[n] <= share_max * chunks[n].keys)

    def to_merge(self, name: str, share_max: float, least: int) -> list[tuple[int, ...]]:
        """Sets of at least so many chunks that are each to be written as one chunk (SE-9).

        Those are sparse, or were written so before and hold rows of the same order of magnitude, to
        the base `least`: of a partition that is stuck for ever and still gets records there are a
        few chunks of each order, and each of its records is written once for each.
        """
        chunks = self.chunks.get(name, {})
        sparse = set(self.sparse(name, share_max))
        alike: dict[tuple[str, int], list[int]] = {}
        for number in self._at_rest(name):
            if number in sparse or number < 0:
                order = -1 if number in sparse else _order(chunks[number].rows, least)
                alike.setdefault((chunks[number].form, order), []).append(number)
        return [tuple(numbers) for numbers in alike.values() if len(numbers) >= least]

    def _at_rest(self, name: str) -> list[int]:
        """Needed chunks that are not kept for requests, nor read by the release at hand."""
        if self.rules.requests:
            return []
        busy = set() if self.pending is None else set(self.reading(name, self.pending.keys).keys)
        return [number for number in self.references.get(name, {}) if number not in busy]

    def needing(self, name: str, chunks: Iterable[int]) -> Reading:
        """The parts of chunks that are still needed."""
        wanted = set(chunks)
        return self.reading(
            name,
            [
                key
                for key, partition in self.partitions.items()
                if not wanted.isdisjoint(partition.shares[name].batches)
            ],
        )

    # ---- changes

    def handle(self, event: Event) -> list[Finding]:
        """Apply an event; what follows from it."""
        if isinstance(event, Ingested):
            return list(self._on_ingested(event))
        self._assessed = None
        match event:
            case Requested():
                return list(self._on_requested(event))
            case Found():
                return list(self._on_found(event))
            case Counted():
                return list(self._on_counted(event))
            case Excused():
                return list(self._on_excused(event))
            case Resolved():
                return list(self._on_resolved(event))
            case Compacted():
                return list(self._on_compacted(event))
            case Forgotten():
                return list(self._on_forgotten(event))
            case ReleaseStarted():
                return list(self._on_release_started(event))
            case ReleaseFinished():
                return list(self._on_release_finished(event))

    def _on_ingested(self, event: Ingested) -> Iterator[Finding]:
        if self.replayed(event.input, event.batch, event.coverage):  # SE-10
            return
        groups, name = event.groups, event.input
        exceptions = self._exceptions(event)
        decided = self._decide_ones(event)
        self._assessed = None
        self.ingested[name] = event.batch, event.coverage
        self.counters.rejected += event.rejected
        strangers: list[Group] = []
        refused: set[int] = set()
        for position, verdict in exceptions.items():
            group = groups[position]
            if verdict is Verdict.LATE:  # SE-5
                self.counters.late += group.rows
            elif verdict is Verdict.UNKNOWN:  # SE-7
                self.counters.unknown += group.rows
                strangers.append(group)
            if verdict is not Verdict.UNDECIDED:
                refused.add(position)
        touched: dict[KeyText, Share] = {}
        disputed: dict[tuple[KeyText, str], list[Vote]] = {}
        producers, of_groups = groups.producers, groups.rows
        rows = needing = 0
        columns = zip(groups.keys, groups.starts, groups.middles, groups.starts[1:], strict=False)
        for key, start, middle, end in columns:
            records = [*zip(producers[start:middle], of_groups[start:middle], strict=True)]
            punctuations: Sequence[int] = range(middle, end)
            rows += sum(of_groups[start:middle])
            if refused and not refused.isdisjoint(range(start, end)):
                records = [r for i, r in enumerate(records, start) if i not in refused]
                punctuations = [i for i in punctuations if i not in refused]
                if not records and not punctuations:
                    continue
            share = touched[key] = self._share(name, key, event.time, decided)
            if records:
                needing += share.add(records, event.batch)
            for i in punctuations:  # SE-6: equal ones are one
                if share.vote(producers[i], Vote(groups.promised[i] or 0, groups.digests[i])):
                    disputed[key, producers[i]] = []
        self.counters.rows += rows
        if needing:
            self._refer(name, event.batch, needing)
        for group in strangers:  # whose records lie in the same chunk as a member's
            if group.promised is None and group.key in touched:
                share = touched[group.key]
                if event.batch in share.batches[-1:]:
                    share.exclude(group.producer)
        for key, producer, promised, digest, _ in groups if disputed else ():
            if promised is not None and (key, producer) in disputed:
                disputed[key, producer].append(Vote(promised, digest))
        for (key, producer), newest in disputed.items():
            touched[key].dispute(producer, newest)
        self.changes.partitions.update(touched)
        for key, share in touched.items():
            self.partitions[key].last = event.time
            if share.votes or share.excused or not share.producers:  # or nothing can follow
                yield from self._check(key, name)
        yield from self._keep(name, event.batch, event.chunk)

    def _keep(self, name: str, number: int, chunk: Chunk) -> Iterator[Finding]:
        if number in self.references.get(name, {}):
            self.chunks.setdefault(name, {})[number] = chunk
            self.changes.chunks.add((name, number))
        else:
            yield Unneeded(name, number)

    def _check(self, key: KeyText, name: str) -> Iterator[Finding]:
        """After a change of a partition: is it contradictory (SE-6) or complete (SE-1)?"""
        partition = self.partitions[key]
        self.changes.partitions.add(key)
        if partition.status is Status.OPEN:
            complete = partition.complete_by_counts
            if complete is not None:
                self.counting.pop(key, None)
                if complete:
                    self._enter(key, partition, Status.SEALED)
                    yield Sealed(key)
                return
        for contradiction in partition.shares[name].contradictions(key, name):
            if partition.status is not Status.QUARANTINED:
                self._enter(key, partition, Status.QUARANTINED)
                partition.quarantine = contradiction
                yield contradiction
        if partition.status is not Status.OPEN:
            return
        if any(partition.to_count()):
            self.counting[key] = None
        else:
            self.counting.pop(key, None)
            if partition.counted:  # and nothing contradicts it, or it would be in quarantine
                self._enter(key, partition, Status.SEALED)
                yield Sealed(key)

    def _enter(self, key: KeyText, partition: Partition, status: Status) -> None:
        """Change a partition's status, and the indexes with it."""
        for index in (self.sealed, self.quarantined, self.counting):
            index.pop(key, None)
        partition.status = status
        if status is Status.SEALED:
            self.sealed[key] = None
        elif status is Status.QUARANTINED:
            self.quarantined[key] = None
        self.changes.partitions.add(key)

    def _on_requested(self, event: Requested) -> Iterator[Finding]:
        if self.replayed(event.input, event.batch, event.coverage):  # SE-10
            return
        self.ingested[event.input] = event.batch, event.coverage
        self.counters.rejected += event.rejected
        wanted = self.wanted.setdefault(event.input, {})
        for key, rows in sorted(event.keys.items()):
            self.counters.rows += rows
            wanted.setdefault(key, {})[event.batch] = rows
            self.changes.wanted.add((event.input, key))
            self._refer(event.input, event.batch)
        yield from self._keep(event.input, event.batch, event.chunk)

    def _on_found(self, event: Found) -> Iterator[Finding]:
        for key, producers in event.producers.items():
            if key not in self.partitions and self.released.get(key) is not None:
                continue
            share = self._share(event.input, key, event.time, {})
            if share.producers is not None:  # frozen at the first look-up
                continue
            outsiders = self.outsiders_of(Found(event.input, event.time, {key: producers}))
            share.producers = tuple(sorted(producers))
            self.unknown_sets.get(event.input, {}).pop(key, None)
            for _, producer in outsiders:  # SE-7
                rows, votes = share.drop(producer)
                self.counters.unknown += rows + votes
                yield Outsider(key, event.input, producer, rows)
            yield from self._check(key, event.input)

    def _on_counted(self, event: Counted) -> Iterator[Finding]:
        partition = self.partitions.get(event.key)
        if partition is None or partition.status is not Status.OPEN:
            return
        share = partition.shares[event.input]
        for producer, count in event.counts.items():
            if producer in share.votes:
                share.count(producer, count)
        yield from self._check(event.key, event.input)

    def _on_excused(self, event: Excused) -> Iterator[Finding]:
        partition = self.partitions.get(event.key)
        if partition is not None and partition.status is Status.OPEN:
            partition.shares[event.input].excuse(event.producer, event.reason)
            yield from self._check(event.key, event.input)

    def _on_resolved(self, event: Resolved) -> Iterator[Finding]:
        partition = self.partitions.get(event.key)
        if partition is None or partition.status is not Status.QUARANTINED:
            return
        partition.quarantine = None
        partition.resolution = event.resolution
        if event.resolution is Resolution.RECOUNT:
            self._enter(event.key, partition, Status.OPEN)
            for name, share in partition.shares.items():
                share.recount()
                yield from self._check(event.key, name)
        else:
            self._enter(event.key, partition, Status.SEALED)
            yield Sealed(event.key)

    def _on_compacted(self, event: Compacted) -> Iterator[Finding]:
        old = set(event.old)
        name = event.input
        self.compactions += 1
        needing = 0
        for key, partition in self.partitions.items():
            batches = partition.shares[name].batches
            mine = [batch for batch in batches if batch in old]
            if mine:
                needing += 1
                batches[:] = sorted({event.number, *(b for b in batches if b not in old)})
                self.changes.partitions.add(key)
                self._refer(name, event.number)
                yield from self._unrefer(name, mine)
        # some may have nothing in it any more, once outsiders' records were left out
        yield from self._keep(name, event.number, replace(event.chunk, keys=needing))

    def _on_forgotten(self, event: Forgotten) -> Iterator[Finding]:
        for key in event.keys:
            if self.released.get(key) is not None:
                del self.released[key]
        yield from ()

    def _on_release_started(self, event: ReleaseStarted) -> Iterator[Finding]:
        if self.pending is not None or event.release.number != self.releases + 1:
            raise ValueError(f"release {event.release.number} started out of turn")
        for key in event.release.keys:
            partition = self.partitions[key]
            if partition.status is not Status.SEALED:  # SE-4
                raise ValueError(f"{key} is {partition.status}, not complete")
            partition.status = Status.RELEASING  # which the ledger knows by the release
            del self.sealed[key]
        self.pending = event.release
        self.changes.pending = True
        self.releases = event.release.number
        yield from ()

    def _on_release_finished(self, event: ReleaseFinished) -> Iterator[Finding]:
        release = self.pending
        if release is None or release.number != event.number:
            raise ValueError(f"release {event.number} finished without having started")
        self.pending = None
        self.changes.pending = True
        for name, wanted in release.answers.items():
            for key, batches in wanted.items():
                of_key = self.wanted[name][key]
                self.counters.answered += sum(of_key.pop(batch) for batch in batches)
                self.changes.wanted.add((name, key))
                if not of_key:
                    del self.wanted[name][key]
                yield from self._unrefer(name, batches)
        for key in release.keys:
            yield from self._remember(key, release.number, event.time)

    def _remember(self, key: KeyText, number: int, time: float) -> Iterator[Finding]:
        partition = self.partitions.pop(key)
        self.changes.partitions.add(key)
        for unknown in self.unknown_sets.values():  # of a partition that a person released
            unknown.pop(key, None)
        shares = partition.shares.items()
        if partition.resolution is Resolution.DISCARD:
            self.counters.discarded += sum(sum(s.received.values()) for _, s in shares)
        else:
            self.counters.repeats += sum(sum(s.repeats.values()) for _, s in shares)
        self.counters.released += 1
        self.counters.seal_wait_s = max(0.0, time - partition.last)
        retained = bool(self.rules.requests) and partition.resolution is not Resolution.DISCARD
        self.released[key] = Released(
            number,
            tuple(sorted(vote_mark(name, p, v) for name, s in shares for p, v in s.votes.items())),
            {name: list(s.batches) for name, s in shares if s.batches} if retained else NOTHING,
            {name: s.outsiders for name, s in shares if s.outsiders} if retained else NOTHING,
        )
        if not retained:  # SE-9: it leaves the buffer
            for name, share in shares:
                yield from self._unrefer(name, share.batches)

    # ---- parts

    def _decide_ones(self, event: Ingested) -> dict[KeyText, str]:
        """Under `One`: the producer of each partition that this micro-batch brings first (SE-2).

        Whoever punctuates, else the first by name, so that a replay decides alike.
        """
        if not isinstance(self.rules.inputs[event.input], One):
            return {}
        groups = event.groups
        decided: dict[KeyText, str] = {}
        columns = zip(groups.keys, groups.starts, groups.middles, groups.starts[1:], strict=False)
        for key, start, middle, end in columns:
            partition = self.partitions.get(key)
            if partition is None or partition.shares[event.input].producers is None:
                decided[key] = min(groups.producers[middle:end] or groups.producers[start:middle])
        return decided

    def _exceptions(self, event: Ingested) -> dict[int, Verdict]:
        """Position -> what becomes of a group, of those that are not just taken."""
        if self._assessed is not None and self._assessed[0] is event:
            return self._assessed[1]
        name, groups, decided = event.input, event.groups, self._decide_ones(event)
        sets: dict[tuple[str, ...], frozenset[str]] = {}
        verdicts: dict[int, Verdict] = {}
        for key, start, end in zip(groups.keys, groups.starts, groups.starts[1:], strict=False):
            complete, producers = self._standing(name, key, decided)
            if complete is not None:
                verdicts |= {i: _late(groups[i], name, complete) for i in range(start, end)}
            elif producers is None:
                verdicts |= dict.fromkeys(range(start, end), Verdict.UNDECIDED)
            else:
                members = sets.get(producers)
                if members is None:
                    members = sets[producers] = frozenset(producers)
                if not members.issuperset(groups.producers[start:end]):
                    for i in range(start, end):
                        if groups.producers[i] not in members:
                            verdicts[i] = Verdict.UNKNOWN  # SE-7
        self._assessed = event, verdicts
        return verdicts

    def _standing(
        self, name: str, key: KeyText, decided: Mapping[KeyText, str]
    ) -> tuple[Collection[str] | None, tuple[str, ...] | None]:
        """(marks of its punctuations where a partition is complete, its producers if known)."""
        partition = self.partitions.get(key)
        if partition is None:
            released = self.released.get(key)
            votes = None if released is None else released.votes
            return votes, self._initial_set(name, key, decided)
        share = partition.shares[name]
        if partition.status is Status.SEALED or partition.status is Status.RELEASING:
            return [vote_mark(name, p, vote) for p, vote in share.votes.items()], None
        if share.producers is not None:
            return None, share.producers
        return None, self._initial_set(name, key, decided)

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
            shares = {}
            for input_name, rule in self.rules.inputs.items():
                members = self._initial_set(input_name, key, {})
                shares[input_name] = Share(members, input_name in self.rules.identified)
                if isinstance(rule, Registered):
                    self.unknown_sets.setdefault(input_name, {})[key] = None
            partition = self.partitions[key] = Partition(time, time, shares)
            self.changes.partitions.add(key)
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
        if partition is None:
            return self.released.get(key) is not None
        return partition.status is Status.SEALED

    def _holdings(self, name: str, key: KeyText) -> tuple[list[int], tuple[str, ...]]:
        """(chunks, outsiders) of a partition in an input, released or not."""
        partition = self.partitions.get(key)
        if partition is not None:
            return partition.shares[name].batches, partition.shares[name].outsiders
        was = self.released[key]
        return was.batches.get(name, []), was.outsiders.get(name, ())

    def _refer(self, name: str, batch: int, count: int = 1) -> None:
        of_input = self.references.setdefault(name, {})
        of_input[batch] = of_input.get(batch, 0) + count

    def _unrefer(self, name: str, batches: Iterable[int]) -> Iterator[Finding]:
        of_input = self.references.get(name, {})
        for batch in batches:
            of_input[batch] -= 1
            if not of_input[batch]:
                del of_input[batch]
                self.chunks[name].pop(batch, None)
                self.changes.chunks.add((name, batch))
                yield Unneeded(name, batch)


def _order(value: int, base: int) -> int:
    """The number of digits of a value.

    >>> _order(0, 8), _order(7, 8), _order(8, 8)
    (0, 1, 2)
    """
    digits = 0
    while value:
        value, digits = value // base, digits + 1
    return digits


def _upto(batch: int) -> str:
    return "no micro-batch" if batch < 0 else f"micro-batches up to {batch}"


@functools.lru_cache(maxsize=MARKS_KEPT)
def vote_mark(name: str, producer: str, vote: Vote) -> str:
    """A punctuation in 11 characters, to recognise it when it comes again.

    Two different ones have the same mark with a probability of 2^-64; then a punctuation that came
    late would be taken for a repeated one.
    """
    text = "\0".join((name, producer, str(vote.count), vote.digest or ""))
    digest = hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


def _late(group: Group, name: str, marks: Collection[str]) -> Verdict:
    """The verdict for a complete partition: late (SE-5), or repeated for the same vote (SE-6)."""
    if group.promised is not None:
        mark = vote_mark(name, group.producer, Vote(group.promised, group.digest))
        if mark in marks:
            return Verdict.REPEATED
    return Verdict.LATE
