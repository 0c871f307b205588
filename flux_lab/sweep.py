"""Random schedules with random faults: everything from one seed, so a failure can be run again.

A schedule is skewed: each run draws a weight for every node and kind of step, so that some links,
logs and moves are far slower than others; uniform choice would hardly ever let a marker overtake a
view change.

Runs that failed are kept as files, the plan and every step. A file outlives the seed that made it:
a seed means another run as soon as anything is drawn in another order, the steps mean the same.

    python -m flux_lab.sweep 0 10000        seeds 0 to 9999, on all processors
    python -m flux_lab.sweep 17 --story     one seed, with the story of every node
    python -m flux_lab.sweep --replay tests/flux_lab/kept
    python -m flux_lab.sweep 0 1000 --workload processors
"""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from pathlib import Path
from typing import Final

from flux_lab.faults import PHASES, ROLES, Deaths, Troubles, phase, role
from flux_lab.faults import victims as victims
from flux_lab.plans import Plan, plan_of
from flux_lab.steps import FAULTS
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import Node, ProtocolError, Shape

STEPS_MAX: Final = 50_000
"""A run that takes more steps than this is taken for a livelock."""

VALIDATE_EVERY: Final = 16
"""Steps between two examinations of the invariants of all nodes."""


@dataclass
class Run:
    """The outcome of one run.

    Attributes:
        struck: kind of fault -> how many.
        catch_up: (step of a catch-up, role in it) -> copies that died then.
        recoveries: standbys.
        losses: reported losses of data.
    """

    seed: int
    plan: Plan
    steps: list[Step] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    catch_up: Counter[tuple[str, str]] = field(default_factory=Counter)
    recoveries: int = 0
    losses: int = 0

    @property
    def kills(self) -> int:
        """Faults that took a copy or made others believe that it is gone."""
        return sum(n for kind, n in self.struck.items() if kind not in Troubles.KINDS)


WORKLOADS: Final = {
    "digests": "flux_lab.sweep:planned",
    "bad-records": "flux_lab.bad_records:BadRecords.of_seed",
    "processors": "flux_lab.processors:Programs.of_seed",
}
"""Workload -> `module:name` of what draws a plan from a seed."""


class RunError(ProtocolError):
    """A run violated something; carries the run, so that it can be kept."""

    def __init__(self, run: Run, world: World, cause: Exception) -> None:
        problem = cause if isinstance(cause, ProtocolError) else repr(cause)
        super().__init__(
            f"seed {run.seed}, step {len(run.steps)}: {problem}\n{run.plan}\n"
            f"run it again: python -m flux_lab.sweep {run.seed} --story --workload "
            f"{run.plan.WORKLOAD}"
        )
        self.run = run
        self.world = world
        self.cause = cause


def planned(seed: int) -> Plan:
    """The plan of digests that a seed draws."""
    return plan_of(random.Random(seed))


def drawn(workload: str) -> Callable[[int], Plan]:
    """The function that draws the plans of a workload."""
    module, _, names = WORKLOADS[workload].partition(":")
    draws: Callable[[int], Plan] = attrgetter(names)(importlib.import_module(module))
    return draws


def run(seed: int, *, plan: Plan | None = None, stories: bool = False) -> Run:
    """One run from a seed.

    Raises:
        RunError: something promised did not hold.
    """
    rng = random.Random(seed)
    drawn = plan_of(rng)
    done = Run(seed, plan or drawn)
    world = done.plan.world(stories=stories)
    try:
        _drive(rng, world, done)
        world.validate()
        world.finished()
    except Exception as cause:  # whatever a machine raises is a violation
        raise RunError(done, world, cause) from cause
    done.losses = len(world.controller.losses)
    done.recoveries = sum(view.attempts for view in world.controller.pairs.values())
    return done


