"""Which paths a seal makes deterministic, on which key they wait, and who has to vote.

A path may have several keys to choose from. What leaves it is sealed on the chosen key only, so the
choice starts at the sinks: a key that something further down waits for comes first, then the one
with the fewest attributes, then the alphabet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from annotations.delivery import counts
from annotations.vocabulary import AnnotationKind, Key
from blazes.effects import WORST, images
from blazes.graph import Graph
from blazes.propagation import Propagation
from blazes.rule_kinds import Rendezvous

NOTHING: Final[Counter[Key]] = Counter()


@dataclass(frozen=True, slots=True)
class Wait:
    """What a sealed path waits for."""

    inputs: tuple[int, ...]
    keys: dict[int, Key]
    """Input -> the key that is waited for there."""
    key: Key
    """The key of all inputs, or, where they have none in common, the union of their keys."""


def waits(found: Propagation) -> dict[int, Wait]:
    """For every order-sensitive path that a seal makes deterministic: what it waits for."""
    return _Choice(found).waits


def sealed_inputs(found: Propagation, path: int) -> list[int]:
    """The inputs that a path waits for; none where no seal makes it deterministic.

    A writer waits for its own input and for those of the other writers of its state, or it would
    race with them. A reader waits for its rendezvous, and for its own input where that is sealed to
    fit too, because the seal then goes on with its answers (S3); without a rendezvous for its own.
    """
    graph = found.graph
    effect = found.effects[path]
    behaviour = found.behaviours[graph.path_shape[path]]
    if effect is None or path in found.ordered:
        return []
    own = graph.path_input[path]
    own_fits = behaviour.fits(found.input_label[own])
    others = [graph.path_input[p] for p in meets(found, path)]
    if graph.paths[path].annotation.kind is AnnotationKind.OW:
        if not own_fits or effect.origin is not None:
            return []
    elif others and not found.protected(path):
        return []
    fitting = [i for i in others if behaviour.fits(found.input_label[i])]
    return sorted({own, *fitting} if own_fits else set(fitting))


def meets(found: Propagation, path: int) -> list[int]:
    """The paths that an order-sensitive path races with.

    The other writers of its state; for a reader, what the rule set calls its rendezvous (2.3).
    """
    graph = found.graph
    reads = graph.paths[path].annotation.kind is AnnotationKind.OR
    if reads and found.interpreter.rules.rendezvous is Rendezvous.SAME_OUTPUT:
        return [p for p in graph.output_paths[graph.path_output[path]] if p != path]
    return graph.writers_beside(path)


class _Choice:
    def __init__(self, found: Propagation) -> None:
        self._found = found
        self._graph = found.graph
        self._wanted: dict[int, Counter[Key]] = {}
        """Output -> the keys that something further down waits for, in the output's names."""
        self.waits: dict[int, Wait] = {}
        if max(found.stream_label, default=0) <= WORST:
            return
        for item in reversed(found.graph.order):
            if isinstance(item, int):
                self._choose(item)

    def _choose(self, output: int) -> None:
        graph = self._graph
        wanted = self._wanted.pop(output, NOTHING)
        offers: dict[int, dict[int, frozenset[Key]]] = {}
        for path in graph.output_paths[output]:
            if self._found.behaviours[graph.path_shape[path]].gate is None:
                if wanted:
                    self._pass_on(path, wanted)
            elif path in self._found.ordered:
                continue
            elif inputs := sealed_inputs(self._found, path):
                offers[path] = {i: self._fitting(path, i) for i in inputs}
        if not offers:
            return
        shared = _common(keys for offer in offers.values() for keys in offer.values())
        for path, offer in offers.items():
            wait = self._wait(path, offer, shared, wanted)
            self.waits[path] = wait
            for source, key in wait.keys.items():
                self._want(source, key)

    def _wait(
        self,
        path: int,
        offer: dict[int, frozenset[Key]],
        shared: frozenset[Key],
        wanted: Counter[Key],
    ) -> Wait:
        lineage = self._graph.shapes[self._graph.path_shape[path]].lineage

        def rank(key: Key) -> tuple[int, int, list[str]]:
            behind = [key] if lineage is None else list(images(key, lineage))
            return -sum(wanted[each] for each in behind), len(key), sorted(key)

        common = shared or _common(offer.values())
        if common:
            key = min(common, key=rank)
            return Wait(tuple(offer), dict.fromkeys(offer, key), key)
        keys = {source: min(each, key=rank) for source, each in offer.items()}
        return Wait(tuple(offer), keys, frozenset().union(*keys.values()))

    def _fitting(self, path: int, source: int) -> frozenset[Key]:
        found = self._found
        keys = found.interpreter.labels.values[found.input_label[source]].keys
        return frozenset(filter(found.behaviours[self._graph.path_shape[path]].takes, keys))

    def _pass_on(self, path: int, wanted: Counter[Key]) -> None:
        """What is wanted behind a confluent path is wanted before it, under the older names."""
        names = self._graph.paths[path].lineage
        for key in wanted:
            if names is None:
                self._want(self._graph.path_input[path], key)
            elif all(name in names for name in key):
                self._want(self._graph.path_input[path], frozenset(names[n] for n in key))

    def _want(self, source: int, key: Key) -> None:
        for stream in self._graph.input_streams[source]:
            producer = self._graph.stream_output[stream]
            if producer >= 0:
                self._wanted.setdefault(producer, Counter())[key] += 1


