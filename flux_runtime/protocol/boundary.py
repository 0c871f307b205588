"""What every node does with its links and with the controller's log: normal case and take-over.

A node has a consumer side, a producer side or both. `Boundary` finds the inlet or outlet that a
link belongs to, applies the read discipline to incarnations, and hands view changes to the side
they concern. `Ingress`, `Segment` and `Egress` are built on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from flux_runtime.protocol.consumer import ConsumerSide
from flux_runtime.protocol.inlet import Consumer, Inlet
from flux_runtime.protocol.messages import (
    Avail,
    CatchUpCommit,
    CatchUpStart,
    Csync,
    Fail,
    FoldInDone,
    Instruction,
    LogEntry,
    Message,
    Psync,
    Send,
    Tell,
)
from flux_runtime.protocol.outlet import Outlet, Producer
from flux_runtime.protocol.producer import ProducerSide
from flux_runtime.protocol.vocabulary import LABELS, PRIM, Node, ProtocolError, Shape, Status

STORY_LENGTH = 400
"""Lines of its story that a node keeps."""


class Boundary:
    """The boundary operators of one node.

    Attributes:
        log_position: entries of the controller's log that have been handled.
        failures: number of the last failure among them.
        story: what happened, one line per action with its id; None where nobody asks.
    """

    __slots__ = (
        "consumer",
        "failures",
        "labels",
        "log_position",
        "node",
        "producer",
        "shape",
        "story",
    )

    def __init__(self, shape: Shape, node: Node, *, story: list[str] | None = None) -> None:
        self.shape = shape
        self.node = node
        self.story = story
        self.labels: dict[Node, int] = {}
        self.log_position = 0
        self.failures = 0
        first, last = node.stage == 0, node.stage == len(shape.widths) - 1
        self.consumer: ConsumerSide | None = None
        self.producer: ProducerSide | None = None
        if node.stage >= 0:
            kind = Consumer.S if first else Consumer.F
            kind = Consumer.EGRESS if shape.outside(node.stage) else kind
            self.consumer = ConsumerSide(shape, kind, node)
        if node.stage < len(shape.widths):
            made = Producer.S if last else Producer.F
            made = Producer.INGRESS if shape.outside(node.stage) else made
            self.producer = ProducerSide(shape, made, node)

    def clone(self) -> Boundary:
        """An independent copy, without the story."""
        new = Boundary.__new__(Boundary)
        new.shape, new.node, new.story = self.shape, self.node, None
        new.labels = self.labels
        new.log_position, new.failures = self.log_position, self.failures
        new.consumer = self.consumer.clone() if self.consumer else None
        new.producer = self.producer.clone() if self.producer else None
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (
            self.log_position,
            self.failures,
            self.consumer and self.consumer.freeze(),
            self.producer and self.producer.freeze(),
        )

    def did(self, action: str, detail: object = "") -> None:
        """Add a line to the story."""
        if self.story is not None:
            self.story.append(f"{action} {detail}")
            del self.story[:-STORY_LENGTH]

    # ---- links

    def label(self, peer: Node) -> int:
        """The label of a copy of a neighbouring pair, as this node sees it."""
        found = self.labels.get(peer)
        if found is None:
            if self.shape.outside(peer.stage):
                found = PRIM
            elif self.shape.outside(self.node.stage):
                found = peer.copy
            else:
                found = int(peer.copy != self.node.copy)
            self.labels[peer] = found
        return found

    def inlet(self, peer: Node) -> Inlet | None:
        """The inlet that the link from this node belongs to."""
        if self.consumer is None or peer.stage != self.node.stage - 1:
            return None
        return self.consumer.inlets[peer.part]

    def outlet(self, peer: Node) -> Outlet | None:
        """The outlet that the link to this node belongs to."""
        if self.producer is None or peer.stage != self.node.stage + 1:
            return None
        return self.producer.outlets[0 if self.shape.outside(peer.stage) else peer.part]

    def stale(self, peer: Node) -> int:
        """-1: the link's far end is gone (discard); 0: it is known; 1: not announced yet (hold)."""
        side = self.inlet(peer) or self.outlet(peer)
        if side is None:
            raise ProtocolError(f"{self.node} has no link to {peer}")
        d = self.label(peer)
        known = side.peers[d]
        if known is None or peer.life < known.life:
            return -1
        if peer.life > known.life:
            return 1
        return -1 if side.status[d] is Status.DEAD else 0

    def accepts(self, peer: Node, message: Message) -> bool:
        """The read discipline of section 1.4: whether the head of this link can be handled now."""
        stale = self.stale(peer)
        if stale:
            return stale < 0
        d = self.label(peer)
        if self.consumer is not None and peer.stage < self.node.stage:
            return self.consumer.accepts(peer.part, d, message)
        outlet = self.outlet(peer)
        return outlet is not None and outlet.accepts(d, message)

    def receive(self, peer: Node, message: Message) -> list[Instruction]:
        """Handle the head of a link; what a node known to be dead sent is discarded (AMB-8)."""
        if self.stale(peer) < 0:
            self.did("AMB-8", f"discard {message} from {peer}")
            return []
        d = self.label(peer)
        if self.story is not None:
            self.did("recv", f"{message} from {peer}")
        if self.consumer is not None and peer.stage < self.node.stage:
            out: list[Instruction] = list(self.consumer.receive(peer.part, d, message))
            if isinstance(message, Psync) and self.consumer.inlets[peer.part].met():
                out.append(self._folded_in(peer, message.version))
            return out
        outlet = self.outlet(peer)
        if outlet is None:
            raise ProtocolError(f"{self.node} has no link to {peer}")
        if isinstance(message, Csync):
            met = outlet.csync(d, message.version)
            return [self._folded_in(peer, message.version)] if met else []
        answer = outlet.receive(d, message)
        return [Send(peer, answer)] if answer is not None else []

    def _folded_in(self, peer: Node, attempt: int) -> Tell:
        self.did("CU-22", f"fold-in of {peer.pair} attempt {attempt}")
        return Tell(FoldInDone(peer.pair, attempt, self.node))

    def destinations(self) -> Iterator[Node]:
        """Nodes that this one may send rows to now."""
        if self.producer is not None:
            for outlet in self.producer.outlets:
                for d in LABELS:
                    peer = outlet.peers[d]
                    if peer is not None and outlet.conn[d]:
                        yield peer

    def next_message(self, to: Node) -> Message | None:
        """NC-2: the next rows or progress for a link that has room, if any."""
        outlet = self.outlet(to)
        d = self.label(to)
        if self.producer is None or outlet is None or outlet.peers[d] != to:
            return None
        return outlet.next_message(d, self.producer.told_progress())

    def has_message(self, to: Node) -> bool:
        """Whether `next_message` would give one."""
        outlet = self.outlet(to)
        d = self.label(to)
        if self.producer is None or outlet is None or outlet.peers[d] != to:
            return False
        return outlet.has_message(d, self.producer.told_progress())

    # ---- the controller's log

    def log(self, entry: LogEntry) -> list[Instruction]:
        """Handle the next entry of the controller's log as far as it concerns neighbours."""
        self.log_position += 1
        if isinstance(entry, CatchUpStart | CatchUpCommit):
            return []
        if isinstance(entry, Fail):
            self.failures = entry.number
        life = entry.attempt if isinstance(entry, Avail) else 0
        peer = Node(entry.pair.stage, entry.pair.part, entry.copy, life)
        d = self.label(peer)
        inlet, outlet = self.inlet(peer), self.outlet(peer)
        if inlet is None and outlet is None:
            return []
        if (inlet or outlet).peers[d] is None:  # type: ignore[union-attr]
            return []  # cluster pairs: the copies of an inner stage do not know one another
        self.did("log", entry)
        if isinstance(entry, Fail):
            window = self.consumer is not None and bool(self.consumer.window)
            if inlet is not None:
                return list(inlet.fail(d, window=window))
            if outlet is not None:
                outlet.fail(d)
        elif inlet is not None:
            inlet.avail(d, peer)
        elif outlet is not None:
            outlet.avail(d, peer)
        return []

    def validate(self) -> None:
        """Check the invariants.

        Raises:
            ProtocolError: one does not hold; the message holds the story.
        """
        try:
            if self.producer is not None:
                self.producer.validate()
        except ProtocolError as error:
            raise ProtocolError(f"{self.node}: {error}\n{self.tale()}") from error

    def tale(self) -> str:
        """The story and the present state, for people."""
        lines = [f"{self.node}: log position {self.log_position}"]
        if self.consumer is not None:
            lines += [f"  from {i}" for i in self.consumer.inlets]
        if self.producer is not None:
            pending = [(i, batch) for i, batch, _ in self.producer.pending]
            lines += [f"  pending {pending}, progress {self.producer.progress}"]
            lines += [f"  to {o}" for o in self.producer.outlets]
        return "\n".join(lines + [f"    {line}" for line in self.story or ()])
