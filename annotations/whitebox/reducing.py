"""A plan without what its result does not use: SP-23 of `docs/explanation/splitting.md`.

    reduced(plan)

has the same rows as the plan, each as often, for every content of the inputs; so it splits by a key
exactly if the plan does. Two facts go from the top down: which columns of a node are used, and
whether it matters how often a row comes. To the right of a semi or anti join, below DISTINCT and
groups without aggregates, and on both sides of EXCEPT and INTERSECT it does not.

What is left out must be sure to give each row exactly once without it:

- a window none of whose columns is used, or that ranks by what it is partitioned by: 1; the
  greatest and the least of what it is partitioned by are it;
- a join with a single row, or a left join with one row at most for each of the left, where no
  column of the other side is used; any left join where numbers do not matter;
- DISTINCT, and groups of which only keys are used, where numbers do not matter;
- a condition that no row can meet: `x <> x`, `x BETWEEN 2 AND 0`, `x = y AND x < y + 0`, and one
  that every row meets: `count(*) >= 0`, `x = x` or `x IS NOT NULL` where `x` is never NULL.

How often a row comes does not matter either to groups whose aggregates are all like `max`.
INTERSECT and EXCEPT, without ALL, are DISTINCT of a semi and an anti join.

LIMIT, samples, state and code that is not understood keep all of their columns.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from annotations.dataflow import EMPTY
from annotations.whitebox.datatypes import BOOLEAN, STRING, Family
from annotations.whitebox.functions import FUNCTIONS, Kind
from annotations.whitebox.grouping import aggregation_of
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
    Output,
    Project,
    Ref,
    Relation,
    Reuse,
    Sample,
    SetKind,
    SetOperation,
    Sort,
    Source,
    Union,
    Watermark,
    Window,
    changed,
    inputs_of,
    nodes_of,
    references,
    single,
    walk,
)
from annotations.whitebox.joining import asks_for, conjuncts, equated
from annotations.whitebox.keys import same_value
from annotations.whitebox.monotone import constant_of, may_be_null, sign_of, type_of


def reduced(plan: Relation, keys: Mapping[str, Sequence[str]] = EMPTY) -> Relation:
    """The plan without what its result does not use; the plan itself where that has no rows.

    No record of an input lacks one of the attributes that `keys` has for it.
    """
    reduction = _Reduction(plan, keys)
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
    def __init__(self, plan: Relation, keys: Mapping[str, Sequence[str]]) -> None:
        self._keys = keys
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
                if self._holds(node.input, node.condition):
                    return self.of(node.input, used, distinct=distinct)
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
            case SetOperation(left=left, right=right) if (
                not node.all or self.empty(right)
            ) and all(
                same_value(one.type, other.type)
                for one, other in zip(left.columns, right.columns, strict=True)
            ):
                return self.of(_as_join(node), used, distinct=distinct)
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
        known = tuple((c, value) for c, call in node.outputs
                      if c in used and (value := _known(call, node)) is not None)  # fmt: skip
        others = used - {column for column, _ in known}
        outputs = tuple(output for output in node.outputs if output[0] in others)
        if known:
            rest = replace(node, outputs=outputs)
            below = others | _read(value for _, value in known)
            rows = self.of(rest, below, distinct=distinct)
            return Project(rows, _copied(rows.columns) + known)
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
            one = single(node.right)
            once = distinct or one or _one_each(node.right, conditions, in_left)
            if (cross and one) or (node.kind is JoinKind.LEFT and once):
                return self.of(node.left, used, distinct=distinct)
        if distinct and node.kind is JoinKind.INNER:
            for side, other in ((node.left, node.right), (node.right, node.left)):
                others = [column for column in other.columns if column in used]
                same = _same_as_left(conditions, others, side.columns)
                if same is not None:
                    semi = replace(node, left=side, right=other, kind=JoinKind.SEMI)
                    outputs = _copied(c for c in side.columns if c in used) + same
                    return self.of(Project(semi, outputs), used, distinct=True)
        right = self.of(node.right, read & in_right, distinct=distinct or one_sided)
        if cross and not used & in_left and single(node.left):
            return right
        return replace(node, left=left, right=right)

    def _aggregate(self, node: Aggregate, used: frozenset[Column], *, distinct: bool) -> Relation:
        outputs = tuple(output for output in node.outputs if output[0] in used)
        of_keys = not any(_aggregates(expression) for _, expression in outputs)
        of_which = not any(_counts(expression) for _, expression in outputs)
        below = _read(node.keys) | _read(expression for _, expression in outputs)
        if distinct and of_keys and node.keys and node.sets is None:
            rows = self.of(node.input, below, distinct=True)
            return Project(rows, outputs, node.position)
        return replace(node, input=self.of(node.input, below, distinct=of_which), outputs=outputs)

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

    def _holds(self, node: Relation, condition: Expression) -> bool:
        """Whether every row of a node meets a condition."""
        match condition:
            case Ref(column=column) if (behind := _behind(node, column)) is not None:
                return self._holds(*behind)
            case Literal(value=value):
                return value is True
            case Call(function="and", arguments=parts):
                return all(self._holds(node, part) for part in parts)
            case Call(function="or", arguments=parts):
                return any(self._holds(node, part) for part in parts)
            case Call(function="is not null" | "isnotnull", arguments=(value,)):
                return self._there(node, value)
            case Call(function="not", arguments=(Call(function="is null", arguments=(value,)),)):
                return self._there(node, value)
            case Call(function="<=>", arguments=(one, other)):
                return isinstance(one, Ref) and one == other
            case Call(function=name, arguments=(one, other)) if name in _OF_EQUALS and one == other:
                return isinstance(one, Ref) and self._there(node, one)
            case Call(function=">=" | ">" as name, arguments=(value, bound)):
                least = constant_of(bound)
                low = isinstance(least, int) and (least < 0 or (least == 0 and name == ">="))
                counted = isinstance(value, Call) and value.function in _COUNTS
                return low and (counted or sign_of(value) == 1) and self._there(node, value)
        return False

    def _there(self, node: Relation, value: Expression) -> bool:
        """Whether a value is never NULL in the rows of a node."""
        below: tuple[Relation, Expression] | None = (node, value)
        while below is not None:
            node, value = below
            if not isinstance(value, Ref):
                return not may_be_null(value)
            match node:
                case Filter() | Join(kind=JoinKind.INNER | JoinKind.SEMI):
                    if any(asks_for(value.column, term) for term in conjuncts(node.condition)):
                        return True
                case Source():
                    column = value.column
                    return not column.nullable or column.name in self._keys.get(node.name, ())
            below = _below(node, value)
        return False

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


def _below(node: Relation, value: Ref) -> tuple[Relation, Expression] | None:
    """The value of a node's column over a node directly below; None: it does not stay the same."""
    match node:
        case Project() | Window() | Aggregate(sets=None):
            expression = dict(node.outputs).get(value.column)
            if expression is not None:
                return node.input, expression
            return (node.input, value) if isinstance(node, Window) else None
        case Filter() | Sort() | Watermark() | Deduplicate() | Limit() | Sample() | Generate():
            return (node.input, value) if value.column in node.input.columns else None
        case Join(left=left, right=right, kind=kind):
            if value.column in left.columns:
                return (left, value) if kind is not JoinKind.FULL else None
            return (right, value) if kind is JoinKind.INNER else None
        case Reuse(input=input_, columns=columns):
            return input_, Ref(dict(zip(columns, input_.columns, strict=True))[value.column])
    return None


