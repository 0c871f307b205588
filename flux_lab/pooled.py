"""A cluster whose copies work only when their site's pooler calls them, in its own time (UF-5, 6).

Every site calls its copies in turn and does nothing else: a call that finds nothing to do takes
`idle_call` seconds, one that processes a unit `row` seconds a row more, and all of it longer by
the processes that share the site's processor. Links, log and movement of states take no time; the
balancer asks the poolers, and its orders go to them. One seed, one run.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from typing import Any

from flux_lab.pooler import Pooler, Turn
from flux_lab.world import Step, World
from flux_runtime.protocol.balancer import Balancer, RequestStatistics, ResetStatistics
from flux_runtime.protocol.controller import Destroy, Instantiate, Order
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.messages import Rows
from flux_runtime.protocol.segment import Segment
from flux_runtime.protocol.vocabulary import Node


class PooledWorld(World):
    """A world in which segments do not work by themselves: somebody calls `called`."""

    def _settle(self, node: Node) -> None:
        machine = self.nodes[node]
        if not isinstance(machine, Segment):
            super()._settle(node)
            return
        for to in list(machine.boundary.destinations()):
            while self.network.room(node, to) and (message := machine.next_message(to)) is not None:
                self._send(node, to, message)

    def called(self, turn: Turn) -> None:
        """A pooler has let a copy work."""
        for instruction in turn.instructions:
            self._act(turn.node, instruction)
        self._settle(turn.node)


class Pooled:
    """A pooled world, its poolers, and the balancer that they report to.

    Args:
        dataflow: what runs.
        batches: the source's input.
        sites: machines that host copies.
        balancer: makes the balancer for the world's controller; none moves nothing.
        idle_call: seconds of an idle call.
        row: seconds to process a row.
        share: (site, time) -> share of its processor that the pooler gets.
        seed: of the order in which messages are delivered.
        parallel_max: catch-ups at once.

    Attributes:
        poolers: per site.
        now: seconds.
        reports: statistics that the balancer was given.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        batches: Sequence[Rows],
        *,
        sites: int,
        balancer: Callable[[Any], Balancer] | None = None,
        idle_call: float = 1e-3,
        row: float = 1e-2,
        share: Callable[[int, float], float] = lambda site, time: 1.0,
        seed: int = 0,
        parallel_max: int = 1,
    ) -> None:
        self.world = PooledWorld(
            dataflow, batches, sites=sites, link_capacity=4, parallel_max=parallel_max
        )
        self.balancer = balancer(self.world.controller) if balancer else None
        self.idle_call = idle_call
        self.row = row
        self.share = share
        self.rng = random.Random(seed)
        self.now = 0.0
        self.reports: list[Any] = []
        self.poolers = {
            site: Pooler(dataflow, site, idle_call_s=idle_call) for site in range(sites)
        }
        for node, site in self.world.site.items():
            segment = self.world.nodes[node]
            assert isinstance(segment, Segment)
            self.poolers[site].host(segment)
        self.turns = [(0.0, site) for site in self.poolers]

    def run(self, until: float, *, faults: Sequence[tuple[float, Step]] = ()) -> None:
        """Let every site take its turns until then."""
        left = sorted(faults, key=lambda fault: fault[0])
        while self.turns and self.turns[0][0] <= until:
            self.now, site = heapq.heappop(self.turns)
            while left and left[0][0] <= self.now:
                self._fail(left.pop(0)[1])
            if site in self.poolers:
                took = self._turn(site)
                heapq.heappush(self.turns, (self.now + took, site))
            self._deliver()
            if self.balancer is not None:
                self.obey(self.balancer.tick(self.now))

    def _turn(self, site: int) -> float:
        """One call; how long it takes."""
        turn = self.poolers[site].turn()
        took = self.idle_call
        if turn is not None:
            self.world.called(turn)
            took += turn.rows * self.row
        return took / self.share(site, self.now)

    def _fail(self, fault: Step) -> None:
        self.world.perform(fault)
        assert isinstance(fault.at, int)
        del self.poolers[fault.at]
        self._deliver()

    def _deliver(self) -> None:
        """Whatever needs no processor happens at once, in the seed's order."""
        while steps := self.world.steps():
            self.world.perform(self.rng.choice(steps))
            self._follow()

    def _follow(self) -> None:
        """UF-5: copies that the controller creates or ends come to, or leave, their poolers."""
        hosted = {node for pooler in self.poolers.values() for node in pooler.segments}
        for node in hosted - self.world.site.keys():
            for pooler in self.poolers.values():
                pooler.obey(Destroy(node))
        for node, site in self.world.site.items():
            if node not in hosted:
                pooler = self.poolers[site]
                pooler.obey(Instantiate(node, site))
                self.world.nodes[node] = pooler.segments[node]

    def obey(self, orders: Sequence[Order | ResetStatistics | RequestStatistics]) -> None:
        """Carry out what the balancer orders."""
        for order in orders:
            match order:
                case ResetStatistics():
                    for pooler in self.poolers.values():
                        pooler.reset(order, self.now)
                case RequestStatistics():
                    self._gather(order)
                case _:
                    self.world.obey([order])
                    self._follow()

    def _gather(self, request: RequestStatistics) -> None:
        assert self.balancer is not None
        for site in list(self.poolers):
            report = self.poolers[site].report(request, self.now)
            self.reports.append(report.statistics)
            self.obey(self.balancer.statistics(report.round, report.statistics, self.now))

    def drain(self) -> None:
        """Go on until nothing happens any more, whatever the time."""
        idle = 0
        while idle < 2 * sum(len(p.segments) + 1 for p in self.poolers.values()):
            for pooler in list(self.poolers.values()):
                turn = pooler.turn()
                if turn is None or turn.idle:
                    idle += 1
                    continue
                idle = 0
                self.world.called(turn)
                self._deliver()
