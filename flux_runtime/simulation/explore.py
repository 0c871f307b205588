"""Every interleaving of a small configuration, with one crash at any moment: no sampling, no seed.

    python -m flux_runtime.simulation.explore dataflow-pair
    python -m flux_runtime.simulation.explore --list

The explorer drives the same `World` as the random sweeps. It goes depth first over all steps that
are possible in a state, remembers the states it has seen (as the nodes' own `freeze` values,
interned), and checks every step with the checkers and every final state with the leak check. A
violation is reported with the steps that lead to it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flux_runtime.protocol.messages import Ack, CatchUpStart
from flux_runtime.protocol.vocabulary import Node, Pair, ProtocolError, Shape
from flux_runtime.simulation.sweep import victims
from flux_runtime.simulation.workload import digest_dataflow, digest_input
from flux_runtime.simulation.world import Step, World, machine_position

UNBOUNDED: Final = 1 << 30
"""Room of a link that never fills."""


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A small world and the faults to try.

    Attributes:
        crashes: copies that die, each at any moment at which the other copy is whole.
        spares: sites that a standby can be created on.
    """

    shape: Shape
    batches: int
    rows: int
    keys: int
    crashes: int = 1
    sites: int = 2
    spares: int = 1
    link_capacity: int = UNBOUNDED

    def world(self, *, stories: bool = False) -> World:
        """The world in its initial state."""
        return World(
            digest_dataflow(self.shape),
            digest_input(self.batches, rows=self.rows, keys=self.keys),
            sites=self.sites,
            spares=self.spares,
            link_capacity=self.link_capacity,
            stories=stories,
        )


CONFIGURATIONS: Final[Mapping[str, Configuration]] = {
    "dataflow-pair": Configuration(shape=Shape(widths=(1,)), batches=2, rows=1, keys=1),
    "two-partitions": Configuration(
        shape=Shape(widths=(2,), ordered_egress=False), batches=2, rows=1, keys=2
    ),
    "two-partitions-in-order": Configuration(shape=Shape(widths=(2,)), batches=2, rows=2, keys=2),
    "partition-pairs": Configuration(shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1),
    "partition-pairs-3": Configuration(shape=Shape(widths=(1, 1)), batches=3, rows=1, keys=1),
    "flux-2x2": Configuration(
        shape=Shape(widths=(2, 2), ordered_egress=False), batches=1, rows=2, keys=2
    ),
    "standby-dies": Configuration(
        shape=Shape(widths=(1,)), batches=1, rows=1, keys=1, crashes=2, spares=2
    ),
    "standby-dies-in-flux": Configuration(
        shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1, crashes=2, spares=2
    ),
    "cumulative": Configuration(shape=Shape(widths=(1,), ack_every=2), batches=3, rows=1, keys=1),
}


@dataclass
class Explored:
    """What an exploration found."""

    states: int = 0
    transitions: int = 0
    finals: int = 0
    crashed: int = 0
    complete: bool = True
    seconds: float = 0.0


class ExplorationError(ProtocolError):
    """A violation, with the steps that lead to it."""

    def __init__(self, steps: Sequence[Step], cause: Exception) -> None:
        listing = "\n".join(f"  {i}: {step}" for i, step in enumerate(steps))
        super().__init__(f"{cause}\nafter\n{listing}")
        self.steps = tuple(steps)
        self.cause = cause


def explore(
    configuration: Configuration, *, states_max: int | None = None, seconds_max: float | None = None
) -> Explored:
    """Visit every state that the configuration can reach, for each choice of the pair that crashes.

    Args:
        configuration: the world and the faults.
        states_max: give up (incomplete) after this many states.
        seconds_max: give up (incomplete) after this long.

    Raises:
        ExplorationError: a state or a step violates something.
    """
    started = time.perf_counter()
    found = Explored()
    for pair in configuration.shape.pairs() if configuration.crashes else (None,):
        search = _Search(configuration, pair, found)
        search.run(states_max, started + seconds_max if seconds_max else None)
    found.seconds = time.perf_counter() - started
    return found


