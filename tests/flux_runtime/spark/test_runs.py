"""Sorted runs against a plain list: look-ups, merges, long rows, heavy hashes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_runtime.spark.stateful import runs
from flux_runtime.spark.stateful.runs import (
    HASH,
    Run,
    distinct,
    merged,
    select,
    sorted_by_hash,
    write,
)

EXTREMES = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
hashes = st.sampled_from(EXTREMES) | st.integers(-5, 5)
contents = st.lists(st.lists(hashes, min_size=1, max_size=60), min_size=1, max_size=5)


def table(numbers: Sequence[int], first: int = 0, text: str = "") -> Any:
    values = range(first, first + len(numbers))
    return pa.table(
        {
            "n": pa.array(values, pa.int64()),
            "text": [text * (value % 3) for value in values],
            HASH: pa.array(numbers, pa.int64()),
        }
    )


def written(folder: Path, parts: Sequence[Sequence[int]], text: str = "") -> list[Run]:
    made = []
    first = 0
    for number, part in enumerate(parts):
        write(folder / str(number), [sorted_by_hash(table(part, first, text))])
        made.append(Run(folder / str(number)))
        first += len(part)
    return made


@pytest.fixture(params=[(3, 4, 1 << 20), (1, 1, 64), (1024, 1 << 18, 1 << 26)])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and tables of few rows, so that few rows have many of them."""
    batch, rows, size = request.param
    monkeypatch.setattr(runs, "BATCH_ROWS", batch)
    monkeypatch.setattr(runs, "TABLE_ROWS", rows)
    monkeypatch.setattr(runs, "TABLE_BYTES", size)


@settings(max_examples=25, deadline=None)
@given(parts=contents, wanted=st.sets(hashes))
@pytest.mark.usefixtures("sizes")
def test_a_look_up_finds_what_a_list_holds(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]], wanted: set[int]
) -> None:
    made = written(tmp_path_factory.mktemp("runs"), parts, text="ab")
    found = select(made, distinct([np.array(sorted(wanted), np.int64)]))
    rows = [row for each in found for row in each.to_pylist()]
    everything = [number for part in parts for number in part]
    assert Counter(row["n"] for row in rows) == Counter(
        place for place, number in enumerate(everything) if number in wanted
    )
    assert all(row["text"] == "ab" * (row["n"] % 3) for row in rows)


@settings(max_examples=25, deadline=None)
@given(parts=contents)
@pytest.mark.usefixtures("sizes")
def test_a_merge_keeps_every_row_and_the_order_of_runs(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("runs")
    assert write(folder / "all", merged(written(folder, parts))) == sum(map(len, parts))
    rows = [row for each in merged([Run(folder / "all")]) for row in each.to_pylist()]
    everything = [number for part in parts for number in part]
    ordered = sorted(range(len(everything)), key=lambda place: everything[place])
    assert [row["n"] for row in rows] == ordered
    assert Run(folder / "all").hashes.tolist() == [everything[place] for place in ordered]


@settings(max_examples=25, deadline=None)
@given(parts=contents)
@pytest.mark.usefixtures("sizes")
def test_rows_of_one_hash_are_combined_together(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[int]]
) -> None:
    def total(rows: Any) -> Any:
        sums = rows.group_by(HASH).aggregate([("n", "sum")])
        return sums.rename_columns([HASH, "n"])

    folder = tmp_path_factory.mktemp("runs")
    everything = [number for part in parts for number in part]
    rows = [row for t in merged(written(folder, parts), total) for row in t.to_pylist()]
    expected: Counter[int] = Counter()
    for place, number in enumerate(everything):
        expected[number] += place
    assert [(row[HASH], row["n"]) for row in rows] == sorted(expected.items())


def test_a_large_run_is_read_where_it_is_asked(tmp_path: Path) -> None:
    """A million rows of which one thousandth is wanted: bytes that were read are counted."""
    numbers = np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 1_000_000)
    write(tmp_path / "run", [sorted_by_hash(table(numbers))])
    run = Run(tmp_path / "run")
    wanted = np.sort(numbers[:20])
    batches = list(run.select(wanted))
    assert sorted(n for batch in batches for n in batch.column("n").to_pylist()) == list(range(20))
    assert len(batches) <= 20


def test_an_empty_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least one row"):
        write(tmp_path / "run", [table([])])
