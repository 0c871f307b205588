"""The files of a repository that may be streaming jobs."""

from __future__ import annotations

import ast
import builtins
import os
import re
import sys
from collections.abc import Iterable, Iterator, Set
from pathlib import Path
from typing import Final

from annotations.whitebox.following.program import module_file
from annotations.whitebox.foreign_sql import language_of

_LEFT_OUT: Final = frozenset({"node_modules", "site-packages", "target", "venv", "__pycache__"})
"""Folders that are not looked into, beside hidden ones."""
_SPECIFICATIONS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
_SPEAKS: Final = {
    ".py": re.compile(
        rb"\b(readStream|writeStream|(import|from) (dlt|blazes)|pyspark(\.| import )pipelines)\b"
    ),
    ".ipynb": re.compile(rb"\b(readStream|writeStream|import dlt|pyspark(\.| import )pipelines)\b"),
    ".sql": re.compile(
        rb"\b(STREAMING|LIVE)\s+(LIVE\s+)?TABLE|\bAPPLY\s+CHANGES|\bAUTO\s+CDC|\bCREATE\s+FLOW",
        re.I,
    ),
    ".yaml": re.compile(rb"^(components|streams):", re.MULTILINE),
    ".yml": re.compile(rb"^(components|streams):", re.MULTILINE),
}
"""Suffix -> what a file says that may be a job."""
_BYTES_MAX: Final = 4 * 2**20
"""Size of the largest file that is looked at."""
_IMPORT: Final = re.compile(
    rb"^[ \t]*(?:from|import)\s+(\.*)([\w.]*)(?:\s+import\s+(\([\w,\s]+|[\w, \t]+))?", re.MULTILINE
)
_KNOWN: Final = sys.stdlib_module_names | {"pyspark", "pytest"}
_STARTS: Final = re.compile(r"\b(readStream|writeStream|start|toTable|dlt|dp|pipelines)\b")


def candidates(folder: Path) -> Iterator[Path]:
    """The files below a folder that may be jobs; a project stands for all that lies below it.

    A script that speaks of no streams is one where it runs something, and imports, directly or by
    other modules, a module that does.
    """
    silent: dict[Path, bytes] = {}
    speaking: list[Path] = []
    for place, folders, files in os.walk(folder):
        specification = next((name for name in _SPECIFICATIONS if name in files), None)
        if specification is not None:
            folders.clear()
            yield Path(place, specification)
            continue
        folders[:] = sorted(f for f in folders if f not in _LEFT_OUT and not f.startswith("."))
        for name in sorted(files):
            file = Path(place, name)
            if file.suffix in _SPEAKS and file.is_file() and file.stat().st_size <= _BYTES_MAX:
                text = file.read_bytes()
                other = file.suffix == ".sql" and language_of(text.decode(errors="replace"))
                if other or _SPEAKS[file.suffix].search(text):
                    yield file
                    speaking += [file] if file.suffix == ".py" else []
                elif file.suffix == ".py":
                    silent[file] = text
    yield from _starting(speaking, silent)


def _starting(speaking: Iterable[Path], silent: dict[Path, bytes]) -> Iterator[Path]:
    """The scripts among the silent files that run something and reach a module that speaks."""
    reached = set(speaking)
    imports = {file: set(_imported(file, text)) for file, text in silent.items()} if reached else {}
    size = 0
    while size < len(reached):
        size = len(reached)
        reached |= {file for file, modules in imports.items() if modules & reached}
    for file, modules in imports.items():
        names = {
            module.parent.name if module.stem == "__init__" else module.stem
            for module in modules & reached
        }
        if names and not defines_only(silent[file], names):
            yield file


def _imported(file: Path, text: bytes) -> Iterator[Path]:
    """The files of the modules that a file imports, as far as they lie in its project."""
    for match in _IMPORT.finditer(text):
        dots, module, names = (part.decode("ascii", "replace") for part in match.groups(b""))
        inside = (f"{module}.{name}".strip(".") for name in re.findall(r"\w+", names))
        for name in (module, *inside):
            imported = module_file(name, file, level=len(dots))
            if imported is not None:
                yield imported


