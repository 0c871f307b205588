"""`blazes run` on real Spark and a real ZooKeeper, and the commands that look at what it did.

One job is followed through its life: a producer is silent, is excused, data comes late, the plan
changes, Ctrl-C stops it, its input disappears.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Self

import pytest

from blazes.cli import main

pytestmark = [pytest.mark.spark, pytest.mark.timeout(2400)]

FLOW = """
name: clicks
components:
  Count:
    annotation: {from: clicks, to: counts, label: "OW[campaign]"}
    sql: SELECT campaign, count(*) AS clicks, sum(n) AS total FROM clicks GROUP BY campaign
streams:
  clicks:
    to: Count.clicks
    seal: [campaign]
    schema: {campaign: INT, n: INT, producer: STRING, sealed: BOOLEAN, count: BIGINT}
    source: {format: json, path: data/clicks}
    producer: producer
    punctuation: {when: sealed, count: count}
    producers: {registered: data/producers.json}
    seal_timeout: 1
  totals:
    from: Count.counts
    sink: {format: json}
"""


class Project:
    """A dataflow in a folder of its own, and the command line started there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "data" / "clicks").mkdir(parents=True)
        (folder / "clicks.yaml").write_text(FLOW, encoding="utf-8")
        sets = {"1": ["ads-1", "ads-2"], "2": ["ads-1", "ads-2"]}
        (folder / "data" / "producers.json").write_text(json.dumps(sets), encoding="utf-8")

    def send(self, name: str, *records: dict[str, object]) -> None:
        """A file appears in the source."""
        part = self.folder / f"{name}.part"
        part.write_text("".join(json.dumps(r) + "\n" for r in records), encoding="utf-8")
        part.replace(self.folder / "data" / "clicks" / f"{name}.json")

    def blazes(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """A command that looks at the job, in this process."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.chdir(self.folder), redirect_stdout(out), redirect_stderr(err):
            status = main(arguments)
        return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """`blazes run` on what there is."""
        arguments = ("run", "clicks.yaml", "--available-now", *arguments)
        return subprocess.run(
            [sys.executable, "-m", "blazes", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    @property
    def results(self) -> dict[int, int]:
        """Campaign -> clicks, as the sink has them; each campaign at most once."""
        files = (self.folder / "target" / "clicks" / "results" / "totals").glob("*/*.json")
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert len({row["campaign"] for row in rows}) == len(rows)
        return {row["campaign"]: row["clicks"] for row in rows}


def click(campaign: int, producer: str) -> dict[str, object]:
    return {"campaign": campaign, "n": 1, "producer": producer, "sealed": False}


def seal(campaign: int, producer: str, count: int) -> dict[str, object]:
    return {"campaign": campaign, "producer": producer, "sealed": True, "count": count}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("run"))


def test_1_a_complete_partition_is_released_and_the_other_one_waits(project: Project) -> None:
    project.send("a", *[click(1, "ads-1")] * 3, seal(1, "ads-1", 3), click(2, "ads-1"))
    project.send("b", click(1, "ads-2"), seal(1, "ads-2", 1), seal(2, "ads-1", 1))
    done = project.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.results == {1: 4}
    lines = done.stdout.splitlines()
    assert any(re.match(r"Count\.counts: batches .* open 1, .*released 1", line) for line in lines)
    assert "clicks finished after" in done.stdout
    assert "totals: target/clicks/results/totals (json, 1 file" in done.stdout
    assert "campaign  clicks  total" in done.stdout
    assert "blazes report target/clicks/runs/2" in done.stdout
    assert "  start over    blazes run clicks.yaml --available-now --fresh\n" in done.stdout


def test_2_what_is_open_is_listed_with_who_is_missing(project: Project) -> None:
    listed = project.blazes("seals", "clicks.yaml", "list")
    assert listed.returncode == 0
    assert "Count.counts, sealed on campaign: 1 open, 1 released" in listed.stdout
    assert "waits for clicks: registered in ZooKeeper" in listed.stdout
    assert re.search(r"\[2\]  open for .*longer than seal_timeout, 1 records", listed.stdout)
    assert "clicks: no punctuation of ads-2" in listed.stdout
    (unit,) = json.loads(project.blazes("seals", "target/clicks", "--format=json").stdout)["units"]
    assert unit["partitions"][0]["missing"] == {"clicks": ["ads-2"]}


def test_3_producer_sets_are_in_zookeeper_and_frozen(project: Project) -> None:
    listed = project.blazes("seals", "clicks.yaml", "registered")
    assert listed.stdout.splitlines() == [
        "clicks: 2 partitions",
        "  [1]  ads-1, ads-2  (frozen)",
        "  [2]  ads-1, ads-2  (frozen)",
    ]
    late = ["--stream", "clicks", "--key", "2", "--producer", "ads-9"]
    refused = project.blazes("seals", "clicks.yaml", "register", *late, "--replace")
    assert refused.returncode == 2
    assert "ads-9 would be new" in refused.stderr
    more = ["--stream", "clicks", "--key", "3", "--producer", "ads-1"]
    assert "1 registered" in project.blazes("seals", "clicks.yaml", "register", *more).stdout
    assert (
        "0 registered, 1 were" in project.blazes("seals", "clicks.yaml", "register", *more).stdout
    )


def test_4_only_who_is_waited_for_can_be_excused(project: Project) -> None:
    excuse = ["seals", "clicks.yaml", "excuse", "--reason", "its machine burned down"]
    for wrong, message in (
        (["--key", "7", "--producer", "ads-2"], "no open partition [7]"),
        (["--key", "2", "--producer", "ads-1"], "[2] does not wait for ads-1"),
        (["--key", "2"], "excuse needs --producer"),
        (
            ["--key", "2", "--producer", "ads-2", "--unit", "Count.count"],
            "did you mean Count.counts?",
        ),
    ):
        refused = project.blazes(*excuse, *wrong)
        assert refused.returncode == 2
        assert message in refused.stderr
    done = project.blazes(*excuse, "--key", "2", "--producer", "ads-2", "--by", "kim")
    assert done.stdout == "Count.counts: [2] no longer waits for ads-2 (clicks)\n"


def test_5_the_next_run_goes_on_without_the_excused_and_keeps_what_is_late(
    project: Project,
) -> None:
    project.send("c", click(1, "ads-1"), click(1, "ads-2"))
    done = project.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert project.results == {1: 4, 2: 1}
    assert "producer excused  Count.counts  stream=clicks, producer=ads-2" in done.stdout
    assert "late data  Count.counts" in done.stdout
    assert "dead letters  2: blazes dead-letters target/clicks" in done.stdout
    counted = project.blazes("dead-letters", "clicks.yaml")
    assert "2  Count.counts  clicks  late: its partition had been released (SE-5)" in counted.stdout
    report = project.blazes("report", "clicks.yaml", "--format", "json")
    hints = json.loads(report.stdout)["hints"]
    assert [(hint["metric"], hint["value"]) for hint in hints] == [
        ("dead_letters", 2),
        ("late_records", 2),
    ]
    assert "0 open, 2 released" in project.blazes("seals", "clicks.yaml").stdout
    taken = project.folder / "target/clicks/state/decisions/Count.counts/taken"
    (record,) = [json.loads(file.read_text()) for file in taken.glob("*.json")]
    assert (record["by"], record["reason"]) == ("kim", "its machine burned down")


def test_6_another_plan_does_not_touch_the_state(project: Project) -> None:
    file = project.folder / "clicks.yaml"
    file.write_text(FLOW.replace("n: INT", "n: STRING"), encoding="utf-8")
    try:
        refused = project.run()
    finally:
        file.write_text(FLOW, encoding="utf-8")
    assert refused.returncode == 1
    assert "--fresh" in refused.stderr, refused.stderr
    assert "source clicks: another schema (campaign, n)" in refused.stderr, refused.stderr
    assert project.results == {1: 4, 2: 1}


def test_7_ctrl_c_stops_the_job_and_the_terminal_shows_it(tmp_path: Path) -> None:
    project = Project(tmp_path)
    project.send("a", *[click(1, "ads-1")] * 3, seal(1, "ads-1", 3), seal(2, "ads-1", 0))
    with Screen(project) as screen:
        screen.until("ads-2 (2)")
        project.send("b", click(2, "ads-2"), seal(2, "ads-2", 1), seal(1, "ads-2", 0))
        while project.results != {1: 3, 2: 1}:
            screen.read(0.5)
        screen.press("\x03")
        assert screen.end() == 0, screen.text
    assert re.search(r"clicks\S*\s+\S*running, ", screen.text)
    assert "Ctrl-C again kills the job" in screen.text
    assert re.search(r"clicks\S*\s+\S*stopping, ", screen.text)
    assert "clicks stopped after" in screen.text


def test_8_a_missing_input_is_a_failure_with_the_remedy(project: Project) -> None:
    (project.folder / "data" / "clicks").rename(project.folder / "data" / "elsewhere")
    failed = project.run("--fresh")
    assert failed.returncode == 1
    assert "clicks failed (exit status 1)" in failed.stdout
    assert "relative paths start at the folder of the dataflow file" in failed.stdout
    assert "target/clicks/runs/" in failed.stdout


class Screen:
    """The command in a terminal of 100 columns; killed at the end where it still runs."""

    def __init__(self, project: Project) -> None:
        self.text = ""
        self._end = time.monotonic() + 600
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(project.folder)
            os.environ.update(TERM="xterm", COLUMNS="100", LINES="30")
            os.execv(sys.executable, [sys.executable, "-m", "blazes", "run", "clicks.yaml"])

    def read(self, seconds: float) -> bool:
        """Read what is printed; False once the terminal is closed."""
        assert time.monotonic() < self._end, self.text[-3000:]
        if select.select([self._terminal], [], [], seconds)[0]:
            try:
                self.text += os.read(self._terminal, 65536).decode(errors="replace")
            except OSError:
                return False
        return True

    def until(self, part: str) -> None:
        while part not in self.text:
            assert self.read(0.5), self.text[-3000:]

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def end(self) -> int:
        while self.read(0.5):
            pass
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._terminal)
        with contextlib.suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
