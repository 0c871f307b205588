"""Values as bytes that hold data and nothing else: operators' states, and what waits for them.

    skeleton    its length (8 bytes), then MessagePack, padded to 8 bytes
    buffers     one behind the other, each padded to 8 bytes: arrays as they lie, Arrow IPC

In the skeleton numbers, texts, bytes, truth values and none stand for themselves; anything else is
a list whose first item names what it is. Reading makes values of the kinds below and of no other:
no name in the bytes is ever looked up, imported or called, so a state that somebody has written can
be wrong, but runs no code. Whoever moves values of classes of their own says which (`classes`).
"""

from __future__ import annotations

import datetime
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import msgspec
import numpy as np
import pyarrow as pa

LENGTH: Final = struct.Struct("<Q")
ALIGNMENT: Final = 8
PART_BYTES: Final = 16 << 20
"""Of Arrow's data that is copied, or sent before a state, in one piece, about."""
DEPTH_MAX: Final = 64
"""Nesting of lists and the like within a value."""
INT_BITS: Final = 63
ARRAY_KINDS: Final = "biufcSUmM"
"""Kinds of numpy's types that hold data in place, without references."""
DTYPE: Final = re.compile(rf"[<>|][{ARRAY_KINDS}]\d+(\[\w+\])?")
"""As `numpy.dtype.str` writes it."""

Value = Any
"""None, bool, int, float, str, bytes, tuple, list, dict, set, frozenset, Decimal, date, time,
datetime, timedelta, numpy arrays and scalars, pyarrow RecordBatch and Table, enums and objects of
`classes`."""


class Unpackable(TypeError):  # noqa: N818 - what it is
    """A value holds something that is not data; the text says where, and what to do."""


class Unreadable(ValueError):  # noqa: N818 - what it is
    """The bytes are not what `pack` writes."""


class Classes:
    """Classes whose objects are data: their slots, or their fields if they are tuples or enums.

    Args:
        classes: that may be packed; their names have to differ.
        shared: slots that both ends have the same value of; they are not packed.
    """

    def __init__(self, classes: Sequence[type], shared: Mapping[str, Any]) -> None:
        self.by_name = {cls.__name__: cls for cls in classes}
        self.shared = shared
        self.fields = {cls: _fields(cls) for cls in classes}


NO_CLASSES: Final = Classes((), {})


def _fields(cls: type) -> tuple[str, ...]:
    if issubclass(cls, tuple):
        return tuple(getattr(cls, "_fields", ()))
    slots = [name for base in reversed(cls.__mro__) for name in getattr(base, "__slots__", ())]
    return tuple(sorted(slots))


def pack(value: Value, *, classes: Classes = NO_CLASSES) -> bytes:
    """The value as bytes.

    Raises:
        Unpackable: it holds something that is not data.
    """
    return bytes(Packed(value, classes=classes))


class Packed:
    """A value to be written as bytes; Arrow's data is copied when its turn comes.

    Args:
        value: not changed until `parts` has come to its end.
        classes: see `Classes`.
        base: what the reader has already.

    Attributes:
        size: bytes of all parts.

    Raises:
        Unpackable: it holds something that is not data.
    """

    def __init__(
        self, value: Value, *, classes: Classes = NO_CLASSES, base: Base | None = None
    ) -> None:
        writer = _Writer(classes, base)
        skeleton = msgspec.msgpack.encode(writer.plain(value, "the state", 0))
        self._head = LENGTH.pack(len(skeleton)) + skeleton + bytes(-len(skeleton) % ALIGNMENT)
        self._buffers = writer.buffers
        self.size = len(self._head) + sum(n + -n % ALIGNMENT for n in map(len, self._buffers))

    def __bytes__(self) -> bytes:
        return b"".join(self.parts())

    def parts(self) -> Iterator[Any]:
        """The bytes; Arrow's data in parts of `PART_BYTES`, about."""
        yield self._head
        for buffer in self._buffers:
            yield buffer.written() if isinstance(buffer, Message) else buffer
            yield bytes(-len(buffer) % ALIGNMENT)


