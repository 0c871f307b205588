"""References to secrets; `benchmarks/sink_kills.py` looks whether whole jobs leave any behind."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from flux_runtime.secrets import HIDDEN, RedactingFormatter, redacted, resolved
from flux_runtime.spark import Job, main


def test_a_reference_gets_its_value_from_the_environment_or_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DB_USER", "shop&co")
    (tmp_path / "password").write_text("two words\n")
    options = {"url": "x://db?u=${env:DB_USER}&p=${file:password}", "other": "${spark.x} $1"}
    assert resolved(options, tmp_path, of="sink a") == {
        "url": "x://db?u=shop&co&p=two words",
        "other": "${spark.x} $1",
    }


def test_what_is_not_there_is_said_at_once(tmp_path: Path) -> None:
    job = Job(root=tmp_path, results=tmp_path)
    job.source("in", format="json", path="x", options={"a": "${env:NOT_SET_1}${env:NOT_SET_2}"})
    job.sink("out", [], format="json", options={"b": "${file:nowhere}"})
    with pytest.raises(
        ValueError, match=r"NOT_SET_1: not set[^\n]*NOT_SET_2[^\n]*\n[^\n]*nowhere: No such file"
    ):
        job.check()


def test_values_are_hidden_in_what_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A", "hunter2")
    monkeypatch.setenv("B", "hunter2-more")
    monkeypatch.setenv("C", "abc")
    resolved({"a": "${env:A}", "b": "${env:B}", "c": "${env:C}"}, tmp_path, of="x")
    assert redacted({"x": ["hunter2-more, hunter2, abc", 7]}) == {
        "x": [f"{HIDDEN}, {HIDDEN}, abc", 7]
    }
    try:
        raise RuntimeError("password hunter2 is wrong")
    except RuntimeError as error:
        info = (RuntimeError, error, error.__traceback__)
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "%s", ("hunter2",), info)
    assert "hunter2" not in RedactingFormatter().format(record)


def test_a_secret_that_is_not_there_stops_the_job_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(job: Job) -> None:
        job.source("in", format="json", path="x", options={"a": "${env:NOT_SET_1}"})

    with pytest.raises(SystemExit) as ended:
        main(build, name="x", folder=tmp_path, argv=[])
    assert ended.value.code == 1
    assert "source in: a refers to the environment variable NOT_SET_1" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
