"""The ingress: a streaming sink that hands every record to a far side exactly once.

    session.dataSource.register(IngressSink)
    frame.writeStream.format("flux-ingress").options(
        **ingress_options("clicks", folder, far_side_options(...))
    ).option("checkpointLocation", ...).start()

Tasks stage their rows as Arrow; when Spark commits the micro-batch, the attempts that count are
logged, get their places in the stream, and are offered to the far side until it has acknowledged
them. A micro-batch that Spark commits again, because it was stopped before it could note the first
time, is recognised by its number: what was logged is offered again, and the far side drops what it
has. Acknowledged input is never lost: Spark goes on to the next micro-batch only after that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from flux_runtime.sealing.storage import LocalStorage, Storage, storage_at
from flux_runtime.spark import faults
from flux_runtime.spark.flux import ingress_staging
from flux_runtime.spark.flux.far_side import IngressEnd, open_far_side
from flux_runtime.spark.flux.ingress_staging import Staged

FORMAT: Final = "flux-ingress"
_BATCH: Final = "streaming.sql.batchId"
_QUERY: Final = "sql.streaming.queryId"

_open: dict[tuple[tuple[str, str], ...], IngressEnd] = {}
"""Connections of this process: Spark commits micro-batch after micro-batch in the same worker."""


def ingress_options(stream: str, folder: str | Path, far_side: Mapping[str, str]) -> dict[str, str]:
    """The sink's options.

    Args:
        stream: name of the stream on the far side; it survives restarts.
        folder: for what is staged: a folder that driver and executors reach, kept between runs.
        far_side: see `far_side_options`.
    """
    location = LocalStorage(folder).uri() if isinstance(folder, Path) else folder
    return {"stream": stream, "folder": location, **far_side}


@dataclass
class Message(WriterCommitMessage):
    """What a task tells the driver."""

    staged: Staged


class IngressSink(DataSource):
    """The streaming sink `flux-ingress`; options as `ingress_options` gives them."""

    @classmethod
    def name(cls) -> str:
        """The format."""
        return FORMAT

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802 - Spark's name
        """The writer of a query."""
        return IngressWriter(dict(self.options))


class IngressWriter(DataSourceStreamArrowWriter):
    """Stages in tasks, commits and aborts at the driver."""

    def __init__(self, options: Mapping[str, str]) -> None:
        for needed in ("stream", "folder"):
            if not options.get(needed):
                raise ValueError(f"option {needed} is missing")
        self._options = dict(options)

    def write(self, iterator: Iterator[Any]) -> Message:
        """Stage one task's rows."""
        task = TaskContext.get()
        assert task is not None
        staged = ingress_staging.stage(
            self._storage(),
            iterator,
            query=task.getLocalProperty(_QUERY) or "",
            batch=int(task.getLocalProperty(_BATCH) or 0),
            partition=task.partitionId(),
        )
        faults.point("ingress-staged")
        return Message(staged)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Hand a micro-batch over; returns when it is acknowledged."""
        storage = self._storage()
        faults.point("ingress-commit-begins")
        committed = ingress_staging.commit(storage, batchId, _staged(messages))
        if committed is None or committed.acknowledged:
            ingress_staging.discard(storage, _staged(messages))
            return
        try:
            end = self._ingress()
            for offset, rows in ingress_staging.rows_of(storage, committed):
                end.offer(batchId, offset, rows)
                faults.point("ingress-offered")
            end.flush()
        except BaseException:
            self._close()
            raise
        faults.point("ingress-flushed")
        ingress_staging.acknowledged(storage, committed)
        faults.point("ingress-committed")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Forget what was staged for a micro-batch that failed; Spark does it again."""
        ingress_staging.discard(self._storage(), _staged(messages))

    def _storage(self) -> Storage:
        return storage_at(self._options["folder"])

    def _ingress(self) -> IngressEnd:
        key = tuple(sorted(self._options.items()))
        if key not in _open:
            _open[key] = open_far_side(self._options).ingress(self._options["stream"])
        return _open[key]

    def _close(self) -> None:
        end = _open.pop(tuple(sorted(self._options.items())), None)
        if end is not None:
            with contextlib.suppress(Exception):
                end.close()


def _staged(messages: list[WriterCommitMessage | None]) -> list[Staged | None]:
    return [m.staged if isinstance(m, Message) else None for m in messages]
