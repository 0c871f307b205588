"""Every order of events in small configurations of the resume protocol, faults at any moment.

    python -m flux_lab.resume.explore one-crash
    python -m flux_lab.resume.explore --list

It begins when every copy is installed. What a site can do by itself it does at once: that has no
effect outside before the site flushes, so only events from outside need an order. Depth first over
all steps possible in a state; states are remembered by the codes of their bytes. Every batch is
checked, and every state in which nothing can happen any more. A crash comes in two kinds: what the
site had sent is lost, or still arrives.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, NamedTuple

from flux_lab.resume.sweep import Tried, maskable
from flux_lab.resume.world import Setting, Step, World
from flux_lab.workload import digest_dataflow, digest_input
from flux_runtime.protocol.vocabulary import ProtocolError, Shape
from flux_runtime.resume.flow import Flow


class Configuration(NamedTuple):
    """A small dataflow, and the faults that may come, each at any moment after the first.

    Attributes:
        masked: only faults that leave every pair a copy; else pairs may be lost.
    """

    widths: tuple[int, ...]
    batches: int
    sites: int
    faults: tuple[str, ...]
    inputs: tuple[tuple[int, ...], ...] = ()
    window: int = 1
    masked: bool = True

    def setting(self) -> Setting:
        """The world that it stands for."""
        flow = Flow(
            dataflow=digest_dataflow(Shape(widths=self.widths)),
            inputs=self.inputs,
            window=self.window,
            ack_every=1,
        )
        batches = digest_input(self.batches, rows=2, keys=3)
        return Setting(flow=flow, batches=batches, sites=self.sites, eager=True)


CONFIGURATIONS: Final = {
    "no-fault": Configuration((1,), 2, 2, ()),
    "one-crash": Configuration((1,), 1, 2, ("crash",)),
    "one-crash-and-a-spare": Configuration((1,), 1, 3, ("crash",)),
    "one-crash-two-batches": Configuration((1,), 2, 3, ("crash",)),
    "suspect": Configuration((1,), 1, 3, ("suspect",)),
    "move": Configuration((1,), 1, 3, ("move",)),
    "depose": Configuration((1,), 1, 2, ("depose",)),
    "two-crashes": Configuration((1,), 1, 4, ("crash", "crash")),
    "lost": Configuration((1,), 1, 3, ("crash", "crash"), masked=False),
    "two-stages": Configuration((1, 1), 1, 3, ("crash",)),
}


@dataclass
class Explored:
    """The result of an exploration."""

    states: int = 0
    transitions: int = 0
    finals: int = 0
    faults: int = 0
    complete: bool = True

    def __str__(self) -> str:
        return (
            f"{self.states:,} states, {self.transitions:,} transitions, {self.finals:,} final "
            f"states, {self.faults:,} moments of a fault, "
            f"{'complete' if self.complete else 'NOT complete'}"
        )


class ExplorationError(ProtocolError):
    """A violation, and the steps that lead to it."""


def explore(
    configuration: Configuration,
    *,
    tried: Tried | None = None,
    states_max: int | None = None,
    seconds_max: float | None = None,
) -> Explored:
    """Visit every state that the configuration can reach.

    Args:
        configuration: the world and the faults.
        tried: classes in place of the real ones.
        states_max, seconds_max: give up (incomplete) after so many.

    Raises:
        ExplorationError: a step or a final state violates something.
    """
    until = time.perf_counter() + seconds_max if seconds_max else None
    setting = configuration.setting()
    if tried is not None:
        setting = replace(setting, site=tried.site, controller=tried.controller)
    first = World(setting)
    first.settle()
    explored = Explored(states=1)
    seen: set[bytes] = set()
    path: list[Step] = []
    stack = [(first.packed(), configuration.faults, _options(first, configuration, explored, None))]
    try:
        while stack:
            packed, left, options = stack[-1]
            if not options:
                stack.pop()
                if path:
                    path.pop()
                continue
            step = options.pop()
            path.append(step)
            world = first.unpacked(packed)
            world.perform(step)
            world.validate()
            explored.transitions += 1
            if step.kind in left:
                left = tuple(left[: left.index(step.kind)] + left[left.index(step.kind) + 1 :])
            after = world.packed()
            code = blake2b(after + repr(left).encode(), digest_size=16).digest()
            if code in seen:
                path.pop()
                continue
            seen.add(code)
            explored.states += 1
            stack.append((after, left, _options(world, configuration, explored, left)))
            late = until is not None and explored.states % 64 == 0 and time.perf_counter() > until
            if late or (states_max and explored.states >= states_max):
                explored.complete = False
                return explored
    except Exception as cause:  # whatever a machine raises is a violation
        listing = "\n".join(f"  {number}: {step}" for number, step in enumerate(path))
        raise ExplorationError(f"{cause!r}\nafter\n{listing}") from cause
    return explored


def _options(
    world: World, configuration: Configuration, explored: Explored, left: tuple[str, ...] | None
) -> list[Step]:
    """The steps to try in a state; where nothing but a fault can happen, it is checked."""
    steps = world.steps()
    if not steps:
        explored.finals += 1
        world.finished()
    kinds = configuration.faults if left is None else left
    faults = [
        fault for kind in dict.fromkeys(kinds) for fault in _faults(world, configuration, kind)
    ]
    explored.faults += len(faults)
    return steps + faults


def _faults(world: World, configuration: Configuration, kind: str) -> list[Step]:
    view = world.controller
    if kind == "depose":
        kinds = ((0, True), (1, True), (0, False))  # it dies, its frames arrive; it lives
        return [] if world.leaderless else [Step("depose", keep, dies) for keep, dies in kinds]
    if world.leaderless:
        return []
    if kind == "move":
        return [
            Step("move", site, copy)
            for copy in view.installed
            for site in view.sites
            if site not in view.members[copy.pair].values()
        ]
    sites = [site for site in view.sites if site in world.sites]
    if configuration.masked:
        sites = [site for site in sites if maskable(world, site)]
    return [Step(kind, site, late) for site in sites for late in (False, True)]


def main(argv: Sequence[str] | None = None) -> int:
    """Explore and print the number of states."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.resume.explore")
    parser.add_argument("names", nargs="*", default=list(CONFIGURATIONS), metavar="NAME")
    parser.add_argument("--list", action="store_true", help="list the configurations")
    parser.add_argument("--seconds", type=float, help="stop each after this long")
    args = parser.parse_args(argv)
    if unknown := [name for name in args.names if name not in CONFIGURATIONS]:
        parser.error(
            f"no configuration {', '.join(unknown)}: there are {', '.join(CONFIGURATIONS)}"
        )
    for name in args.names:
        if args.list:
            print(f"{name:24} {CONFIGURATIONS[name]}")
            continue
        started = time.process_time()
        try:
            explored = explore(CONFIGURATIONS[name], seconds_max=args.seconds)
        except ExplorationError as error:
            print(f"{name}: {error}")
            return 1
        spent = time.process_time() - started
        print(f"{name:24} {explored}, {spent:.1f} s of a processor, no violation", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
