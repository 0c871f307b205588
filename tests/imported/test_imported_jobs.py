"""Seven scripts are run as they are, and imported, compiled and run: both say the same.

Each is of another kind: DataFrames from top to bottom, a function in Python, texts of SQL with a
static table, a class that joins two streams, a notebook with `foreachBatch`, functions that have
values with them, out of a configuration file, and what takes whole
micro-batches, single rows or keeps state of its own. The records are drawn
with a seed, and come in several files.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from blazes.cli import main

SCRIPTS: Final = Path(__file__).parent / "scripts"
KEYS: Final[Mapping[str, str]] = {"totals": "device", "balances": "owner"}
"""Script -> the column by whose value a row takes the place of an earlier one."""

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def write_data(folder: Path, seed: int) -> None:
    """Two files of records for each source, and one of owners."""
    draw = random.Random(seed)

    def table(name: str, lines: Iterable[str], head: str = "") -> None:
        rows = list(lines)
        folder.joinpath("data", name).mkdir(parents=True)
        for number, part in enumerate((rows[::2], rows[1::2])):
            file = folder / "data" / name / f"{number}.txt"
            file.write_text("".join(f"{line}\n" for line in (*([head] if head else []), *part)))
            os.utime(file, (1_700_000_000 + number, 1_700_000_000 + number))

    def time() -> str:
        return f"2026-01-01T{draw.randrange(3):02}:{draw.randrange(60):02}:00Z"

    table(
        "readings",
        [f"d{draw.randrange(4)},{draw.choice(['', -1, 5, 70])},{time()}" for _ in range(40)],
        head="device,wh,ts",
    )
    records: dict[str, Iterable[Mapping[str, Any]]] = {
        "users": [
            {
                "email": draw.choice([None, f"U{n}@x.org"]),
                "country": draw.choice(["AT", "XX"]),
                "years": draw.choice([None, 12, 40]),
            }
            for n in range(30)
        ],
        "bookings": [
            {
                "account": f"a{draw.randrange(5)}",
                "cents": draw.randrange(1, 900),
                "kind": draw.choice(["debit", "credit"]),
            }
            for _ in range(50)
        ],
        "orders": [{"id": n, "at": time(), "cents": draw.randrange(900)} for n in range(30)],
        "payments": [
            {"order_id": draw.randrange(40), "at": time(), "method": draw.choice(["card", "cash"])}
            for _ in range(40)
        ],
        "events": [
            {
                "id": n,
                "tags": draw.sample(["a", "bb", "ccc"], draw.randrange(4)),
                "amount": draw.randrange(-5, 30),
            }
            for n in range(30)
        ],
    }
    for name, rows in records.items():
        table(name, map(json.dumps, rows))
    table("owners", [f"a{n},o{n // 2}" for n in range(5)], head="account,owner")


def rows(folder: Path) -> list[dict[str, Any]]:
    """Every row of a folder of results, in the order in which they were written."""
    import pyarrow.parquet as pq

    files = [f for f in folder.rglob("*.*") if f.suffix in (".json", ".parquet")]
    files = [f for f in files if not f.name.startswith((".", "_"))]
    found: list[dict[str, Any]] = []
    for file in sorted(files, key=lambda file: file.stat().st_mtime_ns):
        if file.suffix == ".parquet":
            found += pq.read_table(file).to_pylist()
        else:
            found += [json.loads(line) for line in file.read_text().splitlines()]
    return found


def settled(found: Iterable[Mapping[str, Any]], key: str | None) -> Counter[str]:
    """The rows; of those with the same key the last one."""
    texts = [{k: v for k, v in row.items() if v is not None} for row in found]
    if key is not None:
        texts = list({row[key]: row for row in texts}.values())
    return Counter(json.dumps(row, sort_keys=True) for row in texts)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder: in `before` the scripts have run as they are, in `after/NAME` as imported jobs."""
    folder = tmp_path_factory.mktemp("imported")
    write_data(folder / "before", seed=7)
    jobs = []
    for script in sorted(SCRIPTS.glob("*.py")):
        after = folder / "after" / script.stem
        write_data(after, seed=7)
        dataflow = after / f"{script.stem}.yaml"
        assert main(["import", str(script), "--execute", "-o", str(dataflow)]) == 0
        assert main(["compile", str(dataflow), "-o", str(after / "target")]) == 0
        jobs.append(after / "target" / "job.py")
    runner = Path(__file__).with_name("in_one_spark.py")
    command = [sys.executable, runner, *sorted(SCRIPTS.glob("*.py")), *jobs]
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYSPARK_PYTHON": sys.executable,
    }
    done = subprocess.run(
        list(map(str, command)),
        cwd=folder / "before",
        env=environment,
        capture_output=True,
        text=True,
        timeout=1700,
    )
    logs = [log.read_text()[-4000:] for log in folder.rglob("runs/latest/log.txt")]
    assert done.returncode == 0, "\n".join([done.stderr[-4000:], *logs[-1:]])
    return folder


@pytest.mark.parametrize("name", sorted(script.stem for script in SCRIPTS.glob("*.py")))
def test_an_imported_job_gives_what_the_script_gives(name: str, ran: Path) -> None:
    before, after = ran / "before", ran / "after" / name
    key = KEYS.get(name)
    if key is not None:
        expected = json.loads(before.joinpath("shown", f"{name}.json").read_text())
        found = rows(after / "target" / "results" / name)
    else:
        expected = rows(before / "shown" / "lake" / name)
        found = rows(after / "lake" / name) + rows(before / "lake" / name)
    assert expected
    assert settled(found, key) == settled(expected, key)
