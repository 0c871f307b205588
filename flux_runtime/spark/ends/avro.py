"""Values of messages in Avro: decoded into columns, and encoded from them, by fastavro.

With a registry like Confluent's a value begins with a zero byte and the number of the schema by
which it was written; without one it has no header, and was written by the schema that is given.
What is read is exact or nothing: a value that the writer's schema does not fit, that goes on behind
the record, or that a column cannot hold, is unreadable. What is written is read again and compared,
since Avro's types can hold less than Spark's (a timestamp in milliseconds).
"""

from __future__ import annotations

import base64
import datetime
import functools
import io
import json
import struct
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import types as st
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from flux_runtime.spark.feed import UNREADABLE_TEXT
from flux_runtime.spark.frames import extended

HEADER: Final = struct.Struct(">bI")
"""Before a value that a registry knows the schema of: zero, and the schema's number."""
ATTEMPTS: Final = 3
TIMEOUT_S: Final = 20.0
"""How often a registry is asked, and how long it is waited for."""
_NOT_FOUND: Final = 404
_udf: Final[Any] = arrow_udf  # its stubs do not know that the hints tell its kind
_CONTEXT: Final = Context(prec=80)


class AvroError(Exception):
    """A value, or a row, that does not fit; or a registry that gives no answer."""


class UnreadableError(AvroError):
    """A value that is not what it should be; the message says why."""


@dataclass(frozen=True, slots=True)
class Avro:
    """The format of messages' values.

    Args:
        schema: as JSON: what values are read as, or written by; None: of a source with a registry,
            they are read as they were written.
        registry: its address, in which a user and a password may stand.
    """

    schema: str | None = None
    registry: str | None = field(default=None, repr=False)

    def decoded(self, value: Column, columns: st.StructType) -> Column:
        """A value's columns, and as `UNREADABLE_TEXT` why there are none, with the value."""
        decode = Decoder(self, columns)
        of_spark = extended(columns, **{UNREADABLE_TEXT: "string"})
        of = to_arrow_type(of_spark, timezone="UTC")

        def read(values: pa.Array) -> pa.Array:
            return pa.array(list(map(decode.row, values.to_pylist())), of)

        udf: Callable[[Column], Column] = _udf(read, of_spark)
        return udf(value)

    def encoded(self, row: Column, columns: st.StructType, topic: str) -> Column:
        """The value for a row, a struct of these columns."""
        schema = self.schema or ""
        number = None if self.registry is None else registered(self.registry, topic, schema)
        encode = Encoder(schema, columns, number)

        def write(rows: pa.Array) -> pa.Array:
            return pa.array(list(map(encode, rows.to_pylist())), pa.binary())

        udf: Callable[[Column], Column] = _udf(write, st.BinaryType())
        return udf(row)


class Decoder:
    """Reads values as records of these columns."""

    def __init__(self, avro: Avro, columns: st.StructType) -> None:
        self._avro = avro
        self._columns = columns
        self._absent: set[int] = set()
        """Schemas that the registry has not, of the values so far."""

    def __call__(self, value: bytes) -> dict[str, Any]:
        """The columns of a value.

        Raises:
            UnreadableError: it has none.
            AvroError: the registry gives no answer.
        """
        writer, reader, body = self._schemas(value)
        record = read(body, writer, reader)
        columns = {}
        for name, convert in self._converters.items():
            if name not in record:
                raise UnreadableError(f"no field {name}")
            try:
                columns[name] = convert(record[name])
            except ValueError as error:
                raise UnreadableError(f"field {name}: {error}") from None
        return columns

    def row(self, value: bytes | None) -> dict[str, Any]:
        """The same as a row, in which an unreadable value is told as `UNREADABLE_TEXT`."""
        if value is None:
            return {}
        try:
            return self(value)
        except UnreadableError as error:
            return {UNREADABLE_TEXT: f"{error}, base64 {base64.b64encode(value).decode()}"}

    def _schemas(self, value: bytes) -> tuple[Any, Any, bytes]:
        own = None if self._avro.schema is None else parsed(self._avro.schema)
        if self._avro.registry is None:
            return own, None, value
        if len(value) < HEADER.size or value[0]:
            raise UnreadableError("no number of a schema")
        _, number = HEADER.unpack_from(value)
        if number in self._absent:
            raise UnreadableError(f"schema {number} is not in the registry")
        try:
            return written_by(self._avro.registry, number), own, value[HEADER.size :]
        except KeyError:
            self._absent.add(number)
            raise UnreadableError(f"schema {number} is not in the registry") from None

    @functools.cached_property
    def _converters(self) -> dict[str, Callable[[Any], Any]]:
        return converters(self._columns)

    def __getstate__(self) -> dict[str, Any]:
        return {"_avro": self._avro, "_columns": self._columns, "_absent": set()}


