"""Names of the protocol: copies, labels, modes, uses of a link, nodes, the shape of a dataflow.

A *unit* is what the protocol stores, sends and acknowledges: the rows of one batch that belong to
one partition. Its sequence number is the number of the batch; a row's own is (batch, offset), so
order and identity stay exact per row while the protocol pays per unit.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

PRIM: Final = 0
"""Label of the peer in the same copy of the dataflow; at ingress and egress, of slot 1."""
SEC: Final = 1
"""Label of the peer in the other copy of the dataflow; at ingress and egress, of slot 2."""
LABELS: Final = (PRIM, SEC)

MARK_PRIM: Final = 1
MARK_SEC: Final = 2
PROD: Final = 4
"""Marks of a buffer entry: acknowledged by (or sent for good to) PRIM, SEC; produced here."""
MARK_OF: Final = (MARK_PRIM, MARK_SEC)

SEND: Final = 1
RECV: Final = 2
ACK: Final = 4
PAUSED: Final = 8
"""What a link is used for now; 0 means that it is ignored."""

INGRESS: Final = -1
"""Stage number of the ingress; the egress has the number of stages."""

NOTHING: Final = -1
"""Below every sequence number."""
END: Final = 1 << 60
"""Above every sequence number: the progress of a stream that has ended (XM-3)."""


class Status(IntEnum):
    """Mode of an operator, or of a peer as seen by an operator."""

    ACTIVE = 0
    DEAD = 1
    STANDBY = 2
    PAUSE = 3


class Pair(NamedTuple):
    """A partition pair: two copies of the segment that processes one partition of one stage."""

    stage: int
    part: int


class Node(NamedTuple):
    """One incarnation of one copy of a pair; `life` is the attempt number that created it (AB-1).

    Links are named by the two nodes they join, so a new incarnation never inherits what was
    written to, or by, the one before.
    """

    stage: int
    part: int
    copy: int
    life: int

    @property
    def pair(self) -> Pair:
        """The pair that this node is a copy of."""
        return Pair(self.stage, self.part)

    def __str__(self) -> str:
        if self.stage == INGRESS:
            return "ingress"
        life = f"'{self.life}" if self.life else ""
        return f"{chr(ord('A') + self.stage)}{self.part}{'ps'[self.copy]}{life}"


THE_INGRESS: Final = Node(INGRESS, 0, 0, 0)


def other(label: int) -> int:
    """p(d): the other label."""
    return 1 - label


def marks_text(marks: int) -> str:
    """Marks as people write them: `{PROD,PRIM}`."""
    names = [
        n for bit, n in ((PROD, "PROD"), (MARK_PRIM, "PRIM"), (MARK_SEC, "SEC")) if marks & bit
    ]
    return "{" + ",".join(names) + "}"


def use_text(use: int) -> str:
    """Uses of a link as people write them: `{SEND,ACK}`."""
    names = ((SEND, "SEND"), (RECV, "RECV"), (ACK, "ACK"), (PAUSED, "PAUSE"))
    return "{" + ",".join(n for bit, n in names if use & bit) + "}"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The dataflow and the limits that every node knows from the start.

    Attributes:
        widths: partitions of each stage, from the source on.
        copies: 2 for partition pairs, 1 for plain exchange (no replication).
        cluster_pairs: both copies exist, but only ingress and egress coordinate them; inside, each
            copy of the dataflow is plain exchange (the baseline of section 3.3 of the thesis).
        ordered_egress: the egress emits in the order of sequence numbers; else first come.
        pool: room of a producer's buffers, in units, shared by its outlets (UF-1, UF-3).
        reserve: units of the pool kept for each outgoing connection (UF-2).
        ack_every: acknowledge every n-th unit; above 1 acknowledgements are cumulative (BUF-C).
        in_hand: units that a consumer takes off a link before the merge has use for them.
        set_preserving: the same input gives the same set of output units, in any order (FS-25). A
            unit is then named by a key of its own in place of the batch it came from.
        results_max: results that the egress keeps until the destination acknowledges them, and at
            most so many (NC-7); 0 for a destination that acknowledges nothing and gets each once.
        progress_read: somebody waits for progress at the last stage, so all stages tell theirs.
    """

    widths: tuple[int, ...]
    copies: int = 2
    cluster_pairs: bool = False
    ordered_egress: bool = True
    pool: int = 64
    reserve: int = 1
    ack_every: int = 1
    in_hand: int = 1
    set_preserving: bool = False
    results_max: int = 0
    progress_read: bool = False

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"a dataflow has at least one stage of at least one partition: {self}")
        if self.copies not in (1, 2) or (self.cluster_pairs and self.copies != 2):
            raise ValueError(f"copies is 1 or 2, and 2 for cluster pairs: {self}")
        if min(self.pool, self.reserve, self.ack_every, self.in_hand) < 1:
            raise ValueError(f"limits are positive: {self}")
        if self.results_max < 0:
            raise ValueError(f"an egress that keeps {self.results_max} results cannot be: {self}")
        if self.set_preserving and (
            len(self.widths) > 1 or self.ordered_egress or self.cumulative or self.cluster_pairs
        ):
            raise ValueError(
                "operators that preserve only the set of their output give it no order and no "
                "highest number: one stage of dataflow pairs, `ordered_egress` off, `ack_every` 1"
            )
        if self.pool <= max(self.widths) * (self.ack_every - 1):
            raise ValueError(
                f"a pool of {self.pool} units can fill with units that consumers have received "
                f"and, acknowledging every {self.ack_every}th, do not acknowledge: make `pool` "
                f"larger than {max(self.widths) * (self.ack_every - 1)}, or `ack_every` smaller"
            )

    @property
    def egress(self) -> Node:
        """The node that all results leave through."""
        return Node(len(self.widths), 0, 0, 0)

    @property
    def cumulative(self) -> bool:
        """Whether one acknowledgement stands for all before it (BUF-C)."""
        return self.ack_every > 1

    def tells_progress(self, stage: int) -> bool:
        """Whether consumers of this stage on need to know what they will not get (XM-2).

        They do where some merge waits for several producers, to flush acknowledgements, and where
        it is read.
        """
        waits = any(
            width > 1 and (self.ordered_egress or before < len(self.widths) - 1)
            for before, width in enumerate(self.widths)
            if before >= stage - 1
        )
        return waits or self.cumulative or self.progress_read

    def pairs(self) -> tuple[Pair, ...]:
        """All pairs, from source to destination (CT-2): what stages are stamped out as (UF-4)."""
        return tuple(Pair(s, p) for s, width in enumerate(self.widths) for p in range(width))

    def outside(self, stage: int) -> bool:
        """Whether the stage is the ingress or the egress."""
        return stage in (INGRESS, len(self.widths))

    def upstream(self, stage: int) -> tuple[Pair, ...]:
        """The producers of a stage; none of the ingress."""
        return self._pairs_of(stage - 1)

    def downstream(self, stage: int) -> tuple[Pair, ...]:
        """The consumers of a stage; none of the egress."""
        return self._pairs_of(stage + 1)

    def _pairs_of(self, stage: int) -> tuple[Pair, ...]:
        if not INGRESS <= stage <= len(self.widths):
            return ()
        width = 1 if self.outside(stage) else self.widths[stage]
        return tuple(Pair(stage, p) for p in range(width))


class ProtocolError(Exception):
    """The machine was asked for something its rules exclude; the message tells its story."""
