"""A compiled job, unchanged, on a standalone cluster: a master and two workers on loopback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.examples.standalone import Cluster, standalone_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

EXAMPLE = Path(__file__).parents[2] / "examples" / "wordcount"
SPARK_HOME = Path(pyspark.__file__).parent
ENVIRONMENT = {
    **os.environ,
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_LOCAL_IP": "127.0.0.1",
    "PYSPARK_PYTHON": sys.executable,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with standalone_cluster(tmp_path, ENVIRONMENT) as running:
        yield running


def run(folder: Path, *command: object) -> str:
    """What a command that must succeed prints."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_a_compiled_job_runs_under_spark_submit_though_a_worker_dies(
    cluster: Cluster, tmp_path: Path
) -> None:
    for file in EXAMPLE.iterdir():
        if file.is_file():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    sizes = ("--tweets", 3000, "--batches", 12, "--steps", 15)
    run(tmp_path, sys.executable, "generate.py", *sizes)
    run(tmp_path, sys.executable, "-m", "blazes", "compile", "wordcount.yaml")
    job = tmp_path / "target" / "wordcount"
    submit = [
        SPARK_HOME / "bin" / "spark-submit",
        *("--master", cluster.url, "--conf", "spark.driver.host=127.0.0.1"),
        *("--conf", "spark.executor.memory=512m", job / "job.py", "--available-now"),
    ]
    with (tmp_path / "submit.log").open("wb") as log:
        running = subprocess.Popen(submit, cwd=tmp_path, env=ENVIRONMENT, stdout=log, stderr=log)
    commits = job / "state" / "units" / "Count.counts" / "checkpoint" / "tweets" / "commits"
    deadline = time.monotonic() + 500
    while not (commits.is_dir() and any(commits.iterdir())) and running.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(cluster.workers[0].pid, signal.SIGKILL)
    status = running.wait(timeout=500)
    assert status == 0, (tmp_path / "submit.log").read_text()[-4000:]
    check = run(tmp_path, sys.executable, "expected.py", "--check", job / "results" / "db")
    assert "exactly the expected" in check
