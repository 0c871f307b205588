"""What the text of a Python function says against its being a function of its arguments alone.

Nothing that a function of the user does is known before it runs. But a text that reads a clock,
draws at random, or changes what outlives the call is not taken at its word: `by_chance`. What it
calls in its own file is looked at too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from annotations.whitebox.connect.program import program

_CHANCE: Final = (
    *("random", "secrets", "numpy.random", "uuid.uuid1", "uuid.uuid4", "os.urandom", "os.getpid"),
    *("time.time", "time.time_ns", "time.monotonic", "time.perf_counter", "time.process_time"),
    *("datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"),
    *("datetime.date.today", "pandas.Timestamp.now", "pandas.Timestamp.utcnow"),
    *("pandas.Timestamp.today", "socket", "requests", "urllib.request", "http.client"),
)
"""Modules and functions, with all that is in them."""
_SEEDED: Final = ("random.Random", "numpy.random.default_rng", "numpy.random.RandomState")
"""What is drawn from these repeats where they are given a seed."""
_CHANGING: Final = frozenset(
    {"add", "append", "appendleft", "clear", "discard", "extend", "insert", "pop", "popitem"}
    | {"popleft", "put", "remove", "setdefault", "sort", "reverse", "update", "write"}
)
"""Methods that change their object."""
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def by_chance(function: Any) -> bool:
    """Whether the text of a function shows that its result depends on more than its arguments."""
    code = getattr(function, "__code__", None)
    if code is None or not Path(code.co_filename).is_file():
        return False
    tree = ast.parse(program(Path(code.co_filename)))
    nodes = [
        node
        for node in ast.walk(tree)
        if isinstance(node, _DEFINITIONS)
        and isinstance(node, ast.Lambda) == (code.co_name == "<lambda>")
        and code.co_firstlineno in (node.lineno, *_decorated(node))
    ]
    text = _Text(tree)
    return any(text.by_chance(node) for node in nodes)


class _Text:
    """The text of a module."""

    def __init__(self, tree: ast.Module) -> None:
        self._functions = {
            node.name: node for node in tree.body if isinstance(node, _DEFINITIONS[:2])
        }
        self._imported = dict(_imports(tree))
        """Name -> the module, or the thing in a module, that it stands for."""
        self._seen: set[ast.AST] = set()

    def by_chance(self, node: Any) -> bool:
        """Whether a function shows it, or one that it calls."""
        if node in self._seen:
            return False
        self._seen.add(node)
        own = set(_own(node))
        body = node.body if isinstance(node.body, list) else [node.body]
        return any(self._shows(inner, own) for each in body for inner in ast.walk(each))

    def _shows(self, node: ast.AST, own: set[str]) -> bool:
        match node:
            case ast.Global() | ast.Nonlocal():
                return True
            case ast.Call(func=ast.Name(id="__import__" | "id")):
                return True
            case ast.Call(func=ast.Name(id="next"), args=[iterator, *_]):
                return self._outlives(iterator, own)
            case ast.Call(func=called, args=arguments) if self._dotted(called) in _SEEDED:
                return not arguments
            case ast.Call(func=ast.Attribute(value=changed, attr=method)) if method in _CHANGING:
                return self._outlives(changed, own)
            case (
                ast.Subscript(ctx=ast.Store() | ast.Del())
                | ast.Attribute(ctx=ast.Store() | ast.Del())
            ):
                return self._outlives(node.value, own)
            case ast.Name(id=name, ctx=ast.Load()) if name in self._functions and name not in own:
                return self.by_chance(self._functions[name])
            case ast.Name(ctx=ast.Load()) | ast.Attribute(ctx=ast.Load()):
                dotted = self._dotted(node)
                modules = dotted in ("random", "numpy.random", "socket", "requests")
                return (
                    not modules
                    and dotted not in _SEEDED
                    and any(dotted == each or dotted.startswith(f"{each}.") for each in _CHANCE)
                )
        return False

    def _outlives(self, node: ast.AST, own: set[str]) -> bool:
        """Whether an object is there before the call and after it."""
        while isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        return isinstance(node, ast.Name) and node.id not in own | self._imported.keys()

    def _dotted(self, node: ast.AST) -> str:
        """The full name of what a module has; empty for anything else."""
        names: list[str] = []
        while isinstance(node, ast.Attribute):
            names.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id not in self._imported:
            return ""
        return ".".join([self._imported[node.id], *reversed(names)])


def _decorated(node: Any) -> Iterator[int]:
    return (decorator.lineno for decorator in getattr(node, "decorator_list", ()))


def _imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    first = alias.name.partition(".")[0]
                    yield (alias.asname, alias.name) if alias.asname else (first, first)
            case ast.ImportFrom(module=str(module), names=names):
                for alias in names:
                    yield alias.asname or alias.name, f"{module}.{alias.name}"


def _own(node: Any) -> Iterator[str]:
    """The names of a call: its parameters that have no default, and what it sets."""
    arguments = node.args
    named = [*arguments.posonlyargs, *arguments.args]
    for parameter in named[: len(named) - len(arguments.defaults)]:
        yield parameter.arg
    for parameter, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is None:
            yield parameter.arg
    for parameter in (arguments.vararg, arguments.kwarg):
        if parameter is not None:
            yield parameter.arg
    for inner in ast.walk(node):
        match inner:
            case ast.Name(id=name, ctx=ast.Store()) | ast.ExceptHandler(name=str(name)):
                yield name
            case ast.arg(arg=name) if inner not in ast.walk(arguments):
                yield name
