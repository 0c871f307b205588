"""Spark Connect's data types and those of the derivation, each from the other."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from annotations.whitebox.datatypes import (
    COLLATED,
    INTERVAL,
    NAMES,
    STRING,
    TIME,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    UNKNOWN,
    DataType,
    Family,
    decimal,
    parse_type,
)

_COMMENT: Final = re.compile(r"\bCOMMENT\s+('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")", re.IGNORECASE)

_SIMPLE: Final = {
    "null": NAMES["void"],
    "binary": NAMES["binary"],
    "boolean": NAMES["boolean"],
    "byte": NAMES["tinyint"],
    "short": NAMES["smallint"],
    "integer": NAMES["int"],
    "long": NAMES["bigint"],
    "float": NAMES["float"],
    "double": NAMES["double"],
    "char": NAMES["char"],
    "var_char": NAMES["varchar"],
    "date": NAMES["date"],
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "timestamp_ntz_nanos": TIMESTAMP,
    "timestamp_ltz_nanos": TIMESTAMP,
    "time": TIME,
    "calendar_interval": INTERVAL,
    "year_month_interval": INTERVAL,
    "day_time_interval": INTERVAL,
}
"""Kind of a Connect data type without parts -> ours."""

_KINDS: Final = {
    Family.DECIMAL: "decimal",
    Family.STRING: "string",
    Family.BOOLEAN: "boolean",
    Family.BINARY: "binary",
    Family.DATE: "date",
    Family.TIMESTAMP: "timestamp",
    Family.INTERVAL: "calendar_interval",
}
_INTEGERS: Final = {8: "byte", 16: "short", 32: "integer", 64: "long"}


def ddl_type(text: str) -> DataType:
    """The type that a DDL text names: a type, or `name type, ...`, which is a struct.

    >>> [name for name, _, _ in ddl_type("a BIGINT, b ARRAY<INT>").fields]
    ['a', 'b']
    >>> ddl_type("bigint").family.value
    'integer'
    """
    text = _COMMENT.sub("", text).strip()
    parsed, _ = parse_type(text)
    return parsed if parsed is not UNKNOWN else parse_type(f"struct<{text}>")[0]


def from_proto(proto: Any) -> DataType:
    """The type that a `spark.connect.DataType` stands for."""
    kind = proto.WhichOneof("kind")
    match kind:
        case "array":
            return DataType(Family.ARRAY, element=from_proto(proto.array.element_type))
        case "map":
            value, key = from_proto(proto.map.value_type), from_proto(proto.map.key_type)
            return DataType(Family.MAP, element=value, key=key)
        case "struct":
            fields = [(f.name, from_proto(f.data_type), f.nullable) for f in proto.struct.fields]
            return DataType(Family.STRUCT, fields=tuple(fields))
        case "decimal":
            parts = proto.decimal
            known = parts.HasField("precision") and parts.HasField("scale")
            return decimal(parts.precision, parts.scale) if known else NAMES["decimal"]
        case "string":
            return STRING if proto.string.collation in ("", "UTF8_BINARY") else COLLATED
        case "udt":
            return from_proto(proto.udt.sql_type)
        case "unparsed":
            return ddl_type(proto.unparsed.data_type_string)
    return _SIMPLE.get(kind, UNKNOWN)


def to_proto(type_: DataType, proto: Any) -> None:
    """Write a type into a `spark.connect.DataType`; one that is not known becomes `void`."""
    match type_.family:
        case Family.INTEGER:
            getattr(proto, _INTEGERS[type_.bits]).SetInParent()
        case Family.FLOAT:
            (proto.double if type_.bits == 64 else proto.float).SetInParent()
        case Family.ARRAY:
            to_proto(type_.element or UNKNOWN, proto.array.element_type)
            proto.array.contains_null = True
        case Family.MAP:
            to_proto(type_.key or UNKNOWN, proto.map.key_type)
            to_proto(type_.element or UNKNOWN, proto.map.value_type)
            proto.map.value_contains_null = True
        case Family.STRUCT:
            struct_to_proto(type_.fields, proto)
        case Family.DECIMAL if type_.digits_known:
            proto.decimal.precision, proto.decimal.scale = type_.bits, type_.scale
        case family if family in _KINDS:
            getattr(proto, _KINDS[family]).SetInParent()
        case _:
            proto.null.SetInParent()


def struct_to_proto(fields: Iterable[tuple[str, DataType, bool]], proto: Any) -> None:
    """Write columns (name, type, nullable) as a struct into a `spark.connect.DataType`."""
    proto.struct.SetInParent()
    for name, type_, nullable in fields:
        field = proto.struct.fields.add()
        field.name, field.nullable = name, nullable
        to_proto(type_, field.data_type)
