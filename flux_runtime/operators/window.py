"""Windowed group-by: how much is remembered (history), how often a result is produced (slide).

Many-to-one: an output row carries the sequence number of the row that completed it, which is the
largest that contributed. Time windows follow the timestamps in the data, never a clock (DET-2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flux_runtime.operators.grouping import Bools, Groups, Slots, grown
from flux_runtime.operators.partitioned import Partitioned
from flux_runtime.operators.rows import SN, Batch, Ints, ints, with_sn

NONE: Final = np.iinfo(np.int64).min
"""No pane yet."""

Floats = npt.NDArray[np.float64]


class Partial(NamedTuple):
    """Partial aggregates of windows or parts of them, one value per row."""

    rows: Floats
    total: Floats
    low: Floats
    high: Floats

    def with_(self, more: Partial, where: Bools) -> Partial:
        """Together with another part, where there is one."""
        return Partial(
            self.rows + np.where(where, more.rows, 0.0),
            self.total + np.where(where, more.total, 0.0),
            np.minimum(self.low, np.where(where, more.low, np.inf)),
            np.maximum(self.high, np.where(where, more.high, -np.inf)),
        )

    def of(self, chosen: Any) -> Partial:
        """Some of the rows."""
        return Partial(*(column[chosen] for column in self))


AGGREGATES: Final[Mapping[str, Callable[[Partial], Floats]]] = {
    "count": lambda window: window.rows,
    "sum": lambda window: window.total,
    "avg": lambda window: window.total / window.rows,
    "min": lambda window: window.low,
    "max": lambda window: window.high,
}


def _check(aggregates: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in aggregates if name not in AGGREGATES]
    if unknown:
        raise ValueError(f"unknown aggregates {unknown}; there are {sorted(AGGREGATES)}")
    return tuple(aggregates)


def _values(batch: Batch, name: str) -> Floats:
    values: Floats = batch.column(name).to_numpy(zero_copy_only=False).astype(np.float64)
    return values


class CountWindow(Partitioned):
    """Aggregates the last `history` rows of each group, every `slide` rows of the group.

    The first result of a group comes when its history is full (AMB-25).

    Args:
        keys: columns of the group; they are copied to the output.
        value: column that is aggregated.
        aggregates: names from `AGGREGATES`, one output column `NAME_VALUE` each.
        history: rows of a group that a result covers.
        slide: rows of a group from one result to the next.
    """

    def __init__(
        self,
        keys: Sequence[str],
        value: str,
        aggregates: Sequence[str] = ("max", "avg"),
        *,
        history: int = 2,
        slide: int = 1,
    ) -> None:
        if history < 1 or slide < 1:
            raise ValueError(f"history {history} and slide {slide} are positive counts of rows")
        self.value = value
        self.aggregates = _check(aggregates)
        self.history = history
        self.slide = slide
        self.slots = Slots(keys)
        self.counts: Ints = np.zeros(0, np.int64)
        self.ring: Floats = np.zeros((0, history))

    def _run(self, batch: Batch, partition: Ints | int) -> tuple[Batch, Ints]:
        slots = self.slots.of(batch, partition)
        self.counts = grown(self.counts, len(self.slots))
        self.ring = grown(self.ring, len(self.slots))
        groups = Groups(slots)
        values = _values(batch, self.value)[groups.order]
        before = self.counts[groups.slot]
        number = before + groups.rank + 1  # of each row in its group, from 1
        due = np.flatnonzero((number >= self.history) & ((number - self.history) % self.slide == 0))
        due = due[np.argsort(groups.order[due])]
        results = self._results(due, groups, values, number)
        first = groups.starts
        last_ones = groups.rank >= np.repeat(groups.sizes, groups.sizes) - self.history
        self.ring[groups.slot[last_ones], (number[last_ones] - 1) % self.history] = values[
            last_ones
        ]
        self.counts[groups.slot[first]] = before[first] + groups.sizes
        rows = groups.order[due]
        return _output(batch, self.slots.names, self.value, self.aggregates, rows, results), rows

    def _results(self, due: Ints, groups: Groups, values: Floats, number: Ints) -> Partial:
        """The windows that end at these places: rows of this batch first, then what is held."""
        slot, rank, at = groups.slot[due], groups.rank[due], number[due]
        low = high = total = values[due]
        for back in range(1, self.history):
            held = self.ring[slot, (at - 1 - back) % self.history]
            one = np.where(rank >= back, values[np.maximum(due - back, 0)], held)
            low, high, total = np.minimum(low, one), np.maximum(high, one), total + one
        return Partial(np.full(len(due), float(self.history)), total, low, high)

    def get_state(self, partition: int = 0) -> dict[str, Any]:
        """Keys, how many rows each has had, and its last `history` values."""
        chosen = self.slots.partition == partition
        n = len(self.slots)
        return {
            "keys": self.slots.get_state(chosen),
            "counts": self.counts[:n][chosen],
            "ring": self.ring[:n][chosen],
        }

    def drop(self, partition: int) -> None:
        """Forget a partition."""
        remaining, n = self.slots.partition != partition, len(self.slots)
        self.slots.keep(remaining)
        self.counts, self.ring = self.counts[:n][remaining], self.ring[:n][remaining]

    def _add(self, state: dict[str, Any], partition: int) -> None:
        slots = self.slots.install_state(state["keys"], partition)
        self.counts = grown(self.counts, len(self.slots))
        self.ring = grown(self.ring, len(self.slots))
        self.counts[slots], self.ring[slots] = state["counts"], state["ring"]

    def state_size(self) -> int:
        """Bytes of the state of all partitions."""
        per_slot = self.slots.bytes_per_slot() + 8 + 8 * self.history
        return len(self.slots) * per_slot + self.slots.text_bytes()


class TimeWindow(Partitioned):
    """Aggregates each group over `history` units of time, every `slide` units of time.

    Time is cut into panes of `slide`; a result covers the `history / slide` panes up to the one
    that closed. A group's pane closes when a row of the group with a later pane arrives; later rows
    for a closed pane count into the current one. Per pane a count, a sum and both extremes are
    held, not the values.

    Args:
        keys: columns of the group.
        time: column of timestamps (integers or Arrow timestamps).
        value: column that is aggregated.
        aggregates: names from `AGGREGATES`.
        history: units of time that a result covers; a multiple of `slide`.
        slide: units of time from one result to the next.
    """

    def __init__(
        self,
        keys: Sequence[str],
        time: str,
        value: str,
        aggregates: Sequence[str] = ("count", "sum"),
        *,
        history: int,
        slide: int,
    ) -> None:
        if slide < 1 or history < slide or history % slide:
            raise ValueError(f"history {history} is a positive multiple of slide {slide}")
        self.time = time
        self.value = value
        self.aggregates = _check(aggregates)
        self.slide = slide
        self.panes = history // slide
        self.slots = Slots(keys)
        self.current: Ints = np.zeros(0, np.int64)
        self.pane: Ints = np.zeros((0, self.panes), np.int64)
        self.held = Partial(*(np.zeros((0, self.panes)) for _ in Partial._fields))

    def _room(self) -> None:
        n = len(self.slots)
        self.current = grown(self.current, n, fill=NONE)
        self.pane = grown(self.pane, n, fill=NONE)
        self.held = Partial(*(grown(column, n) for column in self.held))

    def _run(self, batch: Batch, partition: Ints | int) -> tuple[Batch, Ints]:
        slots = self.slots.of(batch, partition)
        self._room()
        groups = Groups(slots)
        pane = (ints(batch, self.time) // self.slide)[groups.order]
        pane = _highest_so_far(groups, np.maximum(pane, self.current[groups.slot]))
        values = _values(batch, self.value)[groups.order]
        opens = groups.first.copy()
        opens[1:] |= pane[1:] != pane[:-1]
        runs = np.flatnonzero(opens)  # rows of one group and one pane, next to one another
        parts = Partial(
            np.diff(np.append(runs, len(pane))).astype(np.float64),
            np.add.reduceat(values, runs) if len(runs) else values,
            np.minimum.reduceat(values, runs) if len(runs) else values,
            np.maximum.reduceat(values, runs) if len(runs) else values,
        )
        slot, first, pane = groups.slot[runs], groups.first[runs], pane[runs]
        was = np.where(first, self.current[slot], np.append(NONE, pane[:-1])[: len(pane)])
        due = np.flatnonzero((was != NONE) & (pane > was))
        due = due[np.argsort(groups.order[runs[due]])]
        results = self._closed(due, slot, first, pane, was, parts)
        self._keep(slot, first, pane, parts)
        rows = groups.order[runs[due]]
        return _output(batch, self.slots.names, self.value, self.aggregates, rows, results), rows

    def _closed(
        self, due: Ints, slot: Ints, first: Bools, pane: Ints, was: Ints, parts: Partial
    ) -> Partial:
        """The content of the panes up to `was` before these runs: held before, and earlier runs."""
        oldest = was[due] - self.panes
        zero = np.zeros(len(due))
        window = Partial(zero, zero, zero + np.inf, zero - np.inf)
        for i in range(self.panes):
            held = Partial(*(column[slot[due], i] for column in self.held))
            number = self.pane[slot[due], i]
            window = window.with_(held, (number > oldest) & (number != NONE))
        mine = ~first[due]
        for back in range(1, self.panes + 1):
            run = np.maximum(due - back, 0)
            mine = mine & (pane[run] > oldest)
            if not mine.any():
                break
            window = window.with_(parts.of(run), mine)
            mine = mine & ~first[run]
        return window

    def _keep(self, slot: Ints, first: Bools, pane: Ints, parts: Partial) -> None:
        """Hold the runs that a later result may still cover."""
        last = np.append(first[1:], True)[: len(first)]
        self.current[slot[last]] = pane[last]
        covered = pane > self.current[slot] - self.panes
        slot, pane, parts = slot[covered], pane[covered], parts.of(covered)
        at = pane % self.panes
        held = Partial(*(column[slot, at] for column in self.held))
        merged = parts.with_(held, self.pane[slot, at] == pane)
        self.pane[slot, at] = pane
        for column, new in zip(self.held, merged, strict=True):
            column[slot, at] = new

    def get_state(self, partition: int = 0) -> dict[str, Any]:
        """Keys, current panes, and what is held of the panes that a result may still cover."""
        chosen, n = self.slots.partition == partition, len(self.slots)
        return {
            "keys": self.slots.get_state(chosen),
            "current": self.current[:n][chosen],
            "pane": self.pane[:n][chosen],
            "held": [column[:n][chosen] for column in self.held],
        }

    def drop(self, partition: int) -> None:
        """Forget a partition."""
        remaining, n = self.slots.partition != partition, len(self.slots)
        self.slots.keep(remaining)
        self.current, self.pane = self.current[:n][remaining], self.pane[:n][remaining]
        self.held = Partial(*(column[:n][remaining] for column in self.held))

    def _add(self, state: dict[str, Any], partition: int) -> None:
        slots = self.slots.install_state(state["keys"], partition)
        self._room()
        self.current[slots], self.pane[slots] = state["current"], state["pane"]
        for column, held in zip(self.held, state["held"], strict=True):
            column[slots] = held

    def state_size(self) -> int:
        """Bytes of the state of all partitions."""
        per_slot = self.slots.bytes_per_slot() + 8 + 5 * 8 * self.panes
        return len(self.slots) * per_slot + self.slots.text_bytes()


def _highest_so_far(groups: Groups, pane: Ints) -> Ints:
    """For each row the highest pane of its group up to there."""
    if not len(pane):
        return pane
    lowest, highest = int(pane.min()), int(pane.max())
    span = highest - lowest + 1
    group = np.repeat(np.arange(len(groups.starts)), groups.sizes)
    if span * len(groups.starts) >= 1 << 62:
        panes, code = np.unique(pane, return_inverse=True)
        highest_panes: Ints = panes[np.maximum.accumulate(group * len(panes) + code) % len(panes)]
        return highest_panes
    lifted: Ints = np.maximum.accumulate(group * span + (pane - lowest)) - group * span + lowest
    return lifted


def _output(
    batch: Batch,
    keys: Sequence[str],
    value: str,
    aggregates: Sequence[str],
    rows: Ints,
    results: Partial,
) -> Batch:
    taken = pa.array(rows)
    columns = [batch.column(name).take(taken) for name in keys]
    columns += [pa.array(AGGREGATES[name](results)) for name in aggregates]
    fields = [batch.schema.field(name) for name in keys]
    fields += [pa.field(f"{name}_{value}", pa.float64()) for name in aggregates]
    return with_sn(columns, fields, [ints(batch, name)[rows] for name in SN])
