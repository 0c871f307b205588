"""Disks of simulated machines: they fill up, and forget what was not flushed when power fails.

A `Folder` stands in a configuration where a path does. What a process has written is lost with the
process until it is flushed, and with the machine until it is synced; then any part of it may have
reached the disk.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator

from flux_lab.shell.kernel import Kernel

SYNC_S = 0.01
FIRST_HANDLE = 1 << 30
"""No real file has such a number."""


class Content:
    """The content of a file.

    Attributes:
        data: as every process sees it.
        safe: how many bytes of it survive the loss of power.
        entered: whether its name does.
    """

    def __init__(self) -> None:
        self.data = bytearray()
        self.safe = 0
        self.entered = False


class Disk:
    """One disk.

    Attributes:
        full: nothing can be written.
        files: path -> content.
        refused: how many writes were.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.full = False
        self.files: dict[str, Content] = {}
        self.handles: dict[int, Content] = {}
        self.refused = 0
        self.torn = 0

    def write(self, content: Content, data: bytes) -> None:
        """Append.

        Raises:
            OSError: it is full; a part of the data may have been written.
        """
        if self.full:
            self.refused += 1
            part = self.kernel.rng.randrange(len(data) + 1)
            content.data += data[:part]
            raise OSError(errno.ENOSPC, "no space left on device")
        content.data += data

    def sync(self, handle: int) -> None:
        """`os.fsync`."""
        content = self.handles.get(handle)
        if content is None:
            return  # of a real file
        self.kernel.block(self.kernel.rng.random() * SYNC_S)
        content.safe = len(content.data)

    def sync_folder(self, folder: Folder) -> None:
        """Names in a folder survive from now on."""
        for path in folder.iterdir():
            self.files[path.path].entered = True

    def lose_power(self) -> None:
        """Lose what was not synced, in part or altogether."""
        rng = self.kernel.rng
        for path, content in list(self.files.items()):
            loose = len(content.data) - content.safe
            if not content.entered and not content.safe and rng.random() < 0.5:
                del self.files[path]
            elif loose:
                self.torn += 1
                del content.data[content.safe + rng.randrange(loose + 1) :]


class File:
    """A file that is open for appending, with a buffer that is lost with its process."""

    def __init__(self, disk: Disk, content: Content) -> None:
        self._disk = disk
        self._content = content
        self._buffer = b""

    def write(self, data: bytes) -> None:
        """Into the buffer."""
        self._buffer += data

    def flush(self) -> None:
        """To the system."""
        data, self._buffer = self._buffer, b""
        process = self._disk.kernel.process
        process.sent += 1
        process.arrived += 1
        self._disk.write(self._content, data)

    def fileno(self) -> int:
        """The number that `Disk.sync` knows it by."""
        number = FIRST_HANDLE + len(self._disk.handles)
        for known, content in self._disk.handles.items():
            if content is self._content:
                return known
        self._disk.handles[number] = self._content
        return number

    def close(self) -> None:
        """Close; a process that is killed never comes to that."""
        if self._buffer and self._disk.kernel.thread is not None and self._alive():
            self.flush()

    def _alive(self) -> bool:
        return self._disk.kernel.process.alive


class Folder:
    """A path on a disk, with the part of `pathlib.Path` that the product uses there."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.disk = disk
        self.path = path

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.rpartition("/")[2]

    def __truediv__(self, name: str) -> Folder:
        return Folder(self.disk, f"{self.path}/{name}")

    def __lt__(self, other: Folder) -> bool:
        return self.path < other.path

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folder) and self.path == other.path

    def __hash__(self) -> int:
        return hash(self.path)

    def mkdir(self, **_: bool) -> None:
        """Folders are where files are."""

    def iterdir(self) -> Iterator[Folder]:
        """The files in it."""
        for path in sorted(self.disk.files):
            if path.rpartition("/")[0] == self.path:
                yield Folder(self.disk, path)

    def open(self, mode: str) -> File:
        """A new file, for writing."""
        assert mode == "wb"
        self.disk.files[self.path] = content = Content()
        return File(self.disk, content)

    def replace(self, target: Folder) -> None:
        """Rename; the new name is safe once its folder is synced."""
        content = self.disk.files.pop(self.path)
        content.entered = False
        self.disk.files[target.path] = content

    def read_bytes(self) -> bytes:
        """All of it."""
        return bytes(self.disk.files[self.path].data)

    def unlink(self, **_: bool) -> None:
        """Whoever has it open goes on writing where nobody reads."""
        self.disk.files.pop(self.path, None)
