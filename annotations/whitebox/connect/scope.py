"""Which column a name means in a plan of the Connect client.

The client sends names as they were written: `id`, `c.id`, `j.field`, or a name together with the id
of the plan that it was taken from (`df["id"]`, `df.id`). What they mean follows from the columns of
the node's input, the aliases of subqueries, and where a column has been passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from annotations.dataflow import Position
from annotations.whitebox.datatypes import Family
from annotations.whitebox.file_metadata import NAME, of_file
from annotations.whitebox.ir import Column, Expression, Ref, Relation, Unknown
from annotations.whitebox.monotone import field_of, type_of

_PARTS: Final = re.compile(r"`((?:[^`]|``)*)`|([^.`]+)")


@dataclass(frozen=True)
class Built:
    """A plan with what names may mean in it."""

    relation: Relation
    columns: tuple[Column, ...]
    """What `*` stands for; the relation may have further columns, which only a plan id names."""
    plans: Mapping[int, tuple[tuple[int, tuple[Column, ...]], ...]] = field(default_factory=dict)
    """Plan id -> the plans of that id inside: how deep each lies, and its columns."""


@dataclass
class Names:
    """The qualifiers and the origins of the columns of one conversion."""

    qualifiers: dict[Column, frozenset[str]] = field(default_factory=dict)
    """Column -> the aliases of subqueries under which it can be called, in lower case."""
    copies: dict[Column, Column] = field(default_factory=dict)
    """Column -> the column that it is passed on from, under any name."""

    def copy(self, column: Column, of: Column) -> None:
        """`column` is `of`, passed on by a node that keeps its qualifiers."""
        self.copies[column] = of
        if of in self.qualifiers:
            self.qualifiers[column] = self.qualifiers[of]

    def resolve(self, text: str, built: Built, plan: int | None, at: Position | None) -> Expression:
        """The meaning of a name among the columns of `built`."""
        parts = split(text)
        if plan is not None:
            return self._taken(parts, built, plan, at)
        matches = self._find(parts, built.columns)
        if matches is None and parts[0].lower() == NAME:
            matches = self._find(parts, built.relation.columns)
            if matches is not None:
                metadata, fields = Ref(matches[0][0], at), matches[1]
                name = fields[0] if len(fields) == 1 else ""
                return of_file(metadata, name, field_of(metadata, name, at), at)
        if matches is None:
            return Unknown(f"no column is called `{text}` here", (), at)
        columns, rest = matches
        return self._one(text, columns, rest, at)

    def _one(
        self, text: str, columns: list[Column], fields: list[str], at: Position | None
    ) -> Expression:
        if len({self.origin(column) for column in columns}) > 1:
            return Unknown(f"`{text}` may mean more than one column", (), at)
        value: Expression = Ref(columns[0], at)
        for name in fields:
            value = field_of(value, name, at)
        return value

    def _find(
        self, parts: list[str], columns: Iterable[Column]
    ) -> tuple[list[Column], list[str]] | None:
        """The columns that the first parts name, and the parts that are left: fields of them."""
        lower = [part.lower() for part in parts]
        for used in range(len(parts), 1, -1):
            qualifier = lower[used - 2]
            matches = [
                column
                for column in columns
                if column.name.lower() == lower[used - 1]
                and qualifier in self.qualifiers.get(column, ())
            ]
            if matches:
                return matches, parts[used:]
        full_name = ".".join(lower)
        for name, rest in ((full_name, []), (lower[0], parts[1:])):
            matches = [column for column in columns if column.name.lower() == name]
            if matches:
                return matches, rest
        return None

    def _taken(self, parts: list[str], built: Built, plan: int, at: Position | None) -> Expression:
        """A column taken from a plan that lies inside of this one: the nearest that has it."""
        text = ".".join(parts)
        best: tuple[int, list[Column], list[str]] | None = None
        for depth, columns in built.plans.get(plan, ()):
            matches = self._find(parts, columns)
            if matches is None:
                continue
            there = {self.origin(column) for column in matches[0]}
            here = [c for c in built.relation.columns if self.origin(c) in there]
            shown = [c for c in here if c in set(built.columns)] or here
            if not shown:
                continue
            if best is None or depth < best[0]:
                best = (depth, shown[:1], matches[1])
            elif depth == best[0]:
                best[1].extend(shown[:1])
        if best is None:
            return Unknown(f"`{text}` was taken from a DataFrame that is not read here", (), at)
        return self._one(text, best[1], best[2], at)

    def origin(self, column: Column) -> Column:
        """The column that this one is passed on from, through any number of nodes."""
        while column in self.copies:
            column = self.copies[column]
        return column

    def star(self, target: str, built: Built, at: Position | None) -> list[tuple[str, Expression]]:
        """The names and values that `*`, `alias.*` or `struct.*` stands for."""
        if not target:
            return [(column.name, Ref(column, at)) for column in built.columns]
        target = target.removesuffix(".*")
        qualifier = split(target)[-1].lower()
        called = [c for c in built.columns if qualifier in self.qualifiers.get(c, ())]
        if called:
            return [(column.name, Ref(column, at)) for column in called]
        value = self.resolve(target, built, None, at)
        type_ = type_of(value)
        if type_.family is not Family.STRUCT:
            return [(f"{target}.*", field_of(value, "*", at))]  # all its fields, whatever they are
        return [(name, field_of(value, name, at)) for name, _, _ in type_.fields]


def split(text: str) -> list[str]:
    """The parts of a name.

    >>> split("a.`b.c`.d")
    ['a', 'b.c', 'd']
    """
    return [quoted.replace("``", "`") or plain for quoted, plain in _PARTS.findall(text)]
