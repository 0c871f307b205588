"""Commits by real Spark: flushed in order, recognised, and compared with what is repeated."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from flux_runtime.commits.owner import Location, Ownership
from flux_runtime.commits.record import check_commit, commit_name
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.ends.commit import Folders

sys.path.append(str(Path(__file__).parent.parent / "commits"))
from power_cut import Disk

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

UNIT = "Totals/all é"
COVERS = {"to": [{"logOffset": 4}], "keys": ["a'b", "${x}"]}


@pytest.fixture
def folders(tmp_path: Path) -> Folders:
    disk = tmp_path / "disk"
    disk.mkdir()
    path = str(disk / "my results" / "out")
    location = Location(name="sink out", path=path, units=(UNIT,))
    ownership = Ownership("test", LocalStorage(disk / "state"), [location])
    ownership.check()
    ownership.claim()
    return Folders(path, owner=ownership.owner(path))


def commit(folders: Folders, spark: SparkSession, number: int = 1, **options: object) -> int:
    frame = spark.range(0, 100, 1, 4).selectExpr("id", "id % 7 AS k")
    given = {"covers": COVERS, **options}
    return folders.commit(UNIT, number, frame, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("format", ["parquet", "json", "csv", "orc", "text"])
def test_a_commit_is_whole_or_absent_whenever_the_power_is_cut(
    folders: Folders,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
) -> None:
    """Cut after every flush: Spark flushes nothing of what it writes."""
    disk = Disk(tmp_path / "disk", monkeypatch)
    folders = Folders(folders.location, format, owner=folders.owner)
    seen = []

    def cut() -> None:
        image = LocalStorage(disk.image(tmp_path / f"image-{disk.flushes}")).at("my results/out")
        for name in image.names():
            assert check_commit(image, name).rows == 100
        seen.append(image.names())

    disk.on_flush = cut
    frame = spark.range(0, 100, 1, 4).selectExpr("CAST(id AS STRING) AS id")
    assert folders.commit(UNIT, 1, frame) == 100
    assert seen[0] == []
    image = disk.image(tmp_path / "last") / "my results" / "out"
    names = [p.name for p in image.iterdir()]
    assert names == [commit_name(UNIT, 1)]
    assert spark.read.format(format).load(str(image / "*")).count() == 100
    written = Path(folders.location) / names[0]
    for file in written.iterdir():  # Hadoop's own checksums, which are hidden, are there too
        assert (image / names[0] / file.name).read_bytes() == file.read_bytes()


def test_a_commit_says_what_it_covers_and_is_recognised(
    folders: Folders, spark: SparkSession
) -> None:
    assert commit(folders, spark) == 100
    record = folders.check(commit_name(UNIT, 1))
    assert (record.unit, record.number, record.rows, record.epoch) == (UNIT, 1, 100, 1)
    assert record.covers == COVERS
    assert commit(folders, spark) == 0
    assert commit(folders, spark, covers=None) == 0
    assert commit(folders, spark, 3) == 100
    assert folders.check(commit_name(UNIT, 3)).previous == 1
    assert folders.commits(UNIT) == [commit_name(UNIT, n) for n in (1, 3)]
    assert folders.newest(UNIT) == 3
    assert spark.read.parquet(folders.uri()).count() == 200


def test_one_that_covers_something_else_under_the_same_number_is_refused(
    folders: Folders, spark: SparkSession
) -> None:
    """A checkpoint that was deleted: its micro-batches are cut differently."""
    commit(folders, spark)
    with pytest.raises(DamagedError, match="covers something else"):
        commit(folders, spark, covers={**COVERS, "to": [{"logOffset": 5}]})
    assert spark.read.parquet(folders.uri()).count() == 100


def test_a_repeated_commit_that_is_damaged_is_refused(
    folders: Folders, spark: SparkSession
) -> None:
    commit(folders, spark)
    part = next(Path(folders.location, commit_name(UNIT, 1)).glob("part-*.parquet"))
    part.unlink()
    with pytest.raises(DamagedError, match=part.name):
        commit(folders, spark)


def test_one_without_rows_leaves_nothing_where_that_is_asked_for(
    folders: Folders, spark: SparkSession
) -> None:
    name = commit_name(UNIT, 1)
    assert folders.commit(UNIT, 1, spark.range(0), keep_empty=False) == 0
    assert not folders.committed(name)
    assert folders.newest(UNIT) is None
    assert folders.commit(UNIT, 1, spark.range(0)) == 0
    assert folders.check(name).rows == 0


def test_a_commit_of_another_state_is_refused(
    folders: Folders, spark: SparkSession, tmp_path: Path
) -> None:
    commit(folders, spark)
    path = str(tmp_path / "other" / "out")
    location = Location(name="sink out", path=path, units=(UNIT,))
    ownership = Ownership("test", LocalStorage(tmp_path / "other-state"), [location])
    ownership.claim()
    shutil.copytree(folders.location, path)
    with pytest.raises(DamagedError, match="was made from another state"):
        commit(Folders(path, owner=ownership.owner(path)), spark)
