"""Python functions that do not wait for each other are read by one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from annotations.file import load
from annotations.whitebox.code import Code
from annotations.whitebox.sandbox import Limits

pytestmark = pytest.mark.slow

MODULE = """\
import os
from pyspark.sql.functions import lit

def process(clicks):
    return clicks.select(lit(1).alias(f"process_{os.getpid()}"))

def ends(clicks):
    os._exit(3)
"""


def processes(folder: Path, functions: dict[str, str]) -> list[str | None]:
    """The processes that read the functions; None for a function that was not read."""
    (folder / "module.py").write_text(MODULE)
    components = [f"  {name}: {{python: 'module:{by}'}}\n" for name, by in functions.items()]
    streams = [
        f"  into_{name}: {{to: {name}.clicks, schema: {{id: INT}}}}\n"
        f"  {name}: {{from: {name}.out}}\n"
        for name in functions
    ]
    file = folder / "flow.yaml"
    file.write_text(f"components:\n{''.join(components)}streams:\n{''.join(streams)}")
    dataflow, _ = load(file)
    code = Code(dataflow, execute=Limits(20.0))
    found: list[str | None] = []
    for component in dataflow.components.values():
        (output,) = code.outputs(component)
        columns = output.query.plan.columns
        found.append(columns[0].name if columns else None)
    return found


def test_functions_are_read_by_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLAZES_CACHE", "off")
    found = processes(tmp_path, dict.fromkeys(("A", "B", "C", "D"), "process"))
    assert len(set(found)) == 1
    assert None not in found


def test_a_function_that_ends_the_process_takes_no_other_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BLAZES_CACHE", "off")
    found = processes(tmp_path, {"A": "process", "B": "ends", "C": "process"})
    assert found[1] is None
    assert None not in (found[0], found[2])
