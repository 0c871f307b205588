"""One partition of a gate: what came, who voted, and whether it is complete.

Pure data; `flux_runtime.sealing.tracker` changes it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from flux_runtime.sealing.events import KeyText, Quarantined


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
    """What one waiting input contributes to a partition."""

    producers: tuple[str, ...] | None = None
    """The frozen producer set; None while it is not known."""
    received: dict[str, int] = field(default_factory=dict)
    votes: dict[str, Vote] = field(default_factory=dict)
    disputes: dict[str, Vote] = field(default_factory=dict)
    """A later punctuation that differs from the producer's first one."""
    excused: dict[str, str] = field(default_factory=dict)
    """Producer -> reason; its vote is not waited for, its records stay (SE-8)."""
    digests: dict[str, str] = field(default_factory=dict)
    """Of the received records, where they have been computed."""
    batches: list[int] = field(default_factory=list)
    """Micro-batches whose chunks hold records of the partition."""
    outsiders: list[str] = field(default_factory=list)
    """Producers whose buffered records turned out not to belong here (SE-7)."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Producers whose vote is waited for; empty also while the set is unknown."""
        return tuple(
            p for p in self.producers or () if p not in self.votes and p not in self.excused
        )

    @property
    def counted(self) -> bool:
        """Every member has voted (SE-1; SE-2 is the set of one) and what it sent is here."""
        return self.producers is not None and all(
            p in self.excused
            or (p in self.votes and self.votes[p].count == self.received.get(p, 0))
            for p in self.producers
        )

    @property
    def undigested(self) -> tuple[str, ...]:
        """Producers whose digest has to be computed before the partition is complete."""
        return tuple(
            p
            for p in self.producers or ()
            if p in self.votes
            and p not in self.excused
            and self.votes[p].digest is not None
            and p not in self.digests
        )

    @property
    def complete(self) -> bool:
        """SE-1 holds for this input."""
        return self.counted and not self.undigested and self.digests_agree

    @property
    def digests_agree(self) -> bool:
        """No computed digest differs from the one its producer gave."""
        return all(self.votes[p].digest == found for p, found in self.digests.items())

    def add(self, producer: str, rows: int, batch: int) -> None:
        """Records were buffered; what was digested before says nothing any more."""
        self.received[producer] = self.received.get(producer, 0) + rows
        self.digests.pop(producer, None)
        if not self.batches or self.batches[-1] != batch:
            self.batches.append(batch)

    def vote(self, producer: str, vote: Vote) -> None:
        """A punctuation came; an equal one changes nothing."""
        earlier = self.votes.setdefault(producer, vote)
        if earlier != vote:
            self.disputes.setdefault(producer, vote)

    def contradictions(self, key: KeyText, name: str) -> Iterator[Quarantined]:
        """What cannot be right any more (SE-6); of members only, so nothing of an unknown set."""
        for producer in self.producers or ():
            if producer in self.votes and producer not in self.excused:
                wrong = self._contradiction(key, name, producer)
                if wrong is not None:
                    yield wrong

    def _contradiction(self, key: KeyText, name: str, producer: str) -> Quarantined | None:
        vote, dispute = self.votes[producer], self.disputes.get(producer)
        if dispute is not None:
            return Quarantined(
                key,
                name,
                producer,
                "a second punctuation that differs from the first",
                str(vote),
                str(dispute),
            )
        received = self.received.get(producer, 0)
        if received > vote.count:
            return Quarantined(
                key, name, producer, "more records than promised", str(vote.count), str(received)
            )
        digest = self.digests.get(producer)
        if digest is not None and digest != vote.digest:
            return Quarantined(
                key, name, producer, "another digest than promised", str(vote.digest), digest
            )
        return None


@dataclass(slots=True)
class Partition:
    """A partition that has not been released yet."""

    opened: float
    last: float
    """When its latest record or punctuation came."""
    shares: dict[str, Share]
    status: Status = Status.OPEN
    quarantine: Quarantined | None = None

    @property
    def complete(self) -> bool:
        """SE-1 holds for every waiting input."""
        return all(share.complete for share in self.shares.values())


def partition_to_json(partition: Partition) -> dict[str, Any]:
    """An object for the journal's snapshot."""
    q = partition.quarantine
    return {
        "opened": partition.opened,
        "last": partition.last,
        "status": partition.status.value,
        "quarantine": q and [q.key, q.input, q.producer, q.why, q.promised, q.found],
        "shares": {
            name: {
                "producers": share.producers,
                "received": share.received,
                "votes": {p: [vote.count, vote.digest] for p, vote in share.votes.items()},
                "disputes": {p: [vote.count, vote.digest] for p, vote in share.disputes.items()},
                "excused": share.excused,
                "digests": share.digests,
                "batches": share.batches,
                "outsiders": share.outsiders,
            }
            for name, share in partition.shares.items()
        },
    }


def partition_from_json(data: Mapping[str, Any]) -> Partition:
    """The partition that `partition_to_json` wrote."""
    shares = {
        name: Share(
            producers=None if share["producers"] is None else tuple(share["producers"]),
            received=dict(share["received"]),
            votes={p: Vote(*vote) for p, vote in share["votes"].items()},
            disputes={p: Vote(*vote) for p, vote in share["disputes"].items()},
            excused=dict(share["excused"]),
            digests=dict(share["digests"]),
            batches=list(share["batches"]),
            outsiders=list(share["outsiders"]),
        )
        for name, share in data["shares"].items()
    }
    quarantine = data["quarantine"] and Quarantined(*data["quarantine"])
    return Partition(data["opened"], data["last"], shares, Status(data["status"]), quarantine)
