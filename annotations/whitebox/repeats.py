"""The effect of a record that comes again on the output of a query, operator by operator.

Repeats travel from the sources up. A row that comes again passes through operators that look at one
row or at pairs, is absorbed where rows are kept as a set, and corrupts what counts. Behind an
operator that absorbs, nothing is left of it for those above. Specification of delivery, 1.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from annotations.vocabulary import Repeats, Rows
from annotations.whitebox.functions import AGGREGATES, FUNCTIONS
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Deduplicate,
    Expression,
    Filter,
    Generate,
    Join,
    JoinKind,
    Project,
    Relation,
    Reuse,
    Role,
    Sample,
    SetOperation,
    Sort,
    Source,
    Union,
    Unknown,
    Watermark,
    inputs_of,
    walk,
)

ABSORB, PASS, MAKE, CORRUPT = Repeats
ONE, JOINED, MANY = Rows

FIRST: Final = frozenset({"first", "first_value", "any_value"})
"""Aggregates that a later copy does not change, though they count duplicates."""

Copies = Mapping[str, tuple[Repeats, Rows]]
"""Source -> what a repeat of its records does to the rows of a node, and how many rows it makes."""

_SEVERITY: Final = {rank: number for number, rank in enumerate(Repeats)}


def repeats_of(plan: Relation, *, output_mode: str) -> Copies:
    """For every source that records come from: `repeats` and `rows` of its path to the output.

    Args:
        plan: of the output.
        output_mode: Spark's, of groups that are put out without a seal.
    """
    try:
        copies = _Pass(put_out_once=output_mode == "append").of(plan)
    except RecursionError:
        return {}
    if output_mode != "append" and _groups_last(plan):
        copies = {
            name: (repeats if repeats is CORRUPT else MAKE, MANY)
            for name, (repeats, _) in copies.items()
        }
    several = any(rows is MANY for _, rows in copies.values())
    return {  # a pair of records makes one row, where each of both makes one with each other
        name: (repeats, MANY if several and rows is JOINED else rows)
        for name, (repeats, rows) in copies.items()
    }


def _groups_last(node: Relation) -> bool:
    """Whether rows are put out that stand for groups; Spark makes some of a DISTINCT of SQL."""
    match node:
        case Deduplicate(grouped=grouped):
            return grouped
        case Aggregate():
            return True
        case Project() | Filter() | Sort() | Generate() | Union():
            return any(map(_groups_last, inputs_of(node)))
    return False


class _Pass:
    """One way up through a plan; what stands in several places is gone through once."""

    def __init__(self, *, put_out_once: bool) -> None:
        self.put_out_once = put_out_once
        self._copies: dict[int, Copies] = {}
        self._of_records: dict[int, bool] = {}

    def of(self, node: Relation) -> Copies:
        """Source -> the effect of a repeat of its records on the rows of a node."""
        if id(node) not in self._copies:
            self._copies[id(node)] = self._of(node)
        return self._copies[id(node)]

    def _of(self, node: Relation) -> Copies:
        inputs = [self.of(source) for source in inputs_of(node)]
        match node:
            case Source(role=Role.STREAM | Role.REQUEST, name=name):
                return {name: (PASS, ONE)}
            case Source():
                return {}
            case Project(outputs=outputs):
                return _if_known((e for _, e in outputs), inputs[0])
            case Filter(condition=condition):
                return _if_known([condition], inputs[0])
            case Sort() | Watermark() | Sample() | Reuse():
                return inputs[0]
            case Generate(generator=generator):
                return _if_known([generator], _rows(inputs[0], MANY))
            case Join():
                return self._join(node, *inputs)
            case Union():
                return _together(inputs)
            case Aggregate(outputs=outputs, keys=keys, sets=sets):
                harmless = all(map(_counts_once, (e for _, e in outputs)))
                behind = CORRUPT if not harmless else ABSORB if self.put_out_once else MAKE
                counted = _counted(inputs[0], behind)
                # A record that made several rows may be in several groups.
                single = self.put_out_once and sets is None and not any(map(_slides, keys))
                return counted if single else _rows(counted, MANY)
            case Deduplicate(expires=expires):
                return _counted(inputs[0], MAKE if expires else ABSORB)
            case SetOperation(all=every):
                return _rows(_counted(_together(inputs), CORRUPT if every else ABSORB), MANY)
        return _rows(_counted(_together(inputs), CORRUPT), MANY)

    def _join(self, node: Join, left: Copies, right: Copies) -> Copies:
        if node.kind in (JoinKind.SEMI, JoinKind.ANTI):
            # A row that is none of records is put out for each micro-batch that has its partner.
            behind = ABSORB if self._is_of_records(node.left) else MAKE
            return _together([left, _rows(_counted(right, behind), MANY)])
        if node.condition is not None:
            left, right = _if_known([node.condition], left), _if_known([node.condition], right)
        by_pairs = all(map(self._is_of_records, inputs_of(node)))
        if node.kind is not JoinKind.INNER or not by_pairs or left.keys() & right.keys():
            return _rows(_together([left, right]), MANY)
        paired = _together([left, right])
        single = all(rows is not MANY for _, rows in paired.values())
        return _rows(paired, JOINED if single else MANY)

    def _is_of_records(self, node: Relation) -> bool:
        """Whether each row is made of a record; those of a table, and of none at all, are not."""
        if id(node) not in self._of_records:
            self._of_records[id(node)] = self._made_of_records(node)
        return self._of_records[id(node)]

    def _made_of_records(self, node: Relation) -> bool:
        if isinstance(node, Source):
            return node.role in (Role.STREAM, Role.REQUEST)
        if isinstance(node, Aggregate) and not node.keys:
            return False
        inputs = list(map(self._is_of_records, inputs_of(node)))
        if isinstance(node, Join):
            return any(inputs) if node.kind is JoinKind.INNER else inputs[0]
        return bool(inputs) and all(inputs)


def _counted(copies: Copies, behind: Repeats) -> Copies:
    """Behind an operator over several rows: what has been absorbed below does not reach it."""
    return {
        name: (repeats if repeats in (ABSORB, CORRUPT) else behind, rows)
        for name, (repeats, rows) in copies.items()
    }


def _rows(copies: Copies, rows: Rows) -> Copies:
    return {name: (repeats, rows) for name, (repeats, _) in copies.items()}


def _together(several: Iterable[Copies]) -> Copies:
    """Where one source comes in several ways: the worst of them, and any number of rows."""
    worst: dict[str, tuple[Repeats, Rows]] = {}
    for copies in several:
        for name, (repeats, rows) in copies.items():
            if name in worst:
                repeats, rows = max(repeats, worst[name][0], key=_SEVERITY.__getitem__), MANY
            worst[name] = (repeats, rows)
    return worst


def _if_known(expressions: Iterable[Expression], copies: Copies) -> Copies:
    """As they are, unless one of the expressions is not understood."""
    known = not any(
        isinstance(part, Unknown) for expression in expressions for part in walk(expression)
    )
    return copies if known else _counted(copies, CORRUPT)


def _slides(key: Expression) -> bool:
    """Whether a record may be in several groups: of windows that overlap."""
    return any(
        isinstance(part, Call) and part.function == "window" and len(part.arguments) > 2
        for part in walk(key)
    )


def _counts_once(expression: Expression) -> bool:
    """Whether an output of an aggregation stays the same where a record comes again."""
    for part in walk(expression):
        if isinstance(part, Unknown):
            return False
        if isinstance(part, Call) and part.function in AGGREGATES:
            once = part.distinct or part.function in FIRST
            row = FUNCTIONS[part.function].aggregation
            if not once and (row is None or row.duplicates):
                return False
    return True
