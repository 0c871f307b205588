"""A site's disk in simulations: runs in memory, by value."""

from __future__ import annotations

import pickle
from typing import Any

from flux_runtime.protocol.vocabulary import Node


class MemoryStorage:
    """A `Storage` of the protocol; counts what a disk would have carried.

    Attributes:
        written: bytes written so far.
        loaded: bytes read so far.
    """

    def __init__(self) -> None:
        self.runs: dict[tuple[Node, int], bytes] = {}
        self.written = 0
        self.loaded = 0

    def __copy__(self) -> MemoryStorage:
        new = MemoryStorage()
        new.runs = self.runs.copy()
        new.written, new.loaded = self.written, self.loaded
        return new

    def write(self, node: Node, run: int, value: Any) -> int:
        """Keep a run."""
        data = pickle.dumps(value, protocol=5)
        self.runs[node, run] = data
        self.written += len(data)
        return len(data)

    def read(self, node: Node, run: int) -> Any:
        """A run that has been written and not dropped."""
        data = self.runs[node, run]
        self.loaded += len(data)
        return pickle.loads(data)

    def drop(self, node: Node, run: int) -> None:
        """The run is not needed any more."""
        del self.runs[node, run]
