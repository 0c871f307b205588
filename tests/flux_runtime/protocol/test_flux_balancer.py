"""Balancing mode over the real protocol: induced failures as moves, aborted by real ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest

from flux_lab.papers.protocol.controller import Controller, Instantiate, Order, chained
from flux_lab.papers.protocol.messages import CatchUpDone, CatchUpReady, FoldInDone
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import Step, World
from flux_runtime.protocol.balancer import Balancer, Mode, RequestStatistics, ResetStatistics
from flux_runtime.protocol.balancing import CLUSTER, SiteStatistics, Thresholds
from flux_runtime.protocol.collection import CollectionTime
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Pair, ProtocolError, Shape

SHAPE = Shape(widths=(8,), ordered_egress=False, pool=64)


def statistics(world: World, share: dict[int, float]) -> list[SiteStatistics]:
    """What the sites would report if the slowest of them set the pace."""
    parts: dict[int, list[tuple[Pair, int]]] = {site: [] for site in world.controller.sites}
    for node, copy in world.controller.nodes():
        parts[copy.site].append((node.pair, node.copy))
    load = {site: len(held) / share.get(site, 1.0) for site, held in parts.items()}
    rate = 1.0 / max(load.values())
    return [
        SiteStatistics(site=s, utilisation=load[s] * rate, processed=dict.fromkeys(held, 2000.0))
        for s, held in parts.items()
    ]


class Run:
    """A world whose balancer is asked after every step; its clock is the number of steps."""

    def __init__(
        self,
        seed: int,
        share: dict[int, float],
        *,
        thresholds: Thresholds = CLUSTER,
        parallel_max: int = 1,
    ) -> None:
        self.rng = random.Random(seed)
        self.share = share
        self.world = World(
            digest_dataflow(SHAPE),
            digest_input(30, rows=4, keys=40),
            sites=4,
            link_capacity=4,
            parallel_max=parallel_max,
        )
        self.balancer = Balancer(self.world.controller, thresholds)
        self.now = 0.0
        self.most_in_hand = 0

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
            self.most_in_hand = max(self.most_in_hand, len(self.world.controller.in_hand))
            possible = self.world.steps()
            if n == kill_at:
                self.world.perform(Step("crash", 2))
            elif possible:
                self.world.perform(self.rng.choice(possible))


@pytest.mark.parametrize("seed", range(3))
def test_uf_11_copies_leave_the_loaded_site_and_nothing_is_lost(seed: int) -> None:
    run = Run(seed, {0: 0.4})
    run.run(4000)
    run.world.finished()
    on_site = [copy.site for _, copy in run.world.controller.nodes()]
    assert on_site.count(0) == 2
    assert all(copy.life == 0 or copy.site != 0 for _, copy in run.world.controller.nodes())


@pytest.mark.parametrize("seed", range(3))
def test_several_copies_leave_a_severely_overloaded_site_at_once(seed: int) -> None:
    thresholds = replace(CLUSTER, severe=1.3, moves_max=6)
    run = Run(seed, {0: 0.1}, thresholds=thresholds, parallel_max=2)
    run.run(4000)
    run.world.finished()
    assert run.most_in_hand == 2, "never more pairs without a partner than allowed"
    on_site = [copy.site for _, copy in run.world.controller.nodes()]
    assert on_site.count(0) <= 1


@pytest.mark.parametrize("seed", range(3))
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
    assert not view.is_whole
    assert not view.may_move(Pair(0, 1), 0, 2)


def test_moves_at_once_are_of_different_pairs_and_no_more_than_allowed() -> None:
    shape = Shape(widths=(3,))
    view = Controller(shape, chained(shape, 3), frozenset(range(5)), parallel_max=2)
    view.move(Pair(0, 0), 0, 3)
    assert not view.may_move(Pair(0, 0), 1, 4), "its partner is the only whole copy"
    assert view.may_move(Pair(0, 1), 0, 3)
    view.move(Pair(0, 1), 0, 3)
    assert not view.may_move(Pair(0, 2), 0, 4), "two pairs are vulnerable already"


def test_no_move_starts_while_something_else_recovers() -> None:
    shape = Shape(widths=(2,))
    view = Controller(shape, chained(shape, 3), frozenset(range(3)), parallel_max=2)
    view.sites = frozenset({0, 1})
    view.copy_failed(Node(0, 0, 0, 0))  # its place is taken at once
    assert [now.pair for now in view.in_hand] == [Pair(0, 0)]
    view = Controller(shape, chained(shape, 2), frozenset({0}), parallel_max=2)
    view.copy_failed(Node(0, 0, 1, 0))  # nowhere to recover to
    assert not view.in_hand
    view.sites = frozenset({0, 2})
    assert not view.may_move(Pair(0, 1), 0, 2)


def test_a_round_on_too_little_evidence_only_lengthens_the_phase() -> None:
    shape = Shape(widths=(4,))
    balancer = Balancer(Controller(shape, chained(shape, 2), frozenset(range(3))), CLUSTER)
    balancer.tick(0.0)
    balancer.tick(1.0)

    def answers(n: float) -> list[SiteStatistics]:
        parts: list[tuple[Pair, int]] = [(Pair(0, p), 0) for p in range(4)]
        return [
            SiteStatistics(site=0, utilisation=1.0, processed=dict.fromkeys(parts, n)),
            SiteStatistics(site=1, utilisation=0.9, processed={(Pair(0, 0), 1): 3 * n}),
            SiteStatistics(site=2, utilisation=0.0, processed={}),
        ]

    for answer in answers(20.0):
        said = balancer.statistics(0, answer, 1.1)
    assert said == [ResetStatistics(0)]
    assert balancer.mode is Mode.COLLECTING
    assert balancer.wakes_at == pytest.approx(1.1 + 4 * CLUSTER.delta_min)
    balancer.tick(9.0)
    for answer in answers(2000.0):
        said = balancer.statistics(0, answer, 9.1)
    assert balancer.mode is Mode.MOVING
    assert said


def slow_round(answering: int) -> tuple[Balancer, Controller]:
    """A round in which site 0 is overloaded and only so many of four sites answer."""
    shape = Shape(widths=(4,))
    view = Controller(shape, chained(shape, 2), frozenset(range(4)))
    balancer = Balancer(view, CLUSTER, collection=CollectionTime(CLUSTER, delta_max=1.0))
    assert balancer.tick(0.0) == [ResetStatistics(0)]
    assert balancer.tick(1.0) == [RequestStatistics(0)]
    parts: list[tuple[Pair, int]] = [(Pair(0, 0), 0), (Pair(0, 3), 1)]
    for site in range(answering):
        busy = site == 0
        seen = dict.fromkeys(parts, 2000.0) if busy else {}
        answer = SiteStatistics(site=site, utilisation=float(busy), processed=seen)
        assert balancer.statistics(0, answer, 1.1) == []
    return balancer, view


def test_uf_9_a_round_goes_on_without_a_site_that_is_slow_and_alive() -> None:
    balancer, _ = slow_round(3)
    assert balancer.tick(1.9) == []
    assert balancer.mode is Mode.GATHERING
    moved = [order for order in balancer.tick(2.0) if isinstance(order, Instantiate)]
    assert [order.site for order in moved] == [2], "not to the slow one"
    assert balancer.mode is Mode.MOVING
    late = SiteStatistics(site=3, utilisation=0.0, processed={})
    assert balancer.statistics(0, late, 2.1) == []
    assert 3 not in balancer.answers


def test_uf_9_a_round_that_only_one_site_answers_begins_anew() -> None:
    balancer, view = slow_round(1)
    assert balancer.tick(2.0) == [ResetStatistics(1)]
    assert balancer.mode is Mode.COLLECTING
    assert view.is_whole
    assert balancer.tick(3.0) == [RequestStatistics(1)]
    late = SiteStatistics(site=1, utilisation=0.0, processed={})
    balancer.statistics(0, late, 3.1)
    assert balancer.answers == {}, "it is of the round before"
    for site in range(4):
        balancer.statistics(1, SiteStatistics(site=site, utilisation=0.0, processed={}), 3.1)
    assert balancer.mode is Mode.COLLECTING, "all have answered, and nothing is to move"


def test_uf_12_a_round_lasts_until_its_moves_have_folded_in_everywhere() -> None:
    shape = Shape(widths=(2,))
    view = Controller(shape, chained(shape, 2), frozenset(range(3)))
    balancer = Balancer(view, CLUSTER)
    balancer.tick(0.0)
    balancer.tick(1.0)
    parts: list[tuple[Pair, int]] = [(Pair(0, 0), 0), (Pair(0, 1), 1)]
    for site, used in ((0, 1.0), (1, 0.5), (2, 0.0)):
        seen = dict.fromkeys(parts, 2000.0) if site == 0 else {}
        balancer.statistics(0, SiteStatistics(site=site, utilisation=used, processed=seen), 1.1)
    (catch_up,) = view.in_hand
    view.notice(CatchUpReady(catch_up.pair, view.failures))
    view.notice(CatchUpDone(catch_up.pair, 1))
    view.notice(FoldInDone(catch_up.pair, 1, THE_INGRESS))
    assert balancer.tick(2.0) == []
    assert balancer.mode is Mode.MOVING
    view.notice(FoldInDone(catch_up.pair, 1, shape.egress))
    assert balancer.tick(2.5) == [ResetStatistics(0)]
    assert balancer.wakes_at == pytest.approx(2.5 + 1.4), "the next phase is as long as the moves"


def test_uf_8_an_answer_of_an_aborted_round_does_not_count_in_the_next() -> None:
    balancer = Balancer(controller(), CLUSTER)
    balancer.tick(0.0)
    balancer.tick(1.0)
    view = balancer.controller
    assert isinstance(view, Controller)
    view.copy_failed(Node(0, 0, 0, 0))
    balancer.tick(1.1)
    view.notice(CatchUpReady(Pair(0, 0), view.failures))
    view.notice(CatchUpDone(Pair(0, 0), 1))
    for end in (THE_INGRESS, view.shape.egress):
        view.notice(FoldInDone(Pair(0, 0), 1, end))
    assert balancer.tick(1.2) == [ResetStatistics(1)]
    assert balancer.tick(3.0) == [RequestStatistics(1)]
    late = SiteStatistics(site=0, utilisation=1.0, processed={})
    balancer.statistics(0, late, 3.1)
    assert balancer.answers == {}


def gathering() -> Balancer:
    """A balancer that has asked three sites."""
    shape = Shape(widths=(2,))
    balancer = Balancer(Controller(shape, chained(shape, 2), frozenset(range(3))), CLUSTER)
    balancer.tick(0.0)
    assert balancer.tick(1.0) == [RequestStatistics(0)]
    return balancer


def idle(site: int) -> SiteStatistics:
    return SiteStatistics(site=site, utilisation=0.0, processed={})


def test_uf_9_a_site_that_joins_while_answers_come_in_is_not_waited_for() -> None:
    balancer = gathering()
    balancer.controller.site_joined(3)
    assert balancer.statistics(0, idle(0), 1.1) == []
    assert balancer.statistics(0, idle(1), 1.1) == []
    assert balancer.mode is Mode.GATHERING
    assert balancer.statistics(0, idle(2), 1.2) == [ResetStatistics(0)]


def test_uf_9_a_site_that_leaves_while_answers_come_in_is_not_waited_for() -> None:
    balancer = gathering()
    for site in (0, 1):
        balancer.statistics(0, idle(site), 1.1)
    balancer.controller.site_failed(2)
    assert balancer.tick(1.2) == [ResetStatistics(0)], "it had no copies, so nothing has failed"


def test_uf_9_gathering_that_takes_long_makes_the_next_phase_as_long() -> None:
    balancer = gathering()
    for site in (0, 1, 2):
        balancer.statistics(0, idle(site), 3.5)
    assert balancer.wakes_at == pytest.approx(3.5 + 2.5)


def test_uf_7_a_failure_that_is_mended_between_two_looks_ends_the_round_too() -> None:
    balancer = gathering()
    view = balancer.controller
    assert isinstance(view, Controller)
    view.copy_failed(Node(0, 0, 0, 0))
    view.notice(CatchUpReady(Pair(0, 0), view.failures))
    view.notice(CatchUpDone(Pair(0, 0), 1))
    for end in (THE_INGRESS, view.shape.egress):
        view.notice(FoldInDone(Pair(0, 0), 1, end))
    assert view.is_whole
    assert balancer.tick(1.1) == [ResetStatistics(1)]
    assert balancer.round == 1
