"""The balancing policies, on the published cases and on their own terms."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flux_lab.share import ShareModel, balance, even
from flux_runtime.protocol.balancing import (
    CLUSTER,
    SIMULATED,
    PlannedMove,
    SiteStatistics,
    Thresholds,
    after_move,
    next_delta,
    plan_hybrid_round,
    plan_memory_round,
    plan_round,
)


def site(number: int, utilisation: float, **parts: float) -> SiteStatistics:
    return SiteStatistics(site=number, utilisation=utilisation, processed=parts)


def test_figure_4_5_the_largest_partition_that_helps_moves_inwards_pair_by_pair() -> None:
    sites = [
        site(1, 0.95, a=10, b=20, c=30, e=40),
        site(2, 0.80, f=10, g=20, h=24, i=60),
        site(3, 0.60, j=40, k=60),
        site(4, 0.40, m=30, n=40),
    ]
    moves = plan_round(sites, Thresholds(imbalance=1.1, utilisation=0.9))
    assert moves[0] == PlannedMove("c", 1, 4) or moves[0] == PlannedMove("e", 1, 4)
    assert [m.donor for m in moves] == [1, 2]
    assert moves[1].part in {"f", "g", "h"}
    assert moves[1].part != "i", "it would only turn the imbalance around"


def test_amb_3_the_receivers_prediction_uses_its_own_throughput() -> None:
    donor, receiver = site(1, 1.0, a=50, b=50), site(2, 0.5, c=200)
    assert after_move(donor, receiver, 50) == (0.5, 0.5 * 1.25)


def test_amb_24_an_idle_receiver_is_taken_to_be_as_fast_as_the_donor() -> None:
    assert after_move(site(1, 1.0, a=50, b=50), site(2, 0.0), 50) == (0.5, 0.5)


def test_a_balanced_system_is_left_alone() -> None:
    assert plan_round([site(n, 0.9, a=10, b=10) for n in range(4)]) == []


def test_a_receiver_is_never_overloaded() -> None:
    assert plan_round([site(1, 1.0, a=100), site(2, 0.6, b=10)]) == []


@pytest.mark.parametrize(
    ("what", "sites", "per_site", "share", "thresholds", "moves"),
    [
        ("EX-4", 32, 64, 0.43, SIMULATED, 31),
        ("EX-12, 64 copies", 4, 16, 0.5, CLUSTER, 6),
        ("EX-12, 32 copies", 4, 8, 0.5, CLUSTER, 3),
        ("EX-15", 4, 16, 1 / 12, CLUSTER, 14),
        ("EX-16", 4, 16, 1 / 23, CLUSTER, 15),
    ],
)
def test_published_numbers_of_moves(
    what: str, sites: int, per_site: int, share: float, thresholds: Thresholds, moves: int
) -> None:
    model = ShareModel(even(sites, per_site), share={0: share})
    assert balance(model, thresholds, move_seconds=0.01).moves == moves, what


def test_ex_13_after_a_recovery_onto_one_machine_ten_moves_even_it_out() -> None:
    parts = even(3, 16)
    parts[0] += [(100 + n, 0) for n in range(16)]
    model = ShareModel(parts)
    assert balance(model, CLUSTER, move_seconds=1.0).moves == 10
    assert max(len(held) for held in model.parts.values()) == 22


def test_uf_10_two_copies_never_share_a_site() -> None:
    model = ShareModel(even(4, 16, copies=2), share={0: 0.2})
    balance(model, CLUSTER, move_seconds=1.0, copies_apart=True)
    for held in model.parts.values():
        assert len({part for part, _ in held}) == len(held)


def test_several_moves_at_once_settle_a_severe_overload_sooner() -> None:
    def settled(moves_max: int) -> float:
        thresholds = Thresholds(
            imbalance=1.15, utilisation=0.925, delta_min=0.25, moves_max=moves_max
        )
        model = ShareModel(even(4, 16), share={0: 1 / 12})
        return balance(model, thresholds, move_seconds=0.2).settled

    assert settled(8) < settled(1)


def test_several_moves_stop_at_the_threshold_of_severity() -> None:
    def moves(severe: float) -> list[PlannedMove]:
        donor = SiteStatistics(site=0, utilisation=1.0, processed={(n, 0): 10.0 for n in range(10)})
        others = [
            SiteStatistics(site=n, utilisation=0.3, processed={(100 * n, 0): 30.0})
            for n in (1, 2, 3)
        ]
        thresholds = Thresholds(severe=severe, moves_max=10)
        return plan_round([donor, *others], thresholds)

    assert len(moves(1e9)) == 1
    assert 1 < len(moves(2.5)) < len(moves(1.2))
    assert {move.donor for move in moves(1.2)} == {0}
    assert len({move.receiver for move in moves(1.2)}) == 3, "several receivers per donor"
    assert len({move.part for move in moves(1.2)}) == len(moves(1.2))


def test_of_each_pair_one_copy_moves_in_a_round() -> None:
    donors = [
        SiteStatistics(site=n, utilisation=1.0, processed={("x", n): 50.0, (n, 0): 40.0})
        for n in (0, 1)
    ]
    receivers = [SiteStatistics(site=n, utilisation=0.2, processed={(n, 0): 40.0}) for n in (2, 3)]
    both = plan_round([*donors, *receivers])
    assert [move.part for move in both] == [("x", 0), ("x", 1)]
    apart = plan_round([*donors, *receivers], unit=lambda part: part[0])  # type: ignore[index]
    assert [move.part for move in apart] == [("x", 0), (1, 0)]


def test_the_hybrid_adds_up_what_a_receiver_is_to_take() -> None:
    donor = SiteStatistics(
        site=1,
        utilisation=1.0,
        processed=dict.fromkeys("abcdef", 5.0),
        state=dict.fromkeys("abcdef", 10.0),
        memory=100,
    )
    idle = SiteStatistics(site=2, utilisation=0.0, processed={}, memory=25)
    thresholds = Thresholds(severe=1.1, moves_max=5)
    assert len(plan_round([donor, idle], thresholds)) == 3
    assert len(plan_hybrid_round([donor, idle], thresholds)) == 2


def with_memory(
    number: int, memory: float, on_disk: frozenset[str] = frozenset(), **state: float
) -> SiteStatistics:
    return SiteStatistics(
        site=number,
        utilisation=0.5,
        processed=dict.fromkeys(state, 1.0),
        state=state,
        memory=memory,
        on_disk=on_disk,
    )


def test_amb_4_partitions_go_from_less_to_more_spare_memory() -> None:
    sites = [with_memory(1, 100, a=80, b=60), with_memory(2, 300, c=50)]
    assert plan_memory_round(sites) == [PlannedMove("a", 1, 2)]


def test_partitions_in_memory_move_before_those_on_disk() -> None:
    sites = [with_memory(1, 100, frozenset({"a"}), a=80, b=60), with_memory(2, 300, c=50)]
    assert plan_memory_round(sites) == [PlannedMove("b", 1, 2)]


def test_the_hybrid_looks_at_memory_while_something_is_on_disk() -> None:
    busy = SiteStatistics(
        site=1, utilisation=1.0, processed={"a": 5, "b": 5}, state={"a": 10, "b": 10}, memory=100
    )
    idle = SiteStatistics(site=2, utilisation=0.2, processed={"c": 2}, state={"c": 10}, memory=12)
    assert plan_round([busy, idle]) == [PlannedMove("a", 1, 2)]
    assert plan_hybrid_round([busy, idle]) == [], "the receiver has no memory for it"
    full = with_memory(1, 20, frozenset({"a"}), a=10, b=15)
    assert plan_hybrid_round([full, with_memory(2, 100, c=10)]) == [PlannedMove("b", 1, 2)]


def test_uf_9_the_collection_phase() -> None:
    assert next_delta(1.0, CLUSTER, moved_for=3.0) == 3.0
    assert next_delta(1.0, CLUSTER, moved_for=None) == 0.5
    assert next_delta(0.3, CLUSTER, moved_for=None) == 0.25
    assert next_delta(1.0, CLUSTER, moved_for=None, gathering=2.0) == 2.0
    assert next_delta(1.0, CLUSTER, moved_for=None, gathering=0.9) == 0.5
    assert next_delta(1.0, CLUSTER, moved_for=None, tuples_seen=10) == 3.0


@given(st.lists(st.tuples(st.floats(0.01, 1.0), st.integers(1, 9)), min_size=2, max_size=8))
@settings(deadline=None, max_examples=50)
@example([(0.75, 1), (0.8125, 1), (0.8125, 5)])  # once swapped a partition for ever
def test_balancing_never_makes_it_slower_and_comes_to_an_end(
    sites: list[tuple[float, int]],
) -> None:
    parts = {n: [(n * 100 + i, 0) for i in range(count)] for n, (_, count) in enumerate(sites)}
    model = ShareModel(parts, share={n: share for n, (share, _) in enumerate(sites)})
    before = model.rate()
    found = balance(model, SIMULATED, move_seconds=0.1, rounds_max=300)
    assert model.rate() >= before * 0.999
    assert len(found.rates) < 300
