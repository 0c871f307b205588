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
from blazes.core.deliveries import Delivered
from blazes.core.graph import Cycle, Output, PathEdge, StreamEdge
from blazes.core.rules import BLAZES
from blazes.repairs import Bound, Means, Repair

if TYPE_CHECKING:
    from blazes.core.propagation import Propagation

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
    """The judgement of a stream that leaves the dataflow."""

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
    propagation = plan.analysis.propagation
    assert propagation is not None
    behind = _before_results(plan, propagation)
    for name, stream in plan.analysis.dataflow.streams.items():
        if stream.consumer is None:
            yield _result(plan, stream, behind.get(name, _NOTHING))


def imperative(repair: Repair) -> str:
    """The effect of an item of the plan against repeats, as an imperative."""
    match repair.means:
        case Means.DEDUP:
            by = tupled(repair.id or ())
            return f"de-duplicate {repair.stream} by {by}{_bound(repair.bound)}"
        case Means.UPSERT:
            return f"upsert {repair.stream} by {tupled(repair.id or ())}"
    return f"commit each batch of {repair.stream} together with its number"


def repair_sentence(repair: Repair) -> str:
    """The effect of an item, and why it is there."""
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
    """The kinds of a note before a result."""

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
    unreliable = label > Label.ASYNC or delivered.label is Delivery.CORRUPT
    causes, repairs, seals = (behind[kind] for kind in _Kind)
    if unreliable and causes.first:
        text += f", because {_some(causes)}"
    elif seals.first and not unreliable:
        several = len(seals.first) + seals.more > 1
        text += f", since {_some(seals)} {'are' if several else 'is'} waited for"
    if repairs.first:
        text += f"; {'; then '.join(repairs.first)}"
        text += f"; then {repairs.more} more" if repairs.more else ""
    return Result(stream.name, label, delivered.label, text)


def _how_often(delivered: Delivered) -> str:
    if delivered.label is Delivery.REPEAT_ID:
        return f"some may come again, recognisable by {tupled(delivered.id or ())}"
    return "some may come again" if delivered.label is Delivery.REPEAT else ""


def _some(named: _Said) -> str:
    return listed([*named.first, *([f"{named.more} more"] if named.more else [])])


@dataclass(frozen=True, slots=True)
class _Notes:
    """A set of notes: their numbers, and the first numbers that their texts have, as bits."""

    numbers: int = 0
    texts: int = 0

    def __or__(self, other: _Notes) -> _Notes:
        return _Notes(self.numbers | other.numbers, self.texts | other.texts)


_NONE: Final = _Notes()


class _Noted:
    """The notes at streams and paths, numbered in the order of telling."""

    def __init__(self, plan: Plan, propagation: Propagation) -> None:
        self.texts: list[str] = []
        self._at: dict[StreamEdge | PathEdge, _Notes] = {}
        self._of_kind = dict.fromkeys(_Kind, 0)
        self._first: dict[tuple[_Kind, str], int] = {}
        items: dict[str, list[Repair]] = {}
        for item in plan.repairs.items:
            items.setdefault(item.stream, []).append(item)
        wrong_keys = {left.origin for left in plan.repairs.unrepaired if left.cause == "D14"}
        wrong_keys |= {item.stream for item in plan.repairs.items if item.cause == "D14"}
        for stream in propagation.graph.streams:
            if stream.name in wrong_keys:
                self._add(stream, _Kind.CAUSE, "the key of its sink does not determine a row (D14)")
            for item in items.get(stream.name, ()):
                self._add(stream, _Kind.REPAIR, imperative(item))
        entries = {(entry.component, str(entry.path)): entry for entry in plan.entries}
        for path in propagation.graph.paths:
            for kind, text in _told(propagation, path, entries):
                self._add(path, kind, text)

    def at(self, place: StreamEdge | PathEdge) -> _Notes:
        """The notes at a place."""
        return self._at.get(place, _NONE)

    def _add(self, place: StreamEdge | PathEdge, kind: _Kind, text: str) -> None:
        number = len(self.texts)
        first = self._first.setdefault((kind, text), number)
        self.texts.append(text)
        self._of_kind[kind] |= 1 << number
        self._at[place] = self.at(place) | _Notes(1 << number, 1 << first)

    def texts_of(self, notes: _Notes, kind: _Kind) -> _Said:
        """The texts of some notes, as many as a sentence names."""
        named: dict[str, None] = {}
        rest = notes.numbers & self._of_kind[kind]
        while rest and len(named) < REASONS_MAX:
            lowest = rest & -rest
            named[self.texts[lowest.bit_length() - 1]] = None
            rest ^= lowest
        texts = (notes.texts & self._of_kind[kind]).bit_count()
        return _Said(tuple(named), texts - len(named))


def _told(
    propagation: Propagation, path: PathEdge, entries: Mapping[tuple[str, str], Entry]
) -> Iterator[tuple[_Kind, str]]:
    """The causes, seals and repairs that a path adds to the results behind it."""
    component, declared, deliveries = path.component.name, path.declared, propagation.deliveries
    crossing = None if deliveries is None else deliveries.crossings[path]
    if crossing is not None and crossing.origin:
        verb = "counts" if declared.annotation.kind.writes else "answers"
        cause = f"{component} {verb} repeats of {declared.source} ({crossing.rule.id})"
        yield _Kind.CAUSE, cause
    entry = entries.get((component, str(declared)))
    if entry is not None:
        if entry.cause is not None:
            yield _Kind.CAUSE, f"{component} depends on the order of {_inputs(entry)}"
        if entry.strategy is Strategy.SEAL:
            for key in sorted(map(tupled, set(entry.seals.values()))):
                yield _Kind.SEAL, f"the seal on {key}"
        elif entry.strategy is Strategy.ORDER:
            yield _Kind.REPAIR, f"order {component}"
    if declared.nondeterministic is not None:
        yield _Kind.CAUSE, f"{component} is not deterministic: {declared.nondeterministic}"


def _before_results(plan: Plan, propagation: Propagation) -> Mapping[str, _Behind]:
    """Result -> what is said before it: carried once through the dataflow, as sets of bits."""
    graph, noted = propagation.graph, _Noted(plan, propagation)
    if not noted.texts:
        return {}
    behind: dict[str, _Behind] = {}
    reached: dict[Output, _Notes] = {}
    """The notes before an output, for as long as somebody reads them."""
    entering = {
        output: [stream for path in output.feeding() for stream in path.input.streams]
        for output in graph.outputs()
    }
    readers = Counter(
        stream.producer
        for streams in entering.values()
        for stream in streams
        if stream.producer is not None
    )

    def at(stream: StreamEdge) -> _Notes:
        if stream.producer is None:
            return noted.at(stream)
        return reached.get(stream.producer, _NONE) | noted.at(stream)

    for part in graph.parts:
        outputs = part.outputs if isinstance(part, Cycle) else (part,)
        notes = _NONE
        for output in outputs:
            for path in output.feeding():
                notes |= noted.at(path)
            for stream in entering[output]:
                notes |= at(stream)
        for stream in (s for output in outputs for s in entering[output]):
            if stream.producer is not None:
                readers[stream.producer] -= 1
                if not readers[stream.producer]:
                    reached.pop(stream.producer, None)
        for output in outputs:
            reached[output] = notes
            for stream in output.streams:
                if stream.consumer is None:
                    here = at(stream)
                    behind[stream.name] = {kind: noted.texts_of(here, kind) for kind in _Kind}
            if not readers[output]:
                del reached[output]
    return behind


def _inputs(entry: Entry) -> str:
    return listed(sorted(entry.inputs)) if entry.inputs else entry.path.source
