"""Jobs that are killed around the commits to all kinds of sinks; the short form of the matrix.

The whole of it is `benchmarks/sink_kills.py`.
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.sink_kills import Cell, Ends, attack, servers, together

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def ends() -> Iterator[Ends]:
    with tempfile.TemporaryDirectory() as folder, servers(Path(folder)) as running:
        yield running


def test_every_sink_has_each_row_once_wherever_the_job_is_killed(
    ends: Ends, tmp_path: Path
) -> None:
    sinks = [name for name in ends.places() if name not in ("appended", "derby")]
    outcomes = together(tmp_path / "all", ends, sinks, seed=1)
    assert outcomes == [(sink, "exact") for sink in sinks]


def test_a_sink_that_forgets_what_it_has_is_noticed(ends: Ends, tmp_path: Path) -> None:
    cell = Cell(tmp_path / "planted", ["kafka"], ends, planted=True)
    (line,) = attack(cell, [("kafka", "after")], random.Random(1))
    assert line.startswith("rows again: "), line
