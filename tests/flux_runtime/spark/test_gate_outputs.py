"""What leaves a gate: whole partitions, with their seals, in order, in parts, in replicas."""

from __future__ import annotations

import json
import random

import pytest
from pyspark.sql import DataFrame

from flux_runtime.spark import Job, Producers, Punctuation, sql
from flux_runtime.spark.sealed.intake import FILES_MAX

pytestmark = pytest.mark.spark

SCHEMA = "g STRING, k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT"
AB = Producers.all(["a", "b"])


def rows(k: int, p: str, *values: int, g: str = "g") -> list[dict]:
    return [{"g": g, "k": k, "v": v, "p": p} for v in values]


def vote(k: int, p: str, n: int, g: str = "g") -> dict:
    return {"g": g, "k": k, "p": p, "sealed": True, "n": n}


def source(job: Job, name: str = "items"):
    return job.source(
        name,
        format="json",
        path=f"data/{name}",
        options={"maxFilesPerTrigger": "1"},
        schema=SCHEMA,
        producer="p",
        punctuation=Punctuation(when="sealed", count="n"),
    )


def test_seals_leave_with_their_partitions(bench) -> None:
    """SE-3: the next gate gets counts of what was released, of empty partitions too."""

    def big(item: DataFrame) -> DataFrame:
        return sql("SELECT g, k AS kk, v FROM item WHERE v > 10", item=item)

    def top(item: DataFrame) -> DataFrame:
        return sql("SELECT g, kk, max(v) AS m, count(*) AS c FROM item GROUP BY g, kk", item=item)

    def build(job: Job) -> None:
        bigs = job.seal(
            "Big",
            big,
            waits={"item": [source(job)]},
            key=("k", "g"),
            producers={"items": AB},
            forward=("kk", "g"),
        )
        tops = job.seal("Top", top, waits={"item": [bigs]}, key=("kk", "g"))
        job.sink("out", [tops])
        job.sink("all", [bigs], format="json")
        job.sink("more", [bigs.transform("More", lambda b: b.selectExpr("v + 1 AS v"))])

    bench.file("items", [*rows(1, "a", 11, 5), vote(1, "a", 2), *rows(2, "a", 1), vote(2, "a", 1)])
    bench.file("items", [vote(2, "b", 0), *rows(1, "b", 12), vote(1, "b", 1)])
    bench.file("items", rows(1, "a", 99, g="h"))
    bench.run(build)
    assert bench.results() == [{"g": "g", "kk": 1, "m": 12, "c": 2}]
    assert bench.metrics("Top")["released_partitions"] == 2
    files = (bench.path / "results" / "all").glob("*/*.json")
    lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert sorted(line["v"] for line in lines) == [11, 12]
    assert [r["v"] for r in bench.results("more")] == [12, 13]


def test_a_partition_is_released_in_canonical_order(bench) -> None:
    """SE-11: whatever the arrival order, the same sequence."""

    def story(item: DataFrame) -> DataFrame:
        return sql(
            "SELECT k, g, concat_ws(',', collect_list(v)) AS story FROM item GROUP BY k, g",
            item=item,
        )

    def build(job: Job) -> None:
        stories = job.seal(
            "Story",
            story,
            waits={"item": [source(job)]},
            key=("k",),
            producers={"items": AB},
            release="sorted",
            order_by=("v",),
        )
        job.sink("out", [stories])

    rng = random.Random(5)
    values = {(k, g): rng.sample(range(1000), 12) for k in range(3) for g in "gh"}
    messages = [
        row
        for (k, g), vs in values.items()
        for i, v in enumerate(vs)
        for row in rows(k, "ab"[i % 2], v, g=g)
    ]
    messages += [vote(k, p, 12) for k in range(3) for p in "ab"]
    rng.shuffle(messages)
    for start in range(0, len(messages), 26):
        bench.file("items", messages[start : start + 26])
    bench.run(build)
    told = {(r["k"], r["g"]): [int(v) for v in r["story"].split(",")] for r in bench.results()}
    assert told == {place: sorted(vs) for place, vs in values.items()}


def count_by_v(item: DataFrame) -> DataFrame:
    return sql("SELECT k, v, count(*) AS c, sum(v) AS s FROM item GROUP BY k, v", item=item)


