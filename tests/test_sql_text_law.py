"""No SQL text is put together at run time: keys, producers and records reach Spark as data only."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TAKES_SQL = {"expr", "sql", "selectExpr"}
MAY_TAKE_SQL = {"where", "filter"}
"""With a text they take SQL too."""
PROGRAMS = {
    "flux_runtime/spark/ends/source.py": "the dataflow's own expressions for punctuations",
    "flux_runtime/spark/sealed/recounting.py": "the same, to see which columns they read",
    "flux_runtime/spark/frames.py": "the components' own SQL",
}
"""Where SQL that is part of the dataflow, and never of a record, is handed on."""


def sql_texts(tree: ast.AST) -> list[tuple[int, str]]:
    """(line, call) of calls that take SQL which is no constant."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        for argument in arguments:
            constant = isinstance(argument, ast.Constant)
            composed = isinstance(argument, ast.JoinedStr) or (
                isinstance(argument, ast.BinOp)
                and any(
                    isinstance(part, ast.JoinedStr)
                    or (isinstance(part, ast.Constant) and isinstance(part.value, str))
                    for part in (argument.left, argument.right)
                )
            )
            if (name in TAKES_SQL and not constant) or (name in MAY_TAKE_SQL and composed):
                found.append((node.lineno, ast.unparse(node)))
                break
    return found


@pytest.mark.parametrize(
    "file", sorted((ROOT / "flux_runtime" / "spark").rglob("*.py")), ids=lambda file: file.stem
)
def test_no_sql_is_put_together(file: Path) -> None:
    name = file.relative_to(ROOT).as_posix()
    texts = sql_texts(ast.parse(file.read_text(encoding="utf-8")))
    assert bool(texts) == (name in PROGRAMS), texts


@pytest.mark.parametrize(
    "line",
    [
        "rows.where(f'k = {key}')",
        "sf.expr('k = ' + key)",
        "session.sql(text)",
        "f.filter('k=' + k)",
    ],
)
def test_the_law_sees(line: str) -> None:
    assert sql_texts(ast.parse(line))
