"""Whose settings count: spark-submit's, the file's or those of spark-defaults.conf."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

SHOWN = ("spark.master", "spark.app.name", "spark.sql.shuffle.partitions", "spark.sql.ansi.enabled")
DATAFLOW = """
name: by-place
components:
  Count: {annotation: {from: rows, to: out, label: CW}, sql: SELECT k FROM rows}
streams:
  rows: {to: Count.rows, schema: {k: INT}, source: {format: json, path: data}}
  out: {from: Count.out, sink: {format: json}}
"""
SESSION = f"""
import json
from pathlib import Path
from flux_runtime.spark.session import start_session
conf = {{"spark.master": "local[3]", "spark.sql.shuffle.partitions": "5",
        "spark.sql.session.timeZone": "CET", "spark.sql.ansi.enabled": "false"}}
spark = start_session("job", master=None, conf=conf, log=Path("log.txt").resolve())
names = {[*SHOWN]!r} + ["spark.sql.session.timeZone", "spark.sql.variable.substitute"]
print("settings", json.dumps([spark.conf.get(name) for name in names]))
spark.stop()
"""


def test_an_argument_of_spark_submit_wins_over_the_file_and_the_file_over_the_installation(
    tmp_path: Path,
) -> None:
    (tmp_path / "session.py").write_text(SESSION)
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.sql.ansi.enabled true\nspark.sql.variable.substitute true\n"
    )
    paths = (str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", ""))
    environment = {
        **os.environ,
        "SPARK_CONF_DIR": str(tmp_path),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    arguments = ("--master", "local[1]", "--conf", "spark.sql.shuffle.partitions=7")
    done = subprocess.run(
        [submit, *arguments, "session.py"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (line,) = (line for line in done.stdout.splitlines() if line.startswith("settings "))
    found = json.loads(line.removeprefix("settings "))
    assert found == ["local[1]", "job", "7", "false", "CET", "true"]


def test_a_job_does_not_start_with_settings_that_it_was_not_compiled_for(tmp_path: Path) -> None:
    (tmp_path / "place.yaml").write_text(DATAFLOW)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "1.json").write_text('{"k": 1}\n')
    compile_ = [sys.executable, "-m", "blazes", "compile", "place.yaml"]
    subprocess.run(compile_, cwd=tmp_path, check=True, capture_output=True)
    job = [sys.executable, "target/by-place/job.py", "--available-now"]
    results = tmp_path / "target/by-place/results/out"
    for text, status in (
        ("spark.sql.groupByOrdinal false\nspark.sql.caseSensitive true\n", 1),
        ("spark.sql.session.timeZone CET\nspark.sql.caseSensitive FALSE\n", 0),
    ):
        (tmp_path / "spark-defaults.conf").write_text(text)
        environment = {**os.environ, "SPARK_CONF_DIR": str(tmp_path), "BLAZES_MASTER": "local[1]"}
        done = subprocess.run(job, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == status, done.stderr
        assert results.is_dir() == (status == 0)
        for name in ("spark.sql.groupByOrdinal is false", "spark.sql.caseSensitive is true"):
            assert (name in done.stderr) == (status == 1)
