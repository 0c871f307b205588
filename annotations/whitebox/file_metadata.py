"""The column `_metadata` of files, which `*` does not stand for: of a row, its file."""

from __future__ import annotations

from typing import Final

from annotations.dataflow import Position
from annotations.whitebox.datatypes import BIGINT, STRING, TIMESTAMP, UNKNOWN, DataType, Family
from annotations.whitebox.ir import Call, Column, Expression, Ref

NAME: Final = "_metadata"
METADATA: Final = DataType(
    Family.STRUCT,
    fields=(
        ("file_path", STRING, True),
        ("file_name", STRING, True),
        ("file_size", BIGINT, True),
        ("file_block_start", BIGINT, True),
        ("file_block_length", BIGINT, True),
        ("file_modification_time", TIMESTAMP, True),
    ),
)


def hidden(column: Column) -> bool:
    """Whether `*` does not stand for a column: it is `_metadata`."""
    return column.name.lower() == NAME and column.type == METADATA


def open_type(name: str) -> DataType:
    """The type of a column that is not declared."""
    return METADATA if name.lower() == NAME else UNKNOWN


def of_file(metadata: Ref, name: str, value: Expression, at: Position | None) -> Expression:
    """The field of that name, `value`, as what it depends on: the file, or, like the struct as a
    whole (an empty name), where Spark has cut it."""
    lower = name.lower()
    type_ = value.type if isinstance(value, Call) else UNKNOWN
    if lower.startswith("file_block_") or not type_.identical:
        return Call("input_file_block_start", (), type_ if name else UNKNOWN, True, at)
    stays = f"no file is written again or moved (`{NAME}.{lower}`)"
    return Call(f"{NAME}.{lower}", (metadata,), type_, True, at, user=stays)
