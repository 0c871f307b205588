"""A rule while its source is read: what its names mean, and where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from annotations.dataflow import Position
from annotations.diagnostics import Findings
from annotations.whitebox.bloom.expressions import Reader
from annotations.whitebox.bloom.modules import Module, ModuleRule
from annotations.whitebox.bloom.rows import Rows, opaque
from annotations.whitebox.bloom.tree import Array, Expr, Send, Symbol, Value
from annotations.whitebox.ir import Column


class Scope:
    """A rule of a module."""

    def __init__(
        self, module: Module, rule: ModuleRule, out: Findings, *, width: int | None = None
    ) -> None:
        self.module, self.rule, self.out = module, rule, out
        self.width = width
        """How many columns the target has; None: as many as there are."""

    @cached_property
    def reader(self) -> Reader:
        """Expressions of the rule."""
        return Reader(self.out, self.rule.place, lambda name: self.named(name) is not None)

    def named(self, expression: Expr) -> str | None:
        """The full name of the collection that an expression names; None where it names none."""
        return self.module.named(expression, self.rule.scope)

    def opaque(self, inputs: Sequence[Rows], reason: str, position: Position) -> Rows:
        """Facts as wide as the target of which nothing is known but what they are made of."""
        columns = [f"c{at}" for at in range(1 if self.width is None else self.width)]
        return opaque([rows.relation for rows in inputs], columns, reason, position)

    def column(self, rows: Rows, name: str, at: int) -> Column | None:
        """The column of that name; None, and BLZ091, where there is none."""
        for column in rows.columns:
            if column.name == name:
                return column
        known = [column.name for column in rows.columns]
        near = self.out.suggest(name, known)
        remedy = f"The columns are {', '.join(known)}." if known else None
        message = f"there is no column `{name}`{near}"
        self.out.add("BLZ091", message, self.rule.place(at), remedy)
        return None

    def columns(self, keys: Expr, rows: Rows) -> list[Column]:
        """The columns that `[:a, :b]` names."""
        if isinstance(keys, Value) and keys.value is None:
            return []
        result: list[Column] = []
        for item in keys.items if isinstance(keys, Array) else (keys,):
            match item:
                case Symbol(text=text) | Send(method=text, arguments=()):
                    column = self.column(rows, text, item.at)
                    if column is not None:
                        result.append(column)
                case _:
                    where = self.rule.place(item.at)
                    self.out.add("BLZ092", "a group is made by columns: `[:a, :b]`", where)
        return result
