"""The functions of an imported project: the module that stands beside its dataflow file.

Each query that could be carried is a function of the streams that it reads, which returns what it
writes. `changes` says what is otherwise than in the script, in the script's own words.
"""

from __future__ import annotations

import ast
import keyword
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from annotations.delivery import WRITES_ONCE
from annotations.whitebox.existing import Fill, Graph, leaves, shown
from annotations.whitebox.pyspark_code import Code

SCREENS: Final = frozenset({"console", "memory", "noop"})
"""Formats that show rows or drop them: an imported job writes Parquet files instead."""
OWN_OPTIONS: Final = frozenset({"checkpointlocation", "path", "queryname", "numrows", "truncate"})
"""Options of a writer that the job sets itself, or that only a screen has; in lower case."""


@dataclass(frozen=True)
class Change:
    """Something that the imported job does otherwise than the script."""

    component: str
    before: str
    after: str


@dataclass(frozen=True)
class Module:
    """The functions of a project."""

    name: str
    text: str
    functions: Mapping[str, str]
    """Component -> its function."""
    reasons: Mapping[str, str]
    """Component -> why it has none, or why what takes its rows is not there."""
    takers: Mapping[str, tuple[str, str]]
    """Component -> `foreachBatch` or `foreach`, and the `module:name` that takes its rows."""
    sinks: str
    """The text of the module `NAME_sinks` that these are in; empty: there are none."""


@dataclass
class _Definitions:
    """Imports and statements of the user's, for one module."""

    imports: dict[str, None] = field(default_factory=dict)
    texts: dict[tuple[str, int], str] = field(default_factory=dict)
    bound: dict[str, tuple[str, int]] = field(default_factory=dict)

    def add(self, codes: Iterable[Code]) -> str | None:
        """Take what these need; why it has no place here."""
        statements = {(f, line): text for code in codes for f, line, text in code.statements}
        names = {n: place for place, text in statements.items() for n in _names(text)}
        twice = [n for n, place in names.items() if self.bound.get(n, place) != place]
        if twice:
            return f"two things are called `{twice[0]}`"
        self.bound |= names
        self.texts |= statements
        self.imports |= {line: None for code in codes for line in code.imports}
        return None


def module_of(graph: Graph, name: str, sources: Sources) -> Module:
    """The module of that name with a function for each of the components in `sources`."""
    functions: dict[str, str] = {}
    takers: dict[str, tuple[str, str]] = {}
    reasons: dict[str, str] = {}
    ours, theirs = _Definitions(), _Definitions()
    written: list[str] = []
    writers: list[str] = []
    read = {
        leaf.name for node in graph.nodes.values() for f in node.fills for leaf in leaves(f.plan)
    }
    for node in sources:
        fills = graph.nodes[node].fills
        codes = _codes(fills)
        if isinstance(codes, str):
            reasons[node] = codes
            continue
        needed = {source for code in codes for source in code.inputs}
        if needed != set(sources[node]):
            lacking = ", ".join(sorted(needed ^ set(sources[node])))
            reasons[node] = f"what it reads is not clear: {lacking}"
            continue
        taken = [fill.taken for fill in fills if isinstance(fill.taken, Code)]
        if taken and node in read:
            reasons[node] = "another query reads what its function writes: let it read a table"
            continue
        if reason := ours.add(codes) or theirs.add(taken):
            reasons[node] = reason
            continue
        functions[node] = _unused(node, {*ours.bound, *functions.values()})
        place = shown(graph.nodes[node].position, graph.origin.parent)
        written.append(_function(functions[node], place, codes, sources[node]))
        if taken:
            ((expression,),) = (code.body for code in taken)
            called = expression
            if not expression.isidentifier():
                called = _unused(f"{functions[node]}_writer", {*theirs.bound})
                writers.append(f"{called} = {expression}")
            takers[node] = fills[0].taker, f"{name}_sinks:{called}"
    head = _head(graph, ours.imports, written)
    text = "\n\n".join([*head, *ours.texts.values(), *written])
    imports = "\n".join(sorted(theirs.imports))
    parts = [
        f'"""What takes the rows of {graph.origin.name}, written by `blazes import`."""',
        imports,
    ]
    sinks = "\n\n\n".join(part for part in (*parts, *theirs.texts.values(), *writers) if part)
    return Module(
        name, text.rstrip() + "\n", functions, reasons, takers, f"{sinks}\n" if takers else ""
    )


