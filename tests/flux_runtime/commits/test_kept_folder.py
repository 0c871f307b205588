"""A state in an object store: what was flushed, and nothing else, whatever the store does."""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.seal_attack.store import ADDRESS, KINDS, Store, serving
from flux_runtime.commits import kept_folder
from flux_runtime.commits.fence import FencedError
from flux_runtime.commits.kept_folder import (
    HEAD,
    INBOX,
    KeptFolder,
    copy_of,
    folder_of,
    leave,
)
from flux_runtime.commits.objects import Objects, StoreError, Version
from flux_runtime.sealing import batch_log
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage, commit_kept, keeping, sync_folder
from tests.flux_runtime.sealing.test_ledger_damage import RULES, grown, state

STEPS = 60
DRIVERS = 6


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setattr(Objects, "first_wait_s", 0.001)
    store = Store(random.Random(7))
    with serving(store) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield store


def started(folder: Path, *, fresh: bool = False) -> KeptFolder:
    folder.mkdir(exist_ok=True)
    driver = KeptFolder(ADDRESS, folder, fresh=fresh)
    driver.restore()
    driver.take_over()
    return driver


def files(folder: Path) -> dict[str, bytes]:
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def copied(folder: Path) -> dict[str, bytes]:
    folder.mkdir()
    copy_of(ADDRESS, folder)
    return files(folder)


class Work:
    """Random work on a folder, and what of it a disk would have flushed."""

    def __init__(self, rng: random.Random, driver: KeptFolder, flushed: dict[str, bytes]) -> None:
        self.rng = rng
        self.driver = driver
        self.folder = driver.folder
        self.storage = LocalStorage(self.folder)
        self.flushed = flushed

    def step(self) -> None:
        """One change, on the disk when this returns."""
        self.rng.choice([self.write, self.write, self.fill, self.move, self.delete, self.link])()
        commit_kept()

    def write(self) -> None:
        name = self.name()
        self.flushed[name] = self.rng.randbytes(self.rng.choice([0, 10, 1000, 20_000]))
        self.storage.write(name, self.flushed[name], flush=self.rng.random() < 0.7)

    def fill(self) -> None:
        """Files that somebody else writes into a folder of their own, and that are flushed then."""
        folder = self.folder / f"filled-{self.rng.randrange(4)}"
        folder.mkdir(exist_ok=True)
        for file in folder.iterdir():
            if self.rng.random() < 0.3:
                file.unlink()
                self.flushed.pop(f"{folder.name}/{file.name}", None)
        for number in range(self.rng.randrange(4)):
            (folder / f"part-{number}").write_bytes(self.rng.randbytes(30_000 * number))
        (folder / ".hidden").write_bytes(b"not flushed")
        sync_folder(folder)
        for file in folder.glob("part-*"):
            self.flushed[f"{folder.name}/{file.name}"] = file.read_bytes()

    def move(self) -> None:
        source, target = self.folders()
        if (self.folder / source).exists() and not (self.folder / target).exists():
            self.storage.move(source, target)
            for name in [*self.flushed]:
                if name.startswith(f"{source}/"):
                    moved = f"{target}/{name.removeprefix(f'{source}/')}"
                    self.flushed[moved] = self.flushed.pop(name)

    def delete(self) -> None:
        name = self.rng.choice([self.name(), self.folders()[0]])
        self.storage.delete(name)
        for known in [*self.flushed]:
            if known == name or known.startswith(f"{name}/"):
                del self.flushed[known]

    def link(self) -> None:
        """Tables of RocksDB are hard links in its checkpoints."""
        source, target = (self.folder / folder for folder in self.folders())
        if source.is_dir() and not target.exists():
            target.mkdir()
            for file in source.glob("part-*"):
                os.link(file, target / file.name)
                self.flushed[f"{target.name}/{file.name}"] = file.read_bytes()
            sync_folder(target)

    def name(self) -> str:
        folder = self.rng.choice(["", "a/", "a/b/", "filled-1/", "filled-12/"])
        return f"{folder}{self.rng.choice(['x', 'y', 'z'])}"

    def folders(self) -> tuple[str, str]:
        names = [f"filled-{number}" for number in range(8)]
        return self.rng.choice(names), self.rng.choice(names)


def differing(found: Mapping[str, bytes], expected: Mapping[str, bytes]) -> set[str]:
    """The names of the files that differ; their contents are too large for pytest to compare."""
    return {n for n in found.keys() | expected.keys() if found.get(n) != expected.get(n)}


