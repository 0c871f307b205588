"""Every place at which the runtime can be killed on purpose is one at which a test kills it."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.seal_faults import crash_points
from benchmarks.sink_kills import POINTS

ROOT = Path(__file__).parents[3]
POINT = re.compile(r'faults\.point\("([^"]+)"\)')


def test_every_crash_point_is_attacked() -> None:
    there = {
        point
        for file in (ROOT / "flux_runtime").rglob("*.py")
        for point in POINT.findall(file.read_text())
    }
    tests = "".join(file.read_text() for file in (ROOT / "tests").rglob("*.py"))
    named = {point for point in there if f'"{point}"' in tests}
    at_sinks = {point for moments in POINTS.values() for point in moments.values()}
    assert there - named - at_sinks - set(crash_points()) == set()
