"""`blazes scan`: every streaming job of a repository, the worst first."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Final
from urllib.parse import unquote_to_bytes

import pytest

from blazes.cli import main

CORPUS: Final = Path(__file__).parents[1] / "corpus"
FLOW: Final = """\
components:
  Keep: {annotation: {from: lines, to: kept, label: CR}}
streams:
  lines: {to: Keep.lines, source: {format: json, path: in}}
  kept: {from: Keep.kept, sink: {format: parquet, path: out}}
"""
FOREIGN: Final = {
    "flink.sql": "-- sums\nCREATE TABLE clicks (k INT, WATERMARK FOR t AS t) WITH (\n"
    "  'connector' = 'kafka');\nINSERT INTO sums SELECT k, count(*) FROM clicks GROUP BY k;\n",
    "ksql.sql": "CREATE TABLE sums AS SELECT k, COUNT(*) FROM clicks GROUP BY k EMIT CHANGES;\n",
    "model.sql": "{{ config(materialized='incremental', unique_key='k') }}\n"
    "select * from {{ ref('clicks') }} {% if is_incremental() %} where t > 1 {% endif %}\n",
    "other.sql": "select k, count(*) from clicks group by k;\n",
    "staging.sql": "select * from {{ source('shop', 'clicks') }}\n",
}
"""Files of SQL that are not Spark's, but for one that is no job."""
NOT_READ: Final = [f"models/{at} not known" for at in ("flink.sql:3", "ksql.sql:1", "model.sql:1")]
"""A row for each reason."""
IMPORTED: Final = "from pyspark.sql import SparkSession\n"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with jobs of every kind, and with files that are none."""
    folder = tmp_path_factory.mktemp("scan") / "repository"
    (folder / "jobs").mkdir(parents=True)
    for name in ("latest_value.py", "python_udf.py", "rdd_map.py", "nothing_streams.py"):
        shutil.copy(CORPUS / "scripts" / name, folder / "jobs")
    shutil.copytree(CORPUS / "scripts" / "helpers", folder / "jobs" / "helpers")
    shutil.copytree(CORPUS / "pipelines" / "shop", folder / "shop")
    shutil.copy(CORPUS / "pipelines" / "streaming_tables.sql", folder)
    (folder / "models").mkdir()
    for name, text in FOREIGN.items():
        (folder / "models" / name).write_text(text)
    (folder / "flow.yaml").write_text(FLOW)
    (folder / "other.yaml").write_text("services: {}\n")
    (folder / ".hidden").mkdir()
    shutil.copy(CORPUS / "scripts" / "dedup_events.py", folder / ".hidden")
    return folder


def scanned(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """The exit status, and the jobs in the order in which they are listed, each with its label."""
    status = main(["scan", *arguments, "--format", "markdown"])
    rows = [line.split("|")[1:3] for line in capsys.readouterr().out.splitlines() if "| `" in line]
    return status, [f"{place.strip(' `')} {label.strip()}" for place, label in rows]


def test_the_worst_job_is_first(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, jobs = scanned(capsys, str(repository), "--execute")
    assert status == 0
    assert jobs == [
        "jobs/latest_value.py:7 Run",
        "shop/transformations/report.sql:1 Run",
        "streaming_tables.sql:11 Run",
        "jobs/rdd_map.py:6 not known",
        *NOT_READ,
        "flow.yaml:5 Async",
        "jobs/python_udf.py:21 Async",
    ]


LIBRARY: Final = """\
from framework import retried

class Ratings:
    @retried
    def close(self):
        pass

    def __init__(self, spark):
        self.spark = spark

    def run(self):
        rows = self.spark.readStream.schema("k STRING").json("/in")
        rows.writeStream.format("console").queryName("ratings").start()
