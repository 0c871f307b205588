"""Which paths a seal makes deterministic, on which key they wait, and who has to vote.

A path may have several keys to choose from. What leaves it is sealed on the chosen key only, so the
choice starts at the sinks: a key that something further down waits for comes first, then the one
with the fewest attributes, then the alphabet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from annotations.delivery import counts
from annotations.vocabulary import AnnotationKind, Key
from blazes.core.effects import images
from blazes.core.graph import Cycle, Graph, Input, Output, PathEdge, StreamEdge, in_file_order
from blazes.core.propagation import ALL_KEYS, NO_KEY, Propagation
from blazes.core.rule_kinds import Rendezvous

NOTHING: Final[Counter[Key]] = Counter()


@dataclass(frozen=True, slots=True)
class Wait:
    """The partitions that a sealed path waits for."""

    inputs: tuple[Input, ...]
    keys: dict[Input, Key]
    """Input -> the key that is waited for there."""
    key: Key
    """The key of all inputs, or, where they have none in common, the union of their keys."""


def waits(propagation: Propagation) -> dict[PathEdge, Wait]:
    """For every order-sensitive path that a seal makes deterministic: what it waits for."""
    return _Choice(propagation).waits


def settled(labels: Callable[[Mapping[Output, Key]], Propagation]) -> Propagation:
    """The labels where every output waits for one key, and hands on the punctuations of one.

    Whatever waits for whole partitions hands on the punctuations of the key that it waits for, and
    no others. Where several are waited for behind it, the rest find no seal there. Its inputs are
    released together: where they are sealed on no key in common, it waits for none (SP-19). So it
    is for a confluent output, which waits only where something behind it does.

    Args:
        labels: finds them, given the one key that an output hands on.
    """
    chosen = ALL_KEYS
    while True:
        propagation = labels(chosen)
        handed_on, choice = propagation.handed_on, _Choice(propagation)
        new = [(output, key) for output, key in choice.contested.items() if output not in handed_on]
        new = new or [(output, NO_KEY) for output in choice.apart]
        if not new:
            return propagation
        first, key = new[-1]  # what is behind it chooses again
        chosen = {**handed_on, first: key}


def sealed_inputs(propagation: Propagation, path: PathEdge) -> list[Input]:
    """The inputs that a path waits for; none where no seal makes it deterministic.

    A writer waits for its own input and for those of the other writers of its state, or it would
    race with them. A reader waits for its rendezvous, and for its own input where that is sealed to
    fit too, because the seal then goes on with its answers (S3); without a rendezvous for its own.
    """
    if path in propagation.ordered:
        return []
    own_fits = propagation.fits(path)
    others = [other.input for other in meets(propagation, path)]
    if path.kind is AnnotationKind.OW:
        if not own_fits or propagation.effects[path].origin is not None:
            return []
    elif others and not propagation.protected(path):
        return []
    labels = propagation.input_labels
    fitting = [source for source in others if propagation.fits_with(path, labels[source])]
    return in_file_order([path.input, *fitting] if own_fits else fitting)


def meets(propagation: Propagation, path: PathEdge) -> list[PathEdge]:
    """The paths that an order-sensitive path races with.

    The other writers of its state; for a reader, what the rule set calls its rendezvous (2.3).
    """
    rendezvous = propagation.interpreter.rules.rendezvous
    if path.kind is AnnotationKind.OR and rendezvous is Rendezvous.SAME_OUTPUT:
        return [other for other in path.output.paths if other is not path]
    return path.other_writers()


class _Choice:
    def __init__(self, propagation: Propagation) -> None:
        self._propagation = propagation
        self._wanted: dict[Output, Counter[Key]] = {}
        """Output -> the keys that something further down waits for, in the output's names."""
        self.waits: dict[PathEdge, Wait] = {}
        self.contested: dict[Output, Key] = {}
        """Output -> the one of several wanted keys that its punctuations are on; the last output
        of the dataflow first."""
        self.apart: list[Output] = []
        """Outputs whose inputs are sealed on no key in common, and confluent ones that cannot hand
        on what is wanted; the last first."""
        if not any(label.keys for label in propagation.stream_labels.values()):
            return
        for part in reversed(propagation.graph.parts):
            if isinstance(part, Output):
                self._choose(part)

    def _choose(self, output: Output) -> None:
        wanted = self._wanted.pop(output, NOTHING)
        offers: dict[PathEdge, dict[Input, frozenset[Key]]] = {}
        if len(wanted) > 1 and any(path.kind is not AnnotationKind.CR for path in output.paths):
            key = min(wanted, key=lambda key: (-wanted[key], len(key), sorted(key)))
            self.contested[output], wanted = key, Counter({key: wanted[key]})
        for path in output.paths:
            if not path.shape.ordered:
                if wanted:
                    self._pass_on(path, wanted)
            elif inputs := sealed_inputs(self._propagation, path):
                labels = self._propagation.input_labels
                offers[path] = {
                    source: fitting(self._propagation, path, labels[source].keys)
                    for source in inputs
                }
        if not offers:
            if not all(self._hands_on(output, key) for key in wanted):
                self.apart.append(output)
            return
        shared = keys_in_common(keys for offer in offers.values() for keys in offer.values())
        if not shared and self._propagation.interpreter.rules.splitting:
            self.apart.append(output)
        for path, offer in offers.items():
            wait = self._wait(path, offer, shared, wanted)
            self.waits[path] = wait
            for source, key in wait.keys.items():
                self._want(source, key)

    def _wait(
        self,
        path: PathEdge,
        offer: dict[Input, frozenset[Key]],
        shared: frozenset[Key],
        wanted: Counter[Key],
    ) -> Wait:
        lineage = path.shape.lineage

        def rank(key: Key) -> tuple[int, int, list[str]]:
            behind = [key] if lineage is None else list(images(key, lineage))
            return -sum(wanted[stream] for stream in behind), len(key), sorted(key)

        common = shared or keys_in_common(offer.values())
        if common:
            key = min(common, key=rank)
            return Wait(tuple(offer), dict.fromkeys(offer, key), key)
        keys = {source: min(keys_of, key=rank) for source, keys_of in offer.items()}
        return Wait(tuple(offer), keys, frozenset().union(*keys.values()))

    def _hands_on(self, output: Output, key: Key) -> bool:
        """Whether a confluent output can wait for partitions of a key to hand them on (S3): its
        inputs call the key alike, and its code splits by it."""
        interpreter = self._propagation.interpreter
        before = {_before(path, key) for path in output.paths}
        return not interpreter.rules.splitting or (
            len(before) == 1
            and all(interpreter.refusal(path.shape, *before) is None for path in output.paths)
        )

    def _pass_on(self, path: PathEdge, wanted: Counter[Key]) -> None:
        """Seals wanted behind a confluent path, as wanted before it, under the older names."""
        for key in wanted:
            self._want(path.input, _before(path, key))

    def _want(self, source: Input, key: Key) -> None:
        for output in [stream.producer for stream in source.streams]:
            if output is not None and key in self._propagation.verdicts[output].label.keys:
                self._wanted.setdefault(output, Counter())[key] += 1


