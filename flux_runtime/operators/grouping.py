"""Keys to dense slot numbers, in the order of first appearance, so that state is arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from flux_runtime.operators.rows import Batch, Ints

BYTES_PER_KEY = 64
"""What a key costs in the table besides its values; measured for small tuples of integers."""


class Slots:
    """A growing table of keys; slot numbers depend only on the sequence of keys seen."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.table: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self.table)

    def of(self, batch: Batch) -> Ints:
        """The slot of every row; new keys get the next numbers."""
        columns = [batch.column(name).to_pylist() for name in self.names]
        keys: Sequence[Hashable] = (
            columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
        )
        table = self.table
        found = [table.get(key, -1) for key in keys]
        if -1 in found:
            found = [table.setdefault(key, len(table)) for key in keys]
        return np.array(found, np.int64)

    def get_state(self) -> list[Hashable]:
        """The keys in the order of their slots."""
        return list(self.table)

    def install_state(self, state: Sequence[Hashable]) -> None:
        """Replace the table."""
        self.table = {key: slot for slot, key in enumerate(state)}


def grown(array: npt.NDArray[Any], rows: int, fill: float = 0) -> npt.NDArray[Any]:
    """The array with room for at least `rows` rows, doubling."""
    if len(array) >= rows:
        return array
    wanted = max(rows, 2 * len(array), 16)
    more = np.full((wanted - len(array), *array.shape[1:]), fill, array.dtype)
    return np.concatenate([array, more])


def ranks(slots: Ints) -> tuple[Ints, Ints]:
    """Each row's number among the rows of its slot in this batch, and how many the slot has."""
    order = np.argsort(slots, kind="stable")
    sorted_slots = slots[order]
    first = np.r_[True, sorted_slots[1:] != sorted_slots[:-1]] if len(slots) else np.empty(0, bool)
    starts = np.flatnonzero(first)
    sizes = np.diff(np.r_[starts, len(slots)])
    rank = np.empty(len(slots), np.int64)
    rank[order] = np.arange(len(slots)) - np.repeat(starts, sizes)
    size = np.empty(len(slots), np.int64)
    size[order] = np.repeat(sizes, sizes)
    return rank, size
