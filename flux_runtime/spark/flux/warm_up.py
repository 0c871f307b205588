"""New executors made ready for micro-batches while the others still do the work.

The first task of a JVM takes seconds where the next ones take a tenth of one: classes are loaded,
and Spark's generated code is compiled. An executor that Spark starts in the place of a lost one is
given such a task as soon as it has registered, and the micro-batch waits for it. So its slots are
taken at once by tasks that read the beginning of the last micro-batch again. Their rows go nowhere.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import InheritableThread, SparkContext
from pyspark.sql import DataFrame

from flux_runtime.spark.flux.sites import OnEvent

LOOK_S: Final = 1.0
MISSING_LOOK_S: Final = 0.02
"""Once one is lost: the other should be found before a micro-batch finds it ..."""
MISSING_S: Final = 60.0
"""... which comes within this time, as a rule."""


class WarmUp:
    """A watch over the executors of an application.

    Args:
        spark: the application.
        frames: the last micro-batch of each input, as `foreachBatch` was given it.
        on_event: takes note of an event: kind and fields.
        stopping: set when the job ends.
    """

    def __init__(
        self,
        spark: SparkContext,
        *,
        frames: Callable[[], list[DataFrame]],
        on_event: OnEvent,
        stopping: threading.Event,
    ) -> None:
        self._spark = spark
        self._context: Any = spark._jsc.sc()
        self._frames = frames
        self._on_event = on_event
        self._stopping = stopping

    def run(self) -> None:
        """Watch until the job ends; in local mode there is no other executor to come."""
        if self._context.isLocal():
            return
        try:
            self._watch()
        except Py4JError as error:  # the job goes on without
            self._on_event("executor_not_warmed_up", error=str(error))

    def _watch(self) -> None:
        known, lost_at = set(self._alive()), -math.inf
        while not self._stopping.wait(
            MISSING_LOOK_S if time.monotonic() < lost_at + MISSING_S else LOOK_S
        ):
            alive = set(self._alive())
            for executor in alive - known:
                self._warm(executor)
            if known - alive:
                lost_at = time.monotonic()
            known = alive

    def _alive(self) -> Iterator[str]:
        """Identities of the executors that are offered tasks."""
        scheduler = self._context.taskScheduler()
        for executor in str(self._context.getExecutorIds().mkString("\n")).split():
            if scheduler.isExecutorAlive(executor):
                yield executor

    def _warm(self, executor: str) -> None:
        """Take all slots of an executor, each with a task of its own."""
        frames = self._frames()
        summary = self._context.statusStore().executorSummary(executor)
        host = str(summary.hostPort()).rpartition(":")[0]
        tasks = [self._task(frame, f"executor_{host}_{executor}") for frame in frames]
        for task in tasks * int(summary.totalCores()):
            InheritableThread(target=task, daemon=True).start()
        self._on_event("executor_warmed_up", executor=executor, inputs=len(frames))

    def _task(self, frame: DataFrame, place: str) -> Callable[[], None]:
        """A job of one task at a place: it reads what reading a micro-batch to the driver does.

        Args:
            frame: the micro-batch.
            place: as `ExecutorCacheTaskLocation` writes it.
        """
        java: Any = self._spark._jvm
        tag = java.scala.reflect.ClassTag.Any()
        pin = java.scala.Tuple2("", java.PythonUtils.toSeq([place]))
        pinned = self._context.makeRDD(java.PythonUtils.toSeq([pin]), tag)
        rows: Any = frame._jdf
        batches = rows.toArrowBatchRdd(rows.queryExecution().executedPlan())
        job = pinned.cartesian(batches, tag)

        def run() -> None:
            with contextlib.suppress(Py4JError):  # files of long ago may have gone
                job.take(1)

        return run
