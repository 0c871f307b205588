"""One partition of a gate: what came, who voted, and whether it is complete.

Pure data; `flux_runtime.sealing.tracker` changes it.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from types import MappingProxyType
from typing import Any, Final

from flux_runtime.sealing.events import Count, KeyText, Quarantined, Resolution

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
"""What is rare has no container of its own: 10^5 open partitions are ordinary."""


class Status(enum.StrEnum):
    """Where a partition stands. Only `OPEN` and `QUARANTINED` ones take records."""

    OPEN = "open"
    SEALED = "sealed"
    """Complete, not yet part of a release."""
    RELEASING = "releasing"
    QUARANTINED = "quarantined"


@dataclass(frozen=True, slots=True)
class Vote:
    """A producer's punctuation: how many records it sent, and their digest if it gave one."""

    count: int
    digest: str | None = None

    def __str__(self) -> str:
        return f"{self.count} records" + (f", digest {self.digest}" if self.digest else "")


@dataclass(slots=True)
class Share:
    """The share of one waiting input in a partition."""

    producers: tuple[str, ...] | None = None
    """The frozen producer set; None while it is not known."""
    identified: bool = False
    """Records have an id: what came more than once counts once (D6)."""
    received: dict[str, int] = field(default_factory=dict)
    """Producer -> its records in the buffer, repeats among them."""
    votes: dict[str, Vote] = field(default_factory=dict)
    batches: list[int] = field(default_factory=list)
    """Chunks that hold records of the partition."""
    repeats: Mapping[str, int] = field(default_factory=lambda: NOTHING)
    """Producer -> how many of the received are repeats of known ids, as far as was counted."""
    counts: Mapping[str, Count] = field(default_factory=lambda: NOTHING)
    """Producer -> what was counted, as long as nothing came since."""
    disputes: Mapping[str, tuple[Vote, ...]] = field(default_factory=lambda: NOTHING)
    """Of a producer whose punctuations differ, the newest: several if one micro-batch brought them,
    because it has no order."""
    excused: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """Producer -> reason; its vote is not waited for, its records stay (SE-8)."""
    outsiders: tuple[str, ...] = ()
    """Producers whose records in the chunks turned out not to belong here (SE-7)."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Producers whose vote is waited for; empty also while the set is unknown."""
        return tuple(
            p for p in self.producers or () if p not in self.votes and p not in self.excused
        )

    def held(self, producer: str) -> int:
        """Records of a producer without the repeats that are known."""
        return self.received.get(producer, 0) - self.repeats.get(producer, 0)

    @property
    def counted(self) -> bool:
        """Every member has voted (SE-1; SE-2 is the set of one) and what it sent is here.

        As far as is known: `uncounted` producers have to be looked at once more.
        """
        return self.producers is not None and all(
            p in self.excused or (p in self.votes and self._arrived(p, self.votes[p].count))
            for p in self.producers
        )

    @property
    def uncounted(self) -> tuple[str, ...]:
        """Producers whose records have to be counted, or digested, before SE-1 can hold."""
        if not self.identified and all(vote.digest is None for vote in self.votes.values()):
            return ()
        return tuple(
            p
            for p, vote in self.votes.items()
            if p in (self.producers or ())
            and p not in self.excused
            and (self.identified or vote.digest is not None)
            and p not in self.counts
        )

    def exceeded(self, producer: str) -> bool:
        """More came of a producer than it promised, as far as is known."""
        return self.held(producer) > self.votes[producer].count

    @property
    def complete(self) -> bool:
        """SE-1 holds for this input."""
        return self.counted and not self.uncounted and not any(self.contradictions("", ""))

    @property
    def complete_by_counts(self) -> bool | None:
        """`complete`, where counts alone decide and nothing contradicts them; else None."""
        producers = self.producers
        if not producers or self.identified or self.disputes or self.excused or self.repeats:
            return None
        received, votes, complete = self.received, self.votes, True
        for producer in producers:
            vote = votes.get(producer)
            if vote is None:
                complete = False
                continue
            held = received.get(producer, 0)
            if held > vote.count or vote.digest is not None:
                return None
            complete &= held == vote.count
        return complete

    def add(self, records: Iterable[tuple[str, int]], batch: int) -> bool:
        """Records of producers were buffered; whether they are the first ones in their chunk.

        What was counted before says nothing any more.
        """
        received = self.received
        for producer, rows in records:
            received[producer] = received.get(producer, 0) + rows
            if self.counts:
                self.counts = _without(self.counts, producer)
        if self.batches and self.batches[-1] == batch:
            return False
        self.batches.append(batch)
        return True

    def vote(self, producer: str, vote: Vote) -> bool:
        """A punctuation came; whether it, or one before it, differs from the producer's first."""
        return self.votes.setdefault(producer, vote) != vote or producer in self.disputes

    def dispute(self, producer: str, newest: Iterable[Vote]) -> None:
        """A producer's punctuations differ; `newest` came in the last micro-batch."""
        self.disputes = {**self.disputes, producer: tuple(newest)}

    def count(self, producer: str, count: Count) -> None:
        """The producer's records were counted; of no account if more came meanwhile."""
        if count.received == self.received.get(producer, 0):
            self.counts = {**self.counts, producer: count}
            if count.received > count.rows:
                self.repeats = {**self.repeats, producer: count.received - count.rows}

    def excuse(self, producer: str, reason: str) -> None:
        """The producer's vote is not waited for (SE-8)."""
        self.excused = {**self.excused, producer: reason}

    def exclude(self, producer: str) -> None:
        """The producer's records in the chunks do not belong here (SE-7)."""
        if producer not in self.outsiders:
            self.outsiders = (*self.outsiders, producer)

    def drop(self, producer: str) -> tuple[int, int]:
        """Forget a producer who does not belong here; its (records, punctuations)."""
        rows = self.received.pop(producer, 0)
        votes = int(self.votes.pop(producer, None) is not None) + int(producer in self.disputes)
        self.disputes = _without(self.disputes, producer)
        self.counts = _without(self.counts, producer)
        self.repeats = _without(self.repeats, producer)
        if rows:
            self.exclude(producer)
        return rows, votes

    def recount(self) -> None:
        """The newest punctuation of every producer is its promise, and nothing is counted yet.

        Where no single one is the newest, the producer has to send the right one again.
        """
        self.votes |= {p: newest[0] for p, newest in self.disputes.items() if len(newest) == 1}
        self.disputes = {p: newest for p, newest in self.disputes.items() if len(newest) > 1}
        self.counts = NOTHING

    def contradictions(self, key: KeyText, name: str) -> Iterator[Quarantined]:
        """Contradictions of members (SE-6); none where the producer set is not known."""
        for producer in self.producers or ():
            vote = self.votes.get(producer)
            if vote is None or producer in self.excused:
                continue
            if (
                vote.digest is not None
                or self.identified
                or self.received.get(producer, 0) > vote.count
                or producer in self.disputes
            ):
                contradiction = self._contradiction(key, name, producer)
                if contradiction is not None:
                    yield contradiction

    def _contradiction(self, key: KeyText, name: str, producer: str) -> Quarantined | None:
        vote, dispute = self.votes[producer], self.disputes.get(producer)
        count = self.counts.get(producer)
        held = self.held(producer)

        def quarantined(why: str, promised: object, actual: object) -> Quarantined:
            return Quarantined(key, name, producer, why, str(promised), str(actual))

        if dispute is not None:
            why = "a second punctuation that differs from the first"
            if len(dispute) > 1:
                why = "punctuations that differ came together, and none of them is the newest"
            others = [other for other in dispute if other != vote] or dispute
            return quarantined(why, vote, ", ".join(map(str, others)))
        if count is not None and count.conflicts:
            why = "ids that several different records have"
            return quarantined(why, 0, count.conflicts)
        if held > vote.count and (count is not None or not self.identified):
            return quarantined("more records than promised", vote.count, held)
        if (
            count is not None
            and vote.digest is not None
            and held == vote.count
            and count.digest != vote.digest
        ):
            return quarantined("another digest than promised", vote.digest, count.digest)
        return None

    def _arrived(self, producer: str, promised: int) -> bool:
        held = self.held(producer)
        return held == promised or (
            self.identified and held > promised and producer not in self.counts
        )


