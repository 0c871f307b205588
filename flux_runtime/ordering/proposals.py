"""A producer's proposals: what to send, and what to believe of the answers (OR-3). A pure machine.

Events in, actions out; the caller sends the creates, in order, and tells what became of them:

    proposals.add(0, 99)                    -> [Create((batch,))]
    proposals.answered((batch,), 17)        -> [Placed(batch, 17)]
    proposals.failed((batch,))              -> ... -> [CatchUp()] when nothing is under way
    proposals.caught_up(order, places)      -> what counts is Placed, the rest is sent again

A batch goes out at once unless enough creates are under way. Those that come meanwhile wait, and
the next create claims them together (group commit): they share a place, and its cost.

An answer means that the claims count only as long as every create before it was answered. After a
failure nothing is sent and no answer is believed until the order has been read up to its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Final, TypeAlias

from flux_runtime.ordering.places import CLAIMS_MAX, Batch, Begin, Claims, Order, OutOfOrder

IN_FLIGHT_MAX: Final = 1
"""Creates under way at once; 2, 4 and 8 were no faster: fewer batches share a place then."""


@dataclass(frozen=True, slots=True)
class Create:
    """Send these claims in one create, after all that were to be sent before."""

    claims: Claims


@dataclass(frozen=True, slots=True)
class CatchUp:
    """Read the order to its end, as it is when the session is there, and call `caught_up`."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The batch counts, at this place."""

    batch: Batch
    place: int


Action: TypeAlias = Create | CatchUp | Placed


class Phase(Enum):
    """How far the producer is."""

    BEGINNING = "beginning"
    OPEN = "open"
    DOUBTFUL = "doubtful"
    CATCHING_UP = "catching up"


class Superseded(RuntimeError):  # noqa: N818 - what happened
    """Another process has begun with the same producer's name; nothing of this one counts now."""


class Proposals:
    """One start of one producer.

    Args:
        producer: its name.
        token: unique to this start.
        in_flight_max: how many creates may be under way at once.
        group_max: how many batches may share a place; 1: none does (OR-9).
    """

    def __init__(
        self,
        producer: str,
        token: str,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
        group_max: int = CLAIMS_MAX,
    ) -> None:
        if in_flight_max < 1 or not 1 <= group_max <= CLAIMS_MAX:
            raise ValueError(f"{in_flight_max} creates of {group_max} batches")
        self.producer = producer
        self.token = token
        self.phase = Phase.BEGINNING
        self._in_flight_max = in_flight_max
        self._group_max = group_max
        self._in_flight: deque[Claims] = deque()
        self._unplaced: deque[Batch] = deque()
        """Batches that do not count yet, as far as is known; the first `_sent` are under way."""
        self._sent = 0
        self.begun = False
        """Whether its `Begin` counted."""
        self._start = 1

    @property
    def idle(self) -> bool:
        """Whether all that was added counts."""
        return self.begun and not self._unplaced

    @property
    def waiting(self) -> bool:
        """Whether there are batches that no create claims yet."""
        return self._sent < len(self._unplaced)

    @property
    def unplaced(self) -> int:
        """How many batches do not count yet."""
        return len(self._unplaced)

    def begin(self) -> list[Action]:
        """Claim the producer's name."""
        return self._create((Begin(self.producer, self.token, self._start),))

    def add(self, first: int, last: int) -> list[Action]:
        """Propose the next records.

        Raises:
            OutOfOrder: an empty batch, or not the next one.
        """
        if last < first or (self._unplaced and first != self._unplaced[-1].last + 1):
            raise OutOfOrder(f"records {first} to {last} of {self.producer} are not the next ones")
        self._unplaced.append(Batch(self.producer, self.token, first, last))
        return self._send()

    def answered(self, claims: Claims, place: int) -> list[Action]:
        """A create was carried out."""
        self._arrived(claims)
        if self.phase is Phase.DOUBTFUL:
            return self._settle()
        if self.phase is Phase.BEGINNING:
            self.phase = Phase.CATCHING_UP
            return [CatchUp()]
        assert self._unplaced[0] == claims[0]
        self._sent -= len(claims)
        placed = [Placed(self._unplaced.popleft(), place) for _ in claims]
        return [*placed, *self._send()]

    def failed(self, claims: Claims) -> list[Action]:
        """A create was carried out or not; the answer is lost."""
        self._arrived(claims)
        self.phase = Phase.DOUBTFUL
        return self._settle()

    def caught_up(self, order: Order, places: Mapping[int, int]) -> list[Action]:
        """The order was read to its end.

        Args:
            order: at its end.
            places: first offset -> place of this producer's batches that count, at least of those
                that counted since it was read before.

        Raises:
            Superseded: another process has taken the name.
        """
        assert self.phase is Phase.CATCHING_UP
        if order.token_of(self.producer) != self.token:
            if self.begun:
                raise Superseded(f"another process proposes as {self.producer}")
            self.phase = Phase.BEGINNING
            self._start = order.start_of(self.producer) + 1
            return self.begin()
        self.phase = Phase.OPEN
        self.begun = True
        self._sent = 0
        counted: list[Action] = []
        while self._unplaced and self._unplaced[0].last < order.next_of(self.producer):
            batch = self._unplaced.popleft()
            counted.append(Placed(batch, places[batch.first]))
        if self._unplaced and self._unplaced[0].first != order.next_of(self.producer):
            raise OutOfOrder(
                f"{self._unplaced[0]} does not follow what counts of {self.producer}, which ends "
                f"at {order.next_of(self.producer) - 1}"
            )
        return [*counted, *self._send()]

    def _send(self) -> list[Action]:
        actions: list[Action] = []
        while (
            self.phase is Phase.OPEN
            and self._sent < len(self._unplaced)
            and len(self._in_flight) < self._in_flight_max
        ):
            claims = tuple(islice(self._unplaced, self._sent, self._sent + self._group_max))
            actions += self._create(claims)
            self._sent += len(claims)
        return actions

    def _create(self, claims: Claims) -> list[Action]:
        self._in_flight.append(claims)
        return [Create(claims)]

    def _arrived(self, claims: Claims) -> None:
        self._in_flight.remove(claims)

    def _settle(self) -> list[Action]:
        if self._in_flight:
            return []
        self.phase = Phase.CATCHING_UP
        return [CatchUp()]
