"""A bundle on machines that have Spark and a bare Python: its archive is all that they get."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from blazes.cli import main
from tests.examples.standalone import SPARK_HOME, standalone_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

DATAFLOW = {
    "name": "Visits_1",
    "components": {
        "Place": {
            "annotation": {"from": "visit", "to": "placed", "label": "CR"},
            "python": "places:place",
        },
        "Total": {
            "annotation": {"from": "visit", "to": "totals", "label": "OW[day]"},
            "sql": "SELECT day, count(*) AS n, min(place) AS place FROM visit GROUP BY day",
        },
    },
    "streams": {
        "visits": {
            "to": "Place.visit",
            "schema": {"day": "BIGINT", "sealed": "BOOLEAN", "n": "BIGINT"},
            "source": {
                "format": "json",
                "path": "visits",
                "options": {"maxFilesPerTrigger": "1"},
            },
            "seal": ["day"],
            "punctuation": {"when": "sealed", "count": "n"},
            "producers": "one",
        },
        "placed": {"from": "Place.placed", "to": "Total.visit"},
        "totals": {"from": "Total.totals"},
    },
}
PLACES = """
import rocksdict
from pyspark.sql import functions as sf
from pyspark.sql.types import StringType


@sf.udf(StringType())
def place_of(day):
    import flux_runtime

    return f"{flux_runtime.__file__} {rocksdict.__file__}"


def place(visit):
    return visit.withColumn("place", place_of("day"))
"""
DAYS = 5


def bare_machine(folder: Path) -> dict[str, str]:
    """The environment of a machine with Spark, Java and a Python that has nothing installed."""
    python = folder / "bare"
    subprocess.run([sys._base_executable, "-m", "venv", "--without-pip", python], check=True)
    java = Path(shutil.which("java") or "/usr/bin/java").parent
    return {
        "PATH": f"/usr/bin:/bin:{java}",
        "HOME": str(folder),
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": str(python / "bin" / "python"),
        "SPARK_SUBMIT_OPTIONS": "--conf spark.driver.host=127.0.0.1 "
        "--conf spark.executor.memory=512m --driver-memory 700m",
        **{name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ},
    }


def test_a_killed_driver_goes_on_elsewhere_and_executors_use_the_archive(tmp_path: Path) -> None:
    here = tmp_path / "here"
    (here / "visits").mkdir(parents=True)
    (here / "visits.yaml").write_text(yaml.safe_dump(DATAFLOW))
    (here / "places.py").write_text(PLACES)
    for day in range(DAYS):
        rows = [{"day": day}] * (day + 1) + [{"day": day, "sealed": True, "n": day + 1}]
        file = here / "visits" / f"{day}.json"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(file, (1_700_000_000 + day,) * 2)
    project = here / "target"
    command = ["compile", str(here / "visits.yaml"), "-o", str(project), "--bundle", "--execute"]
    assert main(command) == 0
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(project / "bundle", first)
    shutil.move(project / "bundle", second)
    machine, data = bare_machine(tmp_path), tmp_path / "data"
    arguments = ["--data-dir", str(data), "--root", str(here)]
    with standalone_cluster(tmp_path, machine) as cluster:
        arguments += ["--master", cluster.url]
        log = (tmp_path / "submit.log").open("wb")
        running = subprocess.Popen(
            [first / "submit.sh", *arguments],
            cwd=here,
            env=machine,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        deadline = time.monotonic() + 500
        while not any((data / "results" / "totals").glob("*")):
            assert running.poll() is None, (tmp_path / "submit.log").read_text()[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
        shutil.rmtree(first)
        done = subprocess.run(
            [second / "submit.sh", *arguments, "--available-now"],
            cwd=tmp_path,
            env=machine,
            capture_output=True,
            text=True,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    files = (data / "results" / "totals").rglob("*.parquet")
    rows = [row for file in files for row in pq.ParquetFile(file).read().to_pylist()]
    assert Counter((row["day"], row["n"]) for row in rows) == Counter(
        (day, day + 1) for day in range(DAYS)
    )
    for row in rows:
        runtime, package = row["place"].split()
        assert runtime.startswith(str(tmp_path / "worker-"))
        assert package.startswith(str(tmp_path / "worker-"))
