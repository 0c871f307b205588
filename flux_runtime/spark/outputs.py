"""Where a unit's rows go: its channel to other units, and external sinks.

The rows are computed once. Where they go to several places, the channel is written first and the
sinks from it; every place recognises a commit that it has already got.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from flux_runtime.sealing.events import KeyText
from flux_runtime.sealing.keys import key_text, key_values
from flux_runtime.spark.commit import Folders, commit_name
from flux_runtime.spark.feed import COUNT, DATA, PRODUCER, Feed
from flux_runtime.spark.frames import column
from flux_runtime.spark.key_columns import KeyColumns, value_of
from flux_runtime.spark.units import in_channel


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sink:
    """An external sink."""

    name: str
    feeds: Sequence[Feed]
    format: str
    path: str | None
    """Absolute, or a URI; None for formats that need none."""
    options: Mapping[str, str]
    folders: Folders | None
    """Set for file formats: committed exactly once. Others are appended to, at least once."""


@dataclass(frozen=True, slots=True)
class Seals:
    """The punctuations that leave with a release (SE-3)."""

    columns: tuple[str, ...]
    """What the output calls the key's attributes."""
    keys: tuple[KeyText, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """The places of one unit's output."""

    unit: str
    schema: StructType
    channel: Folders | None
    sinks: Sequence[tuple[Sink, Feed]] = field(default=())

    def commit(
        self,
        number: int,
        frame: DataFrame,
        *,
        seals: Seals | None = None,
        keep_empty: bool = True,
        staged: Callable[[], object] | None = None,
    ) -> int:
        """Bring the rows to every place that has not got them; how many there are.

        Args:
            number: of the release or micro-batch.
            frame: the rows.
            seals: the punctuations that follow them.
            keep_empty: False: nothing is committed where there are no rows.
            staged: called once they have been computed, before anything is committed.
        """
        name = commit_name(self.unit, number)
        session = frame.sparkSession
        if self.channel is None:
            counts = [
                self._to_sink(sink, name, feed.apply(frame), staged) for sink, feed in self.sinks
            ]
            return max(counts, default=0)
        rows = self._to_channel(self.channel, name, frame, seals, keep_empty, staged)
        if not self.channel.committed(name):  # nothing to pass on
            return 0
        if self.sinks:
            reader = session.read.schema(in_channel(self.schema))
            stored = reader.parquet(self.channel.uri(name)).where(sf.col(COUNT) == DATA)
            passed_on = stored.drop(PRODUCER, COUNT)
            for sink, feed in self.sinks:
                self._to_sink(sink, name, feed.apply(passed_on))
        return rows

    def _to_channel(
        self,
        channel: Folders,
        name: str,
        frame: DataFrame,
        seals: Seals | None,
        keep_empty: bool,
        staged: Callable[[], object] | None,
    ) -> int:
        rows = frame.select(
            *map(column, self.schema.fieldNames()),
            sf.lit(self.unit).alias(PRODUCER),
            sf.lit(DATA).cast("bigint").alias(COUNT),
        )
        if seals is None:
            return channel.commit(name, rows, keep_empty=keep_empty, staged=staged)
        session = frame.sparkSession
        return channel.commit(name, rows, more=lambda uri: self._punctuate(session, uri, seals))

    def _punctuate(self, session: SparkSession, uri: str, seals: Seals) -> None:
        """Add the punctuations of a release, each with the count of what was released (SE-3)."""
        stored = in_channel(self.schema)
        of_key = KeyColumns(stored, seals.columns).texts()
        staged = session.read.schema(stored).parquet(uri)
        counts = dict.fromkeys(seals.keys, 0)
        for *values, rows in staged.groupBy(*of_key).count().collect():
            key = key_text(["null" if value is None else value for value in values])
            if None in values or key not in counts:
                raise ValueError(
                    f"{self.unit} is to forward its seals on {', '.join(seals.columns)}, but put "
                    f"out records with {key}, which was not released with them"
                )
            counts[key] = rows
        given = session.createDataFrame(
            [(*key_values(key), rows) for key, rows in counts.items()],
            ", ".join([*(f"{column(c)} STRING" for c in seals.columns), f"{COUNT} BIGINT"]),
        )
        columns = [
            value_of(sf.col(column(f.name)), f.dataType).alias(f.name)
            if f.name in (*seals.columns, COUNT)
            else (sf.lit(self.unit) if f.name == PRODUCER else sf.lit(None).cast(f.dataType)).alias(
                f.name
            )
            for f in stored.fields
        ]
        given.select(columns).coalesce(1).write.mode("append").parquet(uri)

    def _to_sink(
        self,
        sink: Sink,
        name: str,
        rows: DataFrame,
        staged: Callable[[], object] | None = None,
    ) -> int:
        if sink.folders is not None:
            return sink.folders.commit(name, rows, staged=staged)
        writer = rows.write.format(sink.format).options(**sink.options).mode("append")
        writer.save(sink.path)
        if staged is not None:
            staged()
        return 0
