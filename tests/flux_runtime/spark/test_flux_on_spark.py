"""A Flux stage on Spark gives Spark's own answer, once, whatever is killed meanwhile."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from flux_runtime.observe.dead_letters import read_dead_letters
from flux_runtime.observe.reader import Tail
from flux_runtime.ordering.scope import Scope
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper
from flux_runtime.zookeeper.nodes import children

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]  # a busy machine is slow

COUNTS = """
from pathlib import Path
from pyspark.sql import DataFrame
from flux_runtime.spark import Job, Step, main, sql

COUNT = "SELECT campaign, count(*) AS n, sum(v) AS s FROM click GROUP BY campaign"

def counts(click: DataFrame) -> DataFrame:
    return sql(COUNT, click=click)

def build(job: Job) -> None:
    clicks = job.source(
        "clicks", format="json", path="data/clicks", options={"maxFilesPerTrigger": "1"},
        schema="campaign STRING, v INT")
    count = Step("Count.counts", counts, query=COUNT, gives="changes", gate=["campaign"])
    job.sink("counts", [job.flux("Count.counts", [count], writes={"click": [clicks]})])

if __name__ == "__main__":
    main(build, name="counts", folder=Path(__file__).parent, master="local[2]")
"""

ANSWERS = """
from pathlib import Path
from pyspark.sql import DataFrame
from flux_runtime.spark import Job, Step, main, sql

CLEAN = "SELECT campaign, v FROM raw WHERE v >= 0"
LARGE = "SELECT campaign, max(v) AS most FROM clean GROUP BY campaign"
ANSWER = '''
    SELECT r.id, r.campaign, count(c.v) AS n, sum(c.v) AS s, max(c."at") AS newest
    FROM request r LEFT JOIN click c ON r.campaign = c.campaign GROUP BY r.id, r.campaign'''

def clean(raw: DataFrame) -> DataFrame:
    return sql(CLEAN, raw=raw)

def large(clean: DataFrame) -> DataFrame:
    return sql(LARGE, clean=clean)

def answer(click: DataFrame, request: DataFrame) -> DataFrame:
    return sql(ANSWER.replace('"', "`"), click=click, request=request)

def build(job: Job) -> None:
    clicks = job.source(
        "clicks", format="json", path="data/clicks", schema="campaign STRING, v INT, at TIMESTAMP")
    requests = job.source(
        "requests", format="json", path="data/requests", schema="id BIGINT, campaign STRING")
    steps = [Step("Clean.clean", clean, query=CLEAN, gives="records"),
             Step("Large.large", large, query=LARGE, gives="changes", gate=["campaign"])]
    job.sink("large", [job.flux("Large.large", steps, writes={"raw": [clicks]}, sites=2)])
    step = Step("Report.answer", answer, query=ANSWER, gives="answers", gate=["campaign"])
    answers = job.flux("Report.answer", [step], writes={"click": [clicks]},
                       reads={"request": [requests]}, replicas=3, sites=2, partitions=2,
                       balance="load", site_memory="64k", keep_every=1)
    job.sink("answers", [answers])

if __name__ == "__main__":
    main(build, name="answers", folder=Path(__file__).parent, master="local[2]")
