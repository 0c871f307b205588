"""Functions that the user hands to Spark, as text: the definition, and all that it needs.

A function is found in its file by the line that its code object names. What it calls and reads is
followed through the statements of its module: imports, functions, classes and constants.
"""

from __future__ import annotations

import ast
import builtins
import functools
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from annotations.whitebox.connect.expression_text import NotWritten
from annotations.whitebox.following import outside
from annotations.whitebox.following.classes import Object
from annotations.whitebox.following.program import program
from annotations.whitebox.following.user_functions import CHANGING, shown

_BUILT_IN: Final = frozenset(dir(builtins))
_SESSION: Final = frozenset({"spark", "sc", "dbutils", "SparkSession"})
"""Names that only a running job has a value for."""
_ACTIVE: Final = b"SparkSession.active()"
_ARGUMENTS: Final = re.compile(r"\bsys\.argv\b|\.parse(_known)?_args\(|\bdbutils\.")
_OWN: Final = {
    "F": ("from pyspark.sql import functions as F", "import pyspark.sql.functions as F"),
    "DataFrame": ("from pyspark.sql import DataFrame",),
}
"""Names that the module has for itself."""
_RESTORED: Final = "restored"
_RESTORING: Final = """\
def restored(kind, values):
    made = object.__new__(kind)
    vars(made).update(values)
    return made"""
"""Makes an object that holds what it held in the script."""
_DECORATORS: Final = frozenset({"udf", "pandas_udf", "arrow_udf"})


