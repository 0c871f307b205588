"""A package says which module does what; names are nouns, and docstrings begin with them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = sorted(
    ".".join(file.parent.relative_to(ROOT).parts)
    for package in ("annotations", "blazes", "codegen", "flux_runtime", "flux_lab")
    for file in (ROOT / package).rglob("__init__.py")
)
NO_NOUNS = {"each", "found", "it", "kept", "made", "said", "told", "what", "whole", "wrong"}


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


def untidy(tree: ast.Module) -> list[tuple[int, str]]:
    """(line, word): variables that are no nouns; fields of classes have the names of their JSON."""
    places = []
    nodes = list(ast.walk(tree))
    fields = {
        id(field.target)
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign)
    }
    for node in nodes:
        if isinstance(node, ast.Name):
            variable = isinstance(node.ctx, ast.Store) and id(node) not in fields
            name: str | None = node.id if variable else None
        else:
            name = node.arg if isinstance(node, ast.arg) else getattr(node, "name", None)
        if name in NO_NOUNS:
            called = "()" if isinstance(node, ast.FunctionDef) else ""
            places.append((getattr(node, "lineno", 0), f"{name}{called}"))
    return places


def vague(tree: ast.Module) -> list[int]:
    """Lines of docstrings that begin with "What" instead of saying what the thing is."""
    return [
        node.body[0].lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (ast.get_docstring(node) or "").startswith("What ")
    ]


@pytest.mark.parametrize("package", PACKAGES)
def test_names_are_nouns(package: str) -> None:
    places = [
        f"{file.relative_to(ROOT)}:{line}: {word}"
        for file in sorted(folder(package).glob("*.py"))
        for line, word in untidy(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert not places, "\n".join(places)


def test_docstrings_begin_with_the_thing() -> None:
    places = [
        f"{file.relative_to(ROOT)}:{line}"
        for package in PACKAGES
        for file in sorted(folder(package).glob("*.py"))
        for line in vague(ast.parse(file.read_text(encoding="utf-8")))
    ]
    assert not places, "\n".join(places)


def test_what_is_no_noun_is_seen() -> None:
    text = '"""What a file is."""\nfor each in (): pass\ntry: f()\nexcept E as wrong: pass\n'
    assert sorted(word for _, word in untidy(ast.parse(text))) == ["each", "wrong"]
    assert vague(ast.parse(text)) == [1]
