"""The virtual clock: deterministic, first in first out, and the shape of a recovery (EX-1)."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from flux_lab.balance_loads import LOADS, run, scenario
from flux_lab.bulk import Bulk, bulk_dataflow
from flux_lab.costs import Costs, Trace
from flux_lab.timed import Timed
from flux_lab.world import Step, World
from flux_runtime.protocol.balancing import PlannedMove, SiteStatistics
from flux_runtime.protocol.vocabulary import Node, Shape
from flux_runtime.protocol.worth import Worth


def small(
    *,
    crash_at: float | None = None,
    load: float = 1.0,
    interval: float = 0.01,
    until: float = 9.0,
    turn: int = 0,
    results_max: int = 0,
    destination: float = 0.0,
) -> Trace:
    shape = Shape(widths=(2, 2), pool=256, in_hand=2, results_max=results_max)
    dataflow = bulk_dataflow(shape, selectivity=(1, 1), row_bytes=(50, 50), state=(200_000,) * 2)
    world = World(
        dataflow,
        [Bulk(100, 100, i * interval) for i in range(100)],
        sites=2,
        spares=1,
        link_capacity=8,
    )
    costs = Costs(
        row=lambda stage: 10e-6 if stage < 2 else 0,
        bandwidth=10e6,
        turn=turn,
        destination=destination,
        rows=lambda b: b.rows,
    )
    faults = ((crash_at, Step("crash", 1)),) if crash_at is not None else ()
    timed = Timed(
        world,
        costs,
        interval=interval,
        faults=faults,
        load=lambda site, _: load if site == 0 else 1,
    )
    trace = timed.run(until)
    world.finished()
    return trace


def test_the_same_configuration_gives_the_same_trace() -> None:
    assert small(crash_at=0.4) == small(crash_at=0.4)


def test_time_does_not_go_back_and_everything_leaves() -> None:
    trace = small()
    times = [t for t, _, _ in trace.emitted]
    assert times == sorted(times)
    assert sum(rows for _, rows, _ in trace.emitted) == pytest.approx(100 * 100)


def test_ex_1_a_crash_delays_output_and_loses_none_of_it() -> None:
    whole, crashed = small(), small(crash_at=0.4)
    assert crashed.fed == pytest.approx(whole.fed, abs=0.02)
    assert len(crashed.moves) == 4
    assert longest_gap(crashed) > 2 * longest_gap(whole)
    assert crashed.rate(0, 3) == pytest.approx(whole.rate(0, 3))


@pytest.mark.parametrize("crash_at", [None, 0.4])
def test_nc_7_a_slow_destination_sets_the_pace_and_gets_everything(crash_at: float | None) -> None:
    trace = small(crash_at=crash_at, results_max=2, destination=0.05)
    assert len(trace.emitted) == 100
    times = [t for t, _, _ in trace.emitted]
    assert times[-1] - times[0] == pytest.approx(97 * 0.05, rel=0.05), "two are under way"
    assert all(c - a > 0.049 for a, c in zip(times[2:], times[4:], strict=False))


def test_nc_7_a_fast_destination_costs_nothing() -> None:
    usual, answered = small(), small(results_max=8, destination=0.001)
    assert answered.emitted[-1][0] == pytest.approx(usual.emitted[-1][0], abs=0.01)


def longest_gap(trace: Trace) -> float:
    times = [t for t, _, _ in trace.emitted]
    return max(b - a for a, b in itertools.pairwise(times))


def test_a_slow_site_slows_what_runs_on_it() -> None:
    fast, slow = small(interval=0.001, until=60), small(interval=0.001, load=0.5, until=60)
    assert slow.emitted[-1][0] > 1.5 * fast.emitted[-1][0]


def test_moves_take_their_size_over_the_bandwidth() -> None:
    for _, _, _, size, took in small(crash_at=0.4).moves:
        assert took >= size / 10e6


def test_transport_of_state_gets_its_turn_among_the_copies_that_work() -> None:
    """A round takes at least one row's time per turn of transport, longer on a loaded site."""
    took = {
        (turn, load): sum(move[-1] for move in small(crash_at=0.4, turn=turn, load=load).moves)
        for turn in (0, 100)
        for load in (1.0, 0.25)
    }
    assert took[100, 1.0] >= 4 * 200_000 / 100 * 10e-6
    assert took[100, 1.0] > 1.1 * took[0, 1.0]
    assert took[100, 0.25] > 1.5 * took[100, 1.0]


def test_a_link_that_breaks_under_the_clock_ends_one_copy_which_is_replaced() -> None:
    shape = Shape(widths=(1, 1), pool=64, in_hand=2)
    dataflow = bulk_dataflow(shape, selectivity=(1, 1), row_bytes=(50, 50), state=(1000, 1000))
    world = World(dataflow, [Bulk(10, 100, i * 0.01) for i in range(60)], sites=2, spares=1)
    costs = Costs(row=lambda stage: 1e-4, bandwidth=1e6, rows=lambda b: b.rows)
    victim, peer = Node(1, 0, 0, 0), Node(0, 0, 0, 0)
    faults = ((0.2041, Step("close", victim, peer)),)
    timed = Timed(world, costs, interval=0.01, faults=faults, history=True)
    trace = timed.run(9.0)
    world.finished()
    assert [node.pair for _, node in trace.whole] == [victim.pair]
    assert timed.history is not None
    assert all(m.taken is None or m.taken >= m.sent for m in timed.history.messages)


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
