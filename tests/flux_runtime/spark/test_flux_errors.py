"""A Flux stage whose sites cannot run ends with the reason and a remedy, and does not wait."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flux_runtime.operators.components import Component, Components
from flux_runtime.spark.flux.site_task import SiteTask, examine
from flux_runtime.zookeeper.access import Ensemble

JOB = """
from pathlib import Path
from flux_runtime.spark import Job, Step, main
from flux_runtime.spark.flux import sites
from flux_runtime.zookeeper import client

def same(click):
    return click

def build(job: Job) -> None:
    clicks = job.source("clicks", format="json", path="data/clicks", schema="v INT")
    step = Step("C", same, query="SELECT v FROM click", gives="records")
    job.sink("out", [job.flux("C", [step], writes={"click": [clicks]}, sites=SITES)])

if __name__ == "__main__":
    client.CONNECT_S = 0.5  # nobody is going to answer
    sites.ROOM_S = 5.0  # nor to make room
    main(build, name="wrong", folder=Path(__file__).parent, master="local[2]", conf=CONF)
"""


def said_of(folder: Path, *arguments: str, sites: int = 2, **conf: str) -> str:
    """What a job says that fails."""
    text = JOB.replace("SITES", str(sites)).replace("CONF", repr(conf))
    (folder / "job.py").write_text(text)
    clicks = folder / "data" / "clicks"
    clicks.mkdir(parents=True)
    (clicks / "1.json").write_text(json.dumps({"v": 1}) + "\n")
    done = subprocess.run(
        [sys.executable, "job.py", "--available-now", *arguments],
        cwd=folder,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )
    assert done.returncode == 1, done.stdout
    return done.stdout


def test_zookeeper_does_not_answer_the_driver(tmp_path: Path) -> None:
    said = said_of(tmp_path, "--zookeeper", "127.0.0.1:1")
    assert "127.0.0.1:1" in said
    assert "ensemble" in said


def test_zookeeper_does_not_answer_an_executor(tmp_path: Path) -> None:
    (tmp_path / "key").touch()
    stage = Component(name="C", buckets=1, gate=None, operator=f"{__name__}:nothing")
    task = SiteTask(
        components=Components(stages=(stage,)),
        app="a",
        zookeeper=Ensemble("127.0.0.1:1"),
        key=str(tmp_path / "key"),
        seats=str(tmp_path),
    )
    (problem,) = [each for each in examine(task, iter([0])) if "ZooKeeper" in each]
    assert "127.0.0.1:1" in problem
    assert "that driver and executors reach" in problem


def test_an_executor_cannot_write_to_the_state_folder(tmp_path: Path) -> None:
    stage = Component(name="C", buckets=1, gate=None, operator=f"{__name__}:nothing")
    read_only = Path("/proc/self/status")  # whoever asks
    task = SiteTask(
        components=Components(stages=(stage,)),
        app="a",
        zookeeper=Ensemble("127.0.0.1:1"),
        key=str(read_only),
        seats=str(tmp_path),
    )
    (problem,) = [each for each in examine(task, iter([0])) if "state folder" in each]
    assert "cannot write" in problem


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_an_executor_lacks_a_package(tmp_path: Path) -> None:
    lacking = tmp_path / "lacking"
    lacking.mkdir()
    (lacking / "duckdb.py").write_text("raise ImportError('not here')\n")
    said = said_of(tmp_path, **{"spark.executorEnv.PYTHONPATH": str(lacking)})
    assert "cannot import duckdb (not here)" in said
    assert "spark.pyspark.python" in said


@pytest.mark.spark
@pytest.mark.cluster
@pytest.mark.timeout(900)
def test_there_are_no_more_slots_than_sites(tmp_path: Path) -> None:
    said = said_of(tmp_path, "--master", "local-cluster[1,1,1024]", sites=1)
    assert "1 sites takes a task slot" in said.replace("job's ", "")
    assert "at least 2 cores" in said
    assert "fewer `sites`" in said
