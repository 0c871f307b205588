"""The pooler of a site: whose turn it is, what idle calls tell, and rounds over real copies."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from flux_lab.memory_storage import MemoryStorage
from flux_lab.pooled import Pooled
from flux_lab.pooler import Pooler, price_of_an_idle_call
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import Step
from flux_runtime.protocol.balancer import (
    Balancer,
    Mode,
    RequestStatistics,
    ResetStatistics,
)
from flux_runtime.protocol.balancing import CLUSTER, SiteStatistics
from flux_runtime.protocol.collection import CollectionTime
from flux_runtime.protocol.controller import Controller, DataLoss, Destroy, Instantiate, chained
from flux_runtime.protocol.messages import Data
from flux_runtime.protocol.segment import Segment
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Pair, ProtocolError, Shape, Status

SHAPE = Shape(widths=(3,), ordered_egress=False, pool=64)
DATAFLOW = digest_dataflow(SHAPE)
A, B, C = (Node(0, part, 0, 0) for part in range(3))
SLOW = replace(CLUSTER, delta_min=1.0)
ROWS = (((0, 0), 3, 5), ((0, 1), 6, 5))


def pooler(*nodes: Node) -> Pooler:
    made = Pooler(DATAFLOW, 0, idle_call_s=0.01, storage=MemoryStorage())
    for node in nodes:
        made.host(Segment(DATAFLOW, node, storage=made.storage))
    return made


def feed(made: Pooler, node: Node, batch: int = 0) -> None:
    made.segments[node].receive(THE_INGRESS, Data(batch, ROWS))


def test_uf_5_partitions_take_turns() -> None:
    made = pooler(A, B, C)
    for node in (A, B, C):
        feed(made, node)
    turns = [made.turn() for _ in range(4)]
    assert [turn and turn.node for turn in turns] == [A, B, C, A]
    assert [turn and turn.rows for turn in turns] == [2, 2, 2, 0]
    assert [turn and turn.idle for turn in turns] == [False, False, False, True]


def test_uf_5_copies_are_ended_and_created_on_command() -> None:
    made = pooler(A, B)
    made.obey(Destroy(A))
    made.obey(Destroy(C))
    made.obey(Instantiate(Node(0, 2, 1, 4), 0))
    made.obey(Instantiate(Node(0, 0, 1, 4), 1))
    made.obey(DataLoss(Pair(0, 0), "of another site"))
    assert list(made.order) == [B, Node(0, 2, 1, 4)]
    assert made.segments[Node(0, 2, 1, 4)].status is Status.STANDBY


def test_uf_5_two_copies_of_a_pair_never_share_a_pooler() -> None:
    with pytest.raises(ProtocolError, match="has a copy"):
        pooler(A, B).obey(Instantiate(Node(0, 0, 1, 4), 0))


def test_uf_5_without_copies_there_is_no_turn() -> None:
    assert pooler().turn() is None


def test_uf_6_idle_calls_are_those_that_can_do_nothing() -> None:
    made = pooler(A, B)
    feed(made, A)
    for _ in range(6):
        made.turn()
    assert made.idle_calls == 5
    report = made.report(RequestStatistics(0), 0.2)
    assert report.statistics.utilisation == pytest.approx(1 - 5 * 0.01 / 0.2)
    assert report.statistics.processed == {(A.pair, 0): 2.0, (B.pair, 0): 0.0}


def test_uf_6_a_partition_on_disk_that_takes_input_is_not_idle() -> None:
    made = pooler(A)
    made.segments[A].evict()
    feed(made, A)
    turn = made.turn()
    assert turn is not None
    assert not turn.idle
    statistics = made.report(RequestStatistics(0), 1.0).statistics
    assert statistics.on_disk == {(A.pair, 0)}
    assert statistics.pending[A.pair, 0] == 48.0


def test_uf_6_the_price_of_an_idle_call_is_an_average() -> None:
    ticks = itertools.count()
    assert price_of_an_idle_call(DATAFLOW, lambda: float(next(ticks)), calls=4) == 0.25
    with pytest.raises(ValueError, match="takes time"):
        Pooler(DATAFLOW, 0, idle_call_s=0.0)


def test_uf_9_counting_begins_anew_and_late_orders_of_earlier_rounds_do_not() -> None:
    made = pooler(A)
    feed(made, A)
    made.turn()
    made.reset(ResetStatistics(2), 1.0)
    assert made.report(RequestStatistics(2), 2.0).statistics.processed == {(A.pair, 0): 0.0}
    feed(made, A, 1)
    made.turn()
    made.reset(ResetStatistics(1), 3.0)  # UF-8
    report = made.report(RequestStatistics(2), 4.0)
    assert report.round == 2
    assert report.statistics.processed == {(A.pair, 0): 2.0}


def test_uf_9_statistics_that_come_late_cover_the_time_until_then() -> None:
    made = pooler(A)
    made.reset(ResetStatistics(0), 0.0)
    for _ in range(10):
        made.turn()
    assert made.report(RequestStatistics(0), 0.1).statistics.utilisation == pytest.approx(0.0)
    assert made.report(RequestStatistics(0), 0.4).statistics.utilisation == pytest.approx(0.75)
    assert made.report(RequestStatistics(0), 0.0).statistics.utilisation == 0.0


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


# ---- rounds over real copies


def pooled(seed: int, *, slow: float = 0.25) -> Pooled:
    shape = Shape(widths=(8,), ordered_egress=False, pool=64)
    return Pooled(
        digest_dataflow(shape),
        digest_input(400, rows=4, keys=40),
        sites=4,
        balancer=lambda controller: Balancer(
            controller, SLOW, collection=CollectionTime(SLOW, tuples_min=0)
        ),
        share=lambda site, _: slow if site == 0 else 1.0,
        seed=seed,
    )


def test_uf_6_a_site_that_others_load_reports_that_it_is_used() -> None:
    run = pooled(0)
    run.run(2.5)
    found = {s.site: s.utilisation for s in run.reports[4:8]}
    assert found[0] > 0.9
    assert max(found[site] for site in (1, 2, 3)) < 0.5


@pytest.mark.parametrize("seed", range(3))
def test_uf_5_copies_leave_the_loaded_site_on_their_poolers_word(seed: int) -> None:
    run = pooled(seed)
    run.run(12.0)
    run.drain()
    run.world.finished()
    copies = {site: len(p.segments) for site, p in run.poolers.items()}
    assert copies[0] < 4
    assert sum(copies.values()) == 16
    assert all(node.life == 0 for node in run.poolers[0].segments)


def test_uf_7_a_site_that_dies_aborts_balancing_and_its_copies_come_to_other_poolers() -> None:
    run = pooled(1)
    run.run(12.0, faults=[(0.7, Step("crash", 2))])
    run.drain()
    run.world.finished()
    assert not run.world.controller.losses
    assert run.balancer is not None
    assert run.balancer.round >= 1
    assert sum(len(p.segments) for p in run.poolers.values()) == 16
