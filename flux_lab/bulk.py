"""Rows that only count: for experiments on time, where what the rows say does not matter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Pair, Shape


class Bulk(NamedTuple):
    """`rows` rows of `row_bytes` each, fed at time `born` (seconds); made by partition `of`."""

    rows: float
    row_bytes: float
    born: float
    of: int = 0


class BulkOperator:
    """Gives `selectivity` rows of `row_bytes` for each row.

    Args:
        selectivity: output rows per input row.
        row_bytes: size of an output row.
        state_bytes: size of the state.
    """

    def __init__(self, *, selectivity: float, row_bytes: float, state_bytes: int) -> None:
        self.selectivity = selectivity
        self.row_bytes = row_bytes
        self.state_bytes = state_bytes
        self.rows = 0.0

    def process(self, batch: Bulk) -> Bulk:
        """As many rows as the selectivity says."""
        self.rows += batch.rows
        return Bulk(batch.rows * self.selectivity, self.row_bytes, batch.born, batch.of)

    def get_state(self) -> float:
        """Rows seen."""
        return self.rows

    def install_state(self, state: float) -> None:
        """Rows seen."""
        self.rows = state

    def state_size(self) -> int:
        """The size that the configuration says."""
        return self.state_bytes


def split(stage: int, rows: Bulk, width: int) -> Mapping[int, Bulk]:
    """An equal share for every partition."""
    if width == 1:
        return {0: rows}
    return {i: rows._replace(rows=rows.rows / width, of=i) for i in range(width)}


def merge(parts: Sequence[Bulk]) -> Bulk:
    """All rows together, born when the oldest was; one part stays that of its producer."""
    if len(parts) == 1:
        return parts[0]
    return Bulk(
        sum(part.rows for part in parts), parts[0].row_bytes, min(part.born for part in parts)
    )


def bulk_dataflow(
    shape: Shape, *, selectivity: Sequence[float], row_bytes: Sequence[float], state: Sequence[int]
) -> Dataflow:
    """A dataflow of bulk operators.

    Args:
        shape: partitions and limits.
        selectivity: per stage, output rows per input row.
        row_bytes: per stage, size of an output row.
        state: per stage, bytes of state of one partition.
    """

    def operator(pair: Pair) -> BulkOperator:
        return BulkOperator(
            selectivity=selectivity[pair.stage],
            row_bytes=row_bytes[pair.stage],
            state_bytes=state[pair.stage],
        )

    return Dataflow(
        shape=shape,
        operator=operator,
        split=split,
        merge=merge,
        rows_size=lambda rows: int(rows.rows * rows.row_bytes),
    )
