"""Whether a query splits by a key, so that a seal on that key makes its answer right.

A component that waits for whole partitions is run on those that are complete, a few at a time. That
gives the answer of the whole input exactly if the query *splits* by the key `K`: with `R_k` the
records of all sealed inputs whose key is `k`, for every content of the inputs

    q(R) = bag union over k of q(R_k),   and   q(nothing) = nothing.

A gate does not imply it. It says what one operator's groups agree on, not that rows which meet
elsewhere are of one partition.

    refusal = splits(query.plan, {"clicks": ("campaign",)})

goes once through the plan, from its sources up, and keeps for the rows of every node one `Kind` and
for each column the `Mark`s that tie it to its row's partition. Rules SP-1 to SP-24 stand beside the
code (`docs/explanation/splitting.md`). Where a rule does not hold, the answer names the first place
from below that lost it.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import chain, combinations, islice, product
from typing import Final, TypeAlias

from annotations.dataflow import Position, Refusal
from annotations.dependencies import closure, within
from annotations.vocabulary import FunctionalDependency
from annotations.whitebox.datatypes import Family
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Column,
    Deduplicate,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Limit,
    Literal,
    Opaque,
    Project,
    Ref,
    Relation,
    Reuse,
    Role,
    Sample,
    SetKind,
    SetOperation,
    Sort,
    Source,
    Union,
    Watermark,
    Window,
    nodes_of,
    references,
)
from annotations.whitebox.joining import asks_for_partners, conjuncts
from annotations.whitebox.keys import parts_of, same_value, step_of
from annotations.whitebox.monotone import may_be_null, type_of
from annotations.whitebox.reducing import is_scalar, reduced
from annotations.whitebox.sharing import OCCURRENCES_MAX
from annotations.whitebox.words import listed, text_of


class Kind(enum.Enum):
    """The dependence of a node's rows on the partitions."""

    FIXED = "fixed"
    """Not on the sealed inputs."""
    SPLIT = "split"
    """The node splits."""
    KEYED = "keyed"
    """It does not, but its rows with tag `v` depend on partition `v` only."""
    PINNED = "pinned"
    """On one partition only, whose key is a constant."""
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Mark:
    """A column holds `transform(attribute)` of the records that its row is made of."""

    attribute: str
    streams: frozenset[str]
    """Where the record is from: one of these."""
    occurrence: int
    component: int | None
    """Which component of the key the attribute is; None: it is none."""
    transform: tuple[str, ...] = ()
    strong: bool = True
    """False where the column may be NULL instead, through an outer join."""
    recorded: bool = True
    """A record of these streams has the value, in each row in which it is not NULL."""

    @property
    def tag(self) -> tuple[object, ...]:
        """The tag that two columns share if they hold the same value of the same partition."""
        return (self.attribute if self.component is None else self.component, self.transform)


Marks: TypeAlias = frozenset[Mark]
NO_MARKS: Final[Marks] = frozenset()


@dataclass(slots=True)
class Rows:
    """The facts about the rows of a node. Made anew for each node."""

    kind: Kind
    marks: dict[Column, Marks] = field(default_factory=dict)
    pins: dict[int, object] = field(default_factory=dict)
    """Component of the key -> the constant that it has in every row."""
    strict: bool = True
    """Nothing comes out where nothing goes in; of PINNED rows."""
    either: frozenset[frozenset[Column]] = frozenset()
    """Columns that a full join equates: one of the two is there."""
    refusal: Refusal | None = None


CONDITIONS_MAX: Final = 16
"""Conditions, of the places where a node is used, under which it is looked at separately."""
_CHOICES: Final = ("coalesce", "ifnull", "nvl", "greatest", "least")
"""Functions whose value is that of an argument, and NULL only where all are."""
ELEMENTS: Final = ("explode", "explode_outer", "posexplode", "posexplode_outer")
"""Functions whose last column is an element of an array."""
_EQUAL: Final = ("=", "==")
_NULL_SAFE: Final = ("<=>", "equal_null")


def splits(
    plan: Relation,
    keys: Mapping[str, Sequence[str]],
    *,
    fds: Iterable[FunctionalDependency] = (),
    broadcast: bool = False,
) -> Refusal | None:
    """Why the query does not split by the key; None: it does.

    Args:
        plan: the query.
        keys: sealed input -> its attributes that make up the key, in the order of the key.
        fds: hold over all streams together that have their attributes (SP-2).
        broadcast: inputs without a key are there as a whole in every partition.
    """
    plan = reduced(plan, keys)  # SP-23
    analysis = _Splitting(plan, keys, tuple(fds), broadcast=broadcast)
    try:
        rows = analysis.rows(plan, ())
    except RecursionError:
        return Refusal("the query is nested too deeply")
    if rows.kind is Kind.SPLIT or (rows.kind is Kind.PINNED and rows.strict):  # SP-22
        return None
    if rows.refusal is not None:
        return rows.refusal
    position = getattr(plan, "position", None)
    if rows.kind is Kind.FIXED:
        return Refusal("it does not read the sealed input, and would answer once for each "
                       "partition", position)  # fmt: skip
    if rows.kind is Kind.PINNED:
        return Refusal("it gives a row for the other partitions, and for none, too", position)
    return Refusal("rows of a table come once for each partition", position)


