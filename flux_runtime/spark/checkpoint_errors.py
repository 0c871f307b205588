"""Spark's refusals to go on from a checkpoint, with what to do then."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.tracker import FRESH

_READERS: Final = re.compile(
    r"MetadataLog|FileStreamLog|FileStreamSourceLog|OffsetSeq|CommitLog|StreamMetadata"
    r"|ChecksumFileSystem|FSInputChecker|populateStartOffsets|initializeExecution"
    r"|concurrentStreamLogUpdate|STREAMING_CHECKPOINT"
)
"""Classes and methods of Spark and Hadoop that read checkpoints, and Spark's names of errors."""
_DEPTH_MAX: Final = 20


def explained(error: BaseException | None, checkpoint: str) -> BaseException | None:
    """An error of a query; where it comes from reading the checkpoint, as damage to that.

    Args:
        error: of Spark, not of the function that processes micro-batches.
        checkpoint: its address.
    """
    if error is None or not any(map(_READERS.search, _traces(error))):
        return error
    lines = (str(error).strip() or type(error).__name__).splitlines()
    first_line = lines[1 if len(lines) > 1 and isinstance(error, Py4JJavaError) else 0]
    damaged = DamagedError(
        checkpoint,
        f"Spark cannot go on from this checkpoint: {first_line.lstrip(': ')}",
        "nothing was changed, and what was put out before is right. Put back checkpoint and state "
        f"of one moment, or {FRESH}",
    )
    damaged.__cause__ = error
    return damaged


def _traces(error: BaseException) -> Iterator[str]:
    """The text of an error that came from Java, and the stack traces of it and its causes."""
    yield str(error)
    thrown: Any = error
    for _ in range(_DEPTH_MAX):
        if thrown is None:
            return
        yield getattr(thrown, "_stackTrace", None) or ""
        thrown = getattr(thrown, "_cause", None)