Sources = Mapping[str, Mapping[str, str]]
"""Component -> the sources that it reads -> the interfaces that they come in at."""


def _codes(fills: tuple[Fill, ...]) -> tuple[Code, ...] | str:
    """The code of everything that fills a node; why there is none, or nothing to take its rows."""
    codes: list[Code] = []
    for fill in fills:
        if isinstance(fill.code, str):
            return fill.code
        if isinstance(fill.taken, str):
            return fill.taken
        codes.append(fill.code)
    return tuple(codes)


def _head(graph: Graph, imports: Mapping[str, None], written: list[str]) -> Iterator[str]:
    yield (
        f'"""The queries of {graph.origin.name} as functions, written by `blazes import`.\n\n'
        "Each takes the streams that its component reads, and returns what the component puts out."
        '\n"""'
    )
    names = "DataFrame"
    if any("F." in text for text in written):
        names = "DataFrame, functions as F"
    own = f"from pyspark.sql import {names}"
    others = [line for line in imports if line not in _OWN_IMPORTS]
    yield "\n".join([*sorted(others), own])


_OWN_IMPORTS: Final = frozenset(
    {
        "from pyspark.sql import DataFrame",
        "from pyspark.sql import functions as F",
        "import pyspark.sql.functions as F",
    }
)


def _function(name: str, place: str, codes: tuple[Code, ...], interfaces: Mapping[str, str]) -> str:
    parameters = ", ".join(f"{interface}: DataFrame" for interface in interfaces.values())
    lines = [f"def {name}({parameters}) -> DataFrame:", f'    """{place}."""' if place else ""]
    results: list[str] = []
    for number, code in enumerate(codes, 1):
        for source, parameter in code.inputs.items():
            if interfaces[source] != parameter:
                lines.append(f"    {parameter} = {interfaces[source]}")
        *body, last = code.body
        lines += [f"    {line}" for line in body]
        if len(codes) > 1:
            results.append(f"flow_{number}")
            last = f"flow_{number} = {last.removeprefix('return ')}"
        lines.append(f"    {last}")
    if results:
        first, *rest = results
        lines.append(f"    return {first}" + "".join(f".unionByName({flow})" for flow in rest))
    return "\n" + "\n".join(line for line in lines if line)


def _names(text: str) -> Iterator[str]:
    """The names that a definition sets."""
    for statement in ast.parse(textwrap.dedent(text)).body:
        if isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name
            continue
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                yield node.id


def _unused(node: str, taken: set[str]) -> str:
    """A name for the function of a component."""
    stem = "".join(letter if letter.isalnum() else "_" for letter in node).strip("_") or "query"
    stem = stem if not stem[0].isdigit() else f"query_{stem}"
    name, number = stem, 1
    while name in taken or keyword.iskeyword(name):
        number += 1
        name = f"{stem}_{number}"
    return name


def changes(graph: Graph) -> Iterator[Change]:
    """Everything that the imported job does otherwise than the script, query by query."""
    intervals = {node.trigger for node in graph.nodes.values() if node.trigger}
    for name, node in graph.nodes.items():
        modes = {fill.output_mode for fill in node.fills}
        if "complete" in modes and node.kind != "materialized view":
            after = "output_mode: update: a row is written when it changes; the last one counts"
            yield Change(name, 'outputMode("complete")', after)
        sink = node.sink
        if sink is not None and sink.format.lower() in SCREENS:
            yield Change(name, f'format("{sink.format}")', f"Parquet files in results/{name}")
        options = {} if sink is None else {key.lower(): v for key, v in sink.options.items()}
        if location := options.get("checkpointlocation"):
            before = f'option("checkpointLocation", "{location}")'
            yield Change(name, before, "the job's own state, in state/")
        if node.trigger == "available now":
            yield Change(name, "trigger(availableNow=True)", "blazes run --available-now")
        elif node.trigger:
            one = len(intervals) == 1
            after = f"deployment: {{trigger: {node.trigger}}}" if one else "as fast as possible"
            yield Change(name, f'trigger(processingTime="{node.trigger}")', after)
        if sink is not None and sink.delivery and all(f.taken is None for f in node.fills):
            once = sink.format.lower() in WRITES_ONCE
            after = "each row is written once" if once else "so does a job with its last batch"
            yield Change(name, "foreachBatch: a replay writes again", after)
