"""The collections of a module as plans: rules put together, tables, deletion, cycles, lattices.

`Plans.output(name)` is the plan of an output over the module's inputs. A collection that a rule
reads is built from its own rules each time it is read; where it reads itself, a leaf stands for
what it held before, with the lineage that all its rules have in common (a greatest fixpoint).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from annotations.dataflow import Position
from annotations.diagnostics import Findings
from annotations.whitebox.bloom.cycles import Cycles
from annotations.whitebox.bloom.expressions import Clock
from annotations.whitebox.bloom.lattices import Lattices
from annotations.whitebox.bloom.modules import Collection, Module, ModuleRule
from annotations.whitebox.bloom.relations import Translator
from annotations.whitebox.bloom.rows import Rows, empty, opaque, padded, unioned
from annotations.whitebox.datatypes import VALUE
from annotations.whitebox.derive import annotate
from annotations.whitebox.inputs import Input
from annotations.whitebox.ir import (
    Call,
    Column,
    Delete,
    Join,
    JoinKind,
    Opaque,
    Project,
    Ref,
    Relation,
    Role,
    Source,
    Store,
)

NODES_MAX: Final = 1_000
"""Collections that may be built for one output; a module that needs more is not understood."""
ROUNDS_MAX: Final = 30
"""Rounds in which the lineage of a cycle has to come to rest."""

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
        self.lattices = Lattices(self)
        self.translator = Translator(module, out, self.read, self.lattices.value)
        self._before: dict[str, Lineage | None] = dict.fromkeys(self.cycles.recursive)
        self._stack: list[str] = []
        self._built = 0
        self._settled = False

    def output(self, name: str) -> Relation:
        """The plan of an output (or of any collection)."""
        self._settle()
        return self._plan(name)

    def _plan(self, name: str) -> Relation:
        self._built = 0
        return self._facts(name, self.module.collections[name].position).relation

    def _settle(self) -> None:
        """Find what the columns of collections in cycles are copies of."""
        if self._settled:
            return
        self._settled = True
        for _ in range(ROUNDS_MAX):
            before = dict(self._before)
            for name in sorted(self.cycles.recursive):
                derivation = annotate(self._plan(name), by_partition=False)
                now = {source: dict(path.lineage) for source, path in derivation.paths.items()}
                self._before[name] = _meet(self._before[name], now)
            if self._before == before:
                return
        self._before = {name: {} for name in self._before}

    # ---- reading a collection

    def read(self, name: str, position: Position) -> Rows:
        """The facts of a collection where a rule reads it."""
        collection = self.module.collections[name]
        if collection.kind == "periodic":
            columns = tuple([Column(c, VALUE) for c in collection.columns])
            source = Source(name, columns, Role.TABLE, position=position)
            return Rows(source, (Clock(collection.columns),))
        if name in self.module.inputs:
            return self._input(collection, position, step=self.cycles.step)
        if self.building(name):
            return self._leaf(collection, position)
        return self._facts(name, position)

    def _input(self, collection: Collection, position: Position, *, step: int | None) -> Rows:
        """Facts from outside, that came so many timesteps ago."""
        declared = self.inputs.get(collection.name, Input())
        types: dict[str, Column] = {}
        if declared.schema is not None:
            types = {c.name: c for c in declared.source(collection.name).columns}
        columns = [types.get(name, Column(name, VALUE)) for name in collection.columns]
        typed = tuple([Column(c.name, c.type, c.nullable, position) for c in columns])
        keys = (frozenset(collection.keys),) if collection.keys else ()
        return Rows.of(
            Source(collection.name, typed, Role.REQUEST, keys=keys, step=step, position=position)
        )

    def _facts(self, name: str, position: Position) -> Rows:
        """The facts of a collection out of its own rules."""
        collection = self.module.collections[name]
        self._built += 1
        if self._built > NODES_MAX:
            return self.unread(
                collection, "the module is too large to follow all its rules", position
            )
        with self.build(name):
            relation = self._combined(collection, position)
        return self.translator.shaped(relation, name)

    def building(self, name: str) -> bool:
        """True while a collection is built: one that reads itself is not built again."""
        return name in self._stack

    @contextmanager
    def build(self, name: str) -> Iterator[None]:
        """While a collection is built."""
        self._stack.append(name)
        try:
            yield
        finally:
            self._stack.pop()

    def _combined(self, collection: Collection, position: Position) -> Relation:
        if collection.lattice:
            return self.lattices.merged(collection, position).relation
        reason = self.cycles.unread(collection.name)
        if reason is not None:
            return self.unread(collection, reason, position).relation
        rules = self.cycles.rules_of(collection.name)
        inserts = [self._inserted(collection, rule) for rule in rules if rule.operator != "<-"]
        names = collection.columns or _widest(inserts)
        if not inserts:
            return empty(collection.name, names, position)
        relation = unioned(inserts, names, rules[0].position)
        if not self.cycles.persistent(collection.name):
            return relation
        relation = Store(relation, collection.name, rules[0].position)
        for rule in rules:
            if rule.operator in ("<-", "<+-"):
                relation = self._deleted(collection, relation, rule)
        return relation

    def _inserted(self, collection: Collection, rule: ModuleRule) -> Relation:
        with self.cycles.through(rule):
            result = self.translator.source(rule, len(collection.columns) or None)
        width = len(result.columns)
        if 0 < width < len(collection.columns):
            return padded(result, collection.columns, rule.position)
        if (
            collection.columns
            and width != len(collection.columns)
            and not isinstance(result, Opaque)
        ):
            message = (
                f"`{collection.name}` has {len(collection.columns)} columns "
                f"({', '.join(collection.columns)}), and the rule gives {width}"
            )
            self.out.add("BLZ092", message, rule.position)
            return empty(collection.name, collection.columns, rule.position)
        return result

    def _deleted(self, collection: Collection, table: Relation, rule: ModuleRule) -> Relation:
        """`<-` takes equal facts out, `<+-` those of equal key before it puts the new one in."""
        with self.cycles.through(rule):
            gone = self.translator.source(rule, len(collection.columns))
        if len(gone.columns) < len(collection.columns):
            return table
        keys = collection.columns if rule.operator == "<-" else collection.keys
        pairs = [
            (mine, theirs)
            for mine, theirs in zip(table.columns, gone.columns, strict=False)
            if mine.name in keys
        ]
        return Delete(
            table, gone, tuple(pairs), upsert=rule.operator == "<+-", position=rule.position
        )

    def unread(self, collection: Collection, reason: str, position: Position) -> Rows:
        """A collection whose rules are not followed, of all inputs that it is made of."""
        sources = [
            self._input(self.module.collections[name], position, step=None).relation
            for name in sorted(self.cycles.reached(collection.name))
        ]
        return opaque(sources, collection.columns or ("c0",), reason, position)

    # ---- cycles

    def _leaf(self, collection: Collection, position: Position) -> Rows:
        """The facts that a collection held before, where it is read by one of its own rules."""
        lineage = self._before.get(collection.name)
        columns = collection.columns or ("c0",)
        if lineage is None:
            relation = empty(collection.name, columns, position)
            return Rows.of(relation)
        records, asked = self.cycles.sources_of(collection.name)
        records, asked = records & lineage.keys(), asked & lineage.keys()
        parts = [
            self._part(names, columns, lineage, position, stored=stored)
            for names, stored in ((asked, False), (records, True))
            if names
        ]
        if not parts:
            relation = empty(collection.name, columns, position)
            return Rows.of(relation)
        relation = parts[0]
        if len(parts) == 2:
            relation = self._both(parts[0], parts[1], columns, position)
        return Rows.of(relation)

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
        anything = Call("xxhash64", tuple(map(Ref, relation.columns)), VALUE)
        outputs = []
        for name in columns:
            copied = by_name.get(copies.get(name, ""))
            outputs.append((Column(name, VALUE), anything if copied is None else Ref(copied)))
        return Project(relation, tuple(outputs), at)

    def _both(
        self, asked: Relation, records: Relation, columns: Sequence[str], position: Position
    ) -> Relation:
        """Facts for which a request and kept facts come together."""
        node = Join(asked, records, JoinKind.INNER, None, position=position)
        outputs = []
        for name, one, other in zip(columns, asked.columns, records.columns, strict=True):
            outputs.append((Column(name, VALUE), Call("xxhash64", (Ref(one), Ref(other)), VALUE)))
        return Project(node, tuple(outputs), position)


def _widest(relations: Sequence[Relation]) -> tuple[str, ...]:
    widest = max((relation.columns for relation in relations), key=len, default=())
    return tuple(column.name for column in widest)


def _meet(before: Lineage | None, now: dict[str, dict[str, str]]) -> Lineage:
    """The columns that both trace to the same ones."""
    if before is None:
        return now
    return {
        source: {c: a for c, a in copies.items() if before.get(source, copies).get(c) == a}
        for source, copies in now.items()
    }
