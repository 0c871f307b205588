"""One job on Spark in several ways, from file to committed result: Flux sites beside Spark's own.

    python benchmarks/flux_on_spark.py [--ways pairs micro-batch ...] [--turns 3] [--json FILE]

Rows (k, v) come in files; the job counts and sums them by k and commits what has changed.

| way | what runs |
|---|---|
| `micro-batch` | `groupBy` in update mode, `foreachBatch` |
| `transform` | `transformWithStateInPandas`, RocksDB, `foreachBatch` |
| `real-time` | `groupBy` in real-time mode, RocksDB, `foreach`; see below |
| `one-copy` | the compiled job on Flux sites, `copies: 1` |
| `pairs` | the compiled job on Flux sites, in partition pairs |

All of them run on the same `local-cluster`; all but `real-time` read the same files and commit a
folder of Parquet by a rename. Real-time mode takes neither files nor `foreachBatch`: its rows come
from a source in Java (`benchmarks/realtime`), and each result is written to a file of its task,
which commits nothing. Two things are measured, each as a job of its own:

- all files are there: rows per second, and CPU of all processes per million rows, from the first
  commit to the last one, at `--batch` files in a micro-batch;
- a file comes every `--pace` seconds: from the moment when a file is there to the moment when the
  commit is there that its rows are counted in, for every row; then the executor that works dies
  (SIGKILL), and later, on Flux sites, one site; each time the longest silence at the sink.

Turns go round the ways. Results are compared with the truth; exit status 1 if one is wrong, or if
a way fails: then the others are measured all the same.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from rich.box import SIMPLE_HEAD  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402

from benchmarks.measured_job import Cpu  # noqa: E402
from benchmarks.spark_processes import (  # noqa: E402
    ENVIRONMENT,
    SPARK_HOME,
    application,
    client_of_sites,
)
from flux_lab.ensemble import LoopbackEnsemble  # noqa: E402
from flux_runtime.site.client import Client  # noqa: E402

MICRO_BATCH, TRANSFORM, REAL_TIME = "micro-batch", "transform", "real-time"
ONE_COPY, PAIRS = "one-copy", "pairs"
WAYS: Final = (MICRO_BATCH, TRANSFORM, REAL_TIME, ONE_COPY, PAIRS)
ON_SITES: Final = (ONE_COPY, PAIRS)
MASTER: Final = "local-cluster[3,4,1024]"
SITES: Final = 3
PARTITIONS: Final = 4
STREAM: Final = "sums"
PATIENCE_S: Final = 600.0
SOURCES: Final = 2
"""Partitions of the source in real-time mode."""
START_S: Final = 25.0
"""Until the first row is due there: Spark has started by then, or rows wait."""
ALL_AT_ONCE: Final = 1e12
"""Rows per second of a source that has them all."""
LOOK_S: Final = 0.005
"""Between two looks at the sink: what a latency can be too long by."""
DATAFLOW: Final = """
name: {name}
components:
  Sum:
    engine: flux
    availability: {availability}
    output_mode: update
    sql: SELECT k, count(*) AS n, sum(v) AS total FROM rows GROUP BY k
streams:
  rows:
    to: Sum.rows
    schema: {{k: BIGINT, v: BIGINT}}
    source: {{format: parquet, path: data, options: {{maxFilesPerTrigger: {files}}}}}
  sums: {{from: Sum.sums, sink: {{format: parquet}}}}
deployment:
  copies: {copies}
  sites: {sites}
  partitions: {partitions}
  conf: {{spark.ui.enabled: false, spark.executor.memory: 512m}}
"""


# ---- the jobs by hand


def spark(folder: Path, master: str, **more: str) -> Any:
    """A session for a job by hand."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
        "spark.executor.memory": "512m",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.streaming.stateStore.providerClass": "org.apache.spark.sql.execution.streaming."
        "state.RocksDBStateStoreProvider",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    builder = SparkSession.builder.master(master).appName(folder.name)
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


