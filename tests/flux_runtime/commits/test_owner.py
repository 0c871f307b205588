"""Results belong to one state: every way in which the two can part is refused with a remedy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from job_folders import UNIT, Folders

from flux_runtime.commits.fence import FencedError
from flux_runtime.commits.owner import FLOORS, INVENTORY, NotOwnerError, read_identity, read_owner
from flux_runtime.commits.record import commit_name
from flux_runtime.sealing.manifest import DamagedError


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_a_job_goes_on_with_its_own_results(folders: Folders) -> None:
    first = folders.start()
    folders.commit(first, 0, 1)
    second = folders.start()
    assert second.state_id == first.state_id
    assert (first.driver.epoch, second.driver.epoch) == (1, 2)
    assert folders.owner(second).newest(UNIT) == 1
    folders.commit(second, 2)
    owner = read_owner(folders.location())
    assert owner is not None
    assert (owner.job, owner.driver, owner.newest) == ("clicks", second.driver, {UNIT: 2})
    visible = [p.name for p in (folders.path / "results" / "totals").iterdir()]
    assert sorted(visible) == [commit_name(UNIT, number) for number in (0, 1, 2)]


def test_another_state_on_the_same_results_is_refused(folders: Folders) -> None:
    """The second driver would skip partitions as done that it has never seen."""
    mine = folders.start()
    folders.commit(mine, 0)
    other = folders.ownership("state-2")
    with pytest.raises(NotOwnerError, match="holds results of another state") as refused:
        other.check()
    assert mine.state_id in str(refused.value)
    assert f"{mine.driver.host}:{mine.driver.pid}" in str(refused.value)
    assert "--state-dir" in refused.value.remedy
    folders.owner(mine).check()  # nothing was changed: the first one goes on
    assert not (folders.path / "state-2").exists()


def test_results_of_a_state_that_was_deleted_are_refused(folders: Folders) -> None:
    folders.commit(folders.start(), 0)
    shutil.rmtree(folders.path / "state")
    with pytest.raises(NotOwnerError, match="is a new one") as refused:
        folders.ownership().check()
    assert "--fresh" in refused.value.remedy


def test_results_without_an_owner_are_recognised_by_their_commits(folders: Folders) -> None:
    first = folders.start()
    folders.commit(first, 0, 1)
    (folders.path / "results" / ".totals.owner.json").unlink()  # moved without hidden files
    second = folders.start()
    assert second.driver.epoch > first.driver.epoch
    (folders.path / "results" / ".totals.owner.json").write_bytes(b'{"job": ')  # half of it
    folders.start()
    (folders.path / "results" / ".totals.owner.json").unlink()
    with pytest.raises(NotOwnerError, match="nothing says that they are"):
        folders.ownership("state-2").check()


@pytest.mark.parametrize("what", ["everything", "the output", "the newest commit"])
def test_results_that_have_gone_are_refused(folders: Folders, what: str) -> None:
    folders.commit(folders.start(), 0, 1)
    results = folders.path / "results"
    gone = {
        "everything": results,
        "the output": results / "totals",
        "the newest commit": results / "totals" / commit_name(UNIT, 1),
    }
    shutil.rmtree(gone[what])
    with pytest.raises(DamagedError, match="results have gone") as refused:
        folders.ownership().check()
    assert "made its commit 1" in refused.value.problem
    assert "is whole" in refused.value.remedy
    assert "--fresh" in refused.value.remedy


def test_a_damaged_newest_commit_is_refused(folders: Folders) -> None:
    folders.commit(folders.start(), 0, 1)
    part = folders.path / "results" / "totals" / commit_name(UNIT, 1) / "part-0.json"
    part.write_text('{"a": 7}\n')
    with pytest.raises(DamagedError, match=r"part-0\.json: the content is not what was written"):
        folders.ownership().check()


def test_a_commit_of_another_state_among_them_is_refused(folders: Folders) -> None:
    folders.commit(folders.start(), 0)
    other = Folders(folders.path / "other")
    other.commit(other.start(), 7)
    name = commit_name(UNIT, 7)
    shutil.copytree(
        other.path / "results" / "totals" / name, folders.path / "results" / "totals" / name
    )
    with pytest.raises(NotOwnerError, match="is a commit of another state"):
        folders.ownership().check()


def test_an_older_commit_may_be_taken_away(folders: Folders) -> None:
    """Somebody archives results; what is there last says how far they go."""
    folders.commit(folders.start(), 0, 1)
    shutil.rmtree(folders.path / "results" / "totals" / commit_name(UNIT, 0))
    folders.commit(folders.start(), 2)


def test_results_may_be_ahead_of_the_ledger(folders: Folders) -> None:
    """A crash between the rename and the inventory, which is not flushed either."""
    first = folders.start()
    folders.commit(first, 0)
    inventory = (folders.path / "state" / INVENTORY).read_bytes()
    folders.commit(first, 1)
    (folders.path / "state" / INVENTORY).write_bytes(inventory)
    assert folders.owner(folders.start()).newest(UNIT) == 1


@pytest.mark.parametrize("content", [None, b""], ids=["missing", "empty"])
def test_what_was_deleted_stays_known_without_the_inventory(
    folders: Folders, content: bytes | None
) -> None:
    """A crash of the machine, after the inventory was written without being flushed."""
    owner = folders.owner(folders.start())
    owner.raise_floor(UNIT, 5)
    place = folders.path / "state" / INVENTORY
    place.unlink() if content is None else place.write_bytes(content)
    assert folders.owner(folders.start()).floor(UNIT) == 5


def test_an_output_may_get_another_path(folders: Folders) -> None:
    folders.commit(folders.start(), 0)
    folders.output = "elsewhere/totals"
    moved = folders.start()
    assert folders.owner(moved).newest(UNIT) is None
    folders.commit(moved, 1)
    folders.output = "third/totals"
    shutil.copytree(folders.path / "elsewhere", folders.path / "third")  # results move along
    shutil.rmtree(folders.path / "elsewhere")
    assert folders.owner(folders.start()).newest(UNIT) == 1
    shutil.rmtree(folders.path / "third")
    folders.output = "fourth/totals"
    with pytest.raises(DamagedError, match="results have gone"):
        folders.ownership().check()


def test_starting_afresh_makes_another_state_of_it(folders: Folders) -> None:
    first = folders.start()
    folders.commit(first, 0)
    fresh = folders.ownership(fresh=True)
    fresh.check()
    fresh.claim()
    with pytest.raises(FencedError, match=f"epoch {fresh.driver.epoch}"):
        folders.owner(first).check()
    shutil.rmtree(folders.path / "results" / "totals")
    fresh.clear()
    assert fresh.state_id != first.state_id
    assert fresh.driver.epoch > first.driver.epoch
    assert read_identity(fresh.state) == fresh.state_id
    folders.commit(fresh, 0)
    assert folders.start().state_id == fresh.state_id


def test_the_results_of_another_job_are_not_deleted(folders: Folders) -> None:
    folders.commit(folders.start(), 0)
    folders.job = "orders"
    with pytest.raises(NotOwnerError, match="another job, clicks"):
        folders.ownership("state-2", fresh=True).check()


def test_a_state_without_its_id_is_refused(folders: Folders) -> None:
    folders.commit(folders.start(), 0)
    (folders.path / "state" / "identity.json").unlink()
    with pytest.raises(DamagedError, match=r"no identity\.json"):
        folders.ownership().check()
    (folders.path / "state" / "identity.json").write_text("{")
    with pytest.raises(DamagedError, match="unreadable"):
        folders.ownership()


@pytest.mark.parametrize("name", [INVENTORY, FLOORS])
def test_a_damaged_ledger_is_refused(folders: Folders, name: str) -> None:
    folders.commit(folders.start(), 0)
    (folders.path / "state" / name).write_text("[")
    with pytest.raises(DamagedError, match=name):
        folders.ownership()


def test_a_path_that_spark_takes_for_a_pattern_is_refused(folders: Folders) -> None:
    folders.output = "results [1]/totals"
    with pytest.raises(ValueError, match=r"cannot use a folder with \[ \] in its path"):
        folders.ownership().check()


def test_two_sinks_in_one_folder_are_one_output(folders: Folders) -> None:
    one = folders.location()
    two = type(one)(name="sink more", path=one.path + "/", units=("Other.out",))
    ownership = type(folders.start())("clicks", folders.start().state, [one, two])
    (output,) = ownership.outputs
    assert output.units == (UNIT, "Other.out")


def test_the_ledger_is_readable(folders: Folders) -> None:
    folders.commit(folders.start(), 0, 1)
    inventory = json.loads((folders.path / "state" / INVENTORY).read_bytes())
    assert inventory["sink totals"]["newest"] == {UNIT: 1}
    assert inventory["sink totals"]["path"] == str(folders.path / "results" / "totals")
