"""The controller: the order of recovery (CT-1 to CT-6), attempts (AB-1), placement (UF-13)."""

from __future__ import annotations

import pytest

from flux_lab.papers.protocol.controller import Controller, Instantiate, chained
from flux_lab.papers.protocol.messages import (
    Avail,
    CatchUpDone,
    CatchUpReady,
    CatchUpStart,
    Fail,
    FoldInDone,
)
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Pair, Shape, Status

A, B = Pair(0, 0), Pair(1, 0)
A_P, A_S, B_P, B_S = Node(*A, 0, 0), Node(*A, 1, 0), Node(*B, 0, 0), Node(*B, 1, 0)


def controller(sites: int = 3) -> Controller:
    shape = Shape(widths=(1, 1))
    return Controller(shape, chained(shape, 2), frozenset(range(sites)))


def finish(view: Controller, pair: Pair, attempt: int, neighbours: list[Node]) -> None:
    view.notice(CatchUpReady(pair, view.failures))
    view.notice(CatchUpDone(pair, attempt))
    for node in neighbours:
        view.notice(FoldInDone(pair, attempt, node))


def test_ct_1_view_changes_are_one_log_with_numbered_failures() -> None:
    view = controller()
    view.site_failed(1)
    assert view.log[:2] == (Fail(A, 1, 1), Fail(B, 1, 2))


def test_ct_2_what_is_not_whole_is_listed_from_source_to_destination() -> None:
    view = controller()
    view.sites = frozenset()
    view.copy_failed(B_S)
    view.copy_failed(A_S)
    assert view.incomplete() == [(A, 1), (B, 1)]
    assert [copy and copy.status for copy in view.pairs[A].copies] == [
        Status.ACTIVE,
        Status.DEAD,
    ]


