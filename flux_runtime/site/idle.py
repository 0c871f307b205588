"""How long a process has nothing to do: the idle time of the balancing policies (section 6.2).

The papers count the time that a consumer sleeps. Here everything a site does happens on one event
loop, so its idle time is what the loop spends waiting for its sockets. Time that another process
has the processor, or that this one is stopped, is not idle: there was work, or there might have
been. So real external load shows as utilisation that little processor time was got for.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from collections.abc import Callable, Coroutine
from typing import Any


class IdleSelector(selectors.DefaultSelector):
    """Counts the seconds it waits.

    A wait that lasts longer than was asked for means that the process did not get the processor.

    Attributes:
        idle_s: seconds waited so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.idle_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """See `selectors`."""
        if timeout is not None and timeout <= 0:
            return super().select(timeout)
        began = time.perf_counter()
        ready = super().select(timeout)
        waited = time.perf_counter() - began
        self.idle_s += waited if timeout is None else min(waited, timeout)
        return ready


def run(main: Callable[[IdleSelector], Coroutine[Any, Any, None]]) -> None:
    """As `asyncio.run`, on a loop whose idle time is counted."""
    selector = IdleSelector()
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selector)) as runner:
        runner.run(main(selector))
