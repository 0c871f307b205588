"""Addresses at which a job cannot keep its state or its results: refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from codegen import ends
from flux_runtime.spark import Job, main
from flux_runtime.spark.ends import sinks


@pytest.mark.parametrize("option", ["--state-dir", "--run-dir", "--root"])
@pytest.mark.parametrize("address", ["s3a://bucket/state", "abfss://c@a.net/x", "dbfs:/state"])
def test_a_folder_that_cannot_be_one_is_refused_before_anything_starts(
    option: str,
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(lambda job: None, name="x", folder=tmp_path, argv=[option, address])
    assert ended.value.code == 2
    assert "must be on a mounted file system" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_sinks_at_addresses_that_cannot_hold_them_are_told_together_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def build(job: Job) -> None:
        items = job.source("in", format="json", path="x", schema="k INT")
        job.sink("files", [items], format="json", path="s3a://bucket/out")
        job.sink("table", [items], format="delta", path="dbfs:/out")

    with pytest.raises(SystemExit) as ended:
        main(build, name="x", folder=tmp_path, argv=[])
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert "sink files: s3a://bucket/out: json files are committed by renaming" in said
    assert "sink table: dbfs:/out: a Delta table is a folder, or begins with s3:" in said
    assert not list(tmp_path.iterdir())


def test_compiler_and_job_know_the_same_stores() -> None:
    assert ("file", *ends.DELTA_STORES) == sinks.DELTA_STORES
