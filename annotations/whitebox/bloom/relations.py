"""The right side of a rule as a relation: what collections and their methods mean.

A collection is a set of facts. `Translator.source` gives the relation that a rule puts into its
target; blocks, joins and groups are in modules of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from annotations.dataflow import Position
from annotations.diagnostics import Findings
from annotations.whitebox.bloom.blocks import Blocks
from annotations.whitebox.bloom.expressions import Clock, Row
from annotations.whitebox.bloom.groups import Groups
from annotations.whitebox.bloom.joins import JOINS, Joins, factors, is_product
from annotations.whitebox.bloom.modules import Module, ModuleRule
from annotations.whitebox.bloom.rows import Rows, projected
from annotations.whitebox.bloom.scope import Scope
from annotations.whitebox.bloom.tree import Array, Block, Expr, Name, Operation, Send
from annotations.whitebox.datatypes import VALUE
from annotations.whitebox.ir import Column, Opaque, Relation

SAME: Final = frozenset({"to_collection", "sort", "uniq", "each", "inspected", "to_set"})
"""Methods that give the same set of facts, as a set."""
METHODS: Final = (
    JOINS
    | SAME
    | {"map", "flat_map", "select", "reject", "group", "argmax", "argmin", "argagg", "notin"}
    | {"payloads", "keys", "values", "reduce", "inject", "reveal", "when_true", "schema"}
)
"""What a name that is not known may have been meant to be."""

Collections = Callable[[str, Position], Rows]
"""The facts of a collection by its full name: a new relation each time."""
Lattices = Callable[[Expr, ModuleRule], Rows | None]
"""The value of an expression over lattices; None for what is none."""


class Translator:
    """The sources of the rules of one module."""

    def __init__(
        self, module: Module, out: Findings, collections: Collections, lattices: Lattices
    ) -> None:
        self.module, self.out = module, out
        self.collection, self.lattice = collections, lattices
        self._widths: dict[str, tuple[int, ...]] = {}

    def shaped(self, relation: Relation, name: str) -> Rows:
        """The rows of a collection: those of a join that a `temp` holds are still apart."""
        columns = relation.columns
        widths = self._widths.get(name, ())
        if sum(widths) != len(columns):
            return Rows.of(relation)
        starts = [sum(widths[:at]) for at in range(len(widths))]
        rows = [columns[start : start + w] for start, w in zip(starts, widths, strict=True)]
        return Rows(relation, tuple(rows))

    def source(self, rule: ModuleRule, width: int | None) -> Relation:
        """The facts that a rule puts into its target, of `width` columns; None: all there are."""
        rows, widths = _Source(self, rule, width).relation()
        if len(widths) > 1 and self.module.collections[rule.target].kind == "temp":
            self._widths[rule.target] = widths
        return rows

    def blocked(self, rows: Rows, block: Block | None, rule: ModuleRule) -> Rows:
        """Rows after a block of a rule."""
        return Blocks(Scope(self.module, rule, self.out)).after(rows, block, rule.position)


class _Source:
    """The source of one rule."""

    def __init__(self, translator: Translator, rule: ModuleRule, width: int | None) -> None:
        self.translator, self.rule = translator, rule
        self.module, self.out = translator.module, translator.out
        self.scope = Scope(self.module, rule, self.out, width=width)
        self.blocks = Blocks(self.scope)
        self.joins = Joins(self.scope, self.blocks)
        self.groups = Groups(self.scope, self.blocks)
        self._seen: set[str] = set()
        """The collections that the relation is made of."""

    def relation(self) -> tuple[Relation, tuple[int, ...]]:
        """The facts that the rule puts into its target, and the columns of each row of them."""
        rows = self._with_all(self.rows(self.rule.source))
        if rows.timed:
            return self._timer(rows), ()
        widths = tuple([len(row) for row in rows.rows if isinstance(row, tuple)])
        if rows.relation.columns == rows.columns:
            return rows.relation, widths
        return projected(rows.relation, rows.columns, self.rule.position), widths

    def _with_all(self, rows: Rows) -> Rows:
        """The relation with everything that the rule reads: nothing that it names is left out."""
        left_out = [
            name
            for name in self.module.read_by(self.rule)
            if name not in self._seen and self.module.collections[name].kind != "periodic"
        ]
        if not left_out:
            return rows
        position = self.rule.position
        others = [self.translator.collection(name, position).relation for name in left_out]
        columns = tuple([Column(c.name, c.type) for c in rows.columns])
        shown = ", ".join(f"`{name}`" for name in left_out)
        reason = f"a block looks into {shown}, which only a join or `notin` may do"
        return Rows.of(Opaque((rows.relation, *others), columns, reason, position=position))

    def _timer(self, rows: Rows) -> Relation:
        reason = "all facts of a timer are used, which depend on the clock"
        columns = tuple(
            Column(name, VALUE)
            for row in rows.rows
            for name in (row.columns if isinstance(row, Clock) else [c.name for c in row])
        )
        return Opaque(
            (rows.relation,), columns, reason, nondeterministic=True, position=self.rule.position
        )

    def rows(self, expression: Expr) -> Rows:
        """The relation of an expression."""
        position = self.rule.place(expression.at)
        if isinstance(expression, Send) and expression.block is not None:
            bare = replace(expression, block=None)
            if self.scope.named(bare) is not None:
                # `store.got {|t| ...}`: the collection of an imported module, with a block.
                return self.blocks.after(self.rows(bare), expression.block, position)
        name = self.scope.named(expression)
        lattice = self.translator.lattice(expression, self.rule)
        if lattice is not None:
            self._seen |= self._computed_from(expression)
            return lattice
        if name is not None:
            self._seen.add(name)
            return self.translator.collection(name, position)
        match expression:
            case Array(items=items):
                return self._constants(items, position)
            case Operation(operator="*"):
                return self._join(expression, "combos", (), position)
            case Send(receiver=None, method=method):
                return self.scope.opaque((), f"`{method}` is a method of the program", position)
            case Send(receiver=receiver) if receiver is not None:
                return self._method(expression, receiver, position)
            case Name(text=text):
                known = [collection.rpartition(".")[2] for collection in self.module.collections]
                near = self.out.suggest(text, known)
                self.out.add("BLZ091", f"there is no collection `{text}`{near}", position)
                return self.scope.opaque((), f"there is no collection `{text}`", position)
        return self.scope.opaque((), "this is no collection", position)

    def _computed_from(self, expression: Expr) -> set[str]:
        """The lattice that a value is computed from, outside of blocks."""
        name = self.scope.named(expression)
        match expression:
            case _ if name is not None:
                return {name}
            case Send(receiver=receiver) if receiver is not None:
                return self._computed_from(receiver)
            case Operation(operands=(first, *_)):
                return self._computed_from(first)
        return set()

    def _constants(self, items: tuple[Expr, ...], position: Position) -> Rows:
        rows = [item for item in items if isinstance(item, Array)]
        if len(rows) < len(items):
            return self.scope.opaque((), "a list whose elements are no lists", position)
        width = max((len(row_source.items) for row_source in rows), default=self.scope.width or 0)
        return self.blocks.constants(width, position)

    # ---- methods

    def _method(self, call: Send, receiver: Expr, position: Position) -> Rows:
        method = call.method
        if method in JOINS and (method != "flatten" or is_product(receiver)):
            joined = self._join(receiver, method, call.arguments, position)
            return self.blocks.after(joined, call.block, position)
        inner = self.rows(receiver)
        if inner.timed and method not in ("map", "flatten"):
            return self.scope.opaque((inner,), "what a timer sends depends on the clock", position)
        if method in SAME or method in ("map", "flatten"):
            return self.blocks.after(inner, call.block, position)
        match method:
            case "flat_map":
                return self.blocks.flat_map(call, inner, position)
            case "select" | "reject":
                return self.blocks.select(call, inner, position)
            case "group":
                return self.groups.group(call, inner, position)
            case "argmax" | "argmin" | "argagg":
                return self.groups.extreme(call, inner, position)
            case "notin":
                return self._notin(call, receiver, inner, position)
            case "payloads" | "keys" | "values":
                return self._some_columns(call, receiver, inner, position)
            case "reduce" | "inject":
                reason = f"`{method}` goes through the facts one by one"
            case _:
                near = self.out.suggest(method, METHODS)
                reason = f"`{method}` is no method of collections that is known{near}"
        return self.scope.opaque((inner,), reason, position)

    def _join(
        self, product: Expr, method: str, arguments: tuple[Expr, ...], position: Position
    ) -> Rows:
        joined = list(factors(product))
        several = [self.rows(collection) for collection in joined]
        names = [self.scope.named(collection) for collection in joined]
        return self.joins.join(several, names, method, arguments, position)

    def _notin(self, call: Send, receiver: Expr, inner: Rows, position: Position) -> Rows:
        if not call.arguments:
            return self.scope.opaque((inner,), "`notin` needs a collection", position)
        first = call.arguments[0]
        names = [self.scope.named(collection) for collection in (receiver, first)]
        return self.joins.notin(call, inner, self.rows(first), names, position)

    def _some_columns(self, call: Send, receiver: Expr, inner: Rows, position: Position) -> Rows:
        """`payloads`, `keys`, `values`: part of the columns that were declared."""
        name = self.scope.named(receiver)
        collection = self.module.collections[name] if name else None
        if call.method == "payloads":
            address = collection.address if collection else None
            columns: Row = tuple(c for c in inner.columns if c.name != address)
        elif collection is None:
            return self.scope.opaque((inner,), f"`{call.method}` of what has no keys", position)
        else:
            keep = call.method == "keys"
            columns = tuple(c for c in inner.columns if (c.name in collection.keys) == keep)
        shaped = Rows.of(projected(inner.relation, columns, position))
        return self.blocks.after(shaped, call.block, position)
