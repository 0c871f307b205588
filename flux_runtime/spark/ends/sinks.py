"""Sinks: what takes the rows of a commit, named by the unit that makes it and its number.

A sink that is *exact* decides by itself, in a transaction of its own, whether it has got a commit
already: folders of files (`commit`), tables of databases (`tables`), Delta tables (`delta`) and
topics of Kafka (`topics`). Any other format of Spark's is appended to (`Appended`), or a function
of the user takes the rows (`Called`): after a crash those of the newest commit may come again.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, ClassVar, Final, Protocol, Self
from urllib.parse import urlsplit

from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation, Row, SparkSession
from pyspark.sql import functions as sf

from flux_runtime.commits.fence import FencedError
from flux_runtime.commits.owner import NotOwnerError, Ownership
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.spark.ends.source import FILE_FORMATS

log = logging.getLogger(__name__)


class SinkError(Exception):
    """A sink that cannot be written to as it should be; the message says what to do."""


class CommitSink(Protocol):
    """Takes commits, each named by its unit and number."""

    @property
    def exact(self) -> bool:
        """Whether a commit that is repeated adds nothing."""

    @property
    def needs_channel(self) -> bool:
        """Whether rows come from a channel only: the same, however often they are read."""

    def taken(self, session: SparkSession, ownership: Ownership, units: Iterable[str]) -> Self:
        """The sink in the hands of this driver, taken over from those before.

        Args:
            session: of the job.
            ownership: claimed.
            units: who commits to it.

        Raises:
            NotOwnerError: it holds the rows of another state.
            FencedError: a newer driver has taken it over.
            DamagedError: it has fewer commits than the state knows of.
            SinkError: it cannot do what is needed.
        """

    def newest(self, unit: str) -> int | None:
        """The number of the unit's newest commit that it has; None: it has none."""

    def commit(self, unit: str, number: int, rows: DataFrame, *, covers: Any = None) -> int:
        """Take the rows, unless it has got this commit; how many have come.

        Args:
            unit: who commits.
            number: of the commit; those of a unit rise.
            rows: of the commit.
            covers: what the rows are made of, as JSON data; a repetition covers the same.

        Raises:
            FencedError: a newer driver runs the job; nothing was changed.
            DamagedError: the commit was made, and covers something else.
            SinkError: it does not take the rows.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class Appended:
    """Any format that Spark can write: rows are appended, at least once."""

    exact: ClassVar[bool] = False
    needs_channel: ClassVar[bool] = False
    format: str
    path: str | None
    """Absolute, or a URI; None for formats that need none."""
    options: Mapping[str, str] = field(repr=False)

    def taken(self, session: SparkSession, ownership: Ownership, units: Iterable[str]) -> Self:
        """See `CommitSink`; it belongs to nobody."""
        return self

    def newest(self, unit: str) -> int | None:
        """See `CommitSink`; it does not know."""
        return None

    def commit(self, unit: str, number: int, rows: DataFrame, *, covers: Any = None) -> int:
        """See `CommitSink`."""
        counted = Observation()
        frame = rows.observe(counted, sf.count(sf.lit(1)).alias("rows"))
        frame.write.format(self.format).options(**self.options).mode("append").save(self.path)
        return int(counted.get["rows"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """A function of the user that takes the rows of each commit, at least once."""

    exact: ClassVar[bool] = False
    needs_channel: ClassVar[bool] = False
    function: Any
    """Called with the rows and the number of the commit; with `by_row` what Spark's `foreach`
    takes: a function of a row, or an object with `process` and perhaps `open` and `close`."""
    by_row: bool

    def taken(self, session: SparkSession, ownership: Ownership, units: Iterable[str]) -> Self:
        """See `CommitSink`; it belongs to nobody."""
        return self

    def newest(self, unit: str) -> int | None:
        """See `CommitSink`; it does not know."""
        return None

    def commit(self, unit: str, number: int, rows: DataFrame, *, covers: Any = None) -> int:
        """See `CommitSink`; the rows are computed once, however often the function asks."""
        computed = rows.persist()
        try:
            count = computed.count()
            if self.by_row:
                computed.foreachPartition(_by_row(self.function, number))
            else:
                self.function(computed, number)
        finally:
            computed.unpersist()
        return count


def _by_row(writer: Any, number: int) -> Callable[[Iterable[Row]], None]:
    """The function that hands the rows of a partition to a writer of Spark's `foreach`."""
    process = getattr(writer, "process", writer)

    def partition(rows: Iterable[Row]) -> None:
        context = TaskContext.get()
        begin = getattr(writer, "open", None)
        error: Exception | None = None
        try:
            if begin is None or begin(context.partitionId() if context else 0, number):
                for row in rows:
                    process(row)
        except Exception as failed:
            error = failed
            raise
        finally:
            if hasattr(writer, "close"):
                writer.close(error)

    return partition


