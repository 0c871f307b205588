"""Schedules and faults drawn by Hypothesis, which shrinks a failing one to a few steps."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flux_lab.faults import victims
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import Shape

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