def _before(path: PathEdge, key: Key) -> Key:
    """A key of the output of a path as its input names it."""
    names = path.declared.lineage
    return key if names is None else frozenset(names[name] for name in key)


def fitting(propagation: Propagation, path: PathEdge, keys: Iterable[Key]) -> frozenset[Key]:
    """The keys that a path can wait for partitions of."""
    takes = propagation.interpreter.takes
    return frozenset(key for key in keys if takes(path.shape, key))


def keys_in_common(offers: Iterable[frozenset[Key]]) -> frozenset[Key]:
    """The keys that are in all offers, of which there is at least one."""
    first, *rest = offers
    return first.intersection(*rest)


def single_producers(propagation: Propagation, sealed: Iterable[PathEdge]) -> set[StreamEdge]:
    """The streams to each of whose partitions one producer alone contributes.

    A source says so itself (`producers: one`). Behind record-wise paths the producers are those of
    the one stream before them; a component that waits for whole partitions (`sealed` lists such
    paths) is itself the one producer of what it releases, unless it is replicated.
    """
    graph = propagation.graph
    waiting = {path.output for path in sealed}
    single = {stream for stream in graph.streams if _declared_single(stream)}
    for output in graph.outputs():
        if propagation.replicated[output.component.name]:
            continue
        if output in waiting or _passes_one(output, single):
            single.update(
                stream
                for stream in output.streams
                if stream.declared.producers is None and propagation.stream_labels[stream].keys
            )
    return single


def identified(propagation: Propagation) -> dict[StreamEdge, set[StreamEdge]]:
    """For every stream: the sources with an id whose records a component that waits for it counts.

    A seal travels through record-wise paths, and it is the records of the sources before them that
    are held back, known by their id and counted (D6). Behind any other path the gate lies there.
    """
    sources = {
        stream: {stream}
        for stream in propagation.graph.streams
        if stream.producer is None and stream.declared.id and counts(stream.declared)
    }
    if not sources:
        return sources
    for output in propagation.graph.parts:
        if isinstance(output, Cycle):
            continue  # no seal survives in a cycle
        if any(path.kind is not AnnotationKind.CR for path in output.paths):
            continue
        entering = {stream for path in output.paths for stream in path.input.streams}
        before = set().union(*(sources.get(stream, ()) for stream in entering))
        if before:
            sources |= dict.fromkeys(output.streams, before)
    return sources


def origins(graph: Graph) -> dict[StreamEdge, frozenset[StreamEdge]]:
    """For every stream that a component puts out: the streams from outside that it is made of."""
    sources: dict[StreamEdge, frozenset[StreamEdge]] = {}
    for node in graph.parts:
        outputs = node.outputs if isinstance(node, Cycle) else (node,)
        leaving = dict.fromkeys(stream for output in outputs for stream in output.streams)
        entering = {
            stream
            for output in outputs
            for path in output.paths
            for stream in path.input.streams
            if stream not in leaving
        }
        parts = {sources.get(stream, frozenset([stream])) for stream in entering}
        sources |= dict.fromkeys(leaving, frozenset[StreamEdge]().union(*parts))
    return sources


def _declared_single(stream: StreamEdge) -> bool:
    producers = stream.declared.producers
    if producers is None:
        return False
    return producers.rule == "one" or (producers.rule == "all" and len(producers.members) == 1)


def _passes_one(output: Output, single: set[StreamEdge]) -> bool:
    inputs = {path.input for path in output.paths}
    streams = [stream for source in inputs for stream in source.streams]
    return len(streams) == 1 and streams[0] in single
