"""How often the records of each stream come: the interpreter of the rules of delivery.

Works beside `blazes.propagation`, output by output: a path's rule may depend on the seals that
enter it (D6 to D8), and what repeats corrupt makes order labels worse behind it (D3 to D5, D7, D9,
D14). An `id` travels with every stream, whether or not its records may come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from annotations.dataflow import Path, Stream
from annotations.delivery import appends_again, may_repeat, repeats_of
from annotations.dependencies import closure
from annotations.vocabulary import AnnotationKind, Delivery, Key, Label, Repeats, Rows
from blazes.delivery_rules import Copies, Leaves, Passage, passage
from blazes.effects import Behaviour, Effect, Interpreter, images
from blazes.graph import Cycle, Graph, Lineage

ONCE: Final = Delivery.ONCE
REPEAT: Final = Delivery.REPEAT
CORRUPT: Final = Delivery.CORRUPT

REPLICA: Final = "replica"
"""The attribute by which outputs of replicas are told apart."""
_WHOLE_ROW: Final[Key] = frozenset({"*"})
"""Stands for all attributes of a row, until a stream says which they are."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """What is known of how often records come."""

    base: Delivery = ONCE
    """`Once`, `Repeat` or `Corrupt`."""
    id: Key | None = None
    """Attributes on which rows agree just if they are copies; None: there are none."""

    @property
    def label(self) -> Delivery:
        """The delivery label."""
        again = self.base is REPEAT and self.id is not None
        return Delivery.REPEAT_ID if again else self.base


NOTHING_KNOWN: Final = Delivered()


@dataclass(frozen=True, slots=True)
class Crossing:
    """What a path does to the delivery of what enters it."""

    enters: Delivery
    rule: Passage
    leaves: Delivered
    withheld: bool = False
    """D7 where the punctuation has a digest: partitions are put in quarantine, not released."""

    @property
    def origin(self) -> bool:
        """Whether a repair in front of the path would keep something from going wrong."""
        return self.rule.origin and not self.withheld

    @property
    def harms(self) -> bool:
        """Whether the order label gets worse."""
        return self.rule.harms and not self.withheld


@dataclass(frozen=True, slots=True)
class Repairs:
    """What is done about repeats: numbers of streams."""

    deduplicated: frozenset[int] = frozenset()
    upserted: frozenset[int] = frozenset()
    """Sinks that replace the row of equal id."""
    transactional: frozenset[int] = frozenset()
    """Sinks that note which batch they have taken together with its rows."""


UNREPAIRED: Final = Repairs()


def matters(graph: Graph) -> bool:
    """Whether any record may come again, or any stream says what identifies its records."""
    return graph.makes_repeats or any(
        stream.id
        or stream.delivery is not None
        or (stream.source is not None and may_repeat(stream))
        or (stream.sink is not None and (stream.sink.key or appends_again(stream)))
        for stream in graph.streams
    )


class Labels(Protocol):
    """What of the order labels (`blazes.propagation.Propagation`) deliveries depend on."""

    graph: Graph
    interpreter: Interpreter
    rep: Sequence[bool]
    behaviours: list[Behaviour]
    stream_label: list[int]
    ordered: dict[int, Effect]
    deliveries: Deliveries | None

    def input(self, source: int) -> int:
        """The label of an input."""

    def state_sealed(self, path: int) -> bool:
        """Whether all that is written to the state is sealed fit for the gate."""

    def protected(self, path: int) -> bool:
        """Whether there is a rendezvous, and all of it is sealed to fit."""


@dataclass(slots=True)
class Deliveries:
    """The delivery of every stream of a dataflow."""

    found: Labels
    repairs: Repairs = UNREPAIRED
    streams: list[Delivered] = field(default_factory=list)
    crossings: list[Crossing | None] = field(default_factory=list)
    before_sink: dict[int, Delivered] = field(default_factory=dict)
    """Result -> what reaches its sink."""
    _readers: dict[int, list[int]] = field(default_factory=dict)
    """State group -> the order-sensitive readers in it."""

    def __post_init__(self) -> None:
        graph = self.found.graph
        self.streams = [NOTHING_KNOWN] * len(graph.streams)
        self.crossings = [None] * len(graph.paths)
        for path, group in enumerate(graph.path_group):
            if group >= 0 and graph.paths[path].annotation.kind is AnnotationKind.OR:
                self._readers.setdefault(group, []).append(path)

    def source(self, number: int, label: int) -> int:
        """Set the delivery of an external source; its order label, given what it would be."""
        stream = self.found.graph.streams[number]
        base = REPEAT if may_repeat(stream) else ONCE
        return self._settle(number, Delivered(base, frozenset(stream.id) or None), label, rep=False)

    def judged(self, path: int, effect: Effect) -> Effect:
        """What a path does to order labels, with what repeats do to it."""
        crossing = self.crossings[path] = self._cross(path)
        if not crossing.harms:
            return effect
        writes = self.found.graph.paths[path].annotation.kind.writes
        return self.found.interpreter.harmed(effect, writes=writes)

    def leave(self, output: int, cycle: Cycle | None = None) -> None:
        """The output's delivery goes out on its streams."""
        graph = self.found.graph
        delivered = self._of_output(output, in_cycle=cycle is not None)
        rep = self.found.rep[graph.output_component[output]]
        labels = self.found.stream_label
        for number in graph.output_streams[output]:
            labels[number] = self._settle(number, delivered, labels[number], rep=rep)

    def raised(self, cycle: Cycle) -> bool:
        """Carry repeats once around a cycle; whether any stream in it is worse than before."""
        graph = self.found.graph
        raised = False
        for output in sorted(cycle.outputs):
            for path in graph.feeding(output):
                self.crossings[path] = self._cross(path)
            delivered = self._of_output(output, in_cycle=True)
            for number in graph.output_streams[output]:
                if graph.stream_input[number] in cycle.inputs:
                    base = self._base(graph.streams[number], delivered.base)
                    raised |= base > self.streams[number].base
                    self.streams[number] = Delivered(max(base, self.streams[number].base))
        return raised

    # ---- a path

    def _cross(self, path: int) -> Crossing:
        graph = self.found.graph
        declared = graph.paths[path]
        kind = declared.annotation.kind
        entering = [self.streams[s] for s in graph.input_streams[graph.path_input[path]]]
        base = max((each.base for each in entering), default=ONCE)
        enters = Delivered(base, entering[0].id if len(entering) == 1 else None)
        gate = self._is_gate(path)
        copies = Copies(
            repeats=repeats_of(declared),
            writes=kind.writes,
            nondeterministic=declared.nondeterministic is not None,
            gate=gate,
            identified=all(each.id for each in entering if each.base is REPEAT),
            sealed_state=kind is AnnotationKind.OR and self.found.protected(path),
        )
        rule = passage(enters.label, copies)
        withheld = rule.id == "D7" and self._has_digests(path)
        leaves = ONCE if withheld else _leaving(rule, copies.repeats, base)
        lineage = graph.shapes[graph.path_shape[path]].lineage
        if leaves is CORRUPT:
            known = None
        elif gate and kind is AnnotationKind.OW and declared.rows is Rows.ONE:
            known = _survives(_gate_of(declared), lineage)
        elif rule.leaves is Leaves.AGAIN:
            known = _WHOLE_ROW
        else:
            known = None if declared.rows is Rows.MANY else _survives(enters.id, lineage)
        return Crossing(enters.label, rule, Delivered(leaves, known), withheld)

    def _is_gate(self, path: int) -> bool:
        """Whether what enters is held back and counted until its partition is complete (D6).

        A reader waits for what is written where its own answers are computed, at its output; what
        the same path hands on through another output does not wait.
        """
        found, graph = self.found, self.found.graph
        if path in found.ordered:
            return False
        group = graph.path_group[path]
        kind = graph.paths[path].annotation.kind
        if kind is AnnotationKind.OW:
            behaviour = found.behaviours[graph.path_shape[path]]
            if behaviour.fits(found.input(graph.path_input[path])) and found.state_sealed(path):
                return True
        output = graph.path_output[path]
        readers = [p for p in self._readers.get(group, ()) if graph.path_output[p] == output]
        return kind.writes and any(map(found.protected, readers))

    def _has_digests(self, path: int) -> bool:
        """Whether every stream that may repeat without an id has punctuations with digests."""
        graph = self.found.graph
        punctuations = [
            graph.streams[s].punctuation
            for s in graph.input_streams[graph.path_input[path]]
            if self.streams[s].base is REPEAT and self.streams[s].id is None
        ]
        return all(each is not None and each.digest for each in punctuations)

    # ---- an output and its streams

    def _crossing(self, path: int) -> Crossing:
        crossing = self.crossings[path]
        if crossing is None:
            crossing = self.crossings[path] = self._cross(path)
        return crossing

    def _of_output(self, output: int, *, in_cycle: bool) -> Delivered:
        """D10 to D12."""
        graph = self.found.graph
        paths = graph.output_paths[output]
        crossings = [self._crossing(path) for path in paths]
        base = max(each.leaves.base for each in crossings)
        ids = [each.leaves.id for each in crossings]
        joined = all(graph.paths[path].rows is Rows.JOINED for path in paths)
        known = ids[0] if len(ids) == 1 else _union(ids) if joined else None
        for path in graph.feeding(output)[len(paths) :]:
            behind = self._crossing(path).leaves.base
            if behind > ONCE:
                base, known = max(base, behind), None
        return Delivered(base, None if in_cycle or base is CORRUPT else known)

    def _base(self, stream: Stream, base: Delivery) -> Delivery:
        """An inner stream that leaves the job may repeat by itself."""
        inner = stream.producer is not None and stream.consumer is not None
        return max(base, REPEAT) if inner and stream.delivery == "may-repeat" else base

    def _settle(self, number: int, delivered: Delivered, label: int, *, rep: bool) -> int:
        """Set the delivery of a stream; its order label, given what it would be."""
        graph, repairs = self.found.graph, self.repairs
        stream = graph.streams[number]
        known = _in_schema(delivered.id, stream)
        consumer = graph.stream_input[number]
        if known is not None and rep and not self._to_replicas(consumer):
            known |= {REPLICA}
        base = self._base(stream, delivered.base)
        if number in repairs.deduplicated and base is REPEAT:
            base = ONCE
            if label >= Label.INST and label <= Label.DIVERGE:
                label = max(label, self.found.interpreter.tainted[rep])
        if stream.consumer is None and stream.producer is not None:
            self.before_sink[number] = Delivered(base, known)
            base, label = self._at_sink(number, base, known, label, rep=rep)
        self.streams[number] = Delivered(base, None if base is CORRUPT else known)
        return label

    def _to_replicas(self, consumer: int) -> bool:
        if consumer < 0:
            return False
        graph = self.found.graph
        return self.found.rep[graph.component_of(graph.input_paths[consumer][0])]

    def determines(self, key: Iterable[str], known: Key | None) -> bool:
        """Whether rows of equal key are copies of one row, known by this id."""
        return known is not None and known <= closure(key, self.found.graph.dataflow.fds)

    def _at_sink(
        self, number: int, base: Delivery, known: Key | None, label: int, *, rep: bool
    ) -> tuple[Delivery, int]:
        """D13 and D14."""
        stream, repairs = self.found.graph.streams[number], self.repairs
        if base is CORRUPT or number in repairs.upserted:
            return (base if base is CORRUPT else ONCE), label
        key = stream.sink.key if stream.sink is not None else ()
        if key:
            if self.determines(key, known):
                return ONCE, label
            label = self.found.interpreter.labels.merge(label, self.found.interpreter.tainted[rep])
            return (CORRUPT if base is REPEAT else base), label
        if appends_again(stream) and number not in repairs.transactional:
            return REPEAT, label
        return base, label


