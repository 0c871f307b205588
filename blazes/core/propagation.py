"""Labels travel: from the sources along every path and through every cycle to the sinks.

The parts of the graph are visited once, in order; inside of a cycle the labels are the least
fixpoint of the rules, or those of one path for which the cycle stands (`icde14`). With limits
(`blazes.core.limits`) a path whose race would push a sink over the target is ordered on the way, so
that every label already holds under the orders placed before it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Container, Iterable, Iterator, Mapping
from typing import Final

from annotations.vocabulary import ASYNC, STAR, Annotation, AnnotationKind, Key, Label, StreamLabel
from blazes.core.deliveries import UNREPAIRED, Crossing, Deliveries, Repairs, matters
from blazes.core.effects import Effect, Interpreter, Verdict, at_least, merge, sealed
from blazes.core.graph import (
    Cycle,
    Graph,
    Input,
    Output,
    PathEdge,
    Shape,
    State,
    StreamEdge,
    in_file_order,
)
from blazes.core.limits import Limits
from blazes.core.rule_kinds import Conclusion, Cycles, Rendezvous, StateFault

ALL_KEYS: Final[Mapping[Output, Key]] = {}
"""No output has to choose among the keys that it could hand on."""
NO_KEY: Final[Key] = frozenset()
"""Handed on by an output whose inputs are sealed on no key in common: it waits for none (SP-19)."""
_NO_FAULTS: Final[frozenset[StateFault]] = frozenset()


class Propagation:
    """The labels of one dataflow under one rule set, and what fired where.

    Args:
        graph: the dataflow.
        replicated: component name -> whether it is replicated (2.4).
        interpreter: the rules.
        limits: what the sinks tolerate; paths that exceed it are ordered. None: none is.
        repairs: what is done about repeats.
        handed_on: output -> the one key whose punctuations it hands on, or `NO_KEY`; others hand
            on all.
    """

    def __init__(
        self,
        graph: Graph,
        replicated: Mapping[str, bool],
        interpreter: Interpreter,
        *,
        limits: Limits | None = None,
        repairs: Repairs = UNREPAIRED,
        handed_on: Mapping[Output, Key] = ALL_KEYS,
    ) -> None:
        self.graph = graph
        self.replicated = replicated
        self.interpreter = interpreter
        self.limits = limits
        self.handed_on = handed_on
        self.input_labels: dict[Input, StreamLabel] = {}
        self.stream_labels: dict[StreamEdge, StreamLabel] = {}
        self.effects: dict[PathEdge, Effect] = {}
        self.verdicts: dict[Output, Verdict] = {}
        self.ordered: dict[PathEdge, Effect] = {}
        """Paths that are ordered, with what they would do if they were not."""
        self.collapsed: dict[PathEdge, tuple[Annotation, StreamLabel]] = {}
        """Members of a collapsed cycle: its annotation and the label that enters it."""
        self.unprotected: set[PathEdge] = set()
        """Members of collapsed cycles of several paths."""
        self.deliveries: Deliveries | None = None
        """How often records come; None where each comes once everywhere."""
        self._replicated_cycles: dict[Output, bool] = {}
        self._by_state = interpreter.rules.rendezvous is Rendezvous.STATE_GROUP
        self._written: dict[State, frozenset[StreamLabel]] = {}
        self._faults: dict[State, frozenset[StateFault]] = {}
        self._entering: dict[Output, Counter[StreamLabel]] = {}
        self._ahead: set[Output] | None = None
        if interpreter.rules.delivery and matters(graph):
            self.deliveries = Deliveries(graph, replicated, interpreter, repairs)
        self._run()

    def ordering(
        self,
        limits: Limits,
        *,
        dynamic: bool,
        repairs: Repairs = UNREPAIRED,
        handed_on: Mapping[Output, Key] = ALL_KEYS,
    ) -> Propagation:
        """The same dataflow, with every path ordered that exceeds the limits."""
        interpreter = Interpreter(self.interpreter.rules, self.graph.dataflow.fds, dynamic=dynamic)
        return Propagation(
            self.graph,
            self.replicated,
            interpreter,
            limits=limits,
            repairs=repairs,
            handed_on={**self.handed_on, **handed_on},
        )

    def _run(self) -> None:
        solve = _SOLVERS[self.interpreter.rules.cycles]
        for stream in self.graph.streams:
            if stream.producer is None:
                self.stream_labels[stream] = self._source(stream)
        for part in self.graph.parts:
            if isinstance(part, Cycle):
                solve(self, part)
            else:
                self._leave(part, self._verdict(part))

    def rep(self, output: Output) -> bool:
        """Whether the output's component, or the cycle that stands for it, is replicated."""
        if output in self._replicated_cycles:
            return self._replicated_cycles[output]
        return self.replicated[output.component.name]

    # ---- streams and inputs

    def _source(self, stream: StreamEdge) -> StreamLabel:
        """An external source: as declared, or sealed, else Async."""
        declared = stream.declared
        if declared.label is not None and declared.label > Label.ASYNC:
            label = StreamLabel(declared.label)
        else:
            label = sealed(frozenset(declared.seals))
        return label if self.deliveries is None else self.deliveries.source(stream, label)

    def _leave(self, output: Output, verdict: Verdict, cycle: Cycle | None = None) -> None:
        """The output's label goes out on its streams."""
        key = self.handed_on.get(output)
        if key is not None:
            only = sealed(frozenset({key}))
            verdict = Verdict(merge(verdict.label, only), verdict.rules)
        self.verdicts[output] = verdict
        for stream in output.streams:
            inside = cycle is not None and stream.consumer in cycle.nodes
            self.stream_labels[stream] = (
                verdict.label if inside else _on_stream(stream, verdict.label)
            )
        if self.deliveries is not None:
            self.deliveries.leave(output, self.stream_labels, in_cycle=cycle is not None)

    def input_label(self, source: Input) -> StreamLabel:
        """The label of an input: the merge of its streams; Async where nothing is connected."""
        label = self.input_labels.get(source)
        if label is None:
            for stream in source.streams:
                label = merge(label, self.stream_labels[stream])
            label = self.input_labels[source] = label or ASYNC
        return label

    # ---- paths

    def _effect(self, path: PathEdge) -> Effect:
        """The effect of the path on its input."""
        effect = self.effects.get(path)
        if effect is None:
            effect = self.effects[path] = self._try_effect(path)
        return effect

    def _try_effect(self, path: PathEdge) -> Effect:
        """The effect of the path on the label that its input has now."""
        label = self.input_label(path.input)
        state_sealed = path.state is None or self.state_sealed(path)
        effect = self.interpreter.effect(
            path.shape, label, fits=self.fits(path), state_sealed=state_sealed
        )
        if self.limits is not None:
            effect = self._decide(path, effect)
        if self.deliveries is None:
            return effect
        if not self._cross(path, self.deliveries).harms:
            return effect
        return self.interpreter.harmed(effect, writes=path.shape.writes)

    def _decide(self, path: PathEdge, effect: Effect) -> Effect:
        """Order the path if the race that it is the origin of exceeds what is tolerated."""
        self.ordered.pop(path, None)
        if effect.ordered is None or not self._exceeds(path, effect):
            return effect
        self.ordered[path] = effect
        return effect.ordered

    def _exceeds(self, path: PathEdge, effect: Effect) -> bool:
        """True where the race that the path is the origin of is more than the sinks tolerate."""
        assert self.limits is not None
        assert effect.origin is not None
        conclusion = effect.origin.conclusion
        consequence = self.interpreter.consequence(conclusion, rep=self.rep(path.output))
        if conclusion is Conclusion.TAINT:
            return consequence > self.limits.written_by(path)
        return consequence > self.limits.at(path.output) and not self.protected(path)

    def fits(self, path: PathEdge) -> bool:
        """Whether the path's own input is sealed fit for its gate."""
        return self.fits_with(path, self.input_label(path.input))

    def fits_with(self, path: PathEdge, label: StreamLabel) -> bool:
        """Whether an input with this label is sealed fit for the path's gate."""
        apart = self.handed_on.get(path.output) == NO_KEY
        return not apart and self.interpreter.fits(path.shape, label)

    def state_sealed(self, path: PathEdge) -> bool:
        """`Facts.writers_sealed`: all that is written to the state is sealed fit for the gate."""
        state = path.state
        if state is None or path.shape.gate is None or not self._by_state:
            return True
        written = self._written.get(state)
        if written is None:
            written = frozenset(self.input_label(writer.input) for writer in state.writers)
            self._written[state] = written
        return all(self.fits_with(path, label) for label in written)

    def protected(self, path: PathEdge) -> bool:
        """Reconciliation's `protected`: there is a rendezvous, and all of it is sealed to fit."""
        if path in self.unprotected:
            return False
        if self._by_state:
            return path.state is not None and self.state_sealed(path)
        entering = self._entering.get(path.output)
        if entering is None:
            entering = Counter(self.input_label(other.input) for other in path.output.paths)
            self._entering[path.output] = entering
        unfit = sum(count for label, count in entering.items() if not self.fits_with(path, label))
        others_unfit = unfit - (not self.fits(path))
        return entering.total() > 1 and not others_unfit

    def _exposed(self, path: PathEdge, effect: Effect) -> bool:
        return effect.nd_read and not self.protected(path)

    # ---- how often records come

    def _cross(self, path: PathEdge, deliveries: Deliveries) -> Crossing:
        sealed_state = path.kind is AnnotationKind.OR and self.protected(path)
        return deliveries.cross(
            path,
            gate=self._is_gate(path),
            forwards=self._forwards(path),
            sealed_state=sealed_state,
            ordered=path in self.ordered,
        )

    def _is_gate(self, path: PathEdge) -> bool:
        """Whether what enters is held back until its partition is complete (D6).

        A reader waits for what is written where its own answers are computed, at its output; what
        the same path hands on through another output does not wait. It waits for whole partitions
        of requests, too, where they are sealed.
        """
        if path in self.ordered:
            return False
        if self.fits(path) and self.state_sealed(path):
            return True
        if not path.shape.writes:
            return False
        return path.state is not None and any(
            other.kind is AnnotationKind.OR and other.state is path.state and self.protected(other)
            for other in path.output.paths
        )

    def _forwards(self, path: PathEdge) -> bool:
        """Whether what enters may be held back so that a path behind this one can wait (D7)."""
        if path.shape.ordered or not self.input_label(path.input).keys:
            return False
        return path.output in self._before_ordered()

    def _before_ordered(self) -> set[Output]:
        """The outputs behind which there is an order-sensitive path."""
        if self._ahead is None:
            todo = [path.input for path in self.graph.paths if path.shape.ordered]
            self._ahead = set()
            while todo:
                for stream in todo.pop().streams:
                    if stream.producer is not None and stream.producer not in self._ahead:
                        self._ahead.add(stream.producer)
                        todo += [path.input for path in stream.producer.paths]
        return self._ahead

    # ---- outputs

    def _verdict(self, output: Output, least: StreamLabel | None = None) -> Verdict:
        """The label of an output, from all paths that end there (2.3)."""
        effects, exposed = [], False
        for path in output.paths:
            effect = self._effect(path)
            effects.append(effect)
            if effect.nd_read and not exposed:
                exposed = not self.protected(path)
        faults = self._faults_at(output) if output.states else _NO_FAULTS
        return self.interpreter.reconcile(
            tuple(effects), exposed=exposed, rep=self.rep(output), faults=faults, least=least
        )

    def _faults_at(self, output: Output) -> frozenset[StateFault]:
        """Faults of the states that the output shows (S4, S5)."""
        for state in output.states:
            if state not in self._faults:
                effects = (self._effect(path) for path in state.writers)
                self._faults[state] = frozenset(fault for e in effects for fault in _faults_of(e))
        return frozenset().union(*(self._faults[state] for state in output.states))

    # ---- cycles

    def _enter(self, cycle: Cycle) -> None:
        """The inputs of a cycle: at least Async, since no seal survives in it.

        What a partition waits for would wait for the partition.
        """
        for source in cycle.inputs:
            label = ASYNC
            for stream in source.streams:
                if stream.producer not in cycle.nodes:
                    label = merge(label, self.stream_labels[stream])
            self.input_labels[source] = label

    def _iterate(self, cycle: Cycle) -> None:
        """Least fixpoint of the rules over the cycle, starting from `Async` on its streams."""
        while True:
            self._enter(cycle)
            self._raise_labels(cycle)
            if self.deliveries is None or not self._repeat(cycle, self.deliveries):
                break
        for output in cycle.outputs:
            self._leave(output, self._verdict(output, ASYNC), cycle)

    def _raise_labels(self, cycle: Cycle) -> None:
        """Apply the rules until no label rises any more.

        Labels only rise, from Async to Diverge at most, so an input is looked at no more than four
        times.
        """
        labels = dict.fromkeys(cycle.outputs, Label.ASYNC)
        states = {state for output in cycle.outputs for state in output.states}
        feeding = in_file_order(path for output in cycle.outputs for path in output.feeding())
        inside = set(feeding)
        shown: set[tuple[State, Label]] = set()
        inputs = deque(dict.fromkeys(path.input for path in feeding))
        waiting = set(inputs)

        def raise_to(output: Output, label: Label) -> None:
            if label <= labels.get(output, label):
                return
            labels[output] = label
            for stream in output.streams:
                consumer = stream.consumer
                if consumer not in cycle.nodes or label <= self.input_labels[consumer].label:
                    continue
                self.input_labels[consumer] = StreamLabel(label)
                if consumer not in waiting:
                    waiting.add(consumer)
                    inputs.append(consumer)

        while inputs:
            source = inputs.popleft()
            waiting.remove(source)
            for path in source.paths:
                if path not in inside:
                    continue
                effect, rep = self._try_effect(path), self.rep(path.output)
                exposed = self._exposed(path, effect)
                verdict = self.interpreter.reconcile(
                    (effect,), exposed=exposed, rep=rep, least=ASYNC
                )
                raise_to(path.output, verdict.label.label)
                if path.state not in states:
                    continue
                for fault in _faults_of(effect):
                    label = Label.RUN
                    if fault is StateFault.TAINTED:
                        label = self.interpreter.consequence(Conclusion.TAINT, rep=rep)
                    if (path.state, label) not in shown:
                        shown.add((path.state, label))
                        for output in path.state.outputs:
                            raise_to(output, label)

    def _repeat(self, cycle: Cycle, deliveries: Deliveries) -> bool:
        """Carry repeats once around a cycle; whether any stream in it is worse than before."""
        raised = False
        for output in cycle.outputs:
            for path in output.feeding():
                self._cross(path, deliveries)
            raised |= deliveries.go_round(output, cycle)
        return raised

    def _collapse(self, cycle: Cycle) -> None:
        """The cycle as one path with the most severe annotation of its members (`icde14`).

        What enters it from outside is inferred first. A cycle of several paths protects no read:
        what the read meets is the cycle itself.
        """
        self._enter(cycle)
        paths = cycle.paths
        rep = any(self.replicated[path.component.name] for path in paths)
        self._replicated_cycles |= dict.fromkeys(cycle.outputs, rep)
        if len(paths) > 1:
            self.unprotected.update(paths)
        label = ASYNC
        for source in cycle.inputs:
            label = merge(label, self.input_labels[source])
        for path in cycle.entering:
            effect = self._effect(path)
            exposed = self._exposed(path, effect)
            label = merge(
                label, self.interpreter.reconcile((effect,), exposed=exposed, rep=rep).label
            )
        annotation, effect = self._settle(paths, label)
        for path in paths:
            self.effects[path] = effect
            self.collapsed[path] = (annotation, label)
        verdicts = {output: self._verdict(output, label) for output in cycle.outputs}
        worst = label
        for verdict in verdicts.values():
            worst = merge(worst, verdict.label)
        if self.interpreter.dynamic and not self.ordered.keys().isdisjoint(paths):
            worst = at_least(worst, Label.RUN)
        for output, verdict in verdicts.items():
            self._leave(output, Verdict(worst, verdict.rules), cycle)
        self.input_labels |= dict.fromkeys(cycle.inputs, worst)

    def _settle(self, paths: list[PathEdge], label: StreamLabel) -> tuple[Annotation, Effect]:
        """The cycle's annotation and what it does, after as many members are ordered as must."""
        while True:
            annotation = _most_severe(paths, self.ordered)
            shape = Shape(annotation)
            fits = self.interpreter.fits(shape, label)
            effect = self.interpreter.effect(shape, label, fits=fits, state_sealed=True)
            if self.limits is None or effect.origin is None or not self._exceeds(paths[0], effect):
                return annotation, effect
            for path in paths:
                if path.kind is annotation.kind:
                    self.ordered[path] = effect


