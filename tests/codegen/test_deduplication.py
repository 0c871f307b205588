"""De-duplication in compiled jobs: where it is added, and that it is exact whatever is killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from annotations.diagnostics import BadInput
from annotations.file import loads
from blazes.analysis import analyze
from blazes.coordination import plan
from codegen.emit import emit
from codegen.stages import stages

KEEP = """
name: keep
components:
  Keep:
    annotation: {from: clicks, to: kept, label: CR, rows: one}
    sql: SELECT click, shop, ad FROM clicks WHERE ad <> 'none'
streams:
  clicks:
    to: Keep.clicks
    delivery: may-repeat
    id: [shop, click]
    source: {format: json, path: data/clicks, options: {maxFilesPerTrigger: 1}}
    schema: {click: INT, shop: STRING, ad: STRING}
  kept: {from: Keep.kept, delivery: once, schema: {click: INT, shop: STRING, ad: STRING}}
"""
POINTS = ("output-staged", "output-committed", "native-committed", "batch-processed")


def compiled(text: str) -> str:
    dataflow, _ = loads(text)
    return emit(stages(plan(analyze(dataflow))))


def test_a_stream_is_deduplicated_between_its_ends() -> None:
    text = compiled(KEEP)
    assert 'return deduplicated(records, ["click", "shop"])' in text
    assert text.index('"Keep.kept"') < text.index('"kept_once.records"') < text.index("job.sink")


def test_nothing_is_added_where_a_gate_knows_the_ids() -> None:
    text = compiled(
        KEEP.replace("label: CR, rows: one", 'label: "OW[shop]"')
        .replace("SELECT click, shop, ad FROM clicks WHERE ad <> 'none'", "SELECT * FROM clicks")
        .replace("delivery: once, ", "")
        .replace(
            "id: [shop",
            "seal: [shop]\n    producers: one\n    punctuation: PUNCTUATION\n    id: [shop",
        )
        .replace("PUNCTUATION", '{when: "ad is null", count: click}')
    )
    assert "deduplicated" not in text
    assert "job.seal(" in text


@pytest.mark.parametrize(
    ("result", "says"),
    [
        ("sink: {format: delta, key: [shop, click]}", "format delta with upsert"),
        ("delivery: once, sink: {format: mongodb}", "format mongodb with upsert"),
        ("sink: {format: kafka, key: [click]}", "format kafka with upsert"),
        ("delivery: once, sink: {format: console}, schema: {ad: STRING}", "with transaction"),
    ],
)
def test_a_sink_that_no_job_can_write_is_refused(result: str, says: str) -> None:
    text = KEEP[: KEEP.index("  kept: {")] + f"  kept: {{from: Keep.kept, {result}}}\n"
    with pytest.raises(BadInput, match=f"BLZ517 kept needs a sink of {says}|BLZ517 .*{says}"):
        compiled(text)


TOPIC = 'format: KAFKA, options: {kafka.bootstrap.servers: "broker:9092", topic: kept}'
TABLE = 'format: jdbc, options: {url: "jdbc:derby:x", dbtable: kept}'


@pytest.mark.parametrize(
    ("result", "call"),
    [
        (f"sink: {{{TABLE}, key: [shop, click]}}", 'key=["shop", "click"],'),
        (f"delivery: once, sink: {{{TABLE}}}", 'key=["click", "shop"],'),
        (f"delivery: once, schema: {{ad: STRING}}, sink: {{{TABLE}}}", "transaction=True,"),
        (f"sink: {{{TABLE}, delivery: once}}", "transaction=True,"),
        (f"delivery: once, sink: {{{TOPIC}}}", "transaction=True,"),
    ],
)
def test_a_table_is_written_as_the_plan_asks_for(result: str, call: str) -> None:
    text = compiled(KEEP[: KEEP.index("  kept: {")] + f"  kept: {{from: Keep.kept, {result}}}\n")
    assert call in text


def test_a_table_to_which_rows_may_come_again_is_appended_to() -> None:
    text = compiled(
        KEEP[: KEEP.index("  kept: {")] + f"  kept: {{from: Keep.kept, sink: {{{TABLE}}}}}\n"
    )
    assert "key=" not in text
    assert "transaction=" not in text


BOUNDED = KEEP.replace("id: [shop", "repeat_within: 1 hour\n    id: [shop")


def test_a_source_whose_ids_may_be_forgotten_goes_first() -> None:
    """Else the furthest stream would do as well, and remember for ever."""
    text = compiled(BOUNDED)
    assert 'repeat_within="1 hour"' in text
    assert text.index('"clicks_once.records"') < text.index('"Keep.kept"') < text.index("job.sink")
    kafka = BOUNDED.replace("format: json, path: data/clicks", "format: kafka")
    kafka = kafka.replace("maxFilesPerTrigger", "maxOffsetsPerTrigger")
    dataflow, _ = loads(kafka)
    (item,) = plan(analyze(dataflow)).repairs.items
    assert (item.stream, item.bound) == ("kept", None)


@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("bounded", [False, True])
def test_every_record_once_whatever_is_killed(bounded: bool, tmp_path: Path) -> None:
    """Copies come in the same file, in later ones and after restarts; some records have no id.

    With a bound copies come within an hour of files; later a record counts as a new one, and those
    of an old file, which cannot be told from copies, are dead letters.
    """
    rng = random.Random(7)
    (tmp_path / "keep.yaml").write_text(BOUNDED if bounded else KEEP)
    command = [sys.executable, "-m", "blazes", "compile", "keep.yaml", "-o", "."]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    expected = Counter[tuple[object, ...]]()
    sent: list[dict[str, object]] = []
    folder = tmp_path / "data" / "clicks"
    folder.mkdir(parents=True)

    def send(number: int) -> None:
        rows: list[dict[str, object]] = []
        for _ in range(20):
            if sent and rng.random() < 0.5:
                rows.append(rng.choice([*sent[-60 if bounded else 0 :], *rows]))
                continue
            click = None if rng.random() < 0.2 else len(sent) + len(rows)
            rows.append({"click": click, "shop": rng.choice("ab"), "ad": rng.choice("xy")})
        for row in rows:
            key = tuple(row.values())
            expected[key] = 1 if row["click"] is not None else expected[key] + 1
        sent.extend(rows)
        write(number, rows)

    def write(number: int, rows: list[dict[str, object]]) -> None:
        file = folder / f"{number % 1000:03d}.json"
        file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(file, (1_700_000_000 + 1200 * number,) * 2)

    def run(point: str = "") -> tuple[int, str]:
        environment = {**os.environ, "BLAZES_CRASH_AT": point}
        ran = subprocess.run(
            [sys.executable, "job.py", "--available-now"],
            cwd=tmp_path,
            env=environment,
            check=False,
            capture_output=True,
            text=True,
        )
        return ran.returncode, ran.stdout + ran.stderr

    points = POINTS if bounded else POINTS[::2]  # the commits are the same for both
    for number, point in enumerate(points):
        send(2 * number)
        send(2 * number + 1)
        status, said = run(f"{point}@{rng.choice([1, 2])}")
        assert status == -signal.SIGKILL, said
    late = {"click": -1, "shop": "a", "ad": "x"}
    if bounded:
        again = next(row for row in sent if row["click"] is not None)
        write(100, [again])
        expected[tuple(again.values())] += 1
    status, said = run()
    assert status == 0, said
    if bounded:
        write(-100, [late, again])
        status, said = run()
        assert status == 0, said
        letters = [
            json.loads(line)
            for file in (tmp_path / "state" / "dead_letters").rglob("*.jsonl")
            for line in file.read_text().splitlines()
        ]
        assert [each["reason"] for each in letters] == ["behind_watermark"] * 2
        assert late in [each["record"] for each in letters]
    files = (tmp_path / "results" / "kept").glob("*/*.parquet")
    rows = [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]
    assert Counter(rows) == expected
    assert sum(expected.values()) < len(sent)
