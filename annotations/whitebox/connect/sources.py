"""The sources of a plan: declared streams, and Spark's own with the columns that they have."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox.connect.datatypes import ddl_type
from annotations.whitebox.connect.scope import split
from annotations.whitebox.datatypes import (
    BIGINT,
    INT,
    NAMES,
    STRING,
    TIMESTAMP,
    DataType,
)
from annotations.whitebox.file_metadata import hidden, open_type
from annotations.whitebox.following.user_functions import by_chance
from annotations.whitebox.ir import Column, Filter, Relation, Role, Source
from annotations.whitebox.python_chance import Chance
from annotations.whitebox.type_text import schema_text

_BINARY: Final = NAMES["binary"]
_HEADERS: Final = ddl_type("array<struct<key: string, value: binary>>")
BUILT_IN: Final[Mapping[str, tuple[tuple[str, DataType], ...]]] = {
    "kafka": (
        ("key", _BINARY),
        ("value", _BINARY),
        ("topic", STRING),
        ("partition", INT),
        ("offset", BIGINT),
        ("timestamp", TIMESTAMP),
        ("timestampType", INT),
    ),
    "rate": (("timestamp", TIMESTAMP), ("value", BIGINT)),
    "rate-micro-batch": (("timestamp", TIMESTAMP), ("value", BIGINT)),
    "socket": (("value", STRING),),
    "kinesis": (
        ("partitionKey", STRING),
        ("data", _BINARY),
        ("stream", STRING),
        ("shardId", STRING),
        ("sequenceNumber", STRING),
        ("approximateArrivalTimestamp", TIMESTAMP),
    ),
    "text": (("value", STRING),),
    "binaryfile": (
        ("path", STRING),
        ("modificationTime", TIMESTAMP),
        ("length", BIGINT),
        ("content", _BINARY),
    ),
}
"""Columns of sources that always have the same."""

Declared = dict[str, tuple[tuple[tuple[str, DataType, bool], ...] | None, Role]]

CONSTANT: Final = frozenset({"avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"})
"""Formats whose files are listed once, when a job starts, where they are not read as a stream. What
is in other formats is read anew in every micro-batch, as it is then."""


_VERSIONS: Final = frozenset(
    {"as-of-timestamp", "as.of.instant", "snapshot-id", "tag", "timestampasof", "versionasof"}
)
"""Options of tables that keep their versions."""
OF_FILES: Final = CONSTANT | {"cloudfiles", "delta"}
"""Formats of files of which there may be more: those of which `_metadata` tells."""


@dataclass
class Sources:
    """The sources that names stand for. `read` grows: each external one, described once by name."""

    declared: Declared = field(default_factory=dict)
    read: dict[str, dict[str, Any]] = field(default_factory=dict)
    taken: frozenset[str] = frozenset()
    """Names that mean something else."""
    mentioned: dict[str, str] = field(default_factory=dict)
    """Names that plans use, in lower case and as written: columns of sources without a schema."""
    anew: set[Position | None] = field(default_factory=set)
    """Places in functions of `foreachBatch`: what is read there is read in each micro-batch."""

    @classmethod
    def of(cls, schemas: Mapping[str, Any]) -> Sources:
        """Sources of which these are declared: name -> {columns: {name: type}, role}."""
        result = cls()
        result.declare(schemas)
        return result

    def declare(self, schemas: Mapping[str, Any]) -> None:
        """Forget what was declared, and declare these."""
        self.declared = {}
        self.mentioned = {}
        for name, given in schemas.items():
            columns = given.get("columns")
            if columns is not None:
                typed = tuple((c, *_nullable(text)) for c, text in columns.items())
                self.declared[name] = (typed, Role(given.get("role", "stream")))
            else:
                self.declared[name] = (None, Role(given.get("role", "stream")))

    def look_at(self, relation: Any) -> None:
        """Take note of the names that a plan uses."""
        for name in _names(relation):
            self.mentioned.setdefault(name.lower(), name)

    def source(self, read: Any, at: Position | None) -> Relation | None:
        """The relation that a `Read` stands for; None where nothing is known of it."""
        if read.WhichOneof("read_type") == "named_table":
            return self._table(read, at)
        data = read.data_source
        columns = self._columns(data)
        name = self._named(data, read.is_streaming, columns)
        constant = (data.format or "parquet").lower() in CONSTANT and at not in self.anew
        fixed = _fixed(data.options)
        files = "" if fixed else ", ".join(data.paths) or data.options.get("path", "") or name
        stays = Role.TABLE if constant or fixed else Role.MUTABLE
        role = Role.STREAM if read.is_streaming else stays
        if columns is None:
            mentioned = tuple(self._mentioned())
            made_of = Source(name, mentioned, role, complete=False, files=files, position=at)
            return self._dated(made_of, data)
        typed = tuple(Column(n, t, m) for n, t, m in columns)
        if (data.format or "parquet").lower() in OF_FILES:
            typed += tuple(c for c in self._mentioned() if hidden(c))
        return self._dated(Source(name, typed, role, files=files, position=at), data)

    def _mentioned(self) -> Iterator[Column]:
        """Columns of a source without a schema: all that plans use."""
        for name in self.mentioned.values():
            yield Column(name, open_type(name))

    def _dated(self, source: Source, data: Any) -> Relation:
        """A source whose path is another one each time is left to chance."""
        options = [v for k, v in data.options.items() if not _OF_CLIENT.search(k)]
        chance = Chance.of([*data.paths, *options])
        if chance is None or not chance.decides:
            return source
        return Filter(source, by_chance(source.position), source.position)

    def _table(self, read: Any, at: Position | None) -> Relation | None:
        name = ".".join(split(read.named_table.unparsed_identifier))
        if name.lower().startswith("live."):  # a dataset of this pipeline
            name = name[len("live.") :]
        typed, role = self.declared.get(name, (None, Role.MUTABLE))
        if name not in self.declared:
            stays = Role.TABLE if _fixed(read.named_table.options) else Role.MUTABLE
            role = Role.STREAM if read.is_streaming else stays
            kind = "streaming table" if read.is_streaming else "table"
            options = dict(read.named_table.options)
            described = {"format": kind, "streaming": read.is_streaming}
            self.read.setdefault(name, described | ({"options": options} if options else {}))
        if typed is None:
            columns = tuple(self._mentioned())
            return Source(name, columns, role, complete=False, position=at)
        return Source(name, tuple(Column(n, t, m) for n, t, m in typed), role, position=at)

    def _columns(self, data: Any) -> list[tuple[str, DataType, bool]] | None:
        if data.schema:
            from annotations.whitebox.result_types import declared_type

            return list(declared_type(data.schema).fields) or None
        built_in = BUILT_IN.get(data.format.lower())
        given = {k.lower(): v for k, v in data.options.items()}
        stamped = given.get("includetimestamp", "")
        if data.format.lower() == "socket" and stamped.lower() == "true":
            built_in = (("value", STRING), ("timestamp", TIMESTAMP))
        if data.format.lower() == "kafka" and given.get("includeheaders", "").lower() == "true":
            built_in = (*BUILT_IN["kafka"], ("headers", _HEADERS))
        return None if built_in is None else [(name, type_, True) for name, type_ in built_in]

    def _named(self, data: Any, streaming: bool, columns: Any) -> str:
        """A name for an external source: of what it reads, the same for the same."""
        options = dict(data.options)
        described = {"format": data.format, "options": options, "streaming": streaming}
        if data.paths:
            described["path"] = data.paths[0]
        if columns is not None:
            described["columns"] = _written(data.schema, columns)
        path = described.get("path") or options.get("path") or ""
        origin = options.get("subscribe") or options.get("topic") or path or data.format or "source"
        base = re.sub(r"\W+", "_", _last(origin)).strip("_").lower() or "source"
        if base in self.taken or keyword.iskeyword(base):
            base = f"{base}_source"
        elif base[0].isdigit():
            base = f"source_{base}"
        name, number = base, 1
        while name in self.read and self.read[name] != described:
            number += 1
            name = f"{base}_{number}"
        self.read[name] = described
        return name


_OF_CLIENT: Final = re.compile(r"client\.?id|group\.?id|consumer\.?group|password|token", re.I)
"""Options that say who reads, and change nothing of what is read."""


def _fixed(options: Mapping[str, str]) -> bool:
    """Whether a table is read as one of its versions was, which no write changes."""
    given = [value for key, value in options.items() if key.lower() in _VERSIONS]
    return bool(given) and Chance.of(given) is None


def _written(schema: str, columns: list[tuple[str, DataType, bool]]) -> list[list[str]]:
    """Names and types of a schema, the types as they are written."""
    if schema.startswith("{"):
        from pyspark.sql.types import StructType

        struct = StructType.fromJson(json.loads(schema))
        return [[field.name, field.dataType.simpleString()] for field in struct.fields]
    if schema:
        return [[name, type_] for name, type_ in entries(schema)]
    return [[name, schema_text(type_)] for name, type_, _ in columns]


def entries(ddl: str) -> Iterator[tuple[str, str]]:
    """Names and types of `a BIGINT, b STRUCT<c: INT, d: INT>`."""
    depth, begin = 0, 0
    for place, letter in enumerate(ddl + ","):
        depth += (letter in "<(") - (letter in ">)")
        if letter == "," and depth == 0:
            match = re.match(r"\s*(?:`([^`]+)`|(\w+))\s*:?\s*(.*)", ddl[begin:place], re.DOTALL)
            if match is not None:
                yield match[1] or match[2], match[3].strip()
            begin = place + 1


def _last(path: str) -> str:
    """The part of a path or address that tells most: the last that is no pattern."""
    parts = [part for part in re.split(r"[/,]", path) if part and not set(part) & set("*?[{")]
    return re.sub(r"\.(json|csv|parquet|txt|orc|avro)$", "", parts[-1]) if parts else path


def _nullable(text: str) -> tuple[DataType, bool]:
    not_null = re.sub(r"\s+NOT\s+NULL\s*$", "", text, flags=re.IGNORECASE)
    return ddl_type(not_null), not_null == text


def _words(text: str) -> list[str]:
    """The words in a text of SQL that may be columns."""
    return re.findall(r"[A-Za-z_]\w*(?!\w*\s*\()", re.sub(r"'[^']*'", "", text))


def _names(message: Any) -> Iterator[str]:
    """Names of columns that a plan mentions: attributes, and words in texts of SQL."""
    todo = [message]
    while todo:
        relation = todo.pop()
        kind = relation.DESCRIPTOR.full_name
        if kind == "spark.connect.Expression.UnresolvedAttribute":
            yield split(relation.unparsed_identifier)[-1]
            yield split(relation.unparsed_identifier)[0]
        elif kind == "spark.connect.Expression.ExpressionString":
            yield from _words(relation.expression)
        elif kind == "spark.connect.SQL":
            yield from _words(relation.query)
        elif kind == "spark.connect.Deduplicate":
            yield from relation.column_names
        elif kind == "spark.connect.Join":
            yield from relation.using_columns
        elif kind == "spark.connect.WithWatermark":
            yield relation.event_time
        for descriptor, value in relation.ListFields():
            if descriptor.message_type is None:
                continue
            if descriptor.message_type.GetOptions().map_entry:
                continue
            todo.extend(value if descriptor.is_repeated else (value,))
