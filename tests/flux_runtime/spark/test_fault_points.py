"""Every place at which the runtime can be killed on purpose is one at which a test kills it."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.seal_faults import crash_points

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
    assert there - named - set(crash_points()) == set()
