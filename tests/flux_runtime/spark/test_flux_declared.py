"""What a job declares of a Flux stage, without Spark: gates, types, seats, batches, mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from flux_runtime.spark import Job, Step
from flux_runtime.spark.changes import changes
from flux_runtime.spark.fingerprint import fingerprint
from flux_runtime.spark.flux.components import common_gate
from flux_runtime.spark.flux.ordered_input import together
from flux_runtime.spark.flux.site_task import own_address, seated
from flux_runtime.spark.flux.sites import brief


def component(click: Any) -> Any:
    return click


def declared(**options: Any) -> Job:
    job = Job(root=Path(), results=Path("results"))
    clicks = job.source("clicks", format="json", path="clicks", schema="id BIGINT")
    step = Step("C", component, query="SELECT * FROM click", gives="records")
    steps = options.pop("steps", [step])
    job.flux("C", steps, writes={"click": [clicks]}, **options)
    return job


def test_the_gate_is_what_all_inputs_have_in_types_that_hash_alike() -> None:
    gate = ["a", "b", "c", "d"]
    one = (("a", pa.int32()), ("b", pa.string()), ("c", pa.float64()), ("d", pa.date32()))
    two = (("a", pa.int64()), ("b", pa.string()), ("c", pa.int64()))
    assert common_gate(gate, {"one": one}) == ("a", "b", "c", "d")
    assert common_gate(gate, {"one": one, "two": two}) == ("a", "b")
    assert common_gate([], {"one": one}) == ()


def test_the_state_stands_on_steps_replicas_and_partitions_but_not_on_sites(tmp_path: Path) -> None:
    other = [Step("C", component, query="SELECT id FROM click", gives="records")]
    said = {}
    for what, options in {
        "sites": {"sites": 5},
        "partitions": {"partitions": 7},
        "steps": {"steps": other},
    }.items():
        job = declared(**options)
        (change,) = changes(fingerprint(declared()), fingerprint(job), job, tmp_path)
        assert (change.name, change.what) == ("unit C", f"another {what}")
        said[what] = change.goes_on
    assert said == {"sites": True, "partitions": False, "steps": False}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"steps": []}, "no step"),
        ({"sites": 0}, "at least 1"),
        ({"replicas": 2, "steps": [Step("C", component, query="q")] * 2}, "several steps"),
    ],
)
def test_what_cannot_run_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        declared(**options)


def test_a_step_has_a_query_or_a_schema() -> None:
    with pytest.raises(ValueError, match="`query` says what a site computes"):
        Step("C", component)
    with pytest.raises(ValueError, match="sometimes"):
        Step("C", component, query="q", gives="sometimes")


def test_neighbouring_pieces_become_one_batch_up_to_its_limit() -> None:
    piece = pa.record_batch({"v": pa.nulls(30_000, pa.int8())})
    pieces = [(n * 30_000, piece) for n in range(5)]
    made = [(offset, rows.num_rows) for offset, rows in together(iter(pieces))]
    assert made == [(0, 60_000), (60_000, 60_000), (120_000, 30_000)]
    assert list(together(iter([]))) == []


def test_an_executor_holds_no_more_sites_than_there_is_room_for(tmp_path: Path) -> None:
    assert seated(tmp_path, "a", 2, 2)
    assert seated(tmp_path, "a", 0, 2)
    assert not seated(tmp_path, "a", 1, 2)
    assert seated(tmp_path, "b", 1, 2)
    assert seated(tmp_path, "b", 0, 2)  # started again elsewhere: its seat in the other is free
    assert seated(tmp_path, "a", 3, 2)
    assert sorted(str(seat.relative_to(tmp_path)) for seat in tmp_path.glob("*/*")) == [
        "a/2",
        "a/3",
        "b/0",
        "b/1",
    ]


def test_nobody_answers_at_an_address_where_no_zookeeper_is() -> None:
    with pytest.raises(OSError, match="refused"):
        own_address("127.0.0.1:1")


def test_of_a_failed_task_the_last_python_error_is_told() -> None:
    error = RuntimeError(
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 failed\n"
        "Traceback (most recent call last):\n"
        '  File "query.py", line 1, in process\n'
        "_duckdb.ParserException: Parser Error: syntax error at or near\n"
        "\n"
        "\tat org.apache.spark.api.python.BasePythonRunner(PythonRunner.scala:1)\n"
        "Caused by: org.apache.spark.api.python.PythonException: Traceback\n"
    )
    assert brief(error) == "_duckdb.ParserException: Parser Error: syntax error at or near"
    assert brief(KeyError()) == "KeyError"
    crashed = RuntimeError(
        "An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.\n"
        ": org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 4.0 "
        "failed 1 times, most recent failure: Lost task 0.0 in stage 4.0 (TID 6): "
        "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed). Consider\n"
    )
    assert brief(crashed) == "Python worker exited unexpectedly (crashed)"
