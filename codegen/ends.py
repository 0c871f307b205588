"""The two ends of a job: external sources and sinks."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from posixpath import normpath
from typing import Final
from urllib.parse import urlsplit

from annotations.dataflow import Avro, External, Stream
from annotations.delivery import CALLS, FILES, TRANSACTIONAL, WRITES_ONCE
from annotations.diagnostics import Diagnostic
from annotations.whitebox.datatypes import DataType, Family, parse_type
from codegen import wording
from codegen.codes import CODES
from codegen.model import Guarantee, Sink, Source
from codegen.operators import OperatorError, find

FILE_FORMATS: Final = FILES
"""Formats that are a folder of files: a sink commits them exactly once."""
JDBC: Final = "jdbc"
"""The format of tables in databases."""
DELTA_STORES: Final = ("s3", "s3a", "abfs", "abfss", "az", "azure", "adl", "gs")
"""Schemes of addresses at which jobs keep Delta tables, as the running job has them."""
_OF_METASTORE: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*){1,2}", re.ASCII)
"""Names like `gold.orders`, which are tables of a metastore to everybody but a file system."""
_NESTED: Final = frozenset({Family.ARRAY, Family.MAP, Family.STRUCT})
_CANNOT_HOLD: Final[Mapping[str, frozenset[Family]]] = {
    "csv": _NESTED,
    "text": frozenset(Family) - {Family.STRING, Family.UNKNOWN},
    "delta": frozenset({Family.INTERVAL}),
    JDBC: frozenset({Family.MAP, Family.STRUCT, Family.INTERVAL}),
}
"""Format of a sink -> kinds of values that it has no place for, at any depth."""
_TEXT: Final = frozenset({Family.STRING, Family.NULL, Family.UNKNOWN})
_OF_MESSAGES: Final[Mapping[str, frozenset[Family]]] = {
    "topic": _TEXT,
    "key": _TEXT | {Family.BINARY},
    "value": _TEXT | {Family.BINARY},
    "partition": frozenset({Family.INTEGER, Family.NULL, Family.UNKNOWN}),
}
"""Part of a Kafka message -> kinds of values that it has."""
OWN_COLUMNS: Final = re.compile(
    "__(alone|arrived|batch|chunk|chunks|count|count_of|differ|digest|hash|producer"
    "|producer_of_key|reason|reason_of|records|remainder|rows|size|source|times|unreadable|value"
    "|(feed|gate|id|key|row|text)_[0-9]+)",
    re.IGNORECASE,
)
"""Columns that a job has beside those of records, as `flux_runtime.spark.frames` has them."""
_PATTERN: Final = re.compile(r"[*?\[{]")
_BY_CASE: Final = "spark.sql.caseSensitive"
_SERVERS: Final = "kafka.bootstrap.servers"
OWN_SCHEMA: Final = frozenset({"text"})
"""File formats that need no schema."""


def taken_names(columns: Collection[str], conf: Mapping[str, str]) -> Iterator[str]:
    """Names that two columns of a stream have, or one of its and one of the job.

    >>> print(*taken_names(["id", "Id", "__op", "__count"], {}), sep="; ")
    the columns `id` and `Id`, which are one to Spark; a column `__count`, which is the job's own
    """
    seen: dict[str, str] = {}
    by_case = conf.get(_BY_CASE, "").strip().lower() == "true"
    for name in () if by_case else columns:
        if (first := seen.get(name.lower())) is not None:
            yield f"the columns `{first}` and `{name}`, which are one to Spark"
        seen[name.lower()] = name
    for name in columns:
        if OWN_COLUMNS.fullmatch(name):
            yield f"a column `{name}`, which is the job's own"


def read_again(streams: Collection[Stream]) -> Iterator[Diagnostic]:
    """Sinks that write where a source reads from which they get their rows."""
    sources = [
        (s, s.source) for s in streams if s.producer is None and s.source and _follows(s.source)
    ]
    sinks = [(s, s.sink) for s in streams if s.consumer is None and s.sink is not None]
    for (written, sink), (read, source) in product(sinks, sources):
        if _reads(source, sink) and _reaches(read, written, streams):
            message = f"the sink of {written.name} writes where the source of {read.name} reads"
            yield Diagnostic(CODES["BLZ530"], message, sink.position or written.position)


def _reaches(first: Stream, last: Stream, streams: Collection[Stream]) -> bool:
    """Whether records of a stream may become some of another, by the components between them."""
    todo = [first]
    seen = set()
    while todo:
        stream = todo.pop()
        if stream is last:
            return True
        if stream.consumer is not None and stream.consumer.component not in seen:
            component = stream.consumer.component
            seen.add(component)
            todo += [s for s in streams if s.producer and s.producer.component == component]
    return False


def _follows(source: External) -> bool:
    """Whether a source reads more than the files of one folder."""
    pattern = source.path is not None and _PATTERN.search(source.path)
    return source.format.lower() not in FILE_FORMATS or bool(pattern) or _recursive(source)


def _recursive(source: External) -> bool:
    return source.options.get("recursiveFileLookup", "").strip().lower() == "true"


def _reads(source: External, sink: External) -> bool:
    of_source, of_sink = source.format.lower(), sink.format.lower()
    if of_source == of_sink == "kafka":
        topic = sink.options.get("topic", "")
        servers = [_words(end.options.get(_SERVERS, "")) for end in (source, sink)]
        return bool(servers[0] & servers[1]) and _subscribed(source.options, topic)
    if source.path is None or sink.path is None:
        return False
    place, results = _parts(source.path), _parts(sink.path)
    if of_source == "delta":
        return of_sink == "delta" and place == results
    if of_source not in FILE_FORMATS or of_sink not in FILE_FORMATS:
        return False
    if _recursive(source):
        return results[: len(place)] == place
    file = [*results, "unit-000000000", "part-00000"]
    return any(
        len(place) == length and all(map(fnmatchcase, file[:length], place))
        for length in (len(file) - 1, len(file))
    )


def _parts(path: str) -> list[str]:
    address = urlsplit(path)
    local = address.path if address.scheme == "file" else path
    return normpath(local).split("/")


def _words(text: str) -> set[str]:
    return {word.strip() for word in text.split(",") if word.strip()}


def _subscribed(options: Mapping[str, str], topic: str) -> bool:
    pattern = options.get("subscribePattern")
    if pattern is not None:
        try:
            return re.fullmatch(pattern, topic) is not None
        except re.error:  # of Java's alone
            return False
    return topic in _words(options.get("subscribe", ""))


def source_problems(stream: Stream) -> list[Diagnostic]:
    """The options that an external source lacks."""
    if stream.source is None:
        message = f"stream {stream.name} comes from outside and has no source"
        return [Diagnostic(CODES["BLZ501"], message, stream.position)]
    format = stream.source.format.lower()
    at = stream.source.position or stream.position
    missing = []
    if format in FILE_FORMATS - OWN_SCHEMA and stream.schema is None:
        message = f"stream {stream.name} is read from {format} files and has no schema"
        missing.append(Diagnostic(CODES["BLZ502"], message, stream.position))
    if stream.source.value is not None and stream.schema is None:
        values = "json" if stream.source.value == "json" else "Avro"
        message = f"stream {stream.name} has values of {values} and no schema"
        missing.append(Diagnostic(CODES["BLZ502"], message, stream.position))
    if format in FILE_FORMATS and stream.source.path is None:
        message = f"the source of stream {stream.name} reads {format} files and has no path"
        missing.append(Diagnostic(CODES["BLZ503"], message, at))
    if named := _named_table(f"the source of {stream.name}", stream.source):
        missing.append(Diagnostic(CODES["BLZ519"], named, at))
    elif format == "delta" and stream.source.path is None:
        message = f"the source of stream {stream.name} is a Delta table and has no path"
        missing.append(Diagnostic(CODES["BLZ503"], message, at))
    return missing


def _named_table(end: str, external: External) -> str | None:
    """Why a table has no address: it is named as in a metastore; None: it has one, or is none."""
    format = external.format.lower()
    name = external.path or next(
        (text for option, text in external.options.items() if option.lower() == "table"), ""
    )
    if format == "table":
        table, how = (
            f"the table {name}" if name else "a table",
            "its format, and its address as path",
        )
    elif format == "delta" and (_OF_METASTORE.fullmatch(name) or (external.path is None and name)):
        table, how = f"the Delta table {name}", "its address"
    else:
        return None
    folder = f", or ./{name} for a folder" if external.path and format == "delta" else ""
    return (
        f"{end} is {table}, a name in a metastore, which is not asked: "
        f"give {how} (DESCRIBE DETAIL {name or 'TABLE'}){folder}"
    )


def sink_problems(stream: Stream, folder: Path) -> list[Diagnostic]:
    """Everything that an external sink lacks, and addresses at which it cannot be committed to.

    Args:
        folder: of the dataflow; functions are looked for there.
    """
    sink = stream.sink
    if sink is not None and sink.format.lower() in CALLS:
        try:
            find(sink.function or "", folder)
        except OperatorError as error:
            message = str(error) if sink.function else f"the sink of {stream.name} has no function"
            return [Diagnostic(CODES["BLZ506"], message, sink.position or stream.position)]
    if sink is not None and (named := _named_table(f"the sink of {stream.name}", sink)):
        return [Diagnostic(CODES["BLZ519"], named, sink.position or stream.position)]
    if sink is not None and sink.format.lower() == "delta" and sink.path is None:
        message = f"the sink of {stream.name} is a Delta table and has no path"
        return [Diagnostic(CODES["BLZ503"], message, sink.position or stream.position)]
    is_avro = sink is not None and isinstance(sink.value, Avro)
    columns = [] if sink is None or is_avro else _columns_without_place(stream, sink.format.lower())
    if sink is not None and columns:
        message = f"sinks of format {sink.format} cannot hold {', '.join(columns)} of {stream.name}"
        return [Diagnostic(CODES["BLZ520"], message, sink.position or stream.position)]
    scheme = "" if sink is None or sink.path is None else urlsplit(sink.path).scheme.lower()
    if sink is None or scheme in ("", "file"):
        return []
    format = sink.format.lower()
    if format in FILE_FORMATS:
        message = f"{stream.name} has a sink of {format} files at {scheme}:, not in a folder"
    elif format == "delta" and scheme not in DELTA_STORES:
        known = ", ".join(f"{store}:" for store in DELTA_STORES)
        message = f"{stream.name} has a Delta table at {scheme}:, not in a folder or at {known}"
    else:
        return []
    return [Diagnostic(CODES["BLZ519"], message, sink.position or stream.position)]


def source(stream: Stream) -> Source:
    """The stage of an external source that has no problems."""
    assert stream.source is not None
    source = normal(stream.source)
    return Source(
        id=f"{Source.kind}:{stream.name}",
        name=stream.name,
        description=wording.source(stream, source),
        external=source,
        schema=stream.schema,
        seals=tuple(tuple(sorted(key)) for key in stream.seals),
        producer=stream.producer_column,
        punctuation=stream.punctuation,
        record_id=stream.id,
    )


def _columns_without_place(stream: Stream, format: str) -> list[str]:
    """The declared columns that a format cannot hold, with their types."""
    homeless = _CANNOT_HOLD.get(format, frozenset())
    types = {name: parse_type(text)[0] for name, text in (stream.schema or {}).items()}
    columns = [name for name, of in types.items() if homeless & {*_families(of)}]
    if not columns and format == "text" and len(types) > 1:
        columns = [*types]
    if format == "kafka" and "value" in map(str.lower, types):
        for name, of in types.items():  # else, and in Avro, columns are fields of the value
            if of.family not in _OF_MESSAGES.get(name.lower(), Family):
                columns.append(name)
    return [f"{name} {(stream.schema or {})[name]}" for name in columns]


def _families(of: DataType) -> Iterator[Family]:
    """The kinds of values in a type, at all depths."""
    yield of.family
    parts = [of.element, of.key, *(part for _, part, _ in of.fields)]
    for part in parts:
        if part is not None:
            yield from _families(part)


def sink(stream: Stream, inputs: tuple[str, ...]) -> Sink:
    """The stage of an external sink; without one in the file, parquet under results/."""
    sink = normal(stream.sink or External("parquet"))
    asked = sink.format in TRANSACTIONAL and bool(sink.key or sink.delivery == "once")
    once = sink.format in WRITES_ONCE or asked
    guarantee = Guarantee.EXACTLY_ONCE if once else Guarantee.AT_LEAST_ONCE
    return Sink(
        id=f"{Sink.kind}:{stream.name}",
        name=stream.name,
        inputs=inputs,
        description=wording.sink(stream.name, sink, guarantee),
        external=sink,
        guarantee=guarantee,
    )


def kept_by_fresh(streams: Iterable[Stream]) -> list[str]:
    """The sinks whose rows `--fresh` leaves where they are."""
    sinks = ((stream.name, stream.sink) for stream in streams if stream.consumer is None)
    return [name for name, sink in sinks if sink and sink.format.lower() not in FILE_FORMATS]


def is_table(end: External) -> bool:
    """True for a sink whose rows a job can replace by a key."""
    return end.format.lower() == JDBC


def is_transactional(end: External) -> bool:
    """True for a sink that a job can commit to in a transaction, where that is asked for."""
    return end.format.lower() in TRANSACTIONAL


def normal(end: External) -> External:
    """Formats that the running job tells apart, in lower case."""
    format = end.format.lower()
    told_apart = WRITES_ONCE | TRANSACTIONAL | CALLS
    return replace(end, format=format) if format in told_apart else end
