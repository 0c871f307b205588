"""The back of a segment: the operator's state, which may leave memory, and what then waits for it.

A partition on disk must go on receiving and acknowledging, or it would stall its producers and keep
their buffers full. So the front (inlets and merge) always stays in memory, and merged units are
appended to runs until the state is back (SP-3). Units are processed in the order in which they were
merged, one by one, as if they had just arrived: memory pressure changes when results come, never
what they are (DET-4).
"""

from __future__ import annotations

import copy
from collections import deque
from typing import Any, Final, NamedTuple

from flux_runtime.protocol.dataflow import Dataflow, InParts, Operator, Rows
from flux_runtime.protocol.spill import Storage, Unit
from flux_runtime.protocol.vocabulary import Node, ProtocolError

RUN_UNITS: Final = 16
"""Units that gather in memory before they are written as one run (SP-3: sequential reading)."""


class Run(NamedTuple):
    """Waiting units on disk: the run's number, the batch of its first unit, its bytes."""

    number: int
    first: int
    size: int


class Back:
    """An operator that may be evicted, and the units that wait for it.

    Attributes:
        operator: in its initial state while the real state is on disk.
        resident: whether the state is in memory.
        head: the oldest waiting units, in memory.
        runs: runs on disk, oldest first, behind `head`.
        tail: the newest waiting units, behind the runs.
    """

    __slots__ = (
        "dataflow",
        "head",
        "next_run",
        "node",
        "operator",
        "resident",
        "runs",
        "state_run",
        "storage",
        "tail",
    )

    def __init__(self, dataflow: Dataflow, node: Node, storage: Storage | None) -> None:
        self.dataflow = dataflow
        self.node = node
        self.storage = storage
        self.operator: Operator = dataflow.operator(node.pair)
        self.resident = True
        self.head: deque[Unit] = deque()
        self.runs: deque[Run] = deque()
        self.tail: list[Unit] = []
        self.next_run = 0
        self.state_run = Run(-1, 0, 0)

    def clone(self) -> Back:
        """An independent copy."""
        new = Back.__new__(Back)
        new.dataflow, new.node, new.resident = self.dataflow, self.node, self.resident
        new.head, new.runs, new.tail = self.head.copy(), self.runs.copy(), self.tail.copy()
        new.next_run, new.state_run = self.next_run, self.state_run
        new.storage = copy.copy(self.storage)
        new.operator = self.dataflow.operator(self.node.pair)
        new.operator.install_state(self.operator.get_state())
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (self.resident, *self.snapshot())

    @property
    def waiting(self) -> bool:
        """Whether units wait for the operator."""
        return bool(self.head or self.runs or self.tail)

    @property
    def first_batch(self) -> int:
        """The batch of the oldest waiting unit."""
        if self.head:
            return self.head[0].batch
        return self.runs[0].first if self.runs else self.tail[0].batch

    # ---- what waits

    def wait(self, batch: int, rows: Rows) -> None:
        """SP-3: keep a unit until the state is back; nothing is dropped."""
        self.tail.append(Unit(batch, rows))
        if len(self.tail) >= RUN_UNITS:
            self.runs.append(self._write(self.tail, self.tail[0].batch))
            self.tail = []

    def next(self) -> Unit:
        """The oldest waiting unit, which is now to be processed."""
        if not self.head:
            if self.runs:
                self.head = deque(self._read(self.runs.popleft()))
            else:
                self.head, self.tail = deque(self.tail), []
        return self.head.popleft()

    # ---- the state

    def evict(self) -> None:
        """SP-2, SP-4: write the state out and give its memory back."""
        if self.resident:
            self.state_run = self._write(self.operator.get_state(), 0)
            self.operator = self.dataflow.operator(self.node.pair)
            self.resident = False

    def activate(self) -> None:
        """SP-4, SP-5: read the state in; what waits is processed next."""
        if not self.resident:
            self.operator.install_state(self._read(self.state_run))
            self.resident = True

    def state_size(self) -> int:
        """Bytes of the operator's state, wherever it is."""
        return self.operator.state_size() if self.resident else self.state_run.size

    def waiting_size(self) -> int:
        """Bytes of the units that wait, in memory and on disk."""
        rows_size = self.dataflow.rows_size
        held = sum(rows_size(unit.rows) for unit in (*self.head, *self.tail))
        return held + sum(run.size for run in self.runs)

    # ---- movement

    def snapshot(self, *, rest: bool = False) -> tuple[Any, tuple[Unit, ...]]:
        """State and waiting units, as they travel (AMB-6): acknowledged, so nobody resends them.

        Args:
            rest: of the state only what its parts lack, which have travelled.
        """
        if rest:
            assert isinstance(self.operator, InParts)
            state = self.operator.rest()
        else:
            state = self.operator.get_state() if self.resident else self._load(self.state_run)
        on_disk = [unit for run in self.runs for unit in self._load(run)]
        return state, (*self.head, *on_disk, *self.tail)

    def install(self, state: Any, waiting: tuple[Unit, ...]) -> None:
        """CU-17: become what `snapshot` gave."""
        self.operator.install_state(state)
        self.head = deque(waiting)

    # ---- runs

    def _write(self, value: Any, first: int) -> Run:
        if self.storage is None:
            raise ProtocolError(f"{self.node} has no storage to spill to")
        number, self.next_run = self.next_run, self.next_run + 1
        return Run(number, first, self.storage.write(self.node, number, value))

    def _load(self, run: Run) -> Any:
        assert self.storage is not None
        return self.storage.read(self.node, run.number)

    def _read(self, run: Run) -> Any:
        value = self._load(run)
        assert self.storage is not None
        self.storage.drop(self.node, run.number)
        return value
