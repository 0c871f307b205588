"""A ledger that is damaged is refused, or is as it was at an earlier moment; it is never wrong."""

from __future__ import annotations

import contextlib
import gc
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rocksdict import Options, Rdict

from flux_runtime.sealing import ledger as ledgers
from flux_runtime.sealing.events import (
    Chunk,
    Coverage,
    Group,
    Groups,
    Ingested,
    ReleaseFinished,
    ReleaseStarted,
)
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.tracker import All, Rules
from tests.flux_runtime.full_disk import full_disk

RULES = Rules(inputs={"items": All(("a",))})
BATCHES = 12
FLIPS = 40


def state(ledger: Ledger) -> tuple[Any, ...]:
    tracker = ledger.tracker
    last = tracker.ingested.get("items", (-1, None))[0]
    released = sorted(tracker.released)
    return last, tracker.releases, tracker.pending, sorted(tracker.partitions), released


def grown(path: Path) -> tuple[Ledger, list[tuple[Any, ...]]]:
    """A ledger with open and released partitions, still open, and all states that it had."""
    ledger = Ledger(path, RULES)
    states = [state(ledger)]
    for batch in range(BATCHES):
        groups = (
            Group(f"done {batch}", "a", None, None, 3),
            Group(f"done {batch}", "a", 3, None, 1),
            Group(f"open {batch}", "a", None, None, 2),
        )
        covered = Coverage("query", str(batch), str(batch + 1))
        chunk = Chunk("records", 5, 2, 0, {"part": (1, 2)})
        ledger.record(Ingested("items", batch, float(batch), Groups.of(groups), 0, covered, chunk))
        states.append(state(ledger))
        if batch % 3 == 2:
            release = ledger.tracker.next_release()
            assert release is not None
            ledger.record(ReleaseStarted(release, float(batch)))
            states.append(state(ledger))
            ledger.record(ReleaseFinished(release.number, float(batch)))
            states.append(state(ledger))
    return ledger, states


def take(ledger: Ledger, batch: int) -> None:
    groups = tuple(Group(f"{batch} {i}", "a", None, None, 2) for i in range(50))
    covered = Coverage("query", str(batch), str(batch + 1))
    chunk = Chunk("records", 100, 50, 0, {"part": (1, 2)})
    ledger.record(Ingested("items", batch, float(batch), Groups.of(groups), 0, covered, chunk))


@pytest.fixture
def killed(tmp_path: Path) -> tuple[Path, list[tuple[Any, ...]]]:
    """What a killed process leaves: all entries are in the log."""
    ledger, states = grown(tmp_path / "ledger")
    shutil.copytree(tmp_path / "ledger", tmp_path / "killed")
    ledger.close()
    return tmp_path / "killed", states


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[Path, list[tuple[Any, ...]]]:
    """What a stopped process leaves: all entries are in a table."""
    ledger, states = grown(tmp_path / "ledger")
    ledger.close()
    return tmp_path / "ledger", states


def opened(folder: Path, damage: Callable[[Path], None]) -> tuple[Any, ...] | None:
    """The state of a damaged copy, all of it read; None: it was refused, with a remedy."""
    copy = folder.with_name("copy")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    damage(copy)
    try:
        with Ledger(copy, RULES) as ledger:
            ledger.verify()
            return state(ledger)
    except DamagedError as error:
        refusal = error
    assert str(copy) in refusal.place
    assert "--fresh" in refusal.remedy
    return None


def largest(folder: Path, pattern: str) -> Path:
    return max(folder.glob(pattern), key=lambda path: path.stat().st_size)


def flips(pattern: str) -> list[Callable[[Path], None]]:
    rng = random.Random(1)

    def flip(at: float, bit: int) -> Callable[[Path], None]:
        def damage(folder: Path) -> None:
            file = largest(folder, pattern)
            content = bytearray(file.read_bytes())
            content[int(at * len(content))] ^= 1 << bit
            file.write_bytes(content)

        return damage

    return [flip(rng.random(), rng.randrange(8)) for _ in range(FLIPS)]


