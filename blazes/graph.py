"""The dataflow as lists of numbers: interfaces, paths, streams, state groups, and their order.

Nodes are input interfaces, output interfaces and shared states. Edges are paths (input to output),
streams (output to input) and, under rules that know state groups, writes (input to state) and reads
(state to output). Nodes that depend on each other are a *cycle* (specification 2.6): what a read
waits for must not wait for the read, whether the way back is a stream or a shared state.
Everything here is linear in the size of the dataflow and without recursion.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from annotations.dataflow import Component, Dataflow, Path, Splits, Stream
from annotations.vocabulary import STAR, Annotation, AnnotationKind, Repeats

Lineage = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """All that the rules see of a path. Paths of equal shape share one."""

    annotation: Annotation
    lineage: Lineage | None
    """(output attribute, input attribute), sorted; None: by equal name."""
    nondeterministic: bool
    writes: bool
    ordered: bool
    """Order-sensitive."""
    splits: Splits | None = None
    """Says whether a seal on a key is enough for the code; None: the gate decides."""


def shape_of(
    annotation: Annotation,
    lineage: Lineage | None,
    nondeterministic: bool,
    splits: Splits | None = None,
) -> Shape:
    """The shape of a path that is annotated like this."""
    kind = annotation.kind
    return Shape(annotation, lineage, nondeterministic, kind.writes, not kind.confluent, splits)


@dataclass(frozen=True, slots=True)
class Cycle:
    """Nodes that all depend on each other."""

    inputs: frozenset[int]
    outputs: frozenset[int]
    groups: frozenset[int]


class Graph:
    """A dataflow, compiled. Everywhere, -1 is "none"; a name in the plural lists numbers.

    Raises:
        ValueError: a stream names an interface that no path of the component has.
    """

    def __init__(self, dataflow: Dataflow, *, shared_state: bool) -> None:
        self.dataflow = dataflow
        self.components: list[Component] = list(dataflow.components.values())
        self.streams: list[Stream] = list(dataflow.streams.values())
        self.shapes: list[Shape] = []
        self.paths: list[Path] = []
        self.path_shape: list[int] = []
        self.path_input: list[int] = []
        self.path_output: list[int] = []
        self.path_group: list[int] = []
        """Only groups in which somebody reads what somebody else wrote have a number."""
        self.input_streams: list[list[int]] = []
        self.output_paths: list[list[int]] = []
        self.output_streams: list[list[int]] = []
        self.output_component: list[int] = []
        self.output_groups: dict[int, list[int]] = {}
        """The states that the output shows, where there are any."""
        self.group_writers: list[list[int]] = []
        """Write paths."""
        self.group_outputs: list[list[int]] = []
        """Outputs with an order-sensitive path of the group, or a path that names the group."""
        self.stream_output: list[int] = []
        self.stream_input: list[int] = []
        self.changing_streams: set[int] = set()
        """Streams that add a seal or may lack the attributes of one."""
        self.makes_repeats = False
        """Whether a path emits rows again by itself."""
        inputs, outputs = self._add_components()
        self._add_streams(inputs, outputs)
        self.order: list[int | Cycle] = _Order(self, shared_state=shared_state).items
        """Outputs, each after all that it depends on; a cycle stands for all of its outputs."""

    def _add_components(
        self,
    ) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], int]]:
        inputs: dict[tuple[str, str], int] = {}
        outputs: dict[tuple[str, str], int] = {}
        number_of = _Shapes(self.shapes).number
        paths, path_shape = self.paths, self.path_shape
        path_input, path_output = self.path_input, self.path_output
        output_paths, output_component = self.output_paths, self.output_component
        several: list[tuple[int, int]] = []
        count = 0
        for number, component in enumerate(self.components):
            name = component.name
            first = count
            for path in component.paths:
                path_input.append(inputs.setdefault((name, path.source), len(inputs)))
                target = outputs.setdefault((name, path.target), len(outputs))
                path_output.append(target)
                if target < len(output_paths):
                    output_paths[target].append(count)
                else:
                    output_paths.append([count])
                    output_component.append(number)
                paths.append(path)
                if path.repeats is Repeats.MAKE:
                    self.makes_repeats = True
                path_shape.append(number_of(path))
                count += 1
            if count - first > 1:
                several.append((first, count))
        self.path_group += [-1] * count
        for first, last in several:
            self._add_groups(range(first, last))
        self.input_streams += ([] for _ in inputs)
        self.output_streams += ([] for _ in outputs)
        return inputs, outputs

    def _add_groups(self, numbers: range) -> None:
        """The state groups of the component that has these paths."""
        shapes, path_shape = self.shapes, self.path_shape
        members: dict[str | None, list[int]] = {}
        for p in numbers:
            state, shape = self.paths[p].state, shapes[path_shape[p]]
            if state is not None or shape.writes or shape.ordered:
                members.setdefault(state, []).append(p)
        for name, group in members.items():
            writers = [p for p in group if shapes[path_shape[p]].writes]
            readers = [p for p in group if name is not None or shapes[path_shape[p]].ordered]
            if len(group) < 2 or not writers or not readers:
                continue
            number = len(self.group_writers)
            shown = list(dict.fromkeys([self.path_output[p] for p in readers]))
            self.group_writers.append(writers)
            self.group_outputs.append(shown)
            for p in group:
                self.path_group[p] = number
            for output in shown:
                self.output_groups.setdefault(output, []).append(number)

    def _add_streams(
        self, inputs: dict[tuple[str, str], int], outputs: dict[tuple[str, str], int]
    ) -> None:
        stream_output, stream_input = self.stream_output, self.stream_input
        input_streams, output_streams = self.input_streams, self.output_streams
        for index, stream in enumerate(self.streams):
            producer, consumer = stream.producer, stream.consumer
            source = target = -1
            try:
                if producer is not None:
                    source = outputs[producer.component, producer.interface]
                    output_streams[source].append(index)
                if consumer is not None:
                    target = inputs[consumer.component, consumer.interface]
                    input_streams[target].append(index)
            except KeyError as missing:
                name = ".".join(missing.args[0])
                raise ValueError(f"stream {stream.name}: no path has {name}") from None
            stream_output.append(source)
            stream_input.append(target)
            if stream.seals or stream.schema is not None:
                self.changing_streams.add(index)

    @cached_property
    def input_paths(self) -> list[list[int]]:
        """The paths that begin at each input."""
        found: list[list[int]] = [[] for _ in self.input_streams]
        for path, source in enumerate(self.path_input):
            found[source].append(path)
        return found

    def component_of(self, path: int) -> int:
        """The component that has the path."""
        return self.output_component[self.path_output[path]]

    @property
    def cycles(self) -> list[Cycle]:
        """In the order in which they are labelled."""
        return [item for item in self.order if isinstance(item, Cycle)]

    def outputs(self) -> Iterator[int]:
        """Every output, in the order in which they are labelled."""
        for item in self.order:
            if isinstance(item, Cycle):
                yield from sorted(item.outputs)
            else:
                yield item

    def sinks(self) -> list[int]:
        """The streams that leave the dataflow; all streams where none leaves."""
        leaving = [s for s, consumer in enumerate(self.stream_input) if consumer < 0]
        return leaving or list(range(len(self.streams)))

    def feeding(self, output: int) -> list[int]:
        """The paths that end in an output, then the others that write the states it shows."""
        own = self.output_paths[output]
        groups = self.output_groups.get(output, ())
        writers = (path for group in groups for path in self.group_writers[group])
        return [*own, *(path for path in writers if self.path_output[path] != output)]

    def streams_in(self, cycle: Cycle) -> list[int]:
        """The streams inside a cycle, output by output."""
        leaving = (s for output in sorted(cycle.outputs) for s in self.output_streams[output])
        return [s for s in leaving if self.stream_input[s] in cycle.inputs]

    def place_of(self, path: int) -> str:
        """What a path is called where several components are talked of: `Component: from->to`."""
        return f"{self.components[self.component_of(path)].name}: {self.paths[path]}"

    def writers_beside(self, path: int) -> list[int]:
        """The other write paths of the path's state group."""
        group = self.path_group[path]
        return [p for p in self.group_writers[group] if p != path] if group >= 0 else []


