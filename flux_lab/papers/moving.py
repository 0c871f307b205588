"""States of segments on their way to standbys, under the papers' protocol.

What travels is data of the protocol's own classes (AMB-6) around the operator's state. What has
been read is compared with a segment of the same partition before it is installed: sides, kinds and
types have to be those of this dataflow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

from flux_lab.papers.host import Host
from flux_lab.papers.protocol.buffer import Buffer, Entry
from flux_lab.papers.protocol.consumer import ConsumerSide
from flux_lab.papers.protocol.inlet import Consumer, Inlet
from flux_lab.papers.protocol.messages import Data
from flux_lab.papers.protocol.outlet import Outlet, Producer
from flux_lab.papers.protocol.producer import ProducerSide
from flux_lab.papers.protocol.segment import Segment, SegmentState
from flux_runtime.operators.packing import Base, Classes, Packed, Unreadable, unpack
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.spill import Unit
from flux_runtime.protocol.vocabulary import Node, ProtocolError, Status
from flux_runtime.site.moving import OnLink, States
from flux_runtime.site.wire import Kind

CLASSES = (
    SegmentState, ConsumerSide, ProducerSide, Inlet, Outlet, Buffer,
    Consumer, Producer, Status, Unit, Entry, Data, Node,
)  # fmt: skip


def _classes(dataflow: Dataflow) -> Classes:
    return Classes(CLASSES, {"shape": dataflow.shape})


def base_of(dataflow: Dataflow, state: Any) -> Base:
    """The part of an operator's state that can be sent while the operator goes on.

    Raises:
        Unpackable: it holds something that is not data.
    """
    return Base(state, classes=_classes(dataflow))


def pack_state(dataflow: Dataflow, state: SegmentState, base: Base | None = None) -> Packed:
    """The state, to be written as bytes, but for what the standby has already.

    Raises:
        Unpackable: the operator's state holds something that is not data.
    """
    return Packed(state, classes=_classes(dataflow), base=base)


def unpack_state(
    dataflow: Dataflow,
    node: Node,
    data: bytes | bytearray,
    base: Sequence[bytes | bytearray] = (),
) -> SegmentState:
    """The state that was packed for a standby.

    Raises:
        Unreadable: the bytes are no state of a copy of its partition.
    """
    state = unpack(data, classes=_classes(dataflow), base=base)
    pattern = Segment(dataflow, node, standby=True)
    if not isinstance(state, SegmentState):
        raise Unreadable(f"a {type(state).__name__} is no state of a segment")
    _compare(state.consumer, pattern.consumer, "consumer")
    _compare(state.producer, pattern.producer, "producer")
    numbers = (state.version, state.log_position, state.failures)
    if any(type(number) is not int for number in numbers):
        raise Unreadable("versions and positions are numbers")
    if type(state.waiting) is not tuple or any(type(unit) is not Unit for unit in state.waiting):
        raise Unreadable("what waits are units")
    try:
        state.producer.validate()
    except (ProtocolError, ArithmeticError, TypeError, LookupError, AttributeError) as error:
        raise Unreadable(f"a producer that cannot be: {error}") from None
    return state


def _compare(mine: Any, pattern: Any, where: str) -> None:
    """Types as in the pattern, and kinds and numbers of neighbours; values may differ."""
    if type(mine) is not type(pattern):
        raise Unreadable(f"{where} is a {type(mine).__name__}, not a {type(pattern).__name__}")
    if isinstance(pattern, Enum) and not isinstance(pattern, Status) and mine is not pattern:
        raise Unreadable(f"{where} is of kind {mine.value}, not {pattern.value}")
    if isinstance(pattern, list):
        if len(mine) != len(pattern):
            raise Unreadable(f"{where} has {len(mine)} items, not {len(pattern)}")
        for i, (one, other) in enumerate(zip(mine, pattern, strict=True)):
            if one is not None and other is not None:
                _compare(one, other, f"{where}[{i}]")
    elif type(pattern) in (ConsumerSide, ProducerSide, Inlet, Outlet, Buffer):
        for cls in type(pattern).__mro__:
            for name in getattr(cls, "__slots__", ()):
                _compare(getattr(mine, name), getattr(pattern, name), f"{where}.{name}")


class Moving(States):
    """The states of a host's segments.

    Args:
        host: hosts the segments.

    Attributes:
        unsent: what waits until its standby's site has connected.
    """

    def __init__(self, host: Host) -> None:
        super().__init__()
        self.host = host
        self.unsent: list[tuple[Node, Node, SegmentState]] = []

    def ship(self, links: Mapping[int, OnLink]) -> None:
        """CU-16: begin to send what the host has to send, over the links to other sites."""
        host = self.host
        bases, host.out.bases = host.out.bases, []
        for active, standby, state in bases:
            link = links.get(host.where.get(standby, host.me))
            if link is None:  # it goes with the state, then
                host.base_sent(active, standby.life)
                continue
            self._send_ahead(
                link,
                standby,
                state if isinstance(state, Iterator) else base_of(host.dataflow, state),
                wanted=partial(host.where.__contains__, standby),
                sent=partial(host.base_sent, active, standby.life),
            )
        moves, host.out.moves = [*self.unsent, *host.out.moves], []
        self.unsent = []
        for move in moves:
            active, standby, state = move
            link = links.get(host.where.get(standby, host.me))
            if link is not None:
                sent = link.sent.pop(standby, None)
                full_state = host.full_state(active, state) if sent is None else state
                if full_state is None:
                    continue
                self._send(link, standby, pack_state(host.dataflow, full_state, sent))
            elif host.where.get(standby) in host.peers:
                self.unsent.append(move)  # it is in the view, and has not connected yet
                continue
            host.moved(active, state.version)

    def _takes(self, name: Node) -> bool:
        return self.host.takes_state(name)

    def _arrived(self, link: OnLink, kind: Kind, name: Node, data: bytearray) -> None:
        if kind is Kind.PART:
            self.host.install_part(name, unpack(data))
        else:
            base = link.bases.pop(name, [])
            self.host.install(name, unpack_state(self.host.dataflow, name, data, base))
