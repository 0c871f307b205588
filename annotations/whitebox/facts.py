"""The facts about the rows of a node: lineage, what moves, what depends on the order.

Lineage is kept by *occurrence* of a source, not by its name: where an input is read twice, a row
comes from two of its records, and a group of rows lies in one partition of the input only where
both records agree on the attribute. `names_of` is the one place that turns lineage into names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

from annotations.dataflow import Position
from annotations.vocabulary import Gate, Within
from annotations.whitebox.derivation import Assumption, Evidence
from annotations.whitebox.functions import Direction
from annotations.whitebox.ir import Column, Source

_T = TypeVar("_T")

Copies: TypeAlias = frozenset[tuple[int, str]]
"""(occurrence, attribute): where a record of the occurrence takes part in a row, the row has the
record's attribute unchanged."""


@dataclass(frozen=True, slots=True)
class Effect:
    """Something order-sensitive that is done to rows."""

    construct: str
    text: str
    position: Position | None
    gate: tuple[Copies, ...] | None
    """What its partitions agree on; None: unknown (`*`); empty: all rows are one partition."""
    targets: frozenset[int]
    """Occurrences whose order it depends on."""
    under: frozenset[int]
    """Occurrences whose records it sees."""
    within: Within = Within.SET
    state: bool = False
    """True where it is done to what is kept, whoever asks for it and when."""
    reordered: str = ""
    """What leaves the rows in an order that follows from no order of records, if it depends on
    theirs."""


@dataclass(frozen=True, slots=True)
class Moving:
    """A column whose value may change, and what using it otherwise than by its direction does."""

    direction: Direction
    effects: tuple[Effect, ...]


@dataclass(slots=True)
class Facts:
    """The facts about the rows of one node. Made anew for each node, then not changed."""

    live: frozenset[int] = frozenset()
    """Occurrences of streams and requests: records still come."""
    asked: frozenset[int] = frozenset()
    """Those of them of which nothing is kept."""
    copies: dict[Column, Copies] = field(default_factory=dict)
    moving: dict[Column, Moving] = field(default_factory=dict)
    fixed: bool = True
    """True where there may be rows in which no record of a stream takes part."""
    removing: frozenset[int] = frozenset()
    """Occurrences whose records only take rows away, and are part of none."""
    pinned: tuple[Copies, ...] = ()
    """Attributes that have one constant value in every record that matters."""
    effects: tuple[Effect, ...] = ()
    stores: tuple[tuple[frozenset[int], Evidence], ...] = ()
    """What keeps records of which occurrences."""
    chances: tuple[tuple[frozenset[int], Evidence], ...] = ()
    """Nondeterministic expressions, with the occurrences whose rows they are computed for; none:
    for rows of tables, and so for whatever they meet."""
    watermarks: tuple[tuple[int, str | None, float | None, Position | None], ...] = ()
    """(occurrence, its attribute if the column is an unchanged copy of one, delay in seconds)."""
    either: Mapping[frozenset[Column], Copies] = field(default_factory=dict)
    """Columns of which at least one is there (a full join), and what their COALESCE copies."""
    mixed: bool = False
    """True where some rows answer requests and others come by themselves."""
    awaiting: tuple[Effect, ...] = ()
    """Requests that may be too early for what they ask for. One that gets no answer asks again;
    where the answers are kept, which of them found something is kept too."""
    linked: tuple[Copies, ...] | None = None
    """Where requests only choose which kept rows are there, and whole groups of them: what they
    choose by. None: a request's own attributes may be among the columns."""
    mutable: tuple[tuple[str, Position | None], ...] = ()
    """Tables that somebody may change while the job runs."""
    reordered: str = ""
    """The operator below that leaves the rows in any order, whatever that of the records is: Spark
    moves rows between tasks for it, and fetches them as they come."""
    repeats: str | None = None
    """Why a row may come twice."""
    again: str | None = None
    """Why a row may leave twice in update mode."""
    thresholds: tuple[tuple[frozenset[int], Evidence], ...] = ()
    """Conditions that only become true."""
    assumptions: tuple[Assumption, ...] = ()
    notes: tuple[Evidence, ...] = ()

    @property
    def retained(self) -> frozenset[int]:
        """Live occurrences whose records may be kept."""
        return self.live - self.asked

    @property
    def directions(self) -> Mapping[Column, Direction]:
        """How the columns move."""
        return {column: moving.direction for column, moving in self.moving.items()}

    def raised(self, columns: Iterable[Column]) -> Iterator[Effect]:
        """The effects of using these columns as they are now."""
        for column in columns:
            if column in self.moving:
                yield from self.moving[column].effects


