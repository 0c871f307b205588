"""Existing projects as graphs of datasets: Declarative Pipelines and streaming scripts.

Both become the same thing: nodes that are filled by plans, and external sources that nobody fills.
`derived` finds for each node what its plans do to what they read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from pathlib import Path
from typing import Any, Final, TypeVar

from annotations.dataflow import EMPTY, Position, unused_name
from annotations.delivery import taken_of
from annotations.vocabulary import Within
from annotations.whitebox import ir
from annotations.whitebox.derivation import (
    TAKEN,
    Assumption,
    Derivation,
    DerivedPath,
    Evidence,
)
from annotations.whitebox.derive import annotate
from annotations.whitebox.foreign_sql import language_of
from annotations.whitebox.pyspark_code import (
    SPECIFICATIONS,
    Code,
    Project,
    Query,
    Script,
    Unreadable,
    left_to_the_place,
    read_pipeline,
    read_script,
    read_scripts,
)
from annotations.whitebox.sandbox import Limits
from annotations.whitebox.traits import overlap

_T = TypeVar("_T")


@dataclass(frozen=True)
class Fill:
    """A query or flow that puts records into a node."""

    plan: ir.Relation
    output_mode: str
    position: Position | None
    query: str | None = None
    """Its text, where it is written in SQL."""
    code: Code | str = ""
    """Its text in PySpark; why there is none, where it is a text."""
    taken: Code | str | None = None
    """What a function of `foreachBatch` or `foreach` does with its rows; see `Query`."""
    taker: str = ""
    """Which of the two it is."""


@dataclass(frozen=True)
class Sink:
    """Where a node's records go to stay."""

    format: str
    path: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    delivery: str = ""
    """`may-repeat` where a replay writes again: what a function of `foreachBatch` writes."""
    key: tuple[str, ...] = ()
    """The columns by which a row takes the place of another one."""


@dataclass(frozen=True)
class Node:
    """A dataset, or what a streaming query puts out."""

    name: str
    kind: str
    fills: tuple[Fill, ...]
    position: Position | None
    description: str = ""
    sink: Sink | None = None
    shown: bool = True
    """Somebody outside looks at it; False for temporary views."""
    started: Position | None = None
    """Where its query is started, if a function of `foreachBatch` writes it at `position`."""
    trigger: str = ""
    """How often its query looks for records: an interval, or `available now`."""


@dataclass(frozen=True)
class Graph:
    """A whole project."""

    name: str
    origin: Path
    """The specification or the script."""
    nodes: Mapping[str, Node]
    sources: Mapping[str, Mapping[str, Any]]
    """What nobody fills: name -> format, path, options, columns, streaming."""
    problems: tuple[tuple[str, Position | None], ...] = ()
    """What was not understood, so that something may be missing."""
    decided: str = ""
    """What is not known here, and may have decided what code that was run did."""
    assumptions: tuple[Assumption, ...] = ()
    """What all of it rests on: configuration files as they are."""


SUFFIXES: Final = (".py", ".ipynb", ".sql")
"""Of scripts, notebooks and pipelines in SQL."""


def _specification(folder: Path) -> Path | None:
    files = [folder / name for name in SPECIFICATIONS if (folder / name).is_file()]
    return files[0] if files else None


def read(path: Path, *, execute: Limits, follow: bool = False) -> Graph:
    """The graph of a project, whose code is run to be read within these limits, or, with `follow`,
    is followed without being run; `pyspark_code.Unreadable` where it cannot be read."""
    if not follow and path.suffix != ".sql":
        ran, text = (_tried(path, execute, follow=follow) for follow in (False, True))
        graph = _weaker(ran, text)
        if isinstance(graph, Unreadable):
            raise graph
        return graph
    return _read(path, execute, follow=follow)


def _tried(path: Path, execute: Limits, *, follow: bool) -> Graph | Unreadable:
    try:
        return _read(path, execute, follow=follow)
    except Unreadable as unreadable:
        return unreadable