def worked(store: Store, folder: Path, seed: int) -> None:
    """Drivers one after the other, each killed, with its machine or without it.

    Some go on working while the next one is started, on another machine.
    """
    rng = random.Random(seed)
    flushed: dict[str, bytes] = {}
    machines = [folder / "machine-0", folder / "machine-1"]
    work, closed = None, False
    for number in range(DRIVERS):
        before = None if closed or rng.random() < 0.5 else work
        at = rng.randrange(2) if before is None else 1 - machines.index(before.folder)
        machine = machines[at]
        machine.mkdir(exist_ok=True)
        driver = KeptFolder(ADDRESS, machine)
        driver.restore()
        if before is not None:
            with keeping(before.folder, before.driver):
                for _ in range(rng.randrange(STEPS)):
                    before.step()
        driver.take_over()
        assert not differing(
            {n: data for n, data in files(machine).items() if n[0] != "."}, flushed
        )
        store.disturb({kind: rng.choice([0, 0.05, 0.2]) for kind in KINDS if kind != "late"})
        with keeping(machine, driver):
            work = Work(rng, driver, flushed)
            for _ in range(rng.randrange(STEPS)):
                work.step()
        store.calm()
        closed = rng.random() < 0.3
        if closed:
            driver.close()
        assert not differing(copied(folder / f"copy-{number}"), flushed)


@pytest.fixture(autouse=True)
def small_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_folder, "CHANGES_MIN", 3)
    monkeypatch.setattr(kept_folder, "GARBAGE_MIN", 4)


@pytest.mark.parametrize("seed", range(2))
def test_what_was_flushed_is_there_whatever_the_store_does(
    store: Store, tmp_path: Path, seed: int
) -> None:
    worked(store, tmp_path, seed)
    started(tmp_path / "last").close()
    found = kept_folder.read_head(Objects(ADDRESS))
    assert found is not None
    used = {one.object for one in (*found[0].tree.values(), found[0].base) if one is not None}
    assert set(Objects(ADDRESS).names("")) == used | {HEAD}


def _own_puts_are_not_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Objects.get

    def wrong(self: Objects, name: str) -> tuple[bytes, Version] | None:
        found = right(self, name)
        return (found[0] + b" ", found[1]) if found and name == HEAD else found

    monkeypatch.setattr(Objects, "get", wrong)


def _moves_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KeptFolder, "moved", lambda *_: None)


def _objects_are_deleted_before_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    right = KeptFolder._drop

    def wrong(self: KeptFolder, path: str, *, garbage: bool = True) -> None:
        if garbage and path in self._tree:
            self._objects.delete([self._tree[path].object or "none"])
        right(self, path, garbage=garbage)

    monkeypatch.setattr(KeptFolder, "_drop", wrong)


def _what_was_deleted_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kept_folder._bring

    def wrong(objects: Objects, tree: Any, folder: Path, here: dict[str, Any]) -> None:
        right(objects, here | tree, folder, here)

    monkeypatch.setattr(kept_folder, "_bring", wrong)


def _what_has_changed_meanwhile_is_not_brought(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kept_folder._bring

    def wrong(objects: Objects, tree: Any, folder: Path, here: dict[str, Any]) -> None:
        right(objects, {p: here.get(p, extent) for p, extent in tree.items()}, folder, here)

    monkeypatch.setattr(kept_folder, "_bring", wrong)


@pytest.mark.parametrize(
    "mistake",
    [
        _what_was_deleted_meanwhile_stays,
        _what_has_changed_meanwhile_is_not_brought,
        _own_puts_are_not_known_again,
        _moves_are_not_followed,
        _objects_are_deleted_before_the_commit,
    ],
)
def test_a_planted_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None],
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    with pytest.raises((AssertionError, DamagedError, FencedError)):
        worked(store, tmp_path, seed=0)


def test_a_driver_that_was_replaced_commits_nothing_more(store: Store, tmp_path: Path) -> None:
    old = started(tmp_path / "old")
    with keeping(old.folder, old):
        LocalStorage(old.folder).write("a", b"1")
    new = started(tmp_path / "new")
    with keeping(old.folder, old), pytest.raises(FencedError, match="a newer driver, epoch 2"):
        LocalStorage(old.folder).write("a", b"2")
    with pytest.raises(FencedError):
        old.newest()
    with keeping(new.folder, new):
        LocalStorage(new.folder).write("b", b"3")
    assert copied(tmp_path / "copy") == {"a": b"1", "b": b"3"}


def test_a_start_that_does_not_take_over_stops_nobody(store: Store, tmp_path: Path) -> None:
    old = started(tmp_path / "old")
    with keeping(old.folder, old):
        LocalStorage(old.folder).write("a", b"1")
        (tmp_path / "new").mkdir()
        new = KeptFolder(ADDRESS, tmp_path / "new")
        new.restore()
        assert files(new.folder) == {"a": b"1"}
        new.close()
        assert old.newest() == old.driver
        LocalStorage(old.folder).write("b", b"2")
    assert copied(tmp_path / "copy") == {"a": b"1", "b": b"2"}


