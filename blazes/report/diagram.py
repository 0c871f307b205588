"""The diagram of a plan: its components and streams, with the coordination points between them.

A coordination point is a node of its own in front of the component that waits: the streams that
are sealed or ordered lead through it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from annotations.dataflow import Component, Endpoint, Stream
from annotations.phrases import tupled
from annotations.vocabulary import Label
from blazes.coordination import Entry, Mode, Plan, Scope, Strategy, Vote
from blazes.document.diagram import Diagram, Edge, Node
from blazes.report.index import Index
from blazes.report.notation import role_of

PATHS_MAX: Final = 8
"""A component with more paths is drawn without them."""


def diagram_of(plan: Plan) -> Diagram:
    """The drawing of a plan."""
    index = Index.of(plan)
    ids = {name: f"c{number}" for number, name in enumerate(index.components, start=1)}
    nodes = [Node(ids[name], "component", _component(index, name)) for name in index.components]
    edges: list[Edge] = []
    heads: dict[Endpoint, str] = {}
    for name in index.components:
        for interfaces, entries in _points(index.coordinated(name)):
            point = f"w{len(heads) + 1}"
            ordered = any(entry.strategy is Strategy.ORDER for entry in entries)
            texts = tuple(_point(index, entry) for entry in entries)
            nodes.append(Node(point, "order" if ordered else "seal", texts))
            label = _under_plan(index, name, interfaces)
            edges.append(Edge(point, ids[name], (), role_of(label), False))
            heads |= {Endpoint(name, interface): point for interface in interfaces}
    for number, stream in enumerate(plan.analysis.dataflow.streams.values(), start=1):
        tail, head = f"s{number}", f"t{number}"
        if stream.producer is None:
            nodes.append(Node(tail, "source", (stream.name,)))
        else:
            tail = ids[stream.producer.component]
        if stream.consumer is None:
            nodes.append(Node(head, "sink", (stream.name,)))
        else:
            head = heads.get(stream.consumer, ids[stream.consumer.component])
        label = plan.analysis.labels[stream.name].label
        replicated = plan.analysis.rep[stream.name]
        edges.append(Edge(tail, head, _stream(plan, stream), role_of(label), replicated))
    return Diagram(plan.analysis.dataflow.name, tuple(nodes), tuple(edges))


def _points(entries: Sequence[Entry]) -> list[tuple[list[str], list[Entry]]]:
    """Input interfaces that wait for the same entries, and these."""
    waits: dict[str, list[int]] = {}
    for number, entry in enumerate(entries):
        for interface in entry.inputs:
            waits.setdefault(interface, []).append(number)
    together: dict[tuple[int, ...], list[str]] = {}
    for interface, numbers in waits.items():
        together.setdefault(tuple(numbers), []).append(interface)
    return [
        (interfaces, [entries[number] for number in numbers])
        for numbers, interfaces in together.items()
    ]


def _under_plan(index: Index, component: str, interfaces: Sequence[str]) -> Label:
    streams = index.streams_into(component, interfaces)
    return max((index.plan.repaired[stream.name].label for stream in streams), default=Label.ASYNC)


def _component(index: Index, name: str) -> tuple[str, ...]:
    component: Component = index.component(name)
    flags = [
        *([f"variant {component.variant}"] if component.variant else []),
        *(["replicated"] if index.plan.analysis.replicated[name] else []),
    ]
    paths = [f"{path.source} to {path.target}: {path.annotation}" for path in component.paths]
    return (
        name,
        *([", ".join(flags)] if flags else []),
        *(paths if len(paths) <= PATHS_MAX else [f"{len(paths)} paths"]),
    )


def _point(index: Index, entry: Entry) -> str:
    if entry.strategy is Strategy.SEAL:
        vote = "unanimous vote" if entry.vote is Vote.UNANIMOUS else "no vote"
        vote = "watermark" if index.by_watermark(entry) else vote
        return f"seal {tupled(entry.key or ())}, {vote}"
    scope = "global"
    if entry.scope is Scope.GATE and entry.path.annotation.gate is not None:
        scope = f"per {tupled(entry.path.annotation.gate.attributes or ())}"
    return f"order {scope}, {(entry.mode or Mode.RECORDED).value}"


def _stream(plan: Plan, stream: Stream) -> tuple[str, ...]:
    before, after = plan.analysis.labels[stream.name], plan.repaired[stream.name]
    named = stream.producer is not None and stream.consumer is not None
    return (
        *((stream.name,) if named else ()),
        str(before),
        *((f"planned: {after}",) if after != before else ()),
    )
