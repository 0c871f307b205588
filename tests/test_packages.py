"""A package says which module does what: it names all that it has, and none that it has not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SILENT = {"blazes", "flux_runtime", "flux_lab"} | {
    "annotations.whitebox", "annotations.whitebox.bloom", "annotations.whitebox.connect",
    "blazes.core", "blazes.simulate", "blazes.verify", "flux_runtime.protocol", "flux_runtime.site",
}  # fmt: skip
"""Packages that do not name all of their modules yet."""
PACKAGES = sorted(
    ".".join(file.parent.relative_to(ROOT).parts)
    for package in ("annotations", "blazes", "codegen", "flux_runtime", "flux_lab")
    for file in (ROOT / package).rglob("__init__.py")
    if ".".join(file.parent.relative_to(ROOT).parts) not in SILENT
)


def folder(package: str) -> Path:
    return ROOT.joinpath(*package.split("."))


def text(package: str) -> str:
    return (folder(package) / "__init__.py").read_text(encoding="utf-8")


def doc(package: str) -> str:
    return ast.get_docstring(ast.parse(text(package))) or ""


def names(package: str) -> set[str]:
    """Everything that the docstring names, and modules in tables, such as that of commands."""
    tabled = re.findall(rf'"{re.escape(package)}\.(\w+)"', text(package))
    return {*re.findall(r"`(\w+)`", doc(package)), *tabled}


def parts(package: str) -> set[str]:
    """The modules and packages in it."""
    modules = {file.stem for file in folder(package).glob("*.py")}
    return (modules | {file.parent.name for file in folder(package).glob("*/__init__.py")}) - {
        "__init__",
        "__main__",
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_names_its_modules(package: str) -> None:
    assert sorted(parts(package) - names(package)) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_an_item_of_a_package_begins_with_what_exists(package: str) -> None:
    """`- `module`, `module`: ...`; what is said of them may name other things."""
    heads = re.findall(r"^- ((?:`\w+`,? ?)+):", doc(package), re.MULTILINE)
    named = {name for head in heads for name in re.findall(r"`(\w+)`", head)}
    assert sorted(named - parts(package)) == []