def by_hand(way: str, folder: Path, master: str, files: int) -> None:
    """Run the job as people write it for Spark, until it is killed."""
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as sf

    session = spark(folder, master)
    rows = (
        session.readStream.schema("k BIGINT, v BIGINT")
        .option("maxFilesPerTrigger", files)
        .parquet(str(folder / "data"))
    )
    if way == TRANSFORM:
        sums = rows.groupBy("k").transformWithStateInPandas(
            counter(), "k BIGINT, n BIGINT, total BIGINT", "Update", "None"
        )
    else:
        sums = rows.groupBy("k").agg(sf.count("*").alias("n"), sf.sum("v").alias("total"))
    results = folder / "results"
    results.mkdir()

    def commit(frame: DataFrame, batch: int) -> None:
        target = results / f"{batch:09d}"
        if not target.exists():
            frame.write.mode("overwrite").parquet(str(folder / "writing"))
            (folder / "writing").rename(target)

    query = (
        sums.writeStream.outputMode("update")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(commit)
        .start()
    )
    query.awaitTermination()


def in_real_time(folder: Path, master: str, keys: int) -> None:
    """Run the job in real-time mode, until it is killed; `rate` and `start` lie in the folder."""
    from pyspark.sql import functions as sf

    jar = str(folder / "realtime.jar")
    paths = {f"spark_{role}_extraClassPath": jar for role in ("driver", "executor")}
    session = spark(folder, master, spark_jars=jar, **paths)
    rate, start_us = (folder / "pace").read_text().split()
    source = session.readStream.format("realtime.RowSource")
    settings = {"partitions": SOURCES, "rate": rate, "keys": keys, "startUs": start_us}
    rows = source.options(**settings).load()
    sums = rows.groupBy("k").agg(sf.count("*").alias("n"), sf.sum("v").alias("total"))
    java = session._jvm
    trigger = java.org.apache.spark.sql.streaming.Trigger.RealTime("5 seconds")
    writer = java.realtime.TimedWriter(str(folder / "results"))
    query = (
        sums._jdf.writeStream()
        .outputMode("update")
        .trigger(trigger)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreach(writer)
        .start()
    )
    query.awaitTermination()


def compile_java(folder: Path) -> None:
    """Make `realtime.jar` of the sources beside this file; needs a JDK."""
    sources = [str(file) for file in sorted((HERE / "realtime").glob("*.java"))]
    classes = folder / "classes"
    classes.mkdir()
    libraries = f"{SPARK_HOME / 'jars'}/*"
    compiling = ["javac", "-nowarn", "-cp", libraries, "-d", str(classes), *sources]
    subprocess.run(compiling, check=True, capture_output=True)
    packing = ["jar", "cf", str(folder / "realtime.jar"), "-C", str(classes), "realtime"]
    subprocess.run(packing, check=True, capture_output=True)


