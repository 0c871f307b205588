"""What it takes to derive the annotations of components in SQL and in Python.

    python benchmarks/deriving.py [--components 4] [--runs 5]

The same components twice: as SQL, and as Python functions that a process runs to read them. Each
run is `blazes analyze` in a process of its own: on the SQL, on the Python with nothing kept of
earlier runs, and on the Python again. Prints the medians of the time that passed and of CPU time.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

STREAMS = """
  s{n}: {{to: C{n}.rows, schema: {{id: INT, campaign: STRING, n: BIGINT}}}}
  t{n}: {{from: C{n}.out}}"""
SQL = """
  C{n}: {{sql: {{out: "SELECT id, count(*) AS n FROM rows WHERE n > {n} GROUP BY id"}}}}"""
PYTHON = """
  C{n}: {{python: {{out: "code:count_{n}"}}}}"""
FUNCTION = """
def count_{n}(rows):
    return rows.where("n > {n}").groupBy("id").count()
"""


def written(folder: Path, count: int, component: str, name: str) -> Path:
    """A dataflow file of so many components."""
    parts = "".join(component.format(n=n) for n in range(count))
    streams = "".join(STREAMS.format(n=n) for n in range(count))
    file = folder / f"{name}.yaml"
    file.write_text(f"name: {name}\ncomponents:{parts}\nstreams:{streams}\n")
    return file


def timed(file: Path, cache: Path) -> tuple[float, float]:
    """Seconds that passed, and of CPU, of one analysis."""
    command = [sys.executable, "-m", "blazes", "analyze", str(file), "--format", "json"]
    command += ["--execute"]
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after, ended = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ended - began, cpu


def main() -> None:
    """Print a line for each kind of run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--components", type=int, default=4)
    parser.add_argument("--runs", type=int, default=5)
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {"SQL": [], "Python, first": [], "again": []}
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryDirectory() as caches:
        folder = Path(temporary)
        (folder / "code.py").write_text(
            "".join(FUNCTION.format(n=n) for n in range(arguments.components))
        )
        os.utime(folder / "code.py", (1e9, 1e9))
        sql = written(folder, arguments.components, SQL, "in_sql")
        python = written(folder, arguments.components, PYTHON, "in_python")
        for run in range(arguments.runs):
            cache = Path(caches) / str(run)
            for name, file in (("SQL", sql), ("Python, first", python), ("again", python)):
                found[name].append(timed(file, cache))
    base = statistics.median(cpu for _, cpu in found["SQL"])
    for name, its in found.items():
        wall = statistics.median(wall for wall, _ in its)
        cpu = statistics.median(cpu for _, cpu in its)
        print(f"{name:14} {wall:6.2f} s, CPU {cpu:6.2f} s, {cpu / base:5.1f} times the SQL's")


if __name__ == "__main__":
    main()
