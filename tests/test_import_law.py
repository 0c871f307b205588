"""The law of imports: rooms import only what stands below them, and no modules import in a circle.

python -m tests.test_import_law        writes its picture into docs/explanation/architecture.md
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "explanation" / "architecture.md"
BEGIN, END = "<!-- the law of imports -->", "<!-- end of the law -->"

LAW: dict[str, tuple[str, ...]] = {
    # describing a dataflow
    "annotations": (),
    "annotations.whitebox": ("annotations",),
    "annotations.file": ("annotations", "annotations.whitebox"),
    # analysing it
    "blazes.core": ("annotations",),
    "blazes": ("blazes.core", "annotations", "annotations.file"),
    # compiling it
    "codegen": ("blazes", "annotations", "annotations.file", "annotations.whitebox"),
    # showing it, and trying it out
    "blazes.document": (),
    "blazes.report": (
        "blazes.document",
        "blazes",
        "blazes.core",
        "annotations",
        "annotations.file",
    ),
    "blazes.verify": ("codegen", "blazes.document", "blazes", "annotations"),
    # running it
    "flux_runtime.sealing": (),
    "flux_runtime.protocol": (),
    "flux_runtime.resume": ("flux_runtime.protocol",),
    "flux_runtime.commits": ("flux_runtime.sealing",),
    "flux_runtime.zookeeper": ("flux_runtime.commits",),
    "flux_runtime.ordering": ("flux_runtime.zookeeper",),
    "flux_runtime.observe": ("flux_runtime.commits", "flux_runtime.sealing"),
    "flux_runtime.operators": ("flux_runtime.protocol", "flux_runtime.sealing"),
    "flux_runtime.site": (
        "flux_runtime.operators",
        "flux_runtime.protocol",
        "flux_runtime.resume",
        "flux_runtime.observe",
        "flux_runtime.sealing",
        "flux_runtime.zookeeper",
    ),
    "flux_runtime.spark": (
        "flux_runtime.site",
        "flux_runtime.operators",
        "flux_runtime.protocol",
        "flux_runtime.ordering",
        "flux_runtime.observe",
        "flux_runtime.commits",
        "flux_runtime.sealing",
        "flux_runtime.zookeeper",
    ),
    # what proves it
    "flux_lab": (
        "blazes.document",
        "flux_runtime.site",
        "flux_runtime.operators",
        "flux_runtime.protocol",
        "flux_runtime.resume",
        "flux_runtime.observe",
        "flux_runtime.sealing",
        "flux_runtime.zookeeper",
    ),
    "flux_lab.resume": ("flux_lab", "flux_runtime.resume", "flux_runtime.protocol"),
    # using it
    "blazes.simulate": (
        "codegen",
        "blazes.verify",
        "blazes.report",
        "blazes.document",
        "blazes",
        "annotations",
        "flux_runtime.sealing",
        "flux_runtime.spark",
    ),
    "blazes.demo": (
        "blazes.report",
        "blazes.document",
        "blazes",
        "annotations",
        "annotations.file",
        "flux_runtime.observe",
        "flux_runtime.sealing",
        "flux_runtime.spark",
    ),
    "blazes.cli": (
        "blazes.simulate",
        "blazes.demo",
        "blazes.verify",
        "blazes.report",
        "blazes.document",
        "blazes",
        "blazes.core",
        "codegen",
        "annotations",
        "annotations.file",
        "annotations.whitebox",
        "flux_runtime.observe",
        "flux_runtime.sealing",
        "flux_runtime.spark",
        "flux_runtime.zookeeper",
    ),
}
"""Room -> the rooms that its modules may import, below it in this list."""
PARTS = ("sealed", "stateful", "flux")
"""Kinds of units in `flux_runtime.spark`, which know nothing of each other."""
AT_HOME = {
    "blazes": "blazes.cli",
    "blazes.__main__": "blazes.cli",
}
"""Modules that belong to another room than their path says."""


def modules() -> dict[str, Path]:
    """Every module of the packages."""
    found = {}
    for package in sorted({room.partition(".")[0] for room in LAW}):
        for file in sorted((ROOT / package).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


MODULES = modules()


def room_of(module: str) -> str:
    """The room of a module; empty for the roots of packages that have rooms only."""
    if module in AT_HOME:
        return AT_HOME[module]
    while module and module not in LAW:
        module = module.rpartition(".")[0]
    return module


def imports(tree: ast.AST, known: dict[str, Path] = MODULES) -> Iterator[tuple[str, int]]:
    """(module, line) of every import of ours, wherever it stands: types and functions included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import in line {node.lineno}"
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in known else str(node.module) for name in whole]
        else:
            continue
        yield from ((name, node.lineno) for name in names if name in known)


