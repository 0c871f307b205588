"""The shell of sites and controllers: a host, its connections, and asyncio turns around it.

One loop, one thread: whatever comes in marks nodes of the host as ready; at the end of each turn of
the loop they go on for a few milliseconds, and what they have for other sites is written, one
bundle per connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from flux_runtime.operators.packing import Base, Unreadable, pack, unpack
from flux_runtime.protocol.channels import Frame
from flux_runtime.protocol.segment import SegmentState
from flux_runtime.protocol.vocabulary import Node
from flux_runtime.site import control_messages as control
from flux_runtime.site.codec import (
    STATE,
    RowsDecoder,
    RowsEncoder,
    put_frame,
    take_acks,
    take_credits,
    take_message,
)
from flux_runtime.site.config import Config
from flux_runtime.site.connection import Connection
from flux_runtime.site.control_messages import Message, Role, reason
from flux_runtime.site.host import Host
from flux_runtime.site.moving import base_of, pack_state, unpack_state
from flux_runtime.site.wire import Kind, Malformed, Part

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

TURN_S: Final = 0.005
ACK_WAIT_S: Final = 0.02
"""How long units may wait for others to be acknowledged with (BUF-C)."""
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


class Link:
    """The state of one connection besides its bytes: codecs, and states under way.

    Attributes:
        state: what is arriving.
        bases: standby -> what has come that its state will refer to.
        sent: standby -> what has been sent that its state will refer to.
        leaving: what is sent, piece by piece, one after the other.
        role: who is at the other end; None until its greeting has come.
        greeting: the other end's.
        site: the site at the other end, once it is in the view.
    """

    def __init__(self, shared: dict[int, tuple[Any, Any]]) -> None:
        self.encoder = RowsEncoder(shared)
        self.decoder = RowsDecoder()
        self.state: Incoming | None = None
        self.bases: dict[Node, list[bytearray]] = {}
        self.sent: dict[Node, Base] = {}
        self.leaving: deque[Iterator[tuple[Kind, list[Part]]]] = deque()
        self.role: Role | None = None
        self.greeting: Message | None = None
        self.site: int | None = None


class Shell:
    """A host on asyncio.

    Args:
        config: what the process has been told.
        host: the machines; its number may be set later.
    """

    role: Role

    def __init__(self, config: Config, host: Host) -> None:
        self.config = config
        self.host = host
        self.loop = asyncio.get_running_loop()
        self.links: dict[int, Connection] = {}
        self.open: dict[Connection, Link] = {}
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.turns = 0
        self.states_moved = 0
        self.state_bytes = 0
        self.unsent: list[tuple[Node, Node, SegmentState]] = []
        self._shared: dict[int, tuple[Any, Any]] = {}
        self._scheduled = False
        self._waiting = False

    # ---- the end

    def fail(self, error: BaseException) -> None:
        """End the process' part with this error."""
        if not self.ended.done():
            self.ended.set_exception(error)

    def finish(self) -> None:
        """End the process' part."""
        if not self.ended.done():
            self.ended.set_result(None)

    def guarded(self, function: Callable[..., Any], *args: Any) -> None:
        """Call; an error ends the process' part (it must not go on with half of a change)."""
        try:
            function(*args)
        except Exception as error:
            log.exception("the site ends")
            self.fail(error)

    # ---- connections

    def opened(self, connection: Connection) -> None:
        """The other end knows the key."""
        self.open[connection] = Link(self._shared)

    def greet(self, connection: Connection, hearer: Role, greeting: Message) -> None:
        """Say who speaks, as the first frame."""
        body = control.encode(greeting, speaker=self.role, hearer=hearer, greeting=True)
        connection.send(Kind.GREETING, body)
        connection.flush()

    def tell(self, connection: Connection, message: Message) -> None:
        """Send a control message at the end of the turn, unless the connection is gone."""
        link = self.open.get(connection)
        if link is not None and link.role is not None:
            body = control.encode(message, speaker=self.role, hearer=link.role)
            connection.send(Kind.CONTROL, body)
        self.schedule()

    def speakers(self, connection: Connection) -> tuple[Role, ...]:
        """Who may be at the other end."""
        raise NotImplementedError

    def received(self, connection: Connection, kind: Kind, body: memoryview) -> None:
        """A frame has come.

        Raises:
            Malformed: the other end is to blame. Any other error ends this process' part.
        """
        if self.ended.done():
            return
        try:
            self._received(connection, kind, body)
        except Malformed:
            raise
        except Exception as error:
            log.exception("the site ends")
            self.fail(error)

    def _received(self, connection: Connection, kind: Kind, body: memoryview) -> None:
        link = self.open[connection]
        if link.role is None:
            if kind is not Kind.GREETING:
                raise Malformed("no greeting")
            link.role, link.greeting = control.decode_greeting(
                body, speakers=self.speakers(connection), hearer=self.role
            )
            self.greeted(connection, link, link.greeting)
            return
        match kind:
            case Kind.MESSAGE:
                site = self._site(link)
                self.host.receive(site, Frame((take_message(body, link.decoder),), ()))
            case Kind.ACKS:
                self.host.receive(self._site(link), Frame(take_acks(body), ()))
            case Kind.CREDITS:
                self.host.receive(self._site(link), Frame((), take_credits(body)))
            case Kind.SCHEMA:
                link.decoder.schema(body)
            case Kind.STATE | Kind.BASE | Kind.PART:
                self._state(link, kind, body)
            case Kind.CONTROL:
                self._control(connection, link, link.role, body)
            case Kind.OFFER:
                self.offered(connection, link, body)
            case _:
                raise Malformed(f"unexpected {kind.name}")

    def _control(self, connection: Connection, link: Link, role: Role, body: memoryview) -> None:
        """A control message; a client that is mistaken is told so, anybody else is closed."""
        try:
            message = control.decode(body, speaker=role, hearer=self.role)
            self.controlled(connection, link, message)
        except Malformed as error:
            if role is not Role.CLIENT:
                raise
            log.warning("a client is refused: %s", error)
            self.tell(connection, control.Refusal(reason(error)))

    def _site(self, link: Link) -> int:
        if link.site is None:
            raise Malformed("not a site")
        return link.site

    def turn_over(self, connection: Connection) -> None:
        """A bundle has been read."""
        self.schedule()

    def closed(self, connection: Connection, why: str) -> None:
        """A connection is gone."""
        link = self.open.pop(connection, None)
        if link is not None:
            for site in [s for s, c in self.links.items() if c is connection]:
                del self.links[site]
            self.guarded(self.lost, connection, link, why)

    def writable(self, connection: Connection) -> None:
        """A connection takes rows again."""
        self.schedule()

    # ---- for sites and controllers to fill in

    def greeted(self, connection: Connection, link: Link, greeting: Message) -> None:
        """The other end has said who it is."""
        raise NotImplementedError

    def controlled(self, connection: Connection, link: Link, message: Message) -> None:
        """A control message has come; raise `Malformed` where it makes no sense."""
        raise NotImplementedError

    def offered(self, connection: Connection, link: Link, body: memoryview) -> None:
        """A client's batch has come."""
        raise Malformed("no ingress here")

    def lost(self, connection: Connection, link: Link, why: str) -> None:
        """A connection that had proved its key is gone."""
        raise NotImplementedError

    def after_turn(self) -> None:
        """The machines have done what they could for now."""

    # ---- turns

    def schedule(self) -> None:
        """Take a turn soon."""
        if not self._scheduled and not self.ended.done():
            self._scheduled = True
            self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if not self.ended.done():  # after an error nothing may go on with half of a change
            self.guarded(self._go)

    def _go(self) -> None:
        self.turns += 1
        paused = {site for site, link in self.links.items() if link.paused}
        if paused != self.host.blocked:
            self.host.blocked = paused
            self.host.touch_all()
        more = self.host.turn(TURN_S)
        self._ship_states()
        self.after_turn()
        self.write()
        if more:
            self.schedule()
        elif self.host.owing and not self._waiting:
            self._waiting = True
            self.loop.call_later(ACK_WAIT_S, self._waited)

    def _waited(self) -> None:
        self._waiting = False
        self.schedule()

    def write(self) -> None:
        """Write all that is due on every connection."""
        for site, mux in self.host.peers.items():
            connection = self.links.get(site)
            if connection is None:
                continue
            encoder = self.open[connection].encoder
            while (frame := mux.next_frame()) is not None:
                put_frame(frame, encoder, connection.out)
        for connection in list(self.open):
            connection.flush()
        self._shared.clear()

    # ---- states under way

    def _ship_states(self) -> None:
        """CU-16: states leave in pieces, as the connections take them; the donor goes on."""
        bases, self.host.out.bases = self.host.out.bases, []
        for active, standby, state in bases:
            link = self._link_to(standby)
            if link is None:  # it goes with the state, then
                self.host.base_sent(active, standby.life)
            elif isinstance(state, Iterator):
                link.sent[standby] = Base(None)
                parts = map(pack, state)
                link.leaving.append(self._ahead(active, standby, link, Kind.PART, parts))
            else:
                base = link.sent[standby] = base_of(self.host.dataflow, state)
                messages = (message.written() for message in base.messages)
                link.leaving.append(self._ahead(active, standby, link, Kind.BASE, messages))
        moves, self.host.out.moves = [*self.unsent, *self.host.out.moves], []
        self.unsent = []
        for move in moves:
            active, standby, state = move
            link = self._link_to(standby)
            if link is not None:
                sent = link.sent.pop(standby, None)
                whole = self.host.whole(active, state) if sent is None else state
                if whole is None:
                    continue
                data = pack_state(self.host.dataflow, whole, sent)
                link.leaving.append(
                    (Kind.STATE, piece) for piece in pieces(standby, data.size, data.parts())
                )
                self.states_moved += 1
                self.state_bytes += data.size
            elif self.host.where.get(standby) in self.host.peers:
                self.unsent.append(move)  # it is in the view, and has not connected yet
                continue
            self.host.moved(active, state.version)
            self.schedule()
        for connection, link in self.open.items():
            if link.leaving and not connection.paused:
                self._send_piece(connection, link.leaving)

    def _link_to(self, standby: Node) -> Link | None:
        site = self.host.where.get(standby)
        connection = None if site is None else self.links.get(site)
        return None if connection is None else self.open[connection]

    def _ahead(
        self, active: Node, standby: Node, link: Link, kind: Kind, messages: Iterable[Part]
    ) -> Iterator[tuple[Kind, list[Part]]]:
        """The messages that travel before a state, as long as somebody waits for it."""
        for message in messages:
            if self.host.where.get(standby) is None:
                link.sent.pop(standby, None)
                return
            for piece in pieces(standby, len(message), [message]):
                yield kind, piece
            self.state_bytes += len(message)
        self.host.base_sent(active, standby.life)

    def _send_piece(
        self, connection: Connection, leaving: deque[Iterator[tuple[Kind, list[Part]]]]
    ) -> None:
        kind, piece = next(leaving[0], (Kind.STATE, []))
        if piece:
            connection.send(kind, *piece)
        else:
            leaving.popleft()
        if leaving:
            self.schedule()

    def _state(self, link: Link, kind: Kind, body: memoryview) -> None:
        """A piece of a state; those of one state come in a row, so one is unfinished at a time."""
        self._site(link)
        if len(body) <= STATE.size:
            raise Malformed("a piece of a state without its head")
        *parts, size = STATE.unpack_from(body)
        node = Node(*parts)
        if not size:
            raise Malformed("a state of no bytes")
        if not self.host.takes_state(node):
            raise Malformed(f"the state of {node}, which is not here")
        if link.state is None:
            link.state = Incoming(kind, node, size)
        state = link.state
        if (state.kind, state.node, state.size) != (kind, node, size):
            raise Malformed(f"the state of {node} within that of {state.node}")
        state.add(body[STATE.size :])
        if state.missing < 0:
            raise Malformed("a state that is longer than announced")
        if not state.missing:
            link.state = None
            if kind is Kind.BASE:
                for old in [n for n in link.bases if n.pair == node.pair and n != node]:
                    del link.bases[old]  # of an attempt that was given up
                link.bases.setdefault(node, []).append(state.data)
                return
            install: Callable[[Node, Any], None] = self.host.install
            try:
                if kind is Kind.PART:
                    install, moved = self.host.install_part, unpack(state.data)
                else:
                    base = link.bases.pop(node, [])
                    moved = unpack_state(self.host.dataflow, node, state.data, base)
            except Unreadable as error:
                raise Malformed(f"the state of {node}: {error}") from None
            self.guarded(install, node, moved)
