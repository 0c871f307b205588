"""A plan without what its result does not use: SP-23 of `docs/explanation/splitting.md`.

    reduced(plan)

has the same rows as the plan, each as often, for every content of the inputs; so it splits by a key
exactly if the plan does. Two facts go from the top down: which columns of a node are used, and
whether it matters how often a row comes. To the right of a semi or anti join, below DISTINCT and
groups without aggregates, and on both sides of EXCEPT and INTERSECT it does not.

What is left out must be sure to give each row exactly once without it:

- a window none of whose columns is used, or that ranks by what it is partitioned by: 1;
- a join with a single row, or a left join with one row at most for each of the left, where no
  column of the other side is used; any left join where numbers do not matter;
- DISTINCT, and groups of which only keys are used, where numbers do not matter;
- a condition that no row can meet: `x <> x`, `x BETWEEN 2 AND 0`, `x = y AND x < y`.

LIMIT, samples, state and code that is not understood keep all of their columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from annotations.whitebox.datatypes import STRING, Family
from annotations.whitebox.functions import FUNCTIONS, Kind
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
    Literal,
    Output,
    Project,
    Ref,
    Relation,
    Reuse,
    SetKind,
    SetOperation,
    Sort,
    Union,
    Watermark,
    Window,
    changed,
    inputs_of,
    nodes_of,
    references,
    walk,
)
from annotations.whitebox.joining import conjuncts, equated
from annotations.whitebox.keys import same_value
from annotations.whitebox.monotone import constant_of, type_of


def reduced(plan: Relation) -> Relation:
    """The plan without what its result does not use; the plan itself where that has no rows."""
    reduction = _Reduction(plan)
    if reduction.empty(plan):
        return plan
    rows = reduction.of(plan, frozenset(plan.columns), distinct=False)
    return reduction.put_together(rows)


@dataclass(frozen=True, slots=True, eq=False)
class _Place:
    """One of the places of a node, until it is known what all of them use of it."""

    node: Relation
    columns: tuple[Column, ...]


class _Reduction:
    def __init__(self, plan: Relation) -> None:
        shared = {id(node.input) for node in nodes_of(plan) if isinstance(node, Reuse)}
        self._shared = [node for node in _users_first(plan) if id(node) in shared] if shared else []
        self._used: dict[int, tuple[frozenset[Column], bool]] = {
            id(node): (frozenset(), True) for node in self._shared
        }
        """Identity of such a node -> what all places use of it, and whether only which rows."""
        self._empty: dict[int, tuple[Relation, bool]] = {}

    def put_together(self, rows: Relation) -> Relation:
        """The plan with nodes that stand in several places reduced as far as all of these allow."""
        parts: dict[int, Relation] = {}
        for node in self._shared:
            used, distinct = self._used.pop(id(node))
            parts[id(node)] = _of_columns(node, self.of(node, used, distinct=distinct))
        done: dict[int, Relation] = {}

        def part(place: _Place) -> Relation:
            name = id(place.node)
            if name not in done:
                done[name] = changed(parts[name], _Place, part)
            return done[name]

        return changed(rows, _Place, part) if parts else rows

    def of(self, node: Relation, used: frozenset[Column], *, distinct: bool) -> Relation:
        """A node of which only some columns are used, and perhaps (`distinct`) only which rows."""
        if id(node) in self._used:
            before, only = self._used[id(node)]
            self._used[id(node)] = before | used, only and distinct
            return _Place(node, node.columns)  # type: ignore[return-value]
        if self.empty(node):
            return Union((), node.columns)
        match node:
            case Project():
                outputs = tuple(output for output in node.outputs if output[0] in used)
                below = _read(expression for _, expression in outputs)
                return replace(
                    node, input=self.of(node.input, below, distinct=distinct), outputs=outputs
                )
            case Filter():
                below = used | references(node.condition)
                return replace(node, input=self.of(node.input, below, distinct=distinct))
            case Sort():
                below = used | _read(key.expression for key in node.keys)
                return replace(node, input=self.of(node.input, below, distinct=distinct))
            case Watermark():
                return replace(
                    node, input=self.of(node.input, used | {node.column}, distinct=distinct)
                )
            case Generate():
                below = used - {*node.generated} | references(node.generator)
                return replace(node, input=self.of(node.input, below, distinct=distinct))
            case Window():
                return self._window(node, used, distinct=distinct)
            case Join():
                return self._join(node, used, distinct=distinct)
            case Aggregate():
                return self._aggregate(node, used, distinct=distinct)
            case Deduplicate():
                return self._deduplicate(node, used, distinct=distinct)
            case Union():
                return self._union(node, used, distinct=distinct)
            case SetOperation(kind=SetKind.EXCEPT, left=left) if self.empty(node.right) and all(
                same_value(one.type, other.type)
                for one, other in zip(left.columns, node.right.columns, strict=True)
            ):
                copies = zip(node.columns, map(Ref, left.columns), strict=True)
                rows: Relation = Project(left, tuple(copies))
                rows = rows if node.all else Deduplicate(rows, node.columns, grouped=True)
                return self.of(rows, used, distinct=distinct)
            case Reuse():
                pairs = zip(node.columns, node.input.columns, strict=True)
                below = frozenset(old for column, old in pairs if column in used)
                return replace(node, input=self.of(node.input, below, distinct=distinct))
            case SetOperation():
                left, right = (
                    self.of(side, frozenset(side.columns), distinct=not node.all)
                    for side in (node.left, node.right)
                )
                return replace(node, left=left, right=right)
        return node

    def _window(self, node: Window, used: frozenset[Column], *, distinct: bool) -> Relation:
        ones = tuple(c for c, call in node.outputs if c in used and _one(call, node))
        outputs = tuple(output for output in node.outputs if output[0] in used.difference(ones))
        if ones:
            rest = replace(node, outputs=outputs)
            rows = self.of(rest, used.difference(ones), distinct=distinct)
            return Project(
                rows, _copied(rows.columns) + tuple((c, Literal(1, c.type)) for c in ones)
            )
        if not outputs:
            return self.of(node.input, used, distinct=distinct)
        below = (
            used.intersection(node.input.columns)
            | _read(expression for _, expression in outputs)
            | _read(node.partition)
            | _read(key.expression for key in node.order)
        )
        return replace(node, input=self.of(node.input, below, distinct=False), outputs=outputs)

    def _join(self, node: Join, used: frozenset[Column], *, distinct: bool) -> Relation:
        conditions = list(conjuncts(node.condition))
        apart = self._unmatched(node, conditions)
        if apart is not None:
            return self.of(apart, used, distinct=distinct)
        read = used | _read(conditions)
        in_left, in_right = frozenset(node.left.columns), frozenset(node.right.columns)
        one_sided = node.kind in (JoinKind.SEMI, JoinKind.ANTI)
        left = self.of(node.left, read & in_left, distinct=distinct)
        cross = node.kind is JoinKind.INNER and not conditions
        if not one_sided and not used & in_right:
            single = _single(node.right)
            once = distinct or single or _one_each(node.right, conditions, in_left)
            if (cross and single) or (node.kind is JoinKind.LEFT and once):
                return self.of(node.left, used, distinct=distinct)
        if distinct and node.kind is JoinKind.INNER:
            others = [column for column in node.right.columns if column in used]
            same = _same_as_left(conditions, others, in_left)
            if same is not None:
                semi = replace(node, kind=JoinKind.SEMI)
                outputs = _copied(c for c in node.left.columns if c in used) + same
                return self.of(Project(semi, outputs), used, distinct=True)
        right = self.of(node.right, read & in_right, distinct=distinct or one_sided)
        if cross and not used & in_left and _single(node.left):
            return right
        return replace(node, left=left, right=right)

    def _aggregate(self, node: Aggregate, used: frozenset[Column], *, distinct: bool) -> Relation:
        outputs = tuple(output for output in node.outputs if output[0] in used)
        of_keys = not any(_aggregates(expression) for _, expression in outputs)
        below = _read(node.keys) | _read(expression for _, expression in outputs)
        if distinct and of_keys and node.keys and node.sets is None:
            rows = self.of(node.input, below, distinct=True)
            return Project(rows, outputs, node.position)
        return replace(node, input=self.of(node.input, below, distinct=of_keys), outputs=outputs)

    def _deduplicate(
        self, node: Deduplicate, used: frozenset[Column], *, distinct: bool
    ) -> Relation:
        keys = frozenset(node.keys)
        if distinct and used <= keys and not node.expires:
            return self.of(node.input, used, distinct=True)
        below = used | keys
        return replace(node, input=self.of(node.input, below, distinct=used <= keys))

    def _union(self, node: Union, used: frozenset[Column], *, distinct: bool) -> Relation:
        inputs = []
        for branch in (branch for branch in node.inputs if not self.empty(branch)):
            pairs = zip(node.columns, branch.columns, strict=False)
            below = frozenset(old for column, old in pairs if column in used)
            inputs.append(_of_columns(branch, self.of(branch, below, distinct=distinct)))
        return replace(node, inputs=tuple(inputs))

    def empty(self, node: Relation) -> bool:
        """Whether a node has no rows, whatever is below it."""
        if id(node) not in self._empty:
            self._empty[id(node)] = node, self._is_empty(node)
        return self._empty[id(node)][1]

    def _is_empty(self, node: Relation) -> bool:
        match node:
            case Filter():
                conditions: list[Expression] = []
                while isinstance(node, Filter):
                    conditions += conjuncts(node.condition)
                    node = node.input
                return never(conditions) or self.empty(node)
            case Join(kind=JoinKind.INNER | JoinKind.SEMI):
                apart = never(conjuncts(node.condition))
                return apart or self.empty(node.left) or self.empty(node.right)
            case Join(kind=JoinKind.LEFT | JoinKind.ANTI):
                return self.empty(node.left)
            case Union(inputs=inputs):
                return all(map(self.empty, inputs))
            case SetOperation():
                right = node.kind is SetKind.INTERSECT and self.empty(node.right)
                return right or self.empty(node.left)
            case Aggregate():
                grouped = bool(node.keys) if node.sets is None else all(node.sets)
                return grouped and self.empty(node.input)
            case Project() | Sort() | Watermark() | Generate() | Window() | Deduplicate() | Reuse():
                return self.empty(node.input)
        return False

    def _unmatched(self, node: Join, conditions: Sequence[Expression]) -> Relation | None:
        """The plan of a join whose rows find no partner; None: some may."""
        if not (never(conditions[node.null_aware :]) or self.empty(node.right)):
            return None
        here, there = node.left.columns, node.right.columns
        padded = _copied(here) + _absent(there)
        match node.kind:
            case JoinKind.ANTI:
                return node.left
            case JoinKind.LEFT:
                return Project(node.left, padded)
            case JoinKind.FULL:
                others = Project(node.right, _absent(here) + _copied(there))
                return Union((Project(node.left, padded), others), node.columns)
        return None


def never(conditions: Iterable[Expression]) -> bool:
    """Whether conditions, of which all have to hold, contradict each other or themselves.

    >>> from annotations.whitebox.datatypes import INT
    >>> n, two = Ref(Column("n", INT)), Literal(2, INT)
    >>> never([Call("<", (n, two)), Call(">", (n, two))]), never([Call("<>", (n, two))])
    (True, False)
    """
    several = list(conditions)
    values: dict[Expression, list[tuple[str, Any]]] = {}
    signs: dict[frozenset[Expression], set[str]] = {}
    for condition in several:
        match condition:
            case Literal(value=value):
                if value is None or value is False:
                    return True
            case Call(function="or", arguments=choices):
                if all(never(conjuncts(choice)) for choice in choices):
                    return True
            case Call(function="not", arguments=(Call(function=name, arguments=(one, other)),)):
                if isinstance(one, Ref) and one == other and name in _OF_EQUALS:
                    return True
            case Call(function="between", arguments=(one, low, high)):
                _compare(values, ">=", one, low)
                _compare(values, "<=", one, high)
            case Call(function=name, arguments=(one, other)) if name in _OPPOSITE:
                if isinstance(one, Ref) and isinstance(other, Ref):
                    signs.setdefault(frozenset((one, other)), set()).add(name)
                _compare(values, name, one, other)
                _compare(values, _OPPOSITE[name], other, one)
    unequal = any(
        names & _UNEQUAL and (len(pair) == 1 or names & _EQUAL) for pair, names in signs.items()
    )
    return unequal or any(map(_nothing_between, values.values()))


_OPPOSITE: Final = {
    "=": "=",
    "==": "=",
    "<=>": "=",
    "<>": "<>",
    "!=": "<>",
    "<": ">",
    ">": "<",
    "<=": ">=",
    ">=": "<=",
}
"""Comparison -> the same with its sides in each other's place."""
_EQUAL: Final = frozenset({"=", "==", "<=>"})
_OF_EQUALS: Final = _EQUAL | {"<=", ">="}
"""Comparisons that are true of equal values."""
_UNEQUAL: Final = frozenset({"<>", "!=", "<", ">"})
"""Those that never are."""


