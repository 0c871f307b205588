"""A running job whose ZooKeeper server is killed starts it again and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from flux_runtime.observe.reader import Tail

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

JOB = """
from pathlib import Path
from flux_runtime.spark import Job, Producers, Punctuation, main, sql

def total(item):
    return sql("SELECT k, sum(v) AS s FROM item GROUP BY k", item=item)

def build(job: Job) -> None:
    items = job.source("items", format="json", path="data/items",
                       schema="k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT", producer="p",
                       punctuation=Punctuation(when="sealed", count="n"))
    totals = job.seal("Total", total, waits={"item": [items]}, key=("k",),
                      producers={"items": Producers.registered("items", registrations="who.json")})
    job.sink("out", [totals])

main(build, name="killed", folder=Path(__file__).parent)
"""


def until(condition: Callable[[], Any], process: subprocess.Popen[str], timeout_s: float) -> Any:
    deadline = time.monotonic() + timeout_s
    while not (found := condition()):
        assert process.poll() is None, process.stderr and process.stderr.read()[-3000:]
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.1)
    return found


def test_the_job_restarts_its_zookeeper(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "data" / "items").mkdir(parents=True)
    (tmp_path / "who.json").write_text(json.dumps({str(k): ["a"] for k in (1, 2)}))

    def file(k: int) -> None:
        rows: list[dict[str, Any]] = [{"k": k, "v": v, "p": "a"} for v in range(5)]
        rows.append({"k": k, "p": "a", "sealed": True, "n": 5})
        hidden = tmp_path / "data" / "items" / f".{k}.json"
        hidden.write_text("\n".join(map(json.dumps, rows)) + "\n")
        hidden.rename(hidden.with_name(hidden.name[1:]))

    def results() -> list[dict[str, Any]]:
        files = sorted((tmp_path / "results" / "out").glob("*/*.parquet"))
        return [row for f in files for row in pq.read_table(f).to_pylist()]

    def events(kind: str) -> list[dict[str, Any]]:
        noted = Tail(tmp_path / "runs" / "latest" / "events.jsonl").records()
        return [dict(event) for event in noted if event["kind"] == kind]

    file(1)
    job = subprocess.Popen(
        [sys.executable, "job.py", "--root", "."],
        cwd=tmp_path,
        env={**os.environ, "BLAZES_MASTER": "local[2]"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(results, job, 400)
        lock = tmp_path / "state" / "zookeeper" / "lock"
        killed = json.loads(lock.read_text())
        os.kill(killed["pid"], signal.SIGKILL)
        file(2)  # its producers have yet to be looked up
        until(lambda: len(results()) == 2, job, 400)
        until(lambda: events("zookeeper_restarted"), job, 120)
        assert len(events("zookeeper_restarted")) == 1
        now = json.loads(lock.read_text())
        assert now["hosts"] == killed["hosts"]
        assert now["pid"] != killed["pid"]
        assert results() == [{"k": 1, "s": 10}, {"k": 2, "s": 10}]
        job.send_signal(signal.SIGTERM)
        _, err = job.communicate(timeout=300)
        assert job.returncode == 0, err
    finally:
        job.kill()
        job.wait()
