"""Follows the order without gaps and hands on every batch that counts (OR-4, OR-5, OR-7).

    follower = Follower(client, "app", "replica-1", fetch=received.pop, on_batch=process, log=log)

All followers hand on the same batches in the same order, also one that starts later or again: the
places come from the run's order log as far as it goes, then from ZooKeeper. Batches that share a
place are handed on one by one; the place is passed after the last of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from flux_runtime.ordering.order_log import OrderLog
from flux_runtime.ordering.places import Batch, Claims, Order, counting, decode
from flux_runtime.ordering.scope import ALL, Scope
from flux_runtime.zookeeper.client import Client, SessionState
from flux_runtime.zookeeper.tail import Reader, Trimmed
from flux_runtime.zookeeper.watcher import Poke, Watcher

log = logging.getLogger(__name__)

PASSED_EVERY: Final = 256
PASSED_AFTER_S: Final = 1.0
"""Places, and seconds, between two notes of what has been passed."""
RECORDER: Final = "log"
"""The name under which the order log is a consumer: nothing is trimmed that it has not copied."""

Fetch = Callable[[Batch], Any]
OnBatch = Callable[[int, Batch, Any], None]
OnMissing = Callable[[int, Batch, float], None]


class Follower:
    """A consumer of an order, in a thread, until `close`.

    Args:
        client: a session; nothing is handed on while it is not connected.
        app: name of the application.
        name: of the consumer, which survives restarts; what it has not passed is kept for it.
        fetch: the content of a batch; None: it is not there (yet), and is asked for again.
        on_batch: given place, batch and content, in order of (place, first offset). It returns
            when the batch has been processed.
        scope: `all`, or a bucket of the gate.
        log: the run's order log, for places that ZooKeeper has forgotten.
        order: the order up to the place to start from; None: from the very first.
        on_missing: given place, batch and seconds, when the content of a batch has been waited for
            longer than `missing_after_s`; again and again, at doubled intervals. It is not skipped.
        missing_after_s: see `on_missing`.
        failed: called with an error that ends the follower.
    """

    def __init__(
        self,
        client: Client,
        app: str,
        name: str,
        *,
        fetch: Fetch,
        on_batch: OnBatch,
        scope: str = ALL,
        log: OrderLog | None = None,
        order: Order | None = None,
        on_missing: OnMissing | None = None,
        missing_after_s: float = 10.0,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        self.name = name
        self.order = order or Order()
        """The order up to the place that comes next."""
        self.last_known = self.order.at
        """The end of the order as far as it was read (metric order_lag)."""
        self.error: BaseException | None = None
        self._fetch = fetch
        self._on_batch = on_batch
        self._on_missing = on_missing or _warn
        self._missing_after_s = missing_after_s
        self._failed = failed
        self._log = log
        self._client = client
        self._scope = Scope(client, app, scope)
        self._scope.register(name, self.order.at)
        self._noted = self.order.at
        self._noted_at = 0.0
        self._pending: deque[tuple[int, Claims, deque[Batch]]] = deque()
        """Places that were read, their claims, and those that count and have yet to be handed on.
        """
        self._ahead = Order.from_json(self.order.to_json())
        self._reader = Reader(client, self._scope.places, self.order.at)
        self._arrived = threading.Event()
        self._closed = False
        self._missing: tuple[int, float, float] | None = None
        self._watcher = Watcher(client, self._look, name=f"follow-{name}", failed=self._fail)
        self._watcher.start()

    def arrived(self) -> None:
        """Tell that contents have come, so that `fetch` is asked again at once."""
        self._arrived.set()

    def close(self, *, unregister: bool = False) -> None:
        """Stop; with `unregister` nothing is kept for this consumer any more."""
        self._closed = True
        self._arrived.set()
        self._watcher.close()
        if unregister:
            self._scope.unregister(self.name)
        elif self._client.state is SessionState.CONNECTED:
            self._note()

    def _fail(self, error: BaseException) -> None:
        self.error = error
        if self._failed is not None:
            self._failed(error)

    def _look(self, poke: Poke) -> None:
        while not self._closed:
            if not self._pending and not self._read(poke):
                break
            while self._pending and not self._closed:
                self._client.require_session()  # OR-7
                place, claims, batches = self._pending[0]
                if batches:
                    if not self._hand_on(place, batches[0]):
                        poke(None)
                        return
                    batches.popleft()
                    continue
                self._pending.popleft()
                self.order.handle(place, claims)
                if self.order.at >= self._noted + PASSED_EVERY:
                    self._note()
        if time.monotonic() > self._noted_at + PASSED_AFTER_S:
            self._note()

    def _read(self, poke: Poke) -> bool:
        try:
            entries = self._reader.read(poke)
        except Trimmed:
            entries = [] if self._log is None else list(self._log.read(self._reader.next))
            if not entries:
                raise
            self._reader.next += len(entries)
        for place, data in entries:
            claims = decode(data)
            counted = counting(claims, self._ahead.handle(place, claims))
            self._pending.append((place, claims, deque(batch for _, batch in counted)))
        self.last_known = self._ahead.at
        return bool(entries)

    def _hand_on(self, place: int, batch: Batch) -> bool:
        """Hand a batch on; False where its content has not come within a moment."""
        self._arrived.clear()
        content = self._fetch(batch)
        if content is None:
            self._wait_for(place, batch)
            return False
        self._missing = None
        self._on_batch(place, batch, content)
        return True

    def _wait_for(self, place: int, batch: Batch) -> None:
        now = time.monotonic()
        if self._missing is None or self._missing[0] != place:
            self._missing = (place, now, self._missing_after_s)
        _, since, after_s = self._missing
        if now - since >= after_s:
            self._missing = (place, since, 2 * after_s)
            self._on_missing(place, batch, now - since)
        self._arrived.wait(min(0.05, self._missing_after_s))

    def _note(self) -> None:
        if self.order.at > self._noted:
            self._scope.passed(self.name, self.order.at)
            self._noted = self.order.at
            self._noted_at = time.monotonic()


class Recorder:
    """Copies the order to the run's order log, and trims what everybody has passed (OR-5).

    Args:
        client: a session.
        app: name of the application.
        log: the order log.
        scope: `all`, or a bucket of the gate.
        trim_every: places between two trims.
        failed: called with an error that ends it.
    """

    def __init__(
        self,
        client: Client,
        app: str,
        log: OrderLog,
        *,
        scope: str = ALL,
        trim_every: int = 1000,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._log = log
        self._scope = Scope(client, app, scope)
        self._scope.register(RECORDER, log.end())
        self._trim_every = trim_every
        self._trimmed = log.end()
        self._reader = Reader(client, self._scope.places, log.end())
        self._watcher = Watcher(client, self._look, name="order-log", failed=failed)
        self._watcher.start()

    @property
    def end(self) -> int:
        """The first place that is not recorded."""
        return self._reader.next

    def close(self) -> None:
        """Stop recording; places are kept until it is recorded on."""
        self._watcher.close()

    def _look(self, poke: Poke) -> None:
        self._reader.next = self._log.end()
        while entries := self._reader.read(poke):
            self._log.append(entries)
            self._scope.passed(RECORDER, self._reader.next)
            if self._reader.next - self._trimmed >= self._trim_every:
                self._scope.trim()
                self._trimmed = self._reader.next


def _warn(place: int, batch: Batch, seconds: float) -> None:
    log.warning(
        "place %d has waited for records %d to %d of %s for %.0f s",
        *(place, batch.first, batch.last, batch.producer, seconds),
    )
