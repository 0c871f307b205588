"""A standalone Spark: a master and two workers on loopback, each a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pyspark

SPARK_HOME = Path(pyspark.__file__).parent


@dataclass(frozen=True)
class Cluster:
    url: str
    workers: tuple[subprocess.Popen[bytes], ...]


@contextlib.contextmanager
def daemon(
    log: Path, environment: Mapping[str, str], name: str, *arguments: str
) -> Iterator[subprocess.Popen[bytes]]:
    """One of Spark's daemons, with all the processes that it starts."""
    command = [SPARK_HOME / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *arguments]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, env=environment, stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def said(log: Path, pattern: str, seconds: float = 300) -> str:
    """What a daemon's log says, once it does."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := re.search(pattern, log.read_text(errors="replace")):
            return found[1]
        time.sleep(0.2)
    raise AssertionError(log.read_text(errors="replace")[-3000:])


@contextlib.contextmanager
def standalone_cluster(folder: Path, environment: Mapping[str, str]) -> Iterator[Cluster]:
    """A cluster whose logs and working folders are in a folder."""
    host = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
    with contextlib.ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(daemon(log, environment, "master.Master", *host))
        url = said(log, r"(spark://127\.0\.0\.1:\d+)")
        workers = []
        for number in (1, 2):
            log = folder / f"worker-{number}.log"
            size = ("--cores", "1", "--memory", "1g", "--work-dir", str(folder / log.stem))
            arguments = (*host, *size, url)
            workers.append(
                stack.enter_context(daemon(log, environment, "worker.Worker", *arguments))
            )
            said(log, r"(Successfully registered with master)")
        yield Cluster(url, tuple(workers))
