"""The dashboard: a panel for every metric that jobs serve, and none for one that they do not."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from blazes.cli import main
from blazes.cli.dashboard import COLUMNS, dashboard
from flux_runtime.observe.exposition import exposition
from flux_runtime.observe.metrics import METRICS
from flux_runtime.observe.reader import Run, Sample
from flux_runtime.observe.stages import Site, Stage


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
