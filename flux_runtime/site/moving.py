"""States of segments on their way to standbys: as bytes, in pieces, and perhaps some of it ahead.

What travels is data of the protocol's own classes (AMB-6) around the operator's state. It is packed
without code (`operators.packing`), and what has been read is compared with a segment of the same
partition before it is installed: sides, kinds and types have to be those of this dataflow. Of a
large operator most is sent before its segment waits: in parts, or as what the state will refer to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any, Final

from flux_runtime.operators.packing import (
    Base,
    Classes,
    Packed,
    Unreadable,
    pack,
    unpack,
)
from flux_runtime.protocol.back import Unit
from flux_runtime.protocol.buffer import Buffer, Entry
from flux_runtime.protocol.consumer import ConsumerSide
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.inlet import Consumer, Inlet
from flux_runtime.protocol.messages import Data
from flux_runtime.protocol.outlet import Outlet, Producer
from flux_runtime.protocol.producer import ProducerSide
from flux_runtime.protocol.segment import Segment, SegmentState
from flux_runtime.protocol.vocabulary import Node, ProtocolError, Status
from flux_runtime.site.codec import STATE
from flux_runtime.site.host import Host
from flux_runtime.site.wire import Kind, Malformed, Part

STATE_PIECE_BYTES: Final = 1 << 20
"""Of a state that a connection takes in a turn, so that rows find their way in between."""

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


# ---- in pieces


class Incoming:
    """A state that is arriving, piece by piece.

    Attributes:
        kind: STATE; BASE: some of what it will refer to; PART: some of the operator's.
        node: the standby that it is for.
        size: bytes, as announced.
        missing: bytes that have not come yet.
    """

    def __init__(self, kind: Kind, node: Node, size: int) -> None:
        self.kind = kind
        self.node = node
        self.size = self.missing = size
        self.data = bytearray()

    def add(self, piece: memoryview) -> None:
        """The next piece."""
        self.data += piece
        self.missing -= len(piece)


def pieces(standby: Node, size: int, parts: Iterable[Part]) -> Iterator[list[Part]]:
    """The bodies of the frames in which so many bytes travel."""
    head = STATE.pack(*standby, size)
    piece: list[Part] = [head]
    room = STATE_PIECE_BYTES
    for part in parts:
        view = memoryview(part)
        while view:
            piece.append(view[:room])
            view = view[room:]
            room -= len(piece[-1])
            if not room:
                yield piece
                piece, room = [head], STATE_PIECE_BYTES
    if len(piece) > 1:
        yield piece


class OnLink:
    """The states that travel over one connection.

    Attributes:
        arriving: what has come in part; the pieces of one state come in a row.
        bases: standby -> what has come that its state will refer to.
        sent: standby -> what has been sent that its state will refer to.
        leaving: what is sent, piece by piece, one after the other.
    """

    def __init__(self) -> None:
        self.arriving: Incoming | None = None
        self.bases: dict[Node, list[bytearray]] = {}
        self.sent: dict[Node, Base] = {}
        self.leaving: deque[Iterator[tuple[Kind, list[Part]]]] = deque()

    def next_piece(self) -> tuple[Kind, list[Part]] | None:
        """The frame that is to be sent next; None where something else may begin."""
        if not self.leaving:
            return None
        piece = next(self.leaving[0], None)
        if piece is None:
            self.leaving.popleft()
        return piece

    def gathered(
        self, kind: Kind, body: memoryview, takes: Callable[[Node], bool]
    ) -> Incoming | None:
        """The state that a piece completes; None: some of it has still to come.

        Args:
            kind: of the frame.
            body: the piece, and whose it is.
            takes: whether a state for this standby may come.

        Raises:
            Malformed: it is no piece, or of another state than that which is arriving.
        """
        if len(body) <= STATE.size:
            raise Malformed("a piece of a state without its head")
        *parts, size = STATE.unpack_from(body)
        node = Node(*parts)
        if not size:
            raise Malformed("a state of no bytes")
        if not takes(node):
            raise Malformed(f"the state of {node}, which is not here")
        state = self.arriving or Incoming(kind, node, size)
        if (state.kind, state.node, state.size) != (kind, node, size):
            raise Malformed(f"the state of {node} within that of {state.node}")
        state.add(body[STATE.size :])
        if state.missing < 0:
            raise Malformed("a state that is longer than announced")
        self.arriving = state if state.missing else None
        return None if state.missing else state


class States:
    """The states of a host's copies that leave, and those that arrive.

    Attributes:
        states: how many have left.
        bytes: of them, and of what has left ahead of them.
    """

    def __init__(self) -> None:
        self.states = 0
        self.bytes = 0

    def _send_ahead(
        self,
        link: OnLink,
        name: Node,
        state: Iterator[Any] | Base,
        *,
        wanted: Callable[[], bool],
        sent: Callable[[], None],
    ) -> None:
        """Begin to send what can travel before a state.

        Args:
            link: to the site of the copy.
            name: of the copy that waits for it.
            state: its parts, or what it will refer to.
            wanted: whether the copy is still there.
            sent: called when all has left.
        """
        messages: Iterable[Any]
        if isinstance(state, Base):
            kind, link.sent[name] = Kind.BASE, state
            messages = (message.written() for message in state.messages)
        else:
            kind, link.sent[name] = Kind.PART, Base(None)
            messages = map(pack, state)

        def frames() -> Iterator[tuple[Kind, list[Part]]]:
            for message in messages:
                if not wanted():
                    link.sent.pop(name, None)
                    return
                for piece in pieces(name, len(message), [message]):
                    yield kind, piece
                self.bytes += len(message)
            sent()

        link.leaving.append(frames())

    def _send(self, link: OnLink, name: Node, data: Packed) -> None:
        """Begin to send a state."""
        link.leaving.append((Kind.STATE, piece) for piece in pieces(name, data.size, data.parts()))
        self.states += 1
        self.bytes += data.size

    def take(self, link: OnLink, kind: Kind, body: memoryview) -> None:
        """A piece has come.

        Raises:
            Malformed: it is none, or the state is none of a copy that may be announced here.
        """
        if (state := link.gathered(kind, body, self._takes)) is None:
            return
        if kind is Kind.BASE:
            for old in [n for n in link.bases if n.pair == state.node.pair and n != state.node]:
                del link.bases[old]  # of an attempt that was given up
            link.bases.setdefault(state.node, []).append(state.data)
            return
        try:
            self._arrived(link, kind, state.node, state.data)
        except Unreadable as error:
            raise Malformed(f"the state of {state.node}: {error}") from None

    def _takes(self, name: Node) -> bool:
        """Whether a state for this copy may come here."""
        raise NotImplementedError

    def _arrived(self, link: OnLink, kind: Kind, name: Node, data: bytearray) -> None:
        """A state, or a part of one, is there.

        Raises:
            Unreadable: it is none.
        """
        raise NotImplementedError


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
                whole = host.whole(active, state) if sent is None else state
                if whole is None:
                    continue
                self._send(link, standby, pack_state(host.dataflow, whole, sent))
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
