"""Orders and payments in Kafka: killed drivers, and what both sinks have in the end."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "orders"


@pytest.mark.spark
@pytest.mark.timeout(900)
def test_both_sinks_have_each_statement_once_though_the_driver_is_killed(tmp_path: Path) -> None:
    ignore = shutil.ignore_patterns("data", "target", "__pycache__")
    folder = Path(shutil.copytree(EXAMPLE, tmp_path / "orders", ignore=ignore))
    size = ["--kills", "3", "--shops", "4", "--days", "6", "--orders", "12"]
    done = subprocess.run(
        [sys.executable, folder / "run.py", *size],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "statements in the table: 24, each once\n" in done.stdout
    assert "statements in the topic: 24, each once\n" in done.stdout


def test_the_comparison_notices_what_is_missing_and_what_is_there_twice() -> None:
    spec = importlib.util.spec_from_file_location("orders_expected", EXAMPLE / "expected.py")
    assert spec is not None
    assert spec.loader is not None
    expected = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(expected)
    truth = Counter({("shop-1", "2026-03-02"): 1, ("shop-2", "2026-03-02"): 1})
    assert expected.compared(truth.elements(), truth)[0]
    for found in (list(truth)[:1], [*truth, *list(truth)[:1]], [*list(truth)[:1], ("shop-3", "")]):
        assert not expected.compared(found, truth)[0]
