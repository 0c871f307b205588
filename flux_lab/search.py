"""One search of the explorer: depth first over the states in which certain faults may come.

It can be interrupted, and go on in another process.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

from flux_lab.components import State, Values
from flux_lab.configurations import Configuration, Due
from flux_lab.persistent import Persistent
from flux_lab.product import Product
from flux_lab.reduction import Reduction, evictable, maskable
from flux_lab.world import Step
from flux_runtime.protocol.vocabulary import Node, ProtocolError

Left = tuple[Due, ...]
"""The faults that may still come."""


@dataclass
class Explored:
    """The result of an exploration.

    Attributes:
        states: distinct states in which there was a choice, over all searches.
        transitions: steps taken, those included that there was no choice of.
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

    def __str__(self) -> str:
        return (
            f"{self.states:,} states, {self.transitions:,} transitions, {len(self.ends)} final "
            f"states, {self.faults:,} moments of a fault, "
            f"{'complete' if self.complete else 'NOT complete'}, {self.seconds:.1f} s"
        )


class ExplorationError(ProtocolError):
    """A violation, with the steps that lead to it."""

    def __init__(self, configuration: Configuration, steps: Sequence[Step], cause: str) -> None:
        listing = "\n".join(f"  {i}: {step}" for i, step in enumerate(steps))
        super().__init__(f"{cause}\nafter\n{listing}\n{_tale(configuration, steps)}")
        self.steps = tuple(steps)
        self.cause = cause

    def __reduce__(self) -> tuple[object, ...]:
        return (ProtocolError, (str(self),))  # what another process is told


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
    left: Left
    steps: list[int]


Stopped = tuple[set[int], list[list[Step]], list[list[Step]]]
"""An interrupted search: the states seen, the steps of the path, and what is open along it."""


