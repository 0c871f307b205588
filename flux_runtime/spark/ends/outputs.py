"""Where a unit's rows go: its channel to other units, and external sinks.

The rows are computed once. Where they go to several places, the channel is written first and the
sinks from it; every place recognises a commit that it has already got.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from flux_runtime.commits.fence import Fence
from flux_runtime.sealing.events import KeyText
from flux_runtime.sealing.keys import key_text
from flux_runtime.sealing.storage import commit_kept
from flux_runtime.spark.ends.commit import Folders, commit_name
from flux_runtime.spark.ends.driver_rows import DriverRows
from flux_runtime.spark.ends.sinks import CommitSink
from flux_runtime.spark.feed import COUNT, DATA, PRODUCER, Feed
from flux_runtime.spark.frames import column
from flux_runtime.spark.key_columns import KeyColumns, value_of
from flux_runtime.spark.units import in_channel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sink:
    """An external sink of a job: what it gets, and what takes it.

    Attributes:
        path: where its format has one.
        options: Spark's, for the format.
    """

    name: str
    feeds: Sequence[Feed]
    target: CommitSink
    format: str
    path: str | None
    options: Mapping[str, str] = field(repr=False)

    @property
    def folders(self) -> Folders | None:
        """The folder of commits that it is, if it is one."""
        return self.target if isinstance(self.target, Folders) else None


@dataclass(frozen=True, slots=True)
class Seals:
    """The punctuations that leave with a release (SE-3)."""

    columns: tuple[str, ...]
    """Names that the output has for the key's attributes."""
    keys: tuple[KeyText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The places of one unit's output."""

    unit: str
    schema: StructType
    channel: Folders | None
    sinks: Sequence[tuple[Sink, Feed]] = field(default=())
    fence: Fence | None = None
    """Stops a driver that has been replaced; None: there is no other."""
    on_commit: Callable[[], object] | None = None
    """Called when a commit is in every place."""
    rows: Counter[str] = field(default_factory=Counter)
    """Sink -> rows that it has taken since the start."""

    def places(self) -> Iterator[CommitSink]:
        """Everything that commits go to."""
        if self.channel is not None:
            yield self.channel
        yield from (sink.target for sink, _ in self.sinks)

    def metrics(self) -> Mapping[str, Any]:
        """Counts of what the sinks have taken, for the metrics of the unit."""
        appended = [sink.name for sink, _ in self.sinks if not sink.target.exact]
        repeatable = {"rows_may_repeat": sum(self.rows[n] for n in appended)} if appended else {}
        return {"sink_rows": dict(self.rows), **repeatable} if self.sinks else {}

    def newest(self, unit: str | None = None) -> int | None:
        """The number of the newest commit that is in any of the places; None: there is none.

        A unit whose state knows less has lost entries. One whose state knows more may have
        committed nothing since (`keep_empty`); that commits have gone is noticed when the job
        starts (`flux_runtime.commits.owner`).
        """
        numbers = [place.newest(unit or self.unit) for place in self.places()]
        return max((number for number in numbers if number is not None), default=None)

    def commit(
        self,
        number: int,
        rows: DataFrame | DriverRows,
        *,
        seals: Seals | None = None,
        keep_empty: bool = True,
        staged: Callable[[], object] | None = None,
        covers: Any = None,
    ) -> int:
        """Bring the rows to every place that has not got them; how many there are.

        When it returns, every commit to a folder is on the disk, and the caller may record it.

        Args:
            number: of the release or micro-batch.
            rows: of the commit.
            seals: the punctuations that follow them.
            keep_empty: False: nothing is committed where there are no rows.
            staged: called once they have been computed, before anything is committed.
            covers: what the rows are made of, as JSON data (source offsets, partitions): the same
                for every repetition.

        Raises:
            FencedError: a newer driver runs the job.
            DamagedError: this commit has been made, and covers something else, or is damaged.
        """
        commit_kept()
        if self.fence is not None:
            self.fence.check()
        if isinstance(rows, DriverRows) and self._takes(rows):
            counts = [self._to_sink(sink, number, rows, covers, staged) for sink, _ in self.sinks]
            count = max(counts, default=0)
        else:
            frame = rows.frame() if isinstance(rows, DriverRows) else rows
            count = self._commit(number, frame, seals, keep_empty, staged, covers)
        if self.on_commit is not None:
            self.on_commit()
        return count

    def _takes(self, rows: DriverRows) -> bool:
        """Whether all places take the driver's rows as they are."""
        return self.channel is None and all(
            sink.folders is not None and not feed.transforms and sink.folders.takes(rows)
            for sink, feed in self.sinks
        )

    def _commit(
        self,
        number: int,
        frame: DataFrame,
        seals: Seals | None,
        keep_empty: bool,
        staged: Callable[[], object] | None,
        covers: Any,
    ) -> int:
        session = frame.sparkSession
        if self.channel is None:
            counts = [
                self._to_sink(sink, number, feed.apply(frame), covers, staged)
                for sink, feed in self.sinks
            ]
            return max(counts, default=0)
        rows = self._to_channel(self.channel, number, frame, seals, keep_empty, staged, covers)
        name = commit_name(self.unit, number)
        if not self.channel.committed(name):  # nothing to pass on
            return 0
        if self.sinks:
            self.channel.check(name)
            reader = session.read.schema(in_channel(self.schema))
            stored = reader.parquet(self.channel.uri(name)).where(sf.col(COUNT) == DATA)
            passed_on = stored.drop(PRODUCER, COUNT)
            for sink, feed in self.sinks:
                self._to_sink(sink, number, feed.apply(passed_on), covers)
        return rows

    def _to_channel(
        self,
        channel: Folders,
        number: int,
        frame: DataFrame,
        seals: Seals | None,
        keep_empty: bool,
        staged: Callable[[], object] | None,
        covers: Any,
    ) -> int:
        rows = frame.select(
            *map(column, self.schema.fieldNames()),
            sf.lit(self.unit).alias(PRODUCER),
            sf.lit(DATA).cast("bigint").alias(COUNT),
        )
        commit = partial(channel.commit, self.unit, number, rows, covers=covers)
        if seals is None:
            return commit(keep_empty=keep_empty, staged=staged)
        session = frame.sparkSession
        return commit(more=lambda uri: self._punctuate(session, uri, seals))

    def _punctuate(self, session: SparkSession, uri: str, seals: Seals) -> None:
        """Add the punctuations of a release, each with the count of what was released (SE-3)."""
        stored = in_channel(self.schema)
        of_key = KeyColumns(self.schema, seals.columns)
        staged = session.read.schema(stored).parquet(uri)
        texts = [t.alias(name) for t, name in zip(of_key.texts(), of_key.added, strict=True)]
        counts = dict.fromkeys(seals.keys, 0)
        for *values, rows in staged.select(*texts).groupBy(*of_key.added).count().collect():
            key = key_text(["null" if value is None else value for value in values])
            if None in values or key not in counts:
                raise ValueError(
                    f"{self.unit} is to forward its seals on {', '.join(seals.columns)}, but put "
                    f"out records with {key}, which was not released with them"
                )
            counts[key] = rows
        beside = {COUNT: pa.array(counts.values(), pa.int64())}
        given = of_key.texts_table(session, counts, beside=beside)
        values_of = {PRODUCER: sf.lit(self.unit), COUNT: sf.col(COUNT)}
        for name, text, of in zip(seals.columns, of_key.added, of_key.types, strict=True):
            values_of[name] = value_of(sf.col(text), of)
        columns = [
            values_of.get(f.name, sf.lit(None)).cast(f.dataType).alias(f.name)
            for f in stored.fields
        ]
        given.select(columns).coalesce(1).write.mode("append").parquet(uri)

    def _to_sink(
        self,
        sink: Sink,
        number: int,
        rows: DataFrame | DriverRows,
        covers: Any,
        staged: Callable[[], object] | None = None,
    ) -> int:
        target = sink.target
        if isinstance(target, Folders):
            count = target.commit(self.unit, number, rows, staged=staged, covers=covers)
        else:
            assert isinstance(rows, DataFrame)
            count = target.commit(self.unit, number, rows, covers=covers)
            if staged is not None:  # there is no channel, so that rows are only appended
                staged()
        self.rows[sink.name] += count
        return count
