"""One streaming query: started, watched, and stopped between two micro-batches."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import keeper_of, local_path
from flux_runtime.sealing.tracker import FRESH
from flux_runtime.spark import faults
from flux_runtime.spark.units import Unit

OnBatch: TypeAlias = Callable[[DataFrame, int], int | None]
"""Processes a micro-batch; returns how many rows came in, None where only Spark knows that."""

_POLL_S: Final = 0.05
_COMMIT_WAIT_S: Final = 10.0
"""How long a stop waits for Spark to commit the micro-batch that has just been processed."""


_PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
"""Characters that Spark's readers take for a pattern."""


class StoppedError(Exception):
    """A micro-batch began after the stop was asked for; it is processed when the job resumes."""


class RepeatedFileError(Exception):
    """Spark reads a file more than once in a micro-batch; the message says which, and why."""


class Query:
    """A streaming query whose micro-batches go to a Python function.

    Args:
        name: unique in the job.
        frame: what it reads.
        checkpoint: where Spark keeps its offsets.
        on_batch: processes a micro-batch.
        output_mode: Spark's output mode.
    """

    def __init__(
        self,
        name: str,
        frame: DataFrame,
        checkpoint: str,
        on_batch: OnBatch,
        *,
        output_mode: str = "append",
    ) -> None:
        self.name = name
        self.batches = 0
        self.rows = 0
        self.rows_per_s = 0.0
        self.error: BaseException | None = None
        self.begins: Callable[[int], object] | None = None
        """Called with the number of every micro-batch before it is processed."""
        self._files: list[str] | None = None
        self._frame = frame
        self.checkpoint = checkpoint
        self._on_batch = on_batch
        self._output_mode = output_mode
        self._counted = -1
        self._stopping = threading.Event()
        self._parked = threading.Event()
        self._running = threading.Lock()
        self._query: StreamingQuery | None = None
        self._started = threading.Event()

    def start(self, *, available_now: bool, trigger: str | None = None) -> None:
        """Start it; with `available_now` it ends when it has read what there is."""
        writer = (
            self._frame.writeStream.queryName(self.name)
            .outputMode(self._output_mode)
            .option("checkpointLocation", self.checkpoint)
            .foreachBatch(self._process)
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        clear_interrupted(local_path(self.checkpoint))
        self._stopping.clear()
        self._parked.clear()
        self._started.clear()
        try:
            self._query = writer.start()
        except Exception as error:
            raise explained(error, self.checkpoint) or error from error
        self._started.set()

    @property
    def active(self) -> bool:
        """Whether it is running. False also after a failure, which is then in `error`."""
        if self._query is None:
            return False
        if self._query.isActive:
            return True
        if self.error is None and not self._stopping.is_set():
            self.error = explained(self._query.exception(), self.checkpoint)
        return False

    @property
    def busy(self) -> bool:
        """Whether Spark plans, processes or commits a micro-batch at this moment."""
        if self._running.locked():
            return True
        query = self._query
        return query is not None and bool(query.status["isTriggerActive"])

    def take_progress(self) -> None:
        """Take over Spark's own numbers of the last micro-batch that it has committed."""
        progress = None if self._query is None else self._query.lastProgress
        if progress is not None and progress.batchId > self._counted and progress.numInputRows:
            self._counted = progress.batchId
            self.rows += progress.numInputRows
            self.rows_per_s = progress.processedRowsPerSecond

    def lag(self) -> Mapping[str, int]:
        """`topic/partition` -> messages that Spark's newest progress knew and had not read.

        Empty for sources other than Kafka's, and before the first micro-batch has ended.
        """
        progress = None if self._query is None else self._query.lastProgress
        lag: dict[str, int] = {}
        for source in progress.sources if progress is not None else ():
            read, newest = _offsets(source.endOffset), _offsets(source.latestOffset)
            for place, offset in newest.items():
                lag[place] = max(0, offset - read.get(place, 0))
        return lag

    def messages(self) -> int:
        """Messages of Kafka in the running micro-batch; 0 from other sources."""
        query: Any = self.running._jsq.streamingQuery()
        ends, starts = (
            _all_offsets(offsets)
            for offsets in (query.availableOffsets(), query.committedOffsets())
        )
        return sum(end - starts.get(place, 0) for place, end in ends.items())

    @property
    def running(self) -> StreamingQuery:
        """Spark's handle of it, also from within its first micro-batch."""
        self._started.wait()
        assert self._query is not None
        return self._query

    def files(self) -> list[str]:
        """The files that the running micro-batch reads, where its source is one of files.

        Their addresses are as Spark's readers take them: not percent-encoded, and with a backslash
        before what would be a pattern.

        Raises:
            RepeatedFileError: Spark reads one of them more than once.
        """
        return [_as_read(file) for file in sorted({*self._encoded_files()})]

    def _encoded_files(self) -> list[str]:
        """Addresses of files, percent-encoded; asked of Spark once in a micro-batch."""
        if self._files is None:
            self._files = self._files_of_spark()
        return self._files

    def _files_of_spark(self) -> list[str]:
        execution: Any = self.running._jsq.streamingQuery().lastExecution()
        leaves = execution.logical().collectLeaves()
        files: list[str] = []
        for i in range(leaves.size()):
            leaf = leaves.apply(i)
            if leaf.getClass().getSimpleName() == "LogicalRelation":
                of_leaf = _texts(self._frame, leaf.relation().inputFiles())
                _check_once(of_leaf)
                files += of_leaf
        return files

    def stop(self) -> None:
        """Let the running micro-batch finish and be committed, then stop."""
        query = self._query
        if query is None:
            return
        self._stopping.set()
        with self._running:  # the micro-batch in progress, if any
            pass
        deadline = time.monotonic() + _COMMIT_WAIT_S
        while (
            query.isActive
            and not self._parked.is_set()
            and query.status["isTriggerActive"]
            and time.monotonic() < deadline
        ):
            time.sleep(_POLL_S)
        query.stop()
        self._query = None

    def _process(self, frame: DataFrame, batch: int) -> None:
        with self._running:
            if self._stopping.is_set():
                self._parked.set()
                raise StoppedError(self.name)
            began = time.monotonic()
            self._files = None
            try:
                self._keep_checkpoint()
                if self.begins is not None:
                    self.begins(batch)
                rows = self._on_batch(frame, batch)
                faults.point("batch-processed")
            except BaseException as error:
                self.error = error
                raise
            self.batches += 1
            if rows is None:
                self.take_progress()
            else:
                self.rows += rows
                self.rows_per_s = rows / max(time.monotonic() - began, 1e-6)

    def _keep_checkpoint(self) -> None:
        """Hand the checkpoint to its keeper, if it has one, while Spark writes nothing to it."""
        checkpoint = local_path(self.checkpoint)
        keeper = keeper_of(checkpoint)
        if keeper is not None:
            keeper.flushed_below(checkpoint)


class SingleQuery:
    """A unit that is one query: its part of `Running`."""

    _query: Query

    def start(self, *, available_now: bool, trigger: str | None) -> None:
        """See `Running`."""
        self._query.start(available_now=available_now, trigger=trigger)

    @property
    def active(self) -> bool:
        """See `Running`."""
        return self._query.active

    @property
    def error(self) -> BaseException | None:
        """See `Running`."""
        return self._query.error

    @property
    def rows(self) -> int:
        """See `Running`."""
        return self._query.rows


def lag_of(unit: Unit, queries: Iterable[Query]) -> Mapping[str, Any]:
    """The metric `source_lag` of a unit with these queries; of others Spark is not asked."""
    if not unit.reads_kafka:
        return {}
    lag = {place: behind for query in queries for place, behind in query.lag().items()}
    return {"source_lag": lag} if lag else {}


def _all_offsets(of_sources: Any) -> Mapping[str, int]:
    """Those of Kafka among the offsets of a query's sources, which Spark holds."""
    values = of_sources.values().iterator()
    result: dict[str, int] = {}
    while values.hasNext():
        result |= _offsets(values.next().json())
    return result


def _offsets(text: str | None) -> Mapping[str, int]:
    """Offsets of Kafka's sources by `topic/partition`; none of other sources.

    >>> _offsets('{"orders": {"0": 7, "1": 9}}')
    {'orders/0': 7, 'orders/1': 9}
    >>> _offsets('{"logOffset": 3}'), _offsets("12"), _offsets(None)
    ({}, {}, {})
    >>> _offsets('{"orders": {"0": 7}, "#ids": {"orders": "x"}}')  # see `ends.kafka_source`
    {'orders/0': 7}
    """
    topics = json.loads(text) if text and text.startswith("{") else {}
    return {
        f"{topic}/{partition}": offset
        for topic, offsets in topics.items()
        if isinstance(offsets, dict) and topic[:1] != "#"
        for partition, offset in offsets.items()
    }


def clear_interrupted(checkpoint: Path) -> None:
    """Delete what a killed process, or a power cut, left half written in a checkpoint's logs.

    Spark writes an entry under another name and renames it. It takes no notice of what is left of
    that, but for the very first entry: then it refuses to begin, since the folder is not empty. Nor
    does it flush an entry: after a power cut it may be empty, and then nothing has followed from
    it, since what follows from an entry is written down after that has been flushed.
    """
    for log in (checkpoint / "offsets", checkpoint / "commits", *checkpoint.glob("sources/*")):
        entries = list(log.iterdir()) if log.is_dir() else []
        begun = any(entry.name[0] != "." for entry in entries)
        for entry in entries:
            if entry.name[0] == "." and (".tmp" in entry.name or not begun):
                entry.unlink(missing_ok=True)
        _clear_empty(log)
    identity = checkpoint / "metadata"
    if identity.is_file() and not identity.stat().st_size:
        _unlink(identity)
        if not _numbered(checkpoint / "commits"):
            for name in ("offsets", "sources"):
                shutil.rmtree(checkpoint / name, ignore_errors=True)


def _clear_empty(log: Path) -> None:
    """Delete the newest entries of a log, as far as they are empty."""
    for entry in reversed(_numbered(log)):
        if entry.stat().st_size:
            return
        _unlink(entry)


def _numbered(log: Path) -> list[Path]:
    """The entries of a log, the newest last; `12.compact` is one, too."""
    entries = [e for e in log.iterdir() if e.name[0].isdecimal()] if log.is_dir() else []
    return sorted(entries, key=lambda entry: int(entry.name.partition(".")[0]))


def _unlink(file: Path) -> None:
    """Delete a file and Hadoop's checksum of it."""
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _texts(frame: DataFrame, array: Any) -> list[str]:
    """A Java array of texts of one line: in one call, however many there are."""
    jvm: Any = frame.sparkSession._jvm
    wrapped = jvm.scala.collection.immutable.ArraySeq.unsafeWrapArray(array)
    listed = str(wrapped.mkString("\n"))
    return listed.split("\n") if listed else []


def _check_once(files: list[str]) -> None:
    """Return if no file is there twice (Spark 4.3 does that to names that look like patterns)."""
    repeated = sorted(file for file, times in Counter(files).items() if times > 1)
    if not repeated:
        return
    to_blame = [unquote(file) for file in files if _PATTERN.search(unquote(file))]
    name = (to_blame or [unquote(repeated[0])])[0]
    raise RepeatedFileError(
        f"Spark would read {len(repeated)} files more than once in one micro-batch, because it "
        f"takes the name of one for a pattern: {name}. Nothing of the micro-batch was taken. "
        "Rename files whose names have any of * ? [ ] { } \\, and start afresh with --fresh; or "
        "give the source the option maxFilesPerTrigger: 1 before such a file comes"
    )


def _as_read(encoded: str) -> str:
    """A percent-encoded address as Spark's readers take it.

    >>> _as_read("file:///in/a%5B1%5D%20%2520.json")
    'file:///in/a\\\\[1\\\\] %20.json'
    """
    return _PATTERN.sub(r"\\\g<0>", unquote(encoded))


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
