"""The collection phase tunes itself: sampling error, undone moves, decay."""

from __future__ import annotations

import numpy as np
import pytest

from flux_runtime.protocol.balancing import PlannedMove, SiteStatistics, Thresholds, plan_round
from flux_runtime.protocol.collection import CollectionTime

THRESHOLDS = Thresholds(imbalance=1.2, utilisation=0.9, delta_min=0.01)


def site(number: int, utilisation: float, **parts: float) -> SiteStatistics:
    return SiteStatistics(site=number, utilisation=utilisation, processed=parts)


def test_a_partition_must_have_been_seen_thirty_times() -> None:
    timer = CollectionTime(THRESHOLDS)
    move = [PlannedMove("a", 1, 2)]
    assert not timer.enough([site(1, 1.0, a=29, b=9000), site(2, 0.1, c=900)], move)
    assert timer.enough([site(1, 1.0, a=30, b=9000), site(2, 0.1, c=900)], move)


def test_the_error_of_a_utilisation_is_below_a_quarter_of_the_imbalance() -> None:
    timer = CollectionTime(THRESHOLDS)  # (1.2 - 1) / 4 = 0.05 = 1 / sqrt(400)
    assert not timer.enough([site(1, 1.0, a=399)], [PlannedMove("a", 1, 2)])
    assert timer.enough([site(1, 1.0, a=401)], [PlannedMove("a", 1, 2)])
    assert timer.enough([site(1, 0.2, a=31)], [PlannedMove("a", 1, 2)]), "little load, little error"


def test_the_phase_grows_to_what_was_lacking_but_not_by_much_at_once() -> None:
    timer = CollectionTime(THRESHOLDS)
    move = [PlannedMove("a", 1, 2)]
    assert timer.lengthen([site(1, 0.1, a=15)], move) == pytest.approx(0.02)
    assert timer.lengthen([site(1, 0.1, a=0)], move) == pytest.approx(0.08)


def test_traffic_that_never_suffices_is_acted_on_after_the_longest_phase() -> None:
    timer = CollectionTime(THRESHOLDS, delta_max=1.0)
    sites, move = [site(1, 1.0, a=3)], [PlannedMove("a", 1, 2)]
    rounds = 0
    while not timer.enough(sites, move):
        timer.lengthen(sites, move)
        rounds += 1
    assert timer.delta == 1.0
    assert rounds < 6


def test_a_partition_that_comes_back_doubles_the_shortest_phase() -> None:
    timer = CollectionTime(THRESHOLDS)
    timer.next([PlannedMove("a", 1, 2)], moved_for=0.001)
    assert timer.delta_min == 0.01
    assert timer.next([PlannedMove("a", 2, 1)], moved_for=0.001) == 0.02
    assert timer.next([PlannedMove("a", 1, 2)], moved_for=0.001) == 0.04


def test_going_on_to_a_third_site_is_no_undoing() -> None:
    timer = CollectionTime(THRESHOLDS)
    timer.next([PlannedMove("a", 1, 2)], moved_for=0.001)
    timer.next([PlannedMove("a", 2, 3), PlannedMove("b", 2, 1)], moved_for=0.001)
    assert timer.delta_min == 0.01


def test_what_comes_back_much_later_has_a_reason() -> None:
    timer = CollectionTime(THRESHOLDS, undo_rounds=3)
    timer.next([PlannedMove("a", 1, 2)], moved_for=0.001)
    for _ in range(3):
        timer.next([], moved_for=None)
    timer.next([PlannedMove("a", 2, 1)], moved_for=0.001)
    assert timer.delta_min == 0.01
    assert len(timer.left) == 1


def test_the_shortest_phase_decays_to_what_was_configured() -> None:
    timer = CollectionTime(THRESHOLDS)
    timer.next([PlannedMove("a", 1, 2)], moved_for=0.001)
    timer.next([PlannedMove("a", 2, 1)], moved_for=0.001)
    found = [timer.next([], moved_for=None) for _ in range(12)]
    assert found == sorted(found, reverse=True)
    assert found[-1] == timer.delta_min == 0.01


def test_uf_9_slow_answers_and_long_moves_lengthen_the_phase() -> None:
    assert CollectionTime(THRESHOLDS).next([], moved_for=None, gathering=0.5) == 0.5
    assert CollectionTime(THRESHOLDS).next([PlannedMove("a", 1, 2)], moved_for=2.0) == 2.0


def test_without_bounds_it_is_the_papers_rule() -> None:
    timer = CollectionTime(THRESHOLDS, tuples_min=0, undo_rounds=0)
    assert timer.enough([site(1, 1.0, a=1)], [PlannedMove("a", 1, 2)])
    for part_of in ((1, 2), (2, 1)) * 3:
        timer.next([PlannedMove("a", *part_of)], moved_for=0.001)
    assert timer.delta_min == 0.01


def test_a_shortest_phase_beyond_the_longest_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be"):
        CollectionTime(THRESHOLDS, delta_max=0.001)


def thrash(timer: CollectionTime, seconds: float) -> int:
    """Moves within so many seconds on four like sites, where only chance tells them apart."""
    draw = np.random.default_rng(3)
    home = {f"p{n}": n % 4 for n in range(32)}
    clock, moves_made = 0.0, 0
    while clock < seconds:
        counts = {part: float(draw.poisson(2000 * timer.delta)) for part in home}
        sites = []
        for s in range(4):
            held = {part: n for part, n in counts.items() if home[part] == s}
            sites.append(site(s, min(1.0, sum(held.values()) / (20_000 * timer.delta)), **held))
        clock += timer.delta
        moves = plan_round(sites, timer.thresholds)
        if moves and not timer.enough(sites, moves):
            timer.lengthen(sites, moves)
            continue
        for move in moves:
            home[move.part] = move.receiver
        moves_made += len(moves)
        timer.next(moves, moved_for=0.001 if moves else None)
    return moves_made


def test_ex_6_it_does_not_thrash_where_the_papers_rule_does() -> None:
    fixed = thrash(CollectionTime(THRESHOLDS, tuples_min=0, undo_rounds=0), 20.0)
    tuned = thrash(CollectionTime(THRESHOLDS), 20.0)
    assert fixed > 100
    assert tuned <= fixed / 10
