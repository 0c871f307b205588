"""From the last punctuation of N partitions, sealed at once, to their output; for two N.

A job runs on and on. In every round all producers send the records of N partitions, and all but one
their punctuations; when the job has read that and is idle, the last producer's punctuations follow
in one file. Measured is the time from that file to the commit of the output, in a warm job: the
first round does not count. A round has the same records and groups whatever N is.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import SIMPLE_HEAD
from rich.table import Table
from workloads import PRODUCERS, write_step

from blazes.demo.files import empty, write_json
from codegen.project import Project
from flux_runtime.observe.reader import read_run

AIM: Final = 2.0
"""The time for the larger N, relative to the smaller one."""
RECORDS: Final = 1_000_000
GROUPS: Final = 20_000
"""In a round."""
REST_S: Final = 1.5
"""After the job has read all that there is."""
PATIENCE_S: Final = 300.0


@dataclass(kw_only=True)
class Latency:
    """What was measured for one N."""

    at_once: int
    seconds: list[float] = field(default_factory=list)
    """Of every round that counts."""
    wrong: int = 0
    """Rows that are missing or should not be there."""


def latencies(
    folder: Path, options: argparse.Namespace, compiled: Callable[[str, Path], Project]
) -> list[Latency]:
    """Measure both N in turns."""
    found = [Latency(at_once=n) for n in options.at_once]
    for _ in range(options.turns):
        for latency in found:
            place = folder / str(latency.at_once)
            prepare(place, latency.at_once, options.rounds)
            project = compiled("clicks.yaml", place / "sealed")
            seconds = list(rounds(project, place, latency.at_once, options))
            latency.seconds += seconds[1:]
            latency.wrong += wrong_rows(place, project)
            print(f"  latency {latency.at_once}: {seconds}", file=sys.stderr, flush=True)
    return found


def prepare(folder: Path, at_once: int, count: int) -> None:
    """Write the files of all rounds below `folder/prepared`, and the registrations."""
    empty(folder / "prepared")
    rng = np.random.default_rng(at_once)
    share = RECORDS // at_once // len(PRODUCERS)
    ads = GROUPS // at_once
    for number in range(count):
        campaigns = np.arange(number * at_once, (number + 1) * at_once)
        values = np.repeat(campaigns, share)
        for producer in PRODUCERS:
            rng.shuffle(values)
            ad = values * ads + rng.integers(0, ads, len(values))
            columns = {"campaign": pa.array(values, pa.int32()), "id": pa.array(ad, pa.int32())}
            last = producer == PRODUCERS[-1]
            for name, part, sealed in (
                (f"{number:03d}-{producer}", columns, campaigns[:0] if last else campaigns),
                (f"{number:03d}-last", {n: c[:0] for n, c in columns.items()}, campaigns),
            ):
                if last or not name.endswith("last"):
                    file = folder / "prepared" / f"{name}.parquet"
                    write_step(file, number, part, key="campaign", producer=producer,
                               sealed=sealed, count=share)  # fmt: skip
    every = range(at_once * count)
    write_json(folder / "producers.json", {str(value): PRODUCERS for value in every})


def rounds(
    project: Project, folder: Path, at_once: int, options: argparse.Namespace
) -> Iterator[float]:
    """Run the job; the seconds of each round."""
    empty(folder / "data")
    run_dir, results = project.folder / "run", project.folder / "results" / "poor"
    for old in (run_dir, project.folder / "results"):
        shutil.rmtree(old, ignore_errors=True)
    command = [sys.executable, project.job, "--fresh", "--root", folder]
    command += ["--master", options.master, "--run-dir", run_dir]
    job = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        records = 0
        for number in range(options.rounds):
            for file in sorted((folder / "prepared").glob(f"{number:03d}-producer-*")):
                records += arrive(file, folder / "data")
            _wait(job, run_dir, "rows_in", records)
            time.sleep(REST_S)
            began = time.time()
            records += arrive(folder / "prepared" / f"{number:03d}-last.parquet", folder / "data")
            _wait(job, run_dir, "released_partitions", (number + 1) * at_once)
            newest = max(commit.stat().st_ctime for commit in results.iterdir())
            yield round(newest - began, 3)
        job.send_signal(signal.SIGTERM)
        _, errors = job.communicate(timeout=PATIENCE_S)
        if job.returncode:
            sys.exit(f"{project.job} failed:\n{errors}")
    finally:
        job.kill()


def arrive(file: Path, folder: Path) -> int:
    """Let a prepared file appear in a source's folder, whole; its rows."""
    os.link(file, folder / file.name)
    return int(pq.read_metadata(file).num_rows)


def _wait(job: subprocess.Popen[str], run_dir: Path, metric: str, least: int) -> None:
    """Return when a metric of the job has reached a value."""
    end = time.monotonic() + PATIENCE_S
    while not (run_dir.exists() and read_run(run_dir).total(metric) >= least):
        if job.poll() is not None or time.monotonic() > end:
            job.kill()
            _, errors = job.communicate()
            sys.exit(f"{metric} did not reach {least}:\n{errors}")
        time.sleep(0.05)


def wrong_rows(folder: Path, project: Project) -> int:
    """Rows of the output that a batch query over the same files does not give, and the reverse."""
    records = pq.read_table(folder / "data", columns=["campaign", "id", "sealed"])
    records = records.filter(pa.compute.invert(records["sealed"]))
    right = records.group_by(["campaign", "id"]).aggregate([([], "count_all")])
    right = right.filter(pa.compute.less(right["count_all"], 100))
    parts = [
        pq.read_table(file, partitioning=None)
        for file in (project.folder / "results" / "poor").rglob("*.parquet")
    ]
    rows = pa.concat_tables(parts).to_pylist()
    given = {(row["campaign"], row["id"], row["clicks"]) for row in rows}
    wanted = {(row["campaign"], row["id"], row["count_all"]) for row in right.to_pylist()}
    return len(given ^ wanted) + len(rows) - len(given)


def latency_table(measured: list[Latency]) -> Table:
    """Medians, with the range behind them."""
    title = f"latency: from the last punctuation to the output; aim: at most {AIM} times as long"
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("partitions at once", "s", "range", "rounds", "ratio", "wrong"):
        shown.add_column(heading, justify="right", no_wrap=True)
    base = statistics.median(measured[0].seconds)
    for each in measured:
        middle = statistics.median(each.seconds)
        shown.add_row(
            f"{each.at_once:,}",
            f"{middle:.2f}",
            f"{min(each.seconds):.2f}-{max(each.seconds):.2f}",
            str(len(each.seconds)),
            f"{middle / base:.2f}",
            str(each.wrong),
        )
    return shown
