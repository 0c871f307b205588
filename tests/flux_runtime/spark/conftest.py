"""Real Spark for the runtime's tests: one session, jobs in its process, folders of their own."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.sink_servers import kafka_broker, make_topic
from flux_lab.seal_invariants import validate
from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.sealing.ledger import Ledger
from flux_runtime.sealing.storage import LocalStorage
from flux_runtime.spark.context import LookUp
from flux_runtime.spark.job import Job
from flux_runtime.spark.runner import run_job
from flux_runtime.spark.session import start_session

Row = dict[str, Any]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    session = start_session(
        "tests",
        master="local[2]",
        conf={
            "spark.sql.warehouse.dir": (folder / "warehouse").as_uri(),
            "spark.local.dir": str(folder / "local"),
            "spark.driver.memory": "2g",
        },
        log=folder / "log.txt",
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_broker(tmp_path_factory.mktemp("broker")) as address:
        yield address


@pytest.fixture
def topic(broker: str, tmp_path: Path) -> str:
    make_topic(broker, tmp_path.name)
    return tmp_path.name


@dataclass
class Workbench:
    """A job's folder, and ways to feed it, run it and look at it."""

    session: SparkSession
    path: Path
    look_up: LookUp | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    files: int = 0
    runs: int = 0

    def file(self, stream: str, rows: Sequence[Row | str]) -> None:
        """Add one file to a stream; a text instead of a row is written as it is."""
        folder = self.path / "data" / stream
        folder.mkdir(parents=True, exist_ok=True)
        self.files += 1
        lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
        file = folder / f"{self.files:05d}.json"
        hidden = folder / f".{file.name}"
        hidden.write_text("\n".join(lines) + "\n")
        age = 1_700_000_000 + self.files
        os.utime(hidden, (age, age))  # Spark takes the oldest first
        hidden.rename(file)

    def run(self, build: Callable[[Job], None], **options: Any) -> Mapping[str, Any]:
        """Run the job on what there is, as a new process on the same state would."""
        job = Job(root=self.path, results=self.path / "results")
        build(job)
        self.runs += 1
        run = RunFolder.at(self.path / "runs" / str(self.runs))
        with run:
            return run_job(
                job,
                session=self.session,
                state=LocalStorage(self.path / "state"),
                run=run,
                look_up=self.look_up,
                stop=options.pop("stop", None) or threading.Event(),
                available_now=options.pop("available_now", True),
                **options,
            )

    def results(self, sink: str = "out") -> list[Row]:
        """All rows of a sink, sorted."""
        path = self.path / "results" / sink
        if not path.exists():
            return []
        rows = self.session.read.parquet(f"{path.as_uri()}/*").collect()
        return sorted((row.asDict(recursive=True) for row in rows), key=repr)

    def commits(self, sink: str = "out") -> list[str]:
        """The names of a sink's commits."""
        return sorted(p.name for p in (self.path / "results" / sink).iterdir())

    def dead_letters(self, unit: str) -> list[Row]:
        """All dead letters of a unit."""
        files = sorted((self.path / "state" / "dead_letters" / unit).glob("*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def events(self, kind: str) -> list[Row]:
        """The events of that kind, of all runs."""
        found = []
        for number in range(1, self.runs + 1):
            file = self.path / "runs" / str(number) / "events.jsonl"
            found += [json.loads(line) for line in file.read_text().splitlines()]
        return [event for event in found if event["kind"] == kind]

    def metrics(self, unit: str) -> Row:
        """The newest metrics of a unit."""
        file = self.path / "runs" / str(self.runs) / "metrics.jsonl"
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return [line for line in lines if line["unit"] == unit][-1]

    def chunks(self, unit: str) -> list[str]:
        """What is in the buffers of a unit."""
        folder = self.path / "state" / "units" / unit
        return sorted(p.name for p in folder.glob("buffer/*/*"))


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Workbench:
    return Workbench(spark, tmp_path)


@pytest.fixture(autouse=True)
def _validated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Check the tracker's invariants after every event of every gate."""
    record = Ledger.record

    def checked(self: Ledger, *events: Any) -> Any:
        findings = record(self, *events)
        validate(self.tracker)
        return findings

    monkeypatch.setattr(Ledger, "record", checked)
