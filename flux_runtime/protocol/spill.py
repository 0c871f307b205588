"""Spilling with rotation: which partitions of a site are in memory (SP-1..SP-6).

Partitions take turns in memory, because the input never ends: without rotation the input of spilled
partitions would pile up for ever. Input for a partition on disk is kept in runs and processed when
its turn comes; nothing is dropped (`back`). Sizes in bytes, times in seconds; the clock is handed
in. Memory is counted in pages, a pool of which the site lends to the operator (SP-1).
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from flux_runtime.protocol.dataflow import Rows
from flux_runtime.protocol.vocabulary import Node


class Unit(NamedTuple):
    """The merged rows of one batch."""

    batch: int
    rows: Rows


class Storage(Protocol):
    """A site's disk: numbered runs per node; one is written once, read once or more, then dropped.

    The protocol writes whole runs in order and reads them back in order, so a storage needs neither
    names nor random access (SP-3). It is a cache of this process's own state: nothing in it
    survives the process, and a copy that dies is rebuilt from its partner, never from its disk.
    """

    def write(self, node: Node, run: int, value: Any) -> int:
        """Keep a value as a run; gives its size in bytes."""
        ...

    def read(self, node: Node, run: int) -> Any:
        """The value of a run that has been written and not dropped."""
        ...

    def drop(self, node: Node, run: int) -> None:
        """The run is not needed any more."""
        ...


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


SpillAction = WriteOut | ReadIn


class PagePool:
    """SP-1: the pages that a site lends to its operator.

    The operator takes and gives back pages as the state of its partitions changes its size; the
    site donates pages, or asks for some back without waiting for them (`post_relinquish`), and gets
    them once they are free (`release`).

    Args:
        pages: pages lent at first.
        page_bytes: size of a page.
    """

    def __init__(self, pages: int, *, page_bytes: int = 1) -> None:
        if page_bytes < 1:
            raise ValueError(f"a page of {page_bytes} bytes holds nothing")
        self.pages = pages
        self.page_bytes = page_bytes
        self.wanted_back = 0
        self.held: dict[Part, int] = {}

    @property
    def free(self) -> int:
        """Pages that no partition holds; negative when a state has grown beyond the pool."""
        return self.pages - sum(self.held.values())

    def pages_for(self, size: float) -> int:
        """Pages that hold `size` bytes."""
        return math.ceil(size / self.page_bytes)

    def resize(self, part: Part, size: float) -> None:
        """The operator takes or frees pages, so that the partition's state of `size` bytes fits."""
        self.held[part] = self.pages_for(size)

    def free_all(self, part: Part) -> None:
        """The partition's state has left memory."""
        self.held.pop(part, None)

    def donate(self, pages: int) -> None:
        """The site lends more pages."""
        self.pages += pages

    def post_relinquish(self, pages: int) -> None:
        """The site wants pages back, when there are some free."""
        self.wanted_back += pages

    def release(self) -> int:
        """Give back what the site wants and is free; gives how many pages."""
        given = max(0, min(self.wanted_back, self.free))
        self.pages -= given
        self.wanted_back -= given
        return given


class Spill:
    """Decides which partitions of a site are in memory.

    Args:
        pool: pages that the site lends to the operator.
        sizes: bytes of state per partition; all are in memory at first.
        threshold: pages that are to stay free (SP-2).
        gap: seconds from one activation to the next (`t_gap`); None takes as long as the last
            activation took, the rule of thumb of SP-6.
    """

    def __init__(
        self,
        pool: PagePool,
        sizes: Mapping[Part, float],
        *,
        threshold: int = 0,
        gap: float | None = None,
    ) -> None:
        self.pool = pool
        self.sizes = dict(sizes)
        self.threshold = threshold
        self.gap = gap
        self.active: deque[Part] = deque(sizes)
        self.inactive: deque[Part] = deque()
        self.activated_at = 0.0
        self.activation_took = 0.0
        for part, size in self.sizes.items():
            pool.resize(part, size)

    def check(self) -> list[SpillAction]:
        """SP-2: what must leave memory now; afterwards the site gets back what it asked for."""
        actions = self._make_room(self.pool.wanted_back)
        self.pool.release()
        return actions

    def resize(self, part: Part, size: float) -> list[SpillAction]:
        """A partition's state has changed its size, in memory or by what waits for it on disk."""
        self.sizes[part] = size
        if part in self.active:
            self.pool.resize(part, size)
        return self.check()

    def took(self, seconds: float) -> None:
        """How long the last activation took, for SP-6."""
        self.activation_took = seconds

    def tick(self, now: float) -> list[SpillAction]:
        """SP-4, SP-5: what the passing of time calls for."""
        if not self.inactive:
            return []
        needed = self.pool.pages_for(self.sizes[self.inactive[0]])
        if self.pool.free - needed >= self.threshold + self.pool.wanted_back:
            return [self._read(now)]  # SP-5: there is room, nobody has to go
        gap = self.gap if self.gap is not None else self.activation_took
        if now - self.activated_at < gap:
            return []
        return [*self._make_room(needed), self._read(now)]

    def add(self, part: Part, size: float) -> list[SpillAction]:
        """A partition has come to this site."""
        self.sizes[part] = size
        self.active.append(part)
        self.pool.resize(part, size)
        return self.check()

    def remove(self, part: Part) -> None:
        """The partition has left this site."""
        for queue in (self.active, self.inactive):
            if part in queue:
                queue.remove(part)
        self.pool.free_all(part)
        del self.sizes[part]

    def _make_room(self, wanted: int) -> list[SpillAction]:
        """Write out the longest active partitions until `wanted` pages and the threshold are free.

        A partition that is larger than all of memory is read in nevertheless, alone: else its input
        would pile up for ever.
        """
        out: list[SpillAction] = []
        while self.active and self.pool.free < wanted + self.threshold:
            part = self.active.popleft()
            self.inactive.append(part)
            self.pool.free_all(part)
            out.append(WriteOut(part, self.sizes[part]))
        return out

    def _read(self, now: float) -> ReadIn:
        part = self.inactive.popleft()
        self.active.append(part)
        self.pool.resize(part, self.sizes[part])
        self.activated_at = now
        return ReadIn(part, self.sizes[part])

    def on_disk(self) -> frozenset[Part]:
        """Partitions whose state is on disk."""
        return frozenset(self.inactive)
