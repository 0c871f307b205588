"""The consumer side of a node: one inlet per producer pair, merged.

S-Cons, F-Cons and egress are this class with different initial settings and tables (`inlet`).

The streams of several producers are merged in order of sequence numbers, or first come. In order
(XM-1): a batch is released once every producer has either a unit at hand or said that it has
nothing up to there (XM-2); the units of the batch from all producers leave together, and their rows
are then put in the order of (batch, offset). With one row per batch this is the merge of the
papers, tuple by tuple.
"""

from __future__ import annotations

from collections.abc import Sequence

from flux_lab.papers.protocol.inlet import Consumer, Inlet
from flux_lab.papers.protocol.messages import Message, PauseAck, Send
from flux_runtime.protocol.dataflow import Rows
from flux_runtime.protocol.vocabulary import END, PRIM, RECV, THE_INGRESS, Node, Shape, Status


def next_batch(inlets: Sequence[Inlet], *, ordered: bool) -> int | None:
    """The batch that can be released now, if any."""
    lowest: int | None = None
    mark = END
    for inlet in inlets:
        if not inlet.queue:
            mark = min(mark, inlet.mark)
        elif lowest is None or inlet.queue[0].batch < lowest:
            lowest = inlet.queue[0].batch
    if ordered and lowest is not None and mark < lowest:
        return None
    return lowest


def release(inlets: Sequence[Inlet], batch: int, *, ordered: bool) -> list[Rows]:
    """Take the units of this batch; without order, only the first one at hand."""
    taken = []
    for inlet in inlets:
        if inlet.queue and inlet.queue[0].batch == batch:
            taken.append(inlet.queue[0].rows)
            inlet.queue = inlet.queue[1:]
            if not ordered:
                break
    return taken


def complete_up_to(inlets: Sequence[Inlet]) -> int:
    """The batch up to which everything has been released (progress of the input)."""
    complete = END
    for inlet in inlets:
        complete = min(complete, inlet.queue[0].batch - 1 if inlet.queue else inlet.mark)
    return complete


class ConsumerSide:
    """Inlets and their merge.

    Attributes:
        window: attempt whose catch-up window is open: drain every link (CU-14), owe reverses
            (TO-5b); 0 if none is.
        started: the last attempt whose window was opened.
    """

    __slots__ = ("inlets", "kind", "ordered", "shape", "started", "window")

    def __init__(self, shape: Shape, kind: Consumer, node: Node) -> None:
        self.shape = shape
        self.kind = kind
        self.ordered = kind is not Consumer.EGRESS or shape.ordered_egress
        self.window = 0
        self.started = 0
        self.inlets = [
            Inlet(
                kind,
                _peers(shape, kind, node, j),
                sequence=not shape.set_preserving or kind is Consumer.S,
            )
            for j in range(len(shape.upstream(node.stage)))
        ]

    def clone(self) -> ConsumerSide:
        """An independent copy."""
        new = ConsumerSide.__new__(ConsumerSide)
        new.shape, new.kind, new.ordered = self.shape, self.kind, self.ordered
        new.window, new.started = self.window, self.started
        new.inlets = [inlet.clone() for inlet in self.inlets]
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (self.window, self.started, *(inlet.freeze() for inlet in self.inlets))

    def accepts(self, j: int, d: int, message: Message) -> bool:
        """Whether the head of the link from copy d of producer j can be handled now."""
        inlet = self.inlets[j]
        if isinstance(message, PauseAck) and message.attempt > self.started:
            return False  # cluster pairs: the producer has read of the attempt before this node
        room = bool(self.window) or len(inlet.queue) < self.shape.in_hand
        return inlet.accepts(d, message, room=room)

    def receive(self, j: int, d: int, message: Message) -> list[Send]:
        """Handle the head of the link from copy d of producer j."""
        every = self.shape.ack_every
        return self.inlets[j].receive(d, message, every=every, attempt=self.window)

    def take(self) -> tuple[int, list[Rows]] | None:
        """XM-1: the next batch and its units, if the merge can release one."""
        batch = next_batch(self.inlets, ordered=self.ordered)
        if batch is None:
            return None
        return batch, release(self.inlets, batch, ordered=self.ordered)

    def ready(self) -> bool:
        """Whether `take` would give one."""
        return next_batch(self.inlets, ordered=self.ordered) is not None

    def complete(self) -> int:
        """The batch up to which all input has been released."""
        return complete_up_to(self.inlets)

    def is_whole(self) -> bool:
        """CU-9: every producer pair is whole and in its first roles."""
        if self.kind is Consumer.S or self.shape.cluster_pairs:
            return True
        return all(inlet.is_whole() for inlet in self.inlets)

    # ---- the catch-up window of F-Cons

    def open_window(self, attempt: int) -> None:
        """CU-10: drain from now on."""
        self.window = self.started = attempt

    def quiet(self) -> bool:
        """CU-16: nothing is in flight from any live primary."""
        return all(
            inlet.status[PRIM] is not Status.ACTIVE or not inlet.conn[PRIM] & RECV
            for inlet in self.inlets
        )

    def resume(self) -> None:
        """CU-18: take the links up again."""
        for inlet in self.inlets:
            if inlet.status[PRIM] is Status.ACTIVE:
                inlet.conn[PRIM] = RECV


def _peers(shape: Shape, kind: Consumer, node: Node, part: int) -> tuple[Node, Node | None]:
    """The producer's nodes, PRIM first, as the consumer `node` sees them."""
    before = node.stage - 1
    if shape.outside(before):
        return THE_INGRESS, None
    if shape.copies == 1:
        return Node(before, part, 0, 0), None
    if kind is Consumer.F and shape.cluster_pairs:
        return Node(before, part, node.copy, 0), None
    return Node(before, part, node.copy, 0), Node(before, part, 1 - node.copy, 0)
