"""The hunt for anomalies: those that the labels predict, and those that must not be."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

from annotations.dataflow import Path
from annotations.vocabulary import (
    Annotation,
    AnnotationKind,
    FunctionalDependency,
    Label,
    StreamLabel,
)
from blazes.simulate.anomalies import Anomaly, between, within
from blazes.simulate.drive import Input, Order, Run, every_run, random_run, replayed
from blazes.simulate.gate import once
from blazes.simulate.messages import Message
from blazes.simulate.network import Manner, Network, StepFailed, Wire
from blazes.simulate.world import Bag, Step
from blazes.verify.constants import Constants
from blazes.verify.operators import Operator, Schema
from blazes.verify.values import Generator

CR, CW = AnnotationKind.CR, AnnotationKind.CW
SCHEDULES: Final = 8
"""Random schedules of an input, besides the plain one."""
SMALL: Final = 3
"""Records up to which all interleavings are tried."""
STATES: Final = 400
"""States after which trying all interleavings is given up for random ones."""
STEPS_SHOWN: Final = 60
"""Steps up to which a witness is tried without each of them."""
SIZES: Final = (2, 2, 3, 3, 4, 5, 6)


class InputSource(Protocol):
    """Makes inputs, and knows which are simpler."""

    def __call__(self, rng: random.Random, size: int) -> Input:
        """An input of about that many records."""

    def complexity(self, given: Input) -> int:
        """How far its values are from the simplest."""

    def simpler(self, given: Input) -> Iterable[tuple[str, Any, Any]]:
        """(attribute, value, simpler value) that could stand for it everywhere."""


@dataclass(frozen=True, slots=True)
class Witness:
    """Runs that show an anomaly: two for Run, one for Inst and Diverge."""

    anomaly: Anomaly
    given: Mapping[str, Bag]
    runs: tuple[Run, ...]
    coordinated: bool
    order: Order | None = None
    """The recorded order that the last run followed."""


@dataclass
class Hunted:
    """The result of a hunt.

    Attributes:
        inputs: that were run.
        schedules: runs.
        exhausted: inputs all of whose interleavings were tried.
        failed: inputs on which a component stopped with an error.
        witnesses: the first of each anomaly, made small.
        seen: anomaly -> inputs that showed it.
        error: of the last input that failed.
    """

    inputs: int = 0
    schedules: int = 0
    exhausted: int = 0
    failed: int = 0
    witnesses: dict[Anomaly, Witness] = field(default_factory=dict)
    seen: dict[Anomaly, int] = field(default_factory=dict)
    error: str = ""


def exceeds(anomaly: Anomaly, labels: Mapping[str, StreamLabel]) -> bool:
    """Whether an anomaly is worse than the label of its stream allows."""
    return anomaly.kind > labels[anomaly.stream].label


class Hunt:
    """Runs inputs under many schedules.

    Args:
        network: what runs.
        inputs: makes an input of about so many records.
        rng: all choices.
        coordinated: whether the network follows a plan.
    """

    def __init__(
        self,
        network: Network,
        inputs: InputSource,
        rng: random.Random,
        *,
        coordinated: bool,
        schedules: int = SCHEDULES,
        states: int = STATES,
    ) -> None:
        self.network = network
        self.coordinated = coordinated
        self.found = Hunted()
        self._inputs = inputs
        self._rng = rng
        self._schedules = schedules
        self._states = states
        self._recorded = bool(network.ordered) and all(
            ordering.recorded for ordering in network.ordered.values()
        )

    def go(
        self,
        *,
        inputs_max: int,
        until: float,
        enough: Callable[[Hunted], bool] = lambda hunted: False,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Hunted:
        """Run inputs until there are so many, the time (monotonic) is over, or it is enough."""
        results = self.found
        while results.inputs + results.failed < inputs_max and not enough(results):
            if time.monotonic() > until and results.inputs:
                break
            progress(results.inputs, inputs_max)
            given = self._promised(self._inputs(self._rng, self._rng.choice(SIZES)))
            try:
                self._try(given)
                results.inputs += 1
            except StepFailed as failed:
                results.failed += 1
                results.error = str(failed)
        return results

    def _try(self, given: Input) -> None:
        base = self._base(given)
        order = base.order if self._recorded else None
        shown: dict[Anomaly, tuple[Run, ...]] = {}
        for anomaly in within(base.end):
            shown.setdefault(anomaly, (base,))
        for run in self._runs(given, order):
            self.found.schedules += 1
            for anomaly in between(base.end, run.end):
                shown.setdefault(anomaly, (base, run))
            for anomaly in within(run.end):
                shown.setdefault(anomaly, (run,))
        for anomaly, runs in shown.items():
            self.found.seen[anomaly] = self.found.seen.get(anomaly, 0) + 1
            if anomaly not in self.found.witnesses:
                witness = Witness(anomaly, given, runs, self.coordinated, order)
                self.found.witnesses[anomaly] = self._shrunk(witness)

    def _promised(self, given: Input) -> Input:
        """The input with one record for each id, where gates drop what they know."""
        promised = dict(given)
        for origin in (intake.origin for intake in self.network.intakes.values()):
            if origin.id and origin.name in promised:
                promised[origin.name] = dict.fromkeys(once(origin, promised[origin.name]), 1)
        return promised

    def _base(self, given: Input) -> Run:
        """The run that others are compared with: plain delivery, and gates that know everything."""
        return replayed(self.network, given, (), None, oracle=True)

    def _runs(self, given: Input, order: Order | None) -> Iterator[Run]:
        if not self.network.intakes and sum(map(len, given.values())) <= SMALL:
            try:
                yield from every_run(self.network, given, order, most=self._states)
                self.found.exhausted += 1
                return
            except OverflowError:
                pass
        for _ in range(self._schedules):
            yield random_run(self.network, given, self._rng, order)

    # ---- witnesses made small

    def _shrunk(self, witness: Witness) -> Witness:
        """Fewer records, then fewer steps that differ from plain delivery."""
        improved = True
        while improved:
            improved = False
            for given, steps in self._simpler(witness):
                smaller = self._again(witness.anomaly, given, steps)
                if smaller is not None and self._size(smaller) < self._size(witness):
                    witness, improved = smaller, True
                    break
        return witness

    def _size(self, witness: Witness) -> tuple[int, ...]:
        """How much there is to read: records, repeats, deliveries, values that are not plain."""
        bags = witness.given.values()
        return (
            sum(map(len, bags)),
            sum(times for bag in bags for times in bag.values()),
            sum(len(run.steps) for run in witness.runs),
            self._inputs.complexity(witness.given),
        )

    def _simpler(self, witness: Witness) -> Iterator[tuple[Input, Sequence[Step]]]:
        steps = witness.runs[-1].steps
        for stream, bag in witness.given.items():
            for row, times in bag.items():
                less = {r: n for r, n in bag.items() if r != row}
                yield {**witness.given, stream: less}, steps
                if times > 1:
                    yield {**witness.given, stream: {**bag, row: 1}}, steps
        for at in range(len(steps) if len(steps) <= STEPS_SHOWN else 0):
            yield witness.given, (*steps[:at], *steps[at + 1 :])
        for change in self._inputs.simpler(witness.given):
            given = {n: self._renamed(n, bag, change) for n, bag in witness.given.items()}
            alike = (
                Step(
                    s.stream,
                    s.replica,
                    tuple(self._renamed(s.stream, dict(s.rows), change).items()),
                )
                for s in steps
            )
            yield given, tuple(alike)

    def _renamed(self, channel: str, bag: Bag, change: tuple[str, Any, Any]) -> Bag:
        """The items of a channel with another value in one column."""
        name, value, simple = change
        renamed: Bag = {}
        for item, times in bag.items():
            columns, row = self.network.columns(channel), item
            if isinstance(item, Message):
                intake = self.network.intakes[channel]
                columns = columns if item.kind.of_record else intake.origin.key
                row = item.value
            pairs = zip(columns, row, strict=False)
            new = tuple(simple if n == name and v == value else v for n, v in pairs)
            at = replace(item, value=new) if isinstance(item, Message) else new
            renamed[at] = renamed.get(at, 0) + times
        return renamed

    def _again(self, anomaly: Anomaly, given: Input, steps: Sequence[Step]) -> Witness | None:
        """The anomaly on another input with these steps, if it is there and nothing grew."""
        try:
            base = self._base(given)
            order = base.order if self._recorded else None
            run = replayed(self.network, given, steps, order)
        except StepFailed:
            return None
        if anomaly.kind is Label.RUN:
            there = anomaly in between(base.end, run.end)
        else:
            there = anomaly in within(run.end)
        runs = (base, run) if anomaly.kind is Label.RUN else (run,)
        return Witness(anomaly, given, runs, self.coordinated, order) if there else None


class Source:
    """Makes inputs for the sources of a network.

    Args:
        network: whose sources.
        schemas: stream -> its columns.
        constants: of all code.
        fds: what records keep.
        unset: source stream -> columns that only punctuations fill.
    """

    def __init__(
        self,
        network: Network,
        schemas: Mapping[str, Schema],
        constants: Constants,
        fds: Sequence[FunctionalDependency],
        unset: Mapping[str, frozenset[str]],
    ) -> None:
        sources = {wire.name: schemas[wire.name] for wire in network.sources}
        kinds = {w.name: CW if is_written(network, w) else CR for w in network.sources}
        paths = tuple(Path(name, "", Annotation(kind)) for name, kind in kinds.items())
        pretended = Operator("", "", paths, None, sources, unset=unset)
        self._generator = Generator(pretended, constants, fds)
        self._columns = {name: tuple(schema) for name, schema in sources.items()}

    def __call__(self, rng: random.Random, size: int) -> Input:
        """An input of about that many records."""
        bags: dict[str, Bag] = {}
        for item in self._generator.items(rng, size):
            bag = bags.setdefault(item.interface, {})
            bag[item.row] = bag.get(item.row, 0) + item.times
        return bags

    def complexity(self, given: Input) -> int:
        """How far the values are from the simplest."""
        return sum(
            0 if value is None else len(self._generator.simpler(name, value))
            for stream, bag in given.items()
            for row in bag
            for name, value in zip(self._columns[stream], row, strict=True)
        )

    def simpler(self, given: Input) -> Iterator[tuple[str, Any, Any]]:
        """(attribute, value, simpler value) that could stand for it everywhere."""
        pairs = {
            (name, value)
            for stream, bag in given.items()
            for row in bag
            for name, value in zip(self._columns[stream], row, strict=True)
            if value is not None
        }
        for name, value in sorted(pairs, key=repr):
            for simple in self._generator.simpler(name, value):
                if (name, simple) not in pairs:
                    yield name, value, simple


def is_written(network: Network, wire: Wire) -> bool:
    """Whether records of a stream end up in some state; else they are requests."""
    todo, seen = [wire], {wire.name}
    while todo:
        at = todo.pop().consumer
        if at is None:
            continue
        for part in network.parts[at.component]:
            if at.interface not in part.operator.schemas:
                continue
            if at.interface in part.operator.writes or part.manner is Manner.CHANGING:
                return True
            if part.manner is Manner.RECORD_WISE:
                following = [network.wires[name] for name in part.streams if name not in seen]
                seen.update(stream.name for stream in following)
                todo += following
    return False
