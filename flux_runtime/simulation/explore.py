"""Every interleaving of a small configuration, with crashes at any moment: no sampling, no seed.

    python -m flux_runtime.simulation.explore dataflow-pair
    python -m flux_runtime.simulation.explore --list
    python -m flux_runtime.simulation.explore flux-2x2 --seconds 600 --state flux-2x2.search

The explorer drives the same machines, controller and checkers as the random sweeps, over `Product`
states. It goes depth first over all steps that are possible in a state, remembers the codes of the
states it has seen, and checks every step with the checkers and every final state with the leak
check. A violation is reported with the steps that lead to it and the story of the nodes concerned.

Steps that lead to the same state before and after every other are taken first, alone
(`reduction`); with `--full`, nothing is left out.
"""

from __future__ import annotations

import argparse
import itertools
import pickle
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Final, NamedTuple

from flux_runtime.protocol.vocabulary import Node, Pair, ProtocolError, Shape
from flux_runtime.simulation.checks import Checks
from flux_runtime.simulation.product import UNBOUNDED, Product, State
from flux_runtime.simulation.reduction import Reduction, maskable
from flux_runtime.simulation.workload import digest_dataflow, digest_input
from flux_runtime.simulation.world import Step, World


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """A small world and the faults to try.

    Attributes:
        faults: how many, each at any moment at which the other copy is whole.
        kind: `kill` ends a process, `crash` a whole site; `suspect` takes a process for dead that
            lives on until it finds out.
        anywhere: later faults may concern other pairs than the first one.
        spares: sites that a standby can be created on.
    """

    shape: Shape
    batches: int
    rows: int
    keys: int
    faults: int = 1
    kind: str = "kill"
    anywhere: bool = False
    sites: int = 2
    spares: int = 1

    def product(self) -> Product:
        """The states of this configuration."""
        batches = digest_input(self.batches, rows=self.rows, keys=self.keys)
        return Product(digest_dataflow(self.shape), batches, sites=self.sites, spares=self.spares)

    def world(self, *, stories: bool = False) -> World:
        """The same as one world, to tell the story of a violation."""
        dataflow = digest_dataflow(self.shape)
        batches = digest_input(self.batches, rows=self.rows, keys=self.keys)
        return World(
            dataflow,
            batches,
            sites=self.sites,
            spares=self.spares,
            link_capacity=UNBOUNDED,
            stories=stories,
            checks=Checks(dataflow, batches, states=True),
        )

    def victims(self) -> tuple[tuple[Pair, ...], ...]:
        """The pairs that faults may concern, one search for each choice."""
        pairs = self.shape.pairs()
        if self.kind == "crash":
            return (pairs,)
        if self.faults and self.anywhere:
            return tuple(itertools.combinations_with_replacement(pairs, self.faults))
        return tuple((pair,) * self.faults for pair in pairs) if self.faults else ((),)


def small(*widths: int, **limits: object) -> Shape:
    """A shape whose egress emits first come, so that it adds no order of its own."""
    return Shape(widths=widths, **{"ordered_egress": False, **limits})  # type: ignore[arg-type]


CONFIGURATIONS: Final[Mapping[str, Configuration]] = {
    "dataflow-pair": Configuration(shape=Shape(widths=(1,)), batches=2, rows=1, keys=1),
    "two-partitions": Configuration(shape=small(2), batches=2, rows=1, keys=2),
    "two-partitions-in-order": Configuration(shape=Shape(widths=(2,)), batches=2, rows=2, keys=2),
    "site": Configuration(shape=small(2), batches=2, rows=1, keys=2, kind="crash"),
    "suspect": Configuration(shape=Shape(widths=(1,)), batches=2, rows=1, keys=1, kind="suspect"),
    "suspect-in-flux": Configuration(
        shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1, kind="suspect"
    ),
    "partition-pairs": Configuration(shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1),
    "partition-pairs-3": Configuration(shape=Shape(widths=(1, 1)), batches=3, rows=1, keys=1),
    "flux-2x2": Configuration(shape=small(2, 2), batches=1, rows=2, keys=2),
    "standby-dies": Configuration(
        shape=Shape(widths=(1,)), batches=1, rows=1, keys=1, faults=2, spares=2
    ),
    "standby-dies-in-flux": Configuration(
        shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1, faults=2, spares=2
    ),
    "two-crashes-in-flux": Configuration(
        shape=Shape(widths=(1, 1)), batches=1, rows=1, keys=1, faults=2, anywhere=True, spares=2
    ),
    "cumulative": Configuration(shape=Shape(widths=(1,), ack_every=2), batches=3, rows=1, keys=1),
}


@dataclass
class Explored:
    """What an exploration found.

    Attributes:
        states: distinct states, over all searches.
        transitions: steps taken from them.
        finals: states in which nothing more can happen.
        faults: moments at which a fault was tried.
        ends: codes of the final states' contents.
        searches: searches that are complete.
    """

    states: int = 0
    transitions: int = 0
    finals: int = 0
    faults: int = 0
    ends: set[int] = field(default_factory=set)
    searches: int = 0
    complete: bool = True
    seconds: float = 0.0


