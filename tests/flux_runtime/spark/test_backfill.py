"""Past ranges beside a running job: each row once, and refused where that cannot be promised."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from ends_job import Project, total, until
from pyspark.sql import DataFrame

from flux_runtime.past_range import parsed
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark import Feed, Job, Producers, Punctuation, faults
from flux_runtime.spark.backfill import Range
from flux_runtime.spark.ends.kafka_source import STARTS, KafkaReader
from flux_runtime.spark.ends.kafka_source import begin as begin_to_read

JOB = """
from pathlib import Path
from flux_runtime.spark import main
from test_backfill import build

main(build, name="shop", folder=Path(__file__).parent)
"""


def passed(records: DataFrame) -> DataFrame:
    return records


def source(job: Job, name: str) -> Feed:
    return job.source(
        name,
        format="json",
        path=f"data/{name}",
        options={"maxFilesPerTrigger": "1"},
        schema="k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT",
        producer="p",
        punctuation=Punctuation(when="sealed", count="n"),
    )


def build(job: Job) -> None:
    one = {"items": Producers.one()}
    waits = {"item": [source(job, "items")]}
    totals = job.seal("Total", total, waits=waits, key=("k",), producers=one)
    job.sink("table", [totals], format="delta", path="table")
    job.sink("files", [totals], format="json", path="files")


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_a_range_is_brought_in_once_beside_a_running_job_also_where_it_is_killed(
    tmp_path: Path,
) -> None:
    project = Project(tmp_path, name="shop")
    shutil.copy(__file__, project.path)
    (project.path / "job.py").write_text(JOB)
    items, old = (project.path / "data" / name for name in ("items", "old"))
    for k in (11, 12):
        project.partition(k, k, 1)
    project.send({"k": 13, "v": 5, "p": "a"})
    items.rename(old)
    project.partition(1, 10, 20)
    arguments = ("--backfill", "2023", "--source", f"items={old}")

    def in_table() -> list[tuple[int, int]]:
        if not any((project.path / "table" / "_delta_log").glob("*.json")):
            return []
        found = DeltaTable(project.path / "table").to_pyarrow_table().to_pylist()
        return sorted((row["k"], row["s"]) for row in found)

    def in_files(folder: Path) -> list[tuple[int, int]]:
        texts = [file.read_text() for file in folder.glob("*/*.json")]
        rows = [json.loads(line) for text in texts for line in text.splitlines()]
        return sorted((row["k"], row["s"]) for row in rows)

    running = project.start()
    try:
        until(lambda: in_table() == [(1, 30)], running)
        status, err = project.run(*arguments, **{faults.VARIABLE: "delta-committed"})
        assert status == -9, err
        status, err = project.run(*arguments)
        assert status == 0, err
        assert "shop-2023: finished, and left 1 open partition" in err
        assert in_table() == [(1, 30), (11, 12), (12, 13)]
        project.partition(2, 7)
        until(lambda: in_table() == [(1, 30), (2, 7), (11, 12), (12, 13)], running)
    finally:
        running.terminate()
        running.communicate(timeout=300)

    (old / "end.json").write_text(json.dumps({"k": 13, "p": "a", "sealed": True, "n": 1}))
    for said in ("shop-2023: finished; ", "shop-2023: all of it is in; nothing was done"):
        status, err = project.run(*arguments)
        assert (status, said in err) == (0, True), err
        assert in_table() == [(1, 30), (2, 7), (11, 12), (12, 13), (13, 5)]
    own = project.path / "backfills" / "2023" / "results" / "files"
    assert in_files(own) == [(11, 12), (12, 13), (13, 5)]
    assert in_files(project.path / "files") == [(1, 30), (2, 7)]

    first = min(items.iterdir())
    first.rename(old / first.name)  # the job has read it, at its old place
    assert [*tmp_path.iterdir()] == [project.path]  # nor a log beside it, for the é of its name
    again = ("--backfill", "2023-more", *arguments[2:])
    status, err = project.run(*again)
    assert status == 1
    assert f"{old / first.name}: the running job reads it, too, as {first}" in err
    assert "are in the range 2023 as well, for files, table" in err
    assert in_table() == [(1, 30), (2, 7), (11, 12), (12, 13), (13, 5)]


KAFKA_JOB = """
import json, os
from pathlib import Path
from flux_runtime.spark import Job, Producers, Punctuation, main
from ends_job import total