def _drive(rng: random.Random, world: World, done: Run) -> None:
    """Steps and faults until nothing can happen any more."""
    deaths, troubles = Deaths(rng, done.plan), Troubles(rng, done.plan)
    weights: dict[tuple[str, object], float] = {}
    while True:
        steps, taken = world.steps(), len(done.steps)
        step = deaths.next(world, taken, idle=not steps)
        if step is not None:
            _count(done, world, step)
        elif steps:
            step = troubles.next(world, taken) or _draw(rng, world, steps, weights, troubles, taken)
        elif not deaths.due:
            break
        else:
            continue
        done.steps.append(step)
        world.perform(step)
        if taken > STEPS_MAX:
            raise ProtocolError("livelock")
        if taken % VALIDATE_EVERY == 0:
            world.validate()
    done.struck.update(troubles.counts)


def _count(done: Run, world: World, fault: Step) -> None:
    names = {"suspect": "suspect site", "close": "close connection"}
    if isinstance(fault.at, Node):
        names = {"suspect": "suspect process", "close": "close link"}
    done.struck[names.get(fault.kind, fault.kind)] += 1
    now = phase(world)
    if now is not None and fault.kind in ("kill", "crash"):
        dead = [fault.at] if isinstance(fault.at, Node) else world.nodes_on(fault.at)
        done.catch_up.update((now, role(world, node)) for node in dead)


def _draw(
    rng: random.Random,
    world: World,
    steps: Sequence[Step],
    weights: dict[tuple[str, object], float],
    troubles: Troubles,
    taken: int,
) -> Step:
    chances = []
    for step in steps:
        key = (step.kind, step.at)
        weight = weights.get(key)
        if weight is None:
            weight = weights[key] = 10.0 ** rng.uniform(-1.5, 1.0)
        chances.append(weight)
    if troubles.slow:
        slowed = (troubles.weight(world, step, taken) for step in steps)
        chances = [weight * slow for weight, slow in zip(chances, slowed, strict=True)]
    return rng.choices(steps, chances)[0]


@dataclass
class Totals:
    """The outcome of many runs."""

    runs: int = 0
    steps: int = 0
    recoveries: int = 0
    losses: int = 0
    multiplexed: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    catch_up: Counter[tuple[str, str]] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, done: Run) -> None:
        """One more run, without a violation."""
        self.runs += 1
        self.steps += len(done.steps)
        self.recoveries += done.recoveries
        self.losses += done.losses
        self.multiplexed += done.plan.multiplexed
        self.struck += done.struck
        self.catch_up += done.catch_up

    def merge(self, other: Totals) -> None:
        """The runs of another process."""
        self.runs += other.runs
        self.steps += other.steps
        self.recoveries += other.recoveries
        self.losses += other.losses
        self.multiplexed += other.multiplexed
        self.struck += other.struck
        self.catch_up += other.catch_up
        self.failed += other.failed

    def text(self, seconds: float, busy: float) -> str:
        """For people: totals, faults by kind, and deaths by step of the catch-up.

        Args:
            seconds: that passed.
            busy: that processors worked.
        """
        lines = [
            f"{self.runs} runs in {seconds:.1f} s, {self.runs / seconds:.0f} runs/s "
            f"({busy:.1f} s of processors): "
            f"{self.steps} steps, {sum(self.struck.values())} faults, {self.recoveries} standbys, "
            f"{self.losses} losses reported, {len(self.failed)} violations; "
            f"{self.multiplexed} with one connection per pair of sites",
            "faults: " + ", ".join(f"{kind} {n}" for kind, n in sorted(self.struck.items())),
            f"{'deaths during catch-up':24}" + "".join(f"{whom:>10}" for whom in ROLES),
        ]
        for now in PHASES:
            numbers = "".join(f"{self.catch_up[now, whom]:>10}" for whom in ROLES)
            lines.append(f"  {now:22}{numbers}")
        return "\n".join(lines)


