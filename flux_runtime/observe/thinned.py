"""Files of JSON lines that stay small however long a run goes on.

When a file has grown to its limit, what is not recent is thinned: what is left of it is spread
evenly over the time, and all of it takes half of the limit. Lines that say what holds until the
next such line (`lasting`) are thinned in the same way, but never the last of them. Where it matters
how many lines there were (`counted`), the first line says what has been thinned out.

Several processes may append: each opens the file for every line, and locks it. A reader that
follows it sees by the file's identity that it was rewritten (`reader.Tail`).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

MAX_BYTES: Final = 4 << 20
RECENT: Final = 0.25
"""The newest part of a file that is left complete."""
FINEST_S: Final = 1.0
COARSEST_S: Final = 1e8
DROPPED: Final = "dropped"
"""Key of the line that counts what was thinned out: a list of [what it is about, how many]."""

Record = Mapping[str, Any]
Of = Callable[[Record], Hashable]


class ThinnedLog:
    """Appends records.

    Args:
        file: need not be there.
        of: what a record is about, of few things in all: each is thinned by itself.
        lasting: whether it holds until the next such one.
        counted: whether to say how many records about what have been thinned out; `of` gives a
            tuple then.
        max_bytes: see above; the file may exceed it by a line.
    """

    def __init__(
        self,
        file: Path,
        *,
        of: Of,
        lasting: Callable[[Record], bool] = lambda _: False,
        counted: bool = False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._file = file
        self._of = of
        self._lasting = lasting
        self._counted = counted
        self._max_bytes = max_bytes

    def append(self, record: Record) -> None:
        """Add a line with one write; what JSON does not know is written as text."""
        text = json.dumps(record, separators=(",", ":"), ensure_ascii=False, default=str)
        line = text.encode("utf-8", errors="backslashreplace") + b"\n"
        while True:
            with self._file.open("ab", buffering=0) as out:
                fcntl.flock(out, fcntl.LOCK_EX)
                if os.fstat(out.fileno()).st_nlink == 0:
                    continue  # another process has put a thinned one in its place
                size = os.fstat(out.fileno()).st_size
                if out.write(line) < len(line):  # no room for all of it: no half a line stays
                    out.truncate(size)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._file))
                if out.tell() > self._max_bytes:
                    self._thin()
                return

    def _thin(self) -> None:
        lines = self._file.read_bytes().splitlines(keepends=True)
        remaining = thinned(lines, self._max_bytes // 2, of=self._of, lasting=self._lasting)
        if self._counted:
            left = set(map(id, remaining))
            remaining.insert(0, self._count(line for line in lines if id(line) not in left))
        temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        temporary.write_bytes(b"".join(remaining))
        temporary.replace(self._file)

    def _count(self, gone: Iterable[bytes]) -> bytes:
        """The line that counts what is gone: these lines, and what the last such line counted."""
        counts: Counter[Hashable] = Counter()
        for line in gone:
            try:
                record = json.loads(line)
                if before := dict(dropped(record)):
                    counts.update(before)
                else:
                    counts[self._of(record)] += 1
            except (ValueError, KeyError, TypeError):
                continue
        return json.dumps({DROPPED: list(counts.items())}).encode() + b"\n"


def dropped(record: Record) -> Iterator[tuple[tuple[Any, ...], int]]:
    """The summary in a line that stands for others: (its subject, how many)."""
    if record.keys() == {DROPPED}:
        for about, number in record[DROPPED]:
            yield tuple(about), int(number)


def thinned(
    lines: Sequence[bytes], size: int, *, of: Of, lasting: Callable[[Record], bool]
) -> list[bytes]:
    """As many of the lines as have room, spread evenly over the time, and the newest completely.

    Args:
        lines: JSON objects with the time `t`, oldest first; what is none is dropped.
        size: bytes.
        of: see `ThinnedLog`.
        lasting: see `ThinnedLog`.
    """
    records = [record for line in lines if (record := _read(line, of, lasting)) is not None]
    last = {record.key: n for n, record in enumerate(records)}
    recent = len(records) - max(1, int(len(records) * RECENT))

    def spaced(spacing_s: float) -> list[bytes]:
        due: dict[Hashable, float] = {}
        result = []
        for n, record in enumerate(records):
            if n < recent and record.t < due.get(record.key, record.t):
                if not (record.lasting and last[record.key] == n):
                    continue
            else:
                due[record.key] = record.t + spacing_s
            result.append(record.line)
        return result

    spacing_s = FINEST_S
    result = spaced(spacing_s)
    while sum(map(len, result)) > size and spacing_s < COARSEST_S:
        spacing_s *= 2
        result = spaced(spacing_s)
    return result


class _Line(NamedTuple):
    line: bytes
    t: float
    key: Hashable
    lasting: bool


def _read(line: bytes, of: Of, lasting: Callable[[Record], bool]) -> _Line | None:
    try:
        record = json.loads(line)
        lasts = lasting(record)
        return _Line(line, float(record["t"]), (of(record), lasts), lasts)
    except (ValueError, KeyError, TypeError):
        return None
