"""The examples from end to end, on Spark with ZooKeeper: exactly the expected results."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).parents[2] / "examples"


@dataclass(frozen=True)
class Example:
    """A copy of an example's folder, without its data."""

    folder: Path

    def script(self, name: str, *arguments: object) -> str:
        """Run one of the example's scripts; what it prints. A failed one fails the test."""
        command = [sys.executable, self.folder / name, *map(str, arguments)]
        return self._run(command)

    def blazes(self, *arguments: object, status: int = 0) -> str:
        """Run a command of blazes in the folder; stdout and stderr."""
        return self._run([sys.executable, "-m", "blazes", *map(str, arguments)], status=status)

    def run_dataflow(self, file: str, *arguments: object) -> None:
        """Compile and run a dataflow on all of its data."""
        self.blazes("run", file, "--available-now", "--fresh", "--master", "local[2]", *arguments)

    def results(self, dataflow: str, sink: str = "") -> Path:
        """Where a dataflow's results are."""
        return self.folder / "target" / dataflow / "results" / sink

    def _run(self, command: list[object], status: int = 0) -> str:
        done = subprocess.run(
            command,  # type: ignore[arg-type]
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=500,
        )
        assert done.returncode == status, done.stdout[-4000:]
        return done.stdout


@pytest.fixture
def wordcount(tmp_path: Path) -> Example:
    return copied("wordcount", tmp_path)


@pytest.fixture
def ad_network(tmp_path: Path) -> Example:
    return copied("ad_network", tmp_path)


@pytest.fixture
def settlement(tmp_path: Path) -> Example:
    return copied("settlement", tmp_path)


def copied(name: str, folder: Path) -> Example:
    ignore = shutil.ignore_patterns("data", "target", "__pycache__")
    shutil.copytree(EXAMPLES / name, folder / name, ignore=ignore)
    return Example(folder / name)


def test_unsealed_word_counts_end_right_after_wrong_ones(wordcount: Example) -> None:
    wordcount.script("generate.py", "--tweets", 3000, "--batches", 12, "--steps", 15)
    wordcount.run_dataflow("wordcount_unsealed.yaml")
    results = wordcount.results("wordcount-unsealed", "db")
    told = wordcount.script("expected.py", "--check", results, "--updates")
    early = int(told.split(" of ")[0].replace(",", ""))
    assert early > 0


def test_three_replicas_give_one_right_answer(ad_network: Example) -> None:
    query = "THRESH"
    ad_network.script("generate.py", "--clicks", 8_000, "--campaigns", 10, "--requests", 40)
    ad_network.run_dataflow("ad_network.yaml", "--variant", f"Report={query}")
    ad_network.script("expected.py", query, "--check", ad_network.results("ad-network", "results"))


def test_hourly_answers_wait_for_the_hour(ad_network: Example) -> None:
    ad_network.script("generate.py", "--servers", 10, "--clicks", 8_000, "--requests", 40)
    ad_network.run_dataflow("ad_network_hourly.yaml")
    results = ad_network.results("ad-network-hourly", "results")
    ad_network.script("expected.py", "WINDOW", "--check", results)


def test_the_settlement_is_exact_and_every_bad_record_is_accounted_for(
    settlement: Example,
) -> None:
    settlement.script("generate.py")
    settlement.run_dataflow("settlement.yaml")
    settlement.script("expected.py", "--check", settlement.results("settlement"))
    project = settlement.folder / "target" / "settlement"
    letters = dead_letters(project / "state" / "dead_letters" / "Settlement.statement")
    assert Counter((letter["reason"], letter["rule"]) for letter in letters) == {
        ("unreadable", None): 6,
        ("unknown_producer", "SE-7"): 5,
        ("late", "SE-5"): 4,
    }
    assert {letter["record"]["gateway"] for letter in letters if letter["rule"] == "SE-7"} == {
        "eu-staging"
    }
    summary = json.loads((project / "runs" / "latest" / "summary.json").read_text())
    settled = summary["units"]["Settlement.statement"]
    assert settled["open_partitions"] == 1
    assert settled["quarantined_partitions"] == 1
    assert settled["released_partitions"] == 52
    assert sum(settled["votes_missing"].values()) == 1


def dead_letters(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for file in folder.rglob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
