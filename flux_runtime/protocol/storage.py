"""Where a site keeps what does not fit into its memory: numbered runs per node.

The protocol writes whole runs in order and reads them back in order, so a storage needs neither
names nor random access (SP-3). It is a cache of this process's own state: nothing in it survives
the process, and a copy that dies is rebuilt from its partner, never from its disk.
"""

from __future__ import annotations

from typing import Any, Protocol

from flux_runtime.protocol.vocabulary import Node


class Storage(Protocol):
    """Runs; one is written once, read once or more, then dropped."""

    def write(self, node: Node, run: int, value: Any) -> int:
        """Keep a value as a run; gives its size in bytes."""
        ...

    def read(self, node: Node, run: int) -> Any:
        """The value of a run that has been written and not dropped."""
        ...

    def drop(self, node: Node, run: int) -> None:
        """The run is not needed any more."""
        ...
