"""A site's disk in a world without a clock, which may be full for a while."""

from __future__ import annotations

import errno
from typing import Any

from flux_lab.memory_storage import MemoryStorage
from flux_runtime.protocol.vocabulary import Node


class DiskFullError(OSError):
    """There is no room for a run; the partition keeps in memory what it could not write."""

    def __init__(self, node: Node) -> None:
        super().__init__(errno.ENOSPC, f"no room for a run of {node}")


class SimulatedDisk(MemoryStorage):
    """What the partitions of one site have spilled.

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