def _common(offers: Iterable[frozenset[Key]]) -> frozenset[Key]:
    first, *rest = offers
    return first.intersection(*rest)


def single_producers(found: Propagation, sealed: Iterable[int]) -> list[bool]:
    """For every stream: does one producer alone contribute to each of its partitions?

    A source says so itself (`producers: one`). Behind record-wise paths the producers are those of
    the one stream before them; a component that waits for whole partitions (`sealed` lists such
    paths) is itself the one producer of what it releases, unless it is replicated.
    """
    graph = found.graph
    waiting = {graph.path_output[path] for path in sealed}
    single = [False] * len(graph.streams)
    for number, output in enumerate(graph.stream_output):
        if output < 0:
            single[number] = _declared_single(graph, number)
    for item in graph.order:
        for output in [item] if isinstance(item, int) else item.outputs:
            for number in graph.output_streams[output]:
                if found.stream_label[number] <= WORST:
                    continue
                if graph.streams[number].producers is not None:
                    single[number] = _declared_single(graph, number)
                elif not found.rep[graph.output_component[output]]:
                    single[number] = output in waiting or _passes_one(graph, output, single)
    return single


def identified(found: Propagation) -> list[tuple[int, ...]]:
    """For every stream: the sources with an id whose records a component that waits for it counts.

    A seal travels through record-wise paths, and it is the records of the sources before them that
    are held back, known by their id and counted (D6). Behind any other path the gate lies there.
    """
    graph = found.graph
    sources: list[tuple[int, ...]] = [()] * len(graph.streams)
    for number, stream in enumerate(graph.streams):
        if stream.producer is None and stream.id and counts(stream):
            sources[number] = (number,)
    if not any(sources):
        return sources
    for item in graph.order:
        if not isinstance(item, int):
            continue  # no seal survives in a cycle
        paths = graph.output_paths[item]
        if any(graph.paths[path].annotation.kind is not AnnotationKind.CR for path in paths):
            continue
        inputs = {graph.path_input[path] for path in paths}
        before = {s for i in inputs for stream in graph.input_streams[i] for s in sources[stream]}
        for number in graph.output_streams[item]:
            sources[number] = tuple(sorted(before))
    return sources


def _declared_single(graph: Graph, stream: int) -> bool:
    producers = graph.streams[stream].producers
    if producers is None:
        return False
    return producers.rule == "one" or (producers.rule == "all" and len(producers.members) == 1)


def _passes_one(graph: Graph, output: int, single: list[bool]) -> bool:
    inputs = {graph.path_input[path] for path in graph.output_paths[output]}
    streams = [stream for source in inputs for stream in graph.input_streams[source]]
    return len(streams) == 1 and single[streams[0]]
