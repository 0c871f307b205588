"""SE-10: a job that fails between any two steps, or is killed, ends with the same output."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from flux_runtime.spark import Job, Producers, Punctuation, faults, sql

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SCHEMA = "k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT"

POINTS = [
    "chunk-written",
    "chunk-counted",
    "looked-up",
    "sorted-out",
    "ingested",
    "batch-processed",
    "release-logged",
    "output-staged",
    "output-committed",
    "release-processed",
    "release-finished",
    "requests-written",
    "requested",
]


class CrashError(Exception):
    """Stands for the end of the process."""


def total(item: DataFrame) -> DataFrame:
    return sql("SELECT k, sum(v) AS s FROM item GROUP BY k", item=item)


def answer(totals: DataFrame, ask: DataFrame) -> DataFrame:
    return sql("SELECT a.id, t.s FROM ask a JOIN totals t ON a.k = t.k", totals=totals, ask=ask)


def build(job: Job) -> None:
    """Two gates, a channel between them, requests, two sinks."""
    items = job.source(
        "items",
        format="json",
        path="data/items",
        options={"maxFilesPerTrigger": "1"},
        schema=SCHEMA,
        producer="p",
        punctuation=Punctuation(when="sealed", count="n"),
    )
    asks = job.source("asks", format="json", path="data/asks", schema="id INT, k INT")
    totals = job.seal(
        "Total",
        total,
        waits={"item": [items]},
        key=("k",),
        producers={"items": Producers.all(["a", "b"])},
        forward=("k",),
    )
    answers = job.seal(
        "Answer", answer, waits={"totals": [totals]}, reads={"ask": [asks]}, key=("k",)
    )
    job.sink("totals", [totals])
    job.sink("answers", [answers])


class Traffic:
    """Endless input, and what must come out of it."""

    def __init__(self, write, seed: int) -> None:
        self.write = write
        self.rng = random.Random(seed)
        self.k = 0
        self.totals: dict[int, int] = {}
        self.answers: dict[int, int] = {}
        self.dead = 0

    def more(self) -> None:
        """Two partitions over two files, a question about each, a stranger's record."""
        keys = [self.k, self.k + 1]
        self.k += 2
        rows, votes = [], []
        for k in keys:
            values = {p: [self.rng.randrange(100) for _ in range(4)] for p in "ab"}
            rows += [{"k": k, "v": v, "p": p} for p in "ab" for v in values[p]]
            votes += [{"k": k, "p": p, "sealed": True, "n": 4} for p in "ab"]
            self.totals[k] = sum(sum(vs) for vs in values.values())
            self.answers[1000 + k] = self.totals[k]
        self.rng.shuffle(rows)
        self.write("items", [*rows[:9], {"k": keys[0], "v": -1, "p": "stranger"}])
        self.write("items", [*votes, *rows[9:]])
        self.dead += 1
        self.write("asks", [{"id": 1000 + k, "k": k} for k in keys])


def check(traffic: Traffic, totals: list[dict], answers: list[dict], dead: list[dict]) -> None:
    assert sorted((r["k"], r["s"]) for r in totals) == sorted(traffic.totals.items())
    assert sorted((r["id"], r["s"]) for r in answers) == sorted(traffic.answers.items())
    assert [(x["reason"], x["record"]["v"]) for x in dead] == [
        ("unknown_producer", -1)
    ] * traffic.dead


