"""How often the records of each stream come: the interpreter of the rules of delivery.

`blazes.core.propagation` asks it output by output: a path's rule may depend on the seals that enter
it (D6 to D8), and what repeats corrupt makes order labels worse behind it (D3 to D5, D7, D9, D14).
An `id` travels with every stream, whether or not its records may come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from annotations.dataflow import Stream
from annotations.delivery import appends_again, counts, may_repeat, numbered, repeats_of
from annotations.dependencies import closure, within_schema
from annotations.vocabulary import AnnotationKind, Delivery, Key, Label, Repeats, Rows, StreamLabel
from blazes.core.effects import Interpreter, at_least, images
from blazes.core.graph import Cycle, Graph, Lineage, Output, PathEdge, StreamEdge
from blazes.core.rule_kinds import Conclusion, Copies, Leaves, Passage
from blazes.core.rules import passage

ONCE: Final = Delivery.ONCE
REPEAT: Final = Delivery.REPEAT
CORRUPT: Final = Delivery.CORRUPT

REPLICA: Final = "replica"
"""The attribute by which outputs of replicas are told apart."""
_WHOLE_ROW: Final[Key] = frozenset({"*"})
"""Stands for all attributes of a row, until a stream says which they are."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Knowledge of how often records come."""

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
    """The effect of a path on the delivery of what enters it."""

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
    """Measures against repeats: names of streams."""

    deduplicated: frozenset[str] = frozenset()
    upserted: frozenset[str] = frozenset()
    """Sinks that replace the row of equal id."""
    transactional: frozenset[str] = frozenset()
    """Sinks that note which batch they have taken together with its rows."""


UNREPAIRED: Final = Repairs()


def matters(graph: Graph) -> bool:
    """Whether any record may come again, or any stream says what identifies its records."""
    again = any(makes(path) or makes(path, ordered=True) for path in graph.paths)
    return again or any(map(numbered, graph.dataflow.streams.values()))


