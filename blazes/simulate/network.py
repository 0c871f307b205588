"""What is simulated: the components' code, wired as the dataflow says, with replicas.

Streams between replicated components connect instance i with instance i; what comes from a single
instance or from outside goes to every instance of its consumer. Without a plan nothing waits. With
one, outputs are sealed or ordered as it says.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from annotations.dataflow import Endpoint, Path
from annotations.vocabulary import AnnotationKind, Within
from blazes.analysis import Analysis
from blazes.coordination import Entry, Mode, Plan, Scope, Strategy
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
class Sealed:
    """The output waits for complete partitions (SE-3, SE-4, SE-11, SE-12).

    Attributes:
        keys: interface that waits -> attributes of its key, sorted.
        in_sequence: partitions are handed over sorted.
        order_by: the total key to sort by.
    """

    keys: Mapping[str, tuple[str, ...]]
    in_sequence: bool
    order_by: tuple[str, ...]


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
    sealed: Sealed | None
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wire:
    """A stream: where it comes from, where it goes, what it carries."""

    name: str
    producer: Endpoint | None
    consumer: Endpoint | None
    columns: tuple[str, ...]


@dataclass
class Network:
    """What runs, and how.

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
    entering: Mapping[Endpoint, tuple[Wire, ...]] = field(init=False)

    def __post_init__(self) -> None:
        into: dict[Endpoint, list[Wire]] = {}
        for wire in self.wires.values():
            if wire.consumer is not None:
                into.setdefault(wire.consumer, []).append(wire)
        self.entering = {at: tuple(wires) for at, wires in into.items()}

    @property
    def sources(self) -> list[Wire]:
        """Streams from outside that enter a component."""
        return [w for w in self.wires.values() if w.producer is None and w.consumer is not None]

    def evaluate(self, operator: Operator, inputs: Inputs) -> Output:
        """What the code puts out; StepFailed where it stops with an error."""
        if operator.code is None and operator.name not in self.engine:
            ((name, rows),) = inputs
            return Output(tuple(operator.schemas[name]), rows)
        (found,) = self.engine[operator.name].evaluate(operator, [inputs])
        if isinstance(found, Failure):
            raise StepFailed(f"{operator.name}: {found.message}")
        return found

    def receivers(self, wire: Wire, replica: int) -> range:
        """Instances of the consumer that get what instance `replica` of the producer sends."""
        assert wire.consumer is not None
        count = self.replicas[wire.consumer.component]
        if wire.producer is None or self.replicas[wire.producer.component] == 1:
            return range(count)
        return range(1) if count == 1 else range(replica, replica + 1)

    def senders(self, wire: Wire, replica: int) -> range:
        """Instances of the producer that feed instance `replica` of the consumer."""
        assert wire.producer is not None
        count = self.replicas[wire.producer.component]
        assert wire.consumer is not None
        if count == 1 or self.replicas[wire.consumer.component] == 1:
            return range(count)
        return range(replica, replica + 1)


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
    entries: dict[Endpoint, list[Entry]] = {}
    for entry in plan.entries if plan else ():
        entries.setdefault(Endpoint(entry.component, entry.path.target), []).append(entry)
    parts: dict[str, list[Part]] = {name: [] for name in dataflow.components}
    for at, operator in operators.items():
        component = dataflow.components[at.component]
        own = [each for each in entries.get(at, ()) if each.strategy is Strategy.SEAL]
        manner, keeps = manner_of(operator)
        streams = [s.name for s in leaving(dataflow, at.component, at.interface)]
        sealed = sealed_of(at, own, component.order_by) if own else None
        parts[at.component].append(Part(at, operator, manner, keeps, sealed, tuple(streams)))
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


def sealed_of(at: Endpoint, entries: list[Entry], order_by: tuple[str, ...]) -> Sealed:
    """What an output waits for."""
    keys: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        for interface, key in entry.seals.items():
            if keys.setdefault(interface, tuple(sorted(key))) != tuple(sorted(key)):
                raise Refused(f"{at} waits for {interface} on two keys, which is not simulated")
    if len(set(keys.values())) > 1:
        raise Refused(f"{at} waits for inputs sealed on different keys, which is not simulated")
    sequence = any(entry.path.within is Within.SEQUENCE for entry in entries)
    return Sealed(keys, sequence, order_by)


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