def test_a_flipped_bit_of_the_log_is_refused(killed: tuple[Path, list[tuple[Any, ...]]]) -> None:
    folder, states = killed
    assert opened(folder, lambda _: None) == states[-1]
    assert largest(folder, "*.log").stat().st_size > 1000
    assert [opened(folder, damage) for damage in flips("*.log")] == [None] * FLIPS


def test_a_flipped_bit_of_a_table_is_refused_or_of_no_account(
    stopped: tuple[Path, list[tuple[Any, ...]]],
) -> None:
    folder, states = stopped
    assert opened(folder, lambda _: None) == states[-1]
    found = [opened(folder, damage) for damage in flips("*.sst")]
    assert None in found
    assert all(now in (None, states[-1]) for now in found)


def test_a_damaged_table_that_is_met_in_the_background_is_refused_at_the_next_write(
    tmp_path: Path,
) -> None:
    """What was released is not read at the start, but when RocksDB compacts its tables."""

    def took(ledger: Ledger, batch: int, *keys: str) -> None:
        covered = Coverage("query", str(batch), str(batch + 1))
        chunk = Chunk("records", 0, 0, 0, {"part": (1, 2)})
        groups = tuple(Group(key, "a", 0, None, 1) for key in keys)
        ledger.record(Ingested("items", batch, 0.0, Groups.of(groups), 0, covered, chunk))
        release = ledger.tracker.next_release()
        if release is not None:
            ledger.record(ReleaseStarted(release, 0.0), ReleaseFinished(release.number, 0.0))

    folder = tmp_path / "ledger"
    with Ledger(folder, RULES) as ledger:
        took(ledger, 0, *(f"{i:05d}" for i in range(5000)))
    refused: list[bool] = []
    for damage in flips("*.sst")[:3]:
        copy = tmp_path / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(folder, copy)
        damage(copy)
        with contextlib.suppress(DamagedError), Ledger(copy, RULES) as ledger:
            took(ledger, 1, "00000 and a half")
            ledger._db.flush()
            ledger._db.compact_range(b"", b"\xff")
            try:
                took(ledger, 2, "later")
            except DamagedError as error:
                refused.append("--fresh" in error.remedy)
    assert refused
    assert all(refused)


