"""Plans as JSON, to be handed from one process to another.

A plan that user code made comes out of a process of its own as text, never as a pickle: what that
process says is data. Nodes and columns that are shared stay shared: each is written once, under a
number, and referred to by it.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Mapping
from dataclasses import fields, replace
from decimal import Decimal
from typing import Any, Final, cast, get_args

from annotations.dataflow import Position
from annotations.whitebox import datatypes, ir

_TYPES: Final[Mapping[str, type[Any]]] = {
    type_.__name__: type_
    for type_ in (
        *(datatypes.DataType, Position),
        *(ir.Column, ir.SortKey),
        *get_args(ir.Expression),
        *get_args(ir.Relation),
    )
}
_ENUMS: Final[Mapping[str, type[enum.Enum]]] = {
    type_.__name__: type_ for type_ in (datatypes.Family, ir.Role, ir.JoinKind, ir.SetKind)
}


def to_json(plan: ir.Relation) -> dict[str, Any]:
    """The plan as a value that `json.dumps` takes: the nodes by number, the last is the root."""
    nodes: list[Any] = []
    _Writer(nodes).write(plan)
    return {"nodes": nodes}


def from_json(value: Mapping[str, Any]) -> ir.Relation:
    """The plan that `to_json` wrote; ValueError for anything else."""
    built: list[Any] = []
    try:
        for node in value["nodes"]:
            built.append(_read(node, built))
        plan = built[-1]
    except (KeyError, TypeError, IndexError, ValueError) as error:
        raise ValueError(f"not a plan: {error!r}") from None
    if not isinstance(plan, get_args(ir.Relation)):
        raise ValueError(f"not a plan: {type(plan).__name__}")
    return cast(ir.Relation, plan)


def near(position: Position) -> Position:
    """The place, whose file is named from here where it lies below."""
    relative = os.path.relpath(position.file)
    return position if relative.startswith("..") else replace(position, file=relative)


class _Writer:
    """Writes each node once, after what it refers to."""

    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = nodes
        self.numbers: dict[int, int] = {}
        self.alive: list[Any] = []

    def write(self, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return {"float": repr(value)}
        if isinstance(value, Decimal):
            return {"decimal": str(value)}
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if isinstance(value, enum.Enum):
            return {"enum": type(value).__name__, "is": value.name}
        if isinstance(value, tuple):
            return [self.write(item) for item in value]
        if isinstance(value, frozenset):
            return {"set": [self.write(member) for member in sorted(value)]}
        return self._node(value)

    def _node(self, value: Any) -> Any:
        number = self.numbers.get(id(value))
        if number is None:
            parts = {field.name: self.write(getattr(value, field.name)) for field in fields(value)}
            number = self.numbers[id(value)] = len(self.nodes)
            self.alive.append(value)
            self.nodes.append({"node": type(value).__name__, "has": parts})
        return {"at": number}


def _read(value: Any, built: list[Any]) -> Any:
    if isinstance(value, list):
        return tuple([_read(part, built) for part in value])
    if not isinstance(value, dict):
        return value
    match value:
        case {"at": number}:
            return built[number]
        case {"node": name, "has": parts}:
            node = _TYPES[name](**{key: _read(part, built) for key, part in parts.items()})
            return near(node) if isinstance(node, Position) else node
        case {"enum": name, "is": member}:
            return _ENUMS[name][member]
        case {"float": text}:
            return float(text)
        case {"decimal": text}:
            return Decimal(text)
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"set": members}:
            return frozenset(_read(part, built) for part in members)
    raise ValueError(f"not a part of a plan: {value!r}")
