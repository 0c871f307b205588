"""The Python operators that a dataflow names, looked up without importing them.

`python: module:function` is a file beside the dataflow, or an installed module. Files beside the
dataflow are copied into the project, with the files beside it that they import.
"""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

from annotations.diagnostics import did_you_mean
from annotations.file.python_declarations import Names

TAKEN: Final = frozenset(sys.stdlib_module_names) | {
    "annotations",
    "blazes",
    "codegen",
    "flux_runtime",
    "job",
    "kazoo",
    "numpy",
    "pandas",
    "pyarrow",
    "pyspark",
}
"""Top-level modules that a copied operator would hide, and the job itself."""
STATEFUL: Final = frozenset(
    {"applyInPandasWithState", "transformWithState", "transformWithStateInPandas"}
)
"""Operations of DataFrames whose functions keep state with Spark."""
STREAMS_ONLY: Final = frozenset({"applyInPandasWithState", "dropDuplicatesWithinWatermark"})
"""Operations of DataFrames that Spark refuses of batches."""


@dataclass(frozen=True, slots=True)
class Operator:
    """A function in a module; `file` is None where the module is installed, not beside."""

    module: str
    function: str
    file: Path | None
    parameters: tuple[str, ...] | None
    """Names it can be called with; None where that cannot be read off the text."""
    required: tuple[str, ...] = ()
    """Parameters without a default."""
    any_name: bool = False
    """True where it takes `**keywords`."""

    def takes(self, name: str) -> bool:
        """True where the function can be called with an argument of that name."""
        return self.parameters is None or self.any_name or name in self.parameters


class OperatorError(Exception):
    """There is no such module or function; the message says what was looked for, and where."""


def find(reference: str, folder: Path) -> Operator:
    """The operator `module:function` of a dataflow in that folder, or OperatorError."""
    module, _, function = reference.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), function)):
        raise OperatorError(f"{reference!r} is not module:function")
    file = beside(module, folder)
    text = file or installed(module)
    if text is None:
        beside_it = (f"{file.stem}:{function}" for file in folder.glob("*.py"))
        near = did_you_mean(reference, beside_it)
        raise OperatorError(
            f"there is no module {module!r}, neither beside the file nor installed{near}"
        )
    if text.suffix != ".py":
        return Operator(module, function, file, None)
    try:
        tree = parsed(text)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise OperatorError(f"{text.name}:{line} is not valid Python: {error}") from None
    return operator(module, function, file, tree)


def operator(module: str, function: str, file: Path | None, tree: ast.Module) -> Operator:
    """The function as the module's text defines it."""
    bound = names(tree)
    definition = bound.get(function)
    if function not in bound:
        if any(
            isinstance(statement, ast.ImportFrom) and is_star(statement) for statement in tree.body
        ):
            return Operator(module, function, file, None)
        near = did_you_mean(function, bound)
        raise OperatorError(f"module {module!r} has no function {function!r}{near}")
    if definition is None:
        return Operator(module, function, file, None)
    decorators = _called(definition)
    if decorators and not all(map(Names(tree).declared_by, decorators)):
        return Operator(module, function, file, None)
    arguments = definition.args
    positional = [*arguments.posonlyargs, *arguments.args]
    required = positional[: len(positional) - len(arguments.defaults)]
    required += [
        argument
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        if default is None
    ]
    by_name = [*arguments.args, *arguments.kwonlyargs]
    return Operator(
        module,
        function,
        file,
        parameters=tuple(argument.arg for argument in by_name),
        required=tuple(argument.arg for argument in required),
        any_name=arguments.kwarg is not None,
    )


def _called(definition: ast.FunctionDef) -> list[ast.expr]:
    """The functions that decorate a definition; those that declare it leave it as it is."""
    decorators = definition.decorator_list
    return [d.func if isinstance(d, ast.Call) else d for d in decorators]


