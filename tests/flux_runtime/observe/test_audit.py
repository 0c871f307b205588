"""`audit` on folders that real drivers have written, with each kind of damage in turn."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flux_runtime.commits.record import RECORD, commit_name
from flux_runtime.observe.audit import CHECKS, audit, is_state, outputs_of

sys.path.append(str(Path(__file__).parent.parent / "commits"))
from job_folders import UNIT, Folders


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    """A job that has run twice, and has made three commits."""
    folders = Folders(tmp_path)
    folders.commit(folders.start(), 0, 1)
    folders.commit(folders.start(), 3)
    return folders


def test_what_is_whole_has_no_finding(folders: Folders) -> None:
    state = folders.path / "state"
    assert is_state(state)
    assert not is_state(folders.path)
    assert outputs_of(state) == [folders.path / "results" / "totals"]
    assert audit(state) == ()


def commit(folders: Folders, number: int) -> Path:
    return folders.path / "results" / "totals" / commit_name(UNIT, number)


def another_state(folders: Folders) -> None:
    other = Folders(folders.path / "other")
    other.commit(other.start(), 7)
    shutil.copytree(commit(other, 7), commit(folders, 7))


def older_copy(folders: Folders) -> None:
    shutil.copytree(folders.path / "state", folders.path / "copy")
    folders.commit(folders.start(), 4)
    shutil.rmtree(folders.path / "state")
    (folders.path / "copy").rename(folders.path / "state")


DAMAGE: dict[str, tuple[Callable[[Folders], object], str, str]] = {
    "a part of a commit deleted": (
        lambda f: (commit(f, 1) / "part-0.json").unlink(),
        "the file is missing",
        "the other commits",
    ),
    "a part of a commit changed": (
        lambda f: (commit(f, 0) / "part-0.json").write_text('{"a": 7}\n'),
        "not what was written",
        "the other commits",
    ),
    "a record deleted": (
        lambda f: (commit(f, 3) / RECORD).unlink(),
        f"has no {RECORD}",
        "the other commits",
    ),
    "a commit in between deleted": (
        lambda f: shutil.rmtree(commit(f, 1)),
        f"commit 1 of {UNIT}, which came before this one, is missing",
        "are whole",
    ),
    "the newest commit deleted": (
        lambda f: shutil.rmtree(commit(f, 3)),
        f"commit 3 of {UNIT} is missing, which the state has made last",
        "the state is whole",
    ),
    "all results deleted": (
        lambda f: shutil.rmtree(f.path / "results"),
        "which the state has made last",
        "the state is whole",
    ),
    "a commit of another state": (another_state, "belongs to another state", "is whole"),
    "the id of the state deleted": (
        lambda f: (f.path / "state" / "identity.json").unlink(),
        "the id of this state is missing",
        "which state they belong to",
    ),
    "the id of the state damaged": (
        lambda f: (f.path / "state" / "identity.json").write_text("{"),
        "unreadable",
        "which state they belong to",
    ),
    "the epoch deleted": (
        lambda f: (f.path / "state" / "epoch.json").unlink(),
        "it is missing",
        "not concerned",
    ),
    "the epoch damaged": (
        lambda f: (f.path / "state" / "epoch.json").write_text("{"),
        "unreadable",
        "not concerned",
    ),
    "the ledger damaged": (
        lambda f: (f.path / "state" / "outputs.json").write_text("["),
        "is damaged",
        "not concerned",
    ),
    "the owner damaged": (
        lambda f: (f.path / "results" / ".totals.owner.json").write_text("["),
        "whose results these are is unreadable",
        "every commit says it",
    ),
    "an older copy of the state": (older_copy, "it is an older copy of the state", "are whole"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_every_damage_has_a_finding_with_a_remedy(folders: Folders, damage: str) -> None:
    do, problem, safe = DAMAGE[damage]
    results = outputs_of(folders.path / "state")
    do(folders)
    findings = audit(folders.path / "state", results)
    found = [finding for finding in findings if problem in finding.problem]
    assert found, findings
    assert safe in found[0].safe
    assert found[0].remedy
    assert found[0].place.startswith(str(folders.path))


def test_one_look_says_everything(folders: Folders) -> None:
    (folders.path / "state" / "epoch.json").write_text("{")
    (commit(folders, 0) / "part-0.json").unlink()
    shutil.rmtree(commit(folders, 3))
    findings = audit(folders.path / "state")
    assert len(findings) == 3
    assert json.loads(json.dumps([finding.to_json() for finding in findings]))


def test_what_all_readers_are_done_with_is_no_loss(folders: Folders) -> None:
    state = folders.path / "state"
    assert audit(state) == ()
    (state / "floors.json").write_text(json.dumps({"sink totals": {UNIT: 1}}))
    shutil.rmtree(commit(folders, 0))
    shutil.rmtree(commit(folders, 1))
    # only channels have floors; results that go are always told
    assert [finding.problem for finding in audit(state)] == []


def test_the_checks_change_nothing(folders: Folders) -> None:
    before = {p: p.stat().st_mtime_ns for p in folders.path.rglob("*")}
    for check in CHECKS:
        list(check(folders.path / "state", outputs_of(folders.path / "state")))
    assert {p: p.stat().st_mtime_ns for p in folders.path.rglob("*")} == before
