"""Files of JSON lines that stay small however long a run goes on.

When a file has grown to its limit, what is not recent is thinned: what is left of it is spread
evenly over the time, and all of it takes half of the limit. Lines that say what holds until the
next such line (`lasting`) are thinned in the same way, but never the last of them.

Several processes may append: each opens the file for every line, and locks it. A reader that
follows it sees by the file's identity that it was rewritten (`reader.Tail`).
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

MAX_BYTES: Final = 4 << 20
RECENT: Final = 0.25
"""The newest part of a file that is left complete."""
FINEST_S: Final = 1.0
COARSEST_S: Final = 1e8

Record = Mapping[str, Any]
Of = Callable[[Record], Hashable]


class ThinnedLog:
    """Appends records.

    Args:
        file: need not be there.
        of: what a record is about, of few things in all: each is thinned by itself.
        lasting: whether it holds until the next such one.
        max_bytes: see above; the file may exceed it by a line.
    """

    def __init__(
        self,
        file: Path,
        *,
        of: Of,
        lasting: Callable[[Record], bool] = lambda _: False,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._file = file
        self._of = of
        self._lasting = lasting
        self._max_bytes = max_bytes

    def append(self, record: Record) -> None:
        """Add a line with one write."""
        line = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        while True:
            with self._file.open("ab", buffering=0) as out:
                fcntl.flock(out, fcntl.LOCK_EX)
                if os.fstat(out.fileno()).st_nlink == 0:
                    continue  # another process has put a thinned one in its place
                out.write(line)
                if out.tell() > self._max_bytes:
                    self._thin()
                return

    def _thin(self) -> None:
        lines = self._file.read_bytes().splitlines(keepends=True)
        kept = thinned(lines, self._max_bytes // 2, of=self._of, lasting=self._lasting)
        temporary = self._file.with_name(f".{self._file.name}.{os.getpid()}")
        temporary.write_bytes(b"".join(kept))
        temporary.replace(self._file)


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
    whole = [each for line in lines if (each := _read(line, of, lasting)) is not None]
    last = {each.key: n for n, each in enumerate(whole)}
    recent = len(whole) - max(1, int(len(whole) * RECENT))

    def kept(spacing_s: float) -> list[bytes]:
        due: dict[Hashable, float] = {}
        found = []
        for n, each in enumerate(whole):
            if n < recent and each.t < due.get(each.key, each.t):
                if not (each.lasting and last[each.key] == n):
                    continue
            else:
                due[each.key] = each.t + spacing_s
            found.append(each.line)
        return found

    spacing_s = FINEST_S
    found = kept(spacing_s)
    while sum(map(len, found)) > size and spacing_s < COARSEST_S:
        spacing_s *= 2
        found = kept(spacing_s)
    return found


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