def test_a_damaged_object_is_found_where_the_working_folder_is_still_whole(
    store: Store, tmp_path: Path
) -> None:
    driver = started(tmp_path / "one")
    with keeping(driver.folder, driver):
        LocalStorage(driver.folder).write("a", b"1")
    driver.close()
    name = driver._tree["a"].object
    store.damage(next(n for n in store.objects if n.endswith(name)), random.Random(1))
    with pytest.raises(DamagedError, match="it holds a"):
        started(tmp_path / "one")


def test_a_state_is_brought_however_often_its_driver_deletes_objects(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time objects are read the driver replaces one; what has been read is kept."""
    driver = started(tmp_path / "one")
    large = random.Random(1).randbytes(20_000)
    names = [f"{number:02d}" for number in range(20)]
    with keeping(driver.folder, driver):
        for name in names:
            LocalStorage(driver.folder).write(name, large)
    reads: Counter[str] = Counter()
    right = Objects.get

    def get(self: Objects, name: str) -> tuple[bytes, Version] | None:
        if name != HEAD:
            reads[name] += 1
            if reads.total() <= len(names):
                with keeping(driver.folder, driver):
                    LocalStorage(driver.folder).write(names[-1], large[: -reads.total()])
                    driver._collect(least=1)
        return right(self, name)

    (tmp_path / "other").mkdir()
    other = KeptFolder(ADDRESS, tmp_path / "other")
    monkeypatch.setattr(kept_folder, "AT_ONCE", 1)
    monkeypatch.setattr(Objects, "get", get)
    other.restore()
    other.take_over()
    assert files(other.folder) == files(driver.folder)
    assert {reads[driver._tree[name].object] for name in names[:-1]} == {1}


def test_a_driver_deletes_no_folder_but_its_own(store: Store, tmp_path: Path) -> None:
    started(tmp_path / "documents").close()
    with pytest.raises(StoreError, match="delete what is there"):
        folder_of(ADDRESS)
    assert folder_of(ADDRESS, fresh=True).parent == Path(tempfile.gettempdir()).resolve()


def test_an_idle_driver_hears_of_a_newer_one(store: Store, tmp_path: Path) -> None:
    old = started(tmp_path / "old")
    started(tmp_path / "new")
    with pytest.raises(FencedError, match="a newer driver"):
        old.look()


def test_a_put_whose_answer_is_lost_is_known_again(store: Store, tmp_path: Path) -> None:
    driver = started(tmp_path / "one")
    store.disturb({"lost": 0.3, "failed after": 0.3})
    with keeping(driver.folder, driver):
        for number in range(20):
            LocalStorage(driver.folder).write("a", b"%d" % number)
    assert store.calm().total() > 0
    assert copied(tmp_path / "copy") == {"a": b"19"}


def test_a_commit_of_which_nobody_knows_the_end_stops_the_driver(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_folder, "RETRIES_S", 0.0)
    driver = started(tmp_path / "one")
    store.disturb({"conflict": 1.0})
    storage = LocalStorage(driver.folder)
    with keeping(driver.folder, driver):
        with pytest.raises(StoreError, match="has refused a commit"):
            storage.write("a", b"1")
        store.calm()
        with pytest.raises(StoreError, match="could not be written"):
            storage.write("b", b"1")
    assert copied(tmp_path / "copy") == {}


def test_objects_of_drivers_that_were_killed_are_deleted_and_no_others(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was paused while it took over deletes nothing of those after it."""
    first = started(tmp_path / "first")
    with keeping(first.folder, first):
        LocalStorage(first.folder).write("kept", b"1")
    Objects(ADDRESS).put("objects/00000001-0123/000000009", b"not committed")
    paused = KeptFolder(ADDRESS, tmp_path / "first")
    paused.restore()
    delete = Objects.delete

    def delayed(objects: Objects, unneeded: Iterable[str]) -> None:
        """The newer one comes between the take-over and what is deleted after it."""
        monkeypatch.setattr(Objects, "delete", delete)
        newer = started(tmp_path / "newer")
        with keeping(newer.folder, newer):
            LocalStorage(newer.folder).write("more", b"2")
        assert "objects/00000001-0123/000000009" not in {*Objects(ADDRESS).names("")}
        objects.delete(unneeded)

    monkeypatch.setattr(Objects, "delete", delayed)
    paused.take_over()
    assert copied(tmp_path / "copy") == {"kept": b"1", "more": b"2"}


@pytest.mark.parametrize("damage", ["deleted", "cut short", "changed"])
def test_an_object_that_is_damaged_is_refused(store: Store, tmp_path: Path, damage: str) -> None:
    driver = started(tmp_path / "one")
    with keeping(driver.folder, driver):
        LocalStorage(driver.folder).write("a/b", b"12345")
    driver.close()
    for name in sorted(store.objects):
        before = store.copy()
        if damage == "deleted":
            if name.endswith(HEAD):  # then there is no state
                continue
            del store.objects[name]
        elif damage == "cut short":
            store.objects[name] = store.objects[name][:-1]
        else:
            store.objects[name] = store.objects[name][:-1] + b"#"
        with pytest.raises(DamagedError, match=name):
            started(tmp_path / "other")
        started(tmp_path / "fresh", fresh=True)
        store.put_back(before)


def test_a_fresh_start_forgets_all_but_the_driver(store: Store, tmp_path: Path) -> None:
    old = started(tmp_path / "old")
    with keeping(old.folder, old):
        for name in ("a", "b/c", "epoch.json"):
            LocalStorage(old.folder).write(name, b"1")
    leave(ADDRESS, "decisions/U/1.json", b"{}")
    new = started(tmp_path / "new", fresh=True)
    assert files(new.folder) == {"epoch.json": b"1"}
    with keeping(new.folder, new):
        new.clear()
        LocalStorage(new.folder).write("d", b"2")
    new.close()
    assert copied(tmp_path / "copy") == {"epoch.json": b"1", "d": b"2"}
    assert not [name for name in store.objects if INBOX in name]


def test_what_others_leave_comes_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_folder, "LOOK_S", -1.0)
    leave(ADDRESS, "decisions/U/1.json", b"{}")
    left = store.copy()
    driver = started(tmp_path / "one")
    storage = LocalStorage(driver.folder)
    with keeping(driver.folder, driver):
        driver.look()
        assert storage.read("decisions/U/1.json") == b"{}"
        storage.move("decisions/U/1.json", "decisions/U/taken/1.json")
        store.objects |= left  # it was killed before it deleted the letter
        driver.look()
        assert storage.names("decisions/U") == ["taken"]
    assert not [name for name in store.objects if INBOX in name]


