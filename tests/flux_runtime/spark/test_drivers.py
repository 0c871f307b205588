"""One driver at a time: real processes on the same results, the older one paused with SIGSTOP.

A lock on the state folder keeps two drivers of one machine apart. It does not reach everywhere: not
over some shared file systems, and never to a copy of the state that is started somewhere else.
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from ends_job import Project, copy_state, go_on, until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

STOPS = re.compile(
    r"a newer driver, epoch (\d+), \S+:\d+ since \S+ \S+, runs this job; this one, epoch (\d+), "
    r"stops; nothing was committed after that"
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path, name=f"ends-{uuid.uuid4()}")


@pytest.fixture
def ending() -> Iterator[list[subprocess.Popen[str]]]:
    """Processes that are killed if a test fails."""
    processes: list[subprocess.Popen[str]] = []
    yield processes
    for process in processes:
        if process.poll() is None:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("point", ["output-staged", "output-checked"])
def test_where_locks_do_not_reach_the_state_says_who_is_newer(
    project: Project, ending: list[subprocess.Popen[str]], point: str
) -> None:
    """Paused before its last check, and between this check and the rename."""
    project.partition(1, 10, 20)
    project.partition(2, 5)
    old = project.paused(point)
    ending.append(old)
    status, err = project.run()
    assert status == 1
    assert "another process runs this job" in err
    for lock in (".lock", "units/Total/ledger/LOCK"):
        (project.path / "state" / lock).unlink()  # as if the lock did not reach
    status, err = project.run()
    assert status == 0, err
    before = project.records
    assert project.results == {1: 30, 2: 5}
    assert {record.epoch for record in before} == {2}
    status, err = go_on(old)
    assert status == 1
    stops = STOPS.search(err)
    assert stops is not None, err
    assert stops.groups() == ("2", "1")
    assert project.records == before
    assert project.results == {1: 30, 2: 5}
    if point == "output-checked":  # the job goes on with what the older one has left
        project.partition(3, 1)
        status, err = project.run()
        assert status == 0, err
        assert project.results == {1: 30, 2: 5, 3: 1}


def test_a_copied_state_and_an_ensemble(
    project: Project, ending: list[subprocess.Popen[str]], zookeeper_hosts: str
) -> None:
    """A backup is started elsewhere. The idle older driver hears of it, and stops by itself."""
    ensemble = ("--zookeeper", zookeeper_hosts)
    project.partition(1, 10, 20)
    paused = project.paused("output-checked", *ensemble)
    ending.append(paused)
    shutil.copytree(project.path / "state", project.path / "copy")
    idle = project.start("--state-dir", "copy", *ensemble)
    ending.append(idle)
    until(lambda: project.results == {1: 30}, idle)
    status, err = go_on(paused)
    assert status == 1
    assert STOPS.search(err), err
    assert project.results == {1: 30}

    copy_state(project.path / "copy", project.path / "third")
    project.partition(2, 7)
    until(lambda: project.results == {1: 30, 2: 7}, idle)
    _, err = idle_stopped_by(project, idle, "third", ensemble)
    stops = STOPS.search(err)
    assert stops is not None, err
    assert int(stops[1]) > int(stops[2])


def idle_stopped_by(
    project: Project, idle: subprocess.Popen[str], state: str, ensemble: tuple[str, str]
) -> tuple[int, str]:
    """Start a copy of a state that has since gone on; what the driver that it stops says."""
    newer = project.start("--state-dir", state, *ensemble)
    try:
        _, err = idle.communicate(timeout=300)
        assert idle.returncode == 1
        return idle.returncode, err
    finally:
        newer.send_signal(signal.SIGKILL)
        newer.communicate()


def test_another_state_on_the_same_results_is_refused_and_results_that_were_deleted(
    project: Project,
) -> None:
    project.partition(1, 10, 20)
    assert project.run()[0] == 0
    status, err = project.run("--state-dir", "state-2")
    assert status == 1
    assert "holds results of another state" in err
    assert "--state-dir" in err
    assert not list((project.path / "state-2").glob("units"))
    (project.path / "results").rename(project.path / "elsewhere")
    project.partition(2, 5)
    status, err = project.run()
    assert status == 1
    assert "results have gone: the state says that Total has made its commit 1" in err
    (project.path / "elsewhere").rename(project.path / "results")
    assert project.run()[0] == 0
    assert project.results == {1: 30, 2: 5}
    assert [(r.number, r.previous, r.epoch) for r in project.records] == [(1, None, 1), (2, 1, 2)]
    shutil.rmtree(project.path / "results")
    assert project.run()[0] == 1
    assert project.run("--fresh")[0] == 0
    assert project.results == {1: 30, 2: 5}
    assert {record.epoch for record in project.records} == {3}
