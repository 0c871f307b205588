"""One sentence for each result: what may differ, how often rows come, why, and what repairs it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from annotations.dataflow import Stream
from annotations.vocabulary import Delivery, Label
from blazes.coordination import Entry, Plan, Strategy
from blazes.deliveries import Crossing, Delivered
from blazes.repairs import Bound, Means, Repair
from blazes.report.words import listed, tupled
from blazes.rules import BLAZES

WHAT: Final = {
    Label.SEAL: "the same rows in every run",
    Label.ASYNC: "the same rows in every run",
    Label.RUN: "rows may differ from run to run",
    Label.INST: "rows may differ from run to run and between replicas",
    Label.DIVERGE: "rows may differ from run to run, and replicas may disagree for ever",
}
REASONS_MAX: Final = 3
"""Reasons and repairs named in a sentence; the others are counted."""


@dataclass(frozen=True, slots=True)
class Result:
    """What can be said of a stream that leaves the dataflow."""

    name: str
    label: Label
    delivery: Delivery
    text: str
    """A sentence without the name."""

    @property
    def plain(self) -> bool:
        """The same rows in every run, each once."""
        return self.label <= Label.ASYNC and self.delivery is Delivery.ONCE

    @property
    def sentence(self) -> str:
        """`results: the same rows in every run.`"""
        return f"{self.name}: {self.text}."


def results(plan: Plan) -> Iterator[Result]:
    """Every stream that leaves the dataflow, in the order of the file.

    None under the paper's own rules, for which every record comes once.
    """
    if plan.analysis.rules != BLAZES:
        return
    upstream = _Upstream(plan)
    for number, stream in enumerate(plan.analysis.dataflow.streams.values()):
        if stream.consumer is None:
            yield _result(plan, stream, upstream.of(number))


def imperative(repair: Repair) -> str:
    """What an item of the plan against repeats does, as an imperative."""
    match repair.means:
        case Means.DEDUP:
            by = tupled(repair.id or ())
            return f"de-duplicate {repair.stream} by {by}{_bound(repair.bound)}"
        case Means.UPSERT:
            return f"upsert {repair.stream} by {tupled(repair.id or ())}"
    return f"commit each batch of {repair.stream} together with its number"


def repair_sentence(repair: Repair) -> str:
    """What an item does, and why."""
    does = imperative(repair)
    place = f"repeats do harm at {repair.component} ({repair.cause})"
    why = place if repair.component else f"else its rows may come again ({repair.cause})"
    return f"{does[0].upper()}{does[1:]}: {why}."


def _bound(bound: Bound | None) -> str:
    if bound is None:
        return ", remembering every one"
    if bound.seal is not None:
        return f" until its seal on {tupled(bound.seal)}"
    return f" within {bound.within}"


@dataclass(frozen=True, slots=True)
class _Behind:
    """What lies before a result."""

    causes: tuple[str, ...]
    """Clauses: `Count counts repeats of clicks (D4)`."""
    repairs: tuple[str, ...]
    seals: tuple[str, ...]
    """`the seal on campaign`"""


def _result(plan: Plan, stream: Stream, behind: _Behind) -> Result:
    label = plan.analysis.labels[stream.name].label
    delivered = plan.analysis.deliveries.get(stream.name, Delivered())
    text = WHAT[label]
    if delivered.label is Delivery.CORRUPT and label <= Label.ASYNC:
        text = "rows may be wrong"
    how_often = _how_often(delivered)
    if how_often:
        text += f"; {how_often}"
    wrong = label > Label.ASYNC or delivered.label is Delivery.CORRUPT
    if wrong and behind.causes:
        text += f", because {_some(behind.causes)}"
    elif behind.seals:
        text += f", since {_some(behind.seals)} is waited for"
    if behind.repairs:
        text += f"; {'; then '.join(behind.repairs[:REASONS_MAX])}"
        more = len(behind.repairs) - REASONS_MAX
        text += f"; then {more} more" if more > 0 else ""
    return Result(stream.name, label, delivered.label, text)


def _how_often(delivered: Delivered) -> str:
    if delivered.label is Delivery.REPEAT_ID:
        return f"some may come again, recognisable by {tupled(delivered.id or ())}"
    return "some may come again" if delivered.label is Delivery.REPEAT else ""


def _some(clauses: tuple[str, ...]) -> str:
    more = len(clauses) - REASONS_MAX
    shown = [*clauses[:REASONS_MAX], *([f"{more} more"] if more > 0 else [])]
    return listed(shown)


class _Upstream:
    """The origins before each result, and what is planned there."""

    def __init__(self, plan: Plan) -> None:
        found = plan.analysis.found
        assert found is not None
        self._plan = plan
        self._found = found
        self._graph = found.graph
        self._entries = {(each.component, str(each.path)): each for each in plan.entries}
        self._repairs: dict[str, list[Repair]] = {}
        for item in plan.repairs.items:
            self._repairs.setdefault(item.stream, []).append(item)

    def of(self, number: int) -> _Behind:
        """What lies before the stream."""
        streams, paths = self._before(number)
        causes: dict[str, None] = {}
        names = [self._graph.streams[stream].name for stream in sorted(streams)]
        seals: dict[str, None] = {}
        repairs = {imperative(item): None for name in names for item in self._repairs.get(name, ())}
        for path in sorted(paths):
            component = self._graph.components[self._graph.component_of(path)].name
            declared = self._graph.paths[path]
            crossing = self._crossing(path)
            if crossing is not None and crossing.rule.origin and not crossing.withheld:
                verb = "counts" if declared.annotation.kind.writes else "answers"
                causes[f"{component} {verb} repeats of {declared.source} ({crossing.rule.id})"] = (
                    None
                )
            entry = self._entries.get((component, str(declared)))
            if entry is not None:
                if entry.cause is not None:
                    causes[f"{component} depends on the order of {_inputs(entry)}"] = None
                if entry.strategy is Strategy.SEAL:
                    seals[f"the seal on {tupled(entry.key or ())}"] = None
                elif entry.strategy is Strategy.ORDER:
                    repairs[f"order {component}"] = None
            if declared.nondeterministic is not None:
                causes[f"{component} is not deterministic: {declared.nondeterministic}"] = None
        return _Behind(tuple(causes), tuple(repairs), tuple(seals))

    def _crossing(self, path: int) -> Crossing | None:
        deliveries = self._found.deliveries
        return None if deliveries is None else deliveries.crossings[path]

    def _before(self, number: int) -> tuple[set[int], set[int]]:
        """The streams and paths that the stream is made of, itself included."""
        graph = self._graph
        streams, paths = {number}, set()
        todo = [number]
        while todo:
            output = graph.stream_output[todo.pop()]
            if output < 0:
                continue
            writers = [
                w for g in graph.output_groups.get(output, ()) for w in graph.group_writers[g]
            ]
            for path in (*graph.output_paths[output], *writers):
                paths.add(path)
                for stream in graph.input_streams[graph.path_input[path]]:
                    if stream not in streams:
                        streams.add(stream)
                        todo.append(stream)
        return streams, paths


def _inputs(entry: Entry) -> str:
    return listed(sorted(entry.inputs)) if entry.inputs else entry.path.source
