"""What a micro-batch reads: the same for every replay, and no file twice."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from flux_runtime.sealing.events import Coverage
from flux_runtime.spark.query import Query, RepeatedFileError
from flux_runtime.spark.sealed.coverage import coverage

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


class Reading:
    """A query on a folder of JSON files; what its micro-batches cover."""

    def __init__(self, session: SparkSession, path: Path, *, at_once: int = 1000) -> None:
        self.session = session
        self.path = path
        self.at_once = at_once
        self.seen: list[tuple[int, Coverage, list[str]]] = []
        self.rows: list[int] = []
        self.fail: Callable[[int], None] = lambda batch: None
        (path / "in").mkdir(parents=True, exist_ok=True)

    def send(self, *names: str) -> None:
        for number, name in enumerate(names):
            (self.path / "in" / name).write_text(json.dumps({"v": number}) + "\n")

    def run(self) -> None:
        reader = self.session.readStream.schema("v INT").option("maxFilesPerTrigger", self.at_once)
        frame = reader.json(str(self.path / "in"))
        query = Query("reading", frame, f"file://{self.path}/check point", self._on_batch)
        self._query = query
        query.start(available_now=True)
        while query.active:
            pass
        query.stop()
        if query.error is not None:
            raise query.error

    def _on_batch(self, frame: DataFrame, batch: int) -> int:
        self.seen.append((batch, coverage(self._query, batch), self._query.files()))
        rows = [row.v for row in frame.collect()]
        self.fail(batch)
        self.rows += rows
        return len(rows)


def test_a_replay_covers_the_same_and_another_cut_something_else(
    spark: SparkSession, tmp_path: Path
) -> None:
    reading = Reading(spark, tmp_path, at_once=2)
    reading.send("a.json", "b.json", "c.json", "d.json")

    def crash(batch: int) -> None:
        if batch == 1:
            raise InterruptedError

    reading.fail = crash
    with pytest.raises(InterruptedError):
        reading.run()
    reading.fail = lambda batch: None
    reading.run()
    (_, first, files), (one, failed, _), (again, replayed, _) = reading.seen
    assert one == again == 1
    assert replayed == failed != first
    assert first.start == ""
    assert first.end == failed.start
    assert len(files) == 2
    shutil.rmtree(tmp_path / "check point")
    recut = Reading(spark, tmp_path, at_once=3)
    recut.run()
    assert [cover.end for _, cover, _ in recut.seen] == [first.end, failed.end]
    assert recut.seen[0][1].files != first.files  # the numbers are the same, the files are not


@pytest.mark.parametrize("name", ["a[1] b%20.json", "{a,b}.json", "é*.json", "a?.json"])
def test_a_file_with_a_hostile_name_can_be_read_again(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    reading = Reading(spark, tmp_path, at_once=1)
    reading.send(name)
    reading.run()
    ((_, _, files),) = reading.seen
    assert spark.read.schema("v INT").json(files).count() == 1
    assert reading.rows == [0]


def test_a_file_that_spark_reads_twice_stops_the_job(spark: SparkSession, tmp_path: Path) -> None:
    reading = Reading(spark, tmp_path)
    reading.send("a[1].json", "b.json", "{c}.json")
    with pytest.raises(
        RepeatedFileError, match=r"more than once.*: file://.*/(a\[1\]|\{c\})\.json"
    ):
        reading.run()
    assert reading.rows == []
