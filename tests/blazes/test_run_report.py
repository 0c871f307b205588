"""`blazes report` over run folders that the runtime's own writer has made."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import pytest

from blazes.cli import main
from blazes.document.plain import bars
from flux_runtime.observe import run_folder
from flux_runtime.observe.run_folder import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """A run with a sealed unit in trouble and one that is well."""
    project = tmp_path / "target" / "ad-network"
    project.mkdir(parents=True)
    stages = [
        {"kind": "source", "name": "clicks", "description": "reads"},
        {"kind": "seal", "name": "Report|response", "description": "holds clicks back"},
    ]
    (project / "plan.json").write_text(json.dumps({"stages": stages}), encoding="utf-8")
    run = RunFolder.create(project / "runs", project / "plan.json", now=datetime(2026, 2, 3, 12))
    run.event("job_started", app="ad-network")
    run.metrics("Cache.response", batches=3, rows_per_s=30.0)
    run.metrics(
        "Report|response",
        batches=7,
        rows_in=12_000,
        rows_out=40,
        open_partitions=3,
        dead_letters=2,
        late_records=2,
        quarantined_partitions=1,
        votes_missing={"ads-1": 3},
    )
    run.event("late_data", "Report|response", records=2, rule="SE-5")
    run.event("partition_quarantined", "Report|response", partition=["7"], rule="SE-6")
    return run


def test_the_report_says_what_to_look_at(
    run: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    run.finish({"status": "finished"})
    assert main(["report", str(run.path)]) == 0
    printed = capsys.readouterr().out
    title, lead, *_ = printed.splitlines()
    assert title == "ad-network: 20260203-120000"
    assert lead.startswith("finished, started ")
    assert ", 12k rows read" in lead
    assert "Report|response: quarantined_partitions = 1" in printed
    assert "blazes dead-letters FILE list" in printed
    assert "late data (1)" in printed
    assert "\n  Report|response: holds clicks back\n" in printed
    assert "partition=[7], rule=SE-6" in printed
    assert max(map(len, printed.splitlines())) <= 80 + 30, "event lines are cut, not wrapped"
    bad_first = [line.split(": ")[1] for line in printed.splitlines() if " = " in line]
    assert [text.split(" =")[0] for text in bad_first] == [
        "quarantined_partitions",
        "dead_letters",
        "late_records",
        "open_partitions",
    ]


def test_a_run_without_an_end(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.close()
    assert main(["report", str(run.path)]) == 0
    assert "\nwithout an end, started " in capsys.readouterr().out


def test_the_error_of_a_failed_run(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.finish({"status": "failed", "error": "everything\x1b[31m broke"})
    assert main(["report", str(run.path)]) == 0
    printed = capsys.readouterr().out
    assert "\nfailed, started " in printed
    assert "everything\\x1b[31m broke" in printed
    assert main(["report", str(run.path), "--format", "markdown"]) == 0
    assert "## Error" in capsys.readouterr().out


def test_markdown_keeps_the_table_whole(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.finish({"status": "finished"})
    assert main(["report", str(run.path), "--format", "markdown"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "# ad-network: 20260203-120000"
    rows = [line for line in lines if line.startswith("| ")]
    assert len(rows) == 4
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1
    assert "Report\\|response" in rows[3]
    assert "- Report\\|response: holds clicks back" in lines


def test_the_json_twin(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.finish({"status": "finished"})
    assert main(["report", str(run.path.parent.parent), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["state"] == "finished"
    assert report["dataflow"] == "ad-network"
    assert report["units"]["Report|response"]["votes_missing"] == {"ads-1": 3}
    assert report["events"] == {"job_started": 1, "late_data": 1, "partition_quarantined": 1}
    assert report["hints"][0]["metric"] == "quarantined_partitions"
    assert report["wall_s"] >= 0


def test_prometheus(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.close()
    assert main(["report", str(run.path), "--format", "prometheus"]) == 0
    assert 'blazes_batches{unit="Cache.response"} 3\n' in capsys.readouterr().out


def test_runs_are_listed_newest_first(run: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    run.finish({"status": "finished"})
    project = run.path.parent.parent
    RunFolder.create(project / "runs", now=datetime(2026, 2, 4)).close()
    assert main(["report", str(project), "--list"]) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert "20260204-000000  without an end" in first
    assert "20260203-120000  finished" in second
    assert main(["report", str(project)]) == 0
    assert "0 rows read" in capsys.readouterr().out, "the newest run is the one that is shown"


def test_nothing_has_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path)]) == 2
    assert "neither the folder of a run nor" in capsys.readouterr().err
    (tmp_path / "plan.json").write_text("{}", encoding="utf-8")
    assert main(["report", str(tmp_path)]) == 2
    assert "nothing has run" in capsys.readouterr().err
    assert main(["report", str(tmp_path), "--list"]) == 0
    assert capsys.readouterr().out == "No runs.\n"


def test_bars_of_a_long_series_are_means() -> None:
    assert bars([0.0, 0.0], 1) == "▁"
    assert len(bars([float(n) for n in range(1000)])) == 40
    assert bars([]) == ""
    assert bars([1.0] * 100) == "█" * 40


def test_the_rates_of_a_run_are_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "METRICS_PERIOD_S", 0.0)
    run = RunFolder.create(tmp_path / "runs")
    for number in range(4):
        run.metrics("Cache.response", rows_per_s=number * 10.0)
    run.close()
    assert main(["report", str(run.path)]) == 0
    assert "Cache.response  ▁▃▆█" in capsys.readouterr().out
