"""Texts of a job's functions: a digest of each, and which columns one may read.

A compiled job's functions are a query, or a call of somebody's Python. Of a query it can be said
without running it that it does not read a column; of Python nothing is said.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

JOBS: Final = ("__main__", "job")
"""The module that a compiled job is, as it is run and as it is imported."""
INSTALLED: Final = ("site-packages", "dist-packages")
"""Folders of installed packages."""
_WIDE: Final = re.compile(
    r"(?:\b(?:select|distinct|all)\s+|[,.]\s*|(?<!count)\(\s*)\*"
    r"|\|>|\bnatural\b|\bpivot\b|\btable\b|/\*\+",
    re.I,
)
"""What takes columns that a query does not name: `*` (not a multiplication, nor `count(*)`), pipes,
natural joins, pivots, `TABLE`."""


def code(function: Callable[..., Any]) -> str:
    """A digest of a function's text without comments, layout, docstring and imports.

    What the function calls is not followed: see `modules`. A lambda, or a function without a file,
    goes by its byte code.
    """
    tree = _tree(function)
    if tree is None:
        compiled = getattr(function, "__code__", None)
        parts = () if compiled is None else (compiled.co_code, compiled.co_names)
        return digest(f"{function.__qualname__} {parts}")
    return digest(ast.unparse(_without_imports(_without_docstrings(tree))))


def modules(functions: Collection[Callable[..., Any]]) -> Mapping[str, str]:
    """A digest of each module beside the job that functions are in or use, also through others.

    The job's own file and installed packages are not among them. Modules are read, not imported:
    some need a session when they are.
    """
    files = [(f.__module__, Path(file)) for f in functions if (file := _file(f)) is not None]
    folders = {file.parent for _, file in files}
    roots = {file.parents[_depth(module, file)] for module, file in files}
    waiting: list[str] = []
    for function in functions:
        compiled = getattr(function, "__code__", None)
        names = () if compiled is None else compiled.co_names
        for value in (function, *(function.__globals__.get(name) for name in names)):
            if isinstance(value, ModuleType):
                used = [value.__name__]
                for name in names:
                    used += [part for m in used if (part := f"{m}.{name}") in sys.modules]
                waiting += used
            else:
                waiting.append(getattr(value, "__module__", None) or "")
        tree = _tree(function)
        waiting += [] if tree is None else _imported(tree, "")
    texts: dict[str, str] = {}
    while waiting:
        name = waiting.pop()
        places = [
            path
            for root in roots
            if (path := _beside(name, root)) is not None and folders.intersection(path.parents)
        ]
        if places and name not in (*texts, *JOBS):
            tree = ast.parse(places[0].read_text("utf-8"))
            package = name if places[0].name == "__init__.py" else name.rpartition(".")[0]
            waiting += _imported(tree, package)
            texts[name] = digest(ast.unparse(_without_docstrings(tree)))
    return dict(sorted(texts.items()))


def _depth(module: str, file: Path) -> int:
    """How many folders above a module's file the folder is that its name begins in."""
    return 0 if module in JOBS else module.count(".") + (file.name == "__init__.py")


def _beside(module: str, folder: Path) -> Path | None:
    """The file of a module in a folder, if it is there and nothing that was installed."""
    path = folder.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if module and file.is_file() and not any(p.name in INSTALLED for p in file.parents):
            return file
    return None


def _imported(tree: ast.Module, package: str) -> list[str]:
    """The modules that a text may import, anywhere in it, and the packages that they are in."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1]
            base = ".".join(filter(None, [*(above if node.level else ()), node.module]))
            names += [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
    return [".".join(parts[:n]) for name in names if (parts := name.split(".")) for n in
            range(1, len(parts) + 1)]  # fmt: skip


def digest(text: str) -> str:
    """The first 16 digits of a text's SHA-256."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def is_narrow(functions: Sequence[Callable[..., Any]]) -> bool:
    """Whether functions, one after the other, let no column through that they do not name."""
    return any(query is not None and not _WIDE.search(query) for query in map(query_of, functions))


def may_read(functions: Sequence[Callable[..., Any]], columns: frozenset[str]) -> frozenset[str]:
    """Which of the columns functions, one after the other, may read; `*` stands for any."""
    result: frozenset[str] = frozenset()
    for function in functions:
        query = query_of(function)
        if query is None and not _passes_all(function):
            return columns
        if query is not None:
            result |= {name for name in columns if name == "*" or _mentions(query, name)}
            if not _WIDE.search(query):
                return result
    return columns


def query_of(function: Callable[..., Any]) -> str | None:
    """The query that a function is: `return sql("...", ...)`; None: it is something else."""
    call = _returned(function)
    match call:
        case ast.Call(func=ast.Name(id="sql"), args=[ast.Constant(value=str() as query), *_]):
            return query
    return None


def columns_of_ddl(ddl: str) -> dict[str, str]:
    """Column -> type, of `name TYPE, ...`; names in lower case, types in upper case.

    >>> columns_of_ddl("id BIGINT, `a b` decimal(3, 1), s STRUCT<x: INT, y: INT> NOT NULL")
    {'id': 'BIGINT', 'a b': 'DECIMAL(3, 1)', 's': 'STRUCT<X: INT, Y: INT> NOT NULL'}
    """
    columns = {}
    for part in _split(ddl):
        match = re.fullmatch(r"\s*(?:`((?:[^`]|``)*)`|([^\s:]+))\s*:?\s*(.*?)\s*", part, re.S)
        if match is not None and (match[1] or match[2]):
            name = match[1].replace("``", "`") if match[1] else match[2]
            columns[name.lower()] = " ".join(match[3].split()).upper()
    return columns


def _split(ddl: str) -> Iterator[str]:
    """The parts between commas that are in no brackets or quotes."""
    depth, quoted, begin = 0, False, 0
    for at, sign in enumerate(ddl):
        if sign == "`":
            quoted = not quoted
        elif not quoted:
            depth += (sign in "<(") - (sign in ">)")
            if sign == "," and not depth:
                yield ddl[begin:at]
                begin = at + 1
    yield ddl[begin:]


def _mentions(query: str, column: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(column)}(?!\w)", query, re.I) is not None


def _passes_all(function: Callable[..., Any]) -> bool:
    """Whether a function hands on records as they are, or without some columns or repeats."""
    match _returned(function):
        case ast.Name() | ast.Call(func=ast.Attribute(value=ast.Name(), attr="drop")):
            return True
        case ast.Call(func=ast.Name(id="deduplicated")):
            return True
    return False


def _returned(function: Callable[..., Any]) -> ast.expr | None:
    """The expression that a function of one statement returns."""
    tree = _tree(function)
    if tree is None:
        return None
    match _without_imports(_without_docstrings(tree)).body[0]:
        case ast.FunctionDef(body=[ast.Return(value=value)]):
            return value
    return None


def _tree(function: Callable[..., Any]) -> ast.Module | None:
    compiled = getattr(function, "__code__", None)
    if compiled is None or compiled.co_name == "<lambda>":
        return None
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _without_imports(tree: ast.Module) -> ast.Module:
    """The text of a function, without the imports at its beginning."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            node.body = [s for s in node.body if not isinstance(s, ast.Import)] or [ast.Pass()]
    return tree


def _file(function: Callable[..., Any]) -> str | None:
    compiled = getattr(function, "__code__", None)
    if compiled is not None:
        return str(compiled.co_filename)
    return getattr(sys.modules.get(function.__module__), "__file__", None)
