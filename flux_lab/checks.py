"""The checkers: one per concern, always on. Each names what it found and at which node.

| concern | checker |
|---|---|
| loss-free, dup-free, in order, same rows from both copies | `received`, at every receipt |
| each result leaves once, in order | `emitted` |
| each batch of the source is acknowledged once | `acknowledged` |
| copies agree: each is in the state of a sequential run at its place in the input | `agrees` |
| bounded buffers | `bounded` |
| no two copies on one site | `placement` |
| no deadlock, nothing left behind, all that was acknowledged has left | `finished` |
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from flux_lab.papers.protocol.controller import Controller
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.messages import Data, Emit
from flux_lab.papers.protocol.segment import Segment
from flux_lab.reaction import Machine
from flux_lab.reference import reference
from flux_runtime.operators.packing import pack
from flux_runtime.protocol.dataflow import Dataflow, Rows
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, ProtocolError, Status


class ViolationError(ProtocolError):
    """A run did what the protocol promises not to do."""


def contents(rows: Rows) -> Any:
    """The schema and the values of rows, bit by bit, however their buffers lie.

    Unlike `equals`, it takes NaN for itself, and -0.0 for another value than 0.0. Rows that are no
    batch of Arrow stand for themselves.

    >>> rows = pa.record_batch({"t": ["a", None, "c"], "n": [1.0, float("nan"), None]})
    >>> contents(rows.slice(1)) == contents(pa.RecordBatch.from_pylist(rows.to_pylist()[1:]))
    True
    """
    if not isinstance(rows, pa.RecordBatch):
        return rows
    copied = rows.take(pa.array(np.arange(rows.num_rows)))
    return rows.schema.serialize().to_pybytes(), copied.serialize().to_pybytes()


class Cluster(Protocol):
    """The view of the checkers: a world, or a state of the explorer."""

    @property
    def nodes(self) -> Mapping[Node, Machine]:
        """Everything that lives."""

    @property
    def controller(self) -> Controller:
        """The controller."""

    @property
    def site(self) -> Mapping[Node, int]:
        """Where each copy lives."""

    @property
    def emitted(self) -> int:
        """How many results have left."""


class Checks:
    """Compares a run with the failure-free sequential one.

    Args:
        dataflow: what runs.
        batches: the source's input.
        states: compare the operators' states too; keeps a state per pair and batch.
    """

    def __init__(
        self, dataflow: Dataflow, batches: Sequence[Rows], *, states: bool = False
    ) -> None:
        self.dataflow = dataflow
        self.batches = len(batches)
        self.expected = reference(dataflow, batches, states=states)
        to_egress = [
            units
            for (_, to), units in self.expected.units.items()
            if to == dataflow.shape.egress.pair
        ]
        ordered = dataflow.shape.ordered_egress
        self.first_come = set() if ordered else {u for units in to_egress for u in units.items()}
        self.total = len(self.expected.output) if ordered else sum(map(len, to_egress))

    def listens(self, machine: Machine, src: Node) -> bool:
        """Whether a unit from this node counts: it is not about to be discarded."""
        return machine.boundary.stale(src) == 0

    def received(self, machine: Machine, src: Node, unit: Data) -> None:
        """Loss-free, dup-free, in order: a unit is the successor of the last (BI-7, BI-8)."""
        boundary = machine.boundary
        inlet = boundary.inlet(src)
        assert inlet is not None
        link = (src.pair, boundary.node.pair)
        due = self.expected.after.get(link, {}).get(inlet.hi)
        if unit.batch != due:
            kind = "repeated" if unit.batch <= inlet.hi else "lost before"
            raise ViolationError(
                f"{kind}: {boundary.node} got {unit.batch} of {src} after {inlet.hi}, due {due}"
            )
        if contents(unit.rows) != contents(self.expected.units[link][unit.batch]):
            raise ViolationError(f"copies disagree: {boundary.node} got other rows in {unit.batch}")

    def emitted(self, before: Collection[Emit | int], emit: Emit) -> None:
        """Exactly once, in order, at the egress."""
        if not self.dataflow.shape.ordered_egress:
            if (emit.batch, emit.rows) not in self.first_come:
                raise ViolationError(f"egress emitted {emit}, which no run produces")
            if emit in before:
                raise ViolationError(f"egress emitted {emit} again")
            return
        batch, rows = next(iter(self.expected.output[len(before) :]), (None, None))
        if batch != emit.batch or contents(rows) != contents(emit.rows):
            raise ViolationError(f"egress emitted {emit.batch} as number {len(before)}")

    def acknowledged(self, before: int, batch: int) -> None:
        """NC-6: the source hears of each batch once, in order."""
        if batch != before:
            raise ViolationError(f"the ingress acknowledged batch {batch}, due {before}")

    def sound(self, machine: Machine) -> None:
        """All that can be said of one node at any time."""
        if isinstance(machine, Segment):
            machine.validate()
            self.agrees(machine)
        else:
            machine.boundary.validate()
        self.bounded(machine)

    def agrees(self, segment: Segment) -> None:
        """Copies agree: the state is that of a sequential run up to the same place (version)."""
        due = self.expected.state(segment.node.pair, segment.producer.progress)
        if due is None or segment.status is Status.STANDBY or not segment.back.resident:
            return
        if (state := segment.operator.get_state()) != due:
            raise ViolationError(
                f"copies disagree: {segment.node} is in state {state} "
                f"after batch {segment.producer.progress}, due {due}"
            )

    def bounded(self, machine: Machine) -> None:
        """Buffers hold no more than the pool, plus what the other copy's pool allows (AMB-5)."""
        producer = machine.boundary.producer
        if producer is None:
            return
        limit = 2 * max(producer.shape.pool, 2 * producer.shape.reserve * len(producer.outlets))
        held = sum(len(outlet.buffer) for outlet in producer.outlets)
        if held > limit:
            raise ViolationError(f"{machine.boundary.node} holds {held} units of {limit}")

    def placement(self, cluster: Cluster) -> None:
        """No two copies of a pair on one site, apart from what is already declared dead."""
        seen: set[tuple[object, int]] = set()
        for node, copy in cluster.controller.nodes():
            site = cluster.site.get(node, copy.site)
            if (node.pair, site) in seen:
                raise ViolationError(f"two copies of {node.pair} on site {site}")
            seen.add((node.pair, site))

    def finished(self, cluster: Cluster) -> None:
        """Nothing can happen any more: complete, empty, equal, whole, or the loss was reported."""
        if cluster.controller.losses:
            return
        if cluster.emitted != self.total:
            raise ViolationError(f"stuck: {cluster.emitted} of {self.total} emitted")
        ingress = cluster.nodes[THE_INGRESS]
        assert isinstance(ingress, Ingress)
        if ingress.unacked is not None:
            raise ViolationError(f"stuck: batch {ingress.unacked} is not acknowledged")
        self._empty(cluster)
        self._whole(cluster)

    def _whole(self, cluster: Cluster) -> None:
        """Copies are equal, and no pair lacks one that could have been replaced."""
        known = {node for node, _ in cluster.controller.nodes()}
        for pair in self.dataflow.shape.pairs():
            copies = [
                m
                for n, m in cluster.nodes.items()
                if n.pair == pair and isinstance(m, Segment) and m.status is not Status.STANDBY
            ]
            if left := [c.node for c in copies if c.node not in known]:
                raise ViolationError(f"not fenced: {left} are declared dead and live")
            states = [c.operator.get_state() for c in copies if c.back.resident]
            if len({*map(pack, states)}) > 1:
                raise ViolationError(f"the copies of {pair} disagree: {states}")
            view = cluster.controller.pairs[pair]
            for copy in view.copies:
                if copy is not None and copy.status is not Status.ACTIVE:
                    c = 0 if copy is view.copies[0] else 1
                    room = cluster.controller.clone().place(pair, c)
                    if copy.status is Status.STANDBY or room is not None:
                        raise ViolationError(f"stuck: {pair} is not whole: {view}")

    def _empty(self, cluster: Cluster) -> None:
        """BI-9: the leak check."""
        for machine in cluster.nodes.values():
            boundary = machine.boundary
            node = boundary.node
            for outlet in boundary.producer.outlets if boundary.producer else ():
                if outlet.buffer.entries or outlet.buffer.dangling:
                    raise ViolationError(f"BI-9: {node} still holds something: {outlet}")
            for inlet in boundary.consumer.inlets if boundary.consumer else ():
                if inlet.queue:
                    raise ViolationError(f"BI-9: {node} has units left: {inlet}")
            if isinstance(machine, Egress) and machine.unacked:
                raise ViolationError(f"NC-7: {node} still keeps {machine.unacked}")
            if isinstance(machine, Ingress | Egress):
                continue
            if machine.producer.pending or machine.back.waiting:
                raise ViolationError(f"BI-9: {node} has input or output left")