def test_a_log_that_is_cut_short_is_an_earlier_state_that_the_checkpoint_gives_away(
    killed: tuple[Path, list[tuple[Any, ...]]], tmp_path: Path
) -> None:
    folder, states = killed
    rng = random.Random(2)
    found = set()
    for _ in range(FLIPS // 2):
        share = rng.random()

        def cut(folder: Path, share: float = share) -> None:
            log = largest(folder, "*.log")
            size = int(share * log.stat().st_size)
            with log.open("r+b") as file:
                file.truncate(size)

        now = opened(folder, cut)
        assert now is None or now in states
        if now is not None:
            found.add(now[0])
            with Ledger(tmp_path / "copy", RULES) as ledger:
                if now[0] < BATCHES - 1:
                    with pytest.raises(DamagedError, match="the checkpoint has done"):
                        ledger.tracker.compare("items", planned=BATCHES, committed=BATCHES - 1)
                else:
                    ledger.tracker.compare("items", planned=BATCHES, committed=BATCHES - 1)
    assert len(found) > 3


@pytest.mark.parametrize("name", ["CURRENT", "MANIFEST-*", "*.sst"])
def test_a_ledger_without_one_of_its_files_is_refused_and_left_as_it_is(
    stopped: tuple[Path, list[tuple[Any, ...]]], tmp_path: Path, name: str
) -> None:
    folder, _ = stopped

    def delete(copy: Path) -> None:
        largest(copy, name).unlink()

    assert opened(folder, delete) is None
    tables = {file.name for file in folder.glob("*.sst")}
    left = {file.name for file in (tmp_path / "copy").glob("*.sst")}
    assert left == (tables if name != "*.sst" else set())


def test_a_ledger_without_an_entry_of_its_journal_is_refused(
    stopped: tuple[Path, list[tuple[Any, ...]]],
) -> None:
    """Without the last one it is an earlier state, which the checkpoint gives away."""
    folder, states = stopped

    def without(which: int) -> Callable[[Path], None]:
        def delete(copy: Path) -> None:
            with contextlib.closing(Rdict(str(copy), Options(raw_mode=True))) as entries:
                del entries[[name for name in entries.keys() if name[:1] == b"j"][which]]  # noqa: SIM118

        return delete

    assert opened(folder, without(0)) is None
    assert opened(folder, without(-1)) == states[-2]


def test_a_ledger_that_was_written_without_a_journal_is_taken_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(ledgers, "JOURNAL_MAX", 0)  # every entry writes the parts
        ledger, states = grown(tmp_path / "ledger")
        ledger.close()
    with contextlib.closing(Rdict(str(tmp_path / "ledger"), Options(raw_mode=True))) as entries:
        meta = json.loads(entries[b"meta"])
        del meta["journal"], meta["rules"]
        entries[b"meta"] = json.dumps(meta | {"format": 4}).encode()
    for number in range(2):  # as it was, then with a journal
        with Ledger(tmp_path / "ledger", RULES) as ledger:
            assert state(ledger) == states[-1]
            take(ledger, BATCHES + number)
            states.append(state(ledger))


def test_a_ledger_whose_making_was_interrupted_is_made(tmp_path: Path) -> None:
    """RocksDB names its files in CURRENT last."""
    Ledger(tmp_path / "ledger", RULES).close()
    (tmp_path / "ledger" / "CURRENT").unlink()
    for file in tmp_path.glob("ledger/*.log"):
        file.unlink()
    with Ledger(tmp_path / "ledger", RULES) as ledger:
        assert state(ledger)[0] == -1


def test_a_ledger_that_another_driver_has_taken_over_is_left_as_it_is(tmp_path: Path) -> None:
    """The older driver's process still has it open, and must not write into it any more."""
    newer = False

    def guard() -> None:
        if newer:
            raise RuntimeError("a newer driver runs the job")

    def contents() -> dict[str, bytes]:
        files = (tmp_path / "ledger").iterdir()
        return {file.name: file.read_bytes() for file in files if not file.name.startswith("LOG")}

    ledger = Ledger(tmp_path / "ledger", RULES, guard=guard)
    ledger.record(Ingested("items", 0, 0.0, Groups.of([Group("k", "a", None, None, 3)]), 0))
    newer = True
    before = contents()
    ledger.close()
    del ledger
    gc.collect()
    assert contents() == before


@pytest.mark.parametrize("size", [40_000, 50_001, 62_000, 77_777])
def test_a_full_disk_stops_the_ledger_which_goes_on_from_what_is_written(
    tmp_path: Path, size: int
) -> None:
    """A write that fails is not believed, nor is any later one, also when there is space again."""

    folder = tmp_path / "ledger"
    states: list[tuple[Any, ...]] = []

    def fill(ledger: Ledger) -> None:
        while len(states) < 1000:
            take(ledger, len(states))
            states.append(state(ledger))

    with Ledger(folder, RULES) as ledger:
        with full_disk(size), pytest.raises(Exception, match="IO error"):
            fill(ledger)
        with pytest.raises(RuntimeError, match="could not be written"):
            take(ledger, len(states))
    assert 2 < len(states) < 1000
    with full_disk(100), pytest.raises(Exception, match="IO error") as told:
        Ledger(folder, RULES)
    assert not isinstance(told.value, DamagedError)
    with Ledger(folder, RULES) as ledger:
        assert state(ledger) == states[-1]
        take(ledger, len(states))
        expected = state(ledger)
    with Ledger(folder, RULES) as ledger:
        assert ledger.verify() > len(states)
        assert len(ledger.tracker.partitions) == 50 * (len(states) + 1)
        assert state(ledger) == expected
