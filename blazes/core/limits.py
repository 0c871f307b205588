"""The most that each node may carry, so that no sink is pushed over the target.

A label only ever gets worse on its way: no path, and no order placed further down, takes anything
off it. So what a race somewhere may do is decided by what lies behind it, whatever else is ordered,
and one walk from the sinks to the sources finds it. `Diverge` stands for "nobody minds".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from annotations.vocabulary import AnnotationKind, Label
from blazes.core.graph import Graph, Node, Output, PathEdge
from blazes.core.rule_kinds import Conclusion, Condition, Cycles, RuleSet, StateFault

_ASYNC: Final = Label.ASYNC
_DIVERGE: Final = Label.DIVERGE


@dataclass(frozen=True, slots=True)
class Limits:
    """The highest label tolerated."""

    _below: dict[Node, Label] = field(default_factory=dict)

    def at(self, node: Node) -> Label:
        """At an input or output, or in what is read from a state.

        Under rules that do not know shared state, states tolerate everything.
        """
        return self._below.get(node, _DIVERGE)

    def written_by(self, path: PathEdge) -> Label:
        """The worst that a fault in the state that the path writes may come to."""
        here = self.at(path.output)
        return here if path.state is None else min(here, self.at(path.state))

    def lower(self, node: Node, limit: Label) -> bool:
        """Set a limit; whether it is less than before."""
        if limit >= self.at(node):
            return False
        self._below[node] = limit
        return True


def limits(
    graph: Graph, replicated: Mapping[str, bool], rules: RuleSet, *, target: Label
) -> Limits:
    """Walk from the sinks, which tolerate the target, to the sources.

    Args:
        graph: the dataflow.
        replicated: component name -> whether it is replicated.
        rules: the rule set.
        target: the highest severity that the sinks tolerate.
    """
    return _Walk(graph, replicated, rules, target).limits


class _Walk:
    def __init__(
        self, graph: Graph, replicated: Mapping[str, bool], rules: RuleSet, target: Label
    ) -> None:
        self.limits = Limits()
        self._replicated = replicated
        self._harm = rules.reconciled(Conclusion.TAINT)
        self._tainting = {kind: _tainting(rules, kind) for kind in AnnotationKind}
        self._run_state = rules.shares(StateFault.UNREPEATABLE) is not None
        self._collapsed: dict[PathEdge, tuple[AnnotationKind, bool]] = {}
        if rules.cycles is Cycles.COLLAPSE:
            self._collapse(graph)
        self._open: list[Output] = []
        for stream in graph.sinks():
            self._lower(stream.producer, target)
        while self._open:
            self._visit(self._open.pop())

    def _collapse(self, graph: Graph) -> None:
        for cycle in graph.cycles:
            kind = max(path.kind for path in cycle.paths)
            rep = any(self._replicated[path.component.name] for path in cycle.paths)
            self._collapsed |= dict.fromkeys(cycle.paths, (kind, rep))
            self._collapsed |= {path: (path.kind, rep) for path in cycle.entering}

    def _lower(self, output: Output | None, limit: Label) -> None:
        if output is not None and self.limits.lower(output, limit):
            self._open.append(output)

    def _visit(self, output: Output) -> None:
        """Labels that the output does not tolerate: nothing before it may carry them."""
        for path in output.paths:
            self._relax(path)
        for state in output.states:
            if self.limits.lower(state, self.limits.at(output)):
                for path in state.writers:
                    self._relax(path)

    def _relax(self, path: PathEdge) -> None:
        """The path's input tolerates no label that its output, or its state, does not."""
        limit = self._before(path)
        if self.limits.lower(path.input, limit):
            for stream in path.input.streams:
                self._lower(stream.producer, limit)

    def _before(self, path: PathEdge) -> Label:
        """The most that may enter the path where so much may leave: less, if it writes (R3, S5)."""
        limit = self.limits.at(path.output)
        kind, rep = self._collapsed.get(path) or (
            path.kind,
            self._replicated[path.component.name],
        )
        if limit <= _ASYNC or not kind.writes:
            return limit
        if self._run_state and path.state and self.limits.at(path.state) < Label.RUN:
            return _ASYNC
        if self._harm.label(rep) > self.limits.written_by(path):
            return min(limit, self._tainting[kind])
        return limit


def _tainting(rules: RuleSet, kind: AnnotationKind) -> Label:
    """The worst label at which no rule that no order silences taints what the path writes (R3)."""
    tainted = [
        label
        for rule in rules.inference
        if kind in rule.kinds
        and rule.conclusion is Conclusion.TAINT
        and rule.condition is Condition.ALWAYS
        and not rule.origin
        for label in rule.labels
    ]
    return Label(min(tainted) - 1) if tainted else _DIVERGE
