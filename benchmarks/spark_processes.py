"""The processes of a Spark application on this machine, and a standalone cluster of one's own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark

from flux_runtime.site.client import Client
from flux_runtime.site.config import Config
from flux_runtime.site.key import JobKey
from flux_runtime.spark.context import file_name
from flux_runtime.spark.flux.stage import membership

SPARK_HOME = Path(pyspark.__file__).parent
ENVIRONMENT = {
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}
CORES, MEMORY_MB = 4, 1024
"""Of a worker."""
PATIENCE_S = 120.0


def application(executor: int) -> str:
    """The application that an executor belongs to; empty if the process is gone."""
    with contextlib.suppress(OSError):
        command = Path(f"/proc/{executor}/cmdline").read_text(errors="replace")
        if found := re.search(r"app-\d+-\d+", command):
            return found[0]
    return ""


def client_of_sites(
    target: Path, name: str, unit: str, *, zookeeper: str, patience_s: float
) -> Client:
    """A client of the controllers of a job's only Flux stage; `target` is the job's folder."""
    (key,) = (target / "state" / "units").glob("*/sites/*/key")
    app = membership(name, f"{file_name(unit)} {key.parent.name}")
    secret = JobKey.from_hex(key.read_text())
    config = Config(key=secret, dataflow="", app=app, zookeeper=zookeeper)
    return Client(config, patience_s=patience_s)


def parent(pid: int) -> int:
    """The parent process; 0 if the process is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])


class Standalone:
    """A standalone master and workers on loopback, from `start` to `stop`.

    Args:
        folder: for logs and the workers' folders.
        workers: how many.
    """

    def __init__(self, folder: Path, *, workers: int) -> None:
        self.folder = folder
        self.count = workers
        self.url = ""
        self.workers: list[subprocess.Popen[bytes]] = []
        self._master: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Return when all workers are registered."""
        self.folder.mkdir(parents=True)
        self._master = self._daemon("master.Master", "master")
        self.url = self._said("master", r"(spark://127\.0\.0\.1:\d+)")
        for number in range(self.count):
            self.workers.append(self._worker(number))
        for number in range(self.count):
            self._said(f"worker-{number}", r"(Successfully registered with master)")

    def restart(self, number: int) -> None:
        """Start a worker anew that was killed."""
        self.workers[number].wait()
        self.workers[number] = self._worker(number)

    def stop(self) -> None:
        """End all of it."""
        for process in (*self.workers, self._master):
            if process is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _worker(self, number: int) -> subprocess.Popen[bytes]:
        size = ("--cores", str(CORES), "--memory", f"{MEMORY_MB}m")
        work = str(self.folder / f"work-{number}")
        return self._daemon(
            "worker.Worker", f"worker-{number}", *size, "--work-dir", work, self.url
        )

    def _daemon(self, name: str, log: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        host = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        with (self.folder / f"{log}.log").open("wb") as out:
            return subprocess.Popen(
                [*command, *host, *arguments],
                env={**os.environ, **ENVIRONMENT},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )

    def _said(self, log: str, pattern: str) -> str:
        end = time.monotonic() + PATIENCE_S
        file = self.folder / f"{log}.log"
        while time.monotonic() < end:
            if found := re.search(pattern, file.read_text(errors="replace")):
                return found[1]
            time.sleep(0.1)
        raise AssertionError(file.read_text(errors="replace")[-3000:])


@contextlib.contextmanager
def standalone(folder: Path, *, workers: int) -> Iterator[Standalone]:
    """A cluster that ends with the block."""
    cluster = Standalone(folder, workers=workers)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
