"""The dataflow as a drawing: nodes and edges, with the coordination points between them.

A coordination point is a node of its own in front of the component that waits: the streams that
are sealed or ordered lead through it. Mermaid, DOT and HTML draw this value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from annotations.dataflow import Component, Stream
from annotations.vocabulary import Label
from blazes.coordination import Entry, Mode, Plan, Scope, Strategy, Vote
from blazes.report.graph import Graph
from blazes.report.words import tupled

COLOURS: Final = {
    Label.SEAL: "#0b7285",
    Label.ASYNC: "#2b8a3e",
    Label.RUN: "#b35900",
    Label.INST: "#862e9c",
    Label.DIVERGE: "#c92a2a",
}
"""Severity -> colour of its streams; dark enough for text on white."""
PATHS_MAX: Final = 8
"""A component with more paths is drawn without them."""


@dataclass(frozen=True, slots=True)
class Node:
    """A component, an external source or sink, or a coordination point."""

    id: str
    kind: str
    """`component`, `source`, `sink`, `order` or `seal`."""
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream, or the last piece of it behind a coordination point (then without lines)."""

    tail: str
    head: str
    lines: tuple[str, ...]
    label: Label
    replicated: bool


@dataclass(frozen=True, slots=True)
class Diagram:
    """What is drawn, in a stable order."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def diagram_of(plan: Plan) -> Diagram:
    """The drawing of a plan."""
    graph = Graph.of(plan)
    nodes: list[Node] = []
    edges: list[Edge] = []
    ids = {name: f"c{index}" for index, name in enumerate(graph.components, start=1)}
    nodes += [Node(ids[name], "component", _component(graph, name)) for name in graph.components]
    points: dict[tuple[str, tuple[Entry, ...]], str] = {}
    for name in graph.components:
        for interface_entries in _waits(graph.coordinated(name)).values():
            point = (name, interface_entries)
            if point not in points:
                points[point] = f"w{len(points) + 1}"
                worst = any(each.strategy is Strategy.ORDER for each in interface_entries)
                text = tuple(_point(each) for each in interface_entries)
                nodes.append(Node(points[point], "order" if worst else "seal", text))
                label = _under_plan(graph, name, interface_entries)
                edges.append(Edge(points[point], ids[name], (), label, False))
    for index, stream in enumerate(plan.analysis.dataflow.streams.values(), start=1):
        tail, head = f"s{index}", f"t{index}"
        if stream.producer is None:
            nodes.append(Node(tail, "source", (stream.name,)))
        else:
            tail = ids[stream.producer.component]
        if stream.consumer is None:
            nodes.append(Node(head, "sink", (stream.name,)))
        else:
            component, interface = stream.consumer.component, stream.consumer.interface
            waits = _waits(graph.coordinated(component)).get(interface)
            head = points[component, waits] if waits else ids[component]
        label = plan.analysis.labels[stream.name].label
        replicated = plan.analysis.rep[stream.name]
        edges.append(Edge(tail, head, _stream(plan, stream), label, replicated))
    return Diagram(plan.analysis.dataflow.name, tuple(nodes), tuple(edges))


def _waits(entries: Sequence[Entry]) -> dict[str, tuple[Entry, ...]]:
    """Input interface -> the entries that make it wait."""
    waits: dict[str, list[Entry]] = {}
    for entry in entries:
        for interface in entry.inputs:
            waits.setdefault(interface, []).append(entry)
    return {interface: tuple(found) for interface, found in waits.items()}


def _under_plan(graph: Graph, component: str, entries: Sequence[Entry]) -> Label:
    interfaces = sorted({interface for entry in entries for interface in entry.inputs})
    streams = graph.streams_into(component, interfaces)
    return max((graph.plan.repaired[stream.name].label for stream in streams), default=Label.ASYNC)


def _component(graph: Graph, name: str) -> tuple[str, ...]:
    component: Component = graph.component(name)
    flags = [
        *([f"variant {component.variant}"] if component.variant else []),
        *(["replicated"] if graph.plan.analysis.replicated[name] else []),
    ]
    paths = [f"{path.source} to {path.target}: {path.annotation}" for path in component.paths]
    return (
        name,
        *([", ".join(flags)] if flags else []),
        *(paths if len(paths) <= PATHS_MAX else [f"{len(paths)} paths"]),
    )


def _point(entry: Entry) -> str:
    if entry.strategy is Strategy.SEAL:
        vote = "unanimous vote" if entry.vote is Vote.UNANIMOUS else "no vote"
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
