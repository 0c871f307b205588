"""Data types of columns, as far as the derivation of annotations asks for them.

The derivation wants to know whether a sum depends on the order of addition, whether a cast keeps
the order of values, and which fields a struct has; everything else about a type is its text.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final


class Family(enum.Enum):
    """The kind of a type's values."""

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
    VALUE = "value"
    """Any value of a language that compares values as they are, and casts none (Bloom)."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class DataType:
    """A Spark SQL type.

    `bits` orders the numeric ones: a cast to more bits keeps the order. Of a decimal it is the
    number of digits, or more than there can be where that is not known. It tells types of times
    apart, and texts that a collation compares from those that are compared by their bytes.
    """

    family: Family
    bits: int = 0
    scale: int = 0
    """Of a decimal: the digits behind the point."""
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
    def digits_known(self) -> bool:
        """True for a decimal whose digits before and behind the point are known."""
        return self.family is Family.DECIMAL and self.bits <= DIGITS_MAX

    @property
    def identical(self) -> bool:
        """True where two values that Spark calls equal are the same, to the last bit and letter.

        Not so of 0.0 and -0.0, and of texts under a collation.
        """
        match self.family:
            case Family.STRING:
                return not self.bits
            case Family.ARRAY:
                return self.element is not None and self.element.identical
            case Family.STRUCT:
                return bool(self.fields) and all(
                    field_type.identical for _, field_type, _ in self.fields
                )
            case Family.FLOAT | Family.MAP | Family.INTERVAL | Family.NULL | Family.UNKNOWN:
                return False
        return True

    @property
    def parts(self) -> Iterator[DataType]:
        """The type and the types of what is in a value of it."""
        yield self
        for inner in (self.element, self.key, *(type_ for _, type_, _ in self.fields)):
            if inner is not None:
                yield from inner.parts

    @property
    def collated(self) -> bool:
        """True where a collation may compare a text of the value: equal values may differ."""
        texts = (Family.STRING, Family.UNKNOWN)
        return any(part.family in texts and part.bits for part in self.parts)

    @property
    def numeric(self) -> bool:
        """True for numbers of any kind."""
        return self.exact or self.family is Family.FLOAT


DIGITS_MAX: Final = 38
"""Of a decimal."""
UNKNOWN: Final = DataType(Family.UNKNOWN)
VALUE: Final = DataType(Family.VALUE)
NULL: Final = DataType(Family.NULL)
BOOLEAN: Final = DataType(Family.BOOLEAN)
STRING: Final = DataType(Family.STRING)
COLLATED: Final = DataType(Family.STRING, 1)
"""A text under a collation other than that of its bytes, whichever it is."""
MAYBE_COLLATED: Final = DataType(Family.UNKNOWN, 1)
"""Such a text or a value of another type: the ANSI mode decides."""
INT: Final = DataType(Family.INTEGER, 32)
BIGINT: Final = DataType(Family.INTEGER, 64)
DECIMAL: Final = DataType(Family.DECIMAL, 128)
"""A decimal whose digits are not known."""
DOUBLE: Final = DataType(Family.FLOAT, 64)
DATE: Final = DataType(Family.DATE)
TIMESTAMP: Final = DataType(Family.TIMESTAMP)
TIMESTAMP_NTZ: Final = DataType(Family.TIMESTAMP, 1)
TIME: Final = DataType(Family.TIMESTAMP, 2)
INTERVAL: Final = DataType(Family.INTERVAL)


def decimal(digits: int, scale: int) -> DataType:
    """The type of decimals of so many digits, `scale` of them behind the point.

    >>> decimal(10, 2).digits_known, decimal(40, 2) == DECIMAL
    (True, True)
    """
    return DataType(Family.DECIMAL, digits, scale) if digits <= DIGITS_MAX else DECIMAL


def decimal_of(value: Decimal) -> DataType:
    """The type that Spark gives a decimal that is written down.

    >>> decimal_of(Decimal("0.05")) == decimal(2, 2)
    True
    """
    _, digits, exponent = value.as_tuple()
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    return decimal(max(len(digits), scale), scale)


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
    "decimal": decimal(10, 0),
    "dec": decimal(10, 0),
    "numeric": decimal(10, 0),
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
        type_ = _type(todo)
    except (_Unreadable, RecursionError):
        return UNKNOWN, nullable
    return (type_ if todo.next is None else UNKNOWN), nullable


class _Unreadable(Exception):  # noqa: N818 - never leaves this module
    """Not a type."""


class _Tokens:
    """The rest of a type's text."""

    def __init__(self, tokens: Iterator[str]) -> None:
        self._tokens = tokens
        self.next: str | None = next(tokens, None)

    def take(self, *expected: str) -> str:
        """The next token, which has to be one of `expected` where any are given."""
        token = self.next
        if token is None or (expected and token.lower() not in expected):
            raise _Unreadable
        self.next = next(self._tokens, None)
        return token

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
    numbers: list[int] = []
    if todo.skip("("):
        while (token := todo.take()) != ")":
            numbers += [int(token)] if token.isdigit() else []
    if NAMES[name].family is Family.DECIMAL and numbers:
        return decimal(numbers[0], numbers[1] if len(numbers) > 1 else 0)
    if NAMES[name] == STRING and todo.skip("collate"):
        return STRING if todo.take().upper() == "UTF8_BINARY" else COLLATED
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