def _compare(
    values: dict[Expression, list[tuple[str, Any]]], name: str, one: Expression, other: Expression
) -> None:
    """Note a comparison of a column with a constant of its type, an integer or a plain text."""
    value, types = constant_of(other), (type_of(one), type_of(other))
    alike = types[0] == types[1] == STRING or {type_.family for type_ in types} == {Family.INTEGER}
    if isinstance(one, Ref) and value is not None and alike:
        values.setdefault(one, []).append((_OPPOSITE[_OPPOSITE[name]], value))


def _nothing_between(compared: Sequence[tuple[str, Any]]) -> bool:
    """Whether no value compares so with all of these constants."""
    least = [(value, name == ">") for name, value in compared if name in (">", ">=", "=")]
    most = [(value, name == "<") for name, value in compared if name in ("<", "<=", "=")]
    return any(
        low > high or (low == high and (above or below))
        for low, above in least
        for high, below in most
    )


def _same_as_left(
    conditions: Iterable[Expression], used: Collection[Column], left: Collection[Column]
) -> tuple[Output, ...] | None:
    """The columns of the right side as those of the left that they equal; None: one does not."""
    equal = {
        here.column: there
        for one, other in equated(conditions)
        for here, there in ((one, other), (other, one))
        if isinstance(here, Ref) and isinstance(there, Ref) and there.column in left
        and same_value(here.column.type, there.column.type)
    }  # fmt: skip
    return tuple((c, equal[c]) for c in used) if equal.keys() >= {*used} else None


