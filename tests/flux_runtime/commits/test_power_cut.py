"""The order of flushing of small files and folders: what is left after a power cut is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from power_cut import Disk

from flux_runtime.commits.record import RECORD, CommitRecord, check_commit, commit_name
from flux_runtime.sealing import manifest
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage

NAME = commit_name("Count.counts", 1)


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    (tmp_path / "disk").mkdir()
    return LocalStorage(tmp_path / "disk")


@pytest.fixture
def disk(storage: LocalStorage, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(storage.root, monkeypatch)


def stage(storage: LocalStorage) -> None:
    """What another program leaves in the staging folder, unflushed."""
    staged = storage.root / ".out.staging" / "deep" / NAME
    (staged / "part").mkdir(parents=True)
    (staged / "part-0.json").write_text('{"a": 1}\n')
    (staged / "part" / "part-1.json").write_text('{"a": 2}\n')


def record_of(storage: LocalStorage, name: str) -> bytes:
    files = manifest.take(storage, name)
    return CommitRecord(
        unit="Count.counts", number=1, previous=None, epoch=3, state="s", rows=2, files=files
    ).to_bytes()


def test_a_file_that_was_written_is_there_with_all_folders_above_it(
    storage: LocalStorage, disk: Disk, tmp_path: Path
) -> None:
    storage.write("a/b/c", b"content")
    assert LocalStorage(disk.image(tmp_path / "image")).read("a/b/c") == b"content"


def test_a_file_that_need_not_be_flushed_may_be_gone_but_is_not_half(
    storage: LocalStorage, disk: Disk, tmp_path: Path
) -> None:
    storage.write("a/known", b"before")
    storage.write("a/known", b"after", flush=False)
    assert storage.read("a/known") == b"after"
    assert LocalStorage(disk.image(tmp_path / "image")).read("a/known") == b"before"


def test_a_commit_is_whole_or_absent_at_every_moment(
    storage: LocalStorage, disk: Disk, tmp_path: Path
) -> None:
    """Cut after every single flush; a commit that can be seen then is complete."""
    seen = []

    def cut() -> None:
        image = LocalStorage(disk.image(tmp_path / f"image-{disk.flushes}"))
        names = image.names("out")
        seen.append(names)
        for name in names:
            assert check_commit(image.at("out"), name).rows == 2

    disk.on_flush = cut
    stage(storage)
    staged = f".out.staging/deep/{NAME}"
    storage.write(f"{staged}/{RECORD}", record_of(storage, staged))
    storage.move(staged, f"out/{NAME}")
    assert seen[0] == []
    assert seen[-1] == [NAME]


def test_it_bites_a_folder_that_is_moved_unflushed_is_damaged_afterwards(
    storage: LocalStorage, disk: Disk, tmp_path: Path
) -> None:
    stage(storage)
    staged = f".out.staging/deep/{NAME}"
    (storage.root / staged / RECORD).write_bytes(b"{}")
    storage.move(staged, f"out/{NAME}")
    image = LocalStorage(disk.image(tmp_path / "image"))
    assert image.names("out") == [NAME]
    with pytest.raises(DamagedError):
        check_commit(image.at("out"), NAME)