def _read(path: Path, execute: Limits, *, follow: bool) -> Graph:
    if (unreadable := _foreign(path)) is not None:
        raise unreadable
    if path.suffix in SUFFIXES:
        return _graph(path, read_script(path, limits=execute, follow=follow))
    specification = path if path.name in SPECIFICATIONS else _specification(path)
    assert specification is not None
    return _project_graph(
        specification, read_pipeline(specification, limits=execute, follow=follow)
    )


def read_all(
    paths: Sequence[Path], *, execute: Limits, follow: bool = False
) -> list[Graph | Unreadable]:
    """The graphs of many files, in one process; why one could not be read in its place."""
    graphs = _read_all(paths, execute, follow=follow)
    if follow:
        return graphs
    texts = _read_all(paths, execute, follow=True)
    return [_weaker(ran, text) for ran, text in zip(graphs, texts, strict=True)]


def _read_all(paths: Sequence[Path], execute: Limits, *, follow: bool) -> list[Graph | Unreadable]:
    graphs: list[Graph | Unreadable] = []
    foreign = {path: _foreign(path) for path in paths}
    asked = [path for path in paths if foreign[path] is None]
    scripts = dict(zip(asked, read_scripts(asked, limits=execute, follow=follow), strict=True))
    for path in paths:
        script = foreign[path] or scripts[path]
        try:
            graphs.append(script if isinstance(script, Unreadable) else _graph(path, script))
        except Unreadable as unreadable:
            graphs.append(unreadable)
    return graphs


def _foreign(path: Path) -> Unreadable | None:
    """Why a file of SQL is not read, where it is none of Spark's."""
    if path.suffix != ".sql":
        return None
    text = path.read_text(encoding="utf-8", errors="replace")
    language = language_of(text)
    if language is None:
        return None
    line = language.pattern.split(text, maxsplit=1)[0].count("\n") + 1
    return Unreadable(
        language.reason, remedy=language.remedy, position=Position(str(path), line, 1)
    )


def _graph(path: Path, script: Script | Project) -> Graph:
    graph = (
        _script_graph(path, script) if isinstance(script, Script) else _project_graph(path, script)
    )
    if not graph.nodes:
        raise Unreadable(
            "; ".join(
                [
                    f"{path.name} starts no streaming query and defines no dataset of a pipeline",
                    *(text for text, _ in graph.problems),
                ]
            ),
            remedy="Name the script that starts the queries; what it imports is read with it.",
            position=Position(str(path), 1, 1),
        )
    return graph


def _project_graph(path: Path, project: Project) -> Graph:
    fills: dict[str, list[Fill]] = {name: [] for name in project.datasets}
    for flow in project.flows:
        dataset = project.datasets.get(flow.target)
        snapshot = dataset is not None and dataset.kind == "materialized view"
        mode = "complete" if snapshot else "append"
        fill = Fill(flow.plan, mode, flow.position, flow.query, flow.code)
        fills.setdefault(flow.target, []).append(fill)
    nodes = {}
    for name, filled in fills.items():
        dataset = project.datasets.get(name)
        if dataset is None:
            nodes[name] = Node(name, "table", tuple(filled), filled[0].position)
            continue
        sink = Sink(dataset.format, options=dataset.options) if dataset.kind == "sink" else None
        nodes[name] = Node(
            name=name,
            kind=dataset.kind,
            fills=tuple(filled),
            position=dataset.position,
            description=dataset.comment,
            sink=sink,
            shown=dataset.kind != "temporary view",
        )
    nodes = {name: node for name, node in nodes.items() if node.fills}
    nodes |= _query_nodes(project.queries, dict.fromkeys(nodes, EMPTY) | dict(project.sources))
    sources = _unfilled(nodes, project.sources)
    problems = (*project.notes, *project.problems)
    return _with_remarks(Graph(project.name, path, nodes, sources, (), project.decided), problems)


def _with_remarks(graph: Graph, remarks: Sequence[tuple[str, Position | None]]) -> Graph:
    """The graph with what was said while it was read: what is missing, and what it rests on."""
    rests_on = [remark for remark in remarks if remark[0].startswith(TAKEN)]
    problems = tuple(remark for remark in remarks if remark not in rests_on)
    return replace(graph, problems=problems, assumptions=tuple(starmap(Assumption, rests_on)))


