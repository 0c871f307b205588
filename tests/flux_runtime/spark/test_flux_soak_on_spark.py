"""Twenty faults in random order of what a Flux stage on Spark stands on, executors among them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
AT_LEAST = {
    "site killed": 1,
    "daemon killed": 1,
    "executor killed": 2,
    "leader killed": 1,
    "server killed": 1,
    "site paused": 1,
    "link closed": 1,
}


@pytest.mark.cluster
@pytest.mark.spark
@pytest.mark.timeout(2400)
def test_every_record_comes_exactly_once_though_executors_die(tmp_path: Path) -> None:
    soak = [sys.executable, "benchmarks/flux_soak_on_spark.py", "--kills", "20", "--seed", "5"]
    done = subprocess.run(
        [*soak, "--keep", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=2300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-4000:]}"
    told = done.stdout.splitlines()[-1]
    assert "each exactly once" in told
    for kind, times in AT_LEAST.items():
        found = re.search(rf"{kind} (\d+)", told)
        assert found is not None, kind
        assert int(found[1]) >= times
    events = "".join(file.read_text() for file in tmp_path.rglob("events.jsonl"))
    assert '"executor_warmed_up"' in events
    assert '"executor_not_warmed_up"' not in events
