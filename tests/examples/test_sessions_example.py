"""The session job: its operators against the model in plain Python, and its processes killed."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from flux_lab.reference import reference
from flux_runtime.observe.reader import Tail
from flux_runtime.operators.rows import number

ROOT = Path(__file__).parents[2]
SESSIONS = ROOT / "examples" / "sessions"
DEADLINE_S = 300.0
NAMES = ("packets", "operators", "expected", "run")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The example's modules, whose names other examples use as well."""
    monkeypatch.syspath_prepend(str(SESSIONS))
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name, raising=False)
    found = {name: importlib.import_module(name) for name in NAMES}
    for name in NAMES:
        monkeypatch.delitem(sys.modules, name)
    return found


def test_the_same_seed_gives_the_same_packets_and_no_two_have_one_time(
    example: dict[str, Any],
) -> None:
    one, other = ([*islice(example["packets"].packets(500, pairs=50, seed=3), 4)] for _ in "ab")
    assert all(a.equals(b) for a, b in zip(one, other, strict=True))
    times = [time for batch in one for time in batch.column("time").to_pylist()]
    assert times == sorted(set(times))


def test_the_operators_do_what_the_model_does(example: dict[str, Any]) -> None:
    batches = [*islice(example["packets"].packets(300, pairs=60, seed=1), 12)]
    numbered = [number(batch, n) for n, batch in enumerate(batches)]
    output = reference(example["run"].dataflow(), numbered).output
    names = example["expected"].COLUMNS
    rows = [
        row
        for _, out in output
        for row in zip(*(out.column(name).to_pylist() for name in names), strict=True)
    ]
    expected = list(example["expected"].statistics(12, 300, pairs=60, seed=1))
    assert len(expected) > 100
    assert rows == expected


def test_a_difference_is_found_and_said(example: dict[str, Any]) -> None:
    compare = example["expected"].compare
    rows = [*example["expected"].statistics(4, 300, pairs=60, seed=1)]
    assert compare(iter(rows), iter(rows), ordered=True) is None
    assert compare(iter(rows), iter(rows[::-1]), ordered=False) is None
    assert "record 0" in compare(iter(rows), iter(rows[::-1]), ordered=True)
    assert "found None" in compare(iter(rows), iter(rows[:-1]), ordered=True)


def command(*arguments: object) -> list[str]:
    return [sys.executable, *map(str, arguments)]


def events(run: Path) -> list[dict[str, Any]]:
    return [dict(event) for event in Tail(run / "events.jsonl").records()]


@pytest.mark.cluster
@pytest.mark.timeout(1800)
def test_a_site_killed_by_the_command_changes_no_record(tmp_path: Path) -> None:
    arguments = ("--rate", 4000, "--rows", 200, "--target", tmp_path / "target")
    job = subprocess.Popen(command(SESSIONS / "run.py", *arguments), cwd=tmp_path)
    latest = tmp_path / "target" / "runs" / "latest"
    try:

        def eventually(kind: str) -> None:
            end = time.monotonic() + DEADLINE_S
            while not any(event["kind"] == kind for event in events(latest)):
                assert job.poll() is None
                assert time.monotonic() < end, f"no {kind}"
                time.sleep(0.1)

        eventually("leading")
        end = time.monotonic() + DEADLINE_S
        while True:  # until the sites have reported where they are
            disturb = command("-m", "examples.sessions.disturb", latest, "--kill-site", "any")
            path = {**os.environ, "PYTHONPATH": str(ROOT)}
            done = subprocess.run(
                disturb, env=path, capture_output=True, text=True, timeout=DEADLINE_S
            )
            if done.returncode == 0:
                break
            assert time.monotonic() < end, done.stderr
            time.sleep(0.2)
        eventually("recovered")
        job.send_signal(signal.SIGINT)
        assert job.wait(DEADLINE_S) == 0
    finally:
        job.kill()
        job.wait()
    check = command(SESSIONS / "expected.py", "--check", latest)
    done = subprocess.run(check, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout
    kinds = [event["kind"] for event in events(latest)]
    assert {"site_failed", "disturbed"} <= {*kinds}


@pytest.mark.spark
def test_on_spark_the_results_are_the_same(tmp_path: Path) -> None:
    folder = tmp_path / "sessions"
    ignored = shutil.ignore_patterns("data", "target", "__pycache__")
    shutil.copytree(SESSIONS, folder, ignore=ignored)
    path = {**os.environ, "PYTHONPATH": str(ROOT)}

    def done(*arguments: object) -> str:
        what = subprocess.run(
            command(*arguments), cwd=folder, env=path, capture_output=True, text=True, timeout=500
        )
        assert what.returncode == 0, (what.stdout + what.stderr)[-4000:]
        return what.stdout

    done("generate.py", "--files", 6, "--rows", 500, "--pairs", 200)
    options = ("--available-now", "--fresh", "--master", "local[5,100]")
    done("-m", "blazes", "run", "sessions.yaml", *options)
    results = folder / "target" / "sessions" / "results" / "statistics"
    size = ("--batches", 6, "--rows", 500, "--pairs", 200)
    done("expected.py", *size, "--any-order", "--check", results)
    known = json.loads(done("-m", "blazes", "top", "sessions.yaml", "--json"))
    (stage,) = known["stages"].values()
    assert stage["rows"] == 3000
