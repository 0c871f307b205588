"""What user code looked at while it was run: whether it would say the same again depends on it.

Python's own audit events tell of every file that is opened and every folder that is listed, those
of imports too; what leads outside (another process, a connection, a file that is written) cannot
be followed, and is told as the reason why an answer holds for this time only.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

_WRITES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_NO_FILES: Final = ("/dev/", "/proc/", "/sys/")
_OUTSIDE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "subprocess.Popen": "it starts a process",
        "os.system": "it starts a process",
        "os.posix_spawn": "it starts a process",
        "os.exec": "it starts a process",
        "os.fork": "it starts a process",
        "socket.connect": "it makes a connection",
        "os.remove": "it removes a file",
        "os.rename": "it renames a file",
    }
)
"""Audit event -> why what came after it need not come again."""


class Seen:
    """Everything that was looked at from now on."""

    def __init__(self) -> None:
        self.files: dict[str, None] = {}
        self.folders: dict[str, None] = {}
        self.searched: dict[str, None] = {}
        """Folders that were looked through for modules alone."""
        self.outside: str | None = None
        """Why the answer holds for this time only; None where nothing speaks against more."""
        self._before = frozenset(sys.modules)
        self._told: Mapping[str, Callable[..., None]] = {
            "open": self._open,
            "os.listdir": self._list,
            "os.scandir": self._list,
        }
        sys.addaudithook(self._hear)

    def to_json(self) -> dict[str, Any]:
        """Files and folders by their paths, with the files of modules that were imported."""
        for name in set(sys.modules) - self._before:
            file = getattr(sys.modules[name], "__file__", None)
            if isinstance(file, str):
                self.files[_absolute(file)] = None
        return {
            "files": list(self.files),
            "folders": list(self.folders),
            "searched": [each for each in self.searched if each not in self.folders],
            "outside": self.outside,
        }

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in self._told:
            self._told[event](*arguments)
        elif event in _OUTSIDE:
            self.outside = self.outside or _OUTSIDE[event]

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return
        where = _absolute(path)
        if "__pycache__" in where or where.startswith(_NO_FILES):
            return
        if isinstance(flags, int) and flags & _WRITES:
            self.outside = self.outside or f"it writes {where}"
        else:
            self.files[where] = None

    def _list(self, path: Any = None) -> None:
        if not isinstance(path, int):
            by = sys._getframe(2).f_code.co_filename
            folders = self.searched if by.startswith("<frozen importlib") else self.folders
            folders[_absolute(path or ".")] = None


def _absolute(path: Any) -> str:
    return str(Path(os.fsdecode(path)).absolute())
