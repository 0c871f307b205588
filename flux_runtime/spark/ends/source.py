"""External sources: any Spark format, its punctuations recognised, its unreadable records kept."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, Final

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.readwriter import DataStreamReader
from pyspark.sql.types import DataType, StringType, StructType

from flux_runtime.past_range import Offsets
from flux_runtime.spark.ends.avro import Avro
from flux_runtime.spark.ends.kafka_source import BEGIN, END, FORMAT, format_of
from flux_runtime.spark.feed import (
    COUNT,
    DATA,
    DIGEST,
    MALFORMED,
    PRODUCER,
    UNREADABLE,
    UNREADABLE_TEXT,
    Punctuation,
)
from flux_runtime.spark.frames import ARRIVED, EXACT_TEXT, check_own, column, extended, parse_schema

FILE_FORMATS: Final = frozenset({"json", "csv", "parquet", "orc", "text", "avro", "xml"})
"""Formats that Spark reads and writes as folders of files."""

_FIXED_SCHEMA: Final = frozenset({"kafka", "rate", "rate-micro-batch", "socket"})
"""Formats that bring their own columns and refuse a schema."""

_TEXT_FORMATS: Final = frozenset({"json", "csv"})
"""Formats whose records can be unreadable one by one."""

_COLUMNAR: Final = frozenset({"parquet", "orc"})
"""Formats whose columns can be left unread without changing which records can be read."""

_GLOB: Final = re.compile(r"[*?\[{]")

PARTS: Final = ("key", "topic", "partition", "offset", "timestamp")
"""The parts of a message of Kafka that a column can be, besides its headers."""
HEADER: Final = "headers."

_VALUE: Final = "__value"

_NEVER_TOO_OLD: Final = "10000d"
"""Spark's file source silently skips files a week older than the newest; a record lost."""