class _Splitting:
    def __init__(
        self,
        plan: Relation,
        keys: Mapping[str, Sequence[str]],
        fds: tuple[FunctionalDependency, ...],
        *,
        broadcast: bool = False,
    ) -> None:
        self._keys, self._broadcast = keys, broadcast
        self._fds = fds
        self._attributes: dict[str, set[str]] = {}
        """Stream -> its attributes, or those of them that the query names."""
        self._identifying: dict[str, tuple[frozenset[str], ...]] = {}
        """Stream -> keys of which each is of one record."""
        for node in nodes_of(plan):
            if isinstance(node, Source):
                names = {column.name for column in node.columns}
                self._attributes.setdefault(node.name, set()).update(names)
                self._identifying[node.name] = node.keys
        self._united: dict[tuple[int, ...], int] = {}
        """Occurrences in the branches of a UNION ALL -> the one behind its rows."""
        self._length = len(next(iter(keys.values()), ()))
        self._occurrences = 0
        self._shared: dict[int, dict[tuple[Expression, ...], Rows]] = {
            id(node.input): {} for node in nodes_of(plan) if isinstance(node, Reuse)
        }
        """Identity of a node that stands in several places -> conditions -> its rows."""

    def rows(self, node: Relation, conditions: tuple[Expression, ...]) -> Rows:
        """The facts about a node's rows, of which only those are used that meet the conditions."""
        known = self._shared.get(id(node))
        if known is None:
            return self._rows(node, conditions)
        if conditions and conditions not in known and len(known) >= CONDITIONS_MAX:
            return self._met(self.rows(node, ()), conditions)
        if conditions not in known:
            known[conditions] = _condensed(self._rows(node, conditions))
        return known[conditions]

    def _rows(self, node: Relation, conditions: tuple[Expression, ...]) -> Rows:
        match node:
            case Source():
                return self._source(node, conditions)
            case Project():
                return self._project(node, conditions)
            case Reuse():
                return self._used_again(node, conditions)
            case Filter():
                return self.rows(node.input, (*conditions, *conjuncts(node.condition)))
            case Sort() | Watermark():
                return self.rows(node.input, conditions)
            case Generate():
                return self._generate(node, conditions)
            case Join():
                return self._join(node, conditions)
            case Aggregate():
                return self._met(self._aggregate(node), conditions)
            case Deduplicate():
                return self._met(self._deduplicate(node, conditions), conditions)
            case Union():
                return self._met(self._union(node, conditions), conditions)
            case SetOperation():
                return self._met(self._set_operation(node), conditions)
            case Window():
                return self._met(self._window(node), conditions)
            case Limit() | Sample():
                return self._limit(node)
            case Opaque(keys=keys) if keys and len(node.inputs) == 1:
                return self._by_key(node.inputs[0], keys, node.position)
            case Opaque():
                return _none(f"nothing is known of what it does: {node.reason}", node.position)
            case _:
                return _none("rows are kept from one partition to the next", node.position)

    # ---- sources and single rows

    def _source(self, node: Source, conditions: tuple[Expression, ...]) -> Rows:
        if node.role is Role.TABLE:  # SP-1
            return Rows(Kind.FIXED)
        if node.role is Role.MUTABLE:
            return _none(f"{node.name} may be changed while the job runs", node.position)
        key = self._keys.get(node.name)
        if key is None and self._broadcast:
            return Rows(Kind.FIXED)
        if key is None:  # SP-18
            return _none(f"{node.name} is not sealed, and meets rows that are", node.position)
        if len(key) != self._length:  # SP-19
            return _none(f"{node.name} is sealed on another key", node.position)
        self._occurrences += 1
        marks = {}
        for column in node.columns:
            component = key.index(column.name) if column.name in key else None
            mark = Mark(column.name, frozenset({node.name}), self._occurrences, component)
            marks[column] = frozenset({mark})
        if not {column.name for column in node.columns} >= set(key):
            missing = f"{node.name} is not known to have the key [{', '.join(key)}]"
            return _none(missing, node.position)
        return self._met(Rows(Kind.SPLIT, marks), conditions)

    def _met(self, rows: Rows, conditions: tuple[Expression, ...]) -> Rows:
        """The rows that meet conditions: equal columns share marks, constants pin (SP-3, SP-16)."""
        if rows.kind is Kind.NONE or not conditions:
            return rows
        marks = dict(rows.marks)
        pins = dict(rows.pins)
        known = replace(rows, marks=marks)
        for _ in range(len(conditions)):  # until equalities have passed on all that they can
            before = dict(marks)
            for one, other, _ in _equations(conditions):
                for here, there in ((one, other), (other, one)):
                    if isinstance(here, Ref):
                        shared, mine = self._marks(there, known), self._marks(here, known)
                        if shared and _same_type(here, there, shared | mine):
                            marks[here.column] = mine | shared
                    if isinstance(there, Literal):
                        self._pin(here, there, known, pins)
            if marks == before:
                break
        for one, other, null_safe in _equations(conditions):
            for side in (one, other):
                if isinstance(side, Ref) and side.column in marks and not null_safe:
                    marks[side.column] = _strong(marks[side.column])
        met = replace(rows, marks=marks, pins=pins)
        if met.kind is Kind.SPLIT and self._all(pins):
            return replace(met, kind=Kind.PINNED, strict=True)
        if met.kind is Kind.KEYED and self._all(pins):
            return replace(met, kind=Kind.PINNED, strict=False)
        return met

    def _pin(
        self, expression: Expression, to: Literal, rows: Rows, pins: dict[int, object]
    ) -> None:
        if to.value is None:
            return
        for mark in self._marks(expression, rows):
            if mark.component is not None and not mark.transform and _comparable(expression, to):
                pins.setdefault(mark.component, to.value)

    def _all(self, pins: Collection[int]) -> bool:
        return len(pins) == self._length

    def _project(self, node: Project, conditions: tuple[Expression, ...]) -> Rows:
        outputs = dict(node.outputs)
        below = tuple(
            _substituted(condition, outputs)
            for condition in conditions
            if all(isinstance(outputs.get(c), Ref | Literal) for c in references(condition))
        )
        rows = self.rows(node.input, below)
        if rows.kind is Kind.NONE:
            return rows
        marks = {column: self._marks(expression, rows) for column, expression in node.outputs}
        either = frozenset(
            frozenset(
                column for column, e in outputs.items() if isinstance(e, Ref) and e.column in two
            )
            for two in rows.either
        )
        projected = replace(rows, marks=marks, either=either)
        return self._met(self._still_keyed(projected, node), conditions)

    def _generate(self, node: Generate, conditions: tuple[Expression, ...]) -> Rows:
        """An element of `array(a, b)` holds what both of `a` and `b` do (SP-1)."""
        rows = self.rows(node.input, _about(conditions, node.input.columns))
        match node.generator:
            case Call(function=name, arguments=(Call(function="array", arguments=elements),)) if (
                name in ELEMENTS and rows.kind is not Kind.NONE
            ):
                own = {node.generated[-1]: self._chosen(elements, rows, every=True)}
                return self._met(replace(rows, marks=rows.marks | own), conditions)
        return rows

    def _used_again(self, node: Reuse, conditions: tuple[Expression, ...]) -> Rows:
        """The rows of a node that stands elsewhere too, as those of other records."""
        columns = dict(zip(node.input.columns, node.columns, strict=True))
        below: dict[Column, Expression] = {new: Ref(old) for old, new in columns.items()}
        rows = self.rows(node.input, tuple(_substituted(c, below) for c in conditions))
        fresh: dict[int, int] = {}
        for mark in sorted(_every(rows.marks), key=lambda mark: mark.occurrence):
            if mark.occurrence not in fresh:
                self._occurrences += 1
                fresh[mark.occurrence] = self._occurrences
        return replace(
            rows,
            marks={
                columns[column]: frozenset(
                    replace(mark, occurrence=fresh[mark.occurrence]) for mark in marks
                )
                for column, marks in rows.marks.items()
                if column in columns
            },
            either=frozenset(
                frozenset(columns[column] for column in pair)
                for pair in rows.either
                if pair <= columns.keys()
            ),
        )

    def _still_keyed(self, rows: Rows, node: Relation) -> Rows:
        """SP-1: rows of a table that lose what says which partition they go with."""
        if rows.kind is not Kind.KEYED or self._determine(_all_of(rows.marks), rows.pins):
            return rows
        return _none("rows of a table come once for each partition", node.position)

    def _marks(self, expression: Expression, rows: Rows) -> Marks:
        """The marks of an expression: what it holds of its row's partition (SP-1, SP-3)."""
        match expression:
            case Ref(column=column):
                return rows.marks.get(column, NO_MARKS)
            case Call(function="coalesce" | "ifnull" | "nvl", arguments=(first, *_)) if any(
                _never_null(mark) for mark in self._marks(first, rows)
            ) and _comparable(first, expression):
                return self._marks(first, rows)
            case Call(function="coalesce" | "ifnull" | "nvl", arguments=(Ref(), Ref()) as both):
                one, other = (ref.column for ref in both if isinstance(ref, Ref))
                if frozenset({one, other}) not in rows.either:  # SP-6
                    return self._chosen(both, rows)
                tags = {m.tag for m in rows.marks.get(one, ())}
                tags &= {m.tag for m in rows.marks.get(other, ())}
                marks = frozenset(m for m in rows.marks[one] if m.tag in tags)
                return _strong(_unrecorded(marks))
            case Call(function=name, arguments=several, user=None) if name in _CHOICES:
                return self._chosen(several, rows)
            case Call() if step := step_of(expression):
                marks = self._marks(step.inner, rows)
                if not step.name:
                    return marks
                return frozenset(replace(m, transform=(*m.transform, step.name)) for m in marks)
        return NO_MARKS

    def _chosen(self, choices: Sequence[Expression], rows: Rows, *, every: bool = False) -> Marks:
        """The marks that all have of which one that is not NULL is taken, or `every` one (SP-1)."""
        held = [self._marks(choice, rows) for choice in choices]
        union = frozenset[Mark]().union(*held)
        if not choices or not all(_same_type(choices[0], choice, union) for choice in choices):
            return NO_MARKS
        marks = set[Mark]()
        for mark in held[0]:
            twins = [[twin for twin in other if _twins(mark, twin)] for other in held]
            if all(twins):
                several = [*chain.from_iterable(twins)]
                strong = (all if every else any)(twin.strong for twin in several)
                recorded = all(t.recorded and t.occurrence == mark.occurrence for t in several)
                marks.add(replace(mark, strong=strong, recorded=recorded))
        return frozenset(marks)

    # ---- which partition

    def _determine(self, marks: Iterable[Mark], pins: Collection[int] = ()) -> bool:
        """Whether marks, with the constants, determine the key (SP-2)."""
        by_occurrence: dict[int, set[str]] = {}
        streams: dict[int, frozenset[str]] = {}
        components = set(pins)
        for mark in marks:
            by_occurrence.setdefault(mark.occurrence, set()).add(mark.attribute)
            streams[mark.occurrence] = mark.streams
            if mark.component is not None:
                components.add(mark.component)
        for occurrence, attributes in by_occurrence.items():
            key, fds = self._promised(streams[occurrence])
            known = closure(attributes | {key[place] for place in components & key.keys()}, fds)
            components |= {component for component, name in key.items() if name in known}
        return self._all(components)

    def _promised(
        self, streams: frozenset[str]
    ) -> tuple[dict[int, str], list[FunctionalDependency]]:
        """The key as all of these streams name it, and the dependencies that hold in all."""
        keys = [self._keys[stream] for stream in streams]
        key = {at: name for at, name in enumerate(keys[0]) if all(k[at] == name for k in keys)}
        shared = set.intersection(*(self._attributes[stream] for stream in streams))
        fds = list(within(shared, self._fds))
        if len(streams) == 1:  # equal keys of one stream are of one record
            identifying = self._identifying[next(iter(streams))]
            fds += [FunctionalDependency(names, frozenset(shared)) for names in identifying]
        return key, fds

    def _same_partition(
        self,
        pairs: Iterable[tuple[Marks, Marks]],
        left: Mapping[int, object],
        right: Mapping[int, object],
    ) -> bool:
        """Whether rows whose columns are equal, pair by pair, are of one partition."""
        pins = {
            component
            for component, value in left.items()
            if component in right and right[component] == value
        }
        shared: dict[tuple[int, int], set[Mark]] = {}
        keys: set[int] = set(pins)
        for one, other in pairs:
            for mark in one:
                for twin in other:
                    if mark.tag != twin.tag:
                        continue
                    if mark.component is not None:
                        keys.add(mark.component)
                    if mark.attribute == twin.attribute:
                        both = replace(mark, streams=mark.streams | twin.streams)
                        shared.setdefault((mark.occurrence, twin.occurrence), set()).add(both)
        if self._all(keys):
            return True
        return any(self._determine(marks, keys) for marks in shared.values())

    def _grouped(self, groups: Iterable[Marks], rows: Rows) -> bool:
        """Whether rows that agree on columns are of one partition (SP-8): strong marks only."""
        return self._determine((m for marks in groups for m in marks if m.strong), rows.pins)

    # ---- joins

    def _join(self, node: Join, above: tuple[Expression, ...]) -> Rows:
        conditions = tuple(conjuncts(node.condition))
        kind = node.kind
        if kind is JoinKind.LEFT and asks_for_partners(node, above):
            kind = JoinKind.INNER  # SP-5
        if kind is JoinKind.INNER:
            conditions = (*conditions, *above)
            above = ()
        in_left, in_right = set(node.left.columns), set(node.right.columns)
        compared, tied = conditions[: node.null_aware], conditions[node.null_aware :]
        there = tuple(condition for condition in compared if not _may_be_null(condition))
        conditions = (*there, *tied)  # SP-7
        conditions = (*conditions, *_implied(conditions))
        if kind in (JoinKind.INNER, JoinKind.SEMI):
            above = (*above, *conditions)
        left = self.rows(node.left, () if kind is JoinKind.FULL else _about(above, in_left))
        right = self.rows(node.right, () if kind is JoinKind.FULL else _about(conditions, in_right))
        for side in (left, right):
            if side.kind is Kind.NONE:
                return side
        both = replace(left, marks=left.marks | right.marks)
        of_keys = tuple(condition for condition in compared if self._of_keys(condition, both))
        equal = self._equal((*conditions, *of_keys), left, right, in_left, in_right)
        same = self._same_partition([pair for *_, pair in equal], left.pins, right.pins)
        joined = self._joined(node, kind, left, right, same, equal)
        if joined.kind is Kind.NONE:
            return joined
        if kind is JoinKind.INNER:
            return self._met(joined, conditions)
        return self._met(joined, above)

    def _of_keys(self, condition: Expression, rows: Rows) -> bool:
        """Whether a comparison is of values of the key alone, which no record lacks."""
        return isinstance(condition, Call) and all(
            any(map(_never_null, self._marks(side, rows))) for side in condition.arguments
        )

    def _equal(
        self,
        conditions: tuple[Expression, ...],
        left: Rows,
        right: Rows,
        in_left: set[Column],
        in_right: set[Column],
    ) -> list[tuple[Expression, Expression, tuple[Marks, Marks]]]:
        """(left expression, right expression, their marks) of what the conditions equate."""
        equal = []
        for one, other, null_safe in _equations(conditions):
            if references(one) <= in_right and references(other) <= in_left:
                one, other = other, one
            if not (references(one) and references(other)):
                continue
            if references(one) <= in_left and references(other) <= in_right:
                marks = self._marks(one, left), self._marks(other, right)
                if null_safe:
                    marks = _only_strong(marks[0]), _only_strong(marks[1])
                if left.kind is Kind.FIXED or right.kind is Kind.FIXED:
                    if _comparable(one, other):
                        equal.append((one, other, marks))
                elif _same_type(one, other, marks[0] | marks[1]):
                    equal.append((one, other, marks))
        return equal

    def _joined(
        self,
        node: Join,
        kind: JoinKind,
        left: Rows,
        right: Rows,
        same: bool,
        equal: Sequence[tuple[Expression, Expression, tuple[Marks, Marks]]],
    ) -> Rows:
        pins = left.pins | right.pins if kind is JoinKind.INNER else dict(left.pins)
        marks = left.marks | right.marks
        match kind:
            case JoinKind.INNER:  # SP-4
                either = left.either | right.either
                if right.kind is Kind.FIXED:
                    return replace(left, marks=marks, either=either)
                if left.kind is Kind.FIXED:
                    return replace(right, marks=marks, either=either)
                return self._together(
                    node, left, right, same, Rows(Kind.SPLIT, marks, pins, either=either)
                )
            case JoinKind.LEFT:  # SP-5
                marks = left.marks | {c: _weak(m) for c, m in right.marks.items()}
                for _, other, (ours, _) in equal:  # the same, or NULL through padding
                    if isinstance(other, Ref):
                        marks[other.column] = marks.get(other.column, NO_MARKS) | _weak(ours)
                if right.kind is Kind.FIXED:
                    return replace(left, marks=marks)
                if left.kind is Kind.FIXED:
                    return self._from_table(node, left, right, equal, marks)
                return self._kept(
                    node, left, right, same, Rows(left.kind, marks, pins, left.strict, left.either)
                )
            case JoinKind.FULL:  # SP-6
                if left.kind is right.kind is Kind.FIXED:
                    return Rows(Kind.FIXED)
                marks = {c: _weak(m) for c, m in marks.items()}
                both = frozenset(
                    frozenset({one.column, other.column})
                    for one, other, _ in equal
                    if isinstance(one, Ref) and isinstance(other, Ref)
                )
                if left.kind is right.kind is Kind.SPLIT and same:
                    return Rows(Kind.SPLIT, marks, either=both)
                return self._apart(node, left, right)
            case _:  # SP-7
                if right.kind is Kind.FIXED or self._of_itself(node, left):
                    return left
                if left.kind is Kind.FIXED:
                    return self._from_table(node, left, right, equal, dict(left.marks))
                return self._kept(node, left, right, same, left)

    def _of_itself(self, node: Join, left: Rows) -> bool:
        """Whether the record that a left row has its values from is one that it may find (SP-24).

        Then whether it finds one depends on no other record: on NULL among its values, and on
        conditions that say the same of every record that has them.
        """
        scanned, conditions = node.right, list(conjuncts(node.condition))
        while isinstance(scanned, Project | Filter):
            if isinstance(scanned, Filter):
                conditions += conjuncts(scanned.condition)
            else:
                outputs = dict(scanned.outputs)
                conditions = [_substituted(condition, outputs) for condition in conditions]
            scanned = scanned.input
        if not isinstance(scanned, Source) or node.null_aware:
            return False
        every = self.rows(scanned, ())  # what holds of those that match need not hold of it
        in_left, columns = {*node.left.columns}, {*scanned.columns}
        if not conditions:  # any record will do
            own = (mark.streams for mark in _every(left.marks) if _never_null(mark))
            return frozenset({scanned.name}) in own
        met: dict[int, set[Expression]] = {}
        """Occurrence -> equalities with a value of the same attribute."""
        tied: dict[int, set[Column]] = {}
        """Occurrence -> columns that have such a value."""
        for condition in conditions:
            for _, other, (ours, others) in self._equal(
                (condition,), left, every, in_left, columns
            ):
                for mine, its in product(ours, others):
                    recorded = mine.recorded and mine.streams == its.streams == {scanned.name}
                    plain = mine.attribute == its.attribute and not mine.transform + its.transform
                    if recorded and plain:
                        met.setdefault(mine.occurrence, set()).add(condition)
                        if isinstance(other, Ref) and other.column.type.identical:
                            tied.setdefault(mine.occurrence, set()).add(other.column)
        return any(
            all(
                condition in equalities
                or (references(condition) <= in_left | tied.get(at, set()) and is_scalar(condition))
                for condition in conditions
            )
            for at, equalities in met.items()
        )

    def _together(self, node: Join, left: Rows, right: Rows, same: bool, rows: Rows) -> Rows:
        """An inner join of two sides that both depend on the sealed inputs."""
        kinds = {left.kind, right.kind}
        if kinds == {Kind.PINNED}:
            if left.pins == right.pins:
                strict = left.strict or right.strict
                return replace(rows, kind=Kind.PINNED, strict=strict)
            return self._apart(node, left, right)
        if not same:
            return self._apart(node, left, right)
        if Kind.PINNED in kinds:
            pinned, other = (left, right) if left.kind is Kind.PINNED else (right, left)
            strict = pinned.strict or other.kind is Kind.SPLIT
            return replace(rows, kind=Kind.PINNED, pins=rows.pins, strict=strict)
        return replace(rows, kind=Kind.SPLIT if Kind.SPLIT in kinds else Kind.KEYED)

    def _kept(self, node: Join, left: Rows, right: Rows, same: bool, rows: Rows) -> Rows:
        """A left, semi or anti join: the left rows stay what they are."""
        if same or (left.kind is right.kind is Kind.PINNED and left.pins == right.pins):
            return rows
        return self._apart(node, left, right)

    def _from_table(
        self,
        node: Join,
        left: Rows,
        right: Rows,
        equal: Sequence[tuple[Expression, Expression, tuple[Marks, Marks]]],
        marks: dict[Column, Marks],
    ) -> Rows:
        """A table on the left: the columns that are equated say which partition a row goes with."""
        if right.kind is Kind.PINNED:
            strict = node.kind is JoinKind.SEMI and right.strict
            return Rows(Kind.PINNED, marks, dict(right.pins), strict)
        for one, other, (_, theirs) in equal:
            if isinstance(one, Ref) and _comparable(one, other):
                tied = _unrecorded(_only_strong(theirs))
                marks[one.column] = marks.get(one.column, NO_MARKS) | tied
        tagged = [m for c in node.left.columns for m in marks.get(c, NO_MARKS)]
        if not self._determine(tagged, right.pins):
            return self._apart(node, left, right)
        if node.kind is JoinKind.SEMI and right.kind is Kind.SPLIT:
            return Rows(Kind.SPLIT, marks, dict(right.pins))
        return Rows(Kind.KEYED, marks, dict(right.pins))

    def _apart(self, node: Join, left: Rows, right: Rows) -> Rows:
        key = "[" + ", ".join(next(iter(self._keys.values()), ())) + "]"
        on = " and ".join(
            f"{text_of(one)} {'<=>' if null_safe else '='} {text_of(other)}"
            for one, other, null_safe in _equations(tuple(conjuncts(node.condition)))
        )
        reason = f"puts rows of different {key} partitions together"
        if left.kind is Kind.FIXED:
            reason = f"does not say which {key} partition a row of the table goes with"
        return _none(f"{on or 'the join'} {reason}", node.position)

    # ---- groups

    def _aggregate(self, node: Aggregate) -> Rows:
        rows = self.rows(node.input, ())
        if rows.kind is Kind.NONE:
            return rows
        every = frozenset(range(len(node.keys)))
        sets = (every,) if node.sets is None else node.sets
        common = frozenset.intersection(*sets) if sets else frozenset[int]()
        marks: dict[Column, Marks] = {}
        for column, expression in node.outputs:
            places = [i for i in common if node.keys[i] == expression]
            held = self._marks(node.keys[places[0]], rows) if places else NO_MARKS
            marks[column] = held
        if rows.kind is Kind.FIXED:
            return Rows(Kind.FIXED)
        if rows.kind is Kind.PINNED:  # SP-8, SP-16
            strict = rows.strict and bool(sets) and all(sets)
            return Rows(Kind.PINNED, marks, rows.pins, strict)
        for grouping_set in sets:
            groups = [
                self._marks(part, rows) for i in grouping_set for part in _parts(node.keys[i])
            ]
            if not grouping_set:
                text = "an aggregate without GROUP BY gives a row for each partition"
                return _none(text, node.position)
            if not self._grouped(groups, rows):
                return self._mixed(f"GROUP BY {listed(node.keys)}", node.position)
        return self._still_keyed(Rows(rows.kind, marks, rows.pins), node)

    def _mixed(self, operation: str, position: Position | None) -> Rows:
        key = ", ".join(next(iter(self._keys.values()), ()))
        return _none(
            f"{operation} puts rows of different [{key}] partitions into one group", position
        )

    def _deduplicate(self, node: Deduplicate, conditions: tuple[Expression, ...]) -> Rows:
        keys = set(node.keys)
        rows = self.rows(node.input, _about(conditions, keys))  # SP-9
        if rows.kind in (Kind.NONE, Kind.FIXED, Kind.PINNED):
            return rows
        if not self._grouped([rows.marks.get(c, NO_MARKS) for c in node.keys], rows):
            names = ", ".join(column.name for column in node.keys)
            return self._mixed(f"one row for each {names}", node.position)
        return rows

    def _by_key(self, of: Relation, keys: Sequence[Expression], at: Position | None) -> Rows:
        rows = self.rows(of, ())  # SP-12: as of a window
        if rows.kind in (Kind.NONE, Kind.FIXED, Kind.PINNED):
            return rows
        if not self._grouped([self._marks(key, rows) for key in keys], rows):
            return self._mixed(f"the groups by {listed(keys)}", at)
        return rows

    def _window(self, node: Window) -> Rows:
        rows = self.rows(node.input, ())  # SP-12
        if rows.kind in (Kind.NONE, Kind.FIXED, Kind.PINNED):
            return rows
        groups = [self._marks(part, rows) for key in node.partition for part in _parts(key)]
        if not groups or not self._grouped(groups, rows):
            by = (
                f"PARTITION BY {listed(node.partition)}" if groups else "a window without PARTITION"
            )
            return self._mixed(by, node.position)
        return rows

    def _limit(self, node: Limit | Sample) -> Rows:
        rows = self.rows(node.input, ())  # SP-13
        if rows.kind in (Kind.NONE, Kind.FIXED, Kind.PINNED):
            return rows
        taken = "LIMIT takes so many" if isinstance(node, Limit) else "a sample takes other"
        return _none(f"{taken} rows of each partition", node.position)

    # ---- several inputs by position

    def _union(self, node: Union, conditions: tuple[Expression, ...]) -> Rows:
        several = []
        for branch in node.inputs:  # SP-10
            renamed = {c: Ref(old) for c, old in zip(node.columns, branch.columns, strict=False)}
            below = tuple(
                _substituted(c, renamed) for c in conditions if references(c) <= renamed.keys()
            )
            several.append(self.rows(branch, below))
        for rows in several:
            if rows.kind is Kind.NONE:
                return rows
        kinds = {rows.kind for rows in several}
        marks = self._common(node, several)
        if kinds <= {Kind.FIXED}:
            return Rows(Kind.FIXED)
        pins = reduce(_common_pins, (rows.pins for rows in several if rows.kind is not Kind.FIXED))
        if kinds == {Kind.PINNED} and self._all(pins):
            return Rows(Kind.PINNED, marks, pins, all(rows.strict for rows in several))
        if all(_splits(rows) for rows in several):
            return Rows(Kind.SPLIT, marks, pins)
        if any(rows.kind is Kind.PINNED and not rows.strict for rows in several):
            return _none("a part of the UNION gives a row for each partition", node.position)
        united = Rows(Kind.KEYED, marks, pins)
        if not self._determine(_all_of(marks), pins):
            return _none("rows of a table come once for each partition", node.position)
        return united

    def _common(self, node: Union, several: Sequence[Rows]) -> dict[Column, Marks]:
        """The marks that a column has in every input that depends on the sealed ones.

        Attributes of a row are of one record only if they are so whichever branch it is from.
        """
        branches = [
            (branch.columns, rows.marks)
            for branch, rows in zip(node.inputs, several, strict=True)
            if rows.kind is not Kind.FIXED
        ]
        marks: dict[Column, Marks] = {}
        for at, column in enumerate(node.columns):
            types = [branch.columns[at].type for branch in node.inputs if at < len(branch.columns)]
            held = [m.get(own[at], NO_MARKS) if at < len(own) else NO_MARKS for own, m in branches]
            if all(type_ == types[0] or same_value(type_, types[0]) for type_ in types):
                united = frozenset(self._unite(held))
                marks[column] = united if len(held) == len(types) else _unrecorded(united)
        return marks

    def _unite(self, branches: Sequence[Marks]) -> Iterator[Mark]:
        """One mark for marks of equal tags, one of each branch."""
        ordered = [sorted(marks, key=lambda mark: mark.occurrence) for marks in branches]
        by_tag = (
            product(*([mark for mark in marks if mark.tag == tag] for marks in ordered))
            for tag in dict.fromkeys(mark.tag for marks in ordered[:1] for mark in marks)
        )
        for marks in chain.from_iterable(islice(alike, OCCURRENCES_MAX) for alike in by_tag):
            occurrences = tuple(mark.occurrence for mark in marks)
            if occurrences not in self._united:
                self._occurrences += 1
                self._united[occurrences] = self._occurrences
            yield replace(
                marks[0],
                streams=frozenset[str]().union(*(mark.streams for mark in marks)),
                occurrence=self._united[occurrences],
                strong=all(mark.strong for mark in marks),
                recorded=all(mark.recorded for mark in marks),
            )

    def _set_operation(self, node: SetOperation) -> Rows:
        left, right = self.rows(node.left, ()), self.rows(node.right, ())  # SP-11
        for side in (left, right):
            if side.kind is Kind.NONE:
                return side
        pairs = [
            (one, other) for one, other in zip(node.left.columns, node.right.columns, strict=False)
        ]
        # A column of another type on the other side is cast to what both can be.
        marks = {
            column: left.marks.get(one, NO_MARKS)
            if one.type == other.type or same_value(one.type, other.type)
            else NO_MARKS
            for column, (one, other) in zip(node.columns, pairs, strict=False)
        }
        if left.kind is right.kind is Kind.FIXED:
            return Rows(Kind.FIXED)
        if left.kind is Kind.FIXED:
            marks = {
                column: _unrecorded(_only_strong(right.marks.get(other, NO_MARKS)))
                if _comparable(Ref(one), Ref(other))
                else NO_MARKS
                for column, (one, other) in zip(node.columns, pairs, strict=False)
            }
            if right.kind is Kind.PINNED:
                strict = node.kind is SetKind.INTERSECT and right.strict
                return Rows(Kind.PINNED, marks, right.pins, strict)
            if not self._determine(_all_of(marks), right.pins):
                return self._mixed(node.kind.value.upper(), node.position)
            if node.kind is SetKind.INTERSECT and right.kind is Kind.SPLIT:
                return Rows(Kind.SPLIT, marks, right.pins)
            return Rows(Kind.KEYED, marks, right.pins)
        result = replace(left, marks=marks, either=frozenset())
        if left.kind is right.kind is Kind.PINNED and left.pins == right.pins:
            return result
        if left.kind is Kind.PINNED or self._grouped(marks.values(), left):
            equal = [
                (
                    _only_strong(left.marks.get(one, NO_MARKS)),
                    _only_strong(right.marks.get(other, NO_MARKS)),
                )
                for one, other in pairs
                if _same_type(
                    Ref(one),
                    Ref(other),
                    left.marks.get(one, NO_MARKS) | right.marks.get(other, NO_MARKS),
                )
            ]
            if right.kind is Kind.FIXED or self._same_partition(equal, left.pins, right.pins):
                return result
        return self._mixed(node.kind.value.upper(), node.position)


