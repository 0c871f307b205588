"""Symmetric hash join with a window, and requests answered from what has accumulated.

Both inputs arrive as one sequence of rows, told apart by a column (0: left, 1: right), with the
columns of both sides (null where they do not apply). A pair is produced when its later row arrives,
with that row's sequence number and, as discriminator, its place among the pairs of that row.

What is held of a side are a few runs of rows, each sorted by key and then by arrival, oldest run
first. A batch makes a new run, and runs of like size become one, so that a row is sorted a
logarithmic number of times and a batch looked up in as many runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from flux_runtime.operators.grouping import Bools, Slots, grown
from flux_runtime.operators.partitioned import Partitioned
from flux_runtime.operators.rows import SN, Batch, Ints, ints, with_sn

EVER: Final = np.iinfo(np.int64).min
"""Before every time."""
KEYS_MAX: Final = 4096
"""Keys that are kept at least, before the table is cleared of those without rows."""


class _Run(NamedTuple):
    """Rows sorted by slot, and by arrival within a slot."""

    rows: Batch
    slots: Ints
    times: Ints

    def where(self, chosen: Bools) -> _Run:
        return _Run(self.rows.filter(pa.array(chosen)), self.slots[chosen], self.times[chosen])

    def matches(self, slots: Ints) -> tuple[Ints, Ints]:
        """(place in `slots`, row here) of all rows with an equal slot."""
        return _spread(
            np.searchsorted(self.slots, slots), np.searchsorted(self.slots, slots, "right")
        )


def _spread(low: Ints, high: Ints) -> tuple[Ints, Ints]:
    """Each number i as often as high[i] - low[i] says, and the numbers from low[i] on."""
    sizes = high - low
    probe = np.repeat(np.arange(len(low)), sizes)
    within = np.arange(len(probe)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return probe, np.repeat(low, sizes) + within


def _sorted(rows: Batch, slots: Ints, times: Ints) -> _Run:
    order = np.argsort(slots, kind="stable")
    return _Run(rows.take(pa.array(order)), slots[order], times[order])


class _Store:
    """The rows of one side, as runs."""

    def __init__(self) -> None:
        self.runs: list[_Run] = []

    def add(self, run: _Run, alive: Callable[[_Run], Bools]) -> None:
        """Hold one more run; whenever runs are merged, rows that are not alive go."""
        self.runs.append(run)
        while len(self.runs) > 1 and len(self.runs[-2].slots) < 2 * len(self.runs[-1].slots):
            self.runs[-2:] = [_together(run.where(alive(run)) for run in self.runs[-2:])]

    def selected(self, chosen: Callable[[_Run], Bools]) -> _Run | None:
        """The chosen rows of all runs as one."""
        return _together(run.where(chosen(run)) for run in self.runs) if self.runs else None

    def change(self, changed_run: Callable[[_Run], _Run]) -> None:
        self.runs = [changed for run in self.runs if len((changed := changed_run(run)).slots)]

    def size(self) -> int:
        return sum(int(r.rows.nbytes) + r.slots.nbytes + r.times.nbytes for r in self.runs)


def _together(runs: Any) -> _Run:
    rows, slots, times = zip(*runs, strict=True)
    return _sorted(pa.concat_batches(list(rows)), np.concatenate(slots), np.concatenate(times))


class _Pairs(NamedTuple):
    """Pairs that rows of one side complete: the row of the batch, and the other side's row."""

    side: int
    later: Ints
    others: Batch
    found: Ints


