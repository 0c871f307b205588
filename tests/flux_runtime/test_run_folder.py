"""The run folder, of Flux stages too: written by many threads, read while it grows, torn."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import textwrap
import threading
import time
import urllib.error
import urllib.request
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from blazes.report.live import unsaid
from flux_runtime.observe import run_folder
from flux_runtime.observe.exposition import Exposition, serving
from flux_runtime.observe.metrics import METRICS, prometheus_text
from flux_runtime.observe.reader import Follower, latest_run, read_history, read_run
from flux_runtime.observe.run_folder import (
    SITES_FILE,
    STAGES_FILE,
    RunFolder,
    replace_link,
)
from flux_runtime.observe.stages import StagesFollower, read_stages
from flux_runtime.observe.thinned import MAX_BYTES
from flux_runtime.spark.main import _python_log
from tests.flux_runtime.flux_run import STAGE, STARTED, append, report, stage_line, write_run

NOON = datetime(2026, 2, 3, 12, 0, 0)


def lines(file: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def test_a_folder_is_named_after_the_time_and_is_the_latest(tmp_path: Path) -> None:
    first = RunFolder.create(tmp_path / "runs", now=NOON)
    assert first.path == tmp_path / "runs" / "20260203-120000"
    assert (tmp_path / "runs" / "latest").resolve() == first.path.resolve()
    assert (tmp_path / "runs" / "latest").readlink() == Path(first.path.name), (
        "movable with the folder"
    )
    assert latest_run(tmp_path) == first.path.resolve()


def test_two_runs_in_one_second_have_two_folders(tmp_path: Path) -> None:
    names = [RunFolder.create(tmp_path, now=NOON).path.name for _ in range(3)]
    assert names == ["20260203-120000", "20260203-120000-2", "20260203-120000-3"]
    assert (tmp_path / "latest").readlink() == Path(names[-1])


def test_many_at_once_have_a_folder_each(tmp_path: Path) -> None:
    found: list[Path] = []

    def create() -> None:
        found.append(RunFolder.create(tmp_path, now=NOON).path)

    threads = [threading.Thread(target=create) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 16
    assert (tmp_path / "latest").resolve().is_dir()
    assert not [file for file in tmp_path.iterdir() if file.name.startswith(".")]


def test_plan_and_links_are_part_of_the_folder(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text('{"dataflow": "wordcount"}', encoding="utf-8")
    results = tmp_path / "results"
    results.mkdir()
    run = RunFolder.create(tmp_path / "runs", plan, links={"results": results})
    assert (run.path / "results").resolve() == results
    assert read_run(run.path).plan == {"dataflow": "wordcount"}
    again = RunFolder.at(run.path, run.path / "plan.json", links={"results": results})
    assert read_run(again.path).plan == {"dataflow": "wordcount"}


def test_the_link_is_replaced_in_one_step(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    link = tmp_path / "latest"
    replace_link(link, Path("a"))
    stop = threading.Event()
    missing: list[str] = []

    def look() -> None:
        while not stop.is_set():
            try:
                link.readlink()
            except OSError as gone:
                missing.append(str(gone))

    looking = threading.Thread(target=look)
    looking.start()
    for turn in range(300):
        replace_link(link, Path("ab"[turn % 2]))
    stop.set()
    looking.join()
    assert not missing


def test_events_are_there_at_once(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    run.event("job_started", app="wordcount")
    run.event("seal_timeout", "Count.counts", key=["7", None], missing=["p1"], age_s=601.5)
    first, second = read_run(run.path).events
    assert (first.kind, first.unit, first.fields) == ("job_started", None, {"app": "wordcount"})
    assert second.unit == "Count.counts"
    assert second.fields["key"] == ["7", None]
    assert abs(second.t - time.time()) < 60


def test_metrics_are_throttled_and_the_last_value_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    period_s = 0.2
    monkeypatch.setattr(run_folder, "METRICS_PERIOD_S", period_s)
    run = RunFolder.create(tmp_path)
    started = time.monotonic()
    number = 0
    while time.monotonic() - started < 2.5 * period_s:
        number += 1
        run.metrics("Count.counts", stage="count", batches=number)
        run.metrics("Other.out", batches=-number)
        time.sleep(0.001)
    for unit, last in (("Count.counts", number), ("Other.out", -number)):
        while True:  # without any further call, and without finish
            written = [line for line in lines(run.path / "metrics.jsonl") if line["unit"] == unit]
            lasted_s = time.monotonic() - started
            if written[-1]["batches"] == last:
                break
            assert lasted_s < 60
            time.sleep(0.01)
        assert 2 <= len(written) <= 2 + lasted_s / period_s
    assert read_run(run.path).units["Count.counts"].stage == "count"


def test_values_that_are_not_given_stay(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    run.metrics("u", rows_in=5, votes_missing={"p1": 2, "p2": 1})
    run.metrics("u", open_partitions=3)
    run.metrics("u", votes_missing={"p2": 1})
    run.finish({})
    values = read_run(run.path).units["u"].values
    assert values == {"rows_in": 5, "votes_missing": {"p2": 1}, "open_partitions": 3}


def test_a_metric_that_nobody_described_is_refused(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    with pytest.raises(ValueError, match=r"rows, votes_missing \(expected a number for each prod"):
        run.metrics("u", rows=1, votes_missing=3)


def test_the_summary_has_the_last_metrics_and_the_duration(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    run.metrics("u", batches=1)
    run.metrics("u", batches=2)
    run.finish({"status": "finished"})
    run.metrics("u", batches=3)  # a listener that was slow
    read = read_run(run.path)
    assert read.summary is not None
    assert read.summary["status"] == "finished"
    assert read.summary["units"] == {"u": {"batches": 2}}
    assert read.summary["wall_s"] >= 0
    assert read.units["u"].values["batches"] == 3
    assert [sample.values["batches"] for sample in read_history(run.path)] == [1, 2, 3]


def test_closing_without_a_summary_still_writes_the_last_metrics(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path) as run:
        run.metrics("u", batches=1)
        run.metrics("u", batches=2)
    read = read_run(run.path)
    assert read.summary is None
    assert read.units["u"].values["batches"] == 2


def test_a_full_disk_is_told_to_who_writes_and_to_nobody_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unhandled: list[object] = []
    monkeypatch.setattr(threading, "excepthook", unhandled.append)
    with RunFolder.at(tmp_path / "run") as run, _python_log(Path("/dev/full")):
        run.metrics("u", rows_in=1)
        (run.path / "metrics.jsonl").unlink()
        (run.path / "metrics.jsonl").symlink_to("/dev/full")
        run.metrics("u", rows_in=2)  # the writer's thread meets it
        writers = [t for t in threading.enumerate() if t.name == "run-folder"]
        for writer in writers:
            writer.join()
        with pytest.raises(OSError, match="No space left"):
            run.metrics("u", rows_in=3)
        logging.getLogger("job").error("it failed")
    assert writers
    assert not unhandled
    assert capsys.readouterr().err == ""


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)

    def work(number: int) -> None:
        for turn in range(200):
            run.event("step", f"unit {number}", turn=turn, text="x" * 200)
            run.metrics(f"unit {number}", batches=turn)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish({})
    read = read_run(run.path)
    assert len(lines(run.path / "events.jsonl")) == len(read.events) == 1600
    assert {sample.values["batches"] for sample in read.units.values()} == {199}


WRITER = """
    import sys
    from pathlib import Path
    from flux_runtime.observe.run_folder import RunFolder
    run = RunFolder.at(Path(sys.argv[1]))
    number = 0
    while True:
        number += 1
        run.event("step", number=number)
        print(number, flush=True)
