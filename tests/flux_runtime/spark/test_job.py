"""What a job refuses of what its author declares, what it keeps, and references to secrets."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from flux_runtime.secrets import HIDDEN, RedactingFormatter, redacted, resolved
from flux_runtime.spark import Job, Producers, Punctuation, main
from flux_runtime.spark.ends.source import Source
from flux_runtime.spark.units import SealUnit


def passed_on(click: Any) -> Any:
    return click


def declared(**options: Any) -> SealUnit:
    job = Job(root=Path(), results=Path("results"))
    clicks = job.source(
        "clicks",
        format="json",
        path="clicks",
        schema="id BIGINT, sealed BOOLEAN, n BIGINT",
        punctuation=Punctuation(when="sealed", count="n"),
        id=["id"],
    )
    producers = {"clicks": Producers.one()}
    job.seal("C", passed_on, waits={"click": [clicks]}, key=["id"], producers=producers, **options)
    unit = job.units["C"]
    assert isinstance(unit, SealUnit)
    return unit


def test_released_partitions_are_remembered_for_ever_or_as_long_as_is_said() -> None:
    assert declared().remember_s is None
    assert declared(remember_s=604800.0).remember_s == 604800.0
    with pytest.raises(ValueError, match=r"C: remember_s is at least 0, not -1"):
        declared(remember_s=-1)


def test_a_gate_finds_the_ids_at_the_sources_that_it_waits_for() -> None:
    (origin,) = declared().waiting().values()
    assert isinstance(origin, Source)
    assert origin.id == ("id",)


def test_ids_are_forgotten_only_where_it_is_known_when_a_record_came() -> None:
    job = Job(root=Path(), results=Path("results"))
    topic = job.source("topic", format="kafka")
    with pytest.raises(ValueError, match="only sources of files tell; topic is none"):
        job.native("C", passed_on, inputs={"click": [topic]}, repeat_within="1 hour")


@pytest.mark.spark
def test_an_id_that_the_records_do_not_have_is_refused(bench: Any) -> None:
    bench.file("clicks", [{"id": 1, "word": "a"}])
    path = str(bench.path / "data" / "clicks")
    for ddl in ("id BIGINT, word STRING", None):
        known = Source(name="clicks", format="json", path=path, ddl=ddl, id=("id", "word"))
        assert known.schema(bench.session).fieldNames() == ["id", "word"]
        unknown = Source(name="clicks", format="json", path=path, ddl=ddl, id=("word", "nr"))
        with pytest.raises(ValueError, match="clicks: its records are identified by nr, which"):
            unknown.schema(bench.session)


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
