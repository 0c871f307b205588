"""The tree of `tree` out of lark's: what each rule of the grammar makes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from lark import Token, Transformer

from annotations.whitebox.bloom.tree import (
    Array,
    Assign,
    Block,
    Branch,
    Const,
    Declaration,
    Expr,
    Hash,
    Index,
    ModuleText,
    Name,
    Operation,
    Pair,
    Rule,
    Send,
    Symbol,
    Value,
)


def _at(token: Any) -> int:
    return int(getattr(token, "start_pos", None) or getattr(token, "at", 0) or 0)


_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "s": " "}


def shaped(tree: Any) -> list[Any]:
    """The modules of a text and the names of the files that it requires, as they stand in it."""
    result: list[Any] = _Shaper().transform(tree)
    return result


def _not(condition: Expr) -> Operation:
    return Operation("!", (condition,), condition.at)


def _operation(operator: str) -> Callable[[_Shaper, list[Any]], Operation]:
    def operation(_: _Shaper, items: list[Any]) -> Operation:
        return Operation(operator, tuple(items), _at(items[0]))

    return operation


class _Shaper(Transformer[Token, Any]):
    """One method for each rule of the grammar, by its name there."""

    def start(self, items: list[Any]) -> list[Any]:
        return items

    def required(self, items: list[Token]) -> str:
        return str(items[0])[1:-1]

    def skipped(self, items: list[Any]) -> None:
        return None

    def path(self, items: list[Token]) -> Const:
        return Const("::".join(map(str, items)), _at(items[0]))

    def superclass(self, items: list[Const]) -> tuple[str, str, int]:
        return ("include", items[0].text, items[0].at)

    include = superclass

    def imported(self, items: list[Any]) -> tuple[str, str, str, int]:
        return ("import", items[0].text, str(items[1]).lstrip(":"), items[0].at)

    def state(self, items: list[Any]) -> tuple[str, list[Declaration]]:
        return ("state", [item for item in items if isinstance(item, Declaration)])

    def rules(self, items: list[Any]) -> tuple[str, list[Rule]]:
        return ("rules", [item for item in items if isinstance(item, Rule)])

    def module(self, items: list[Any]) -> ModuleText:
        name, *members = items
        parts: dict[str, list[Any]] = {"include": [], "import": [], "state": [], "rules": []}
        for kind, *rest in filter(None, members):
            if kind in ("state", "rules"):
                parts[kind] += rest[0]
            else:
                parts[kind].append(tuple(rest))
        return ModuleText(
            str(name),
            _at(name),
            tuple(parts["include"]),
            tuple(parts["import"]),
            tuple(parts["state"]),
            tuple(parts["rules"]),
        )

    def declaration(self, items: list[Any]) -> Declaration:
        kind, direction, name, arguments = items
        return Declaration(
            str(kind),
            None if direction is None else str(direction),
            str(name).lstrip(":@"),
            tuple(arguments or ()),
            _at(kind),
        )

    def rule(self, items: list[Any]) -> Rule:
        (name, at, temporary), operator, source = items
        return Rule(name, operator, source, at, temporary)

    def target(self, items: list[Token]) -> tuple[str, int, bool]:
        return (".".join(map(str, items)), _at(items[0]), False)

    def temporary(self, items: list[Token]) -> tuple[str, int, bool]:
        return (str(items[0]).lstrip(":@"), _at(items[0]), True)

    def operator(self, items: list[Token]) -> str:
        return str(items[0])

    compare = plus = times = operator

    # blocks

    def block(self, items: list[Any]) -> Block:
        parameters, body = items[0], items[1]
        return Block(tuple(parameters or ()), tuple(body), _at(body[0]))

    def parameters(self, items: list[Any]) -> list[Any]:
        return items

    def parameter(self, items: list[Token]) -> str | tuple[str, ...]:
        return str(items[0]) if len(items) == 1 else tuple(map(str, items))

    def body(self, items: list[Any]) -> tuple[Any, ...]:
        return tuple(items)

    def assign(self, items: list[Any]) -> Assign:
        return Assign(str(items[0]), items[1], _at(items[0]))

    def only_if(self, items: list[Any]) -> Branch:
        return Branch(items[1], (items[0],), (), _at(items[0]))

    def unless(self, items: list[Any]) -> Branch:
        return Branch(_not(items[1]), (items[0],), (), _at(items[0]))

    def branch(self, items: list[Any]) -> Branch:
        otherwise = items[2]
        if isinstance(otherwise, Branch):
            otherwise = (otherwise,)
        return Branch(items[0], items[1], otherwise, _at(items[0]))

    def branch_unless(self, items: list[Any]) -> Branch:
        return Branch(_not(items[0]), items[1], (), _at(items[0]))

    def nothing(self, items: list[Any]) -> tuple[Any, ...]:
        return ()

    def alternative(self, items: list[Any]) -> tuple[Any, ...]:
        result: tuple[Any, ...] = items[0]
        return result

    # expressions

    ternary = _operation("if")
    either = _operation("||")
    both = _operation("&&")
    negation = _operation("!")
    negative = _operation("negative")

    def binary(self, items: list[Any]) -> Operation:
        left, operator, right = items
        return Operation(operator, (left, right), _at(left))

    def send(self, items: list[Any]) -> Send:
        receiver, method, *rest = items
        arguments = rest[0] if rest else None
        return Send(receiver, str(method), tuple(arguments or ()), _at(receiver))

    def call(self, items: list[Any]) -> Send:
        name, arguments = items
        return Send(None, str(name), tuple(arguments or ()), _at(name))

    def index(self, items: list[Any]) -> Index:
        return Index(items[0], tuple(items[1]), _at(items[0]))

    def with_block(self, items: list[Any]) -> Send:
        receiver, block = items
        if isinstance(receiver, Send) and receiver.block is None:
            return replace(receiver, block=block)
        return Send(receiver, "map", (), _at(receiver), block)

    def name(self, items: list[Token]) -> Name:
        return Name(str(items[0]), _at(items[0]))

    def constant(self, items: list[Any]) -> Const:
        only = items[0]
        return only if isinstance(only, Const) else Const(str(only), _at(only))

    def symbol(self, items: list[Token]) -> Symbol:
        text = str(items[0])
        return Symbol(text.lstrip(":@"), _at(items[0]), "@" in text)

    def string(self, items: list[Token]) -> Value:
        text = str(items[0])
        double, inner = text[0] == '"', text[1:-1]
        if double:
            value = re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[1]), inner, flags=re.DOTALL)
        else:
            value = re.sub(r"\\([\\'])", r"\1", inner)
        return Value(value, _at(items[0]), double and "#{" in inner)

    def number(self, items: list[Token]) -> Value:
        text = str(items[0]).replace("_", "")
        return Value(float(text) if "." in text else int(text), _at(items[0]))

    def word(self, items: list[Token]) -> Value:
        value = {"nil": None, "true": True, "false": False}[str(items[0])]
        return Value(value, _at(items[0]))

    def array(self, items: list[Any]) -> Array:
        return Array(tuple(items[0] or ()), _at(items[0][0]) if items[0] else 0)

    def hash(self, items: list[Any]) -> Hash:
        return Hash(tuple(items[0] or ()), _at(items[0][0]) if items[0] else 0)

    def arguments(self, items: list[Any]) -> list[Any]:
        return items

    def pair(self, items: list[Any]) -> Pair:
        return Pair(items[0], items[1], _at(items[0]))
