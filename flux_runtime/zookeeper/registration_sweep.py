"""Registrations of partitions that were released long ago leave ZooKeeper.

**The rule.** A partition's znode is deleted once every gate that seals the stream has released the
partition, and `after_s` seconds have passed since (an hour), or `KEPT_MAX` others were released
since: the memory of a ZooKeeper server holds all znodes. A registration that is made after that
makes a new znode, which the next complete sweep deletes again; the records it was made for are late
(SE-5), as they would have been without it. Nothing is asked of the znode of a released partition.

What this process has seen released is remembered until it is due; what earlier ones have, and what
was registered since, is found by going through all znodes once in `after_s` seconds, a piece at a
time. There a znode counts as old once nobody has changed it for `after_s` seconds (to register it,
or to freeze it at the first look-up). Before anything is deleted, all gates are asked.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Final, Self, TypeAlias

from flux_runtime.zookeeper.errors import SessionProblem
from flux_runtime.zookeeper.registry import ProducerRegistry
from flux_runtime.zookeeper.znode_names import PartitionKey

log = logging.getLogger(__name__)

AFTER_S: Final = 3600.0
PERIOD_S: Final = 1.0
"""How long the thread rests between two pieces."""
PIECE: Final = 500
"""Registrations that are looked at, or deleted, in one piece."""
PIECE_MAX: Final = 5_000
"""The same where more are kept than `KEPT_MAX`."""
KEPT_MAX: Final = 100_000
"""Released partitions whose registrations stay."""
REMEMBERED_MAX: Final = 500_000
"""Released partitions that are remembered; the rest is left to the complete sweep."""

Released: TypeAlias = Callable[[Sequence[PartitionKey]], Collection[PartitionKey]]
"""A gate's answer, from any thread: which of these partitions it has released, durably."""


class RegistrationSweep:
    """Deletes the registrations of released partitions; a thread does it from `with` to its end.

    Args:
        registry: of the application.
        gates: stream -> the gates that seal it; until each of them serves, nothing of the stream is
            deleted.
        after_s: how long registrations stay after the release.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        registry: ProducerRegistry,
        gates: Mapping[str, Collection[str]],
        *,
        after_s: float = AFTER_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.deleted = 0
        """Registrations deleted so far."""
        self._registry = registry
        self._expected = {stream: set(names) for stream, names in gates.items()}
        self._gates: dict[str, dict[str, Released]] = {stream: {} for stream in gates}
        self._after_s = after_s
        self._clock = clock
        self._due: deque[tuple[float, str, PartitionKey]] = deque()
        self._names: dict[str, list[str]] = {}
        self._complete: dict[str, float] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registration-sweep", daemon=True)

    def serve(self, stream: str, gate: str, is_released: Released) -> None:
        """A gate that seals a stream says how it can be asked."""
        self._gates[stream][gate] = is_released

    def released(self, stream: str, keys: Iterable[PartitionKey]) -> None:
        """A gate has released partitions, durably."""
        due = self._clock() + self._after_s
        with self._lock:
            room = max(0, REMEMBERED_MAX - len(self._due))
            self._due.extend((due, stream, key) for key in itertools.islice(keys, room))

    def piece(self) -> int:
        """Do a piece of what is due; how many registrations were deleted."""
        deleted = sum(self._forget(stream, keys) for stream, keys in self._taken().items())
        deleted += sum(self._sweep(stream) for stream in self._gates)
        self.deleted += deleted
        return deleted

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(PERIOD_S):
            try:
                self.piece()
            except SessionProblem as problem:  # what was taken is found by the next whole sweep
                log.info("registrations are swept later: %s", problem.message)
            except Exception:
                log.exception("registrations are not swept any more; they do no harm")
                return

    def _taken(self) -> Mapping[str, list[PartitionKey]]:
        """Stream -> partitions that were released long enough ago."""
        by_stream: dict[str, list[PartitionKey]] = {}
        with self._lock:
            now, before = self._clock(), len(self._due)
            most = max(PIECE, min(before - KEPT_MAX, PIECE_MAX))
            while (
                self._due
                and before - len(self._due) < most
                and (self._due[0][0] <= now or len(self._due) > KEPT_MAX)
            ):
                _, stream, key = self._due.popleft()
                by_stream.setdefault(stream, []).append(key)
        return by_stream

    def _sweep(self, stream: str) -> int:
        """The next of all znodes of a stream; every `after_s` seconds anew."""
        now = self._clock()
        if not self._names.get(stream):
            if now - self._complete.get(stream, -self._after_s) < self._after_s:
                return 0
            self._complete[stream] = now
            self._names[stream] = self._registry.names(stream)
        names, self._names[stream] = self._names[stream][:PIECE], self._names[stream][PIECE:]
        return self._forget(
            stream, self._registry.unchanged_since(stream, names, now - self._after_s)
        )

    def _forget(self, stream: str, keys: Sequence[PartitionKey]) -> int:
        """Delete the registrations among these whose partitions every gate has released."""
        gates = self._gates[stream]
        if not keys or self._expected[stream] - gates.keys():
            return 0
        gone = set(keys)
        for is_released in list(gates.values()):
            gone &= set(is_released([key for key in keys if key in gone]))
        self._registry.forget(stream, gone)
        return len(gone)
