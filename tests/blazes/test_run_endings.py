"""What `blazes run` says at the end of a run, from run folders and results on disk."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from annotations.dataflow import Dataflow, Endpoint, External, Stream
from blazes.cli import main
from blazes.cli.run import Ended, configure, tell
from flux_runtime.observe.ending import FAIL_ON
from flux_runtime.observe.reader import read_run
from flux_runtime.observe.run_folder import RunFolder

COUNTS = Endpoint("Count", "counts")


def dataflow(*sinks: Stream) -> Dataflow:
    return Dataflow(name="wordcount", components={}, streams={s.name: s for s in sinks})


def told(
    folder: RunFolder,
    project: Path,
    *,
    status: int,
    flow: Dataflow | None = None,
    log: tuple[str, ...] = (),
    interrupted: bool = False,
    **options: object,
) -> str:
    given = {"file": "my flow.yaml", "variant": [], "target_dir": "target", "master": None}
    arguments = argparse.Namespace(
        **{**given, "zookeeper": None, "available_now": False, "fail_on": (), **options}
    )
    ended = Ended(status, read_run(folder.path), 75.0, folder.log_path, log, interrupted)
    return "\n".join(tell(arguments, flow or dataflow(), project, ended))


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    run = RunFolder.create(tmp_path / "runs")
    run.metrics("Count.counts", batches=3, rows_in=1200, dead_letters=0)
    return run


def test_the_end_of_a_run_that_went_well(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    results = tmp_path / "results" / "db"
    results.mkdir(parents=True)
    (results / "part.json").write_text('{"word": "a", "n": 1}\n', encoding="utf-8")
    run.finish({"status": "finished"})
    flow = dataflow(
        Stream("db", COUNTS, None, sink=External("json")),
        Stream("bus", COUNTS, None, sink=External("kafka")),
        Stream("inner", COUNTS, Endpoint("Commit", "counts")),
    )
    text = told(run, tmp_path, status=0, flow=flow, variant=["A=B"], available_now=True)
    lines = text.splitlines()
    assert lines[1] == "wordcount finished after 1m15s: 3 batches, 1200 rows read"
    assert "  db: results/db (json, 1 file, 22B)" in lines
    assert "    word  n" in lines
    assert "  bus: kafka" in lines
    assert "inner" not in text
    assert "dead letters" not in text
    again = "blazes run 'my flow.yaml' --variant A=B --available-now"
    assert lines[-2:] == [f"  go on         {again}", f"  start over    {again} --fresh"]


def test_dead_letters_are_pointed_to(run: RunFolder, tmp_path: Path) -> None:
    run.metrics("Count.counts", dead_letters=2)
    run.finish({"status": "stopped"})
    text = told(run, tmp_path, status=0)
    assert "wordcount stopped after" in text
    assert f"dead letters  2: blazes dead-letters {tmp_path}" in text


LEFT = {
    "open_partitions": 2,
    "dead_letters": 3,
    "late_records": 1,
    "quarantined_partitions": 1,
    "oldest": {
        "unit": "Count.counts",
        "age_s": 62.3,
        "key": ["7", "eu"],
        "waits_for": ["clicks: no punctuation of ads-2"],
    },
}


def test_what_a_run_leaves_is_its_last_line(run: RunFolder, tmp_path: Path) -> None:
    run.finish({"status": "finished", "left": LEFT, "failed_on": []})
    assert told(run, tmp_path, status=0).splitlines()[-1] == (
        "left: 2 open partitions (the oldest: Count.counts [7, eu], open for 62 s, waits for "
        "clicks: no punctuation of ads-2), 1 in quarantine, 3 dead letters (1 late)"
    )


def test_what_it_was_to_fail_on_is_said_with_the_results(run: RunFolder, tmp_path: Path) -> None:
    run.finish({"status": "finished", "left": {"late_records": 1, "dead_letters": 1},
                "failed_on": ["late"]})  # fmt: skip
    text = told(run, tmp_path, status=3, fail_on=("open", "late"))
    assert "wordcount finished after" in text
    assert "  go on         blazes run 'my flow.yaml' --fail-on open,late\n" in text
    assert text.endswith("\nleft: 1 dead letter (1 late); exit status 3 because of --fail-on late")


def test_the_words_of_fail_on() -> None:
    parser = argparse.ArgumentParser()
    configure(parser)
    assert parser.parse_args(["f", "--fail-on", "late, open"]).fail_on == ("open", "late")
    (action,) = [a for a in parser._actions if a.dest == "fail_on"]
    assert all(word in (action.help or "") for word in FAIL_ON)


def test_a_word_of_fail_on_that_does_not_exist_is_bad_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(tmp_path / "no.yaml"), "--fail-on", "open,quarantined"]) == 2
    assert "'quarantined' is not one of open, quarantine, dead-letters, late" in (
        capsys.readouterr().err
    )


def test_the_jobs_own_error_comes_first(run: RunFolder, tmp_path: Path) -> None:
    run.finish({"status": "failed", "error": "the state belongs to another plan\nrun --fresh"})
    text = told(run, tmp_path, status=1, log=("noise",))
    assert text.splitlines()[1:4] == [
        "wordcount failed (exit status 1)",
        "  the state belongs to another plan",
        "  run --fresh",
    ]
    assert "noise" not in text
    assert "go on" not in text


def test_without_an_error_the_end_of_the_log_is_shown(run: RunFolder, tmp_path: Path) -> None:
    log = (*(f"line {n}" for n in range(30)), "java.lang.OutOfMemoryError: \x1b[31mheap")
    text = told(run, tmp_path, status=1, log=log)
    assert "    line 29" in text
    assert "line 3\n" not in text
    assert "\\x1b[31mheap" in text
    assert "give the driver more" in text


@pytest.mark.parametrize(
    ("status", "says"), [(137, "wordcount was killed"), (1, "wordcount was interrupted")]
)
def test_what_the_user_did_is_no_failure(
    run: RunFolder, tmp_path: Path, status: int, says: str
) -> None:
    text = told(run, tmp_path, status=status, log=("OutOfMemoryError",), interrupted=True)
    assert says in text
    assert "failed" not in text
    assert "driver" not in text
