"""The seal layer under attack by `benchmarks/seal_faults.py`; every crash point is attacked."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from benchmarks.seal_faults import crash_points
from benchmarks.sink_kills import POINTS

ROOT = Path(__file__).parents[3]


def attacked(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The attack, in a process of its own."""
    command = [sys.executable, ROOT / "benchmarks" / "seal_faults.py", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_every_record_is_accounted_for_after_faults_of_every_kind() -> None:
    """The seed draws each kind that is no damage, and damages."""
    run = attacked("--seed", "12293", "--faults", "20")
    assert run.returncode == 0, run.stdout + run.stderr
    assert "20 faults, " in run.stdout
    assert re.search(r"^disk full +1  (stopped, then )?went on 1$", run.stdout, re.MULTILINE)
    assert "each accounted for" in run.stdout


@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("plant", "found"),
    [
        ("chunks are believed", "refused without what is damaged|released"),
        pytest.param(
            "nothing is flushed",
            "the job does not go on|nowhere",
            marks=pytest.mark.skipif(which("strace") is None, reason="strace is not installed"),
        ),
        ("late records are lost", "are nowhere"),
        ("late records are taken", "released, and open|are nowhere"),
    ],
)
def test_a_planted_mistake_is_found(plant: str, found: str) -> None:
    run = attacked("--seed", "1", "--faults", "4", "--plant", plant)
    assert run.returncode == 1, run.stdout + run.stderr
    assert any(words in run.stdout for words in found.split("|")), run.stdout


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
