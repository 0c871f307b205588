"""The links of a node and its part in the controller's log: normal case and take-over.

A node has a consumer side, a producer side or both. `Boundary` finds the inlet or outlet that a
link belongs to, applies the read discipline to incarnations, and hands view changes to the side
they concern. `Ingress`, `Segment` and `Egress` are built on it.
"""

from __future__ import annotations

from collections.abc import Iterator

from flux_lab.papers.protocol.consumer import ConsumerSide
from flux_lab.papers.protocol.inlet import Consumer, Inlet
from flux_lab.papers.protocol.messages import (
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
from flux_lab.papers.protocol.outlet import Outlet, Producer
from flux_lab.papers.protocol.producer import ProducerSide
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
        "ends",
        "failures",
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
        self.ends: dict[Node, tuple[bool, int, int]] = {}
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
            producer_kind = Producer.S if last else Producer.F
            producer_kind = Producer.INGRESS if shape.outside(node.stage) else producer_kind
            self.producer = ProducerSide(shape, producer_kind, node)

    def clone(self) -> Boundary:
        """An independent copy, without the story."""
        new = Boundary.__new__(Boundary)
        new.shape, new.node, new.story = self.shape, self.node, None
        new.ends = self.ends
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

    def _end(self, peer: Node) -> tuple[bool, int, int]:
        """Whether the link from a neighbour is upstream, the number of its pair, its label."""
        end = self.ends.get(peer)
        if end is None:
            upstream = self.consumer is not None and peer.stage == self.node.stage - 1
            if not upstream and (self.producer is None or peer.stage != self.node.stage + 1):
                raise ProtocolError(f"{self.node} has no link to {peer}")
            if self.shape.outside(peer.stage):
                d = PRIM
            elif self.shape.outside(self.node.stage):
                d = peer.copy
            else:
                d = int(peer.copy != self.node.copy)
            number = 0 if self.shape.outside(peer.stage) else peer.part
            end = self.ends[peer] = (upstream, number, d)
        return end

    def label(self, peer: Node) -> int:
        """The label of a copy of a neighbouring pair, as this node sees it."""
        return self._end(peer)[2]

    def _side(self, upstream: bool, number: int) -> Inlet | Outlet:
        if upstream:
            assert self.consumer is not None
            return self.consumer.inlets[number]
        assert self.producer is not None
        return self.producer.outlets[number]

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
        upstream, number, d = self._end(peer)
        return self._stale(self._side(upstream, number), d, peer)

    def _stale(self, side: Inlet | Outlet, d: int, peer: Node) -> int:
        known = side.peers[d]
        if known is None or peer.life < known.life:
            return -1
        if peer.life > known.life:
            return 1
        return -1 if side.status[d] is Status.DEAD else 0

    def accepts(self, peer: Node, message: Message) -> bool:
        """The read discipline of section 1.4: whether the head of this link can be handled now."""
        upstream, number, d = self._end(peer)
        side = self._side(upstream, number)
        if stale := self._stale(side, d, peer):
            return stale < 0
        if isinstance(side, Outlet):
            return side.accepts(d, message)
        assert self.consumer is not None
        return self.consumer.accepts(number, d, message)

    def receive(self, peer: Node, message: Message) -> list[Instruction]:
        """Handle the head of a link; what a node known to be dead sent is discarded (AMB-8)."""
        upstream, number, d = self._end(peer)
        side = self._side(upstream, number)
        if self._stale(side, d, peer) < 0:
            self.did("AMB-8", f"discard {message} from {peer}")
            return []
        if self.story is not None:
            self.did("recv", f"{message} from {peer}")
        if isinstance(side, Inlet):
            assert self.consumer is not None
            out: list[Instruction] = list(self.consumer.receive(number, d, message))
            if isinstance(message, Psync) and side.met():
                out.append(self._folded_in(peer, message.version))
            return out
        if isinstance(message, Csync):
            met = side.csync(d, message.version)
            return [self._folded_in(peer, message.version)] if met else []
        answer = side.receive(d, message)
        return [Send(peer, answer)] if answer is not None else []

    def _folded_in(self, peer: Node, attempt: int) -> Tell:
        self.did("CU-22", f"fold-in of {peer.pair} attempt {attempt}")
        return Tell(FoldInDone(peer.pair, attempt, self.node))

    def destinations(self) -> Iterator[Node]:
        """Nodes that there may be something to send to now; all for which `has_message` holds."""
        if self.producer is not None:
            progress = self.producer.told_progress()
            for outlet in self.producer.outlets:
                for d in LABELS:
                    peer = outlet.peers[d]
                    if peer is not None and outlet.may_have_message(d, progress):
                        yield peer

    def next_message(self, to: Node) -> Message | None:
        """NC-2: the next rows or progress for a link that has room, if any."""
        upstream, number, d = self._end(to)
        if upstream or self.producer is None or self.producer.outlets[number].peers[d] != to:
            return None
        return self.producer.next_message(number, d)

    def has_message(self, to: Node) -> bool:
        """Whether `next_message` would give one."""
        upstream, number, d = self._end(to)
        if upstream or self.producer is None or self.producer.outlets[number].peers[d] != to:
            return False
        return self.producer.has_message(number, d)

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
        inlet, outlet = self.inlet(peer), self.outlet(peer)
        if inlet is None and outlet is None:
            return []
        d = self.label(peer)
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