def _script_graph(path: Path, script: Script) -> Graph:
    nodes = _query_nodes(script.queries, script.sources)
    sources = _unfilled(nodes, script.sources)
    graph = Graph(path.stem, path, nodes, sources, decided=script.decided)
    return _with_remarks(graph, script.problems)


# ---- code that was run, beside what its text allows


def _weaker(ran: Graph | Unreadable, text: Graph | Unreadable) -> Graph | Unreadable:
    """The graph of code that was run once: running it shows one way, and its text allows others.

    Of a text that says all, what it allows is taken where that is another thing; of one that does
    not, what running it has shown, unless the place decided what that was.
    """
    if isinstance(ran, Unreadable):
        if isinstance(text, Unreadable):
            return ran
        remarks = [remark for remark in text.problems if "--execute" not in remark[0]]
        return replace(text, problems=((str(ran), ran.position), *remarks))
    others = {} if isinstance(text, Unreadable) else text.nodes
    nodes, met = {}, set[str]()
    for name, node in ran.nodes.items():
        places = _places(node.position, node.started)
        alike = {
            other
            for other, known in others.items()
            if (other == name) >= (name in others)
            and places & _places(known.position, known.started)
        } or ({name} & others.keys())
        met |= alike
        nodes[name] = _weaker_node(node, [others[n] for n in alike], ran.decided)
    left_out = {n: node for n, node in others.items() if n not in met}
    described = (
        dict(ran.sources) if isinstance(text, Unreadable) else {**text.sources, **ran.sources}
    )
    started = tuple(
        (f"`{name}` is started on a way that it did not take when it was run", node.position)
        for name, node in left_out.items()
    )
    nodes |= left_out
    sources = _unfilled(nodes, described)
    rests_on = () if isinstance(text, Unreadable) else text.assumptions
    return replace(
        ran,
        nodes=nodes,
        sources=sources,
        problems=(*ran.problems, *started),
        assumptions=tuple(dict.fromkeys((*ran.assumptions, *rests_on))),
    )


def _places(*positions: Position | None) -> set[tuple[str, int]]:
    return {(place.file, place.line) for place in positions if place is not None}


def _weaker_node(node: Node, others: Sequence[Node], decided: str) -> Node:
    fills = []
    for fill in node.fills:
        texts = [text for other in others for text in other.fills]
        at = _places(fill.position)
        texts = [text for text in texts if at & _places(text.position)] or texts
        plan, reason = weaker(
            fill.plan, [text.plan for text in texts], decided, output_mode=fill.output_mode
        )
        if reason:
            code = fill.taken and reason
            fill = replace(fill, plan=plan, query=None, code=reason, taken=code)
        fills.append(fill)
    return replace(node, fills=tuple(fills))


def weaker(
    ran: ir.Relation, texts: Sequence[ir.Relation], decided: str, *, output_mode: str = "append"
) -> tuple[ir.Relation, str]:
    """The plan of code that was run, and of what its text allows beside it; with why it is not
    the one that running it showed, empty where it is."""
    texts = [_with_sources_of(ran, text) for text in texts]
    opened = [part for text in texts for part in _left_open(text)]
    by_place = [reason for reason, left_open in opened if left_open == "place"]
    unread = any(left_open == "text" for _, left_open in opened)
    if not decided and (unread or not texts) and not by_place:
        return ran, ""
    before = _promised(ran, output_mode)
    if texts and not unread and all(_promised(text, output_mode) == before for text in texts):
        return ran, ""
    other = f"`{decided}` decides it" if decided else "its text says so"
    reason = next(iter(by_place), other)
    plan = left_to_the_place(ran, reason, *texts)
    return plan, plan.reason


