"""Registrations of partitions that were released long ago leave ZooKeeper.

**The rule.** A partition's znode is deleted once every gate that waits for the stream has released
the partition and `after_s` seconds have passed since (an hour). A registration that is made after
that makes a new znode, which the next complete sweep deletes again; the records it was made for are
late (SE-5), as they would have been without it. Nothing is asked of a znode whose partition has
been released.

What this process has seen released is remembered until it is due; what earlier ones have, and what
was registered since, is found by going through all znodes once in a while, and asking the gates.
There a znode counts as old once nobody has changed it for `after_s` seconds (to register it, or to
freeze it at the first look-up).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Final, TypeAlias

from flux_runtime.zookeeper.registry import ProducerRegistry
from flux_runtime.zookeeper.znode_names import PartitionKey

AFTER_S: Final = 3600.0
PIECE: Final = 2000
"""Registrations that are looked at, or deleted, in one call."""
REMEMBERED_MAX: Final = 500_000
"""Released partitions that are remembered; the rest is left to the complete sweep."""

Released: TypeAlias = Callable[[str, Sequence[PartitionKey]], Collection[PartitionKey]]
"""(stream, keys) -> those whose partitions have been released."""


class RegistrationSweep:
    """Deletes the registrations of released partitions, a piece at a time; for any thread.

    Args:
        registry: of the application.
        after_s: how long they stay.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        registry: ProducerRegistry,
        *,
        after_s: float = AFTER_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.deleted = 0
        """Registrations deleted so far."""
        self._registry = registry
        self._after_s = after_s
        self._clock = clock
        self._gates: dict[str, list[Released]] = {}
        self._due: deque[tuple[float, str, PartitionKey]] = deque()
        self._names: dict[str, list[str]] = {}
        self._complete: dict[str, float] = {}
        self._lock = threading.Lock()
        self._sweeping = threading.Lock()

    def joins(self, stream: str, is_released: Released) -> None:
        """A gate waits for a stream; `is_released` tells the released ones among partitions."""
        with self._lock:
            self._gates.setdefault(stream, []).append(is_released)

    def released(self, stream: str, keys: Iterable[PartitionKey]) -> None:
        """Partitions have been released, durably."""
        due = self._clock() + self._after_s
        with self._lock:
            room = REMEMBERED_MAX - len(self._due)
            self._due.extend((due, stream, key) for key, _ in zip(keys, range(room), strict=False))

    def tick(self, stream: str) -> int:
        """Do a piece of what is due for a stream; how many registrations were deleted.

        To be called every second or so, in a thread that may wait for ZooKeeper.

        Args:
            stream: name of the sealed stream.
        """
        with self._sweeping:
            deleted = self._forget_due() + self._sweep_piece(stream)
            self.deleted += deleted
            return deleted

    def _forget_due(self) -> int:
        """Of all streams, what was released long enough ago."""
        by_stream: dict[str, list[PartitionKey]] = {}
        with self._lock:
            now = self._clock()
            due = itertools.takewhile(
                lambda entry: entry[0] <= now, itertools.islice(self._due, PIECE)
            )
            for _ in range(sum(1 for _ in due)):
                _, stream, key = self._due.popleft()
                by_stream.setdefault(stream, []).append(key)
        forgotten = 0
        for stream, keys in by_stream.items():
            gone = self._released_everywhere(stream, keys)  # the complete sweep finds the others
            self._registry.forget(stream, gone)
            forgotten += len(gone)
        return forgotten

    def _released_everywhere(
        self, stream: str, keys: Collection[PartitionKey]
    ) -> list[PartitionKey]:
        """Those partitions that every gate of the stream has released."""
        gone = list(keys)
        for is_released in self._gates.get(stream, ()):
            released = set(is_released(stream, gone)) if gone else set()
            gone = [key for key in gone if key in released]
        return gone if stream in self._gates else []

    def _sweep_piece(self, stream: str) -> int:
        """The next of all znodes of a stream; every `after_s` seconds anew."""
        now = self._clock()
        if not self._names.get(stream):
            if now - self._complete.get(stream, -self._after_s) < self._after_s:
                return 0
            self._complete[stream] = now
            self._names[stream] = self._registry.names(stream)
        names = self._names[stream][:PIECE]
        del self._names[stream][:PIECE]
        old = self._registry.unchanged_since(stream, names, now - self._after_s)
        gone = self._released_everywhere(stream, old)
        self._registry.forget(stream, gone)
        return len(gone)
