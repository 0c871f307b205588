"""Values of the state of a `StatefulProcessor`: checked against its schemas, and kept as data.

What a processor hands to its state is checked against the schema of the variable and kept as plain
data (`operators.packing`); what it asks for is made anew, so that nothing that it holds is the
state itself. A struct is kept as a tuple and given as a Row, an array as a tuple and given as a
list, a map as pairs and given as a dict, as Spark gives them.

Where Spark keeps NULL in place of a value of another type (an `int` for a DOUBLE), or ends the
query (a DECIMAL that is too large), the value is refused: the record is set aside.
"""

from __future__ import annotations

import datetime
import decimal
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    Row,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from flux_runtime.operators.packing import pack
from flux_runtime.operators.rows import key_value

Plain = Any
"""None, bool, int, float, str, bytes, date, datetime, Decimal, and tuples of these."""

INTEGRAL: Final[Mapping[type[DataType], int]] = {
    ByteType: 8,
    ShortType: 16,
    IntegerType: 32,
    LongType: 64,
}
"""Integer types, and their bits."""


class StateValueError(TypeError):
    """A value that the schema of a state variable does not have; the text says where."""


def check_schema(schema: StructType, where: str) -> None:
    """Refuse a schema with a type that the state of a site does not hold.

    Raises:
        StateValueError: with the path to the column, and its type.
    """
    for field in schema.fields:
        _check_type(field.dataType, f"{where}.{field.name}")


def _check_type(dtype: DataType, where: str) -> None:
    match dtype:
        case StructType():
            check_schema(dtype, where)
        case ArrayType():
            _check_type(dtype.elementType, f"{where}[]")
        case MapType():
            _check_type(dtype.keyType, f"a key of {where}")
            _check_type(dtype.valueType, f"{where}[]")
        case _ if type(dtype) not in _PLAIN and type(dtype) not in INTEGRAL:
            raise StateValueError(
                f"{where} is {dtype.simpleString().upper()}, which the state of a Flux site "
                "does not hold"
            )


def plain_row(value: Any, schema: StructType, where: str) -> tuple[Plain, ...]:
    """A tuple, as a processor hands it over, as plain data.

    Raises:
        StateValueError: it is none of the schema.
    """
    if isinstance(value, Mapping):
        value = tuple(value.get(name) for name in schema.names)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        raise StateValueError(f"{where} is given {type(value).__name__}; it takes a tuple")
    if len(value) != len(schema.fields):
        raise StateValueError(
            f"{where} is given {len(value)} values, and has {len(schema.fields)} columns "
            f"({', '.join(schema.names)})"
        )
    return tuple(
        _plain(item, field.dataType, f"{where}.{field.name}")
        for item, field in zip(value, schema.fields, strict=True)
    )


def given_row(values: tuple[Plain, ...], schema: StructType) -> tuple[Any, ...]:
    """Plain data as a processor gets it from its state."""
    return tuple(
        _given(item, field.dataType) for item, field in zip(values, schema.fields, strict=True)
    )


def identity(key: Any) -> bytes:
    """Equal bytes for keys that Spark groups together, such as 0.0 and -0.0, or all NaNs."""
    return pack(key_value(key))


def size_of(value: Plain) -> int:
    """Bytes of plain data, about."""
    if isinstance(value, tuple):
        return 16 + sum(map(size_of, value))
    return 16 + len(value) if isinstance(value, str | bytes) else 16


def _plain(value: Any, dtype: DataType, where: str) -> Plain:
    if isinstance(value, np.generic):
        value = value.item()
    elif hasattr(value, "to_pydatetime"):
        value = value.to_pydatetime()
    if value is None:
        return None
    match dtype:
        case StructType():
            return plain_row(value, dtype, where)
        case ArrayType():
            if not isinstance(value, list | tuple | np.ndarray):
                raise _wrong(value, dtype, where)
            return tuple(_plain(item, dtype.elementType, f"{where}[]") for item in value)
        case MapType():
            if not isinstance(value, Mapping):
                raise _wrong(value, dtype, where)
            return tuple(
                (
                    _plain(key, dtype.keyType, f"a key of {where}"),
                    _plain(item, dtype.valueType, f"{where}[]"),
                )
                for key, item in value.items()
            )
    bits = INTEGRAL.get(type(dtype))
    if bits is not None:
        if type(value) is not int:
            raise _wrong(value, dtype, where)
        if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
            raise StateValueError(f"{where} is {dtype.simpleString().upper()}, and {value} is not")
        return value
    plain = _PLAIN[type(dtype)](value, dtype)
    if plain is None:
        raise _wrong(value, dtype, where)
    return plain


def _wrong(value: Any, dtype: DataType, where: str) -> StateValueError:
    name = dtype.simpleString().upper()
    return StateValueError(f"{where} is {name}, and is given {type(value).__name__} {value!r}")


def _decimal(value: Any, dtype: Any) -> Plain:
    if not isinstance(value, decimal.Decimal):
        return None
    scaled = value.quantize(decimal.Decimal(1).scaleb(-dtype.scale), decimal.ROUND_HALF_UP)
    return scaled if abs(scaled) < decimal.Decimal(10) ** (dtype.precision - dtype.scale) else None


def _instant(value: Any, _: DataType) -> Plain:
    if not isinstance(value, datetime.datetime):
        return None
    return value if value.tzinfo is None else value.astimezone(datetime.UTC).replace(tzinfo=None)


def _local(value: Any, _: DataType) -> Plain:
    return value if isinstance(value, datetime.datetime) and value.tzinfo is None else None


def _single(value: Any, _: DataType) -> Plain:
    if type(value) is not float:
        return None
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _date(value: Any, _: DataType) -> Plain:
    is_date = isinstance(value, datetime.date) and not isinstance(value, datetime.datetime)
    return value if is_date else None


_PLAIN: Final[Mapping[type[DataType], Callable[[Any, Any], Plain]]] = {
    BooleanType: lambda value, _: value if type(value) is bool else None,
    FloatType: _single,
    DoubleType: lambda value, _: value if type(value) is float else None,
    StringType: lambda value, _: str(value) if isinstance(value, str) else None,
    BinaryType: lambda value, _: bytes(value) if isinstance(value, bytes | bytearray) else None,
    DateType: _date,
    TimestampType: _instant,
    TimestampNTZType: _local,
    DecimalType: _decimal,
}
"""Types without parts -> the value as plain data; None where it is of another type."""


def _given(value: Plain, dtype: DataType) -> Any:
    if not isinstance(value, tuple):
        return value
    match dtype:
        case StructType():
            return Row(*dtype.names)(*given_row(value, dtype))
        case ArrayType():
            return [_given(item, dtype.elementType) for item in value]
        case MapType():
            return {
                _given(key, dtype.keyType): _given(item, dtype.valueType) for key, item in value
            }
        case _:
            raise AssertionError(dtype)