def _with_sources_of(ran: ir.Relation, text: ir.Relation) -> ir.Relation:
    """The plan of a text whose sources are called as running it showed."""
    known = {leaf.name: leaf for leaf in leaves(ran)}
    places = {place: leaf.name for leaf in leaves(ran) for place in _places(leaf.position)}
    for leaf in leaves(text):
        for place in _places(leaf.position) if leaf.name in known else ():
            places.pop(place, None)  # another one is read there as well

    def called(leaf: ir.Source) -> ir.Source:
        if leaf.name in known or not known:
            return leaf
        at = next(iter(_places(leaf.position)), None)
        unknown = next(iter(known)) if "$" in leaf.name else leaf.name
        return replace(leaf, name=places.get(at, unknown) if at else unknown)

    return ir.changed(text, ir.Source, called)


def _left_open(plan: ir.Relation) -> Iterator[tuple[str, str]]:
    """The parts that the text of code leaves open: why, and `ir.Opaque.left_open`."""
    for node in ir.nodes_of(plan):
        if isinstance(node, ir.Opaque) and node.left_open:
            yield node.reason, node.left_open
        elif isinstance(node, ir.Unknown):
            yield node.reason, "text"


def _promised(plan: ir.Relation, output_mode: str) -> dict[str, object]:
    """The promises of a plan, input by input."""
    paths = annotate(plan, output_mode=output_mode).paths
    return {
        name: (path.writes, path.gates, path.within, path.nondeterministic is None)
        for name, path in paths.items()
    }


def _query_nodes(
    queries: Sequence[Query], others: Mapping[str, Mapping[str, Any]]
) -> dict[str, Node]:
    """The queries of a script; one that reads the table that another writes reads from it. Files
    that a query writes, or reads as a stream, do not stay as they are."""
    nodes: dict[str, Node] = {}
    tables: dict[str, str] = {}
    for query in queries:
        if query.batch and not any(leaf.comes for leaf in leaves(query.plan)):
            continue
        name = _query_name(query)
        if name == query.table and name not in nodes:
            tables[name.lower()] = name
        else:
            taken = {*map(name_in_file, (*nodes, *others))}
            word = name_in_file(name)
            source = word in map(name_in_file, others)
            free = unused_name(f"{word}_query" if source else word, taken)
            name = name if free == word else free
            if query.table:
                tables.setdefault(query.table.lower(), name)
        fill = Fill(
            _handed_over(query),
            query.output_mode.lower(),
            query.position,
            code=query.code,
            taken=query.taken,
            taker="" if query.taken is None else query.foreach or "foreachBatch",
        )
        kind = "written in foreachBatch" if query.in_batch else "streaming query"
        if query.batch and not query.in_batch:
            kind = "batch"
        nodes[name] = Node(
            name,
            kind,
            (fill,),
            query.position,
            sink=_sink(query),
            started=query.started,
            trigger=query.trigger,
        )

    grown = [node.sink.path for node in nodes.values() if node.sink is not None]
    streams = [source for source in others.values() if source.get("streaming")]
    grown += [str(stream.get("path") or "") for stream in streams]

    def linked(leaf: ir.Source) -> ir.Source:
        stays = leaf.role is not ir.Role.TABLE or not leaf.files
        if not stays and any(overlap(leaf.files, path) for path in filter(None, grown)):
            return replace(leaf, role=ir.Role.MUTABLE, files="")
        return replace(leaf, name=tables.get(leaf.name.lower(), leaf.name))

    def linked_code(code: Code | str) -> Code | str:
        if isinstance(code, str):
            return code
        named = {tables.get(name.lower(), name): word for name, word in code.inputs.items()}
        return replace(code, inputs=named)

    return {
        name: replace(
            node,
            fills=tuple(
                replace(f, plan=ir.changed(f.plan, ir.Source, linked), code=linked_code(f.code))
                for f in node.fills
            ),
        )
        for name, node in nodes.items()
    }


def _handed_over(query: Query) -> ir.Relation:
    """The plan of a query; what a function does that takes its micro-batches is not known."""
    if not query.foreach:
        return query.plan
    reason = f"the function of {query.foreach} may do anything with the records that it is handed"
    return ir.Opaque((query.plan,), query.plan.columns, reason, position=query.position)


_OF_YAML: Final = frozenset({"false", "n", "no", "null", "off", "on", "true", "y", "yes"})
"""Words that YAML takes for something else than a name."""