@pytest.mark.parametrize("batches_max", [5, 1000])
def test_a_ledger_is_made_anew_from_its_batches(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches_max: int
) -> None:
    """And once more where the driver before goes on until it is replaced."""
    monkeypatch.setattr(batch_log, "BATCHES_MAX", batches_max)
    driver = started(tmp_path / "one")
    with keeping(driver.folder, driver):
        ledger, states = grown(driver.folder / "units" / "U" / "ledger")
    (tmp_path / "other").mkdir()
    other = KeptFolder(ADDRESS, tmp_path / "other")
    other.restore()
    with keeping(driver.folder, driver):
        LocalStorage(driver.folder).write("meanwhile", b"1")
    other.take_over()
    with (
        keeping(other.folder, other),
        Ledger(other.folder / "units" / "U" / "ledger", RULES) as again,
    ):
        assert state(again) == states[-1]
        assert (other.folder / "units" / "U" / "ledger.base").exists() == (batches_max == 5)
    (tmp_path / "copy").mkdir()
    copy_of(ADDRESS, tmp_path / "copy")
    with Ledger(tmp_path / "copy" / "units" / "U" / "ledger", RULES, read_only=True) as seen:
        assert state(seen) == states[-1]
    with keeping(driver.folder, driver):
        ledger.close()


def test_every_state_of_a_ledger_is_kept(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever head is the newest when the driver is killed, the ledger is as it was then."""
    monkeypatch.setattr(batch_log, "BATCHES_MAX", 3)
    monkeypatch.setattr(kept_folder, "GARBAGE_MIN", 1 << 30)
    heads: list[bytes] = []
    right = Objects.replace

    def noted(self: Objects, name: str, data: bytes, version: Version | None) -> Version:
        heads.append(data)
        return right(self, name, data, version)

    driver = started(tmp_path / "one")
    with monkeypatch.context() as noting, keeping(driver.folder, driver):
        noting.setattr(Objects, "replace", noted)
        ledger, states = grown(driver.folder / "units" / "U" / "ledger")
    seen = []
    for number, head in enumerate(heads):
        store.objects[f"attacked/state/{HEAD}"] = head
        folder = tmp_path / f"copy-{number}"
        folder.mkdir()
        copy_of(ADDRESS, folder)
        with Ledger(folder / "units" / "U" / "ledger", RULES) as again:
            seen.append(state(again))
    assert [s for s in states if s not in seen] == states[:1][: states[0] not in seen]
    assert all(s in states for s in seen)
    with keeping(driver.folder, driver):
        ledger.close()
