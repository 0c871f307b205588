"""The network of a simulated job: connections that keep their order, and links that fail.

A connection is a pair of endpoints; what is sent on it arrives in order, in pieces of any size,
after any time. A link between two machines may be cut in one direction or both for a while: what is
under way then arrives later, as TCP sends it again, or never, if the connection is reset instead.
When a process dies its connections are closed; when its machine does, nobody hears anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

from flux_lab.shell.kernel import Kernel, Process, Thread

Address = tuple[str, int]
LATENCY_S: Final = 0.002
SLOW_LATENCY_S: Final = 0.2


@dataclass(frozen=True, slots=True)
class Stream:
    """The receiver behind an endpoint: of data, the end (None: orderly), room to send."""

    data: Callable[[bytes], None]
    closed: Callable[[BaseException | None], None]
    drained: Callable[[], None]


class Endpoint:
    """One end of a connection.

    Attributes:
        under_way: bytes that were sent and have not arrived.
    """

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self.process = process
        self.peer: Endpoint = self
        self.under_way = 0
        self.open = True
        self._stream: Stream | None = None
        self._early: list[Any] = []
        self._sent: deque[tuple[Callable[[Endpoint, Any], None], Any]] = deque()
        self._next_arrival = 0.0
        process.on_kill.append(self._process_died)

    def attach(self, stream: Stream) -> None:
        """From now on somebody listens here."""
        self._stream = stream
        early, self._early = self._early, []
        for function, argument in early:
            function(self, argument)

    def send(self, data: bytes) -> None:
        """Send bytes; what is sent on a closed connection is lost."""
        if self.open and data:
            self.under_way += len(data)
            self.process.sent += 1
            at = 0
            while at < len(data):
                size = self.network.piece(len(data) - at)
                self._carry(Endpoint._arrive, data[at : at + size])
                at += size

    def close(self, *, reset: bool) -> None:
        """Close this end; the other end hears of it after what was sent, or at once."""
        if not self.open:
            return
        self.open = False
        error = ConnectionResetError("reset by the other end") if reset else None
        self._carry(Endpoint._hang_up, error)

    def _process_died(self) -> None:
        if self.process.machine in self.network.dead_machines:
            self.open = False
        else:
            self.close(reset=self.network.kernel.rng.random() < 0.5)

    def _carry(self, function: Callable[[Endpoint, Any], None], argument: Any) -> None:
        network = self.network
        when = network.arrival(self.process.machine, self.peer.process.machine)
        self._next_arrival = when = max(when, self._next_arrival)
        self._sent.append((function, argument))
        network.kernel.at(when, self._deliver)

    def _deliver(self) -> None:
        """Let the oldest of what is under way arrive."""
        blocked = self.network.blocked_until(self.process.machine, self.peer.process.machine)
        if blocked > self.network.kernel.now:  # the link was cut meanwhile
            self._next_arrival = max(self._next_arrival, blocked)
            self.network.kernel.at(blocked, self._deliver)
            return
        function, argument = self._sent.popleft()
        if self.process.machine in self.network.dead_machines:
            return
        if isinstance(argument, bytes):
            self.under_way -= len(argument)
            if self._stream is not None:
                self._stream.drained()
        peer = self.peer
        self.process.arrived += 1
        peer.process.received += 1
        if not peer.process.alive:
            return
        if peer._stream is None:
            peer._early.append((function, argument))
        else:
            function(peer, argument)

    def _arrive(self, data: bytes) -> None:
        if self.open and self._stream is not None:
            self._stream.data(data)

    def _hang_up(self, error: BaseException | None) -> None:
        if self.open and self._stream is not None:
            self.open = False
            self._stream.closed(error)


class Network:
    """All links.

    Attributes:
        cut: (from, to) machine -> until when nothing passes.
        slow: links that take long.
        dead_machines: machines that are gone.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.cut: dict[tuple[str, str], float] = {}
        self.slow: dict[tuple[str, str], float] = {}
        self.dead_machines: set[str] = set()
        self.connections: list[Endpoint] = []
        self._listeners: dict[Address, tuple[Process, Callable[[Endpoint], None]]] = {}
        self._port = 10_000

    # ---- links

    def blocked_until(self, here: str, there: str) -> float:
        """Until when nothing passes in this direction."""
        return self.cut.get((here, there), 0.0)

    def arrival(self, here: str, there: str) -> float:
        """When something arrives that is sent now."""
        now, rng = self.kernel.now, self.kernel.rng
        draw = rng.random()
        took = draw * (SLOW_LATENCY_S if self.slow.get((here, there), 0.0) > now else LATENCY_S)
        return now + took

    def piece(self, size: int) -> int:
        """How much of so many bytes arrives at once: mostly all."""
        draw = self.kernel.rng.random()
        return size if draw < 0.9 or size < 2 else 1 + int((draw - 0.9) * 10 * (size - 1))

    def block(self, here: str, there: str, seconds: float) -> None:
        """Let nothing pass in this direction for a while."""
        self.cut[here, there] = max(self.cut.get((here, there), 0.0), self.kernel.now + seconds)

    def reset_between(self, one: str, other: str) -> int:
        """Break the connections between two machines; gives how many."""
        between = [
            endpoint
            for endpoint in self.connections
            if endpoint.open
            and (endpoint.process.machine, endpoint.peer.process.machine) == (one, other)
        ]
        for endpoint in between:
            for end in (endpoint, endpoint.peer):
                if end.open and end._stream is not None and end.process.alive:
                    end._hang_up(ConnectionResetError("the connection was reset"))
                end.open = False
        return len(between)

    # ---- connections

    def listen(
        self, process: Process, host: str, port: int, arrived: Callable[[Endpoint], None]
    ) -> Any:
        """Accept connections; gives what `asyncio.Server` gives."""
        if not port:
            self._port += 1
            port = self._port
        address = (host, port)
        self._listeners[address] = (process, arrived)

        def close() -> None:
            self._listeners.pop(address, None)

        process.on_kill.append(close)
        name = SimpleNamespace(getsockname=lambda: address)
        return SimpleNamespace(sockets=[name], close=close)

    def dial(
        self, process: Process, address: Address, dialed: Callable[[Endpoint | None], None]
    ) -> None:
        """Open a connection; `dialed` gets this end, or nothing if nobody listens there."""
        kernel, here, there = self.kernel, process.machine, address[0]
        end = Endpoint(self, process)

        def arrive() -> None:
            if self.blocked_until(here, there) > kernel.now:
                kernel.at(self.blocked_until(here, there), arrive)
                return
            now = self._listeners.get(address)
            if now is None or not now[0].alive or not process.alive:
                if process.alive and there not in self.dead_machines:
                    kernel.at(self.arrival(there, here), dialed, None)
                return
            other = Endpoint(self, now[0])
            end.peer, other.peer = other, end
            self.connections = [e for e in self.connections if e.open and e.peer.open]
            self.connections += (end, other)
            kernel.at(self.arrival(there, here), back, other)

        def back(other: Endpoint) -> None:
            if self.blocked_until(there, here) > kernel.now:
                kernel.at(self.blocked_until(there, here), back, other)
                return
            other_listener = self._listeners.get(address)
            if not process.alive or other_listener is None or not other.process.alive:
                if process.alive and there not in self.dead_machines:
                    dialed(None)
                return
            other_listener[1](other)
            dialed(end)

        kernel.at(self.arrival(here, there), arrive)

    def connect(self, address: Address, timeout: float | None = None) -> Socket:
        """`socket.create_connection`."""
        return Socket(self, address, timeout)


