"""One sentence for each result: what may differ, how often rows come, why, and what repairs it."""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from annotations.dataflow import Stream
from annotations.phrases import listed, tupled
from annotations.vocabulary import Delivery, Label
from blazes.coordination import Entry, Plan, Strategy
from blazes.deliveries import Delivered
from blazes.repairs import Bound, Means, Repair
from blazes.rules import BLAZES

if TYPE_CHECKING:
    from blazes.graph import Graph
    from blazes.propagation import Propagation

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
    found = plan.analysis.found
    assert found is not None
    behind = _before_results(plan, found)
    for number, stream in enumerate(plan.analysis.dataflow.streams.values()):
        if stream.consumer is None:
            yield _result(plan, stream, behind.get(number, _NOTHING))


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


class _Kind(enum.Enum):
    """What a note before a result is."""

    CAUSE = enum.auto()
    """`Count counts repeats of clicks (D4)`"""
    REPAIR = enum.auto()
    """`order Count`"""
    SEAL = enum.auto()
    """`the seal on campaign`"""


@dataclass(frozen=True, slots=True)
class _Said:
    """The notes of one kind before a result, without repetition."""

    first: tuple[str, ...] = ()
    """As many as are named, in the order of the dataflow."""
    more: int = 0


_Behind: TypeAlias = Mapping[_Kind, _Said]
_NOTHING: Final[_Behind] = dict.fromkeys(_Kind, _Said())


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
    causes, repairs, seals = (behind[kind] for kind in _Kind)
    if wrong and causes.first:
        text += f", because {_some(causes)}"
    elif seals.first:
        text += f", since {_some(seals)} is waited for"
    if repairs.first:
        text += f"; {'; then '.join(repairs.first)}"
        text += f"; then {repairs.more} more" if repairs.more else ""
    return Result(stream.name, label, delivered.label, text)


def _how_often(delivered: Delivered) -> str:
    if delivered.label is Delivery.REPEAT_ID:
        return f"some may come again, recognisable by {tupled(delivered.id or ())}"
    return "some may come again" if delivered.label is Delivery.REPEAT else ""


def _some(said: _Said) -> str:
    return listed([*said.first, *([f"{said.more} more"] if said.more else [])])


@dataclass(frozen=True, slots=True)
class _Notes:
    """A set of notes: their numbers, and the first numbers that their texts have, as bits."""

    numbers: int = 0
    texts: int = 0

    def __or__(self, other: _Notes) -> _Notes:
        return _Notes(self.numbers | other.numbers, self.texts | other.texts)


_NONE: Final = _Notes()


class _Noted:
    """What is said at streams and paths, numbered in the order of telling."""

    def __init__(self, plan: Plan, found: Propagation) -> None:
        self.texts: list[str] = []
        self.at_stream: dict[int, _Notes] = {}
        self.at_path: dict[int, _Notes] = {}
        self._of_kind = dict.fromkeys(_Kind, 0)
        self._first: dict[tuple[_Kind, str], int] = {}
        items: dict[str, list[Repair]] = {}
        for item in plan.repairs.items:
            items.setdefault(item.stream, []).append(item)
        for number, stream in enumerate(found.graph.streams):
            for item in items.get(stream.name, ()):
                self._add(self.at_stream, number, _Kind.REPAIR, imperative(item))
        entries = {(each.component, str(each.path)): each for each in plan.entries}
        for path in range(len(found.graph.paths)):
            for kind, text in _told(found, path, entries):
                self._add(self.at_path, path, kind, text)

    def _add(self, at: dict[int, _Notes], place: int, kind: _Kind, text: str) -> None:
        number = len(self.texts)
        first = self._first.setdefault((kind, text), number)
        self.texts.append(text)
        self._of_kind[kind] |= 1 << number
        at[place] = at.get(place, _NONE) | _Notes(1 << number, 1 << first)

    def said(self, notes: _Notes, kind: _Kind) -> _Said:
        """What is named of some notes."""
        named: dict[str, None] = {}
        rest = notes.numbers & self._of_kind[kind]
        while rest and len(named) < REASONS_MAX:
            lowest = rest & -rest
            named[self.texts[lowest.bit_length() - 1]] = None
            rest ^= lowest
        texts = (notes.texts & self._of_kind[kind]).bit_count()
        return _Said(tuple(named), texts - len(named))


def _told(
    found: Propagation, path: int, entries: Mapping[tuple[str, str], Entry]
) -> Iterator[tuple[_Kind, str]]:
    """What a path adds to the causes, seals and repairs of the results behind it."""
    graph = found.graph
    component, declared = graph.components[graph.component_of(path)].name, graph.paths[path]
    crossing = None if found.deliveries is None else found.deliveries.crossings[path]
    if crossing is not None and crossing.origin:
        verb = "counts" if declared.annotation.kind.writes else "answers"
        said = f"{component} {verb} repeats of {declared.source} ({crossing.rule.id})"
        yield _Kind.CAUSE, said
    entry = entries.get((component, str(declared)))
    if entry is not None:
        if entry.cause is not None:
            yield _Kind.CAUSE, f"{component} depends on the order of {_inputs(entry)}"
        if entry.strategy is Strategy.SEAL:
            yield _Kind.SEAL, f"the seal on {tupled(entry.key or ())}"
        elif entry.strategy is Strategy.ORDER:
            yield _Kind.REPAIR, f"order {component}"
    if declared.nondeterministic is not None:
        yield _Kind.CAUSE, f"{component} is not deterministic: {declared.nondeterministic}"


def _before_results(plan: Plan, found: Propagation) -> Mapping[int, _Behind]:
    """Result -> what is said before it: carried once through the dataflow, as sets of bits."""
    graph, noted = found.graph, _Noted(plan, found)
    if not noted.texts:
        return {}
    behind: dict[int, _Behind] = {}
    reached: dict[int, _Notes] = {}
    """Output -> the notes before it, for as long as somebody reads them."""
    entering = [
        [stream for path in graph.feeding(output) for stream in _streams_of(graph, path)]
        for output in range(len(graph.output_paths))
    ]
    readers = Counter(graph.stream_output[s] for streams in entering for s in streams)

    def at(stream: int) -> _Notes:
        before = reached.get(graph.stream_output[stream], _NONE)
        return before | noted.at_stream.get(stream, _NONE)

    for item in graph.order:
        outputs = [item] if isinstance(item, int) else sorted(item.outputs)
        notes = _NONE
        for output in outputs:
            for path in graph.feeding(output):
                notes |= noted.at_path.get(path, _NONE)
            for stream in entering[output]:
                notes |= at(stream)
        for stream in (s for output in outputs for s in entering[output]):
            producer = graph.stream_output[stream]
            readers[producer] -= 1
            if not readers[producer]:
                reached.pop(producer, None)
        for output in outputs:
            reached[output] = notes
            for stream in graph.output_streams[output]:
                if graph.stream_input[stream] < 0:
                    here = at(stream)
                    behind[stream] = {kind: noted.said(here, kind) for kind in _Kind}
            if not readers[output]:
                del reached[output]
    return behind


def _streams_of(graph: Graph, path: int) -> list[int]:
    return graph.input_streams[graph.path_input[path]]


def _inputs(entry: Entry) -> str:
    return listed(sorted(entry.inputs)) if entry.inputs else entry.path.source
