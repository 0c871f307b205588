"""Who makes a run's choices: a seed, a list of steps, or everybody (all interleavings).

A random schedule is skewed: each run draws a weight for every channel, so that some are far slower
than others; uniform choice would hardly ever let one stream overtake another altogether.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from blazes.simulate.anomalies import End, end_of
from blazes.simulate.messages import rank
from blazes.simulate.network import Network, StepFailed
from blazes.simulate.world import Arrival, Bag, Step, World
from blazes.verify.records import Row

Input: TypeAlias = Mapping[str, Bag]
"""Source stream -> its records, each with how many of it."""
Order: TypeAlias = dict[tuple[str, Row], list[Arrival]]

DELIVERED_MAX = 1000
"""A run that delivers more records is taken for one that never ends. Records are counted, not
steps: in a cycle that doubles them, each step takes twice as long as the one before."""

MISCHIEF: Final = 4
"""Crashes, and records that are late, repeated or a stranger's, in a random run with gates."""
MISCHIEF_SHARE: Final = 0.1


class Endless(StepFailed):
    """A cycle that keeps producing new records."""


@dataclass(frozen=True, slots=True)
class Run:
    """A run from beginning to end."""

    steps: tuple[Step, ...]
    end: End
    order: Order


def finish(world: World, taken: list[Step]) -> Run:
    """Deliver whatever is left, channel by channel, and let ordered instances end."""
    while True:
        if world.delivered > DELIVERED_MAX:
            raise Endless("a cycle of the dataflow does not come to rest on this input")
        steps = world.steps()
        if steps:
            first = [step for step in steps if step.stream == steps[0].stream][-1]
            world.perform(first)
            taken.append(first)
        elif not world.rest():
            return Run(tuple(taken), end_of(world), world.order)


def replayed(
    network: Network,
    given: Input,
    steps: Iterable[Step],
    order: Order | None,
    *,
    oracle: bool = False,
) -> Run:
    """The run of these steps; those that are not possible are left out, what is missing follows."""
    return finish_after(World(network, dict(given), order, oracle=oracle), steps)


def finish_after(world: World, steps: Iterable[Step]) -> Run:
    """Take of the steps what is possible in a run, and finish it."""
    taken: list[Step] = []
    for step in steps:
        due = world.due(step)
        if due is not None:
            world.perform(due)
            taken.append(due)
    return finish(world, taken)


def random_run(network: Network, given: Input, rng: random.Random, order: Order | None) -> Run:
    """A run from a source of choices."""
    world = World(network, dict(given), order)
    weights: dict[tuple[str, int], float] = {}
    taken: list[Step] = []
    left = MISCHIEF if network.intakes else 0
    while world.delivered <= DELIVERED_MAX:
        channels = sorted(world.pending)
        if left and (not channels or rng.random() < MISCHIEF_SHARE):
            left -= 1
            trouble = world.mischief(rng)
            if trouble is not None:
                world.perform(trouble)
                taken.append(trouble)
            continue
        if not channels:
            if world.rest():
                continue
            return Run(tuple(taken), end_of(world), world.order)
        for channel in channels:
            weights.setdefault(channel, 10.0 ** rng.uniform(-2, 2))
        channel = rng.choices(channels, [weights[candidate] for candidate in channels])[0]
        step = chosen(channel, world.pending[channel], rng)
        world.perform(step)
        taken.append(step)
    raise Endless("a cycle of the dataflow does not come to rest on this input")


def chosen(channel: tuple[str, int], bag: Bag, rng: random.Random) -> Step:
    """The step of a channel: it delivers one record, all equal ones, or everything on its way."""
    rows = sorted(bag.items(), key=lambda counted: rank(counted[0]))
    if len(rows) > 1 and rng.random() < 0.25:
        rng.shuffle(rows)
        return Step(*channel, tuple(rows))
    row, times = rng.choice(rows)
    return Step(*channel, ((row, rng.choice((1, times))),))


def every_run(network: Network, given: Input, order: Order | None, *, most: int) -> Iterator[Run]:
    """A run to every end that any interleaving comes to; None of them twice.

    Args:
        network: what runs.
        given: the input.
        order: a recorded order to follow.
        most: states to visit; OverflowError past that.
    """
    first = World(network, dict(given), order)
    seen = {first.freeze()}
    stack: list[tuple[World, tuple[Step, ...]]] = [(first, ())]
    ends: set[Hashable] = set()
    while stack:
        world, path = stack.pop()
        steps = world.steps()
        if not steps:
            while world.rest():
                pass
            if world.pending:
                stack.append((world, path))
                continue
            end = end_of(world)
            key = (frozenset(end.streams.items()), frozenset(end.states.items()))
            if key not in ends:
                ends.add(key)
                yield Run(path, end, world.order)
            continue
        for step in steps:
            after = world.clone()
            after.perform(step)
            key_after = after.freeze()
            if key_after not in seen:
                seen.add(key_after)
                if len(seen) > most:
                    raise OverflowError(f"more than {most} states")
                stack.append((after, (*path, step)))
