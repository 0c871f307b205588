"""The simulated network: the components' code, wired as the dataflow says, with replicas.

Streams between replicated components connect instance i with instance i; what comes from a single
instance or from outside goes to every instance of its consumer. Without a plan nothing waits. With
one, outputs have the gates that it is compiled to, or are ordered as it says.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from annotations.dataflow import Endpoint, Path
from annotations.vocabulary import AnnotationKind
from blazes.analysis import Analysis
from blazes.coordination import Mode, Plan, Scope, Strategy
from blazes.simulate.compiled import Gate, NotCompiled, Origin, compiled, gates_of
from blazes.verify.experiment import Engine
from blazes.verify.operators import Operator, Schema, leaving
from blazes.verify.records import Failure, Inputs, Output, Row

REPLICAS = 2


class Refused(Exception):  # noqa: N818
    """The dataflow cannot be simulated; the message says why."""


class StepFailed(Exception):  # noqa: N818
    """A component stopped with an error: this run has no outcome."""


class Manner(enum.Enum):
    """How an output is computed while records come in."""

    RECORD_WISE = "record-wise"
    """From each batch alone; nothing is kept."""
    GROWING = "growing"
    """From everything so far; what has not been emitted before is emitted."""
    CHANGING = "changing"
    """From everything so far; what was not in the result before is emitted."""
    ANSWERING = "answering"
    """Each request once, from the state as it is then."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """Inputs of a component that all instances take in one order.

    Attributes:
        inputs: interfaces.
        gate: one order for each value of these attributes; None: one order.
        recorded: replays follow the order too (`mode: recorded`).
    """

    inputs: frozenset[str]
    gate: tuple[str, ...] | None
    recorded: bool


@dataclass(frozen=True, slots=True)
class Part:
    """One output of a component."""

    at: Endpoint
    operator: Operator
    manner: Manner
    keeps: frozenset[str]
    """Interfaces whose records stay."""
    gate: Gate | None
    """What it waits for."""
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wire:
    """A stream: where it comes from, where it goes, what it carries."""

    name: str
    producer: Endpoint | None
    consumer: Endpoint | None
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Intake:
    """A waiting input of a gate.

    Attributes:
        name: the tracker's.
        part: the output with the gate.
        origin: where it comes from.
        sender: the one instance that it comes from; None: from outside, from the only one, or from
            the one of equal number.
    """

    name: str
    part: Part
    origin: Origin
    sender: int | None


@dataclass
class Network:
    """The simulated network, and how it runs.

    Attributes:
        parts: component -> its outputs.
        wires: stream -> its ends.
        replicas: component -> how many instances.
        ordered: component -> what is ordered.
        engine: operator's name -> what evaluates it.
    """

    parts: Mapping[str, tuple[Part, ...]]
    wires: Mapping[str, Wire]
    replicas: Mapping[str, int]
    ordered: Mapping[str, Ordered]
    engine: Mapping[str, Engine]
    gated: tuple[Part, ...] = ()
    """Outputs with gates, each after those that feed it."""
    intakes: Mapping[str, Intake] = field(init=False)
    """Channel -> the waiting input of a gate that it leads to."""
    delivered: frozenset[str] = field(init=False)
    """Streams that come to their consumer as they are; gates take from origins."""

    def __post_init__(self) -> None:
        intakes = [intake for part in self.gated for intake in self._intakes(part)]
        self.intakes = {f"{intake.name} at {intake.part.at}": intake for intake in intakes}
        self.delivered = frozenset(
            name
            for name, wire in self.wires.items()
            if wire.consumer and self._takes(wire.consumer)
        )

    def _takes(self, at: Endpoint) -> bool:
        return any(
            at.interface in part.operator.schemas
            and (part.gate is None or at.interface in part.gate.reads)
            for part in self.parts[at.component]
        )

    def _intakes(self, part: Part) -> Iterator[Intake]:
        assert part.gate is not None
        for name, origin in part.gate.origins.items():
            senders = 1 if origin.unit is None else self.replicas[origin.unit.component]
            if senders > 1 and self.replicas[part.at.component] == 1:
                for sender in range(senders):
                    yield Intake(f"{name}-{sender + 1}", part, origin, sender)
            else:
                yield Intake(name, part, origin, None)

    def inputs_of(self, part: Part) -> dict[str, Origin]:
        """The waiting inputs of an instance's gate."""
        return {
            intake.name: intake.origin for intake in self.intakes.values() if intake.part is part
        }

    def takers(self, unit: Endpoint, replica: int) -> Iterator[tuple[str, Intake, int]]:
        """(channel, intake, instance) that take what an instance of a gated output puts out."""
        for channel, intake in self.intakes.items():
            if intake.origin.unit == unit and intake.sender in (None, replica):
                several = intake.sender is None and self.replicas[unit.component] > 1
                count = self.replicas[intake.part.at.component]
                for taker in (replica,) if several else range(count):
                    yield channel, intake, taker

    def part(self, at: Endpoint) -> Part:
        """An output."""
        return next(part for part in self.parts[at.component] if part.at == at)

    def columns(self, channel: str) -> tuple[str, ...]:
        """Of the records of a stream, or on their way to a gate."""
        intake = self.intakes.get(channel)
        return self.wires[channel].columns if intake is None else intake.origin.columns

    @property
    def sources(self) -> list[Wire]:
        """Streams from outside that enter a component."""
        return [w for w in self.wires.values() if w.producer is None and w.consumer is not None]

    def evaluate(self, operator: Operator, inputs: Inputs) -> Output:
        """The output of the code; StepFailed where it stops with an error."""
        if operator.code is None and operator.name not in self.engine:
            ((name, rows),) = inputs
            return Output(tuple(operator.schemas[name]), rows)
        (output,) = self.engine[operator.name].evaluate(operator, [inputs])
        if isinstance(output, Failure):
            raise StepFailed(f"{operator.name}: {output.message}")
        return output

    def receivers(self, wire: Wire, replica: int) -> range:
        """Instances of the consumer that get what instance `replica` of the producer sends."""
        assert wire.consumer is not None
        count = self.replicas[wire.consumer.component]
        if wire.producer is None or self.replicas[wire.producer.component] == 1:
            return range(count)
        return range(1) if count == 1 else range(replica, replica + 1)


