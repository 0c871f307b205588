"""A tracker whose every event is durable before it is applied (SE-10).

A folder of numbered entries, each a list of events, and now and then a snapshot that makes the
entries up to its number superfluous.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, Final

from flux_runtime.sealing.events import Event, Finding, event_from_json, event_to_json
from flux_runtime.sealing.snapshot import tracker_from_json, tracker_to_json
from flux_runtime.sealing.storage import Storage
from flux_runtime.sealing.tracker import Rules, Tracker

SNAPSHOT_EVERY: Final = 64
"""Entries between two snapshots."""

_FORMAT: Final = 1


class Journal:
    """A tracker and its log; safe for several threads, which take turns.

    Args:
        storage: the folder; what is in it is read, and the tracker continues from there.
        rules: what the gate waits for.
        snapshot_every: entries between two snapshots.
    """

    def __init__(
        self, storage: Storage, rules: Rules, *, snapshot_every: int = SNAPSHOT_EVERY
    ) -> None:
        self.lock = threading.RLock()
        """Hold it while reading the tracker."""
        self._storage = storage
        self._snapshot_every = snapshot_every
        self._last = 0
        self.tracker = self._load(rules)

    def record(self, *events: Event) -> list[Finding]:
        """Write events down, then apply them; what follows from them, in order."""
        with self.lock:
            number = self._last + 1
            data = [event_to_json(event) for event in events]
            self._storage.write(f"{number:012d}.json", _encode(data))
            self._last = number
            findings = [found for event in events for found in self.tracker.handle(event)]
            if number % self._snapshot_every == 0:
                self.snapshot()
            return findings

    def snapshot(self) -> None:
        """Write the whole state, and delete the entries that it covers."""
        with self.lock:
            state = {"format": _FORMAT, "tracker": tracker_to_json(self.tracker)}
            self._storage.write(f"snapshot-{self._last:012d}.json", _encode(state))
            for name in self._storage.names():
                if _number(name) < self._last or name == f"{self._last:012d}.json":
                    self._storage.delete(name)

    def _load(self, rules: Rules) -> Tracker:
        names = self._storage.names()
        snapshots = [name for name in names if name.startswith("snapshot-")]
        tracker = Tracker(rules)
        if snapshots:
            state = self._decode(snapshots[-1])
            if state["format"] != _FORMAT:
                raise ValueError(f"{self._storage.uri()} was written by another version")
            tracker = tracker_from_json(state["tracker"], rules)
            self._last = _number(snapshots[-1])
        for name in names:
            if name not in snapshots and _number(name) > self._last:
                for event in self._decode(name):
                    tracker.handle(event_from_json(event))
                self._last = _number(name)
        return tracker

    def _decode(self, name: str) -> Any:
        data = self._storage.read(name)
        if data is None:
            raise FileNotFoundError(f"{self._storage.uri(name)} disappeared")
        return json.loads(data)


def _encode(data: Sequence[object] | dict[str, object]) -> bytes:
    return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()


def _number(name: str) -> int:
    return int(name.removeprefix("snapshot-").removesuffix(".json"))