@dataclass(slots=True, kw_only=True, eq=False)
class Source:
    """An external source. `path` is absolute, or a URI."""

    name: str
    format: str
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    declared: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options as they were declared, with references in place of secrets."""
    ddl: str | None = None
    """The columns, `name TYPE, ...`; None: what the format or the present files say."""
    producer: str | None = None
    """The column that names a record's producer; None: the source is one producer."""
    punctuation: Punctuation | None = None
    value: str | Avro | None = None
    """The format of the values of messages, `json` or Avro; None: the columns are Kafka's own."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Column -> the part of a message that it is, where it is not in the value: see `PARTS`, and
    `headers.NAME`."""
    id: tuple[str, ...] = ()
    """Columns that identify a record: a sealed unit drops one that is known before it counts."""
    begins: Offsets | None = None
    """Of Kafka: where the job began to read, or a range does; set when it starts."""
    ends: Offsets | None = None
    """Of Kafka: where a range ends; None: it is no range."""
    _of_files: tuple[StructType, Sequence[Column]] | None = field(default=None, init=False)
    """The schema and the envelope of `of_files`, kept: they cost a hundred calls of Java."""

    @property
    def value_format(self) -> str | None:
        """`json` or `avro`; None: see `value`."""
        return "avro" if isinstance(self.value, Avro) else self.value

    def schema(self, session: SparkSession) -> StructType:
        """The records' columns, punctuation columns included."""
        if self.ddl is not None:
            return self._checked(parse_schema(self.ddl))
        if self.format in FILE_FORMATS:
            reader = session.read.format(self.format).options(**self.options)
            return self._checked(reader.load(self.path).schema)
        return self._checked(self._reader(session).load(self.path).schema)

    def producer_type(self, session: SparkSession) -> DataType:
        """See `flux_runtime.spark.feed`."""
        if self.producer is None:
            return StringType()
        of = self.schema(session)[self.producer].dataType
        return of if isinstance(of, EXACT_TEXT) else StringType()

    def stream(self, session: SparkSession, columns: Collection[str] | None = None) -> DataFrame:
        """See `flux_runtime.spark.feed`."""
        return self._opened(session, columns)

    def arriving(self, session: SparkSession) -> DataFrame:
        """The stream, with the time when each record came to the source; of files only."""
        arrived = sf.col("_metadata.file_modification_time").alias(ARRIVED)
        return self._opened(session, None, arrived)

    def _opened(
        self, session: SparkSession, columns: Collection[str] | None, *more: Column
    ) -> DataFrame:
        schema = self.schema(session)
        reader = self._reader(session)
        keeps_unreadable = self._keeps_unreadable(schema)
        beside = schema.fieldNames()[0] if keeps_unreadable else None
        if self.value is not None:
            messages = self._decoded(reader.load(), schema)
            envelope = self._envelope(self.producer_type(session), beside)
            return messages.select("*", *envelope, *more)
        if self.format not in _FIXED_SCHEMA:
            read = schema
            if keeps_unreadable:
                read = extended(schema, **{UNREADABLE_TEXT: "string"})
                reader = reader.option("columnNameOfCorruptRecord", UNREADABLE_TEXT)
            reader = reader.schema(read)
        every = columns is None or self.format not in _COLUMNAR
        selected = [column(n) for n in schema.fieldNames() if every or n in (columns or ())]
        if keeps_unreadable:
            selected.append(UNREADABLE_TEXT)
        envelope = self._envelope(self.producer_type(session), beside)
        return reader.load(self.path).select(*selected, *envelope, *more)

    def of_files(self, session: SparkSession, files: Sequence[str]) -> DataFrame | None:
        """See `flux_runtime.spark.feed`."""
        if self.format not in _COLUMNAR:
            return None
        options = dict(self.options)
        if self.path is not None and not _GLOB.search(self.path):
            options.setdefault("basePath", self.path)  # as Spark's streaming file source does
        if self._of_files is None:
            envelope = self._envelope(self.producer_type(session), None)
            self._of_files = self.schema(session), envelope
        schema, columns = self._of_files
        reader = session.read.format(self.format).options(**options).schema(schema)
        return reader.load(list(files)).select("*", *columns)

    def _reader(self, session: SparkSession) -> DataStreamReader:
        options: dict[str, Any] = dict(self.options)
        format = self.format
        if format in FILE_FORMATS:
            options.setdefault("maxFileAge", _NEVER_TOO_OLD)
        if format == "kafka":
            format = format_of(session, ends=self.ends is not None)
            if format == FORMAT:
                places = {BEGIN: self.begins, END: self.ends}
                options |= {name: json.dumps(at) for name, at in places.items() if at is not None}
        return session.readStream.format(format).options(**options)

    def _decoded(self, messages: DataFrame, schema: StructType) -> DataFrame:
        """Kafka's messages as records: columns of the value, and those that are other parts."""
        of_value = StructType([of for of in schema.fields if of.name not in self.columns])
        parts = {name: _part(self.columns[name]) for name in self.columns}
        selected = [
            (parts[of.name].cast(of.dataType) if of.name in parts else _in_value(of.name)).alias(
                of.name
            )
            for of in schema.fields
        ]
        if isinstance(self.value, Avro):
            value, unreadable = (
                self.value.decoded(sf.col("value"), of_value),
                _in_value(UNREADABLE_TEXT),
            )
        else:
            value, unreadable = _of_json(of_value), _unreadable_json()
        key = sf.coalesce(sf.concat(sf.lit("key "), sf.col("key").cast("string")), sf.lit("no key"))
        none = sf.concat(sf.lit("no value (a tombstone), "), key)
        unreadable = sf.when(sf.col("value").isNull(), none).otherwise(unreadable)
        return messages.withColumn(_VALUE, value).select(
            *selected, unreadable.alias(UNREADABLE_TEXT)
        )

    def _keeps_unreadable(self, schema: StructType) -> bool:
        """Whether unreadable records can be told apart; not where the options say otherwise."""
        return (
            (self.format in _TEXT_FORMATS or self.value is not None)
            and self.options.get("mode", "PERMISSIVE").upper() == "PERMISSIVE"
            and "columnNameOfCorruptRecord" not in self.options
            and "_corrupt_record" not in schema.fieldNames()
        )

    def _checked(self, schema: StructType) -> StructType:
        names = schema.fieldNames()
        check_own(f"source {self.name}", names)
        missing = [name for name in self.id if name not in names]
        if missing:
            raise ValueError(
                f"source {self.name}: its records are identified by {', '.join(missing)}, which "
                f"they do not have; there are {', '.join(names)}"
            )
        return schema

    def _envelope(self, producer_type: DataType, beside: str | None) -> list[Column]:
        """Of the records; where the texts of unreadable ones are kept, a column beside them."""
        named = sf.lit(self.name) if self.producer is None else sf.col(column(self.producer))
        count: Column = sf.lit(DATA)
        columns = [named.cast(producer_type).alias(PRODUCER)]
        if self.punctuation is not None:
            is_one = sf.coalesce(sf.expr(f"({self.punctuation.when})"), sf.lit(False))
            given = sf.expr(f"try_cast(({self.punctuation.count}) AS BIGINT)")
            promised = sf.when(given >= 0, given).otherwise(sf.lit(MALFORMED))
            count = sf.when(is_one, promised).otherwise(sf.lit(DATA))
            if self.punctuation.digest is not None:
                digest = sf.expr(f"CAST(({self.punctuation.digest}) AS STRING)")
                columns.append(sf.when(is_one, digest).alias(DIGEST))
        if beside is not None:
            unreadable, code = sf.col(UNREADABLE_TEXT).isNotNull(), sf.lit(UNREADABLE)
            # Spark refuses to read nothing but the texts of unreadable records, as count(*) would.
            is_empty = sf.col(column(beside)).isNull()
            count = sf.when(unreadable & is_empty, code).when(unreadable, code).otherwise(count)
        return [*columns, count.cast("bigint").alias(COUNT)]