class Deliveries:
    """The delivery of every stream of a dataflow.

    Args:
        graph: the dataflow.
        replicated: component name -> whether it is replicated.
        interpreter: the rules.
        repairs: what is done about repeats.
    """

    def __init__(
        self,
        graph: Graph,
        replicated: Mapping[str, bool],
        interpreter: Interpreter,
        repairs: Repairs,
    ) -> None:
        self.graph = graph
        self.repairs = repairs
        self.streams: dict[StreamEdge, Delivered] = dict.fromkeys(graph.streams, NOTHING_KNOWN)
        self.crossings: dict[PathEdge, Crossing] = {}
        self.before_sink: dict[StreamEdge, Delivered] = {}
        """Result -> what reaches its sink."""
        self._replicated = replicated
        self._interpreter = interpreter
        self._promised = _sealed_by_promise(graph)

    def source(self, stream: StreamEdge, label: StreamLabel) -> StreamLabel:
        """Set the delivery of an external source; its order label, given what it would be."""
        base = REPEAT if may_repeat(stream.declared) else ONCE
        delivered = Delivered(base, frozenset(stream.declared.id) or None)
        return self._settle(stream, delivered, label, rep=False)

    def cross(
        self, path: PathEdge, *, gate: bool, forwards: bool, sealed_state: bool, ordered: bool
    ) -> Crossing:
        """The effect of the path on the delivery that its input has now (D1 to D9, D11).

        Args:
            path: the path.
            gate: it waits for whole partitions.
            forwards: it waits so that a path behind it can.
            sealed_state: it reads state that it waits for.
            ordered: it takes its records in an order.
        """
        declared = path.declared
        entering = [self.streams[stream] for stream in path.input.streams]
        base = max((delivered.base for delivered in entering), default=ONCE)
        enters = Delivered(base, entering[0].id if len(entering) == 1 else None)
        again = [stream for stream in path.input.streams if self.streams[stream].base is REPEAT]
        counted = not self._promised.issuperset(again)
        bare = [s for s in again if self.streams[s].id is None or s in self._promised]
        repeats = repeats_of(declared)
        copies = Copies(
            repeats=repeats,
            writes=path.shape.writes,
            nondeterministic=path.shape.nondeterministic,
            gate=gate,
            counted=counted and (gate or (forwards and bool(bare) and repeats is Repeats.ABSORB)),
            identified=not bare,
            sealed_state=sealed_state,
            makes=makes(path, ordered=ordered),
        )
        rule = passage(enters.label, copies)
        withheld = rule.id == "D7" and _all_digests(bare)
        leaves = ONCE if withheld else _leaving(rule, copies.repeats, base)
        own_gate = path.shape.gate
        if leaves is CORRUPT:
            known = None
        elif gate and path.kind is AnnotationKind.OW and declared.rows is Rows.ONE:
            known = _survives(own_gate.attributes if own_gate else None, path.shape.lineage)
        elif rule.leaves is Leaves.AGAIN:
            known = _WHOLE_ROW
        else:
            known = None if declared.rows is Rows.MANY else _survives(enters.id, path.shape.lineage)
        crossing = Crossing(enters.label, rule, Delivered(leaves, known), withheld)
        self.crossings[path] = crossing
        return crossing

    # ---- an output and its streams; all paths that feed it have been crossed

    def leave(
        self,
        output: Output,
        labels: MutableMapping[StreamEdge, StreamLabel],
        *,
        in_cycle: bool,
    ) -> None:
        """The output's delivery goes out on its streams, whose order labels may get worse by it."""
        delivered = self._of_output(output, in_cycle=in_cycle)
        rep = self._replicated[output.component.name]
        for stream in output.streams:
            labels[stream] = self._settle(stream, delivered, labels[stream], rep=rep)

    def go_round(self, output: Output, cycle: Cycle) -> bool:
        """Carry repeats on in a cycle; whether any stream in it is worse than before."""
        raised = False
        delivered = self._of_output(output, in_cycle=True)
        for stream in output.streams:
            if stream.consumer in cycle.nodes:
                before = self.streams[stream].base
                base = max(before, _again(stream.declared, delivered.base))
                raised |= base > before
                self.streams[stream] = Delivered(base)
        return raised

    def _of_output(self, output: Output, *, in_cycle: bool) -> Delivered:
        """D10 to D12."""
        crossings = [self.crossings[path] for path in output.paths]
        base = max(crossing.leaves.base for crossing in crossings)
        ids = [crossing.leaves.id for crossing in crossings]
        joined = all(path.declared.rows is Rows.JOINED for path in output.paths)
        known = ids[0] if len(ids) == 1 else _union(ids) if joined else None
        for path in output.feeding()[len(output.paths) :]:
            behind = self.crossings[path].leaves.base
            if behind > ONCE:
                base, known = max(base, behind), None
        return Delivered(base, None if in_cycle or base is CORRUPT else known)

    def _settle(
        self, stream: StreamEdge, delivered: Delivered, label: StreamLabel, *, rep: bool
    ) -> StreamLabel:
        """Set the delivery of a stream; its order label, given what it would be."""
        known = _in_schema(delivered.id, stream.declared)
        if known is not None and rep and not self._to_replicas(stream):
            known |= {REPLICA}
        base = _again(stream.declared, delivered.base)
        if stream.name in self.repairs.deduplicated and base is REPEAT:
            base = ONCE
            if label.label >= Label.INST:
                label = at_least(label, self._tainted(rep=rep))
        if stream.consumer is None and stream.producer is not None:
            self.before_sink[stream] = Delivered(base, known)
            base, label = self._at_sink(stream, base, known, label, rep=rep)
        self.streams[stream] = Delivered(base, None if base is CORRUPT else known)
        return label

    def _to_replicas(self, stream: StreamEdge) -> bool:
        if stream.consumer is None:
            return False
        return self._replicated[stream.consumer.paths[0].component.name]

    def _tainted(self, *, rep: bool) -> Label:
        return self._interpreter.consequence(Conclusion.TAINT, rep=rep)

    def determines(self, stream: Stream, key: Iterable[str], known: Key | None) -> bool:
        """Whether a stream's rows of equal key are copies of one row, known by this id."""
        fds = within_schema(stream.schema, self.graph.dataflow.fds)
        return known is not None and known <= closure(key, fds)

    def _at_sink(
        self,
        stream: StreamEdge,
        base: Delivery,
        known: Key | None,
        label: StreamLabel,
        *,
        rep: bool,
    ) -> tuple[Delivery, StreamLabel]:
        """D13 and D14."""
        if base is CORRUPT or stream.name in self.repairs.upserted:
            return (base if base is CORRUPT else ONCE), label
        sink = stream.declared.sink
        if sink is not None and sink.key:
            if self.determines(stream.declared, sink.key, known):
                return ONCE, label
            label = at_least(label, self._tainted(rep=rep))
            return (CORRUPT if base is REPEAT else base), label
        if appends_again(stream.declared) and stream.name not in self.repairs.transactional:
            return REPEAT, label
        return base, label

    # ---- results

    def by_name(self) -> dict[str, Delivered]:
        """Stream name -> its delivery, in the order of the file."""
        return {stream.name: delivered for stream, delivered in self.streams.items()}

    def withheld(self) -> tuple[str, ...]:
        """The paths whose partitions are put in quarantine where a record comes again (D7)."""
        crossings = ((path, self.crossings[path]) for path in self.graph.paths)
        return tuple(path.place for path, crossing in crossings if crossing.withheld)