def both(several: Iterable[Facts]) -> Facts:
    """The facts where rows of all of these take part."""
    combined = Facts()
    for facts in several:
        combined.live |= facts.live
        combined.fixed = combined.fixed and facts.fixed
        combined.asked |= facts.asked
        combined.removing |= facts.removing
        combined.copies |= facts.copies
        combined.moving |= facts.moving
        combined.pinned = unique((*combined.pinned, *facts.pinned))
        combined.effects = unique((*combined.effects, *facts.effects))
        combined.awaiting = unique((*combined.awaiting, *facts.awaiting))
        combined.stores = unique((*combined.stores, *facts.stores))
        combined.chances = unique((*combined.chances, *facts.chances))
        combined.watermarks = unique((*combined.watermarks, *facts.watermarks))
        combined.thresholds = unique((*combined.thresholds, *facts.thresholds))
        combined.assumptions = unique((*combined.assumptions, *facts.assumptions))
        combined.notes = unique((*combined.notes, *facts.notes))
        combined.either = {**combined.either, **facts.either}
        combined.mixed = combined.mixed or facts.mixed
        combined.mutable = unique((*combined.mutable, *facts.mutable))
        combined.reordered = combined.reordered or facts.reordered
        combined.repeats = combined.repeats or facts.repeats
        combined.again = combined.again or facts.again
    return combined


def unique(items: tuple[_T, ...]) -> tuple[_T, ...]:
    """Without repetition, in the order of the first."""
    return tuple(dict.fromkeys(items))


def retargeted(
    facts: Facts, targets: frozenset[int], asked: Collection[tuple[Copies, Copies]] = ()
) -> Facts:
    """The same rows where they are only seen by asking: the order of `targets` matters then.

    `asked` are attributes of the kept rows with those of the requests that are equal to them: a
    request that names a partition asks about that one.
    """
    return replace(
        facts,
        effects=tuple(_asked(effect, targets, asked) for effect in facts.effects),
        moving={
            column: Moving(
                movement.direction, tuple(_asked(e, targets, asked) for e in movement.effects)
            )
            for column, movement in facts.moving.items()
        },
    )


def _asked(
    effect: Effect, targets: frozenset[int], asked: Collection[tuple[Copies, Copies]]
) -> Effect:
    if not effect.targets:
        return effect
    gate = effect.gate
    if gate is not None:
        gate = tuple(
            copies.union(*(request for stored, request in asked if copies & stored))
            for copies in gate
        )
    if effect.state or effect.within is Within.SEQUENCE:
        targets |= effect.targets
    return replace(effect, targets=targets, gate=gate)


def attributes_of(
    copies: Copies, source: str, names: Mapping[int, Source]
) -> frozenset[str] | None:
    """The attributes of a source that a value copies, in every occurrence of it among `names`.

    None where the source does not occur there.
    """
    attributes: frozenset[str] | None = None
    for occurrence, node in names.items():
        if node.name == source:
            here = frozenset(name for number, name in copies if number == occurrence)
            attributes = here if attributes is None else attributes & here
    return attributes


def names_of(classes: Collection[Copies], names: Mapping[int, Source]) -> frozenset[str]:
    """The names of a gate's attributes in the streams that are read at `names`.

    A name counts only where every source that has an attribute of that name means this one by it:
    a stream may be sealed on an attribute that is merely called the same.
    """
    sources = {node.name for node in names.values()}
    known = {
        source: frozenset(
            column.name for node in names.values() if node.name == source for column in node.columns
        )
        for source in sources
    }
    complete = {
        source: all(node.complete for node in names.values() if node.name == source)
        for source in sources
    }
    attributes: set[str] = set()
    for copies in classes:
        meant = {source: attributes_of(copies, source, names) or frozenset() for source in sources}
        for name in frozenset[str]().union(*meant.values()):
            if all(
                name in meant[source] or (complete[source] and name not in known[source])
                for source in sources
            ):
                attributes.add(name)
    return frozenset(attributes)


def gate_of(effect: Effect, names: Mapping[int, Source]) -> Gate:
    """The effect's gate by the names of attributes; `names` has every occurrence."""
    if effect.gate is None:
        return Gate(None)
    seen = {occurrence: names[occurrence] for occurrence in effect.under | effect.targets}
    return Gate(names_of(effect.gate, seen))
