"""Every interleaving of small configurations, and the argument that lets the explorer skip some."""

from __future__ import annotations

import random
from typing import Any

import pytest

from flux_runtime.protocol.outlet import Outlet
from flux_runtime.protocol.vocabulary import Node, Pair, Shape
from flux_runtime.simulation.explore import (
    CONFIGURATIONS,
    UNBOUNDED,
    Configuration,
    ExplorationError,
    commutes,
    explore,
)
from flux_runtime.simulation.sweep import victims
from flux_runtime.simulation.world import Step, World


@pytest.mark.parametrize("name", ["dataflow-pair", "two-partitions"])
def test_one_crash_anywhere_in_every_interleaving(name: str) -> None:
    found = explore(CONFIGURATIONS[name])
    assert found.complete
    assert found.states > 5_000
    assert found.crashed > 20


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CONFIGURATIONS))
def test_every_configuration_for_twenty_seconds(name: str) -> None:
    explore(CONFIGURATIONS[name], seconds_max=20)


def test_the_same_exploration_finds_the_same_states() -> None:
    small = Configuration(shape=Shape(widths=(1,)), batches=1, rows=1, keys=1)
    first, second = explore(small), explore(small)
    assert (first.states, first.transitions) == (second.states, second.transitions)


def test_a_violation_is_found_and_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Outlet, "reverse", lambda self, d: False)
    with pytest.raises(ExplorationError, match=r"(?s)after.*kill A0p"):
        explore(CONFIGURATIONS["dataflow-pair"])


def same(one: World, two: World) -> bool:
    interned: dict[Any, int] = {}
    return one.key(interned) == two.key(interned)


def after(world: World, *steps: Step) -> World:
    moved = world.clone()
    for step in steps:
        moved.perform(step)
    return moved


WALKS = [
    Configuration(shape=Shape(widths=(1,)), batches=3, rows=1, keys=1),
    Configuration(shape=Shape(widths=(2,), ordered_egress=False), batches=3, rows=2, keys=2),
    Configuration(shape=Shape(widths=(2,)), batches=3, rows=2, keys=2),
    Configuration(shape=Shape(widths=(1, 1)), batches=3, rows=1, keys=1),
    Configuration(shape=Shape(widths=(2, 2)), batches=2, rows=3, keys=4),
]


@pytest.mark.parametrize("configuration", WALKS, ids=str)
def test_steps_taken_first_commute_with_every_other_step(configuration: Configuration) -> None:
    """The diamond behind the explorer's reduction, at every state of random unreduced walks."""
    checked = 0
    for seed in range(2):
        rng = random.Random(seed)
        world = configuration.world()
        assert world.capacity == UNBOUNDED
        pair = rng.choice(configuration.shape.pairs())
        moment, crashes = rng.randrange(40), 1
        for n in range(400):
            steps = world.steps()
            kills = [Step("kill", v) for v in victims(world, reckless=False) if v.pair == pair]
            if n >= moment and crashes and kills:
                crashes = 0
                world.perform(rng.choice(kills))
                continue
            if not steps:
                break
            possible = steps + (kills if crashes else [])
            for step in steps:
                if commutes(world, step, failing=frozenset((pair,)), faults_left=bool(crashes)):
                    checked += diamonds(world, step, possible)
            world.perform(rng.choice(steps))
    assert checked > 100


def diamonds(world: World, first: Step, possible: list[Step]) -> int:
    for other in possible:
        if other == first or hides_nothing(first, other):
            continue
        assert first in after(world, other).steps(), f"{other} takes {first} away"
        one, two = after(world, first, other), after(world, other, first)
        assert same(one, two), f"{first} and {other} do not commute"
    return len(possible) - 1


def hides_nothing(first: Step, other: Step) -> bool:
    """The death of the node that would take the step: the step leaves no trace elsewhere, or the
    dead node's links carry what it wrote before, which a receiver may still read or discard."""
    concerned: tuple[Node | int | Pair | None, ...] = (first.at, first.peer)
    return other.kind == "kill" and other.at in concerned
