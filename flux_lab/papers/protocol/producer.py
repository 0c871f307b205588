"""The producer side of a node: one outlet per consumer pair over one pool of room.

Ingress, S-Prod and F-Prod are this class with different initial settings and tables (`outlet`).
The rows that an operator produced for one batch wait in `pending` until the pool admits them
(NC-1); with the buffers they are part of the state that travels.
"""

from __future__ import annotations

from collections.abc import Mapping

from flux_lab.papers.protocol.messages import Message
from flux_lab.papers.protocol.outlet import Outlet, Producer
from flux_runtime.protocol.dataflow import Rows
from flux_runtime.protocol.vocabulary import NOTHING, Node, Shape


class ProducerSide:
    """Outlets, the pool they share (UF-1, UF-2), and the progress of what has been produced.

    Attributes:
        pending: (outlet, batch, rows) produced and not admitted yet.
        progress: batch up to which everything produced has been admitted (XM-2).
    """

    __slots__ = ("copy", "kind", "outlets", "pending", "progress", "shape", "tells")

    def __init__(self, shape: Shape, kind: Producer, node: Node) -> None:
        self.shape = shape
        self.kind = kind
        self.copy = node.copy
        self.outlets = [
            Outlet(kind, _peers(shape, kind, node, i), copy=node.copy, cumulative=shape.cumulative)
            for i in range(len(shape.downstream(node.stage)))
        ]
        self.pending: tuple[tuple[int, int, Rows], ...] = ()
        self.progress = NOTHING
        self.tells = shape.tells_progress(node.stage + 1)

    def clone(self) -> ProducerSide:
        """An independent copy."""
        new = ProducerSide.__new__(ProducerSide)
        new.shape, new.kind, new.copy = self.shape, self.kind, self.copy
        new.outlets = [outlet.clone() for outlet in self.outlets]
        new.pending, new.progress = self.pending, self.progress
        new.tells = self.tells
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (self.pending, self.progress, *(outlet.freeze() for outlet in self.outlets))

    def offer(self, batch: int, parts: Mapping[int, Rows]) -> None:
        """Queue what was produced for one batch: rows per consumer partition."""
        self.pending += tuple((i, batch, parts[i]) for i in sorted(parts))

    def admit(self) -> int:
        """NC-1: put pending units into the buffers while there is room; gives how many."""
        admitted = 0
        while self.pending:
            i, batch, rows = self.pending[0]
            outlet = self.outlets[i]
            if outlet.buffer.needs_room(batch) and not self.room(i):
                break
            outlet.buffer.put(rows, batch, outlet.evict)
            self.pending = self.pending[1:]
            admitted += 1
        return admitted

    def room(self, i: int) -> bool:
        """Whether outlet i may take another place: of its reserve, or of what no reserve needs."""
        reserve = self.shape.reserve * (1 if self.kind is Producer.S else 2)  # AMB-23
        own = len(self.outlets[i].buffer.entries)
        if own < reserve:
            return True
        taken = 0
        for outlet in self.outlets:
            taken += max(len(outlet.buffer.entries), reserve)
        return taken < max(self.shape.pool, reserve * len(self.outlets))

    def complete(self, batch: int) -> None:
        """All up to this batch has been produced; what is pending is still to be admitted."""
        self.progress = max(self.progress, batch)

    def told_progress(self) -> int:
        """XM-2: progress that may be told once a link has nothing else to send."""
        if not self.tells:
            return NOTHING
        return min(self.progress, self.pending[0][1] - 1) if self.pending else self.progress

    def next_message(self, i: int, d: int) -> Message | None:
        """NC-2 for the link to copy d of consumer i, which has room."""
        return self.outlets[i].next_message(d, self.told_progress())

    def has_message(self, i: int, d: int) -> bool:
        """Whether `next_message` would give one."""
        return self.outlets[i].has_message(d, self.told_progress())

    def validate(self) -> None:
        """Invariants of every outlet."""
        for outlet in self.outlets:
            outlet.validate()


def _peers(shape: Shape, kind: Producer, node: Node, part: int) -> tuple[Node, Node | None]:
    """The consumer's nodes, PRIM first, as the producer `node` sees them."""
    after = node.stage + 1
    if shape.outside(after):
        return shape.egress, None
    if shape.copies == 1:
        return Node(after, part, 0, 0), None
    if kind is Producer.F and shape.cluster_pairs:
        return Node(after, part, node.copy, 0), None
    return Node(after, part, node.copy, 0), Node(after, part, 1 - node.copy, 0)
