"""Commits by real Spark: flushed in order, recognised, and compared with what is repeated."""

from __future__ import annotations

import json
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from flux_runtime.commits.owner import Location, Ownership
from flux_runtime.commits.record import check_commit, commit_name
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.ends.commit import Folders
from flux_runtime.spark.ends.delta import DeltaSink
from flux_runtime.spark.ends.driver_rows import DriverRows
from flux_runtime.spark.ends.sinks import SinkError
from flux_runtime.spark.ends.topics import MessageError, Messages
from flux_runtime.spark.frames import nullable, parse_schema

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


@pytest.mark.parametrize("format", ["parquet", "json", "csv", "orc", "text", "of the driver"])
def test_a_commit_is_whole_or_absent_whenever_the_power_is_cut(
    folders: Folders,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
) -> None:
    """Cut after every flush: Spark flushes nothing of what it writes."""
    disk = Disk(tmp_path / "disk", monkeypatch)
    of_driver = format == "of the driver"
    format = "parquet" if of_driver else format
    folders = Folders(folders.location, format, owner=folders.owner)
    seen = []

    def cut() -> None:
        image = LocalStorage(disk.image(tmp_path / f"image-{disk.flushes}")).at("my results/out")
        for name in image.names():
            assert check_commit(image, name).rows == 100
        seen.append(image.names())

    disk.on_flush = cut
    frame = spark.range(0, 100, 1, 4).selectExpr("CAST(id AS STRING) AS id")
    rows = DriverRows(spark, frame.schema, frame.toArrow()) if of_driver else frame
    assert folders.commit(UNIT, 1, rows) == 100
    assert seen[0] == []
    image = disk.image(tmp_path / "last") / "my results" / "out"
    names = [p.name for p in image.iterdir()]
    assert names == [commit_name(UNIT, 1)]
    assert spark.read.format(format).load(str(image / "*")).count() == 100
    written = Path(folders.location) / names[0]
    for file in written.iterdir():  # Hadoop's own checksums, which are hidden, are there too
        assert (image / names[0] / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("format", "options"),
    [
        ("text", {}),
        ("text", {"lineSep": "|", "compression": "gzip"}),
        ("csv", {"header": "true"}),
        ("json", {"lineSep": "|"}),
        ("orc", {}),
        ("parquet", {}),
    ],
)
def test_a_commit_knows_how_many_rows_it_has(
    folders: Folders, spark: SparkSession, format: str, options: dict[str, str]
) -> None:
    """Whatever their texts hold, and whatever else is in the files."""
    place = replace(folders, format=format, options=options)
    texts = spark.createDataFrame([("a\nb",), ("",), ("c",), (None,)], "value STRING")
    for number, rows in enumerate((texts, texts.limit(0), texts.where("false"), texts)):
        count = place.commit(UNIT, number, rows)
        assert (count, place.check(commit_name(UNIT, number)).rows) == (rows.count(),) * 2


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


EXTREMES = {
    "BOOLEAN": "true, false, true",
    "TINYINT": "-128, 127, 0",
    "SMALLINT": "-32768, 32767, 0",
    "INT": "-2147483648, 2147483647, 0",
    "BIGINT": "-9223372036854775808, 9223372036854775807, 0",
    "FLOAT": "'NaN', '-0.0', '-Infinity'",
    "DOUBLE": "'NaN', '-0.0', '4.9E-324'",
    "DECIMAL(9, 2)": "'9999999.99', '-0.01', '0'",
    "DECIMAL(18, 0)": "'-999999999999999999', '7', '0'",
    "DECIMAL(38, 18)": "'99999999999999999999', '-1.1', '0'",
    "STRING": r"'', 'a\u0000\u00e9', '${x} \U0001f600'",
    "BINARY": "X'', X'00FF', X'C328'",
    "DATE": "'0001-01-01', '1582-10-04', '9999-12-31'",
    "TIMESTAMP": "'0002-01-01', '1900-01-01 00:00:00.123456', '9999-12-31 23:59:59.999999'",
    "TIMESTAMP_NTZ": "'0002-01-01', '1969-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999'",
}
"""Type -> three values of it."""


def drawn(rng: random.Random, depth: int = 2) -> tuple[str, str]:
    """A type, and an expression over `id` that gives values of it and NULLs."""
    kind = rng.choice(["plain"] * 4 + ["array", "struct", "map"]) if depth else "plain"
    if kind == "plain":
        of = rng.choice(list(EXTREMES))
        value = f"element_at(array({EXTREMES[of]}), CAST(1 + (id + {rng.randrange(3)}) % 3 AS INT))"
        return of, f"IF((id + {rng.randrange(5)}) % 5 = 0, NULL, CAST({value} AS {of}))"
    inner, value = drawn(rng, depth - 1)
    of, given = {
        "array": (f"ARRAY<{inner}>", f"slice(array({value}, NULL), 1, CAST(id % 3 AS INT))"),
        "map": (f"MAP<BIGINT, {inner}>", f"map(id, {value})"),
        "struct": (f"STRUCT<x: {inner}, y: INT>", f"named_struct('x', {value}, 'y', 7)"),
    }[kind]
    return of, f"IF(id % 4 = 1, NULL, {given})"


