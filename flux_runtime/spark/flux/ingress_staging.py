"""Staged and committed input of a Flux stage, on a file system that all can reach.

    staged/BATCH/PARTITION-UNIQUE.arrow   rows of one attempt of one task
    committed/BATCH.json                  which attempts count, and their places in the stream

A micro-batch that is done again may hold the same rows in other partitions and another order. What
was written into `committed` first is what counts: later attempts are deleted unread, so that the
records between two offsets of the stream never change. Specification 3, Spark to Flux.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from flux_runtime.sealing.storage import Storage
from flux_runtime.spark import faults

KEPT: Final = 10
"""Records of committed micro-batches that are kept; older ones are recognised by their number."""
ROWS_MAX: Final = 65_536
BYTES_MAX: Final = 4 << 20
"""Of one offer."""


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows of one attempt of one task; `file` is None where there were none."""

    query: str
    batch: int
    partition: int
    file: str | None
    rows: int


@dataclass(frozen=True, slots=True)
class Committed:
    """A micro-batch: records `first` to `first + rows - 1` of the stream, in these files."""

    query: str
    batch: int
    first: int
    files: tuple[tuple[str, int], ...]
    acknowledged: bool = False
    """The channel has all of it, and the files are not needed any more."""

    @property
    def end(self) -> int:
        """The first record after it."""
        return self.first + sum(rows for _, rows in self.files)


class OtherQuery(RuntimeError):  # noqa: N818 - what happened
    """The stream was fed by a query with another checkpoint."""


def stage(
    storage: Storage, batches: Iterator[Any], *, query: str, batch: int, partition: int
) -> Staged:
    """Write one task's rows durably.

    The file's name is used once ever: an attempt that comes too late overwrites nothing.
    """
    sink = pa.BufferOutputStream()
    writer = None
    rows = 0
    for part in batches:
        if part.num_rows:
            writer = writer or pa.ipc.new_stream(sink, part.schema)
            writer.write_batch(part)
            rows += part.num_rows
    if writer is None:
        return Staged(query, batch, partition, None, 0)
    writer.close()
    file = f"{partition:05d}-{uuid.uuid4().hex}.arrow"
    storage.write(f"staged/{batch:09d}/{file}", sink.getvalue().to_pybytes())
    return Staged(query, batch, partition, file, rows)


def discard(storage: Storage, staged: Sequence[Staged | None]) -> None:
    """Delete attempts that were given up."""
    for attempt in staged:
        if attempt is not None and attempt.file is not None:
            storage.delete(f"staged/{attempt.batch:09d}/{attempt.file}")


def commit(storage: Storage, batch: int, staged: Sequence[Staged | None]) -> Committed | None:
    """Decide which attempts count for a micro-batch, once; what was decided.

    Returns:
        None for a micro-batch that was acknowledged so long ago that only its number is known.

    Raises:
        OtherQuery: the stream belongs to a query with another checkpoint.
    """
    given = [attempt for attempt in staged if attempt is not None]
    newest = _newest(storage)
    query = next((a.query for a in given), newest.query if newest else "")
    if newest is not None and newest.query and query and newest.query != query:
        raise OtherQuery(
            f"{storage.uri()} belongs to the streaming query {newest.query}, and this is {query}: "
            "its checkpoint was deleted or replaced. Go back to that checkpoint, or start both "
            "sides afresh."
        )
    if newest is not None and batch <= newest.batch:
        return _read(storage, batch)
    files = [
        (a.file, a.rows) for a in sorted(given, key=lambda a: a.partition) if a.file is not None
    ]
    result = Committed(query, batch, 0 if newest is None else newest.end, tuple(files))
    _write(storage, result)
    return result


def rows_of(storage: Storage, committed: Committed) -> Iterator[tuple[int, Any]]:
    """(offset in the stream, rows) of a micro-batch that is not acknowledged, in order."""
    offset = committed.first
    for file, _ in committed.files:
        data = storage.read(f"staged/{committed.batch:09d}/{file}")
        if data is None:
            raise FileNotFoundError(f"{storage.uri(file)} disappeared")
        for part in pa.ipc.open_stream(pa.py_buffer(data)):
            step = max(1, min(ROWS_MAX, part.num_rows * BYTES_MAX // max(1, part.nbytes)))
            for at in range(0, part.num_rows, step):
                piece = part.slice(at, step)
                yield offset, piece
                offset += piece.num_rows


def acknowledged(storage: Storage, committed: Committed) -> None:
    """Note that the channel has a micro-batch, and forget its rows, and those of older ones."""
    done = Committed(
        committed.query, committed.batch, committed.first, committed.files, acknowledged=True
    )
    _write(storage, done)
    faults.point("input-acknowledged")
    for name in storage.names("staged"):
        if int(name) <= committed.batch:
            storage.delete(f"staged/{name}")
    for name in storage.names("committed")[:-KEPT]:
        storage.delete(f"committed/{name}")


def _newest(storage: Storage) -> Committed | None:
    names = storage.names("committed")
    return _read(storage, int(names[-1].removesuffix(".json"))) if names else None


def _read(storage: Storage, batch: int) -> Committed | None:
    data = storage.read(f"committed/{batch:09d}.json")
    if data is None:
        return None
    read = json.loads(data)
    return Committed(
        read["query"],
        read["batch"],
        read["first"],
        tuple((file, rows) for file, rows in read["files"]),
        read["acknowledged"],
    )


def _write(storage: Storage, committed: Committed) -> None:
    data = {
        "query": committed.query,
        "batch": committed.batch,
        "first": committed.first,
        "files": committed.files,
        "acknowledged": committed.acknowledged,
    }
    storage.write(f"committed/{committed.batch:09d}.json", json.dumps(data).encode())
