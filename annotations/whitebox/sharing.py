"""Facts about rows that stand in several places of a plan: a CTE that is used again.

The records behind the rows of each place are other occurrences of the sources, so that every
further use doubles them where a CTE joins the one before twice. Most need not be told apart:

- Two occurrences of one source that stand for the same attributes in the same columns are one
  (`condensed`); whatever is asked of the rows later is answered alike for both.
- Of an operator that was met below, only the names of attributes in its gate matter later, unless
  requests come into play: its occurrences become the source's `representative` (`_settled`).

Both leave every later answer as it is. Where more than `OCCURRENCES_MAX` occurrences are left all
the same, those of one source become one, which has only what is true of each (`_widened`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias, TypeVar

from annotations.dataflow import Position
from annotations.whitebox.derivation import Evidence
from annotations.whitebox.facts import Copies, Effect, Facts, Moving, attributes_of, unique
from annotations.whitebox.ir import Column, Relation, Reuse, Role, Source, nodes_of

OCCURRENCES_MAX: Final = 48
"""Occurrences that are told apart in rows that are used again."""

Noted: TypeAlias = tuple[tuple[frozenset[int], Evidence], ...]
Mark: TypeAlias = tuple[int, str | None, float | None, Position | None]
_Change = Callable[[frozenset[int]], frozenset[int]]
_K = TypeVar("_K")


class Occurrences:
    """The occurrences of sources in one plan: those of its nodes, and those of further uses."""

    def __init__(self, plan: Relation) -> None:
        nodes = list(nodes_of(plan))
        self.names: dict[int, Source] = dict(
            enumerate(node for node in nodes if isinstance(node, Source))
        )
        """Occurrence -> its source; grows while the plan is gone through."""
        self.of_nodes: Mapping[int, int] = {
            id(node): occurrence for occurrence, node in self.names.items()
        }
        """Identity of a node -> the occurrence that it is."""
        self.shared: frozenset[int] = frozenset(
            id(node.input) for node in nodes if isinstance(node, Reuse)
        )
        """Identities of the nodes that are used again."""
        self._representatives: dict[str, int] = {}
        sources = list(self.names.values())
        for at, node in enumerate({node.name: node for node in sources}.values(), start=1):
            alike = [source for source in sources if source.name == node.name]
            known = frozenset(column.name for source in alike for column in source.columns)
            columns = tuple(map(Column, sorted(known)))
            self._representatives[node.name] = -at
            complete = all(source.complete for source in alike)
            self.names[-at] = replace(node, columns=columns, complete=complete)
        self.settles = not any(node.role is Role.REQUEST for node in sources) and all(
            not node.complete or _attributes(node) == _attributes(self.representative(node))
            for node in sources
        )
        """Whether nothing but the names of a gate's attributes matters once it is noted."""

    def representative(self, node: Source) -> Source:
        """The source that stands for all occurrences of its name."""
        return self.names[self._representatives[node.name]]

    def represent(self, occurrences: Iterable[int]) -> frozenset[int]:
        """The representatives of the sources behind occurrences."""
        return frozenset(self._representatives[self.names[at].name] for at in occurrences)

    def fresh(self, source: Source) -> int:
        """An occurrence that no other rows have."""
        occurrence = len(self.names)
        self.names[occurrence] = source
        return occurrence


def _attributes(node: Source) -> tuple[bool, frozenset[str]]:
    return node.complete, frozenset(column.name for column in node.columns)


def used_again(node: Reuse, facts: Facts, occurrences: Occurrences) -> Facts:
    """The facts about the rows of `node.input` as those of other records, in other columns."""
    columns = dict(zip(node.input.columns, node.columns, strict=True))
    exchange = {
        occurrence: occurrences.fresh(occurrences.names[occurrence])
        for occurrence in sorted(facts.live | facts.removing)
    }
    return _changed(facts, columns, _by(exchange))


def condensed(facts: Facts, columns: Iterable[Column], occurrences: Occurrences) -> Facts:
    """The facts with as few occurrences as answer every later question alike.

    Args:
        facts: about the rows of a node that is used again.
        columns: of that node; nobody sees another.
        occurrences: of the plan.
    """
    same = {column: column for column in columns}
    facts = _changed(facts, same, lambda several: several)
    if occurrences.settles:
        facts = _settled(facts, occurrences)
    facts = _changed(facts, same, _by(_alike(facts, occurrences)))
    if len(facts.live) <= OCCURRENCES_MAX:
        return facts
    return _widened(facts, same, occurrences)


