"""Looks again whenever something may have changed, and knows how long what it saw holds.

ZooKeeper's watches say that something changed, not what; they fire once, and they are gone with the
connection. So nothing here is driven by an event: `look` reads the present state as a whole, sets
its watches again, and is called once more at every event, at every change of the session and in
any case after a while. An event that is lost costs time, not correctness.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

from kazoo.exceptions import ConnectionClosedError

from flux_runtime.zookeeper.client import Client, SessionState
from flux_runtime.zookeeper.errors import SessionProblem
from flux_runtime.zookeeper.nodes import ANSWER_LOST

log = logging.getLogger(__name__)

LOOKS_PER_SESSION: Final = 6
"""So many looks, at least, in the time a session outlives its last sign of life."""

Poke = Callable[[Any], None]


def patience_s(client: Client) -> float:
    """So long a look may wait for answers, so that the tick after it comes before the session ends.

    The wait before the look is the rest of the session.
    """
    return client.session_timeout_s * (1 - 1 / LOOKS_PER_SESSION)


class Watcher:
    """A thread that calls `look` from `start` until `close`.

    Nothing is called before `start`, so that an owner can be made whole first.

    Args:
        client: the session; `look` is called only while it is connected.
        look: reads the present state, passing on what it is given as a watch. Answers that are
            lost need no care: it is called again. It waits for no longer than `patience_s` where
            `tick` is to notice in time that a session has ended.
        name: of the thread.
        tick: called about as often as `look`, connected or not.
        failed: called once with an error that repeating cannot mend; the thread ends.
    """

    def __init__(
        self,
        client: Client,
        look: Callable[[Poke], None],
        *,
        name: str,
        tick: Callable[[], None] | None = None,
        failed: Callable[[BaseException], None] | None = None,
    ) -> None:
        self._client = client
        self._look = look
        self._tick = tick
        self._failed = failed
        self._again = threading.Event()
        self._again.set()
        self._closed = False
        self._every_s = client.session_timeout_s / LOOKS_PER_SESSION
        self.confirmed = time.monotonic()
        """When the newest look that succeeded began: the session was alive after that."""
        self._unlisten = client.on_change(self.poke)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> Self:
        """Begin to look; at most once."""
        self._thread.start()
        return self

    def poke(self, _event: Any = None) -> None:
        """Look again soon; may be called from anywhere and does not block."""
        self._again.set()

    def age_s(self) -> float:
        """Seconds since the session was certainly alive."""
        return time.monotonic() - self.confirmed

    def close(self) -> None:
        """End the thread, and wait for it (not if it is the thread itself that closes)."""
        self._closed = True
        self._unlisten()
        self._again.set()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join(10.0)

    def _run(self) -> None:
        no_answer = self._client.kazoo.handler.timeout_exception
        while not self._closed:
            self._again.wait(self._every_s)
            self._again.clear()
            if self._closed:
                return
            try:
                try:
                    if self._client.state is SessionState.CONNECTED:
                        began = time.monotonic()
                        self._look(self.poke)
                        self.confirmed = began
                except ConnectionClosedError:
                    return
                except (*ANSWER_LOST, SessionProblem, no_answer) as problem:
                    log.info("%s will look again: %r", self._thread.name, problem)
                if self._tick is not None and not self._closed:
                    self._tick()
            except Exception as error:
                log.exception("%s ends", self._thread.name)
                if self._failed is not None:
                    self._failed(error)
                return
