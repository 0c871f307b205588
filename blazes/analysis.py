"""Labels for every stream of a dataflow, with the derivation of each (Blazes section V-A)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from annotations.dataflow import Dataflow, Path
from annotations.gc_pause import gc_paused
from annotations.vocabulary import STAR, Delivery, Gate, Label, StreamLabel
from blazes.core.deliveries import Delivered
from blazes.core.effects import Effect, Interpreter
from blazes.core.graph import Graph, PathEdge
from blazes.core.propagation import Propagation
from blazes.core.rule_kinds import Conclusion, Rendezvous
from blazes.core.rules import BLAZES, rule_set
from blazes.seals import settled


@dataclass(frozen=True, slots=True)
class NDRead:
    """Internal label: a read of state that may still change, by gate (figure 8)."""

    gate: Gate

    def __str__(self) -> str:
        return f"NDRead[{self.gate}]"


@dataclass(frozen=True, slots=True)
class Taint:
    """Internal label: state may be corrupted by the order of arrival (figure 8)."""

    def __str__(self) -> str:
        return "Taint"


Added = NDRead | Taint | StreamLabel


class Step(NamedTuple):
    """One inference step: an input label meets a path. A path has one for each rule that fires."""

    path: Path
    input: StreamLabel
    rule: str
    """`R1` ... `R4`, `S1`, `S2`, `N1`, `N2`, or `p` where nothing is added; behind them `D1` ...
    `D9` where records may come again."""
    adds: tuple[Added, ...]
    leaves: StreamLabel
    """The label that leaves the path besides the added ones (2.2)."""


class Derivation(NamedTuple):
    """How the label of one output interface came about (section V-A)."""

    component: str
    output: str
    steps: tuple[Step, ...]
    rep: bool
    reconciled: tuple[str, ...]
    """`C1`, `C2`, `S4`, `S5`, in that order, where they added something."""
    label: StreamLabel


@dataclass(frozen=True, slots=True)
class Analysis:
    """The result of `analyze`: everything a report or the plan needs."""

    dataflow: Dataflow
    rules: str
    """`blazes` or `icde14`."""
    labels: Mapping[str, StreamLabel]
    """Stream name -> label, for every stream, in the order of the file."""
    rep: Mapping[str, bool]
    """Stream name -> replicated."""
    replicated: Mapping[str, bool]
    """Component name -> replicated."""
    derivations: tuple[Derivation, ...]
    """In the order of the dataflow: a derivation stands after those it depends on."""
    verdict: Label
    """The highest severity at any sink; at any stream where there is no sink."""
    deliveries: Mapping[str, Delivered] = field(default_factory=dict)
    """Stream name -> how often its records come; empty where each comes once everywhere."""
    withheld: tuple[str, ...] = ()
    """Paths, `Component: from->to`, whose partitions stay in quarantine where a record comes again
    (D7)."""
    cycles: tuple[tuple[str, ...], ...] = ()
    """The names of the streams inside each cycle (2.6)."""
    propagation: Propagation | None = field(default=None, repr=False, compare=False)
    """The labels on the graph, from which the plan goes on."""


def analyze(dataflow: Dataflow, *, rules: str = BLAZES) -> Analysis:
    """Label every stream (specification 2).

    Args:
        dataflow: checked by its front end.
        rules: `blazes`, or `icde14` for the paper's own rules.

    Raises:
        ValueError: no such rule set, or a stream ends where no path begins.
    """
    with gc_paused():
        return _analysis(explore(dataflow, rules=rules))


def _analysis(propagation: Propagation) -> Analysis:
    graph, replicated = propagation.graph, propagation.replicated
    deliveries = propagation.deliveries
    return Analysis(
        dataflow=graph.dataflow,
        rules=propagation.interpreter.rules.name,
        labels=labels_of(propagation),
        rep={
            name: bool(stream.rep)
            or (stream.producer is not None and replicated[stream.producer.component])
            for name, stream in graph.dataflow.streams.items()
        },
        replicated=replicated,
        derivations=tuple(_Derivations(propagation)),
        verdict=verdict_of(propagation),
        deliveries={} if deliveries is None else deliveries.by_name(),
        withheld=() if deliveries is None else deliveries.withheld(),
        cycles=tuple(tuple(stream.name for stream in cycle.streams) for cycle in graph.cycles),
        propagation=propagation,
    )


def explore(dataflow: Dataflow, *, rules: str = BLAZES) -> Propagation:
    """The labels on the graph, without derivations; errors as `analyze`."""
    tables = rule_set(rules)
    graph = Graph(dataflow, shared_state=tables.rendezvous is Rendezvous.STATE_GROUP)
    replicated, interpreter = replication(dataflow), Interpreter(tables, dataflow.fds)
    if not tables.splitting:
        return Propagation(graph, replicated, interpreter)
    return settled(lambda chosen: Propagation(graph, replicated, interpreter, handed_on=chosen))


def labels_of(propagation: Propagation) -> dict[str, StreamLabel]:
    """Stream name -> label, in the order of the file."""
    labels = propagation.stream_labels
    return {stream.declared.name: labels[stream] for stream in propagation.graph.streams}


def verdict_of(propagation: Propagation) -> Label:
    """The highest severity at any sink; at any stream where no stream leaves the dataflow."""
    labels = propagation.stream_labels
    return max((labels[sink].label for sink in propagation.graph.sinks()), default=Label.SEAL)


def replication(dataflow: Dataflow) -> dict[str, bool]:
    """Component name -> whether it is replicated (2.4).

    Those that say so and, unless they say `Rep: false`, those that a replicated stream enters; a
    stream is replicated if it says so or if its producer is.
    """
    replicated = {name: component.rep is True for name, component in dataflow.components.items()}
    streams = [stream for stream in dataflow.streams.values() if stream.consumer is not None]
    if not any(replicated.values()) and not any(stream.rep for stream in streams):
        return replicated
    leaving: dict[str, list[str]] = {}
    entered: deque[str] = deque()
    for stream in streams:
        assert stream.consumer is not None
        producer, consumer = stream.producer, stream.consumer.component
        if producer is not None:
            leaving.setdefault(producer.component, []).append(consumer)
        if stream.rep or (producer is not None and replicated[producer.component]):
            entered.append(consumer)
    while entered:
        name = entered.popleft()
        if not replicated[name] and dataflow.components[name].rep is None:
            replicated[name] = True
            entered += leaving.get(name, ())
    return replicated


class _Derivations:
    """The derivation of every output, in the order in which they were labelled."""

    def __init__(self, propagation: Propagation) -> None:
        self._propagation = propagation
        self._fired: dict[tuple[Effect, bool], tuple[tuple[str, tuple[Added, ...]], ...]] = {}

    def __iter__(self) -> Iterator[Derivation]:
        propagation = self._propagation
        for output in propagation.graph.outputs():
            label, reconciled = propagation.verdicts[output]
            rep = propagation.rep(output)
            steps: list[Step] = []
            for path in output.paths:
                self._add_steps(steps, path, rep=rep)
            yield Derivation(
                output.component.name, output.name, tuple(steps), rep, reconciled, label
            )

    def _add_steps(self, steps: list[Step], path: PathEdge, *, rep: bool) -> None:
        propagation, declared = self._propagation, path.declared
        label, effect = propagation.input_labels[path.input], propagation.effects[path]
        if path in propagation.collapsed:
            annotation, label = propagation.collapsed[path]
            if annotation is not declared.annotation:
                declared = replace(declared, annotation=annotation)
        for rule, adds in self._adds(effect, declared.annotation.gate, rep=rep):
            steps.append(Step(declared, label, rule, adds, effect.leaves))
        if propagation.deliveries is None:
            return
        crossing = propagation.deliveries.crossings[path]
        if crossing.enters > Delivery.ONCE or crossing.rule.id != "D1":
            harm: tuple[Added, ...] = ()
            if crossing.harms:
                harm = (Taint() if path.kind.writes else self._varies(rep=rep),)
            steps.append(Step(declared, label, crossing.rule.id, harm, effect.leaves))

    def _varies(self, *, rep: bool) -> StreamLabel:
        conclusion = Conclusion.RUN_OR_INST
        return StreamLabel(self._propagation.interpreter.consequence(conclusion, rep=rep))

    def _adds(
        self, effect: Effect, gate: Gate | None, *, rep: bool
    ) -> tuple[tuple[str, tuple[Added, ...]], ...]:
        """The rules that fired, each with the labels it adds; worked out once for each effect."""
        known = self._fired.get((effect, rep))
        if known is None:
            adds: dict[Conclusion, tuple[Added, ...]] = {
                Conclusion.NOTHING: (),
                Conclusion.ND_READ: (NDRead(gate or STAR),),
                Conclusion.TAINT: (Taint(),),
                Conclusion.RUN_OR_INST: (self._varies(rep=rep),),
            }
            known = tuple((rule.id, adds[rule.conclusion]) for rule in effect.fired)
            self._fired[effect, rep] = known
        return known