class Encoder:
    """Writes rows of these columns as values.

    Args:
        schema: as JSON.
        columns: of the rows.
        number: of the schema in a registry; None: values have no header.

    Raises:
        AvroError: there are columns that the schema has not.
    """

    def __init__(self, schema: str, columns: st.StructType, number: int | None) -> None:
        has = [of["name"] for of in json.loads(schema)["fields"]]
        if unknown := [name for name in columns.fieldNames() if name not in has]:
            raise AvroError(
                f"the schema has no field {', '.join(unknown)}; it has {', '.join(has)}. Name the "
                "columns alike, or add the fields"
            )
        self._schema = schema
        self._columns = columns
        self._header = b"" if number is None else HEADER.pack(0, number)

    def __call__(self, row: Mapping[str, Any]) -> bytes:
        """The value for a row.

        Raises:
            AvroError: the schema cannot hold the row as it is.
        """
        import fastavro

        schema = parsed(self._schema)
        into = io.BytesIO()
        try:
            record = {of.name: _plain(row[of.name], of.dataType) for of in self._columns.fields}
            fastavro.schemaless_writer(into, schema, record, strict_allow_default=True)
            read_back = read(into.getvalue(), schema, None)
            for of in self._columns.fields:
                was, now = (self._converters[of.name](r[of.name]) for r in (record, read_back))
                if not _same(was, now):
                    raise ValueError(f"{of.name} would be {now} in place of {was}")
        except Exception as error:
            raise AvroError(
                f"the row {dict(row)} does not fit the Avro schema: {error}. Nothing was committed"
            ) from None
        return self._header + into.getvalue()

    @functools.cached_property
    def _converters(self) -> dict[str, Callable[[Any], Any]]:
        return converters(self._columns)


def read(body: bytes, writer: Any, reader: Any) -> Any:
    """A record, and nothing behind it.

    Raises:
        UnreadableError: it is something else.
    """
    import fastavro

    source = io.BytesIO(body)
    try:
        record = fastavro.schemaless_reader(source, writer, reader)
    except Exception as error:  # of many kinds, whatever bytes may do
        raise UnreadableError(
            f"not Avro of this schema ({type(error).__name__}: {error})"
        ) from None
    if source.tell() != len(body):
        raise UnreadableError(f"{len(body) - source.tell()} bytes behind the record")
    return record


@functools.cache
def parsed(schema: str) -> Any:
    """A schema as fastavro has it."""
    import fastavro

    return fastavro.parse_schema(json.loads(schema))


# ---- registries


@functools.cache
def written_by(registry: str, number: int) -> Any:
    """The schema of a number, which never changes, with those that it refers to.

    Raises:
        KeyError: there is none.
        UnreadableError: it is no schema of records in Avro, or refers to what is not there.
        AvroError: no answer.
    """
    answer = _ask(registry, f"schemas/ids/{number}")
    kind = answer.get("schemaType", "AVRO")
    if kind != "AVRO":
        raise UnreadableError(f"schema {number} is of {kind}, which is not supported")
    schema = json.loads(answer["schema"])
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise UnreadableError(f"schema {number} is not one of records")
    named: dict[str, Any] = {}
    _refer(registry, answer, named, set())
    return _parse(schema, named, f"schema {number}")


def _refer(
    registry: str, answer: Mapping[str, Any], named: dict[str, Any], known: set[tuple[str, int]]
) -> None:
    """Parse the schemas that one refers to, and those that they refer to, each before its user."""
    for reference in answer.get("references") or ():
        subject, version = str(reference["subject"]), int(reference["version"])
        if (subject, version) in known:
            continue
        known.add((subject, version))
        described = f"the schema {reference['name']} (version {version} of {subject})"
        path = f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}"
        try:
            referred = _ask(registry, path)
        except KeyError:
            raise UnreadableError(
                f"{described}, which is referred to, is not in the registry"
            ) from None
        _refer(registry, referred, named, known)
        _parse(json.loads(referred["schema"]), named, described)


def _parse(schema: Any, named: dict[str, Any], described: str) -> Any:
    import fastavro

    try:
        return fastavro.parse_schema(schema, named_schemas=named)
    except Exception as error:  # of many kinds: a type that is not known, one that is there twice
        raise UnreadableError(f"{described}: {type(error).__name__}: {error}") from None


@functools.cache
def registered(registry: str, topic: str, schema: str) -> int:
    """The number of a schema for the values of a topic; it is registered if it is not yet.

    Raises:
        AvroError: the registry does not take it.
    """
    subject = urllib.parse.quote(f"{topic}-value", safe="")
    try:
        return int(_ask(registry, f"subjects/{subject}/versions", {"schema": schema})["id"])
    except KeyError:
        raise AvroError(f"the registry has no place for the schemas of {topic}") from None


