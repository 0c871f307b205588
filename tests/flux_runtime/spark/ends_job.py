"""A small sealed job, and its processes: started, paused, let go on, looked at."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from flux_runtime.commits.record import CommitRecord, read_record
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark import Job, Producers, Punctuation, faults, sql

UNIT = "Total"


def total(item: DataFrame) -> DataFrame:
    return sql("SELECT k, sum(v) AS s FROM item GROUP BY k", item=item)


def build(job: Job) -> None:
    items = job.source(
        "items",
        format="json",
        path="data/items",
        options={"maxFilesPerTrigger": "1"},
        schema="k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT",
        producer="p",
        punctuation=Punctuation(when="sealed", count="n"),
    )
    waits = {"item": [items]}
    one = {"items": Producers.one()}
    totals = job.seal(UNIT, total, waits=waits, key=("k",), producers=one, seal_timeout_s=1)
    job.sink("out", [totals], format="json")


JOB = """
from pathlib import Path
from flux_runtime.spark import main
from ends_job import build

main(build, name={name!r}, folder=Path(__file__).parent)
"""


class Project:
    """A job in a folder of its own; its path is one that asks for trouble."""

    def __init__(self, path: Path, name: str = "ends") -> None:
        self.path = path / "my jobs, é & more"
        self.path.mkdir()
        self.files = 0
        shutil.copy(__file__, self.path / "ends_job.py")
        (self.path / "job.py").write_text(JOB.format(name=name))

    def send(self, *rows: dict[str, Any]) -> None:
        """A file appears in the source."""
        folder = self.path / "data" / "items"
        folder.mkdir(parents=True, exist_ok=True)
        self.files += 1
        hidden = folder / f".{self.files:05d}.json"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(hidden, (1_700_000_000 + self.files,) * 2)
        hidden.rename(folder / hidden.name[1:])

    def partition(self, k: int, *values: int, promised: int | None = None) -> None:
        """All of a partition."""
        count = len(values) if promised is None else promised
        vote = {"k": k, "p": "a", "sealed": True, "n": count}
        self.send(*({"k": k, "v": v, "p": "a"} for v in values), vote)

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "job.py", "--root", ".", *arguments],
            cwd=self.path,
            env={**os.environ, "BLAZES_MASTER": "local[2]", **environment},
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, **environment: str) -> tuple[int, str]:
        process = self.start("--available-now", *arguments, **environment)
        _, err = process.communicate(timeout=500)
        return process.returncode, err

    def paused(self, point: str, *arguments: str) -> subprocess.Popen[str]:
        """A process that has stopped itself at a point."""
        process = self.start("--available-now", *arguments, **{faults.PAUSE: point})
        stat = Path(f"/proc/{process.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", process)
        return process

    @property
    def results(self) -> dict[int, int]:
        """Partition -> sum, as anybody reads it; each partition once."""
        files = (self.path / "results" / "out").glob("*/*.json")
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert len({row["k"] for row in rows}) == len(rows)
        return {row["k"]: row["s"] for row in rows}

    @property
    def records(self) -> list[CommitRecord]:
        """What the commits say of themselves, in order."""
        folder = LocalStorage(self.path / "results" / "out")
        return [read_record(folder, name) for name in folder.names()]

    @property
    def summary(self) -> dict[str, Any]:
        """Of the newest run."""
        runs = sorted((self.path / "runs").glob("2*/summary.json"), key=lambda f: f.stat().st_mtime)
        summary: dict[str, Any] = json.loads(runs[-1].read_text())
        return summary


def copy_state(state: Path, copy: Path) -> None:
    """Copies the state of an idle job, once nothing of it changes any more."""

    def files() -> dict[Path, tuple[int, int]]:
        stats = {file: file.stat() for file in state.rglob("*")}
        return {file: (stat.st_mtime_ns, stat.st_size) for file, stat in stats.items()}

    deadline = time.monotonic() + 400
    while time.monotonic() < deadline:
        shutil.rmtree(copy, ignore_errors=True)
        with contextlib.suppress(OSError):  # a file that has gone since
            before = files()
            shutil.copytree(state, copy)
            if files() == before:
                return
    raise AssertionError("the state is never still")


def go_on(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Let a paused process go on, to its end."""
    process.send_signal(signal.SIGCONT)
    _, err = process.communicate(timeout=500)
    return process.returncode, err


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 400
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)
