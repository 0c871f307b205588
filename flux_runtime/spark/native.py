"""A unit whose component runs on streaming DataFrames, with Spark's own state."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame, SparkSession

from flux_runtime.spark import faults
from flux_runtime.spark.context import Context, file_name
from flux_runtime.spark.ends.dead_letters import BEHIND_WATERMARK
from flux_runtime.spark.ends.unreadable import Watch
from flux_runtime.spark.ends.watermark import dropped, marked
from flux_runtime.spark.feed import Feed
from flux_runtime.spark.frames import ARRIVED
from flux_runtime.spark.query import Query, SingleQuery, lag_of
from flux_runtime.spark.units import NativeUnit


class Native(SingleQuery):
    """A `NativeUnit` that runs: one query, one commit for each micro-batch."""

    def __init__(self, unit: NativeUnit, context: Context) -> None:
        self.unit = unit
        self.name = unit.name
        self.context = context
        self._rows_out = 0
        self._dead_letters = 0
        self._dropped = 0
        self._letters = context.dead_letters(unit)
        self._watch = Watch(context.session, self._letters, unit.name)
        self._feeds = [feed for _, feed in unit.inputs()]
        frame = unit.compute(unit.frames(self._stream))
        checkpoint = context.unit_state(unit).uri("checkpoint")
        self._query = Query(
            unit.name, frame, checkpoint, self._on_batch, output_mode=unit.output_mode
        )

    def finish(self) -> None:
        """See `Running`."""
        self._query.take_progress()
        self._report()

    def stop(self) -> None:
        """See `Running`."""
        self._query.take_progress()
        self._query.stop()
        self._report()

    def _stream(self, feed: Feed) -> DataFrame:
        watermark = self.unit.watermark
        by_arrival = watermark is not None and watermark[0] == ARRIVED
        rows = self._watch.stream(feed, arriving=by_arrival)
        if watermark is not None and watermark[0] in rows.columns:
            rows = marked(rows, self._feeds.index(feed), watermark)
        return feed.apply(rows)

    def _on_batch(self, frame: DataFrame, batch: int) -> None:
        output = self.context.outputs[self.unit.name]
        computed = False

        def staged() -> None:
            nonlocal computed
            computed = True
            self._keep(batch, frame.sparkSession)

        rows = output.commit(batch, frame, keep_empty=False, staged=staged)
        if not computed:  # committed before a crash: Spark's state has not seen it yet
            frame.write.format("noop").mode("overwrite").save()
        faults.point("native-committed")
        self._rows_out += rows
        self._report()

    def _keep(self, batch: int, session: SparkSession) -> None:
        """Write down what will not be processed, once the micro-batch has been computed."""
        self._dead_letters += self._watch.keep(self._query, batch)
        execution: Any = self._query.running._jsq.streamingQuery().lastExecution()
        lost = dropped(self.unit, execution, session)
        if not lost.rows:
            return
        self._dropped += lost.rows
        by_stream: dict[str, list[Any]] = {}
        for stream, record in lost.records or ():
            by_stream.setdefault(stream, []).append(record)
        for stream, records in by_stream.items():
            name = f"watermark-{file_name(self.name)}-{file_name(stream)}-{batch:09d}"
            letters = ((BEHIND_WATERMARK, record) for record in records)
            self._dead_letters += self._letters.keep(name, stream, batch, letters)
        self.context.run.event(
            "dropped_by_watermark",
            self.name,
            batch=batch,
            rows=lost.rows,
            watermark_ms=lost.watermark_ms,
            records=None if lost.records is None else len(lost.records),
        )

    def _report(self) -> None:
        query = self._query
        self.context.run.metrics(
            self.unit.name,
            batches=query.batches,
            rows_in=query.rows,
            rows_out=self._rows_out,
            rows_per_s=round(query.rows_per_s, 1),
            dead_letters=self._dead_letters,
            dropped_by_watermark=self._dropped,
            **lag_of(self.unit, [query]),
            **self.context.outputs[self.unit.name].metrics(),
        )
