"""What is on the disk after a power cut, from the system calls of everything that wrote to it.

`strace` notes what processes create, write, rename and flush: Python, RocksDB's native code, Java.
`Disk` follows these calls. A file counts up to what was written when it was last flushed, a folder
has the entries that it had when it was last flushed; `image` builds that in another folder. This is
the least that POSIX promises; a machine may have kept more, so parts of it can be kept at random.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

CALLS: Final = (
    "openat,creat,open,write,pwrite64,writev,pwritev,pwritev2,sendfile,copy_file_range,ftruncate,"
    "truncate,fallocate,fsync,fdatasync,rename,renameat,renameat2,link,linkat,unlink,unlinkat,"
    "mkdir,mkdirat,rmdir"
)
_CALL: Final = re.compile(r"^(\d+)\s+(\w+)\((.*)\)\s+=\s+(-?\d+)(?:<.*>)?(?: .*)?$")
_UNFINISHED: Final = re.compile(r"^(\d+)\s+(.*) <unfinished \.\.\.>$")
_RESUMED: Final = re.compile(r"^(\d+)\s+<\.\.\. \w+ resumed>(.*)$")
_ARGUMENT: Final = re.compile(r'(?:AT_FDCWD|-?\d+)<[^>]*>|"(?:[^"\\]|\\.)*"(?:\.\.\.)?|[^,\s]+')


def tracing(trace: Path) -> tuple[str, ...]:
    """The beginning of a command whose processes are to be followed."""
    options = ("-f", "-y", "--seccomp-bpf", "-s", "4096", "-qq", "-e", "signal=none")
    return ("strace", *options, "-e", f"trace={CALLS}", "-o", str(trace))


def possible() -> bool:
    """Whether processes can be followed here."""
    if shutil.which("strace") is None:
        return False
    command = [*tracing(Path(os.devnull)), "true"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@dataclass(eq=False, slots=True)
class Node:
    """A file or a folder.

    Attributes:
        size: bytes of a file, as far as calls have told.
        flushed: bytes that are on the disk for certain; None: all that there are.
        entries: of a folder.
        flushed_entries: those that are on the disk for certain.
    """

    folder: bool = False
    size: int = 0
    flushed: int | None = None
    entries: dict[str, Node] = field(default_factory=dict)
    flushed_entries: dict[str, Node] = field(default_factory=dict)


class Disk:
    """What is in some folders of a folder; what is there when this is made counts as flushed.

    Args:
        root: the folder.
        names: of the folders in it.
    """

    def __init__(self, root: Path, names: Iterable[str]) -> None:
        self.root = root
        self.unflushed = 0
        """Files and folders of the last image that lost something."""
        self._names = frozenset(names)
        present = {name: _found(root / name) for name in self._names if (root / name).exists()}
        self._top = Node(folder=True, entries=present, flushed_entries=dict(present))

    def follow(self, trace: Path) -> None:
        """Take up the calls of a trace."""
        for name, arguments, result in calls(trace):
            if result >= 0:
                self._call(name, arguments, result)

    def image(self, target: Path, rng: random.Random, *, kept: float = 0.0) -> None:
        """Build what a machine finds.

        Args:
            target: must not exist.
            rng: says what is kept, though nobody flushed it.
            kept: share of that.
        """
        self.unflushed = 0
        contents: dict[Node, Path] = {}
        self._locate(self._top, self.root, contents)
        self._build(self._top, target, contents, lambda: rng.random() < kept)

    # ---- calls

    def _call(self, name: str, arguments: list[str], result: int) -> None:
        match name:
            case "openat" | "open" | "creat":
                path = _path(arguments, 0 if name != "openat" else None)
                flags = "O_CREAT|O_TRUNC" if name == "creat" else "".join(arguments)
                if "O_CREAT" in flags or "O_TRUNC" in flags:
                    self._opened(path, truncated="O_TRUNC" in flags)
            case "write" | "writev" | "pwrite64" | "pwritev" | "pwritev2":
                at = int(arguments[3]) if name.startswith("pw") else None
                self._written(_of_descriptor(arguments[0]), result, at)
            case "sendfile":
                self._written(_of_descriptor(arguments[0]), result, None)
            case "copy_file_range":
                self._written(_of_descriptor(arguments[2]), result, None)
            case "ftruncate" | "truncate":
                plain = name == "truncate"
                node = self._node(_text(arguments[0]) if plain else _of_descriptor(arguments[0]))
                if node is not None:
                    node.flushed = min(_known(node), int(arguments[1]))
                    node.size = int(arguments[1])
            case "fallocate":
                node = self._node(_of_descriptor(arguments[0]))
                if node is not None and "KEEP_SIZE" not in arguments[1]:
                    node.flushed = _known(node)
                    node.size = max(node.size, int(arguments[2]) + int(arguments[3]))
            case "fsync" | "fdatasync":
                node = self._node(_of_descriptor(arguments[0]))
                if node is not None:
                    node.flushed = None
                    node.flushed_entries = dict(node.entries)
            case "mkdir" | "mkdirat":
                self._put(_path(arguments, 0 if name == "mkdir" else None), Node(folder=True))
            case "rename" | "renameat" | "renameat2":
                plain = name == "rename"
                source = _text(arguments[0]) if plain else _path(arguments[:2], None)
                target = _text(arguments[1]) if plain else _path(arguments[2:4], None)
                node = self._take(source)
                if node is None and self._below(target):
                    node = _found(Path(target))  # from outside: nothing of it is flushed
                    node.flushed, node.flushed_entries = 0, {}
                if node is not None:
                    self._put(target, node)
            case "link" | "linkat":
                plain = name == "link"
                source = _text(arguments[0]) if plain else _path(arguments[:2], None)
                target = _text(arguments[1]) if plain else _path(arguments[2:4], None)
                node = self._node(source)
                if node is not None:
                    self._put(target, node)
            case _:  # unlink, unlinkat, rmdir
                self._take(_path(arguments, None if name == "unlinkat" else 0))

    def _opened(self, path: str, *, truncated: bool) -> None:
        node = self._node(path)
        if node is None:
            self._put(path, Node(flushed=0))
        elif truncated and not node.folder:
            node.size = node.flushed = 0

    def _written(self, path: str, count: int, at: int | None) -> None:
        node = self._node(path)
        if node is not None and count:
            start = node.size if at is None else at
            node.flushed = min(_known(node), start)
            node.size = max(node.size, start + count)

    def _below(self, path: str) -> bool:
        parts = self._parts(path)
        return parts is not None and bool(parts)

    def _parts(self, path: str) -> list[str] | None:
        if path == str(self.root):
            return []
        if not path.startswith(f"{self.root}/"):
            return None
        parts = path.removeprefix(f"{self.root}/").split("/")
        return parts if parts[0] in self._names else None

    def _node(self, path: str) -> Node | None:
        parts = self._parts(os.path.normpath(path))
        node: Node | None = None if parts is None else self._top
        for part in parts or ():
            node = None if node is None else node.entries.get(part)
        return node

    def _put(self, path: str, node: Node) -> None:
        folder, _, name = os.path.normpath(path).rpartition("/")
        parent = self._node(folder) if self._below(os.path.normpath(path)) else None
        if parent is not None:
            parent.entries[name] = node

    def _take(self, path: str) -> Node | None:
        folder, _, name = os.path.normpath(path).rpartition("/")
        parent = self._node(folder)
        return None if parent is None else parent.entries.pop(name, None)

    # ---- the image

    def _locate(self, node: Node, path: Path, contents: dict[Node, Path]) -> None:
        """Where the content of every node is now."""
        contents[node] = path
        for name, below in node.entries.items():
            self._locate(below, path / name, contents)

    def _build(
        self, node: Node, target: Path, contents: dict[Node, Path], keep: Callable[[], bool]
    ) -> None:
        if node not in contents:
            return  # deleted since, and that has come to the disk
        if not node.folder:
            content = contents[node].read_bytes()
            if node.flushed is not None and node.flushed < len(content) and not keep():
                self.unflushed += 1
                content = content[: node.flushed]
            target.write_bytes(content)
            return
        target.mkdir(parents=True)
        entries = node.flushed_entries
        if entries != node.entries:
            if keep():
                entries = node.entries
            else:
                self.unflushed += 1
        for name, below in entries.items():
            self._build(below, target / name, contents, keep)


def calls(trace: Path) -> Iterator[tuple[str, list[str], int]]:
    """(name, arguments, result) of every call, in the order in which they ended."""
    begun: dict[str, str] = {}
    with trace.open(encoding="utf-8", errors="surrogateescape") as lines:
        for line in lines:
            text = line.rstrip("\n")
            if interrupted := _UNFINISHED.match(text):
                begun[interrupted[1]] = interrupted[2]
                continue
            if resumed := _RESUMED.match(text):
                text = f"{resumed[1]} {begun.pop(resumed[1], '')}{resumed[2]}"
            if call := _CALL.match(text):
                yield call[2], _ARGUMENT.findall(call[3]), int(call[4])


def _found(path: Path) -> Node:
    """What is there now, as flushed."""
    if not path.is_dir():
        return Node(size=path.stat().st_size if path.exists() else 0)
    entries = {e.name: _found(e) for e in path.iterdir() if not e.is_symlink()}
    return Node(folder=True, entries=entries, flushed_entries=dict(entries))


def _known(node: Node) -> int:
    return node.size if node.flushed is None else node.flushed


def _of_descriptor(argument: str) -> str:
    """The path of `5</a/b>`."""
    return argument.partition("<")[2].removesuffix(">")


def _text(argument: str) -> str:
    raw = argument.removesuffix("...")[1:-1]
    return raw.encode().decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")


def _path(arguments: list[str], plain: int | None) -> str:
    """The path of a call: at that position, or after a folder's descriptor."""
    if plain is not None:
        return _text(arguments[plain])
    return str(Path(_of_descriptor(arguments[0])) / _text(arguments[1]))