@dataclass(frozen=True, slots=True)
class Note:
    """An exact sink's note, beside the rows, of the commits of a unit."""

    state: str
    """Id of the state folder that the rows belong to."""
    epoch: int
    """Of the driver that took the sink over last."""
    number: int
    """Of the newest commit; -1: there is none."""
    covers: str
    """See `covers_digest`."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A driver's claim on an exact sink: its notes are compared with what the state knows.

    Args:
        sink: its name in the job.
        place: what messages call it.
        ownership: of the driver.
        notes: what messages call the place of the notes, where it is one for several targets:
            there a job is known by its name alone.
    """

    sink: str
    place: str
    ownership: Ownership
    notes: str | None = None

    @property
    def state(self) -> str:
        """Id of this driver's state folder."""
        return self.ownership.state_id

    @property
    def epoch(self) -> int:
        """Of this driver."""
        return self.ownership.driver.epoch

    def writer(self, unit: str) -> str:
        """The mark of this unit's commits among those of others, in a place that several share."""
        return f"blazes/{self.ownership.job}/{self.sink}/{unit}"

    def begins(self, note: Note | None, unit: str) -> bool:
        """Whether the sink has nothing of this unit, or is to forget what it has.

        Raises:
            NotOwnerError: it holds the rows of another state.
            DamagedError: it has fewer commits than the state knows of.
            FencedError: a newer driver has taken it over.
        """
        owner = self.ownership
        if note is not None and note.state != self.state and not owner.fresh:
            raise self._not_owner(note)
        known = -1
        if owner.inventory.outputs().get(self._entry) == self.place:
            known = owner.inventory.newest(self._entry).get(unit, -1)
        if note is None or note.state != self.state:
            if note is not None:
                log.warning("%s is not emptied; its rows stay", self.place)
            noted = -1
        else:
            noted = note.number
        if noted < known:
            has = f"number {noted}" if noted >= 0 else "none"
            raise DamagedError(
                self.place,
                f"the state says that {unit} has made its commit {known}, and the newest one that "
                f"it has got is {has}",
                "nothing was changed. It was emptied, or put back to an older copy: put back the "
                "state of the same moment, or empty it and start with --fresh",
            )
        if note is not None and note.state == self.state and note.epoch > self.epoch:
            raise self.replaced(note)
        return note is None or note.state != self.state

    def _not_owner(self, note: Note) -> NotOwnerError:
        state = f"another state, {note.state} (epoch {note.epoch})"
        fresh = "start afresh with --fresh: rows that are there stay there, so empty it before"
        if self.notes is None:
            return NotOwnerError(
                self.place,
                f"holds rows of {state}",
                "nothing was changed. Go on with the state that the rows belong to (--state-dir), "
                f"write to another place, or {fresh}",
            )
        job = self.ownership.job
        return NotOwnerError(
            self.place,
            f"is sink {self.sink} of job {job}, of which {self.notes} says that it belongs to "
            f"{state}",
            f"nothing was changed. If another job is called {job} too, give one of them another "
            "`name:`, also where their targets differ: the notes go by the names. If it is this "
            f"job, go on with that state (--state-dir), or {fresh}",
        )

    def is_made(self, note: Note | None, unit: str, number: int, covers: str) -> bool:
        """Whether the sink has a commit already.

        Raises:
            DamagedError: it has, and the commit covers something else.
            FencedError: another driver has taken the sink over.
        """
        if note is None or note.state != self.state or note.epoch > self.epoch:
            raise self.replaced(note)
        if note.number == number and covers and note.covers and note.covers != covers:
            raise DamagedError(
                self.place,
                f"commit {number} of {unit} covers something else than the one that the job is "
                "about to make under its number: the state has lost entries, or its checkpoint "
                "was deleted",
                "the rows that are there are safe, and nothing was changed. Restore the state "
                "folder from a copy of the same moment",
            )
        return note.number >= number

    def replaced(self, note: Note | None) -> FencedError:
        """The error of a driver that another one has replaced."""
        by = "nobody" if note is None else f"state {note.state}, epoch {note.epoch}"
        return FencedError(
            f"{self.place} was taken over by {by}; this driver, epoch {self.epoch}, stops; it "
            "committed nothing after that"
        )

    def note_commit(self, unit: str, number: int) -> None:
        """Write into the state's inventory that the sink has a commit."""
        inventory = self.ownership.inventory
        newest = {**inventory.newest(self._entry), unit: number}
        inventory.note(self._entry, self.place, newest)

    @property
    def _entry(self) -> str:
        return f"sink {self.sink}"


DELTA_STORES: Final = ("file", "s3", "s3a", "abfs", "abfss", "az", "azure", "adl", "gs")
"""Schemes of addresses at which the `deltalake` package keeps tables."""


def unreachable(format: str, location: str | None) -> str | None:
    """Why a sink's commits cannot be at an address; None: they can, or it has no place of its own.

    >>> unreachable("delta", "s3://bucket/table"), unreachable("parquet", "/data/out")
    (None, None)
    >>> print(unreachable("delta", "dbfs:/table"))
    dbfs:/table: a Delta table is a folder, or begins with s3:, s3a:, abfs:, abfss:, az:, azure:,\
 adl:, gs:. Write its address in the store, or the path where it is mounted
    """
    scheme = "" if location is None else urlsplit(location).scheme
    if not scheme or scheme == "file":
        return None
    if format == "delta" and scheme not in DELTA_STORES:
        return (
            f"{location}: a Delta table is a folder, or begins with "
            f"{', '.join(f'{store}:' for store in DELTA_STORES if store != 'file')}. Write its "
            "address in the store, or the path where it is mounted"
        )
    if format in FILE_FORMATS:
        return (
            f"{location}: {format} files are committed by renaming a folder in one step, which "
            f"{scheme}: cannot do. Use `format: delta`, which commits in object stores too, or a "
            "path on a mounted file system"
        )
    return None


def package(module: str, extra: str, *, sink: str) -> ModuleType:
    """A package that only jobs with such a sink need.

    Raises:
        SinkError: it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise SinkError(
            f"sink {sink} needs a package: pip install 'blazes[{extra}]' ({error})"
        ) from None


def covers_digest(covers: Any) -> str:
    """The mark by which two commits are known to cover the same; empty where nobody said."""
    if covers is None:
        return ""
    return hashlib.sha256(json.dumps(covers, sort_keys=True).encode()).hexdigest()
