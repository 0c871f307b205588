"""The coordination plan: for every order-sensitive path seal, order or none (specification 3).

Which paths to order is not searched for. A label only gets worse on its way and an order takes away
nothing but the race of its own path, so every race whose consequence at some sink exceeds the
target has to be ordered, wherever else an order is placed, and no other path has to be: the
smallest set is unique, and one pass in the order of the dataflow finds it, exactly, at any size
(`blazes.core.limits` says what a race may do, `blazes.core.propagation` orders it where it does
more).
"""

from __future__ import annotations

import enum
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from annotations.dataflow import Path, Refusal
from annotations.dependencies import minimal_keys
from annotations.gc_pause import gc_paused
from annotations.phrases import listed
from annotations.vocabulary import (
    AnnotationKind,
    FunctionalDependency,
    Gate,
    Key,
    Label,
    StreamLabel,
    Within,
)
from blazes.analysis import Analysis, explore, labels_of, verdict_of
from blazes.core.deliveries import Delivered, Repairs
from blazes.core.graph import Input, PathEdge, StreamEdge, in_file_order
from blazes.core.limits import Limits, limits
from blazes.core.propagation import NO_KEY, Propagation
from blazes.core.rule_kinds import Conclusion, Condition
from blazes.core.rules import BLAZES
from blazes.repairs import NO_REPAIRS, RepairPlan, repaired
from blazes.seals import (
    fitting,
    identified,
    keys_in_common,
    meets,
    origins,
    settled,
    single_producers,
    waits,
)


class Strategy(enum.Enum):
    """The coordination of a path; `spec` section 3."""

    SEAL = "seal"
    ORDER = "order"
    NONE = "none"


class Scope(enum.Enum):
    """The range of a total order."""

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
    """The streams that have it where they enter the component."""
    sources: tuple[str, ...]
    """The streams from outside that they are made of, by name; their producers punctuate."""


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
    """Measures against records that come again, before anything is ordered."""
    deliveries: Mapping[str, Delivered] = field(default_factory=dict)
    """Stream name -> how often its records come under the plan; empty where all come once."""
    propagation: Propagation | None = field(default=None, repr=False, compare=False)
    """The labels on the graph under the plan."""


def plan(analysis: Analysis, *, target: Label = Label.ASYNC, alternatives: bool = True) -> Plan:
    """The least coordination that brings every sink within the target.

    Whatever is above the target under the plan comes from `inherited`, and from nothing else.

    Args:
        analysis: the labels without coordination.
        target: the highest severity that the sinks tolerate.
        alternatives: whether orders come with the seals that would do in their place.

    Raises:
        ValueError: the target is `Seal`; nothing can promise punctuations that no source sends.
    """
    if target is Label.SEAL:
        raise ValueError("the target is one of Async, Run, Inst, Diverge")
    with gc_paused():
        return _plan(analysis, target, alternatives)


def _plan(analysis: Analysis, target: Label, alternatives: bool) -> Plan:
    mode = Mode.RECORDED if target is Label.ASYNC else Mode.DYNAMIC
    before = analysis.propagation or explore(analysis.dataflow, rules=analysis.rules)
    tolerated = limits(before.graph, before.replicated, before.interpreter.rules, target=target)

    def again(repairs: Repairs) -> Propagation:
        return settled(
            lambda chosen: before.ordering(
                tolerated, dynamic=mode is Mode.DYNAMIC, repairs=repairs, handed_on=chosen
            )
        )

    repairs, after = repaired(before, again)
    return Plan(
        analysis=analysis,
        target=target,
        entries=tuple(_Entries(after, mode, alternatives)),
        repaired=labels_of(after),
        inherited=(*_inherited(after, tolerated, target), *_from_repeats(repairs)),
        verdict=verdict_of(after),
        repairs=repairs,
        deliveries={} if after.deliveries is None else after.deliveries.by_name(),
        propagation=after,
    )


