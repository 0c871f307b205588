"""States of segments as bytes, from random schedules of the simulated protocol with failures."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from flux_lab.papers import moving
from flux_lab.papers.moving import pack_state, unpack_state
from flux_lab.papers.protocol.segment import Segment, SegmentState
from flux_lab.plans import plan_of
from flux_lab.world import World
from flux_runtime.operators.packing import Unreadable, pack
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Node

SEEDS = 40


def moved(seed: int) -> Iterator[tuple[Dataflow, Node, SegmentState]]:
    """States on their way to standbys in one random schedule with crashes."""
    draw = random.Random(seed)
    world: World = plan_of(draw).world()
    seen: set[Node] = set()
    for _ in range(3000):
        steps = world.steps()
        if not steps:
            return
        world.perform(draw.choice(steps))
        alive = [node for node, machine in world.nodes.items() if isinstance(machine, Segment)]
        if alive and draw.random() < 0.01 and world.controller.is_whole:
            world.kill(draw.choice(alive))
        for node, (_, state) in world.moves.items():
            if node not in seen:
                seen.add(node)
                yield world.dataflow, node, state


@cache
def states() -> list[tuple[Dataflow, Node, SegmentState]]:
    return [found for seed in range(SEEDS) for found in moved(seed)]


def test_a_state_comes_back_as_it_was() -> None:
    for dataflow, node, state in states():
        found = unpack_state(dataflow, node, bytes(pack_state(dataflow, state)))
        assert found.freeze() == state.freeze()
        standby = Segment(dataflow, node, standby=True)
        standby.install(found)
        standby.validate()
    assert len(states()) > 20
    assert any(s.waiting or any(i.queue for i in s.consumer.inlets) for _, _, s in states())
    assert any(o.buffer.entries for _, _, s in states() for o in s.producer.outlets)


def attacks(seed: int) -> Iterator[tuple[Dataflow, Node, bytes]]:
    """Bytes that are no state, or one with something of another type or number in it."""
    draw = random.Random(seed)
    dataflow, node, state = draw.choice(states())
    data = bytearray(bytes(pack_state(dataflow, state)))
    for _ in range(draw.randint(1, 3)):
        data[draw.randrange(len(data))] = draw.randrange(256)
    yield dataflow, node, bytes(data)
    owner: Any = draw.choice([state, state.consumer, state.producer])
    owner = draw.choice([owner, *getattr(owner, "inlets", ()), *getattr(owner, "outlets", ())])
    names = [n for c in type(owner).__mro__ for n in getattr(c, "__slots__", ()) if n != "shape"]
    names = [n for n in names if n not in ("operator", "peers")]  # any value, or none
    name, odd = draw.choice(names), draw.choice(["x", b"", {}, 1.5, ({},), [1, 2, 3, 4]])
    before = getattr(owner, name)
    object.__setattr__(owner, name, odd)
    try:
        yield dataflow, node, bytes(pack_state(dataflow, state))
    finally:
        object.__setattr__(owner, name, before)


def install_what_is_read(seed: int) -> int:
    """Attacks that were refused; whatever is accepted can be installed and validated."""
    refused = 0
    for dataflow, node, data in attacks(seed):
        try:
            found = unpack_state(dataflow, node, data)
        except Unreadable:
            refused += 1
            continue
        standby = Segment(dataflow, node, standby=True)
        standby.install(found)
        standby.validate()
    return refused


def test_a_state_that_cannot_be_is_refused_before_it_is_installed() -> None:
    assert sum(map(install_what_is_read, range(300))) > 300


def test_without_the_comparison_a_standby_would_break(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving, "_compare", lambda *_: None)
    with pytest.raises((TypeError, AttributeError, ValueError, LookupError)):
        sum(map(install_what_is_read, range(300)))


def test_another_value_is_no_state() -> None:
    dataflow, node, _ = states()[0]
    with pytest.raises(Unreadable, match="a dict is no state"):
        unpack_state(dataflow, node, pack({}))
