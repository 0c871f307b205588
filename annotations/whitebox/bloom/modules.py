"""Bloom modules: collections and rules by their full names, and what comes in and goes out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from annotations.dataflow import Position
from annotations.whitebox.bloom.tree import (
    Array,
    Assign,
    Block,
    Expr,
    Name,
    Operation,
    Pair,
    Place,
    Send,
    parts,
)

PERSISTENT: Final = frozenset({"table", "sync", "store"})
LATTICES: Final = frozenset({"lbool", "lmax", "lmin", "lset", "lpset", "lbag", "lmap"})
SENT: Final = frozenset({"channel", "stdio"})
"""What is written goes out, and what is read comes from outside."""
BUILT_IN: Final = {"stdio": ("line",), "halt": ("key",)}


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection or lattice of a module, under its full name."""

    name: str
    kind: str
    """A word of `KINDS`, or `input`, `output`, `temp`, `halt`."""
    columns: tuple[str, ...]
    keys: tuple[str, ...]
    """Two facts that agree on these are the same; without the address of a channel."""
    address: str | None
    position: Position

    @property
    def persistent(self) -> bool:
        """True where facts stay until they are deleted."""
        return self.kind in PERSISTENT

    @property
    def lattice(self) -> bool:
        """True for a value that grows, instead of a set of facts."""
        return self.kind in LATTICES


@dataclass(frozen=True, slots=True)
class ModuleRule:
    """A rule of a module, with the names in it as they are known where it stands."""

    target: str
    operator: str
    source: Expr
    scope: str
    """What the full names of the rule's collections begin with."""
    place: Place
    at: int

    @property
    def position(self) -> Position:
        """Where the rule begins."""
        return self.place(self.at)


@dataclass(frozen=True)
class Module:
    """A module with everything that it includes and imports."""

    name: str
    collections: Mapping[str, Collection]
    rules: tuple[ModuleRule, ...]
    position: Position

    def rules_of(self, name: str) -> tuple[ModuleRule, ...]:
        """The rules that fill (or empty) a collection."""
        return tuple(rule for rule in self.rules if rule.target == name)

    def named(self, expression: Expr, scope: str) -> str | None:
        """The full name of the collection that an expression names; None where it names none."""
        match expression:
            case Name(text=text):
                return self._known(scope + text)
            case Send(receiver=Name(text=alias), method=name, arguments=(), block=None):
                return self._known(f"{scope}{alias}.{name}")
        return None

    def _known(self, name: str) -> str | None:
        if name in self.collections:
            return name
        return name.rpartition(".")[2] if name.rpartition(".")[2] in BUILT_IN else None

    def read_by(self, rule: ModuleRule) -> Mapping[str, bool]:
        """The collections that a rule reads, and whether more of their facts can take back what
        the rule gave.
        """
        result: dict[str, bool] = {}
        for expression, refutable in _reads(rule.source, refutable=False):
            name = self.named(expression, rule.scope)
            if name is not None:
                result[name] = result.get(name, False) or refutable
        return result

    @cached_property
    def read(self) -> frozenset[str]:
        """The collections that some rule reads."""
        return frozenset(name for rule in self.rules for name in self.read_by(rule))

    @cached_property
    def filled(self) -> frozenset[str]:
        """The collections that some rule fills."""
        return frozenset(rule.target for rule in self.rules if rule.operator != "<-")

    @cached_property
    def inputs(self) -> tuple[str, ...]:
        """Collections filled from outside: channels read, inputs that no rule here fills."""
        return tuple(
            name
            for name, collection in self.collections.items()
            if (collection.kind in SENT and name in self.read)
            or (collection.kind == "input" and "." not in name and name not in self.filled)
        )

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Collections that leave: channels and outputs that are filled."""
        return tuple(
            name
            for name, collection in self.collections.items()
            if name in self.filled
            and (collection.kind in SENT or (collection.kind == "output" and "." not in name))
        )


REFUTABLE: Final = frozenset({"group", "reduce", "inject", "argmax", "argmin", "argagg", "reveal"})
"""Methods whose result may be taken back when their receiver gets more facts."""


def _reads(expression: Expr, *, refutable: bool) -> Iterator[tuple[Expr, bool]]:
    """The parts of a source that may name collections."""
    yield expression, refutable
    match expression:
        case Send(receiver=receiver, method=method, arguments=arguments, block=block):
            if block is not None:
                yield replace(expression, block=None), refutable
            if receiver is not None:
                yield from _reads(receiver, refutable=refutable or method in REFUTABLE)
            for argument in arguments:
                if not isinstance(argument, Pair):
                    yield from _reads(argument, refutable=refutable or method == "notin")
            if block is not None:
                yield from _in_block(block)
        case Operation(operands=items) | Array(items=items):
            for item in items:
                yield from _reads(item, refutable=refutable)


def _in_block(block: Block) -> Iterator[tuple[Expr, bool]]:
    """Collections that a block looks into, which are not the rows that it is given."""
    own = {
        name
        for parameter in block.parameters
        for name in ([parameter] if isinstance(parameter, str) else parameter)
    }
    own |= {statement.name for statement in block.body if isinstance(statement, Assign)}
    for statement in block.body:
        for part in parts(statement):
            match part:
                case Name(text=name) | Send(receiver=Name(text=name)) if name in own:
                    continue
            yield part, True
