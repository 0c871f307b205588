"""What each interface may carry at most, so that no sink is pushed over the target.

A label only ever gets worse on its way: no path, and no order placed further down, takes anything
off it. So what a race somewhere may do is decided by what lies behind it, whatever else is ordered,
and one walk from the sinks to the sources finds it. `Diverge` stands for "nobody minds".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from annotations.vocabulary import AnnotationKind, Label
from blazes.graph import Graph, collapsed, most_severe
from blazes.rule_kinds import Conclusion, Condition, Cycles, RuleSet, StateFault


@dataclass(frozen=True, slots=True)
class Limits:
    """The highest label tolerated, as a number, by input, output and state group."""

    inputs: list[int]
    outputs: list[int]
    groups: list[int]
    """Of what is read from the state; `Diverge` under rules that do not know shared state."""

    def written(self, graph: Graph, path: int) -> int:
        """What a fault in the state that the path writes may come to at most."""
        here = self.outputs[graph.path_output[path]]
        group = graph.path_group[path]
        return here if group < 0 else min(here, self.groups[group])


def limits(graph: Graph, rep: Sequence[bool], rules: RuleSet, *, target: Label) -> Limits:
    """Walk from the sinks, which tolerate the target, to the sources.

    `rep` says of each component whether it is replicated.
    """
    return _Walk(graph, rep, rules, int(target)).found


class _Walk:
    def __init__(self, graph: Graph, rep: Sequence[bool], rules: RuleSet, target: int) -> None:
        free = int(Label.DIVERGE)
        self._graph = graph
        self._rep = rep
        self._harm = rules.reconciled(Conclusion.TAINT)
        self._tainting = {kind: _tainting(rules, kind) for kind in AnnotationKind}
        self._tainted_state = rules.shares(StateFault.TAINTED) is not None
        self._run_state = rules.shares(StateFault.UNREPEATABLE) is not None
        self._collapsed: dict[int, tuple[AnnotationKind, bool]] = {}
        if rules.cycles is Cycles.COLLAPSE:
            self._collapse()
        self.found = Limits(
            [free] * len(graph.input_streams),
            [free] * len(graph.output_paths),
            [free] * len(graph.group_writers),
        )
        self._open: list[int] = []
        for stream in graph.sinks():
            self._lower(graph.stream_output[stream], target)
        self._walk()

    def _collapse(self) -> None:
        graph = self._graph
        for cycle in graph.order:
            if isinstance(cycle, int):
                continue
            one = collapsed(graph, cycle, self._rep)
            kind = most_severe(graph, one.paths, ()).kind
            self._collapsed |= dict.fromkeys(one.paths, (kind, one.rep))
            self._collapsed |= {p: (graph.paths[p].annotation.kind, one.rep) for p in one.entering}

    def _lower(self, output: int, limit: int) -> None:
        if output >= 0 and limit < self.found.outputs[output]:
            self.found.outputs[output] = limit
            self._open.append(output)

    def _walk(self) -> None:
        graph, groups, outputs = self._graph, self.found.groups, self.found.outputs
        shares = self._tainted_state or self._run_state
        while self._open:
            output = self._open.pop()
            for path in graph.output_paths[output]:
                self._relax(path)
            if not shares or output not in graph.output_groups:
                continue
            for group in graph.output_groups[output]:
                if outputs[output] < groups[group]:
                    groups[group] = outputs[output]
                    for path in graph.group_writers[group]:
                        self._relax(path)

    def _relax(self, path: int) -> None:
        """The path's input tolerates no label that its output, or its state, does not."""
        graph, found = self._graph, self.found
        source = graph.path_input[path]
        limit = found.outputs[graph.path_output[path]]
        if limit > Label.ASYNC:
            limit = self._before(path, limit)
        if limit < found.inputs[source]:
            found.inputs[source] = limit
            for stream in graph.input_streams[source]:
                self._lower(graph.stream_output[stream], limit)

    def _before(self, path: int, limit: int) -> int:
        """What may enter the path where so much may leave it: less, if it writes (R3, S5)."""
        graph, found = self._graph, self.found
        kind, rep = self._collapsed.get(path) or (
            graph.paths[path].annotation.kind,
            self._rep[graph.component_of(path)],
        )
        if not kind.writes:
            return limit
        group = graph.path_group[path]
        if self._run_state and group >= 0 and found.groups[group] < Label.RUN:
            return int(Label.ASYNC)
        if self._harm.label(rep) > found.written(graph, path):
            return min(limit, self._tainting[kind] - 1)
        return limit


def _tainting(rules: RuleSet, kind: AnnotationKind) -> int:
    """The least label at which a rule that no order silences taints what the path writes (R3)."""
    labels = [
        int(label)
        for rule in rules.inference
        if kind in rule.kinds
        and rule.conclusion is Conclusion.TAINT
        and rule.condition is Condition.ALWAYS
        and not rule.origin
        for label in rule.labels
    ]
    return min(labels, default=int(Label.DIVERGE) + 1)