# ---- parts


def _none(reason: str, position: Position | None) -> Rows:
    return Rows(Kind.NONE, refusal=Refusal(reason, position))


def _parts(expression: Expression) -> Iterator[Expression]:
    """The parts of an expression on which rows agree that agree on all of it: those of a struct."""
    parts = parts_of(expression) if isinstance(expression, Call) else ()
    if not parts:
        yield expression
    for part in parts:
        yield from _parts(part)


def _splits(rows: Rows) -> bool:
    return rows.kind is Kind.SPLIT or (rows.kind is Kind.PINNED and rows.strict)


def _common_pins(one: dict[int, object], other: dict[int, object]) -> dict[int, object]:
    return {
        component: value
        for component, value in one.items()
        if component in other and other[component] == value
    }


def _every(marks: Mapping[Column, Marks]) -> Iterator[Mark]:
    return (mark for held in marks.values() for mark in held)


def _all_of(marks: Mapping[Column, Marks]) -> Iterator[Mark]:
    return (mark for mark in _every(marks) if mark.strong)


def _condensed(rows: Rows) -> Rows:
    """The rows with one occurrence for all whose marks are the same: they determine the same.

    Of more than `OCCURRENCES_MAX` that differ, the marks of the others are given up.
    """
    held: dict[int, set[tuple[Column, Mark]]] = {}
    for column, marks in rows.marks.items():
        for mark in marks:
            own = column, replace(mark, occurrence=0)
            held.setdefault(mark.occurrence, set()).add(own)
    leaders: dict[frozenset[tuple[Column, Mark]], int] = {}
    for occurrence in sorted(held):
        leaders.setdefault(frozenset(held[occurrence]), occurrence)
    retained = frozenset(list(leaders.values())[:OCCURRENCES_MAX])
    return replace(
        rows,
        marks={
            column: frozenset(mark for mark in marks if mark.occurrence in retained)
            for column, marks in rows.marks.items()
        },
    )


