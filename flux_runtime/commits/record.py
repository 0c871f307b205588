"""The record of a commit: `_commit`, written into its folder before it gets its place.

Readers of data pass over names that begin with `_`, and a name without a suffix is in nobody's
`*/*.json`. It has what the folder holds (files with size and CRC32, rows), what that covers (source
offsets, partitions: whatever the caller says), who committed it (unit, number, epoch, id of the
state) and the number of the unit's commit before, so that one that is missing is noticed. A commit
is checked against it whenever it is read, and a commit that is repeated against what it covers.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Self

from flux_runtime.sealing import manifest
from flux_runtime.sealing.manifest import DamagedError, Files
from flux_runtime.sealing.storage import Storage, storage_at

RECORD: Final = "_commit"
"""In the folder of a commit; JSON."""
VERSION: Final = 1
PLACE_LENGTH_MAX: Final = 150
"""Longer names of units are hashed: a file name has 255 bytes."""
REMEDY: Final = (
    "nothing was read from it, and the other commits are safe. Restore this folder from a copy, or "
    "start afresh with --fresh, which deletes state and results"
)

_PLAIN: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """The contents of a commit, and whose it is."""

    unit: str
    number: int
    previous: int | None
    """Number of the unit's commit before this one; None: it is the first, as far as is known."""
    epoch: int
    state: str | None
    """Id of the state folder that it belongs to."""
    rows: int
    """Records, without the punctuations beside them."""
    files: Files
    covers: Any = None
    """What the rows are made of, as JSON data; None where nobody said."""

    def to_bytes(self) -> bytes:
        """The file's content, with a checksum of its own."""
        data = {
            "version": VERSION,
            "unit": self.unit,
            "number": self.number,
            "previous": self.previous,
            "epoch": self.epoch,
            "state": self.state,
            "rows": self.rows,
            "files": {name: list(sums) for name, sums in sorted(self.files.items())},
            "covers": self.covers,
        }
        return json.dumps({**data, "crc32": _checksum(data)}, indent=1).encode() + b"\n"

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """The reverse of `to_bytes`.

        Raises:
            ValueError: it is not what `to_bytes` gave.
        """
        data = json.loads(content)
        if not isinstance(data, dict) or data.pop("crc32", None) != _checksum(data):
            raise ValueError("its checksum is wrong")
        if data.pop("version") != VERSION:
            raise ValueError("another version of Blazes wrote it")
        files = {name: (size, crc) for name, (size, crc) in data.pop("files").items()}
        return cls(files=files, **data)


def commit_name(unit: str, number: int) -> str:
    """The name of a unit's commit: one component of a path, whatever the unit is called.

    >>> commit_name("Count.counts", 7)
    'Count.counts-000000007'
    >>> commit_name("_a/b c", 7)
    '~5Fa~2Fb~20c-000000007'
    """
    return f"{place_of(unit)}-{number:09d}"


@lru_cache(maxsize=1024)
def place_of(unit: str) -> str:
    """A unit's part of the names of its commits; different for different units."""
    place = "".join(
        character
        if character in _PLAIN and not (position == 0 and character in "._")
        else "".join(f"~{byte:02X}" for byte in character.encode(errors="surrogatepass"))
        for position, character in enumerate(unit)
    )
    if len(place) <= PLACE_LENGTH_MAX:
        return place
    digest = hashlib.sha256(place.encode()).hexdigest()[:32]
    return f"{place[: PLACE_LENGTH_MAX - 40]}~~{digest}"


def number_of(name: str, unit: str) -> int | None:
    """The number in the name of a commit; None for one of another unit, or something else.

    >>> number_of("Count.counts-000000007", "Count.counts"), number_of("other", "Count.counts")
    (7, None)
    """
    place, _, number = name.rpartition("-")
    return int(number) if place == place_of(unit) and number.isdecimal() else None


def read_record(folder: Storage, name: str) -> CommitRecord:
    """The record of a commit, read.

    Args:
        folder: which the commits are in.
        name: of the commit.

    Raises:
        DamagedError: it says nothing, or what it says is damaged.
    """
    content = folder.read(f"{name}/{RECORD}")
    if content is None:
        missing = "does not exist" if not folder.exists(name) else f"has no {RECORD}"
        raise DamagedError(folder.uri(name), f"this commit {missing}", REMEDY)
    try:
        record = CommitRecord.from_bytes(content)
    except (ValueError, TypeError, KeyError) as error:
        problem = f"what the commit says of itself is damaged ({error})"
        raise DamagedError(folder.uri(f"{name}/{RECORD}"), problem, REMEDY) from None
    if commit_name(record.unit, record.number) != name:
        problem = f"this is commit {record.number} of {record.unit}, under another name"
        raise DamagedError(folder.uri(name), problem, REMEDY)
    return record


def check_commit(folder: Storage, name: str) -> CommitRecord:
    """The record of a commit, compared with what the commit holds.

    Raises:
        DamagedError: see `read_record`; or a file is missing, was added or changed.
    """
    record = read_record(folder, name)
    manifest.check(folder, name, record.files, remedy=REMEDY)
    return record


def check_commits_of(files: Iterable[str]) -> tuple[CommitRecord, ...]:
    """Check every commit that some files belong to, all files of it.

    Args:
        files: addresses, as `Query.files` gives them: FOLDER/COMMIT/FILE.

    Raises:
        DamagedError: see `check_commit`; or a file is in a folder that is no commit.
    """
    commits = sorted({file.rpartition("/")[0] for file in files})
    records = []
    for commit in commits:
        folder, _, name = commit.rpartition("/")
        records.append(check_commit(storage_at(folder), name))
    return tuple(records)


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are the same once they have been written and read."""
    return _canonical(one) == _canonical(other)


def _checksum(data: Any) -> str:
    return f"{zlib.crc32(_canonical(data)):08x}"


def _canonical(data: Any) -> bytes:
    return json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