class Base:
    """The part of a value that can be sent before it: Arrow's data that stays where it is.

    A later value of the same operator that still has such data refers to it by its number.

    Args:
        value: as the operator has it now.
        classes: see `Classes`.
    """

    def __init__(self, value: Value, *, classes: Classes = NO_CLASSES) -> None:
        writer = _Writer(classes)
        writer.plain(value, "the state", 0)
        self.messages = [buffer for buffer in writer.buffers if isinstance(buffer, Message)]
        self._numbers = {message.identity: i for i, message in enumerate(self.messages)}

    def number(self, message: Message) -> int | None:
        """Which of its messages this is."""
        return self._numbers.get(message.identity)


class Message:
    """A record batch as a message of Arrow IPC."""

    def __init__(self, batch: Any) -> None:
        self._batch = batch
        self._size: int = pa.ipc.get_record_batch_size(batch)

    def __len__(self) -> int:
        return self._size

    def written(self) -> Any:
        """The message; a copy of the data."""
        return self._batch.serialize()

    @property
    def identity(self) -> tuple[Any, ...]:
        """Where its data lies in memory, which nothing else does as long as this is here."""
        return tuple(
            (c.offset, len(c), *(None if b is None else b.address for b in c.buffers()))
            for c in self._batch.columns
        )


def _batches(rows: Any) -> Iterator[Any]:
    """The record batches of rows, none of them much larger than a part."""
    if isinstance(rows, pa.RecordBatch):
        yield rows
        return
    if rows.nbytes <= PART_BYTES:  # the same bytes, however the rows got here
        rows = rows.combine_chunks()
    for batch in rows.to_batches():
        step = max(1, batch.num_rows * PART_BYTES // max(1, batch.nbytes))
        for at in range(0, batch.num_rows, step):
            yield batch.slice(at, step)


def unpack(
    data: bytes | bytearray | memoryview,
    *,
    classes: Classes = NO_CLASSES,
    base: Sequence[bytes | bytearray] = (),
) -> Value:
    """The value that `pack` was given; Arrow uses the bytes where they are.

    Args:
        data: the bytes.
        classes: see `Classes`.
        base: the messages of the `Base` that they refer to.

    Raises:
        Unreadable: the bytes are something else.
    """
    view = memoryview(data)
    if len(view) < LENGTH.size:
        raise Unreadable("the bytes end before the skeleton")
    (size,) = LENGTH.unpack_from(view)
    if size > len(view) - LENGTH.size:
        raise Unreadable("the skeleton is longer than the bytes")
    try:
        skeleton = msgspec.msgpack.decode(view[LENGTH.size : LENGTH.size + size])
        at = LENGTH.size + size
        reader = _Reader(classes, view[at + -size % ALIGNMENT :], base)
        value = reader.value(skeleton)
    except Unreadable:
        raise
    except Exception as error:  # whatever Arrow, numpy or a constructor makes of such values
        raise Unreadable(f"not a packed value: {type(error).__name__}: {error}") from None
    if reader.at != len(reader.buffers):
        raise Unreadable("bytes behind the last buffer")
    return value


class _Writer:
    """Collects the buffers of a value while its skeleton is made."""

    def __init__(self, classes: Classes, base: Base | None = None) -> None:
        self.classes = classes
        self.base = base
        self.buffers: list[Any] = []

    def plain(self, value: Value, where: str, depth: int) -> Any:
        """The skeleton of a value that stands at this place of the whole."""
        if depth > DEPTH_MAX:
            raise Unpackable(f"{where}: more than {DEPTH_MAX} levels")
        kind = type(value)
        if value is None or kind in (bool, float, str, bytes):
            return value
        if kind is int:
            return value if value.bit_length() <= INT_BITS else ["int", str(value)]
        if kind in self.classes.fields:
            return self._object(value, where, depth)
        write = _WRITE.get(kind)
        if write is None:
            raise Unpackable(
                f"{where}: {kind.__module__}.{kind.__qualname__} is not data; give numbers, text, "
                "tuples, lists, dicts, sets, dates, numpy arrays or Arrow tables in its place"
            )
        return write(self, value, where, depth + 1)

    def _object(self, value: Value, where: str, depth: int) -> list[Any]:
        name = type(value).__name__
        if isinstance(value, Enum):
            return ["enum", name, value.value]
        fields = self.classes.fields[type(value)]
        return [
            "object",
            name,
            *(
                self.plain(getattr(value, field), f"{where}.{field}", depth + 1)
                for field in fields
                if field not in self.classes.shared
            ),
        ]

    def items(self, values: Sequence[Value], where: str, depth: int) -> list[Any]:
        """The skeletons of some values."""
        return [self.plain(item, f"{where}[{i}]", depth) for i, item in enumerate(values)]

    def pairs(self, value: Mapping[Any, Any], where: str, depth: int) -> list[Any]:
        """The skeletons of keys and values, in turn."""
        flat: list[Any] = []
        for key, item in value.items():
            flat.append(self.plain(key, f"a key of {where}", depth))
            flat.append(self.plain(item, f"{where}[{key!r}]"[:200], depth))
        return flat

    def array(self, value: Any, where: str, depth: int) -> list[Any]:
        """Type and shape; the data becomes a buffer."""
        if value.dtype.kind not in ARRAY_KINDS:
            raise Unpackable(f"{where}: an array of {value.dtype} holds references to objects")
        self.buffers.append(np.ascontiguousarray(value).tobytes())
        return ["array", value.dtype.str, *value.shape, len(self.buffers[-1])]

    def arrow(self, value: Any, name: str) -> list[Any]:
        """Its schema and its record batches, each a buffer, or a number in the base."""
        if any(map(_has_dictionary, value.schema.types)):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, value.schema) as stream:
                stream.write(value)
            self.buffers.append(sink.getvalue())
            return [name, len(self.buffers[-1])]
        self.buffers.append(value.schema.serialize())
        plain: list[Any] = ["rows", name, len(self.buffers[-1])]
        for message in map(Message, _batches(value)):
            number = None if self.base is None else self.base.number(message)
            if number is None:
                self.buffers.append(message)
                plain.append(len(message))
            else:
                plain.append(["base", number])
        return plain