class ExplorationError(ProtocolError):
    """A violation, with the steps that lead to it."""

    def __init__(self, configuration: Configuration, steps: Sequence[Step], cause: str) -> None:
        listing = "\n".join(f"  {i}: {step}" for i, step in enumerate(steps))
        super().__init__(f"{cause}\nafter\n{listing}\n{_tale(configuration, steps)}")
        self.steps = tuple(steps)
        self.cause = cause


def _tale(configuration: Configuration, steps: Sequence[Step]) -> str:
    """The story of the nodes that the last steps concern, from one world that takes them all."""
    world = configuration.world(stories=True)
    try:
        for step in steps:
            world.perform(step)
    except ProtocolError as error:
        return f"{error}\n{world.tale(steps[-1])}"
    return world.tale(steps[-1] if steps else None)


class Frame(NamedTuple):
    """A state on the path, and what is still to be tried in it."""

    state: State
    left: tuple[Pair, ...]
    steps: list[int]


def explore(
    configuration: Configuration,
    *,
    full: bool = False,
    prove: bool = False,
    states_max: int | None = None,
    seconds_max: float | None = None,
    resume: Path | None = None,
    progress: Callable[[Explored], None] = lambda found: None,
) -> Explored:
    """Visit every state that the configuration can reach, for each choice of the pairs that fail.

    Args:
        configuration: the world and the faults.
        full: take every step in every state; else leave out what `reduction` proves redundant.
        prove: with `full`, check in every state the claims that the reduction rests on.
        states_max: give up (incomplete) after this many states.
        seconds_max: give up (incomplete) after this long.
        resume: a file that an incomplete search is written to and, if it exists, goes on from.
        progress: called every ten thousand states.

    Raises:
        ExplorationError: a state or a step violates something, or breaks a claim.
    """
    started = time.perf_counter()
    found, where = Explored(), None
    if resume is not None and resume.exists():
        found, where = pickle.loads(resume.read_bytes())  # a file that this function has written
        found.complete = True
    before = found.seconds
    until = started + seconds_max if seconds_max else None
    choices = configuration.victims()
    for victims in choices[found.searches :]:
        search = _Search(configuration, victims, found, full=full or prove, prove=prove)
        search.enter(where)
        where = None
        if not search.run(states_max, until, progress):
            found.complete = False
            found.seconds = before + time.perf_counter() - started
            if resume is not None:
                resume.write_bytes(pickle.dumps((found, search.leave()), protocol=5))
            break
        found.searches += 1
    found.seconds = before + time.perf_counter() - started
    return found


