"""Files of lines stay small, with the newest whole and what lasts; nobody's line is lost."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flux_runtime.observe.reader import Tail
from flux_runtime.observe.thinned import ThinnedLog
from tests.flux_runtime.full_disk import full_disk

LIMIT = 20_000


def log(file: Path, *, max_bytes: int = LIMIT) -> ThinnedLog:
    return ThinnedLog(
        file,
        of=lambda line: line["stage"],
        lasting=lambda line: "copies" in line,
        max_bytes=max_bytes,
    )


def read(file: Path) -> list[Mapping[str, Any]]:
    return list(Tail(file).records())


def test_a_file_stays_small_and_keeps_the_newest_the_oldest_and_what_lasts(tmp_path: Path) -> None:
    file = tmp_path / "stages.jsonl"
    writer = log(file)
    writer.append({"t": 0, "stage": "b", "copies": ["b"]})
    largest = 0
    for t in range(1, 5000):
        writer.append({"t": t, "stage": "a", **({"copies": [t]} if t % 100 == 1 else {})})
        largest = max(largest, file.stat().st_size)
    assert largest < LIMIT + 100
    found = read(file)
    assert {"t": 0, "stage": "b", "copies": ["b"]} in found, "the last that is known of b"
    assert [line["copies"] for line in found if "copies" in line][-1] == [4901]
    times = [line["t"] for line in found if line["stage"] == "a"]
    assert times == sorted(times)
    assert times[-100:] == list(range(4900, 5000)), "the newest are complete"
    older = [b - a for a, b in itertools.pairwise(t for t in times if t < 4000)]
    assert len(older) > 50
    assert max(older) <= 256, "what is left of the rest is spread over the time"


def test_a_follower_goes_on_when_the_file_is_thinned(tmp_path: Path) -> None:
    file = tmp_path / "sites.jsonl"
    writer, tail, seen = log(file, max_bytes=1000), Tail(file), set[int]()
    for t in range(500):
        writer.append({"t": t, "stage": "a"})
        seen.update(record["t"] for record in tail.records())
    assert seen == set(range(500))


def test_lines_that_a_crash_tore_are_dropped(tmp_path: Path) -> None:
    file = tmp_path / "stages.jsonl"
    file.write_text('{"t": 1, "sta\n[1]\n')
    writer = log(file, max_bytes=1000)
    for t in range(200):
        writer.append({"t": t, "stage": "a"})
    assert b"sta\n" not in file.read_bytes()
    assert read(file)[-1]["t"] == 199


def append_many(file: Path, stage: str, lines: int) -> None:
    writer = log(file, max_bytes=4000)
    for t in range(lines):
        writer.append({"t": t, "stage": stage})


def test_of_several_writers_none_writes_into_a_file_that_was_replaced(tmp_path: Path) -> None:
    file = tmp_path / "stages.jsonl"
    spawn = multiprocessing.get_context("spawn")
    writers = [spawn.Process(target=append_many, args=(file, s, 1500)) for s in "ab"]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
        assert writer.exitcode == 0
    last = read(file)[-20:]
    by = {s: [line["t"] for line in last if line["stage"] == s] for s in "ab"}
    assert all(times == list(range(times[0], times[-1] + 1)) for times in by.values() if times)
    assert any(times[-1:] == [1499] for times in by.values())


def test_a_line_without_room_leaves_nothing_of_itself(tmp_path: Path) -> None:
    """A file that cannot grow takes a part of a line, as a full disk does."""
    writer = log(tmp_path / "metrics.jsonl")
    writer.append({"stage": "a", "t": 0})
    with full_disk(40), pytest.raises(OSError, match="No space left"):
        writer.append({"stage": "a", "t": 1, "text": "x" * 100})
    writer.append({"stage": "a", "t": 2})
    assert [line["t"] for line in read(tmp_path / "metrics.jsonl")] == [0, 2]