@pytest.mark.parametrize("seed", range(6))
def test_the_driver_writes_what_spark_writes(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """The same types, metadata and rows, under all settings that it follows."""
    rng = random.Random(seed)
    settings = {
        "outputTimestampType": ["INT96", "TIMESTAMP_MICROS"][seed % 2],
        "compression.codec": rng.choice(["snappy", "zstd", "gzip", "none"]),
    }
    columns = [drawn(rng) for _ in range(12)]
    frame = spark.range(20).selectExpr(
        *(f"CAST({value} AS {of}) AS `c {number}`" for number, (of, value) in enumerate(columns))
    )
    kept = {name: spark.conf.get(f"spark.sql.parquet.{name}") for name in settings}
    for name, value in settings.items():
        spark.conf.set(f"spark.sql.parquet.{name}", value)
    try:
        rows = DriverRows(spark, nullable(frame.schema), frame.toArrow())
        both = {"TIMESTAMP", "TIMESTAMP_NTZ"} <= {
            word.strip(" >,:") for of, _ in columns for word in of.replace("<", " ").split()
        }
        assert rows.writable == (not (both and settings["outputTimestampType"] == "INT96"))
        if not rows.writable:
            return
        rows.write((tmp_path / "driver").as_uri())
        rows.frame().write.parquet((tmp_path / "spark").as_uri())
        (ours,), (sparks,) = (
            [*(tmp_path / name).glob("part-*.parquet")] for name in ("driver", "spark")
        )
        assert ours.name.split(".", 1)[1] == sparks.name.split(".", 1)[1]
        files = [pq.ParquetFile(file) for file in (ours, sparks)]
        shapes = [str(file.schema).split("{", 1)[1] for file in files]
        assert shapes[0] == shapes[1]
        ours_say, sparks_say = (
            {name: json.loads(text) if text[:1] == b"{" else text for name, text in of.items()}
            for of in (file.metadata.metadata for file in files)
        )
        assert ours_say == sparks_say
        groups = [file.metadata.row_group(0).column(0).compression for file in files]
        assert groups[0] == groups[1]
        read = [
            sorted(map(repr, spark.read.parquet(str(file.parent)).collect()))
            for file in (ours, sparks)
        ]
        assert read[0] == read[1] == sorted(map(repr, frame.collect()))
    finally:
        for name, value in kept.items():
            spark.conf.set(f"spark.sql.parquet.{name}", str(value))


@pytest.mark.parametrize("seed", [5, 14, 28])
def test_a_delta_table_gets_the_values_of_all_types(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    """Whatever the columns are called; what the package cannot keep is refused before."""
    rng = random.Random(f"delta {seed}")
    columns = [drawn(rng) for _ in range(8)]
    sink = DeltaSink(name="out", location=str(tmp_path / "table"))
    ownership = Ownership("test", LocalStorage(tmp_path / "state"), [])
    ownership.claim()
    mine = sink.taken(spark, ownership, [UNIT])
    local = [(of, value) for of, value in columns if "_NTZ" in of and "MAP" in of]
    kept = [column for column in columns if column not in local]
    for number, chosen in enumerate((columns, kept) if local else (kept,)):
        frame = spark.range(20).selectExpr(
            *(f"CAST({value} AS {of}) AS `c.{n} é`" for n, (of, value) in enumerate(chosen))
        )
        if chosen is columns and local:
            with pytest.raises(SinkError, match="TIMESTAMP_NTZ in a MAP"):
                mine.commit(UNIT, number, frame)
            continue
        assert mine.commit(UNIT, number, frame) == 20
        stored = spark.read.schema(frame.schema).parquet(*DeltaTable(mine.location).file_uris())
        both = [sorted(map(repr, rows.collect())) for rows in (stored, frame)]
        assert both[0] == both[1]


HEADERS = "array(named_struct('KEY', 'h', 'Value', X'00'))"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("'v' AS value", (None, None, None, "v", None)),
        ("'v' AS Value, 'k' AS KEY, 1Y AS partition", (None, 1, "k", "v", None)),
        (f"X'41' AS value, 't' AS topic, {HEADERS} AS headers", ("t", None, None, b"A", "h")),
        ("NULL AS value, X'00' AS key, 3 AS more", (None, None, b"\0", None, None)),
        ("1 AS `a.b`, 2 AS key", (None, None, None, '{"a.b":1,"key":2}', None)),
        ("1 AS value", "column value is INT; as the value"),
        ("'v' AS value, 7L AS Key", "column Key is BIGINT; as the key"),
        ("'v' AS value, 't' AS partition", "column partition is STRING"),
        ("'v' AS value, 1 AS topic", "column topic is INT"),
        ("'v' AS value, map('h', 'x') AS headers", "headers of a message it has to be ARRAY"),
        (
            "'v' AS value, array(named_struct('value', 'x', 'key', 'h')) AS headers",
            "column headers is ARRAY<STRUCT<VALUE:STRING,KEY:STRING>>",
        ),
    ],
)
def test_a_row_is_the_message_that_its_columns_say(
    spark: SparkSession, columns: str, message: tuple[object, ...] | str
) -> None:
    """In any case, as in SQL; what cannot be that part is refused before anything is sent."""
    frame = spark.sql(f"SELECT {columns}")
    if isinstance(message, str):
        with pytest.raises(MessageError, match=message):
            Messages(frame)
        return
    ((*parts, headers),) = list(Messages(frame))
    assert (*parts, headers and headers[0][0]) == message


def test_the_driver_leaves_other_types_to_spark(spark: SparkSession) -> None:
    for of in ("INTERVAL DAY", "STRING COLLATE UTF8_LCASE", "ARRAY<STRING COLLATE UNICODE_CI>"):
        schema = parse_schema(f"a {of}")
        rows = DriverRows(spark, schema, spark.createDataFrame([], schema).toArrow())
        assert not rows.writable, of
