"""The named scenarios of take-over and recovery (FS-1 to FS-28), with what each expects.

Those of catch-up are in `test_flux_catch_up_scenarios`, FS-20 in `test_flux_replica_sets`, FS-25 in
`test_flux_set_preserving`. That each fails without its rule shows `test_flux_scenarios_can_fail`.
"""

from __future__ import annotations

import pytest
from flux_scenes import (
    AP,
    AS,
    BP,
    BS,
    INGRESS,
    at,
    heads,
    life,
    link,
    logs,
    lose,
    outlet,
    run,
    segment,
    until,
    world,
)

from flux_lab.checks import ViolationError
from flux_lab.papers.protocol.messages import Avail, Csync, Fail, Reverse
from flux_lab.workload import digest_dataflow
from flux_lab.world import Step, World
from flux_runtime.protocol.balancer import Balancer, Mode, RequestStatistics
from flux_runtime.protocol.balancing import CLUSTER, SiteStatistics
from flux_runtime.protocol.vocabulary import (
    ACK,
    MARK_PRIM,
    PRIM,
    PROD,
    SEC,
    SEND,
    Node,
    Shape,
    Status,
)


def reverses(w: World) -> int:
    return sum(isinstance(m, Reverse) for messages in w.links.values() for m in messages)


def test_fs_1_the_secondary_of_a_dataflow_pair_dies() -> None:
    w = world(Shape(widths=(1,)))
    w.controller.sites = frozenset()  # nowhere to recover to
    run(w, steps=12)
    w.kill(AS)
    run(w)
    w.finished()
    assert outlet(w, INGRESS).evict == PROD | MARK_PRIM
    assert segment(w, AP).tk_done()
    assert not outlet(w, AP).r_done


@pytest.mark.parametrize("ack_every", [1, 3])
def test_fs_2_the_primary_dies_with_acknowledgements_in_flight(ack_every: int) -> None:
    """FS-27 with cumulative acknowledgements: the reverse follows an up-to-date one."""
    w = world(Shape(widths=(1,), ack_every=ack_every))
    run(w, steps=60, hold=lambda step: step.peer == w.dataflow.shape.egress)
    w.kill(AP)
    run(w, hold=at(AS))
    assert reverses(w) == 1
    run(w)
    w.finished()


def test_fs_3_dangling_numbers_are_never_resent() -> None:
    w = world(Shape(widths=(1,), pool=64))
    run(w, hold=lambda step: step.at == AS and step.peer == INGRESS)
    dangling = set(outlet(w, AS).buffer.dangling)
    assert dangling
    w.kill(AP)
    run(w)
    w.finished()


def test_fs_4_what_is_not_acknowledged_is_resent_in_order() -> None:
    w = world(Shape(widths=(1,), pool=64))
    run(w, hold=lambda step: step.at == w.dataflow.shape.egress)
    assert len(outlet(w, AS).buffer) > 3
    w.kill(AP)
    run(w)
    w.finished()


@pytest.mark.parametrize("victim", [AP, AS])
def test_fs_5_without_a_standby_the_flow_goes_on_in_bounded_buffers(victim: Node) -> None:
    w = world(Shape(widths=(1,), pool=4), batches=60)
    run(w, steps=30)
    w.kill(victim)
    run(w)
    w.finished()


def test_fs_8_after_the_fold_in_the_old_copy_may_die() -> None:
    w = world(Shape(widths=(1, 1)), batches=24, spares=2)
    run(w, steps=20)
    for victim in (AP, AS, AP._replace(life=1)):
        w.kill(victim)
        until(w, lambda: not w.dead_processes and w.controller.is_whole)
    run(w)
    w.finished()
    assert w.controller.pairs[AP.pair].attempts == 3
    assert {segment(w, n).version for n in w.site if n.pair == AP.pair} == {3}