def _gate_of(path: Path) -> Key | None:
    gate = path.annotation.gate
    return None if gate is None else gate.attributes


def _leaving(rule: Passage, repeats: Repeats, base: Delivery) -> Delivery:
    match rule.leaves:
        case Leaves.ONCE:
            return ONCE
        case Leaves.AGAIN:
            return REPEAT
        case Leaves.CORRUPT:
            return CORRUPT
        case Leaves.ABSORBED if repeats is Repeats.ABSORB:
            return ONCE
    return base


def _survives(known: Key | None, lineage: Lineage | None) -> Key | None:
    """An id under the names that it has behind a path; None where an attribute of it is lost."""
    if known is None or lineage is None:
        return known
    return min(images(known, lineage), key=sorted, default=None)


def _union(ids: Iterable[Key | None]) -> Key | None:
    union: Key = frozenset()
    for each in ids:
        if each is None:
            return None
        union |= each
    return _WHOLE_ROW if union >= _WHOLE_ROW else union


def _in_schema(known: Key | None, stream: Stream) -> Key | None:
    if known == _WHOLE_ROW:
        return None if stream.schema is None else frozenset(stream.schema)
    if known is None or stream.schema is None:
        return known
    return known if known <= stream.schema.keys() else None


def by_name(found: Labels) -> dict[str, Delivered]:
    """Stream name -> its delivery, in the order of the file; empty where all come once."""
    if found.deliveries is None:
        return {}
    names = [stream.name for stream in found.graph.streams]
    return dict(zip(names, found.deliveries.streams, strict=True))


def withheld(found: Labels) -> list[str]:
    """The paths whose partitions are put in quarantine where a record comes again (D7)."""
    if found.deliveries is None:
        return []
    return [
        found.graph.place_of(path)
        for path, crossing in enumerate(found.deliveries.crossings)
        if crossing is not None and crossing.withheld
    ]
