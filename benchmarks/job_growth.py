"""A job on Spark with many small micro-batches and partitions, watched while it runs.

Two sealed units with a channel between them; producers are registered in ZooKeeper a little ahead
of their partitions. Every partition is complete in the micro-batch after its first one, except one:
records of it come in every micro-batch, and one of its producers never punctuates it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from workloads import write_step

from annotations.file import load
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.coordination import plan
from blazes.report.json_result import to_json
from codegen.project import Project, write
from codegen.stages import stages
from flux_runtime.observe.reader import Run, read_run
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.process import ask
from flux_runtime.zookeeper.registry import ProducerRegistry

APP: Final = "benchmark-growth"
STREAM: Final = "clicks"
FIRST, LAST = "Visits.visits", "Top.top"
PRODUCERS: Final = ("producer-1", "producer-2")
STUCK: Final = 0
"""The partition that is never complete; the others are numbered from 1."""
RECORDS: Final = 20
"""Of a producer in a partition."""
AHEAD: Final = 20
"""Micro-batches whose partitions are registered before they come."""
PERIOD_S: Final = 2.0
PATIENCE_S: Final = 120.0
"""Without a new micro-batch or release."""
AREAS: Final = ("buffer", "ledger", "checkpoint", "channels", "other state", "results", "run")


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The job at one moment."""

    seconds: float
    batches: int
    """Of the first unit."""
    released: int
    """Partitions of the last unit."""
    batch_s: float
    """Time for a micro-batch of the first unit, since the sample before; nan of the first one."""
    cpu_s: float
    """Of all processes, since the job started."""
    python_mb: float
    java_mb: float
    """Resident."""
    files: dict[str, int]
    mb: dict[str, float]
    """By area of the state, and of results and run folder."""
    znodes: int


def samples(folder: Path, *, batches: int, partitions: int, master: str) -> list[Sample]:
    """Run the job until it has released all that can be; what it looked like meanwhile."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    write_data(folder / "data", batches, partitions)
    file = Path(__file__).with_name("growth.yaml")
    dataflow, _ = load(file)
    decided = plan(analyze(dataflow), target=Label.ASYNC)
    project = write(stages(decided), folder / "job", analysis=to_json(decided))
    with EmbeddedZooKeeper(folder / "zookeeper") as server, connect(server.hosts) as client:
        registry = ProducerRegistry(client, APP)
        command = [sys.executable, project.job, "--fresh", "--root", folder, "--master", master]
        command += ["--run-dir", project.folder / "run", "--zookeeper", server.hosts]
        job = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            found = list(_watch(project, job, server, registry, batches, partitions))
            job.send_signal(signal.SIGTERM)
            _, errors = job.communicate(timeout=PATIENCE_S)
            if job.returncode:
                sys.exit(f"{project.job} failed:\n{errors}")
        finally:
            job.kill()
    return found


def write_data(folder: Path, batches: int, partitions: int) -> None:
    """Two files for each micro-batch; partitions of one step end in the next."""
    for step in range(batches):
        new = np.arange(step * partitions, (step + 1) * partitions) + 1
        for position, producer in enumerate(PRODUCERS):
            rng = np.random.default_rng((step, position))
            values = np.append(np.repeat(new, RECORDS), STUCK)
            write_step(
                folder / f"{step:05d}-{producer}.parquet",
                step,
                {
                    "campaign": pa.array(values, pa.int32()),
                    "id": pa.array(rng.integers(0, 5, len(values)), pa.int32()),
                },
                key="campaign",
                producer=producer,
                sealed=new - partitions if step else new[:0],
                count=RECORDS,
            )


def _watch(
    project: Project,
    job: subprocess.Popen[str],
    server: EmbeddedZooKeeper,
    registry: ProducerRegistry,
    batches: int,
    partitions: int,
) -> Iterator[Sample]:
    run_dir = project.folder / "run"
    registered = 0
    began = changed = time.monotonic()
    last: Sample | None = None
    while last is None or last.released < (batches - 1) * partitions:
        time.sleep(PERIOD_S)
        if job.poll() is not None or time.monotonic() - changed > PATIENCE_S:
            job.kill()
            sys.exit(f"the job does not go on:\n{job.communicate()[1]}")
        run = read_run(run_dir) if run_dir.exists() else None
        if run is None or "job_started" not in run.counts:
            continue
        now = min(batches, _value(run, FIRST, "batches") + AHEAD)
        if now > registered:
            keys = range(registered * partitions + bool(registered), now * partitions + 1)
            registry.register_many(STREAM, {(str(key),): PRODUCERS for key in keys})
            registered = now
        sample = _sample(project, job.pid, server, run, time.monotonic() - began, last)
        if last is None or (sample.batches, sample.released) != (last.batches, last.released):
            changed = time.monotonic()
            if sample.batches:
                yield sample
                print(f"  {sample}", file=sys.stderr, flush=True)
                last = sample


def _sample(
    project: Project,
    pid: int,
    server: EmbeddedZooKeeper,
    run: Run,
    seconds: float,
    last: Sample | None,
) -> Sample:
    files, size = dict.fromkeys(AREAS, 0), dict.fromkeys(AREAS, 0)
    for file in (Path(at) / name for at, _, names in os.walk(project.folder) for name in names):
        area = _area(file.relative_to(project.folder).parts)
        if area is None:
            continue
        try:
            if not file.is_symlink():
                size[area] += file.stat().st_size
                files[area] += 1
        except FileNotFoundError:
            continue
    batches = _value(run, FIRST, "batches")
    done = batches - (last.batches if last else 0)
    spent = seconds - (last.seconds if last else 0.0)
    java = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/stat")
        if _parent(path) == pid and (path.parent / "comm").read_text().strip() == "java"
    ]
    return Sample(
        seconds=round(seconds, 2),
        batches=batches,
        released=_value(run, LAST, "released_partitions"),
        batch_s=round(spent / done, 3) if done and last else float("nan"),
        cpu_s=round(sum(map(_cpu_s, [pid, *java])), 2),
        python_mb=_rss_mb(pid),
        java_mb=sum(map(_rss_mb, java)),
        files=files,
        mb={area: round(value / 1e6, 3) for area, value in size.items()},
        znodes=_znodes(server),
    )


def _area(parts: tuple[str, ...]) -> str | None:
    """Where a file below the project belongs; None: neither state nor result."""
    match parts:
        case ("state", "units", _, ("buffer" | "ledger" | "checkpoint") as area, *_):
            return area
        case ("state", "channels", *_):
            return "channels"
        case ("state", *_):
            return "other state"
        case (("results" | "run") as area, *_):
            return area
        case _:
            return None


def _value(run: Run, unit: str, metric: str) -> int:
    sample = run.units.get(unit)
    value = 0 if sample is None else sample.values.get(metric, 0)
    assert isinstance(value, int | float)
    return int(value)


def _znodes(server: EmbeddedZooKeeper) -> int:
    answer = ask(int(server.hosts.rpartition(":")[2]), "srvr")
    return int(answer.rpartition("Node count: ")[2].split()[0]) if answer else 0


def _parent(stat: Path) -> int:
    try:
        return int(stat.read_text().rpartition(") ")[2].split()[1])
    except OSError:
        return 0


def _cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that have ended."""
    try:
        values = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, values[11:15])) / os.sysconf("SC_CLK_TCK")


def _rss_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return round(pages * 4096 / 1e6, 1)
