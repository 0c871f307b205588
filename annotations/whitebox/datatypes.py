"""Data types of columns, as far as the derivation of annotations asks for them.

The derivation wants to know whether a sum depends on the order of addition, whether a cast keeps
the order of values, and which fields a struct has; everything else about a type is its text.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final


class Family(enum.Enum):
    """What kind of values a type has."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    FLOAT = "float"
    STRING = "string"
    BOOLEAN = "boolean"
    BINARY = "binary"
    DATE = "date"
    TIMESTAMP = "timestamp"
    INTERVAL = "interval"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"
    NULL = "null"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DataType:
    """A Spark SQL type.

    `bits` orders the numeric ones: a cast to more bits keeps the order. It tells types of times
    apart.
    """

    family: Family
    bits: int = 0
    fields: tuple[tuple[str, DataType, bool], ...] = ()
    """Of a struct: name, type, nullable."""
    element: DataType | None = None
    """Of an array: its elements. Of a map: its values."""
    key: DataType | None = None
    """Of a map."""

    @property
    def exact(self) -> bool:
        """True where addition does not depend on its order: integers and decimals."""
        return self.family in (Family.INTEGER, Family.DECIMAL)

    @property
    def numeric(self) -> bool:
        """True for numbers of any kind."""
        return self.exact or self.family is Family.FLOAT


UNKNOWN: Final = DataType(Family.UNKNOWN)
NULL: Final = DataType(Family.NULL)
BOOLEAN: Final = DataType(Family.BOOLEAN)
STRING: Final = DataType(Family.STRING)
INT: Final = DataType(Family.INTEGER, 32)
BIGINT: Final = DataType(Family.INTEGER, 64)
DECIMAL: Final = DataType(Family.DECIMAL, 128)
DOUBLE: Final = DataType(Family.FLOAT, 64)
DATE: Final = DataType(Family.DATE)
TIMESTAMP: Final = DataType(Family.TIMESTAMP)
TIMESTAMP_NTZ: Final = DataType(Family.TIMESTAMP, 1)
TIME: Final = DataType(Family.TIMESTAMP, 2)
INTERVAL: Final = DataType(Family.INTERVAL)

NAMES: Final[dict[str, DataType]] = {
    "tinyint": DataType(Family.INTEGER, 8),
    "byte": DataType(Family.INTEGER, 8),
    "smallint": DataType(Family.INTEGER, 16),
    "short": DataType(Family.INTEGER, 16),
    "int": INT,
    "integer": INT,
    "bigint": BIGINT,
    "long": BIGINT,
    "float": DataType(Family.FLOAT, 32),
    "real": DataType(Family.FLOAT, 32),
    "double": DOUBLE,
    "decimal": DECIMAL,
    "dec": DECIMAL,
    "numeric": DECIMAL,
    "string": STRING,
    "varchar": STRING,
    "char": STRING,
    "character": STRING,
    "boolean": BOOLEAN,
    "binary": DataType(Family.BINARY),
    "date": DATE,
    "time": TIME,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "timestamp_ltz": TIMESTAMP,
    "interval": INTERVAL,
    "void": NULL,
}
"""Names of types in Spark SQL."""

_TOKENS: Final = re.compile(r"`(?:[^`]|``)*`|\w+|[<>(),:]")


def parse_type(text: str) -> tuple[DataType, bool]:
    """The type that a Spark SQL text names, and whether it may be null.

    A text that does not parse is the unknown type: the caller has checked it or does not mind.

    >>> parse_type("DECIMAL(10, 2) NOT NULL")[0].family.value, parse_type("INT NOT NULL")[1]
    ('decimal', False)
    """
    tokens = _TOKENS.findall(text)
    nullable = True
    if [token.lower() for token in tokens[-2:]] == ["not", "null"]:
        tokens, nullable = tokens[:-2], False
    todo = _Tokens(iter(tokens))
    try:
        found = _type(todo)
    except (_Unreadable, RecursionError):
        return UNKNOWN, nullable
    return (found if todo.next is None else UNKNOWN), nullable


class _Unreadable(Exception):  # noqa: N818 - never leaves this module
    """Not a type."""


class _Tokens:
    """What is left of a type's text."""

    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens
        self.next: str | None = next(tokens, None)

    def take(self, *expected: str) -> str:
        """The next token, which has to be one of `expected` where any are given."""
        found = self.next
        if found is None or (expected and found.lower() not in expected):
            raise _Unreadable
        self.next = next(self._tokens, None)
        return found

    def skip(self, *words: str) -> bool:
        """True, and taken, where the next tokens are these words."""
        for word in words:
            if self.next is None or self.next.lower() != word:
                return False
            self.take()
        return True


def _type(todo: _Tokens) -> DataType:
    name = todo.take().lower()
    match name:
        case "array":
            todo.take("<")
            element = _type(todo)
            todo.take(">")
            return DataType(Family.ARRAY, element=element)
        case "map":
            todo.take("<")
            key = _type(todo)
            todo.take(",")
            value = _type(todo)
            todo.take(">")
            return DataType(Family.MAP, element=value, key=key)
        case "struct":
            return DataType(Family.STRUCT, fields=tuple(_fields(todo)))
        case "interval":
            while todo.next is not None and todo.next.isalpha() and todo.next.lower() != "not":
                todo.take()
            return INTERVAL
    if name not in NAMES:
        raise _Unreadable
    if todo.skip("("):
        while todo.take() != ")":
            pass
    return NAMES[name]


def _fields(todo: _Tokens) -> Iterator[tuple[str, DataType, bool]]:
    todo.take("<")
    while not todo.skip(">"):
        name = todo.take().strip("`")
        todo.skip(":")
        kind = _type(todo)
        yield name, kind, not todo.skip("not", "null")
        if not todo.skip(","):
            todo.take(">")
            return
