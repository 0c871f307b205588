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
