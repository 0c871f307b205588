"""A compiled job as a child process: started, stopped gently or not, its log at hand.

The job has a session of its own, so that Ctrl-C in the terminal reaches it only when it is passed
on. Where this process dies without stopping it, Linux tells the job to stop.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

PR_SET_PDEATHSIG: Final = 1

FAILURES: Final = (
    (
        r"OutOfMemoryError|Cannot allocate memory|insufficient memory",
        "The job ran out of memory: give the driver more (deployment: conf: {spark.driver.memory: "
        "4g} in the file), or close other programs.",
    ),
    (
        r"No space left on device",
        "The disk is full: make room, or put the job elsewhere with --target-dir.",
    ),
    (
        r"UnknownHostException|UnresolvedAddressException",
        "This machine's name has no address: add it to /etc/hosts, or export "
        "SPARK_LOCAL_IP=127.0.0.1.",
    ),
    (
        r"BindException|Address already in use",
        "A port is taken: stop the other job, or let Spark look for another one.",
    ),
    (
        r"ModuleNotFoundError: No module named '(?P<module>[\w.]+)'",
        "Install {module} into this Python, or put its file beside the dataflow.",
    ),
    (
        r"PATH_NOT_FOUND|Path does not exist",
        "An input is missing: relative paths start at the folder of the dataflow file.",
    ),
    (
        r"Python in worker has different version|Cannot run program \"python",
        "Let PYSPARK_PYTHON name the Python that blazes is installed in.",
    ),
)
"""What the log of a failed job says, and what helps; the first match counts."""


class JobProcess:
    """One run of a compiled job; `start` returns at once."""

    def __init__(self, command: Sequence[str], *, log: Path) -> None:
        self.command = tuple(command)
        self.log = log
        self._child: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, with its output added to the log."""
        environment = {"PYSPARK_PYTHON": sys.executable, "PYTHONUNBUFFERED": "1", **os.environ}
        libc = ctypes.CDLL(None) if sys.platform == "linux" else None

        def stop_with_parent() -> None:
            if libc is not None:
                libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

        with self.log.open("ab") as log:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                preexec_fn=stop_with_parent,
            )

    def poll(self) -> int | None:
        """None while it runs, then its exit status; 128 and the signal's number if killed."""
        status = self._running.poll()
        return status if status is None or status >= 0 else 128 - status

    def interrupt(self) -> None:
        """Ask it to finish its micro-batches and stop."""
        with contextlib.suppress(ProcessLookupError):
            self._running.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it now, with everything in its session; what was committed stays."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._running.pid, signal.SIGKILL)
        self._running.wait()

    def log_end(self, lines: int = 20) -> list[str]:
        """The last lines of the log that are not Java's stack frames."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, log.seek(0, os.SEEK_END) - 200_000))
                text = log.read().decode(errors="replace")
        except OSError:
            return []
        messages = [
            line.rstrip()
            for line in text.splitlines()
            if line.strip() and not re.match(r"\s+at [\w.$/<>]+\(|\s*\.\.\. \d+ more", line)
        ]
        return messages[-lines:]

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        if self._child is None:
            raise RuntimeError("the job has not been started")
        return self._child


def remedy_for(log: Sequence[str]) -> str:
    """The remedy for the failure in the log; empty where the failure is not known."""
    text = "\n".join(log)
    for pattern, remedy in FAILURES:
        match = re.search(pattern, text)
        if match:
            return remedy.format(**match.groupdict()) if match.groupdict() else remedy
    return ""
