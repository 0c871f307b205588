"""Windowed group-by: how much is remembered (history), how often a result is produced (slide).

Many-to-one: an output row carries the sequence number of the row that completed it, which is the
largest that contributed. Time windows follow the timestamps in the data, never a clock (DET-2).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from flux_runtime.operators.grouping import BYTES_PER_KEY, Slots, grown, ranks
from flux_runtime.operators.rows import Batch, Ints, ints, sn_of, with_sn

NONE: Final = np.iinfo(np.int64).min
"""No pane yet."""

Floats = npt.NDArray[np.float64]

AGGREGATES: Final[Mapping[str, Callable[[Floats], Floats]]] = {
    "count": lambda window: np.full(len(window), window.shape[1], np.float64),
    "sum": lambda window: window.sum(axis=1),
    "avg": lambda window: window.mean(axis=1),
    "min": lambda window: window.min(axis=1),
    "max": lambda window: window.max(axis=1),
}


def _check(aggregates: Sequence[str]) -> tuple[str, ...]:
    unknown = [name for name in aggregates if name not in AGGREGATES]
    if unknown:
        raise ValueError(f"unknown aggregates {unknown}; there are {sorted(AGGREGATES)}")
    return tuple(aggregates)


class CountWindow:
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

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, the results they complete out, in their order."""
        slots = self.slots.of(batch)
        self.counts = grown(self.counts, len(self.slots))
        self.ring = grown(self.ring, len(self.slots))
        values = batch.column(self.value).to_numpy(zero_copy_only=False).astype(np.float64)
        rank, _ = ranks(slots)
        results = np.zeros((len(slots), len(self.aggregates)))
        due = np.zeros(len(slots), bool)
        for turn in range(int(rank.max()) + 1 if len(rank) else 0):
            rows = np.flatnonzero(rank == turn)  # each group at most once
            self._turn(rows, slots[rows], values[rows], results, due)
        return _output(batch, self.slots.names, self.value, self.aggregates, due, results)

    def _turn(
        self,
        rows: Ints,
        slots: Ints,
        values: Floats,
        results: Floats,
        due: npt.NDArray[np.bool_],
    ) -> None:
        counts = self.counts[slots]
        self.ring[slots, counts % self.history] = values
        self.counts[slots] = counts = counts + 1
        full = (counts >= self.history) & ((counts - self.history) % self.slide == 0)
        due[rows[full]] = True
        window = self.ring[slots[full]]
        for i, name in enumerate(self.aggregates):
            results[rows[full], i] = AGGREGATES[name](window)

    def get_state(self) -> dict[str, Any]:
        """Keys, how many rows each has had, and its last `history` values."""
        n = len(self.slots)
        return {
            "keys": self.slots.get_state(),
            "counts": self.counts[:n].copy(),
            "ring": self.ring[:n].copy(),
        }

    def install_state(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        self.slots.install_state(state["keys"])
        self.counts, self.ring = state["counts"].copy(), state["ring"].copy()

    def state_size(self) -> int:
        """Bytes of the state."""
        return len(self.slots) * (BYTES_PER_KEY + 8 + 8 * self.history)


class TimeWindow:
    """Aggregates each group over `history` units of time, every `slide` units of time.

    Time is cut into panes of `slide`; a result covers the `history / slide` panes up to the one
    that closed. A group's pane closes when a row of the group with a later pane arrives; later rows
    for a closed pane count into the current one.

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
        self.held: list[list[tuple[int, list[float]]]] = []

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch in, the results of the panes they close out."""
        slots = self.slots.of(batch)
        known = len(self.held)
        self.held += [[] for _ in range(len(self.slots) - known)]
        self.current = grown(self.current, len(self.slots), fill=NONE)
        pane = ints(batch, self.time) // self.slide
        values = batch.column(self.value).to_numpy(zero_copy_only=False).astype(np.float64)
        results = np.zeros((len(slots), len(self.aggregates)))
        due = np.zeros(len(slots), bool)
        for row, (slot, at, value) in enumerate(
            zip(slots.tolist(), pane.tolist(), values.tolist(), strict=True)
        ):
            held, now = self.held[slot], int(self.current[slot])
            if at > now:
                if held:
                    window = [v for p, vs in held if p > now - self.panes for v in vs]
                    due[row] = True
                    for i, name in enumerate(self.aggregates):
                        results[row, i] = AGGREGATES[name](np.array([window]))[0]
                self.current[slot] = now = at
                self.held[slot] = held = [h for h in held if h[0] > now - self.panes]
                held.append((now, []))
            held[-1][1].append(value)
        return _output(batch, self.slots.names, self.value, self.aggregates, due, results)

    def get_state(self) -> dict[str, Any]:
        """Keys, current panes, and the values of the panes that a result may still cover."""
        return {
            "keys": self.slots.get_state(),
            "current": self.current[: len(self.slots)].copy(),
            "held": [[(p, list(vs)) for p, vs in held] for held in self.held],
        }

    def install_state(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        self.slots.install_state(state["keys"])
        self.current = state["current"].copy()
        self.held = [[(p, list(vs)) for p, vs in held] for held in state["held"]]

    def state_size(self) -> int:
        """Bytes of the state."""
        values = sum(len(vs) for held in self.held for _, vs in held)
        return len(self.slots) * (BYTES_PER_KEY + 8) + 8 * values


def _output(
    batch: Batch,
    keys: Sequence[str],
    value: str,
    aggregates: Sequence[str],
    due: npt.NDArray[np.bool_],
    results: Floats,
) -> Batch:
    rows = np.flatnonzero(due)
    taken = batch.take(pa.array(rows))
    columns = [taken.column(name) for name in keys]
    columns += [pa.array(results[rows, i]) for i in range(len(aggregates))]
    fields = [taken.schema.field(name) for name in keys]
    fields += [pa.field(f"{name}_{value}", pa.float64()) for name in aggregates]
    return with_sn(columns, fields, sn_of(taken))