def build(job: Job) -> None:
    items = job.source(
        "items", format="kafka", options=json.loads(os.environ["ITEMS"]),
        schema="k INT, v INT, p STRING, sealed BOOLEAN, n BIGINT", value="json", producer="p",
        punctuation=Punctuation(when="sealed", count="n"),
    )
    one = {"items": Producers.one()}
    totals = job.seal("Total", total, waits={"item": [items]}, key=("k",), producers=one)
    job.sink("table", [totals], format="delta", path="table")

main(build, name="shop", folder=Path(__file__).parent)
"""


@pytest.mark.spark
@pytest.mark.timeout(1800)
def test_messages_from_before_a_job_began_are_brought_in_once(
    broker: str, topic: str, tmp_path: Path
) -> None:
    project = Project(tmp_path, name="shop")
    (project.path / "job.py").write_text(KAFKA_JOB)
    latest = {"subscribe": topic, "startingOffsets": "latest", "maxOffsetsPerTrigger": "4"}
    options = {"kafka.bootstrap.servers": broker, **latest}
    given = {"ITEMS": json.dumps(options)}
    producer = Producer({"bootstrap.servers": broker})

    def send(k: int, *values: int) -> None:
        rows = [{"k": k, "v": v, "p": "a"} for v in values]
        for row in [*rows, {"k": k, "p": "a", "sealed": True, "n": len(values)}]:
            producer.produce(topic, json.dumps(row).encode(), partition=len(producer) % 2)
        producer.flush(30)

    def in_table() -> list[tuple[int, int]]:
        found = DeltaTable(project.path / "table").to_pyarrow_table().to_pylist()
        return sorted((row["k"], row["s"]) for row in found)

    send(1, 10, 20)
    send(2, 7)
    ranges = ("--backfill", "old", "--source", "items=..")
    status, err = project.run(*ranges, **given)
    assert (status, "where the running job began to read it is not known" in err) == (1, True), err
    begin_to_read(LocalStorage(project.path / "state"), "items", options)  # as a job that begins
    send(3, 5)
    status, err = project.run(*ranges, **given, **{faults.VARIABLE: "delta-committed"})
    assert status == -9, err
    for said in ("shop-old: finished; ", "shop-old: all of it is in; nothing was done"):
        status, err = project.run(*ranges, **given)
        assert (status, said in err) == (0, True), err
        assert in_table() == [(1, 30), (2, 7)]
    assert project.run(**given)[0] == 0
    assert in_table() == [(1, 30), (2, 7), (3, 5)]


@pytest.mark.parametrize("seed", range(4))
def test_messages_that_come_in_elsewhere_are_refused_whatever_the_range(
    broker: str, topic: str, tmp_path: Path, seed: int
) -> None:
    """Random ranges, by offsets and by times, beside a job that began anywhere."""
    draw, now = random.Random(seed), round(time.time() * 1000)
    producer, sent = Producer({"bootstrap.servers": broker}), list[tuple[int, int, int]]()
    options = {"kafka.bootstrap.servers": broker, "subscribe": topic}
    partitions = len(KafkaReader(options).resolved()[topic])
    for second in sorted(draw.sample(range(60), 12)):
        of = draw.randrange(partitions)
        at = now - 100_000 + 1000 * second
        sent.append((of, len([p for p, *_ in sent if p == of]), at))
        producer.produce(topic, b"{}", partition=of, timestamp=at)
        producer.flush(30)
    ends = {p: len([of for of, *_ in sent if of == p]) for p in range(partitions)}
    began = {p: draw.randint(ends[p] // 2, ends[p]) for p in ends if draw.random() < 0.9}
    state = LocalStorage(tmp_path / "state")
    kept = {topic: {str(p): n for p, n in began.items()}}
    state.write(f"{STARTS}/items", json.dumps(kept).encode())

    def passed_range(name: str, text: str) -> dict[int, tuple[int, int]]:
        job = Job(root=tmp_path, results=tmp_path / "results", backfill={"items": text})
        items = job.source("items", format="kafka", options=options, schema="k INT", value="json")
        totals = job.native("P", passed, inputs={"records": [items]}, stateless=True)
        job.sink("table", [totals], format="delta", path="table")
        given = argparse.Namespace(source=[f"items={text}"], only=[], replace=False)
        assert Range(parsed(name, given), tmp_path, tmp_path / "state").begin(job)
        begins, upto = job.sources["items"].begins, job.sources["items"].ends
        assert begins is not None
        assert upto is not None
        return {p: (begins[topic][str(p)], upto[topic][str(p)]) for p in range(partitions)}

    def drawn() -> tuple[str, dict[int, tuple[int, int]]]:
        """A range, and its offsets."""
        if draw.random() < 0.5:
            one = {p: draw.randint(0, ends[p]) for p in ends}
            two = {p: draw.randint(one[p], ends[p]) for p in ends}
            texts = [json.dumps({topic: {str(p): n for p, n in of.items()}}) for of in (one, two)]
        else:
            times = sorted(now - 100_000 + 500 * draw.randrange(121) for _ in range(2))
            one, two = (
                {p: len([at for of, _, at in sent if of == p and at < moment]) for p in ends}
                for moment in times
            )
            texts = [datetime.fromtimestamp(at / 1000, UTC).isoformat() for at in times]
        if draw.random() < 0.3:
            texts[0], one = "", dict.fromkeys(ends, 0)
        if draw.random() < 0.2:
            texts[1], two = "", {p: began.get(p, 0) for p in ends}
            one = {p: min(one[p], two[p]) for p in ends}
        return "..".join(texts), {p: (one[p], two[p]) for p in ends}

    brought: list[dict[int, tuple[int, int]]] = []
    for number in range(25):
        text, wanted = drawn() if number else ("..", {p: (0, began.get(p, 0)) for p in ends})
        empty = all(a == b for a, b in wanted.values())
        of_job = any(a < b and b > began.get(p, 0) for p, (a, b) in wanted.items())
        twice = any(
            max(wanted[p][0], other[p][0]) < min(wanted[p][1], other[p][1])
            for other in brought
            for p in ends
        )
        if empty or of_job or twice:
            why = "there is no message" if empty else "would come twice"
            with pytest.raises(ValueError, match=why):
                passed_range(f"{number}", text)
        else:
            assert passed_range(f"{number}", text) == wanted
            producer.produce(topic, b"{}", partition=0)  # what comes later changes no range
            producer.flush(30)
            assert passed_range(f"{number}", text) == wanted
            brought.append(wanted)
            ends[0] += 1
    assert brought or not any(began.values())
    for text, why in {
        "x": "a range of messages is FROM..TO",
        "2999-01-01..": "is not over",
        "..2999-01-01": "is not over",
        f'{{"{topic}": {{}}}}..2020-01-01': "the range names no offset",
        '{"other": {"0": 1}}..': "does not read the topic other",
        f'{{"{topic}": {{"0": 99}}}}..{{"{topic}": {{"0": 999}}}}': "has the offsets",
    }.items():
        with pytest.raises(ValueError, match=why):
            passed_range("bad", text)


def begin(root: Path, name: str, *sources: str, only: tuple[str, ...] = ("table",)) -> bool:
    given = argparse.Namespace(source=[*sources], only=[*only], replace=False)
    backfill = parsed(name, given)
    job = Job(root=root, results=root / "results", backfill=backfill.sources)
    build(job)
    other = source(job, "others")
    running = job.native("Running", passed, inputs={"records": [other]})
    job.sink("running", [running], format="json")
    job.sink("appended", [job.native("P", passed, inputs={"records": [other]}, stateless=True)],
             format="jdbc", options={"url": "jdbc:derby:x", "dbtable": "t"})  # fmt: skip
    job.sink("keyed", [job.native("Q", passed, inputs={"records": [other]}, stateless=True)],
             format="jdbc", options={"url": "jdbc:derby:x", "dbtable": "t"}, key=["k"])  # fmt: skip
    return Range(backfill, root, root / "state").begin(job)


def test_files_that_come_in_elsewhere_are_refused_whatever_they_are_called(tmp_path: Path) -> None:
    """Random ranges, of files that the running job has read, is going to read, or neither."""
    for seed in range(60):
        draw, root = random.Random(seed), tmp_path / f"{seed}"
        items, old, log = (
            root / n
            for n in (
                "data/items",
                "old",
                f"state/units/T/checkpoint/{draw.choice(['', 'items/'])}sources/0",
            )
        )
        for folder in (items, old, log):
            folder.mkdir(parents=True)
        notes, twice = ["v1"], set()
        for number in range(draw.randint(1, 6)):
            name = f"{draw.choice(['a b', 'é', 'c'])}{number}.json"
            kind = draw.choice(
                ["new", "new", "read, moved", "hard link", "link", "hidden", "same name"]
            )
            file = (items if kind in ("hard link", "link", "read, moved") else old) / name
            file.write_text(f"{number}")
            os.utime(file, (1_700_000_000 + draw.randrange(9), 1_700_000_000.25 + number))
            note = {
                "path": file.as_uri(),
                "timestamp": file.stat().st_mtime_ns // 10**6,
                "batchId": 0,
            }
            if kind == "read, moved":
                notes.append(json.dumps(note))
                file.rename(old / name)
            elif kind == "hard link":
                (old / f"other-{name}").hardlink_to(file)
            elif kind == "link":
                (old / f"other-{name}").symlink_to(file)
            elif kind == "same name":  # another file, of another time
                notes.append(json.dumps({**note, "timestamp": note["timestamp"] + 1}))
            elif kind == "hidden":
                file.rename(old / f"_{name}")
            if kind in ("read, moved", "hard link", "link"):
                twice.add(name)
        (log / draw.choice(["0", "9.compact"])).write_text("\n".join(notes))
        if not any(file.name[0] != "_" for file in old.iterdir()):
            continue
        pattern = f"items={old}{draw.choice(['', '/*', '/*.json'])}"
        if not twice:
            assert begin(root, "2023", pattern)
            with pytest.raises(ValueError, match="in the range 2023 as well, for table"):
                begin(root, "more", pattern)
            continue
        with pytest.raises(ValueError, match="the running job reads it, too") as error:
            begin(root, "2023", pattern)
        assert sum(name in str(error.value) for name in twice) == min(len(twice), 5)
        assert not (root / "backfills" / "2023" / "range.json").exists()


def test_what_cannot_be_promised_is_refused_with_all_reasons(tmp_path: Path) -> None:
    for name in ("old", "data/items", "data/others"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "old" / "1.json").touch()
    old = f"{tmp_path}/old"
    cases = {
        ("running",): "Running: its answers would be of the range alone",
        ("appended",): "sink appended may repeat rows after a crash",
        ("keyed",): "sink keyed has a key: rows of the range replace",
        ("missing",): "there is no sink missing; there are appended, files, keyed, running, table",
        ("files", "appended"): "where is the range of items",
    }
    for only, reason in cases.items():
        with pytest.raises(ValueError, match=reason):
            begin(tmp_path, "2023", f"others={old}", only=only)
    with pytest.raises(ValueError, match="source items: there is no file at "):
        begin(tmp_path, "2023", f"items={tmp_path}/nowhere")
    with pytest.raises(ValueError, match="a folder that is mounted here"):
        begin(tmp_path, "2023", "items=s3a://bucket/old")
    with pytest.raises(ValueError, match="no component of the range reads others"):
        begin(tmp_path, "2023", f"items={old}", f"others={old}")
    assert begin(tmp_path, "2023", f"items={old}")
    with pytest.raises(ValueError, match="the range 2023 has other sinks"):
        begin(tmp_path, "2023", f"items={old}", only=("files",))
