"""Dependencies point one way; see the table of packages in docs/explanation/architecture.md."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("annotations", "blazes", "codegen", "flux_runtime", "flux_lab")
MAY_IMPORT = {
    "annotations": {"annotations"},
    "blazes": {"annotations", "blazes"},
    "codegen": {"annotations", "blazes", "codegen"},
    "flux_runtime": {"flux_runtime"},
    "flux_lab": {"flux_runtime", "flux_lab"},
}
INSIDE_A_COMMAND = {"codegen", "flux_runtime"}
"""What a command of blazes.cli may import, inside the function that runs it or for types only."""
ABOVE = ("blazes", "simulate")
"""Runs what the compiler makes of a plan on what a job runs on, and so stands above all of them."""


def imports(tree: ast.AST) -> list[tuple[str, int, bool]]:
    """(package, line, does not happen at import) of every import of one of our packages."""
    found: list[tuple[str, int, bool]] = []

    def visit(node: ast.AST, inside: bool) -> None:
        inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        inside = inside or (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            names = [node.module or ""]
        for name in names:
            package = name.split(".")[0]
            if package in PACKAGES:
                found.append((package, node.lineno, inside))
        for child in ast.iter_child_nodes(node):
            visit(child, inside)

    visit(tree, False)
    return found


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_imports_only_what_stands_before_it(package: str) -> None:
    wrong = []
    for file in sorted((ROOT / package).rglob("*.py")):
        relative = file.relative_to(ROOT)
        may = set(MAY_IMPORT[package])
        in_commands = relative.parts[:2] in {("blazes", "cli"), ("blazes", "demo")}
        for imported, line, inside in imports(ast.parse(file.read_text(encoding="utf-8"))):
            above = relative.parts[:2] == ABOVE
            allowed = (
                imported in may
                or above
                or (in_commands and inside and imported in INSIDE_A_COMMAND)
            )
            if not allowed:
                wrong.append(f"{relative}:{line} imports {imported}")
    assert not wrong, "\n".join(wrong)