class _Entries:
    """The entries of all order-sensitive paths, in the order in which outputs are labelled."""

    def __init__(self, propagation: Propagation, mode: Mode, alternatives: bool) -> None:
        self._propagation = propagation
        self._graph = propagation.graph
        self._mode = mode
        self._with_alternatives = alternatives
        self._keys: dict[tuple[Key, Key, tuple[FunctionalDependency, ...]], list[Key]] = {}
        self._waits = waits(propagation)
        self._single = single_producers(propagation, self._waits) if self._waits else set()
        knows_ids = self._waits and propagation.interpreter.rules.name == BLAZES
        self._identified = identified(propagation) if knows_ids else {}
        self._cyclic = {stream for cycle in self._graph.cycles for stream in cycle.streams}

    def __iter__(self) -> Iterator[Entry]:
        for output in self._graph.outputs():
            for path in output.paths:
                if not path.shape.ordered:
                    continue
                if path in self._propagation.ordered:
                    yield self._order(path)
                elif path in self._waits:
                    yield self._seal(path)
                else:
                    cause = self._cause(path)
                    yield Entry(path.component.name, path.declared, Strategy.NONE, (), cause=cause)

    def _cause(self, path: PathEdge) -> str | None:
        effect = self._propagation.ordered.get(path) or self._propagation.effects[path]
        if effect.origin is None:
            return None
        if effect.nd_read and self._propagation.protected(path):
            return None
        return effect.origin.id

    def _streams(self, inputs: Iterable[Input]) -> list[StreamEdge]:
        return in_file_order(stream for source in inputs for stream in source.streams)

    def _seal(self, path: PathEdge) -> Entry:
        wait = self._waits[path]
        streams = self._streams(wait.inputs)
        one = len(streams) == 1 and streams[0] in self._single
        within = path.declared.within
        return Entry(
            path.component.name,
            path.declared,
            Strategy.SEAL,
            tuple(sorted(source.name for source in wait.inputs)),
            key=wait.key,
            streams=tuple(stream.name for stream in streams),
            vote=Vote.NONE if one else Vote.UNANIMOUS,
            release=Release.SORTED if within is Within.SEQUENCE else Release.WHOLE,
            seals={source.name: key for source, key in wait.keys.items()},
            dedup=self._dedup(streams),
        )

    def _dedup(self, streams: Iterable[StreamEdge]) -> tuple[Dedup, ...]:
        """The sources that these streams are made of, where they have an id; by name."""
        sources = {source for stream in streams for source in self._identified.get(stream, ())}
        return tuple(sorted(Dedup(source.name, source.declared.id) for source in sources))

    def _order(self, path: PathEdge) -> Entry:
        others = {path.input, *(other.input for other in path.other_writers())}
        gate = path.shape.gate
        assert gate is not None
        return Entry(
            path.component.name,
            path.declared,
            Strategy.ORDER,
            tuple(sorted(source.name for source in others)),
            cause=self._cause(path),
            scope=self._scope(gate, others),
            mode=self._mode,
            alternatives=self._alternatives(path, gate) if self._with_alternatives else (),
            refused=tuple(self._refused(path, others)),
        )

    def _refused(self, path: PathEdge, inputs: Iterable[Input]) -> Iterator[Refused]:
        interpreter, labels = self._propagation.interpreter, self._propagation.input_labels
        keys = {key for source in inputs for key in labels[source].keys}
        for key in sorted(keys, key=sorted):
            if interpreter.compatible(path.shape, key):
                refusal = interpreter.refusal(path.shape, key)
                if refusal is None and self._propagation.handed_on.get(path.output) == NO_KEY:
                    refusal = self._unsealed_beside(path, key)
                if refusal is not None:
                    yield Refused(key, refusal)

    def _unsealed_beside(self, path: PathEdge, key: Key) -> Refusal:
        """The inputs that lack a key, among those that the output would wait for together."""
        labels = self._propagation.input_labels
        together = {
            source.name
            for beside in path.output.paths
            if beside.shape.ordered
            for met in (beside, *meets(self._propagation, beside))
            for source in [met.input]
            if key not in labels[source].keys
        }
        has = "has" if len(together) == 1 else "have"
        return Refusal(f"{listed(sorted(together))} {has} no seal on it")

    def _scope(self, gate: Gate, inputs: Iterable[Input]) -> Scope:
        """Within each gate partition, where all ordered streams are declared to have the gate."""
        if gate.attributes is None:
            return Scope.GLOBAL
        for source in inputs:
            for stream in source.streams:
                schema = stream.declared.schema
                if schema is None or not gate.attributes <= schema.keys():
                    return Scope.GLOBAL
        return Scope.GATE

    def _alternatives(self, path: PathEdge, gate: Gate) -> tuple[Alternative, ...]:
        """The seals that would make the order unnecessary.

        A stream whose schema is not declared is taken to have the gate's attributes, which are
        those of the records that the path works on. A stream in a cycle can keep no seal, nor can
        one whose producer hands on none, and no seal helps one whose contents are inherited as
        nondeterministic, or a collapsed cycle.
        """
        propagation = self._propagation
        if gate.attributes is None or path in propagation.unprotected:
            return ()
        others = {other.input for other in meets(propagation, path)}
        if not others or path.kind is AnnotationKind.OW:
            others.add(path.input)
        streams = self._streams(others)
        common: frozenset[str] | None = None
        for stream in streams:
            if stream in self._cyclic or propagation.stream_labels[stream].label > Label.ASYNC:
                return ()
            if stream.producer and propagation.handed_on.get(stream.producer) == NO_KEY:
                return ()
            schema = stream.declared.schema
            names = gate.attributes if schema is None else frozenset(schema)
            common = names if common is None else common & names
        if common is None:
            return ()
        fds = propagation.interpreter.dependencies(path.shape)
        keys = self._keys.get((gate.attributes, common, fds))
        if keys is None:
            keys = minimal_keys(gate, common, fds, rules=propagation.interpreter.rules.name)
            self._keys[gate.attributes, common, fds] = keys
        sealed = tuple([stream.name for stream in streams])
        takes = propagation.interpreter.takes
        return tuple(
            [
                Alternative(key, sealed, self._sources(streams))
                for key in keys
                if takes(path.shape, key) and self._goes_with(path, key, others)
            ]
        )

    @cached_property
    def _origins(self) -> Mapping[StreamEdge, frozenset[StreamEdge]]:
        return origins(self._graph)

    def _sources(self, streams: Iterable[StreamEdge]) -> tuple[str, ...]:
        """The streams from outside that these are made of, by name."""
        sources = {source for stream in streams for source in self._origins.get(stream, [stream])}
        return tuple(sorted(source.name for source in sources))

    def _goes_with(self, path: PathEdge, key: Key, sealed: Container[Input]) -> bool:
        """Whether the output waits for one key alone, once these inputs are sealed on it."""
        if not self._propagation.interpreter.rules.splitting:
            return True
        return bool(
            keys_in_common(
                keys
                for other in path.output.paths
                if other.shape.ordered
                for keys in self._offered(other, key, sealed)
            )
        )

    def _offered(
        self, path: PathEdge, key: Key, sealed: Container[Input]
    ) -> Sequence[frozenset[Key]]:
        """For each input that a path would wait for, the keys that fit; nothing if it cannot."""
        propagation = self._propagation
        if path in propagation.unprotected:
            return []

        def offer(source: Input) -> frozenset[Key]:
            more = {key} if source in sealed else set()
            return fitting(propagation, path, propagation.input_labels[source].keys | more)

        own, met = offer(path.input), [offer(other.input) for other in meets(propagation, path)]
        if not all(met) or (path.kind is AnnotationKind.OW and not own):
            return []
        return [keys for keys in (own, *met) if keys]