def _of_json(schema: StructType) -> Column:
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": UNREADABLE_TEXT}
    read = extended(schema, **{UNREADABLE_TEXT: "string"})
    return sf.from_json(sf.col("value").cast("string"), read, options)


def _unreadable_json() -> Column:
    """The text of a value that is not one JSON object in UTF-8 with columns of these types.

    Spark takes no value for an object of NULLs, the first one of several objects for all of them,
    and what is not UTF-8 for U+FFFD.
    """
    text = sf.col("value").cast("string")
    numbers = ("NaN", "INF", "Infinity")  # which only Spark takes
    has_one = reduce(lambda a, b: a | b, (sf.contains(text, sf.lit(name)) for name in numbers))
    finite = sf.regexp_replace(text, f"[-+]?({'|'.join(numbers)})", "0")
    plain = sf.when(has_one, finite).otherwise(text)
    ends = ((sf.lit("]"), 1), (sf.lit(",0]"), 2))  # the two agree on no text that has a `]` itself
    one, two = (sf.json_array_length(sf.concat(sf.lit("["), plain, end)) == n for end, n in ends)
    # What was read ends with its last brace: with one brace alone nothing can come after it.
    flat = sf.startswith(text, sf.lit("{")) & (sf.locate("}", text) == sf.length(text))
    listed = sf.contains(text, sf.lit("]"))
    single = sf.when(flat, sf.lit(True)).when(listed, one & two).otherwise(one)
    readable = _in_value(UNREADABLE_TEXT).isNull() & sf.coalesce(single, sf.lit(False))
    encoded = sf.concat(sf.lit("not UTF-8, base64 "), sf.base64("value"))
    return sf.when(~sf.is_valid_utf8(text), encoded).when(~readable, text)


def _in_value(name: str) -> Column:
    return sf.col(_VALUE).getField(name).alias(name)


def _part(part: str) -> Column:
    """A part of a message; keys and headers as texts. Of headers of one name, the last."""
    if not part.startswith(HEADER):
        return sf.col(part).cast("string") if part == "key" else sf.col(part)
    name = part.removeprefix(HEADER)
    named = sf.filter(sf.col("headers"), lambda header: header.getField("key") == name)
    return sf.get(sf.reverse(named), sf.lit(0)).getField("value").cast("string")
