"""What is on the disk after a power cut: what was flushed, and nothing else.

`Disk` notes what every `os.fsync` of this process has flushed: the content of a file, or what names
are in a folder. `image` builds what a machine may find then, in the worst case: a file that was not
flushed is empty, a name that was not flushed is not there, a rename that was not flushed has not
happened. What other programs have written, Spark for example, counts as little as our own.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest


class Disk:
    """What is below a folder and has been flushed; what was there before counts as flushed."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.flushes = 0
        self.on_flush: Callable[[], None] = lambda: None
        self._contents: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self._fsync = os.fsync
        for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
            self._note_names(folder)
            for file in (path for path in folder.iterdir() if path.is_file()):
                self._contents[file.stat().st_ino] = file.read_bytes()
        monkeypatch.setattr(os, "fsync", self._noted)

    def image(self, target: Path) -> Path:
        """What a machine finds after the power is cut now, in another folder."""
        self._build(self.root.stat().st_ino, target)
        return target

    def _noted(self, descriptor: int) -> None:
        self._fsync(descriptor)
        status = os.fstat(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        if stat.S_ISDIR(status.st_mode):
            self._note_names(path)
        else:
            self._contents[status.st_ino] = path.read_bytes()
        self.flushes += 1
        self.on_flush()

    def _note_names(self, folder: Path) -> None:
        self._names[folder.stat().st_ino] = {
            entry.name: (entry.inode(), entry.is_dir()) for entry in os.scandir(folder)
        }

    def _build(self, inode: int, target: Path) -> None:
        target.mkdir(parents=True)
        for name, (below, is_folder) in self._names.get(inode, {}).items():
            if is_folder:
                self._build(below, target / name)
            else:
                (target / name).write_bytes(self._contents.get(below, b""))
