"""Lattices: values that grow, as relations of one row.

A lattice is an aggregate of everything that was ever merged into it; what a threshold test says of
it can only become true.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, Protocol

from annotations.dataflow import Position
from annotations.diagnostics import Findings
from annotations.whitebox.bloom.cycles import Cycles
from annotations.whitebox.bloom.modules import Collection, Module, ModuleRule
from annotations.whitebox.bloom.relations import Translator
from annotations.whitebox.bloom.rows import Rows, empty, named, opaque, unioned
from annotations.whitebox.bloom.scope import Scope
from annotations.whitebox.bloom.tree import Expr, Operation, Send
from annotations.whitebox.datatypes import BOOLEAN, DOUBLE, VALUE
from annotations.whitebox.ir import (
    Aggregate,
    Call,
    Column,
    Filter,
    Join,
    JoinKind,
    Project,
    Ref,
    Relation,
    Store,
)

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
"""The function that merges two values; of sets it is their union."""
TYPES: Final = {"lbool": BOOLEAN, "lmax": DOUBLE, "lmin": DOUBLE}
"""The type of a lattice's value, if it is known."""
TESTS: Final = {"gt": ">", "gt_eq": ">=", "lt": "<", "lt_eq": "<="}
GIVES: Final = dict.fromkeys([*TESTS, "contains?", "key?"], "lbool") | dict.fromkeys(
    ["size", "sum", "multiplicity"], "lmax"
)
"""The lattice that a method of a lattice gives; others give the same kind."""


class Plans(Protocol):
    """The part of a module's plans (`plans.Plans`) that its lattices are made of."""

    module: Module
    out: Findings
    cycles: Cycles
    translator: Translator

    def read(self, name: str, position: Position) -> Rows:
        """The facts of a collection where a rule reads it."""

    def unread(self, collection: Collection, reason: str, position: Position) -> Rows:
        """A collection whose rules are not followed."""

    def building(self, name: str) -> bool:
        """Whether the plan of a collection is being made."""

    def build(self, name: str) -> AbstractContextManager[None]:
        """While the plan of a collection is being made."""


