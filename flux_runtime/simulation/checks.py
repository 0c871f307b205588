"""The checkers: one per concern, always on. Each names what it found and at which node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.ends import Egress, Ingress
from flux_runtime.protocol.messages import Data, Emit, Rows
from flux_runtime.protocol.segment import Segment
from flux_runtime.protocol.vocabulary import Node, ProtocolError, Status
from flux_runtime.simulation.reference import reference

if TYPE_CHECKING:
    from flux_runtime.simulation.world import Machine, World


class ViolationError(ProtocolError):
    """A run did what the protocol promises not to do."""


class Checks:
    """Compares a run with the failure-free sequential one."""

    def __init__(self, dataflow: Dataflow, batches: Sequence[Rows]) -> None:
        self.dataflow = dataflow
        self.expected = reference(dataflow, batches)
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
        if unit.rows != self.expected.units[link][unit.batch]:
            raise ViolationError(f"copies disagree: {boundary.node} got other rows in {unit.batch}")

    def emitted(self, count: int, emit: Emit) -> None:
        """Exactly once, in order, at the egress."""
        if not self.dataflow.shape.ordered_egress:
            if (emit.batch, emit.rows) not in self.first_come:
                raise ViolationError(f"egress emitted {emit}, which no run produces")
            return
        if count >= len(self.expected.output) or self.expected.output[count] != (
            emit.batch,
            emit.rows,
        ):
            raise ViolationError(f"egress emitted {emit.batch} as number {count}")

    def placement(self, world: World) -> None:
        """No two copies of a pair on one site."""
        seen: set[tuple[object, int]] = set()
        for node, site in world.site.items():
            if (node.pair, site) in seen:
                raise ViolationError(f"two copies of {node.pair} on site {site}")
            seen.add((node.pair, site))

    def bounded(self, world: World) -> None:
        """Buffers hold no more than the pool, plus what the other copy's pool allows (AMB-5)."""
        for machine in world.nodes.values():
            producer = machine.boundary.producer
            if producer is None:
                continue
            limit = 2 * max(producer.shape.pool, 2 * producer.shape.reserve * len(producer.outlets))
            held = sum(len(outlet.buffer) for outlet in producer.outlets)
            if held > limit:
                raise ViolationError(f"{machine.boundary.node} holds {held} units of {limit}")

    def finished(self, world: World) -> None:
        """Nothing can happen any more: complete, empty, equal, whole, or the loss was reported."""
        if world.controller.losses:
            return
        if world.emitted != self.total:
            raise ViolationError(f"stuck: {world.emitted} of {self.total} emitted")
        self._empty(world)
        for pair in self.dataflow.shape.pairs():
            copies = world.copies(pair)
            states = {repr(c.operator.get_state()) for c in copies}
            if len(states) > 1:
                raise ViolationError(f"the copies of {pair} disagree: {states}")
            view = world.controller.pairs[pair]
            for copy in view.copies:
                if copy is not None and copy.status is not Status.ACTIVE:
                    room = world.controller.clone().place(pair, 0 if copy is view.copies[0] else 1)
                    if copy.status is Status.STANDBY or room is not None:
                        raise ViolationError(f"stuck: {pair} is not whole: {view}")

    def _empty(self, world: World) -> None:
        """BI-9: the leak check."""
        for machine in world.nodes.values():
            boundary = machine.boundary
            node = boundary.node
            for outlet in boundary.producer.outlets if boundary.producer else ():
                if outlet.buffer.entries or outlet.buffer.dangling:
                    raise ViolationError(f"BI-9: {node} still holds something: {outlet}")
            for inlet in boundary.consumer.inlets if boundary.consumer else ():
                if inlet.queue:
                    raise ViolationError(f"BI-9: {node} has units left: {inlet}")
            if isinstance(machine, Ingress | Egress):
                continue
            assert isinstance(machine, Segment)
            if machine.producer.pending:
                raise ViolationError(f"BI-9: {node} has output left")
