"""Code that Spark does not run over a stream: the compiler knows it, and jobs run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from blazes.cli import main
from tests.codegen.test_jobs_on_spark import rows

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
A, B, C = ({"k": letter} for letter in "abc")
SQL: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "ranked": (
        "SELECT k, row_number() OVER (PARTITION BY k ORDER BY v) AS n FROM r",
        [A | {"n": 1}, A | {"n": 2}, A | {"n": 3}, B | {"n": 1}, C | {"n": 1}],
    ),
    "last": (
        "SELECT k, v FROM r QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) = 1",
        [A | {"v": 3}, B | {"v": 2}, C | {"v": 2}],
    ),
    "twice": (
        "SELECT n, count(*) AS c FROM (SELECT k, count(*) AS n FROM r GROUP BY k) GROUP BY n",
        [{"n": 1, "c": 2}, {"n": 3, "c": 1}],
    ),
    "compared": (
        "SELECT k, (SELECT max(v) FROM r) AS m FROM r",
        [row | {"m": 3} for row in (A, A, A, B, C)],
    ),
    "known": (
        "SELECT DISTINCT r.k, s.v FROM r JOIN s ON r.v < s.v",
        [A | {"v": 2}, A | {"v": 4}, B | {"v": 4}, C | {"v": 4}],
    ),
    "turned": (
        "SELECT * FROM (SELECT k, v FROM r) PIVOT (max(v) FOR k IN ('a', 'b'))",
        [{"a": 3, "b": 2}],
    ),
    "different": (
        "SELECT k, count(DISTINCT v) AS c FROM r GROUP BY k",
        [A | {"c": 2}, B | {"c": 1}, C | {"c": 1}],
    ),
    "counted_down": (
        "WITH RECURSIVE t(n) AS (SELECT v FROM r UNION ALL SELECT n - 1 FROM t WHERE n > 0)"
        " SELECT n FROM t",
        [{"n": n} for v in (1, 2, 3, 1, 2) for n in range(v + 1)],
    ),
    "all": ("SELECT count(*) AS c FROM r", [{"c": 5}]),
    "ones": ("SELECT 1 AS one FROM r", [{"one": 1}] * 5),
}
FUNCTIONS = """\
from pyspark.sql import Window
from pyspark.sql import functions as F

def f_shares(r):
    total = F.sum("v").over(Window.partitionBy("k"))
    return r.select("k", (F.col("v") / total).alias("share"))

def f_turned(r):
    return r.groupBy().pivot("k", ["a", "b"]).agg(F.max("v"))

def f_first(r):
    return r.orderBy("v", "k").limit(2)

def f_known(r, s):
    return r.join(s, (r["k"] == s["k"]) | (r["v"] == s["v"])).select(r["k"], s["v"]).distinct()
"""
QUERIES: dict[str, tuple[str, list[dict[str, Any]]]] = SQL | {
    "f_shares": (
        "r",
        [*(A | {"share": s} for s in (0.2, 0.6, 0.2)), *(x | {"share": 1.0} for x in (B, C))],
    ),
    "f_turned": ("r", [{"a": 3, "b": 2}]),
    "f_first": ("r", [A | {"v": 1}, A | {"v": 1}]),
    "f_known": ("r s", [A | {"v": 2}, B | {"v": 2}, B | {"v": 4}, C | {"v": 2}]),
}
"""Name -> query or the inputs of a function, and its answer. Spark runs none of them over a stream,
but for `all` and `ones`, which it does not run over a text file alone."""
RECORDS = {
    "r": [[("a", 1), ("b", 2)], [("a", 3), ("a", 1)], [("c", 2)]],
    "s": [[("a", 2)], [("b", 4)]],
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One job of all the queries; its results."""
    folder = tmp_path_factory.mktemp("streaming")
    components, streams = {}, {}
    for name, (query, _) in QUERIES.items():
        own = name in SQL
        components[name] = {"sql": query} if own else {"python": f"functions:{name}"}
        streams[f"{name}_out"] = {"from": f"{name}.out", "sink": {"format": "json"}}
        for table in ("r", "s")[: 1 + (" s." in query or query == "r s")]:
            streams[f"{name}_{table}"] = {
                "to": f"{name}.{table}",
                "schema": {"k": "STRING", "v": "INT"},
                "source": {
                    "format": "json",
                    "path": f"data/{table}",
                    "options": {"maxFilesPerTrigger": "1"},
                },
            }
    dataflow = {"name": "streaming", "components": components, "streams": streams}
    (folder / "functions.py").write_text(FUNCTIONS)
    (folder / "streaming.yaml").write_text(yaml.safe_dump(dataflow))
    for table, files in RECORDS.items():
        (folder / "data" / table).mkdir(parents=True)
        for number, file in enumerate(files):
            path = folder / "data" / table / f"{number}.json"
            path.write_text("".join(json.dumps({"k": k, "v": v}) + "\n" for k, v in file))
            os.utime(path, (1_700_000_000 + number,) * 2)
    project = folder / "target"
    assert main(["compile", str(folder / "streaming.yaml"), "-o", str(project)]) == 0
    command = [sys.executable, "job.py", "--available-now", "--master", "local[2]"]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return project / "results"


@pytest.mark.parametrize("name", QUERIES)
def test_the_last_answer_is_that_of_all_records(name: str, results: Path) -> None:
    """An answer that changes is put out again, so there are others before it."""
    right = Counter(tuple(row.items()) for row in QUERIES[name][1])
    put_out = Counter(tuple(row.items()) for row in rows(results / f"{name}_out"))
    assert right - put_out == Counter()
    if name in ("known", "ones", "f_known"):
        assert put_out == right


@pytest.mark.parametrize(
    ("arguments", "status"), [(("--queries", "15", "--functions", "20"), 0), (("--plant",), 1)]
)
def test_spark_refuses_no_code_that_the_compiler_takes(
    arguments: tuple[str, ...], status: int
) -> None:
    """A compiler that takes them all is noticed."""
    command = [sys.executable, ROOT / "benchmarks" / "streaming_on_spark.py", "--seed", "7000"]
    done = subprocess.run(
        [*command, "--queries", "3", "--functions", "3", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr[-2000:]
    assert ("differences: 0" in done.stdout) == (status == 0)
