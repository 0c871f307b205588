"""Balancing mode over the real protocol: induced failures as moves, aborted by real ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from flux_runtime.protocol.balancer import Balancer, Mode, RequestStatistics, ResetStatistics
from flux_runtime.protocol.balancing import CLUSTER, SiteStatistics
from flux_runtime.protocol.controller import Controller, Order, chained
from flux_runtime.protocol.vocabulary import Node, Pair, ProtocolError, Shape
from flux_runtime.simulation.workload import digest_dataflow, digest_input
from flux_runtime.simulation.world import Step, World

SHAPE = Shape(widths=(8,), ordered_egress=False, pool=64)


def statistics(world: World, share: dict[int, float]) -> list[SiteStatistics]:
    """What the sites would report if the slowest of them set the pace."""
    parts: dict[int, list[tuple[Pair, int]]] = {site: [] for site in world.controller.sites}
    for node, copy in world.controller.nodes():
        parts[copy.site].append((node.pair, node.copy))
    load = {site: len(held) / share.get(site, 1.0) for site, held in parts.items()}
    rate = 1.0 / max(load.values())
    return [
        SiteStatistics(site=s, utilisation=load[s] * rate, processed=dict.fromkeys(held, 100.0))
        for s, held in parts.items()
    ]


class Run:
    """A world whose balancer is asked after every step; its clock is the number of steps."""

    def __init__(self, seed: int, share: dict[int, float]) -> None:
        self.rng = random.Random(seed)
        self.share = share
        self.world = World(
            digest_dataflow(SHAPE), digest_input(30, rows=4, keys=40), sites=4, link_capacity=4
        )
        self.balancer = Balancer(self.world.controller, CLUSTER)
        self.now = 0.0

    def carry_out(self, said: Sequence[Order | ResetStatistics | RequestStatistics]) -> None:
        self.world.obey([s for s in said if not isinstance(s, ResetStatistics | RequestStatistics)])
        for request in said:
            if isinstance(request, RequestStatistics):
                for answer in statistics(self.world, self.share):
                    self.carry_out(self.balancer.statistics(request.round, answer, self.now))

    def run(self, steps: int, *, kill_at: int | None = None) -> None:
        for n in range(steps):
            self.now += 0.05
            self.carry_out(self.balancer.tick(self.now))
            possible = self.world.steps()
            if n == kill_at:
                self.world.perform(Step("crash", 2))
            elif possible:
                self.world.perform(self.rng.choice(possible))


@pytest.mark.parametrize("seed", range(5))
def test_uf_11_copies_leave_the_loaded_site_and_nothing_is_lost(seed: int) -> None:
    run = Run(seed, {0: 0.4})
    run.run(4000)
    run.world.finished()
    on_site = [copy.site for _, copy in run.world.controller.nodes()]
    assert on_site.count(0) == 2
    assert all(copy.life == 0 or copy.site != 0 for _, copy in run.world.controller.nodes())


@pytest.mark.parametrize("seed", range(5))
def test_fs_28_a_failure_in_the_middle_of_a_move_is_recovered_first(seed: int) -> None:
    run = Run(seed, {0: 0.4})
    run.run(4000, kill_at=60 + 7 * seed)
    run.world.finished()
    if not run.world.controller.losses:
        assert run.balancer.round >= 1
        assert all(copy.site != 2 for _, copy in run.world.controller.nodes())


def controller() -> Controller:
    shape = Shape(widths=(2,))
    return Controller(shape, chained(shape, 3), frozenset(range(3)))


def test_uf_8_answers_of_an_earlier_round_are_ignored() -> None:
    balancer = Balancer(controller(), CLUSTER)
    assert balancer.tick(0.0) == [ResetStatistics(0)]
    assert balancer.tick(1.0) == [RequestStatistics(0)]
    balancer.controller.copy_failed(Node(0, 0, 0, 0))
    assert balancer.tick(1.1) == []
    assert (balancer.mode, balancer.round) == (Mode.RECOVERING, 1)
    answer = SiteStatistics(site=0, utilisation=1.0, processed={})
    assert balancer.statistics(0, answer, 1.2) == []
    assert balancer.answers == {}


def test_uf_10_a_copy_never_joins_the_other_one() -> None:
    view = controller()
    assert not view.may_move(Pair(0, 0), 0, 1)
    assert view.may_move(Pair(0, 0), 0, 2)
    with pytest.raises(ProtocolError, match="may not move"):
        view.move(Pair(0, 0), 0, 1)


def test_uf_12_nothing_else_moves_until_the_move_is_folded_in() -> None:
    view = controller()
    view.move(Pair(0, 0), 0, 2)
    assert not view.whole
    assert not view.may_move(Pair(0, 1), 0, 2)