class Search:
    """Depth first over the states in which these faults may come."""

    def __init__(
        self,
        configuration: Configuration,
        due: Left,
        explored: Explored,
        *,
        full: bool,
        prove: bool,
    ) -> None:
        self.configuration = configuration
        self.product = configuration.product()
        self.due = due
        self.explored = explored
        sets = configuration.shape.cluster_pairs
        anywhere = any(sets or fault.pair is None for fault in due)
        named = (fault.pair for fault in due if fault.pair is not None)
        failing = frozenset(configuration.shape.pairs() if anywhere else named)
        fences = any(fault.kind == "suspect" for fault in due)
        self.reduction = Reduction(self.product, failing=failing, fences=fences)
        usual = not fences and not sets
        self.persistent = Persistent(self.product, failing=failing) if usual else None
        self.full, self.prove = full, prove
        self.seen: set[int] = set()
        self.stack: list[Frame] = []
        self.path: list[list[int]] = []
        self.salt: dict[Left, int] = {}

    # ---- beginning, interruption

    def enter(self, where: Stopped | None) -> None:
        """Begin at the initial state, or go on where another process stopped."""
        first = self.product.initial()
        if where is None:
            self.seen.add(first.code ^ self._salt(self.due))
            steps = self.product.steps(first.values)
            self.stack.append(Frame(first, self.due, self.to_try(first, self.due, steps)))
            return
        self.seen, path, opened = where
        state, left = first, self.due
        self.stack.append(Frame(first, left, []))
        for taken in path:
            numbers = []
            for step in taken:
                numbers.append(self._number(step))
                left = self.left_after(numbers[-1], left)
                state = self.product.after(state, numbers[-1])
            self.stack.append(Frame(state, left, []))
            self.path.append(numbers)
        for frame, steps_left in zip(self.stack, opened, strict=True):
            frame.steps.extend(map(self._number, steps_left))

    def leave(self) -> Stopped:
        """The state of the search that another process needs to go on."""
        opened = [self.named(frame.steps) for frame in self.stack]
        return self.seen, [self.named(taken) for taken in self.path], opened

    def named(self, numbers: Sequence[int]) -> list[Step]:
        """The steps with these numbers, as other processes know them."""
        return [self.product.components[number].step for number in numbers]

    def _number(self, step: Step) -> int:
        for number, component in enumerate(self.product.components):
            if component.step == step:
                return number
        return self.product.fault(step.kind, step.at)

    # ---- the search

    def run(
        self, states_max: int | None, until: float | None, progress: Callable[[Explored], None]
    ) -> bool:
        """Visit the states and count them; gives whether all have been visited."""
        explored, seen, stack = self.explored, self.seen, self.stack
        while stack:
            state, left, untried = stack[-1]
            if not untried:
                stack.pop()
                if self.path:
                    self.path.pop()
                continue
            taken = [untried.pop()]
            self.path.append(taken)
            remaining = self.left_after(taken[0], left)
            try:
                after, steps = self._follow(state, taken, remaining)
                explored.transitions += len(taken)
                code = after.code ^ self._salt(remaining)
                if code in seen:
                    self.path.pop()
                    continue
                seen.add(code)
                explored.states += 1
                stack.append(Frame(after, remaining, self.to_try(after, remaining, steps)))
            except ProtocolError as cause:
                path = [step for numbers in self.path for step in self.named(numbers)]
                raise ExplorationError(self.configuration, path, str(cause)) from cause
            if explored.states % 10_000 == 0:
                progress(explored)
            if explored.states % 256 == 0 and (
                (states_max and explored.states >= states_max)
                or (until and time.perf_counter() > until)
            ):
                return False
        explored.states += 1  # the first one
        return True

    def _follow(self, state: State, taken: list[int], left: Left) -> tuple[State, list[int]]:
        """The state after a step, and after all that need no choice; these are added to `taken`."""
        product = self.product
        values = state.values.copy()
        code = product.advance(values, state.code, taken[0])
        while True:
            steps = product.steps(values)
            if self.full:
                break
            first = self.reduction.first(values, steps, faults_left=bool(left))
            if first is None:
                break
            taken.append(first)
            code = product.advance(values, code, first)
        return State(values, code), steps

    def left_after(self, number: int, left: Left) -> Left:
        """The faults that may still come."""
        component = self.product.components[number]
        if all(due.kind != component.kind for due in left):
            return left
        pair = component.at.pair if isinstance(component.at, Node) else None
        at = left.index(Due(component.kind, pair))
        return left[:at] + left[at + 1 :]

    def _salt(self, left: Left) -> int:
        """Tells states apart in which different faults may still come."""
        if left not in self.salt:
            self.salt[left] = salt(left)
        return self.salt[left]

    def to_try(self, state: State, left: Left, steps: list[int]) -> list[int]:
        """The steps to try in a state; where nothing but faults can happen, it is checked."""
        if not steps:
            self.explored.finals += 1
            self.explored.ends.add(state.code)
            self.product.finished(state.values)
        faults = faults_of(self.product, state.values, left)
        self.explored.faults += len(faults)
        if not self.full and not left and self.persistent is not None:
            return self.persistent.steps(state.values, steps)
        if self.prove:
            self._check_claims(state, steps, faults, left)
        return steps + faults

    def _check_claims(
        self, state: State, steps: Sequence[int], faults: Sequence[int], left: Left
    ) -> None:
        problem = self.reduction.broken(state, steps, faults, faults_left=bool(left))
        first = self.reduction.first(state.values, steps, faults_left=bool(left))
        if problem is None and not left and first is None and self.persistent is not None:
            problem = self.persistent.broken(state, steps, self.reduction)
        if problem is not None:
            raise ProtocolError(f"the reduction does not hold: {problem}")


def salt(left: Left) -> int:
    """A number that stands for these faults, the same in every process."""
    return int.from_bytes(blake2b(repr(left).encode(), digest_size=16).digest()) if left else 0


def faults_of(product: Product, values: Values, left: Left) -> list[int]:
    """The faults that may come in this state, of those that are left."""
    faults: dict[int, None] = {}
    for due in left:
        for at in _places(product, values, due):
            faults[product.fault(due.kind, at)] = None
    return list(faults)


def _places(product: Product, values: Values, due: Due) -> list[Node] | list[int]:
    if due.kind == "evict":
        return [node for node in evictable(product, values) if node.pair == due.pair]
    copies = maskable(product, values)
    if due.pair is not None:
        return [node for node in copies if node.pair == due.pair]
    sites: dict[int, list[Node]] = {}
    for node in product.alive(values):
        sites.setdefault(product.site(values, node), []).append(node)
    return [site for site, nodes in sorted(sites.items()) if set(nodes) <= set(copies)]
