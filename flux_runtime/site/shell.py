"""The shell of sites and controllers: a host, its connections, and asyncio turns around it.

One loop, one thread: whatever comes in marks nodes of the host as ready; at the end of each turn of
the loop they go on for a few milliseconds, and what they have for other sites is written, one
bundle per connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from flux_runtime.site import control_messages as control
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.config import Config
from flux_runtime.site.connection import Connection
from flux_runtime.site.control_messages import Message, Role, reason
from flux_runtime.site.hosting import AnyHost
from flux_runtime.site.moving import OnLink
from flux_runtime.site.wire import Kind, Malformed

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

TURN_S: Final = 0.005
ACK_WAIT_S: Final = 0.02
"""How long units may wait for others to be acknowledged with (BUF-C)."""


class Link:
    """The state of one connection besides its bytes: codecs, and states under way.

    Attributes:
        states: of copies, on their way.
        role: who is at the other end; None until its greeting has come.
        greeting: the other end's.
        site: the site at the other end, once it is in the view.
    """

    def __init__(self, shared: dict[int, tuple[Any, Any]]) -> None:
        self.encoder = RowsEncoder(shared)
        self.decoder = RowsDecoder()
        self.states = OnLink()
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

    def __init__(self, config: Config, host: AnyHost) -> None:
        self.config = config
        self.host = host
        self.moving = config.hosting.states(host)
        self.loop = asyncio.get_running_loop()
        self.links: dict[int, Connection] = {}
        self.open: dict[Connection, Link] = {}
        self.ended: asyncio.Future[None] = self.loop.create_future()
        self.turns = 0
        self._shared: dict[int, tuple[Any, Any]] = {}
        self._scheduled = False
        self._later: asyncio.TimerHandle | None = None

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
            case Kind.SCHEMA:
                link.decoder.schema(body)
            case Kind.MESSAGE | Kind.ACKS | Kind.CREDITS | Kind.UNITS:
                self.host.take(self._site(link), kind, body, link.decoder)
            case Kind.STATE | Kind.BASE | Kind.PART:
                self._site(link)
                self.moving.take(link.states, kind, body)
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

    def schedule_within(self, seconds: float) -> None:
        """Take a turn after so long, or before."""
        at = self.loop.time() + seconds
        if self._later is not None and self._later.when() > at:
            self._later.cancel()
            self._later = None
        if self._later is None:
            self._later = self.loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._later = None
        self.schedule()

    def _turn(self) -> None:
        self._scheduled = False
        if not self.ended.done():  # after an error nothing may go on with half of a change
            self.guarded(self._go)

    def _go(self) -> None:
        self.turns += 1
        self.host.hold({site for site, link in self.links.items() if link.paused})
        self.host.turn(TURN_S)
        more = self._ship_states()
        self.after_turn()
        self.write()
        if more or self.host.busy:
            self.schedule()
        elif self.host.owing:
            self.schedule_within(ACK_WAIT_S)

    def write(self) -> None:
        """Write all that is due on every connection."""
        for site, connection in self.links.items():
            self.host.put(site, self.open[connection].encoder, connection.out)
        for connection in list(self.open):
            connection.flush()
        self._shared.clear()

    def _ship_states(self) -> bool:
        """CU-16: states leave in pieces, as the connections take them; gives whether more do."""
        self.moving.ship({site: self.open[c].states for site, c in self.links.items()})
        taking = [(c, link.states) for c, link in self.open.items() if not c.paused]
        for connection, states in taking:
            if (piece := states.next_piece()) is not None:
                kind, parts = piece
                connection.send(kind, *parts)
        return any(states.leaving for _, states in taking)