@dataclass(slots=True)
class Partition:
    """A partition that has not been released yet."""

    opened: float
    last: float
    """When its latest record or punctuation came."""
    shares: dict[str, Share]
    status: Status = Status.OPEN
    quarantine: Quarantined | None = None
    resolution: Resolution | None = None
    """What a person decided after it had been in quarantine; it stands until the release."""

    @property
    def complete(self) -> bool:
        """SE-1 holds for every waiting input."""
        return all(share.complete for share in self.shares.values())

    @property
    def complete_by_counts(self) -> bool | None:
        """`complete`, where counts alone decide and nothing contradicts them; else None."""
        complete = True
        for share in self.shares.values():
            of_share = share.complete_by_counts
            if of_share is None:
                return None
            complete &= of_share
        return complete

    @property
    def counted(self) -> bool:
        """Every waiting input has all votes and records, as far as is known."""
        return all(share.counted for share in self.shares.values())

    def to_count(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """(input, producers) that alone may keep it from being complete, or contradict it."""
        for name, share in self.shares.items():
            uncounted = share.uncounted
            if uncounted:
                last = self.counted
                due = tuple(p for p in uncounted if last or share.exceeded(p))
                if due:
                    yield name, due


def partition_to_json(partition: Partition, sets: Mapping[tuple[str, ...], int]) -> list[Any]:
    """An array that `json.dumps` takes and `partition_from_json` reads back.

    Args:
        partition: whatever its status.
        sets: producer sets that are written as a number.
    """
    usual = [
        partition.opened,
        partition.last,
        partition.status,
        {name: _share_to_json(share, sets) for name, share in partition.shares.items()},
    ]
    q = partition.quarantine
    if q is None and partition.resolution is None:
        return usual
    quarantine = q and [q.key, q.input, q.producer, q.why, q.promised, q.found]
    return [*usual, quarantine, partition.resolution]


def partition_from_json(
    data: list[Any],
    identified: frozenset[str],
    sets: Sequence[tuple[str, ...]],
    seen: dict[tuple[str, ...], tuple[str, ...]],
) -> Partition:
    """The partition that `partition_to_json` wrote.

    Args:
        data: what it wrote.
        identified: inputs whose records have an id.
        sets: the producer sets that are written as a number.
        seen: other producer sets that occurred already; partitions share them.
    """
    opened, last, status, shares, *rare = data
    quarantine, resolution = rare or (None, None)
    return Partition(
        opened,
        last,
        {
            name: _share_from_json(fields, name in identified, sets, seen)
            for name, fields in shares.items()
        },
        Status(status),
        quarantine and Quarantined(*quarantine),
        resolution and Resolution(resolution),
    )


def _share_to_json(share: Share, sets: Mapping[tuple[str, ...], int]) -> list[Any]:
    members, received, votes = share.producers, share.received, share.votes
    usual: list[Any]
    if members is None:
        by_producer = {p: [vote.count, vote.digest] for p, vote in votes.items()}
        usual = [None, received, by_producer, share.batches]
    else:  # a number for each member; most partitions have nothing else
        usual = [
            sets.get(members, members),
            list(map(received.get, members)),
            [*map(_vote_to_json, map(votes.get, members))] if votes else [],
            share.batches,
        ]
    if not (share.repeats or share.counts or share.disputes or share.excused or share.outsiders):
        return usual
    return [
        *usual,
        dict(share.repeats),
        {p: [c.received, c.rows, c.digest, c.conflicts] for p, c in share.counts.items()},
        {p: [astuple(vote) for vote in newest] for p, newest in share.disputes.items()},
        dict(share.excused),
        share.outsiders,
    ]


def _vote_to_json(vote: Vote | None) -> Any:
    return None if vote is None else vote.count if vote.digest is None else [*astuple(vote)]


def _share_from_json(
    data: list[Any],
    identified: bool,
    sets: Sequence[tuple[str, ...]],
    seen: dict[tuple[str, ...], tuple[str, ...]],
) -> Share:
    members, received, votes, batches, *rare = data
    if members is None:
        producers = None
        received_rows = {sys.intern(p): rows for p, rows in received.items()}
        known_votes = {sys.intern(p): Vote(*vote) for p, vote in votes.items()}
    else:
        if isinstance(members, int):
            producers = sets[members]
        else:
            producers = tuple(map(sys.intern, members))
            producers = seen.setdefault(producers, producers)
        received_rows = {p: rows for p, rows in zip(producers, received, strict=True) if rows}
        known_votes = {
            p: Vote(*vote) if isinstance(vote, list) else Vote(vote)
            for p, vote in zip(producers if votes else (), votes, strict=True)
            if vote is not None
        }
    share = Share(producers, identified, received_rows, known_votes, batches)
    if rare:
        repeats, counts, disputes, excused, outsiders = rare
        share.repeats = repeats or NOTHING
        share.counts = {p: Count(*count) for p, count in counts.items()} or NOTHING
        share.disputes = {
            p: tuple(Vote(*vote) for vote in newest) for p, newest in disputes.items()
        } or NOTHING
        share.excused = excused or NOTHING
        share.outsiders = tuple(outsiders)
    return share


def _without(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if name not in values:
        return values
    return {n: value for n, value in values.items() if n != name} or NOTHING