def names(tree: ast.Module) -> dict[str, ast.FunctionDef | None]:
    """The names bound at the top level of a module, with the definition of each plain function."""
    bound: dict[str, ast.FunctionDef | None] = {}
    for node in tree.body:
        match node:
            case ast.FunctionDef():
                bound[node.name] = node
            case ast.AsyncFunctionDef() | ast.ClassDef():
                bound[node.name] = None
            case ast.Import() | ast.ImportFrom():
                for alias in node.names:
                    bound[(alias.asname or alias.name).split(".")[0]] = None
            case ast.Assign() | ast.AnnAssign() | ast.If() | ast.Try() | ast.With():
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                        bound.setdefault(inner.id, None)
                    elif isinstance(inner, ast.FunctionDef):
                        bound.setdefault(inner.name, inner)
    return bound


def files(modules: Iterable[str], folder: Path) -> dict[str, Path]:
    """Every file beside the dataflow that these modules need: relative name -> file, sorted.

    Follows imports from file to file; what is not beside the dataflow is installed, or fails when
    the job starts with Python's own message.
    """
    files: dict[str, Path] = {}
    todo = list(modules)
    while todo:
        module = todo.pop()
        for name in with_packages(module):
            file = beside(name, folder)
            if file is None or file.relative_to(folder).as_posix() in files:
                continue
            if name.split(".")[0] in TAKEN:
                break
            files[file.relative_to(folder).as_posix()] = file
            todo += imports(file, name)
    return dict(sorted(files.items()))


def named_attributes(reference: str, folder: Path) -> set[str]:
    """The attributes that a function names, and those functions and classes beside it that it uses.

    Args:
        reference: `module:function`.
        folder: of the dataflow.
    """
    module, _, function = reference.partition(":")
    definitions: dict[str, ast.AST] = {}
    for file in files([module], folder).values():
        with suppress(SyntaxError, ValueError):
            definitions |= _definitions(file, file.stat().st_mtime_ns)
    named: set[str] = set()
    todo = [function]
    while todo:
        definition = definitions.pop(todo.pop(), None)
        for node in () if definition is None else ast.walk(definition):
            if isinstance(node, ast.Attribute):
                named.add(node.attr)
                todo.append(node.attr)
            elif isinstance(node, ast.Name):
                todo.append(node.id)
    return named


def imports(file: Path, module: str) -> list[str]:
    """The modules that a file imports anywhere in it, relative ones resolved."""
    try:
        return [*_imports(file, file.stat().st_mtime_ns, module)]
    except (SyntaxError, ValueError):
        return []


@functools.lru_cache(maxsize=256)
def _imports(file: Path, modified_ns: int, module: str) -> tuple[str, ...]:
    tree = _parsed(file, modified_ns)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    modules: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".") if package else []
            start = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            base = ".".join(filter(None, [start, node.module]))
            modules += [base, *(f"{base}.{alias.name}".lstrip(".") for alias in node.names)]
    return tuple(module for module in modules if module)


def beside(module: str, folder: Path) -> Path | None:
    """The file of a module in the dataflow's folder."""
    base = folder.joinpath(*module.split("."))
    candidates = (base.with_name(base.name + ".py"), base / "__init__.py")
    return next((candidate for candidate in candidates if candidate.is_file()), None)


def installed(module: str) -> Path | None:
    """The file of an installed module, found without importing it or its packages."""
    path: Sequence[str] | None = None
    spec = None
    for name in with_packages(module):
        spec = PathFinder.find_spec(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return Path(spec.origin) if spec and spec.origin else None


def with_packages(module: str) -> list[str]:
    """The module after the packages it lies in.

    >>> with_packages("a.b.c")
    ['a', 'a.b', 'a.b.c']
    """
    parts = module.split(".")
    return [".".join(parts[: end + 1]) for end in range(len(parts))]


def is_star(node: ast.ImportFrom) -> bool:
    """True for `from module import *`."""
    return any(alias.name == "*" for alias in node.names)


@functools.lru_cache(maxsize=256)
def _parsed(file: Path, modified_ns: int) -> ast.Module:
    return ast.parse(file.read_bytes(), filename=file.name)


@functools.lru_cache(maxsize=256)
def _definitions(file: Path, modified_ns: int) -> dict[str, ast.AST]:
    """The functions and classes anywhere in a file; of several of one name the last."""
    nodes = ast.walk(_parsed(file, modified_ns))
    return {n.name: n for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}


def parsed(file: Path) -> ast.Module:
    """The syntax tree of a file; SyntaxError or ValueError where it is not Python."""
    return _parsed(file, file.stat().st_mtime_ns)
