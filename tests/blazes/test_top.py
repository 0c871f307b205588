"""`blazes top`, the HTML report and the dashboard of a run with a Flux stage."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from blazes.cli import main
from blazes.cli.dashboard import COLUMNS, dashboard
from flux_runtime.observe.exposition import exposition
from flux_runtime.observe.metrics import METRICS
from flux_runtime.observe.reader import Run, Sample
from flux_runtime.observe.stages import Site, Stage

sys.path.insert(0, str(Path(__file__).parents[1] / "flux_runtime"))

from flux_run import append, write_run

from blazes.cli.run_charts import run_charts
from blazes.document import html
from blazes.document.blocks import Charts, Document
from flux_runtime.observe.reader import read_history, read_run
from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.observe.stages import site_history, stage_history


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "target" / "sessions" / "runs" / "20260101-000000"
    folder.mkdir(parents=True)
    return write_run(folder)


def shown(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main([*map(str, arguments)]) == 0
    return capsys.readouterr().out


def test_a_screen_shows_sites_copies_and_what_failed(
    run_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    screen = shown(capsys, "top", run_folder, "--once")
    words = [" ".join(line.split()) for line in screen.splitlines()]
    assert "Flux stage sessions whole" in words
    assert "failures: 1, recoveries: 1, the last in 400 ms, moves: 1" in words
    assert any(line.startswith("2 vm 2 4713 500") and line.endswith("A0s") for line in words)
    assert any("p50 12 ms" in line for line in words)
    assert any(line.endswith("site failed sessions site=1.x, number=1, why=closed")
               for line in words)  # fmt: skip


def test_a_copy_that_catches_up_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = json.loads(shown(capsys, "top", write_run(tmp_path, whole=False), "--json"))
    stage = known["stages"]["sessions"]
    assert stage["state"] == "0 partitions with one copy, 1 copies catching up"
    assert stage["partitions"][0]["copies"][1] == {"site": 2, "status": "standby"}
    assert stage["sites"][1]["copies"] == ["A0s~"]


def test_the_newest_run_is_shown_where_none_is_named(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = run_folder.parents[2]
    newer = target / "other" / "runs" / "20260102-000000"
    with RunFolder.at(newer) as run:
        run.metrics("Count.counts", batches=3, rows_in=10, dead_letters=2)
        run.finish({"status": "finished"})
    known = json.loads(shown(capsys, "top", "--json", "--target-dir", target))
    assert (known["dataflow"], known["state"]) == ("other", "finished")
    assert known["units"]["Count.counts"]["dead_letters"] == 2


def test_a_job_that_was_killed_is_not_called_running(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    none = 1 << 22  # above every process number of Linux
    append(run_folder / "events.jsonl", {"t": 1.0, "kind": "job_started", "pid": none})
    (run_folder / "events.jsonl").write_text(
        (run_folder / "events.jsonl").read_text().replace('"pid": 1}', f'"pid": {none}}}')
    )
    known = json.loads(shown(capsys, "top", run_folder, "--json"))
    assert known["state"] == "ended without a word (killed?)"


def test_nothing_has_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--target-dir", str(tmp_path)]) == 2
    assert "nothing has run" in capsys.readouterr().err


def test_top_and_report_give_the_same_numbers_to_prometheus(
    run_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = shown(capsys, "top", run_folder, "--prometheus")
    assert one == shown(capsys, "report", run_folder, "--format", "prometheus")
    assert 'blazes_flux_sites{stage="sessions"} 2' in one.splitlines()


class Links(HTMLParser):
    """Everything that a page would fetch, and whether its elements are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.svg = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [v or "" for name, v in attrs if name in ("href", "src")]
        self.svg += tag == "svg"

    def handle_endtag(self, tag: str) -> None:
        self.svg -= tag == "svg"


def test_the_page_needs_nothing_from_outside_and_marks_the_failure(
    run_folder: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    letters = tmp_path / "state" / "dead_letters" / "Count.counts"
    letters.mkdir(parents=True)
    record = {"stream": "<clicks>", "unit": "Count.counts", "reason": "late", "time": 1.0,
              "record": {}}  # fmt: skip
    append(letters / "0.jsonl", record)
    (run_folder / "dead_letters").symlink_to(letters.parent)
    page = tmp_path / "report.html"
    shown(capsys, "report", run_folder, "-o", page)
    text = page.read_text()
    links = Links()
    links.feed(text)
    assert (links.found, links.svg) == ([], 0)
    assert "site 1 failed" in text
    assert '<td>Count.counts</td><td>late</td><td class="right">1</td>' in text
    assert "<clicks>" not in text


def charts_of(folder: Path) -> list[Charts]:
    histories = read_history(folder), stage_history(folder), site_history(folder)
    return run_charts(read_run(folder).events, *histories)


def test_the_charts_mark_failure_and_recovery(tmp_path: Path) -> None:
    stage, places = (html.page(Document("run", (each,))) for each in charts_of(write_run(tmp_path)))
    assert "site 1 failed" in stage
    assert "whole again in 400 ms" in stage
    assert {"A0p", "A0s"} <= set(places.replace("<", ">").split(">"))


def test_there_is_nothing_to_draw_of_an_empty_run(tmp_path: Path) -> None:
    assert charts_of(tmp_path) == []


def test_every_metric_that_a_job_serves_has_a_panel() -> None:
    values = {name: 1.0 if metric.label is None else {"x": 1.0} for name, metric in METRICS.items()}
    site = Site(number=1, id="a", host="h", executor="e", report={"busy": 0.5})
    stage = Stage(
        name="s", t=0.0, values={}, latency_ms={"0.5": 1.0}, whole=True, sites=(site,), copies=(),
        failures=0, moves=0, recoveries=0, recoveries_s=(), losses=0,
    )  # fmt: skip
    run = Run(Path(), {"u": Sample(0.0, "u", None, values)}, (), None, None)
    text = exposition(run, {"s": stage})
    served = set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))
    queries = [t["expr"] for panel in dashboard()["panels"] for t in panel.get("targets", [])]
    shown = {name for query in queries for name in re.findall(r"\bblazes_\w+", query)}
    assert shown == served
    labels = {
        name: set(re.findall(r'(\w+)="', line))
        for line in text.splitlines()
        for name in re.findall(r"^(\w+)\{", line)
    }
    for query in queries:
        (name,) = re.findall(r"\bblazes_\w+", query)
        by = set(re.findall(r"by \((.*?)\)", query)[0].split(", "))
        assert by <= labels[name] | {"job", "instance"}, query


def test_no_two_panels_lie_on_each_other() -> None:
    taken = set()
    for panel in dashboard()["panels"]:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= COLUMNS
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not taken & cells, panel["title"]
        taken |= cells


def test_it_is_printed_without_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--grafana"]) == 0
    assert json.loads(capsys.readouterr().out) == dashboard()
