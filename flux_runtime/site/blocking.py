"""A connection to a site or a controller over a plain blocking socket, as clients have them."""

from __future__ import annotations

import socket
from typing import Any, Final

from flux_runtime.site.codec import RowsDecoder, RowsEncoder, from_json, to_json
from flux_runtime.site.handshake import Handshake, Refused
from flux_runtime.site.key import JobKey
from flux_runtime.site.wire import LENGTH, Bundles, Kind, Malformed, bundle_length, frames

VERSION: Final = 1
CONNECT_TIMEOUT_S: Final = 5.0

Broken = (OSError, Refused, Malformed)
"""The connection is of no use any more."""


class Channel:
    """A blocking connection to a site or a controller."""

    def __init__(self, key: JobKey, address: tuple[str, int], greeting: dict[str, Any]) -> None:
        self.address = address
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
            self.control({"v": VERSION, "role": "client", **greeting}, kind=Kind.GREETING)
            kind, body = self.frame(CONNECT_TIMEOUT_S)
            if kind is not Kind.GREETING:
                raise Malformed("no greeting")
            self.greeting = from_json(body)
        except BaseException:
            self.socket.close()
            raise

    def _exactly(self, size: int) -> bytes:
        data = bytearray(size)
        at = 0
        while at < size:
            n = self.socket.recv_into(memoryview(data)[at:])
            if not n:
                raise ConnectionResetError("closed by the other end")
            at += n
        return bytes(data)

    def control(self, message: dict[str, Any], *, kind: Kind = Kind.CONTROL) -> None:
        """Send a control message."""
        self.out.add(kind, to_json(message))
        self.flush()

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