def makes(path: PathEdge, *, ordered: bool = False) -> bool:
    """Whether the path puts a row out again though each record comes once, unless it waits (D2).

    Code in update mode, which an order asks for, puts a group out in each micro-batch that touches
    it. A processor, and under an order a Python function in append mode, say themselves when a row
    is put out; where requests are read, their answers are put out. Of a running sum an equal row is
    a new state, no copy.
    """
    repeats, component = repeats_of(path.declared), path.component
    by = component.implementations.get(path.declared.target)
    if repeats is Repeats.MAKE or by is None or by.processor is not None:
        return repeats is Repeats.MAKE
    if not ordered:
        thresholds = path.kind is AnnotationKind.CW and repeats is Repeats.CORRUPT
        return thresholds and component.output_mode == "update"
    answers = any(other.kind is AnnotationKind.OR for other in path.output.paths)
    appends = by.python is not None and component.appends
    return path.shape.writes and repeats is Repeats.ABSORB and not answers and not appends


def _all_digests(streams: Iterable[StreamEdge]) -> bool:
    """Whether the punctuations of all streams have digests."""
    punctuations = [stream.declared.punctuation for stream in streams]
    return all(p is not None and p.digest for p in punctuations)


def _sealed_by_promise(graph: Graph) -> set[StreamEdge]:
    """The streams whose partitions a watermark completes, and those that are made of them."""
    todo = [s for s in graph.streams if s.declared.seals and not counts(s.declared)]
    promised = set(todo)
    while todo:
        consumer = todo.pop().consumer
        for path in consumer.paths if consumer is not None else ():
            new = [s for s in path.output.streams if not s.declared.seals and s not in promised]
            promised.update(new)
            todo += new
    return promised


def _again(stream: Stream, base: Delivery) -> Delivery:
    """An inner stream that leaves the job may repeat by itself."""
    inner = stream.producer is not None and stream.consumer is not None
    return max(base, REPEAT) if inner and stream.delivery == "may-repeat" else base


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
    for known in ids:
        if known is None:
            return None
        union |= known
    return _WHOLE_ROW if union >= _WHOLE_ROW else union


def _in_schema(known: Key | None, stream: Stream) -> Key | None:
    if known == _WHOLE_ROW:
        return None if stream.schema is None else frozenset(stream.schema)
    if known is None or stream.schema is None:
        return known
    return known if known <= stream.schema.keys() else None
