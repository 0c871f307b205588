"""A tracker with its durable state alone, through a day of partitions in fast motion.

First some partitions open and stay open. Then partitions come, are complete in the next micro-batch
and are released, in large micro-batches up to the next mark; at every mark small micro-batches are
timed: everything that a gate asks the tracker and has it write down for a micro-batch and for the
release that follows. Keys are random, which is the worst case for a store.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from flux_runtime.sealing import report
from flux_runtime.sealing.events import (
    Chunk,
    Coverage,
    Group,
    Groups,
    Ingested,
    KeyText,
    ReleaseFinished,
    ReleaseStarted,
)
from flux_runtime.sealing.keys import key_text
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.tracker import All, Rules

INPUT: Final = "clicks"
PRODUCERS: Final = ("producer-1", "producer-2")
FILL: Final = 10_000
"""Groups of a micro-batch between two marks."""
TIMED: Final = 30
"""Small micro-batches of each size at a mark."""
DAY_S: Final = 86_400.0


def opened(folder: Path) -> Ledger:
    """A tracker with its durable state."""
    return Ledger(folder, Rules(inputs={INPUT: All(PRODUCERS)}))


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What was measured when so many partitions had been released."""

    released: int
    rss_mb: float
    """Of the process."""
    files: int
    """In the folder of the state."""
    mb: float
    batch_ms: dict[int, float]
    """Groups in a small micro-batch -> mean of its time, flushed to the disk."""
    cpu_ms: dict[int, float]
    """The same of its CPU."""
    reopened_s: float | None = None
    """At the last mark: until a new process can go on."""


class Traffic:
    """Micro-batches for a tracker.

    Args:
        folder: of the state; what is in it is deleted.
        released: partitions that are to be released in all.
    """

    def __init__(self, folder: Path, released: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        self._folder = folder
        self._ledger = opened(folder)
        self._second = DAY_S / max(released, 1)
        self._batch = -1
        self._keys = 0
        self._unsealed: list[KeyText] = []
        self._time = 1_767_225_600.0
        self.released = 0

    def open(self, count: int) -> None:
        """Open partitions that stay open."""
        while count > 0:
            part = min(count, FILL // len(PRODUCERS))
            groups = [group for key in self._new_keys(part) for group in _records(key)]
            self._ingest(Groups.of(groups))
            count -= part

    def batch(self, groups: int) -> tuple[float, float]:
        """A micro-batch that opens partitions and seals those of the last one; its time and CPU."""
        new = list(self._new_keys(groups // len(PRODUCERS) // 2))
        content = [group for key in new for group in _records(key)]
        content += [group for key in self._unsealed for group in _punctuations(key)]
        arrived = Groups.of(content)
        self._unsealed = new
        self._time += len(new) * self._second
        wall, cpu = time.perf_counter(), time.process_time()
        self._ingest(arrived)
        return time.perf_counter() - wall, time.process_time() - cpu

    def reopened_s(self) -> float:
        """How long it takes to read the state again."""
        self._ledger.close()
        began = time.perf_counter()
        self._ledger = opened(self._folder)
        return time.perf_counter() - began

    def _ingest(self, groups: Groups) -> None:
        self._batch += 1
        ledger = self._ledger
        keys = sum(map(int.__gt__, groups.middles, groups.starts))
        event = Ingested(
            INPUT,
            self._batch,
            self._time,
            groups,
            coverage=Coverage("query", str(self._batch - 1), str(self._batch)),
            chunk=Chunk("records", len(groups), keys, 0, {"part-00000.parquet": (1000, 1)}),
        )
        if ledger.tracker.replayed(INPUT, self._batch, event.coverage):
            raise AssertionError("the state was not empty")
        ledger.tracker.sets_to_look_up(event)
        ledger.tracker.assess(event)
        ledger.record(event)
        release = ledger.tracker.next_release()
        if release is not None:
            ledger.record(ReleaseStarted(release, self._time))
            ledger.record(ReleaseFinished(release.number, self._time))
            self.released += len(release.keys)
        report.metrics(ledger.tracker, self._time)

    def _new_keys(self, count: int) -> Iterator[KeyText]:
        for _ in range(count):
            self._keys += 1
            yield key_text([blake2b(str(self._keys).encode(), digest_size=12).hexdigest()])


def _records(key: KeyText) -> Iterator[Group]:
    return (Group(key, producer, None, None, 3) for producer in PRODUCERS)


def _punctuations(key: KeyText) -> Iterator[Group]:
    return (Group(key, producer, 3, None, 1) for producer in PRODUCERS)


def marks(
    folder: Path, *, released: int, stay_open: int, sizes: Sequence[int], count: int
) -> list[Mark]:
    """Run the traffic; what was measured at so many marks."""
    traffic = Traffic(folder, released)
    traffic.open(stay_open)
    found = []
    for number in range(count + 1):
        goal = released * number // count
        while traffic.released < goal:
            left = (goal - traffic.released) * 2 * len(PRODUCERS)
            traffic.batch(min(FILL, max(left, 2 * len(PRODUCERS))))
        times = {}
        for size in sizes:
            traffic.batch(size)  # the first one seals what a larger one opened
            times[size] = [traffic.batch(size) for _ in range(TIMED)]
        files = [file for file in folder.rglob("*") if file.is_file()]
        mark = Mark(
            released=traffic.released,
            rss_mb=_rss_mb(),
            files=len(files),
            mb=sum(file.stat().st_size for file in files) / 1e6,
            batch_ms={size: _mean_ms([wall for wall, _ in times[size]]) for size in sizes},
            cpu_ms={size: _mean_ms([cpu for _, cpu in times[size]]) for size in sizes},
            reopened_s=traffic.reopened_s() if number == count else None,
        )
        print(f"  {mark}", flush=True)
        found.append(mark)
    return found


def _mean_ms(seconds: Sequence[float]) -> float:
    """The mean: some micro-batches write what many have changed."""
    return round(statistics.fmean(seconds) * 1e3, 2)


def _rss_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 1e6, 1)