def sweep(
    seeds: Iterable[int],
    *,
    folder: Path | None = None,
    stories: bool = False,
    workload: str = "digests",
) -> Totals:
    """Run seeds one after another; violations are printed, and kept in a folder if there is one."""
    totals, draw = Totals(), drawn(workload)
    for seed in seeds:
        try:
            totals.add(run(seed, plan=draw(seed), stories=stories))
        except RunError as failure:
            totals.runs += 1
            totals.failed.append(seed)
            print(str(failure).partition("\n")[0], flush=True)
            if folder is not None:
                print(f"kept: {keep_with_story(failure, folder)}", flush=True)
            if stories:
                print(failure.world.tale())
                print("\n".join(map(str, failure.run.steps[-60:])))
    return totals


def keep_with_story(failure: RunError, folder: Path) -> Path:
    """Keep a failing run with the story of the nodes that its last step concerns."""
    story = ""
    try:
        run(failure.run.seed, plan=failure.run.plan, stories=True)
    except RunError as again:
        story = f"{again}\n{again.world.tale(again.run.steps[-1])}\n"
    failed = failure.run
    return keep(failed.plan, failed.steps, folder, name=f"seed-{failed.seed}", story=story)


def sweep_in_parallel(
    seeds: range, *, processes: int, folder: Path | None = None, workload: str = "digests"
) -> Totals:
    """The same on several processors; each takes the next hundred seeds when it is done."""
    totals = Totals()
    pieces = [(seeds[i : i + 100], folder, workload) for i in range(0, len(seeds), 100)]
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for part in pool.imap_unordered(_piece, pieces):
            totals.merge(part)
    return totals


def _piece(piece: tuple[range, Path | None, str]) -> Totals:
    seeds, folder, workload = piece
    return sweep(seeds, folder=folder, workload=workload)


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds, or kept runs, and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.sweep")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    parser.add_argument("last", type=int, nargs="?", help="the seed after the last")
    parser.add_argument("--story", action="store_true", help="tell what every node did")
    parser.add_argument("--keep", type=Path, help="folder that failing runs are written to")
    parser.add_argument("--replay", type=Path, help="a kept run, or a folder of them")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--workload", choices=sorted(WORKLOADS), default="digests")
    args = parser.parse_args(argv)
    if args.keep is not None and args.workload != "digests":
        parser.error("--keep is for digests; the seed of any other run makes it again")
    if args.replay is not None:
        return _replay(args.replay)
    started = time.perf_counter()
    seeds = range(args.first, args.last if args.last is not None else args.first + 1)
    if not seeds:
        parser.error(f"there are no seeds from {args.first} to {args.last}")
    if args.story or args.processes < 2 or len(seeds) < 200:
        totals = sweep(seeds, folder=args.keep, stories=args.story, workload=args.workload)
    else:
        totals = sweep_in_parallel(
            seeds, processes=args.processes, folder=args.keep, workload=args.workload
        )
    used = os.times()
    busy = used.user + used.system + used.children_user + used.children_system
    print(totals.text(time.perf_counter() - started, busy))
    return 1 if totals.failed else 0


def _replay(path: Path) -> int:
    failed = 0
    for file in sorted(path.glob("*.json")) if path.is_dir() else [path]:
        try:
            replay(file, stories=True)
            print(f"{file.name}: no violation any more")
        except ProtocolError as violation:
            failed += 1
            print(f"{file.name}: {violation}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())


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
    record = json.loads(path.read_text())
    shape = Shape(**record["plan"].pop("shape"))
    shape = replace(shape, widths=tuple(shape.widths))
    world = Plan(shape=shape, **record["plan"]).world(stories=stories)
    step: Step | None = None
    try:
        for kind, at, peer in record["steps"]:
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
"""Steps that end a trouble; until then, partitions might take turns in memory for ever."""


def _may_strike(world: World, fault: Step) -> bool:
    there = fault.at in world.site or fault.at in world.site.values()
    allowed = fault.kind != "move" or world.controller.is_whole
    return fault.kind in FAULTS and there and allowed


def _place(at: int | list[int]) -> Node | int:
    return at if isinstance(at, int) else Node(*at)
