"""Keeps an embedded server up: one that dies is started again on its data and its port.

Sessions outlive that: clients reconnect by themselves, and what was answered is on the disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.errors import ZooKeeperProblem

LOOK_S: Final = 0.2
RESTARTS_MAX: Final = 5
WITHIN_S: Final = 60.0
"""A server that dies more often than this is not started again: something is wrong with it."""

OnEvent = Callable[[str, str], None]


class Keeper:
    """Watches a running server, from `with` to its end, and stops it then.

    Args:
        server: a server that runs.
        on_event: called with `zookeeper_restarted` or `zookeeper_failed` and what had happened.
    """

    def __init__(self, server: EmbeddedZooKeeper, on_event: OnEvent) -> None:
        self._server = server
        self._on_event = on_event
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="zookeeper-keeper", daemon=True)

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
        self._server.stop()

    def _run(self) -> None:
        restarts: list[float] = []
        while not self._stop.wait(LOOK_S):
            try:
                self._server.check()
                continue
            except ZooKeeperProblem as problem:
                why = problem.message
            restarts = [at for at in restarts if at > time.monotonic() - WITHIN_S]
            if len(restarts) >= RESTARTS_MAX:
                self._on_event("zookeeper_failed", f"{why} ({len(restarts)} times in a minute)")
                return
            restarts.append(time.monotonic())
            try:
                self._server.restart()
            except ZooKeeperProblem as problem:
                self._on_event("zookeeper_failed", problem.message)
                return
            self._on_event("zookeeper_restarted", why)
