"""What tests wait for: events, and conditions; every wait has a deadline."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any


class Events(list):
    """What was reported, in order; `wait` until something is among it."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = threading.Condition()

    def __call__(self, event: Any) -> None:
        with self._changed:
            self.append(event)
            self._changed.notify_all()

    def wait(self, wanted: Callable[[Any], bool], *, count: int = 1, timeout_s: float = 120) -> Any:
        with self._changed:
            ok = self._changed.wait_for(
                lambda: sum(map(bool, map(wanted, self))) >= count, timeout_s
            )
            assert ok, f"did not come: {list(self)}"
            return [event for event in self if wanted(event)][-1]

    def of(self, kind: type, *, count: int = 1) -> Any:
        return self.wait(lambda event: isinstance(event, kind), count=count)


def until(condition: Callable[[], Any], timeout_s: float = 120.0) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.02)
    return found
