"""One driver at a time: an older one cannot commit, whenever it was paused."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from job_folders import UNIT, Folders

from flux_runtime.commits.driver import Driver
from flux_runtime.commits.fence import EPOCH, EpochFile, Fence, FencedError, FencedStorage
from flux_runtime.commits.record import commit_name
from flux_runtime.sealing.storage import LocalStorage


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    return Folders(tmp_path)


def test_an_older_driver_is_stopped_with_who_has_come(folders: Folders) -> None:
    old, new = folders.start(), folders.start()
    folders.owner(new).check()
    with pytest.raises(FencedError) as stopped:
        folders.owner(old).check()
    assert str(stopped.value) == (
        f"a newer driver, {new.driver}, runs this job; this one, epoch 1, stops; "
        "nothing was committed after that"
    )
    with pytest.raises(FencedError):
        folders.commit(old, 0)
    folders.commit(new, 0)


def test_one_that_was_paused_between_its_check_and_its_commit_commits_nothing(
    folders: Folders,
) -> None:
    old = folders.start()
    folders.commit(old, 0)
    staged = folders.stage(old, 1)
    folders.owner(old).check()
    new = folders.start()  # while the old one is paused
    with pytest.raises(FileNotFoundError):
        folders.place(old, staged)
    folders.commit(new, 1)
    with pytest.raises(FencedError):
        folders.owner(old).check()


def test_one_that_stages_anew_after_that_does_not_disturb_the_newer_one(folders: Folders) -> None:
    old, new = folders.start(), folders.start()
    folders.stage(old, 0)  # Spark tasks that were still at it
    folders.commit(new, 0)
    assert [p.name for p in (folders.path / "results" / "totals").iterdir()] == [
        commit_name(UNIT, 0)
    ]


def test_a_copied_state_is_noticed_by_the_results(folders: Folders) -> None:
    """A backup that is started on another machine, while the first one still runs."""
    old = folders.start()
    folders.commit(old, 0)
    shutil.copytree(folders.path / "state", folders.path / "copy")
    new = folders.start("copy")
    assert new.state_id == old.state_id
    folders.commit(new, 1)
    old.fence.check()  # its own state says nothing of it
    with pytest.raises(FencedError, match="epoch 2"):
        folders.owner(old).check()


def test_the_state_of_an_older_driver_cannot_be_changed_any_more(folders: Folders) -> None:
    old = folders.start()
    state = FencedStorage(folders.path / "state", old.fence).at("units").at(UNIT)
    state.write("journal/1", b"1")
    folders.start()
    for change in (
        lambda: state.write("journal/2", b"2"),
        lambda: state.move("journal/1", "journal/3"),
        lambda: state.delete("journal/1"),
    ):
        with pytest.raises(FencedError):
            change()
    assert state.names("journal") == ["1"]
    assert state.read("journal/1") == b"1"


def test_a_state_that_is_deleted_stops_the_driver(folders: Folders) -> None:
    old = folders.start()
    shutil.rmtree(folders.path / "state")
    with pytest.raises(FencedError, match="has been deleted while it ran"):
        old.fence.check()


def test_an_epoch_that_is_damaged_stops_the_driver(folders: Folders) -> None:
    old = folders.start()
    (folders.path / "state" / EPOCH).write_text('{"epoch": 1')
    with pytest.raises(FencedError, match=r"epoch\.json is damaged"):
        old.fence.check()


def test_of_two_that_took_the_same_epoch_the_second_one_stays(folders: Folders) -> None:
    """Neither saw the other: two machines, and a file system without locks."""
    storage = LocalStorage(folders.path)
    one, two = Driver(epoch=4, state="s"), Driver(epoch=4, state="s")
    place = EpochFile(storage)
    place.write(one)
    place.write(two)
    Fence(two, EpochFile(storage)).check()
    with pytest.raises(FencedError):
        Fence(one, EpochFile(storage)).check()


def test_what_one_thread_notices_stops_all(folders: Folders) -> None:
    old = folders.start()
    fence = old.fence
    errors: list[BaseException] = []

    def work() -> None:
        try:
            while True:
                fence.watch()
        except FencedError as stopped:
            errors.append(stopped)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    fence.notice(Driver(epoch=old.driver.epoch, state="s", run=old.driver.run))  # itself
    fence.notice(None)
    fence.notice(Driver(epoch=9, state="s"))
    for thread in threads:
        thread.join(60)
    assert len(errors) == 4
    assert all("epoch 9" in str(error) for error in errors)


def test_epochs_only_grow(folders: Folders) -> None:
    assert [folders.start().driver.epoch for _ in range(4)] == [1, 2, 3, 4]
    ownership = folders.ownership()
    ownership.check()
    ownership.claim(epoch=20)  # ZooKeeper knew of later ones
    assert ownership.driver.epoch == 20
    (folders.path / "state" / EPOCH).unlink()  # what stands beside the results is enough
    assert folders.start().driver.epoch == 21