def _behind(node: Relation, column: Column) -> tuple[Relation, Expression] | None:
    """The value that a column was computed as, over the node below that it was computed of."""
    place: tuple[Relation, Expression] | None = (node, Ref(column))
    while place is not None and isinstance(place[1], Ref):
        place = _below(place[0], place[1])
    return place


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
    return unequal or _out_of_step(several) or any(map(_nothing_between, values.values()))


_STEPS: Final = 256
"""Arithmetic of every integer type, where it wraps, is right up to multiples of this."""


def _out_of_step(conditions: Iterable[Expression]) -> bool:
    """Whether equalities of integers with constant differences contradict each other.

    >>> from annotations.whitebox.datatypes import INT
    >>> n, m = (Ref(Column(name, INT)) for name in "nm")
    >>> more = Call("+", (m, Literal(1, INT)), INT)
    >>> _out_of_step([Call("=", (n, m)), Call("=", (n, more))])
    True
    """
    steps: dict[Ref | None, list[tuple[Ref | None, int]]] = {}
    for condition in conditions:
        match condition:
            case Call(function="=" | "==", arguments=(one, other)):
                sides = _step(one), _step(other)
                if sides[0] is not None and sides[1] is not None:
                    (left, more), (right, added) = sides[0], sides[1]
                    steps.setdefault(left, []).append((right, more - added))
                    steps.setdefault(right, []).append((left, added - more))
    places: dict[Ref | None, int] = {}
    for start in steps:
        todo = [] if start in places else [start]
        places.setdefault(start, 0)
        while todo:
            here = todo.pop()
            for there, step in steps[here]:
                if there not in places:
                    places[there] = places[here] + step
                    todo.append(there)
                elif (places[here] + step - places[there]) % _STEPS:
                    return True
    return False


