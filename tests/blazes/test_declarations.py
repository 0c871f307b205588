"""Declarations in Python: what they do where the module runs, and what a job gets of them."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import blazes
from annotations.diagnostics import BadInput
from annotations.file.python_declarations import (
    DECLARING,
    KEYWORDS,
    declares,
    without_declarations,
)
from blazes.analysis import Analysis
from blazes.coordination import Strategy

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "wordcount"


@pytest.mark.parametrize("kind", DECLARING)
def test_the_keywords_of_a_declaration_are_the_keys_of_the_file(kind: str) -> None:
    parameters = inspect.signature(getattr(blazes, kind)).parameters.values()
    keywords = {p.name for p in parameters if p.kind is inspect.Parameter.KEYWORD_ONLY}
    assert keywords == set(KEYWORDS[kind])


@pytest.mark.parametrize("kind", DECLARING)
def test_a_declaration_says_what_each_of_its_keywords_is(kind: str) -> None:
    function: Callable[..., Any] = getattr(blazes, kind)
    described = set(inspect.cleandoc(function.__doc__ or "").partition("Args:\n")[2].split())
    assert {f"{name}:" for name in inspect.signature(function).parameters} <= described


def test_a_decorated_function_stays_what_it_is() -> None:
    def function(rows: Any) -> Any:
        return rows

    assert blazes.component(function) is function
    assert blazes.component("Name", label="CR")(function) is function
    assert blazes.component()(function) is function


def test_importing_the_package_imports_no_other() -> None:
    code = "import sys; a = set(sys.modules); import blazes; print(*(set(sys.modules) - a))"
    listed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    ours = {"annotations", "blazes", "codegen", "flux_runtime"}
    others = {name.partition(".")[0] for name in listed} - sys.stdlib_module_names
    assert others == {"blazes"}
    assert {name for name in listed if name.partition(".")[0] in ours} == {
        "blazes",
        "blazes.declarations",
    }


def test_the_commands_are_functions(tmp_path: Path) -> None:
    analysis = blazes.analyze(EXAMPLE / "wordcount.py")
    assert isinstance(analysis, Analysis)
    plan = blazes.plan(EXAMPLE / "wordcount.py")
    assert [entry.strategy for entry in plan.entries].count(Strategy.SEAL) == 1
    folder = blazes.compile(EXAMPLE / "wordcount.py", target_dir=tmp_path)
    assert folder == tmp_path / "wordcount"
    compile((folder / "job.py").read_text(), "job.py", "exec")


def test_mistakes_of_a_module_are_raised_together(tmp_path: Path) -> None:
    module = tmp_path / "flow.py"
    module.write_text(
        "from blazes import component, source\nsource('a')\n"
        "@component(lable='CR')\ndef out(b): ...\n"
    )
    with pytest.raises(BadInput) as refused:
        blazes.load(module)
    assert [d.code.id for d in refused.value.diagnostics] == ["BLZ042", "BLZ010", "BLZ044"]


def test_both_forms_of_the_example_give_the_same_plan(tmp_path: Path) -> None:
    """Byte for byte, but for the names and hashes of the two files."""
    written = {}
    for suffix in ("yaml", "py"):
        folder = blazes.compile(EXAMPLE / f"wordcount.{suffix}", target_dir=tmp_path / suffix)
        text = (folder / "plan.json").read_text(encoding="utf-8")
        job = (folder / "job.py").read_text(encoding="utf-8")
        sha256 = blazes.load(EXAMPLE / f"wordcount.{suffix}").sha256
        written[suffix] = [
            line.replace(f"wordcount.{suffix}", "FILE").replace(sha256, "SHA256")
            for line in (*text.splitlines(), *job.splitlines())
            if not line.lstrip().startswith(('"line":', '"column":', '"job.py":', '"README.md":'))
        ]
    assert written["py"] == written["yaml"]


MODULE = '''"""A job."""
import blazes
from pyspark.sql import DataFrame

LIMIT = 3
clicks = blazes.source("clicks", schema={"n": "INT"})


@blazes.component(label="CR")
def few(clicks: DataFrame) -> DataFrame:
    return clicks.where(f"n < {LIMIT}")


blazes.sink(few, format="json")
if __name__ == "__main__":
    blazes.run(__file__)
'''


def test_a_job_gets_the_functions_in_their_lines_and_no_declaration() -> None:
    rest = without_declarations(MODULE)
    assert "blazes" not in rest
    lines = MODULE.splitlines()
    assert all(line in ("", lines[at]) for at, line in enumerate(rest.splitlines()))
    assert [type(node).__name__ for node in ast.parse(rest).body] == [
        "Expr", "ImportFrom", "Assign", "FunctionDef",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "use",
    [
        "print(clicks)",
        "def other():\n    return clicks",
        "import os, blazes",
        "x = 1; blazes.dataflow('a')",
        "def main():\n    blazes.run(__file__)",
    ],
)
def test_a_module_that_uses_its_declarations_is_left_as_it_is(use: str) -> None:
    text = f"{MODULE}\n{use}\n"
    assert without_declarations(text) == text


def test_a_module_declares_where_it_calls_what_declares() -> None:
    assert declares(MODULE)
    assert declares("from blazes import source as s\ns('a')")
    assert not declares("import blazes\nblazes.run('flow.yaml')")
    assert not declares("source('a')")
