"""The names of Spark SQL's types, and what in a type's text is none of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

TYPES: Final = frozenset(
    {"boolean", "tinyint", "byte", "smallint", "short", "int", "integer", "bigint", "long"}
    | {"float", "real", "double", "decimal", "dec", "numeric", "string", "varchar", "char"}
    | {"character", "binary", "date", "time", "timestamp", "timestamp_ntz", "timestamp_ltz"}
    | {"interval", "void", "variant", "geometry", "geography", "array", "map", "struct"}
)
"""The names of Spark SQL's types."""
_HEAD: Final = re.compile(r"\s*([^\W\d]\w*)\s*")
_BOUNDED: Final = re.compile(r"\b(?:char|character|varchar)\s*\([^()]*\)", re.IGNORECASE)
_QUOTED: Final = re.compile(r"`(?:[^`]|``)*`")
_FIELD: Final = re.compile(r"\s*(`(?:[^`]|``)*`|\w+)\s*:?(.*)", re.DOTALL)


def unknown_type(text: str) -> str | None:
    """The word in a type's text that should be a type and is none; None where all are.

    >>> unknown_type("DOUBEL"), unknown_type("array<struct<a: int, b: strng>>")
    ('DOUBEL', 'strng')
    >>> unknown_type("decimal(10, 2) NOT NULL"), unknown_type("interval day to second")
    (None, None)
    """
    return next((word for word in named_types(text) if word.lower() not in TYPES), None)


def named_types(text: str) -> Iterator[str]:
    """The names of types in a type's text, those of its parts behind its own.

    >>> [*named_types("MAP<string, struct<time: interval day to second>>")]
    ['MAP', 'string', 'struct', 'interval']
    """
    head = _HEAD.match(text)
    if head is None:
        return
    yield head[1]
    name = head[1].lower()
    rest = text[head.end() :].strip()
    if name not in ("array", "map", "struct") or not rest.startswith("<") or ">" not in rest:
        return
    for part in _parts(rest[1 : rest.rindex(">")]):
        if name == "struct":
            field = _FIELD.match(part)
            part = field[2] if field else ""
        yield from named_types(part)


def bounded_text(text: str) -> str | None:
    """The first CHAR or VARCHAR in a type's text: Spark's readers and functions refuse them.

    >>> bounded_text("array<VARCHAR(5)>"), bounded_text("char"), bounded_text("struct<char: int>")
    ('VARCHAR(5)', None, None)
    """
    match = _BOUNDED.search(_QUOTED.sub("", text))
    return None if match is None else match[0]


def _parts(text: str) -> Iterator[str]:
    """The parts between the commas outside of brackets."""
    depth, start = 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            yield text[start:at]
            start = at + 1
    yield text[start:]
