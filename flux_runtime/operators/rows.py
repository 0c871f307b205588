"""Rows as Arrow record batches: sequence numbers as columns, merging, stable partitioning.

The last three columns are the row's sequence number: `sn_batch`, `sn_offset` and the discriminator
`sn_sub` that orders several outputs of one input row. They are compared in that order.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

SN: Final = ("sn_batch", "sn_offset", "sn_sub")
SN_FIELDS: Final = tuple(pa.field(name, pa.int64(), nullable=False) for name in SN)

Ints = npt.NDArray[np.int64]
Batch = Any
"""A pyarrow.RecordBatch whose last columns are `SN` (pyarrow ships no types)."""


def number(batch: Batch, number: int) -> Batch:
    """Give the rows of a source's batch their sequence numbers (the ingress's ISN)."""
    n = batch.num_rows
    columns = [np.full(n, number, np.int64), np.arange(n, dtype=np.int64), np.zeros(n, np.int64)]
    return with_sn(list(batch.columns), list(batch.schema), columns)


def with_sn(columns: Sequence[Any], fields: Sequence[Any], sn: Sequence[Ints]) -> Batch:
    """A batch of these data columns and these sequence numbers."""
    arrays = [*columns, *(pa.array(part) for part in sn)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*fields, *SN_FIELDS]))


def ints(batch: Batch, name: str) -> Ints:
    """A column of integers, booleans or timestamps as int64."""
    column = batch.column(name)
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
    return values


def sn_of(batch: Batch) -> tuple[Ints, Ints, Ints]:
    """The three columns of sequence numbers."""
    return ints(batch, SN[0]), ints(batch, SN[1]), ints(batch, SN[2])


def data_fields(schema: Any) -> list[Any]:
    """The fields of a schema without the sequence number."""
    return [field for field in schema if field.name not in SN]


def merge(parts: Sequence[Batch]) -> Batch:
    """Rows of one batch from several producers, in the order of their sequence numbers (XM-1).

    They hold no memory but their own: an operator may keep a slice of a large batch for long.
    """
    if len(parts) == 1 and parts[0].get_total_buffer_size() <= 2 * parts[0].nbytes:
        return parts[0]
    rows = pa.concat_batches(list(parts))
    batch, offset, sub = sn_of(rows)
    order = np.lexsort((sub, offset, batch))
    return rows.take(pa.array(order))


def stable_hash(batch: Batch, keys: Sequence[str]) -> npt.NDArray[np.uint64]:
    """A hash of the key columns that is the same in every process and on every machine (DET-1)."""
    with np.errstate(over="ignore"):
        mixed = np.full(batch.num_rows, 0x9E3779B97F4A7C15, np.uint64)
        for name in keys:
            mixed = _splitmix(mixed ^ _column_hash(batch.column(name)))
    return mixed


def _column_hash(column: Any) -> npt.NDArray[np.uint64]:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    if pa.types.is_integer(column.type):
        values = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        null = column.is_null().to_numpy(zero_copy_only=False)
        hashed: npt.NDArray[np.uint64] = values.view(np.uint64) ^ (
            null.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03)
        )
        return hashed
    values, places = coded(column)
    unique = np.array([zlib.crc32(repr(value).encode()) for value in values], np.uint64)
    table = np.append(unique, np.uint64(1))
    looked_up: npt.NDArray[np.uint64] = table[places]
    return looked_up


def coded(column: Any) -> tuple[list[Any], Ints]:
    """The values of a column as parts of a key, and the place among them of each row's; null: -1.

    One value may stand there twice.
    """
    if pa.types.is_nested(column.type):  # Arrow makes no dictionary of these
        numbers: dict[Any, int] = {}
        values = (None if value is None else key_value(value) for value in column.to_pylist())
        places = [
            -1 if value is None else numbers.setdefault(value, len(numbers)) for value in values
        ]
        return list(numbers), np.array(places, np.int64)
    encoded = column.dictionary_encode()
    codes: Ints = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return [key_value(value) for value in encoded.dictionary.to_pylist()], codes


def key_value(value: Any) -> Any:
    """A value as part of a key, hashable: those that Spark groups together are equal.

    So -0.0 is 0.0 and all NaNs are one, inside of structs and arrays too.

    >>> key_value({"a": -0.0, "b": [1, None]}), key_value(float("-nan")) is key_value(math.nan)
    ((0.0, (1, None)), True)
    """
    match value:
        case float():
            return math.nan if math.isnan(value) else value + 0.0
        case dict():
            return tuple(map(key_value, value.values()))
        case list() | tuple():
            return tuple(map(key_value, value))
        case _:
            return value


def _splitmix(x: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


class KeySplit:
    """Splits the input of each stage by a stable hash of that stage's key columns.

    Args:
        keys: stage -> names of its key columns; a stage not named (the egress) gets all rows.
    """

    def __init__(self, keys: Mapping[int, Sequence[str]]) -> None:
        self.keys = {stage: tuple(names) for stage, names in keys.items()}

    def __call__(self, stage: int, rows: Batch, width: int) -> Mapping[int, Batch]:
        """Rows per partition; partitions that get nothing are left out."""
        if rows.num_rows == 0:
            return {}
        if width == 1 or stage not in self.keys:
            return {0: rows}
        part = (stable_hash(rows, self.keys[stage]) % np.uint64(width)).astype(np.int64)
        order = np.argsort(part, kind="stable")
        bounds = np.searchsorted(part[order], np.arange(width + 1)).tolist()
        together = rows.take(pa.array(order))
        return {
            i: together.slice(begin, end - begin)
            for i, (begin, end) in enumerate(itertools.pairwise(bounds))
            if begin < end
        }


def rows_size(rows: Batch) -> int:
    """Bytes of the rows."""
    return int(rows.nbytes)


def content_size(rows: Any) -> int:
    """Bytes of what the rows of a batch or table say, however their buffers lie.

    Rows that have been packed and unpacked, cut or put together have as many: a column takes its
    values, an offset for each list or text, and a bit for each row, which says whether it is null.

    >>> rows = pa.table({"n": [1, None, 3], "t": ["a", "bc", None]})
    >>> content_size(rows), content_size(pa.concat_tables([rows.slice(0, 1), rows.slice(1)]))
    (40, 40)
    """
    chunks = (
        chunk
        for column in rows.columns
        for chunk in (column.chunks if isinstance(column, pa.ChunkedArray) else [column])
    )
    return -(-sum(map(_bits, chunks)) // 8)


def _bits(array: Any) -> int:
    """Bits of the values of an array, and of what says which are null."""
    kind, n = array.type, len(array)
    if not n:
        return 0
    if pa.types.is_map(kind):
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        offsets = pa.array(array.offsets.to_numpy())
        return _bits(pa.ListArray.from_arrays(offsets, entries, mask=array.is_null()))
    if pa.types.is_struct(kind):
        return n + sum(map(_bits, array.flatten()))
    wide = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
    offset_bytes = 8 if wide or pa.types.is_large_list(kind) else 4
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return n * (1 + 8 * offset_bytes) + _bits(array.flatten())
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or wide:
        ends = np.frombuffer(array.buffers()[1], np.int64 if wide else np.int32)
        text_bytes = int(ends[array.offset + n]) - int(ends[array.offset])
        return n * (1 + 8 * offset_bytes) + 8 * text_bytes
    return n * (1 + (0 if pa.types.is_null(kind) else int(kind.bit_width)))
