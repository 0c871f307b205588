"""An outlet, a producer's view of a consumer pair: buffer, eviction set, modes, links, versions.

Used by ingress, S-Prod and F-Prod; they differ in the initial settings (section 4.1) and in the
table that a consumer's marker `csync` is looked up in (CU-6, CU-19).
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

from flux_lab.papers.protocol.buffer import Buffer
from flux_lab.papers.protocol.messages import (
    Ack,
    Csync,
    Data,
    Message,
    Pause,
    PauseAck,
    Progress,
    Reverse,
)
from flux_lab.papers.protocol.neighbour import Neighbour
from flux_runtime.protocol.vocabulary import (
    ACK,
    LABELS,
    MARK_OF,
    MARK_PRIM,
    MARK_SEC,
    NOTHING,
    PAUSED,
    PRIM,
    PROD,
    SEC,
    SEND,
    Node,
    ProtocolError,
    Status,
    other,
)


class Producer(Enum):
    """The kinds of producer-side operators."""

    INGRESS = "ingress"
    S = "S-Prod"
    F = "F-Prod"


class OnCsync(NamedTuple):
    """The effect of a consumer's marker: `now` in any case, `met` if the other copy's was first."""

    resync: bool
    now: tuple[tuple[int, int], ...] = ()
    met: tuple[tuple[int, int], ...] = ()


ACTIVE, DEAD, STANDBY = Status.ACTIVE, Status.DEAD, Status.STANDBY

CSYNC: Final[dict[tuple[Producer, Status, int], OnCsync]] = {
    # CU-6, CU-6b, CU-6a: the ingress starts the standby at the second marker.
    (Producer.INGRESS, ACTIVE, PRIM): OnCsync(True, met=((SEC, SEND | ACK),)),
    (Producer.INGRESS, ACTIVE, SEC): OnCsync(True, met=((PRIM, SEND | ACK),)),
    (Producer.INGRESS, STANDBY, PRIM): OnCsync(False, met=((PRIM, SEND | ACK),)),
    (Producer.INGRESS, STANDBY, SEC): OnCsync(False, met=((SEC, SEND | ACK),)),
    # CU-19 (figure 3.14): rows a to d.
    (Producer.F, ACTIVE, PRIM): OnCsync(True, now=((PRIM, SEND),), met=((SEC, ACK),)),
    (Producer.F, ACTIVE, SEC): OnCsync(True, met=((PRIM, SEND),)),
    (Producer.F, STANDBY, PRIM): OnCsync(False, met=((PRIM, SEND),)),
    (Producer.F, STANDBY, SEC): OnCsync(False, met=((SEC, ACK),)),
}


class Outlet(Neighbour):
    """One consumer pair as its producer sees it.

    Attributes:
        evict: the set `del`; marks that together let an entry go.
        rev_wait: a reverse arrived between the two markers of a fold-in (AB-5).
        told: progress that each peer knows by data or by Progress (XM-2).
    """

    __slots__ = (
        "buffer",
        "evict",
        "kind",
        "r_done",
        "rev_wait",
        "told",
    )

    def __init__(
        self, kind: Producer, peers: tuple[Node, Node | None], *, copy: int, cumulative: bool
    ) -> None:
        self.kind = kind
        self.peers = list(peers)
        self.buffer = Buffer(cumulative=cumulative)
        alone = peers[SEC] is None
        self.status = [ACTIVE, DEAD if alone else ACTIVE]
        self.evict = PROD | MARK_PRIM | (0 if alone else MARK_SEC)
        if kind is Producer.INGRESS:
            self.conn = [SEND | ACK, 0 if alone else SEND | ACK]
        elif kind is Producer.S:
            self.conn = [SEND if copy == 0 else ACK, 0]
        else:
            self.conn = [SEND, 0 if alone else ACK]
        self.ver = [0, 0]
        self.exp = 0
        self.r_done = False
        self.rev_wait = False
        self.told = [NOTHING, NOTHING]

    def clone(self) -> Outlet:
        """An independent copy."""
        new = Outlet.__new__(Outlet)
        new.kind, new.evict, new.exp = self.kind, self.evict, self.exp
        new.r_done, new.rev_wait = self.r_done, self.rev_wait
        new.buffer = self.buffer.clone()
        new.peers, new.status = self.peers.copy(), self.status.copy()
        new.conn, new.ver, new.told = self.conn.copy(), self.ver.copy(), self.told.copy()
        return new

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value; cursors count only where something is or was sent."""
        sends = [bool(use & (SEND | PAUSED)) for use in self.conn]
        return (
            self.buffer.freeze(self.evict, sends),
            self.evict,
            self.exp,
            self.r_done,
            self.rev_wait,
            *self.peers,
            *self.status,
            *self.conn,
            *self.ver,
            *(progress if use else NOTHING for progress, use in zip(self.told, sends, strict=True)),
        )

    def __str__(self) -> str:
        links = self._links()
        return f"{links} holds {list(self.buffer.entries)} dangling {list(self.buffer.dangling)}"

    # ---- normal case

    def next_message(self, d: int, progress: int) -> Message | None:
        """NC-2: what goes to d next, if anything; XM-2 when there are no rows to send.

        Args:
            d: label of the peer whose link has room.
            progress: batch up to which everything has been put into the buffers.
        """
        if self.status[d] is not ACTIVE or not self.conn[d] & SEND:
            return None
        unit = self.buffer.peek(d)
        if unit is not None:
            batch, rows = unit
            self.buffer.advance(d)
            if not self.conn[d] & ACK:
                self.buffer.ack(batch, d, self.evict)  # NC-2a: nobody will acknowledge it
            self.told[d] = max(self.told[d], batch)
            return Data(batch, rows)
        if progress > self.told[d]:
            self.told[d] = progress
            return Progress(progress)  # XM-2
        return None

    def may_have_message(self, d: int, progress: int) -> bool:
        """Whether it is worth asking for the next message; it costs no search of the buffer."""
        if not self.conn[d] & SEND or self.status[d] is not ACTIVE:
            return False
        return self.buffer.cursor[d] < self.buffer.next_place or progress > self.told[d]

    def has_message(self, d: int, progress: int) -> bool:
        """Whether `next_message` would give one."""
        if self.status[d] is not ACTIVE or not self.conn[d] & SEND:
            return False
        return self.buffer.peek(d) is not None or progress > self.told[d]

    def accepts(self, d: int, message: Message) -> bool:
        """The read discipline of section 1.4 for the head of the link from d."""
        if isinstance(message, Ack):
            return self.status[d] is ACTIVE and bool(self.conn[d] & ACK)
        if isinstance(message, Csync):
            return message.version <= self.exp  # AB-2
        return True

    def receive(self, d: int, message: Message) -> Message | None:
        """Handle the head of the link from d; gives the answer to send, if any."""
        match message:
            case Ack(batch):
                self.buffer.ack(batch, d, self.evict)  # NC-3
            case Reverse():
                self.reverse(d)
            case Pause(attempt):
                self.conn[d] = PAUSED  # CU-12
                return PauseAck(attempt)
            case _:
                raise ProtocolError(f"{self.kind.value} cannot take {message}")
        return None

    # ---- take-over

    def fail(self, d: int) -> bool:
        """TO-1, TO-6: the peer is gone; gives whether that was news."""
        if self.status[d] is DEAD:
            return False
        self.status[d] = DEAD
        self.conn[d] = 0
        self.buffer.ack_all(d, self.evict)
        self.evict &= ~MARK_OF[d]
        p = other(d)
        if self._ahead(p):  # FS-26: nobody knows any more what the state of p contains
            self.status[p] = STANDBY
            self.conn[p] = 0
        elif d == SEC:
            self.rev_wait = False  # AB-5
        elif self.rev_wait:
            self._start_sending(SEC)
        return True

    def reverse(self, d: int) -> bool:
        """TO-3, TO-7: the consumer lost its source; gives whether it is served from now on."""
        if self.status[d] is DEAD:  # AMB-9
            return False
        if self.kind is Producer.S:
            self.conn[d] = SEND
            self.buffer.reset(d)
            self.told[d] = NOTHING
            self.r_done = True
            return True
        if self.conn[d] & SEND:
            return False
        if self.status[d] is STANDBY or self.between_markers():
            self.rev_wait = True  # AB-5
            return False
        self._start_sending(d)
        return True

    def _start_sending(self, d: int) -> None:
        self.conn[d] = SEND
        self.buffer.reset(d)
        self.evict |= MARK_OF[d]
        self.told[d] = NOTHING
        self.r_done = True
        self.rev_wait = False

    def between_markers(self) -> bool:
        """Whether one copy's marker of the announced attempt has been read, the other's not."""
        alive = DEAD not in self.status
        return alive and self.ver[PRIM] != self.ver[SEC] and max(self.ver) == self.exp

    def taken_over(self) -> bool:
        """This outlet's part of `tk_done` (TO-9, TO-9F): nobody waits for a reverse here."""
        if self.kind is Producer.S:
            return self.r_done or bool(self.conn[PRIM] & SEND)
        return self.r_done or self.status[SEC] is not ACTIVE or bool(self.conn[SEC] & SEND)

    # ---- catch-up

    def avail(self, d: int, peer: Node) -> None:
        """CU-0: a standby of the consumer exists."""
        self.peers[d] = peer
        self.status[d] = STANDBY
        self.conn[d] = 0
        self.exp = peer.life
        self.told[d] = NOTHING

    def csync(self, d: int, version: int) -> bool:
        """CU-6, CU-19: the consumer's marker; gives whether both markers have met (CU-22)."""
        p = other(d)
        if version < self.exp or self.status[p] is DEAD:  # AB-3, AB-4, AB-8
            if self.kind is Producer.F and d == PRIM:
                self.conn[PRIM] = SEND
            return False
        row = CSYNC[self.kind, self.status[d], d]
        self.ver[d] = version
        if row.resync:
            self.evict |= MARK_OF[p]
            self.buffer.resync(p)
        self.status[d] = ACTIVE
        met = self.ver[p] == version
        for label, use in row.now + (row.met if met else ()):
            self.conn[label] = use
        if met and self.rev_wait:
            self._start_sending(SEC)  # AB-5
        return met

    def sync(self, standby: bool) -> None:
        """CU-7, CU-20: this copy's state has moved; both copies play their first roles again."""
        self.r_done = False
        self.told = [NOTHING, NOTHING]
        if self.kind is Producer.S:
            if standby:
                self.conn[PRIM] = ACK
        elif self.conn[SEC] & SEND:
            self.conn[SEC] = ACK

    def swap(self) -> None:
        """CU-17: the state arrives at the other copy of an F-Prod."""
        self.buffer.swap()
        for pair in (self.peers, self.status, self.ver):
            pair.reverse()
        evict = PROD
        evict |= MARK_SEC if self.evict & MARK_PRIM else 0
        evict |= MARK_PRIM if self.evict & MARK_SEC else 0
        self.evict = evict
        self.conn = [
            use if status is ACTIVE else 0
            for use, status in zip((SEND, ACK), self.status, strict=True)
        ]
        self.told = [NOTHING, NOTHING]

    def validate(self) -> None:
        """Invariants of the buffer, and that a link to a dead peer is ignored."""
        for_good = [d for d in LABELS if self.conn[d] & SEND and not self.conn[d] & ACK]
        self.buffer.validate(self.evict, sent_for_good=for_good)
        for d in LABELS:
            if self.status[d] is DEAD and (self.conn[d] or self.evict & MARK_OF[d]):
                raise ProtocolError(f"a dead peer is waited for: {self}")
