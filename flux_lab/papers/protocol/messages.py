"""Messages: over links between nodes, to the controller, and through the controller's log.

All messages are immutable values; equality distinguishes their kinds. Rows are opaque here: the
protocol stores, sends and drops them, and only the operators look inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flux_runtime.protocol.dataflow import Rows
from flux_runtime.protocol.vocabulary import Node, Pair

# ---- producer to consumer (forward channel)


@dataclass(frozen=True, slots=True)
class Data:
    """The rows of one batch for the partition at the other end of the link."""

    batch: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Progress:
    """XM-2: everything for you up to and including this batch has been sent. Never acknowledged."""

    batch: int


@dataclass(frozen=True, slots=True)
class Psync:
    """The mark after which all belongs to version `version` of the pair that sends it."""

    version: int


@dataclass(frozen=True, slots=True)
class PauseAck:
    """CU-12: nothing for you is in flight behind me.

    The attempt tells it from the answer to a pause of an attempt that was given up.
    """

    attempt: int


# ---- consumer to producer (reverse channel)


@dataclass(frozen=True, slots=True)
class Ack:
    """The unit of this batch has been received (all units up to it, if cumulative)."""

    batch: int


@dataclass(frozen=True, slots=True)
class Reverse:
    """Send to me from now on, and expect no more acknowledgements from me."""


@dataclass(frozen=True, slots=True)
class Pause:
    """CU-11: stop sending to me, and say so in order with the data."""

    attempt: int


@dataclass(frozen=True, slots=True)
class Csync:
    """All acknowledgements before version `version` of the pair that sends it are ahead of me."""

    version: int


Message = Data | Progress | Psync | PauseAck | Ack | Reverse | Pause | Csync


# ---- the controller's log, the same for every node (CT-1)


@dataclass(frozen=True, slots=True)
class Fail:
    """A copy is gone for good; `number` counts the failures in the log."""

    pair: Pair
    copy: int
    number: int


@dataclass(frozen=True, slots=True)
class Avail:
    """A standby for a copy exists; `attempt` rises with every standby of the pair (AB-1)."""

    pair: Pair
    copy: int
    attempt: int


@dataclass(frozen=True, slots=True)
class CatchUpStart:
    """The pair may bring its standby of this attempt up to date (CT-5)."""

    pair: Pair
    attempt: int


@dataclass(frozen=True, slots=True)
class CatchUpCommit:
    """Cluster pairs: the states of a whole replica set have moved; all its copies go on now."""

    pair: Pair
    attempt: int


LogEntry = Fail | Avail | CatchUpStart | CatchUpCommit


# ---- nodes to the controller


@dataclass(frozen=True, slots=True)
class CatchUpReady:
    """CU-9: the pair could catch up now, knowing all failures up to number `failures`."""

    pair: Pair
    failures: int


@dataclass(frozen=True, slots=True)
class CatchUpDone:
    """CU-18: the state of this attempt has moved and both markers are on their way."""

    pair: Pair
    attempt: int


@dataclass(frozen=True, slots=True)
class FoldInDone:
    """CU-22: at this neighbour both copies' markers of the attempt have met."""

    pair: Pair
    attempt: int
    at: Node


Notice = CatchUpReady | CatchUpDone | FoldInDone


# ---- instructions of a machine to whoever runs it


@dataclass(frozen=True, slots=True)
class Send:
    """Append the message to the link to that node; to a node that is gone it is dropped."""

    to: Node
    message: Message


@dataclass(frozen=True, slots=True)
class Tell:
    """Hand the notice to the controller."""

    notice: Notice


@dataclass(frozen=True, slots=True)
class Move:
    """Carry the state to the standby, then report `moved` to the sender."""

    to: Node
    state: Any
    size: int


@dataclass(frozen=True, slots=True)
class AckSource:
    """NC-6: the batch is in the ingress's buffer; the source may forget it."""

    batch: int


@dataclass(frozen=True, slots=True)
class Emit:
    """The rows of this batch leave the dataflow through the egress."""

    batch: int
    rows: Rows


Instruction = Send | Tell | Move | AckSource | Emit
