"""Which kept records a computation can need, given what is new: worked out from its plan.

A component that joins requests with clicks on `id` needs, for some requests, the clicks with their
ids and no others. That follows from the query and from nothing that anybody declares; here it is
derived from its optimised logical plan (`logical_plan` reads it), node by node:

- `probes`: given all rows of some inputs, the *drivers*, which rows of the others can matter: those
  whose columns have values that columns of a driver have; `look_ups` follows them from input to
  input;
- `shared_keys`: columns of every input by which the computation falls apart: what it makes of all
  rows is, as a set, what it makes of the rows of each value, taken together;
- `is_distributive`: what it makes of new rows of one input and all of the others, added to what it
  made before, is what it makes of all, as a set.

Each answer is given only where it is sure. An operator that is not known (`Opaque`) makes no
statement about what is below it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

Attribute: TypeAlias = int
"""A column of an operator's output; unique in a plan, but for operators that pass it on."""
Columns: TypeAlias = tuple[str, ...]

Passed: TypeAlias = Mapping[Attribute, Attribute] | None
"""Columns of an operator's output that are columns of its input; None: all, as they are called."""

KINDS: Final = ("inner", "left", "right", "full", "semi", "anti")
CLASSES_MAX: Final = 256
"""Ways to split a computation that are followed at once."""


@dataclass(frozen=True, slots=True)
class Input:
    """Rows of an input."""

    name: str
    columns: Mapping[Attribute, str]
    """Those that may be compared with others: see `logical_plan.comparable`."""


@dataclass(frozen=True, slots=True)
class Constant:
    """Rows that depend on no input."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Any number of rows for each row of its input, which depend on that row only."""

    child: Node
    passed: Passed


@dataclass(frozen=True, slots=True)
class Groups:
    """Results that depend on all rows that are equal in some columns.

    Args:
        child: the rows.
        by: the columns.
        passed: of an output with a row for each group, the columns among `by` only count.
        plain: the output is the distinct values of these columns.
    """

    child: Node
    by: frozenset[Attribute]
    passed: Passed
    plain: bool = False


@dataclass(frozen=True, slots=True)
class Join:
    """A join; `equal` are pairs of a left and a right column that its condition equates."""

    left: Node
    right: Node
    kind: str
    equal: frozenset[tuple[Attribute, Attribute]]


@dataclass(frozen=True, slots=True)
class Union:
    """All rows of all children; column -> what it is in each."""

    children: tuple[Node, ...]
    passed: Mapping[Attribute, tuple[Attribute, ...]]


@dataclass(frozen=True, slots=True)
class Opaque:
    """Something of which nothing is known, but that it is a function of its input."""

    children: tuple[Node, ...]


Node: TypeAlias = Input | Constant | Rows | Groups | Join | Union | Opaque


# ---- what rows of the drivers ask for


@dataclass(frozen=True, slots=True)
class Probe:
    """Rows of an input that matter: those whose `columns` a driver's `by` have in one row."""

    columns: Columns
    by: frozenset[tuple[str, Columns]]
    """(driver, its columns), in the order of `columns`."""


def probes(plan: Node, drivers: Iterable[str]) -> Mapping[str, Probe | None]:
    """Input -> which of its rows matter, given those of the drivers; None: any.

    An input of which no row matters is left out.

    Args:
        plan: of the computation.
        drivers: inputs of which all rows are given.
    """
    return _probes(plan, frozenset(drivers), None)


def _probes(
    plan: Node, drivers: frozenset[str], new: frozenset[str] | None
) -> Mapping[str, Probe | None]:
    probes_of: dict[str, list[Probe | None]] = {}
    for leaf in _Driven(drivers, new).visit(plan).leaves:
        probes_of.setdefault(leaf.name, []).append(leaf.probe)
    return {name: _joint(of_input) for name, of_input in probes_of.items()}


def look_ups(plan: Node, drivers: Iterable[str], *, adding: bool = False) -> tuple[LookUp, ...]:
    """The look-ups in the other inputs, one after the other; see `probes`.

    A look-up may ask for what an earlier one has found.
    """
    steps: dict[str, LookUp] = {}
    given = frozenset(drivers)
    new = given if adding else None
    while True:
        probes_of = _probes(plan, given, new)
        step = next(
            (LookUp(name, p) for name, p in sorted(probes_of.items()) if p is not None), None
        )
        if step is None:
            rest = [LookUp(name, None) for name in sorted(probes_of)]
            return (*steps.values(), *rest)
        steps[step.name] = step
        given |= {step.name}


