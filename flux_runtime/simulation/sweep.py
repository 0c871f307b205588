"""Random schedules with random faults: everything from one seed, so a failure can be run again.

A schedule is skewed: each run draws a weight for every node and kind of step, so that some links,
logs and moves are far slower than others; uniform choice would hardly ever let a marker overtake a
view change.

    python -m flux_runtime.simulation.sweep 0 1000        seeds 0 to 999
    python -m flux_runtime.simulation.sweep 17 --story     one seed, with the story of every node
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from flux_runtime.protocol.vocabulary import Node, ProtocolError, Shape, Status
from flux_runtime.simulation.checks import Checks
from flux_runtime.simulation.workload import digest_dataflow, digest_input
from flux_runtime.simulation.world import FAULTS, Step, World

STEPS_MAX = 50_000
"""A run that takes more steps than this is taken for a livelock."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run: the dataflow, its limits, and how many faults of which kind."""

    shape: Shape
    batches: int
    rows: int
    keys: int
    every: int
    sites: int
    spares: int
    link_capacity: int
    kills: int
    reckless: bool

    @property
    def parallel_max(self) -> int:
        """Catch-ups at once (CT-7)."""
        return 1 + (self.batches + self.keys + self.sites) % 3

    def world(self, *, stories: bool = False) -> World:
        """The world in its initial state."""
        dataflow = digest_dataflow(self.shape, every=self.every)
        batches = digest_input(self.batches, rows=self.rows, keys=self.keys)
        return World(
            dataflow,
            batches,
            checks=Checks(dataflow, batches, states=True),
            sites=self.sites,
            spares=self.spares,
            link_capacity=self.link_capacity,
            stories=stories,
            parallel_max=self.parallel_max,
        )


@dataclass
class Run:
    """What became of one run."""

    seed: int
    plan: Plan
    steps: list[Step] = field(default_factory=list)
    kills: int = 0
    recoveries: int = 0
    losses: int = 0


class RunError(ProtocolError):
    """A run violated something; carries the run, so that it can be kept."""

    def __init__(self, run: Run, world: World, cause: ProtocolError) -> None:
        super().__init__(
            f"seed {run.seed}, step {len(run.steps)}: {cause}\n{run.plan}\n"
            f"run it again: python -m flux_runtime.simulation.sweep {run.seed} --story"
        )
        self.run = run
        self.world = world
        self.cause = cause


WIDTHS = ((1,), (2,), (3,), (1, 1), (2, 2), (1, 2), (2, 1), (3, 2), (1, 1, 1), (1, 2, 1), (2, 2, 2))


def plan_of(rng: random.Random) -> Plan:
    """Draw a dataflow, its limits and its faults."""
    widths = rng.choice(WIDTHS)
    ack_every = rng.choice((1, 1, 1, 2, 3))
    shape = Shape(
        widths=widths,
        ordered_egress=rng.random() < 0.7,
        pool=rng.choice((4, 6, 16, 64)) + max(widths) * (ack_every - 1),
        reserve=1,
        ack_every=ack_every,
        in_hand=rng.choice((1, 1, 2, 4)),
    )
    return Plan(
        shape=shape,
        batches=rng.choice((4, 8, 12)),
        rows=rng.choice((1, 2, 4)),
        keys=rng.choice((2, 5, 12)),
        every=rng.choice((1, 2, 3)),
        sites=rng.choice((2, 3, 4)),
        spares=rng.choice((0, 1, 1, 2)),
        link_capacity=rng.choice((1, 2, 4, 16)),
        kills=rng.choice((0, 1, 2, 3, 4, 6)),
        reckless=rng.random() < 0.1,
    )


def victims(world: World, *, reckless: bool) -> list[Node]:
    """Copies whose death the protocol must mask: the other copy is whole and known to be."""
    found = []
    for node in world.site:
        if node in world.doomed:
            continue
        mate = world.controller.pairs[node.pair].copies[1 - node.copy]
        assert mate is not None
        other = Node(*node.pair, 1 - node.copy, mate.life)
        well = other in world.nodes and other not in world.doomed
        if reckless or (mate.status is Status.ACTIVE and well):
            found.append(node)
    return found


def _near_catch_up(world: World, nodes: Sequence[Node]) -> list[Node]:
    """Those whose death disturbs the catch-up in hand most: its standby, its neighbours."""
    now = world.controller.current
    if now is None:
        return []
    return [n for n in nodes if n.pair == now.pair or abs(n.stage - now.pair.stage) == 1]


def _fault(rng: random.Random, world: World, plan: Plan) -> Step | None:
    """A process or a whole site, preferably one that takes part in a catch-up."""
    may_die = victims(world, reckless=plan.reckless)
    near = _near_catch_up(world, may_die)
    if near and rng.random() < 0.7:
        may_die = near
    if not may_die:
        return None
    node = rng.choice(may_die)
    if world.controller.whole and rng.random() < 0.15:
        return Step("move", node)
    on_site = [n for n, site in world.site.items() if site == world.site[node]]
    whole_site = plan.reckless or set(on_site) <= set(victims(world, reckless=False))
    few = len(set(world.site.values())) > 2
    if whole_site and few and rng.random() < 0.3:
        return Step("crash", world.site[node])
    return Step("kill", node)


