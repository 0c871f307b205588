"""What exact sinks promise, on real ones: Delta on a disk and in an object store, Kafka.

The rows come without Spark here, so that races can be staged at the very place: between the look at
the notes and the transaction. `benchmarks/sink_kills.py` kills whole jobs.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from decimal import Decimal
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
from flux_runtime.spark.ends.delta import DeltaSink, _holds, write_file
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
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture(scope="module")
def store() -> Iterator[dict[str, str]]:
    with object_store("bucket") as options:
        yield dict(options)


@pytest.fixture(params=["disk", pytest.param("s3", marks=pytest.mark.slow), "kafka"])
def end(request: pytest.FixtureRequest, tmp_path: Path) -> Delta | Kafka:
    name = tmp_path.name.replace("[", "-").replace("]", "")
    match request.param:
        case "disk":
            return Delta(str(tmp_path / "my table, é"), {})
        case "s3":
            return Delta(f"s3://bucket/{name}", request.getfixturevalue("store"))
        case _:
            return Kafka(request.getfixturevalue("broker"), name)


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


@pytest.mark.parametrize(
    ("asks", "says"),
    [
        ({"partitionColumns": ["v"]}, "partitioned by v"),
        ({"configuration": {"delta.constraints.low": "v < 9"}}, "the condition v < 9"),
        ({"configuration": {"delta.columnMapping.mode": "name"}}, "column mapping"),
        (
            {"metadata": {"delta.invariants": '{"expression": {"expression": "v < 9"}}'}},
            "invariant",
        ),
        ({"metadata": {"delta.generationExpression": "w + 1"}}, "is generated"),
        ({"metadata": {"delta.identity.start": 1}}, "is an identity"),
        ({"writerFeatures": ["invariants", "rowTracking"]}, "the feature rowTracking"),
        ({"writerFeatures": ["allowColumnDefaults"]}, "the feature allowColumnDefaults"),
        ({"writerFeatures": ["appendOnly"], "configuration": {"delta.appendOnly": "true"}}, None),
    ],
)
def test_a_table_that_asks_more_of_a_writer_is_refused(
    tmp_path: Path, asks: dict[str, Any], says: str | None
) -> None:
    """Before anything is written; a log by hand, since the package makes no such tables."""
    column = json.loads(SCHEMA)["fields"][0]
    number = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c-1"}
    column["metadata"] = asks.get("metadata") or number
    features = asks.get("writerFeatures")
    protocol = {"minReaderVersion": 2, "minWriterVersion": 7 if features else 6}
    protocol |= {"minReaderVersion": 1, "writerFeatures": features} if features else {}
    metadata = {
        "id": "7f1f4b1e-0000-4000-8000-000000000000",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [column]}),
        "partitionColumns": asks.get("partitionColumns", []),
        "configuration": asks.get("configuration", {}),
    }
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    entries = [{"protocol": protocol}, {"metaData": metadata}]
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, entries)))
    end = Delta(str(tmp_path / "table"), {})
    if says is None:
        assert end.commit(taken(end, claimed(tmp_path / "s")), 0, 1) == 1
        return
    with pytest.raises(SinkError, match=says):
        taken(end, claimed(tmp_path / "s"))
    assert len(list(log.iterdir())) == 1


def test_a_column_holds_the_values_of_rows_or_refuses_them(tmp_path: Path) -> None:
    """All types against each other, at their ends: nothing is rounded, shifted or worded."""
    stamp, day = datetime.datetime(2024, 3, 31, 1, 30, 0, 123456), datetime.date(1582, 10, 4)
    values: dict[pa.DataType, list[Any]] = {
        **{getattr(pa, f"int{n}")(): [-1 << n - 1, (1 << n - 1) - 1, 7] for n in (8, 16, 32, 64)},
        pa.float32(): [0.5, float(1 << 24) + 2, 2.0**120],
        pa.float64(): [0.1, 0.5, 2.0**53, 1e300],
        pa.decimal128(38, 18): [Decimal("0.1"), Decimal(10**20 - 1), Decimal("1e-18")],
        pa.decimal128(5, 1): [Decimal("0.1"), Decimal("9999.9")],
        pa.bool_(): [True, False],
        pa.string(): ["7", "", "é", "2024-03-31"],
        pa.binary(): [b"7", b"\xff"],
        pa.date32(): [day, datetime.date(9999, 12, 31)],
        pa.timestamp("us"): [stamp, datetime.datetime(1, 1, 1)],
        pa.timestamp("us", "UTC"): [stamp.replace(tzinfo=datetime.UTC)],
    }
    for of, few in [*values.items()]:
        values[pa.list_(of)] = [few, []]
        values[pa.map_(pa.string(), of)] = [[("k", few[0])]]
        values[pa.struct([("x", of)])] = [{"x": value} for value in few]
    taken_over = Counter[bool]()
    for column in values:
        for given, few in values.items():
            if not _holds(column, given):
                taken_over[False] += 1
                continue
            for value in few:
                with contextlib.suppress(pa.ArrowInvalid):  # loud
                    (held,) = pa.array([value], given).cast(column).to_pylist()
                    assert held == value, (column, given)
                    assert isinstance(held, bool) == isinstance(value, bool)
            taken_over[True] += 1
    assert taken_over[True] > len(values)
    assert all(_holds(of, of) for of in values)
    end = Delta(str(tmp_path / "table"), {})
    sink = taken(end, claimed(tmp_path / "s"))
    end.commit(sink, 0, 1)
    for of, says in (
        ("string", "column v of .* is int64"),
        ("time(6)", "cannot hold rows"),
        ("interval day", "no intervals"),
    ):
        with pytest.raises(SinkError, match=says):
            sink.commit_files("U", 1, SCHEMA.replace("long", of), lambda table: [])


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
