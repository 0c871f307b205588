"""The run's durable order log: where every place is kept that ZooKeeper may forget (OR-5).

Files of consecutive places, one claim a line, `FIRST-LAST.jsonl`. Two recorders do no harm: a place
has one content for ever, so files that overlap agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from flux_runtime.sealing.storage import Storage
from flux_runtime.zookeeper.tail import Entry

SMALL_FILES_MAX: Final = 64
"""So many small files are written before they are made one."""
SMALL: Final = 10_000
"""Places; files with more are left alone."""


class OrderLog:
    """The places of one scope, from the first on.

    Args:
        storage: a folder of its own.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def end(self) -> int:
        """The first place that is not in the log."""
        end = 0
        for first, last, _ in self._files():
            if first > end:
                break
            end = max(end, last + 1)
        return end

    def append(self, entries: Sequence[Entry]) -> None:
        """Add the next places, durably.

        Raises:
            ValueError: places are missing before or among them.
        """
        numbers = [number for number, _ in entries]
        if not numbers:
            return
        if numbers != list(range(numbers[0], numbers[0] + len(numbers))) or numbers[0] > self.end():
            raise ValueError(f"places {numbers[0]} to {numbers[-1]} do not follow {self.end() - 1}")
        self._write(entries)
        small = [f for f in self._files() if f[1] - f[0] + 1 < SMALL]
        if len(small) > SMALL_FILES_MAX:
            self._merge(small)

    def read(self, start: int = 0) -> Iterator[Entry]:
        """The places from one on, in order."""
        for first, last, name in self._files():
            if last < start:
                continue
            if first > start:
                return
            lines = (self._storage.read(name) or b"").splitlines()
            yield from ((first + i, lines[i]) for i in range(start - first, len(lines)))
            start = first + len(lines)

    def _files(self) -> list[tuple[int, int, str]]:
        found = []
        for name in self._storage.names():
            first, _, last = name.removesuffix(".jsonl").partition("-")
            found.append((int(first), int(last), name))
        return sorted(found)

    def _write(self, entries: Sequence[Entry]) -> str:
        name = f"{entries[0][0]:010d}-{entries[-1][0]:010d}.jsonl"
        self._storage.write(name, b"\n".join(data for _, data in entries) + b"\n")
        return name

    def _merge(self, files: Sequence[tuple[int, int, str]]) -> None:
        """Make neighbours one file; until the old ones are deleted, they overlap with it."""
        first = files[0][0]
        entries = [entry for entry in self.read(first) if entry[0] <= files[-1][1]]
        kept = self._write(entries)
        for _, _, name in files:
            if name != kept:
                self._storage.delete(name)
