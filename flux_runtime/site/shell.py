"""What sites and controllers have in common: a host, its connections, and asyncio turns around it.

One loop, one thread: whatever comes in marks nodes of the host as ready; at the end of each turn of
the loop they go on for a few milliseconds, and what they have for other sites is written, one
bundle per connection.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from collections.abc import Callable
from typing import Any, Final

from flux_runtime.protocol.channels import Frame
from flux_runtime.protocol.vocabulary import Node
from flux_runtime.site.codec import (
    RowsDecoder,
    RowsEncoder,
    from_json,
    put_frame,
    take_acks,
    take_credits,
    take_message,
    to_json,
)
from flux_runtime.site.config import Config
from flux_runtime.site.connection import Connection
from flux_runtime.site.host import Host
from flux_runtime.site.wire import Kind, Malformed

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

TURN_S: Final = 0.005
ACK_WAIT_S: Final = 0.02
"""How long units may wait for others to be acknowledged with (BUF-C)."""
STATE_PIECE_BYTES: Final = 1 << 20


class Incoming:
    """A state that is arriving, piece by piece."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0


class Link:
    """What belongs to one connection besides its bytes: codecs, and states under way."""

    def __init__(self, shared: dict[int, tuple[Any, Any]]) -> None:
        self.encoder = RowsEncoder(shared)
        self.decoder = RowsDecoder()
        self.states: dict[Node, Incoming] = {}
        self.greeting: dict[str, Any] | None = None
        self.site: int | None = None


class Shell:
    """A host on asyncio.

    Args:
        config: what the process has been told.
        host: the machines; its number may be set later.
    """

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
        self.unsent: list[tuple[Node, Node, int, bytes]] = []
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

    def greet(self, connection: Connection, greeting: dict[str, Any]) -> None:
        """Say who speaks, as the first frame."""
        connection.send(Kind.GREETING, to_json(greeting))
        connection.flush()

    def tell(self, connection: Connection, message: dict[str, Any]) -> None:
        """Send a control message at the end of the turn."""
        connection.send(Kind.CONTROL, to_json(message))
        self.schedule()

    def received(self, connection: Connection, kind: Kind, body: memoryview) -> None:
        """A frame has come."""
        link = self.open[connection]
        if link.greeting is None:
            if kind is not Kind.GREETING:
                raise Malformed("no greeting")
            link.greeting = from_json(body)
            self._checked(self.greeted, connection, link)
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
            case Kind.STATE:
                self._state(link, body)
            case Kind.CONTROL:
                self._checked(self.controlled, connection, link, from_json(body))
            case Kind.OFFER:
                self._checked(self.offered, connection, link, body)
            case _:
                raise Malformed(f"unexpected {kind.name}")

    def _checked(self, function: Callable[..., None], *args: Any) -> None:
        """Call; what is missing or of a wrong type in a message is the sender's mistake."""
        try:
            function(*args)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            log.debug("malformed", exc_info=True)
            raise Malformed(f"a message that makes no sense ({type(error).__name__})") from None

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

    def greeted(self, connection: Connection, link: Link) -> None:
        """The other end has said who it is."""
        raise NotImplementedError

    def controlled(self, connection: Connection, link: Link, message: dict[str, Any]) -> None:
        """A control message has come."""
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
        """CU-16: states leave in pieces, in front of whatever is sent afterwards."""
        moves, self.host.out.moves = self.host.out.moves, []
        packed, self.unsent = self.unsent, []
        for active, standby, state in moves:
            data = pickle.dumps(state, protocol=5)
            if len(data) > self.config.state_max_bytes:
                raise ValueError(f"the state of {active} has {len(data)} bytes, too many")
            packed.append((active, standby, state.version, data))
        for move in packed:
            active, standby, version, data = move
            site = self.host.where.get(standby)
            connection = None if site is None else self.links.get(site)
            if connection is not None:
                self._send_state(connection, standby, data)
                self.states_moved += 1
                self.state_bytes += len(data)
            elif site in self.host.peers:
                self.unsent.append(move)  # it is in the view, and has not connected yet
                continue
            self.host.moved(active, version)
            self.schedule()

    def _send_state(self, connection: Connection, standby: Node, data: bytes) -> None:
        head = to_json({"n": list(standby), "size": len(data)})
        head = len(head).to_bytes(4, "little") + head
        for at in range(0, len(data), STATE_PIECE_BYTES):
            connection.send(Kind.STATE, head, data[at : at + STATE_PIECE_BYTES])

    def _state(self, link: Link, body: memoryview) -> None:
        self._site(link)
        length = int.from_bytes(body[:4], "little")
        head = from_json(body[4 : 4 + length])
        match head:
            case {"n": [int(s), int(p), int(c), int(life)], "size": int(size)}:
                node = Node(s, p, c, life)
            case _:
                raise Malformed("not a piece of a state")
        if not 0 < size <= self.config.state_max_bytes:
            raise Malformed(f"a state of {size} bytes")
        state = link.states.setdefault(node, Incoming())
        state.pieces.append(bytes(body[4 + length :]))
        state.size += len(state.pieces[-1])
        if state.size > size:
            raise Malformed("a state that is longer than announced")
        if state.size == size:
            del link.states[node]
            self.guarded(self.host.install, node, pickle.loads(b"".join(state.pieces)))
