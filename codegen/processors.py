"""Refusals of a StatefulProcessor by sites, read off the text of its class: nothing is run.

Both copies of a partition have to do the same, so nothing in the class, or in a function of its
module that it names, may ask for a clock, a random number or a process's own addresses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from annotations.dataflow import Endpoint, Processor
from codegen.drafts import Draft, folder_of
from codegen.network import Network
from codegen.operators import OperatorError, find, installed, parsed

CHANCE: Final[Mapping[str, str]] = {
    "random": "random numbers",
    "secrets": "random numbers",
    "uuid": "a random number or the machine",
    "numpy.random": "random numbers",
    "os.urandom": "random numbers",
    "os.environ": "the environment of a process",
    "os.getenv": "the environment of a process",
    "os.getpid": "the process",
    "socket": "the machine",
    "time": "the clock",
    "datetime.datetime.now": "the clock",
    "datetime.datetime.utcnow": "the clock",
    "datetime.datetime.today": "the clock",
    "datetime.date.today": "the clock",
    "pandas.Timestamp.now": "the clock",
    "pandas.Timestamp.today": "the clock",
    "pandas.Timestamp.utcnow": "the clock",
    "id": "an address of a process",
    "hash": "a number that differs between processes",
}
"""Module, or name in it -> what it depends on beside its arguments."""
FIXED: Final = frozenset({"uuid.UUID", "uuid.uuid3", "uuid.uuid5", "time.strptime", "time.gmtime"})
"""Names of these modules that depend on their arguments alone."""
SEEDED: Final = frozenset({"random.Random", "numpy.random.default_rng", "numpy.random.RandomState"})
"""Names that do so where they are called with an argument."""


def processor_refusals(net: Network, draft: Draft, processor: Processor) -> Iterator[str]:
    """Why a site cannot run a processor, as far as the file and the text of its class tell."""
    if len(draft.inputs) != 1:
        yield f"a StatefulProcessor takes one input, and has {', '.join(draft.inputs)}"
    for interface in draft.inputs:
        for stream in net.entering.get(Endpoint(draft.component.name, interface), ()):
            if stream.schema is None:
                continue
            needed = (*processor.key, *filter(None, [processor.event_time]))
            for name in needed:
                if name not in stream.schema:
                    yield f"there is no column {name} in {stream.name}"
    yield from chances(processor, draft, net)


def chances(processor: Processor, draft: Draft, net: Network) -> Iterator[str]:
    """All that the class asks for and that differs between two copies."""
    try:
        operator = find(processor.make, folder_of(net.plan.analysis.dataflow))
    except OperatorError:
        return  # which is said elsewhere
    file = operator.file or installed(operator.module)
    if file is None or file.suffix != ".py":
        return
    tree = parsed(file)
    imported = _imports(tree)
    seeded = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args}
    reached = sorted(_reached(tree, operator.function), key=lambda n: (n.lineno, n.col_offset))
    for node in reached:
        name = _name(node, imported)
        if name is None or (name in SEEDED and id(node) in seeded):
            continue
        why = _chance(name)
        if why is not None:
            place = f"{file.name}:{node.lineno}"
            yield f"{place}: {name} depends on {why}, in which two copies differ"


def _chance(name: str) -> str | None:
    """The thing that a name depends on beside its arguments; None: none that is known."""
    parts = name.split(".")
    if name in FIXED or parts == ["time"]:
        return None
    for end in range(len(parts), 0, -1):
        why = CHANCE.get(".".join(parts[:end]))
        if why is not None and (end < len(parts) or "." in name or name in ("id", "hash")):
            return why
    return None


def _imports(tree: ast.Module) -> Mapping[str, str]:
    """Name in the module -> what it was imported as."""
    imported: dict[str, str] = {"id": "id", "hash": "hash"}
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    bound = alias.asname or alias.name.split(".")[0]
                    imported[bound] = alias.name if alias.asname else bound
            case ast.ImportFrom(module=str(module), level=0, names=names):
                for alias in names:
                    imported[alias.asname or alias.name] = f"{module}.{alias.name}"
    return imported


def _reached(tree: ast.Module, name: str) -> Iterator[ast.Name | ast.Attribute]:
    """The names in a definition, and in those of the module that it names, outermost first."""
    definitions = {
        node.name: node
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    todo, seen = [name], set[str]()
    while todo:
        definition = definitions.get(current := todo.pop())
        if definition is None or current in seen:
            continue
        seen.add(current)
        inner = {id(node.value) for node in ast.walk(definition) if isinstance(node, ast.Attribute)}
        for node in ast.walk(definition):
            if isinstance(node, ast.Name):
                todo.append(node.id)
            if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner:
                yield node


def _name(node: ast.expr, imported: Mapping[str, str]) -> str | None:
    """The name in full, by what its first part was imported as."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in imported:
        return None
    return ".".join([imported[node.id], *parts])