"""


class FluxJob:
    """A job in a process of its own, its input, and what it has put out."""

    def __init__(self, folder: Path, text: str) -> None:
        self.folder = folder
        self.files = 0
        self.clicks: list[list[dict[str, Any]]] = []
        self.process: subprocess.Popen[bytes] | None = None
        (folder / "job.py").write_text(text)

    def file(self, stream: str, rows: list[dict[str, Any]]) -> None:
        self.files += 1
        folder = self.folder / "data" / stream
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{self.files:04d}.json"
        hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.utime(hidden, (1_700_000_000 + self.files,) * 2)
        hidden.rename(folder / hidden.name[1:])

    def more(self) -> None:
        """One more file of clicks: some campaigns of ten."""
        n = len(self.clicks)
        rows = [{"campaign": f"c{(i * i + n) % 10}", "v": i % 7} for i in range(30 + n)]
        self.clicks.append(rows)
        self.file("clicks", rows)

    def start(self, *arguments: str, **environment: str) -> None:
        with (self.folder / "said.txt").open("ab") as said:
            self.process = subprocess.Popen(
                [sys.executable, "job.py", *arguments],
                cwd=self.folder,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, **environment},
                stdout=said,
                stderr=said,
            )

    def ended(self, *, timeout_s: float = 600) -> int:
        assert self.process is not None
        return self.process.wait(timeout_s)

    def run(self, **environment: str) -> int:
        self.start("--available-now", **environment)
        return self.ended()

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.ended() == 0, self.said()

    def said(self) -> str:
        logs = [self.folder / "said.txt", self.folder / "runs" / "latest" / "log.txt"]
        return "\n".join(log.read_text()[-4000:] for log in logs if log.exists())

    def rows(self, sink: str) -> list[dict[str, Any]]:
        files = sorted((self.folder / "results" / sink).glob("*/*.parquet"))
        return [row for file in files for row in pq.read_table(file).to_pylist()]

    def events(self, kind: str) -> list[dict[str, Any]]:
        noted = Tail(self.folder / "runs" / "latest" / "events.jsonl").records()
        return [dict(event) for event in noted if event["kind"] == kind]

    def expected(self) -> list[dict[str, tuple[str, int, int]]]:
        """After each file, what every campaign in it has come to."""
        n: Counter[str] = Counter()
        s: Counter[str] = Counter()
        found = []
        for rows in self.clicks:
            for row in rows:
                n[row["campaign"]] += 1
                s[row["campaign"]] += row["v"]
            found.append({c: (c, n[c], s[c]) for c in {row["campaign"] for row in rows}})
        return found

    def counted(self) -> list[tuple[str, int, int]]:
        return sorted((r["campaign"], r["n"], r["s"]) for r in self.rows("counts"))

    def complete(self) -> bool:
        """Whether every campaign has come to what it comes to after all files."""
        last = {c: row for after in self.expected() for c, row in after.items()}
        return set(last.values()) <= set(self.counted())

    def check(self) -> None:
        """Nothing is missing at the end, and nothing came twice or from no prefix of the files.

        Most files are a micro-batch of their own; one that is there when the job starts again may
        be taken together with the one before, if Spark had listed that and not yet begun with it.
        """
        assert self.complete()
        counted = self.counted()
        assert len(set(counted)) == len(counted)
        assert set(counted) <= {row for after in self.expected() for row in after.values()}

    def until(self, condition: Callable[[], object], seconds: float = 600) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < end, self.said()
            time.sleep(0.2)

    def until_counted(self) -> None:
        self.until(self.complete)
        self.check()

    def seats(self) -> dict[int, tuple[int, Path]]:
        """Site -> process id of its worker, its executor."""
        seats = self.folder.glob("state/units/*/sites/*/seats/*/*")
        said = [(seat, seat.read_text()) for seat in seats]
        return {int(seat.name): (int(pid), seat.parent) for seat, pid in said if pid}

    def contents(self, unit: str = "*") -> list[Path]:
        """Batches of the recorded order."""
        return list(self.folder.glob(f"state/units/{unit}/order/*/*.arrow"))

    def staged(self) -> list[Path]:
        """Records of micro-batches that are not in the order yet, or never will be."""
        return list(self.folder.glob("state/units/*/inputs/*/staging/staged/*/*"))

    def kill(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def counts(tmp_path: Path) -> Iterator[FluxJob]:
    job = FluxJob(tmp_path, COUNTS)
    yield job
    job.kill()


FEW = """
import os
from flux_runtime.spark.flux import ordered_input
ordered_input.FEW_BYTES = int(os.environ["FEW_BYTES"])
"""


def test_the_driver_dies_between_any_two_steps(counts: FluxJob) -> None:
    """A micro-batch that comes again is staged the other way: by tasks, or by the driver."""
    job = counts.folder / "job.py"
    job.write_text(FEW + job.read_text())
    few = itertools.cycle(({"FEW_BYTES": "0"}, {"FEW_BYTES": "1000000"}))
    for point in (
        "input-staged",
        "content-written",
        "input-logged",
        "input-offered",
        "input-acknowledged",
        "results-logged",
        "results-committed",
        "results-noted",
    ):
        counts.more()
        assert counts.run(BLAZES_CRASH_AT=point, **next(few)) == -signal.SIGKILL, counts.said()
    assert counts.run(**next(few)) == 0, counts.said()
    counts.check()
    assert not counts.staged()


@pytest.mark.parametrize("copies", [2, 1])
def test_fs_26_a_job_that_lost_all_copies_says_so_and_goes_on_with_other_sites(
    counts: FluxJob, copies: int
) -> None:
    job = counts.folder / "job.py"
    job.write_text(job.read_text().replace("writes=", f"copies={copies}, writes="))
    counts.more()
    counts.start()
    counts.until_counted()
    times = range(1, copies + 1)  # with one copy, a single site's death loses all
    for again in times:
        workers = [worker for worker, _ in counts.seats().values()]
        for worker in workers if copies == 2 else workers[:1]:
            os.kill(worker, signal.SIGKILL)
        counts.more()
        counts.until(lambda again=again: len(counts.events("sites_begin_again")) == again)
        counts.until_counted()
    counts.stop()
    counts.check()
    assert counts.events("data_loss")
    assert [said["committed"] for said in counts.events("sites_begin_again")] == list(times)


FAILING = """
class Failing:
    def process(self, batch):
        raise OSError("the device is gone")

    def get_state(self):
        return None

    def install_state(self, state):
        pass

    def state_size(self):
        return 0
