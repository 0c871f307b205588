"""Sessions from start and end events: one row per session, when it ends (the running example)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from flux_runtime.operators.grouping import Groups, Slots, grown
from flux_runtime.operators.partitioned import Partitioned
from flux_runtime.operators.rows import SN, Batch, Ints, ints, with_sn

NONE: Final = np.iinfo(np.int64).min
"""No session is open."""
CLOSED_MAX: Final = 4096
"""Keys without an open session that are kept at least, before the table is cleared of them."""


class Sessions(Partitioned):
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
        self.clear_at = 2 * CLOSED_MAX

    def _run(self, batch: Batch, partition: Ints | int) -> tuple[Batch, Ints]:
        slots = self.slots.of(batch, partition)
        self.open = grown(self.open, len(self.slots), fill=NONE)
        groups = Groups(slots)
        order, by_slot, first = groups.order, groups.slot, groups.first
        time, end = ints(batch, self.time)[order], (ints(batch, self.ends) != 0)[order]
        opened = np.where(end, NONE, time)
        before = np.append(NONE, opened[:-1])[: len(order)]
        before[first] = self.open[by_slot[first]]
        last = np.append(first[1:], True)[: len(order)]
        self.open[by_slot[last]] = opened[last]
        done = np.flatnonzero(end & (before != NONE))
        done = done[np.argsort(order[done])]
        rows = order[done]
        if len(self.slots) > self.clear_at:
            self._clear()
        return self._output(batch, rows, (time - before)[done]), rows

    def _output(self, batch: Batch, rows: Ints, duration: Ints) -> Batch:
        taken = pa.array(rows)
        columns = [batch.column(name).take(taken) for name in self.keep]
        fields = [batch.schema.field(name) for name in self.keep]
        return with_sn(
            [*columns, pa.array(duration)],
            [*fields, pa.field("duration", pa.int64())],
            [ints(batch, name)[rows] for name in SN],
        )

    def _clear(self) -> None:
        """Forget keys without an open session; again when there are twice as many as are left."""
        remaining = self.open[: len(self.slots)] != NONE
        self.open = self.open[: len(self.slots)][remaining]
        self.slots.keep(remaining)
        self.clear_at = 2 * max(len(self.slots), CLOSED_MAX)

    def get_state(self, partition: int = 0) -> dict[str, Any]:
        """Keys with an open session, and when it began."""
        n = len(self.slots)
        chosen = (self.slots.partition == partition) & (self.open[:n] != NONE)
        return {"keys": self.slots.get_state(chosen), "open": self.open[:n][chosen]}

    def drop(self, partition: int) -> None:
        """Forget a partition."""
        remaining, n = self.slots.partition != partition, len(self.slots)
        self.slots.keep(remaining)
        self.open = self.open[:n][remaining]

    def _add(self, state: dict[str, Any], partition: int) -> None:
        slots = self.slots.install_state(state["keys"], partition)
        self.open = grown(self.open, len(self.slots), fill=NONE)
        self.open[slots] = state["open"]

    def state_size(self) -> int:
        """Bytes of the open sessions of all partitions."""
        n = int(np.count_nonzero(self.open[: len(self.slots)] != NONE))
        return n * (self.slots.bytes_per_slot() + 8) + self.slots.text_bytes()
