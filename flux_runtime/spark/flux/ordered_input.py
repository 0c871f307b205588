"""One input of a Flux stage: a streaming query whose micro-batches get a place in the order.

Tasks stage the records as Arrow (`ingress_staging`); the driver logs which attempts count and
offers them to the ordered channel, where each offer is a batch of its own (OR-1). A micro-batch
that Spark does again is recognised by its number, and what was logged is offered again.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from flux_runtime.operators.query import CLOCK, tagged_as
from flux_runtime.sealing.storage import Storage, storage_at
from flux_runtime.spark import faults
from flux_runtime.spark.ends.unreadable import Watch
from flux_runtime.spark.feed import Feed
from flux_runtime.spark.flux import ingress_staging
from flux_runtime.spark.flux.ingress_staging import BYTES_MAX, ROWS_MAX, Committed, Staged
from flux_runtime.spark.flux.ordered_channel import Channel, ChannelIngress
from flux_runtime.spark.frames import column, estimated_bytes
from flux_runtime.spark.query import Query

STAGED: Final = "file STRING, rows BIGINT, partition INT"
FEW_BYTES: Final = 1 << 20
"""Of files: a micro-batch of no more comes to the driver ..."""
FEW_MESSAGES: Final = 500
"""... and of so many messages, whose size nobody knows: a megabyte each at most, as a rule."""


class OrderedInput:
    """The records of one feed of one interface.

    Args:
        name: of the query, and of the stream in the order; it survives restarts.
        feed: where the records come from.
        schema: the columns of the interface.
        watch: keeps unreadable records as dead letters.
        folder: for the checkpoint and what is staged.
        channel: the order.
        interface: the interface's number, which the batches say in front of their columns.
        timed: whether they say behind them when Spark read the records: the time of the
            micro-batch, which is in its checkpoint, and the same when it is done again.
    """

    def __init__(
        self,
        name: str,
        feed: Feed,
        *,
        schema: StructType,
        watch: Watch,
        folder: Storage,
        channel: Channel,
        interface: int,
        timed: bool = False,
    ) -> None:
        self.name = name
        self.dead_letters = 0
        self.last: DataFrame | None = None
        """The last micro-batch in which records came."""
        self._interface = interface
        self._watch = watch
        self._staging = folder.at("staging")
        self._channel = channel
        self._end: ChannelIngress | None = None
        frame = feed.apply(watch.stream(feed)).select(
            *(sf.col(column(f.name)).cast(f.dataType).alias(f.name) for f in schema.fields)
        )
        if timed:
            frame = frame.withColumn(CLOCK, sf.unix_millis(sf.current_timestamp()))
        self.query = Query(name, frame, folder.uri("checkpoint"), self._on_batch)

    def close(self) -> None:
        """Stop after the running micro-batch."""
        self.query.stop()
        if self._end is not None:
            self._end.close()
            self._end = None

    def _on_batch(self, rows: DataFrame, batch: int) -> int:
        query = str(self.query.running.id)
        staged = self._staged(rows, query, batch)
        self.dead_letters += self._watch.keep(self.query, batch)
        faults.point("input-staged")
        given = staged or [Staged(query, batch, 0, None, 0)]
        committed = ingress_staging.commit(self._staging, batch, given)
        if committed is None or committed.acknowledged:
            ingress_staging.discard(self._staging, staged)
            return 0
        faults.point("input-logged")
        if committed.files:
            self.last = rows
        self._offer(committed)
        faults.point("input-offered")
        ingress_staging.acknowledged(self._staging, committed)
        return sum(rows for _, rows in committed.files)

    def _staged(self, rows: DataFrame, query: str, batch: int) -> list[Staged]:
        """The rows, durably; a few come to the driver, which is quicker than a task in Python."""
        if estimated_bytes(rows) <= FEW_BYTES or 0 < self.query.messages() <= FEW_MESSAGES:
            parts = iter(rows.toArrow().to_batches())
            return [
                ingress_staging.stage(self._staging, parts, query=query, batch=batch, partition=0)
            ]
        stage = partial(_stage, self._staging.uri(), query, batch)
        staged = rows.mapInArrow(stage, STAGED).collect()
        return [Staged(query, batch, r["partition"], r["file"], r["rows"]) for r in staged]

    def _offer(self, committed: Committed) -> None:
        if self._end is None:
            self._end = self._channel.ingress(self.name)
        for offset, rows in together(ingress_staging.rows_of(self._staging, committed)):
            self._end.offer(offset, tagged_as(rows, self._interface))
        self._end.flush()


def _stage(folder: str, query: str, batch: int, parts: Iterator[Any]) -> Iterator[Any]:
    """In a task: write its rows, and say where."""
    task = TaskContext.get()
    assert task is not None
    partition = task.partitionId()
    staged = ingress_staging.stage(
        storage_at(folder), parts, query=query, batch=batch, partition=partition
    )
    if staged.file is not None:
        yield pa.RecordBatch.from_pydict(
            {"file": [staged.file], "rows": [staged.rows], "partition": [partition]},
            schema=pa.schema(
                [("file", pa.string()), ("rows", pa.int64()), ("partition", pa.int32())]
            ),
        )


def together(pieces: Iterator[tuple[int, Any]]) -> Iterator[tuple[int, Any]]:
    """Neighbouring pieces as one, as far as a batch may be large: few batches cost less.

    What comes out depends on the pieces alone, so a repetition offers the same batches.
    """
    held: list[Any] = []
    first = rows = size = 0
    for offset, piece in pieces:
        if held and (rows + piece.num_rows > ROWS_MAX or size + piece.nbytes > BYTES_MAX):
            yield first, pa.concat_batches(held)
            held, rows, size = [], 0, 0
        if not held:
            first = offset
        held.append(piece)
        rows, size = rows + piece.num_rows, size + piece.nbytes
    if held:
        yield first, pa.concat_batches(held)
