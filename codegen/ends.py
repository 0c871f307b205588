"""The two ends of a job: external sources and sinks."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from annotations.dataflow import External, Stream
from annotations.delivery import FILES, TRANSACTIONAL, WRITES_ONCE
from annotations.diagnostics import Diagnostic
from codegen import wording
from codegen.codes import CODES
from codegen.model import Guarantee, Sink, Source

FILE_FORMATS: Final = FILES
"""Formats that are a folder of files: a sink commits them exactly once."""
JDBC: Final = "jdbc"
"""The format of tables in databases."""
OWN_SCHEMA: Final = frozenset({"text"})
"""File formats that need no schema."""


def source_problems(stream: Stream) -> list[Diagnostic]:
    """What an external source lacks."""
    if stream.source is None:
        message = f"stream {stream.name} comes from outside and has no source"
        return [Diagnostic(CODES["BLZ501"], message, stream.position)]
    format = stream.source.format.lower()
    found = []
    if format in FILE_FORMATS - OWN_SCHEMA and stream.schema is None:
        message = f"stream {stream.name} is read from {format} files and has no schema"
        found.append(Diagnostic(CODES["BLZ502"], message, stream.position))
    if format in FILE_FORMATS and stream.source.path is None:
        message = f"the source of stream {stream.name} reads {format} files and has no path"
        at = stream.source.position or stream.position
        found.append(Diagnostic(CODES["BLZ503"], message, at))
    return found


def source(stream: Stream) -> Source:
    """The stage of an external source that has no problems."""
    assert stream.source is not None
    it = normal(stream.source)
    return Source(
        id=f"{Source.kind}:{stream.name}",
        name=stream.name,
        description=wording.source(stream, it),
        external=it,
        schema=stream.schema,
        seals=tuple(tuple(sorted(key)) for key in stream.seals),
        producer=stream.producer_column,
        punctuation=stream.punctuation,
        record_id=stream.id,
    )


def sink(stream: Stream, inputs: tuple[str, ...]) -> Sink:
    """The stage of an external sink; without one in the file, parquet under results/."""
    it = normal(stream.sink or External("parquet"))
    asked = it.format in TRANSACTIONAL and bool(it.key or it.delivery == "once")
    once = it.format in WRITES_ONCE or asked
    guarantee = Guarantee.EXACTLY_ONCE if once else Guarantee.AT_LEAST_ONCE
    return Sink(
        id=f"{Sink.kind}:{stream.name}",
        name=stream.name,
        inputs=inputs,
        description=wording.sink(stream.name, it, guarantee),
        external=it,
        guarantee=guarantee,
    )


def is_table(it: External) -> bool:
    """True for a sink whose rows a job can replace by a key."""
    return it.format.lower() == JDBC


def is_transactional(it: External) -> bool:
    """True for a sink that a job can commit to in a transaction, where that is asked for."""
    return it.format.lower() in TRANSACTIONAL


def normal(it: External) -> External:
    """Formats that the running job tells apart, in lower case."""
    format = it.format.lower()
    return replace(it, format=format) if format in WRITES_ONCE | TRANSACTIONAL else it