def test_failures_between_any_two_steps(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """One state, and a failure at every point in turn."""
    traffic = Traffic(bench.file, 1)
    passed: list[str] = []

    def crash_at(wanted: str):
        def point(name: str) -> None:
            passed.append(name)
            if name == wanted:
                raise CrashError(name)

        return point

    for wanted in POINTS:
        traffic.more()
        monkeypatch.setattr(faults, "point", crash_at(wanted))
        with pytest.raises(CrashError, match=wanted):
            bench.run(build)
    monkeypatch.undo()
    bench.run(build)
    check(traffic, bench.results("totals"), bench.results("answers"), bench.dead_letters("Total"))
    assert bench.metrics("Total")["open_partitions"] == 0


def test_a_micro_batch_that_spark_replays_changes_nothing(bench) -> None:
    """SE-10: Spark forgets the commit of the last micro-batches and does them again."""
    traffic = Traffic(bench.file, 2)
    traffic.more()
    bench.run(build)
    for checkpoint in (bench.path / "state" / "units").glob("*/checkpoint/*"):
        commits = sorted((checkpoint / "commits").glob("[0-9]*"), key=lambda f: int(f.name))
        commits[-1].unlink()
        (checkpoint / "commits" / f".{commits[-1].name}.crc").unlink(missing_ok=True)
    before = bench.metrics("Total")["rows_in"]
    bench.run(build)
    assert before > 0
    assert bench.metrics("Total")["rows_in"] == 0
    check(traffic, bench.results("totals"), bench.results("answers"), bench.dead_letters("Total"))
    traffic.more()
    bench.run(build)
    check(traffic, bench.results("totals"), bench.results("answers"), bench.dead_letters("Total"))


def test_a_checkpoint_whose_first_entry_was_interrupted(bench) -> None:
    """SE-10: a process killed while Spark wrote the first offsets leaves half a file."""
    traffic = Traffic(bench.file, 5)
    for stream in ("items", "asks"):
        (bench.path / "data" / stream).mkdir(parents=True)
    bench.run(build)
    traffic.more()
    log = bench.path / "state" / "units" / "Total" / "checkpoint" / "items" / "offsets"
    assert list(log.iterdir()) == []
    for name in (".0.5e7c.tmp", "..0.5e7c.tmp.crc", ".0.crc"):
        (log / name).write_text("v1")
    bench.run(build)
    check(traffic, bench.results("totals"), bench.results("answers"), bench.dead_letters("Total"))


# ---- the same with a process of its own

JOB = """
from pathlib import Path
from flux_runtime.spark import main
from crash_job import build

main(build, name="crashes", folder=Path(__file__).parent)
"""


class Process:
    """A job in a process of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = 0
        shutil.copy(__file__, path / "crash_job.py")
        (path / "job.py").write_text(JOB)

    def file(self, stream: str, rows: list[dict]) -> None:
        folder = self.path / "data" / stream
        folder.mkdir(parents=True, exist_ok=True)
        self.files += 1
        hidden = folder / f".{self.files:05d}.json"
        hidden.write_text("\n".join(map(json.dumps, rows)) + "\n")
        os.utime(hidden, (1_700_000_000 + self.files,) * 2)
        hidden.rename(folder / hidden.name[1:])

    def start(self, *arguments: str, crash_at: str | None = None) -> subprocess.Popen:
        env = {**os.environ, "BLAZES_MASTER": "local[2]"}
        env |= {} if crash_at is None else {faults.VARIABLE: crash_at}
        return subprocess.Popen(
            [sys.executable, "job.py", "--root", ".", *arguments],
            cwd=self.path,
            env=env,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, crash_at: str | None = None) -> tuple[int, str]:
        process = self.start(*arguments, crash_at=crash_at)
        _, err = process.communicate(timeout=500)
        return process.returncode, err

    def rows(self, spark, sink: str) -> list[dict]:
        path = self.path / "results" / sink
        return [r.asDict() for r in spark.read.parquet(f"{path.as_uri()}/*").collect()]

    def dead(self) -> list[dict]:
        files = (self.path / "state" / "dead_letters" / "Total").glob("*.jsonl")
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def check(self, spark, traffic: Traffic) -> None:
        check(traffic, self.rows(spark, "totals"), self.rows(spark, "answers"), self.dead())


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 400
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.05)


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


def test_sigterm_stops_cleanly_and_the_job_resumes(process: Process, spark) -> None:
    traffic = Traffic(process.file, 4)
    traffic.more()
    running = process.start()
    out = process.path / "results" / "answers"
    until(out.exists, running)
    traffic.more()
    other = process.run("--available-now")
    assert other[0] == 1
    assert "another process runs this job" in other[1]
    running.send_signal(signal.SIGTERM)
    _, err = running.communicate(timeout=300)
    assert running.returncode == 0, err
    summary = json.loads((process.path / "runs" / "latest" / "summary.json").read_text())
    assert summary["status"] == "stopped"
    assert process.run("--available-now")[0] == 0
    process.check(spark, traffic)
    build = (process.path / "crash_job.py").read_text()
    (process.path / "crash_job.py").write_text(build.replace("sum(v) AS s", "max(v) AS s", 1))
    status, err = process.run("--available-now")
    assert status == 1
    assert "--fresh" in err
    assert "unit Answer: another text of what is before it" in err, err
    (process.path / "crash_job.py").write_text(build)
    assert process.run("--available-now", "--fresh")[0] == 0
    process.check(spark, traffic)