def network_of(
    analysis: Analysis,
    plan: Plan | None,
    *,
    operators: Mapping[Endpoint, Operator],
    schemas: Mapping[str, Schema],
    engine: Mapping[str, Engine],
    replicas: int = REPLICAS,
) -> Network:
    """The network of a dataflow.

    Args:
        analysis: says what is replicated.
        plan: what coordinates it; None: nothing does.
        operators: the code of each output.
        schemas: stream -> its columns.
        engine: operator's name -> what evaluates it.
        replicas: instances of each replicated component.

    Raises:
        Refused: the plan asks for what is not simulated.
    """
    dataflow = analysis.dataflow
    try:
        gates = gates_of(compiled(plan), dataflow, schemas) if plan else {}
    except NotCompiled as reason:
        raise Refused(str(reason)) from None
    parts: dict[str, list[Part]] = {name: [] for name in dataflow.components}
    for at, operator in operators.items():
        manner, keeps = manner_of(operator)
        streams = [s.name for s in leaving(dataflow, at.component, at.interface)]
        gate = gates.get(str(at))
        for name in gate.reads if gate else ():
            if lost := set(gate.key if gate else ()) - set(operator.schemas[name]):
                raise Refused(f"requests at {at.component}.{name} have no {', '.join(lost)}")
        parts[at.component].append(Part(at, operator, manner, keeps, gate, tuple(streams)))
    wires = {
        s.name: Wire(s.name, s.producer, s.consumer, tuple(schemas.get(s.name, ())))
        for s in dataflow.streams.values()
    }
    return Network(
        parts={name: tuple(its) for name, its in parts.items()},
        wires=wires,
        replicas={name: replicas if rep else 1 for name, rep in analysis.replicated.items()},
        ordered={name: ordered_of(plan, name) for name in ordered_components(plan)},
        engine=engine,
        gated=tuple(
            part for name in gates for its in parts.values() for part in its if str(part.at) == name
        ),
    )


def manner_of(operator: Operator) -> tuple[Manner, frozenset[str]]:
    """How an output is computed by its labels, and what stays."""
    every, writes = frozenset(operator.interfaces), operator.writes
    kinds = [path.annotation.kind for path in operator.paths]
    if all(kind is AnnotationKind.CR for kind in kinds):
        return Manner.RECORD_WISE, frozenset()
    if all(kind.confluent for kind in kinds):
        return Manner.GROWING, every
    if writes and operator.reads:
        return Manner.ANSWERING, writes
    return Manner.CHANGING, every


def ordered_components(plan: Plan | None) -> list[str]:
    """Components with an order in the plan."""
    entries = plan.entries if plan else ()
    return list(dict.fromkeys(e.component for e in entries if e.strategy is Strategy.ORDER))


def ordered_of(plan: Plan | None, component: str) -> Ordered:
    """The order of a component's inputs: within gate partitions where all its paths allow that."""
    assert plan is not None
    own = [e for e in plan.entries if e.component == component and e.strategy is Strategy.ORDER]
    gates = {gate_of(entry.path) if entry.scope is Scope.GATE else None for entry in own}
    gate = gates.pop() if len(gates) == 1 else None
    inputs = frozenset(name for entry in own for name in entry.inputs)
    return Ordered(inputs, gate, all(entry.mode is Mode.RECORDED for entry in own))


def gate_of(path: Path) -> tuple[str, ...] | None:
    """The attributes of a path's gate, sorted; None where it is unknown."""
    gate = path.annotation.gate
    return None if gate is None or gate.attributes is None else tuple(sorted(gate.attributes))


def projected(row: Row, columns: tuple[str, ...], wanted: tuple[str, ...]) -> Row:
    """The row's values of some columns."""
    if columns == wanted or not wanted:
        return row
    places = {name.lower(): n for n, name in enumerate(columns)}
    return tuple(row[places[name.lower()]] for name in wanted)
