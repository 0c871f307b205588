"""When states of a stage are kept, which ones a run begins with, and what is deleted."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from flux_runtime.operators.packing import Unreadable
from flux_runtime.operators.processor_state import KeyedState
from flux_runtime.operators.state_file import (
    PartsFile,
    Restored,
    file_of,
    mark_ready,
    write_state,
)
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.flux import order_checkpoint as kept
from flux_runtime.spark.flux.order_checkpoint import (
    KEEP_BYTES,
    LESS_OFTEN_MAX,
    Kept,
    KeptStates,
    NotKept,
)

PAIRS = [Pair(0, 0), Pair(0, 1), Pair(1, 0)]


def states(folder: Path, *, every: int = 10) -> KeptStates:
    return KeptStates(LocalStorage(folder), PAIRS, every=every)


def gathered(
    of: KeptStates, batches: int, pairs: list[Pair] = PAIRS, why: str = "", done: bool = True
) -> Kept | None:
    def ask(batch: int, folder: Path) -> str:
        assert batch == batches - 1
        for pair in pairs:
            write_state(folder, pair, f"{pair} after {batch}")
        return why

    return of.gather(
        batches, batches + 2, ask=ask, committed=lambda: done, stopping=threading.Event()
    )


def test_or_5_states_are_kept_after_so_many_batches_or_bytes(tmp_path: Path) -> None:
    of = states(tmp_path)
    assert not of.due(0, 0)
    assert not of.due(9, KEEP_BYTES - 1)
    assert of.due(9, KEEP_BYTES)
    assert of.due(10, 0)
    of.note(Kept(10, 12, "a", size=3 * KEEP_BYTES))
    assert not of.due(10, 9 * KEEP_BYTES), "nothing has come since"
    assert not of.due(19, 2 * KEEP_BYTES), "keeping them costs more than the order does"
    assert of.due(20, 0)
    assert of.due(19, 3 * KEEP_BYTES)


def test_or_5_a_run_begins_with_what_was_noted_last_and_keeps_it_until_it_ends(
    tmp_path: Path,
) -> None:
    first = states(tmp_path)
    assert first.begin() is None
    noted = gathered(first, 10)
    assert noted is not None
    assert (noted.batches, noted.place) == (10, 12)
    first.note(noted)
    second = states(tmp_path)
    assert second.now == noted
    began = second.begin()
    assert began is not None
    assert sorted(file.name for file in began.iterdir()) == ["0-0", "0-1", "1-0"]
    for batches in (20, 30):
        later = gathered(second, batches)
        assert later is not None
        second.note(later)
        assert {folder.name for folder in began.parent.iterdir()} == {began.name, later.folder}
    third = states(tmp_path)
    assert third.begin() == began.parent / later.folder
    assert not began.exists()


def test_or_5_states_that_are_not_all_there_are_not_noted_and_are_asked_for_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = states(tmp_path)
    monkeypatch.setattr(kept, "PATIENCE_S", 0.2)
    with pytest.raises(NotKept, match=f"in {tmp_path}/kept 0.2 s after"):
        gathered(of, 10, PAIRS[:2])
    assert of.now == Kept()
    assert not of.due(29, KEEP_BYTES)
    assert of.due(30, 0), "less often from now on"
    assert gathered(of, 30) is not None
    assert of.due(40, 0)
    stopping = threading.Event()
    stopping.set()
    ended = of.gather(20, 20, ask=lambda *_: "", committed=lambda: True, stopping=stopping)
    assert ended is None


def test_or_5_a_site_that_cannot_write_its_states_ends_the_wait_at_once(tmp_path: Path) -> None:
    of = states(tmp_path)
    at = 0
    for failures in range(1, 12):
        at += 10 * min(2 ** (failures - 1), LESS_OFTEN_MAX)
        assert not of.due(at - 1, 0)
        assert of.due(at, 0)
        with pytest.raises(NotKept, match="no space"):  # its wait has no end as long as ...
            gathered(of, at, PAIRS[:2], why="OSError: no space", done=False)
    assert gathered(of, at, why="OSError: one copy could not, the other did") is not None


def test_or_5_input_waits_only_once_sites_have_written_what_they_can_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "LOOK_AGAIN_S", 0.0)
    of = states(tmp_path)
    asked: list[Path] = []

    def ask(batch: int | None, folder: Path) -> str:
        assert batch is None
        asked.append(folder)
        mark_ready(folder, PAIRS[len(asked) - 1])
        return ""

    monkeypatch.setattr(kept, "ASK_AGAIN_S", 0.0)
    assert [of.ready(10 + i, ask) for i in range(4)] == [False, False, False, True]
    assert len(set(asked)) == 1, "in one folder"
    later = gathered(of, 13)
    assert later is not None
    assert later.folder == asked[0].name
    assert not of.ready(20, lambda *_: ""), "another folder for the next"
    assert of.ready(20, lambda *_: "OSError: no space"), "who waits hears why"


@pytest.mark.parametrize("cut", [9, 20, -1])
def test_a_file_of_parts_that_is_damaged_is_refused(cut: int, tmp_path: Path) -> None:
    state = KeyedState()
    file = PartsFile(tmp_path, PAIRS[0])
    for number in range(3):
        state.enter((number,))
        state.write("n", ((number,), None))
    for part in state.parts():
        file.add(part)
    file.finish(state.rest())
    path = file_of(tmp_path, PAIRS[0])
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(Unreadable, match=r"0-0: .*--fresh"):
        Restored(KeyedState(), path).get_state()


def test_or_5_states_may_be_there_before_the_results_are_committed(tmp_path: Path) -> None:
    assert gathered(states(tmp_path), 10, done=False) is not None
