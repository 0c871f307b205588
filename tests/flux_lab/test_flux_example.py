"""The papers' running example with crashes, and schedules drawn by Hypothesis, which shrinks."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flux_lab.example import events, running_example
from flux_lab.faults import victims
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import Shape


@pytest.mark.parametrize("seed", range(6))
def test_two_group_bys_survive_crashes(seed: int) -> None:
    rng = random.Random(seed)
    dataflow = running_example(Shape(widths=(2, 2), pool=8))
    world = World(dataflow, events(10, 64, keys=40), sites=3, spares=1)
    moments = [rng.randrange(150), rng.randrange(300)]
    for n in range(10_000):
        steps = world.steps()
        if n in moments and (dying := victims(world, reckless=False)):
            world.perform(Step("kill", rng.choice(dying)))
        elif steps:
            world.perform(rng.choice(steps))
        else:
            break
    world.finished()
    assert world.emitted == len(world.checks.expected.output) > 5


def test_the_result_does_not_depend_on_the_size_of_batches() -> None:
    def output(rows: int) -> list[tuple[int, int, float, float]]:
        dataflow = running_example(Shape(widths=(2, 2)))
        world = World(dataflow, events(512 // rows, rows, keys=40), sites=2)
        whole = pa.concat_batches([rows for _, rows in world.checks.expected.output])
        return [tuple(row.values())[:4] for row in whole.to_pylist()]

    assert output(1) == output(16) == output(128)


def test_the_result_does_not_depend_on_the_number_of_partitions() -> None:
    def output(widths: tuple[int, ...]) -> list[dict[str, float]]:
        world = World(running_example(Shape(widths=widths)), events(8, 64, keys=40), sites=2)
        return pa.concat_batches([rows for _, rows in world.checks.expected.output]).to_pylist()

    assert output((1, 1)) == output((3, 2)) == output((5, 7))


shapes = st.builds(
    Shape,
    widths=st.sampled_from([(1,), (2,), (1, 1), (2, 1), (1, 2)]),
    ordered_egress=st.booleans(),
    pool=st.sampled_from([4, 16]),
    ack_every=st.sampled_from([1, 2]),
)
choices = st.lists(st.integers(0, 97), max_size=200)
kills = st.lists(st.tuples(st.integers(0, 150), st.integers(0, 9)), max_size=3)


@given(shapes, choices, kills, st.sampled_from([1, 3]))
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
def test_no_schedule_loses_repeats_or_reorders(
    shape: Shape, chosen: list[int], faults: list[tuple[int, int]], capacity: int
) -> None:
    world = World(
        digest_dataflow(shape),
        digest_input(4, rows=2, keys=3),
        sites=2,
        spares=1,
        link_capacity=capacity,
    )
    deaths = dict(faults)
    n = 0
    while steps := world.steps():
        may_die = victims(world, reckless=False)
        if n in deaths and may_die:
            world.perform(Step("kill", may_die[deaths[n] % len(may_die)]))
        else:
            world.perform(steps[chosen[n] % len(steps) if n < len(chosen) else 0])
        n += 1
    world.validate()
    world.finished()
