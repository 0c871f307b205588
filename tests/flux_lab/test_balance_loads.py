"""The balancer moves what is worth it: generated loads in virtual time, and planted mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flux_lab.balance_loads import LOADS, run, scenario
from flux_runtime.protocol.balancing import PlannedMove, SiteStatistics
from flux_runtime.protocol.worth import Worth

IDLE, BURSTS, OUTSIDE, SKEW, CROWDED = 0, 1, 34, 23, 26
"""Seeds; more with `python -m flux_lab.balance_loads 0 60`."""


class Eager(Worth):
    """Makes every move that the papers' policy plans."""

    def weigh(
        self, sites: Sequence[SiteStatistics], moves: Sequence[PlannedMove]
    ) -> list[PlannedMove]:
        self.round += 1
        return list(moves)


class Restless(Eager):
    """The same, and back again."""

    def may_go(self, unit: Any, site: int) -> bool:
        return True


@pytest.mark.parametrize("seed", [IDLE, BURSTS, OUTSIDE, SKEW, CROWDED])
def test_load_moves_where_it_is_worth_it_and_nowhere_else(seed: int) -> None:
    plan = scenario(seed)
    outcome = run(plan, seed)
    assert outcome.wrong == []
    assert bool(outcome.moves) == (plan.load in LOADS[2:])


def test_a_balancer_that_moves_without_gain_is_noticed() -> None:
    assert any("moves of what gains nothing" in one for one in wrong(BURSTS, Eager))


def test_a_balancer_that_moves_back_and_forth_is_noticed() -> None:
    assert any("came back" in one for one in wrong(CROWDED, Restless))


def test_a_balancer_that_never_moves_is_noticed() -> None:
    class Idle(Worth):
        def weigh(self, *_: object) -> list[PlannedMove]:
            return []

    assert any("a pace of" in one for one in wrong(OUTSIDE, Idle))


def wrong(seed: int, worth: type[Worth]) -> list[str]:
    return run(scenario(seed), seed, worth=worth).wrong
