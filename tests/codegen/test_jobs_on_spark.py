"""Compiled goldens, run: what the job file says is what Spark and ZooKeeper do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from blazes.cli import main

GOLDENS = Path(__file__).parent.parent / "golden" / "jobs"

pytestmark = pytest.mark.spark


def write_json(folder: Path, files: Iterable[Iterable[Mapping[str, Any]]]) -> None:
    """One file of JSON lines each, in the order in which a file source takes them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, records in enumerate(files):
        file = folder / f"{number:03}.json"
        file.write_text("".join(json.dumps(record) + "\n" for record in records))
        os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))


def run(dataflow: Path, *arguments: str) -> Path:
    """Compile a dataflow and run its job over what there is; its folder."""
    project = dataflow.parent / "target"
    assert main(["compile", str(dataflow), *arguments, "-o", str(project)]) == 0
    command = [sys.executable, "job.py", "--available-now", "--master", "local[1]"]
    command += ["--zookeeper", "embedded"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, timeout=400)
    log = project / "runs" / "latest" / "log.txt"
    assert done.returncode == 0, done.stderr + (log.read_text()[-4000:] if log.exists() else "")
    return project


def rows(folder: Path) -> list[dict[str, Any]]:
    """Every row of a sink, of JSON or Parquet files."""
    found = [
        json.loads(line)
        for file in folder.rglob("*.json")
        for line in file.read_text().splitlines()
    ]
    import pyarrow.parquet as pq

    for file in folder.rglob("*.parquet"):
        found += pq.read_table(file).to_pylist()
    return found


def values(found: Iterable[Mapping[str, Any]], *names: str) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(each[name] for name in names) for each in found)


def test_word_count_releases_complete_batches_only(tmp_path: Path) -> None:
    shutil.copy(GOLDENS / "wordcount" / "sealed.yaml", tmp_path)
    texts = {(1, "p"): ["a b", "b"], (1, "q"): ["b c"], (2, "p"): ["a"], (2, "q"): ["lost"]}
    files = []
    for (batch, producer), tweets in texts.items():
        records = [{"batch": batch, "producer": producer, "text": text} for text in tweets]
        if (batch, producer) != (2, "q"):
            end = {"batch": batch, "producer": producer, "sealed": True, "count": len(tweets)}
            records.insert(0, end)  # a punctuation may overtake its records
        files.append(records)
    write_json(tmp_path / "data" / "tweets", reversed(files))
    registrations = {"1": ["p", "q"], "2": ["p", "q"]}
    (tmp_path / "data" / "producers.json").write_text(json.dumps(registrations))
    project = run(tmp_path / "sealed.yaml")
    found = values(rows(project / "results" / "db"), "batch", "word", "n")
    assert found == Counter({(1, "a", 1): 1, (1, "b", 3): 1, (1, "c", 1): 1})


def test_an_unreplicated_order_answers_each_request_once(tmp_path: Path) -> None:
    shutil.copy(GOLDENS / "ad_network" / "single.yaml", tmp_path)
    at = "2024-01-01T00:00:00"
    clicks = [{"id": 1, "at": at}] * 120 + [{"id": 2, "at": at}] * 50
    asked = [{"analyst": f"ann-{number}", "id": number, "at": at} for number in (1, 2, 3)]
    write_json(tmp_path / "data" / "clicks", [clicks])
    write_json(tmp_path / "data" / "queries", [asked])
    run(tmp_path / "single.yaml")
    found = values(rows(tmp_path / "poor"), "analyst", "id")
    assert found == Counter({("ann-2", 2): 1, ("ann-3", 3): 1})


def test_replicas_behind_a_seal_and_a_cache_in_a_cycle(tmp_path: Path) -> None:
    shutil.copy(GOLDENS / "ad_network" / "replicated.yaml", tmp_path)

    def campaign(number: int, server: str, clicks: int, *, closed: bool) -> list[dict[str, Any]]:
        keys = {"campaign": number, "server": server}
        found = [{**keys, "id": 10 * number + each % 2} for each in range(clicks)]
        end: dict[str, Any] = {**keys, "sealed": True, "count": clicks}
        return [*found, end] if closed else found

    write_json(
        tmp_path / "data" / "clicks",
        [
            [*campaign(1, "s1", 150, closed=True), *campaign(2, "s1", 5, closed=True)],
            [*campaign(1, "s2", 60, closed=True), *campaign(2, "s2", 5, closed=False)],
        ],
    )
    registrations = {"1": ["s1", "s2"], "2": ["s1", "s2"]}
    (tmp_path / "data" / "campaigns.json").write_text(json.dumps(registrations))
    asked = [(10, 1), (11, 1), (12, 1), (20, 2)]
    write_json(
        tmp_path / "data" / "queries",
        [[{"analyst": "ann", "id": id, "campaign": number} for id, number in asked]],
    )
    project = run(tmp_path / "replicated.yaml", "--variant", "Report=CAMPAIGN")
    found = values(rows(project / "results" / "results"), "analyst", "id", "campaign")
    # 10 and 11 have 105 clicks each; 12 has none, and is answered: campaign 1 is complete.
    assert found == Counter({("ann", 12, 1): 1})