def _by(exchange: Mapping[int, int]) -> _Change:
    return lambda several: frozenset(exchange.get(occurrence, occurrence) for occurrence in several)


# ---- occurrences that need not be told apart


def _alike(facts: Facts, occurrences: Occurrences) -> Mapping[int, int]:
    """Occurrence -> the first one that it need not be told apart from."""
    roles: dict[int, list[object]] = {occurrence: [] for occurrence in sorted(facts.live)}

    def note(copies: Copies, key: object) -> None:
        for occurrence, attribute in copies:
            if occurrence in roles:
                roles[occurrence].append((key, attribute))

    for column, copies in facts.copies.items():
        note(copies, column)
    for pair, copies in facts.either.items():
        note(copies, pair)
    for at, copies in enumerate(facts.pinned):
        note(copies, ("pinned", at))
    for at, copies in enumerate(facts.linked or ()):
        note(copies, ("linked", at))
    for occurrence, *mark in facts.watermarks:
        if occurrence in roles:
            roles[occurrence].append(tuple(mark))
    parts = _parts_in(_effects(facts))
    leaders: dict[object, list[int]] = {}
    exchange: dict[int, int] = {}
    for occurrence, role in roles.items():
        source = occurrences.names[occurrence]
        key = (
            source.name, source.role, source.step, source.keys, source.repeats, _attributes(source),
            occurrence in facts.asked, occurrence in facts.removing, frozenset(role),
        )  # fmt: skip
        mine = parts.get(occurrence, {})
        for leader in leaders.setdefault(key, []):
            theirs = parts.setdefault(leader, {})
            # An operator sees one of the two only, or both alike.
            if all(theirs.get(effect, part) == part for effect, part in mine.items()):
                theirs |= mine
                exchange[occurrence] = leader
                break
        else:
            leaders[key].append(occurrence)
    return exchange


def _effects(facts: Facts) -> tuple[Effect, ...]:
    moving = (effect for movement in facts.moving.values() for effect in movement.effects)
    return unique((*facts.effects, *facts.awaiting, *moving))


def _parts_in(effects: Iterable[Effect]) -> dict[int, dict[int, object]]:
    """Occurrence -> effect, by place -> how the occurrence takes part in it."""
    parts: dict[int, dict[int, object]] = {}
    for at, effect in enumerate(effects):
        in_gate: dict[int, set[tuple[int, str]]] = {}
        for place, copies in enumerate(effect.gate or ()):
            for occurrence, attribute in copies:
                in_gate.setdefault(occurrence, set()).add((place, attribute))
        for occurrence in in_gate.keys() | effect.targets | effect.under:
            part = (
                occurrence in effect.targets,
                occurrence in effect.under,
                frozenset(in_gate.get(occurrence, ())),
            )
            parts.setdefault(occurrence, {})[at] = part
    return parts


# ---- what no longer changes


def _settled(facts: Facts, occurrences: Occurrences) -> Facts:
    """The facts with representatives for the occurrences that operators below have seen."""

    def settled(effect: Effect) -> Effect:
        seen = effect.under | effect.targets
        return replace(
            effect,
            gate=None if effect.gate is None else _common(effect.gate, seen, occurrences),
            targets=occurrences.represent(effect.targets),
            under=occurrences.represent(effect.under),
        )

    def noted(notes: Noted) -> Noted:
        return unique(tuple((occurrences.represent(seen), text) for seen, text in notes))

    # What is constant in only some occurrences of a source is so in no later gate.
    pinned = tuple(
        frozenset(
            (at, attribute)
            for at in facts.live
            for attribute in attributes_of(
                copies, occurrences.names[at].name, {o: occurrences.names[o] for o in facts.live}
            )
            or ()
        )
        for copies in facts.pinned
    )
    return replace(
        facts,
        effects=unique(tuple(map(settled, facts.effects))),
        awaiting=unique(tuple(map(settled, facts.awaiting))),
        moving={
            column: Moving(movement.direction, unique(tuple(map(settled, movement.effects))))
            for column, movement in facts.moving.items()
        },
        pinned=unique(tuple(filter(None, pinned))),
        stores=noted(facts.stores),
        chances=noted(facts.chances),
        thresholds=noted(facts.thresholds),
    )


