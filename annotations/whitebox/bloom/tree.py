"""The syntax tree of a Bloom text. Nothing is known here about what its names mean.

`at` is an offset in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from annotations.dataflow import Position

Place: TypeAlias = Callable[[int], Position]
"""Where an offset of the text stands."""


@dataclass(frozen=True, slots=True)
class Name:
    """A word: a collection, the row of a block, or a method without a receiver."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Const:
    """A constant or instance variable, whose value is not known but does not change."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class Value:
    """A literal: nil, true, false, a number or a text."""

    value: object
    at: int
    embeds: bool = False
    """True for a text in double quotes that has `#{...}` in it."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """`:name`; `@` of an address is left out."""

    text: str
    at: int
    address: bool = False


@dataclass(frozen=True, slots=True)
class Array:
    """`[a, b]`."""

    items: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Hash:
    """`{a => b}`."""

    items: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Pair:
    """`a => b`."""

    left: Expr
    right: Expr
    at: int


@dataclass(frozen=True, slots=True)
class Operation:
    """An operator with its operands; `if` has condition, then and else."""

    operator: str
    operands: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Send:
    """A method that is called; `receiver` None: a function."""

    receiver: Expr | None
    method: str
    arguments: tuple[Expr, ...]
    at: int
    block: Block | None = None


@dataclass(frozen=True, slots=True)
class Index:
    """`row[0]`."""

    receiver: Expr
    arguments: tuple[Expr, ...]
    at: int


Expr: TypeAlias = Name | Const | Value | Symbol | Array | Hash | Pair | Operation | Send | Index


@dataclass(frozen=True, slots=True)
class Assign:
    """`name = expression` in a block."""

    name: str
    value: Expr
    at: int


@dataclass(frozen=True, slots=True)
class Branch:
    """`if` in a block; without `otherwise` a row for which it is false gives nothing."""

    condition: Expr
    then: tuple[Statement, ...]
    otherwise: tuple[Statement, ...]
    at: int


Statement: TypeAlias = Expr | Assign | Branch


@dataclass(frozen=True, slots=True)
class Block:
    """`{|a, b| ...}`. A parameter in parentheses is a tuple of names."""

    parameters: tuple[tuple[str, ...] | str, ...]
    body: tuple[Statement, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Declaration:
    """A line of a `state` block."""

    kind: str
    direction: str | None
    name: str
    arguments: tuple[Expr, ...]
    at: int


@dataclass(frozen=True, slots=True)
class Rule:
    """`target operator source`; `temporary`: the rule declares its target."""

    target: str
    operator: str
    source: Expr
    at: int
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class ModuleText:
    """A module or class, as it stands in the text."""

    name: str
    at: int
    includes: tuple[tuple[str, int], ...]
    imports: tuple[tuple[str, str, int], ...]
    """(module, the name it is known by here, offset)."""
    declarations: tuple[Declaration, ...]
    rules: tuple[Rule, ...]


def parts(expression: Statement) -> Iterator[Expr]:
    """An expression and everything inside of it, blocks included."""
    todo: list[Statement] = [expression]
    while todo:
        node = todo.pop()
        match node:
            case Assign(value=value):
                todo.append(value)
                continue
            case Branch(condition=condition, then=then, otherwise=otherwise):
                todo += [condition, *then, *otherwise]
                continue
            case Array(items=items) | Hash(items=items) | Operation(operands=items):
                todo += items
            case Pair(left=left, right=right):
                todo += [left, right]
            case Index(receiver=receiver, arguments=arguments):
                todo += [receiver, *arguments]
            case Send(receiver=receiver, arguments=arguments, block=block):
                todo += arguments if receiver is None else (receiver, *arguments)
                todo += block.body if block is not None else ()
        yield node
