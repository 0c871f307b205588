"""Sorted runs: rows that are found by a hash, without reading the others.

A run is a folder of two files that is written once: `rows.arrow`, the rows in order of their hash,
in small compressed batches, and `hashes`, the hashes alone as 64-bit integers. A row is found by
binary search in the second, which is mapped into memory, and read from the one batch of the first
that holds it. What a look-up costs depends on how many rows it finds, on the logarithm of how many
there are, and on the number of runs; merging runs of equal level (`parts`) keeps
that number logarithmic, too.

Nothing here knows of Spark: rows are Arrow tables with the hash in `__hash`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

HASH: Final = "__hash"
"""The column of the hash: BIGINT, never null."""
ROWS_FILE: Final = "rows.arrow"
HASHES_FILE: Final = "hashes"
BATCH_ROWS: Final = 1024
"""Rows that are read, and decompressed, together; fewer where rows are long."""
BATCH_BYTES: Final = 1 << 17
TABLE_ROWS: Final = 1 << 18
"""Rows that are held in memory together; fewer where rows are long."""
TABLE_BYTES: Final = 1 << 26

_PER_BATCH: Final = b"batch_rows"

Hashes: TypeAlias = npt.NDArray[np.int64]
Combine: TypeAlias = Callable[[Any], Any]
"""Makes fewer rows out of the rows of one hash, or of several: table -> table, both with hash."""


def sorted_by_hash(table: Any) -> Any:
    """The rows of an Arrow table in order of their hash; of equal ones, as they were."""
    rows = table.combine_chunks()
    order = np.argsort(rows.column(HASH).to_numpy(), kind="stable")
    return rows.take(pa.array(order))


def distinct(hashes: Iterable[Hashes]) -> Hashes:
    """All hashes, once each, in order."""
    distinct_hashes = [np.unique(part) for part in hashes]
    return np.unique(np.concatenate(distinct_hashes)) if distinct_hashes else np.empty(0, np.int64)


def write(folder: Path, tables: Iterable[Any]) -> int:
    """Write a run of tables that are sorted, each after the one before; how many rows it has."""
    folder.mkdir(parents=True)
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    rows = 0
    with (folder / HASHES_FILE).open("wb") as hashes, (folder / ROWS_FILE).open("wb") as sink:
        writer = None
        for batch in _in_batches(tables):
            hashes.write(np.ascontiguousarray(batch.column(HASH).to_numpy(), "<i8").tobytes())
            own = batch.drop_columns([HASH])
            if writer is None:  # the first batch is full, unless it is the only one
                schema = own.schema.with_metadata({_PER_BATCH: str(own.num_rows).encode()})
                writer = pa.ipc.new_file(sink, schema, options=options)
            writer.write_batch(own.replace_schema_metadata(schema.metadata))
            rows += batch.num_rows
        if writer is None:
            raise ValueError(f"{folder}: a run has at least one row")
        writer.close()
    return rows


def _in_batches(tables: Iterable[Any]) -> Iterator[Any]:
    """The rows in batches of one size, all but the last."""
    held: Any = None
    size = 0
    for table in filter(len, tables):
        size = size or min(BATCH_ROWS, max(BATCH_BYTES * len(table) // (table.nbytes + 1), 1))
        joined = table if held is None else pa.concat_tables([held, table])
        full = len(joined) - len(joined) % size
        yield from _batches(joined.slice(0, full), size)
        held = joined.slice(full)
    if held is not None:
        yield from _batches(held, size)


def _batches(table: Any, size: int) -> Iterator[Any]:
    rows = table.combine_chunks()
    for start in range(0, len(rows), size):
        yield from rows.slice(start, size).to_batches()


class Run:
    """A run that is read.

    Args:
        folder: its two files, which do not change.
    """

    def __init__(self, folder: Path) -> None:
        self.hashes: Hashes = np.memmap(folder / HASHES_FILE, np.dtype("<i8"), "r")
        self._rows = pa.ipc.open_file(pa.memory_map(str(folder / ROWS_FILE)))
        self._per_batch = int(self._rows.schema.metadata[_PER_BATCH])

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def rows_in_memory(self) -> int:
        """How many of its rows may be held in memory together."""
        size = int(self._rows.get_batch(0).nbytes)
        return max(TABLE_BYTES * self._per_batch // (size + 1), 1)

    def select(self, hashes: Hashes) -> Iterator[Any]:
        """The rows that have one of some hashes, which are sorted and distinct, as batches."""
        first = np.searchsorted(self.hashes, hashes, "left")
        last = np.searchsorted(self.hashes, hashes, "right")
        rows = _ranges(first, last)
        if not rows.size:
            return
        numbers, starts = np.unique(rows // self._per_batch, return_index=True)
        for number, of_batch in zip(numbers, np.split(rows, starts[1:]), strict=True):
            batch = self._rows.get_batch(int(number))
            if len(of_batch) == batch.num_rows:
                yield batch
            else:
                yield batch.take(pa.array(of_batch - int(number) * self._per_batch))

    def slice(self, start: int, stop: int) -> Any:
        """The rows from one place to another, with their hashes, as a table."""
        numbers = range(start // self._per_batch, -(-stop // self._per_batch))
        rows = pa.Table.from_batches([self._rows.get_batch(i) for i in numbers])
        rows = rows.slice(start - numbers.start * self._per_batch, stop - start)
        return rows.append_column(HASH, pa.array(self.hashes[start:stop]))


def select(runs: Sequence[Run], hashes: Hashes) -> Iterator[Any]:
    """The rows of all runs that have one of some hashes, sorted and distinct, as tables."""
    held: list[Any] = []
    rows = size = 0
    for run in runs:
        for batch in run.select(hashes):
            held.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
            if rows >= TABLE_ROWS or size >= TABLE_BYTES:
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
    if held:
        yield pa.Table.from_batches(held)


def merged(runs: Sequence[Run], combine: Combine | None = None) -> Iterator[Any]:
    """The rows of all runs as sorted tables, each after the one before.

    Args:
        runs: what is merged; of equal hashes, rows of an earlier run come first.
        combine: makes fewer rows of them; rows of one hash are handed to it together.
    """
    limit = min([TABLE_ROWS, *(run.rows_in_memory for run in runs)])
    for low, high in _windows(runs, limit):
        ranges = [
            (
                run,
                int(np.searchsorted(run.hashes, low, "left")),
                int(np.searchsorted(run.hashes, high, "right")),
            )
            for run in runs
        ]
        if combine is None and low == high:  # of one hash there may be more than fit in memory
            for run, first, last in ranges:
                for place in range(first, last, limit):
                    yield run.slice(place, min(place + limit, last))
            continue
        tables = [run.slice(first, last) for run, first, last in ranges if first < last]
        if tables:
            table = pa.concat_tables(tables)
            yield sorted_by_hash(table if combine is None else combine(table))


def _windows(runs: Sequence[Run], limit: int) -> Iterator[tuple[int, int]]:
    """Ranges of hashes, both ends included, that follow each other, of about `limit` rows each.

    The rows of one hash are never apart, and where they alone are many, alone.
    """
    step = max(limit // len(runs), 1)
    samples = [run.hashes[::step] for run in runs]
    heavy = distinct(sample[1:][sample[1:] == sample[:-1]] for sample in samples)
    highest = max(int(run.hashes[-1]) for run in runs)
    after = [int(place) + 1 for place in heavy if int(place) < highest]
    lows = sorted({*distinct(samples).tolist(), *after})
    yield from zip(lows, [*(low - 1 for low in lows[1:]), highest], strict=True)


def _ranges(first: npt.NDArray[np.intp], last: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """All numbers from each first up to its last, in order."""
    lengths = last - first
    total = int(lengths.sum())
    if not total:
        return np.empty(0, np.intp)
    offsets = np.repeat(first - np.cumsum(lengths) + lengths, lengths)
    return offsets + np.arange(total)
