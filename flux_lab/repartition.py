"""Moving a partition between sites without replication: Flux-LB (thesis 4.4.1, 4.4.2; LB-1..LB-9).

Every producer maps partitions to sites; each site's consumer holds the state of its partitions. A
move pauses one partition at all producers, waits until what was in flight has been processed, moves
the state, and restarts the partition at its new place. Everything else keeps flowing. Nothing may
fail meanwhile: whoever needs that uses partition pairs (`segment`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from flux_lab.skew_buffer import SkewBuffer
from flux_runtime.protocol.vocabulary import ProtocolError

Part = Hashable


class PartitionedOperator(Protocol):
    """An operator whose state can be taken out and put in partition by partition (section 6.2)."""

    def process(self, part: Part, item: Any) -> Any:
        """Consume one item of a partition."""
        ...

    def get_partition_state(self, part: Part) -> Any:
        """Take a partition's state out."""
        ...

    def install_partition_state(self, part: Part, state: Any) -> None:
        """Put a partition's state in."""
        ...


@dataclass(frozen=True, slots=True)
class MoveOrder:
    """LB-1, controller to both sites: this partition goes from one to the other."""

    part: Part
    origin: int
    destination: int


@dataclass(frozen=True, slots=True)
class PausePart:
    """LB-3, origin to every producer."""

    part: Part


@dataclass(frozen=True, slots=True)
class PartPaused:
    """LB-4, producer to origin, on the data connection, behind the data."""

    part: Part
    producer: int


@dataclass(frozen=True, slots=True)
class PartState:
    """LB-6, origin to destination."""

    part: Part
    state: Any


@dataclass(frozen=True, slots=True)
class Restart:
    """LB-7, destination to every producer and to the controller."""

    part: Part
    site: int


@dataclass(frozen=True, slots=True)
class Item:
    """A row or batch of one partition."""

    part: Part
    value: Any


class LoadProducer:
    """FL-Prod: routes items to the sites that hold their partitions, over a transient skew buffer.

    Args:
        number: which producer this is.
        home: partition -> site.
        capacity: items of the skew buffer.
    """

    def __init__(self, number: int, home: dict[Part, int], *, capacity: int) -> None:
        self.number = number
        self.home = dict(home)
        self.buffer = SkewBuffer(capacity)

    def insert(self, item: Item) -> bool:
        """Take an input item; False if the buffer is full."""
        return self.buffer.insert(item.part, item)

    def next_item(self, sites: Iterable[int]) -> tuple[int, Item] | None:
        """An item for one of the sites whose connection has room, and that site."""
        free = set(sites)
        found = self.buffer.retrieve(lambda part: self.home[part] in free)
        return None if found is None else (self.home[found[0]], found[1])

    def pause(self, message: PausePart) -> tuple[int, PartPaused]:
        """LB-4: hold the partition back and say so behind its data."""
        self.buffer.stall(message.part)
        return self.home[message.part], PartPaused(message.part, self.number)

    def restart(self, message: Restart) -> None:
        """LB-8: the partition has a new home."""
        self.home[message.part] = message.site
        self.buffer.resume(message.part)


class LoadConsumer:
    """FL-Cons: the consumer of one site, with the partitions that live there.

    Args:
        site: its number.
        operator: holds the partitions' state.
        parts: partitions that live here at first.
        producers: how many producers feed it.
    """

    def __init__(
        self, site: int, operator: PartitionedOperator, parts: Iterable[Part], *, producers: int
    ) -> None:
        self.site = site
        self.operator = operator
        self.parts = set(parts)
        self.producers = producers
        self.leaving: dict[Part, tuple[int, set[int]]] = {}
        self.processed: dict[Part, int] = {}

    def order(self, move: MoveOrder) -> PausePart | None:
        """LB-2, LB-3: the origin pauses the partition; the destination waits for the state."""
        if move.origin != self.site:
            return None
        if move.part not in self.parts:
            raise ProtocolError(f"site {self.site} is told to give away {move.part}, not its own")
        self.leaving[move.part] = (move.destination, set())
        return PausePart(move.part)

    def item(self, item: Item) -> Any:
        """Process one item.

        Raises:
            ProtocolError: the partition does not live here.
        """
        if item.part not in self.parts:
            raise ProtocolError(f"site {self.site} got an item of {item.part}, which is not here")
        self.processed[item.part] = self.processed.get(item.part, 0) + 1
        return self.operator.process(item.part, item.value)

    def paused(self, message: PartPaused) -> tuple[int, PartState] | None:
        """LB-5, LB-6: once every producer has paused, nothing is in flight; the state leaves."""
        destination, paused = self.leaving[message.part]
        paused.add(message.producer)
        if len(paused) < self.producers:
            return None
        del self.leaving[message.part]
        self.parts.discard(message.part)
        state = self.operator.get_partition_state(message.part)
        return destination, PartState(message.part, state)

    def state(self, message: PartState) -> Restart:
        """LB-7: the state is here; let the producers send."""
        self.operator.install_partition_state(message.part, message.state)
        self.parts.add(message.part)
        return Restart(message.part, self.site)


class MoveRound:
    """LB-1, LB-9: the moves of one round, over once every partition has been restarted."""

    def __init__(self, moves: Iterable[MoveOrder]) -> None:
        self.moves = tuple(moves)
        self.waiting = {move.part for move in self.moves}
        if len(self.waiting) < len(self.moves):
            raise ValueError("a partition moves twice in one round")

    def restarted(self, message: Restart) -> bool:
        """Whether the round is over with this message."""
        self.waiting.discard(message.part)
        return not self.waiting
