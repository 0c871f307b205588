"""`blazes import`: an existing project as a dataflow file, with what remains to be said.

The annotations are what was derived from the code, and a comment above each says from what. What no
code says (who sends, when a partition is complete, what is replicated) stands in the file as TODO,
at the place where it belongs.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from annotations.dataflow import Dataflow, Position, Reason
from annotations.diagnostics import CODES, BadInput, Diagnostic
from annotations.file import loads
from annotations.file.formats import is_secret, unknown_option
from annotations.file.import_code import OWN_OPTIONS, SCREENS, Change, Module, changes, module_of
from annotations.vocabulary import STAR, Annotation
from annotations.whitebox import file_metadata
from annotations.whitebox.checking import findings
from annotations.whitebox.components import lineage_to_write, reasons, written_path
from annotations.whitebox.derivation import DerivedPath
from annotations.whitebox.existing import (
    Derived,
    Graph,
    derived,
    leaves,
    read,
    read_all,
    shown,
)
from annotations.whitebox.existing import name_in_file as _name
from annotations.whitebox.path_text import path_text, scalar
from annotations.whitebox.pyspark_code import Unreadable
from annotations.whitebox.sandbox import Limits
from annotations.whitebox.sql_dialect import without_streams
from annotations.whitebox.type_text import sql_text

OUT: Final = "out"
"""The output interface of every imported component."""
_WIDTH: Final = 96
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_NOTHING: Final = "nothing"
"""The input of a component that reads no table."""


def load(path: Path, *, execute: Limits | None = None) -> tuple[Dataflow, tuple[Diagnostic, ...]]:
    """The dataflow of a project, with the places of its code, and warnings; BadInput where the
    code cannot be read. Without `execute`, which allows to run it, it is followed as far as that
    goes."""
    return _loaded(graph_of(path, execute))


Loaded: TypeAlias = tuple[Dataflow, tuple[Diagnostic, ...]]


def load_all(paths: Sequence[Path], *, execute: Limits | None) -> list[Loaded | BadInput]:
    """The same of many files, which one process reads; why one cannot be read in its place."""
    results: dict[Path, Loaded | BadInput] = {}
    graphs = read_all(paths, execute=execute or Limits(), follow=execute is None)
    for path, graph in zip(paths, graphs, strict=True):
        try:
            if isinstance(graph, Unreadable):
                results[path] = _unread(path, graph, execute)
            else:
                results[path] = _loaded(graph)
        except BadInput as bad:
            results[path] = bad
    return [results[path] for path in paths]


def _unread(path: Path, unreadable: Unreadable, execute: Limits | None) -> BadInput:
    """Why a file cannot be read: perhaps as it was not run."""
    if execute is not None or path.suffix == ".sql" or unreadable.unparsed:
        return _unreadable(unreadable)
    beginning = Position(str(path), 1, 1) if path.is_file() else None
    position = unreadable.position or beginning
    return BadInput(
        [Diagnostic(CODES["BLZ094"], f"read without being run: {unreadable}", position)]
    )


def _loaded(graph: Graph) -> Loaded:
    derivations = derived(graph)
    try:
        dataflow, _ = loads(text_of(graph, derivations), file=str(graph.origin))
    except BadInput as bad:  # its places are not in the code
        raise BadInput([replace(mistake, position=None) for mistake in bad.diagnostics]) from None
    return _placed(dataflow, graph, derivations), _warnings(graph)


def _unreadable(unreadable: Unreadable) -> BadInput:
    remedy = unreadable.remedy or None
    return BadInput([Diagnostic(CODES["BLZ080"], str(unreadable), unreadable.position, remedy)])


@dataclass(frozen=True)
class Imported:
    """A project as a dataflow."""

    text: str
    """The dataflow file."""
    module: Module | None
    """The functions of its components, to stand beside the file; None: there are none."""
    changes: tuple[Change, ...]
    """What the job does otherwise than the project."""
    reasons: Mapping[str, str]
    """Component -> why it has no code."""
    unread: tuple[str, ...] = ()
    """What was not read, and where: something may be missing."""
    guessed: bool = False
    """A place of the code was not read as it runs."""


def imported(path: Path, *, module: str | None, execute: Limits | None = None) -> Imported:
    """The dataflow file of a project, and a module of that name with its code (None: without);
    BadInput as with `load`."""
    graph = graph_of(path, execute)
    derivations = derived(graph)
    functions = None if module is None else functions_of(graph, derivations, module)
    return Imported(
        text=text_of(graph, derivations, functions),
        module=functions if functions is not None and functions.functions else None,
        changes=tuple(changes(graph)),
        reasons={} if functions is None else functions.reasons,
        unread=tuple(_left_out(graph)),
        guessed=any(position is not None for _, position in graph.problems),
    )


def functions_of(graph: Graph, derivations: Mapping[str, Derived], module: str) -> Module:
    """The module of that name with the functions of the components that are not SQL."""
    interfaces = {
        name: {source: _name(source) for source in derivation.paths or _static(graph, derivation)}
        for name, derivation in derivations.items()
        if not _query(derivation)
    }
    return module_of(graph, module, interfaces)


def graph_of(path: Path, execute: Limits | None) -> Graph:
    """The graph of a project; BadInput as with `load`."""
    try:
        return read(path, execute=execute or Limits(), follow=execute is None)
    except Unreadable as unreadable:
        raise _unread(path, unreadable, execute) from None


def _warnings(graph: Graph) -> tuple[Diagnostic, ...]:
    return tuple(
        Diagnostic(CODES["BLZ081"], message, position) for message, position in graph.problems
    )


def _placed(dataflow: Dataflow, graph: Graph, derivations: Mapping[str, Derived]) -> Dataflow:
    """The dataflow with the places of the code, not those of the text that was made of it."""
    places = {_name(name): node.position for name, node in graph.nodes.items()}
    paths = {
        _name(name): {_name(n): p for n, p in d.paths.items()} for name, d in derivations.items()
    }
    assumed = {
        _name(name): tuple(Reason(a.text, a.position) for a in d.assumptions)
        for name, d in derivations.items()
    }
    components = {}
    for name, component in dataflow.components.items():
        placed = []
        for path in component.paths:
            evidence = paths[name][path.source].evidence if path.source in paths[name] else ()
            at = next((reason.position for reason in evidence if reason.position), places[name])
            derived = reasons(paths[name][path.source]) if path.source in paths[name] else None
            placed.append(replace(path, position=at, derived=derived, assumed=assumed[name]))
        components[name] = replace(component, position=places[name], paths=tuple(placed))
    streams = {}
    for name, stream in dataflow.streams.items():
        end = stream.producer or stream.consumer
        assert end is not None
        streams[name] = replace(
            stream,
            position=places[end.component],
            source=stream.source and replace(stream.source, position=None),
            sink=stream.sink and replace(stream.sink, position=None),
        )
    return replace(
        dataflow,
        components=MappingProxyType(components),
        streams=MappingProxyType(streams),
        file=graph.origin,
    )


# ---- the text


def text_of(
    graph: Graph, derivations: Mapping[str, Derived], functions: Module | None = None
) -> str:
    """The dataflow file; with the functions of components, where there are."""
    lines = [*_head(graph), f"name: {scalar(_name(graph.name))}", "components:"]
    for derivation in derivations.values():
        lines += _component(graph, derivation, derivations)
        lines += _code(derivation, functions)
    lines += ["streams:", *_streams(graph, derivations, functions), *_tail(graph)]
    return "\n".join(lines) + "\n"


def _code(derivation: Derived, functions: Module | None) -> Iterator[str]:
    """The keys that say what computes a component: its query in SQL, or a function."""
    name, query = derivation.node.name, _query(derivation)
    modes = {fill.output_mode for fill in derivation.node.fills}
    carried = functions is not None and name in functions.functions
    if (query or carried) and modes & {"update", "complete"}:
        yield "    output_mode: update"
    elif carried and any(path.gates for path in derivation.paths.values()):
        yield "    output_mode: append"  # what the plan orders would be in update mode
    mistake = _mistake(query, derivation)
    if mistake:
        yield from _comment(f"TODO python or sql: its code is not here: {mistake}", "    ")
    elif query:
        yield from query
    elif functions is not None and carried:
        yield f"    python: {functions.name}:{functions.functions[name]}"
    elif functions is not None:
        reason = functions.reasons[name]
        yield from _comment(f"TODO python or sql: its code is not here: {reason}", "    ")


def _head(graph: Graph) -> Iterator[str]:
    yield f"# Imported from {graph.origin.name} by `blazes import`."
    yield "# The annotations were derived from the code; the comments say from what."
    yield "# TODO marks what the code cannot say."
    for text in _left_out(graph):
        yield from _comment(f"NOT READ: {text}; something may be missing", "")


def _left_out(graph: Graph) -> Iterator[str]:
    for message, position in graph.problems:
        yield f"{shown(position, graph.origin.parent)} {message}".strip()


def _component(graph: Graph, derivation: Derived, known: Mapping[str, Derived]) -> Iterator[str]:
    node, folder = derivation.node, graph.origin.parent
    yield f"  {_name(node.name)}:  # {node.kind}, {shown(node.position, folder)}"
    if node.description:
        yield f"    description: {scalar(node.description)}"
    yield "    annotation:"
    for name, path in derivation.paths.items():
        places = {(e.text, shown(e.position, folder)): None for e in path.evidence}
        for text, where in places:
            yield from _comment(f"{text} ({where})" if where else text, " " * 6)
        lineage = _lineage(graph, path, derivation, known)
        written = written_path(replace(path, source=_name(name)), OUT)
        gate = written.annotation.gate
        if gate is not None and not all(map(_is_attribute, gate.attributes or ())):
            why = f"the file cannot name all of {', '.join(sorted(gate.attributes or ()))}"
            yield from _comment(f"{why}: the partitions are not known", " " * 6)
            written = replace(written, annotation=Annotation(written.annotation.kind, STAR))
        yield from _long(f"      - {path_text(written, lineage)}")
    if not derivation.paths:
        tables = {leaf for fill in node.fills for leaf in _tables(graph, fill.plan)}
        for name in sorted(tables) or [_NOTHING]:
            yield "      # a table that is there from the beginning"
            yield f"      - {{from: {_name(name)}, to: {OUT}, label: CR}}"
    for assumption in derivation.assumptions:
        where = shown(assumption.position, folder)
        place = f" ({where})" if where else ""
        yield from _comment(f"TODO is it true? {assumption.text}{place}", " " * 4)


def _tables(graph: Graph, plan: Any) -> set[str]:
    return {leaf.name for leaf in leaves(plan)}


def _lineage(
    graph: Graph, path: DerivedPath, derivation: Derived, known: Mapping[str, Derived]
) -> Mapping[str, str] | None:
    """The lineage that the file has to declare for the path; None where it can be left out."""
    inputs: list[str] | None = None
    if path.source in known:
        inputs = [column.name for column in known[path.source].columns]
    elif schema := graph.sources.get(path.source, {}).get("columns"):
        inputs = [name for name, _ in schema]
    lineage = {
        output: source
        for output, source in path.lineage.items()
        if _is_attribute(output) and _is_attribute(source)
    }
    outputs = [column.name for column in derivation.columns]
    return lineage_to_write(lineage, outputs, inputs)


def _is_attribute(name: str) -> bool:
    """Whether the file can name this column."""
    return re.fullmatch(r"[^\W\d]\w*(?:[-. ]\w+)*", name) is not None


def _query(derivation: Derived) -> list[str]:
    """The text of a node that one query in SQL fills, without the words that only SDP knows; none
    where a component could not have it: `_metadata` is not given to it with its records."""
    fills = derivation.node.fills
    if len(fills) != 1 or fills[0].query is None or file_metadata.NAME in fills[0].query.lower():
        return []
    if any("." in name for name in derivation.paths):
        return []
    lines = textwrap.dedent(without_streams(fills[0].query)).strip().splitlines()
    return ["    sql: |", *(f"      {line}".rstrip() for line in lines)]


def _mistake(query: list[str], derivation: Derived) -> str:
    """Why Spark would refuse the query of a node: what else runs it knows more."""
    tables = dict.fromkeys(_name(name) for name in derivation.paths)
    mistakes = findings("\n".join(query[1:]), tables=tables) if query else ()
    return mistakes[0].message if mistakes else ""


def _streams(
    graph: Graph, derivations: Mapping[str, Derived], functions: Module | None
) -> Iterator[str]:
    readers: dict[str, list[str]] = {}
    for name, derivation in derivations.items():
        for source in derivation.paths or _static(graph, derivation) or [_NOTHING]:
            readers.setdefault(source, []).append(name)
    for source, by in readers.items():
        if source in graph.nodes:
            continue
        for reader in by:
            name = _name(source) if len(by) == 1 else f"{_name(source)}_to_{_name(reader)}"
            yield from _source(graph, name, source, reader)
    for name, derivation in derivations.items():
        for reader in readers.get(name, ()):
            yield f"  {_name(name)}_to_{_name(reader)}:"
            yield f"    from: {_name(name)}.{OUT}"
            yield f"    to: {_name(reader)}.{_name(name)}"
            path = derivations[reader].paths.get(name)
            if path is None or _named(path) <= {column.name for column in derivation.columns}:
                yield from _schema(derivation)  # else there are more columns than are known
        if derivation.node.shown or name not in readers:
            yield f"  {_stream_of(name, graph)}:"
            yield f"    from: {_name(name)}.{OUT}"
            sink = derivation.node.sink
            if functions is not None and name in functions.takers:
                kind, function = functions.takers[name]
                yield f"    sink: {{format: {kind}, function: {scalar(function)}}}"
            elif sink is not None and sink.format.lower() not in SCREENS:
                carried = functions is not None and name in functions.functions
                own = {"delivery": ""} if carried else {}  # the job commits by itself
                yield from _external("sink", vars(sink) | own)


def _named(path: DerivedPath) -> set[str]:
    """The attributes of its input that a path names."""
    gates = (gate.attributes or () for gate in path.gates)
    return {*path.lineage.values(), *(name for gate in gates for name in gate)}


def _static(graph: Graph, derivation: Derived) -> list[str]:
    return sorted({name for fill in derivation.node.fills for name in _tables(graph, fill.plan)})


def _stream_of(name: str, graph: Graph) -> str:
    """The stream that carries a node's records out; not called like a source."""
    return f"{_name(name)}_table" if name in graph.sources else _name(name)


