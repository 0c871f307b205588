"""States of copies on their way to others: as bytes, in pieces, and perhaps some of it ahead.

What travels is data around the operator's state, packed without code (`operators.packing`). Of a
large operator most is sent before its copy waits: in parts, or as what the state will refer to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from flux_runtime.operators.packing import (
    Base,
    Packed,
    Unreadable,
    pack,
)
from flux_runtime.protocol.vocabulary import Node
from flux_runtime.site.codec import STATE
from flux_runtime.site.wire import Kind, Malformed, Part

STATE_PIECE_BYTES: Final = 1 << 20
"""Of a state that a connection takes in a turn, so that rows find their way in between."""


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

    def ship(self, links: Mapping[int, OnLink]) -> None:
        """Begin to send what the host has to send, over the links to other sites."""
        raise NotImplementedError

    def _takes(self, name: Node) -> bool:
        """Whether a state for this copy may come here."""
        raise NotImplementedError

    def _arrived(self, link: OnLink, kind: Kind, name: Node, data: bytearray) -> None:
        """A state, or a part of one, is there.

        Raises:
            Unreadable: it is none.
        """
        raise NotImplementedError
