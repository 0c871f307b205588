"""What a watermark drops is counted, and kept; what it does not drop is not reported."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from flux_runtime.spark import Job, sql

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

FILES = [
    ["00:01 a", "01:00 a"],
    ["00:02 b", "00:41 b", "02:00 a"],  # nothing has passed: the watermark is from before
    ["00:03 c", "00:45 c", "00:55 c", "01:55 c"],  # 00:50 has passed
    ["00:03 d", "01:46 d", "01:51 d", "01:49 e"],  # 01:50 has passed
]
"""The delay is ten minutes."""


def tumbling(visit: DataFrame) -> DataFrame:
    return sql(
        "SELECT window.start AS start, shop, count(*) AS n FROM visit"
        " WHERE shop <> 'e' GROUP BY window(at, '10 minutes'), shop",
        visit=visit,
    )


def sliding(visit: DataFrame) -> DataFrame:
    return sql(
        "SELECT window.start AS start, count(*) AS n FROM visit"
        " GROUP BY window(at, '20 minutes', '10 minutes')",
        visit=visit,
    )


def by_time(visit: DataFrame) -> DataFrame:
    return sql("SELECT at, count(*) AS n FROM visit GROUP BY at", visit=visit)


def distinct(visit: DataFrame) -> DataFrame:
    return visit.dropDuplicates(["at", "shop"])


def narrowed(visit: DataFrame) -> DataFrame:
    return tumbling(visit.select("at", "shop"))


def sessions(visit: DataFrame) -> DataFrame:
    window = sf.session_window("at", "5 minutes").alias("session")
    return visit.groupBy(window, "shop").count().select("session.start", "shop", "count")


# Component -> the records that are dropped. A window is dropped if its end has passed.
CASES: dict[Any, list[str] | None] = {
    tumbling: ["00:03 c", "00:45 c", "00:03 d", "01:46 d"],  # 00:45 is in a window until 00:50
    sliding: ["00:03 c", "00:03 d"],
    by_time: ["00:03 c", "00:45 c", "00:03 d", "01:46 d", "01:49 e"],
    distinct: ["00:03 c", "00:45 c", "00:03 d", "01:46 d", "01:49 e"],
    sessions: ["00:03 c", "00:45 c", "00:03 d"],
    narrowed: None,
}
DROPPED = {narrowed: 4}


def record(text: str) -> dict[str, Any]:
    time, shop = text.split()
    return {"at": f"2024-01-01T{time}:00.000Z", "shop": shop, "more": f"more of {text}"}


@pytest.mark.parametrize("component", CASES, ids=lambda component: component.__name__)
def test_dropped_records_are_counted_and_kept(bench, component: Any) -> None:
    for file in FILES:
        bench.file("visits", [record(text) for text in file])

    def build(job: Job) -> None:
        visits = job.source(
            "visits",
            format="json",
            path="data/visits",
            options={"maxFilesPerTrigger": "1"},
            schema="at TIMESTAMP, shop STRING, more STRING",
        )
        minutes = job.native(
            "Minutes", component, inputs={"visit": [visits]}, watermark=("at", "10 minutes")
        )
        job.sink("out", [minutes])

    bench.run(build)
    lost = CASES[component]
    letters = bench.dead_letters("Minutes")
    assert {letter["reason"] for letter in letters} <= {"behind_watermark"}
    assert {letter["stream"] for letter in letters} <= {"visits"}
    kept = Counter(str(letter["record"]) for letter in letters)
    assert kept == Counter(str(record(text)) for text in lost or ())
    metrics = bench.metrics("Minutes")
    assert metrics["dead_letters"] == len(letters)
    dropped = sum(event["rows"] for event in bench.events("dropped_by_watermark"))
    assert metrics["dropped_by_watermark"] == dropped >= (DROPPED.get(component) or len(lost or ()))
    told = [event["records"] for event in bench.events("dropped_by_watermark")]
    assert told.count(None) == (len(told) if lost is None else 0)
    assert metrics["rows_in"] == sum(map(len, FILES))
    before = bench.results()
    bench.run(build)  # nothing new, nothing again
    assert bench.results() == before
    assert len(bench.dead_letters("Minutes")) == len(letters)


def test_a_join_drops_records_of_either_side(bench) -> None:
    """The watermark is that of the slower stream."""
    for number, (left, right) in enumerate(zip(FILES, reversed(FILES), strict=True)):
        bench.file("left", [record(text) for text in left])
        bench.file("right", [record(f"{text}{number}") for text in right])

    def pairs(one: DataFrame, other: DataFrame) -> DataFrame:
        met = (sf.col("l.shop") == sf.col("r.shop")) & (sf.col("l.at") == sf.col("r.at"))
        return one.alias("l").join(other.alias("r"), met).select("l.at", "l.shop")

    def build(job: Job) -> None:
        sources = [
            job.source(
                name,
                format="json",
                path=f"data/{name}",
                options={"maxFilesPerTrigger": "1"},
                schema="at TIMESTAMP, shop STRING, more STRING",
            )
            for name in ("left", "right")
        ]
        kept = sources[0].transform("all", lambda rows: rows.where("shop <> 'x'"))
        inputs = {"one": [kept], "other": [sources[1]]}
        job.sink("out", [job.native("Pairs", pairs, inputs=inputs, watermark=("at", "10 minutes"))])

    bench.run(build)
    letters = bench.dead_letters("Pairs")
    # Left has come to 01:00, 02:00, 02:00; right to 01:51, 01:55, 02:00: 00:50 has passed for the
    # third micro-batch, and 01:45 for the fourth.
    lost = Counter((letter["stream"], letter["record"]["at"][11:16]) for letter in letters)
    of_left, of_right = ("00:03", "00:45", "00:03"), ("00:02", "00:41", "00:01", "01:00")
    expected = [*(("left", at) for at in of_left), *(("right", at) for at in of_right)]
    assert lost == Counter(expected)
    assert bench.metrics("Pairs")["dropped_by_watermark"] == len(letters)
