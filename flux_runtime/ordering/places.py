"""The total order: what a place means (OR-1 to OR-3). A pure machine; no ZooKeeper in here.

A place holds a claim. `Batch` claims the place for records `first` to `last` of a producer; `Begin`
says that a producer has (re)started and that from here on only claims with its new token count.
Whether a claim counts follows from the claims before it alone, so everybody who reads the order
comes to the same sequence of batches, whatever was repeated, lost or late:

- a batch counts if it has its producer's present token and begins where the producer's last batch
  that counts ended;
- a create that was repeated because its answer was lost claims a second place: REPEATED;
- where a create was lost in the middle of several, the ones after it come too early: AHEAD, and
  are proposed again;
- what a process that has been replaced still had under way is OUTDATED, its `Begin` too.

The total order of records is (place, offset). The offsets of a producer in a scope are 0, 1, 2, ...
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from flux_runtime.zookeeper.tail import NUMBER_MAX


@dataclass(frozen=True, slots=True)
class Begin:
    """A producer starts, or starts again."""

    producer: str
    token: str
    """Unique to this start."""
    start: int
    """Above that of the start before it, so that one that comes late does not count."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one producer, whose content never changes once it is proposed (OR-1)."""

    producer: str
    token: str
    first: int
    last: int


Claim: TypeAlias = Begin | Batch


class Verdict(Enum):
    """What a claim amounts to."""

    BEGUN = "begun"
    COUNTS = "counts"
    REPEATED = "repeated"
    AHEAD = "ahead"
    OUTDATED = "outdated"


class Producer(NamedTuple):
    """What the order knows of a producer."""

    token: str
    next: int
    """The offset that its next batch has to begin with."""
    start: int
    """The number of its present start."""


class OutOfOrder(ValueError):  # noqa: N818 - what happened
    """A place was skipped, or a claim contradicts one that counts: a mistake of the caller's."""


class Order:
    """The order up to a place; `handle` is the only thing that changes it."""

    def __init__(self, at: int = 0, producers: Mapping[str, Producer] | None = None) -> None:
        self.at = at
        """The place that comes next."""
        self.producers = dict(producers or {})

    def handle(self, place: int, claim: Claim) -> Verdict:
        """Go on by one place.

        Raises:
            OutOfOrder: it is not the next place (OR-4), or a batch overlaps one that counts.
        """
        if place != self.at:
            raise OutOfOrder(f"place {place} follows {self.at - 1}")
        if place >= NUMBER_MAX - 1:
            raise OutOfOrder(f"place {place} is the last one that ZooKeeper can number")
        verdict = self._judge(claim)
        if verdict is Verdict.BEGUN:
            assert isinstance(claim, Begin)
            next_ = self.next_of(claim.producer)
            self.producers[claim.producer] = Producer(claim.token, next_, claim.start)
        elif verdict is Verdict.COUNTS:
            assert isinstance(claim, Batch)
            known = self.producers[claim.producer]
            self.producers[claim.producer] = known._replace(next=claim.last + 1)
        self.at += 1
        return verdict

    def next_of(self, producer: str) -> int:
        """The offset that the producer's next batch has to begin with."""
        known = self.producers.get(producer)
        return 0 if known is None else known.next

    def token_of(self, producer: str) -> str | None:
        """The token whose claims count."""
        known = self.producers.get(producer)
        return None if known is None else known.token

    def start_of(self, producer: str) -> int:
        """The number of its present start; 0 before the first."""
        known = self.producers.get(producer)
        return 0 if known is None else known.start

    def to_json(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"at": self.at, "producers": {name: list(p) for name, p in self.producers.items()}}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Order:
        """Reads `to_json` back."""
        return Order(data["at"], {name: Producer(*p) for name, p in data["producers"].items()})

    def _judge(self, claim: Claim) -> Verdict:
        present = self.token_of(claim.producer)
        if isinstance(claim, Begin):
            if present == claim.token:
                return Verdict.REPEATED
            late = claim.start <= self.start_of(claim.producer)
            return Verdict.OUTDATED if late else Verdict.BEGUN
        if present != claim.token:
            return Verdict.OUTDATED
        if claim.first > self.next_of(claim.producer):
            return Verdict.AHEAD
        if claim.last < self.next_of(claim.producer):
            return Verdict.REPEATED
        if claim.first < self.next_of(claim.producer):
            raise OutOfOrder(
                f"{claim} overlaps what ends at {self.next_of(claim.producer) - 1}: a batch was "
                "proposed again with other bounds"
            )
        return Verdict.COUNTS


def encode(claim: Claim) -> bytes:
    """The data of a place.

    >>> encode(Batch("ads", "t", 0, 99))
    b'["ads","t",0,99]'
    """
    fields: list[str | int] = [claim.producer, claim.token]
    fields += [claim.first, claim.last] if isinstance(claim, Batch) else [claim.start]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes) -> Claim:
    """Reads `encode` back."""
    fields = json.loads(data)
    return Begin(*fields) if len(fields) == 3 else Batch(*fields)