def _twins(one: Mark, other: Mark) -> bool:
    """Whether two marks of a row say the same of one record, or of the row's partition."""
    of_key = one.component is not None
    return one.tag == other.tag and (of_key or one.occurrence == other.occurrence)


def _never_null(mark: Mark) -> bool:
    """Whether a column with this mark is never NULL: records without a key are left out."""
    return mark.component is not None and mark.strong and mark.recorded and not mark.transform


def _strong(marks: Marks) -> Marks:
    return frozenset(replace(mark, strong=True) for mark in marks)


def _weak(marks: Marks) -> Marks:
    return frozenset(replace(mark, strong=False) for mark in marks)


def _unrecorded(marks: Marks) -> Marks:
    return frozenset(replace(mark, recorded=False) for mark in marks)


def _only_strong(marks: Marks) -> Marks:
    return frozenset(mark for mark in marks if mark.strong)


def _about(conditions: Iterable[Expression], columns: Collection[Column]) -> tuple[Expression, ...]:
    """The conditions that read these columns only."""
    own = set(columns)
    return tuple(
        condition
        for condition in conditions
        if references(condition) and references(condition) <= own
    )


def _equations(
    conditions: Iterable[Expression],
) -> Iterator[tuple[Expression, Expression, bool]]:
    """(one side, the other, whether NULL equals NULL) of the conditions that are equalities."""
    for condition in conditions:
        match condition:
            case Call(function=name, arguments=(one, other), user=None):
                if name in _EQUAL or name in _NULL_SAFE:
                    yield one, other, name in _NULL_SAFE


