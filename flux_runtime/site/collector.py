"""The far end of the dataflow: a pair that merges all results and keeps them until committed.

An egress that fails must not take acknowledged results with it. So results end in one more stage of
one partition, replicated like any other: its operator keeps what it is given and passes nothing on.
Readers outside read either copy; both hold the same sequence, so an offset means the same in both.

The offset of a reader is a number of batches of input: at offset n, the results of batches 0 to
n - 1 have been read. What batches give is a function of the input alone, so offsets stay right
whatever fails in between.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple

from flux_runtime.operators.rows import SN
from flux_runtime.protocol.dataflow import Dataflow, Operator, Rows
from flux_runtime.protocol.vocabulary import Pair, Shape

HELD_MAX_BYTES: Final = 64 << 20
"""Uncommitted results beyond which the collector takes no more, which in the end holds the source
back."""


class Collector:
    """Keeps results until they are committed; its output is empty.

    Args:
        held_max_bytes: see `full`.
    """

    def __init__(self, *, held_max_bytes: int = HELD_MAX_BYTES) -> None:
        self.held_max_bytes = held_max_bytes
        self.batches: list[int] = []
        self.rows: list[Rows] = []
        self.bytes = 0
        self.last = -1

    @property
    def full(self) -> bool:
        """Whether readers have to commit before more is taken."""
        return self.bytes >= self.held_max_bytes

    def process(self, batch: Rows) -> None:
        """Keep the results of one batch."""
        if batch.num_rows:
            self.last = batch.column(SN[0])[0].as_py()
            self.batches.append(self.last)
            self.rows.append(batch)
            self.bytes += batch.nbytes

    def after(self, offset: int, max_bytes: int) -> list[tuple[int, Rows]]:
        """Results of batches from `offset` on, at least one and else up to so many bytes."""
        result: list[tuple[int, Rows]] = []
        size = 0
        for i in range(bisect_left(self.batches, offset), len(self.batches)):
            size += self.rows[i].nbytes
            if result and size > max_bytes:
                break
            result.append((self.batches[i], self.rows[i]))
        return result

    def commit(self, offset: int) -> None:
        """NC-7: the results of all batches below `offset` are not needed any more."""
        gone = bisect_left(self.batches, offset)
        self.bytes -= sum(rows.nbytes for rows in self.rows[:gone])
        del self.batches[:gone], self.rows[:gone]

    def get_state(self) -> tuple[tuple[int, ...], tuple[Rows, ...], int]:
        """The batches that are held, and the last one that was."""
        return tuple(self.batches), tuple(self.rows), self.last

    def install_state(self, state: tuple[tuple[int, ...], tuple[Rows, ...], int]) -> None:
        """Hold this."""
        self.batches, self.rows, self.last = list(state[0]), list(state[1]), state[2]
        self.bytes = sum(rows.nbytes for rows in self.rows)

    def state_size(self) -> int:
        """Bytes held."""
        return self.bytes


class HeldResults(NamedTuple):
    """A collector, the offset that it has reached, and whether nothing comes behind that."""

    collector: Collector
    offset: int
    ended: bool


def collected(dataflow: Dataflow, *, held_max_bytes: int = HELD_MAX_BYTES) -> Dataflow:
    """The dataflow with a collector behind its last stage."""
    inner = dataflow.shape
    shape: Shape = dataclasses.replace(inner, widths=(*inner.widths, 1), progress_read=True)
    last = len(inner.widths)

    def operator(pair: Pair) -> Operator:
        if pair.stage == last:
            return Collector(held_max_bytes=held_max_bytes)
        return dataflow.operator(pair)

    def split(stage: int, rows: Rows, width: int) -> Mapping[int, Rows]:
        if stage > last:
            return {}
        if stage == last:
            return {0: rows} if rows.num_rows else {}
        return dataflow.split(stage, rows, width)

    return dataclasses.replace(dataflow, shape=shape, operator=operator, split=split)
