"""What a run folder tells of Flux stages, and the numbers that Prometheus gets."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from flux_run import STAGE, STARTED, append, report, stage_line, write_run

from flux_runtime.observe.exposition import Exposition, serving
from flux_runtime.observe.reader import read_run
from flux_runtime.observe.run_folder import SITES_FILE, STAGES_FILE
from flux_runtime.observe.stages import StagesFollower, read_stages


def test_a_stage_has_the_sites_of_the_last_view_and_what_the_events_tell(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    stage = read_stages(folder, read_run(folder))[STAGE]
    assert [site.number for site in stage.sites] == [0, 2]
    assert [site.value("pid") for site in stage.sites] == [4711, 4713]
    assert [copy.site for copy in stage.copies] == [0, 2]
    assert [copy.life for copy in stage.hosted(2)] == [1]
    assert (stage.failures, stage.moves, stage.recoveries_s, stage.losses) == (1, 1, (0.4,), 0)
    assert stage.t == STARTED + 3.0
    assert stage.latency_ms["p95"] == 20.0


def test_a_follower_keeps_the_copies_until_they_change(tmp_path: Path) -> None:
    follower = StagesFollower(tmp_path)
    assert follower.poll() == {}
    copies = [[0, 0, 0, 0, 3, "ACTIVE"]]
    append(tmp_path / STAGES_FILE, stage_line(0, copies=copies))
    follower.poll()
    append(tmp_path / STAGES_FILE, stage_line(1, rows_per_s=5.0))
    append(tmp_path / SITES_FILE, report(1, 3, cpu=0.75))
    stage = follower.poll()[STAGE]
    assert [copy.site for copy in stage.copies] == [3]
    assert stage.values["rows_per_s"] == 5.0
    assert stage.sites[0].value("cpu") == 0.75


def test_lines_that_make_no_sense_are_skipped(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    for name in (STAGES_FILE, SITES_FILE):
        with (folder / name).open("a") as out:
            out.write('[1, 2]\n{"t": "soon", "stage": "sessions"}\n{"stage": 3, "t": 1}\n{"t": 1')
    assert read_stages(folder)[STAGE].t == STARTED + 3.0


def test_prometheus_gets_units_stages_and_sites(tmp_path: Path) -> None:
    text = Exposition(write_run(tmp_path)).text()
    lines = text.splitlines()
    for line in (
        'blazes_flux_rows_total{stage="sessions"} 3000',
        'blazes_flux_site_failures_total{stage="sessions"} 1',
        'blazes_flux_recoveries_total{stage="sessions"} 1',
        'blazes_flux_latency_ms{stage="sessions",quantile="p50"} 12.5',
        'blazes_flux_site_cpu_ratio{stage="sessions",site="2",host="vm"} 0.4',
        "# TYPE blazes_flux_moves_total counter",
    ):
        assert line in lines
    named = [line.split(" ")[2] for line in lines if line.startswith("# TYPE")]
    assert len(named) == len(set(named))


def test_metrics_are_served_on_loopback_only_and_only_there(tmp_path: Path) -> None:
    with serving(write_run(tmp_path), 0) as port:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            assert b"blazes_flux_rows_total" in answer.read()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/etc/passwd", timeout=60)
    with serving(tmp_path, None) as port:
        assert port is None