def _ask(registry: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
    parts = urllib.parse.urlsplit(registry)
    host = parts.netloc.rpartition("@")[2]
    address = f"{parts.scheme}://{host}{parts.path.rstrip('/')}/{path}"
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    if parts.username is not None:
        login = (
            f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
        )
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
    data = None if body is None else json.dumps(body).encode()
    problem: object = None
    for _ in range(ATTEMPTS):
        try:
            request = urllib.request.Request(address, data, headers)
            with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
                result: dict[str, Any] = json.load(answer)
                return result
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                raise KeyError(path) from None
            problem = f"{error.code} {error.read(500).decode(errors='replace')}"
        except (OSError, ValueError) as error:
            problem = error
    raise AvroError(f"the schema registry at {host} does not answer {path}: {problem}") from None


# ---- values of columns


def converters(columns: st.StructType) -> dict[str, Callable[[Any], Any]]:
    """The converter of each column; made once, since a type of Spark is slow to look up."""
    return {of.name: converter(of.dataType) for of in columns.fields}


def converter(of: st.DataType) -> Callable[[Any], Any]:
    """The conversion of a value of a record to one of a column; ValueError where there is none."""
    match of:
        case st.ArrayType():
            item = converter(of.elementType)
            convert: Callable[[Any], Any] = lambda value: [item(element) for element in value]  # noqa: E731
            return _checked((list, tuple), convert)
        case st.MapType():
            key, item = converter(of.keyType), converter(of.valueType)
            return _checked((dict,), lambda value: [(key(k), item(v)) for k, v in value.items()])
        case st.StructType():
            parts = {member.name: converter(member.dataType) for member in of.fields}
            return _checked((dict,), lambda value: _parts(value, parts))
        case st.DecimalType():
            return _checked((Decimal,), lambda value: _decimal(value, of))
        case st.ByteType() | st.ShortType() | st.IntegerType() | st.LongType():
            bits = {"byte": 7, "short": 15, "integer": 31, "long": 63}[of.typeName()]
            return _checked((int,), lambda value: _whole(value, bits))
        case st.StringType():
            return _checked((str, uuid.UUID), str)
        case st.TimestampType():
            return _checked((datetime.datetime,), lambda value: _zoned(value, True))
        case st.TimestampNTZType():
            return _checked((datetime.datetime,), lambda value: _zoned(value, False))
        case st.FloatType() | st.DoubleType():
            return _checked((float, int), float)
        case st.BooleanType():
            return _checked((bool,), bool)
        case st.BinaryType():
            return _checked((bytes, bytearray), bytes)
        case st.DateType():
            return _checked((datetime.date,), lambda value: value)
    raise ValueError(f"there is no value in Avro for {of.simpleString()}")


def _checked(kinds: tuple[type, ...], convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if value is None:
            return None
        if type(value) not in kinds:
            raise ValueError(f"{value!r:.60} is a {type(value).__name__}")
        return convert(value)

    return checked


def _parts(value: Mapping[str, Any], parts: Mapping[str, Callable[[Any], Any]]) -> dict[str, Any]:
    if absent := [name for name in parts if name not in value]:
        raise ValueError(f"no field {', '.join(absent)}")
    return {name: convert(value[name]) for name, convert in parts.items()}


def _whole(value: int, bits: int) -> int:
    if not -(1 << bits) <= value < 1 << bits:
        raise ValueError(f"{value} is too large")
    return value


def _decimal(value: Decimal, of: st.DecimalType) -> Decimal:
    if not value.is_finite() or abs(value) >= Decimal(10) ** (of.precision - of.scale):
        raise ValueError(f"{value} has more than {of.precision} digits")
    rounded = value.quantize(Decimal(1).scaleb(-of.scale), context=_CONTEXT)
    if rounded != value:
        raise ValueError(f"{value} has more than {of.scale} decimals")
    return rounded


def _zoned(value: datetime.datetime, zoned: bool) -> datetime.datetime:
    if (value.tzinfo is not None) != zoned:
        raise ValueError(f"{value} has {'a' if value.tzinfo else 'no'} time zone")
    return value


def _plain(value: Any, of: st.DataType) -> Any:
    """A value of Arrow's as fastavro takes it: maps are lists of pairs in Arrow."""
    match of:
        case _ if value is None:
            return None
        case st.ArrayType():
            return [_plain(element, of.elementType) for element in value]
        case st.MapType():
            return {key: _plain(element, of.valueType) for key, element in value}
        case st.StructType():
            return {
                member.name: _plain(value[member.name], member.dataType) for member in of.fields
            }
    return value


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; NaN equals itself."""
    if isinstance(one, float) and isinstance(other, float):
        return one == other or (one != one and other != other)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)
