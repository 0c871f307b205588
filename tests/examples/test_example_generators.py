"""The generators: the same seed gives the same stream, and the stream keeps its promises."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from blazes.demo.files import read_records

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {
    "wordcount": ["--tweets", "600", "--batches", "8"],
    "ad_network": ["--clicks", "2000", "--campaigns", "6", "--requests", "30"],
    "settlement": ["--merchants", "6", "--days", "2"],
}
SEALED = [
    ("wordcount", "tweets", "producers.json", ("batch",), "producer", "sealed", "count"),
    ("ad_network", "clicks", "campaigns.json", ("campaign",), "server", "sealed", "count"),
    ("ad_network", "hourly_clicks", "windows.json", ("window",), "server", "sealed", "count"),
]
"""Example, folder, registrations, key, producer column, punctuation column, count column."""


def run(example: str, script: str, *arguments: object) -> str:
    command = [sys.executable, EXAMPLES / example / script, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout


def generated(example: str, folder: Path, *more: object) -> Path:
    run(example, "generate.py", "--data", folder, *SMALL[example], *more)
    return folder


def contents(folder: Path) -> dict[str, tuple[str, int]]:
    return {
        str(file.relative_to(folder)): (file.read_text(), file.stat().st_mtime_ns)
        for file in folder.rglob("*.json")
        if file.parent != folder
    }


@pytest.mark.parametrize("example", SMALL)
def test_the_same_seed_gives_the_same_files_in_the_same_order(example: str, tmp_path: Path) -> None:
    first, second = (contents(generated(example, tmp_path / name)) for name in "ab")
    assert first == second
    assert contents(generated(example, tmp_path / "c", "--seed", 99)) != first


@pytest.mark.parametrize("example", SMALL)
def test_no_two_files_of_a_folder_arrive_at_the_same_time(example: str, tmp_path: Path) -> None:
    data = generated(example, tmp_path)
    for folder in filter(Path.is_dir, data.iterdir()):
        times = Counter(file.stat().st_mtime_ns for file in folder.iterdir())
        assert times
        assert max(times.values()) == 1
        assert not [file for file in folder.iterdir() if file.name.startswith(".")]


@pytest.mark.parametrize("case", SEALED, ids=lambda case: f"{case[0]}-{case[1]}")
def test_every_registered_producer_says_once_how_much_it_sent(
    case: tuple[Any, ...], tmp_path: Path
) -> None:
    example, folder, registrations, key, producer, sealed, count = case
    data = generated(example, tmp_path)
    registered = json.loads((data / registrations).read_text())
    sent: Counter[tuple[str, str]] = Counter()
    promised: dict[tuple[str, str], int] = {}
    for record in read_records(data / folder):
        at = (",".join(str(record[name]) for name in key), record[producer])
        if record[sealed]:
            assert at not in promised
            promised[at] = record[count]
        else:
            sent[at] += 1
    assert promised.keys() == {(value, who) for value, all_ in registered.items() for who in all_}
    assert {at: promise for at, promise in promised.items() if promise} == sent


def test_some_punctuations_overtake_the_records_that_they_count(tmp_path: Path) -> None:
    ended = set()
    overtaken = 0
    for tweet in read_records(generated("wordcount", tmp_path) / "tweets"):
        at = (tweet["batch"], tweet["producer"])
        overtaken += at in ended
        if tweet["sealed"]:
            ended.add(at)
    assert overtaken


def test_real_text_becomes_tweets(tmp_path: Path) -> None:
    run("wordcount", "generate.py", "--data", tmp_path, "--text", "--batches", "5")
    tweets = [tweet for tweet in read_records(tmp_path / "tweets") if not tweet["sealed"]]
    assert {tweet["batch"] for tweet in tweets} == set(range(5))
    assert len(tweets) > 500


def test_an_independent_workload_has_one_server_for_each_campaign(tmp_path: Path) -> None:
    data = generated("ad_network", tmp_path, "--independent", "--servers", "10")
    registered = json.loads((data / "campaigns.json").read_text())
    assert {len(servers) for servers in registered.values()} == {1}
    for click in read_records(data / "clicks"):
        assert [click["server"]] == registered[str(click["campaign"])]


def test_more_servers_send_the_same_number_of_clicks(tmp_path: Path) -> None:
    data = generated("ad_network", tmp_path, "--servers", "10")
    clicks = [click for click in read_records(data / "clicks") if not click["sealed"]]
    assert len(clicks) == 2000
    assert len({click["server"] for click in clicks}) == 10


def test_the_settlement_has_every_kind_of_bad_record(tmp_path: Path) -> None:
    data = generated("settlement", tmp_path)
    lines = [line for file in (data / "payments").iterdir() for line in open_lines(file)]
    assert sum(not is_json(line) for line in lines) == 6
    summary = run("settlement", "expected.py", "--data", data)
    assert "    4  late" in summary
    assert "    5  unknown" in summary
    assert "    2  not settled" in summary


def test_a_clean_settlement_settles_everything(tmp_path: Path) -> None:
    data = generated("settlement", tmp_path, "--clean")
    summary = run("settlement", "expected.py", "--data", data)
    assert "    0  late" in summary
    assert "    0  unknown" in summary
    assert "    0  not settled" in summary


def test_following_writes_the_steps_apart(tmp_path: Path) -> None:
    run("wordcount", "generate.py", "--data", tmp_path, "--tweets", 20, "--batches", 2,
        "--producers", 1, "--steps", 3, "--follow", 0.2)  # fmt: skip
    times = sorted(file.stat().st_mtime for file in (tmp_path / "tweets").iterdir())
    assert times[-1] - times[0] >= 0.2


def open_lines(file: Path) -> list[str]:
    return file.read_text().splitlines()


def is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return False
    return True
