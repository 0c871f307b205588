"""A job of units with Spark's own state, and with kept records, whose state is in an object store.

Sealed units: `benchmarks/seal_faults.py --store`.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from benchmarks.seal_attack.store import ADDRESS, Store, serving
from flux_runtime.commits.kept_folder import KeptFolder
from flux_runtime.commits.owner import IDENTITY
from flux_runtime.sealing.storage import LocalStorage, keeping
from flux_runtime.spark import Job, faults, sql
from flux_runtime.spark.main import FINGERPRINT
from flux_runtime.spark.stateful import catalogue
from tests.flux_runtime.spark.test_stateful import SCHEMAS, Traffic, declare

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[3]
JOB = """
from pathlib import Path
from flux_runtime.spark.main import main
from flux_runtime.spark.stateful import catalogue
from tests.flux_runtime.spark.test_state_in_store import UNITS, build
catalogue.FANOUT = 2
main(build(UNITS), name="kept", folder=Path(__file__).parent)
"""
UNITS = ("counted", "many")
CRASHING = ("counted", "story", "larger")
POINTS = [
    "records-written",
    "batch-begun",
    "result-written",
    "output-staged",
    "output-committed",
    "evaluated",
    "rows-kept",
    "batch-done",
    "merged",
    "batch-processed",
    "native-committed",
]


def counts(put: DataFrame) -> DataFrame:
    return sql("SELECT s, count(*) AS n FROM put GROUP BY s", put=put)


def build(names: Sequence[str]) -> Callable[[Job], None]:
    """Units that keep records, and one with Spark's own state."""

    def declared(job: Job) -> None:
        declare(names)(job)
        one = {"maxFilesPerTrigger": "1"}
        puts = job.source(
            "puts", format="json", path="data/put", schema=SCHEMAS["put"], options=one
        )
        counted = job.native("Counts", counts, inputs={"put": [puts]}, output_mode="update")
        job.sink("counts", [counted])

    return declared


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Mapping[str, str]]:
    (tmp_path / "job.py").write_text(JOB)
    with serving(Store(random.Random(1))) as store:
        yield {**os.environ, **store, "PYTHONPATH": str(ROOT), "BLAZES_MASTER": "local[2]"}


def run(folder: Path, environment: Mapping[str, str], *, crash_at: str = "") -> tuple[int, str]:
    """Run the job on what there is, on a machine of its own."""
    machine = folder / "machine"
    machine.mkdir()
    command = [sys.executable, "job.py", "--available-now", "--state-dir", ADDRESS]
    done = subprocess.run(
        [*command, "--root", str(folder)],
        cwd=folder,
        env={**environment, "TMPDIR": str(machine), faults.VARIABLE: crash_at},
        capture_output=True,
        text=True,
        check=False,
    )
    shutil.rmtree(machine, ignore_errors=True)
    return done.returncode, done.stderr


class CrashError(Exception):
    """Stands for the end of the process, and of its machine."""


def checked(bench, traffic: Traffic, names: Sequence[str]) -> None:
    traffic.check(names)
    so_far: Counter[str] = Counter()
    expected: Counter[tuple[str, int]] = Counter()
    for records in traffic.rounds:
        texts = [row["s"] for row in records["put"]]
        so_far.update(texts)
        expected.update((text, so_far[text]) for text in set(texts))
    assert Counter((row["s"], row["n"]) for row in bench.results("counts")) == expected


def test_a_machine_is_lost_between_any_two_steps(
    bench, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One state, and a machine lost at every point in turn; each unit passes it in another run."""
    for name in environment.keys() - os.environ.keys():
        monkeypatch.setenv(name, environment[name])
    folder = bench.path / "state"

    def run() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        kept = KeptFolder(ADDRESS, folder)
        kept.restore()
        kept.take_over()
        with keeping(folder, kept):
            bench.run(build(CRASHING))

    monkeypatch.setattr(catalogue, "FANOUT", 2)
    traffic = Traffic(bench, 2)
    for number, wanted in enumerate(POINTS):
        traffic.more()
        passed = iter(range(1, 100))
        only = wanted in ("result-written", "native-committed")
        crash_at = 1 if only else 1 + number % len(CRASHING)

        def point(
            name: str, wanted: str = wanted, passed: Any = passed, at: int = crash_at
        ) -> None:
            if name == wanted and next(passed) >= at:
                raise CrashError(name)

        monkeypatch.setattr(faults, "point", point)
        with pytest.raises(CrashError, match=wanted):
            run()
    monkeypatch.setattr(faults, "point", lambda name: None)
    run()
    checked(bench, traffic, CRASHING)


def test_a_job_goes_on_where_its_machine_was_lost(bench, environment: Mapping[str, str]) -> None:
    """The same with real processes, at one of the points."""
    traffic = Traffic(bench, 5)
    traffic.more()
    status, said = run(bench.path, environment, crash_at="native-committed")
    assert status == -9, said
    traffic.more()
    status, said = run(bench.path, environment)
    assert status == 0, said
    checked(bench, traffic, UNITS)


@pytest.mark.parametrize(
    ("arguments", "fingerprint", "why"),
    [
        (("--zookeeper", "127.0.0.1:1"), b"{}", "127.0.0.1:1"),
        ((), b"[]", "which plan the state belongs to is unreadable"),
    ],
)
def test_a_start_that_is_refused_leaves_the_running_driver_alone(
    bench,
    environment: Mapping[str, str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    fingerprint: bytes,
    why: str,
) -> None:
    for name in environment.keys() - os.environ.keys():
        monkeypatch.setenv(name, environment[name])
    folder = bench.path / "working"
    folder.mkdir()
    running = KeptFolder(ADDRESS, folder)
    there = str(bench.path / "machine" / f"blazes-{0:016}")  # on a machine of its own
    monkeypatch.setattr(running, "_head", replace(running._head, folder=there))
    running.take_over()
    with keeping(folder, running):
        LocalStorage(folder).write(IDENTITY, b'{"id": "1"}')
        LocalStorage(folder).write(FINGERPRINT, fingerprint)
        (bench.path / "machine").mkdir()
        done = subprocess.run(
            [sys.executable, "job.py", "--state-dir", ADDRESS, *arguments],
            cwd=bench.path,
            env={**environment, "TMPDIR": str(bench.path / "machine")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode in (1, 2)
        assert why in done.stderr
        LocalStorage(folder).write("a", b"goes on")
