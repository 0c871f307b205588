"""Refusals of Python by sites, read off the text of a class or a function: nothing is run.

Both copies of a partition have to do the same, so nothing in a StatefulProcessor or a function, or
in a definition of its module that it names, may ask for a clock, a random number or a process's own
addresses. A function has to say how batches are mapped, for a site has no DataFrames.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Final

from annotations.dataflow import Endpoint, Processor
from annotations.vocabulary import AnnotationKind
from annotations.whitebox.python_chance import GIVEN, imported_names, reason_of
from codegen.drafts import Draft, folder_of
from codegen.network import Network
from codegen.operators import OperatorError, find, installed, parsed

OF_A_PROCESS: Final[Mapping[str, str]] = {
    "os.environ": "the environment of a process",
    "os.getenv": "the environment of a process",
    "id": "an address of a process",
    "hash": "a number that differs between processes",
}
"""What only copies in several processes differ in."""
MAPS: Final = frozenset({"mapInPandas", "mapInArrow"})
MAPPED: Final = "mapInPandas or mapInArrow of its input"


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
    _, chances = _read(net, processor.make)
    yield from chances


def function_refusals(net: Network, draft: Draft, reference: str) -> Iterator[str]:
    """Why a site cannot run a function, as far as the file and the text of the function tell."""
    if not draft.reads_only:
        path = next(p for p in draft.paths if p.annotation.kind is not AnnotationKind.CR)
        yield f"{reference} is {path.annotation}; of functions a site runs those that are CR"
        return
    if len(draft.inputs) != 1:
        yield f"a function takes one input, and {reference} has {', '.join(draft.inputs)}"
        return
    reasons, chances = _read(net, reference)
    yield from reasons
    yield from chances


def _read(net: Network, reference: str) -> tuple[Iterator[str], Iterator[str]]:
    """(why a definition does more than map batches, what it asks for and copies differ in)."""
    try:
        operator = find(reference, folder_of(net.plan.analysis.dataflow))
    except OperatorError:
        return iter(()), iter(())  # which is said elsewhere
    file = operator.file or installed(operator.module)
    if file is None or file.suffix != ".py":
        return iter([f"{reference} has no text that could be read"]), iter(())
    tree, name = parsed(file), operator.function
    definitions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    if operator.parameters is None or len(definitions) != 1:
        reasons = iter([f"{file.name} does not define {name} as one function"])
    else:
        reasons = _unmapped(definitions[0], file.name)
    return reasons, _chances(tree, name, file.name)


def _unmapped(definition: ast.FunctionDef, file: str) -> Iterator[str]:
    """Why a function is not `return frame.mapInPandas(...)` or `mapInArrow`, or several in turn."""
    name = definition.name
    arguments = definition.args
    parameters = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    body = [
        n
        for n in definition.body
        if not isinstance(n, ast.FunctionDef | ast.Import | ast.ImportFrom)
    ]
    body = body[1:] if ast.get_docstring(definition) is not None else body
    if len(body) != 1 or not isinstance(body[0], ast.Return):
        yield f"{file}:{definition.lineno}: {name} does more than to return {MAPPED}"
        return
    value = body[0].value
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        called = value.func.attr
        if called not in MAPS:
            yield f"{file}:{value.lineno}: {called} is Spark's; {name} has to return {MAPPED}"
            return
        if len(value.args) > 2 or {k.arg for k in value.keywords} - {"func", "schema"}:
            yield f"{file}:{value.lineno}: {called} is told more than a function and a schema"
        value = value.func.value
    used = [n for n in ast.walk(definition) if isinstance(n, ast.Name) and n.id in parameters]
    if len(parameters) != 1 or len(used) != 1 or value is not used[0]:
        yield f"{file}:{definition.lineno}: {name} does more than to return {MAPPED}"


def _chances(tree: ast.Module, name: str, file: str) -> Iterator[str]:
    """All that a definition asks for and that differs between two copies."""
    imported = {"id": "id", "hash": "hash"} | imported_names(tree)
    given = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call) and n.args}
    reached = sorted(_reached(tree, name), key=lambda n: (n.lineno, n.col_offset))
    for node in reached:
        asked = _name(node, imported)
        if asked is None or (asked in GIVEN and id(node) in given):
            continue
        process = OF_A_PROCESS.get(".".join(asked.split(".")[:2]))
        why = GIVEN.get(asked) or process or reason_of(asked)
        if why is not None and (process is not None or "." in asked):
            yield f"{file}:{node.lineno}: {asked} depends on {why}, in which two copies differ"


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
