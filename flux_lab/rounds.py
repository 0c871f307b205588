"""The balancer under the virtual clock: what sites count, when they answer, what their moves take.

A site answers a request once its scheduler gets its turn among the external processes, so the
statistics of an overloaded site come late (the reason that the thesis gives for slow rounds).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flux_lab.clock import Clock
from flux_lab.papers.protocol.controller import DataLoss, Destroy, Instantiate
from flux_runtime.protocol.balancer import Balancer, RequestStatistics, ResetStatistics
from flux_runtime.protocol.balancing import SiteStatistics
from flux_runtime.protocol.vocabulary import Node


class Rounds:
    """Drives a balancer, and counts for it.

    Args:
        clock: carries the orders out.
        balancer: decides.
        since: seconds from which on it works.
    """

    def __init__(self, clock: Clock, balancer: Balancer, since: float) -> None:
        self.clock = clock
        self.balancer = balancer
        self.since = since
        self.busy: dict[int, float] = {}
        self.tuples: dict[int, dict[Any, float]] = {}
        self.counted_from: dict[int, float] = {}
        self.moving_since: float | None = None
        self.moves = 0
        clock.at(since, self.tick)

    # ---- what sites count

    def worked(self, site: int, seconds: float) -> None:
        """A site's processor was busy with the dataflow."""
        self.busy[site] = self.busy.get(site, 0.0) + seconds

    def processed(self, site: int, node: Node, rows: float) -> None:
        """A copy took rows."""
        held = self.tuples.setdefault(site, {})
        part = (node.pair, node.copy)
        held[part] = held.get(part, 0.0) + rows

    def turn(self, site: int) -> float:
        """Seconds until a message to a site's scheduler is looked at."""
        left = self.clock.load(site, self.clock.now)
        others = 1 / left - 1 if left > 0 else 0.0
        return self.clock.costs.latency + others * self.clock.costs.quantum

    # ---- rounds

    def tick(self, _: None) -> None:
        """Let the balancer act on what the time and the controller's state call for."""
        if self.clock.now >= self.since:
            self._obey(self.balancer.tick(self.clock.now))

    def _obey(self, orders: Sequence[Any]) -> None:
        clock = self.clock
        placing = [o for o in orders if isinstance(o, Instantiate | Destroy | DataLoss)]
        if placing:
            if self.moving_since is None:
                self.moving_since, self.moves = clock.now, 0
            self.moves += sum(isinstance(order, Instantiate) for order in placing)
            clock.world.obey(placing)
            clock.follow(hosts=True)
        for order in orders:
            match order:
                case ResetStatistics():
                    self._reset()
                case RequestStatistics(number):
                    for site in sorted(clock.world.controller.sites):
                        clock.at(clock.now + self.turn(site), self._answer, (site, number))

    def _reset(self) -> None:
        clock = self.clock
        if self.moving_since is not None:
            clock.trace.rounds.append((self.moving_since, clock.now, self.moves))
            self.moving_since = None
        for site in sorted(clock.world.controller.sites):
            clock.at(clock.now + self.turn(site), self._start_counting, site)
        clock.at(self.balancer.wakes_at, self.tick)

    def _start_counting(self, site: int) -> None:
        self.busy[site] = 0.0
        self.tuples[site] = {}
        self.counted_from[site] = self.clock.now

    def _answer(self, question: tuple[int, int]) -> None:
        """UF-9: utilisation and tuples since the reset, as the site saw them."""
        site, number = question
        clock = self.clock
        if site not in clock.world.controller.sites:
            return
        covered = max(clock.now - self.counted_from.get(site, 0.0), 1e-9)
        held = self.tuples.get(site, {})
        here = sorted((node.pair, node.copy) for node in clock.hosted.get(site, ()))
        statistics = SiteStatistics(
            site=site,
            utilisation=min(1.0, self.busy.get(site, 0.0) / covered),
            processed={part: held.get(part, 0.0) for part in here},
        )
        self._obey(self.balancer.statistics(number, statistics, clock.now))