class Definitions:
    """The imports and statements of a module, in the order in which they have to stand."""

    def __init__(self, objects: Mapping[bytes, Any]) -> None:
        self._objects = objects
        self.imports: dict[str, None] = {}
        self.statements: dict[tuple[str, int], str] = {}
        """File and line -> the text of a statement."""
        self._names: dict[tuple[str, int, int], str] = {}
        self._trees: dict[str, tuple[ast.Module, str]] = {}
        self._bound: dict[str, tuple[str, int]] = {}
        self._followed: set[tuple[str, int]] = set()
        self._driver = False

    def name(self, command: bytes, called: str) -> str:
        """The name by which a function of the user, for which `command` stands, can be called.

        Raises:
            NotWritten: the function does not stand by itself.
        """
        return self.of_function(self._objects.get(command), called)

    def of_driver(self, function: Any, called: str) -> str:
        """The text that gives a function which the driver calls: it may use the session, be a
        method of an object, and have values with it, by `functools.partial` or from around it."""
        self._driver = True
        if shown(function).kept:
            return self.of_function(function, called)
        function, first, named = getattr(function, "parts", (function, (), {}))
        if isinstance(function, functools.partial):
            function, first, named = function.func, function.args, function.keywords
        if first or named:
            given = [self.of_driver(function, called), *(self._value(v, called) for v in first)]
            given += [f"{name}={self._value(value, called)}" for name, value in named.items()]
            self.imports["import functools"] = None
            return f"functools.partial({', '.join(given)})"
        owner = getattr(function, "__self__", None)
        if owner is not None:
            return f"{self._value(owner, called)}.{function.__name__}"
        if not hasattr(function, "__code__"):
            return self._value(function, called)
        names = function.__code__.co_freevars
        if not names:
            return self.of_function(function, called)
        values = [self._value(value, called) for value in self._around(function, names)]
        return f"{self.of_function(function, called, names)}({', '.join(values)})"

    def _around(self, function: Any, names: Sequence[str]) -> list[Any]:
        """The values that a function has from around it."""
        scope = getattr(function, "scope", None)
        if scope is not None:
            return [scope.value(name) for name in names]
        return [cell.cell_contents for cell in function.__closure__]

    def _value(self, value: Any, called: str) -> str:
        """The text of a value that a function has with it.

        Raises:
            NotWritten: it is not known here, or no text gives it.
        """
        if type(value).__name__ == "SparkSession":
            self.imports["from pyspark.sql import SparkSession"] = None
            return _ACTIVE.decode()
        if isinstance(value, str | int | float | None):
            text = repr(value)
            if any(name in text for name in outside.MADE):
                raise NotWritten(f"`{called}`, which uses {text}, and that is not known here")
            return text
        if isinstance(value, list | tuple | set):
            parts = f"[{', '.join(self._value(part, called) for part in value)}]"
            kind = next((known for known in (tuple, set) if isinstance(value, known)), None)
            return parts if kind is None else f"{kind.__name__}({parts})"
        if isinstance(value, dict):
            pairs = (
                f"{self._value(k, called)}: {self._value(v, called)}" for k, v in value.items()
            )
            return f"{{{', '.join(pairs)}}}"
        if hasattr(value, "__code__") or isinstance(value, functools.partial):
            return self.of_driver(value, called)
        return self._restored(value, called)

    def _restored(self, instance: Any, called: str) -> str:
        """The text of an object of a class of the user's with what it holds."""
        if isinstance(instance, Object):
            kind, file, held = instance.kind.name, str(instance.kind.file), instance.names
        else:
            code = [m.__code__ for m in vars(type(instance)).values() if hasattr(m, "__code__")]
            kind, file = type(instance).__name__, code[0].co_filename if code else ""
            held = getattr(instance, "__dict__", {})
        if not Path(file).is_file() or getattr(instance, "lost", False):
            raise NotWritten(f"`{called}`, which uses an object of `{kind}`")
        tree, _ = self._tree(file)
        classes = [
            node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == kind
        ]
        changing = [
            *(member for definition in classes for member in definition.body if _changes(member)),
            *(
                base
                for definition in classes
                for base in definition.bases
                if "ABC" not in ast.unparse(base)
            ),
        ]
        if len(classes) != 1 or changing:
            raise NotWritten(f"`{called}`, whose object of `{kind}` may hold something else later")
        self._define(file, kind, called)
        if not held:
            return f"object.__new__({kind})"
        self.statements[_RESTORED, 0] = _RESTORING
        return f"restored({kind}, {self._value(dict(held), called)})"

    def of_processor(self, command: bytes) -> str:
        """The text that makes the processor of `transformWithState` for which `command` stands."""
        state = getattr(self._objects.get(command), "__self__", None)
        processor = getattr(state, "_stateful_processor", None)
        return self.of_object(processor, type(processor).__name__)

    def of_object(self, instance: Any, called: str) -> str:
        """The text that makes an object of a class of the user's again.

        Raises:
            NotWritten: it was made of something, or its class does not stand by itself.
        """
        if isinstance(instance, Object):
            if not instance.plain:
                name = instance.kind.name
                raise NotWritten(f"`{called}`, an object of `{name}` that is made of values")
            self._define(str(instance.kind.file), instance.kind.name, called)
            return f"{instance.kind.name}()"
        kind = type(instance)
        code = next((m.__code__ for m in vars(kind).values() if hasattr(m, "__code__")), None)
        if code is None or not Path(code.co_filename).is_file():
            raise NotWritten(f"`{called}`, which is not a function")
        try:
            alike = vars(kind()) == vars(instance)
        except Exception:
            alike = False
        if not alike:
            raise NotWritten(f"`{called}`, an object of `{kind.__name__}` that is made of values")
        self._define(code.co_filename, kind.__name__, called)
        return f"{kind.__name__}()"

    def of_function(self, function: Any, called: str, around: Sequence[str] = ()) -> str:
        """The name by which a function of the user can be called; with names from `around` it, that
        of a function which is given their values and makes it."""
        code = getattr(function, "__code__", None)
        if code is None or hasattr(function, "__self__"):
            raise NotWritten(f"`{called}`, which is not a function by itself")
        if code.co_freevars and not around:
            raise NotWritten(f"`{called}`, which uses {', '.join(code.co_freevars)} from around it")
        file = code.co_filename
        if file.startswith("<") or not Path(file).is_file():
            raise NotWritten(f"`{called}`, whose text is not there")
        node = self._node(file, code, called)
        at = (file, node.lineno, node.col_offset)
        if at not in self._names:
            self._names[at] = self._written(file, node, called, around)
        return self._names[at]

    def _tree(self, file: str) -> tuple[ast.Module, str]:
        if file not in self._trees:
            text = program(Path(file))
            self._trees[file] = (ast.parse(text), text)
        return self._trees[file]

    def _node(self, file: str, code: Any, called: str) -> Any:
        tree, _ = self._tree(file)
        nodes = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.FunctionDef | ast.Lambda) and _line(node) == code.co_firstlineno
        ]
        lambdas = code.co_name == "<lambda>"
        nodes = [node for node in nodes if isinstance(node, ast.Lambda) == lambdas]
        if len(nodes) != 1:
            raise NotWritten(f"`{called}`, which is not the only function in its line")
        return nodes[0]

    def _written(self, file: str, node: Any, called: str, around: Sequence[str]) -> str:
        _, text = self._tree(file)
        if isinstance(node, ast.Lambda):
            name = f"function_{node.lineno}"
            source = f"{name} = {ast.get_source_segment(text, node)}"
        else:
            name = node.name
            for decorator in node.decorator_list:
                if _decorator(decorator) not in _DECORATORS:
                    raise NotWritten(f"`{called}`, which has a decorator")
            lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
            source = textwrap.dedent("\n".join(lines))
        inner, given = name, ", ".join(around)
        if around:
            name = f"{inner}_with"
            body = textwrap.indent(source, "    ")
            source = f"def {name}({given}):\n{body}\n    return {inner}"
        self._bind(name, file, node.lineno)
        self._need(file, node, called, skip={inner, *around})
        self.statements[file, node.lineno] = self._with_session(source)
        return name

    def _with_session(self, source: str) -> str:
        """The text of a statement in which `spark` is the session of the job."""
        names = [
            node
            for node in ast.walk(ast.parse(source))
            if isinstance(node, ast.Name) and node.id == "spark"
        ]
        if not self._driver or any(not isinstance(node.ctx, ast.Load) for node in names):
            return source
        lines = [line.encode() for line in source.splitlines()]
        for node in sorted(names, key=lambda node: (node.lineno, node.col_offset), reverse=True):
            line, at = lines[node.lineno - 1], node.col_offset
            lines[node.lineno - 1] = line[:at] + _ACTIVE + line[at + len("spark") :]
            self.imports["from pyspark.sql import SparkSession"] = None
        return b"\n".join(lines).decode()

    def _bind(self, name: str, file: str, line: int) -> None:
        """One module has each name once."""
        if self._bound.setdefault(name, (file, line)) != (file, line):
            raise NotWritten(f"`{name}`, which two things are called")

    def _need(self, file: str, node: Any, called: str, *, skip: set[str]) -> None:
        """Everything that a statement uses of its module."""
        for name in _free(node):
            if name in skip:
                continue
            if self._driver and name in ("spark", "SparkSession"):
                if name != "spark":
                    self._define(file, name, called)
                continue
            if name in _SESSION:
                raise NotWritten(f"`{called}`, which uses `{name}`")
            self._define(file, name, called)

    def _define(self, file: str, name: str, called: str) -> None:
        tree, text = self._tree(file)
        bound = [node for node in tree.body if name in _binds(node)]
        if not bound and name in _BUILT_IN:
            return
        if len(bound) != 1:
            raise NotWritten(
                f"`{called}`, which uses `{name}`: it is set in several places, or none"
            )
        (node,) = bound
        if isinstance(node, ast.Import | ast.ImportFrom):
            if isinstance(node, ast.ImportFrom) and node.level:
                raise NotWritten(f"`{called}`, which uses an import from beside its module")
            alias = next(a for a in node.names if (a.asname or a.name.split(".")[0]) == name)
            statement: ast.stmt = ast.Import([alias])
            if isinstance(node, ast.ImportFrom):
                statement = ast.ImportFrom(node.module, [alias], 0)
            line = ast.unparse(statement)
            if name in _OWN and line not in _OWN[name]:
                raise NotWritten(f"`{called}`, which calls something else `{name}`")
            self.imports[line] = None
            return
        if (file, node.lineno) in self._followed:
            return
        self._followed.add((file, node.lineno))
        self._bind(name, file, node.lineno)
        self._need(file, node, called, skip={name})
        source = ast.get_source_segment(text, node) or ""
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            if any(_decorator(d) in _DECORATORS for d in node.decorator_list):
                raise NotWritten(f"`{called}`, which uses the function of Spark `{name}`")
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            source = "\n".join(text.splitlines()[first - 1 : node.end_lineno])
        if _ARGUMENTS.search(source):
            raise NotWritten(f"`{called}`, which uses `{name}`: the arguments of the script say it")
        self.statements[file, node.lineno] = self._with_session(source)


