"""A dataflow as a graph of named nodes, and its parts in the order in which they are labelled.

Nodes are input interfaces, output interfaces and shared states. Edges are paths (input to output),
streams (output to input) and, under rules that know state groups, writes (input to state) and reads
(state to output). Nodes that depend on each other are a *cycle* (specification 2.6): what a read
waits for must not wait for the read, whether the way back is a stream or a shared state.
Everything here is linear in the size of the dataflow and without recursion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeAlias, TypeVar

from annotations.dataflow import Component, Dataflow, Path, Splits, Stream
from annotations.dependencies import PathDependencies
from annotations.vocabulary import Annotation, AnnotationKind, FunctionalDependency, Gate

Lineage = tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class Shape:
    """All that the rules see of a path. Paths of equal shape share one object."""

    annotation: Annotation
    lineage: Lineage | None = None
    """(output attribute, input attribute), sorted; None: by equal name."""
    nondeterministic: bool = False
    splits: Splits | None = None
    """Says whether a seal on a key is enough for the code; None: the gate decides."""
    fds: tuple[FunctionalDependency, ...] = ()
    """The dependencies that hold over all records that meet on an order-sensitive path (SP-2)."""
    gate: Gate | None = field(init=False)
    """None for a confluent path."""
    kind: AnnotationKind = field(init=False)
    writes: bool = field(init=False)
    ordered: bool = field(init=False)
    """Order-sensitive."""

    def __post_init__(self) -> None:
        self.gate, self.kind = self.annotation.gate, self.annotation.kind
        self.writes, self.ordered = self.kind.writes, not self.kind.confluent


@dataclass(slots=True, eq=False, repr=False)
class Input:
    """An input interface of a component: streams enter it, paths begin at it."""

    name: str
    number: int
    """That of the first path; numbers give the order of the file."""
    streams: list[StreamEdge]
    paths: list[PathEdge]

    def waits_for(self) -> Iterable[Node]:
        """The nodes that must have their labels before this one."""
        return [stream.producer for stream in self.streams if stream.producer is not None]


@dataclass(slots=True, eq=False, repr=False)
class Output:
    """An output interface of a component: paths end in it, streams leave it."""

    component: Component
    name: str
    number: int
    """That of the first path."""
    paths: list[PathEdge]
    streams: list[StreamEdge]
    states: tuple[State, ...] = ()
    """The states that the output shows; none under rules that do not know state groups."""

    def waits_for(self) -> Iterable[Node]:
        """The nodes that must have their labels before this one."""
        return [*(path.input for path in self.paths), *self.states]

    def feeding(self) -> list[PathEdge]:
        """The paths that end in the output, then the others that write the states it shows."""
        writers = (path for state in self.states for path in state.writers)
        return [*self.paths, *(path for path in writers if path.output is not self)]


@dataclass(slots=True, eq=False, repr=False)
class State:
    """The state of a state group in which somebody reads what somebody else writes."""

    writers: list[PathEdge]
    outputs: list[Output]
    """Outputs with an order-sensitive path of the group, or a path that names the group."""

    def waits_for(self) -> Iterable[Node]:
        """The nodes that must have their labels before this one."""
        return [path.input for path in self.writers]


Node: TypeAlias = Input | Output | State


@dataclass(slots=True, eq=False, repr=False)
class PathEdge:
    """A path of a component, from an input to an output, and the state that it shares."""

    declared: Path
    component: Component
    number: int
    shape: Shape
    input: Input
    output: Output
    state: State | None = None

    @property
    def kind(self) -> AnnotationKind:
        """`CR`, `CW`, `OR` or `OW`."""
        return self.shape.kind

    @property
    def place(self) -> str:
        """Its name where several components are spoken of: `Component: from->to`."""
        return f"{self.component.name}: {self.declared}"

    def other_writers(self) -> list[PathEdge]:
        """The other write paths of its state group."""
        return [] if self.state is None else [p for p in self.state.writers if p is not self]


@dataclass(slots=True, eq=False, repr=False)
class StreamEdge:
    """A stream from an output, or from outside, to an input, or to outside."""

    declared: Stream
    number: int
    producer: Output | None
    """None: an external source."""
    consumer: Input | None
    """None: an external sink."""

    @property
    def name(self) -> str:
        """As in the file."""
        return self.declared.name


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cycle:
    """Nodes that all depend on each other; inputs, outputs and paths in the order of the file."""

    inputs: tuple[Input, ...]
    outputs: tuple[Output, ...]
    nodes: frozenset[Node]

    @property
    def streams(self) -> list[StreamEdge]:
        """The streams inside the cycle, output by output."""
        leaving = (stream for output in self.outputs for stream in output.streams)
        return [stream for stream in leaving if stream.consumer in self.nodes]

    @property
    def paths(self) -> list[PathEdge]:
        """The paths inside the cycle."""
        ending = (path for output in self.outputs for path in output.paths)
        return in_file_order(path for path in ending if path.input in self.nodes)

    @property
    def entering(self) -> list[PathEdge]:
        """The paths from outside that end in it."""
        ending = (path for output in self.outputs for path in output.paths)
        return in_file_order(path for path in ending if path.input not in self.nodes)


Numbered = TypeVar("Numbered", Input, Output, PathEdge, StreamEdge)


def in_file_order(nodes: Iterable[Numbered]) -> list[Numbered]:
    """Nodes or edges of one kind, each once, in the order in which the file has them."""
    return sorted(set(nodes), key=attrgetter("number"))


class Graph:
    """A dataflow with its interfaces, states, paths and streams joined to each other.

    Args:
        dataflow: as its front end has checked it.
        shared_state: whether outputs depend on the states that they show.

    Raises:
        ValueError: a stream names an interface that no path of the component has.
    """

    def __init__(self, dataflow: Dataflow, *, shared_state: bool) -> None:
        self.dataflow = dataflow
        self.paths: list[PathEdge] = []
        self.streams: list[StreamEdge] = []
        self._inputs: dict[str, dict[str, Input]] = {}
        """By component and interface, as those that follow."""
        self._outputs: dict[str, dict[str, Output]] = {}
        self._add_paths(shared_state=shared_state)
        self._add_streams()
        self.parts: list[Output | Cycle] = _in_order(
            [output for outputs in self._outputs.values() for output in outputs.values()]
        )
        """Outputs, each after all that it depends on; a cycle stands for all of its outputs."""

    def _add_paths(self, *, shared_state: bool) -> None:
        shapes: dict[object, Shape] = {}
        dependencies = PathDependencies(self.dataflow)
        for component in self.dataflow.components.values():
            inputs: dict[str, Input] = {}
            outputs: dict[str, Output] = {}
            first = len(self.paths)
            for number, declared in enumerate(component.paths, first):
                source, target = inputs.get(declared.source), outputs.get(declared.target)
                if source is None:
                    source = inputs[declared.source] = Input(declared.source, number, [], [])
                if target is None:
                    target = Output(component, declared.target, number, [], [])
                    outputs[declared.target] = target
                shape = _shape(declared, dependencies.of(component, declared), shapes)
                path = PathEdge(declared, component, number, shape, source, target)
                source.paths.append(path)
                target.paths.append(path)
                self.paths.append(path)
            self._inputs[component.name], self._outputs[component.name] = inputs, outputs
            if len(component.paths) > 1:
                self._add_states(self.paths[first:], shared_state=shared_state)

    def _add_states(self, paths: Iterable[PathEdge], *, shared_state: bool) -> None:
        """The state groups of the component that has these paths."""
        groups: dict[str | None, list[PathEdge]] = {}
        for path in paths:
            if path.declared.state is not None or path.shape.writes or path.shape.ordered:
                groups.setdefault(path.declared.state, []).append(path)
        for name, group in groups.items():
            writers = [path for path in group if path.shape.writes]
            readers = [path for path in group if name is not None or path.shape.ordered]
            if len(group) < 2 or not writers or not readers:
                continue
            shown = list(dict.fromkeys([path.output for path in readers]))
            state = State(writers, shown)
            for path in group:
                path.state = state
            if shared_state:
                for output in shown:
                    output.states += (state,)

    def _add_streams(self) -> None:
        inputs, outputs = self._inputs, self._outputs
        for number, declared in enumerate(self.dataflow.streams.values()):
            end, producer, consumer = declared.producer, None, None
            try:
                if end is not None:
                    producer = outputs[end.component][end.interface]
                end = declared.consumer
                if end is not None:
                    consumer = inputs[end.component][end.interface]
            except KeyError:
                raise ValueError(f"stream {declared.name}: no path has {end}") from None
            stream = StreamEdge(declared, number, producer, consumer)
            self.streams.append(stream)
            if producer is not None:
                producer.streams.append(stream)
            if consumer is not None:
                consumer.streams.append(stream)

    @property
    def cycles(self) -> list[Cycle]:
        """In the order in which they are labelled."""
        return [part for part in self.parts if isinstance(part, Cycle)]

    def outputs(self) -> Iterator[Output]:
        """Every output, in the order in which they are labelled."""
        for part in self.parts:
            if isinstance(part, Cycle):
                yield from part.outputs
            else:
                yield part

    def sinks(self) -> list[StreamEdge]:
        """The streams that leave the dataflow; all streams where none leaves."""
        return [stream for stream in self.streams if stream.consumer is None] or self.streams


def _shape(path: Path, fds: tuple[FunctionalDependency, ...], shapes: dict[object, Shape]) -> Shape:
    """The shape of a path, the same object for equal ones."""
    lineage = None if path.lineage is None else tuple(sorted(path.lineage.items()))
    content = (path.annotation, lineage, path.nondeterministic is not None, path.splits, fds)
    shape = shapes.get(content)
    if shape is None:
        shape = shapes[content] = Shape(*content)
    return shape


def _in_order(outputs: Iterable[Output]) -> list[Output | Cycle]:
    """Outputs after what they depend on, in the order of the file where that leaves a choice.

    A walk from each output to what it waits for, depth first; where it meets itself there is a
    cycle, and the graph has to be condensed.
    """
    order: list[Output | Cycle] = []
    done: set[Node] = set()
    begun: set[Node] = set()

    def is_done(node: Node) -> bool:
        """An input is done as soon as its producers are."""
        if node in done:
            return True
        if not isinstance(node, Input):
            return False
        for stream in node.streams:
            if stream.producer is not None and stream.producer not in done:
                return False
        done.add(node)
        return True

    stack: list[Node] = list(outputs)
    stack.reverse()
    while stack:
        node = stack[-1]
        if node in done:
            stack.pop()
            continue
        waiting = [other for other in node.waits_for() if not is_done(other)]
        if not waiting:
            stack.pop()
            done.add(node)
            if isinstance(node, Output):
                order.append(node)
        elif begun.isdisjoint(waiting):
            begun.add(node)
            stack.extend(reversed(waiting))
        else:
            return _condensed(outputs)
    return order


def _condensed(outputs: Iterable[Output]) -> list[Output | Cycle]:
    """The same order where there are cycles."""
    import networkx as nx

    waits: Any = nx.DiGraph()
    waits.add_nodes_from(outputs)
    todo: list[Node] = list(outputs)
    for node in todo:
        for other in node.waits_for():
            if other not in waits:
                todo.append(other)
            waits.add_edge(node, other)
    order: list[Output | Cycle] = []
    for nodes in nx.strongly_connected_components(waits):
        inside = in_file_order(node for node in nodes if isinstance(node, Output))
        if len(nodes) > 1:
            inputs = in_file_order(node for node in nodes if isinstance(node, Input))
            order.append(Cycle(tuple(inputs), tuple(inside), frozenset(nodes)))
        else:
            order += inside
    return order