@dataclass(frozen=True, slots=True)
class Collapsed:
    """A cycle that stands for one path."""

    paths: tuple[int, ...]
    """Its members, in the order of the file."""
    entering: tuple[int, ...]
    """Paths from outside that end in it."""
    rep: bool
    """Replicated if any member is."""


def collapsed(graph: Graph, cycle: Cycle, rep: Sequence[bool]) -> Collapsed:
    """The members of a cycle, and what enters it."""
    ending = [p for output in cycle.outputs for p in graph.output_paths[output]]
    members = [p for p in ending if graph.path_input[p] in cycle.inputs]
    entering = [p for p in ending if graph.path_input[p] not in cycle.inputs]
    replicated = any(rep[graph.component_of(p)] for p in members)
    return Collapsed(tuple(sorted(members)), tuple(sorted(entering)), replicated)


def most_severe(graph: Graph, paths: Sequence[int], ordered: Container[int]) -> Annotation:
    """The annotation of the one path; the gate is `*` where several gates meet.

    A path that is ordered counts as its confluent counterpart.
    """
    annotations = [
        _confluent(graph.paths[p].annotation) if p in ordered else graph.paths[p].annotation
        for p in paths
    ]
    kind = max(annotation.kind for annotation in annotations)
    if kind.confluent:
        return Annotation(kind)
    gates = {annotation.gate for annotation in annotations if annotation.kind is kind}
    return Annotation(kind, gates.pop() if len(gates) == 1 else STAR)


