"""Symmetric hash join with a window, and requests answered from what has accumulated.

Both inputs arrive as one sequence of rows, told apart by a column (0: left, 1: right), with the
columns of both sides (null where they do not apply). A pair is produced when its later row arrives,
with that row's sequence number and, as discriminator, its place among the pairs of that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flux_runtime.operators.grouping import BYTES_PER_KEY, Slots
from flux_runtime.operators.rows import Batch, Ints, ints, sn_of, with_sn


class _Store:
    """Rows of one side, in order of arrival, with the slot and time of each."""

    def __init__(self) -> None:
        self.rows: Batch | None = None
        self.slots: Ints = np.zeros(0, np.int64)
        self.arrived: Ints = np.zeros(0, np.int64)
        self.times: Ints = np.zeros(0, np.int64)

    def add(self, rows: Batch, slots: Ints, arrived: Ints, times: Ints) -> None:
        self.rows = rows if self.rows is None else pa.concat_batches([self.rows, rows])
        self.slots = np.concatenate([self.slots, slots])
        self.arrived = np.concatenate([self.arrived, arrived])
        self.times = np.concatenate([self.times, times])

    def drop(self, kept: npt.NDArray[np.bool_]) -> None:
        if self.rows is not None and not kept.all():
            self.rows = self.rows.filter(pa.array(kept))
            self.slots, self.arrived = self.slots[kept], self.arrived[kept]
            self.times = self.times[kept]

    def matches(self, slots: Ints, arrived: Ints) -> tuple[Ints, Ints]:
        """(index of the probing row, index here) of all earlier rows here with the same slot."""
        order = np.lexsort((self.arrived, self.slots))
        span = int(max(arrived.max(initial=0), self.arrived.max(initial=0))) + 1
        keys = self.slots[order] * span + self.arrived[order]
        low = np.searchsorted(keys, slots * span)
        high = np.searchsorted(keys, slots * span + arrived)
        sizes = high - low
        probe = np.repeat(np.arange(len(slots)), sizes)
        within = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return probe, order[np.repeat(low, sizes) + within]

    def get_state(self) -> dict[str, Any]:
        return {
            "rows": self.rows,
            "slots": self.slots.copy(),
            "arrived": self.arrived.copy(),
            "times": self.times.copy(),
        }

    def install_state(self, state: dict[str, Any]) -> None:
        self.rows = state["rows"]
        self.slots, self.arrived = state["slots"].copy(), state["arrived"].copy()
        self.times = state["times"].copy()

    def size(self) -> int:
        held = self.rows.nbytes if self.rows is not None else 0
        return int(held + self.slots.nbytes + self.arrived.nbytes + self.times.nbytes)


class SymmetricHashJoin:
    """Joins rows of two sides with equal keys whose times differ by at most `history`.

    Args:
        keys: columns that must be equal; present on both sides.
        side: column that is 0 in left and 1 in right rows.
        left: columns taken from the left row.
        right: columns taken from the right row.
        time: column of timestamps; None joins regardless of time and keeps everything.
        history: largest difference of times; rows older than the newest by more are forgotten.
    """

    answers_left = True

    def __init__(
        self,
        keys: Sequence[str],
        side: str,
        left: Sequence[str],
        right: Sequence[str],
        *,
        time: str | None = None,
        history: int = 0,
    ) -> None:
        if time is not None and history < 0:
            raise ValueError(f"history {history} is a difference of times")
        self.slots = Slots(keys)
        self.side = side
        self.columns = (tuple(left), tuple(right))
        self.time = time
        self.history = history
        self.stores = (_Store(), _Store())
        self.seen = 0
        self.newest = np.iinfo(np.int64).min

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, the pairs that they complete out."""
        n = batch.num_rows
        slots, side = self.slots.of(batch), ints(batch, self.side)
        arrived = np.arange(self.seen, self.seen + n, dtype=np.int64)
        times = ints(batch, self.time) if self.time else np.zeros(n, np.int64)
        self.seen += n
        of_side = [np.flatnonzero(side == s) for s in (0, 1)]
        for store, rows in zip(self.stores, of_side, strict=True):
            store.add(batch.take(pa.array(rows)), slots[rows], arrived[rows], times[rows])
        pairs = [self._pairs(s, of_side[s], slots, arrived, times) for s in (0, 1)]
        made = self._output(batch, pairs)
        if self.time and n:
            self.newest = max(self.newest, int(times.max()))
            for store in self.stores:
                store.drop(store.times >= self.newest - self.history)
        return made

    def _pairs(
        self, side: int, rows: Ints, slots: Ints, arrived: Ints, times: Ints
    ) -> tuple[Ints, Ints]:
        """(row of this batch, row of the other side's store) of the pairs this side completes."""
        store = self.stores[1 - side]
        if store.rows is None or (side == 0 and not self.answers_left):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        probe, found = store.matches(slots[rows], arrived[rows])
        later = rows[probe]
        if self.time:
            near = np.abs(store.times[found] - times[later]) <= self.history
            later, found = later[near], found[near]
        return later, found

    def _output(self, batch: Batch, pairs: Sequence[tuple[Ints, Ints]]) -> Batch:
        later = np.concatenate([pairs[0][0], pairs[1][0]])
        order = np.argsort(later, kind="stable")
        columns, fields = [], []
        for side, names in enumerate(self.columns):
            store = self.stores[side]
            here = batch.take(pa.array(pairs[side][0]))
            there = pairs[1 - side][1]
            for name in names:
                parts = [here.column(name)]
                if store.rows is not None:
                    other = store.rows.column(name).take(pa.array(there))
                    parts = [parts[0], other] if side == 0 else [other, parts[0]]
                columns.append(pa.concat_arrays(parts).take(pa.array(order)))
                fields.append(batch.schema.field(name))
        later = later[order]
        b, o, _ = sn_of(batch)
        first = np.r_[True, later[1:] != later[:-1]] if len(later) else np.zeros(0, bool)
        starts = np.flatnonzero(first)
        sizes = np.diff(np.r_[starts, len(later)])
        sub = np.arange(len(later)) - np.repeat(starts, sizes)
        return with_sn(columns, fields, [b[later], o[later], sub])

    def get_state(self) -> dict[str, Any]:
        """Keys, the rows of both sides, and how far arrival and time have come."""
        return {
            "keys": self.slots.get_state(),
            "stores": [store.get_state() for store in self.stores],
            "seen": self.seen,
            "newest": self.newest,
        }

    def install_state(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        self.slots.install_state(state["keys"])
        for store, held in zip(self.stores, state["stores"], strict=True):
            store.install_state(held)
        self.seen, self.newest = state["seen"], state["newest"]

    def state_size(self) -> int:
        """Bytes of the state."""
        return len(self.slots) * BYTES_PER_KEY + sum(store.size() for store in self.stores)


class Answer(SymmetricHashJoin):
    """Answers each request (side 1) from all that has been written before it (side 0)."""

    answers_left = False

    def process(self, batch: Batch) -> Batch:
        """Writes and requests of one batch in, answers out; requests are not kept."""
        made = super().process(batch)
        requests = self.stores[1]
        requests.drop(np.zeros(len(requests.slots), bool))
        return made
