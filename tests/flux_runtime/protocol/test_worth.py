"""Moves are weighed against what they cost, on the processor that each site gets."""

from __future__ import annotations

from flux_runtime.protocol.balancing import PlannedMove, SiteStatistics, Thresholds
from flux_runtime.protocol.worth import Worth

THRESHOLDS = Thresholds()


def site(
    number: int, utilisation: float, parts: int, *, available: float = 1.0, covered_s: float = 1.0
) -> SiteStatistics:
    return SiteStatistics(
        site=number,
        utilisation=utilisation,
        processed={(number, n): 1000.0 for n in range(parts)},
        available=available,
        covered_s=covered_s,
    )


def rounds(worth: Worth, *sites: SiteStatistics, count: int) -> list[list[PlannedMove]]:
    return [worth(sites, THRESHOLDS) for _ in range(count)]


def test_a_move_waits_until_as_much_is_lost_as_it_costs() -> None:
    made = rounds(Worth(), site(0, 1.0, 4), site(1, 0.5, 2), count=4)
    assert [len(moves) for moves in made] == [0, 0, 0, 1]  # a quarter of a second is lost in each


def test_what_takes_longer_has_to_be_lost_first() -> None:
    worth = Worth()
    worth.note_moves([PlannedMove((9, 9), 0, 1)], 8.0, lambda part: part)
    made = rounds(worth, site(0, 1.0, 4), site(1, 0.5, 2), count=18)
    assert not any(made[:17])
    assert made[17]


def test_of_sites_that_are_not_busy_nothing_moves() -> None:
    assert not any(rounds(Worth(), site(0, 0.6, 4), site(1, 0.05, 1), count=100))


def test_a_site_that_gets_little_of_its_processor_is_no_receiver() -> None:
    worth = Worth()
    loaded = site(1, 0.3, 1, available=0.1, covered_s=20.0)
    assert not any(rounds(worth, site(0, 1.0, 4, covered_s=20.0), loaded, count=20))


def test_a_pair_does_not_come_back_for_some_rounds() -> None:
    worth = Worth(rounds=3)
    worth.note_moves([PlannedMove("a", 0, 1)], 0.1, lambda part: part)
    assert not worth.may_go("a", 0)
    assert worth.may_go("a", 2)
    rounds(worth, site(0, 0.1, 1), site(1, 0.1, 1), count=3)
    assert worth.may_go("a", 0)


def test_a_move_to_the_next_best_site_is_planned_where_the_idlest_may_not_have_it() -> None:
    sites = (site(0, 1.0, 4), site(1, 0.3, 1), site(2, 0.2, 1))
    made = [
        move
        for _ in range(10)
        for move in Worth()._planned(sites, THRESHOLDS, lambda _part, _from, to: to != 2, hash)
    ]
    assert {(move.donor, move.receiver) for move in made} == {(0, 1)}
