"""One streaming query: started, watched, and stopped between two micro-batches."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from flux_runtime.spark import faults
from flux_runtime.spark.checkpoint_errors import explained

OnBatch: TypeAlias = Callable[[DataFrame, int], int | None]
"""Processes a micro-batch; returns how many rows came in, None where only Spark knows that."""

_POLL_S: Final = 0.05
_COMMIT_WAIT_S: Final = 10.0
"""How long a stop waits for Spark to commit the micro-batch that has just been processed."""


class StoppedError(Exception):
    """A micro-batch began after the stop was asked for; it is processed when the job resumes."""


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
        self._frame = frame
        self._checkpoint = checkpoint
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
            .option("checkpointLocation", self._checkpoint)
            .foreachBatch(self._process)
        )
        if available_now:
            writer = writer.trigger(availableNow=True)
        elif trigger is not None:
            writer = writer.trigger(processingTime=trigger)
        self._stopping.clear()
        self._parked.clear()
        self._started.clear()
        try:
            self._query = writer.start()
        except Exception as error:
            raise explained(error, self._checkpoint) or error from error
        self._started.set()

    @property
    def active(self) -> bool:
        """Whether it is running. False also after a failure, which is then in `error`."""
        if self._query is None:
            return False
        if self._query.isActive:
            return True
        if self.error is None and not self._stopping.is_set():
            self.error = explained(self._query.exception(), self._checkpoint)
        return False

    def take_progress(self) -> None:
        """Take over Spark's own numbers of the last micro-batch that it has committed."""
        progress = None if self._query is None else self._query.lastProgress
        if progress is not None and progress.batchId > self._counted and progress.numInputRows:
            self._counted = progress.batchId
            self.rows += progress.numInputRows
            self.rows_per_s = progress.processedRowsPerSecond

    @property
    def running(self) -> StreamingQuery:
        """Spark's handle of it, also from within its first micro-batch."""
        self._started.wait()
        assert self._query is not None
        return self._query

    def files(self) -> list[str]:
        """The files that the running micro-batch reads, where its source is one of files."""
        execution: Any = self.running._jsq.streamingQuery().lastExecution()
        leaves = execution.logical().collectLeaves()
        found: list[str] = []
        for i in range(leaves.size()):
            leaf = leaves.apply(i)
            if leaf.getClass().getSimpleName() == "LogicalRelation":
                found += list(leaf.relation().inputFiles())
        return found

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
            try:
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