def _one(call: Expression, node: Window) -> bool:
    """Whether a window function gives 1 to every row: a rank among rows of equal order."""
    ranks = isinstance(call, Call) and call.function in ("rank", "dense_rank")
    return ranks and all(key.expression in node.partition for key in node.order)


def _users_first(plan: Relation) -> list[Relation]:
    """The nodes of a plan, each once and before all that stands below it."""
    nodes: list[Relation] = []
    met: set[int] = set()

    def visit(node: Relation) -> None:
        if id(node) not in met:
            met.add(id(node))
            for below in inputs_of(node):
                visit(below)
            nodes.append(node)

    visit(plan)
    return nodes[::-1]


def _of_columns(before: Relation, after: Relation) -> Relation:
    """A relation with all columns that it had, in their order; those that are gone are not used."""
    if after.columns == before.columns:
        return after
    return Project(after, _copied(before.columns))


def _copied(columns: Iterable[Column]) -> tuple[Output, ...]:
    return tuple((column, Ref(column)) for column in columns)


def _absent(columns: Iterable[Column]) -> tuple[Output, ...]:
    return tuple((column, Literal(None, column.type)) for column in columns)


def _read(expressions: Iterable[Expression]) -> frozenset[Column]:
    return frozenset[Column]().union(*map(references, expressions))


