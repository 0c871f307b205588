"""Channels: checked when they are read, and emptied behind their slowest reader."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from flux_runtime.commits.owner import Location, Ownership
from flux_runtime.commits.record import commit_name
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.ends.commit import Folders
from flux_runtime.spark.ends.outputs import Output
from flux_runtime.spark.ends.retention import TOGETHER, Retention
from flux_runtime.spark.feed import Feed
from flux_runtime.spark.query import Query
from flux_runtime.spark.units import NativeUnit, data_of

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


class Crash(Exception):  # noqa: N818
    """The end of a process."""


class Bench:
    """A unit with a channel, and queries that read it; `restart` is a new process."""

    def __init__(self, session: SparkSession, path: Path, *, readers: tuple[str, ...]) -> None:
        self.session = session
        self.state = LocalStorage(path / "state of it")
        self.readers = readers
        self.rows: dict[str, Counter[int]] = {name: Counter() for name in readers}
        self.unit = NativeUnit(
            name="A/b",
            fn=lambda rows: rows,
            feeds={},
            output_mode="append",
            ordered=False,
            watermark=None,
        )
        self.unit._schema = session.range(1).schema
        self.fail: Callable[[str, int], None] = lambda name, batch: None
        self.restart()

    def restart(self, *, kept: tuple[str, ...] = (), joined: tuple[str, ...] | None = None) -> None:
        path = self.state.uri("channels/A")
        location = Location(name="channel A/b", path=path, units=("A/b",), outside=False)
        ownership = Ownership("test", self.state, [location])
        ownership.check()
        ownership.claim()
        self.unit.channel = Folders(path, owner=ownership.owner(path))
        channels = {"A/b": self.unit.channel}
        self.retention = Retention(self.state, channels, {"A/b": self.readers}, whole_channels=kept)
        self.queries = {}
        for name in self.readers:
            stream = data_of(self.unit.stream(self.session))
            query = Query(name, stream, self.state.uri(f"{name}/checkpoint"), self._reading(name))
            if joined is None or name in joined:
                self.retention.watch(query, unit=name, feeds=[Feed(self.unit)])
            self.queries[name] = query
        self.output = Output(
            unit="A/b",
            schema=self.unit.schema(self.session),
            channel=self.unit.channel,
            fence=ownership.fence,
            on_commit=lambda: self.retention.committed("A/b"),
        )

    def commit(self, *numbers: int) -> None:
        for number in numbers:
            assert self.output.commit(number, self.session.range(number, number + 1, 1, 1)) == 1

    def read(self, *names: str) -> None:
        for name in names:
            query = self.queries[name]
            query.start(available_now=True)
            while query.active:
                pass
            query.stop()
            if query.error is not None:
                raise query.error

    @property
    def present(self) -> list[int]:
        channel = self.unit.channel
        assert channel is not None
        return [int(name[-9:]) for name in channel.commits("A/b")]

    def _reading(self, name: str) -> Callable[[DataFrame, int], int]:
        def on_batch(frame: DataFrame, batch: int) -> int:
            ids = [row.id for row in frame.collect()]
            self.fail(name, batch)
            self.rows[name].update(ids)
            return len(ids)

        return on_batch


FIRST = range(TOGETHER + 2)
NEXT = range(len(FIRST), len(FIRST) + TOGETHER + 2)


def test_a_channel_is_emptied_behind_its_slowest_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    bench = Bench(spark, tmp_path, readers=("B", "C"))
    bench.commit(*FIRST)
    bench.read("B", "C")
    assert bench.present == [*FIRST]  # a replay could still read them
    bench.commit(*NEXT)
    bench.read("B")
    assert bench.present == [*FIRST, *NEXT]  # C might

    def crash(name: str, batch: int) -> None:
        raise Crash(f"{name} {batch}")

    bench.fail = crash
    bench.restart()
    with pytest.raises(Crash, match="C 1"):
        bench.read("C")  # a later micro-batch of it has begun
    assert bench.present == [*NEXT]
    bench.fail = lambda name, batch: None
    bench.restart()
    bench.read("C", "B")  # the replay finds what it needs
    assert bench.rows["B"] == bench.rows["C"] == Counter([*FIRST, *NEXT])
    assert bench.output.commit(3, spark.range(9)) == 0  # it has been, whoever repeats it
    assert bench.output.newest() == NEXT[-1]
    assert bench.present == [*NEXT]
    assert not (tmp_path / "state of it" / "channels" / ".A.gone" / commit_name("A/b", 3)).exists()


def test_what_was_read_before_a_restart_is_remembered(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, tmp_path, readers=("B",))
    bench.commit(*FIRST)
    bench.read("B")
    bench.restart()
    bench.commit(NEXT[0])
    bench.read("B")
    assert bench.present == [NEXT[0]]
    shutil.rmtree(tmp_path / "state of it" / "retention")  # forgotten: too little is deleted
    bench.commit(*NEXT[1:])
    bench.restart()
    bench.read("B")
    bench.restart()
    bench.commit(100)
    bench.read("B")
    assert bench.present == [NEXT[0], 100]
    assert bench.rows["B"] == Counter([*FIRST, *NEXT, 100])


def test_a_checkpoint_that_begins_anew_reads_all_that_is_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    bench = Bench(spark, tmp_path, readers=("B",))
    bench.commit(*FIRST)
    bench.read("B")
    bench.commit(50)
    bench.read("B")
    assert bench.present == [50]
    bench.commit(*range(51, 51 + TOGETHER))
    bench.read("B")
    before = bench.present
    shutil.rmtree(tmp_path / "state of it" / "B")
    bench.rows["B"].clear()
    bench.restart()
    bench.read("B")
    assert bench.rows["B"] == Counter(before)
    assert bench.present == before


@pytest.mark.parametrize("damage", ["deleted", "changed", "added"])
def test_a_damaged_commit_is_not_read(spark: SparkSession, tmp_path: Path, damage: str) -> None:
    bench = Bench(spark, tmp_path, readers=("B",))
    frame = spark.range(0, 100, 1, 4)
    assert bench.output.commit(0, frame) == 100
    folder = tmp_path / "state of it" / "channels" / "A" / commit_name("A/b", 0)
    parts = sorted(folder.glob("part-*.parquet"))
    assert len(parts) == 4
    other = parts[0].with_name("part-9.parquet")
    match damage:
        case "deleted":
            parts[1].unlink()
        case "changed":
            content = bytearray(parts[1].read_bytes())
            content[len(content) // 2] ^= 1
            parts[1].write_bytes(content)
            checksum = parts[1].with_name(f".{parts[1].name}.crc")
            checksum.unlink(missing_ok=True)  # Hadoop notices nothing
        case "added":
            shutil.copy(parts[1], other)
    with pytest.raises(DamagedError, match="part-"):
        bench.read("B")
    assert not bench.rows["B"]


def test_nothing_is_deleted_that_somebody_may_need(spark: SparkSession, tmp_path: Path) -> None:
    bench = Bench(spark, tmp_path, readers=("B", "C"))
    bench.restart(joined=("B",))  # C reads it too, and has not said so
    bench.commit(*FIRST)
    bench.read("B")
    bench.commit(*NEXT)
    bench.read("B")
    bench.read("B")
    assert bench.present == [*FIRST, *NEXT]
    bench.readers = ("B",)
    bench.restart(kept=("A/b",))  # the unit reads all of its own channel
    bench.commit(100)
    bench.read("B")
    assert bench.present == [*FIRST, *NEXT, 100]


def test_a_channel_that_only_feeds_sinks_keeps_the_newest_commit(
    spark: SparkSession, tmp_path: Path
) -> None:
    bench = Bench(spark, tmp_path, readers=())
    bench.commit(*range(TOGETHER))
    assert bench.present == [*range(TOGETHER)]
    bench.commit(TOGETHER)
    assert bench.present == [TOGETHER]