def _source(graph: Graph, stream: str, source: str, reader: str) -> Iterator[str]:
    settings = graph.sources.get(source, {"format": "", "streaming": False})
    yield f"  {stream}:"
    yield f"    to: {_name(reader)}.{_name(source)}"
    unnamed = [n for n, _ in settings.get("columns") or () if not _is_attribute(n)]
    if unnamed:
        why = "the file cannot name these attributes"
        yield from _comment(f"TODO schema: {why}: {', '.join(unnamed)}", "    ")
    elif settings.get("columns"):
        columns = ", ".join(f"{scalar(n)}: {scalar(t)}" for n, t in settings["columns"])
        yield from _long(f"    schema: {{{columns}}}")
    else:
        yield "    # TODO schema: which attributes the records have, with their types"
    yield from _external("source", settings)
    yield "    # TODO seal: attributes on which the source says when no more records come"
    yield "    # TODO producer, punctuation, producers: who sends, and how completeness is said"
    yield "    # TODO lateness: how late a record may be at most, if that is promised"


def _schema(derivation: Derived) -> Iterator[str]:
    texts = [(column.name, sql_text(column.type)) for column in derivation.columns]
    if texts and all(text is not None and _is_attribute(name) for name, text in texts):
        columns = ", ".join(f"{scalar(name)}: {scalar(text or '')}" for name, text in texts)
        yield from _long(f"    schema: {{{columns}}}")


