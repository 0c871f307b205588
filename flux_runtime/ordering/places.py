"""The total order: what a place means (OR-1 to OR-3). A pure machine; no ZooKeeper in here.

A place holds claims: those of consecutive batches of a producer, or one `Begin`. `Batch` claims the
records `first` to `last` of a producer; `Begin` says that a producer has (re)started and that from
here on only claims with its new token count. Whether a claim counts follows from the claims before
it alone, so everybody who reads the order comes to the same sequence of batches, whatever was
repeated, lost, late or proposed again in other company:

- a batch counts if it has its producer's present token and begins where the producer's last batch
  that counts ended;
- a create that was repeated because its answer was lost claims a second place: REPEATED;
- where a create was lost in the middle of several, the ones after it come too early: AHEAD, and
  are proposed again;
- what a process that has been replaced still had under way is OUTDATED, its `Begin` too.

The total order of records is (place, offset), also where batches share a place: they are of one
producer, and follow each other. The offsets of a producer in a scope are 0, 1, 2, ...
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, TypeAlias

from flux_runtime.zookeeper.tail import NUMBER_MAX

CLAIMS_MAX: Final = 1024
"""Claims in one place: some 20 KB of a znode's megabyte."""


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
Claims: TypeAlias = tuple[Claim, ...]
"""What one place holds."""


class Verdict(Enum):
    """The outcome of a claim."""

    BEGUN = "begun"
    COUNTS = "counts"
    REPEATED = "repeated"
    AHEAD = "ahead"
    OUTDATED = "outdated"


Verdicts: TypeAlias = tuple[Verdict, ...]
"""One for each claim of a place."""


class Producer(NamedTuple):
    """A producer as the order knows it."""

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

    def handle(self, place: int, claims: Claims) -> Verdicts:
        """Go on by one place; what each of its claims amounts to.

        Raises:
            OutOfOrder: it is not the next place (OR-4), it holds none or too many claims, or a
                batch overlaps one that counts. Nothing has changed then.
        """
        if place != self.at:
            raise OutOfOrder(f"place {place} follows {self.at - 1}")
        if place >= NUMBER_MAX - 1:
            raise OutOfOrder(f"place {place} is the last one that ZooKeeper can number")
        if not 0 < len(claims) <= CLAIMS_MAX:
            raise OutOfOrder(f"place {place} holds {len(claims)} claims, not 1 to {CLAIMS_MAX}")
        name = claims[0].producer
        known = self.producers.get(name)
        verdicts = []
        for claim in claims:
            verdict, known = _judge(known, claim)
            verdicts.append(verdict)
        if known is not None:
            self.producers[name] = known
        self.at += 1
        return tuple(verdicts)

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


def _judge(known: Producer | None, claim: Claim) -> tuple[Verdict, Producer | None]:
    """The outcome of a claim, and its producer after it."""
    present = None if known is None else known.token
    if isinstance(claim, Begin):
        if present == claim.token:
            return Verdict.REPEATED, known
        if known is not None and claim.start <= known.start:
            return Verdict.OUTDATED, known
        next_ = 0 if known is None else known.next
        return Verdict.BEGUN, Producer(claim.token, next_, claim.start)
    if known is None or present != claim.token:
        return Verdict.OUTDATED, known
    if claim.first > known.next:
        return Verdict.AHEAD, known
    if claim.last < known.next:
        return Verdict.REPEATED, known
    if claim.first < known.next:
        raise OutOfOrder(
            f"{claim} overlaps what ends at {known.next - 1}: a batch was proposed again with "
            "other bounds"
        )
    return Verdict.COUNTS, known._replace(next=claim.last + 1)


def counting(claims: Claims, verdicts: Verdicts) -> Iterator[tuple[int, Batch]]:
    """The batches of a place that count, each with its number among the claims."""
    for number, (claim, verdict) in enumerate(zip(claims, verdicts, strict=True)):
        if verdict is Verdict.COUNTS and isinstance(claim, Batch):
            yield number, claim


def encode(claims: Claims) -> bytes:
    """The data of a place: who claims, the first offset, and the last one of each batch.

    >>> encode((Batch("ads", "t", 0, 99), Batch("ads", "t", 100, 109)))
    b'["ads","t",0,99,109]'
    """
    first = claims[0]
    fields: list[str | int] = [first.producer, first.token]
    if isinstance(first, Begin):
        fields.append(first.start)
    else:
        fields += [first.first, *(claim.last for claim in claims if isinstance(claim, Batch))]
    return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


def decode(data: bytes) -> Claims:
    """Reads `encode` back."""
    producer, token, *numbers = json.loads(data)
    if len(numbers) == 1:
        return (Begin(producer, token, *numbers),)
    first, *lasts = numbers
    firsts = [first, *(last + 1 for last in lasts[:-1])]
    return tuple(Batch(producer, token, *bounds) for bounds in zip(firsts, lasts, strict=True))