class _Search:
    """Depth first over the states in which at most one pair has crashes."""

    def __init__(self, configuration: Configuration, pair: Pair | None, found: Explored) -> None:
        self.configuration = configuration
        self.pair = pair
        self.found = found
        self.path: list[Step] = []

    def run(self, states_max: int | None, until: float | None) -> None:
        """Visit the states and count them."""
        interned: dict[Any, int] = {}
        first, crashes = self.configuration.world(), self.configuration.crashes
        seen = {(first.key(interned), crashes)}
        stack = [(first, crashes, self._steps(first, crashes))]
        while stack:
            world, crashes, steps = stack[-1]
            step = next(steps, None)
            if step is None:
                stack.pop()
                if self.path:
                    self.path.pop()
                continue
            self.path.append(step)
            after = world.clone()
            left = crashes - (step.kind == "kill")
            try:
                after.perform(step)
                after.validate(only=after.touched())
                self.found.transitions += 1
                key = (after.key(interned), left)
                if key in seen:
                    self.path.pop()
                    continue
                seen.add(key)
                following = self._steps(after, left)
            except ProtocolError as cause:
                raise ExplorationError(self.path, cause) from cause
            stack.append((after, left, following))
            if (states_max and self.found.states + len(seen) >= states_max) or (
                until and time.perf_counter() > until
            ):
                self.found.complete = False
                break
        self.found.states += len(seen)

    def _steps(self, world: World, crashes: int) -> Iterator[Step]:
        """All steps possible in a state; where nothing but faults can happen, it is checked."""
        steps = world.steps()
        failing = frozenset(() if self.pair is None else (self.pair,))
        for step in steps:
            if commutes(world, step, failing=failing, faults_left=bool(crashes)):
                return iter((step,))
        if not steps:
            self.found.finals += 1
            world.finished()
        if crashes:
            kills = [
                Step("kill", node)
                for node in victims(world, reckless=False)
                if node.pair == self.pair
            ]
            self.found.crashed += len(kills)
            steps += kills
        return iter(steps)


def commutes(world: World, step: Step, *, failing: frozenset[Pair], faults_left: bool) -> bool:
    """Whether the step may be taken before all others without hiding any behaviour.

    It leads to the same state before and after every other step, and no other step takes it away or
    adds one that it would not commute with. A test checks this on random walks, step by step.

    - The source and acknowledgements, where links never fill.
    - A start of catch-up, read by a node of another pair.
    - Whatever happens far from the pairs that may fail.
    - The first failure is noticed at once: until then the controller does nothing, so noticing it
      later is the same as reading the log later.
    - When no more faults come: notices to the controller, whose log is read later anyway; the
    arrival
      of the state at the standby, which does nothing before and sends only; the end of the move at
      a copy that has read the whole log.
    """
    if step.kind == "source":
        return world.capacity >= UNBOUNDED
    if step.kind == "deliver" and step.peer is not None and isinstance(step.at, Node):
        ack = isinstance(world.links[step.peer, step.at][0], Ack)
        return ack or _far_from(failing, world, step)
    if step.kind == "log" and isinstance(step.at, Node):
        entry = world.controller.log[machine_position(world.nodes[step.at])]
        other_start = isinstance(entry, CatchUpStart) and entry.pair != step.at.pair
        return other_start or _far_from(failing, world, step)
    if step.kind == "detect process":
        return not world.controller.log
    if faults_left or world.undetected or world.dead_processes:
        return False
    if step.kind == "moved" and isinstance(step.at, Node):
        return machine_position(world.nodes[step.at]) == len(world.controller.log)
    return step.kind in ("notice", "install")


def _far_from(failing: frozenset[Pair], world: World, step: Step) -> bool:
    """Whether the step concerns only pairs that stay whole, as do those that it may send to."""
    assert isinstance(step.at, Node)
    shape = world.dataflow.shape
    concerned = {step.at.pair}
    if step.kind == "log":
        concerned |= {*shape.upstream(step.at.stage), *shape.downstream(step.at.stage)}
    elif step.peer is not None:
        concerned |= {step.peer.pair}
        if not shape.outside(step.at.stage):
            concerned |= set(shape.downstream(step.at.stage))
    return not concerned & failing


def main(argv: Sequence[str] | None = None) -> int:
    """Explore and print the number of states."""
    parser = argparse.ArgumentParser(prog="python -m flux_runtime.simulation.explore")
    parser.add_argument("name", nargs="?", choices=sorted(CONFIGURATIONS), default="dataflow-pair")
    parser.add_argument("--list", action="store_true", help="list the configurations")
    parser.add_argument("--seconds", type=float, default=None, help="give up after this long")
    args = parser.parse_args(argv)
    if args.list:
        for name, configuration in CONFIGURATIONS.items():
            print(f"{name:18} {configuration}")
        return 0
    try:
        found = explore(CONFIGURATIONS[args.name], seconds_max=args.seconds)
    except ExplorationError as error:
        print(error)
        return 1
    print(
        f"{args.name}: {found.states} states, {found.transitions} transitions, "
        f"{found.finals} final states, {found.crashed} moments of a crash, "
        f"{'complete' if found.complete else 'NOT complete'}, {found.seconds:.1f} s, no violation"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
