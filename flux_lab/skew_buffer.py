"""The transient skew buffer: one pool for all partitions, so that one slow consumer blocks no
other.

Without it, head-of-line blocking lets a whole stage run at the rate of its slowest consumer: every
producer fills the queue to that consumer and then waits with a row for it at the head (thesis 4.3).
Keyed by partition rather than by site, so that a partition that moves can be held back alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Any

Part = Hashable


class SkewBuffer:
    """Items per partition over one pool; order is kept within a partition, not across.

    Args:
        capacity: items in all; space is given out on demand, without quotas.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a buffer for {capacity} items holds nothing")
        self.capacity = capacity
        self.held: dict[Part, deque[Any]] = {}
        self.turn: deque[Part] = deque()
        self.stalled: set[Part] = set()
        self.count = 0

    @property
    def full(self) -> bool:
        """Whether the pool has no room."""
        return self.count >= self.capacity

    def insert(self, part: Part, item: Any) -> bool:
        """Keep an item; False, and nothing changed, if there is no room."""
        if self.full:
            return False
        if part not in self.held:
            self.held[part] = deque()
            self.turn.append(part)
        self.held[part].append(item)
        self.count += 1
        return True

    def stall(self, part: Part) -> None:
        """LB-4: hold back a partition that is about to move; its items go on gathering."""
        self.stalled.add(part)

    def resume(self, part: Part) -> None:
        """LB-8: let a partition's items go again."""
        self.stalled.discard(part)

    def retrieve(self, ready: Callable[[Part], bool]) -> tuple[Part, Any] | None:
        """The next item of some partition whose way is free, in turn; None if none is.

        Args:
            ready: whether the connection that serves the partition can take an item.
        """
        for _ in range(len(self.turn)):
            part = self.turn[0]
            self.turn.rotate(-1)
            if part in self.stalled or not ready(part):
                continue
            queue = self.held[part]
            item = queue.popleft()
            self.count -= 1
            if not queue:
                del self.held[part]
                self.turn.remove(part)
            return part, item
        return None
