"""Where a site keeps what does not fit into its memory: numbered runs of bytes per node.

The protocol writes whole runs in order and reads them back in order, so a storage needs neither
names nor random access (SP-3). It is a cache of this process's own state: nothing in it survives
the process, and a copy that dies is rebuilt from its partner, never from its disk.
"""

from __future__ import annotations

from typing import Protocol

from flux_runtime.protocol.vocabulary import Node


class Storage(Protocol):
    """Runs of bytes; a run is written once, read once or more, then dropped."""

    def write(self, node: Node, run: int, data: bytes) -> None:
        """Keep a run."""
        ...

    def read(self, node: Node, run: int) -> bytes:
        """A run that has been written and not dropped."""
        ...

    def drop(self, node: Node, run: int) -> None:
        """The run is not needed any more."""
        ...


class MemoryStorage:
    """A storage for simulations; counts what a disk would have carried.

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

    def write(self, node: Node, run: int, data: bytes) -> None:
        """Keep a run."""
        self.runs[node, run] = data
        self.written += len(data)

    def read(self, node: Node, run: int) -> bytes:
        """A run that has been written and not dropped."""
        data = self.runs[node, run]
        self.loaded += len(data)
        return data

    def drop(self, node: Node, run: int) -> None:
        """The run is not needed any more."""
        del self.runs[node, run]