CASES = {
    1: ((BS,), (SEND, 0), PROD | MARK_PRIM),
    2: ((AS,), (SEND, SEND), None),
    3: ((BS, AS), (SEND, 0), PROD | MARK_PRIM),
    4: ((BP, AS), (0, SEND), None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_fs_9_survival_cases_of_a_producer_and_a_consumer_pair(case: int, seed: int) -> None:
    """Table 5.3, seen from F-Prod of copy P."""
    dead, conn, evict = CASES[case]
    w = world(Shape(widths=(1, 1)), batches=12)
    w.controller.sites = frozenset()  # nowhere to recover to
    run(w, steps=30, seed=seed)
    for node in dead:
        w.kill(node)
    run(w, seed=seed)
    w.finished()
    assert tuple(outlet(w, AP).conn) == conn
    if evict is not None:
        assert outlet(w, AP).evict == evict


@pytest.mark.parametrize("then", [BS, BP])
def test_fs_10_fs_11_a_consumer_dies_while_a_reverse_is_in_flight(then: Node) -> None:
    w = world(Shape(widths=(1, 1)), batches=12)
    w.controller.sites = frozenset()
    run(w, steps=40)
    w.kill(AS)
    run(w, hold=lambda step: step.at == AP and step.peer == BS)
    assert any(isinstance(m, Reverse) for m in w.links.get((BS, AP), ()))
    w.kill(then)
    run(w)
    w.finished()
    assert tuple(outlet(w, AP).conn) == ((SEND, 0) if then == BS else (0, SEND))


@pytest.mark.parametrize("site", range(4))
def test_fs_12_one_machine_of_four_in_a_chained_layout(site: int) -> None:
    w = world(Shape(widths=(4, 4), pool=64), batches=12, sites=4, spares=1)
    run(w, steps=60)
    w.crash(site)
    run(w)
    w.finished()
    assert w.controller.is_whole
    assert sum(view.attempts for view in w.controller.pairs.values()) == 4


def test_fs_13_several_pairs_lose_one_copy_at_the_same_time() -> None:
    w = world(Shape(widths=(2, 2)), batches=12, spares=1)
    run(w, steps=50)
    for node in (AP, Node(0, 1, 1, 0), BS, Node(1, 1, 0, 0)):
        w.kill(node)
    run(w)
    w.finished()
    assert w.controller.is_whole


def test_fs_18_a_failure_upstream_goes_before_an_announced_catch_up() -> None:
    w = world(Shape(widths=(1, 1)), batches=12, spares=2)
    run(w, steps=30)
    w.kill(BS)
    run(w, hold=lambda step: step.kind == "notice")
    assert w.controller.current is not None
    assert w.controller.current.pair == BS.pair
    w.kill(AS)
    run(w, hold=lambda step: step.kind == "notice")
    assert w.controller.current.pair == AS.pair
    run(w)
    w.finished()
    assert w.controller.is_whole


def test_fs_20_cluster_pairs_without_a_failure_do_what_they_should() -> None:
    w = world(Shape(widths=(2, 2), cluster_pairs=True))
    run(w)
    w.finished()


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_fs_23_tiny_buffers_and_a_lagging_replica_do_not_deadlock(ordered: bool, seed: int) -> None:
    shape = Shape(widths=(2, 2), pool=1, reserve=1, ordered_egress=ordered)
    w = world(shape, batches=20)
    lagging = [Node(0, p, 1, 0) for p in (0, 1)]
    run(w, hold=at(*lagging), seed=seed)
    run(w, seed=seed)
    w.finished()


def test_fs_23_long_runs_for_one_consumer_do_not_deadlock_the_ordered_merge() -> None:
    """XM-2: p1 has a long run for c1 while p2 has one for c2, longer than any buffer."""
    shape = Shape(widths=(2, 2), pool=4)
    dataflow = digest_dataflow(shape)
    batches = [(((b, 0), b % 2, b), ((b, 1), 1 - b % 2, b)) for b in range(60)]
    w = World(dataflow, batches, sites=2, link_capacity=1)
    run(w)
    w.finished()


def test_fs_26_a_loss_is_reported_whichever_copy_goes_second() -> None:
    w = world(Shape(widths=(1,)), spares=1)
    run(w, steps=10)
    w.kill(AP)
    w.kill(AS)
    run(w)
    assert [loss.pair for loss in w.controller.losses] == [AP.pair]
    w.finished()


def test_fs_26_the_active_copy_dies_before_the_fold_in_is_done() -> None:
    w = world(Shape(widths=(1,)), spares=1)
    run(w, steps=10)
    w.kill(AP)
    until(w, lambda: bool(w.moves))
    w.kill(AS)
    run(w)
    assert w.controller.losses[0].why == "copy 1 failed while the other was STANDBY"


@pytest.mark.parametrize("seed", range(4))
def test_fs_26_a_producer_that_was_to_serve_the_new_copy_leaves_a_lost_one_alone(seed: int) -> None:
    """What waited for the old copy went with it, so what comes next must not be sent."""
    w = world(Shape(widths=(1, 1)), batches=16, spares=2)
    new = life(BS, 1)
    lose(w, BS)
    markers, old = heads(w, Csync), link(BP, AP)

    def held(step: Step) -> bool:
        more = step.kind == "source" and w.position == 8
        return more or link(AS, new)(step) or logs(new)(step) or (old(step) and markers(step))

    until(w, lambda: outlet(w, AP).ver[SEC] == 1, hold=held, seed=seed)
    run(w, hold=held, seed=seed)
    assert outlet(w, AP).buffer.entries, "these wait for BP"
    lose(w, AS, seen_by=(new,))
    until(w, lambda: outlet(w, AP).rev_wait, hold=held, seed=seed)
    lose(w, BP)
    assert [loss.pair for loss in w.controller.losses] == [BP.pair]
    w.perform(Step("log", AP))  # that BP is gone; not yet that the new copy must go as well
    run(w, hold=logs(AP, new), seed=seed)
    run(w, seed=seed)


@pytest.mark.parametrize("seed", range(4))
def test_fs_28_a_site_fails_in_the_middle_of_a_move(seed: int) -> None:
    """The round is abandoned, its statistics are ignored, and recovery goes first."""
    w = world(Shape(widths=(4,), ordered_egress=False), batches=30, sites=4)
    balancer = moving(w, seed)
    old = balancer.round
    moved = w.controller.incomplete()[0]
    victim = next(site for site in sorted(w.controller.sites) if moved[0] not in pairs_on(w, site))
    w.crash(victim)
    until(w, lambda: not w.undetected, seed=seed)
    balancer.tick(9.0)
    assert (balancer.mode, balancer.round) == (Mode.RECOVERING, old + 1)
    answer = SiteStatistics(site=0, utilisation=1.0, processed={})
    assert balancer.statistics(old, answer, 9.0) == []
    run(w, seed=seed)
    w.finished()
    assert w.controller.is_whole
    assert all(copy.site != victim for _, copy in w.controller.nodes())


@pytest.mark.parametrize("seed", range(4))
def test_fs_28_fs_26_the_only_copy_of_a_pair_that_moves_is_lost(seed: int) -> None:
    w = world(Shape(widths=(4,), ordered_egress=False), batches=30, sites=4)
    moving(w, seed)
    pair, copy = w.controller.incomplete()[0]
    only = w.controller.pairs[pair].copies[1 - copy]
    assert only is not None
    w.crash(only.site)
    run(w, seed=seed)
    assert [loss.pair for loss in w.controller.losses] == [pair]


def moving(w: World, seed: int) -> Balancer:
    """A balancer that has just begun a move away from site 0."""
    run(w, steps=60, seed=seed)
    balancer = Balancer(w.controller, CLUSTER)
    balancer.tick(0.0)
    (request,) = balancer.tick(5.0)
    assert isinstance(request, RequestStatistics)
    for site in sorted(w.controller.sites):
        parts = {(n.pair, n.copy): 1000.0 for n, c in w.controller.nodes() if c.site == site}
        answer = SiteStatistics(site=site, utilisation=1.0 if site == 0 else 0.3, processed=parts)
        orders = balancer.statistics(request.round, answer, 5.0)
    w.obey(orders)
    assert balancer.mode is Mode.MOVING
    assert w.controller.incomplete()
    return balancer


def pairs_on(w: World, site: int) -> set[object]:
    return {node.pair for node, copy in w.controller.nodes() if copy.site == site}


@pytest.mark.parametrize("seed", range(10))
def test_fs_27_cumulative_acknowledgements(seed: int) -> None:
    w = world(Shape(widths=(2, 2), ack_every=3, pool=16), batches=20, spares=1)
    run(w, steps=20 + 9 * seed, seed=seed)
    w.kill(AP if seed % 2 else BP)
    run(w, seed=seed)
    w.finished()
    assert w.controller.is_whole


def test_amb_31_an_announcement_before_the_take_over_is_remembered() -> None:
    w = world(Shape(widths=(1, 1)), spares=1)
    run(w, steps=20)
    w.kill(BP)
    w.kill(AS)
    run(w, hold=at(AP))
    assert [type(entry) for entry in w.controller.log[:3]].count(Avail) == 1
    assert all(isinstance(entry, Avail | Fail) for entry in w.controller.log)
    run(w)
    w.finished()
    assert w.controller.is_whole


def test_a_violation_names_node_unit_and_what_was_due() -> None:
    w = world(Shape(widths=(1,)), batches=30)
    run(w, steps=40)
    w.nodes[AP].boundary.consumer.inlets[0].hi = -1  # type: ignore[union-attr]
    with pytest.raises(ViolationError, match=r"(lost before|repeated): A0p got \d+ of ingress"):
        run(w)


def test_roles_at_the_egress_are_links_not_slots() -> None:
    """AMB-27: after a fold-in the survivor sends, whichever slot it has."""
    w = world(Shape(widths=(1,)), batches=20, spares=1)
    run(w, steps=10)
    w.kill(AP)
    run(w)
    w.finished()
    inlet = w.nodes[w.dataflow.shape.egress].boundary.consumer.inlets[0]  # type: ignore[union-attr]
    assert inlet.status == [Status.ACTIVE, Status.ACTIVE]
    assert (inlet.conn[PRIM], inlet.conn[SEC]) == (ACK, 2)