@dataclass(frozen=True, slots=True)
class LookUp:
    """Rows of an input that are needed: what the probe finds, or all."""

    name: str
    probe: Probe | None


def _joint(probes_of: Sequence[Probe | None]) -> Probe | None:
    """One probe that finds what each of several finds."""
    known = [probe for probe in probes_of if probe is not None]
    common = (
        [name for name in known[0].columns if all(name in probe.columns for probe in known[1:])]
        if known
        else []
    )
    if len(known) < len(probes_of) or not common:
        return None
    by = {
        (driver, tuple(columns[probe.columns.index(name)] for name in common))
        for probe in known
        for driver, columns in probe.by
    }
    return Probe(tuple(common), frozenset(by))


Origins: TypeAlias = Mapping[int, tuple[str, str]]
"""Occurrence of a driver in the plan -> (driver, column). The values of an attribute are, nulls
aside, values of one of these columns; those of one row and occurrence, of one row of it."""


@dataclass(frozen=True, slots=True)
class _Leaf:
    """One occurrence of an input that does not drive.

    Rows of a node whose `linked[column]` has a value depend on no rows of the leaf but those whose
    column has that value. Once there is a probe, the whole node depends on no others than it finds.
    """

    name: str
    linked: Mapping[str, frozenset[Attribute]]
    probe: Probe | None = None

    def passed(self, to: Mapping[Attribute, Iterable[Attribute]]) -> _Leaf:
        """The leaf, seen from an operator that passes attributes on under other names."""
        linked = {
            column: frozenset(out for origin in of for out in to.get(origin, ()))
            for column, of in self.linked.items()
        }
        return _Leaf(self.name, linked, self.probe)


@dataclass(frozen=True, slots=True)
class _Seen:
    leaves: Sequence[_Leaf] = ()
    origins: Mapping[Attribute, Origins] = field(default_factory=dict)


class _Driven:
    """The walk of `probes`."""

    def __init__(self, drivers: frozenset[str], new: frozenset[str] | None) -> None:
        self._drivers = drivers
        self._new = new
        self._occurrences = itertools.count()

    def visit(self, node: Node) -> _Seen:
        match node:
            case Input(name, columns) if name in self._drivers:
                number = next(self._occurrences)
                return _Seen((), {column: {number: (name, c)} for column, c in columns.items()})
            case Input(name, columns):
                return _Seen(
                    [_Leaf(name, {c: frozenset([column]) for column, c in columns.items()})]
                )
            case Constant():
                return _Seen()
            case Rows(child, passed):
                return self._passed(self.visit(child), passed)
            case Groups(child, by, passed):
                below = self.visit(child)
                apart = [
                    _Leaf(leaf.name, {c: s for c, s in leaf.linked.items() if s & by}, leaf.probe)
                    for leaf in below.leaves
                ]
                return self._passed(_Seen(apart, below.origins), _among(passed, by))
            case Join():
                return self._join(node)
            case Union(children, passed):
                return self._union([self._branch(child) for child in children], passed)
            case Opaque(children):
                seen = [self.visit(child) for child in children]
                return _Seen([_Leaf(leaf.name, {}, leaf.probe) for s in seen for leaf in s.leaves])

    def _branch(self, node: Node) -> _Seen:
        """A child of a union: of one that adds nothing, and harms by nothing, no row is needed."""
        names = set(inputs_of(node))
        superfluous = (
            self._new is not None
            and not names & self._new
            and all(is_distributive(node, name) for name in names)
        )
        return _Seen() if superfluous else self.visit(node)

    def _passed(self, below: _Seen, passed: Passed) -> _Seen:
        if passed is None:
            return below
        to = _reversed((into, out) for out, into in passed.items())
        origins = {
            out: below.origins[into] for out, into in passed.items() if into in below.origins
        }
        return _Seen([leaf.passed(to) for leaf in below.leaves], origins)

    def _union(
        self, seen: Sequence[_Seen], passed: Mapping[Attribute, tuple[Attribute, ...]]
    ) -> _Seen:
        leaves = []
        for place, child in enumerate(seen):
            to = _reversed((into[place], out) for out, into in passed.items())
            leaves += [leaf.passed(to) for leaf in child.leaves]
        origins = {}
        for out, into in passed.items():
            of_children = [child.origins.get(i) for child, i in zip(seen, into, strict=True)]
            known = [origin for origin in of_children if origin is not None]
            if len(known) == len(seen):
                origins[out] = {k: v for origin in known for k, v in origin.items()}
        return _Seen(leaves, origins)

    def _join(self, node: Join) -> _Seen:
        left, right = self.visit(node.left), self.visit(node.right)
        ahead = sorted(node.equal)
        back = [(there, here) for here, there in ahead]
        leaves = []
        for leaf in left.leaves:
            only_matched = node.kind in ("inner", "right", "semi")
            leaves.append(_met(leaf, back, right.origins if only_matched else {}))
        for leaf in right.leaves:
            only_matched = node.kind in ("inner", "left", "semi", "anti")
            leaves.append(_met(leaf, ahead, left.origins if only_matched else {}))
        origins = {**left.origins, **right.origins}
        if node.kind in ("inner", "left"):
            origins |= {there: left.origins[here] for here, there in ahead if here in left.origins}
        if node.kind in ("inner", "right", "semi"):
            origins |= {
                here: right.origins[there] for there, here in back if there in right.origins
            }
        return _Seen(leaves, {**origins, **left.origins, **right.origins})


