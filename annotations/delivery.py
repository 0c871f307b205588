"""How often a source delivers a record, and where a second delivery would be counted.

Order and number are different questions: a seal waits until all records of a partition are there,
and takes a record that comes twice for two of them, unless an `id` tells that it is one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from annotations.dataflow import External, Path, Stream
from annotations.vocabulary import AnnotationKind, Repeats

ONCE: Final = frozenset(
    {
        *("avro", "binaryfile", "csv", "json", "orc", "parquet", "text", "xml"),
        *("delta", "iceberg", "table"),
        *("rate", "rate-micro-batch"),
    }
)
"""Formats whose streaming source delivers each record once. Others may hold a record twice: Spark
reads each offset of a topic once, but the topic may have got the record again."""


def may_repeat(stream: Stream) -> bool:
    """True for a source that may deliver a record again: as it is declared, else by its format."""
    if stream.producer is not None:
        return False
    if stream.delivery is not None:
        return stream.delivery == "may-repeat"
    return stream.source is not None and stream.source.format.lower() not in ONCE


_BEGINNINGS: Final = {
    "kafka": "startingOffsets",
    "kinesis": "initialPosition",
    "eventhubs": "eventhubs.startingPosition",
    "pulsar": "startingOffsets",
    "delta": "startingVersion",
    "streaming table": "startingVersion",
}
"""Formats of sources, and the option that says where the first start of a job begins."""
_FROM_NOW: Final = frozenset({"kafka", "kinesis", "eventhubs", "pulsar"})
"""Those that begin with what comes after that, where nothing is said."""
_OPTIONS: Final = {
    "failondataloss=false": "nothing of it is deleted before it is read",
    "ignorechanges=true": "no row of it is changed: those beside it would come again",
    "ignoredeletes=true": "no row of it is deleted",
    "skipchangecommits=true": "no row of it is changed, which would be passed over",
    "ignoremissingfiles=true": "none of its files is deleted before it is read",
    "ignorecorruptfiles=true": "none of its files is damaged, which would be passed over",
    "cloudfiles.includeexistingfiles=false": "its files come after the job has first started",
    "cloudfiles.allowoverwrites=true": "none of its files is written again",
    "streaming-skip-overwrite-snapshots=true": "no row of it is changed",
    "streaming-skip-delete-snapshots=true": "no row of it is deleted",
    "cleansource=delete": "it is never read from the beginning: what was read is deleted",
    "latestfirst=true": "none of its files is older than maxFileAge",
    "includetimestamp=true": "its records have the same times when they come again",
}
"""Options of sources, and what has to hold where one has this value."""
_KEEPING: Final = ONCE | _FROM_NOW | {"streaming table", "cloudfiles"}


def taken_of(settings: Mapping[str, Any]) -> Iterator[str]:
    """Sentences that are taken for granted of a source whose format and options are these."""
    given = settings.get("options", {})
    options = {key.lower(): str(value).lower() for key, value in given.items()}
    kind = str(settings.get("format") or "").lower()
    option = _BEGINNINGS.get(kind, "")
    begins = options.get(option.lower(), "latest" if kind in _FROM_NOW else "")
    if begins == "latest" or (kind == "kafka" and ":-1" in begins):
        timed = "startingtimestamp" in options or "startingoffsetsbytimestamp" in options
        if not timed:
            yield f"its records come after the job has first started ({option} is latest)"
    yield from (_OPTIONS[o] for o in map("=".join, options.items()) if o in _OPTIONS)
    if kind.startswith("rate"):
        yield "it makes the same records again, which the clock decides"
    elif kind == "socket":
        yield "no failure strikes while it is read: a socket gives no record again"
    elif kind and kind not in _KEEPING:
        yield f"it gives the same records again after a failure ({kind})"
    if kind in FILES | {"cloudfiles"} and "columns" not in settings:
        yield "its first files show the schema that all of them have"


FILES: Final = frozenset({"avro", "csv", "json", "orc", "parquet", "text", "xml"})
"""Formats that are folders of files, which a job commits by itself."""

WRITES_ONCE: Final = FILES | {"delta"}
"""Formats whose sink takes each row once, also when the job was killed in between: files, and Delta
tables, whose log remembers the number of a commit. To all others a job appends."""

TRANSACTIONAL: Final = frozenset({"jdbc", "kafka"})
"""Formats whose sink takes each row once where that is asked for (`delivery: once`): in one
transaction with the number of the commit."""

CALLS: Final = frozenset({"foreach", "foreachbatch"})
"""Formats whose sink hands the rows to a function."""

_ADDS_ONLY: Final = WRITES_ONCE | {"kafka"}


def replaces_rows(sink: External) -> bool:
    """False for a sink whose rows are never replaced, by whatever key."""
    return sink.format.lower() not in _ADDS_ONLY


def tells_arrival(stream: Stream) -> bool:
    """True for a source that tells when a record came: a file does, by its modification time.

    A source without a format, in a dataflow for analysis alone, is taken to tell it.
    """
    if stream.producer is not None:
        return False
    return stream.source is None or stream.source.format.lower() in FILES


def appends_again(stream: Stream) -> bool:
    """True for a result whose sink may append its last batch again: as declared, or by format."""
    sink = stream.sink
    if sink is None or stream.consumer is not None or sink.key:
        return False
    if sink.delivery is not None:
        return sink.delivery == "may-repeat"
    return sink.format.lower() not in WRITES_ONCE


def numbered(stream: Stream) -> bool:
    """Whether somebody says, or the format does, how often the records of a stream come."""
    sink = stream.sink is not None and (bool(stream.sink.key) or appends_again(stream))
    return bool(stream.id) or stream.delivery is not None or may_repeat(stream) or sink


def repeats_of(path: Path) -> Repeats:
    """The effect of a repeat at the path's input: as declared, else that usual for its kind."""
    return path.repeats or usual_repeats(path.annotation.kind)


def usual_repeats(kind: AnnotationKind) -> Repeats:
    """The effect of repeats where none is declared: `pass` for CR, for others `corrupt`."""
    return Repeats.PASS if kind is AnnotationKind.CR else Repeats.CORRUPT


def counts(stream: Stream) -> bool:
    """True where partitions are complete by the counts of punctuations.

    A stream that has only a promise of lateness is sealed by a watermark, which counts nothing.
    """
    return bool(stream.seals) and (stream.punctuation is not None or stream.lateness is None)
