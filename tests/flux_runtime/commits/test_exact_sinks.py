"""What exact sinks promise, on real ones: Delta on a disk and in an object store, Kafka.

The rows come without Spark here, so that races can be staged at the very place: between the look at
the notes and the transaction. `benchmarks/sink_kills.py` kills whole jobs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.sink_servers import (
    committed_messages,
    kafka_broker,
    make_topic,
    object_store,
)
from flux_runtime.commits.fence import FencedError
from flux_runtime.commits.owner import NotOwnerError, Ownership
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark import Job
from flux_runtime.spark.ends.delta import DeltaSink, write_file
from flux_runtime.spark.ends.sinks import SinkError
from flux_runtime.spark.ends.topics import Topic

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [{"name": "v", "type": "long", "nullable": True, "metadata": {}}],
    }
)


def nothing() -> None:
    """Nobody comes in between."""


class Delta:
    """A Delta table, and how rows come into it without Spark."""

    def __init__(self, location: str, options: dict[str, str]) -> None:
        self.sink = DeltaSink(name="out", location=location, options=options)

    def commit(
        self,
        sink: Any,
        number: int,
        *values: int,
        covers: Any = None,
        meanwhile: Callable[[], object] = nothing,
    ) -> int:
        def write(table: Any) -> list[tuple[str, int, int]]:
            schema = pa.schema(table.schema().to_arrow())
            batch = pa.record_batch({"v": list(values)})
            file = write_file([batch], self.sink.location, self.sink.options, schema)
            meanwhile()
            return [] if file is None else [file]

        return int(sink.commit_files("U", number, SCHEMA, write, covers))

    def rows(self) -> list[int]:
        from deltalake import DeltaTable

        table = DeltaTable(self.sink.location, storage_options=dict(self.sink.options))
        return sorted(table.to_pyarrow_table()["v"].to_pylist())


class Kafka:
    """A topic, and how messages get into it without Spark."""

    def __init__(self, broker: str, topic: str) -> None:
        self.broker = broker
        self.sink = Topic(name="out", options={"kafka.bootstrap.servers": broker, "topic": topic})
        make_topic(broker, topic)

    def commit(
        self,
        sink: Any,
        number: int,
        *values: int,
        covers: Any = None,
        meanwhile: Callable[[], object] = nothing,
    ) -> int:
        def messages() -> Iterator[Any]:
            for value in values:
                yield None, None, b"key", str(value).encode(), [("h", b"1")]
            meanwhile()

        return int(sink.send("U", number, messages(), covers))

    def rows(self) -> list[int]:
        return sorted(int(value) for value in committed_messages(self.broker, self.sink.target))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        broker = stack.enter_context(kafka_broker(tmp_path_factory.mktemp("broker")))
        store = stack.enter_context(object_store("bucket"))
        yield {"kafka": broker, "s3": dict(store)}


@pytest.fixture(params=["disk", "s3", "kafka"])
def end(request: pytest.FixtureRequest, tmp_path: Path, servers: dict[str, Any]) -> Delta | Kafka:
    name = tmp_path.name.replace("[", "-").replace("]", "")
    match request.param:
        case "disk":
            return Delta(str(tmp_path / "my table, é"), {})
        case "s3":
            return Delta(f"s3://bucket/{name}", servers["s3"])
        case _:
            return Kafka(servers["kafka"], name)


def claimed(path: Path, *, fresh: bool = False, job: str = "job") -> Ownership:
    ownership = Ownership(job, LocalStorage(path), [], fresh=fresh)
    ownership.claim()
    return ownership


def taken(end: Delta | Kafka, ownership: Ownership) -> Any:
    return end.sink.taken(None, ownership, ["U"])  # type: ignore[arg-type]


def test_a_commit_is_made_once_and_what_it_covers_is_compared(
    end: Delta | Kafka, tmp_path: Path
) -> None:
    sink = taken(end, claimed(tmp_path / "s"))
    assert sink.newest("U") is None
    assert end.commit(sink, 0, 1, 1, 2, covers={"to": 1}) == 3
    assert end.commit(sink, 0, 1, 1, 2, covers={"to": 1}) == 0
    with pytest.raises(DamagedError, match="covers something else"):
        end.commit(sink, 0, 1, 1, 2, covers={"to": 2})
    assert end.commit(sink, 3) == 0
    assert end.commit(sink, 2, 9) == 0
    again = taken(end, claimed(tmp_path / "s"))
    assert again.newest("U") == 3
    assert end.commit(again, 3, 9) == 0
    assert end.commit(again, 4, 4) == 1
    assert end.rows() == [1, 1, 2, 4]


def test_a_driver_that_was_replaced_commits_nothing_wherever_it_was_paused(
    end: Delta | Kafka, tmp_path: Path
) -> None:
    first = claimed(tmp_path / "s")
    older = taken(end, first)
    end.commit(older, 0, 1)
    first.fence.check = lambda: None  # type: ignore[method-assign]
    newer: Any = None

    def replace() -> None:
        nonlocal newer
        newer = newer or taken(end, claimed(tmp_path / "s"))

    with pytest.raises(FencedError, match="taken over by"):
        end.commit(older, 1, 2, meanwhile=replace)
    with pytest.raises(FencedError, match="taken over by"):
        end.commit(older, 1, 2)
    assert end.commit(newer, 1, 3) == 1
    assert end.rows() == [1, 3]


def test_rows_of_another_state_are_refused(end: Delta | Kafka, tmp_path: Path) -> None:
    sink = taken(end, claimed(tmp_path / "s"))
    end.commit(sink, 0, 1)
    with pytest.raises(NotOwnerError, match="another state"):
        taken(end, claimed(tmp_path / "other"))
    assert end.commit(sink, 1, 2) == 1  # which has harmed nobody
    fresh = taken(end, claimed(tmp_path / "other", fresh=True))
    assert end.commit(fresh, 0, 3) == 1
    assert end.rows() == [1, 2, 3]


def test_a_job_of_another_name_adds_each_row_once_beside_the_first(
    end: Delta | Kafka, tmp_path: Path
) -> None:
    """As it is used to bring in a past range."""
    states = {"job": 0, "job-2023": 100}

    def sinks() -> dict[str, Any]:
        return {job: taken(end, claimed(tmp_path / job, job=job)) for job in states}

    for number in range(3):
        for job, sink in sinks().items():  # each has been started again
            for _ in range(2):
                end.commit(sink, number, states[job] + number)
                end.commit(sink, number - 1, states[job] + number - 1)
    assert {job: sink.newest("U") for job, sink in sinks().items()} == {"job": 2, "job-2023": 2}
    assert end.rows() == [0, 1, 2, 100, 101, 102]


def test_a_table_that_was_emptied_is_refused(tmp_path: Path) -> None:
    end = Delta(str(tmp_path / "table"), {})
    end.commit(taken(end, claimed(tmp_path / "s")), 0, 1)
    shutil.rmtree(tmp_path / "table")
    with pytest.raises(DamagedError, match="has made its commit 0, and the newest"):
        taken(end, claimed(tmp_path / "s"))


def test_a_unit_beside_another_one_loses_no_race(tmp_path: Path) -> None:
    """Entries of others come between the look and the commit; they are no reason to give up."""
    end = Delta(str(tmp_path / "table"), {})
    both = end.sink.taken(None, claimed(tmp_path / "s"), ["U", "V"])  # type: ignore[arg-type]
    end.commit(both, 0, 1)

    def meanwhile() -> None:
        both.commit_files("V", 0, SCHEMA, lambda table: [], None)

    assert end.commit(both, 1, 2, meanwhile=meanwhile) == 1
    assert end.rows() == [1, 2]


def test_a_partitioned_table_is_refused(tmp_path: Path) -> None:
    from deltalake import DeltaTable, Schema

    location = str(tmp_path / "table")
    DeltaTable.create(location, Schema.from_json(SCHEMA), partition_by=["v"])
    with pytest.raises(SinkError, match="partitioned by v"):
        taken(Delta(location, {}), claimed(tmp_path / "s"))


def test_what_is_no_sink_is_refused_when_it_is_declared(tmp_path: Path) -> None:
    job = Job(root=tmp_path, results=tmp_path)
    with pytest.raises(ValueError, match=r"needs the options \['topic'\]"):
        job.sink(
            "a", [], format="kafka", transaction=True, options={"kafka.bootstrap.servers": "b"}
        )
    with pytest.raises(ValueError, match="a delta sink needs a path"):
        job.sink("b", [], format="delta")
    with pytest.raises(ValueError, match="replaced by a key"):
        job.sink("c", [], format="delta", path="x", key=["k"])
