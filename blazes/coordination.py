"""The coordination plan: for every order-sensitive path seal, order or none (specification 3).

Which paths to order is not searched for. A label only gets worse on its way and an order takes away
nothing but the race of its own path, so every race whose consequence at some sink exceeds the
target has to be ordered, wherever else an order is placed, and no other path has to be: the
smallest set is unique, and one pass in the order of the dataflow finds it, exactly, at any size
(`blazes.limits` says what a race may do, `blazes.propagation` orders it where it does more).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from annotations.dataflow import Path
from annotations.dependencies import minimal_keys
from annotations.gc_pause import gc_paused
from annotations.vocabulary import AnnotationKind, Gate, Key, Label, StreamLabel, Within
from blazes.analysis import Analysis, explore, labels_of, verdict_of
from blazes.deliveries import Delivered, Repairs, by_name
from blazes.effects import ASYNC, WORST
from blazes.limits import Limits, limits
from blazes.propagation import Propagation
from blazes.repairs import NO_REPAIRS, RepairPlan, repaired
from blazes.rule_kinds import Conclusion, Condition
from blazes.rules import BLAZES
from blazes.seals import identified, meets, single_producers, waits

if TYPE_CHECKING:
    from annotations.dataflow import Refusal


class Strategy(enum.Enum):
    """What a path gets; `spec` section 3."""

    SEAL = "seal"
    ORDER = "order"
    NONE = "none"


class Scope(enum.Enum):
    """What a total order ranges over."""

    GATE = "gate"
    GLOBAL = "global"


class Mode(enum.Enum):
    """Whether an order is stored for replays (`async` target) or only agreed on (`run`)."""

    RECORDED = "recorded"
    DYNAMIC = "dynamic"


class Vote(enum.Enum):
    """Whether a partition needs one producer's word or everybody's."""

    NONE = "none"
    UNANIMOUS = "unanimous"


class Release(enum.Enum):
    """How a sealed partition is handed over: as a multiset, or sorted by a total key (SE-11)."""

    WHOLE = "whole"
    SORTED = "sorted"


@dataclass(frozen=True, slots=True)
class Alternative:
    """A seal that would make an order unnecessary."""

    seal: Key
    streams: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refused:
    """A seal that the gate allows, and that is not enough for the component's code."""

    seal: Key
    why: Refusal