def test_the_shop_with_one_of_everything(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name in ("operators.py", "prices.py"):
        shutil.copy(GOLDENS / "shop" / name, tmp_path)
    text = (GOLDENS / "shop" / "shop.yaml").read_text().replace("format: delta", "format: json")
    (tmp_path / "shop.yaml").write_text(text.replace(", options: {mergeSchema: true}", ""))

    sales = {
        ("web", "A", "till-1"): [("tea", 300), ("cup", 500), ("cup", -1)],
        ("web", "A", "till-2"): [("tea", 100)],
        ("web", "B", "till-1"): [("pot", 900)],
        ("web", "B", "till-2"): [],
        ("web", "C", "till-1"): [("pot", 1)],
        ("tills", "A", "till-9"): [("tea", 50)],
        ("tills", "B", "till-9"): [("pot", 100), ("tea", 200)],
        ("tills", "C", "till-9"): [("pot", 2)],
    }
    by_stream: dict[str, list[list[dict[str, Any]]]] = {"web": [], "tills": []}
    for (stream, shop, till), sold in sales.items():
        keys = {"shop": shop, "till": till}
        file: list[dict[str, Any]] = [
            {**keys, "receipt": 100 * ord(shop) + number, "article": article, "cents": cents}
            for number, (article, cents) in enumerate(sold)
        ]
        by_stream[stream].append([*file, {**keys, "closed": True, "sent": len(sold)}])
    for stream, files in by_stream.items():
        write_json(tmp_path / "data" / stream, files)

    visits = [("A", "adult", 2)] * 3 + [("A", "staff", 1)] * 5 + [("A", "child", None)] * 4
    visits += [("A", "dog", 1)] * 2
    visitors = [
        {"shop": shop, "kind": kind, "persons": persons, "door": f"d{number % 2}"}
        for number, (shop, kind, persons) in enumerate(visits)
    ]
    ends = [{"shop": "A", "door": door, "closed": True, "sent": 7} for door in ("d0", "d1")]
    write_json(tmp_path / "data" / "visitors", [visitors[:6], [*visitors[6:], *ends]])
    (tmp_path / "data" / "doors.json").write_text(json.dumps({"A": ["d0", "d1"]}))

    (tmp_path / "data" / "clock").mkdir()
    start = datetime(2024, 1, 1)
    times = [start, start, start + timedelta(minutes=5), start + timedelta(minutes=30)]
    ticks = pa.table({"at": pa.array(times, pa.timestamp("us", "UTC")), "shop": ["A"] * 4})
    pq.write_table(ticks, tmp_path / "data" / "clock" / "0.parquet")

    (tmp_path / "data" / "notes").mkdir()
    notes = "number,article,cents\n2,tea,7\n3,tea,5\n1,tea,9\n1,cup,4\n"
    (tmp_path / "data" / "notes" / "0.csv").write_text(notes)

    project = run(tmp_path / "shop.yaml")
    results = project / "results"
    assert values(rows(results / "ranking"), "store", "article", "cents", "place") == Counter(
        {
            ("A", "cup", 500, 1): 1,
            ("A", "tea", 450, 2): 1,
            ("B", "pot", 1000, 1): 1,
            ("B", "tea", 200, 2): 1,
        }
    )
    assert values(rows(results / "visits"), "shop", "kind", "n", "persons", "mean") == Counter(
        {("A", "adult", 3, 6, 2.0): 1, ("A", "child", 4, None, None): 1}
    )
    assert values(rows(results / "prices"), "article", "cents") == {("tea", 5): 1, ("cup", 4): 1}
    assert sorted(each["n"] for each in rows(results / "minutes")) == [1, 2]
    archived = values(rows(tmp_path / "archive"), "store", "article", "cents")
    everything = Counter((k[1], a, c) for k, sold in sales.items() for a, c in sold if c >= 0)
    assert archived == everything
