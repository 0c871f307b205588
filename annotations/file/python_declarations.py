"""The words in which a Python module declares a dataflow, and what is declared with them."""

from __future__ import annotations

import ast
import re
import symtable
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from annotations.file.keys import COMPONENT, DATAFLOW, PATH, SINK, SOURCE, STREAM
from annotations.file.python_values import Mark
from annotations.file.unannotated import COMPUTES
from annotations.positions import Map, Node, Scalar

DECLARING: Final = ("component", "dataflow", "sink", "source", "sql", "stream")
"""The functions of the package `blazes` that declare something."""
_IMPORT: Final = re.compile(r"^\s*(import\s+.*\bblazes\b|from\s+blazes\b)", re.MULTILINE)

ENDS: Final = {"from", "to"}
OF_PATH: Final = tuple(key for key in PATH.keys if key not in ENDS)
OF_END: Final = {"source": tuple(SOURCE.keys), "sink": tuple(SINK.keys)}
_OF_STREAM: Final = tuple(key for key in STREAM.keys if key not in {*ENDS, "source", "sink"})
KEYWORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "component": (*dict.fromkeys((*COMPONENT.keys, *OF_PATH)), "reads", "output"),
    "sql": (
        *(key for key in dict.fromkeys((*COMPONENT.keys, *OF_PATH)) if key not in COMPUTES),
        "reads",
        "output",
    ),
    "source": tuple(dict.fromkeys((*OF_END["source"], *_OF_STREAM))),
    "sink": (*dict.fromkeys((*OF_END["sink"], *_OF_STREAM)), "name"),
    "stream": ("from_", *(key for key in STREAM.keys if key != "from")),
    "dataflow": tuple(key for key in DATAFLOW.keys if key not in {"name", "components", "streams"}),
}
"""Declaration -> its keywords, but for `name`: those of the file's records."""


def declares(text: str) -> bool:
    """True for the text of a module that declares a dataflow, or would if it were Python."""
    if _IMPORT.search(text) is None:
        return False
    try:
        tree = ast.parse(text.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return True
    names = Names(tree)
    return any(
        names.declared_by(node.func if isinstance(node, ast.Call) else node) is not None
        for node in ast.walk(tree)
        if isinstance(node, ast.Call | ast.Attribute | ast.Name)
    )


class Names:
    """The names by which a module calls the declaring functions."""

    def __init__(self, tree: ast.Module) -> None:
        self.packages: set[str] = set()
        self.functions: dict[str, str] = {}
        for statement in ast.walk(tree):
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    if alias.name == "blazes":
                        self.packages.add(alias.asname or "blazes")
            elif isinstance(statement, ast.ImportFrom) and statement.module == "blazes":
                for alias in statement.names:
                    if alias.name in DECLARING:
                        self.functions[alias.asname or alias.name] = alias.name

    def declared_by(self, function: ast.expr) -> str | None:
        """The kind of declaration that a call of the function is; None: it is none."""
        match function:
            case ast.Name(id=name):
                return self.functions.get(name)
            case ast.Attribute(value=ast.Name(id=package), attr=name):
                return name if package in self.packages and name in DECLARING else None
        return None


class End(NamedTuple):
    """A source, or an output of a component: something that a component reads, or a sink takes."""

    component: str | None
    """None: it is a source."""
    name: str

    def __str__(self) -> str:
        return self.name if self.component is None else f"{self.component}.{self.name}"


@dataclass(slots=True)
class Declared:
    """A declaration with its keywords."""

    kind: str
    name: Scalar
    entries: dict[str, tuple[Scalar, Node]]
    mark: Mark
    takes: ast.expr | None = None
    """What a sink takes: a component, or the name of an output."""


@dataclass(slots=True)
class Part:
    """A component with its ends."""

    name: Scalar
    inputs: dict[str, Mark]
    outputs: tuple[str, ...]
    reads: dict[str, list[tuple[ast.expr, Mark]]] = field(default_factory=dict)
    """Input -> what it stands for, where the module says so."""
    computed: bool = True
    """False for one without a function or query: its streams may all be declared."""


Entries: TypeAlias = dict[str, tuple[Scalar, Node]]


def enter_text(mapping: Map, key: str, text: str) -> None:
    """Add a key with a text to a mapping, where the mapping stands."""
    mapping.entries[key] = Scalar(key, mapping.mark), Scalar(text, mapping.mark)


def at_start() -> Mark:
    """The place where a module begins."""
    return Mark(0, 0, 0)


def without_declarations(text: str) -> str:
    """The text of a module without what declares a dataflow, so that a job need not have Blazes.

    Every other line stays where it is. The text itself, where something else uses a declaration.
    """
    tree = ast.parse(text)
    names = Names(tree)
    removed: set[int] = set()
    retained: set[int] = set()
    gone: set[str] = {*names.packages, *names.functions}
    for statement in tree.body:
        value = getattr(statement, "value", None)
        declaration = isinstance(value, ast.Call) and names.declared_by(value.func) is not None
        if isinstance(statement, ast.Assign | ast.AnnAssign) and declaration:
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            gone |= {target.id for target in targets if isinstance(target, ast.Name)}
        if declaration or _imports_only(statement) or _is_main(statement):
            removed |= _lines_of(statement)
        elif isinstance(statement, ast.Import) and any(a.name == "blazes" for a in statement.names):
            return text
        else:
            retained |= _lines_of(statement)
        for decorator in getattr(statement, "decorator_list", ()):
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            if names.declared_by(called) is not None:
                removed |= _lines_of(decorator)
    lines = text.split("\n")
    rest = "\n".join("" if at in removed else line for at, line in enumerate(lines, start=1))
    if removed & retained or gone & set(_globals(symtable.symtable(rest, "module", "exec"))):
        return text
    return rest.rstrip() + "\n"


def _lines_of(node: ast.stmt | ast.expr) -> set[int]:
    return set(range(node.lineno, (node.end_lineno or node.lineno) + 1))


def _globals(table: symtable.SymbolTable) -> Iterator[str]:
    """The names of the module that something in it uses."""
    outermost = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (outermost or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _globals(inner)


def _imports_only(statement: ast.stmt) -> bool:
    """True for an import of this package and nothing else."""
    if isinstance(statement, ast.ImportFrom):
        return statement.module == "blazes" and all(a.name in DECLARING for a in statement.names)
    return isinstance(statement, ast.Import) and all(a.name == "blazes" for a in statement.names)


def _is_main(statement: ast.stmt) -> bool:
    """True for what a module does only where it is the program itself."""
    match statement:
        case ast.If(
            test=ast.Compare(
                left=ast.Name(id="__name__"), comparators=[ast.Constant(value="__main__")]
            ),
            orelse=[],
        ):
            return True
    return False