"""


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    command = [sys.executable, "-c", textwrap.dedent(WRITER), str(tmp_path / "run")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        while int(writer.stdout.readline()) < 500:
            pass
        writer.send_signal(signal.SIGKILL)
    numbers = [event.fields["number"] for event in read_run(tmp_path / "run").events]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 500


def test_files_stay_small_and_say_how_much_there_was(tmp_path: Path) -> None:
    run = RunFolder.at(tmp_path)
    follower = Follower(tmp_path)
    stages = StagesFollower(tmp_path)
    append_stage(tmp_path / "stages.jsonl")
    run.event("job_started", pid=7)
    run.event("data_loss", "Count.counts", why="once, and long ago")
    said: list[Any] = []
    last = None
    for number in range(6000):
        run.event("site_failed", "Count.counts", number=number, why="x" * 1500)
        if number % 500 == 0:
            events = follower.poll().events
            said += unsaid(events, last)
            last = events[-1]
    run.event("job_stopped")
    for read in (follower.poll(), read_run(tmp_path)):
        assert (tmp_path / "events.jsonl").stat().st_size < MAX_BYTES + 2000
        assert len(read.events) < 3000
        assert read.counts == {
            "job_started": 1,
            "data_loss": 1,
            "site_failed": 6000,
            "job_stopped": 1,
        }
        assert read.events[0].fields == {"pid": 7}
        assert read.events[1].kind == "data_loss"
        assert read.events[-1].kind == "job_stopped"
        numbers = [e.fields["number"] for e in read.events if e.kind == "site_failed"]
        assert numbers[-500:] == list(range(5500, 6000)), "the newest are complete"
        assert stages.poll(read)["Count.counts"].failures == 6000
    said += unsaid(follower.poll().events, last)
    failures = [event.fields["number"] for event in said if event.kind == "site_failed"]
    assert failures == list(range(6000)), "every event is said once"


def append_stage(file: Path) -> None:
    line = {"t": 1.0, "stage": "Count.counts", "sites": [], "copies": []}
    file.write_text(json.dumps(line) + "\n", encoding="utf-8")


def test_metrics_stay_small_and_the_last_of_every_unit_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "METRICS_PERIOD_S", 0.0)
    run = RunFolder.at(tmp_path)
    run.metrics("Early.out", batches=3)
    many = {f"producer {number}": number for number in range(100)}
    for number in range(4000):
        run.metrics("Count.counts", batches=number, votes_missing=many)
    run.close()
    assert (tmp_path / "metrics.jsonl").stat().st_size < MAX_BYTES + 4000
    units = read_run(tmp_path).units
    assert units["Early.out"].values == {"batches": 3}
    assert units["Count.counts"].values["batches"] == 3999
    seen = [s.values["batches"] for s in read_history(tmp_path) if s.unit == "Count.counts"]
    assert seen[0] == 0
    assert seen == sorted(seen)
    assert len(seen) < 3000


def test_half_a_line_is_tolerated_and_not_continued(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    run.event("one")
    with (run.path / "events.jsonl").open("a", encoding="utf-8") as torn:
        torn.write('{"t": 1, "kind": "tw')
    follower = Follower(run.path)
    assert [event.kind for event in follower.poll().events] == ["one"]
    RunFolder.at(run.path).event("three")
    assert [event.kind for event in follower.poll().events] == ["one", "three"]
    assert [event.kind for event in read_run(run.path).events] == ["one", "three"]


def test_a_follower_sees_a_line_when_its_end_has_come(tmp_path: Path) -> None:
    follower = Follower(tmp_path / "run")
    assert follower.poll().units == {}
    run = RunFolder.at(tmp_path / "run")
    file = run.path / "metrics.jsonl"
    line = '{"t": 1.5, "unit": "ü", "batches": 4}\n'.encode()
    for part in (line[:20], line[20:21], line[21:]):
        with file.open("ab") as out:
            out.write(part)
        seen = follower.poll().units
    assert seen["ü"].values == {"batches": 4}
    assert seen["ü"].t == 1.5


def test_lines_that_are_none_of_ours_are_skipped(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    with (run.path / "metrics.jsonl").open("a", encoding="utf-8") as out:
        out.write('[]\nnull\n{"t": 1}\n\n{"unit": "u", "t": "x", "unknown": 1, "batches": 2}\n')
    (run.path / "summary.json").write_text("{", encoding="utf-8")
    read = read_run(run.path)
    assert read.units["u"].values == {"batches": 2}
    assert read.summary is None


def test_no_run_at_all(tmp_path: Path) -> None:
    assert latest_run(tmp_path) is None
    read = read_run(tmp_path / "gone")
    assert (read.units, read.events, read.summary, read.started) == ({}, (), None, None)


def test_totals_and_start(tmp_path: Path) -> None:
    run = RunFolder.create(tmp_path)
    run.metrics("a", rows_in=2)
    run.metrics("b", rows_in=3, votes_missing={"p": 1})
    read = read_run(run.path)
    assert read.total("rows_in") == 5
    assert read.total("votes_missing") == 0
    assert read.started is not None


def test_every_metric_of_the_specification_is_described() -> None:
    section_4 = """open_partitions oldest_open_partition_s late_records dead_letters
        quarantined_partitions seal_wait_s votes_missing order_places order_lag
        zookeeper_session_losses batches rows_in rows_out rows_per_s released_partitions"""
    assert set(section_4.split()) <= set(METRICS)
    for metric in METRICS.values():
        assert metric.help.endswith(".")
        assert metric.runbook.endswith(".")
        assert metric.unit


def test_prometheus_text_has_labels_and_escapes() -> None:
    text = prometheus_text({'a"b': {"votes_missing": {"p\\1": 2}, "batches": 7}})
    assert 'blazes_votes_missing{unit="a\\"b",producer="p\\\\1"} 2\n' in text
    assert "# TYPE blazes_batches counter\n" in text


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
