"""One installed copy of a pair: how far it is, what has arrived for it, what it holds."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from flux_runtime.protocol.dataflow import Operator, Rows
from flux_runtime.resume.flow import Units
from flux_runtime.resume.messages import Copy


class Route(NamedTuple):
    """Consumers of one stage on one site that receive from a copy.

    Attributes:
        site: where they are.
        stage: of the consumers.
        slot: place of the producer pair among those that they read.
        parts: their partitions.
        pick: takes their units out of a row of columns.
    """

    site: int
    stage: int
    slot: int
    parts: tuple[int, ...]
    pick: Callable[[Units], Units]


class Replica:
    """One installed copy.

    Attributes:
        operator: None for ingress and egress.
        done: last batch that is processed, and whose output is held or no longer wanted.
        busy: the next batch is being processed.
        heads: slot -> last batch that has arrived in order (`hi` of RS-3).
        rows: batch -> a unit per slot, and at the end how many are still missing.
        sources: slot -> the copy that it receives from (`src` of RS-6).
        held: outputs of the last batches, a unit per column; the newest is that of `done`.
        subscribers: consumer copies that receive from this one.
        routes: the same by site; None if it has to be made anew.
        owed: announced copies that wait for the state -> whether it is to be taken now.
    """

    __slots__ = (
        "busy",
        "copy",
        "done",
        "heads",
        "held",
        "operator",
        "owed",
        "routes",
        "rows",
        "sources",
        "subscribers",
    )

    def __init__(self, copy: Copy, operator: Operator | None, slots: int, done: int) -> None:
        self.copy = copy
        self.operator = operator
        self.done = done
        self.busy = False
        self.heads = [done] * slots  # RS-13: no queue travels
        self.rows: dict[int, list[Rows]] = {}
        self.sources: list[Copy | None] = [None] * slots
        self.held: deque[Units] = deque()
        self.subscribers: dict[Copy, None] = {}
        self.routes: tuple[Route, ...] | None = None
        self.owed: dict[Copy, bool] = {}

    def __getstate__(self) -> tuple[object, ...]:
        """Everything; routes are made anew."""
        return tuple(None if name == "routes" else getattr(self, name) for name in self.__slots__)

    def __setstate__(self, state: tuple[object, ...]) -> None:
        for name, value in zip(self.__slots__, state, strict=True):
            setattr(self, name, value)

    def take(self, slot: int, batch: int, unit: Rows | None) -> bool:
        """RS-3: keep the unit if it is the next of its producer; gives whether a row is whole."""
        if self.heads[slot] + 1 != batch:
            return False  # come before, or behind a gap that a change of sources left
        self.heads[slot] = batch
        row = self.rows.get(batch)
        if row is None:
            slots = len(self.heads)
            row = self.rows[batch] = [None] * slots
            row.append(slots)
        row[slot] = unit
        row[-1] -= 1
        return bool(row[-1] == 0)

    def ready(self) -> bool:
        """Whether all units of the next batch are there."""
        row = self.rows.get(self.done + 1)
        return row is not None and row[-1] == 0 and not self.busy

    def begin(self) -> Sequence[Rows | None]:
        """Take the units of the next batch; `finish` follows."""
        row = self.rows.pop(self.done + 1)
        row.pop()
        self.busy = True
        return row

    def finish(self, units: Units, low: int) -> int:
        """RS-1: hold the output of the batch unless nobody wants it; gives its number."""
        self.busy = False
        self.done += 1
        if self.done > low:
            self.held.append(units)
        return self.done

    def release(self, low: int) -> None:
        """RS-5: every copy of every consumer has done so much."""
        while self.held and self.done - len(self.held) < low:
            self.held.popleft()

    def after(self, batch: int) -> list[tuple[int, Units]]:
        """RS-2: (batch, output) of what comes after a batch and is done.

        Raises:
            LookupError: some of it is released.
        """
        first = self.done - len(self.held) + 1
        if batch + 1 < min(first, self.done + 1):
            raise LookupError(f"{self.copy} holds {first} to {self.done}, wanted after {batch}")
        return [(n, self.held[n - first]) for n in range(max(batch + 1, first), self.done + 1)]
