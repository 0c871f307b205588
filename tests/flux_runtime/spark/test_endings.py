"""Honest ends: what a run leaves is in its summary, its last line and, if asked for, its status."""

from __future__ import annotations

from pathlib import Path

import pytest
from ends_job import Project

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def last_line(err: str) -> str:
    return [line for line in err.splitlines() if line.startswith("ends: ")][-1]


def test_what_a_run_leaves_is_said_and_counted(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.partition(1, 10, 20)
    project.partition(2, 5, promised=3)  # two are still on their way
    status, err = project.run("--fail-on", "quarantine,late,dead-letters")
    assert status == 0, err
    line = last_line(err)
    assert line.startswith("ends: finished, and left 1 open partition (the oldest: Total [2], open")
    assert "waits for items: 1 of 3 records of a); run folder " in line
    assert project.summary["status"] == "finished"
    left = project.summary["left"]
    assert (left["open_partitions"], left["quarantined_partitions"]) == (1, 0)
    assert left["oldest"]["key"] == ["2"]

    project.partition(1, 7)  # late: a record and a punctuation
    status, err = project.run("--fail-on", "open,late")
    assert status == 3
    assert "2 dead letters (2 late), which --fail-on open,late makes exit status 3" in err
    assert project.summary["failed_on"] == ["open", "late"]
    assert project.summary["left"]["late_records"] == 2

    project.send({"k": 2, "v": 6, "p": "a"}, {"k": 2, "v": 7, "p": "a"})
    project.partition(3, 1, 1, promised=1)
    status, err = project.run("--fail-on", "late,dead-letters,open")
    assert status == 0, err  # those of the run before are no news
    assert last_line(err).startswith("ends: finished, and left 1 in quarantine; run folder ")
    assert project.results == {1: 30, 2: 18}
    status, err = project.run("--fail-on", "quarantine")
    assert status == 3
    assert "1 in quarantine, which --fail-on quarantine makes exit status 3" in last_line(err)


def test_unknown_words_are_bad_usage(tmp_path: Path) -> None:
    status, err = Project(tmp_path).run("--fail-on", "open,latecomers")
    assert status == 2
    assert "'latecomers' is not one of open, quarantine, dead-letters, late" in err
