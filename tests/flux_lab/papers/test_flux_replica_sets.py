"""Cluster pairs: a replica set is ended and rebuilt as a whole (FS-20, RS-1 to RS-3)."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from flux_lab.papers.protocol.controller import Controller, Destroy, Instantiate, chained
from flux_lab.papers.protocol.messages import (
    Avail,
    CatchUpCommit,
    CatchUpDone,
    CatchUpReady,
    CatchUpStart,
    Fail,
    FoldInDone,
    Send,
    Tell,
)
from flux_lab.papers.protocol.segment import Segment
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import (
    PRIM,
    RECV,
    SEND,
    THE_INGRESS,
    Node,
    Pair,
    ProtocolError,
    Shape,
    Status,
)

SHAPE = Shape(widths=(2, 2), cluster_pairs=True)
AP = Node(0, 0, 0, 0)


def world(shape: Shape = SHAPE, *, batches: int = 16, spares: int = 1) -> World:
    dataflow = digest_dataflow(shape)
    batch = digest_input(batches, rows=3, keys=8)
    return World(dataflow, batch, sites=2, spares=spares, link_capacity=2)


def run(
    w: World,
    rng: random.Random,
    *,
    until: Callable[[], bool] = lambda: False,
    hold: Callable[[Step], bool] = lambda step: False,
    steps: int = 10**6,
) -> None:
    for _ in range(steps):
        possible = [step for step in w.steps() if not hold(step)]
        if not possible or until():
            return
        w.perform(rng.choice(possible))


@pytest.mark.parametrize("widths", [(1,), (2,), (1, 1), (2, 2), (2, 1, 2)])
@pytest.mark.parametrize("seed", range(8))
def test_fs_20_recovering_the_whole_set_loses_nothing(widths: tuple[int, ...], seed: int) -> None:
    rng = random.Random(f"{widths} {seed}")
    w = world(Shape(widths=widths, cluster_pairs=True, pool=rng.choice((4, 64))))
    run(w, rng, steps=rng.randrange(150))
    w.kill(rng.choice(list(w.site)))
    run(w, rng, until=lambda: not w.dead_processes and w.controller.is_whole)
    if rng.random() < 0.7:  # a second failure, which only the rebuilt set survives
        assert not w.controller.losses
        w.kill(rng.choice([n for n in w.site if n.life == 0]))
    run(w, rng)
    w.finished()
    assert not w.controller.losses
    assert w.controller.is_whole


@pytest.mark.parametrize("seed", range(40))
def test_a_standby_may_die_at_any_step_of_the_rebuilding(seed: int) -> None:
    rng = random.Random(seed)
    w = world(spares=2)
    run(w, rng, steps=rng.randrange(60))
    w.kill(AP)
    for _ in range(2):
        run(w, rng, until=lambda: any(n.life for n in w.site))
        run(w, rng, steps=rng.randrange(120))
        standbys = [n for n in w.site if n.life and n.copy == 0]
        if standbys and not w.controller.is_whole:
            w.kill(rng.choice(standbys))
    run(w, rng)
    w.finished()
    assert not w.controller.losses
    assert w.controller.is_whole


@pytest.mark.parametrize("seed", range(6))
def test_fs_20_recovering_one_machine_alone_loses_or_repeats_rows(seed: int) -> None:
    """The naive recovery: its partner's state for the dead copy, the rest of the set as it is."""
    w = world(Shape(widths=(2, 2), cluster_pairs=True, pool=64), spares=0)
    w.controller.sites = frozenset()
    ahead = [Node(s, p, 1, 0) for s in (0, 1) for p in (0, 1)]
    run(w, random.Random(seed), hold=lambda step: step.at in ahead, steps=50 + seed)
    partner = w.nodes[Node(0, 0, 1, 0)]
    assert isinstance(partner, Segment)
    alone = Segment(w.dataflow, AP)  # in the place of the dead one, with the partner's state
    alone.operator.install_state(partner.operator.get_state())
    for mine, theirs in zip(alone.consumer.inlets, partner.consumer.inlets, strict=True):
        mine.hi, mine.mark = theirs.hi, theirs.mark
    alone.producer.progress = partner.producer.progress
    old = w.nodes[THE_INGRESS].boundary.outlet(AP)
    assert old is not None
    old.buffer.resync(PRIM)  # what the partner has not acknowledged is sent again, as in a fold-in
    old.buffer.entries = {
        sn: e._replace(marks=e.marks & ~1) for sn, e in old.buffer.entries.items()
    }
    w.nodes[AP] = alone
    for link in [link for link in w.links if AP in link]:
        del w.links[link]
    with pytest.raises(ProtocolError, match=r"lost before|repeated|other rows|twice|emitted"):
        run(w, random.Random(seed))
    assert alone.consumer.inlets[0].conn[PRIM] & RECV
    assert alone.producer.outlets[0].conn[PRIM] & SEND


