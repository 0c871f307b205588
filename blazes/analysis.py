"""Labels for every stream of a dataflow, with the derivation of each (Blazes section V-A)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from annotations.dataflow import Dataflow, Path
from annotations.gc_pause import gc_paused
from annotations.vocabulary import STAR, Delivery, Gate, Label, StreamLabel
from blazes.cycles import SOLVERS
from blazes.deliveries import Delivered, by_name, withheld
from blazes.effects import Effect, Interpreter
from blazes.graph import Graph
from blazes.propagation import Propagation
from blazes.rule_kinds import Conclusion, Rendezvous
from blazes.rules import BLAZES, rule_set


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


@dataclass(frozen=True, slots=True)
class Step:
    """One inference step: an input label meets a path. A path has one for each rule that fires."""

    path: Path
    input: StreamLabel
    rule: str
    """`R1` ... `R4`, `S1`, `S2`, `N1`, `N2`, or `p` where nothing is added; behind them `D1` ...
    `D9` where records may come again."""
    adds: tuple[Added, ...]
    leaves: StreamLabel
    """What leaves the path besides the added labels (2.2)."""


@dataclass(frozen=True, slots=True)
class Derivation:
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
    found: Propagation | None = field(default=None, repr=False, compare=False)
    """The labels by number, from which the plan goes on."""


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


def _analysis(found: Propagation) -> Analysis:
    graph, rep, dataflow = found.graph, found.rep, found.graph.dataflow
    return Analysis(
        dataflow=dataflow,
        rules=found.interpreter.rules.name,
        labels=labels_of(found),
        rep={
            stream.name: bool(stream.rep) or (output >= 0 and rep[graph.output_component[output]])
            for stream, output in zip(graph.streams, graph.stream_output, strict=True)
        },
        replicated={
            component.name: replicated
            for component, replicated in zip(graph.components, rep, strict=True)
        },
        derivations=tuple(_Derivations(found)),
        verdict=verdict_of(found),
        deliveries=by_name(found),
        withheld=tuple(withheld(found)),
        cycles=tuple(
            tuple(graph.streams[stream].name for stream in graph.streams_in(cycle))
            for cycle in graph.cycles
        ),
        found=found,
    )


def explore(dataflow: Dataflow, *, rules: str = BLAZES) -> Propagation:
    """The labels by number, without derivations; errors as `analyze`."""
    tables = rule_set(rules)
    graph = Graph(dataflow, shared_state=tables.rendezvous is Rendezvous.STATE_GROUP)
    interpreter = Interpreter(tables, dataflow.fds)
    return Propagation(graph, replication(graph), interpreter, SOLVERS[tables.cycles])


def labels_of(found: Propagation) -> dict[str, StreamLabel]:
    """Stream name -> label, in the order of the file."""
    values = found.interpreter.labels.values
    return {
        stream.name: values[label]
        for stream, label in zip(found.graph.streams, found.stream_label, strict=True)
    }


def verdict_of(found: Propagation) -> Label:
    """The highest severity at any sink; at any stream where no stream leaves the dataflow."""
    values = found.interpreter.labels.values
    labels = {found.stream_label[stream] for stream in found.graph.sinks()}
    return max((values[label].label for label in labels), default=Label.SEAL)


def replication(graph: Graph) -> list[bool]:
    """Which components are replicated (2.4).

    Those that say so and, unless they say `Rep: false`, those that a replicated stream enters; a
    stream is replicated if it says so or if its producer is.
    """
    rep = [component.rep is True for component in graph.components]
    numbers = {component.name: number for number, component in enumerate(graph.components)}
    leaving: dict[int, list[int]] = {}
    entered: list[int] = []
    any_rep = any(rep) or any(stream.rep for stream in graph.streams)
    if not any_rep:
        return rep
    for stream in graph.streams:
        if stream.consumer is None:
            continue
        consumer = numbers[stream.consumer.component]
        if stream.rep:
            entered.append(consumer)
        if stream.producer is not None:
            leaving.setdefault(numbers[stream.producer.component], []).append(consumer)
    queue = deque(number for number, replicated in enumerate(rep) if replicated)
    while queue or entered:
        for consumer in entered:
            if not rep[consumer] and graph.components[consumer].rep is None:
                rep[consumer] = True
                queue.append(consumer)
        entered = leaving.get(queue.popleft(), []) if queue else []
    return rep


class _Derivations:
    """The derivation of every output, in the order in which they were labelled."""

    def __init__(self, found: Propagation) -> None:
        self._found = found
        self._values = found.interpreter.labels.values
        self._fired: dict[tuple[int, bool], tuple[tuple[str, tuple[Added, ...]], ...]] = {}

    def __iter__(self) -> Iterator[Derivation]:
        found, graph, values = self._found, self._found.graph, self._values
        for output in graph.outputs():
            component = graph.output_component[output]
            rep = found.cycle_rep.get(output, found.rep[component])
            paths = graph.output_paths[output]
            label, reconciled = found.verdicts[output]
            yield Derivation(
                graph.components[component].name,
                graph.paths[paths[0]].target,
                tuple([step for path in paths for step in self._steps(path, rep)]),
                rep,
                reconciled,
                values[label],
            )

    def _steps(self, number: int, rep: bool) -> list[Step]:
        found, graph = self._found, self._found.graph
        path = graph.paths[number]
        label = found.input_label[graph.path_input[number]]
        if number in found.collapsed:
            annotation, label = found.collapsed[number]
            if annotation is not path.annotation:
                path = replace(path, annotation=annotation)
        effect = found.effects[number]
        assert effect is not None
        entered = self._values[label]
        gate = path.annotation.gate
        leaves = self._values[effect.leaves]
        added = self._adds(effect, gate, rep)
        steps = [Step(path, entered, rule, adds, leaves) for rule, adds in added]
        crossing = None if found.deliveries is None else found.deliveries.crossings[number]
        if crossing is not None and (crossing.enters > Delivery.ONCE or crossing.rule.id != "D1"):
            harm: tuple[Added, ...] = ()
            if crossing.harms:
                varies = self._values[found.interpreter.varies[rep]]
                harm = (Taint() if path.annotation.kind.writes else varies,)
            steps.append(Step(path, entered, crossing.rule.id, harm, leaves))
        return steps

    def _adds(
        self, effect: Effect, gate: Gate | None, rep: bool
    ) -> tuple[tuple[str, tuple[Added, ...]], ...]:
        """The rules that fired, each with the labels it adds; worked out once for each effect."""
        key = (id(effect), rep)
        known = self._fired.get(key)
        if known is None:
            adds: dict[Conclusion, tuple[Added, ...]] = {
                Conclusion.NOTHING: (),
                Conclusion.ND_READ: (NDRead(gate or STAR),),
                Conclusion.TAINT: (Taint(),),
                Conclusion.RUN_OR_INST: (self._values[self._found.interpreter.varies[rep]],),
            }
            known = tuple((rule.id, adds[rule.conclusion]) for rule in effect.fired)
            self._fired[key] = known
        return known