def _from_repeats(repairs: RepairPlan) -> Iterator[Inherited]:
    """The harm of repeats where no id tells them from new records."""
    for unrepaired in repairs.unrepaired:
        reason = f"records that come again ({unrepaired.cause})"
        if unrepaired.cause == "D14":
            reason = "the key of its sink does not determine a row (D14)"
        elif unrepaired.alternatives:
            reason += f"; an id on {', '.join(unrepaired.alternatives)} would do"
        yield Inherited(unrepaired.origin, unrepaired.label, reason)


def _inherited(propagation: Propagation, tolerated: Limits, target: Label) -> Iterator[Inherited]:
    """Declared sources and nondeterministic paths that push a sink over the target."""
    for stream in propagation.graph.streams:
        label, consumer = stream.declared.label, stream.consumer
        if label is None:
            continue
        if label > (target if consumer is None else tolerated.at(consumer)):
            yield Inherited(stream.name, label, f"declared {label}")
    for path in propagation.graph.paths:
        reason = path.declared.nondeterministic
        if reason is None:
            continue
        for rule in propagation.effects[path].fired:
            if rule.condition is not Condition.NONDETERMINISTIC:
                continue
            rep = propagation.replicated[path.component.name]
            adds = propagation.interpreter.consequence(rule.conclusion, rep=rep)
            taints = rule.conclusion is Conclusion.TAINT
            if adds > (tolerated.written_by(path) if taints else tolerated.at(path.output)):
                yield Inherited(path.place, adds, reason)
