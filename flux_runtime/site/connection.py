"""One connection: handshake, then bundles, on asyncio's BufferedProtocol.

A bundle is received into memory of its size, and its frames are used in place; of one that is long
so much is taken as has arrived, twice over at most. Nothing of what the other end sends can do more
than close this connection.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final, Protocol

from flux_runtime.site.handshake import Handshake, Refused
from flux_runtime.site.key import JobKey
from flux_runtime.site.wire import (
    ALLOCATED_BYTES,
    LENGTH,
    Bundles,
    Kind,
    Malformed,
    Part,
    bundle_length,
    frames,
)

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

HANDSHAKE_TIMEOUT_S: Final = 10.0
STRANGERS_MAX: Final = 256
"""Connections that may be in their handshake at once."""
WRITE_HIGH_BYTES: Final = 4 << 20
"""Unsent bytes at which no more rows are taken out of the buffers for this connection."""


class Owner(Protocol):
    """The owner of a connection, which is told what comes."""

    def opened(self, connection: Connection) -> None:
        """The other end has proved that it knows the key."""

    def received(self, connection: Connection, kind: Kind, body: memoryview) -> None:
        """A frame has come; raise `Malformed` to close the connection."""

    def turn_over(self, connection: Connection) -> None:
        """All frames of a bundle have been handed over."""

    def closed(self, connection: Connection, why: str) -> None:
        """The connection is gone for good."""

    def writable(self, connection: Connection) -> None:
        """Rows may be sent again."""


class Connection(asyncio.BufferedProtocol):
    """Either end of a connection between two processes of a job.

    Attributes:
        peer: who is at the other end, once its greeting has told; for the owner to set.
        out: what is to be sent at the end of the turn (`flush`).
        paused: the other end does not read as fast as rows are produced.
        proved: set once both ends have proved that they know the key, or it is gone.
        gone: set once it is gone, and `why` tells the reason.
    """

    def __init__(
        self,
        owner: Owner,
        key: JobKey,
        *,
        dialing: bool,
        strangers: set[Connection] | None = None,
    ) -> None:
        self.owner = owner
        self.strangers = strangers
        self.dialing = dialing
        self.peer: Any = None
        self.out = Bundles()
        self.paused = False
        self.open = False
        self.why = ""
        self.proved = asyncio.Event()
        self.gone = asyncio.Event()
        self.bytes_in = self.bytes_out = 0
        self.transport: asyncio.Transport | None = None
        self._handshake = Handshake(key, dialing=dialing)
        self._buffer = bytearray(self._handshake.wants)
        self._size = self._handshake.wants
        self._at = 0
        self._body = False
        self._timer: asyncio.TimerHandle | None = None

    # ---- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin the handshake."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        if self.strangers is not None:
            if len(self.strangers) >= STRANGERS_MAX:
                self.close("too many connections that have not proved anything")
                return
            self.strangers.add(self)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HANDSHAKE_TIMEOUT_S, self.close, "no handshake in time")
        opening = self._handshake.opening()
        if opening:
            transport.write(opening)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where the next bytes go: the rest of what is being read."""
        return memoryview(self._buffer)[self._at :]

    def buffer_updated(self, nbytes: int) -> None:
        """Bytes have come."""
        self._at += nbytes
        self.bytes_in += nbytes
        if self._at < len(self._buffer):
            return
        if self._at < self._size:
            self._grow()
            return
        try:
            self._step()
        except (Refused, Malformed) as error:
            if self.peer is not None:
                log.warning("connection with %s closed: %s", self.peer, error)
            self.close(str(error))

    def _step(self) -> None:
        """Handles the end of what was being read."""
        if not self._handshake.done:
            answer = self._handshake.receive(bytes(self._buffer))
            if self.transport is not None and answer:
                self.transport.write(answer)
            if self._handshake.done:
                self.open = True
                self._known()
                self._expect(LENGTH.size)
                self.owner.opened(self)
                self.proved.set()
            else:
                self._expect(self._handshake.wants)
        elif not self._body:
            self._expect(bundle_length(self._buffer))
            self._body = True
        else:
            bundle = memoryview(self._buffer).toreadonly()
            self._body = False
            self._expect(LENGTH.size)
            for kind, body in frames(bundle):
                if not self.open:
                    return
                self.owner.received(self, kind, body)
            self.owner.turn_over(self)

    def _known(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self.strangers is not None:
            self.strangers.discard(self)

    def _expect(self, size: int) -> None:
        """Read so many bytes next; what is announced is not allocated before it arrives."""
        self._size = size
        self._buffer = bytearray(min(size, ALLOCATED_BYTES))
        self._at = 0

    def _grow(self) -> None:
        arrived, self._buffer = self._buffer, bytearray(min(self._size, 2 * len(self._buffer)))
        self._buffer[: len(arrived)] = arrived

    def eof_received(self) -> bool:
        """The other end has closed."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._known()
        self.open = False
        self.why = self.why or (f"{type(exc).__name__}" if exc else "closed by the other end")
        self.proved.set()
        self.gone.set()
        self.owner.closed(self, self.why)

    def pause_writing(self) -> None:
        """The socket's buffers are full."""
        self.paused = True

    def resume_writing(self) -> None:
        """There is room again."""
        self.paused = False
        self.owner.writable(self)

    # ---- for the owner

    def send(self, kind: Kind, *body: Part) -> None:
        """Queue a frame for the end of the turn."""
        if self.open:
            self.out.add(kind, *body)

    def flush(self) -> None:
        """Write what has been queued."""
        if self.out and self.open and self.transport is not None:
            parts = self.out.take()
            self.bytes_out += sum(map(len, parts))
            self.transport.writelines(parts)

    def close(self, why: str) -> None:
        """Close at once; the owner hears of it through `closed`."""
        self.why = self.why or why
        self.open = False
        if self.transport is not None:
            if self.peer is None and not self.dialing:
                log.warning("connection refused: %s", why)
            self.transport.abort()

    def reading(self, wanted: bool) -> None:
        """Stop or go on reading, to hold a client back."""
        if self.transport is not None and not self.transport.is_closing():
            if wanted and not self.transport.is_reading():
                self.transport.resume_reading()
            elif not wanted and self.transport.is_reading():
                self.transport.pause_reading()


async def listen(
    owner: Owner, key: JobKey, *, bind: str = "127.0.0.1", port: int = 0
) -> tuple[asyncio.Server, int]:
    """Accept connections; gives the server and its port.

    Args:
        owner: gets every connection that passes the handshake.
        key: the job's key.
        bind: address to listen on.
        port: port to listen on; 0 takes a free one.
    """
    strangers: set[Connection] = set()

    def protocol() -> Connection:
        return Connection(owner, key, dialing=False, strangers=strangers)

    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, bind, port, backlog=STRANGERS_MAX)
    return server, int(server.sockets[0].getsockname()[1])


async def dial(
    owner: Owner, key: JobKey, address: tuple[str, int], *, peer: Any, timeout_s: float
) -> Connection:
    """Open a connection; it is usable once the owner's `opened` has been called.

    Args:
        owner: gets the connection.
        key: the job's key.
        address: host and port.
        peer: whom to expect there; the connection's `peer`.
        timeout_s: how long to try.

    Raises:
        OSError: nobody listens there, or not within the time.
    """
    loop = asyncio.get_running_loop()

    def protocol() -> Connection:
        connection = Connection(owner, key, dialing=True)
        connection.peer = peer
        return connection

    _, connection = await asyncio.wait_for(loop.create_connection(protocol, *address), timeout_s)
    return connection
