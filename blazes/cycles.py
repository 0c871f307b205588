"""The labels of a cycle (specification 2.6), by least fixpoint or collapsed to one path.

No seal survives inside a cycle: what a partition waits for would wait for the partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from annotations.vocabulary import Annotation
from blazes.effects import ASYNC, RUN, Behaviour, Effect
from blazes.graph import Collapsed, Cycle, Graph, Shape, collapsed, most_severe, shape_of
from blazes.propagation import Propagation, Solver
from blazes.rule_kinds import Cycles


def iterate(propagation: Propagation, cycle: Cycle) -> None:
    """Least fixpoint of the rules over the cycle, starting from `Async` on its inner streams.

    Labels in it only rise, each at most from Async to Diverge, so an input is looked at no more
    than four times.
    """
    while True:
        enter(propagation, cycle)
        _Fixpoint(propagation, cycle).run()
        if propagation.deliveries is None or not propagation.deliveries.raised(cycle):
            break
    for output in sorted(cycle.outputs):
        propagation.leave(output, propagation.verdict(output, least=ASYNC), cycle)


class _Fixpoint:
    def __init__(self, propagation: Propagation, cycle: Cycle) -> None:
        self._propagation = propagation
        self._graph = propagation.graph
        self._cycle = cycle
        self._labels = dict.fromkeys(cycle.outputs, ASYNC)
        self._faults: set[tuple[int, int]] = set()
        """(group, label) that its outputs already have."""
        self._queue: deque[int] = deque()
        self._queued: set[int] = set()

    def run(self) -> None:
        """Raise labels until nothing changes; the inputs' labels stay in the propagation."""
        graph = self._graph
        self._groups = {g for x in self._cycle.outputs for g in graph.output_groups.get(x, ())}
        paths = [p for output in self._cycle.outputs for p in graph.output_paths[output]]
        paths += [p for group in self._groups for p in graph.group_writers[group]]
        for path in sorted(paths):
            self._put(graph.path_input[path])
        while self._queue:
            source = self._queue.popleft()
            self._queued.remove(source)
            for path in graph.input_paths[source]:
                if (
                    graph.path_output[path] in self._labels
                    or graph.path_group[path] in self._groups
                ):
                    self._pass(path)

    def _put(self, source: int) -> None:
        if source not in self._queued:
            self._queued.add(source)
            self._queue.append(source)

    def _pass(self, path: int) -> None:
        """What the path does to its input's present label goes to its output and its state."""
        propagation, graph = self._propagation, self._graph
        effect = propagation.try_effect(path)
        rep = propagation.rep[graph.component_of(path)]
        exposed = effect.nd_read and not propagation.protected(path)
        label, _ = propagation.interpreter.reconcile(
            (effect,), exposed=exposed, rep=rep, least=ASYNC
        )
        self._raise(graph.path_output[path], label)
        group = graph.path_group[path]
        if effect.taint:
            self._show(group, propagation.interpreter.tainted[rep])
        if effect.unrepeatable:
            self._show(group, RUN)

    def _show(self, group: int, label: int) -> None:
        if group not in self._groups or (group, label) in self._faults:
            return
        self._faults.add((group, label))
        for output in self._graph.group_outputs[group]:
            self._raise(output, label)

    def _raise(self, output: int, label: int) -> None:
        if label <= self._labels.get(output, label):
            return
        self._labels[output] = label
        inputs = self._propagation.input_label
        for stream in self._graph.output_streams[output]:
            consumer = self._graph.stream_input[stream]
            if consumer in self._cycle.inputs and label > inputs[consumer]:
                inputs[consumer] = label
                self._put(consumer)


def collapse(propagation: Propagation, cycle: Cycle) -> None:
    """The cycle as one path with the most severe annotation of its members (`icde14`).

    What enters it from outside is inferred first. A cycle of several paths protects no read: what
    the read meets is the cycle itself.
    """
    graph, interpreter = propagation.graph, propagation.interpreter
    enter(propagation, cycle)
    one = collapsed(graph, cycle, propagation.rep)
    for output in cycle.outputs:
        propagation.cycle_rep[output] = one.rep
    if len(one.paths) > 1:
        propagation.unprotected.update(one.paths)
    label = ASYNC
    for source in cycle.inputs:
        label = interpreter.labels.merge(label, propagation.input_label[source])
    for path in one.entering:
        effect = propagation.effect(path)
        exposed = effect.nd_read and not propagation.protected(path)
        entered, _ = interpreter.reconcile((effect,), exposed=exposed, rep=one.rep)
        label = interpreter.labels.merge(label, entered)
    annotation, effect = _settle(propagation, one, label)
    for path in one.paths:
        propagation.effects[path] = effect
        propagation.collapsed[path] = (annotation, label)
    worst = label
    for output in cycle.outputs:
        propagation.verdicts[output] = propagation.verdict(output, rep=one.rep, least=label)
        worst = max(worst, propagation.verdicts[output][0])
    if propagation.interpreter.dynamic and any(path in propagation.ordered for path in one.paths):
        worst = max(worst, RUN)
    for output in cycle.outputs:
        propagation.leave(output, (worst, propagation.verdicts[output][1]), cycle)
    for source in cycle.inputs:
        propagation.input_label[source] = worst


def _settle(propagation: Propagation, one: Collapsed, label: int) -> tuple[Annotation, Effect]:
    """The cycle's annotation and what it does, after as many of its members are ordered as must."""
    graph = propagation.graph
    while True:
        annotation = most_severe(graph, one.paths, propagation.ordered)
        clock = any(_shape(graph, p).nondeterministic for p in one.paths)
        shape = shape_of(annotation, None, clock)
        effect = Behaviour(shape, propagation.interpreter).effect(label, True)
        if propagation.limits is None or effect.origin is None:
            return annotation, effect
        if not propagation.exceeds(one.paths[0], effect, rep=one.rep):
            return annotation, effect
        for path in one.paths:
            if graph.paths[path].annotation.kind is annotation.kind:
                propagation.ordered[path] = effect


def _shape(graph: Graph, path: int) -> Shape:
    return graph.shapes[graph.path_shape[path]]


def enter(propagation: Propagation, cycle: Cycle) -> None:
    """The inputs of a cycle: at least Async, and whatever comes from outside."""
    graph = propagation.graph
    for source in cycle.inputs:
        label = ASYNC
        for stream in graph.input_streams[source]:
            if graph.stream_output[stream] not in cycle.outputs:
                label = propagation.interpreter.labels.merge(
                    label, propagation.stream_label[stream]
                )
        propagation.input_label[source] = label


SOLVERS: Final[Mapping[Cycles, Solver]] = {Cycles.FIXPOINT: iterate, Cycles.COLLAPSE: collapse}
"""How a rule set labels cycles."""
