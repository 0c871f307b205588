"""The virtual clock: deterministic, first in first out, and the shape of a recovery (EX-1)."""

from __future__ import annotations

import itertools

import pytest

from flux_runtime.protocol.vocabulary import Shape
from flux_runtime.simulation.bulk import Bulk, bulk_dataflow
from flux_runtime.simulation.costs import Costs, Trace
from flux_runtime.simulation.timed import Timed
from flux_runtime.simulation.world import Step, World


def small(
    *, crash_at: float | None = None, load: float = 1.0, interval: float = 0.01, until: float = 9.0
) -> Trace:
    shape = Shape(widths=(2, 2), pool=256, in_hand=2)
    dataflow = bulk_dataflow(shape, selectivity=(1, 1), row_bytes=(50, 50), state=(200_000,) * 2)
    world = World(
        dataflow,
        [Bulk(100, 100, i * interval) for i in range(100)],
        sites=2,
        spares=1,
        link_capacity=8,
    )
    costs = Costs(
        row=lambda stage: 10e-6 if stage < 2 else 0, bandwidth=10e6, rows=lambda b: b.rows
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


def longest_gap(trace: Trace) -> float:
    times = [t for t, _, _ in trace.emitted]
    return max(b - a for a, b in itertools.pairwise(times))


def test_a_slow_site_slows_what_runs_on_it() -> None:
    fast, slow = small(interval=0.001, until=60), small(interval=0.001, load=0.5, until=60)
    assert slow.emitted[-1][0] > 1.5 * fast.emitted[-1][0]


def test_moves_take_their_size_over_the_bandwidth() -> None:
    for _, _, _, size, took in small(crash_at=0.4).moves:
        assert took >= size / 10e6
