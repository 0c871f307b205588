"""Labels travel: from the sources along every path and through every cycle to the sinks.

Acyclic parts are visited once, in order; only cycles are iterated. With limits (`blazes.limits`)
a path whose race would push a sink over the target is ordered on the way, so that every label
already holds under the orders placed before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from annotations.vocabulary import Annotation
from blazes.deliveries import UNREPAIRED, Deliveries, Repairs, matters
from blazes.effects import ASYNC, WORST, Behaviour, Effect, Interpreter, Verdict
from blazes.graph import Cycle, Graph
from blazes.limits import Limits
from blazes.rule_kinds import Conclusion, Rendezvous

Solver = Callable[["Propagation", Cycle], None]
"""Labels a cycle, once everything that enters it has its label."""


class Propagation:
    """The labels of one dataflow under one rule set, and what fired where.

    Args:
        graph: the dataflow.
        rep: for each component whether it is replicated (2.4).
        interpreter: the rules.
        solver: how cycles are labelled (`blazes.cycles`).
        limits: what the sinks tolerate; paths that exceed it are ordered. None: none is.
        repairs: what is done about repeats.
    """

    def __init__(
        self,
        graph: Graph,
        rep: Sequence[bool],
        interpreter: Interpreter,
        solver: Solver,
        *,
        limits: Limits | None = None,
        repairs: Repairs = UNREPAIRED,
    ) -> None:
        self.graph = graph
        self.rep = rep
        self.interpreter = interpreter
        self.solver = solver
        self.limits = limits
        self.behaviours = [Behaviour(shape, interpreter) for shape in graph.shapes]
        self.input_label = [0] * len(graph.input_streams)
        self.stream_label = [0] * len(graph.streams)
        self.effects: list[Effect | None] = [None] * len(graph.paths)
        self.verdicts: list[Verdict] = [(0, ())] * len(graph.output_paths)
        self.ordered: dict[int, Effect] = {}
        """Paths that are ordered, with what they would do if they were not."""
        self.collapsed: dict[int, tuple[Annotation, int]] = {}
        """Members of a collapsed cycle: its annotation and the label that enters it."""
        self.cycle_rep: dict[int, bool] = {}
        """Outputs in a collapsed cycle: whether it is replicated."""
        self.unprotected: set[int] = set()
        """Members of collapsed cycles of several paths."""
        self._by_group = interpreter.rules.rendezvous is Rendezvous.STATE_GROUP
        self._written: dict[int, frozenset[int]] = {}
        self._state_faults: dict[int, tuple[bool, bool]] = {}
        self._entering: dict[int, Counter[int]] = {}
        self._reconciled: dict[tuple[int, ...], Verdict] = {}
        self.deliveries: Deliveries | None = None
        """How often records come; None where each comes once everywhere."""
        if interpreter.rules.delivery and matters(graph):
            self.deliveries = Deliveries(self, repairs)
        self._run()

    def ordering(
        self, limits: Limits, *, dynamic: bool, repairs: Repairs = UNREPAIRED
    ) -> Propagation:
        """The same dataflow, with every path ordered that exceeds the limits."""
        interpreter = Interpreter(self.interpreter.rules, self.graph.dataflow.fds, dynamic=dynamic)
        return Propagation(
            self.graph, self.rep, interpreter, self.solver, limits=limits, repairs=repairs
        )

    def _run(self) -> None:
        graph = self.graph
        output_paths, component = graph.output_paths, graph.output_component
        path_group, path_input = graph.path_group, graph.path_input
        path_shape = graph.path_shape
        for stream, output in enumerate(graph.stream_output):
            if output < 0:
                self.stream_label[stream] = self._source(stream)
        for item in graph.order:
            if item.__class__ is not int:
                assert isinstance(item, Cycle)
                self.solver(self, item)
                continue
            paths = output_paths[item]
            path = paths[0]
            if len(paths) == 1 and path_group[path] < 0 and self.deliveries is None:
                label = self.input_label[path_input[path]] or self.input(path_input[path])
                behaviour = self.behaviours[path_shape[path]]
                effect = behaviour.effects.get(2 * label + 1) or behaviour.effect(label, True)
                if effect.ordered is not None and self.limits is not None:
                    effect = self._decide(path, effect)
                self.effects[path] = effect
                self.leave(item, effect.alone[self.rep[component[item]]])
            else:
                self.leave(item, self.verdict(item))

    def _source(self, stream: int) -> int:
        """An external source: as declared, or sealed, else Async."""
        declared = self.graph.streams[stream]
        if declared.label is not None and declared.label > ASYNC:
            label = int(declared.label)
        else:
            label = self.interpreter.labels.seal(frozenset(declared.seals))
        return label if self.deliveries is None else self.deliveries.source(stream, label)

    def leave(self, output: int, verdict: Verdict, cycle: Cycle | None = None) -> None:
        """The output's label goes out on its streams.

        A stream keeps the keys that its schema has, and adds those that it is declared to be
        sealed on, unless its contents are nondeterministic or it runs inside a cycle.
        """
        self.verdicts[output] = verdict
        label = verdict[0]
        labels, changing = self.stream_label, self.graph.changing_streams
        for stream in self.graph.output_streams[output]:
            labels[stream] = label
            if stream not in changing or ASYNC < label <= WORST:
                continue
            if cycle is not None and self.graph.stream_input[stream] in cycle.inputs:
                continue
            declared = self.graph.streams[stream]
            keys = self.interpreter.labels.values[label].keys
            if declared.schema is not None:
                schema = declared.schema.keys()
                keys = frozenset(key for key in keys if key <= schema)
            labels[stream] = self.interpreter.labels.seal(keys.union(declared.seals))
        if self.deliveries is not None:
            self.deliveries.leave(output, cycle)

    def input(self, source: int) -> int:
        """The label of an input: the merge of its streams; Async where nothing is connected."""
        label = self.input_label[source]
        if not label:
            streams = self.graph.input_streams[source]
            label = self.stream_label[streams[0]] if streams else ASYNC
            for stream in streams[1:]:
                label = self.interpreter.labels.merge(label, self.stream_label[stream])
            self.input_label[source] = label
        return label

    def effect(self, path: int) -> Effect:
        """What the path does to its input."""
        effect = self.effects[path]
        if effect is None:
            effect = self.effects[path] = self.try_effect(path)
        return effect

    def try_effect(self, path: int) -> Effect:
        """What the path does to the label that its input has now."""
        behaviour = self.behaviours[self.graph.path_shape[path]]
        label = self.input(self.graph.path_input[path])
        effect = behaviour.effect(label, self.state_sealed(path))
        if self.limits is not None:
            effect = self._decide(path, effect)
        return effect if self.deliveries is None else self.deliveries.judged(path, effect)

    def _decide(self, path: int, effect: Effect) -> Effect:
        """Order the path if the race that it is the origin of exceeds what is tolerated."""
        self.ordered.pop(path, None)
        output = self.graph.path_output[path]
        rep = self.cycle_rep.get(output, self.rep[self.graph.output_component[output]])
        if effect.ordered is None or not self.exceeds(path, effect, rep=rep):
            return effect
        self.ordered[path] = effect
        return effect.ordered

    def exceeds(self, path: int, effect: Effect, *, rep: bool) -> bool:
        """True where the race that the path is the origin of is more than the sinks tolerate."""
        assert self.limits is not None
        assert effect.origin is not None
        if effect.origin.conclusion is Conclusion.TAINT:
            return self.interpreter.tainted[rep] > self.limits.written(self.graph, path)
        limit = self.limits.outputs[self.graph.path_output[path]]
        return self.interpreter.unsafe_read[rep] > limit and not self.protected(path)

    def state_sealed(self, path: int) -> bool:
        """`Facts.writers_sealed`: all that is written to the state is sealed fit for the gate."""
        group = self.graph.path_group[path]
        behaviour = self.behaviours[self.graph.path_shape[path]]
        if group < 0 or behaviour.gate is None or not self._by_group:
            return True
        written = self._written.get(group)
        if written is None:
            writers = self.graph.group_writers[group]
            written = frozenset(self.input(self.graph.path_input[p]) for p in writers)
            self._written[group] = written
        return all(behaviour.fits(label) for label in written)

    def protected(self, path: int) -> bool:
        """Reconciliation's `protected`: there is a rendezvous, and all of it is sealed to fit."""
        if path in self.unprotected:
            return False
        if self._by_group:
            return self.graph.path_group[path] >= 0 and self.state_sealed(path)
        output = self.graph.path_output[path]
        entering = self._entering.get(output)
        if entering is None:
            paths = self.graph.output_paths[output]
            entering = Counter(self.input(self.graph.path_input[p]) for p in paths)
            self._entering[output] = entering
        fits = self.behaviours[self.graph.path_shape[path]].fits
        unfit = sum(count for label, count in entering.items() if not fits(label))
        unfit -= not fits(self.input(self.graph.path_input[path]))
        return entering.total() > 1 and not unfit

    def faults(self, output: int) -> tuple[bool, bool]:
        """Whether a state that the output shows is tainted (S4) or unrepeatable (S5)."""
        tainted = unrepeatable = False
        if not self.interpreter.shares_state:
            return False, False
        for group in self.graph.output_groups.get(output, ()):
            faults = self._state_faults.get(group)
            if faults is None:
                effects = [self.effect(p) for p in self.graph.group_writers[group]]
                faults = (any(e.taint for e in effects), any(e.unrepeatable for e in effects))
                self._state_faults[group] = faults
            tainted |= faults[0]
            unrepeatable |= faults[1]
        return tainted, unrepeatable

    def verdict(self, output: int, *, rep: bool | None = None, least: int = 0) -> Verdict:
        """The label of an output, from all paths that end there (2.3)."""
        paths = self.graph.output_paths[output]
        effects, exposed = [], False
        for path in paths:
            effect = self.effect(path)
            effects.append(effect)
            exposed = exposed or (effect.nd_read and not self.protected(path))
        tainted, unrepeatable = self.faults(output)
        if rep is None:
            rep = self.rep[self.graph.output_component[output]]
        key = (exposed, rep, tainted, unrepeatable, least, *map(id, effects))
        verdict = self._reconciled.get(key)
        if verdict is None:
            verdict = self._reconciled[key] = self.interpreter.reconcile(
                effects,
                exposed=exposed,
                rep=rep,
                state_tainted=tainted,
                state_unrepeatable=unrepeatable,
                least=least,
            )
        return verdict