def test_uf_4_a_stage_is_as_many_partitions_with_two_copies_spread_evenly() -> None:
    shape = Shape(widths=(8, 4))
    placement = chained(shape, 4)
    assert len(placement) == 2 * 12
    for stage in (0, 1):
        for copy in (0, 1):
            sites = [site for (p, c), site in placement.items() if (p.stage, c) == (stage, copy)]
            assert {sites.count(site) for site in range(4)} == {shape.widths[stage] // 4}
    assert all(placement[pair, 0] != placement[pair, 1] for pair in shape.pairs())


def test_ct_3_source_before_destination_one_at_a_time() -> None:
    view = controller()
    view.site_failed(1)
    assert view.log[2:] == (Avail(A, 1, 1),)
    view.notice(CatchUpReady(B, 2))
    assert len(view.log) == 3, "the destination waits for the source"
    finish(view, A, 1, [THE_INGRESS, B_P])
    assert view.log[3:] == (CatchUpStart(A, 1), Avail(B, 1, 1), CatchUpStart(B, 1))


def test_ct_3_an_announced_catch_up_yields_to_a_failure_upstream() -> None:
    view = controller()
    view.copy_failed(B_S)
    view.copy_failed(A_S)
    assert view.current is not None
    assert view.current.pair == A
    finish(view, A, 1, [THE_INGRESS, B_P])
    assert view.current.pair == B
    assert view.pairs[B].attempts == 1, "the standby announced before is used"


def in_parallel(widths: tuple[int, ...], parallel_max: int) -> Controller:
    shape = Shape(widths=widths)
    return Controller(shape, chained(shape, 2), frozenset(range(4)), parallel_max=parallel_max)


def test_ct_7_pairs_of_a_stage_recover_together_up_to_the_limit() -> None:
    view = in_parallel((3, 3), 2)
    view.site_failed(1)
    first, second, third = (Pair(0, part) for part in range(3))
    assert [now.pair for now in view.in_hand] == [first, second]
    for pair in (first, second, third):
        view.notice(CatchUpReady(pair, view.failures))
    starts = [entry.pair for entry in view.log if isinstance(entry, CatchUpStart)]
    assert starts == [first, second]
    done = view.in_hand[1]
    view.notice(CatchUpDone(second, done.attempt))
    neighbours = [Node(1, part, c, 0) for part in range(3) for c in range(2)]
    for node in [THE_INGRESS, *neighbours]:
        view.notice(FoldInDone(second, done.attempt, node))
    assert [now.pair for now in view.in_hand] == [first, third]
    assert all(now.pair.stage == 0 for now in view.in_hand), "the next stage waits"


def test_ct_3_of_several_in_hand_only_the_announced_yield_upstream() -> None:
    view = in_parallel((2, 2), 2)
    for part in (0, 1):
        view.copy_failed(Node(1, part, 1, 0))
    view.notice(CatchUpReady(Pair(1, 0), view.failures))
    assert [now.phase.value for now in view.in_hand] == ["started", "announced"]
    view.copy_failed(Node(0, 0, 1, 0))
    assert [now.pair for now in view.in_hand] == [Pair(1, 0)], "one goes on, nothing new begins"
    view.copy_failed(Node(1, 0, 1, view.pairs[Pair(1, 0)].attempts))
    assert [now.pair for now in view.in_hand] == [Pair(0, 0)]


def test_a_limit_of_no_catch_up_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing ever recovers"):
        in_parallel((1,), 0)


def test_ct_4_and_uf_13_a_standby_goes_to_the_emptiest_site_without_the_other_copy() -> None:
    orders = controller(3).copy_failed(A_S)
    assert orders == [Instantiate(Node(*A, 1, 1), 2)]
    orders = controller(2).copy_failed(A_S)
    assert orders == [Instantiate(Node(*A, 1, 1), 1)]


def test_without_a_site_recovery_waits_for_one() -> None:
    view = controller(2)
    assert view.site_failed(1) == []
    assert view.site_joined(7) == [Instantiate(Node(*A, 1, 1), 7)]


def test_ct_5_a_pair_starts_only_if_it_knows_of_the_last_failure() -> None:
    view = controller()
    view.copy_failed(A_S)
    view.copy_failed(B_S)
    view.notice(CatchUpReady(A, 1))
    assert not any(isinstance(entry, CatchUpStart) for entry in view.log)
    view.notice(CatchUpReady(A, 2))
    assert view.log[-1] == CatchUpStart(A, 1)


def test_ct_6_the_next_catch_up_waits_for_every_live_neighbour() -> None:
    view = controller()
    view.site_failed(1)
    finish(view, A, 1, [THE_INGRESS])
    assert view.current is not None
    assert view.current.pair == A
    assert not view.is_whole
    view.notice(FoldInDone(A, 1, B_P))
    assert view.current.pair == B


def test_ct_6_a_neighbour_that_dies_is_not_waited_for() -> None:
    view = controller(4)
    view.copy_failed(A_S)
    finish(view, A, 1, [THE_INGRESS, B_P])
    view.copy_failed(B_S)
    assert view.pairs[A].copies[1] is not None
    assert view.pairs[A].copies[1].status is Status.ACTIVE


def test_ab_1_every_standby_has_a_higher_attempt_number() -> None:
    view = controller()
    view.copy_failed(A_S)
    view.copy_failed(Node(*A, 1, 1))
    assert [entry.attempt for entry in view.log if isinstance(entry, Avail)] == [1, 2]


def test_notices_of_an_earlier_attempt_are_ignored() -> None:
    view = controller()
    view.copy_failed(A_S)
    view.copy_failed(Node(*A, 1, 1))
    view.notice(CatchUpReady(A, 2))
    view.notice(CatchUpDone(A, 1))
    view.notice(FoldInDone(A, 1, THE_INGRESS))
    assert view.current is not None
    assert not view.current.folded


def test_old_news_of_a_dead_process_is_ignored() -> None:
    view = controller()
    view.copy_failed(A_S)
    assert view.copy_failed(A_S) == []
    assert view.failures == 1


def test_two_copies_on_one_site_are_refused_from_the_start() -> None:
    with pytest.raises(ValueError, match="as many sites"):
        chained(Shape(widths=(1,)), 1)
    with pytest.raises(ValueError, match="two copies"):
        Controller(Shape(widths=(1,)), {(A, 0): 0, (A, 1): 0}, frozenset({0, 1}))
