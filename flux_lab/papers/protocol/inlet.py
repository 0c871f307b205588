"""An inlet, a consumer's view of a producer pair: modes, links, versions, units at hand, progress.

Used by S-Cons, F-Cons and egress. A consumer receives from one copy of the producer and
acknowledges to the *other*, whose buffer holds whatever is in flight a second time.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from flux_lab.papers.protocol.messages import (
    Ack,
    Data,
    Message,
    PauseAck,
    Progress,
    Psync,
    Reverse,
    Send,
)
from flux_lab.papers.protocol.neighbour import Neighbour
from flux_runtime.protocol.vocabulary import (
    ACK,
    NOTHING,
    PAUSED,
    PRIM,
    RECV,
    SEC,
    Node,
    ProtocolError,
    Status,
    other,
)


class Consumer(Enum):
    """The kinds of consumer-side operators."""

    S = "S-Cons"
    F = "F-Cons"
    EGRESS = "egress"


class OnPsync(NamedTuple):
    """The effect of a producer's marker: `met` if the other copy's came before, else `first`."""

    first: tuple[tuple[int, int], ...]
    met: tuple[tuple[int, int], ...]
    stopped: bool = False


ACTIVE, DEAD, STANDBY = Status.ACTIVE, Status.DEAD, Status.STANDBY
CROSSED = ((SEC, ACK), (PRIM, RECV))

PSYNC: Final[dict[tuple[Consumer, Status | None, int], OnPsync]] = {
    # CU-8, CU-8b: after the fold-in the survivor sends and the new copy gets the acknowledgements.
    (Consumer.EGRESS, ACTIVE, PRIM): OnPsync(first=((PRIM, PAUSED),), met=((SEC, ACK),)),
    (Consumer.EGRESS, ACTIVE, SEC): OnPsync(first=((SEC, PAUSED),), met=((PRIM, ACK),)),
    (Consumer.EGRESS, STANDBY, PRIM): OnPsync(first=(), met=((SEC, RECV), (PRIM, ACK))),
    (Consumer.EGRESS, STANDBY, SEC): OnPsync(first=(), met=((PRIM, RECV), (SEC, ACK))),
    # CU-21 (figure 3.15): rows a to c; whoever was active, PRIM sends and SEC is acknowledged.
    (Consumer.F, ACTIVE, PRIM): OnPsync(first=((PRIM, PAUSED),), met=CROSSED),
    (Consumer.F, STANDBY, PRIM): OnPsync(first=((PRIM, PAUSED),), met=CROSSED),
    (Consumer.F, ACTIVE, SEC): OnPsync(first=(), met=CROSSED, stopped=True),
    (Consumer.F, STANDBY, SEC): OnPsync(first=(), met=CROSSED),
}


class Inlet(Neighbour):
    """One producer pair as its consumer sees it.

    Attributes:
        sec_stopped: SEC was sending, and stopped in CU-20 (AB-4).
        rev_owed: a reverse to SEC is due when the catch-up window closes (TO-5b, CU-15).
        queue: units received and acknowledged, not yet merged (with CU-14, the drain buffer).
        hi: number of the last unit received.
        mark: batch up to which everything has been received (XM-2).
        owed: units received since the last acknowledgement (BUF-C).
        sequence: units come in the order of their numbers; else numbers are only names (FS-25).
    """

    __slots__ = (
        "hi",
        "kind",
        "mark",
        "owed",
        "queue",
        "rev_owed",
        "sec_stopped",
        "sequence",
    )

    def __init__(
        self, kind: Consumer, peers: tuple[Node, Node | None], *, sequence: bool = True
    ) -> None:
        self.kind = kind
        self.sequence = sequence
        self.peers = list(peers)
        alone = peers[SEC] is None
        self.status = [ACTIVE, DEAD if alone else ACTIVE]
        if kind is Consumer.S:
            self.conn = [RECV | ACK, 0]
        else:
            self.conn = [RECV, 0 if alone else ACK]
        self.ver = [0, 0]
        self.exp = 0
        self.sec_stopped = False
        self.rev_owed = False
        self.queue: tuple[Data, ...] = ()
        self.hi = NOTHING
        self.mark = NOTHING
        self.owed = 0

    def clone(self) -> Inlet:
        """An independent copy."""
        new = Inlet.__new__(Inlet)
        new.kind, new.exp, new.hi, new.mark = self.kind, self.exp, self.hi, self.mark
        new.sec_stopped, new.rev_owed = self.sec_stopped, self.rev_owed
        new.queue, new.owed, new.sequence = self.queue, self.owed, self.sequence
        new.peers, new.status = self.peers.copy(), self.status.copy()
        new.conn, new.ver = self.conn.copy(), self.ver.copy()
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (
            self.exp,
            self.sec_stopped,
            self.rev_owed,
            self.queue,
            self.hi,
            self.mark,
            self.owed,
            *self.peers,
            *self.status,
            *self.conn,
            *self.ver,
        )

    def __str__(self) -> str:
        links = self._links()
        return f"{links} hi={self.hi} mark={self.mark} at hand {[u.batch for u in self.queue]}"

    # ---- normal case

    def accepts(self, d: int, message: Message, *, room: bool) -> bool:
        """The read discipline of section 1.4 for the head of the link from d."""
        if self.conn[d] == PAUSED:
            return False
        if isinstance(message, Data):
            return self.status[d] is ACTIVE and bool(self.conn[d] & RECV) and room
        if isinstance(message, Progress):
            return self.status[d] is ACTIVE and bool(self.conn[d] & RECV)
        if isinstance(message, Psync):
            return message.version <= self.exp  # AB-2
        return True

    def receive(self, d: int, message: Message, *, every: int, attempt: int) -> list[Send]:
        """Handle the head of the link from d; gives what to send because of it.

        Args:
            every: acknowledge every n-th unit.
            attempt: number of the catch-up whose window is open here; 0 if none is.

        Raises:
            ProtocolError: a unit arrived twice or out of order.
        """
        match message:
            case Data(batch):
                if self.sequence and (batch <= self.hi or batch <= self.mark):
                    raise ProtocolError(f"unit {batch} after {self.hi} from {self.peers[d]}")
                self.hi = self.mark = batch
                self.queue = (*self.queue, message)  # NC-5, CU-14
                self.owed += 1
                return self.flush() if self.owed >= every else []  # NC-4, NC-5a: before any use
            case Progress(batch):
                self.mark = max(self.mark, batch)
                return self.flush()
            case Psync(version):
                return self.psync(d, version)
            case PauseAck(of):
                if of == attempt:
                    self.conn[d] = PAUSED  # CU-13
                return []
            case _:
                raise ProtocolError(f"{self.kind.value} cannot take {message}")

    def ack_to(self) -> int | None:
        """Label of the peer that gets acknowledgements now."""
        for d in (PRIM, SEC):
            if self.conn[d] & ACK and self.status[d] is ACTIVE:
                return d
        return None

    def flush(self) -> list[Send]:
        """Acknowledge everything received so far (BUF-C: before reverse, csync, psync match)."""
        d = self.ack_to()
        owed, self.owed = self.owed, 0
        return [] if d is None or not owed else [Send(self._peer(d), Ack(self.hi))]

    def _peer(self, d: int) -> Node:
        peer = self.peers[d]
        if peer is None:
            raise ProtocolError(f"no peer {d}")
        return peer

    # ---- take-over

    def fail(self, d: int, *, window: bool) -> list[Send]:
        """TO-2, TO-5: a copy of the producer is gone; what it still had under way is discarded."""
        if self.status[d] is DEAD:
            return []
        self.status[d] = DEAD
        self.conn[d] = 0
        p = other(d)
        if self._ahead(p):  # FS-26: what d had not sent yet is nobody's now
            self.status[p] = STANDBY
            self.conn[p] = 0
            return []
        if self.kind is Consumer.EGRESS:
            if self.status[p] is ACTIVE and not self.conn[p] & RECV:
                return self.reverse_to(p)  # TO-2a
            return []
        if d == SEC:  # TO-5c
            self.sec_stopped = False
            self.rev_owed = False
            if self.conn[PRIM] == PAUSED and not window:
                self.conn[PRIM] = RECV
            return []
        if self.status[SEC] is ACTIVE and (self.sec_stopped or not self.conn[SEC] & RECV):
            if window:
                self.rev_owed = True
                return []  # TO-5b
            return self.reverse_to(SEC)  # TO-5a, AB-4
        return []

    def reverse_to(self, d: int) -> list[Send]:
        """Make d the source, behind all acknowledgements it is owed."""
        sends = self.flush() if self.conn[d] & ACK else []
        self.conn[d] = RECV
        self.sec_stopped = self.rev_owed = False
        return [*sends, Send(self._peer(d), Reverse())]

    # ---- catch-up

    def is_whole(self) -> bool:
        """CU-9: both copies are active and play their first roles."""
        return self.status == [ACTIVE, ACTIVE] and self.conn[PRIM] == RECV and self.conn[SEC] == ACK

    def avail(self, d: int, peer: Node) -> None:
        """CU-0: a standby of the producer exists."""
        self.peers[d] = peer
        self.status[d] = STANDBY
        self.conn[d] = 0
        self.exp = peer.life

    def psync(self, d: int, version: int) -> list[Send]:
        """CU-8, CU-21: the producer's marker; after it `met` tells whether the fold-in is done."""
        p = other(d)
        if version < self.exp or self.status[p] is DEAD:  # AB-3, AB-4
            if self.kind is Consumer.F and d == SEC:
                return self.reverse_to(SEC)
            return []
        row = PSYNC[self.kind, self.status[d], d]
        self.ver[d] = version
        self.status[d] = ACTIVE
        met = self.ver[p] == version
        sends = self.flush() if met else []
        for label, use in row.met if met else row.first:
            self.conn[label] = use
        self.sec_stopped = row.stopped and not met
        return sends

    def met(self) -> bool:
        """Whether both copies' markers of the announced attempt have been read."""
        return self.ver[PRIM] == self.ver[SEC] == self.exp

    def swap(self) -> None:
        """CU-17: the state arrives at the other copy of an F-Cons."""
        for pair in (self.peers, self.status, self.ver):
            pair.reverse()
        prim, sec = self.status
        self.conn = [RECV if prim is ACTIVE else 0, ACK if sec is ACTIVE else 0]
        self.sec_stopped = False
        self.rev_owed = prim is not ACTIVE and sec is ACTIVE
