"""Names in a query: which column a reference means, as Spark resolves it.

Case does not matter. A name of the inner query hides one of the outer; of several tables with the
column, the reference is ambiguous and refused, except where USING or NATURAL made them one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from annotations.whitebox.datatypes import BOOLEAN, STRING, DataType, Family
from annotations.whitebox.file_metadata import hidden, of_file
from annotations.whitebox.ir import Call, Column, Expression, Ref
from annotations.whitebox.monotone import field_of
from annotations.whitebox.sql_expressions import NotUnderstood
from annotations.whitebox.sql_items import exchanged

LITERAL_FUNCTIONS: Final = frozenset({"user"})
"""Functions that are called without brackets, where no column has the name; others of them are read
by the parser."""


@dataclass(slots=True)
class Named:
    """A table of a FROM clause under the name that the query gives it."""

    alias: str
    columns: tuple[Column, ...]
    open: bool = False
    """True where the table may have further columns (no schema is declared)."""

    def find(self, name: str) -> list[Column]:
        """The columns of that name."""
        return [column for column in self.columns if column.name.lower() == name.lower()]


@dataclass(slots=True)
class Scope:
    """The names that expressions of one SELECT can use."""

    tables: list[Named] = field(default_factory=list)
    merged: dict[str, Expression] = field(default_factory=dict)
    """Columns that USING or NATURAL made one, by name in lower case."""
    hidden: set[Column] = field(default_factory=set)
    """The columns behind those."""
    outer: Scope | None = None
    reached: bool = False
    """True once a name of the outer query was used."""

    @property
    def open(self) -> bool:
        """True where a table may have columns that are not known."""
        return any(table.open for table in self.tables)

    def star(self, alias: str | None = None) -> Iterator[tuple[str, Expression]]:
        """The columns that `*` or `alias.*` stands for."""
        if alias is None:
            yield from (
                (_name_of(expression, name), expression) for name, expression in self.merged.items()
            )
        matched = False
        for table in self.tables:
            if alias is None or table.alias.lower() == alias.lower():
                matched = True
                for column in table.columns:
                    if not hidden(column) and (alias is not None or column not in self.hidden):
                        yield column.name, Ref(column)
        if not matched:
            raise NotUnderstood(f"`{alias}.*` names no table of the query")

    def exchange(self, columns: Mapping[Column, Column]) -> None:
        """Let others take the place of some columns."""
        self.tables = [
            replace(table, columns=tuple(columns.get(c, c) for c in table.columns))
            for table in self.tables
        ]
        self.merged = {name: exchanged(e, columns) for name, e in self.merged.items()}
        self.hidden = {columns.get(column, column) for column in self.hidden}

    def resolve(self, node: Any, position: Any) -> Expression:
        """The expression that a column reference means; raises `NotUnderstood`."""
        parts = [identifier.name for identifier in (*_qualifiers(node), node.this)]
        expression = self._lookup(parts, position)
        if expression is not None:
            return expression
        if self.outer is not None and (beyond := self.outer._lookup(parts, position)) is not None:
            self.reached = True
            return beyond
        if len(parts) == 1 and parts[0].lower() in LITERAL_FUNCTIONS:
            return Call(parts[0].lower(), (), STRING, False, position)
        raise NotUnderstood(f"`{'.'.join(parts)}` is not a column that is known here", node)

    def _lookup(self, parts: list[str], position: Any) -> Expression | None:
        """The column, or a field of one where the first part is the column's name."""
        for used in (2, 1):
            if len(parts) < used:
                continue
            table, name = (parts[0], parts[1]) if used == 2 else (None, parts[0])
            expression = self._one(table, name, position)
            if expression is None:
                continue
            fields = parts[used:]
            if isinstance(expression, Ref) and hidden(expression.column):
                field = fields[0] if len(fields) == 1 else ""
                inner = field_of(expression, field, position)
                return of_file(expression, field, inner, position)
            for field in fields:
                expression = field_of(expression, field, position)
            return expression
        return None

    def _one(self, table: str | None, name: str, position: Any) -> Expression | None:
        if table is None and name.lower() in self.merged:
            return self.merged[name.lower()]
        named = [t for t in self.tables if table is None or t.alias.lower() == table.lower()]
        for several in ([t for t in named if not t.open], [t for t in named if t.open]):
            columns = [
                column
                for candidate in several
                for column in candidate.find(name)
                if table is not None or column not in self.hidden
            ]
            if len(columns) > 1:
                raise NotUnderstood(f"`{name}` may be a column of several tables")
            if columns:
                return Ref(columns[0], position)
        return None


def _qualifiers(node: Any) -> Iterator[Any]:
    for key in ("catalog", "db", "table"):
        if node.args.get(key) is not None:
            yield node.args[key]


def _name_of(expression: Expression, name: str) -> str:
    """The name as it was written where a merged column comes from."""
    match expression:
        case Ref(column=column):
            return column.name
        case Call(arguments=(Ref(column=column), *_)):
            return column.name
    return name


def join_using(
    scope: Scope, right: Named, names: Iterable[str], *, full: bool, swapped: bool
) -> Expression | None:
    """Make equal columns of both sides of a join one; the condition that makes them equal."""
    condition: Expression | None = None
    for name in names:
        one = scope._one(None, name, None)
        others = right.find(name)
        if one is None or len(others) != 1:
            raise NotUnderstood(f"`{name}` is not a column of both sides of the join")
        other = Ref(others[0])
        equality = Call("=", (one, other), type=BOOLEAN)
        condition = (
            equality if condition is None else Call("and", (condition, equality), type=BOOLEAN)
        )
        scope.hidden |= {other.column, *((one.column,) if isinstance(one, Ref) else ())}
        shared: Expression = other if swapped else one
        if full:
            shared = Call("coalesce", (one, other), type=_type(one, other), nullable=True)
        scope.merged[name.lower()] = shared
    return condition


def _type(one: Expression, other: Ref) -> DataType:
    type_ = one.column.type if isinstance(one, Ref) else other.column.type
    return type_ if type_ == other.column.type else DataType(Family.UNKNOWN)
