"""Records in and out of a component under test: plain values, in the order of their columns."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""Values in the order of the columns; hashable."""
Inputs: TypeAlias = tuple[tuple[str, tuple[Row, ...]], ...]
"""(input interface, its rows in order of arrival), interfaces in the order of the component."""


@dataclass(frozen=True, slots=True)
class Item:
    """An input record, as often as `times` says."""

    interface: str
    row: Row
    times: int = 1

    def replaced(self, column: int, value: Any) -> Item:
        """The record with another value in one column."""
        row = (*self.row[:column], value, *self.row[column + 1 :])
        return replace(self, row=row)


@dataclass(frozen=True, slots=True)
class Output:
    """The output of a component: a bag of rows."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Failure:
    """The component stopped with an error instead of an output."""

    message: str


Evaluated: TypeAlias = Output | Failure


def canonical(value: Any) -> Any:
    """A value as it is compared: hashable, one representation of what Spark calls equal.

    >>> canonical(-0.0), canonical([1, {"b": 2}]), canonical(float("nan")) == canonical(math.nan)
    (0.0, (1, (('b', 2),)), True)
    """
    match value:
        case float():
            return "NaN" if math.isnan(value) else value + 0.0
        case Mapping():
            pairs = ((canonical(k), canonical(v)) for k, v in value.items())
            return tuple(sorted(pairs, key=repr))
        case bytes() | bytearray():
            return bytes(value)
        case str():
            return value
        case Sequence():
            return tuple(map(canonical, value))
        case decimal.Decimal():
            return value.normalize() + 0
        case _:
            return value


def shown(value: Any) -> str:
    """A value for people, short; unambiguous within one type.

    >>> shown(None), shown("a"), shown(1e16), shown(0.1 + 0.2), shown(("x", 1))
    ('null', "'a'", '1e+16', '0.30000000000000004', "['x', 1]")
    """
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return "'" + json.dumps(value, ensure_ascii=False)[1:-1].replace("'", "\\'") + "'"
        case datetime.datetime():
            return value.isoformat(sep=" ")
        case datetime.date():
            return value.isoformat()
        case tuple() | list():
            return "[" + ", ".join(map(shown, value)) + "]"
        case _:
            return str(value)


def plain(value: Any) -> Any:
    """A value as JSON data has it."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case tuple() | list():
            return [plain(element) for element in value]
        case _:
            return str(value)


def sort_key(row: Row) -> tuple[tuple[str, Any], ...]:
    """A total order of rows for display: values of one column are of one type, or null.

    >>> sorted([(2, None), (1, "b"), (None, "a"), (10, "a")], key=sort_key)
    [(None, 'a'), (1, 'b'), (2, None), (10, 'a')]
    """
    return tuple(
        ("", 0)
        if value is None
        else ("number", value)
        if isinstance(value, int | float) and not isinstance(value, bool)
        else ("text", str(value))
        for value in row
    )


def expanded(items: Sequence[Item], interfaces: Sequence[str]) -> Inputs:
    """The records of each interface, each as often as it is there."""
    return tuple(
        (name, tuple(i.row for i in items if i.interface == name for _ in range(i.times)))
        for name in interfaces
    )
