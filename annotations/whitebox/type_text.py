"""Data types as text of Spark SQL."""

from __future__ import annotations

from typing import Final

from annotations.whitebox.datatypes import UNKNOWN, DataType, Family

_INTEGERS: Final = {8: "TINYINT", 16: "SMALLINT", 32: "INT", 64: "BIGINT"}
_TIMES: Final = ("TIMESTAMP", "TIMESTAMP_NTZ", "TIME")
_UNKNOWN: Final = "?"


def schema_text(type_: DataType) -> str:
    """A text of which `parse_type` makes the type again; what is not known is no type there.

    >>> from annotations.whitebox.datatypes import parse_type
    >>> schema_text(parse_type("array<struct<a: bigint>>")[0])
    'ARRAY<STRUCT<`a`:BIGINT>>'
    """
    match type_.family:
        case Family.INTEGER:
            return _INTEGERS[type_.bits]
        case Family.FLOAT:
            return "DOUBLE" if type_.bits == 64 else "FLOAT"
        case Family.DECIMAL:
            digits = f"DECIMAL({type_.bits},{type_.scale})"
            return digits if type_.digits_known else _UNKNOWN
        case Family.TIMESTAMP:
            return _TIMES[type_.bits]
        case Family.STRING | Family.UNKNOWN if type_.bits:
            return "STRING COLLATE ANY"
        case Family.ARRAY:
            return f"ARRAY<{schema_text(type_.element or UNKNOWN)}>"
        case Family.MAP:
            key, value = type_.key or UNKNOWN, type_.element or UNKNOWN
            return f"MAP<{schema_text(key)},{schema_text(value)}>"
        case Family.STRUCT:
            inside = (f"`{name}`:{schema_text(field_type)}" for name, field_type, _ in type_.fields)
            return f"STRUCT<{','.join(inside)}>"
        case Family.UNKNOWN | Family.VALUE:
            return _UNKNOWN
        case Family.NULL:
            return "VOID"
    return type_.family.name


def sql_text(type_: DataType) -> str | None:
    """The type as Spark reads it; None where it is not known exactly.

    >>> sql_text(UNKNOWN) is None
    True
    """
    text = schema_text(type_)
    inexact = (_UNKNOWN, "DECIMAL", "VOID", "INTERVAL", "COLLATE")
    return None if any(word in text for word in inexact) else text.replace("`", "")
