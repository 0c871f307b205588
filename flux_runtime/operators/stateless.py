"""Filter and map: one row in, at most one row out, with the same sequence number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from flux_runtime.operators.rows import Batch, data_fields, sn_of, with_sn


class Filter:
    """Keeps the rows that a function of the batch says so.

    Args:
        keep: batch -> boolean array, one value per row.
    """

    def __init__(self, keep: Callable[[Batch], Any]) -> None:
        self.keep = keep

    def process(self, batch: Batch) -> Batch:
        """The rows that are kept."""
        return batch.filter(pa.array(self.keep(batch)))

    def process_parts(self, parts: Sequence[tuple[int, Batch]]) -> list[Batch]:
        """Batches of several partitions in, what each produces out."""
        return [self.process(batch) for _, batch in parts]

    def get_state(self, partition: int = 0) -> None:
        """There is none."""

    def install_state(self, state: None, partition: int = 0) -> None:
        """There is none."""

    def drop(self, partition: int) -> None:
        """There is none."""

    def state_size(self) -> int:
        """There is none."""
        return 0


class Map:
    """Replaces the data columns row by row; sequence numbers stay.

    Args:
        function: batch -> batch of the new data columns, as many rows.
    """

    def __init__(self, function: Callable[[Batch], Batch]) -> None:
        self.function = function

    def process(self, batch: Batch) -> Batch:
        """The mapped rows.

        Raises:
            ValueError: the function changed the number of rows.
        """
        mapped = self.function(batch)
        if mapped.num_rows != batch.num_rows:
            raise ValueError(f"a map gave {mapped.num_rows} rows for {batch.num_rows}")
        fields = data_fields(mapped.schema)
        return with_sn([mapped.column(f.name) for f in fields], fields, sn_of(batch))

    def process_parts(self, parts: Sequence[tuple[int, Batch]]) -> list[Batch]:
        """Batches of several partitions in, what each produces out."""
        return [self.process(batch) for _, batch in parts]

    def get_state(self, partition: int = 0) -> None:
        """There is none."""

    def install_state(self, state: None, partition: int = 0) -> None:
        """There is none."""

    def drop(self, partition: int) -> None:
        """There is none."""

    def state_size(self) -> int:
        """There is none."""
        return 0
