"""The process that watches over user code: limits it, and ends it with all that it has started.

`sandbox` starts it with `python -I -S`, in a session of its own, with a task as one line of JSON on
its standard input. That pipe stays open for as long as somebody waits for the code: when it is
closed, by Ctrl-C or because whoever waited was killed, the code is ended too. Processes that the
code has started and left behind, in sessions of their own too, become children of this one (Linux:
`PR_SET_CHILD_SUBREAPER`), so that none of them is overlooked. Only when all of them are gone is the
outcome written. The standard library is all that is imported.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

PR_SET_PDEATHSIG: Final = 1
PR_SET_DUMPABLE: Final = 4
PR_SET_CHILD_SUBREAPER: Final = 36

PROCESSES_MAX: Final = 128
"""Processes that the code may have at a time."""
FILE_BYTES_MAX: Final = 64 * 2**20
"""Size of the largest file that the code may write."""
PRINTED_BYTES: Final = 4096
"""What is kept of what the code prints: the end."""
NOBODY: Final = "nobody waits"
LOOK_S: Final = 0.2
"""How often the processes are counted."""


def main() -> int:
    """Do one task; its outcome is in the file that it names."""
    task = json.loads(sys.stdin.buffer.readline())
    _process_control(PR_SET_CHILD_SUBREAPER, 1)
    # Nobody but root looks into this process, or writes to its pipes, through /proc.
    _process_control(PR_SET_DUMPABLE, 0)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    code = _started(task)
    assert code.stdout is not None
    output = code.stdout.fileno()
    try:
        ended_for, printed = _watch(code, output, task["seconds"], woken)
    finally:
        _end_all()
    while chunk := os.read(output, 2**16):
        printed = (printed + chunk)[-PRINTED_BYTES:]
    target = Path(task["outcome"])
    if ended_for == NOBODY:  # nor does anybody remove the folder
        shutil.rmtree(target.parent, ignore_errors=True)
        return 1
    outcome = {
        "status": None if ended_for else code.returncode,
        "ended_for": ended_for,
        "printed": printed.decode("utf-8", "replace"),
    }
    target.unlink(missing_ok=True)  # whatever the code has put there
    target.write_text(json.dumps(outcome), encoding="utf-8")
    return 0


def _started(task: Mapping[str, Any]) -> subprocess.Popen[bytes]:
    seconds, memory = int(task["seconds"]) + 1, int(task["memory_bytes"])

    def limit() -> None:
        _process_control(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.nice(5)  # however much it does, this process comes first
        for kind, soft, hard in (
            (resource.RLIMIT_AS, memory, memory),
            (resource.RLIMIT_CPU, seconds, seconds + 1),
            (resource.RLIMIT_FSIZE, FILE_BYTES_MAX, FILE_BYTES_MAX),
            (resource.RLIMIT_CORE, 0, 0),
        ):
            with suppress(ValueError, OSError):  # the machine has a lower limit already
                resource.setrlimit(kind, (soft, hard))

    with Path(task["request"]).open("rb") as request:
        return subprocess.Popen(
            task["command"],
            cwd=task["folder"],
            stdin=request,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=limit,
        )


def _watch(
    code: subprocess.Popen[bytes], output: int, seconds: float, woken: int
) -> tuple[str, bytes]:
    """Why the code has to be ended, empty where it ended by itself; and what it printed last."""
    printed = b""
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for descriptor in (output, woken, sys.stdin.fileno()):
            selector.register(descriptor, selectors.EVENT_READ)
        while code.poll() is None:
            left = until - time.monotonic()
            if left <= 0:
                return "time", printed
            if len(_descendants()) > PROCESSES_MAX:
                return "processes", printed
            for key, _ in selector.select(min(left, LOOK_S)):
                if key.fd == sys.stdin.fileno():
                    return NOBODY, printed
                chunk = os.read(key.fd, 2**16)
                if key.fd == output:
                    printed = (printed + chunk)[-PRINTED_BYTES:]
                    if not chunk:
                        selector.unregister(output)
    return "", printed


def _end_all() -> None:
    """Kill every process that came from the code, until there is none."""
    while True:
        for process in _descendants():
            with suppress(OSError):
                os.kill(process, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.001)


def _descendants() -> list[int]:
    """The processes that come from this one."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError):
                stat = Path("/proc", name, "stat").read_bytes()
                parent = int(stat.rpartition(b")")[2].split()[1])
                children.setdefault(parent, []).append(int(name))
    processes = [os.getpid()]
    for process in processes:
        processes += children.get(process, ())
    return processes[1:]


def _process_control(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main())
