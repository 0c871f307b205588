"""Spilling with rotation: a site with too little memory keeps some partitions on disk (SP-1..SP-6).

Partitions take turns in memory, because the input never ends: without rotation the input of spilled
partitions would pile up for ever. Input for a partition on disk is kept in runs and processed when
its turn comes; nothing is dropped. Sizes in bytes, times in seconds; the clock is handed in.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass

Part = Hashable


@dataclass(frozen=True, slots=True)
class WriteOut:
    """Take the partition's state out of the operator and write it to disk."""

    part: Part
    size: float


@dataclass(frozen=True, slots=True)
class ReadIn:
    """Read the partition's state, install it, then process all its pending input."""

    part: Part
    size: float
    pending: float


SpillAction = WriteOut | ReadIn


class Spill:
    """Decides which partitions of a site are in memory.

    Args:
        memory: bytes that the site gives to the operator.
        sizes: bytes of state per partition; all are in memory at first.
        threshold: bytes that are to stay free (SP-2).
        gap: seconds from one activation to the next (`t_gap`); None takes as long as the last
            activation took, the rule of thumb of SP-6.
    """

    def __init__(
        self,
        memory: float,
        sizes: dict[Part, float],
        *,
        threshold: float = 0.0,
        gap: float | None = None,
    ) -> None:
        self.memory = memory
        self.sizes = dict(sizes)
        self.threshold = threshold
        self.gap = gap
        self.active: deque[Part] = deque(sizes)
        self.inactive: deque[Part] = deque()
        self.pending: dict[Part, float] = {}
        self.activated_at = 0.0
        self.activation_took = 0.0

    @property
    def free(self) -> float:
        """Bytes that no partition in memory uses."""
        return self.memory - sum(self.sizes[part] for part in self.active)

    def arrive(self, part: Part, size: float) -> bool:
        """SP-3: input came; True if it can be processed now, else it has been put on disk."""
        if part in self.inactive:
            self.pending[part] = self.pending.get(part, 0.0) + size
            return False
        return True

    def relinquish(self, memory: float) -> list[SpillAction]:
        """SP-1, SP-2: the site gives the operator this much from now on; make it fit."""
        self.memory = memory
        return self._make_room(0.0)

    def grow(self, part: Part, size: float) -> list[SpillAction]:
        """A partition's state has changed its size."""
        self.sizes[part] = size
        return self._make_room(0.0)

    def took(self, seconds: float) -> None:
        """How long the last activation took, for SP-6."""
        self.activation_took = seconds

    def tick(self, now: float) -> list[SpillAction]:
        """SP-4, SP-5: what the passing of time calls for."""
        if not self.inactive:
            return []
        head = self.inactive[0]
        if self.free - self.sizes[head] >= self.threshold:
            return [self._read(now)]  # SP-5: there is room, nobody has to go
        gap = self.gap if self.gap is not None else self.activation_took
        if now - self.activated_at < gap:
            return []
        return [*self._make_room(self.sizes[head]), self._read(now)]

    def remove(self, part: Part) -> None:
        """The partition has moved to another site."""
        for queue in (self.active, self.inactive):
            if part in queue:
                queue.remove(part)
        self.pending.pop(part, None)
        del self.sizes[part]

    def add(self, part: Part, size: float) -> list[SpillAction]:
        """A partition has come from another site."""
        self.sizes[part] = size
        self.active.append(part)
        return self._make_room(0.0)

    def _make_room(self, wanted: float) -> list[SpillAction]:
        """Write out the longest active partitions until `wanted` and the threshold are free."""
        out: list[SpillAction] = []
        while self.active and self.free < wanted + self.threshold:
            part = self.active.popleft()
            self.inactive.append(part)
            out.append(WriteOut(part, self.sizes[part]))
        return out

    def _read(self, now: float) -> ReadIn:
        part = self.inactive.popleft()
        self.active.append(part)
        self.activated_at = now
        return ReadIn(part, self.sizes[part], self.pending.pop(part, 0.0))

    def on_disk(self) -> Iterable[Part]:
        """Partitions whose state is on disk."""
        return tuple(self.inactive)
