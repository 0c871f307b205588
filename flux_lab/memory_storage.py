"""A site's disk in simulations: runs in memory, by value; it may be full for a while."""

from __future__ import annotations

import errno
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


class DiskFullError(OSError):
    """There is no room for a run; the partition keeps in memory what it could not write."""

    def __init__(self, node: Node) -> None:
        super().__init__(errno.ENOSPC, f"no room for a run of {node}")


class SimulatedDisk(MemoryStorage):
    """The disk of one site, with the runs that its partitions have spilled.

    Attributes:
        full: nothing more can be written for now.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full = False

    def write(self, node: Node, run: int, value: Any) -> int:
        """Keep a run.

        Raises:
            DiskFullError: the disk is full.
        """
        if self.full:
            raise DiskFullError(node)
        return super().write(node, run, value)
