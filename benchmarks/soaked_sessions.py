"""The session job (examples/sessions) on Spark, files that arrive, and what must come of them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
from sessions_on_spark import Files
from soaking import DEADLINE_S, Ends
from spark_processes import ENVIRONMENT, client_of_sites

from flux_runtime.observe.reader import Run, read_run
from flux_runtime.site.client import Client
from flux_runtime.spark.flux.ingress_staging import ROWS_MAX

SESSIONS = Path(__file__).resolve().parents[1] / "examples" / "sessions"
sys.path.insert(0, str(SESSIONS))

import expected  # noqa: E402 - of the example

NAME, UNIT = "sessions", "Statistics.statistics"
SITES = 4
ROWS, PAIRS = 500, 500
DEPLOYMENT = f"""
deployment:
  sites: {SITES}
  conf: {{spark.ui.enabled: false, spark.executor.memory: 512m}}
"""


class FileEnds(Ends):
    """Has files arrive at a steady pace, and checks what is committed."""

    def __init__(self, folder: Path, *, pace_s: float) -> None:
        super().__init__()
        self.files = Files(folder / "data" / "packets", ROWS, 1, pace_s, PAIRS)
        self.total = 0
        self._results = folder / "target" / NAME / "results" / "statistics"
        self._seen: set[str] = set()
        self._awaited = expected.statistics(1 << 40, ROWS, pairs=PAIRS, seed=0)

    def begin(self) -> None:
        """Files arrive from now on."""
        self.files.start()
        self.start(self._read)

    def finish(self) -> None:
        """Nothing more goes in; what went in is to come out."""
        self.files.enough.set()
        self.files.join()
        self.fed = self.files.batches
        self.total = sum(1 for _ in expected.statistics(self.fed, ROWS, pairs=PAIRS, seed=0))
        self.enough.set()

    def complete(self) -> bool:
        """Whether all that was fed has come out."""
        return self.enough.is_set() and self.records >= self.total

    def check(self) -> None:
        """The job has ended: all is there, and nothing else."""
        self._look()
        if self.records != self.total:
            raise AssertionError(f"{self.records} records where {self.total} were due")

    def _read(self) -> None:
        while not self.complete():
            self._look()
            if self.waited_s() > DEADLINE_S:
                raise AssertionError(f"no result for {DEADLINE_S:g} s")
            time.sleep(0.02)
        self.done.set()

    def _look(self) -> None:
        """Compare what has been committed since the last time."""
        new = {each.name: each for each in self._results.glob("*/") if each.name not in self._seen}
        for name, commit in sorted(new.items()):
            rows = [row for file in sorted(commit.glob("*.parquet")) for row in read_rows(file)]
            for row in rows:
                due = next(self._awaited)
                if row != due:
                    raise AssertionError(f"{name}: {row} where {due} was due")
            self._seen.add(name)
            self.came(1, len(rows))


def read_rows(file: Path) -> Iterator[expected.Row]:
    """Records of a file, in order."""
    table = pq.read_table(file).select(list(expected.COLUMNS))
    yield from zip(*(column.to_pylist() for column in table.columns), strict=True)


class SparkJob:
    """The session job, compiled, in a process of its own.

    A micro-batch takes all that is there, up to what is one batch of the recorded order: `order_by`
    sorts no further, and Spark may read the files of a micro-batch in any order.

    Args:
        folder: for all that belongs to it.
        master: where Spark runs it.
        zookeeper: addresses of the ensemble.
    """

    def __init__(self, folder: Path, *, master: str, zookeeper: str) -> None:
        self.folder = folder
        self.zookeeper = zookeeper
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copy(SESSIONS / "operators.py", folder)
        dataflow = (SESSIONS / "sessions.yaml").read_text()
        most = f"maxFilesPerTrigger: {ROWS_MAX // ROWS}"
        dataflow = re.sub(r"maxFilesPerTrigger: \d+", most, dataflow)
        (folder / "sessions.yaml").write_text(dataflow + DEPLOYMENT)
        compiled = [sys.executable, "-m", "blazes", "compile", "sessions.yaml"]
        subprocess.run(compiled, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        self.target = folder / "target" / NAME
        with (folder / "said.txt").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, str(self.target / "job.py"), "--zookeeper", zookeeper],
                cwd=folder,
                env={**os.environ, **ENVIRONMENT, "BLAZES_MASTER": master},
                stdout=said,
                stderr=said,
            )

    def client(self) -> Client:
        """A client of the controllers, once they can be reached."""
        return client_of_sites(
            self.target, NAME, UNIT, zookeeper=self.zookeeper, patience_s=DEADLINE_S
        )

    def hosting(self) -> bool:
        """Whether the sites have been told what they need."""
        keys = (self.target / "state" / "units").glob("*/sites/*/key")
        return any(key.read_text() for key in keys)

    def noted(self) -> Run:
        """What driver and controllers have noted."""
        return read_run(self.target / "runs" / "latest")

    def said(self) -> str:
        """The end of its logs."""
        logs = [self.folder / "said.txt", self.target / "runs" / "latest" / "log.txt"]
        return "\n".join(log.read_text()[-3000:] for log in logs if log.exists())

    def stop(self) -> None:
        """End it in order."""
        self.process.send_signal(signal.SIGTERM)
        if status := self.process.wait(DEADLINE_S):
            raise AssertionError(f"the job ended with status {status}\n{self.said()}")

    def kill(self) -> None:
        """End it anyhow."""
        self.process.kill()
        self.process.wait()
