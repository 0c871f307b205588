"""`blazes compile --check-with-spark`: what Spark's analyser says stands at the code's line."""

from __future__ import annotations

from pathlib import Path

import pytest

from blazes.cli import main

pytestmark = pytest.mark.spark

WRONG = """\
components:
  Parse:
    annotation: {from: raw, to: parsed, label: CR}
    sql: |
      SELECT ad,
             n AS number,
             tags + 1 AS more FROM raw
  Count:
    annotation: {from: other, to: counts, label: "OW[ad]"}
    sql: SELECT ad, sum(number) AS n, array_max(ad) AS x FROM other GROUP BY ad
streams:
  raw:
    to: Parse.raw
    schema: {ad: int, n: int, tags: "array<int>"}
    source: {format: json, path: data}
    seal: [ad]
    punctuation: {when: n, count: n}
    producers: one
  more: {to: Count.other, schema: {ad: int, number: int}, source: {format: json, path: more}}
  parsed: {from: Parse.parsed}
  counts: {from: Count.counts}
"""


def test_what_spark_refuses_is_told_at_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(WRONG)
    project = tmp_path / "project"
    assert main(["compile", str(file), "-o", str(project)]) == 0
    capsys.readouterr()
    command = ["compile", str(file), "--check-with-spark", "-o", str(tmp_path / "none")]
    assert main(command) == 2
    told = capsys.readouterr().err
    assert "wrong.yaml:7:14: BLZ551 Parse.parsed: [DATATYPE_MISMATCH" in told
    assert "wrong.yaml:10:" in told
    assert "wrong.yaml:12:3: BLZ551 `when` of raw: [DATATYPE_MISMATCH" in told
    assert not (tmp_path / "none").exists()
    right = WRONG.replace("tags + 1", "size(tags)").replace("array_max(ad)", "max(ad)")
    file.write_text(right.replace("when: n,", "when: n < 0,"))
    assert main(command) == 0
