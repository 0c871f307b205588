"""Places at which a test can kill the job, to show that it continues as if nothing had happened."""

from __future__ import annotations

import os
import signal
import threading
from typing import Final

VARIABLE: Final = "BLAZES_CRASH_AT"
"""`POINT` or `POINT@N`: the process kills itself when it passes that point for the Nth time."""

_lock = threading.Lock()
_passed: dict[str, int] = {}


def point(name: str) -> None:
    """Pass a point; nothing happens unless the environment names it."""
    wanted = os.environ.get(VARIABLE)
    if wanted is None or wanted.partition("@")[0] != name:
        return
    with _lock:
        _passed[name] = _passed.get(name, 0) + 1
        if _passed[name] == int(wanted.partition("@")[2] or 1):
            os.kill(os.getpid(), signal.SIGKILL)
