"""Runs one program for as long as its starter lives; run as a script, by path.

    python watchdog.py PARENT_PID GRACE_S LOCK_FD PROGRAM ARGUMENT...

It prints the program's process id on standard output. It ends the program with SIGTERM, and after
GRACE_S seconds with SIGKILL, when it is told to (SIGTERM), when its standard input ends or when the
process PARENT_PID is no longer its parent. Where the watchdog itself is killed, Linux kills the
program. LOCK_FD is kept open in the program, so that a lock on it lasts as long as the program.

A program of its own, and not PR_SET_PDEATHSIG alone, because that signal is tied to the starting
*thread*, and because the program must survive a Ctrl-C in the terminal of its starter.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
from types import FrameType
from typing import Final

PR_SET_PDEATHSIG: Final = 1
LOOK_S: Final = 0.5


def die_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies; elsewhere do nothing."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end(program: subprocess.Popen[bytes], grace_s: float) -> None:
    """Stop the program: politely, then not."""
    program.terminate()
    try:
        program.wait(grace_s)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait()


def orphaned(parent: int, timeout_s: float) -> bool:
    """Wait up to `timeout_s`; True once the starter is gone."""
    readable, _, _ = select.select([0], [], [], timeout_s)
    return (bool(readable) and not os.read(0, 4096)) or os.getppid() != parent


def main(arguments: list[str]) -> int:
    """Run the program to its end; the exit status is the program's."""
    parent, grace_s, lock = int(arguments[0]), float(arguments[1]), int(arguments[2])

    def told_to_stop(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    program = subprocess.Popen(
        arguments[3:],
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        pass_fds=(lock,),
        preexec_fn=die_with_parent,
    )
    try:
        signal.signal(signal.SIGTERM, told_to_stop)
        print(program.pid, flush=True)
        while program.poll() is None:
            if orphaned(parent, LOOK_S):
                break
    except (KeyboardInterrupt, OSError):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if program.poll() is None:
        end(program, grace_s)
    return program.returncode if program.returncode >= 0 else 128 - program.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
