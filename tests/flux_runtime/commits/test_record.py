"""Commits that know themselves: any damage of a folder, or of what it says, is noticed."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flux_runtime.commits.record import (
    RECORD,
    CommitRecord,
    check_commit,
    check_commits_of,
    commit_name,
    number_of,
    place_of,
    same,
)
from flux_runtime.sealing import manifest
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage

UNIT = "Count.counts"
NAME = commit_name(UNIT, 7)


def commit(folder: LocalStorage, name: str = NAME, *, unit: str = UNIT, number: int = 7) -> None:
    (folder.root / name).mkdir(parents=True)
    (folder.root / name / "part-0.json").write_text('{"a": 1}\n{"a": 2}\n')
    (folder.root / name / "part-1.json").write_text('{"a": 3}\n')
    (folder.root / name / "_SUCCESS").touch()
    record = CommitRecord(
        unit=unit,
        number=number,
        previous=5,
        epoch=3,
        state="ab12",
        rows=3,
        files=manifest.take(folder, name),
        covers={"to": [{"logOffset": 7}]},
    )
    folder.write(f"{name}/{RECORD}", record.to_bytes())


@pytest.fixture
def folder(tmp_path: Path) -> LocalStorage:
    folder = LocalStorage(tmp_path / "my results" / "out")
    commit(folder)
    return folder


def test_a_commit_says_what_it_is(folder: LocalStorage) -> None:
    record = check_commit(folder, NAME)
    assert (record.unit, record.number, record.previous, record.epoch) == (UNIT, 7, 5, 3)
    assert (record.state, record.rows) == ("ab12", 3)
    assert set(record.files) == {"part-0.json", "part-1.json"}
    assert same(record.covers, {"to": [{"logOffset": 7}]})


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "a file deleted": (lambda c: (c / "part-0.json").unlink(), "missing"),
    "a file added": (lambda c: (c / "part-9.json").write_text("{}"), "added"),
    "a file cut short": (lambda c: (c / "part-0.json").write_text('{"a": 1}\n'), "bytes"),
    "a byte flipped": (
        lambda c: (c / "part-1.json").write_bytes(b'{"a": 7}\n'),
        "not what was written",
    ),
    "the record deleted": (lambda c: (c / RECORD).unlink(), f"has no {RECORD}"),
    "the record cut short": (lambda c: (c / RECORD).write_bytes(b'{"unit": '), "damaged"),
    "the folder deleted": (shutil.rmtree, "does not exist"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_is_refused_with_what_is_damaged_and_how_to_go_on(
    folder: LocalStorage, damage: str
) -> None:
    do, says = DAMAGE[damage]
    do(folder.root / NAME)
    with pytest.raises(DamagedError, match=says) as refused:
        check_commit(folder, NAME)
    assert NAME in refused.value.place
    assert "--fresh" in str(refused.value)


def test_every_flipped_byte_of_a_record_is_noticed(folder: LocalStorage) -> None:
    file = folder.root / NAME / RECORD
    content = file.read_bytes()
    for position in range(len(content) - 1):  # the last one is the end of the line
        file.write_bytes(
            content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]
        )
        try:
            changed = check_commit(folder, NAME)
        except DamagedError:
            continue
        assert changed == CommitRecord.from_bytes(content), position  # white space, for example


def test_a_commit_under_another_name_is_no_commit(folder: LocalStorage) -> None:
    (folder.root / NAME).rename(folder.root / commit_name(UNIT, 8))
    with pytest.raises(DamagedError, match="under another name"):
        check_commit(folder, commit_name(UNIT, 8))


def test_all_commits_among_the_files_of_a_micro_batch_are_checked(folder: LocalStorage) -> None:
    commit(folder, commit_name(UNIT, 8), number=8)
    addresses = [
        folder.uri(f"{NAME}/part-0.json"),
        folder.uri(f"{commit_name(UNIT, 8)}/part-1.json"),
    ]
    assert [record.number for record in check_commits_of(addresses)] == [7, 8]
    (folder.root / NAME / "part-1.json").unlink()  # which Spark did not see any more
    with pytest.raises(DamagedError, match=r"part-1\.json: the file is missing"):
        check_commits_of(addresses)
    with pytest.raises(DamagedError, match="elsewhere: this commit does not exist"):
        check_commits_of([folder.uri("elsewhere/part-0.json")])


@given(st.text(), st.text(), st.integers(0, 10**12))
def test_any_units_name_is_one_component_of_a_path(unit: str, other: str, number: int) -> None:
    name = commit_name(unit, number)
    assert len(name.encode()) < 255
    assert not set(name) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-")
    assert name[0] not in "._"  # which readers pass over
    assert number_of(name, unit) == number
    assert (place_of(unit) == place_of(other)) == (unit == other)


@pytest.mark.parametrize("unit", ["x" * 5000, "/" * 100, "Zoë 日本", "a-1", "a", "../..", "~2F"])
def test_hostile_names_of_units(tmp_path: Path, unit: str) -> None:
    folder = LocalStorage(tmp_path)
    name = commit_name(unit, 7)
    commit(folder, name, unit=unit)
    assert check_commit(folder, name).unit == unit
    assert [p.name for p in tmp_path.iterdir()] == [name]


def test_long_names_that_begin_the_same_stay_apart() -> None:
    assert place_of("x" * 5000) != place_of("x" * 5001)


def test_what_a_later_version_wrote_is_not_guessed(folder: LocalStorage) -> None:
    data = json.loads((folder.root / NAME / RECORD).read_bytes())
    data["version"] = 2
    del data["crc32"]
    text = json.dumps(data, sort_keys=True, separators=(",", ":")).encode()
    data["crc32"] = f"{zlib.crc32(text):08x}"
    folder.write(f"{NAME}/{RECORD}", json.dumps(data).encode())
    with pytest.raises(DamagedError, match="another version"):
        check_commit(folder, NAME)