"""


def test_fs_26_a_job_whose_sites_end_again_and_again_says_why_and_what_to_do(
    counts: FluxJob,
) -> None:
    (counts.folder / "failing.py").write_text(FAILING)
    job = counts.folder / "job.py"
    step = 'Step("Count.counts", counts, query=COUNT, gives="changes", gate=["campaign"])'
    failing = step.replace('counts, query=COUNT, gives="changes"', 'Failing, schema="n INT"')
    text = job.read_text()
    assert step in text
    job.write_text(f"from failing import Failing\n{text.replace(step, failing)}")
    counts.more()
    assert counts.run() == 1
    said = counts.said()
    for part in ("has lost its last copy", "the device is gone", "0 batches are committed"):
        assert part in said
    assert "--fresh" in said
    assert len(counts.events("sites_begin_again")) == 2


def test_or_5_the_order_is_trimmed_and_a_job_begins_with_the_kept_states(counts: FluxJob) -> None:
    every = 3
    job = counts.folder / "job.py"
    job.write_text(job.read_text().replace("writes=", f"keep_every={every}, writes="))
    for _ in range(4):
        counts.more()
    assert counts.run(BLAZES_CRASH_AT="state-kept") == -signal.SIGKILL, counts.said()
    assert len(counts.contents()) >= every, "kept, and not yet trimmed"
    counts.start()
    for _ in range(3 * every):
        counts.more()
    counts.until_counted()
    counts.until(lambda: any(e["batches"] > 3 * every for e in counts.events("state_kept")))
    counts.until(lambda: len(counts.contents()) < every)
    assert counts.events("state_taken_up")[0]["batches"] >= every
    counts.kill()
    counts.more()
    assert counts.run() == 0, counts.said()
    counts.check()
    assert counts.events("state_taken_up")[0]["batches"] > 3 * every, "the first kept ones"
    assert len(counts.contents()) < every
    assert len(list(counts.folder.glob("state/units/*/kept/*"))) <= 2
    with EmbeddedZooKeeper(counts.folder / "state" / "zookeeper") as server:
        client = connect(server.hosts)
        scope = Scope(client, "counts", "Count.counts")
        assert scope.base().at > 3 * every
        places = len(children(client, scope.places))
        client.close()
    assert places <= every + 3, "batches, and where a run began"


def test_or_5_a_job_runs_on_where_its_states_cannot_be_kept_and_says_so(counts: FluxJob) -> None:
    job = counts.folder / "job.py"
    job.write_text(job.read_text().replace("writes=", "keep_every=1, writes="))
    kept = counts.folder / "state" / "units" / "Count.counts" / "kept"
    kept.parent.mkdir(parents=True)
    kept.write_text("no folder")
    identity = {"id": "a state that a job has begun", "job": "counts", "made": 0.0}
    (counts.folder / "state" / "identity.json").write_text(json.dumps(identity))
    for _ in range(4):
        counts.more()
    assert counts.run() == 0, counts.said()
    counts.check()
    (said,) = counts.events("state_not_kept")
    assert str(kept) in said["why"]
    assert "state folder" in said["remedy"]
    assert counts.contents(), "the order is recorded"
    kept.unlink()
    counts.more()
    assert counts.run() == 0, counts.said()
    counts.check()
    assert counts.events("state_kept")
    assert not counts.contents()


def test_replicas_and_steps_give_sparks_answer(tmp_path: Path) -> None:
    job = FluxJob(tmp_path, ANSWERS)
    clicks = [
        {"campaign": f"c{i % 7}", "v": i % 11 - 2, "at": f"2024-01-{i % 28 + 1:02d}T01:02:03Z"}
        for i in range(300)
    ]
    job.file("clicks", clicks)
    job.file("requests", [{"id": i, "campaign": f"c{i % 9}"} for i in range(20)])
    for run in range(3):
        if run == 2:  # answered from what was kept: the clicks are not in the order any more
            assert not job.contents("Report.answer")
            job.file("requests", [{"id": i, "campaign": f"c{i % 9}"} for i in range(20, 40)])
        assert job.run() == 0, job.said()
        assert bool(job.events("site_joined")) == (run != 1)  # nothing new, nothing to compute
        by_replica: dict[int, list[tuple[Any, ...]]] = {}
        for row in job.rows("answers"):
            answer = (row["id"], row["campaign"], row["n"], row["s"], str(row["newest"]))
            by_replica.setdefault(row["replica"], []).append(answer)
        of = {f"c{i}": [c for c in clicks if c["campaign"] == f"c{i}"] for i in range(9)}
        expected = []
        for i in range(20 if run < 2 else 40):
            mine = of[f"c{i % 9}"]
            newest = max((c["at"] for c in mine), default=None)
            shown = newest and newest.replace("T", " ").removesuffix("Z")
            total = sum(c["v"] for c in mine) if mine else None
            expected.append((i, f"c{i % 9}", len(mine), total, str(shown)))
        assert {r: sorted(rows) for r, rows in by_replica.items()} == dict.fromkeys(
            (1, 2, 3), expected
        )
        assert sorted((r["campaign"], r["most"]) for r in job.rows("large")) == sorted(
            (name, max(c["v"] for c in mine)) for name, mine in of.items() if mine
        )


def test_a_record_that_cannot_be_processed_is_a_dead_letter_and_the_job_goes_on(
    tmp_path: Path,
) -> None:
    job = FluxJob(tmp_path, COUNTS.replace("v INT", "v BIGINT"))
    job.file("clicks", [{"campaign": "a", "v": 2**62}, {"campaign": "b", "v": 1}])
    job.file("clicks", [{"campaign": "a", "v": 2**62}, {"campaign": "a", "v": 7}])
    job.file("clicks", [{"campaign": "b", "v": 2}])
    assert job.run() == 0, job.said()
    assert job.counted() == [("a", 1, 2**62), ("a", 2, 2**62 + 7), ("b", 1, 1), ("b", 2, 3)]
    (letter,) = read_dead_letters(tmp_path / "state")
    assert (letter.unit, letter.stream) == ("Count.counts", "Count.counts.click")
    assert letter.reason == "unprocessable"
    assert letter.record == {"campaign": "a", "v": 2**62}
    assert "out of bounds" in str(letter.why)
    job.start("--available-now")  # nothing new: nothing is written again
    assert job.ended() == 0, job.said()
    assert len(list(read_dead_letters(tmp_path / "state"))) == 1
