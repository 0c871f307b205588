"""Manifests: what a folder of files holds, so that it can be checked before it is believed.

A chunk, a run or a commit is a folder that somebody else wrote, Spark as a rule. Once it is
written, `take` reads every file back, flushes the files and then the folders to the disk, and says
size and CRC32 of each. Whoever keeps that (in a journal, or in a catalogue beside the folder) can
`check` the folder whenever it is read: a file that is missing, that was added, cut short or changed
is refused as damage. A file that has been verified is not read again in the same process while its
inode, size and times stay as they were, so that a second check costs a `stat`.

Names that begin with `.` or `_` belong to file systems and writers, and are no part of a manifest.
`take` deletes Hadoop's checksums among them: Spark does not flush them, and one that a power cut
has left empty makes its file unreadable.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeAlias

from flux_runtime.sealing.storage import Storage, local_path, sync_folder

Files: TypeAlias = Mapping[str, tuple[int, int]]
"""Path below the folder, with `/` -> (bytes, CRC32)."""

REMEDY: Final = (
    "nothing was read from it and nothing was changed. Restore it from a copy of the same moment "
    "as the rest of the state, or begin anew with --fresh"
)
"""What to do where the caller knows nothing better."""

_BLOCK: Final = 1 << 20
_FLUSHERS: Final = 8
"""Files that are flushed at the same time: file systems take several in one go."""
_REMEMBERED: Final = 1 << 16
"""Files whose verification is remembered."""

_Stamp: TypeAlias = tuple[int, int, int, int]
"""Inode, size, time of modification and of change, in ns."""

_verified: OrderedDict[str, tuple[_Stamp, int]] = OrderedDict()
_lock = threading.Lock()


class DamagedError(Exception):
    """Kept files are not what was written.

    Args:
        place: what is damaged: an address.
        problem: what is wrong with it.
        remedy: what is safe, and how to go on.
    """

    def __init__(self, place: str, problem: str, remedy: str) -> None:
        super().__init__(f"{place}: {problem}; {remedy}")
        self.place = place
        self.problem = problem
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a folder.

    Args:
        rows: in all files.
        files: see `take`.
        covers: what the rows are, as JSON data: micro-batches, source offsets, keys.
    """

    rows: int
    files: Files
    covers: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        files = {name: list(size_and_crc) for name, size_and_crc in sorted(self.files.items())}
        return {"rows": self.rows, "files": files, "covers": dict(self.covers)}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Manifest:
        """The reverse of `to_json`.

        >>> Manifest.from_json(Manifest(3, {"a": (5, 7)}, {"batch": 1}).to_json())
        Manifest(rows=3, files={'a': (5, 7)}, covers={'batch': 1})
        """
        files = {name: (int(size), int(crc)) for name, (size, crc) in data["files"].items()}
        return Manifest(int(data["rows"]), files, data["covers"])


def take(storage: Storage, name: str) -> Files:
    """Size and CRC32 of every file of a folder, all of it flushed to the disk.

    Args:
        storage: must be on a mounted file system.
        name: of the folder.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    root = local_path(storage.uri(name))
    if not root.is_dir():
        raise FileNotFoundError(f"{storage.uri(name)} is no folder")
    for checksum in root.rglob(".*.crc"):
        checksum.unlink(missing_ok=True)
    present = list(_visible(root))
    with ThreadPoolExecutor(_FLUSHERS) as pool:
        contents = list(pool.map(_flush, present))
    names = [file.relative_to(root).as_posix() for file in present]
    files = dict(zip(names, contents, strict=True))
    below = {root / folder for name in files for folder in Path(name).parents}
    for folder in (*sorted(below | {root}, reverse=True), root.parent):  # the deepest first
        sync_folder(folder)
    return files


def check(
    storage: Storage, name: str, files: Files, *, contents: bool = True, remedy: str = REMEDY
) -> None:
    """Return if a folder holds just these files, with these contents.

    Args:
        storage: as for `take`.
        name: of the folder.
        files: what `take` gave.
        contents: whether files are read; else their sizes are compared.
        remedy: of the error.

    Raises:
        DamagedError: naming the first file that is not as it was, or the folder.
    """
    root = local_path(storage.uri(name))
    if not root.is_dir():
        raise DamagedError(storage.uri(name), "the folder is missing", remedy)
    present = {file.relative_to(root).as_posix() for file in _visible(root)}
    for differing, problem in (
        (sorted(files.keys() - present), "the file is missing"),
        (sorted(present - files.keys()), "the file was added by somebody else"),
    ):
        if differing:
            more = f" ({len(differing)} files are like this)" if len(differing) > 1 else ""
            raise DamagedError(storage.uri(f"{name}/{differing[0]}"), problem + more, remedy)
    for file, expected in files.items():
        difference = _difference(root / file, expected, contents)
        if difference is not None:
            raise DamagedError(storage.uri(f"{name}/{file}"), difference, remedy)


def _difference(file: Path, expected: tuple[int, int], contents: bool) -> str | None:
    """The difference of a file from what is expected; None where there is none."""
    size, crc = expected
    try:
        if not contents:
            actual = file.stat().st_size
            return None if actual == size else _resized(actual, size)
        with file.open("rb") as content:
            stamp = _stamp(os.fstat(content.fileno()))
            if stamp[1] != size:
                return _resized(stamp[1], size)
            known = _verified.get(str(file))
            actual = known[1] if known is not None and known[0] == stamp else _crc32(content)
    except OSError as error:
        return f"the file cannot be read ({error.strerror})"
    if actual != crc:
        return f"the content is not what was written: CRC32 {actual:08x} instead of {crc:08x}"
    _remember(file, stamp, crc)
    return None


def _resized(actual: int, size: int) -> str:
    return f"the file has {actual} bytes and was written with {size}"


def _flush(file: Path) -> tuple[int, int]:
    """Flush a file to the disk; its size and CRC32."""
    with file.open("rb") as content:
        crc = _crc32(content)
        os.fsync(content.fileno())
        stamp = _stamp(os.fstat(content.fileno()))
    _remember(file, stamp, crc)
    return stamp[1], crc


def _crc32(content: Any) -> int:
    crc = 0
    while block := content.read(_BLOCK):
        crc = zlib.crc32(block, crc)
    return crc


def _remember(file: Path, stamp: _Stamp, crc: int) -> None:
    with _lock:
        _verified[str(file)] = (stamp, crc)
        _verified.move_to_end(str(file))
        if len(_verified) > _REMEMBERED:
            _verified.popitem(last=False)


def _stamp(status: os.stat_result) -> _Stamp:
    return (status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _visible(folder: Path) -> Iterator[Path]:
    """All files below a folder that belong to a manifest, in order."""
    for entry in sorted(folder.iterdir()):
        if entry.name[0] in "._":
            continue
        if entry.is_dir():
            yield from _visible(entry)
        else:
            yield entry
