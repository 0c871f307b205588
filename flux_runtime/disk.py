"""A site's disk for partitions that do not fit into memory (`flux_runtime.protocol.storage`)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final

from flux_runtime.operators.packing import Classes, pack, unpack
from flux_runtime.protocol.back import Unit
from flux_runtime.protocol.vocabulary import Node

RUNS: Final = Classes((Unit,), {})


def pack_run(value: Any) -> bytes:
    """An operator's state, or units that wait for it, as bytes."""
    return pack(value, classes=RUNS)


def unpack_run(data: bytes) -> Any:
    """What `pack_run` was given."""
    return unpack(data, classes=RUNS)


class FileStorage:
    """One file per run in a folder of its own.

    What an earlier process left there is deleted: no copy is ever rebuilt from its disk.

    Args:
        folder: created if missing, emptied if not; no other process may use it.
    """

    def __init__(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder

    def _path(self, node: Node, run: int) -> Path:
        return self.folder / ("-".join(map(str, (*node, run))) + ".run")

    def put(self, node: Node, run: int, data: bytes) -> None:
        """Write a run; it need not survive a crash, so nothing is synchronised."""
        self._path(node, run).write_bytes(data)

    def get(self, node: Node, run: int) -> bytes:
        """Read a run that has been written and not dropped."""
        return self._path(node, run).read_bytes()

    def write(self, node: Node, run: int, value: Any) -> int:
        """Keep a value; gives its size in bytes."""
        data = pack_run(value)
        self.put(node, run, data)
        return len(data)

    def read(self, node: Node, run: int) -> Any:
        """The value of a run."""
        return unpack_run(self.get(node, run))

    def drop(self, node: Node, run: int) -> None:
        """Delete a run."""
        self._path(node, run).unlink()
