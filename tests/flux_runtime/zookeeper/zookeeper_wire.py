"""A connection to ZooKeeper that can be cut between a request and its answer.

A relay on loopback that knows just enough of the protocol to recognise a request: the server has
carried it out for certain, because it has answered, and the client never hears of it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

CREATE = 1
EXISTS = 3
MULTI = 14
CREATE2 = 15


class Wire:
    """Relays 127.0.0.1:`port` to a server, until `close`."""

    def __init__(self, hosts: str) -> None:
        host, _, port = hosts.partition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.hosts = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        self._wanted: Callable[[int, bytes], bool] | None = None
        self._count = 0
        self.open = True
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut_after(self, *operations: int, nth: int = 1, before_server: bool = False) -> None:
        """Cut when the server answers the nth request from now on of one of these kinds.

        Args:
            operations: kinds of requests.
            nth: which one.
            before_server: cut before the server gets it instead.
        """
        self._count = 0
        self._before = before_server

        def wanted(operation: int, _body: bytes) -> bool:
            self._count += operation in operations
            return operation in operations and self._count == nth

        self._wanted = wanted

    def cut(self) -> None:
        """Cut every connection now."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Cut, and refuse new connections until `resume`."""
        with self._lock:
            self.open = False
        self.cut()

    def resume(self) -> None:
        """Let connections through again."""
        self.open = True

    def close(self) -> None:
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                with self._lock:  # a connection is refused or can be cut, whoever stops when
                    if not self.open:
                        client.close()
                        server.close()
                        continue
                    self._sockets += [client, server]
                for one in (client, server):
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                doomed: set[int] = set()
                for source, target, answers in ((client, server, False), (server, client, True)):
                    threading.Thread(
                        target=self._relay, args=(source, target, answers, doomed), daemon=True
                    ).start()

    def _relay(
        self, source: socket.socket, target: socket.socket, answers: bool, doomed: set[int]
    ) -> None:
        greeted = False
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _exactly(source, 4)
                body = _exactly(source, struct.unpack(">i", frame)[0])
                if not greeted:
                    greeted = True
                elif answers:
                    if struct.unpack(">i", body[:4])[0] in doomed:
                        self.cuts += 1
                        break
                else:
                    xid, operation = struct.unpack(">ii", body[:8])
                    if self._wanted is not None and self._wanted(operation, body):
                        self._wanted = None
                        if self._before:
                            self.cuts += 1
                            break
                        doomed.add(xid)
                target.sendall(frame + body)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()


def _exactly(source: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        part = source.recv(count - len(data))
        if not part:
            raise EOFError
        data += part
    return data
