"""A run as OpenLineage events, which a server receives that knows nothing of the job."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from flux_runtime.spark import Job
from flux_runtime.spark.lineage import Lineage

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

JOB = """
from pathlib import Path
from flux_runtime.spark import Job, main, sql

def large(order):
    return sql("SELECT id, CAST(amount AS INT) AS amount FROM order WHERE amount > 1", order=order)

def build(job: Job) -> None:
    orders = job.source("orders", format="json", path="data/orders", schema="id INT, amount STRING")
    job.sink("large", [job.native("Large.large", large, inputs={"order": [orders]})])

main(build, name="orders", folder=Path(__file__).parent, master="local[1]")
"""


@pytest.fixture
def events() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The address of a server, and what was sent to it."""
    received: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(201)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", received
    server.shutdown()
    server.server_close()


def run(folder: Path, **environment: str) -> int:
    """The exit status of the job on all that is there."""
    command = [sys.executable, "job.py", "--available-now", "--root", "."]
    return subprocess.run(
        command, cwd=folder, env={**os.environ, **environment}, check=False, timeout=300
    ).returncode


def test_a_run_begins_with_its_inputs_and_ends_with_its_outputs_or_its_error(
    events: tuple[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    address, received = events
    orders = tmp_path / "data" / "orders"
    orders.mkdir(parents=True)
    (tmp_path / "job.py").write_text(JOB)
    (orders / "1.json").write_text('{"id": 1, "amount": "5"}\n{"id": 2, "amount": "1"}\n')
    parent = "team/dag.task/01988bc5-5e4b-7b2d-8a6f-0b1f2f7f9f11"
    assert run(tmp_path, OPENLINEAGE_URL=address, OPENLINEAGE_PARENT_ID=parent) == 0
    start, complete = received
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == complete["run"]["runId"]
    assert start["run"]["facets"]["parent"]["job"]["name"] == "dag.task"
    assert start["job"]["name"] == "orders"
    (given,), (made,) = start["inputs"], complete["outputs"]
    assert (given["namespace"], given["name"]) == ("file", str(orders))
    columns = [(f["name"], f["type"]) for f in given["facets"]["schema"]["fields"]]
    assert columns == [("id", "int"), ("amount", "string")]
    assert made["name"] == str(tmp_path / "results" / "large")
    assert made["outputFacets"]["outputStatistics"]["rowCount"] == 1
    (orders / "2.json").write_text('{"id": 3, "amount": "no number"}\n')
    assert run(tmp_path, OPENLINEAGE_URL=address) == 1
    assert [event["eventType"] for event in received[2:]] == ["START", "FAIL"]
    assert "CAST_INVALID_INPUT" in received[3]["run"]["facets"]["errorMessage"]["message"]


def test_a_run_goes_on_where_nobody_takes_its_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark: Any, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OPENLINEAGE_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__TYPE", "http")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__URL", "http://127.0.0.1:9")
    monkeypatch.setenv("OPENLINEAGE__TRANSPORT__RETRY", '{"total": 0}')
    lineage = Lineage.of(Job(root=tmp_path, results=tmp_path), "j", available_now=True)
    lineage.started(spark)
    lineage.ended({})
    assert caplog.text.count("an OpenLineage event was not sent") == 2