def first(item: DataFrame) -> DataFrame:
    return sql(
        "SELECT k, v, __producer, __count, count(*) AS __rows, count(*) AS c1, sum(v) AS s1"
        " FROM item GROUP BY k, v, __producer, __count",
        item=item,
    )


def second(item: DataFrame) -> DataFrame:
    return sql("SELECT k, v, sum(c1) AS c, sum(s1) AS s FROM item GROUP BY k, v", item=item)


def test_partial_aggregates_give_the_same_results(bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """With late records and outsiders, and chunks of both forms mixed after few repetitions."""
    from flux_runtime.spark.sealed import intake

    monkeypatch.setattr(intake, "_JUDGED_FROM_ROWS", 10)
    monkeypatch.setattr(intake, "TRIED_AGAIN", 2)

    def build(job: Job) -> None:
        items = source(job)
        options = {"key": ("k",), "producers": {"items": AB}}
        whole = job.seal("Whole", count_by_v, waits={"item": [items]}, **options)
        parts = job.seal(
            "Parts", count_by_v, waits={"item": [items]}, partial=(first, second), **options
        )
        job.sink("whole", [whole])
        job.sink("parts", [parts])

    rng = random.Random(9)
    counts = {(k, p): 0 for k in range(4) for p in "ab"}
    for distinct in (2, 3, 1000):
        batch = []
        for k, p in counts:
            for _ in range(20):
                batch += rows(k, p, rng.randrange(distinct))
                counts[k, p] += 1
            batch += rows(k, "stranger", 1)
        bench.file("items", batch)
    for _ in range(3):
        bench.file("items", rows(1, "a", 7))
        counts[1, "a"] += 1
    bench.run(build)
    forms = [name.partition(".")[2] for name in bench.chunks("Parts")]
    tried_again = ["partials", "partials", "partials", "records", "records", "partials"]
    assert forms == tried_again, "the third did not pay"
    bench.file("items", [vote(k, p, n) for (k, p), n in counts.items()])
    bench.file("items", rows(2, "a", 1))
    bench.run(build)
    assert bench.results("parts") == bench.results("whole") != []
    assert sum(r["c"] for r in bench.results("parts")) == sum(counts.values())
    assert len(bench.dead_letters("Parts")) == len(bench.dead_letters("Whole")) == 25


def test_columns_that_the_component_does_not_read_are_not_buffered(bench) -> None:
    def build(job: Job) -> None:
        counted = job.seal(
            "Count",
            lambda item: sql("SELECT k, count(*) AS c FROM item GROUP BY k", item=item),
            waits={"item": [source(job)]},
            key=("k",),
            producers={"items": AB},
        )
        job.sink("out", [counted])

    bench.file("items", [*rows(1, "a", 1, 2), *rows(1, "z", 3)])
    bench.run(build)
    (chunk,) = (bench.path / "state" / "units" / "Count").glob("buffer/*/*")
    columns = bench.session.read.parquet(chunk.as_uri()).columns
    assert sorted(columns) == ["__chunk", "__count", "__producer", "k"]
    (letter,) = bench.dead_letters("Count")
    assert letter["record"] == {"g": "g", "k": 1, "v": 3, "p": "z", "sealed": None, "n": None}


def test_replicas_each_release_and_tag_their_output(bench) -> None:
    def build(job: Job) -> None:
        items = source(job)
        copies = [
            job.seal(
                "Count",
                count_by_v,
                waits={"item": [items]},
                key=("k",),
                producers={"items": AB},
                replica=i,
            )
            for i in (1, 2)
        ]
        job.sink("out", copies)

    bench.file("items", [*rows(1, "a", 3), vote(1, "a", 1), vote(1, "b", 0)])
    bench.run(build)
    assert bench.results() == [
        {"k": 1, "v": 3, "c": 1, "s": 3, "replica": replica} for replica in (1, 2)
    ]
    assert bench.commits() == ["Count-1-000000001", "Count-2-000000001"]


def test_a_column_of_the_name_that_tells_replicas_apart_is_not_replaced(bench) -> None:
    def build(job: Job) -> None:
        of_replica = job.seal(
            "Count",
            lambda item: count_by_v(item).withColumnRenamed("c", "Replica"),
            waits={"item": [source(job)]},
            key=("k",),
            producers={"items": AB},
            replica=1,
        )
        job.sink("out", [of_replica])

    bench.file("items", [*rows(1, "a", 3), vote(1, "a", 1), vote(1, "b", 0)])
    with pytest.raises(ValueError, match="Count-1 puts out a column `Replica`"):
        bench.run(build)


def test_dead_letters_are_whole_where_only_some_columns_are_read(bench) -> None:
    """Parquet: the component needs one column; what it cannot take is read again from the files."""
    import pandas as pd

    def build(job: Job) -> None:
        items = job.source(
            "items",
            format="parquet",
            path="data/items",
            options={"maxFilesPerTrigger": "2"},
            schema="g STRING, k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT",
            producer="p",
            punctuation=Punctuation(when="sealed", count="n"),
        )
        counted = job.seal(
            "Count",
            lambda item: sql("SELECT k, count(*) AS c FROM item GROUP BY k", item=item),
            waits={"item": [items]},
            key=("k",),
            producers={"items": AB},
        )
        job.sink("out", [counted])

    def file(name: str, lines: list[dict]) -> None:
        folder = bench.path / "data" / "items"
        folder.mkdir(parents=True, exist_ok=True)
        types = {"g": str, "k": "Int32", "v": "Int32", "p": str, "sealed": "boolean", "n": "Int64"}
        frame = pd.DataFrame(lines, columns=list(types)).astype(types)
        frame.to_parquet(folder / name, index=False)

    file("1.parquet", [*rows(1, "a", 1), *rows(1, "stranger", 7, g="first"), vote(1, "a", 1)])
    file("2.parquet", [vote(1, "b", 0)])
    bench.run(build)
    file("3.parquet", [*rows(1, "a", 8, g="late"), *rows(2, "a", 9), *rows(2, "z", 9, g="2nd")])
    bench.run(build)
    assert bench.results() == [{"k": 1, "c": 1}]
    letters = bench.dead_letters("Count")
    assert sorted((x["record"]["g"], x["record"]["v"]) for x in letters) == [
        ("2nd", 9),
        ("first", 7),
        ("late", 8),
    ]
    (chunk,) = (bench.path / "state" / "units" / "Count").glob("buffer/*/*")
    assert "v" not in bench.session.read.parquet(chunk.as_uri()).columns


def test_files_in_folders_of_their_key_are_read_alike_by_the_stream_and_by_the_gate(bench) -> None:
    """A gate reads a micro-batch of few files itself, and takes one of many from the stream."""
    import pandas as pd

    def build(job: Job) -> None:
        items = job.source(
            "items",
            format="parquet",
            path="data/items",
            schema="k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT",
            producer="p",
            punctuation=Punctuation(when="sealed", count="n"),
        )
        counted = job.seal(
            "Count",
            lambda item: sql(
                "SELECT k, sum(v) AS s, count(*) AS c FROM item GROUP BY k", item=item
            ),
            waits={"item": [items]},
            key=("k",),
            producers={"items": AB},
        )
        job.sink("out", [counted])

    def file(k: int, name: str, lines: list[dict]) -> None:
        folder = bench.path / "data" / "items" / f"k={k}"
        folder.mkdir(parents=True, exist_ok=True)
        types = {"v": "Int32", "p": str, "sealed": "boolean", "n": "Int64"}
        frame = pd.DataFrame(lines, columns=list(types)).astype(types)
        frame.to_parquet(folder / f"{name}.parquet", index=False)

    for number in range(FILES_MAX + 1):
        file(number % 3, f"a {number}", rows(0, "a", number))
    bench.run(build)
    file(0, "b", [*rows(0, "b", 100), vote(0, "b", 1), vote(0, "a", FILES_MAX // 3 + 1)])
    file(1, "b", [*rows(1, "b", 200), vote(1, "b", 1), vote(1, "a", FILES_MAX // 3 + 1)])
    bench.run(build)
    numbers = range(FILES_MAX + 1)
    assert bench.results() == [
        {"k": k, "s": sum(numbers[k::3]) + 100 * (k + 1), "c": len(numbers[k::3]) + 1}
        for k in (0, 1)
    ]
