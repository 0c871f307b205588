"""Small state files on a file system that every part of a job can reach.

The narrow part of a file system that the runtime needs: whole files written in one step, folders
moved in one step. Spark reads and writes the large files itself, under the same addresses.

An address is `file://` and the path **as it is**, because that is how Spark reads one: it does not
decode percent signs. `local_path` is the reverse. What Spark takes for a pattern or a scheme
(`NOT_IN_PATHS`) cannot be in a path.

The order of flushing, which whoever records that something is done relies on (`sync`, `move`): the
files of a staged folder, the folder, the rename, the folder it was renamed into.

Where a folder is `kept` by a `Keeper`, whatever is flushed below it goes there, too. What was told
up to a moment is kept in one step, before `write` or `move` returns or with `commit_kept`, so that
the keeper has what a power failure at that moment would leave on a disk.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import quote

NOT_IN_PATHS: Final = ":*?[]{}\\"
"""Characters that Spark reads as a pattern or a scheme, and that a path therefore cannot have."""

_SCHEME: Final = "file:"


class Keeper(Protocol):
    """Keeps elsewhere what is flushed below a folder; for any thread."""

    def written(self, file: Path) -> None:
        """A file has been written."""

    def flushed(self, folder: Path) -> None:
        """The files of a folder have been flushed, and which there are; not the folders in it."""

    def flushed_below(self, folder: Path) -> None:
        """The same for a folder and all folders below it."""

    def moved(self, source: Path, target: Path) -> None:
        """A file or folder has been renamed."""

    def deleted(self, path: Path) -> None:
        """A file or folder has been deleted."""

    def commit(self) -> None:
        """Return when all that was told has been kept, all of it in one step.

        Raises:
            FencedError: somebody else keeps the folder now.
        """


_keepers: dict[Path, Keeper] = {}


@contextlib.contextmanager
def keeping(folder: Path, keeper: Keeper) -> Iterator[None]:
    """Have a folder kept by a keeper meanwhile."""
    _keepers[folder] = keeper
    try:
        yield
    finally:
        del _keepers[folder]


def keeper_of(path: Path) -> Keeper | None:
    """Who keeps what is flushed at a path."""
    for folder, keeper in _keepers.items():
        if path.is_relative_to(folder):
            return keeper
    return None


def commit_kept() -> None:
    """Return when all that was flushed is kept: before anything outside of the state follows."""
    for keeper in [*_keepers.values()]:
        keeper.commit()


class Storage(Protocol):
    """A folder and what is below it; names are relative paths with `/`."""

    def uri(self, name: str = "") -> str:
        """The address that Spark reads and writes."""

    def read(self, name: str) -> bytes | None:
        """The content of a file; None if there is none."""

    def write(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """Write a file in one step: readers see all of it or what was there before.

        Args:
            name: of the file.
            data: its content.
            flush: return when it is on the disk. False: a crash of the machine may bring back what
                was there before, or leave an empty file.
        """

    def names(self, name: str = "") -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""

    def exists(self, name: str) -> bool:
        """Whether there is a file or folder of that name."""

    def sync(self, name: str) -> None:
        """Flush to the disk which names are in a folder."""

    def move(self, source: str, target: str) -> None:
        """Rename a file or folder in one step, durably; the target must not exist."""

    def delete(self, name: str) -> None:
        """Delete a file, or a folder with everything in it; nothing if it is not there."""

    def at(self, name: str) -> Storage:
        """A folder below this one."""


class LocalStorage:
    """A folder of a local, or locally mounted, file system."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).absolute()

    def uri(self, name: str = "") -> str:
        """`file://` and the path, so that no default file system of Spark's gets in the way."""
        return f"{_SCHEME}//{self._path(name)}"

    def read(self, name: str) -> bytes | None:
        """See `Storage`."""
        try:
            return self._path(name).read_bytes()
        except FileNotFoundError:
            return None

    def write(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """See `Storage`."""
        path = self._path(name)
        make_folder(path.parent)
        staged = path.with_name(f".{path.name}.{os.getpid()}")
        with staged.open("wb") as file:
            file.write(data)
            file.flush()
            if flush:
                os.fsync(file.fileno())
        staged.replace(path)
        keeper = keeper_of(path)
        if keeper is not None:
            keeper.written(path)
        if flush:
            _flush(path.parent)
            commit_kept()

    def names(self, name: str = "") -> list[str]:
        """See `Storage`; without hidden files."""
        try:
            return sorted(p.name for p in self._path(name).iterdir() if p.name[0] != ".")
        except (FileNotFoundError, NotADirectoryError):
            return []

    def exists(self, name: str) -> bool:
        """See `Storage`."""
        return self._path(name).exists()

    def sync(self, name: str) -> None:
        """See `Storage`."""
        sync_folder(self._path(name))

    def move(self, source: str, target: str) -> None:
        """See `Storage`."""
        path = self._path(target)
        make_folder(path.parent)
        self._path(source).rename(path)
        _flush(path.parent)
        keeper = keeper_of(path)
        if keeper is not None:
            keeper.moved(self._path(source), path)
            keeper.commit()

    def delete(self, name: str) -> None:
        """See `Storage`."""
        path = self._path(name)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
        keeper = keeper_of(path)
        if keeper is not None:
            keeper.deleted(path)

    def at(self, name: str) -> LocalStorage:
        """See `Storage`."""
        return LocalStorage(self._path(name))

    def _path(self, name: str) -> Path:
        return self.root / name if name else self.root


def storage_at(location: str | Path) -> Storage:
    """The storage of a path or a `file:` address.

    Raises:
        ValueError: another scheme.
    """
    return LocalStorage(location if isinstance(location, Path) else local_path(location))


def local_path(location: str) -> Path:
    """The path of a path or a `file:` address.

    Raises:
        ValueError: another scheme.

    >>> local_path("file:///jobs/50%20off/a b").as_posix()
    '/jobs/50%20off/a b'
    """
    if location.startswith(_SCHEME):
        path = location.removeprefix(_SCHEME)
        return Path("/" + path.removeprefix("//").lstrip("/"))
    if other := re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", location):
        raise ValueError(
            f"{location}: state and results must be on a mounted file system (a path or file://);"
            f" {other[0]}// cannot rename a folder in one step from here"
        )
    return Path(location)


def file_name(name: str) -> str:
    """A name as one component of a path.

    >>> file_name("Count.counts"), file_name("a/b")
    ('Count.counts', 'a%2Fb')
    """
    return quote(name, safe="._-")


def make_folder(folder: Path) -> None:
    """Make a folder and those above it, durably, unless they are there."""
    missing = []
    while not folder.is_dir():
        missing.append(folder)
        folder = folder.parent
    for created in reversed(missing):
        created.mkdir(exist_ok=True)
        sync_folder(created.parent)


def sync_folder(folder: Path) -> None:
    """Make renames in a folder survive a crash of the machine."""
    _flush(folder)
    keeper = keeper_of(folder)
    if keeper is not None:
        keeper.flushed(folder)


def _flush(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