"""


def test_a_script_that_starts_what_another_file_defines_is_the_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pyproject.toml").touch()
    app = tmp_path / "app"
    (app / "streams").mkdir(parents=True)
    (app / "streams" / "__init__.py").write_text("from app.streams.ratings import Ratings\n")
    (app / "streams" / "ratings.py").write_text(LIBRARY)
    (tmp_path / "main.py").write_text(
        f"{IMPORTED}from app.streams import Ratings\n"
        "if __name__ == '__main__':\n    Ratings(SparkSession.builder.getOrCreate()).run()\n"
    )
    (tmp_path / "other.py").write_text("from app.streams import Ratings\n")
    _, jobs = scanned(capsys, str(tmp_path))
    assert jobs == ["app/streams/ratings.py:13 Async"]


def test_no_script_is_run_without_being_asked_for(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, jobs = scanned(capsys, str(repository), "--strict")
    assert status == 1
    assert jobs == [
        "jobs/latest_value.py:7 Run",
        "shop/transformations/report.sql:1 Run",
        "streaming_tables.sql:11 Run",
        "jobs/rdd_map.py:1 not known",
        *NOT_READ,
        "flow.yaml:5 Async",
        "jobs/python_udf.py:21 Async",
    ]


def test_jobs_that_are_not_known_for_one_reason_share_a_row(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repository = shutil.copytree(repository, tmp_path / "repository")
    specification = repository / "shop" / "spark-pipeline.yml"
    text = specification.read_text(encoding="utf-8")
    specification.write_text(text.replace("transformations/**", "notes.txt"), encoding="utf-8")
    (repository / "shop" / "notes.txt").write_text("sell more\n")
    shutil.copytree(repository / "shop", repository / "store")
    main(["scan", str(repository), "--format", "markdown"])
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "spark-pipeline" in line]
    assert "shop/spark-pipeline.yml:1" in row
    assert "so is store/spark-pipeline.yml:1" in row


def test_sql_that_is_not_spark_s_is_named_with_what_to_do(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["scan", str(repository), "--format", "markdown"])
    rows = [row for row in capsys.readouterr().out.splitlines() if "models/" in row]
    assert ["of a component" in row for row in rows] == [True] * 3
    assert "so is models/staging.sql:1" in rows[2]
    assert main(["import", str(repository / "models" / "model.sql")]) == 2
    assert "dbt compile" in capsys.readouterr().err


def test_sarif_has_a_result_for_each_job_that_is_not_the_same_on_replay(
    repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["scan", str(repository), "--format", "sarif"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    rules = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    places = [
        (
            rules[each["ruleIndex"]],
            each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
        )
        for each in run["results"]
    ]
    assert places == [
        ("replay-run", "jobs/latest_value.py"),
        ("replay-run", "shop/transformations/report.sql"),
        ("replay-run", "streaming_tables.sql"),
        ("BLZ094", "jobs/rdd_map.py"),
        *(("BLZ080", f"models/{name}") for name in sorted(FOREIGN) if name != "other.sql"),
    ]


def test_a_job_that_was_read_in_part_says_so_and_is_not_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(CORPUS / "scripts" / "boto_config.py", tmp_path / "copy.py")
    given = "from mylib import run\nspark = SparkSession.builder.getOrCreate()\nrun(spark)\n"
    text = (tmp_path / "copy.py").read_text().replace("import json\n", f"import json\n{given}", 1)
    (tmp_path / "copy.py").write_text(text.replace("import json\n", f"{IMPORTED}import json\n", 1))
    assert main(["scan", str(tmp_path), "--strict", "--format", "sarif"]) == 1
    (result,) = json.loads(capsys.readouterr().out)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("BLZ081", "note")
    assert "ead in part (line 5): `mylib.run` is given the session" in result["message"]["text"]


def test_whatever_a_file_is_called_its_place_is_a_uri(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [b"\xff.yaml", b"a b/n\n#%41?.yaml", b"c:d.yaml"]
    for name in names:
        file = tmp_path / os.fsdecode(name)
        file.parent.mkdir(exist_ok=True)
        file.write_text(FLOW.replace("label: CR", 'label: "OW[k]"'))
    assert main(["scan", str(tmp_path), "--format", "sarif"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    uris = [
        r["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for r in run["results"]
    ]
    assert sorted(map(unquote_to_bytes, uris)) == sorted(names)
    assert all(re.fullmatch(r"[\w%/.-]+", uri, re.ASCII) for uri in uris)


def test_a_page_names_every_job(repository: Path, tmp_path: Path) -> None:
    page = tmp_path / "jobs.html"
    assert main(["scan", str(repository), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "10 streaming jobs" in text
    assert "jobs/latest_value.py:7" in text