def _step(value: Expression) -> tuple[Ref | None, int] | None:
    """An integer as a column, or nothing, and what is added to it."""
    if type_of(value).family is not Family.INTEGER:
        return None
    constant = constant_of(value)
    if isinstance(constant, int):
        return None, constant
    match value:
        case Ref():
            return value, 0
        case Call(function="+" | "-" as name, arguments=(one, other)):
            here, there = _step(one), _step(other)
            if here is None or there is None or (there[0] is not None and name == "-"):
                return None
            if here[0] is not None and there[0] is not None:
                return None
            added = here[1] - there[1] if name == "-" else here[1] + there[1]
            return here[0] or there[0], added
    return None


_COUNTS: Final = ("count", "count_if", "row_number", "rank", "dense_rank")
"""Functions of several rows that give no negative number."""
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


def _known(call: Expression, node: Window) -> Expression | None:
    """The value that a window function gives to every row, if the row tells: 1 as a rank among
    rows of equal order, and as the greatest or least of what they are partitioned by, that."""
    match call:
        case Call(function="rank" | "dense_rank") if all(
            key.expression in node.partition for key in node.order
        ):
            return Literal(1, type_of(call))
        case Call(function="max" | "min", arguments=(value,), condition=None, user=None) if (
            value in node.partition and type_of(value).identical
        ):
            return value if not (node.order or node.rows) else None
    return None


def _as_join(node: SetOperation) -> Relation:
    """INTERSECT or EXCEPT as a join of its sides; all rows of the left where the right has none."""
    pairs = zip(map(Ref, node.left.columns), map(Ref, node.right.columns), strict=True)
    same = tuple(Call("<=>", pair, BOOLEAN, False) for pair in pairs)
    condition = Call("and", same, BOOLEAN, False)
    kind = JoinKind.SEMI if node.kind is SetKind.INTERSECT else JoinKind.ANTI
    rows = Join(node.left, node.right, kind, condition, position=node.position)
    copies = Project(rows, tuple(zip(node.columns, map(Ref, node.left.columns), strict=True)))
    return copies if node.all else Deduplicate(copies, node.columns, grouped=True)


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
    return any(isinstance(part, Call) and not _is_scalar(part) for part in walk(expression))


def _counts(expression: Expression) -> bool:
    """Whether it may depend on how often a row comes in its group."""
    return any(
        isinstance(part, Call)
        and not _is_scalar(part)
        and (part.user is not None or (row := aggregation_of(part)) is None
             or (row.duplicates and not part.distinct))
        for part in walk(expression)
    )  # fmt: skip


def _is_scalar(call: Call) -> bool:
    row = FUNCTIONS.get(call.function)
    return call.user is None and row is not None and row.kind is Kind.SCALAR


def is_scalar(expression: Expression) -> bool:
    """Whether a value is computed of one row alone, by what is known and draws nothing."""
    return all(
        isinstance(part, Ref | Literal) or (isinstance(part, Call) and _is_scalar(part))
        for part in walk(expression)
    )


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
