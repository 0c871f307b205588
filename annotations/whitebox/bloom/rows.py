"""Relations with the rows that a block sees in them, and the small relations that plans are of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from annotations.dataflow import Position
from annotations.whitebox.bloom.expressions import Clock, Row
from annotations.whitebox.datatypes import BOOLEAN, VALUE
from annotations.whitebox.ir import (
    Call,
    Column,
    Expression,
    Literal,
    Opaque,
    Project,
    Ref,
    Relation,
    Role,
    Source,
    Union,
)
from annotations.whitebox.monotone import type_of


@dataclass(frozen=True, slots=True)
class Rows:
    """A relation, and the columns of each collection in it."""

    relation: Relation
    rows: tuple[Row | Clock, ...]

    @classmethod
    def of(cls, relation: Relation) -> Rows:
        """A relation all of whose columns are one row."""
        return cls(relation, (relation.columns,))

    @property
    def columns(self) -> Row:
        """All columns."""
        return tuple(c for row in self.rows if isinstance(row, tuple) for c in row)

    @property
    def timed(self) -> bool:
        """True where a timer takes part."""
        return any(isinstance(row, Clock) for row in self.rows)


def empty(name: str, columns: Sequence[str], position: Position) -> Relation:
    """A collection that never has a fact."""
    typed = tuple([Column(column, VALUE) for column in columns])
    return Source(f"({name})", typed, Role.TABLE, position=position)


def opaque(
    inputs: Sequence[Relation], columns: Sequence[str], reason: str, position: Position
) -> Rows:
    """Facts of which nothing is known but what they are made of."""
    typed = tuple([Column(column, VALUE) for column in columns])
    return Rows.of(Opaque(tuple(inputs), typed, reason, position=position))


def projected(relation: Relation, columns: Row, position: Position) -> Project:
    """Some columns of a relation."""
    return Project(relation, tuple([(copy(c), Ref(c)) for c in columns]), position)


def padded(relation: Relation, columns: Sequence[str], position: Position) -> Relation:
    """Facts that are too short, with nil in the columns that are missing."""
    outputs: list[tuple[Column, Expression]] = [(copy(c), Ref(c)) for c in relation.columns]
    outputs += [(Column(name, VALUE), Literal(None)) for name in columns[len(outputs) :]]
    return Project(relation, tuple(outputs), position)


def unioned(inputs: Sequence[Relation], names: Sequence[str], position: Position) -> Relation:
    """The facts of all inputs under these names."""
    if len(inputs) == 1:
        [only] = inputs
        outputs = [
            (Column(name, c.type), Ref(c)) for name, c in zip(names, only.columns, strict=False)
        ]
        return Project(only, tuple(outputs), position)
    return Union(tuple(inputs), tuple([Column(name, VALUE) for name in names]), position)


def copy(column: Column) -> Column:
    """Another column of that name and type."""
    return Column(column.name, column.type)


def named(name: str, value: Expression) -> tuple[Column, Expression]:
    """A value as a column."""
    return Column(name, type_of(value)), value


def all_of(conditions: Sequence[Expression]) -> Expression | None:
    """The conjunction; None where there is no condition."""
    if not conditions:
        return None
    return conditions[0] if len(conditions) == 1 else Call("and", tuple(conditions), BOOLEAN)


def any_of(conditions: Sequence[Expression | None]) -> Expression | None:
    """The disjunction; None where one of them always holds."""
    known = [condition for condition in conditions if condition is not None]
    if len(known) < len(conditions) or not known:
        return None
    return known[0] if len(known) == 1 else Call("or", tuple(known), BOOLEAN)


def equal(pairs: Sequence[tuple[Column, Column]]) -> list[Expression]:
    """The conditions that these columns are equal."""
    return [Call("=", (Ref(a), Ref(b)), BOOLEAN) for a, b in pairs]


def assumption(text: str, position: Position) -> Expression:
    """A condition that always holds, and says what is taken for granted."""
    return Call("coalesce", (Literal(True, BOOLEAN),), BOOLEAN, user=text, position=position)
