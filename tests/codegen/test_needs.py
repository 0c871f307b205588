"""What a job needs beside the runtime: said by the compiler, and checked on the machine."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from blazes.cli import main

DATAFLOW = """
name: needy
components:
  Keep: {annotation: {from: items, to: kept, label: CR, rows: one}, sql: SELECT * FROM items}
streams:
  items: {to: Keep.items, schema: {id: INT}, source: {format: avro, path: in}}
  table: {from: Keep.kept, sink: {format: delta, path: table}}
  topic:
    from: Keep.kept
    delivery: once
    sink: {format: kafka, options: {topic: t, kafka.bootstrap.servers: "b:1"}}
  rows:
    from: Keep.kept
    sink: {format: jdbc, options: {url: "jdbc:postgresql://db/x", dbtable: t}}
"""
GIVEN = """
deployment:
  conf:
    spark.jars.packages: org.apache.spark:spark-avro_2.13:4.3.0,org.postgresql:postgresql:42.7.4
  zookeeper: zk:2181
  zookeeper_access: {sasl: DIGEST-MD5, user: orders, password: "${env:ZK}"}
"""


def compiled(
    folder: Path, text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.chdir(folder)
    (folder / "needy.yaml").write_text(text)
    assert main(["compile", "needy.yaml"]) == 0
    said = capsys.readouterr().err.splitlines()
    return [line for line in said if line.startswith("the job needs: ")]


def test_the_compiler_says_what_to_install_and_what_to_give_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    version = importlib.metadata.version("pyspark")
    assert compiled(tmp_path, DATAFLOW, monkeypatch, capsys) == [
        "the job needs: pip install 'blazes[delta,kafka]'",
        f"the job needs: --packages org.apache.spark:spark-avro_2.13:{version},"
        "org.postgresql:postgresql:VERSION",
    ]
    readme = (tmp_path / "target" / "needy" / "README.md").read_text()
    assert "- `pip install 'blazes[kafka]'` (`topic`: topics of Kafka)" in readme
    assert main(["compile", "needy.yaml", "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["needs"]
    assert [(need["streams"], need["extra"]) for need in listed] == [
        (["items"], None), (["table"], "delta"), (["topic"], "kafka"), (["rows"], None),
    ]  # fmt: skip


def test_packages_that_the_deployment_names_are_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiled(tmp_path, DATAFLOW + GIVEN, monkeypatch, capsys) == [
        "the job needs: pip install 'blazes[delta,kafka,sasl]'"
    ]


def test_the_doctor_checks_what_a_project_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled(tmp_path, DATAFLOW, monkeypatch, capsys)
    assert main(["doctor", "target/needy"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "warn spark-avro not among Spark's jars; needed by items (avro files)"
    assert "ok   kafka      installed; needed by topic (topics of Kafka)" in said
    info = tmp_path / "old" / "deltalake-0.9.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: deltalake\nVersion: 0.9.0\n")
    for command in (["doctor", "target/needy"], ["run", "needy.yaml", "--available-now"]):
        done = subprocess.run(
            [sys.executable, "-m", "blazes", *command],
            env={**os.environ, "PYTHONPATH": str(info.parent)},
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode != 0
        assert "deltalake 0.9.0 is installed" in done.stdout + done.stderr
    assert not (tmp_path / "target" / "needy" / "runs").exists()
