"""Disks under the virtual clock: on sites with too little memory partitions take turns (SP-1..6).

`Spill` decides, the segments evict and activate; here it takes the time of a disk, one access after
another. The processor goes on meanwhile: what arrives for a partition on disk is received,
acknowledged and kept by its front.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from flux_lab.clock import Clock
from flux_lab.costs import Disk
from flux_lab.papers.protocol.segment import Segment
from flux_lab.world import Step
from flux_runtime.protocol.spill import PagePool, Spill, SpillAction, WriteOut
from flux_runtime.protocol.vocabulary import Node

LOOK_SECONDS = 0.05
"""How often a site compares its memory with what its partitions need."""


class Disks:
    """The disks of all sites.

    Args:
        clock: whose world has the partitions.
        memory: (site, time) -> bytes for operators' state.
        disk: what an access takes.
    """

    def __init__(self, clock: Clock, memory: Callable[[int, float], float], disk: Disk) -> None:
        self.clock = clock
        self.memory = memory
        self.disk = disk
        self.spills: dict[int, Spill] = {}
        self.lent: dict[int, int] = {}
        self.waiting: dict[int, deque[SpillAction]] = {}
        self.busy: set[int] = set()
        clock.at(0.0, self._look)

    def _look(self, _: None) -> None:
        for site, nodes in self.clock.hosted.items():
            if site >= 0:
                self._adjust(site, [node for node in nodes if self._segment(node) is not None])
        self.clock.at(self.clock.now + LOOK_SECONDS, self._look)

    def _segment(self, node: object) -> Segment | None:
        machine = self.clock.world.nodes.get(node)  # type: ignore[call-overload]
        return machine if isinstance(machine, Segment) else None

    def _adjust(self, site: int, nodes: list[Node]) -> None:
        """Partitions come and go, memory is lent and asked back, and turns are taken."""
        pages = int(self.memory(site, self.clock.now) // self.disk.page)
        if site not in self.spills:
            self.spills[site] = Spill(PagePool(pages, page_bytes=self.disk.page), {})
            self.lent[site], self.waiting[site] = pages, deque()
        spill, waiting = self.spills[site], self.waiting[site]
        more = pages - self.lent[site]
        self.lent[site] = pages
        spill.pool.donate(max(more, 0))
        spill.pool.post_relinquish(max(-more, 0))
        for part in [part for part in spill.sizes if part not in nodes]:
            spill.remove(part)
        for node in nodes:
            if node not in spill.sizes:
                segment = self._segment(node)
                assert segment is not None
                waiting += spill.add(node, segment.back.operator.state_size())
        waiting += spill.check()
        if not waiting and site not in self.busy:
            waiting += spill.tick(self.clock.now)
        self._next(site)

    def _next(self, site: int) -> None:
        """Start the next access of an idle disk."""
        if site in self.busy or not self.waiting[site]:
            return
        action = self.waiting[site].popleft()
        if self._segment(action.part) is None:
            self._next(site)
            return
        took = self.disk.access(action.size)
        self.busy.add(site)
        if isinstance(action, WriteOut):
            self._perform("evict", action)
        else:
            self.spills[site].took(took)
        self.clock.at(self.clock.now + took, self._done, (site, action))

    def _done(self, access: tuple[int, SpillAction]) -> None:
        site, action = access
        self.busy.discard(site)
        if not isinstance(action, WriteOut):
            self.spills[site].activated_at = self.clock.now
            self._perform("activate", action)
        self._next(site)

    def _perform(self, kind: str, action: SpillAction) -> None:
        segment = self._segment(action.part)
        if segment is None or segment.back.resident is (kind == "activate"):
            return
        assert isinstance(action.part, Node)
        self.clock.trace.spilled.append((self.clock.now, action.part, kind == "evict"))
        self.clock.perform(Step(kind, action.part))
