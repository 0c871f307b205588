"""Rules for what puts several inputs together: joins, set operations, unions, deletions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from annotations.vocabulary import Within
from annotations.whitebox.context import Context, effect, keep, look, moved, sensitive, use
from annotations.whitebox.context import test as test_now
from annotations.whitebox.facts import Copies, Facts, Moving, both, retargeted, unique
from annotations.whitebox.functions import Direction
from annotations.whitebox.grouping import late
from annotations.whitebox.ir import (
    Call,
    Column,
    Delete,
    Expression,
    Filter,
    Join,
    JoinKind,
    Literal,
    Project,
    Ref,
    Relation,
    Reuse,
    SetKind,
    SetOperation,
    Sort,
    Source,
    Union,
    nodes_of,
)
from annotations.whitebox.keys import same_value
from annotations.whitebox.monotone import may_be_null, together, type_of


def join(context: Context, node: Join, left: Facts, right: Facts) -> Facts:
    """Pairs of rows (rows 5 to 8 and 22 of the constructs)."""
    equal = [pair for pair in equalities(node.condition) if _across(node, pair)]
    left, right = _by_asking(left, right, equal)
    facts = both((left, right))
    stateful = bool(left.live and right.live)
    if stateful:
        text = f"rows wait for their partners in the {_called(node)}"
        facts = keep(facts, "join", text, node.position)
        if not _same_request(context, node, left, right, equal):
            facts = _requests_meet(node, facts, left, right)
    for condition in conjuncts(node.condition):
        facts = test_now(facts, condition)
    theta = _theta(equal, facts)
    if stateful:
        facts = late(context, facts, theta)
    facts = _absence(node, facts, left, right, theta)
    facts.linked = _linked(node, left, right, equal)
    if node.kind is not JoinKind.INNER and not left.live and right.live and not right.stores:
        facts.again = "a row of a table leaves again with each micro-batch that has its partner"
    if node.kind in (JoinKind.LEFT, JoinKind.ANTI):
        facts.fixed = left.fixed
    elif node.kind is JoinKind.FULL:
        facts.fixed = left.fixed or right.fixed
    if stateful and bool(left.asked) != bool(right.asked):
        text = "which requests find a partner in time is kept"
        within = Within.SEQUENCE
        early = effect(facts, "requests", text, node.position, gate=theta, within=within)
        if early is not None:
            early = replace(early, targets=facts.asked, reordered="")
            facts.awaiting = unique((*facts.awaiting, early))
    return _columns(node, facts, left, right, equal)


def _across(node: Join, pair: tuple[Column, Column]) -> bool:
    return (pair[0] in node.left.columns) != (pair[1] in node.left.columns)


def _called(node: Join) -> str:
    return f"{node.kind.value} join"


def _by_asking(
    left: Facts, right: Facts, equal: Collection[tuple[Column, Column]] = ()
) -> tuple[Facts, Facts]:
    """Both sides, where one only asks for what the other keeps: its order matters to requests."""
    if left.asked and right.live and not right.asked:
        right = retargeted(right, left.asked, _named_by(left, right, equal))
    elif right.asked and left.live and not left.asked:
        left = retargeted(left, right.asked, _named_by(right, left, equal))
    return left, right


def _named_by(
    asking: Facts, stored: Facts, equal: Collection[tuple[Column, Column]]
) -> tuple[tuple[Copies, Copies], ...]:
    """Pairs of copies that are equal: of the kept rows, and of a request."""
    pairs = []
    for pair in equal:
        for one, other in (pair, pair[::-1]):
            if one in stored.copies and asking.copies.get(other):
                pairs.append((stored.copies[one], asking.copies[other]))
    return tuple(pairs)


def _linked(
    node: Join, left: Facts, right: Facts, equal: Collection[tuple[Column, Column]]
) -> tuple[Copies, ...] | None:
    """The copies by which requests choose kept rows, if they do nothing else (`Facts.linked`).

    All requests choose: the right side is an input as it came, and only equalities decide.
    """
    plain = _as_it_came(node.right)
    only = all(
        isinstance(part, Call) and part.function in ("=", "==", "<=>")
        for part in conjuncts(node.condition)
    )
    if node.kind is not JoinKind.SEMI or not right.asked or left.asked or not plain or not only:
        return None
    if len(equal) != len(list(conjuncts(node.condition))):
        return None
    copies = merged(both((left, right)), equal)
    return unique(tuple(copies[one] for one, _ in equal))


def _as_it_came(node: Relation) -> bool:
    """True for an input, with its columns in whatever order."""
    while isinstance(node, Project | Reuse):
        if isinstance(node, Project) and not all(isinstance(e, Ref) for _, e in node.outputs):
            return False
        node = node.input
    return isinstance(node, Source)


def _same_request(
    context: Context,
    node: Join,
    left: Facts,
    right: Facts,
    equal: Collection[tuple[Column, Column]],
) -> bool:
    """True where each request meets itself, so that it does not matter which others came with it.

    Either the two sides are the same request, by its key; or one side's rows were chosen by all
    requests of a value, and the other side is those requests.
    """
    sources = {
        (context.names[occurrence].name, context.names[occurrence].step)
        for occurrence in left.asked
    }
    others = {
        (context.names[occurrence].name, context.names[occurrence].step)
        for occurrence in right.asked
    }
    if sources != others or len(sources) != 1 or next(iter(sources))[1] is None:
        return False
    if left.mixed or right.mixed:
        return False
    copies = merged(both((left, right)), equal)
    classes = [copies[column] for pair in equal for column in pair]
    if context.determines(classes, left.asked | right.asked) and _one_key(
        context, equal, left, right
    ):
        return True
    for linked, asking, side in (
        (left, right, node.right),
        (right, left, node.left),
    ):
        if linked.linked is not None and _as_it_came(side):
            return all(_asks_by(choice, linked, asking, equal) for choice in linked.linked)
    return False


def _one_key(
    context: Context, equal: Collection[tuple[Column, Column]], left: Facts, right: Facts
) -> bool:
    """True where the pairs make the two sides agree, attribute by attribute, on a key."""
    agreed: set[str] = set()
    for pair in equal:
        for one, other in (pair, pair[::-1]):
            mine = {
                name for occurrence, name in left.copies.get(one, ()) if occurrence in left.asked
            }
            theirs = {
                name
                for occurrence, name in right.copies.get(other, ())
                if occurrence in right.asked
            }
            agreed |= mine & theirs
    sources = [context.names[occurrence] for occurrence in left.asked | right.asked]
    return all(
        any(key <= agreed for key in source.keys)
        or (source.complete and agreed >= {column.name for column in source.columns})
        for source in sources
    )


def _asks_by(
    choice: Copies, linked: Facts, asking: Facts, equal: Collection[tuple[Column, Column]]
) -> bool:
    """True where a request asks for the rows of just the value that it chose them by."""
    chosen = {name for occurrence, name in choice if occurrence in linked.asked}
    for pair in equal:
        for one, other in (pair, pair[::-1]):
            copied = linked.copies.get(one)
            if copied is None or other not in asking.copies:
                continue
            mine = {name for occurrence, name in asking.copies[other] if occurrence in asking.asked}
            if choice <= copied and mine & chosen:
                return True
    return False


def _requests_meet(node: Join, facts: Facts, left: Facts, right: Facts) -> Facts:
    if not (left.asked and right.asked):
        return facts
    text = "requests are joined with requests, which meet only if they come at the same time"
    return sensitive(facts, effect(facts, "requests", text, node.position, gate=None))


def conjuncts(condition: Expression | None) -> Iterator[Expression]:
    """The parts of a condition that all have to hold."""
    match condition:
        case None:
            return
        case Call(function="and", arguments=arguments):
            for argument in arguments:
                yield from conjuncts(argument)
        case _:
            yield condition


def equalities(condition: Expression | None) -> Iterator[tuple[Column, Column]]:
    """Columns that the condition makes equal, and that then hold the same value."""
    for one, other in equated(conjuncts(condition)):
        if isinstance(one, Ref) and isinstance(other, Ref) and one.column is not other.column:
            yield one.column, other.column


def constants(condition: Expression | None) -> Iterator[Column]:
    """Columns that the condition makes equal to a constant, and that hold one value then."""
    for one, other in equated(conjuncts(condition)):
        for column, constant in ((one, other), (other, one)):
            if isinstance(column, Ref) and isinstance(constant, Literal):
                yield column.column


def equated(conditions: Iterable[Expression]) -> Iterator[tuple[Expression, Expression]]:
    """The sides of the equalities of which equal values are the same."""
    for part in conditions:
        match part:
            case Call(function="=" | "==" | "<=>", arguments=(one, other), user=None):
                if same_value(type_of(one), type_of(other)):
                    yield one, other


def merged(facts: Facts, equal: Collection[tuple[Column, Column]]) -> dict[Column, Copies]:
    """Lineage where these columns are equal in every row: each is a copy of what the others are."""
    groups: dict[Column, set[Column]] = {}
    for one, other in equal:
        together_ = groups.get(one, {one}) | groups.get(other, {other})
        for column in together_:
            groups[column] = together_
    copies = dict(facts.copies)
    for column, group in groups.items():
        copies[column] = frozenset[tuple[int, str]]().union(
            *(facts.copies.get(member, frozenset()) for member in group)
        )
    return copies


def _theta(equal: Collection[tuple[Column, Column]], facts: Facts) -> tuple[Copies, ...]:
    """Gate attributes of a join: the columns that its condition makes equal.

    Other conditions of the join leave each row with partners in several partitions.
    """
    copies = merged(facts, equal)
    return unique(tuple(copies[column] for pair in equal for column in pair if copies[column]))


def _absence(
    node: Join, facts: Facts, left: Facts, right: Facts, theta: tuple[Copies, ...]
) -> Facts:
    """Rows that are there because no partner is: one may still come (rows 6 to 8)."""
    tests = {
        JoinKind.LEFT: bool(right.live),
        JoinKind.ANTI: bool(right.live),
        JoinKind.FULL: bool(left.live or right.live),
    }
    if not tests.get(node.kind, False):
        return facts
    text = f"the {_called(node)} shows that a partner is missing, which may still come"
    gate: Collection[Copies] | None = theta
    construct = "antijoin" if node.kind is JoinKind.ANTI else "outer-join"
    if node.null_aware and _nullable(node):
        gate, construct = _theta(_tied(node), facts), "not-in-null"
        text = "one NULL anywhere in the subquery empties the answer of NOT IN"
    either_asks = bool(left.asked or right.asked)
    if either_asks if node.kind is JoinKind.FULL else right.asked and not left.asked:
        gate, text = None, "the rows depend on which requests have come"
    return sensitive(facts, effect(facts, construct, text, node.position, gate=gate))


_COMPARISONS: Final = ("=", "==", "<", "<=", ">", ">=", "<>", "!=")
_OF_THE_FIRST: Final = ("is not null", "between", "in")


def asks_for(column: Column, condition: Expression) -> bool:
    """Whether a condition is met only by rows in which a column is not NULL."""
    match condition:
        case Call(function=name, arguments=arguments, user=None):
            asked = arguments if name in _COMPARISONS else arguments[:1]
            return name in _COMPARISONS + _OF_THE_FIRST and Ref(column) in asked
    return False


def asks_for_partners(node: Join, conditions: Iterable[Expression]) -> bool:
    """Whether conditions are met by no row of a left join that has no partner (SP-5)."""
    return any(asks_for(column, term) for term in conditions for column in node.right.columns)


def inner_joins(plan: Relation) -> Iterator[int]:
    """The identities of left joins of which only rows with a partner are used: inner joins."""
    again = [nodes_of(node.input) for node in nodes_of(plan) if isinstance(node, Reuse)]
    shared = {id(node) for nodes in again for node in nodes}
    for asking in nodes_of(plan):
        if not isinstance(asking, Filter | Join):
            continue
        terms = list(conjuncts(asking.condition))
        todo = [asking.input] if isinstance(asking, Filter) else _needed(asking)
        while todo:
            match todo.pop():
                case Filter(input=below) | Sort(input=below):
                    todo.append(below)
                case Join() as join:
                    todo += _needed(join)
                    if join.kind is JoinKind.LEFT:
                        if id(join) not in shared and asks_for_partners(join, terms):
                            yield id(join)
                        todo.append(join.left)


def _needed(node: Join) -> list[Relation]:
    """The sides of a join to which its condition is a condition on what they give."""
    one = [node.left, node.right] if node.kind is JoinKind.INNER else []
    return [node.left] if node.kind is JoinKind.SEMI else one


def _tied(node: Join) -> list[tuple[Column, Column]]:
    """The columns that a condition of NOT IN makes equal beside the values that are compared."""
    terms = islice(conjuncts(node.condition), node.null_aware, None)
    return [pair for term in terms for pair in equalities(term) if _across(node, pair)]


def _nullable(node: Join) -> bool:
    """True where a value that NOT IN compares may be NULL, or become NULL when it is compared."""
    return any(map(_may_be_null, islice(conjuncts(node.condition), node.null_aware)))


def _may_be_null(condition: Expression) -> bool:
    if not isinstance(condition, Call):
        return True
    types = [type_of(argument) for argument in condition.arguments]
    return any(map(may_be_null, condition.arguments)) or not same_value(types[0], types[-1])


def _columns(
    node: Join,
    facts: Facts,
    left: Facts,
    right: Facts,
    equal: Collection[tuple[Column, Column]],
) -> Facts:
    copies = merged(facts, equal)
    if node.kind in (JoinKind.LEFT, JoinKind.ANTI):
        # A row without a partner: two of its columns need not agree because one of the other
        # side's would have to be equal to both. Only records that equal it could take it away.
        if node.null_aware and _nullable(node):
            equal = _tied(node)
        partners = merged(replace(facts, copies=right.copies), equal)
        alone = left.copies.items()
        copies |= {column: own | partners.get(column, frozenset()) for column, own in alone}
    padded: tuple[Column, ...] = ()
    if node.kind in (JoinKind.LEFT, JoinKind.FULL):
        padded = node.right.columns
    if node.kind is JoinKind.FULL:
        padded += node.left.columns
    # A padded column is NULL where its side has no row, whatever the rows of that side say.
    copies |= dict.fromkeys(padded, frozenset())
    visible = set(node.columns)
    either = facts.either
    if node.kind is JoinKind.FULL:
        none = frozenset[tuple[int, str]]()
        known = facts.copies
        pairs = {
            frozenset(pair): known.get(pair[0], none) | known.get(pair[1], none) for pair in equal
        }
        either = {**either, **pairs}
    return replace(
        facts,
        either=either,
        copies={column: copied for column, copied in copies.items() if column in visible},
        moving={column: movement for column, movement in facts.moving.items() if column in visible},
    )


def set_operation(context: Context, node: SetOperation, left: Facts, right: Facts) -> Facts:
    """EXCEPT and INTERSECT: rows match on every column."""
    left, right = _by_asking(left, right)
    facts = both((left, right))
    facts = use(facts, *map(Ref, (*node.left.columns, *node.right.columns)))
    name = node.kind.value.upper()
    facts = keep(facts, "set-operation", f"rows are kept for {name}", node.position)
    pairs = list(zip(node.left.columns, node.right.columns, strict=False))
    same = [(one, other) for one, other in pairs if same_value(one.type, other.type)]
    facts = look(facts, *(Call("=", (Ref(one), Ref(other))) for one, other in pairs))
    equal = merged(facts, same)
    classes = unique(tuple(equal[one] for one, _ in same if equal.get(one)))
    facts = late(context, facts, classes)
    if node.kind is SetKind.EXCEPT and right.live:
        gate = None if right.asked else classes
        text = "EXCEPT shows that a row is missing on the right, which may still come"
        facts = sensitive(facts, effect(facts, "antijoin", text, node.position, gate=gate))
    elif left.asked and right.asked:
        text = "requests are compared with requests, which meet only if they come together"
        facts = sensitive(facts, effect(facts, "requests", text, node.position, gate=None))
    both_sides = node.kind is SetKind.INTERSECT
    # A column of another type on the other side is cast to what both can be.
    matched = {one for one, _ in same}
    copies = {
        column: (equal if both_sides else left.copies).get(one, frozenset())
        if one in matched
        else frozenset[tuple[int, str]]()
        for column, (one, _) in zip(node.columns, pairs, strict=False)
    }
    moving: dict[Column, Moving] = {}
    for column, sides in zip(node.columns, pairs, strict=False):
        if any(side.type.collated for side in sides):
            text = f"`{column.name}` is shown as the row that comes first writes it"
            gate = None if facts.asked else classes
            shown = effect(
                facts, "first-row", text, node.position, gate=gate, within=Within.SEQUENCE
            )
            moving |= moved(column, Direction.ANY, shown)
            copies[column] = frozenset()
    repeats = facts.repeats if node.all else None
    fixed = left.fixed and (right.fixed or not both_sides)
    return replace(facts, copies=copies, moving=moving, fixed=fixed, repeats=repeats, again=None)


def union(context: Context, node: Union, several: list[Facts]) -> Facts:
    """All rows of all inputs: a row comes from one of them."""
    facts = both(several)
    copies: dict[Column, Copies] = {}
    moving: dict[Column, Moving] = {}
    for at, column in enumerate(node.columns):
        old = [branch.columns[at] for branch in node.inputs if at < len(branch.columns)]
        alike = all(same_value(part.type, old[0].type) for part in old)
        facts = look(facts, *(Call("=", (Ref(old[0]), Ref(part))) for part in old[1:]))
        copies[column] = frozenset[tuple[int, str]]().union(
            *(facts.copies.get(part, frozenset()) for part in old if alike)
        )
        effects = unique(tuple(facts.raised(old)))
        if effects:
            ways = [facts.moving[part].direction for part in old if part in facts.moving]
            moving |= moved(column, together(ways), *effects)
    facts.fixed = any(rows.fixed for rows in several)
    mixed = facts.mixed or (bool(facts.asked) and any(e.live and not e.asked for e in several))
    return replace(facts, copies=copies, moving=moving, mixed=mixed)


def delete(context: Context, node: Delete, table: Facts, deleted: Facts) -> Facts:
    """Rows taken out of a table: what is left depends on which came first."""
    facts = both((table, replace(deleted, asked=frozenset(), awaiting=())))
    facts.fixed = table.fixed
    facts = use(facts, *(Ref(column) for column in deleted.moving))
    if not node.upsert:
        text = "what is to be deleted is applied to the table"
        facts = keep(facts, "deletion", text, node.position)
    equal = merged(facts, node.keys)
    # What only some of the inputs have does not say which of the others' rows it is about.
    classes = unique(
        tuple(
            equal[one] for one, _ in node.keys if {o for o, _ in equal.get(one, ())} >= facts.live
        )
    )
    by = ", ".join(column.name for column, _ in node.keys)
    text = f"whether a row is inserted before or after it is deleted decides for each {by}"
    if node.upsert:
        text = f"of the rows of each {by} the one that comes last stays"
    deletion = effect(
        facts,
        "deletion",
        text if node.keys else "rows are deleted",
        node.position,
        gate=classes if node.keys else None,
        within=Within.SEQUENCE,
    )
    facts = sensitive(facts, None if deletion is None else replace(deletion, state=True))
    # Rows that are taken away are part of no row, so that equal keys may be said to be theirs.
    keyed = {one for one, _ in node.keys}
    copies = {c: (equal if c in keyed else table.copies).get(c, frozenset()) for c in node.columns}
    moving = {column: movement for column, movement in table.moving.items() if column in copies}
    removing = facts.removing | (deleted.live - table.live)
    return replace(facts, copies=copies, moving=moving, removing=removing)
