"""A dataflow that is changed between runs: what was said of its state is what happens.

The whole of it, with seeds, kills and more planted mistakes, is `benchmarks/state_changes.py`.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def trial(*arguments: str) -> tuple[int, list[str]]:
    """Exit status, and the lines about changes."""
    command = [sys.executable, "benchmarks/state_changes.py", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout, done.stderr[-4000:]
    return done.returncode, done.stdout.splitlines()


def test_what_is_said_of_a_state_is_what_happens() -> None:
    rounds = {
        "": "goes on",
        "tag, column of events, second sink of tags, column of items, width": "goes on",
        "largest=count(DISTINCT w), place, second sink": "goes on",
        "factor, tag": "refused",  # an open partition lacks a column that the new text reads
    }
    status, lines = trial("--seed", "4", "--changes", ";".join(rounds))
    assert status == 0, "\n".join(lines)
    said = [line for line in lines if line.endswith((": goes on", ": refused"))]
    assert said == [f"{names or 'nothing'}: {outcome}" for names, outcome in rounds.items()]


def test_an_aggregate_that_went_on_with_another_text_would_be_noticed() -> None:
    status, lines = trial("--seed", "4", "--changes", ";running", "--plant", "keeps")
    assert status == 1
    assert lines[-1].startswith("running: goes on, and running: "), "\n".join(lines)
