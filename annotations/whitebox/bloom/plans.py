"""The collections of a module as plans: rules put together, tables, deletion, cycles, lattices.

`Plans.output(name)` is the plan of an output over the module's inputs. A collection that a rule
reads is built from its own rules each time it is read; where it reads itself, a leaf stands for
what it held before, with the lineage that all its rules have in common (a greatest fixpoint).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from annotations.dataflow import Position
from annotations.diagnostics import Findings
from annotations.whitebox.bloom.cycles import Cycles
from annotations.whitebox.bloom.expressions import Clock, Reader
from annotations.whitebox.bloom.modules import Collection, Module, ModuleRule
from annotations.whitebox.bloom.relations import Rows, Translator, unioned
from annotations.whitebox.bloom.tree import Expr, Operation, Send
from annotations.whitebox.datatypes import BOOLEAN, DOUBLE, UNKNOWN
from annotations.whitebox.derive import annotate
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Column,
    Delete,
    Filter,
    Join,
    JoinKind,
    Literal,
    Opaque,
    Project,
    Ref,
    Relation,
    Role,
    Source,
    Store,
)
from annotations.whitebox.monotone import type_of

NODES_MAX: Final = 1_000
"""Collections that may be built for one output; a module that needs more is not understood."""
ROUNDS_MAX: Final = 30
"""Rounds in which the lineage of a cycle has to come to rest."""

GROWS: Final = {
    "lmax": "max",
    "lmin": "min",
    "lbool": "bool_or",
    "lset": "collect_set",
    "lpset": "collect_set",
    "lbag": "collect_list",
}
"""The aggregate that a lattice is of all values ever merged into it."""
MERGES: Final = {"lmax": "greatest", "lmin": "least", "lbool": "or"}
TESTS: Final = {"gt": ">", "gt_eq": ">=", "lt": "<", "lt_eq": "<="}

_NOW: Final = object()
Lineage = Mapping[str, Mapping[str, str]]
"""Input -> column of the collection -> attribute of the input that it is a copy of."""


class Plans:
    """The plans of one module."""

    def __init__(
        self, module: Module, out: Findings, inputs: Mapping[str, Input] | None = None
    ) -> None:
        self.module, self.out = module, out
        self.inputs = inputs or {}
        self.cycles = Cycles(module, out)
        self.translator = Translator(module, out, self._read, self._lattice)
        self._before: dict[str, Lineage | None] = dict.fromkeys(self.cycles.recursive)
        self._stack: list[str] = []
        self._built = 0
        self._settled = False

    def output(self, name: str) -> Relation:
        """The plan of an output (or of any collection)."""
        self._settle()
        self._built = 0
        found = self._facts(name, self.module.collections[name].position)
        return found.relation

    def _settle(self) -> None:
        """Find what the columns of collections in cycles are copies of."""
        if self._settled:
            return
        self._settled = True
        for _ in range(ROUNDS_MAX):
            before = dict(self._before)
            for name in sorted(self.cycles.recursive):
                self._built = 0
                plan = self._facts(name, self.module.collections[name].position).relation
                found = annotate(plan)
                now = {source: dict(path.lineage) for source, path in found.paths.items()}
                self._before[name] = _meet(self._before[name], now)
            if self._before == before:
                return
        self._before = {name: {} for name in self._before}

    # ---- reading a collection

    def _read(self, name: str, position: Position) -> Rows:
        """The facts of a collection where a rule reads it."""
        each = self.module.collections[name]
        if each.kind == "periodic":
            columns = tuple([Column(c) for c in each.columns])
            source = Source(name, columns, Role.TABLE, position=position)
            return Rows(source, (Clock(each.columns),))
        if name in self.module.inputs:
            return self._input(each, position)
        if name in self._stack:
            return self._leaf(each, position)
        return self._facts(name, position)

    def _input(self, each: Collection, position: Position, *, step: object = _NOW) -> Rows:
        told = self.inputs.get(each.name, Input())
        types: dict[str, Column] = {}
        if told.schema is not None:
            types = {c.name: c for c in told.source(each.name).columns}
        columns = tuple([types.get(name, Column(name)) for name in each.columns])
        made = tuple([Column(c.name, c.type, c.nullable, position) for c in columns])
        keys = (frozenset(each.keys),) if each.keys else ()
        step = self.cycles.step if step is _NOW else None
        source = Source(each.name, made, Role.REQUEST, keys=keys, step=step, position=position)
        return Rows(source, (made,))

    def _facts(self, name: str, position: Position) -> Rows:
        """The facts of a collection out of its own rules."""
        each = self.module.collections[name]
        self._built += 1
        if self._built > NODES_MAX:
            return self._unread(each, "the module is too large to follow all its rules", position)
        self._stack.append(name)
        try:
            relation = self._combined(each, position)
        finally:
            self._stack.pop()
        return Rows(relation, self.translator.shaped(name, relation.columns))

    def _combined(self, each: Collection, position: Position) -> Relation:
        if each.lattice:
            return self._value(each, position).relation
        reason = self.cycles.unread(each.name)
        if reason is not None:
            return self._unread(each, reason, position).relation
        rules = self.cycles.rules_of(each.name)
        inserts = [self._inserted(each, rule) for rule in rules if rule.operator != "<-"]
        names = each.columns or _widest(inserts)
        if not inserts:
            return _empty(each.name, names, position)
        relation = unioned(inserts, names, rules[0].position)
        if not self.cycles.persistent(each.name):
            return relation
        relation = Store(relation, each.name, rules[0].position)
        for rule in rules:
            if rule.operator in ("<-", "<+-"):
                relation = self._deleted(each, relation, rule)
        return relation

    def _inserted(self, each: Collection, rule: ModuleRule) -> Relation:
        with self.cycles.through(rule):
            found = self.translator.source(rule, len(each.columns) or None)
        width = len(found.columns)
        if 0 < width < len(each.columns):
            return _padded(found, each.columns, rule.position)
        if each.columns and width != len(each.columns) and not _unknown(found):
            message = (
                f"`{each.name}` has {len(each.columns)} columns "
                f"({', '.join(each.columns)}), and the rule gives {width}"
            )
            self.out.add("BLZ092", message, rule.position)
            return _empty(each.name, each.columns, rule.position)
        return found

    def _deleted(self, each: Collection, table: Relation, rule: ModuleRule) -> Relation:
        """`<-` takes equal facts out, `<+-` those of equal key before it puts the new one in."""
        with self.cycles.through(rule):
            gone = self.translator.source(rule, len(each.columns))
        if len(gone.columns) < len(each.columns):
            return table
        keys = each.columns if rule.operator == "<-" else each.keys
        pairs = [
            (mine, theirs)
            for mine, theirs in zip(table.columns, gone.columns, strict=False)
            if mine.name in keys
        ]
        return Delete(
            table, gone, tuple(pairs), upsert=rule.operator == "<+-", position=rule.position
        )

    def _unread(self, each: Collection, reason: str, position: Position) -> Rows:
        sources: list[Relation] = [
            self._input(self.module.collections[name], position, step=None).relation
            for name in sorted(self.cycles.reached(each.name))
        ]
        columns = tuple([Column(c) for c in each.columns or ("c0",)])
        return Rows(Opaque(tuple(sources), columns, reason, position=position), (columns,))

    # ---- cycles

    def _leaf(self, each: Collection, position: Position) -> Rows:
        """What a collection held before, where it is read by one of its own rules."""
        lineage = self._before.get(each.name)
        columns = each.columns or ("c0",)
        if lineage is None:
            relation = _empty(each.name, columns, position)
            return Rows(relation, (relation.columns,))
        kept, asked = self.cycles.sources_of(each.name)
        kept, asked = kept & lineage.keys(), asked & lineage.keys()
        parts = [
            self._part(names, columns, lineage, position, stored=stored)
            for names, stored in ((asked, False), (kept, True))
            if names
        ]
        if not parts:
            relation = _empty(each.name, columns, position)
            return Rows(relation, (relation.columns,))
        relation = parts[0]
        if len(parts) == 2:
            relation = self._both(parts[0], parts[1], columns, position)
        return Rows(relation, (relation.columns,))

    def _part(
        self,
        names: frozenset[str],
        columns: Sequence[str],
        lineage: Lineage,
        position: Position,
        *,
        stored: bool,
    ) -> Relation:
        """Facts that come from these inputs, with the lineage that is known of them."""
        inputs = [
            self._copy(self.module.collections[name], columns, lineage[name], position)
            for name in sorted(names)
        ]
        relation = unioned(inputs, columns, position)
        return Store(relation, "what was there before", position) if stored else relation

    def _copy(
        self, source: Collection, columns: Sequence[str], copies: Mapping[str, str], at: Position
    ) -> Relation:
        relation = self._input(source, at, step=None).relation
        by_name = {c.name: c for c in relation.columns}
        anything = Call("xxhash64", tuple(map(Ref, relation.columns)), UNKNOWN)
        outputs = []
        for name in columns:
            copied = by_name.get(copies.get(name, ""))
            outputs.append((Column(name), anything if copied is None else Ref(copied)))
        return Project(relation, tuple(outputs), at)

    def _both(
        self, asked: Relation, kept: Relation, columns: Sequence[str], position: Position
    ) -> Relation:
        """Facts for which a request and kept facts come together."""
        node = Join(asked, kept, JoinKind.INNER, None, position=position)
        outputs = []
        for name, one, other in zip(columns, asked.columns, kept.columns, strict=True):
            outputs.append((Column(name), Call("xxhash64", (Ref(one), Ref(other)), UNKNOWN)))
        return Project(node, tuple(outputs), position)

    # ---- lattices

    def _lattice(self, expression: Expr, rule: ModuleRule) -> Rows | None:
        """The value of a lattice expression as a relation of one row; None: it is none."""
        name = self.module.named(expression, rule.scope)
        position = rule.place(expression.at)
        if name is not None:
            each = self.module.collections[name]
            return self._read(name, position) if each.lattice else None
        match expression:
            case Send(receiver=receiver, method=method) if receiver is not None:
                kind = self._kind(receiver, rule)
                return None if kind is None else self._method(expression, method, kind, rule)
            case Operation(operator="+" | "-" as operator, operands=(left, right)):
                inner = self._lattice(left, rule)
                if inner is None:
                    return None
                reader = self._reader(rule)
                amount = reader.value(right, {})
                value = Call(operator, (Ref(inner.columns[0]), amount), DOUBLE, position=position)
                return _one(inner.relation, value, position)
        return None

    def _reader(self, rule: ModuleRule) -> Reader:
        return Reader(self.out, rule.place, lambda e: self.module.named(e, rule.scope) is not None)

    def _kind(self, expression: Expr, rule: ModuleRule) -> str | None:
        """The lattice that an expression is; None for what is no lattice."""
        name = self.module.named(expression, rule.scope)
        if name is not None:
            each = self.module.collections[name]
            return each.kind if each.lattice else None
        match expression:
            case Send(receiver=receiver, method=method) if receiver is not None:
                kind = self._kind(receiver, rule)
                if kind is None:
                    return None
                if method in TESTS or method == "contains?" or method == "key?":
                    return "lbool"
                if method in ("size", "sum", "multiplicity"):
                    return "lmax"
                return None if method in ("when_true", "to_collection", "reveal") else kind
            case Operation(operator="+" | "-", operands=(left, _)):
                return self._kind(left, rule)
        return None

    def _method(self, expression: Send, method: str, kind: str, rule: ModuleRule) -> Rows | None:
        assert expression.receiver is not None
        position = rule.place(expression.at)
        inner = self._lattice(expression.receiver, rule)
        assert inner is not None
        reader = self._reader(rule)
        column = inner.columns[0]
        arguments = [reader.value(each, {}) for each in expression.arguments]
        if kind in ("lset", "lpset", "lbag") and method in ("map", "to_collection"):
            return self._elements(expression, rule)
        if method in TESTS and kind in ("lmax", "lmin") and len(arguments) == 1:
            value = Call(TESTS[method], (Ref(column), *arguments), BOOLEAN, position=position)
            return _one(inner.relation, value, position)
        if method == "size":
            return _one(inner.relation, Call("size", (Ref(column),), DOUBLE), position)
        if method == "contains?" and len(arguments) == 1:
            value = Call("array_contains", (Ref(column), *arguments), BOOLEAN, position=position)
            return _one(inner.relation, value, position)
        if method == "reveal":
            return inner
        if method == "when_true" and expression.block is not None:
            relation = Filter(inner.relation, Ref(column), position)
            results = list(reader.results(expression.block.body, {}))
            if len(results) == 1 and results[0].values is not None and not results[0].conditions:
                outputs = tuple([(Column(n, type_of(v)), v) for n, v in results[0].values])
                node = Project(relation, outputs, position)
                return Rows(node, (node.columns,))
        reason = f"`{method}` of a lattice `{kind}` is not known"
        columns = (Column("value"),)
        return Rows(Opaque((inner.relation,), columns, reason, position=position), (columns,))

    def _elements(self, expression: Send, rule: ModuleRule) -> Rows | None:
        """The elements of a set as facts: what was merged into it, each for itself."""
        assert expression.receiver is not None
        position = rule.place(expression.at)
        name = self.module.named(expression.receiver, rule.scope)
        if name is None or name in self._stack:
            columns = (Column("value"),)
            reason = "the elements of a set that is computed are not followed"
            inner = self._lattice(expression.receiver, rule)
            below = () if inner is None else (inner.relation,)
            return Rows(Opaque(below, columns, reason, position=position), (columns,))
        each = self.module.collections[name]
        self._stack.append(name)
        try:
            sets = [self._merged(each, r) for r in self.cycles.rules_of(name)]
        finally:
            self._stack.pop()
        if not sets:
            relation = _empty(name, ("value",), position)
            return Rows(relation, (relation.columns,))
        relation = Store(unioned(sets, ("value",), position), name, position)
        found = Rows(relation, (relation.columns,))
        return self.translator.blocked(found, expression.block, rule)

    def _merged(self, each: Collection, rule: ModuleRule) -> Relation:
        """What a rule merges into a lattice, a value for each fact."""
        with self.cycles.through(rule):
            return self.translator.source(rule, 1)

    def _value(self, each: Collection, position: Position) -> Rows:
        """A lattice as one row with its value."""
        rules = self.cycles.rules_of(each.name)
        if each.kind not in GROWS:
            return self._unread(each, f"a lattice of kind {each.kind} is not understood", position)
        if not rules:
            relation = _empty(each.name, ("value",), position)
            return Rows(relation, (relation.columns,))
        if each.name in self.cycles.recursive:
            return self._unread(each, "a cycle through a lattice is not followed", position)
        sets: list[Relation] = []
        values: list[Relation] = []
        for rule in rules:
            if self._kind(rule.source, rule) is not None:
                found = self._lattice(rule.source, rule)
                assert found is not None
                values.append(found.relation)
            else:
                sets.append(self._merged(each, rule))
        parts = values
        if sets:
            stored = Store(unioned(sets, ("value",), position), each.name, rules[0].position)
            kind = {"lbool": BOOLEAN, "lmax": DOUBLE, "lmin": DOUBLE}.get(each.kind, UNKNOWN)
            call = Call(GROWS[each.kind], (Ref(stored.columns[0]),), kind, position=position)
            outputs = ((Column("value", kind), call),)
            parts = [*values, Aggregate(stored, (), outputs, position=position)]
        return self._merge_values(each, parts, position)

    def _merge_values(self, each: Collection, parts: list[Relation], position: Position) -> Rows:
        relation = parts[0]
        value: Column = relation.columns[0]
        for other in parts[1:]:
            name = MERGES.get(each.kind, "array_union")
            joined = Join(relation, other, JoinKind.INNER, None, position=position)
            merged = Call(name, (Ref(value), Ref(other.columns[0])), value.type)
            relation = Project(joined, ((Column("value", value.type), merged),), position)
            value = relation.columns[0]
        return Rows(relation, (relation.columns,))


# ---- pieces


def _one(relation: Relation, value: Call, position: Position) -> Rows:
    node = Project(relation, ((Column("value", value.type), value),), position)
    return Rows(node, (node.columns,))


def _empty(name: str, columns: Sequence[str], position: Position) -> Relation:
    """A collection that never has a fact."""
    made = tuple([Column(each) for each in columns])
    return Source(f"({name})", made, Role.TABLE, position=position)


def _padded(relation: Relation, columns: Sequence[str], position: Position) -> Relation:
    """Facts that are too short, with nil in the columns that are missing."""
    outputs = [(Column(c.name, c.type), Ref(c)) for c in relation.columns]
    outputs += [(Column(name), Literal(None)) for name in columns[len(outputs) :]]  # type: ignore[misc]
    return Project(relation, tuple(outputs), position)


def _widest(relations: Sequence[Relation]) -> tuple[str, ...]:
    widest = max((each.columns for each in relations), key=len, default=())
    return tuple(column.name for column in widest)


def _unknown(relation: Relation) -> bool:
    return isinstance(relation, Opaque)


def _meet(before: Lineage | None, now: dict[str, dict[str, str]]) -> Lineage:
    """What both say."""
    if before is None:
        return now
    return {
        source: {c: a for c, a in copies.items() if before.get(source, copies).get(c) == a}
        for source, copies in now.items()
    }
