"""A connection to a site or a controller over a plain blocking socket, as clients have them."""

from __future__ import annotations

import socket
from typing import Final

from flux_runtime.site import control_messages as control
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.control_messages import Message, Role
from flux_runtime.site.handshake import Handshake, Refused
from flux_runtime.site.key import JobKey
from flux_runtime.site.wire import (
    ALLOCATED_BYTES,
    LENGTH,
    Bundles,
    Kind,
    Malformed,
    bundle_length,
    frames,
)

CONNECT_TIMEOUT_S: Final = 5.0

Broken = (OSError, Refused, Malformed)
"""The connection is of no use any more."""


class Channel:
    """A client's blocking connection to a site or a controller.

    Args:
        key: the job's key.
        address: host and port.
        greeting: the client's; its kind says whom it expects there.

    Raises:
        OSError, Refused, Malformed: nobody answers there, or not as expected.
    """

    def __init__(
        self,
        key: JobKey,
        address: tuple[str, int],
        greeting: control.ClientGreeting | control.ReaderGreeting,
    ) -> None:
        self.address = address
        reading = isinstance(greeting, control.ReaderGreeting)
        self.role = Role.SITE if reading else Role.LEADER
        self.asked = -1
        self.out = Bundles()
        self.decoder = RowsDecoder()
        self.encoder = RowsEncoder({})
        self.inbox: list[tuple[Kind, memoryview]] = []
        self._partial = b""
        self.socket = socket.create_connection(address, timeout=CONNECT_TIMEOUT_S)
        try:
            self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            handshake = Handshake(key, dialing=True)
            while not handshake.done:
                self.socket.sendall(handshake.receive(self._exactly(handshake.wants)))
            message = control.encode(greeting, speaker=Role.CLIENT, hearer=self.role, greeting=True)
            self.out.add(Kind.GREETING, message)
            self.flush()
            kind, body = self.frame(CONNECT_TIMEOUT_S)
            if kind is not Kind.GREETING:
                raise Malformed("no greeting")
            _, self.welcome = control.decode_greeting(
                body, speakers=(self.role,), hearer=Role.CLIENT
            )
        except BaseException:
            self.socket.close()
            raise

    def _exactly(self, size: int) -> bytes:
        """So many bytes; memory is taken as they come, whatever has been announced."""
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(min(size - len(data), ALLOCATED_BYTES))
            if not piece:
                raise ConnectionResetError("closed by the other end")
            data += piece
        return bytes(data)

    def tell(self, message: Message) -> None:
        """Send a control message."""
        body = control.encode(message, speaker=Role.CLIENT, hearer=self.role)
        self.out.add(Kind.CONTROL, body)
        self.flush()

    def message(self, body: memoryview) -> Message:
        """The control message in a frame.

        Raises:
            Malformed: it is none.
        """
        return control.decode(body, speaker=self.role, hearer=Role.CLIENT)

    def flush(self) -> None:
        """Send what has been queued."""
        parts = self.out.take()
        if parts:
            self.socket.settimeout(None)
            self.socket.sendall(b"".join(parts))

    def frame(self, timeout_s: float | None) -> tuple[Kind, memoryview]:
        """The next frame.

        Raises:
            TimeoutError: there was none within the time.
        """
        while not self.inbox:
            self.socket.settimeout(timeout_s)
            first = self.socket.recv(1)
            if not first:
                raise ConnectionResetError("closed by the other end")
            self.socket.settimeout(CONNECT_TIMEOUT_S * 4)
            header = first + self._exactly(LENGTH.size - 1)
            bundle = self._exactly(bundle_length(header))
            for kind, body in frames(memoryview(bundle)):
                if kind is Kind.SCHEMA:
                    self.decoder.schema(body)
                else:
                    self.inbox.append((kind, body))
        return self.inbox.pop(0)

    def close(self) -> None:
        """Close."""
        self.socket.close()