def _otherwise(rng: random.Random, world: World, fault: Step) -> Step:
    """Now and then not the death that was drawn, but what is only taken for one.

    A site stands still, is declared dead, and comes back; a process is declared dead and lives on;
    the link between two nodes breaks, so that one of them has to go.
    """
    if rng.random() > 0.35:
        return fault
    if fault.kind == "crash" and isinstance(fault.at, int):
        return Step("suspect", fault.at)
    if fault.kind != "kill":
        return fault
    peers = sorted({p for link in world.links for p in link if fault.at in link} - {fault.at})
    if peers and rng.random() < 0.5:
        return Step("close", fault.at, rng.choice(peers))
    return Step("suspect", fault.at)


def _moments(rng: random.Random, plan: Plan) -> list[int]:
    """When faults strike: anywhere, or soon after one another, while a catch-up is under way."""
    expected_steps = 12 * plan.batches * sum(plan.shape.widths) + 40
    moments: list[int] = []
    for _ in range(plan.kills):
        if moments and rng.random() < 0.6:
            moments.append(moments[-1] + rng.randrange(120))
        else:
            moments.append(rng.randrange(expected_steps))
    return sorted(moments)


def run(seed: int, *, plan: Plan | None = None, stories: bool = False) -> Run:
    """One run from a seed.

    Raises:
        RunError: something promised did not hold.
    """
    rng = random.Random(seed)
    drawn = plan_of(rng)
    done = Run(seed, plan or drawn)
    world = done.plan.world(stories=stories)
    weights: dict[tuple[str, object], float] = {}
    moments = _moments(rng, done.plan)
    mild = random.Random(seed + 0.5)
    memory = random.Random(~seed) if seed % 3 == 0 else None
    try:
        while True:
            steps = world.steps()
            if not steps and not moments:
                break
            step = None
            if moments and (len(done.steps) >= moments[0] or not steps):
                moments.pop(0)
                step = _fault(rng, world, done.plan)
                step = step and _otherwise(mild, world, step)
                done.kills += step is not None
            if step is None:
                if not steps:
                    continue
                step = _short_of_memory(memory, world) if memory else None
            if step is None:
                step = _draw(rng, steps, weights)
            done.steps.append(step)
            world.perform(step)
            if len(done.steps) > STEPS_MAX:
                raise ProtocolError("livelock")
            if len(done.steps) % 16 == 0:
                world.validate()
        world.validate()
        world.finished()
    except ProtocolError as cause:
        raise RunError(done, world, cause) from cause
    done.losses = len(world.controller.losses)
    done.recoveries = sum(view.attempts for view in world.controller.pairs.values())
    return done


def _short_of_memory(rng: random.Random, world: World) -> Step | None:
    """Now and then a site writes the state of one of its partitions to disk (SP-2)."""
    if rng.random() > 0.03 or not world.site:
        return None
    return Step("evict", rng.choice(list(world.site)))


def _draw(
    rng: random.Random, steps: Sequence[Step], weights: dict[tuple[str, object], float]
) -> Step:
    for step in steps:
        if (step.kind, step.at) not in weights:
            weights[step.kind, step.at] = 10.0 ** rng.uniform(-1.5, 1.0)
    chances = [weights[step.kind, step.at] for step in steps]
    return rng.choices(steps, chances)[0]


def keep(failed: Run, folder: Path) -> Path:
    """Write a run as a file that `replay` reads; gives its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed-{failed.seed}.json"
    steps = [[s.kind, s.at, s.peer] for s in failed.steps]
    path.write_text(json.dumps({"plan": asdict(failed.plan), "steps": steps}) + "\n")
    return path


def replay(path: Path, *, stories: bool = False) -> World:
    """Perform the steps of a kept run as far as they are possible, then go on to the end.

    The protocol may have changed since: a step that is not possible any more is left out.

    Raises:
        ProtocolError: what the run violates.
    """
    kept = json.loads(path.read_text())
    shape = Shape(**kept["plan"].pop("shape"))
    shape = replace(shape, widths=tuple(shape.widths))
    world = Plan(shape=shape, **kept["plan"]).world(stories=stories)
    for kind, at, peer in kept["steps"]:
        step = Step(kind, _place(at), None if peer is None else _place(peer))
        there = step.at in world.site or step.at in world.site.values()
        if step in world.steps() or (kind in FAULTS and there):
            world.perform(step)
    while steps := world.steps():
        world.perform(steps[0])
    world.validate()
    world.finished()
    return world


def _place(at: int | list[int]) -> Node | int:
    return at if isinstance(at, int) else Node(*at)


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m flux_runtime.simulation.sweep")
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int, nargs="?")
    parser.add_argument("--story", action="store_true")
    parser.add_argument("--keep", type=Path, help="folder that failing runs are written to")
    args = parser.parse_args(argv)
    started = time.perf_counter()
    seeds = range(args.first, args.last if args.last is not None else args.first + 1)
    totals = [0, 0, 0, 0]
    failed: list[int] = []
    for seed in seeds:
        try:
            done = run(seed, stories=args.story)
        except RunError as failure:
            failed.append(seed)
            print(str(failure).partition("\n")[0])
            if args.keep:
                print(f"kept: {keep(failure.run, args.keep)}")
            if args.story:
                print(failure.world.tale())
                print("\n".join(map(str, failure.run.steps[-60:])))
            continue
        for i, n in enumerate((len(done.steps), done.kills, done.recoveries, done.losses)):
            totals[i] += n
    took = time.perf_counter() - started
    print(
        f"{len(seeds)} runs in {took:.1f} s: {totals[0]} steps, {totals[1]} faults, "
        f"{totals[2]} standbys, {totals[3]} losses reported, {len(failed)} violations"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
