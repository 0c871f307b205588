"""Sessions from start and end events: one row per session, when it ends (the running example)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from flux_runtime.operators.grouping import BYTES_PER_KEY, Slots, grown
from flux_runtime.operators.rows import Batch, Ints, ints, sn_of, with_sn

NONE = np.iinfo(np.int64).min
"""No session is open."""


class Sessions:
    """Emits a session's duration when its end arrives; an end without a start is dropped.

    A second start before the end begins the session anew. The output has the columns `keep` of the
    end event and `duration` in the units of `time`, with the end event's sequence number.

    Args:
        keys: columns that identify what has sessions, such as source and destination.
        time: column of timestamps.
        ends: integer or boolean column, non-zero in end events.
        keep: columns copied from the end event; the keys if left out.
    """

    def __init__(
        self, keys: Sequence[str], time: str, ends: str, *, keep: Sequence[str] | None = None
    ) -> None:
        self.time = time
        self.ends = ends
        self.keep = tuple(keep if keep is not None else keys)
        self.slots = Slots(keys)
        self.open: Ints = np.zeros(0, np.int64)

    def process(self, batch: Batch) -> Batch:
        """Events of one batch in, the sessions that end in it out."""
        slots = self.slots.of(batch)
        self.open = grown(self.open, len(self.slots), fill=NONE)
        time, end = ints(batch, self.time), ints(batch, self.ends) != 0
        order = np.argsort(slots, kind="stable")
        by_slot = slots[order]
        first = np.ones(len(order), bool)
        first[1:] = by_slot[1:] != by_slot[:-1]
        opened = np.where(end[order], NONE, time[order])
        before = np.r_[np.int64(NONE), opened[:-1]] if len(order) else opened
        before[first] = self.open[by_slot[first]]
        done = end[order] & (before != NONE)
        last = np.r_[first[1:], True] if len(order) else first
        self.open[by_slot[last]] = opened[last]
        rows = order[done]
        duration = (time[order] - before)[done]
        in_order = np.argsort(rows)
        taken = batch.take(pa.array(rows[in_order]))
        columns = [taken.column(name) for name in self.keep]
        fields = [taken.schema.field(name) for name in self.keep]
        return with_sn(
            [*columns, pa.array(duration[in_order])],
            [*fields, pa.field("duration", pa.int64())],
            sn_of(taken),
        )

    def get_state(self) -> dict[str, Any]:
        """Keys and when their open session began."""
        return {"keys": self.slots.get_state(), "open": self.open[: len(self.slots)].copy()}

    def install_state(self, state: dict[str, Any]) -> None:
        """Replace the state."""
        self.slots.install_state(state["keys"])
        self.open = state["open"].copy()

    def state_size(self) -> int:
        """Bytes of the state."""
        return len(self.slots) * (BYTES_PER_KEY + 8)
