"""Random schedules and faults for the resume protocol, from a seed: nothing lost, repeated, stuck.

    python -m flux_lab.resume.sweep 0 10000        seeds 0 to 9999, on all processors
    python -m flux_lab.resume.sweep 17 --story     one seed, with the story of every site

A schedule is skewed: each run draws a weight for every kind of step at every place, so that some
links, logs and moves are far slower than others. Faults strike at drawn moments; half of the later
ones are aimed at sites that take part in a catch-up.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from flux_lab.resume.world import Setting, Step, World
from flux_lab.workload import digest_dataflow, digest_input
from flux_runtime.protocol.vocabulary import ProtocolError, Shape
from flux_runtime.resume.controller import Controller
from flux_runtime.resume.flow import Flow
from flux_runtime.resume.site import Site

STEPS_MAX: Final = 60_000
"""A run that takes more steps than this is taken for a livelock."""
FLOWS: Final[tuple[tuple[tuple[int, ...], tuple[tuple[int, ...], ...]], ...]] = (
    ((1,), ()),
    ((2,), ()),
    ((4,), ()),
    ((1, 1), ()),
    ((2, 2), ()),
    ((2, 1), ()),
    ((1, 3), ()),
    ((4, 4), ()),
    ((1, 2, 1), ()),
    ((2, 2, 2), ()),
    ((1, 1, 1, 1), ()),
    ((2, 1, 2), ((-1,), (0,), (0, 1), (2,))),  # one branch is longer
    ((1, 2, 1, 1), ((-1,), (0,), (1,), (0, 2), (3,))),  # by two
    ((1, 2, 1), ((-1,), (-1,), (0, 1), (2,))),  # two from the source
)
"""Widths, and what the stages read where they are no chain."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One run: the cluster, and what strikes it."""

    setting: Setting
    faults: int
    switches: float
    reckless: bool


def plan_of(rng: random.Random) -> Plan:
    """Draw a plan."""
    widths, inputs = rng.choice(FLOWS)
    flow = Flow(
        dataflow=digest_dataflow(Shape(widths=widths), every=rng.choice((1, 2))),
        inputs=inputs,
        window=rng.choice((1, 1, 2, 3, 5)),
        ack_every=rng.choice((1, 2, 3)),
    )
    salt = rng.randrange(1000)
    batches = digest_input(rng.choice((3, 5, 5, 9)), rows=rng.choice((1, 2, 4)), keys=5, salt=salt)
    setting = Setting(
        flow=flow,
        batches=batches,
        sites=rng.choice((2, 3, 3, 4, 5)),
        checkpoint_every=rng.choice((1, 2, 4)),
    )
    return Plan(
        setting=setting,
        faults=rng.choice((0, 1, 2, 3, 4, 6, 8)),
        switches=rng.choice((0.0, 0.0, 0.01, 0.03)),
        reckless=rng.random() < 0.3,
    )


@dataclass
class Run:
    """The outcome of one run."""

    seed: int
    steps: list[Step] = field(default_factory=list)
    struck: Counter[str] = field(default_factory=Counter)
    catch_ups: int = 0
    losses: int = 0


class Tried(NamedTuple):
    """The classes that a run tries."""

    site: type[Site]
    controller: type[Controller]


class RunError(ProtocolError):
    """A run violated something."""

    def __init__(self, run: Run, plan: Plan, world: World, cause: Exception) -> None:
        problem = cause if isinstance(cause, ProtocolError) else repr(cause)
        flow = plan.setting.flow
        last = "\n".join(f"  {step}" for step in run.steps[-40:])
        super().__init__(
            f"seed {run.seed}, step {len(run.steps)}: {problem}\n"
            f"widths {flow.dataflow.shape.widths}, inputs {flow.inputs}, window {flow.window}, "
            f"{plan.setting.sites} sites, {len(plan.setting.batches)} batches\n"
            f"run it again: python -m flux_lab.resume.sweep {run.seed} --story\n"
            f"{last if world.stories is not None else ''}\n{world.tale()}".rstrip()
        )


def run(seed: int, *, tried: Tried | None = None, stories: bool = False) -> Run:
    """One run from a seed.

    Args:
        seed: of all that is drawn.
        tried: classes in place of the real ones.
        stories: tell what the sites did, should it fail.

    Raises:
        RunError: something promised did not hold.
    """
    rng = random.Random(seed)
    plan = plan_of(rng)
    if tried is not None:
        classes = replace(plan.setting, site=tried.site, controller=tried.controller)
        plan = replace(plan, setting=classes)
    done = Run(seed)
    world = World(plan.setting, stories=stories)
    try:
        _drive(rng, world, plan, done)
        world.finished()
    except Exception as cause:  # whatever a machine raises is a violation
        raise RunError(done, plan, world, cause) from cause
    done.losses = world.losses
    done.catch_ups = sum(type(entry).__name__ == "Avail" for entry in world.log)
    return done


def _drive(rng: random.Random, world: World, plan: Plan, done: Run) -> None:
    setting = plan.setting
    length = 40 * len(setting.batches) * sum(setting.flow.dataflow.shape.widths)
    moments = sorted(rng.randrange(length) for _ in range(plan.faults))
    weights: dict[tuple[str, int], float] = {}
    while True:
        steps, taken = world.steps(), len(done.steps)
        fault = None
        if moments and (taken >= moments[0] or not steps):
            moments.pop(0)
            fault = _fault(rng, world, plan)
        elif steps and plan.switches and rng.random() < plan.switches:
            fault = _switch(rng, world)
        if fault is not None:
            done.struck[_name(fault)] += 1
            step = fault
        elif steps:
            step = _draw(rng, steps, weights)
        elif moments:
            continue
        else:
            return
        done.steps.append(step)
        world.perform(step)
        if taken % 16 == 0:
            world.validate()
        if taken > STEPS_MAX:
            raise ProtocolError("livelock")


