"""Runs that failed, kept as files: the plan and every step, so that they can be run again for ever.

A file outlives the seed that made it: a seed means another run as soon as anything is drawn in
another order, the steps mean the same. The story of the nodes concerned lies beside it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from flux_lab.plans import Plan
from flux_lab.steps import FAULTS, Step
from flux_lab.world import World
from flux_runtime.protocol.vocabulary import Node, ProtocolError, Shape


def keep(plan: Plan, steps: Sequence[Step], folder: Path, *, name: str, story: str = "") -> Path:
    """Write a run as a file that `replay` reads, and its story as text; gives the file's path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    listed = [[step.kind, step.at, step.peer] for step in steps]
    path.write_text(json.dumps({"plan": asdict(plan), "steps": listed}) + "\n")
    if story:
        path.with_suffix(".txt").write_text(story)
    return path


def replay(path: Path, *, stories: bool = False) -> World:
    """Perform the steps of a kept run as far as they are possible, then go on to the end.

    The protocol may have changed since: a step that is not possible any more is left out.

    Raises:
        ProtocolError: what the run violates; with `stories`, also what the nodes concerned did.
    """
    kept = json.loads(path.read_text())
    shape = Shape(**kept["plan"].pop("shape"))
    shape = replace(shape, widths=tuple(shape.widths))
    world = Plan(shape=shape, **kept["plan"]).world(stories=stories)
    step: Step | None = None
    try:
        for kind, at, peer in kept["steps"]:
            step = Step(kind, _place(at), None if peer is None else _place(peer))
            if step in world.steps() or _may_strike(world, step):
                world.perform(step)
        while steps := world.steps():
            step = next((s for s in steps if s.kind in ENDING), steps[0])
            world.perform(step)
        world.validate()
        world.finished()
    except ProtocolError as violation:
        if not stories:
            raise
        raise ProtocolError(f"{violation}\n{world.tale(step)}") from violation
    return world


ENDING = ("relieve", "free disk", "resume")
"""What ends a trouble; until then, partitions might take turns in memory for ever."""


def _may_strike(world: World, fault: Step) -> bool:
    there = fault.at in world.site or fault.at in world.site.values()
    whole = fault.kind != "move" or world.controller.whole
    return fault.kind in FAULTS and there and whole


def _place(at: int | list[int]) -> Node | int:
    return at if isinstance(at, int) else Node(*at)
