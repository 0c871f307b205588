"""A StatefulProcessor does on sites what it does in Spark, also where sites are killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]  # a busy machine is slow


def said(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.processors_on_spark", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=1700,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def test_random_programs_put_out_in_spark_what_they_put_out_on_a_site() -> None:
    told = said("programs", "0", "2")
    rows = re.search(r"2 programs: (\d+) rows as Spark puts them out, 0 programs differ", told)
    assert rows is not None
    assert int(rows[1]) > 20


def test_the_processor_of_sparks_documentation_gives_sparks_rows_though_sites_are_killed() -> None:
    told = said("kills", "--kills", "3")
    assert "counts: " in told
    assert told.count("rows, as Spark's") == 2
    assert "3 sites killed" in told