@dataclass(frozen=True, slots=True, order=True)
class Dedup:
    """A source whose known records a gate drops before they count (D6)."""

    stream: str
    id: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Entry:
    """The plan for one order-sensitive path."""

    component: str
    path: Path
    strategy: Strategy
    inputs: tuple[str, ...]
    """Input interfaces that wait (seal) or are ordered (order), sorted; empty for none."""
    cause: str | None = None
    """The rule that makes the path an origin: R1, S1, R2, R4 or S2; None where it is none."""
    # seal
    key: Key | None = None
    streams: tuple[str, ...] = ()
    """Names of the sealed streams that are waited for."""
    vote: Vote | None = None
    release: Release | None = None
    seals: Mapping[str, Key] = field(default_factory=dict)
    """Input interface that waits -> the key it is sealed on. All the same, which is `key`, unless
    the inputs have no compatible key in common; `key` is then the union of theirs."""
    dedup: tuple[Dedup, ...] = ()
    """The sources with an id among those whose records are held back, by name."""
    # order
    scope: Scope | None = None
    mode: Mode | None = None
    alternatives: tuple[Alternative, ...] = ()
    refused: tuple[Refused, ...] = ()
    """Seals that its streams have, and that would not make the component's answers right."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """Nondeterminism that no coordination repairs: a declared source, or rule N1 or N2."""

    origin: str
    """Stream name, or `Component: from->to`."""
    label: Label
    reason: str


@dataclass(frozen=True, slots=True)
class Plan:
    """The least coordination that brings every sink within the target."""

    analysis: Analysis
    target: Label
    entries: tuple[Entry, ...]
    """Order-sensitive paths only, in the order of the dataflow."""
    repaired: Mapping[str, StreamLabel]
    """Stream name -> label under the plan."""
    inherited: tuple[Inherited, ...]
    verdict: Label
    """The highest severity at any sink under the plan."""
    repairs: RepairPlan = NO_REPAIRS
    """What is done about records that come again, before anything is ordered."""
    deliveries: Mapping[str, Delivered] = field(default_factory=dict)
    """Stream name -> how often its records come under the plan; empty where all come once."""


def plan(analysis: Analysis, *, target: Label = Label.ASYNC) -> Plan:
    """The least coordination that brings every sink within the target.

    Whatever is above the target under the plan comes from `inherited`, and from nothing else.

    Args:
        analysis: the labels without coordination.
        target: the highest severity that the sinks tolerate.

    Raises:
        ValueError: the target is `Seal`; nothing can promise punctuations that no source sends.
    """
    if target is Label.SEAL:
        raise ValueError("the target is one of Async, Run, Inst, Diverge")
    with gc_paused():
        return _plan(analysis, target)


def _plan(analysis: Analysis, target: Label) -> Plan:
    mode = Mode.RECORDED if target is Label.ASYNC else Mode.DYNAMIC
    before = analysis.found or explore(analysis.dataflow, rules=analysis.rules)
    tolerated = limits(before.graph, before.rep, before.interpreter.rules, target=target)

    def again(repairs: Repairs) -> Propagation:
        return before.ordering(tolerated, dynamic=mode is Mode.DYNAMIC, repairs=repairs)

    repairs, found = repaired(before, again)
    return Plan(
        analysis=analysis,
        target=target,
        entries=tuple(_Entries(found, mode)),
        repaired=labels_of(found),
        inherited=(*_inherited(found, tolerated, target), *_from_repeats(found, repairs)),
        verdict=verdict_of(found),
        repairs=repairs,
        deliveries=by_name(found),
    )


class _Entries:
    """The entries of all order-sensitive paths, in the order in which outputs are labelled."""

    def __init__(self, found: Propagation, mode: Mode) -> None:
        self._found = found
        self._graph = found.graph
        self._mode = mode
        self._keys: dict[tuple[Key, Key], list[Key]] = {}
        self._waits = waits(found)
        self._single = single_producers(found, self._waits) if self._waits else []
        knows_ids = self._waits and found.interpreter.rules.name == BLAZES
        self._identified = identified(found) if knows_ids else []
        self._cyclic = {
            stream for cycle in found.graph.cycles for stream in found.graph.streams_in(cycle)
        }

    def __iter__(self) -> Iterator[Entry]:
        graph = self._graph
        for output in graph.outputs():
            for number in graph.output_paths[output]:
                if not graph.shapes[graph.path_shape[number]].ordered:
                    continue
                path = graph.paths[number]
                component = graph.components[graph.output_component[output]].name
                if number in self._found.ordered:
                    yield self._order(component, number)
                elif number in self._waits:
                    yield self._seal(component, number)
                else:
                    cause = self._cause(number)
                    yield Entry(component, path, Strategy.NONE, (), cause=cause)

    def _cause(self, number: int) -> str | None:
        effect = self._found.ordered.get(number) or self._found.effects[number]
        if effect is None or effect.origin is None:
            return None
        if effect.nd_read and self._found.protected(number):
            return None
        return effect.origin.id

    def _names(self, inputs: Iterable[int]) -> dict[int, str]:
        """Input -> the name of its interface."""
        return {i: self._graph.paths[self._graph.input_paths[i][0]].source for i in inputs}

    def _streams(self, inputs: Iterable[int]) -> list[int]:
        return sorted({s for i in inputs for s in self._graph.input_streams[i]})

    def _seal(self, component: str, number: int) -> Entry:
        path = self._graph.paths[number]
        wait = self._waits[number]
        names = self._names(wait.inputs)
        streams = self._streams(wait.inputs)
        one = len(streams) == 1 and self._single[streams[0]]
        return Entry(
            component,
            path,
            Strategy.SEAL,
            tuple(sorted(names.values())),
            key=wait.key,
            streams=tuple(self._graph.streams[s].name for s in streams),
            vote=Vote.NONE if one else Vote.UNANIMOUS,
            release=Release.SORTED if path.within is Within.SEQUENCE else Release.WHOLE,
            seals={names[i]: key for i, key in wait.keys.items()},
            dedup=self._dedup(streams),
        )

    def _dedup(self, streams: Iterable[int]) -> tuple[Dedup, ...]:
        """The sources that these streams are made of, where they have an id; by name."""
        if not self._identified:
            return ()
        numbers = {source for stream in streams for source in self._identified[stream]}
        sources = [self._graph.streams[number] for number in numbers]
        return tuple(sorted(Dedup(source.name, source.id) for source in sources))

    def _order(self, component: str, number: int) -> Entry:
        graph = self._graph
        path = graph.paths[number]
        own = graph.path_input[number]
        others = sorted({own, *(graph.path_input[p] for p in graph.writers_beside(number))})
        gate = path.annotation.gate
        assert gate is not None
        return Entry(
            component,
            path,
            Strategy.ORDER,
            tuple(sorted(self._names(others).values())),
            cause=self._cause(number),
            scope=self._scope(gate, others),
            mode=self._mode,
            alternatives=self._alternatives(number, gate),
            refused=tuple(self._refused(number, gate, others)),
        )

    def _refused(self, number: int, gate: Gate, inputs: Iterable[int]) -> Iterator[Refused]:
        found = self._found
        behaviour = found.behaviours[self._graph.path_shape[number]]
        labels = {found.input_label[source] for source in inputs}
        keys = {key for label in labels for key in found.interpreter.labels.values[label].keys}
        for key in sorted(keys, key=sorted):
            if found.interpreter.compatible(gate, key):
                refusal = behaviour.refusal(key)
                if refusal is not None:
                    yield Refused(key, refusal)

    def _scope(self, gate: Gate, inputs: Iterable[int]) -> Scope:
        """Within each gate partition, where all ordered streams are declared to have the gate."""
        if gate.attributes is None:
            return Scope.GLOBAL
        for source in inputs:
            for stream in self._graph.input_streams[source]:
                schema = self._graph.streams[stream].schema
                if schema is None or not gate.attributes <= schema.keys():
                    return Scope.GLOBAL
        return Scope.GATE

    def _alternatives(self, number: int, gate: Gate) -> tuple[Alternative, ...]:
        """The seals that would make the order unnecessary.

        A stream whose schema is not declared is taken to have the gate's attributes, which are
        those of the records that the path works on. A stream in a cycle can keep no seal, and no
        seal helps one whose contents are inherited as nondeterministic, or a collapsed cycle.
        """
        found, graph = self._found, self._graph
        if gate.attributes is None or number in found.unprotected:
            return ()
        others = {graph.path_input[p] for p in meets(found, number)}
        if not others or graph.paths[number].annotation.kind is AnnotationKind.OW:
            others.add(graph.path_input[number])
        streams = self._streams(others)
        common: frozenset[str] | None = None
        for stream in streams:
            if stream in self._cyclic or ASYNC < found.stream_label[stream] <= WORST:
                return ()
            schema = graph.streams[stream].schema
            names = gate.attributes if schema is None else frozenset(schema)
            common = names if common is None else common & names
        if common is None:
            return ()
        keys = self._keys.get((gate.attributes, common))
        if keys is None:
            rules = found.interpreter.rules.name
            keys = minimal_keys(gate, common, graph.dataflow.fds, rules=rules)
            self._keys[gate.attributes, common] = keys
        sealed = tuple([graph.streams[s].name for s in streams])
        takes = found.behaviours[graph.path_shape[number]].takes
        return tuple([Alternative(key, sealed) for key in keys if takes(key)])


def _from_repeats(found: Propagation, repairs: RepairPlan) -> Iterator[Inherited]:
    """What repeats do where no id tells them from new records."""
    for each in repairs.unrepaired:
        reason = f"records that come again ({each.cause})"
        if each.cause == "D14":
            reason = "the key of its sink does not determine a row (D14)"
        elif each.alternatives:
            reason += f"; an id on {', '.join(each.alternatives)} would do"
        label = found.interpreter.labels.values[each.label].label
        yield Inherited(each.origin, label, reason)


def _inherited(found: Propagation, tolerated: Limits, target: Label) -> Iterator[Inherited]:
    """Declared sources and nondeterministic paths that push a sink over the target."""
    graph, interpreter = found.graph, found.interpreter
    for number, stream in enumerate(graph.streams):
        if stream.producer is not None or stream.label is None:
            continue
        consumer = graph.stream_input[number]
        if stream.label > (target if consumer < 0 else tolerated.inputs[consumer]):
            yield Inherited(stream.name, stream.label, f"declared {stream.label}")
    for number, path in enumerate(graph.paths):
        effect = found.effects[number]
        if path.nondeterministic is None or effect is None:
            continue
        output = graph.path_output[number]
        component = graph.component_of(number)
        for rule in effect.fired:
            if rule.condition is not Condition.NONDETERMINISTIC:
                continue
            taints = rule.conclusion is Conclusion.TAINT
            adds = (interpreter.tainted if taints else interpreter.varies)[found.rep[component]]
            limit = tolerated.written(graph, number) if taints else tolerated.outputs[output]
            if adds > limit:
                yield Inherited(graph.place_of(number), Label(adds), path.nondeterministic)