def name_in_file(text: str) -> str:
    """A name that a dataflow file may have for anything.

    >>> name_in_file("silver.orders"), name_in_file("$name"), name_in_file("on")
    ('silver_orders', 'name', 'n_on')
    """
    word = re.sub(r"[^\w-]+", "_", text).strip("_-") or "unnamed"
    plain = word[0].isalpha() and word.lower() not in _OF_YAML
    return word if plain else f"n_{word}"


def _query_name(query: Query) -> str:
    name = query.name or query.table or re.split(r"[/\\]", query.path.rstrip("/"))[-1]
    return name or (f"query_{query.position.line}" if query.position else "query")


def _sink(query: Query) -> Sink | None:
    if query.foreach:
        return None
    delivery = "may-repeat" if query.in_batch or query.anew else ""
    place = query.path or query.table or query.options.get("path", "")
    return Sink(query.format or "table", place, query.options, delivery, _key(query))


_KEYS: Final = (
    "es.mapping.id",
    "hoodie.datasource.write.recordkey.field",
    "idfieldlist",
    "key.column",
    "opensearch.mapping.id",
)
"""Options of sinks that say by which columns a row takes the place of another one."""
_KEY: Final = {"cosmos.oltp": "id", "mongo": "_id"}
"""A part of the name of a format -> the column that it is without an option."""
_ADDING: Final = {
    "hoodie.datasource.write.operation": r"insert|bulk_insert",
    "operationtype": r"insert",
    "spark.cosmos.write.strategy": r"itemappend",
}
"""Options of such sinks that let them only add."""
_REPLACING: Final = re.compile(r"bigtable|cassandra|dynamodb|hbase|kudu|phoenix|scylla")
"""Formats whose tables have a primary key, which no option tells."""
_PRIMARY: Final = "no two records have one primary key, of which the last to be written stays"


def _key(query: Query) -> tuple[str, ...]:
    """The columns by which a sink replaces rows, as far as the options tell."""
    options = {name.lower(): value for name, value in query.options.items()}
    adds = (re.fullmatch(p, options.get(n, "").lower()) for n, p in _ADDING.items())
    if any(adds):
        return ()
    usual = next((name for part, name in _KEY.items() if part in query.format.lower()), "")
    listed = next((options[option] for option in _KEYS if option in options), usual)
    known = {column.name for column in query.plan.columns}
    names = tuple(name.strip() for name in listed.split(",") if name.strip())
    return names if known.issuperset(names) else ()


def _unfilled(
    nodes: Mapping[str, Node], described: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Mapping[str, Any]]:
    unfilled: dict[str, Mapping[str, Any]] = {}
    for node in nodes.values():
        for fill in node.fills:
            for leaf in leaves(fill.plan):
                if leaf.name not in nodes:
                    plain = {"format": "table", "streaming": leaf.comes}
                    unfilled[leaf.name] = described.get(leaf.name, plain)
    return unfilled


def leaves(plan: ir.Relation) -> Iterator[ir.Source]:
    """The sources of a plan, as they stand in its text."""
    return (node for node in ir.nodes_of(plan) if isinstance(node, ir.Source))


# ---- what the plans do


@dataclass(frozen=True)
class Derived:
    """A node with its paths from everything that it reads."""

    node: Node
    paths: Mapping[str, DerivedPath]
    columns: tuple[ir.Column, ...]
    assumptions: tuple[Assumption, ...]
    notes: tuple[Evidence, ...]
    repeats: str | None


def derived(graph: Graph) -> dict[str, Derived]:
    """Node -> its paths, in an order in which a node stands behind those that it reads."""
    derivations: dict[str, Derived] = {}
    for name in in_order(graph):
        repeats = {source: known.repeats for source, known in derivations.items() if known.repeats}
        node = _derive(graph.nodes[name], repeats)
        of_sources = (
            Assumption(f"of `{source}`: {text}", node.node.position)
            for source in node.paths
            if source in graph.sources and graph.sources[source].get("streaming")
            for text in taken_of(graph.sources[source])
        )
        sink = node.node.sink
        of_sink = (
            Assumption(f"of `{target.format}`: {_PRIMARY}", node.node.position)
            for target in ([sink] if sink and _REPLACING.search(sink.format) else [])
        )
        assumptions = (*node.assumptions, *graph.assumptions, *of_sources, *of_sink)
        derivations[name] = replace(node, assumptions=assumptions)
    return derivations


