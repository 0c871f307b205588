"""The context that the rules of the pass share: occurrences of sources, and how facts are noted.

A rule takes the facts about a node's input and says what is known about the node's rows. It notes
an order-sensitive operator with `sensitive`, kept records with `keep`, and looks through every
expression with `look`, which finds what is random, unknown or vouched for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from annotations.dataflow import Position
from annotations.dependencies import closure, within
from annotations.vocabulary import FunctionalDependency, Within
from annotations.whitebox.datatypes import COLLATED, TIMESTAMP, DataType, Family
from annotations.whitebox.derivation import Assumption, Evidence
from annotations.whitebox.facts import Copies, Effect, Facts, Moving, unique
from annotations.whitebox.functions import FUNCTIONS, SPECIAL_TIMES, TIME_OF_DAY, Direction, known
from annotations.whitebox.ir import (
    Call,
    Column,
    Expression,
    Literal,
    Ref,
    Source,
    Unknown,
    references,
    walk,
)
from annotations.whitebox.keys import parts_of, step_of
from annotations.whitebox.monotone import direction, type_of
from annotations.whitebox.words import text_of


@dataclass(frozen=True, slots=True)
class Context:
    """One plan under the pass."""

    names: Mapping[int, Source]
    """Every occurrence of a source, in the order of the plan."""
    mode: str
    lateness: Mapping[str, float]
    fds: tuple[FunctionalDependency, ...]

    def determines(self, classes: Iterable[Copies], occurrences: Iterable[int]) -> bool:
        """True where equal values of the attributes mean the same record of every occurrence."""
        copied = frozenset[tuple[int, str]]().union(*classes)
        for occurrence in occurrences:
            source = self.names[occurrence]
            columns = {column.name for column in source.columns}
            known = (name for number, name in copied if number == occurrence)
            have = closure(known, within(columns, self.fds))
            all_columns = source.complete and have >= columns
            if not all_columns and not any(key <= have for key in source.keys):
                return False
        return True


NOBODY: Final = frozenset[int]()
"""The occurrences whose order matters to what is done to tables."""


def keep(facts: Facts, construct: str, text: str, position: Position | None) -> Facts:
    """The facts where an operator keeps the records it has seen."""
    if not facts.retained:
        return facts
    evidence = Evidence(construct, text, position)
    return replace(facts, stores=unique((*facts.stores, (facts.retained, evidence))))


def effect(
    facts: Facts,
    construct: str,
    text: str,
    position: Position | None,
    *,
    gate: Collection[Copies] | None,
    within: Within = Within.SET,
) -> Effect | None:
    """An order-sensitive operator over these rows; None where no records come any more.

    Of rows of tables only their order is not known, which nothing keeps: the effect has no targets.

    Where requests take part, it is what a request gets to see that depends on the order: the
    effect is theirs, and its partitions are those of what is kept. What depends on the order
    inside a partition depends on the order of what is kept, too, whenever the request comes.
    Behind an operator that leaves rows in any order, no order of the records decides theirs.
    """
    if not facts.live:
        by_order = within is Within.SEQUENCE
        return Effect(construct, text, position, None, NOBODY, NOBODY, within) if by_order else None
    if facts.mixed:
        return Effect(construct, text, position, None, facts.live, facts.live, within)
    if gate is not None:
        gate = (*gate, *facts.pinned)
        if facts.asked:
            gate = [copies for copies in gate if any(o in facts.retained for o, _ in copies)]
    return Effect(
        construct,
        text,
        position,
        None if gate is None else tuple(dict.fromkeys(filter(None, gate))),
        (within is Within.SET and facts.asked) or facts.live,
        facts.live,
        within,
        reordered=facts.reordered if within is Within.SEQUENCE else "",
    )


def sensitive(facts: Facts, *effects: Effect | None) -> Facts:
    """The facts with these effects; one without targets leaves the rows to chance."""
    targeted = tuple(operator for operator in effects if operator is not None and operator.targets)
    chances = tuple(
        (
            NOBODY,
            Evidence(
                "nondeterministic",
                f"{operator.text}; those of a table come in any",
                operator.position,
            ),
        )
        for operator in effects
        if operator is not None and not operator.targets
    )
    return replace(
        facts,
        effects=unique((*facts.effects, *targeted)),
        chances=unique((*facts.chances, *chances)),
    )


def moved(column: Column, way: Direction, *effects: Effect | None) -> dict[Column, Moving]:
    """The column as one that changes; nothing where nothing comes any more."""
    causes = tuple(cause for cause in effects if cause is not None)
    return {column: Moving(way, causes)} if causes else {}


def look(facts: Facts, *expressions: Expression | None) -> Facts:
    """The facts after what is random, unknown or vouched for in the expressions was noted."""
    for expression in expressions:
        for part in walk(expression) if expression is not None else ():
            match part:
                case Unknown(reason=reason, position=position, calls=calls):
                    facts = _unknown(facts, reason, position, chance=calls)
                case Call(user=str(claim), position=position):
                    assumed = Assumption(claim, position)
                    facts = replace(facts, assumptions=unique((*facts.assumptions, assumed)))
                case Call(function=function, position=position) if not known(function):
                    foreign = function not in FUNCTIONS
                    text = f"`{function}` is not a known function"
                    facts = _unknown(facts, text, position, chance=foreign)
                case Call():
                    facts = _chance(facts, part)
    return facts


def _unknown(facts: Facts, reason: str, position: Position | None, *, chance: bool) -> Facts:
    facts = sensitive(facts, _star(facts, "unknown", reason, position))
    evidence = Evidence("unknown", reason, position)
    facts = replace(facts, stores=unique((*facts.stores, (facts.live, evidence))))
    if not chance:
        return facts
    text = f"{reason}, and may give something else each time"
    drawn = Evidence("nondeterministic", text, position)
    return replace(facts, chances=unique((*facts.chances, (facts.live, drawn))))


def _star(facts: Facts, construct: str, text: str, position: Position | None) -> Effect | None:
    star = effect(facts, construct, text, position, gate=None)
    return None if star is None else replace(star, targets=facts.live)


def opaque(facts: Facts, construct: str, text: str, position: Position | None) -> Facts:
    """The facts where nothing is known of what is done to any of the rows."""
    return sensitive(facts, _star(facts, construct, text, position))


def by_key(
    facts: Facts, construct: str, text: str, position: Position | None, keys: Iterable[Expression]
) -> Facts:
    """The same where the rows of each key are by themselves."""
    gate = [copies for key in keys for copies in classes_of(key, facts)]
    one = effect(facts, construct, text, position, gate=gate, within=Within.SEQUENCE)
    return sensitive(facts, one)


def _chance(facts: Facts, call: Call) -> Facts:
    row = FUNCTIONS.get(call.function)
    reason = None if row is None else row.chance
    if row is not None and row.clock and not call.arguments:
        reason = "reads the clock"
    if reads_special_time(call):
        reason = "is a time by the clock"
    if reason is None:
        return _dated(facts, call)
    evidence = Evidence("nondeterministic", f"{text_of(call)} {reason}", call.position)
    return replace(facts, chances=unique((*facts.chances, (facts.live, evidence))))


def _dated(facts: Facts, call: Call) -> Facts:
    """The facts with what is assumed of texts of the records that become timestamps."""
    given = call.function in _WITH_FORMAT and len(call.arguments) > 1
    texts = (Family.STRING, *((Family.UNKNOWN,) if call.function in _CASTING else ()))

    def of_records(argument: Expression) -> bool:
        parts = type_of(argument).parts
        return bool(references(argument)) and any(part.family in texts for part in parts)

    if given or not _takes_times(call, of_records, TIMESTAMP):
        return facts
    text = f"no text in {text_of(call)} is a time of the day alone, which is one of the current day"
    assumed = Assumption(text, call.position)
    return replace(facts, assumptions=unique((*facts.assumptions, assumed)))


def reads_special_time(call: Call) -> bool:
    """Whether a constant text is taken for a time by the clock, or may be (`ts > 'now'`)."""
    return _takes_times(call, _special, None)


def _takes_times(call: Call, text: Callable[[Expression], bool], kind: DataType | None) -> bool:
    """Whether arguments which such texts are become times, of a kind; None: of any, or dates."""
    if not any(map(text, call.arguments)):
        return False
    row = FUNCTIONS.get(call.function)

    def time(type_: DataType) -> bool:
        return type_ == kind if kind is not None else type_.family in _TIMES

    if call.function in _CASTING:
        return any(map(time, call.type.parts))
    types = [type_of(argument) for argument in call.arguments]
    families = {type_.family for type_ in types}
    if call.function in ("concat", "||") and not families & {Family.ARRAY, Family.UNKNOWN}:
        return False  # what is no text becomes one
    if row is not None and row.compares:
        moves = call.function in ("+", "-") and Family.INTERVAL in families
        parts = {type_: [*type_.parts] for type_ in types}  # of arrays and maps, too
        met = [t for t, inner in parts.items() if any(p.family in _TEXT_OR_TIME for p in inner)]
        return moves or (len(met) > 1 and any(time(part) for t in met for part in parts[t]))
    return row is not None and row.takes in ((Family.TIMESTAMP,) if kind else _TAKEN)


_CASTING: Final = frozenset({"cast", "try_cast", "from_json", "from_csv", "from_xml"})
"""Functions to which a type says what becomes of a text."""
_WITH_FORMAT: Final = frozenset({"to_timestamp", "to_timestamp_ltz", "try_to_timestamp"})
"""Functions to which a format says what of a time is in a text."""
_TIMES: Final = (Family.DATE, Family.TIMESTAMP, Family.UNKNOWN)
_TEXT_OR_TIME: Final = (*_TIMES, Family.STRING)
_TAKEN: Final = (Family.DATE, Family.TIMESTAMP)


def _special(expression: Expression) -> bool:
    """A constant text that is, or may be, the name of a time."""
    match expression:
        case Literal(value=str(text)):
            first = (text.lower().split() or [""])[0]
            return first in SPECIAL_TIMES or TIME_OF_DAY.match(text) is not None
        case Call() | Unknown():
            families = {part.family for part in type_of(expression).parts}
            may_be_text = bool(families & {Family.STRING, Family.UNKNOWN})
            return may_be_text and not references(expression) and _has_text(expression)
    return False


def _has_text(expression: Expression) -> bool:
    return any(isinstance(e, Literal) and isinstance(e.value, str) for e in walk(expression))


def use(facts: Facts, *expressions: Expression | None) -> Facts:
    """The facts where the values are used as they are now: whatever moves in them is noted."""
    facts = look(facts, *expressions)
    for expression in expressions:
        columns = [e.column for e in walk(expression) if isinstance(e, Ref)] if expression else ()
        facts = sensitive(facts, *facts.raised(columns))
    return facts


def test(facts: Facts, condition: Expression) -> Facts:
    """The facts where only rows are kept for which a condition is true *now*.

    What moves is noted, unless the condition, once true, stays true.
    """
    way = direction(condition, facts.directions)
    if way in (Direction.CONSTANT, Direction.UP):
        facts = look(facts, condition)
        if way is Direction.UP:
            text = f"`{text_of(condition)}` once true stays true"
            evidence = Evidence("threshold", text, position_of(condition))
            facts = replace(facts, thresholds=unique((*facts.thresholds, (facts.live, evidence))))
        return facts
    return use(facts, condition)


def position_of(expression: Expression) -> Position | None:
    """Where an expression begins, as far as one of its parts knows."""
    own = [getattr(part, "position", None) for part in walk(expression)]
    return min((place for place in own if place is not None), default=None)


def define(facts: Facts, column: Column, expression: Expression, inner: Facts) -> None:
    """Add to `facts` what is known of a new column that is computed from the rows of `inner`."""
    match expression:
        case Ref(column=old):
            facts.copies[column] = inner.copies.get(old, frozenset())
            if old in inner.moving:
                facts.moving[column] = inner.moving[old]
            return
        case Call(function="cast", arguments=(Ref(column=old),), type=target) if (
            target == old.type and target.family is not Family.UNKNOWN
        ):
            facts.copies[column] = inner.copies.get(old, frozenset())
        case _:
            facts.copies[column] = _either(expression, inner)
    read = dict.fromkeys(part.column for part in walk(expression) if isinstance(part, Ref))
    effects = unique(tuple(inner.raised(read)))
    if effects:
        facts.moving[column] = Moving(direction(expression, inner.directions), effects)


def _either(expression: Expression, facts: Facts) -> Copies:
    """The copies of the one of two columns that a row of their full join has, by whose equality it
    joins."""
    match expression:
        case Call(function="coalesce" | "nvl" | "ifnull", arguments=(Ref(one), Ref(other))):
            return facts.either.get(frozenset({one, other}), frozenset())
    return frozenset()


def classes_of(expression: Expression, facts: Facts) -> tuple[Copies, ...]:
    """The gate attributes of grouping by the expression: those on which rows of equal value agree.

    Grouping by what keeps values distinct is grouping by them. Anything else that is computed
    gives no attribute: the gate is then smaller than it could be, and every seal that fits it fits.
    """
    match expression:
        case Ref(column=column):
            copies = facts.copies.get(column)
            return (copies,) if copies and column.type != COLLATED else ()
        case Call() if copies := _either(expression, facts):
            return (copies,) if expression.type != COLLATED else ()
        case Call():
            step = step_of(expression)
            parts = parts_of(expression) if step is None else (step.inner,)
            return tuple(class_ for part in parts for class_ in classes_of(part, facts))
    return ()