def _met(
    leaf: _Leaf, pairs: Sequence[tuple[Attribute, Attribute]], origins: Mapping[Attribute, Origins]
) -> _Leaf:
    """A leaf of one side of a join; `pairs` of (other side, this side), `origins` of the other."""
    linked = {
        column: of | {other for other, own in pairs if own in of}
        for column, of in leaf.linked.items()
    }
    if leaf.probe is not None:
        return _Leaf(leaf.name, linked, leaf.probe)
    asked = {
        column: origins[other]
        for column, of in sorted(leaf.linked.items())
        for other, own in pairs
        if own in of and other in origins
    }
    if not asked:
        return _Leaf(leaf.name, linked)
    occurrences = next(iter(asked.values())).keys()
    columns = tuple(column for column, of in asked.items() if of.keys() == occurrences)
    by = {
        (
            asked[columns[0]][occurrence][0],
            tuple(asked[column][occurrence][1] for column in columns),
        )
        for occurrence in occurrences
    }
    return _Leaf(leaf.name, linked, Probe(columns, frozenset(by)))


# ---- by what a computation falls apart


def shared_keys(plan: Node) -> Mapping[str, Columns] | None:
    """Columns of every input of the plan, in one order, by which it falls apart; None: by none."""
    chosen: list[Mapping[str, str]] = []
    for shared in _classes(plan) or ():
        used = [{of[name] for of in chosen} for name in shared.columns]
        if not any(c in taken for c, taken in zip(shared.columns.values(), used, strict=True)):
            chosen.append(shared.columns)
    if not chosen:
        return None
    first = min(chosen[0])
    chosen.sort(key=lambda of: of[first])
    return {name: tuple(of[name] for of in chosen) for name in chosen[0]}


@dataclass(frozen=True, slots=True)
class _Class:
    """A way to split: a column of each input, and attributes of the node that have its value."""

    columns: Mapping[str, str]
    held: frozenset[Attribute]

    def passed(self, to: Mapping[Attribute, Iterable[Attribute]]) -> _Class:
        held = frozenset(out for column in self.held for out in to.get(column, ()))
        return _Class(self.columns, held)


def _classes(node: Node) -> list[_Class] | None:
    """The ways to split what a node computes; None: it depends on no input."""
    match node:
        case Input(name, columns):
            return [_Class({name: c}, frozenset([column])) for column, c in columns.items()]
        case Constant():
            return None
        case Rows(child, passed):
            return _classes_passed(_classes(child), passed)
        case Groups(child, by, passed, plain):
            below = _classes(child)
            if not plain and below is not None:  # of a set, each part may have what others have
                below = [shared for shared in below if shared.held & by]
            return _classes_passed(below, _among(passed, by))
        case Join():
            return _classes_of_join(node)
        case Union(children, passed):
            return _classes_of_union([_classes(child) for child in children], passed)
        case Opaque(children):
            return None if all(_classes(child) is None for child in children) else []


