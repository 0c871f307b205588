"""Addresses at which a job cannot keep its state or its results: refused before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotations.file import loads
from codegen import ends
from flux_runtime.spark import Job, main
from flux_runtime.spark.ends import sinks

DATAFLOW = """
components:
  Keep: {annotation: {from: in, to: kept, label: CR}}
streams:
  in: {to: Keep.in, schema: {k: INT}, source: {format: json, path: x}}
  files: {from: Keep.kept, sink: {format: json}}
  default: {from: Keep.kept}
  table: {from: Keep.kept, sink: {format: delta, path: out}}
  rows: {from: Keep.kept, sink: {format: jdbc, options: {url: "jdbc:derby:x", dbtable: t}}}
"""


@pytest.mark.parametrize(
    ("option", "address"),
    [
        *((option, "s3a://bucket/x") for option in ("--data-dir", "--run-dir", "--root")),
        *(("--state-dir", address) for address in ("hdfs://host/state", "dbfs:/state", "wasb://x")),
    ],
)
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


def test_compiler_and_job_name_the_same_sinks_that_a_fresh_start_cannot_empty(
    tmp_path: Path,
) -> None:
    job = Job(root=tmp_path, results=tmp_path / "results")
    items = job.source("in", format="json", path="x", schema="k INT")
    job.sink("files", [items], format="json")
    job.sink("table", [items], format="delta", path="out")
    job.sink("rows", [items], format="jdbc", options={"url": "jdbc:derby:x", "dbtable": "t"})
    names = [name for name, sink in job.sinks.items() if sink.folders is None]
    dataflow, _ = loads(DATAFLOW)
    assert names == ends.kept_by_fresh(dataflow.streams.values()) == ["table", "rows"]


def test_a_name_in_a_catalog_of_iceberg_is_no_folder(tmp_path: Path) -> None:
    job = Job(root=tmp_path, results=tmp_path / "results")
    items = job.source("in", format="iceberg", path="gold.x", schema="k INT")
    job.sink("named", [items], format="iceberg", path="gold.y")
    job.sink("folder", [items], format="iceberg", path="lake/gold.y")
    paths = [job.sources["in"].path, *(sink.path for sink in job.sinks.values())]
    assert paths == ["gold.x", "gold.y", str(tmp_path / "lake/gold.y")]


def test_compiler_and_job_know_the_same_stores() -> None:
    assert ("file", *ends.DELTA_STORES) == sinks.DELTA_STORES