def _external(key: str, settings: Mapping[str, Any]) -> Iterator[str]:
    parts = [f"format: {scalar(settings.get('format') or 'table')}"]
    if settings.get("path"):
        parts.append(f"path: {scalar(settings['path'])}")
    if settings.get("key"):
        parts.append(f"key: [{', '.join(map(scalar, settings['key']))}]")
    if settings.get("delivery"):
        parts.append(f"delivery: {settings['delivery']}")
    options = {
        k: v for k, v in dict(settings.get("options") or {}).items() if k.lower() not in OWN_OPTIONS
    }
    hidden: dict[str, str] = {}
    for name, value in options.items():
        if not re.fullmatch(r"\w[\w.-]*", name):
            hidden[name] = "it is not known here"
        elif unknown_option(settings.get("format") or "", name):
            hidden[name] = "Spark does not know it of this format"
        elif is_secret(name, str(value)):
            hidden[name] = "it looks like a secret: write ${env:NAME} or ${file:PATH}"
    if options.keys() - hidden.keys():
        inside = [f"{scalar(k)}: {scalar(str(v))}" for k, v in options.items() if k not in hidden]
        parts.append(f"options: {{{', '.join(inside)}}}")
    yield from _long(f"    {key}: {{{', '.join(parts)}}}")
    for name, why in hidden.items():
        yield from _comment(f"TODO the option {name} was left out: {why}", "    ")


def _tail(graph: Graph) -> Iterator[str]:
    triggers = {node.trigger for node in graph.nodes.values()} - {"", "available now"}
    if len(triggers) == 1:
        yield f"deployment: {{trigger: {scalar(triggers.pop())}}}"
    yield "fds: []"
    yield "# TODO fds: dependencies between attributes, such as `order_id -> customer_id`"
    yield "# TODO Rep: true at components that run several times, or are read from several copies"


# ---- writing YAML


def _long(line: str) -> Iterator[str]:
    """A flow mapping, over several lines where it is long; texts in quotes stay on one line."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    for part in textwrap.wrap(
        _QUOTED.sub(lambda text: text[0].replace(" ", "\0"), line),
        _WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    ):
        yield part.replace("\0", " ")


def _comment(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(
        " ".join(text.split()),
        _WIDTH,
        initial_indent=f"{indent}# ",
        subsequent_indent=f"{indent}#   ",
        break_long_words=False,
        break_on_hyphens=False,
    )