def _common(
    gate: Iterable[Copies], seen: Iterable[int], occurrences: Occurrences
) -> tuple[Copies, ...]:
    """The gate with what each class has of every occurrence of a source that an operator saw."""
    names = {occurrence: occurrences.names[occurrence] for occurrence in seen}
    sources = {node.name: node for node in names.values()}
    return unique(
        tuple(
            filter(
                None,
                (
                    frozenset(
                        (next(iter(occurrences.represent(_of(source, names)))), attribute)
                        for source in sources
                        for attribute in attributes_of(copies, source, names) or ()
                    )
                    for copies in gate
                ),
            )
        )
    )


def _of(source: str, names: Mapping[int, Source]) -> Iterable[int]:
    return (occurrence for occurrence, node in names.items() if node.name == source)


def _widened(facts: Facts, columns: Mapping[Column, Column], occurrences: Occurrences) -> Facts:
    """The facts with one occurrence of each source, which has what is true of all of them."""
    facts = _settled(facts, occurrences)
    names = {occurrence: occurrences.names[occurrence] for occurrence in sorted(facts.live)}
    one = {
        source: occurrences.fresh(occurrences.representative(node))
        for source, node in {node.name: node for node in names.values()}.items()
    }

    def common(copies: Copies) -> Copies:
        return frozenset(
            (number, attribute)
            for source, number in one.items()
            for attribute in attributes_of(copies, source, names) or ()
        )

    marked = {(occurrence, attribute) for occurrence, attribute, *_ in facts.watermarks}
    watermarks = tuple(
        (
            occurrence,
            attribute
            if all((other, attribute) in marked for other in _of(names[occurrence].name, names))
            else None,
            delay_s,
            position,
        )
        for occurrence, attribute, delay_s, position in facts.watermarks
    )
    commoned = replace(
        facts,
        copies={column: common(copies) for column, copies in facts.copies.items()},
        either={pair: common(copies) for pair, copies in facts.either.items()},
        pinned=unique(tuple(filter(None, map(common, facts.pinned)))),
        linked=None,
        watermarks=watermarks,
    )
    exchange = {occurrence: one[node.name] for occurrence, node in names.items()}
    return _changed(commoned, columns, _by(exchange))


# ---- other occurrences and other columns


def _changed(facts: Facts, columns: Mapping[Column, Column], change: _Change) -> Facts:
    """The facts with other occurrences, and `columns` in place of their keys; no other columns."""

    def copied(copies: Copies) -> Copies:
        return frozenset(
            (other, attribute)
            for occurrence, attribute in copies
            for other in change(frozenset({occurrence}))
        )

    def effect(old: Effect) -> Effect:
        return replace(
            old,
            gate=None if old.gate is None else unique(tuple(map(copied, old.gate))),
            targets=change(old.targets),
            under=change(old.under),
        )

    def noted(notes: Noted) -> Noted:
        return _folded((change(seen), text) for seen, text in notes)

    def mark(occurrence: int, *rest: object) -> Mark:
        (other,) = change(frozenset({occurrence}))
        return (other, *rest)  # type: ignore[return-value]

    return replace(
        facts,
        live=change(facts.live),
        asked=change(facts.asked),
        removing=change(facts.removing),
        copies={new: copied(facts.copies[old]) for old, new in columns.items()
                if old in facts.copies},
        moving={
            new: Moving(
                facts.moving[old].direction,
                unique(tuple(map(effect, facts.moving[old].effects))),
            )
            for old, new in columns.items()
            if old in facts.moving
        },
        pinned=unique(tuple(map(copied, facts.pinned))),
        effects=unique(tuple(map(effect, facts.effects))),
        stores=noted(facts.stores),
        chances=noted(facts.chances),
        thresholds=noted(facts.thresholds),
        watermarks=unique(tuple(mark(*old) for old in facts.watermarks)),
        either={
            frozenset(columns[column] for column in pair): copied(copies)
            for pair, copies in facts.either.items()
            if pair <= columns.keys()
        },
        awaiting=unique(tuple(map(effect, facts.awaiting))),
        linked=None if facts.linked is None else unique(tuple(map(copied, facts.linked))),
    )  # fmt: skip


def _folded(notes: Iterable[tuple[frozenset[int], Evidence]]) -> Noted:
    """Notes of one text as one; what is said of rows of tables, of no occurrence, stays apart."""
    folded: dict[tuple[bool, Evidence], frozenset[int]] = {}
    for seen, text in notes:
        folded[bool(seen), text] = folded.get((bool(seen), text), frozenset()) | seen
    return tuple((seen, text) for (_, text), seen in folded.items())