class Lattices:
    """The lattices of one module, whose collections `plans` knows."""

    def __init__(self, plans: Plans) -> None:
        self.plans, self.module, self.cycles = plans, plans.module, plans.cycles

    def value(self, expression: Expr, rule: ModuleRule) -> Rows | None:
        """The value of a lattice expression as a relation of one row; None: it is none."""
        name = self.module.named(expression, rule.scope)
        position = rule.place(expression.at)
        if name is not None:
            return (
                self.plans.read(name, position) if self.module.collections[name].lattice else None
            )
        match expression:
            case Send(receiver=receiver) if receiver is not None:
                kind = self._kind(receiver, rule)
                return None if kind is None else self._method(expression, receiver, kind, rule)
            case Operation(operator="+" | "-" as operator, operands=(left, right)):
                inner = self.value(left, rule)
                if inner is None:
                    return None
                amount = self._scope(rule).reader.value(right, {})
                value = Call(operator, (Ref(inner.columns[0]), amount), DOUBLE, position=position)
                return _one(inner.relation, value, position)
        return None

    def merged(self, collection: Collection, position: Position) -> Rows:
        """A lattice as one row with its value, of everything that its rules merge into it."""
        rules = self.cycles.rules_of(collection.name)
        if collection.kind not in GROWS:
            reason = f"a lattice of kind {collection.kind} is not understood"
            return self.plans.unread(collection, reason, position)
        if not rules:
            return Rows.of(empty(collection.name, ("value",), position))
        if collection.name in self.cycles.recursive:
            return self.plans.unread(
                collection, "a cycle through a lattice is not followed", position
            )
        sets: list[Relation] = []
        values: list[Relation] = []
        for rule in rules:
            value = None if self._kind(rule.source, rule) is None else self.value(rule.source, rule)
            if value is not None:
                values.append(value.relation)
            else:
                sets.append(self._facts(rule))
        if sets:
            stored = Store(unioned(sets, ("value",), position), collection.name, rules[0].position)
            kind = TYPES.get(collection.kind, VALUE)
            call = Call(GROWS[collection.kind], (Ref(stored.columns[0]),), kind, position=position)
            values.append(
                Aggregate(stored, (), ((Column("value", kind), call),), position=position)
            )
        return _merge(collection.kind, values, position)

    def _scope(self, rule: ModuleRule) -> Scope:
        return Scope(self.module, rule, self.plans.out)

    def _kind(self, expression: Expr, rule: ModuleRule) -> str | None:
        """The lattice that an expression is; None for what is no lattice."""
        name = self.module.named(expression, rule.scope)
        if name is not None:
            collection = self.module.collections[name]
            return collection.kind if collection.lattice else None
        match expression:
            case Send(receiver=receiver, method=method) if receiver is not None:
                kind = self._kind(receiver, rule)
                if kind is None or method in ("when_true", "to_collection", "reveal"):
                    return None
                return GIVES.get(method, kind)
            case Operation(operator="+" | "-", operands=(left, _)):
                return self._kind(left, rule)
        return None

    def _method(self, call: Send, receiver: Expr, kind: str, rule: ModuleRule) -> Rows | None:
        method, position = call.method, rule.place(call.at)
        inner = self.value(receiver, rule)
        assert inner is not None
        value = Ref(inner.columns[0])
        reader = self._scope(rule).reader
        arguments = [reader.value(argument, {}) for argument in call.arguments]
        if kind in ("lset", "lpset", "lbag") and method in ("map", "to_collection"):
            return self._elements(call, receiver, rule)
        if method in TESTS and kind in ("lmax", "lmin") and len(arguments) == 1:
            test = Call(TESTS[method], (value, *arguments), BOOLEAN, position=position)
            return _one(inner.relation, test, position)
        if method == "size":
            return _one(inner.relation, Call("size", (value,), DOUBLE), position)
        if method == "contains?" and len(arguments) == 1:
            test = Call("array_contains", (value, *arguments), BOOLEAN, position=position)
            return _one(inner.relation, test, position)
        if method == "reveal":
            return inner
        if method == "when_true" and call.block is not None:
            results = list(reader.results(call.block.body, {}))
            if len(results) == 1 and results[0].values is not None and not results[0].conditions:
                outputs = tuple([named(name, output) for name, output in results[0].values])
                holds = Filter(inner.relation, value, position)
                return Rows.of(Project(holds, outputs, position))
        reason = f"`{method}` of a lattice `{kind}` is not known"
        return opaque((inner.relation,), ("value",), reason, position)

    def _elements(self, call: Send, receiver: Expr, rule: ModuleRule) -> Rows:
        """The elements of a set as facts: what was merged into it, each for itself."""
        position = rule.place(call.at)
        name = self.module.named(receiver, rule.scope)
        if name is None or self.plans.building(name):
            reason = "the elements of a set that is computed are not followed"
            inner = self.value(receiver, rule)
            below = () if inner is None else (inner.relation,)
            return opaque(below, ("value",), reason, position)
        with self.plans.build(name):
            sets = [self._facts(rule) for rule in self.cycles.rules_of(name)]
        if not sets:
            return Rows.of(empty(name, ("value",), position))
        stored = Store(unioned(sets, ("value",), position), name, position)
        return self.plans.translator.blocked(Rows.of(stored), call.block, rule)

    def _facts(self, rule: ModuleRule) -> Relation:
        """The facts that a rule merges into a lattice, a value for each."""
        with self.cycles.through(rule):
            return self.plans.translator.source(rule, 1)


def _one(relation: Relation, value: Call, position: Position) -> Rows:
    return Rows.of(Project(relation, ((Column("value", value.type), value),), position))


def _merge(kind: str, values: list[Relation], position: Position) -> Rows:
    """One value out of several."""
    relation = values[0]
    for other in values[1:]:
        value = relation.columns[0]
        joined = Join(relation, other, JoinKind.INNER, None, position=position)
        both = (Ref(value), Ref(other.columns[0]))
        merged = Call(MERGES.get(kind, "array_union"), both, value.type)
        relation = Project(joined, ((Column("value", value.type), merged),), position)
    return Rows.of(relation)