def defines_only(text: bytes, reached: Set[str] | None = None) -> bool:
    """Whether a module starts nothing when it is run: it imports, defines and assigns.

    Args:
        text: of the module.
        reached: names of the modules that may start something; None: all but those of Python and
            of PySpark may.

    >>> defines_only(b"import logging\\nlog = logging.getLogger()\\ndef run(spark): ...")
    True
    >>> defines_only(b"class Count:\\n    total = 0\\ncount = Count()")
    True
    >>> defines_only(b"import jobs\\nclass Job:\\n    run = jobs.run()\\njob = Job()")
    False
    >>> defines_only(b"def run(): ...\\nif __name__ == '__main__':\\n    run()")
    False
    """
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    harmless = _harmless(body, reached)
    return all(_defines(statement, harmless) for statement in body)


def _harmless(body: Iterable[ast.stmt], reached: Set[str] | None) -> set[str]:
    """The names of what a module imports, or defines itself, that starts nothing."""

    def starts(module: str, *names: str) -> bool:
        parts = {*module.split("."), *names}
        if "pipelines" in parts:
            return True
        return bool(parts & reached) if reached is not None else module.split(".")[0] not in _KNOWN

    names = set(dir(builtins)) - {"eval", "exec", "__import__"}
    others = {part.name for part in body if isinstance(part, ast.FunctionDef)}
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            module = getattr(statement, "module", "") or ""
            for alias in statement.names:
                name = alias.asname or (alias.name if module else alias.name.partition(".")[0])
                (others if starts(module or alias.name, alias.name) else names).add(name)
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            parts = list(ast.walk(statement))
            used = {part.id for part in parts if isinstance(part, ast.Name)}
            imports = any(isinstance(part, ast.Import | ast.ImportFrom) for part in parts)
            if not (used & others or imports or _STARTS.search(ast.unparse(statement))):
                names.add(statement.name)
    return names


def _defines(statement: ast.stmt, harmless: set[str]) -> bool:
    match statement:
        case ast.Import() | ast.ImportFrom() | ast.Pass():
            return True
        case ast.FunctionDef(args=given) | ast.AsyncFunctionDef(args=given):
            defaults = (*given.defaults, *filter(None, given.kw_defaults))
            return _calm((*statement.decorator_list, *defaults), harmless)
        case ast.ClassDef(body=body):
            return _calm(statement.decorator_list, harmless) and all(
                _defines(inner, harmless) for inner in body
            )
        case ast.Assign() | ast.AnnAssign() | ast.Expr():
            return statement.value is None or _calm([statement.value], harmless)
        case ast.If(test=test, body=body, orelse=orelse):
            asked = "__main__" not in ast.unparse(test)
            return asked and all(_defines(inner, harmless) for inner in (*body, *orelse))
        case ast.Try(body=body, handlers=handlers):
            caught = (inner for handler in handlers for inner in handler.body)
            return all(_defines(inner, harmless) for inner in (*body, *caught))
    return False


def _calm(values: Iterable[ast.expr], harmless: set[str]) -> bool:
    """Whether values call nothing but what Python and PySpark have, and start no query."""
    for value in values:
        for node in ast.walk(value):
            if isinstance(node, ast.Call):
                root: ast.expr = node.func
                while isinstance(root, ast.Attribute | ast.Call):
                    root = root.value if isinstance(root, ast.Attribute) else root.func
                if not isinstance(root, ast.Name) or root.id not in harmless:
                    return False
            if isinstance(node, ast.Attribute) and node.attr in ("start", "toTable", "writeStream"):
                return False
            if isinstance(node, ast.Name) and node.id in ("dlt", "dp", "pipelines"):
                return False
    return True
