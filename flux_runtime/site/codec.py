"""Rows as bytes, and back.

Rows travel as Arrow IPC messages; a schema is sent once per connection and then named by number.
Everything that is read is checked: what is not well-formed raises `Malformed`, never anything else.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import pyarrow as pa

from flux_runtime.site.wire import Bundles, Kind, Malformed

SCHEMAS_MAX: Final = 1024
"""Schemas of one connection."""

ROWS: Final = struct.Struct("<qIxxxx")
"""A number, number of the schema; then rows."""
STATE: Final = struct.Struct("<hHBIxxxxxxxQ")
"""The standby that a state is for, bytes of the whole state; then a piece of it."""
OFFER: Final = struct.Struct("<qqIxxxx")
"""Batch and offset of a source, number of the schema; then rows."""

SELF_CONTAINED: Final = 0xFFFFFFFF
"""In place of a schema's number: the payload is a whole IPC stream."""


class RowsEncoder:
    """Rows to bytes for one connection.

    Args:
        shared: rows that have been encoded in this turn, for all connections of the process: the
            ingress sends the same rows to both copies. Whoever made it empties it.
    """

    __slots__ = ("_last", "_numbers", "_shared")

    def __init__(self, shared: dict[int, tuple[Any, Any]]) -> None:
        self._shared = shared
        self._numbers: dict[bytes, int] = {}
        self._last: tuple[Any, int] | None = None

    def schema_number(self, schema: Any, out: Bundles) -> int:
        """The number of a schema, which is put in front where the other end does not know it."""
        if self._last is not None and schema is self._last[0]:
            return self._last[1]
        key = schema.serialize().to_pybytes()
        number = self._numbers.get(key)
        if number is None:
            if len(self._numbers) >= SCHEMAS_MAX or _has_dictionary(schema):
                return SELF_CONTAINED
            number = self._numbers[key] = len(self._numbers)
            out.add(Kind.SCHEMA, key)
        self._last = (schema, number)
        return number

    def payload(self, rows: Any, number: int) -> Any:
        """The rows as one buffer."""
        if number != SELF_CONTAINED:
            known = self._shared.get(id(rows))
            if known is None:
                known = self._shared[id(rows)] = (rows, rows.serialize())
            return known[1]
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as stream:
            stream.write_batch(rows)
        return sink.getvalue()

    def forget(self) -> None:
        """Keep no rows for other connections."""
        self._shared.clear()


class RowsDecoder:
    """Bytes to rows for one connection."""

    __slots__ = ("_schemas",)

    def __init__(self) -> None:
        self._schemas: list[Any] = []

    def schema(self, body: memoryview) -> None:
        """Take a schema frame."""
        if len(self._schemas) >= SCHEMAS_MAX:
            raise Malformed("too many schemas")
        try:
            self._schemas.append(pa.ipc.read_schema(pa.py_buffer(body)))
        except Exception as error:  # whatever Arrow makes of such bytes
            raise Malformed(f"not a schema: {type(error).__name__}") from None

    def rows(self, body: memoryview, number: int) -> Any:
        """The rows of a payload, validated."""
        if number != SELF_CONTAINED and number >= len(self._schemas):
            raise Malformed(f"schema {number} has not been sent")
        try:
            if number == SELF_CONTAINED:
                with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
                    rows = stream.read_next_batch()
            else:
                rows = pa.ipc.read_record_batch(pa.py_buffer(body), self._schemas[number])
            rows.validate()
        except Exception as error:  # whatever Arrow makes of such bytes
            raise Malformed(f"not rows: {type(error).__name__}") from None
        return rows


def _has_dictionary(schema: Any) -> bool:
    return any(
        pa.types.is_dictionary(field.type) or pa.types.is_nested(field.type) for field in schema
    )
