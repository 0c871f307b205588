"""`blazes doctor STATE` on the folders of a job that has run, whole and damaged."""

from __future__ import annotations

import fcntl
import json
import sys
from pathlib import Path

import pytest

from blazes.cli import main
from flux_runtime.commits.record import commit_name

sys.path.append(str(Path(__file__).parent.parent / "flux_runtime" / "commits"))
from job_folders import UNIT, Folders


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """A compiled project's folder with state and results."""
    folders = Folders(tmp_path / "clicks")
    folders.commit(folders.start(), 0, 1)
    return folders


@pytest.mark.parametrize("given", ["", "state"])
def test_a_state_that_is_whole(
    folders: Folders, capsys: pytest.CaptureFixture[str], given: str
) -> None:
    for beside in ("staging", "swept-000001-a"):  # what drivers leave
        (folders.path / "state" / "channels" / f".{UNIT}.{beside}" / "000001-a").mkdir(parents=True)
    assert main(["doctor", str(folders.path / given)]) == 0
    printed = capsys.readouterr().out
    assert printed == f"{folders.path / 'state'} and 1 folder of results: nothing is damaged.\n"
    assert main(["doctor", str(folders.path / given), "--quiet"]) == 0
    assert capsys.readouterr().out == ""


def test_damage_is_named_with_what_is_safe_and_what_to_do(
    folders: Folders, capsys: pytest.CaptureFixture[str]
) -> None:
    part = folders.path / "results" / "totals" / commit_name(UNIT, 1) / "part-0.json"
    part.write_text('{"a": 9}\n')
    assert main(["doctor", str(folders.path)]) == 1
    first, safe, do, last = capsys.readouterr().out.splitlines()
    assert f"{part}: the content is not what was written" in first
    assert safe == "    safe: the other commits are checked one by one"
    assert do.startswith("    do: nothing was read from it")
    assert last.endswith("1 folder of results: 1 finding. Nothing was changed.")


def test_the_json_twin(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    moved = folders.path / "elsewhere"
    (folders.path / "results").rename(moved)
    arguments = ["doctor", str(folders.path), "--format", "json"]
    assert main(arguments) == 1
    result = json.loads(capsys.readouterr().out)
    (finding,) = result["findings"]
    assert result["ok"] is False
    assert set(finding) == {"place", "problem", "safe", "remedy"}
    assert "commit 1 of Count.counts is missing" in finding["problem"]
    assert main([*arguments, "--results", str(moved / "totals")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["ok"], result["results"]) == (True, [str(moved / "totals")])


def test_a_folder_that_is_no_state_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", str(tmp_path)]) == 2
    assert "is not the state folder of a job" in capsys.readouterr().err
    assert main(["doctor", str(tmp_path / "none")]) == 2
    assert "there is no" in capsys.readouterr().err
    assert main(["doctor", "--results", str(tmp_path)]) == 2


def test_a_state_is_checked_at_rest(folders: Folders, capsys: pytest.CaptureFixture[str]) -> None:
    with (folders.path / "state" / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert main(["doctor", str(folders.path)]) == 2
    assert "a job runs on" in capsys.readouterr().err
    assert main(["doctor", str(folders.path)]) == 0
