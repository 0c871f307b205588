"""The process of the attacked job, seen from outside."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HANGS_S: Final = 900.0
"""A run that takes longer is taken to hang."""


class HangError(Exception):
    """A run did not end."""


@dataclass(frozen=True, slots=True)
class Run:
    """How a run of the job ended."""

    status: int | None
    """None: the process was killed."""
    said: str = ""
    seconds: float = 0.0


class Driver:
    """Runs the job in a process, which is started anew when it has been killed.

    Args:
        folder: of the job.
        log: what the process says on standard error.
        environment: added to that of the process.
        prefix: a command that starts the process.
        arguments: of every run.
    """

    def __init__(
        self,
        folder: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.folder = folder
        self.log = log
        self.starts = 0
        self.environment = dict(environment or {})
        self._prefix = prefix
        self.arguments = arguments
        self._process: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._begun = False
        self._started: list[int] = []
        """Processes below drivers that were killed, as descriptors, since numbers are used again;
        some of them end by themselves, later."""

    @property
    def pid(self) -> int:
        """Of the process that runs the job."""
        assert self._process is not None
        return self._process.pid

    @property
    def busy(self) -> bool:
        """Whether a run has been begun and its end has not been told."""
        return self._begun

    def run(self, *arguments: str, crash_at: str | None = None, files: int = 2) -> Run:
        """Run the job on what there is."""
        self.begin(*arguments, crash_at=crash_at, files=files)
        return self.end()

    def begin(self, *arguments: str, crash_at: str | None = None, files: int = 2) -> None:
        """Begin a run."""
        self.start()
        command = {
            "arguments": ["--available-now", *self.arguments, *arguments],
            "crash_at": crash_at,
            "files": files,
        }
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()
        self._begun = True

    def end(self, seconds: float = HANGS_S) -> Run:
        """Wait for the end of the run, or of the process.

        Raises:
            HangError: neither came.
        """
        line = self._line(seconds)
        self._begun = False
        if line is None:
            os.kill(self.pid, signal.SIGUSR1)  # writes its stacks to the log
            time.sleep(1)
            raise HangError(f"a run took more than {seconds:g} s; see {self.log}")
        if not line:
            self.kill()
            return Run(None)
        answer = json.loads(line)
        return Run(answer["status"], answer["said"], answer["seconds"])

    def running(self, seconds: float) -> bool:
        """Whether the run still goes on after so long."""
        assert self._process is not None
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], seconds)
        return not ready

    def kill(self, *, all: bool = False) -> None:
        """SIGKILL for the driver; its JVM notices and ends by itself.

        Args:
            all: SIGKILL for what it, and drivers that were killed before it, have started, too;
                return when nothing of it is left.
        """
        if self._process is not None:
            below = [*_opened(pid for pid, _ in descendants(self._process.pid))]
            self._started = [*_running(self._started), *below]
            _kill(below if all or self._prefix else ())
            if not self._prefix:
                self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                with contextlib.suppress(OSError):
                    assert stream is not None
                    stream.close()
            self._process = None
            self._rest = b""
            self._begun = False
        if all:
            _kill(self._started)
            while self._started:
                time.sleep(0.05)
                self._started = _running(self._started)

    def kill_java(self, *, zookeeper: bool) -> bool:
        """SIGKILL for the JVM of Spark, or of ZooKeeper; whether there was one."""
        for pid, command in descendants(self.pid):
            if "java" in command and ("QuorumPeer" in command or "ZooKeeper" in command) == (
                zookeeper
            ):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    return True
        return False

    def start(self) -> None:
        """Start the process, if it is not there."""
        if self._process is not None and self._process.poll() is None:
            return
        self.kill()
        self.starts += 1
        self._process = subprocess.Popen(
            [*self._prefix, sys.executable, "-m", "benchmarks.seal_attack.job", str(self.folder)],
            cwd=ROOT,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "BLAZES_MASTER": "local[2]",
                **self.environment,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("ab"),
        )

    def _line(self, seconds: float) -> bytes | None:
        """The next line; empty: the process has ended; None: none came."""
        assert self._process is not None
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        deadline = time.monotonic() + seconds
        while b"\n" not in self._rest:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([output], [], [], left)[0]:
                return None
            some = os.read(output, 1 << 16)
            if not some:
                return b""
            self._rest += some
        line, _, self._rest = self._rest.partition(b"\n")
        return line


def _opened(pids: Iterable[int]) -> Iterator[int]:
    """Descriptors of processes that are still there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            yield os.pidfd_open(pid)


def _kill(processes: Iterable[int]) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)


def _running(processes: Iterable[int]) -> list[int]:
    """Those that have not ended; the descriptors of others are closed."""
    left = []
    for process in processes:
        if select.select([process], [], [], 0)[0]:
            os.close(process)
        else:
            left.append(process)
    return left


def descendants(pid: int) -> Iterator[tuple[int, str]]:
    """(pid, command) of everything below a process."""
    for child in _children(pid):
        with contextlib.suppress(OSError):
            yield child, Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        yield from descendants(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