def _name(fault: Step) -> str:
    return "deaf" if fault.kind == "suspect" and fault.to else fault.kind


def _draw(rng: random.Random, steps: Sequence[Step], weights: dict[tuple[str, int], float]) -> Step:
    chances = []
    for step in steps:
        key = (step.kind, step.at)
        if key not in weights:
            weights[key] = 10.0 ** rng.uniform(-1.5, 1.0)
        chances.append(weights[key])
    return rng.choices(steps, chances)[0]


def _switch(rng: random.Random, world: World) -> Step | None:
    """A consumer and another copy, perhaps not yet installed, of what it reads."""
    number = rng.choice(list(world.sites))
    site = world.sites[number]
    if not site.replicas:
        return None
    consumer = rng.choice(list(site.replicas))
    upstream = site.flow.upstream[consumer.stage]
    if not upstream:
        return None
    members = list(site.members[rng.choice(upstream)])
    return Step("switch", number, (consumer, rng.choice(members))) if members else None


def _fault(rng: random.Random, world: World, plan: Plan) -> Step | None:
    """The fault that strikes now, if any can."""
    kind = rng.choices(("crash", "suspect", "move", "break", "depose", "join"), (5, 3, 3, 2, 2, 2))[
        0
    ]
    view = world.controller
    if kind == "depose":
        return None if world.leaderless else Step("depose", rng.randrange(2), rng.random() < 0.6)
    if kind == "break":
        links = [link for link, sent in world.links.items() if sent and link[0] in world.sites]
        return Step("break", *rng.choice(links)) if links else None
    if world.leaderless:
        return None
    if kind == "join":
        return Step("join")
    if kind == "move":
        copies = [copy for copy in view.installed if copy.stage >= 0]
        if not copies or not view.sites:
            return None
        return Step("move", rng.choice(view.sites), rng.choice(copies))
    sites = [site for site in view.sites if plan.reckless or maskable(world, site)]
    sites = [site for site in sites if site in world.sites]
    if not sites:
        return None
    busy = [s for s in sites if any(s in move[:2] for move in world.transfers.values())]
    at = rng.choice(busy if busy and rng.random() < 0.5 else sites)
    return Step(kind, at, rng.random() < 0.5)


def maskable(world: World, site: int) -> bool:
    """Whether every pair keeps an installed copy on a site that lives and is not suspected."""
    view = world.controller
    for pair, members in view.members.items():
        if view.flow.is_end(pair.stage) or site not in members.values():
            continue
        others = [
            copy
            for copy, place in members.items()
            if place != site and copy in view.installed and place in world.sites
        ]
        if not others:
            return False
    return len(view.sites) > 1


@dataclass
class Totals:
    """The outcome of many runs."""

    runs: int = 0
    steps: int = 0
    catch_ups: int = 0
    losses: int = 0
    with_loss: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    failed: list[int] = field(default_factory=list)

    def add(self, done: Run) -> None:
        """One more run, without a violation."""
        self.merge(
            Totals(1, len(done.steps), done.catch_ups, done.losses, done.losses > 0, done.struck)
        )

    def merge(self, other: Totals) -> None:
        """The runs of another process."""
        self.runs += other.runs
        self.steps += other.steps
        self.catch_ups += other.catch_ups
        self.losses += other.losses
        self.with_loss += other.with_loss
        self.struck += other.struck
        self.failed += other.failed

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {n:,}" for kind, n in sorted(self.struck.items()))
        return (
            f"{self.runs:,} runs, {self.steps:,} steps, {self.catch_ups:,} copies announced, "
            f"{self.losses:,} pairs lost and begun anew in {self.with_loss:,} runs, "
            f"{len(self.failed)} violations\nfaults: {faults}"
        )


def sweep(seeds: Iterable[int], *, stories: bool = False) -> Totals:
    """Run seeds one after another; violations are printed."""
    totals = Totals()
    for seed in seeds:
        try:
            totals.add(run(seed, stories=stories))
        except RunError as failure:
            totals.merge(Totals(runs=1, failed=[seed]))
            print(failure if stories else str(failure).partition("\n")[0], flush=True)
    return totals


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.resume.sweep")
    parser.add_argument("first", type=int, nargs="?", default=0, help="the first seed")
    parser.add_argument("last", type=int, nargs="?", help="the seed after the last")
    parser.add_argument("--story", action="store_true", help="tell what every site did")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    args = parser.parse_args(argv)
    seeds = range(args.first, args.first + 1 if args.last is None else args.last)
    if not seeds:
        parser.error(
            f"no seeds from {args.first} to {args.last}: say FIRST LAST, LAST not included"
        )
    started = time.perf_counter()
    if args.story or args.processes < 2 or len(seeds) < 200:
        totals = sweep(seeds, stories=args.story)
    else:
        totals = Totals()
        with multiprocessing.get_context("spawn").Pool(args.processes) as pool:
            pieces = [seeds[i : i + 100] for i in range(0, len(seeds), 100)]
            for part in pool.imap_unordered(sweep, pieces):
                totals.merge(part)
    used = os.times()
    busy = used.user + used.system + used.children_user + used.children_system
    print(f"{totals}\n{time.perf_counter() - started:.1f} s, {busy:.1f} s of processors")
    return 1 if totals.failed else 0


if __name__ == "__main__":
    sys.exit(main())