def _changes(node: ast.stmt) -> bool:
    """Whether a method may change what its object or its class holds."""
    if isinstance(node, ast.FunctionDef) and node.name == "__init__":
        return False
    return any(
        (isinstance(inner, ast.Attribute | ast.Subscript) and isinstance(inner.ctx, ast.Store))
        or (isinstance(inner, ast.Attribute) and inner.attr in CHANGING)
        for inner in ast.walk(node)
    )


def _line(node: Any) -> int:
    """The line that the code object of a function names: that of its first decorator."""
    decorators = getattr(node, "decorator_list", [])
    return int(min([node.lineno, *(decorator.lineno for decorator in decorators)]))


def _decorator(node: ast.expr) -> str:
    """The last word of a decorator: `udf` of `@F.udf("int")`."""
    inner = node.func if isinstance(node, ast.Call) else node
    return inner.attr if isinstance(inner, ast.Attribute) else getattr(inner, "id", "")


def _binds(node: ast.stmt) -> Iterator[str]:
    """The names that a statement of a module sets."""
    match node:
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            yield from (alias.asname or alias.name.split(".")[0] for alias in names)
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case _:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Name) and isinstance(inner.ctx, ast.Store):
                    yield inner.id


def _free(node: ast.AST) -> list[str]:
    """The names that a statement reads and does not set itself, in their order."""
    skipped: set[ast.AST] = set()
    if isinstance(node, ast.FunctionDef):
        skipped = {inner for d in node.decorator_list for inner in ast.walk(d)}
    own: set[str] = set()
    read: dict[str, None] = {}
    for inner in ast.walk(node):
        if inner in skipped:
            continue
        match inner:
            case ast.arg(arg=name):
                own.add(name)
            case ast.Name(id=name, ctx=ast.Load()):
                read[name] = None
            case ast.Name(id=name):
                own.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                own.add(name)
            case ast.Import() | ast.ImportFrom() as statement:
                own |= set(_binds(statement))
            case ast.ExceptHandler(name=str(name)):
                own.add(name)
    return [name for name in read if name not in own]