def _implied(conditions: Iterable[Expression]) -> Iterator[Expression]:
    """The equalities that follow from several: of all that is equal to one and the same (SP-3).

    If any of them is a `=`, none of these is NULL. Constants are left out: they pin by themselves.
    """
    equal: dict[Expression, dict[Expression, None]] = {}
    strict: set[Expression] = set()
    known: set[frozenset[Expression]] = set()
    for one, other, null_safe in _equations(conditions):
        known.add(frozenset((one, other)))
        if not (references(one) and references(other) and _comparable(one, other)):
            continue
        joined = equal.get(one, {one: None}) | equal.get(other, {other: None})
        equal |= dict.fromkeys(joined, joined)
        if not null_safe or strict.intersection(joined):
            strict.update(joined)
    for joined in {id(joined): joined for joined in equal.values()}.values():
        several = list(islice(joined, CONDITIONS_MAX))
        name = "=" if several[0] in strict else "<=>"
        pairs = (pair for pair in combinations(several, 2) if frozenset(pair) not in known)
        yield from (Call(name, pair) for pair in pairs)


def _substituted(condition: Expression, outputs: Mapping[Column, Expression]) -> Expression:
    """A condition over a node's columns as one over those of its input."""
    match condition:
        case Ref(column=column):
            return outputs.get(column, condition)
        case Call(arguments=arguments):
            return replace(condition, arguments=tuple(_substituted(a, outputs) for a in arguments))
    return condition


def _may_be_null(condition: Expression) -> bool:
    return not isinstance(condition, Call) or any(map(may_be_null, condition.arguments))


def _same_type(one: Expression, other: Expression, marks: Marks) -> bool:
    """Whether equal values have the same text, so that they name the same partition (SP-3)."""
    types = type_of(one), type_of(other)
    if same_value(*types):
        return True
    plain = isinstance(one, Ref) and isinstance(other, Ref)
    same = types[0] == types[1] and (types[0].identical or types[0].family is Family.UNKNOWN)
    return plain and same and len({(mark.streams, mark.attribute) for mark in marks}) == 1


def _comparable(one: Expression, other: Expression) -> bool:
    return same_value(type_of(one), type_of(other))