def _aggregates(expression: Expression) -> bool:
    """Whether it may be more than a value of the group's keys."""
    return any(
        isinstance(part, Call)
        and (part.user is not None or (row := FUNCTIONS.get(part.function)) is None
             or row.kind is not Kind.SCALAR)
        for part in walk(expression)
    )  # fmt: skip


def _single(node: Relation) -> bool:
    """Whether a node has exactly one row, whatever is below it."""
    while isinstance(node, Project | Sort | Window | Reuse):
        node = node.input
    return isinstance(node, Aggregate) and not node.keys and node.sets is None


def _one_each(node: Relation, conditions: Iterable[Expression], others: Collection[Column]) -> bool:
    """Whether at most one of its rows meets conditions that equate its columns with others."""
    tied = frozenset(
        mine.column
        for pair in equated(conditions)
        for mine, other in (pair, pair[::-1])
        if isinstance(mine, Ref) and mine.column not in others and references(other) <= {*others}
    )
    while isinstance(node, Project | Filter | Sort | Reuse):
        if isinstance(node, Project):
            outputs = node.outputs
            tied = frozenset(o.column for c, o in outputs if c in tied and isinstance(o, Ref))
        elif isinstance(node, Reuse):
            pairs = zip(node.columns, node.input.columns, strict=True)
            tied = frozenset(old for column, old in pairs if column in tied)
        node = node.input
    if isinstance(node, Deduplicate):
        return tied >= {*node.keys}
    if not isinstance(node, Aggregate) or not node.keys or node.sets is not None:
        return False
    held = [expression for column, expression in node.outputs if column in tied]
    return all(key in held for key in node.keys)
