"""Key columns: the text of their values, and keys that are joined to records as a table.

Keys and producers are values of a user. They come to Spark as the rows of a small table and as
nothing else: there is no expression that is put together from their text, so there is nothing to
quote. A table is an Arrow table, which Spark takes for a local relation, without a job.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    CalendarIntervalType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
    UserDefinedType,
    VariantType,
)

from flux_runtime.sealing.events import KeyText
from flux_runtime.sealing.keys import KEY_BYTES_MAX, key_values
from flux_runtime.spark.frames import column

CHUNK: Final = "__chunk"
"""The column of a buffered record that says which chunk it is in, as text: Spark writes a number
into the code that it generates, which it then would compile anew for every micro-batch."""
CHUNKS_MAX: Final = 16
"""Chunks in one row of `KeyColumns.places`, about."""
_CHUNKS: Final = "__chunks"
_REMAINDER: Final = "__remainder"

_REFUSED: Final = (
    ArrayType,
    MapType,
    StructType,
    VariantType,
    CalendarIntervalType,
    NullType,
    UserDefinedType,
)
_TYPED: Final = (StringType, IntegralType, BooleanType, DateType, DecimalType)
"""Types whose text is cast back; the text of others is compared."""


def refusal(of: DataType) -> str | None:
    """Why a column of that type cannot be a key; None: it can."""
    if isinstance(of, _REFUSED):
        return f"is of type {of.simpleString()}; a key can be of any type that has single values"
    if isinstance(of, StringType) and not of.isUTF8BinaryCollation():
        return (
            f"is of type {of.simpleString()}: different texts are equal in that collation, and a "
            "partition goes by its text; put lower(...) or the like into a column of its own"
        )
    return None


def text_of(value: Column, of: DataType) -> Column:
    """The text of a key's value; `flux_runtime.sealing.keys` says which."""
    match of:
        case TimestampType():
            value = sf.timestamp_add("MICROSECOND", sf.unix_micros(value), _epoch())
        case BinaryType():
            return sf.hex(value)
        case FloatType() | DoubleType():
            value = sf.when(value == 0, sf.lit(0).cast(of)).otherwise(value)
        case _:
            pass
    return value.cast("string")


def value_of(text: Column, of: DataType) -> Column:
    """The value that has a text; the reverse of `text_of`."""
    match of:
        case TimestampType():
            micros = sf.timestamp_diff("MICROSECOND", _epoch(), text.cast("timestamp_ntz"))
            return sf.timestamp_micros(micros)
        case BinaryType():
            return sf.unhex(text)
        case _:
            return text.cast(of)


def usable(text: Column) -> Column:
    """Whether a text can be part of a key, or name a producer; never null."""
    valid = sf.is_valid_utf8(text) & (sf.octet_length(text) <= KEY_BYTES_MAX)
    return sf.coalesce(valid, sf.lit(False))


class KeyColumns:
    """The key columns of one input.

    Args:
        schema: of the input's records.
        names: the columns, in the order of the unit's key.
    """

    def __init__(self, schema: StructType, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.types = tuple(schema[name].dataType for name in names)
        self.added = tuple(map(_at, range(len(names))))
        """The columns of `table` that hold the key."""

    def values(self) -> list[Column]:
        """The columns themselves."""
        return [sf.col(column(name)) for name in self.names]

    def texts(self) -> list[Column]:
        """The text of each."""
        return [text_of(v, of) for v, of in zip(self.values(), self.types, strict=True)]

    def present(self) -> Column:
        """No attribute is null."""
        return _all(value.isNotNull() for value in self.values())

    def usable(self) -> Column:
        """The key is there, is text, and is not too long."""
        texts = self.texts()
        size = reduce(lambda a, b: a + b, (sf.octet_length(text) for text in texts))
        return _all(usable(text) for text in texts) & (size <= KEY_BYTES_MAX)

    def table(
        self,
        session: SparkSession,
        keys: Iterable[KeyText],
        *,
        beside: Mapping[str, pa.Array] | None = None,
    ) -> DataFrame:
        """A table of keys to join with; `matches` is the condition.

        Args:
            session: to make it in.
            keys: one for each row.
            beside: further columns.
        """
        frame = self.texts_table(session, keys, beside=beside)
        typed = {
            name: value_of(sf.col(name), of)
            for name, of in zip(self.added, self.types, strict=True)
            if isinstance(of, _TYPED) and not isinstance(of, StringType)
        }
        return frame.withColumns(typed) if typed else frame

    def texts_table(
        self,
        session: SparkSession,
        keys: Iterable[KeyText],
        *,
        beside: Mapping[str, pa.Array] | None = None,
    ) -> DataFrame:
        """The same, with the texts of all attributes."""
        rows = [key_values(key) for key in keys]
        arrays: dict[str, Any] = {
            name: pa.array([row[i] for row in rows], pa.string())
            for i, name in enumerate(self.added)
        }
        return table(session, arrays | dict(beside or {}))

    def places(
        self, session: SparkSession, chunks: Mapping[KeyText, Collection[int]]
    ) -> tuple[DataFrame, Column]:
        """A table of keys with the chunks in which each is to be read, and the condition to join.

        There is a row for each key: most records that are not wanted are told by their key, without
        a look at their chunk. The chunks of a key that has very many are spread over several rows,
        by what is left of their numbers when they are divided.
        """
        longest = max(map(len, chunks.values()), default=0)
        divisor = 1
        while longest > CHUNKS_MAX * divisor:
            divisor *= 2
        rows: dict[tuple[KeyText, int], list[str]] = {}
        for key, numbers in chunks.items():
            for number in numbers:
                rows.setdefault((key, number % divisor), []).append(number_of(number))
        beside = {
            _REMAINDER: pa.array([remainder for _, remainder in rows], pa.int32()),
            _CHUNKS: pa.array(rows.values(), pa.list_(pa.string())),
        }
        here = self.matches() & sf.array_contains(sf.col(_CHUNKS), sf.col(CHUNK))
        if divisor > 1:
            remainder = sf.pmod(sf.col(CHUNK).cast("int"), sf.lit(divisor)).cast("int")
            here &= remainder == sf.col(_REMAINDER)
        return self.table(session, [key for key, _ in rows], beside=beside), here

    def matches(self) -> Column:
        """That a record has the key of a row of `table`."""
        return _all(
            (value if isinstance(of, _TYPED) else text_of(value, of)) == sf.col(name)
            for name, value, of in zip(self.added, self.values(), self.types, strict=True)
        )


def table(session: SparkSession, columns: Mapping[str, pa.Array]) -> DataFrame:
    """A small table of values, to be joined: broadcast, and planned without a job."""
    return sf.broadcast(session.createDataFrame(pa.table(dict(columns))))


def _at(position: int) -> str:
    return f"__key_{position}"


def _epoch() -> Column:
    return sf.lit("1970-01-01 00:00:00").cast("timestamp_ntz")


def number_of(chunk: int) -> str:
    """The value of the column `__chunk`.

    >>> number_of(7), number_of(-1)
    ('7', '-1')
    """
    return str(chunk)


def _all(conditions: Iterable[Column]) -> Column:
    return reduce(lambda a, b: a & b, conditions)