def controller(sites: int = 6) -> Controller:
    return Controller(SHAPE, chained(SHAPE, 4), frozenset(range(sites)))


def test_rs_1_one_failure_ends_the_set_and_no_other() -> None:
    view = controller()
    orders = view.copy_failed(AP)
    ended = [o.node for o in orders if isinstance(o, Destroy)]
    assert ended == [Node(0, 1, 0, 0), Node(1, 0, 0, 0), Node(1, 1, 0, 0)]
    assert all(v.copies[1] is not None and v.copies[1].life == 0 for v in view.pairs.values())


def test_rs_2_the_standbys_share_an_attempt_and_no_site_with_the_survivors() -> None:
    view = controller()
    assert {copy.site for node, copy in view.nodes() if node.copy == 1} == {2, 3}
    new = [o for o in view.copy_failed(AP) if isinstance(o, Instantiate)]
    assert {o.node.life for o in new} == {1}
    assert {o.site for o in new} == {0, 1, 4, 5}
    view.copy_failed(new[2].node)
    assert {view.pairs[pair].attempts for pair in view.pairs} == {2}


def test_rs_2_without_a_free_site_the_set_waits() -> None:
    view = controller(4)
    view.sites = frozenset({2, 3})
    assert not [o for o in view.copy_failed(AP) if isinstance(o, Instantiate)]
    assert [o for o in view.site_joined(9) if isinstance(o, Instantiate)]


def test_rs_3_all_go_on_when_all_have_moved_and_none_before() -> None:
    view = controller()
    view.copy_failed(AP)
    pairs = list(view.pairs)
    for pair in pairs:
        assert not any(isinstance(e, CatchUpStart) for e in view.log)
        view.notice(CatchUpReady(pair, view.failures))
    assert [e.pair for e in view.log if isinstance(e, CatchUpStart)] == pairs
    for pair in pairs:
        assert not any(isinstance(e, CatchUpCommit) for e in view.log)
        view.notice(CatchUpDone(pair, 1))
    assert [e.pair for e in view.log if isinstance(e, CatchUpCommit)] == pairs
    for part in (0, 1):
        view.notice(FoldInDone(Pair(0, part), 1, THE_INGRESS))
        assert not view.is_whole
        view.notice(FoldInDone(Pair(1, part), 1, SHAPE.egress))
    assert view.is_whole


def test_rs_3_a_survivor_too_waits_until_all_have_moved() -> None:
    segment = Segment(digest_dataflow(Shape(widths=(1,), cluster_pairs=True)), AP)
    segment.log(Fail(AP.pair, 1, 1))
    segment.log(Avail(AP.pair, 1, 1))
    segment.log(CatchUpStart(AP.pair, 1))
    assert segment.moved(1) == [Tell(CatchUpDone(AP.pair, 1))], "no marker yet"
    assert segment.status is Status.PAUSE
    markers = [i.to for i in segment.log(CatchUpCommit(AP.pair, 1)) if isinstance(i, Send)]
    assert markers == [SHAPE.egress._replace(stage=1), THE_INGRESS]
    assert segment.status is Status.ACTIVE


def test_a_failure_in_the_surviving_set_is_fatal_and_said_so() -> None:
    view = controller()
    view.copy_failed(AP)
    view.copy_failed(Node(1, 1, 1, 0))
    assert {loss.pair for loss in view.losses} == set(view.pairs)
    assert all(
        copy is not None and copy.status is Status.DEAD
        for v in view.pairs.values()
        for copy in v.copies
    )


def test_copies_of_a_set_do_not_move() -> None:
    assert not controller().may_move(Pair(0, 0), 0, 5)
