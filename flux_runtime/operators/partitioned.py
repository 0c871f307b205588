"""One run of an operator over the batches of several partitions (section 6.2, hosting decision 6).

A site holds many partitions of a stage, and a batch of each is small. So the operator runs once
over all of them with the partition as part of the key; what it holds stays separable, since a
partition moves alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from flux_runtime.operators.rows import Batch, Ints


class Partitioned(ABC):
    """An operator over any number of partitions, numbered from 0, which share nothing."""

    def process(self, batch: Batch) -> Batch:
        """Rows of one batch of partition 0 in, the rows they produce out, in their order."""
        return self._run(batch, 0)[0]

    def process_parts(self, parts: Sequence[tuple[int, Batch]]) -> list[Batch]:
        """Batches of different partitions in, what each produces out: as if each were alone.

        Raises:
            ValueError: a partition comes twice; what it remembers may depend on where batches end.
        """
        if len({partition for partition, _ in parts}) < len(parts):
            raise ValueError(f"a partition comes twice among {[p for p, _ in parts]}")
        if len(parts) == 1:
            partition, batch = parts[0]
            return [self._run(batch, partition)[0]]
        sizes = [batch.num_rows for _, batch in parts]
        partition_of = np.repeat(np.array([p for p, _ in parts], np.int64), sizes)
        results, rows = self._run(pa.concat_batches([batch for _, batch in parts]), partition_of)
        bounds = np.searchsorted(rows, np.cumsum([0, *sizes])).tolist()
        return [results.slice(at, end - at) for at, end in pairwise(bounds)]

    @abstractmethod
    def _run(self, batch: Batch, partition: Ints | int) -> tuple[Batch, Ints]:
        """The resulting rows, and the row that each comes from, in ascending order."""

    @abstractmethod
    def get_state(self, partition: int = 0) -> dict[str, Any]:
        """A copy of what is held of a partition, as arrays."""

    @abstractmethod
    def drop(self, partition: int) -> None:
        """Forget a partition."""

    @abstractmethod
    def _add(self, state: dict[str, Any], partition: int) -> None:
        """Hold the state of a partition that is not held yet."""

    @abstractmethod
    def state_size(self) -> int:
        """Bytes of the state of all partitions."""

    def install_state(self, state: dict[str, Any], partition: int = 0) -> None:
        """Replace what is held of a partition by what `get_state` gave."""
        self.drop(partition)
        self._add(state, partition)