def _has_dictionary(of: Any) -> bool:
    if pa.types.is_dictionary(of):
        return True
    return any(_has_dictionary(of.field(i).type) for i in range(of.num_fields))


_Write = Callable[[_Writer, Any, str, int], list[Any]]

_WRITE: Final[dict[type, _Write]] = {
    tuple: lambda w, v, at, depth: ["tuple", *w.items(v, at, depth)],
    list: lambda w, v, at, depth: ["list", *w.items(v, at, depth)],
    dict: lambda w, v, at, depth: ["dict", *w.pairs(v, at, depth)],
    set: lambda w, v, at, depth: ["set", *w.items(list(v), at, depth)],
    frozenset: lambda w, v, at, depth: ["frozenset", *w.items(list(v), at, depth)],
    Decimal: lambda w, v, at, depth: ["decimal", str(v)],
    datetime.date: lambda w, v, at, depth: ["date", v.isoformat()],
    datetime.time: lambda w, v, at, depth: ["time", v.isoformat()],
    datetime.datetime: lambda w, v, at, depth: ["datetime", v.isoformat()],
    datetime.timedelta: lambda w, v, at, depth: ["timedelta", v.days, v.seconds, v.microseconds],
    np.ndarray: lambda w, v, at, depth: w.array(v, at, depth),
    pa.RecordBatch: lambda w, v, at, depth: w.arrow(v, "batch"),
    pa.Table: lambda w, v, at, depth: w.arrow(v, "table"),
    **{
        np.dtype(code).type: lambda w, v, at, depth: ["scalar", *w.array(np.asarray(v), at, depth)]
        for code in "?bBhHiIlLqQefdmM"
    },
}