class Socket:
    """A blocking socket, as `blocking.Channel` uses it."""

    def __init__(self, network: Network, address: Address, timeout: float | None) -> None:
        self.network = network
        self.kernel = network.kernel
        self._timeout = timeout
        self._data = bytearray()
        self._end: BaseException | bool | None = False
        self._waiting: Thread | None = None
        self._endpoint: Endpoint | None = None
        self._refused = False
        self._closed = False
        network.dial(self.kernel.process, address, self._dialed)
        self._wait(lambda: self._endpoint is not None or self._refused)
        if self._endpoint is None:
            raise ConnectionRefusedError(f"nobody listens at {address}")
        self._endpoint.attach(Stream(data=self._arrived, closed=self._ended, drained=lambda: None))

    def _dialed(self, endpoint: Endpoint | None) -> None:
        self._endpoint, self._refused = endpoint, endpoint is None
        if self._closed and endpoint is not None:
            endpoint.close(reset=True)
        self._poke()

    def _poke(self) -> None:
        if self._waiting is not None:
            self.kernel.wake(self._waiting)

    def _arrived(self, data: bytes) -> None:
        self._data += data
        self._poke()

    def _ended(self, error: BaseException | None) -> None:
        self._end = error if error is not None else True
        self._poke()

    def _wait(self, holds: Callable[[], bool]) -> None:
        until = None if self._timeout is None else self.kernel.now + self._timeout
        while not holds():
            left = None if until is None else until - self.kernel.now
            if left is not None and left <= 0:
                self._closed = self._endpoint is None
                raise TimeoutError("timed out")
            self._waiting = self.kernel.thread
            self.kernel.block(left)
            self._waiting = None

    def setsockopt(self, *_: Any) -> None:
        """Nothing to set."""

    def settimeout(self, timeout: float | None) -> None:
        """How long calls may wait."""
        self._timeout = timeout

    def recv(self, size: int) -> bytes:
        """Bytes as they come; none at the end.

        Raises:
            TimeoutError: none have come in time.
            OSError: the connection is broken.
        """
        self._wait(lambda: bool(self._data) or self._end is not False)
        if self._data:
            data = bytes(self._data[:size])
            del self._data[:size]
            return data
        if isinstance(self._end, BaseException):
            raise self._end
        return b""

    def sendall(self, data: bytes) -> None:
        """Send.

        Raises:
            OSError: the connection is closed.
        """
        assert self._endpoint is not None
        if self._end is not False or not self._endpoint.open:
            raise BrokenPipeError("closed by the other end")
        self._endpoint.send(bytes(data))

    def close(self) -> None:
        """Close."""
        self._closed = True
        if self._endpoint is not None and self._end is False:
            self._endpoint.close(reset=False)