_SOLVERS: Final = {
    Cycles.FIXPOINT: Propagation._iterate,
    Cycles.COLLAPSE: Propagation._collapse,
}
"""How a rule set labels cycles."""


def _on_stream(stream: StreamEdge, label: StreamLabel) -> StreamLabel:
    """The label that an output has on a stream.

    A stream keeps the keys that its schema has, and adds those that it is declared to be sealed on,
    unless its contents are nondeterministic.
    """
    declared = stream.declared
    if not (declared.seals or declared.schema is not None) or label.label > Label.ASYNC:
        return label
    keys = label.keys
    if declared.schema is not None:
        schema = declared.schema.keys()
        keys = frozenset(key for key in keys if key <= schema)
    return sealed(keys.union(declared.seals))


def _faults_of(effect: Effect) -> Iterator[StateFault]:
    """The fault of a state that a path with this effect writes."""
    if effect.taint:
        yield StateFault.TAINTED
    if effect.unrepeatable:
        yield StateFault.UNREPEATABLE


def _most_severe(paths: Iterable[PathEdge], ordered: Container[PathEdge]) -> Annotation:
    """The annotation of one path for all of these; the gate is `*` where several gates meet.

    A path that is ordered counts as its confluent counterpart.
    """
    annotations = [
        Annotation(AnnotationKind.CW if path.shape.writes else AnnotationKind.CR)
        if path in ordered
        else path.shape.annotation
        for path in paths
    ]
    kind = max(annotation.kind for annotation in annotations)
    if kind.confluent:
        return Annotation(kind)
    gates = {annotation.gate for annotation in annotations if annotation.kind is kind}
    return Annotation(kind, gates.pop() if len(gates) == 1 else STAR)
