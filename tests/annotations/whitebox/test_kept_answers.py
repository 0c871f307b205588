"""Answers of user code are given again, and only while nothing changed that it looked at."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from annotations.whitebox import answer_cache, plan_json
from annotations.whitebox.pyspark_code import Function, Input, read_functions
from annotations.whitebox.sandbox import Limits

pytestmark = pytest.mark.slow

STARTED: list[str] = []
"""Processes that this one started, by their commands."""


def hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen":
        STARTED.append(str(arguments[1]))


sys.addaudithook(hear)
FILES = {
    "totals.py": """
from pathlib import Path
from helpers import kept

def totals(rows):
    names = Path(__file__).with_name("columns.txt").read_text().split()
    return kept(rows).select(*names)

def listed(rows):
    import subprocess
    subprocess.run(["true"], check=True)
    return rows
""",
    "helpers.py": "def kept(rows):\n    return rows.where('n > 1')\n",
    "columns.txt": "id n\n",
}


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with code, and a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("BLAZES_CACHE", raising=False)
    folder = tmp_path / "code"
    folder.mkdir()
    for name, text in FILES.items():
        write(folder / name, text)
    return folder


def write(file: Path, text: str) -> None:
    """A file as if it had been there for a while."""
    file.write_text(text)
    os.utime(file, (1e9, 1e9))


def read(folder: Path, name: str = "totals") -> dict[str, Any]:
    """The plan of a function, as JSON: columns of two plans are never the same ones."""
    given: Mapping[str, Input] = {"rows": Input({"id": "INT", "n": "INT"})}
    (plan,) = read_functions([Function("totals", name, given)], folder=folder, limits=Limits())
    return plan_json.to_json(plan)


def started(folder: Path, name: str = "totals") -> tuple[dict[str, Any], int]:
    """The plan, and how many processes it took."""
    before = len(STARTED)
    return read(folder, name), len(STARTED) - before


def entries() -> list[Path]:
    base = answer_cache.folder()
    assert base is not None
    return sorted(base.iterdir()) if base.exists() else []


def test_a_second_reading_runs_nothing_until_something_changes(code: Path) -> None:
    plan, processes = started(code)
    assert processes == 1
    assert started(code) == (plan, 0)
    write(code / "results.txt", "7\n")  # nobody reads it
    assert started(code) == (plan, 0)
    write(code / "columns.txt", "id\n")  # a file that the code opens
    other, processes = started(code)
    assert processes == 1
    assert other != plan
    write(code / "helpers.py", "def kept(rows):\n    return rows.distinct()\n")  # a module
    changed, processes = started(code)
    assert processes == 1
    assert changed != other
    write(code / "columns.py", "")  # a module that imports might find now
    assert started(code) == (changed, 1)
    (entry,) = entries()
    entry.write_bytes(entry.read_bytes().replace(b'"id"', b'"no"', 1))  # damaged, still JSON
    assert started(code) == (changed, 1)
    entry.write_bytes(b"\x00{")
    assert started(code) == (changed, 1)
    assert started(code) == (changed, 0)


def test_several_may_read_and_keep_at_once(code: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        plans = list(pool.map(read, [code] * 3))
    assert plans[0] == plans[1] == plans[2]
    assert started(code) == (plans[0], 0)
    assert [entry.suffix for entry in entries()] == [".json"]


def test_what_leads_outside_and_what_fails_is_not_kept(code: Path) -> None:
    read(code, "listed")
    assert "has no attribute" in str(read(code, "missing"))
    assert entries() == []


def test_nothing_is_kept_where_the_cache_is_off(
    code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLAZES_CACHE", "off")
    read(code)
    monkeypatch.delenv("BLAZES_CACHE")
    assert entries() == []
