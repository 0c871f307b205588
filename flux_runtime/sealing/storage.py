"""Small state files on a file system that every part of a job can reach.

The narrow part of a file system that the runtime needs: whole files written in one step, folders
moved in one step. Spark reads and writes the large files itself, under the same addresses.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit


class Storage(Protocol):
    """A folder and what is below it; names are relative paths with `/`."""

    def uri(self, name: str = "") -> str:
        """The address that Spark reads and writes."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file durably and in one step: readers see all of it or what was there before."""

    def names(self, name: str = "") -> list[str]:
        """What is in a folder, sorted; empty if there is no such folder."""

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of that name."""

    def move(self, source: str, target: str) -> None:
        """Rename a file or folder in one step; the target must not exist."""

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with everything in it; nothing if it is not there."""

    def at(self, name: str) -> Storage:
        """A folder below this one."""


class LocalStorage:
    """A folder of a local, or locally mounted, file system."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).absolute()

    def uri(self, name: str = "") -> str:
        """The `file:` URI, so that no default file system of Spark's gets in the way."""
        return self._path(name).as_uri()

    def read(self, name: str) -> bytes | None:
        """See `Storage`."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes) -> None:
        """See `Storage`; flushed to the disk."""
        path = self._path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        staged = path.with_name(f".{path.name}.{os.getpid()}")
        with staged.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(path)
        sync_folder(path.parent)

    def names(self, name: str = "") -> list[str]:
        """See `Storage`; without hidden files."""
        try:
            return sorted(p.name for p in self._path(name).iterdir() if p.name[0] != ".")
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, name: str) -> bool:
        """See `Storage`."""
        return self._path(name).exists()

    def move(self, source: str, target: str) -> None:
        """See `Storage`."""
        path = self._path(target)
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path(source).rename(path)
        sync_folder(path.parent)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        path = self._path(name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def at(self, name: str) -> LocalStorage:
        """See `Storage`."""
        return LocalStorage(self._path(name))

    def _path(self, name: str) -> Path:
        return self.root / name if name else self.root


def storage_at(location: str | Path) -> Storage:
    """The storage of a path or a `file:` URI.

    Raises:
        ValueError: another scheme.
    """
    if isinstance(location, Path):
        return LocalStorage(location)
    parts = urlsplit(location)
    if parts.scheme == "file":
        return LocalStorage(unquote(parts.path))
    if parts.scheme:
        raise ValueError(
            f"{location}: state and results must be on a mounted file system (a path or file://);"
            f" {parts.scheme}:// cannot rename a folder in one step from here"
        )
    return LocalStorage(location)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a crash of the machine."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