def counter() -> Any:
    """A processor that counts and sums, one value of state for each key."""
    import pandas as pd
    from pyspark.sql.streaming import StatefulProcessor

    class Counter(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self.sums = handle.getValueState("sums", "n BIGINT, total BIGINT")

        def handleInputRows(  # noqa: N802 - its name
            self, key: Any, rows: Any, timer_values: Any
        ) -> Iterator[Any]:
            n, total = self.sums.get() or (0, 0)
            for frame in rows:
                n, total = n + len(frame), total + int(frame.v.sum())
            self.sums.update((n, total))
            yield pd.DataFrame({"k": [key[0]], "n": [n], "total": [total]})

        def close(self) -> None:
            pass

    return Counter()


# ---- a job as a process


@dataclass(frozen=True)
class Commit:
    """A result that came to lie in the sink."""

    time: float
    folder: Path


class Job:
    """A job in one of the ways, in a process of its own; watched at its sink.

    Args:
        way: one of `WAYS`.
        folder: new, for all that belongs to it; its input is in `data`.
        master: where Spark runs it.
        zookeeper: an ensemble, for sites.
        files: in a micro-batch, at most.
        keys: of the source in real-time mode.
    """

    def __init__(
        self, way: str, folder: Path, *, master: str, zookeeper: str, files: int = 1, keys: int = 1
    ) -> None:
        self.way, self.folder, self.zookeeper = way, folder, zookeeper
        command = [sys.executable, str(HERE / "flux_on_spark.py"), "--job", way, str(folder)]
        command += ["--master", master, "--batch", str(files), "--keys", str(keys)]
        results = folder / "results"
        environment = {**os.environ, **ENVIRONMENT, "PYTHONPATH": str(HERE.parent)}
        if way in ON_SITES:
            text = DATAFLOW.format(
                name=folder.name,
                availability="pairs" if way == PAIRS else "single",
                copies=2 if way == PAIRS else 1,
                sites=SITES,
                partitions=PARTITIONS,
                files=files,
            )
            (folder / "sums.yaml").write_text(text)
            compiled = [sys.executable, "-m", "blazes", "compile", "sums.yaml"]
            subprocess.run(compiled, cwd=folder, check=True, capture_output=True)
            command = [sys.executable, str(folder / "target" / folder.name / "job.py")]
            command += ["--zookeeper", zookeeper]
            environment["BLAZES_MASTER"] = master
            results = folder / "target" / folder.name / "results" / STREAM
        self.commits: list[Commit] = []
        self._results, self._seen = results, set[str]()
        self._over = threading.Event()
        with (folder / "said.txt").open("ab") as said:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip
        self._watch = threading.Thread(target=self._look_on, daemon=True)
        self._watch.start()

    def _look_on(self) -> None:
        while not self._over.wait(LOOK_S):
            with contextlib.suppress(FileNotFoundError):
                new = [
                    entry.name
                    for entry in os.scandir(self._results)
                    if entry.name not in self._seen and entry.name[0] not in "._"
                ]
                now = time.time()
                for name in sorted(new):
                    self._seen.add(name)
                    self.commits.append(Commit(now, self._results / name))

    def rows(self, number: int) -> Any:
        """What a commit holds, as a table."""
        parts = sorted(self.commits[number].folder.glob("*.parquet"))
        return pa.concat_tables(pq.read_table(p, columns=["k", "n", "total"]) for p in parts)

    def counted(self) -> dict[int, tuple[int, int]]:
        """k -> (count, sum) as it was committed last."""
        sums: dict[int, tuple[int, int]] = {}
        for number in range(len(self.commits)):
            columns = self.rows(number).to_pydict()
            sums |= {
                k: (n, total)
                for k, n, total in zip(*columns.values(), strict=True)
                if n > sums.get(k, (0, 0))[0]
            }
        return sums

    def wait(self, rows: int, *, within_s: float = PATIENCE_S) -> None:
        """Until so many rows are counted in the sink."""
        seen, sums = 0, dict[int, int]()
        end = time.monotonic() + within_s
        while sum(sums.values()) < rows:
            if self.process.poll() is not None or time.monotonic() > end:
                raise TimeoutError(
                    f"{self.way}: {sum(sums.values())} of {rows} rows counted\n{self.said()}"
                )
            while seen < len(self.commits):
                columns = self.rows(seen).to_pydict()
                for k, n in zip(columns["k"], columns["n"], strict=True):
                    sums[k] = max(n, sums.get(k, 0))
                seen += 1
                end = time.monotonic() + within_s
            time.sleep(0.02)

    def client(self) -> Client:
        """Of the controllers of the sites."""
        name = self.folder.name
        return client_of_sites(
            self.folder / "target" / name,
            name,
            "Sum.sums",
            zookeeper=self.zookeeper,
            patience_s=PATIENCE_S,
        )

    def _processes(self) -> Iterator[tuple[int, bytes]]:
        """All processes of its session, with their command lines."""
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                stat = (process / "stat").read_text().rpartition(") ")[2].split()
                if int(stat[3]) == self.process.pid:
                    yield int(process.name), (process / "cmdline").read_bytes()

    def executors(self) -> list[int]:
        """Processes of its executors."""
        return sorted(pid for pid, command in self._processes() if b"CoarseGrainedEx" in command)

    def said(self) -> str:
        """The end of its logs."""
        logs = [
            self.folder / "said.txt",
            self.folder / "target" / self.folder.name / "runs/latest/log.txt",
        ]
        return "\n".join(log.read_text()[-3000:] for log in logs if log.exists())

    def end(self) -> None:
        """Kill all of it, and delete what `local-cluster` has left of its executors."""
        self._over.set()
        self._watch.join()
        applications = set(filter(None, map(application, self.executors())))
        for pid, _ in [*self._processes()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        for name in applications:
            shutil.rmtree(SPARK_HOME / "work" / name, ignore_errors=True)


# ---- what comes in


class Input:
    """Files of rows; row i of all has k = i % keys, so that a count says which rows are in it."""

    def __init__(self, folder: Path, *, rows: int, keys: int) -> None:
        self.folder, self.rows, self.keys = folder, rows, keys
        self.times: list[float] = []
        """When each file was there."""
        folder.mkdir(parents=True)

    def add(self) -> None:
        """One more file, younger than those before."""
        number = len(self.times)
        at = np.arange(number * self.rows, (number + 1) * self.rows)
        table = pa.table({"k": at % self.keys, "v": at % 1009})
        temporary = self.folder / f".{number:06d}"
        pq.write_table(table, temporary)
        temporary.rename(self.folder / f"{number:06d}.parquet")
        self.times.append(time.time())

    def truth(self) -> dict[int, tuple[int, int]]:
        """k -> (count, sum) of all rows so far."""
        at = np.arange(len(self.times) * self.rows)
        n = np.bincount(at % self.keys, minlength=self.keys)
        total = np.bincount(at % self.keys, weights=at % 1009, minlength=self.keys)
        return {k: (int(n[k]), int(total[k])) for k in range(self.keys) if n[k]}

    def latencies(self, job: Job, since: float, until: float) -> np.ndarray:
        """Seconds from file to commit of the rows whose files came in that time."""
        counted = np.zeros(self.keys, np.int64)
        found = []
        times = np.array(self.times)
        for number, commit in enumerate(job.commits):
            table = job.rows(number)
            k, n = table.column("k").to_numpy(), table.column("n").to_numpy()
            before = counted[k]
            new = np.maximum(n - before, 0)
            counted[k] = np.maximum(n, before)
            ordinal = np.repeat(before - np.cumsum(new) + new, new) + np.arange(new.sum())
            row = ordinal * self.keys + np.repeat(k, new)
            came = times[row // self.rows]
            found.append(commit.time - came[(came >= since) & (came < until)])
        return np.concatenate(found or [np.zeros(0)])


# ---- measurements


@dataclass
class Measured:
    """One way; a value for each turn."""

    rows_per_s: list[float] = field(default_factory=list)
    cpu_s_per_million: list[float] = field(default_factory=list)
    p50_s: list[float] = field(default_factory=list)
    p99_s: list[float] = field(default_factory=list)
    usual_gap_s: list[float] = field(default_factory=list)
    executor_gap_s: list[float] = field(default_factory=list)
    """Longest silence at the sink after an executor died; infinite: nothing came any more."""
    site_gap_s: list[float] = field(default_factory=list)
    wrong: int = 0
    failures: list[str] = field(default_factory=list)


def throughput(way: str, folder: Path, zookeeper: str, options: Any, measured: Measured) -> None:
    """All files are there."""
    files = Input(folder / "data", rows=options.rows, keys=options.keys)
    for _ in range(options.files):
        files.add()
    job = Job(way, folder, master=options.master, zookeeper=zookeeper, files=options.batch)
    try:
        with Cpu(job.process.pid) as cpu:
            job.wait(options.files * options.rows)
            time.sleep(1.0)
        first, last = job.commits[0], job.commits[-1]
        if first is last:
            raise ValueError("all rows came in one commit: give more --files, or a smaller --batch")
        rows = options.files * options.rows - sum(job.rows(0).column("n").to_pylist())
        measured.rows_per_s.append(rows / (last.time - first.time))
        measured.cpu_s_per_million.append(cpu.between(first.time, last.time)[0] / rows * 1e6)
        measured.wrong += job.counted() != files.truth()
    finally:
        job.end()


def latency(way: str, folder: Path, zookeeper: str, options: Any, measured: Measured) -> None:
    """A file after the other; then deaths."""
    files = Input(folder / "data", rows=options.paced_rows, keys=options.keys)
    stop = threading.Event()

    def arrive() -> None:
        began = time.monotonic()
        for number in itertools.count():
            if stop.wait(max(0.0, began + number * options.pace - time.monotonic())):
                return
            files.add()

    job = Job(way, folder, master=options.master, zookeeper=zookeeper, files=1000)
    arriving = threading.Thread(target=arrive, daemon=True)
    try:
        arriving.start()
        end = time.monotonic() + PATIENCE_S
        while not job.commits:
            if job.process.poll() is not None or time.monotonic() > end:
                raise TimeoutError(f"{way}: nothing is committed\n{job.said()}")
            time.sleep(0.1)
        time.sleep(options.warm)
        since = time.time()
        time.sleep(options.seconds)
        until = time.time()
        measured.executor_gap_s.append(silence(job, job.executors()[-1], options.after))
        if way == PAIRS:
            measured.site_gap_s.append(silence(job, site_to_kill(job), options.after))
        stop.set()
        arriving.join()
        job.wait(len(files.times) * options.paced_rows)
        took = files.latencies(job, since, until - 5.0)
        measured.p50_s.append(float(np.percentile(took, 50)))
        measured.p99_s.append(float(np.percentile(took, 99)))
        times = [c.time for c in job.commits if since <= c.time < until]
        measured.usual_gap_s.append(float(np.median(np.diff(times))))
        measured.wrong += job.counted() != files.truth()
    finally:
        stop.set()
        job.end()


def real_time(folder: Path, options: Any, measured: Measured, *, paced: bool) -> None:
    """Both measurements of real-time mode."""
    rate = options.paced_rows / options.pace if paced else ALL_AT_ONCE
    start = time.time() + START_S
    (folder / "results").mkdir(parents=True)
    (folder / "pace").write_text(f"{rate} {int(start * 1e6)}")
    compile_java(folder)
    job = Job(REAL_TIME, folder, master=options.master, zookeeper="", keys=options.keys)
    try:
        with Cpu(job.process.pid) as cpu:
            wanted = options.files * options.rows
            if paced:
                wanted = int((options.warm + options.seconds) * rate)
            end = time.monotonic() + PATIENCE_S
            while len(results := timed_results(folder)) == 0 or counted_rows(results) < wanted:
                if job.process.poll() is not None or time.monotonic() > end:
                    raise TimeoutError(f"{len(results)} results in real-time mode\n{job.said()}")
                time.sleep(0.2)
            time.sleep(1.0)
        at, k, n, _ = results.T
        if not paced:
            first, last = at[0] / 1e6, at[-1] / 1e6
            measured.rows_per_s.append(counted_rows(results) / (last - first))
            used = cpu.between(first, last)[0]
            measured.cpu_s_per_million.append(used / counted_rows(results) * 1e6)
        else:
            took = at / 1e6 - start - ((n - 1) * options.keys + k) / rate
            late = at / 1e6 >= start + options.warm
            measured.p50_s.append(float(np.percentile(took[late], 50)))
            measured.p99_s.append(float(np.percentile(took[late], 99)))
            measured.usual_gap_s.append(float(np.median(np.diff(at[late]))) / 1e6)
            os.kill(job.executors()[-1], signal.SIGKILL)
            died = time.time()
            time.sleep(options.after)
            times = timed_results(folder)[:, 0] / 1e6
            after = times[times > died + 1.0]
            gap = float(np.max(np.diff([died, *after]))) if len(after) else float("inf")
            measured.executor_gap_s.append(gap)
        sums = np.array([(i % 1009) for i in range(int(counted_rows(results)) * 2)])
        measured.wrong += any(
            total != sums[key : n_ * options.keys : options.keys].sum()
            for _, key, n_, total in results[-100:]
            if n_ * options.keys <= len(sums)
        )
    finally:
        job.end()


def timed_results(folder: Path) -> np.ndarray:
    """(time in us, k, n, total) of all results so far, in the order of time."""
    parts = []
    for file in (folder / "results").glob("*.bin"):
        data = file.read_bytes()
        parts.append(np.frombuffer(data[: len(data) // 32 * 32], ">i8").reshape(-1, 4))
    found = np.concatenate(parts or [np.zeros((0, 4))]).astype(np.int64)
    return found[np.argsort(found[:, 0], kind="stable")]


def counted_rows(results: np.ndarray) -> int:
    """How many rows are in the last counts of all keys."""
    counts = np.zeros(int(results[:, 1].max(initial=0)) + 1, np.int64)
    np.maximum.at(counts, results[:, 1], results[:, 2])
    return int(counts.sum())


def silence(job: Job, process: int, after_s: float) -> float:
    """Kill a process; the longest time without a commit, from its death on."""
    os.kill(process, signal.SIGKILL)
    died = time.time()
    before = len(job.commits)
    end = time.monotonic() + PATIENCE_S
    while len(job.commits) == before and time.monotonic() < end:
        time.sleep(0.05)
    if len(job.commits) == before:
        return float("inf")
    time.sleep(after_s)
    times = [died, *(c.time for c in job.commits[before:])]
    return float(np.max(np.diff(times)))


def site_to_kill(job: Job) -> int:
    """The process of a site whose partitions are whole on others."""
    with job.client() as client:
        end = time.monotonic() + PATIENCE_S
        while time.monotonic() < end:
            status = client.status()
            pids = [int(load["pid"]) for load in status["loads"].values()]
            if status["whole"] and len(pids) >= SITES:
                return pids[0]
            time.sleep(0.2)
    raise TimeoutError(f"the pairs are not whole again\n{job.said()}")


def table(measured: dict[str, Measured]) -> Table:
    """Medians, and to the first way."""
    shown = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("", "rows/s", "ratio", "CPU s per 10^6", "ratio", "p50 s", "p99 s",
                    "usual gap s", "executor killed, s", "site killed, s", "wrong"):  # fmt: skip
        shown.add_column(heading, justify="right" if heading else "left")
    first = measured.get(MICRO_BATCH) or next(iter(measured.values()))

    def middle(values: Sequence[float], digits: int) -> str:
        return f"{statistics.median(values):,.{digits}f}" if values else ""

    def ratio(values: Sequence[float], beside: Sequence[float]) -> str:
        if not values or not beside:
            return ""
        return f"{statistics.median(a / b for a, b in zip(values, beside, strict=False)):.2f}"

    for way, of in measured.items():
        shown.add_row(
            way,
            middle(of.rows_per_s, 0),
            ratio(of.rows_per_s, first.rows_per_s),
            middle(of.cpu_s_per_million, 1),
            ratio(of.cpu_s_per_million, first.cpu_s_per_million),
            middle(of.p50_s, 2),
            middle(of.p99_s, 2),
            middle(of.usual_gap_s, 2),
            middle(of.executor_gap_s, 2),
            middle(of.site_gap_s, 2),
            str(of.wrong),
        )
    return shown


def main() -> int:
    """Measure; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--ways", nargs="+", choices=WAYS, default=WAYS)
    add("--turns", type=int, default=3)
    add("--keys", type=int, default=1000)
    add("--files", type=int, default=40, help="that are there, for the throughput")
    add("--rows", type=int, default=50_000, help="of one of them")
    add("--batch", type=int, default=2, help="files in a micro-batch")
    add("--pace", type=float, default=0.2, help="seconds between files, for the latency")
    add("--paced-rows", type=int, default=1000, help="of one of them")
    add("--warm", type=float, default=15.0, help="seconds that do not count")
    add("--seconds", type=float, default=30.0, help="of which latencies are taken")
    add("--after", type=float, default=20.0, help="seconds to watch the sink after a death")
    add("--only", choices=("throughput", "latency"))
    add("--master", default=MASTER)
    add("--json", type=Path)
    add("--job", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        way, folder = options.job[0], Path(options.job[1])
        if way == REAL_TIME:
            in_real_time(folder, options.master, options.keys)
        else:
            by_hand(way, folder, options.master, options.batch)
        return 0
    measured = {way: Measured() for way in options.ways}
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ensemble = stack.enter_context(LoopbackEnsemble(root / "zookeeper", size=1, heap_mb=96))
        for turn in range(options.turns):
            for way, of in measured.items():
                for kind, measure in (("throughput", throughput), ("latency", latency)):
                    if options.only in (None, kind):
                        folder = root / f"{way}-{kind}-{turn}"
                        try:
                            if way == REAL_TIME:
                                real_time(folder, options, of, paced=kind == "latency")
                            else:
                                measure(way, folder, ensemble.hosts, options, of)
                        except Exception as error:  # the other ways go on
                            of.failures.append(f"{kind}: {type(error).__name__}: {error}")
                        shutil.rmtree(folder, ignore_errors=True)
                        print(f"  {way} {kind}: {asdict(of)}", file=sys.stderr, flush=True)
                        if options.json:
                            of_ways = {each: asdict(result) for each, result in measured.items()}
                            options.json.write_text(json.dumps(of_ways, indent=1) + "\n")
    Console().print(table(measured))
    for way, of in measured.items():
        for failure in of.failures:
            print(f"{way} {failure.partition(chr(10))[0]}")
    return int(any(of.wrong or of.failures for of in measured.values()))


if __name__ == "__main__":
    sys.exit(main())