def in_order(graph: Graph) -> Iterator[str]:
    """The nodes, each behind those that it reads as far as there is no cycle."""
    done: set[str] = set()

    def visit(name: str) -> Iterator[str]:
        if name in done or name not in graph.nodes:
            return
        done.add(name)
        for fill in graph.nodes[name].fills:
            for leaf in leaves(fill.plan):
                yield from visit(leaf.name)
        yield name

    for name in graph.nodes:
        yield from visit(name)


def _derive(node: Node, repeats: Mapping[str, str | None]) -> Derived:
    derivations = [_filled(fill, repeats) for fill in node.fills]
    paths: dict[str, DerivedPath] = {}
    for derivation in derivations:
        for name, path in derivation.paths.items():
            paths[name] = path if name not in paths else _both(paths[name], path)
    return Derived(
        node=node,
        paths=paths,
        columns=derivations[0].columns,
        assumptions=_all(derivation.assumptions for derivation in derivations),
        notes=_all(derivation.notes for derivation in derivations),
        repeats=_repeats(derivations),
    )


def _filled(fill: Fill, repeats: Mapping[str, str | None]) -> Derivation:
    """The derivation of one fill. Without a stream it works on tables as they are: all is there,
    and what depends on no more than that is the same in every run."""
    plan = _with_repeats(fill.plan, repeats)
    derivation = annotate(plan, output_mode=fill.output_mode)
    if derivation.paths:
        return derivation
    coming = ir.changed(plan, ir.Source, lambda source: replace(source, role=ir.Role.STREAM))
    moved = annotate(coming, output_mode=fill.output_mode)
    return moved if any(map(_of_chance, moved.paths.values())) else derivation


def _of_chance(path: DerivedPath) -> bool:
    """Whether complete input does not settle what comes out."""
    unknown = any(gate.attributes is None for gate in path.gates)
    return unknown or path.nondeterministic is not None or path.within is Within.SEQUENCE


def _repeats(derivations: Sequence[Derivation]) -> str | None:
    if len(derivations) > 1:
        return "several flows put records into it, and two may put in the same"
    return derivations[0].repeats


def _all(several: Iterable[tuple[_T, ...]]) -> tuple[_T, ...]:
    return tuple(dict.fromkeys(element for some in several for element in some))


def _both(one: DerivedPath, other: DerivedPath) -> DerivedPath:
    """Two flows from one input into one dataset: what either does, both do."""
    sequence = Within.SEQUENCE in (one.within, other.within)
    chances = [chance for chance in (one.nondeterministic, other.nondeterministic) if chance]
    same = {k: v for k, v in one.lineage.items() if other.lineage.get(k) == v}
    return DerivedPath(
        source=one.source,
        writes=one.writes or other.writes,
        gates=tuple(dict.fromkeys((*one.gates, *other.gates))),
        within=Within.SEQUENCE if sequence else Within.SET,
        nondeterministic="; ".join(dict.fromkeys(chances)) or None,
        lineage=same,
        evidence=tuple(dict.fromkeys((*one.evidence, *other.evidence))),
    )


def _with_repeats(plan: ir.Relation, repeats: Mapping[str, str | None]) -> ir.Relation:
    """The plan whose sources of these names may bring a record twice, with the reason."""
    if not repeats:
        return plan

    def repeated(leaf: ir.Source) -> ir.Source:
        return replace(leaf, repeats=repeats.get(leaf.name) or leaf.repeats)

    return ir.changed(plan, ir.Source, repeated)


def shown(position: Position | None, folder: Path) -> str:
    """`file:line` with the file as it is called from a folder."""
    if position is None:
        return ""
    return f"{os.path.relpath(position.file, folder)}:{position.line}"
