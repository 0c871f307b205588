"""The fence: a driver that has been replaced by a newer one stops, and commits nothing more.

Every place where drivers leave their epoch (the state folder, each folder of results, ZooKeeper) is
a place to look at. A driver looks before every commit, and before it changes its state; where the
ensemble tells by itself (`Fence.notice`), it knows before that.

Looking and committing are two steps, and a process can be paused between them for as long as a
newer driver needs to start. That is why a commit is the renaming of a staged folder, and why a
driver that starts moves the staged folders of others away before it looks at what was committed
(`owner.Owner.sweep`): whoever was paused finds nothing to rename.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from flux_runtime.commits.driver import Driver
from flux_runtime.sealing.storage import LocalStorage, Storage

EPOCH: Final = "epoch.json"
"""In the state folder: the newest driver."""
PERIOD_S: Final = 1.0
"""How often `Fence.watch` looks at files."""


class FencedError(Exception):
    """A newer driver runs the job; this one must stop."""


class Place(Protocol):
    """Where drivers leave their epoch."""

    def newest(self) -> Driver | None:
        """The newest driver; None where none has been here.

        Raises:
            FencedError: that cannot be known any more.
        """


class Store(Place, Protocol):
    """Where a state is kept, if elsewhere."""

    @property
    def driver(self) -> Driver:
        """The driver that works on it here."""

    def look(self) -> Driver | None:
        """`newest`, and what others have left there for the driver."""


class EpochFile:
    """`epoch.json` of a state folder."""

    def __init__(self, state: Storage) -> None:
        self._state = state
        self._known: tuple[bytes, Driver] | None = None

    def newest(self) -> Driver | None:
        """See `Place`; a file that is unreadable stops the driver."""
        data = self._state.read(EPOCH)
        if data is None:
            return None
        if self._known is None or self._known[0] != data:
            try:
                self._known = data, Driver.from_bytes(data)
            except ValueError:
                raise FencedError(
                    f"{self._state.uri(EPOCH)} is damaged, so that nobody can tell which driver "
                    "is the newest; this one stops, and commits nothing more. If no other one "
                    "runs, delete that file and start again"
                ) from None
        return self._known[1]

    def write(self, driver: Driver) -> None:
        """Leave an epoch."""
        self._state.write(EPOCH, driver.to_bytes())


class Fence:
    """Tells a driver whether it is still the newest one; for any thread.

    Args:
        driver: this process.
        state: where the driver left its epoch; it has to be there.
        places: others to look at before a commit.
        store: another one, which says nothing by itself: where the state is kept, if elsewhere.
    """

    def __init__(
        self,
        driver: Driver,
        state: Place | None = None,
        places: Sequence[Place] = (),
        store: Store | None = None,
    ) -> None:
        self.driver = driver
        self._state = state
        self._store = store
        self._places = (*places, *([] if store is None else [store]))
        self._newer: FencedError | None = None
        self._looked = 0.0
        self._lock = threading.Lock()

    @property
    def epoch(self) -> int:
        """Of this driver."""
        return self.driver.epoch

    def check(self) -> None:
        """Return while this driver is the newest one; looks at every place.

        Raises:
            FencedError: a newer one runs the job.
            SessionProblem: ZooKeeper does not answer; nothing may be decided.
        """
        self.check_state()
        for place in self._places:
            self.notice(place.newest())
        self.raise_noticed()

    def check_state(self) -> None:
        """The same, by what is known and the state folder alone: costs no more than to read a file.

        Raises:
            FencedError: see `check`.
        """
        self.raise_noticed()
        if self._state is None:
            return
        newest = self._state.newest()
        if newest is None:
            raise FencedError(
                f"the state of this job has been deleted while it ran (epoch {self.epoch}); this "
                "driver stops, and nothing was committed after that"
            )
        self.notice(newest)
        self.raise_noticed()

    def watch(self) -> None:
        """`check_state`, at most every `PERIOD_S` seconds: for those who ask all the time.

        The store is looked at, too.
        """
        self.raise_noticed()
        with self._lock:
            due = time.monotonic() - self._looked >= PERIOD_S
            if due:
                self._looked = time.monotonic()
        if due:
            self.check_state()
            if self._store is not None:
                self.notice(self._store.look())
                self.raise_noticed()

    def notice(self, newest: Driver | None) -> None:
        """Take note of the newest driver of a place."""
        if newest is not None and newest.replaces(self.driver) and self._newer is None:
            self._newer = FencedError(
                f"a newer driver, {newest}, runs this job; this one, epoch {self.epoch}, stops; "
                "nothing was committed after that"
            )

    def raise_noticed(self) -> None:
        """Raise what has been noticed, if anything.

        Raises:
            FencedError: see `check`.
        """
        if self._newer is not None:
            raise self._newer


class FencedStorage(LocalStorage):
    """A folder that a driver changes only while it is the newest one; reading is free."""

    def __init__(self, root: Path | str, fence: Fence) -> None:
        super().__init__(root)
        self._fence = fence

    def write(self, name: str, data: bytes, *, flush: bool = True) -> None:
        """See `Storage`."""
        self._fence.check_state()
        super().write(name, data, flush=flush)

    def move(self, source: str, target: str) -> None:
        """See `Storage`."""
        self._fence.check_state()
        super().move(source, target)

    def delete(self, name: str) -> None:
        """See `Storage`."""
        self._fence.check_state()
        super().delete(name)

    def at(self, name: str) -> FencedStorage:
        """See `Storage`."""
        return FencedStorage(self._path(name), self._fence)