@cache
def all_imports() -> tuple[tuple[str, str, int], ...]:
    """(module, imported module, line)."""
    return tuple(
        (module, imported, line)
        for module, file in MODULES.items()
        for imported, line in imports(ast.parse(file.read_text(encoding="utf-8")))
        if imported != module
    )


def against(module: str, imported: str) -> str | None:
    """Why the law forbids an import; None: it does not."""
    room, other = room_of(module), room_of(imported)
    if other and room != other and other not in LAW[room]:
        return f"{room} may not import {other}"
    part, of = (f"{name}..".split(".")[2] for name in (module, imported))
    if room == other == "flux_runtime.spark" and part != of and {part, of} <= {*PARTS}:
        return f"{part} may not import {of}"
    return None


def circles(arrows: set[tuple[str, str]]) -> list[set[str]]:
    """Modules that import each other."""
    graph = nx.DiGraph(arrows)
    return [found for found in nx.strongly_connected_components(graph) if len(found) > 1]


def picture() -> str:
    """The law as a drawing: an arrow leads from a room to those that it imports.

    Rooms that are reached through another one as well get no arrow of their own.
    """
    used = {(room_of(a), room_of(b)) for a, b, _ in all_imports()}
    graph = nx.DiGraph((a, b) for a, b in used if a != b and a in LAW and b in LAW)
    short = nx.transitive_reduction(graph)
    lines = ["```mermaid", "flowchart BT"]
    lines += [f"  {room.replace('.', '_')}[{room}]" for room in LAW]
    order = list(LAW)
    for a, b in sorted(short.edges, key=lambda arrow: tuple(map(order.index, arrow))):
        lines.append(f"  {a.replace('.', '_')} --> {b.replace('.', '_')}")
    return "\n".join([*lines, "```"])


def test_the_law_has_a_direction() -> None:
    order = list(LAW)
    for room, below in LAW.items():
        assert all(order.index(other) < order.index(room) for other in below), room


def test_rooms_import_only_what_the_law_allows() -> None:
    wrong = [
        f"{MODULES[module].relative_to(ROOT)}:{line}: {why}"
        for module, imported, line in all_imports()
        if (why := against(module, imported))
    ]
    assert not wrong, "\n".join(wrong)


def test_the_law_allows_nothing_that_nobody_needs() -> None:
    used = {(room_of(module), room_of(imported)) for module, imported, _ in all_imports()}
    allowed = {(room, other) for room, below in LAW.items() for other in below}
    assert sorted(allowed - used) == []


def test_no_modules_import_in_a_circle() -> None:
    assert circles({(module, imported) for module, imported, _ in all_imports()}) == []


@pytest.mark.parametrize(
    ("module", "line", "why"),
    [
        ("blazes.analysis", "from blazes.report import terminal", "blazes may not import"),
        ("annotations.dataflow", "def f():\n from annotations.file import load", "annotations may"),
        ("flux_runtime.sealing.tracker", "import flux_lab.world", "may not import flux_lab"),
        ("flux_runtime.spark.sealed.gate", "import flux_runtime.spark.flux.stage", "sealed may"),
        (
            "codegen.sites",
            "import blazes.verify.duckdb_engine",
            "codegen may not import blazes.verify",
        ),
        ("blazes.cli.analyze", "import codegen.stages", None),
    ],
)
def test_the_law_sees_an_import_wherever_it_stands(module: str, line: str, why: str | None) -> None:
    ((imported, _),) = set(imports(ast.parse(line)))
    found = against(module, imported)
    assert found is None if why is None else why in str(found)


def test_a_circle_is_seen() -> None:
    assert circles({("a", "b"), ("b", "c"), ("c", "a"), ("c", "d")}) == [{"a", "b", "c"}]


def test_the_page_has_the_picture() -> None:
    """Write it with `python -m tests.test_import_law`."""
    assert picture() in PAGE.read_text(encoding="utf-8")


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    between = re.compile(re.escape(BEGIN) + ".*" + re.escape(END), re.DOTALL)
    PAGE.write_text(between.sub(lambda _: f"{BEGIN}\n{picture()}\n{END}", text), encoding="utf-8")
