"""The Python text of a script or notebook, every statement in the line in which the file has it.

Three kinds of files: plain scripts; notebooks that Databricks exports as source (`# COMMAND`, and
`# MAGIC %sql` before the lines of another language); Jupyter notebooks, whose cells are strings in
JSON. Cells in SQL become `spark.sql(...)`; `%run` runs another notebook here; cells in other
languages and commands of the notebook itself are left out.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

from annotations.dataflow import Position
from annotations.whitebox.sandbox import project_of

RUN: Final = "__run_notebook__"
"""The function that `%run` calls."""
_EXPORTED: Final = "# Databricks notebook source"
_MAGIC: Final = "# MAGIC"
_CELL_MARK: Final = re.compile(r"#\s*COMMAND\s*-+\s*$")
_COMMAND: Final = re.compile(r"\s*(%%?[A-Za-z_]+|!(?!=))(.*)", re.DOTALL)
_ADDED: Final = re.compile(r"\bsys\.path\.(?:append|insert)\((.*)\)")
_TEXT: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")
_OTHER_LANGUAGES: Final = frozenset({"scala", "r", "md", "sh", "fs", "html", "bash", "markdown"})


def program(file: Path) -> str:
    """The text of a file as Python; ValueError where a notebook is not one."""
    text = file.read_text(encoding="utf-8-sig")
    if file.suffix == ".ipynb":
        return _jupyter(text)
    return _exported(text) if text.startswith(_EXPORTED) else text


class Unparsed(Exception):  # noqa: N818 - it is the user's code that meets it
    """A file that this version of Python cannot read, and the place where it stops."""

    def __init__(self, error: SyntaxError, file: Path) -> None:
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        super().__init__(f"Python {version} cannot read this line: {error.msg}")
        self.position = Position(str(file), error.lineno or 1, error.offset or 1)


@cache
def tree_of(file: Path) -> ast.Module:
    """The syntax tree of a file; Unparsed where it has none, ValueError where it is no notebook."""
    try:
        return ast.parse(program(file))
    except SyntaxError as error:
        raise Unparsed(error, file) from None


def _exported(text: str) -> str:
    """A notebook as Databricks exports it: its cells stand between marks.

    >>> _exported("# Databricks notebook source\\n# MAGIC %sql\\n# MAGIC SELECT 1").splitlines()[1]
    "spark.sql('\\\\nSELECT 1')"
    """
    lines: list[str] = []
    cell: list[str] = []
    for line in (*text.split("\n"), "# COMMAND ----------"):
        if _CELL_MARK.match(line):
            lines += [*_exported_cell(cell), ""]
            cell = []
        else:
            cell.append(line)
    return "\n".join(lines)


def _exported_cell(lines: list[str]) -> list[str]:
    magic = [line.removeprefix(_MAGIC).removeprefix(" ") for line in lines if line[:7] == _MAGIC]
    if not magic:
        return _commands(lines)
    first = next(at for at, line in enumerate(lines) if line[:7] == _MAGIC)
    return [*[""] * first, *_commands(magic), *[""] * (len(lines) - first - len(magic))]


def _jupyter(text: str) -> str:
    """A Jupyter notebook: a line of a cell stands in the line that has it in the file."""
    document = json.loads(text)
    if not isinstance(document, dict) or not isinstance(document.get("cells"), list):
        raise ValueError("it has no cells")
    language = (document.get("metadata") or {}).get("language_info", {}).get("name", "python")
    if language != "python":
        raise ValueError(f"its language is {language}, and Python is read")
    written = [line.strip().rstrip(",") for line in text.split("\n")]
    lines_of_cells: list[str] = []
    for cell in document["cells"]:
        source = cell.get("source", ())
        code = source if isinstance(source, str) else "".join(source)
        if cell.get("cell_type") != "code" or not code.strip():
            continue
        lines = code.split("\n")
        at = _place(written, lines, len(lines_of_cells))
        lines_of_cells += [""] * (at - len(lines_of_cells))
        lines_of_cells += _commands(lines)
    return "\n".join(lines_of_cells) + "\n"


def _place(written: list[str], lines: list[str], begin: int) -> int:
    """The line of the file in which a cell begins; `begin` where each cell is one string."""
    quoted = [json.dumps(line + "\n") for line in lines[:-1]] + [json.dumps(lines[-1])]
    for at in range(begin, len(written) - len(quoted) + 1):
        if written[at] == quoted[0] and written[at : at + len(quoted) - 1] == quoted[:-1]:
            return at
    return begin


def _commands(lines: list[str]) -> list[str]:
    """A cell without the commands of the notebook, in as many lines."""
    with suppress(SyntaxError):  # a line of Python may begin like a command
        ast.parse("\n".join(lines))
        return lines
    at = next((at for at, line in enumerate(lines) if line.strip()), 0)
    match = _COMMAND.match(lines[at]) if lines else None
    if match is not None:
        word, rest = match[1].lstrip("%").lower(), match[2]
        if word == "sql":
            query = "\n".join([rest, *lines[at + 1 :]])
            return [*[""] * at, *_statements(query), *[""] * (len(lines) - at - 1)]
        if word in _OTHER_LANGUAGES:
            return [""] * len(lines)
    return list(map(_command, lines))


def _statements(query: str) -> list[str]:
    from annotations.whitebox.following.statements import pieces

    parts = [text for text, _ in pieces(query)]
    statements = [query] if len(parts) == 1 else parts
    return ["; ".join(f"spark.sql({statement!r})" for statement in statements)]


def _command(line: str) -> str:
    """A line that is a command of the notebook: `%run` is followed, others are left out."""
    match = _COMMAND.match(line)
    if match is None:
        return line
    if match[1] == "%run":
        return f"{RUN}({match[2].strip().split(' $')[0].strip(chr(34))!r})"
    if match[1] == "%python":
        return ""
    return "pass" if line[:1].isspace() else ""


def module_file(name: str, beside: Path, *, level: int = 0) -> Path | None:
    """The file of the project's module that `import name` means, in the file `beside`; with a
    `level`, `from .name import` with so many dots.

    It lies beside the file, or below a folder above that, inside the project, or its `src`; or in a
    folder that the file adds to Python's path.
    """
    if level:
        folders = [beside.parents[level - 1]] if level <= len(beside.parents) else []
    else:
        root = project_of(beside.parent)
        installed = "site-packages" in beside.parts
        parents = () if installed else (beside.parent, *beside.parent.parents)
        above = [folder for folder in parents if folder.is_relative_to(root)]
        folders = [
            beside.parent,
            *(inner for folder in above for inner in (folder, folder / "src")),
        ]
        added = (folder / name for name in _added(beside) for folder in above)
        folders += (folder for folder in added if folder.resolve().is_relative_to(root.resolve()))
    for folder in folders if name else ():
        file = folder.joinpath(*name.split("."))
        for place in (file.with_suffix(".py"), file / "__init__.py"):
            if place.is_file():
                return place
    return None


@cache
def _added(file: Path) -> tuple[str, ...]:
    """The folders that a file adds to Python's path, as far as its text has their names."""
    text = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    added = [
        [name for pair in _TEXT.findall(names) for name in pair if name]
        for names in _ADDED.findall(text)
    ]
    return tuple(str(Path(*names)).lstrip("/") for names in added if names)


def notebook(name: str, beside: Path) -> Path | None:
    """The file that `%run name` means, in the notebook `beside`."""
    base = beside.parent / name
    tried: Iterator[Path] = (base.with_name(base.name + end) for end in ("", ".py", ".ipynb"))
    return next((path for path in tried if path.is_file()), None)
