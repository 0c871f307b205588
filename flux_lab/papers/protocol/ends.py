"""Ingress and egress: the proxies to the outside world, assumed always available (section 2.1)."""

from __future__ import annotations

from flux_lab.papers.protocol.boundary import Boundary
from flux_lab.papers.protocol.messages import AckSource, Emit, Instruction, LogEntry, Message
from flux_runtime.protocol.dataflow import Dataflow, Rows
from flux_runtime.protocol.vocabulary import END, NOTHING, THE_INGRESS, Node, ProtocolError


class End:
    """A node at which the controller's log and the links are the boundary's business alone."""

    __slots__ = ("boundary",)

    boundary: Boundary

    def accepts(self, peer: Node, message: Message) -> bool:
        """Whether the head of the link from this node can be handled now."""
        return self.boundary.accepts(peer, message)

    def receive(self, peer: Node, message: Message) -> list[Instruction]:
        """Handle the head of a link."""
        return self.boundary.receive(peer, message)

    @property
    def reads_log(self) -> bool:
        """Whether the node reads the controller's log."""
        return True

    def log(self, entry: LogEntry) -> list[Instruction]:
        """Handle the next entry of the controller's log."""
        return self.boundary.log(entry)


class Ingress(End):
    """Numbers batches, keeps them until every live copy has acknowledged, serves a standby."""

    __slots__ = ("dataflow", "last", "unacked")

    def __init__(self, dataflow: Dataflow, *, story: list[str] | None = None) -> None:
        self.dataflow = dataflow
        self.boundary = Boundary(dataflow.shape, THE_INGRESS, story=story)
        self.last = NOTHING
        self.unacked: int | None = None

    def clone(self) -> Ingress:
        """An independent copy."""
        new = Ingress.__new__(Ingress)
        new.dataflow, new.last, new.unacked = self.dataflow, self.last, self.unacked
        new.boundary = self.boundary.clone()
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (self.last, self.unacked, self.boundary.freeze())

    @property
    def wants_input(self) -> bool:
        """Whether the source may hand over the next batch."""
        return self.unacked is None and self.last < END

    def feed(self, rows: Rows) -> list[Instruction]:
        """Take the next batch of the source; its number is the input sequence number (NC-1)."""
        if not self.wants_input:
            raise ProtocolError(f"the ingress has no room\n{self.boundary.tale()}")
        self.last += 1
        shape = self.dataflow.shape
        parts = self.dataflow.split(0, rows, shape.widths[0])
        producer = self.boundary.producer
        assert producer is not None
        producer.offer(self.last, parts)
        producer.complete(self.last)
        self.unacked = self.last
        return self.work()

    def finish(self) -> None:
        """The source has ended: everything after the last batch is known to be empty (XM-3)."""
        producer = self.boundary.producer
        assert producer is not None
        self.last = END
        producer.complete(END)

    def work(self) -> list[Instruction]:
        """Admit what waits for room; acknowledge a batch that is in the buffer (NC-6)."""
        producer = self.boundary.producer
        assert producer is not None
        producer.admit()
        if producer.pending or self.unacked is None:
            return []
        batch, self.unacked = self.unacked, None
        return [AckSource(batch)]

    def can_work(self) -> bool:
        """Whether `work` would change anything."""
        producer = self.boundary.producer
        assert producer is not None
        if not producer.pending:
            return False
        i, batch, _ = producer.pending[0]
        return not producer.outlets[i].buffer.needs_room(batch) or producer.room(i)

    def next_message(self, to: Node) -> Message | None:
        """NC-2: the next rows or progress for a link that has room, if any."""
        return self.boundary.next_message(to)

    def has_message(self, to: Node) -> bool:
        """Whether `next_message` would give one."""
        return self.boundary.has_message(to)


class Egress(End):
    """Merges the results; keeps each until the destination has acknowledged it (NC-7).

    Attributes:
        unacked: results that the destination has not acknowledged, oldest first; at most
            `Shape.results_max`, and none if the destination acknowledges nothing.
    """

    __slots__ = ("dataflow", "unacked")

    def __init__(self, dataflow: Dataflow, *, story: list[str] | None = None) -> None:
        self.dataflow = dataflow
        self.boundary = Boundary(dataflow.shape, dataflow.shape.egress, story=story)
        self.unacked: tuple[Emit, ...] = ()

    def clone(self) -> Egress:
        """An independent copy."""
        new = Egress.__new__(Egress)
        new.dataflow, new.unacked = self.dataflow, self.unacked
        new.boundary = self.boundary.clone()
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (self.unacked, self.boundary.freeze())

    def work(self) -> list[Instruction]:
        """Hand the next batch of results, in order or first come, to the destination."""
        consumer = self.boundary.consumer
        assert consumer is not None
        taken = consumer.take() if self._room() else None
        if taken is None:
            return []
        batch, parts = taken
        rows = self.dataflow.merge(parts)
        emit = Emit(batch, rows)
        if self.dataflow.shape.results_max:
            self.unacked = (*self.unacked, emit)
        self.boundary.did("NC-7", f"emit {batch}")
        return [emit]

    def _room(self) -> bool:
        """Whether the destination may be given more before it acknowledges something."""
        limit = self.dataflow.shape.results_max
        return not limit or len(self.unacked) < limit

    def acknowledged(self, emit: Emit) -> None:
        """NC-7: the destination has the output; forget it."""
        self.unacked = tuple(output for output in self.unacked if output != emit)

    def again(self) -> list[Instruction]:
        """NC-7: the destination has come back; what it did not acknowledge, in the same order."""
        return list(self.unacked)

    def can_work(self) -> bool:
        """Whether `work` would change anything."""
        consumer = self.boundary.consumer
        assert consumer is not None
        return self._room() and consumer.ready()