class SymmetricHashJoin(Partitioned):
    """Joins rows of two sides with equal keys whose times differ by at most `history`.

    Args:
        keys: columns that must be equal; present on both sides.
        side: column that is 0 in left and 1 in right rows.
        left: columns taken from the left row.
        right: columns taken from the right row.
        time: column of timestamps; None joins regardless of time and keeps everything.
        history: largest difference of times; rows older than the newest by more are forgotten.
    """

    keeps_requests = True
    """Whether left rows are paired with right rows that came before them."""

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
        self.newest: Ints = np.zeros(0, np.int64)
        self.clear_at = 2 * KEYS_MAX

    def _run(self, batch: Batch, partition: Ints | int) -> tuple[Batch, Ints]:
        n = batch.num_rows
        slots, side = self.slots.of(batch, partition), ints(batch, self.side)
        times = ints(batch, self.time) if self.time else np.zeros(n, np.int64)
        highest = int(np.max(partition, initial=0))
        self.newest = grown(self.newest, highest + 1, fill=EVER)
        of_side = [np.flatnonzero(side == s) for s in (0, 1)]
        now = [
            _Run(batch.take(pa.array(rows)).select(self.columns[s]), slots[rows], times[rows])
            for s, rows in enumerate(of_side)
        ]
        pairs = [p for s in (0, 1) for p in self._pairs(s, of_side, now, slots, times)]
        joined, rows = self._output(batch, pairs)
        if self.time and n:
            if isinstance(partition, int):
                self.newest[partition] = max(self.newest[partition], times.max())
            else:
                np.maximum.at(self.newest, partition, times)
        for store, run, stored in zip(self.stores, now, (True, self.keeps_requests), strict=True):
            if stored and len(run.slots):
                store.add(_sorted(*run), self._alive)
        if len(self.slots) > self.clear_at:
            self._clear()
        return joined, rows

    def _oldest(self, slots: Ints) -> Ints:
        """The oldest time that is remembered in the partitions of these slots."""
        newest = self.newest[self.slots.partition[slots]]
        oldest: Ints = np.where(newest == EVER, EVER, newest - self.history)
        return oldest

    def _alive(self, run: _Run) -> Bools:
        if not self.time:
            return np.ones(len(run.slots), bool)
        alive: Bools = run.times >= self._oldest(run.slots)
        return alive

    def _pairs(
        self, side: int, of_side: Sequence[Ints], now: Sequence[_Run], slots: Ints, times: Ints
    ) -> list[_Pairs]:
        """The pairs that this side completes: with each older run, then within the batch."""
        mine, other = of_side[side], of_side[1 - side]
        if not len(mine) or (side == 0 and not self.keeps_requests):
            return []
        joins = []
        for run in self.stores[1 - side].runs:
            probe, matched = run.matches(slots[mine])
            later = mine[probe]
            if self.time:
                near = np.abs(run.times[matched] - times[later]) <= self.history
                near &= run.times[matched] >= self._oldest(slots[later])
                later, matched = later[near], matched[near]
            joins.append(_Pairs(side, later, run.rows, matched))
        order = np.argsort(slots[other], kind="stable")
        n = len(slots)
        keys = slots[other][order] * n + other[order]
        low = np.searchsorted(keys, slots[mine] * n)
        probe, at = _spread(low, np.searchsorted(keys, slots[mine] * n + mine))
        later, matched = mine[probe], order[at]
        if self.time:
            near = np.abs(now[1 - side].times[matched] - times[later]) <= self.history
            later, matched = later[near], matched[near]
        joins.append(_Pairs(side, later, now[1 - side].rows, matched))
        return [pairs for pairs in joins if len(pairs.later)]

    def _output(self, batch: Batch, pairs: Sequence[_Pairs]) -> tuple[Batch, Ints]:
        later = np.concatenate([np.zeros(0, np.int64), *(p.later for p in pairs)])
        order = np.argsort(later, kind="stable")
        columns, fields = [], []
        for side, names in enumerate(self.columns):
            for i, name in enumerate(names):
                pieces = [
                    batch.column(name).take(pa.array(p.later))
                    if p.side == side
                    else p.others.column(i).take(pa.array(p.found))
                    for p in pairs
                ] or [batch.column(name).slice(0, 0)]
                columns.append(pa.concat_arrays(pieces).take(pa.array(order)))
                fields.append(batch.schema.field(name))
        later = later[order]
        first = np.ones(len(later), bool)
        first[1:] = later[1:] != later[:-1]
        starts = np.flatnonzero(first)
        sub = np.arange(len(later)) - np.repeat(starts, np.diff(np.append(starts, len(later))))
        b, o, _ = (ints(batch, name) for name in SN)
        return with_sn(columns, fields, [b[later], o[later], sub]), later

    def _clear(self) -> None:
        """Forget keys without rows; again when there are twice as many as are left."""
        used = np.zeros(len(self.slots), bool)
        for store in self.stores:
            store.change(lambda run: run.where(self._alive(run)))
            for run in store.runs:
                used[run.slots] = True
        self._forget(used)
        self.clear_at = 2 * max(len(self.slots), KEYS_MAX)

    def _forget(self, remaining: Bools) -> None:
        """Forget all other slots; no row has one of them."""
        number = np.cumsum(remaining) - 1
        for store in self.stores:
            store.change(lambda run: run._replace(slots=number[run.slots]))
        self.slots.keep(remaining)

    def get_state(self, partition: int = 0) -> dict[str, Any]:
        """Keys, the rows of both sides that are remembered, and the newest time."""
        of_it = self.slots.partition == partition
        number = np.cumsum(of_it) - 1
        sides: list[tuple[Batch, Ints, Ints] | None] = []
        for store in self.stores:
            run = store.selected(lambda run: of_it[run.slots] & self._alive(run))
            if run is None or not len(run.slots):
                sides.append(None)
            else:
                sides.append((run.rows, number[run.slots], run.times))
        known = partition < len(self.newest)
        newest = int(self.newest[partition]) if known else EVER
        return {"keys": self.slots.get_state(of_it), "sides": sides, "newest": newest}

    def drop(self, partition: int) -> None:
        """Forget a partition."""
        remaining = self.slots.partition != partition
        for store in self.stores:
            store.change(lambda run: run.where(remaining[run.slots]))
        self._forget(remaining)
        if partition < len(self.newest):
            self.newest[partition] = EVER

    def _add(self, state: dict[str, Any], partition: int) -> None:
        slots = self.slots.install_state(state["keys"], partition)
        self.newest = grown(self.newest, partition + 1, fill=EVER)
        self.newest[partition] = state["newest"]
        for store, side in zip(self.stores, state["sides"], strict=True):
            if side is not None:
                rows, held, times = side
                store.add(_sorted(rows, slots[held], times), self._alive)

    def state_size(self) -> int:
        """Bytes of the state of all partitions."""
        keys = len(self.slots) * self.slots.bytes_per_slot() + self.slots.text_bytes()
        return keys + sum(store.size() for store in self.stores)


class Answer(SymmetricHashJoin):
    """Answers each request (side 1) from all that has been written before it (side 0)."""

    keeps_requests = False