class _Reader:
    """Takes buffers one behind the other while values are made of a skeleton."""

    def __init__(
        self, classes: Classes, buffers: memoryview, base: Sequence[bytes | bytearray]
    ) -> None:
        self.classes = classes
        self.buffers = buffers
        self.base = base
        self.at = 0

    def value(self, plain: Any) -> Value:
        """The value of a skeleton."""
        if not isinstance(plain, list):
            if isinstance(plain, dict):
                raise Unreadable("a map in the skeleton")
            return plain
        name, *rest = plain
        match name:
            case "tuple":
                return tuple(map(self.value, rest))
            case "list":
                return list(map(self.value, rest))
            case "dict":
                values = list(map(self.value, rest))
                return dict(zip(values[::2], values[1::2], strict=True))
            case "set":
                return set(map(self.value, rest))
            case "frozenset":
                return frozenset(map(self.value, rest))
            case "int":
                return int(*rest)
            case "decimal":
                return Decimal(*rest)
            case "date":
                return datetime.date.fromisoformat(*rest)
            case "time":
                return datetime.time.fromisoformat(*rest)
            case "datetime":
                return datetime.datetime.fromisoformat(*rest)
            case "timedelta":
                days, seconds, microseconds = rest
                return datetime.timedelta(days, seconds, microseconds)
            case "array":
                return self._array(rest)
            case "scalar":
                return self._array(rest[1:])[()]
            case "rows":
                return self._rows(*rest)
            case "batch" | "table":
                return self._arrow(*rest, all_batches=name == "table")
            case "enum":
                return self._enum(*rest)
            case "object":
                return self._object(*rest)
            case _:
                raise Unreadable(f"nothing is called {str(name)[:50]!r}")

    def _take(self, size: int) -> memoryview:
        end = self.at + size
        if size < 0 or end > len(self.buffers):
            raise Unreadable("a buffer is longer than the bytes")
        taken = self.buffers[self.at : end]
        self.at = end + -size % ALIGNMENT
        return taken

    def _array(self, head: list[Any]) -> Any:
        code, *shape, size = head
        if not DTYPE.fullmatch(code):
            raise Unreadable(f"an array of {code[:50]!r}")
        return np.frombuffer(self._take(size), np.dtype(code)).reshape(shape).copy()

    def _rows(self, kind: str, schema_size: int, *items: Any) -> Any:
        schema = pa.ipc.read_schema(pa.py_buffer(self._take(schema_size)))
        batches = [pa.ipc.read_record_batch(self._message(item), schema) for item in items]
        rows = pa.Table.from_batches(batches, schema)
        if kind == "batch":
            (rows,) = batches
        rows.validate()
        return rows

    def _message(self, item: Any) -> Any:
        if isinstance(item, int):
            return pa.py_buffer(self._take(item))
        name, number = item
        if name != "base" or not 0 <= number < len(self.base):
            raise Unreadable("data that has not been sent before")
        return pa.py_buffer(self.base[number])

    def _arrow(self, size: int, *, all_batches: bool) -> Any:
        with pa.ipc.open_stream(pa.py_buffer(self._take(size))) as stream:
            table = stream.read_all() if all_batches else stream.read_next_batch()
        table.validate()
        return table

    def _enum(self, name: str, value: Any) -> Any:
        cls = self.classes.by_name[name]
        if not issubclass(cls, Enum):
            raise Unreadable(f"{name} is no enum")
        return cls(value)

    def _object(self, name: str, *plain: Any) -> Any:
        cls = self.classes.by_name[name]
        if issubclass(cls, Enum):
            raise Unreadable(f"{name} is an enum")
        shared = self.classes.shared
        fields = self.classes.fields[cls]
        packed = [field for field in fields if field not in shared]
        values = dict(zip(packed, map(self.value, plain), strict=True))
        values |= {field: shared[field] for field in fields if field in shared}
        if issubclass(cls, tuple):
            return cls(*(values[field] for field in fields))
        instance = cls.__new__(cls)
        for field, content in values.items():
            object.__setattr__(instance, field, content)
        return instance