def _classes_passed(below: list[_Class] | None, passed: Passed) -> list[_Class] | None:
    if below is None or passed is None:
        return below
    to = _reversed((into, out) for out, into in passed.items())
    return [shared.passed(to) for shared in below]


def _classes_of_join(node: Join) -> list[_Class] | None:
    left, right = _classes(node.left), _classes(node.right)
    if left is None or right is None:
        if left is right:
            return None
        preserving = ("inner", "left", "semi", "anti") if right is None else ("inner", "right")
        return (left or right or []) if node.kind in preserving else []
    classes = []
    for one, other in itertools.product(left, right):
        met = any(here in one.held and there in other.held for here, there in node.equal)
        columns = _agreed([one.columns, other.columns])
        if met and columns is not None:
            held = {
                "inner": one.held | other.held,
                "right": other.held,
                "full": frozenset[Attribute](),
            }.get(node.kind, one.held)
            classes.append(_Class(columns, held))
    return classes[:CLASSES_MAX]


def _classes_of_union(
    children: Sequence[list[_Class] | None], passed: Mapping[Attribute, tuple[Attribute, ...]]
) -> list[_Class] | None:
    known = [child for child in children if child is not None]
    if not known:
        return None
    if len(known) < len(children):
        return []  # rows that are there whatever the inputs hold
    result = [_Class({}, frozenset(passed))]
    for place, child in enumerate(known):
        to = _reversed((into[place], out) for out, into in passed.items())
        pairs = itertools.product(result, (shared.passed(to) for shared in child))
        result = [
            _Class(columns, one.held & other.held)
            for one, other in pairs
            if (columns := _agreed([one.columns, other.columns])) is not None
        ][:CLASSES_MAX]
    return result


def _agreed(columns: Sequence[Mapping[str, str]]) -> Mapping[str, str] | None:
    """All of them in one, unless they name several columns of an input."""
    joint: dict[str, str] = {}
    for names in columns:
        if any(joint.setdefault(name, column) != column for name, column in names.items()):
            return None
    return joint


# ---- whether new rows can be looked at alone


def is_distributive(plan: Node, name: str) -> bool:
    """Whether new rows of an input add to the output just what follows from them, as a set."""
    return _distributes(plan, name) is not False


def _distributes(node: Node, name: str) -> bool | None:
    """None: the input is not below."""
    match node:
        case Input(other):
            return True if other == name else None
        case Constant():
            return None
        case Rows(child):
            return _distributes(child, name)
        case Groups(child, plain=plain):
            rows = _distributes(child, name)
            return rows if plain or rows is None else False
        case Join(left, right, kind):
            on_left, on_right = _distributes(left, name), _distributes(right, name)
            if on_left is None and on_right is None:
                return None
            if on_right is None:
                return bool(on_left) and kind in ("inner", "left", "semi", "anti")
            return bool(on_right) and on_left is None and kind in ("inner", "right", "semi")
        case Union(children) | Opaque(children):
            below = [_distributes(child, name) for child in children]
            known = [distributed for distributed in below if distributed is not None]
            if not known:
                return None
            return isinstance(node, Union) and all(known)


def _among(passed: Passed, by: frozenset[Attribute]) -> Passed:
    """Of the columns that are passed on, those among `by`."""
    return passed and {out: into for out, into in passed.items() if into in by}


def inputs_of(node: Node) -> Iterator[str]:
    """The names of all inputs below."""
    match node:
        case Input(name):
            yield name
        case Constant():
            pass
        case Rows(child) | Groups(child):
            yield from inputs_of(child)
        case Join(left, right):
            yield from inputs_of(left)
            yield from inputs_of(right)
        case Union(children) | Opaque(children):
            for child in children:
                yield from inputs_of(child)


def _reversed(
    pairs: Iterable[tuple[Attribute, Attribute]],
) -> Mapping[Attribute, Sequence[Attribute]]:
    """First of a pair -> all seconds that it is paired with."""
    result: dict[Attribute, list[Attribute]] = {}
    for one, other in pairs:
        result.setdefault(one, []).append(other)
    return result