class _Search:
    """Depth first over the states in which these pairs may have faults."""

    def __init__(
        self,
        configuration: Configuration,
        victims: tuple[Pair, ...],
        found: Explored,
        *,
        full: bool,
        prove: bool,
    ) -> None:
        self.configuration = configuration
        self.product = configuration.product()
        self.victims = victims
        self.faults = configuration.faults
        self.found = found
        failing = frozenset(victims)
        fences = configuration.kind == "suspect"
        self.reduction = Reduction(self.product, failing=failing, fences=fences)
        self.full, self.prove = full, prove
        self.seen: set[int] = set()
        self.stack: list[Frame] = []
        self.path: list[Step] = []
        self.salt: dict[tuple[Pair, ...], int] = {}

    # ---- beginning, interruption

    def enter(self, where: tuple[set[int], list[Step], list[list[Step]]] | None) -> None:
        """Begin at the initial state, or go on where another process stopped."""
        first = self.product.initial()
        left = self.victims if self.configuration.kind != "crash" else self.victims[: self.faults]
        if where is None:
            self.seen.add(first.code ^ self._salt(left))
            self.stack.append(Frame(first, left, self._steps(first, left)))
            return
        self.seen, path, open_steps = where
        state = first
        self.stack.append(Frame(state, left, []))
        for step in path:
            number = self._number(step)
            left = self._left(number, left)
            state = self.product.after(state, number)
            self.stack.append(Frame(state, left, []))
        self.path = path
        for frame, steps in zip(self.stack, open_steps, strict=True):
            frame.steps.extend(map(self._number, steps))

    def leave(self) -> tuple[set[int], list[Step], list[list[Step]]]:
        """What another process needs to go on."""
        components = self.product.components
        opened = [[components[n].step for n in frame.steps] for frame in self.stack]
        return self.seen, self.path, opened

    def _number(self, step: Step) -> int:
        kinds = [c for c in self.product.components if c.step == step]
        if kinds:
            return self.product.index[kinds[0].kind, kinds[0].at, kinds[0].peer]
        return self.product.fault(step.kind, step.at)

    # ---- the search

    def run(
        self, states_max: int | None, until: float | None, progress: Callable[[Explored], None]
    ) -> bool:
        """Visit the states and count them; gives whether all have been visited."""
        product, found, seen, stack = self.product, self.found, self.seen, self.stack
        while stack:
            state, left, steps = stack[-1]
            if not steps:
                stack.pop()
                if self.path:
                    self.path.pop()
                continue
            number = steps.pop()
            self.path.append(product.components[number].step)
            remaining = self._left(number, left)
            try:
                after = product.after(state, number)
                found.transitions += 1
                code = after.code ^ self._salt(remaining)
                if code in seen:
                    self.path.pop()
                    continue
                seen.add(code)
                found.states += 1
                stack.append(Frame(after, remaining, self._steps(after, remaining)))
            except ProtocolError as cause:
                raise ExplorationError(self.configuration, self.path, str(cause)) from cause
            if found.states % 10_000 == 0:
                progress(found)
            if found.states % 256 == 0 and (
                (states_max and found.states >= states_max)
                or (until and time.perf_counter() > until)
            ):
                return False
        found.states += 1  # the first one
        return True

    def _left(self, number: int, left: tuple[Pair, ...]) -> tuple[Pair, ...]:
        """The faults that may still come."""
        component = self.product.components[number]
        if component.kind not in ("kill", "crash", "suspect"):
            return left
        if isinstance(component.at, int):
            return left[1:]
        at = left.index(component.at.pair)
        return left[:at] + left[at + 1 :]

    def _salt(self, left: tuple[Pair, ...]) -> int:
        """Tells states apart in which different faults may still come."""
        if left not in self.salt:
            self.salt[left] = hash((len(left), *left)) & (1 << 61) - 1
        return self.salt[left]

    def _steps(self, state: State, left: tuple[Pair, ...]) -> list[int]:
        """The steps to try in a state; where nothing but faults can happen, it is checked."""
        steps = self.product.steps(state.values)
        if not self.full:
            first = self.reduction.first(state.values, steps, faults_left=bool(left))
            if first is not None:
                return [first]
        if not steps:
            self.found.finals += 1
            self.found.ends.add(state.code)
            self.product.finished(state.values)
        faults = self._faults(state, left) if left else []
        self.found.faults += len(faults)
        if self.prove:
            wrong = self.reduction.broken(state, steps, faults, faults_left=bool(left))
            if wrong is not None:
                raise ProtocolError(f"the reduction does not hold: {wrong}")
        return steps + faults

    def _faults(self, state: State, left: tuple[Pair, ...]) -> list[int]:
        product, kind = self.product, self.configuration.kind
        copies = maskable(product, state.values)
        if kind != "crash":
            return [product.fault(kind, node) for node in copies if node.pair in left]
        sites: dict[int, list[Node]] = {}
        for node in product.alive(state.values):
            sites.setdefault(product.site(state.values, node), []).append(node)
        doomed = [site for site, nodes in sorted(sites.items()) if set(nodes) <= set(copies)]
        return [product.fault("crash", site) for site in doomed]


def main(argv: Sequence[str] | None = None) -> int:
    """Explore and print the number of states."""
    parser = argparse.ArgumentParser(prog="python -m flux_runtime.simulation.explore")
    parser.add_argument("name", nargs="?", choices=sorted(CONFIGURATIONS), default="dataflow-pair")
    parser.add_argument("--list", action="store_true", help="list the configurations")
    parser.add_argument("--full", action="store_true", help="leave out nothing")
    parser.add_argument(
        "--prove", action="store_true", help="leave out nothing, and check what is else left out"
    )
    parser.add_argument("--seconds", type=float, default=None, help="stop after this long")
    parser.add_argument("--state", type=Path, help="file that a stopped search goes on from")
    args = parser.parse_args(argv)
    if args.list:
        for name, configuration in CONFIGURATIONS.items():
            print(f"{name:24} {_text(configuration)}")
        return 0

    def show(found: Explored) -> None:
        if sys.stderr.isatty():
            print(
                f"\r{found.states:,} states, {found.transitions:,} transitions",
                end="",
                file=sys.stderr,
            )

    try:
        found = explore(
            CONFIGURATIONS[args.name],
            full=args.full,
            prove=args.prove,
            seconds_max=args.seconds,
            resume=args.state,
            progress=show,
        )
    except ExplorationError as error:
        print(error)
        return 1
    print(
        f"{args.name}: {found.states:,} states, {found.transitions:,} transitions, "
        f"{len(found.ends)} final states, {found.faults:,} moments of a fault, "
        f"{'complete' if found.complete else 'NOT complete'}, {found.seconds:.1f} s, no violation"
    )
    return 0


def _text(configuration: Configuration) -> str:
    values = [(f.name, getattr(configuration, f.name)) for f in fields(configuration)]
    return " ".join(f"{name}={value}" for name, value in values if name != "shape") + (
        f" widths={configuration.shape.widths}"
    )


if __name__ == "__main__":
    sys.exit(main())
