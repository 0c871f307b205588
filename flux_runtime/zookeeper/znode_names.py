"""Any partition key as the name of one znode, and back.

A key is a tuple of texts or nulls, one for each key attribute in alphabetical order of the
attributes. Letters, digits and `_ . ~ -` stand for themselves, everything else is percent-encoded
UTF-8, values are separated by commas. What percent-encoding leaves free says the rest: `%null` is
a null, `%empty` the empty text, `%sha256-HEX` a key whose name would be too long.
"""

from __future__ import annotations

import hashlib
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Final, TypeAlias
from urllib.parse import quote, unquote_to_bytes

PartitionKey: TypeAlias = tuple[str | None, ...]
"""Values of the key attributes, in alphabetical order of the attributes, as the runtime prints
them: what Spark's cast to STRING gives, timestamps in UTC and binary in upper-case hexadecimal;
null is None."""

KeyValue: TypeAlias = str | int | bool | Decimal | date | datetime | time | bytes | None
"""A key attribute's value as Python has it. A text stands for itself, of whatever type the
attribute is."""

NAME_LENGTH_MAX: Final = 200
"""Longer names are hashed: a stream's listing has to stay readable with many keys."""

_NULL: Final = "%null"
_EMPTY: Final = "%empty"
_HASHED: Final = "%sha256-"
_WHOLE_NAME_RESERVED: Final = {".": "%2E", "..": "%2E%2E"}


def partition_key(values: KeyValue | list[KeyValue] | tuple[KeyValue, ...]) -> PartitionKey:
    """The key of one value, or of several in alphabetical order of their attributes.

    Raises:
        TypeError: a value whose text is not the same everywhere, such as a float.

    >>> partition_key(17), partition_key(["a/b", None, True, b"\\x00\\xff"])
    (('17',), ('a/b', None, 'true', '00FF'))
    """
    if isinstance(values, list | tuple):
        return tuple(map(_text, values))
    return (_text(values),)


def _text(value: KeyValue) -> str | None:
    match value:
        case None | str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case Decimal():
            return format(value, "f")
        case bytes():
            return value.hex().upper()
        case datetime(tzinfo=None):
            return _with_fraction(value.strftime("%Y-%m-%d %H:%M:%S"), value.microsecond)
        case datetime():
            return _text(value.astimezone(UTC).replace(tzinfo=None))
        case time(tzinfo=None):
            return _with_fraction(value.strftime("%H:%M:%S"), value.microsecond)
        case date():
            return value.isoformat()
        case _:
            raise TypeError(
                f"{value!r} cannot be part of a partition key: the text of a "
                f"{type(value).__name__} differs between systems; cast it to a string"
            )


def _with_fraction(seconds: str, microsecond: int) -> str:
    return f"{seconds}.{microsecond:06d}".rstrip("0") if microsecond else seconds


def znode_name(key: PartitionKey) -> str:
    """The name of the key's znode, at most `NAME_LENGTH_MAX` characters.

    >>> znode_name(("a/b", None, "")), znode_name(("..",))
    ('a%2Fb,%null,%empty', '%2E%2E')
    """
    if not key:
        raise ValueError("a partition key has at least one value")
    name = ",".join(
        _NULL if value is None else quote(value, safe="", errors="surrogatepass") or _EMPTY
        for value in key
    )
    if len(name) > NAME_LENGTH_MAX:
        return _HASHED + hashlib.sha256(name.encode("ascii")).hexdigest()
    return _WHOLE_NAME_RESERVED.get(name, name)


def key_of_name(name: str) -> PartitionKey | None:
    """The key that `znode_name` gave this name; None for a hashed one (its data has the key).

    Raises:
        ValueError: not a name that `znode_name` gives.
    """
    if name.startswith(_HASHED):
        return None
    return tuple(map(_value_of, name.split(",")))


def _value_of(part: str) -> str | None:
    if part == _NULL:
        return None
    if part == _EMPTY:
        return ""
    if not part or re.search(r"%(?![0-9A-F]{2})", part):
        raise ValueError(f"not the name of a partition key: {part!r}")
    return unquote_to_bytes(part).decode("utf-8", errors="surrogatepass")
