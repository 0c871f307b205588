"""A compiled job as a process of its own: how long its queries run, and the CPU they take."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from codegen.project import Project

PERIOD_S: Final = 0.5
"""Between two looks at the processes."""

_COMPILERS: Final = ("(C1 Compiler", "(C2 Compiler")
"""How the names of the threads begin in which Java compiles."""


@dataclass(frozen=True)
class Run:
    """One run of one job."""

    seconds: float
    """From the start of the first query to the end of the last one."""
    cpu_s: float
    """Of all its processes in that time."""
    compiling_s: float
    """What of it went into Java's compiler: a cost of the start, not of the length."""
    rows_out: int


def run(project: Project, root: Path, master: str) -> Run:
    """Run a job from scratch until it has processed all that is there."""
    shutil.rmtree(project.folder / "results", ignore_errors=True)
    run_dir = project.folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    command = [sys.executable, project.job, "--available-now", "--fresh", "--root", root]
    command += ["--master", master, "--run-dir", run_dir]
    job = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    with Cpu(job.pid) as cpu:
        _, errors = job.communicate()
    if job.returncode:
        sys.exit(f"{project.job} failed:\n{errors}")
    summary = json.loads((run_dir / "summary.json").read_text())
    rows = sum(unit["rows_out"] for unit in summary["units"].values())
    cpu_s, compiling_s = cpu.between(summary["finished"] - summary["seconds"], summary["finished"])
    return Run(summary["seconds"], round(cpu_s, 1), round(compiling_s, 1), rows)


class Cpu(threading.Thread):
    """CPU time of all processes of a session, those that have ended too. Linux; else 0."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self._session = session
        self._spent: dict[str, float] = {}
        """File in /proc of a process, or of a thread that compiles -> seconds."""
        self._times = [time.time()]
        self._samples = [(0.0, 0.0)]
        self._end = threading.Event()

    def between(self, start: float, end: float) -> tuple[float, float]:
        """Seconds of CPU from one time to another: all, and those of compilers."""
        (all_1, compiling_1), (all_2, compiling_2) = self._at(start), self._at(end)
        return all_2 - all_1, compiling_2 - compiling_1

    def _at(self, instant: float) -> tuple[float, float]:
        """Between two looks, as if it had grown evenly."""
        after = min(max(bisect_left(self._times, instant), 1), len(self._times) - 1)
        if after < 1:
            return self._samples[0]
        t0, t1 = self._times[after - 1], self._times[after]
        part = min(max((instant - t0) / (t1 - t0), 0.0), 1.0)
        (a0, c0), (a1, c1) = self._samples[after - 1], self._samples[after]
        return a0 + part * (a1 - a0), c0 + part * (c1 - c0)

    def __enter__(self) -> Cpu:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()

    def run(self) -> None:
        """Look again and again until the end."""
        while not self._end.wait(PERIOD_S):
            processes = Path("/proc").glob("[0-9]*/stat")
            for pid in [self._look(f) for f in processes]:
                for thread in _threads(pid) if pid else ():
                    self._look(thread, only=_COMPILERS)
            compiling = sum(s for file, s in self._spent.items() if "/task/" in file)
            total = sum(s for file, s in self._spent.items() if "/task/" not in file)
            self._times.append(time.time())
            self._samples.append((total, compiling))

    def _look(self, file: Path, *, only: Sequence[str] = ("",)) -> str | None:
        """Take note of a process or thread of the session; the name of its folder."""
        try:
            before, _, after = file.read_text().rpartition(") ")
        except OSError:
            return None
        values = after.split()
        if int(values[3]) != self._session or not before.partition(" ")[2].startswith(tuple(only)):
            return None
        self._spent[str(file)] = (int(values[11]) + int(values[12])) / os.sysconf("SC_CLK_TCK")
        return file.parent.name


def _threads(pid: str) -> list[Path]:
    """The files of a process's threads in /proc; none once it has ended."""
    try:
        return [thread / "stat" for thread in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
