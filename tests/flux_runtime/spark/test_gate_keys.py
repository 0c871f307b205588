"""Keys are data: of every SQL type, of any content, many at once; late records find them again."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame

from annotations.file.checks import TIME_TYPE
from flux_runtime.sealing.keys import key_text
from flux_runtime.spark import Job, Producers, Punctuation, sql
from flux_runtime.spark.key_columns import CHUNK, CHUNKS_MAX, KeyColumns

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

NEW_YORK = "America/New_York"
AT_FOLD = 1_730_611_800
"""2024-11-03 01:30 in New York, for the first time; an hour later it is so again."""

VALUES = {
    "tinyint": [["-128Y"], ["0Y"], ["127Y"]],
    "smallint": [["-32768S"], ["0S"]],
    "int": [["-2147483648"], ["7"]],
    "bigint": [["-9223372036854775808L"], ["9223372036854775807L"]],
    "decimal(38,10)": [["0.1BD", "0.1000BD"], ["-1234567890123456789012345678.0000000001BD"]],
    "decimal(5,0)": [["0BD", "-0BD"], ["99999BD"]],
    "string": [["''"], ["'null'"], ["'a b'"], ["'a'"], ["'A'"], ["'a '"], ["'\\\\'"]],
    "boolean": [["true"], ["false"]],
    "date": [
        ["DATE'0001-01-01'"],
        ["DATE'9999-12-31'"],
        ["DATE'-0044-03-15'"],
        ["DATE'+12024-02-29'"],
    ],
    "timestamp": [
        [f"timestamp_seconds({AT_FOLD})"],
        [f"timestamp_seconds({AT_FOLD + 3600})"],
        ["TIMESTAMP'1582-10-04 00:00:00.000001 UTC'"],
        ["TIMESTAMP'9999-12-31 23:59:59.999999'", "TIMESTAMP'+10000-01-01 04:59:59.999999 UTC'"],
    ],
    "timestamp_ntz": [
        ["TIMESTAMP_NTZ'2024-11-03 01:30:00'"],
        ["TIMESTAMP_NTZ'2024-03-10 02:30:00'"],  # no such time in New York
        ["TIMESTAMP_NTZ'0001-01-01 00:00:00.1'"],
    ],
    "time(6)": [["TIME'00:00:00'"], ["TIME'23:59:59.999999'"], ["TIME'12:30:00.1'"]],
    "binary": [["X''"], ["X'00'"], ["X'FF00'"], ["X'3030'"], ["X'27'"]],
    "interval year to month": [["INTERVAL '-1-2' YEAR TO MONTH"], ["INTERVAL '0-0' YEAR TO MONTH"]],
    "interval day to second": [
        ["INTERVAL '1 00:00:00.000001' DAY TO SECOND"],
        ["INTERVAL '1 00:00:00' DAY TO SECOND", "INTERVAL '24' HOUR"],
    ],
    "float": [
        ["float('NaN')"],
        ["float(0.0)", "float('-0.0')"],
        ["float(0.1)"],
        ["float('-Infinity')"],
        ["float('1.4E-45')"],
    ],
    "double": [
        ["double('NaN')"],
        ["0.0D", "double('-0.0')"],
        ["0.1D"],
        ["double(float(0.1))"],
        ["1.7976931348623157E308D"],
    ],
}
"""Type -> values, those that are equal in one list."""


COLUMNS = {kind: f"k{number}" for number, kind in enumerate(VALUES)}
"""Type -> the column of the key that has it."""

Key = dict[str, str]
"""Column -> value, as SQL."""


def key_of(kind: str, value: str) -> Key:
    """The first value of every type, but for one type that value."""
    values = {each: VALUES[each][0][0] for each in VALUES} | {kind: value}
    return {COLUMNS[each]: f"CAST({values[each]} AS {each})" for each in VALUES}


PARTITIONS: list[list[Key]] = [
    [key_of(kind, value) for kind in VALUES for value in VALUES[kind][0]],
    *([key_of(kind, value) for value in values] for kind in VALUES for values in VALUES[kind][1:]),
]
"""Keys that are equal in one list; the others differ from the first in a single column."""

KEY = ", ".join(COLUMNS.values())


def total(item: DataFrame) -> DataFrame:
    return sql(f"SELECT {KEY}, sum(v) AS s, count(*) AS c FROM item GROUP BY {KEY}", item=item)


def passed(item: DataFrame) -> DataFrame:
    return sql(f"SELECT {KEY}, s, c FROM item", item=item)


def build(job: Job) -> None:
    """Two gates on a key with a column of every type, with a channel between them."""
    columns = [f"{column} {kind}" for kind, column in COLUMNS.items()]
    items = job.source(
        "items",
        format="parquet",
        path="data/items",
        schema=", ".join([*columns, "v BIGINT, p STRING, sealed BOOLEAN, n BIGINT"]),
        producer="p",
        punctuation=Punctuation(when="sealed", count="n"),
    )
    key = tuple(COLUMNS.values())
    totals = job.seal(
        "Total",
        total,
        waits={"item": [items]},
        key=key,
        producers={"items": Producers.all(["a"])},
        forward=key,
    )
    job.sink("totals", [totals])
    job.sink("out", [job.seal("Next", passed, waits={"item": [totals]}, key=key)])


@pytest.fixture
def zone(bench) -> Iterator[str]:
    """A session in a zone with summer time, and with times of day."""
    wanted = {"spark.sql.session.timeZone": NEW_YORK, TIME_TYPE: "true"}
    before = {name: bench.session.conf.get(name) for name in wanted}
    for name, value in wanted.items():
        bench.session.conf.set(name, value)
    yield NEW_YORK
    for name, value in before.items():
        bench.session.conf.set(name, value)


def file(bench, rows: list[tuple[Key, str]]) -> None:
    """A file of rows: the key, and `v, p, sealed, n` as SQL."""
    texts = [f"SELECT {', '.join(key.values())}, {rest}" for key, rest in rows]
    names = ", ".join([*COLUMNS.values(), "v, p, sealed, n"])
    frame = bench.session.sql(f"SELECT * FROM ({' UNION ALL '.join(texts)}) AS t({names})")
    folder = bench.path / "data" / "items"
    folder.mkdir(parents=True, exist_ok=True)
    staged = bench.path / "staged"
    frame.coalesce(1).write.parquet(staged.as_uri())
    (part,) = staged.glob("*.parquet")
    part.rename(folder / f"{len(list(folder.iterdir()))}.parquet")
    shutil.rmtree(staged)


def test_a_key_can_be_of_any_type(bench, zone) -> None:
    """Released once, under its own value, with a seal that the next gate understands; then late."""
    rows = []
    for i, keys in enumerate(PARTITIONS):
        rows += [(key, f"{1 << i}L, 'a', false, 0L") for key in keys]
        rows.append((keys[-1], f"0L, 'a', true, {len(keys)}L"))
    file(bench, rows)
    bench.run(build)
    right = sorted(((1 << i) * len(keys), len(keys)) for i, keys in enumerate(PARTITIONS))
    for sink in ("totals", "out"):
        stored = bench.session.read.parquet(f"{(bench.path / 'results' / sink).as_uri()}/*")
        where = [
            f"s = {(1 << i) * len(keys)} AND "
            + " AND ".join(f"{column} <=> {value}" for column, value in key.items())
            for i, keys in enumerate(PARTITIONS)
            for key in keys
        ]
        found = stored.selectExpr("s", "c", *where).collect()
        assert sorted((row[0], row[1]) for row in found) == right
        matches = map(sum, list(zip(*found, strict=True))[2:])
        assert [text for text, n in zip(where, matches, strict=True) if n != 1] == []
    late = [key for keys in PARTITIONS for key in keys]
    file(bench, [(key, "5L, 'a', false, 0L") for key in late])
    bench.run(build)
    assert [x["reason"] for x in bench.dead_letters("Total")] == ["late"] * len(late)
    assert bench.metrics("Next")["released_partitions"] == len(PARTITIONS)
    assert (
        bench.metrics("Next")["open_partitions"] == bench.metrics("Total")["open_partitions"] == 0
    )


@pytest.mark.parametrize("most", [3, CHUNKS_MAX, 5 * CHUNKS_MAX])
def test_a_key_is_read_in_its_own_chunks_only(spark, most: int) -> None:
    """What lies in other chunks of it is late, or of strangers; chunks below 0 are compacted."""
    rng = random.Random(most)
    numbers = range(-9, most)
    records = {(k, rng.choice("ab "), rng.choice(numbers)) for k in range(9) for _ in range(20)}
    records |= {(7, "a", number) for number in numbers}
    keys = sorted({record[:2] for record in records})
    wanted = {key: set(rng.sample(numbers, rng.randint(1, most))) for key in rng.sample(keys, 12)}
    wanted[7, "a"] = set(rng.sample(numbers, most))
    right = sorted(record for record in records if record[2] in wanted.get(record[:2], ()))
    rows = spark.createDataFrame(
        [(k, t, str(n)) for k, t, n in records], f"k INT, t STRING, {CHUNK} STRING"
    )
    of_key = KeyColumns(rows.schema, ["k", "t"])
    texts = {key_text([str(k), t]): list(chunks) for (k, t), chunks in wanted.items()}
    places, here = of_key.places(spark, texts)
    found = rows.join(places, here, "left_semi").collect()
    assert sorted((k, t, int(number)) for k, t, number in found) == right
    assert 0 < len(right) < len(records)
