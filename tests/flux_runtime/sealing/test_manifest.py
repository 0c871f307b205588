"""Every change to a folder after its manifest was taken is noticed, and nothing else is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_runtime.sealing.manifest import DamagedError, Manifest, check, take
from flux_runtime.sealing.storage import LocalStorage

CONTENTS = {"a.parquet": b"first", "below/b.parquet": b"second" * 50, "empty": b""}


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    """A storage with a folder of three files, and what does not belong to it."""
    return written(tmp_path / "state")


def written(root: Path) -> LocalStorage:
    for name, content in {**CONTENTS, "_SUCCESS": b"", ".a.crc": b"x", "_tmp/c": b"y"}.items():
        file = root / "chunk" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    return LocalStorage(root)


def test_the_manifest_names_what_is_visible(storage: LocalStorage) -> None:
    files = take(storage, "chunk")
    assert {name: size for name, (size, _) in files.items()} == {
        name: len(content) for name, content in CONTENTS.items()
    }
    check(storage, "chunk", files)
    manifest = Manifest(5, files, {"batches": [1, 3]})
    assert Manifest.from_json(manifest.to_json()) == manifest


def test_what_is_hidden_may_change(storage: LocalStorage) -> None:
    files = take(storage, "chunk")
    (storage.root / "chunk" / "_SUCCESS").unlink()
    (storage.root / "chunk" / ".other").write_bytes(b"new")
    check(storage, "chunk", files)


@pytest.mark.parametrize(
    ("damage", "place", "problem"),
    [
        ("delete a.parquet", "chunk/a.parquet", "missing"),
        ("delete below/b.parquet", "chunk/below/b.parquet", "missing"),
        ("add below/c.parquet", "chunk/below/c.parquet", "added"),
        ("cut below/b.parquet", "chunk/below/b.parquet", "299 bytes and was written with 300"),
        ("flip below/b.parquet", "chunk/below/b.parquet", "CRC32"),
        ("folder a.parquet", "chunk/a.parquet", "missing"),
        ("rename", "chunk", "the folder is missing"),
    ],
)
def test_damage_is_named(storage: LocalStorage, damage: str, place: str, problem: str) -> None:
    files = take(storage, "chunk")
    verb, _, name = damage.partition(" ")
    file = storage.root / "chunk" / name
    match verb:
        case "delete":
            file.unlink()
        case "add":
            file.write_bytes(b"")
        case "cut":
            file.write_bytes(file.read_bytes()[:-1])
        case "flip":
            flip(file, 7)
        case "folder":
            file.unlink()
            file.mkdir()
        case "rename":
            file.rename(storage.root / "chunk.old")
    for contents in {True, verb == "flip"}:
        with pytest.raises(DamagedError, match=problem) as error:
            check(storage, "chunk", files, contents=contents, remedy="ask somebody")
        assert error.value.place == storage.uri(place)
        assert str(error.value).endswith("ask somebody")


def test_a_repaired_folder_is_accepted(storage: LocalStorage) -> None:
    files = take(storage, "chunk")
    file = storage.root / "chunk" / "a.parquet"
    file.unlink()
    with pytest.raises(DamagedError):
        check(storage, "chunk", files)
    file.write_bytes(CONTENTS["a.parquet"])
    check(storage, "chunk", files)


def test_a_verified_file_is_not_read_again(storage: LocalStorage) -> None:
    (storage.root / "chunk" / "large").write_bytes(os.urandom(4 << 20))
    files = take(storage, "chunk")
    before = bytes_read()
    check(storage, "chunk", files)
    assert bytes_read() - before < 1 << 20
    os.utime(storage.root / "chunk" / "large")
    before = bytes_read()
    check(storage, "chunk", files)
    assert bytes_read() - before >= 4 << 20


def bytes_read() -> int:
    """By this process, from any file."""
    status = Path("/proc/self/io").read_text()
    return int(status.split()[1])


def test_a_change_that_hides_behind_its_time_is_noticed(storage: LocalStorage) -> None:
    files = take(storage, "chunk")
    file = storage.root / "chunk" / "a.parquet"
    before = file.stat()
    flip(file, 0)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(DamagedError, match="CRC32"):  # the time of change gives it away
        check(storage, "chunk", files)
    flip(file, 0)
    check(storage, "chunk", files)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is no folder"):
        take(LocalStorage(tmp_path), "chunk")


@settings(max_examples=60, deadline=None)
@given(bit=st.integers(0, 8 * sum(map(len, CONTENTS.values())) - 1))
def test_every_flipped_bit_is_noticed(tmp_path_factory: pytest.TempPathFactory, bit: int) -> None:
    storage = written(tmp_path_factory.mktemp("state"))
    files = take(storage, "chunk")
    position, name = bit // 8, "a.parquet"
    if position >= len(CONTENTS[name]):
        position, name = position - len(CONTENTS[name]), "below/b.parquet"
    flip(storage.root / "chunk" / name, position, 1 << bit % 8)
    with pytest.raises(DamagedError, match=f"{name}: the content is not what was written"):
        check(storage, "chunk", files)


def flip(file: Path, position: int, mask: int = 1) -> None:
    """Change bits of one byte in place."""
    with file.open("r+b") as content:
        content.seek(position)
        byte = content.read(1)[0]
        content.seek(position)
        content.write(bytes([byte ^ mask]))
