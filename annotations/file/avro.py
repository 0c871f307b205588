"""Avro schemas of messages: the columns that they have in Spark, as far as they have any."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from sqlglot import exp

TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "boolean": "BOOLEAN",
        "int": "INT",
        "long": "BIGINT",
        "float": "FLOAT",
        "double": "DOUBLE",
        "bytes": "BINARY",
        "string": "STRING",
        "enum": "STRING",
        "fixed": "BINARY",
        "int date": "DATE",
        "long timestamp-millis": "TIMESTAMP",
        "long timestamp-micros": "TIMESTAMP",
        "long local-timestamp-millis": "TIMESTAMP_NTZ",
        "long local-timestamp-micros": "TIMESTAMP_NTZ",
        "string uuid": "STRING",
    }
)
"""Type of Avro, with its logical type if it has one -> type of Spark.

Beside these: records, arrays and maps of what is here, `decimal`, and unions of null and one type.
"""
_REFUSED: Final = ("time-millis", "time-micros", "timestamp-nanos", "local-timestamp-nanos")
_WIDER: Final = frozenset({("INT", "BIGINT"), ("FLOAT", "DOUBLE")})
_DECIMAL_MAX: Final = 38


class AvroError(ValueError):
    """A schema that messages of a dataflow cannot have; the message says why."""


@cache
def columns_of(text: str) -> Mapping[str, str]:
    """The columns of a schema, and their types in Spark.

    >>> columns_of('{"type": "record", "name": "R", "fields": [{"name": "k", "type": "long"}]}')
    mappingproxy({'k': 'BIGINT'})

    Raises:
        AvroError: it is no schema of records, or has a type that is not supported.
    """
    try:
        schema = json.loads(text)
    except ValueError as error:
        raise AvroError(f"it is not JSON: {error}") from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise AvroError("it is not the schema of a record")
    named: dict[str, Any] = {}
    _name(schema, named)
    return MappingProxyType(dict(_fields(schema, named, ())))


def difference(columns: Mapping[str, str], name: str, declared: str) -> str | None:
    """The reason that keeps an attribute from having the values of a schema; None: nothing.

    >>> difference({"k": "INT"}, "k", "bigint"), difference({"k": "INT"}, "n", "INT")
    (None, 'the schema has no field `n`')
    """
    if name not in columns:
        return f"the schema has no field `{name}`"
    has = columns[name]
    if has == declared.strip().upper() or (has, declared.strip().upper()) in _WIDER:
        return None
    from sqlglot import ParseError

    try:
        same = _type(has) == _type(declared)
    except ParseError:
        same = False
    return None if same else f"`{name}` is {has} in the schema, not {declared}"


def schema_text(path: Path) -> str:
    """The schema in a file, as short as it can be written.

    Raises:
        AvroError: there is no such file, or it is not JSON.
    """
    try:
        return json.dumps(json.loads(path.read_text(encoding="utf-8")), ensure_ascii=False)
    except OSError as error:
        raise AvroError(f"it cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise AvroError(f"it is not JSON: {error}") from None


def _type(text: str) -> exp.Expression:
    from sqlglot import exp

    return exp.DataType.build(text, dialect="spark")


def _fields(
    record: Mapping[str, Any], named: Mapping[str, Any], inside: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    fields = record.get("fields")
    if not isinstance(fields, list) or not fields:
        raise AvroError("a record has no fields")
    known = dict(named)
    for field in fields:
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise AvroError("a field has no name")
        name = field["name"]
        try:
            yield name, _spark(field.get("type"), known, (*inside, str(record.get("name"))))
        except AvroError as error:
            raise AvroError(f"field `{name}`: {error}") from None


def _name(schema: Mapping[str, Any], named: dict[str, Any]) -> None:
    name, space = schema.get("name"), schema.get("namespace")
    if isinstance(name, str):
        named[name] = named[f"{space}.{name}"] = schema


def _spark(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> str:
    """The type of Spark for a type of Avro; `named` gets the types that it names."""
    if isinstance(schema, list):
        others = [kind for kind in schema if kind != "null"]
        if len(others) != 1:
            raise AvroError("unions of several types are not supported, only null and one type")
        return _spark(others[0], named, inside)
    if isinstance(schema, str):
        if schema in named:
            return _spark(named[schema], named, inside)
        schema = {"type": schema}
    if not isinstance(schema, dict):
        raise AvroError("it has no type")
    kind, logical = schema.get("type"), schema.get("logicalType")
    if isinstance(kind, dict | list):
        return _spark(kind, named, inside)
    _name(schema, named)
    match kind:
        case "record":
            if schema.get("name") in inside:
                raise AvroError(f"the record {schema.get('name')} is part of itself")
            parts = _fields(schema, named, inside)
            return f"STRUCT<{', '.join(f'{part}: {type}' for part, type in parts)}>"
        case "array":
            return f"ARRAY<{_spark(schema.get('items'), named, inside)}>"
        case "map":
            return f"MAP<STRING, {_spark(schema.get('values'), named, inside)}>"
        case "bytes" | "fixed" if logical == "decimal":
            precision, scale = schema.get("precision"), schema.get("scale", 0)
            if not isinstance(precision, int) or not 0 < precision <= _DECIMAL_MAX:
                raise AvroError(f"decimals have 1 to {_DECIMAL_MAX} digits in Spark")
            return f"DECIMAL({precision}, {scale})"
    if logical in _REFUSED:
        raise AvroError(f"the logical type {logical} is not supported")
    plain = TYPES.get(f"{kind} {logical}") or TYPES.get(str(kind))
    if plain is None:
        raise AvroError(f"the type {kind} is not supported")
    return plain