def _confluent(annotation: Annotation) -> Annotation:
    return Annotation(AnnotationKind.CW if annotation.kind.writes else AnnotationKind.CR)


class _Shapes:
    """Gives equal shapes the same number, and equal objects without a look at them."""

    def __init__(self, shapes: list[Shape]) -> None:
        self._shapes = shapes
        self._by_value: dict[object, int] = {}
        self._by_identity: dict[int, int] = {}

    def number(self, path: Path) -> int:
        """The number of the path's shape."""
        annotation = path.annotation
        plain = path.lineage is None and path.nondeterministic is None and path.splits is None
        if plain:
            known = self._by_identity.get(id(annotation))
            if known is not None:
                return known
        lineage = None if path.lineage is None else tuple(sorted(path.lineage.items()))
        gate = annotation.gate
        value = (
            int(annotation.kind),
            None if gate is None else (gate.attributes,),
            lineage,
            path.nondeterministic is not None,
            path.splits,
        )
        number = self._by_value.get(value)
        if number is None:
            number = self._by_value[value] = len(self._shapes)
            chance = path.nondeterministic is not None
            self._shapes.append(shape_of(annotation, lineage, chance, path.splits))
        if plain:
            self._by_identity[id(annotation)] = number
        return number


class _Order:
    """Outputs after what they depend on, in the order of the file where that leaves a choice.

    Where an output's dependencies are done, which is the rule in a file that is written from
    source to sink, it is done at once; else Tarjan's algorithm runs over dependencies, with its
    stack in a list, and gives the cycles too.
    """

    def __init__(self, graph: Graph, *, shared_state: bool) -> None:
        self._graph = graph
        self._groups = graph.output_groups if shared_state else {}
        self._first_output = len(graph.input_streams)
        self._first_group = self._first_output + len(graph.output_paths)
        self._done = bytearray(self._first_group + len(graph.group_writers))
        self._number: dict[int, int] = {}
        self.items: list[int | Cycle] = []
        self._run()

    def _run(self) -> None:
        graph, done, groups = self._graph, self._done, self._groups
        output_paths, path_input = graph.output_paths, graph.path_input
        input_streams, stream_output = graph.input_streams, graph.stream_output
        first = self._first_output
        add = self.items.append
        for output, paths in enumerate(output_paths):
            if done[first + output]:
                continue
            ready = True
            if output in groups:
                shown = groups[output]
                paths = [*paths, *(p for group in shown for p in graph.group_writers[group])]
            for path in paths:
                source = path_input[path]
                if done[source]:
                    continue
                for stream in input_streams[source]:
                    producer = stream_output[stream]
                    if producer >= 0 and not done[first + producer]:
                        ready = False
                        break
                if not ready:
                    break
                done[source] = 1
            if ready:
                done[first + output] = 1
                add(output)
            else:
                self._strong(first + output)

    def _dependencies(self, node: int) -> Iterable[int]:
        graph, first = self._graph, self._first_output
        if node < first:
            producers = (graph.stream_output[s] for s in graph.input_streams[node])
            return (first + producer for producer in producers if producer >= 0)
        if node < self._first_group:
            output = node - first
            inputs = [graph.path_input[p] for p in graph.output_paths[output]]
            return inputs + [self._first_group + g for g in self._groups.get(output, ())]
        writers = graph.group_writers[node - self._first_group]
        return (graph.path_input[p] for p in writers)

    def _strong(self, root: int) -> None:
        """Tarjan (1972): finish everything that `root` depends on, and `root`."""
        done, number = self._done, self._number
        low: dict[int, int] = {}
        stack: list[int] = []
        calls = [(root, iter(self._dependencies(root)))]
        number[root] = low[root] = len(number)
        stack.append(root)
        while calls:
            node, rest = calls[-1]
            for other in rest:
                if done[other]:
                    continue
                if other not in number:
                    number[other] = low[other] = len(number)
                    stack.append(other)
                    calls.append((other, iter(self._dependencies(other))))
                    break
                low[node] = min(low[node], number[other])
            else:
                calls.pop()
                if calls:
                    above = calls[-1][0]
                    low[above] = min(low[above], low[node])
                if low[node] == number[node]:
                    self._finish(node, stack)

    def _finish(self, node: int, stack: list[int]) -> None:
        """Everything above `node` on the stack is one strongly connected part."""
        part: list[int] = []
        while not part or part[-1] != node:
            part.append(stack.pop())
            self._done[part[-1]] = 1
        first, group = self._first_output, self._first_group
        if len(part) > 1:
            self.items.append(
                Cycle(
                    inputs=frozenset(n for n in part if n < first),
                    outputs=frozenset(n - first for n in part if first <= n < group),
                    groups=frozenset(n - group for n in part if n >= group),
                )
            )
        elif first <= node < group:
            self.items.append(node - first)
