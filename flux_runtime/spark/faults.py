"""Places at which a test can kill the job, to show that it continues as if nothing had happened.

Or pause it, to show that it does no harm when it goes on after another one has taken its place.
"""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Final

VARIABLE: Final = "BLAZES_CRASH_AT"
"""`POINT` or `POINT@N`: the process kills itself when it passes that point for the Nth time."""
PAUSE: Final = "BLAZES_PAUSE_AT"
"""The same, and the process stops itself (SIGSTOP), until somebody lets it go on."""
DRIVER: Final = "BLAZES_CRASH_DRIVER"
"""`PID:FILE`: a point that is passed in a worker of this process' kills it as well, with everything
between. Workers are many, so the file counts how often the point was passed."""

_lock = threading.Lock()
_passed: dict[str, int] = {}


def point(name: str) -> None:
    """Pass a point; nothing happens unless the environment names it."""
    if os.environ.get(PAUSE, "").partition("@")[0] == name:
        with _lock:
            if _count(name) == int(os.environ[PAUSE].partition("@")[2] or 1):
                signal.raise_signal(signal.SIGSTOP)  # this thread goes no further
        return
    wanted = os.environ.get(VARIABLE)
    if wanted is None or wanted.partition("@")[0] != name:
        return
    with _lock:
        if _count(name) == int(wanted.partition("@")[2] or 1):
            for process in (*_between_driver_and_here(), os.getpid()):
                os.kill(process, signal.SIGKILL)


def _count(name: str) -> int:
    _, _, file = os.environ.get(DRIVER, "").partition(":")
    if file:
        with Path(file).open("a") as passed:
            passed.write(".")
        return Path(file).stat().st_size
    _passed[name] = _passed.get(name, 0) + 1
    return _passed[name]


def _between_driver_and_here() -> list[int]:
    """The driver and its descendants down to this process, which is left out."""
    driver = int(os.environ.get(DRIVER, "0").partition(":")[0])
    chain: list[int] = []
    process = os.getpid()
    while driver and process not in (driver, 0, 1):
        stat = Path(f"/proc/{process}/stat").read_text()
        process = int(stat.rpartition(")")[2].split()[1])
        chain.insert(0, process)
    return chain if driver in chain else []
