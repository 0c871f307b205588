"""Faults in random order, sites, controllers and ZooKeeper servers alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
@pytest.mark.zookeeper
@pytest.mark.timeout(2400)
def test_every_record_comes_exactly_once_through_faults(tmp_path: Path) -> None:
    soak = [sys.executable, "benchmarks/flux_soak.py", "--kills", "7", "--seed", "2"]
    done = subprocess.run(
        [*soak, "--pace", "0.05", "--keep", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=2300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    assert "each exactly once" in done.stdout.splitlines()[-1]
