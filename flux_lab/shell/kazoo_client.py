"""A client of the simulated ZooKeeper, with the part of kazoo's interface that the product uses.

It has kazoo's states: what is under way when a connection ends is answered with `ConnectionLoss`,
whether it was carried out or not; watches are gone then, and called once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NoNodeError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from flux_lab.shell.kernel import KERNEL, Event, Thread
from flux_lab.shell.zookeeper import MACHINE, SERVERS, Connection, Ensemble, Session, Tree


class Answer:
    """As kazoo's `AsyncResult`."""

    def __init__(self) -> None:
        self._event = Event()
        self._value: Any = None
        self._error: BaseException | None = None

    @property
    def settled(self) -> bool:
        """Whether it is there."""
        return self._event.is_set()

    def settle(self, value: Any = None, error: BaseException | None = None) -> None:
        """It is there."""
        if not self._event.is_set():
            self._value, self._error = value, error
            self._event.set()

    def get(self, timeout: float | None = None) -> Any:
        """Wait for it.

        Raises:
            KazooTimeoutError: not in time.
        """
        if not self._event.wait(timeout):
            raise KazooTimeoutError("no answer in time")
        if self._error is not None:
            raise self._error
        return self._value


class SimulatedKazoo:
    """A client with the part of `KazooClient`'s interface that the product uses.

    Args:
        ensemble: what `hosts` stand for.
        timeout: of the session, in seconds.
    """

    handler: Final = SimpleNamespace(timeout_exception=KazooTimeoutError)

    def __init__(self, ensemble: Ensemble, *, timeout: float, **_: Any) -> None:
        self.ensemble = ensemble
        self.kernel = KERNEL()
        self.process = self.kernel.process
        self.timeout_s = timeout
        self.state: str = KazooState.LOST
        self.session: Session | None = None
        self.connection: Connection | None = None
        self.pending: dict[Answer, None] = {}
        self._queue: list[tuple[Callable[..., Any], Answer]] = []
        self._listeners: list[Callable[[str], None]] = []
        self._watches: dict[Callable[..., None], None] = {}
        self._closed = False
        self._seen = 0
        self._events: deque[Callable[[], None]] = deque()
        self._stirred = Event()

    # ---- life

    def add_listener(self, listener: Callable[[str], None]) -> None:
        """Call at every change of state."""
        self._listeners.append(listener)

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        """The session; None while there is none."""
        return None if self.session is None else (self.session.number, b"")

    @property
    def client_state(self) -> str:
        """The state of the session, which no server here refuses."""
        if self._closed:
            return str(KeeperState.CLOSED)
        return str(KeeperState.CONNECTING if self.connection is None else KeeperState.CONNECTED)

    def start(self, timeout: float = 15) -> None:
        """Connect.

        Raises:
            KazooTimeoutError: not in time.
        """
        self.process.on_kill.append(self._process_died)
        connected = Event()

        def listener(state: str) -> None:
            if state == KazooState.CONNECTED:
                connected.set()

        self.add_listener(listener)
        Thread(target=self._run, name="kazoo", process=self.process).start()
        if not connected.wait(timeout):
            raise KazooTimeoutError("no server has answered")

    def stop(self) -> None:
        """End the session."""
        if self._closed:
            return
        self._closed = True
        if self.session is not None and self.connection is not None:
            self.ensemble.kernel.after(0.0, self.ensemble.end_session, self.session)
        self._lose(ConnectionClosedError)
        self._stirred.set()

    def close(self) -> None:
        """Nothing is left to close."""

    def _process_died(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None and connection.open:
            connection.close()

    def broken(self, connection: Connection) -> None:
        """The connection has ended."""
        self._events.append(partial(self._on_broken, connection))
        self._stirred.set()

    def notify(self, watch: Callable[..., None]) -> None:
        """A watch has been touched off."""
        self._events.append(partial(self._call, watch))
        self._stirred.set()

    def _call(self, watch: Callable[..., None]) -> None:
        if watch in self._watches:
            del self._watches[watch]
            watch(None)

    def _run(self) -> None:
        """kazoo's threads: connect, ping, and hand on what has happened."""
        pinged = self.kernel.now
        ping: Answer | None = None
        while not self._closed:
            while self._events and not self._closed:
                self._events.popleft()()
            if self._closed:
                return
            if self.connection is None:
                self._connect()
                pinged, ping = self.kernel.now, None
                continue
            self._stirred.clear()
            waited = self.kernel.now - pinged
            if ping is not None and not ping.settled and waited > self.timeout_s / 3:
                self.connection.drop()
                continue
            if waited >= self.timeout_s / 3:
                pinged, ping = self.kernel.now, self.sync_async("/")
            self._stirred.wait(self.timeout_s / 6)

    def _connect(self) -> None:
        """Try servers until one takes this client."""
        kernel, ensemble = self.kernel, self.ensemble
        kernel.sleep(0.005 + 0.1 * kernel.rng.random())
        number = kernel.rng.randrange(SERVERS)
        machine = self.process.machine
        blocked = max(ensemble.blocked(machine, MACHINE), ensemble.blocked(MACHINE, machine))
        if not ensemble.serves(number) or blocked > kernel.now or self._closed:
            return
        if ensemble.servers[number].applied < self._seen:
            return  # ZooKeeper refuses a client that has seen more
        if self.session is not None and not self.session.alive:
            self.session = None
            self._set_state(KazooState.LOST, SessionExpiredError)
            return
        if self.session is None:
            self.session = ensemble.new_session(self.timeout_s)
        self.session.heard = kernel.now
        self.connection = Connection(self, ensemble, number, self.session)
        queue, self._queue = self._queue, []
        for request, answer in queue:
            self._send(request, answer)
        self._set_state(KazooState.CONNECTED, None)

    def _on_broken(self, connection: Connection) -> None:
        if self.connection is connection:
            self._seen = max(self._seen, connection.tree.applied)
            self.connection = None
            self._set_state(KazooState.SUSPENDED, ConnectionLoss)
            watches, self._watches = self._watches, {}
            for watch in watches:
                watch(None)

    def _set_state(self, state: str, error: type[Exception] | None) -> None:
        self.state = state
        if error is not None:
            self._lose(error)
        for listener in list(self._listeners):
            listener(state)

    def _lose(self, error: type[Exception]) -> None:
        pending, self.pending = self.pending, {}
        self._queue.clear()
        for answer in pending:
            answer.settle(error=error())

    # ---- requests

    def _ask(self, request: Callable[[Connection], tuple[int, Any]]) -> Any:
        answer = Answer()
        if self._closed or not self.process.alive:
            answer.settle(error=ConnectionClosedError())
            return answer
        self.pending[answer] = None
        if self.connection is None:
            self._queue.append((request, answer))
        else:
            self._send(request, answer)
        return answer

    def _send(self, request: Callable[[Connection], tuple[int, Any]], answer: Answer) -> None:
        def carried_out(connection: Connection) -> tuple[int, Callable[[], None]]:
            """The result of a write is known now, that of a read once it is answered."""
            try:
                needs, result = request(connection)
            except Exception as error:
                return 0, partial(settle, None, error)
            return needs, (lambda: settle_now(result)) if callable(result) else partial(
                settle, result
            )

        def settle_now(read: Callable[[], Any]) -> None:
            settle(*read())

        def settle(value: Any, error: BaseException | None = None) -> None:
            if self.pending.pop(answer, self) is None:
                answer.settle(value, error)

        assert self.connection is not None
        self.connection.send(carried_out)

    def _write(self, decide: Callable[[int], Any]) -> Any:
        def request(connection: Connection) -> tuple[int, Any]:
            if not connection.session.alive:
                raise SessionExpiredError
            self.process.arrived += 1
            result = decide(connection.session.number)
            return len(self.ensemble.decided), result

        self.process.sent += 1
        return self._ask(request)

    def _read(
        self,
        look: Callable[[Tree], Any],
        watches: tuple[tuple[str, str, bool], ...] = (),
        watch: Callable[..., None] | None = None,
    ) -> Any:
        """Read at the connection's server in turn; `watches`: (kind, path, also where none is)."""

        def request(connection: Connection) -> tuple[int, Any]:
            tree = connection.tree
            value: Any = None
            error: BaseException | None = None
            try:
                value = look(tree)
            except NoNodeError as missing:
                error = missing
            if watch is not None:
                self._watches[watch] = None
                for kind, path, anyway in watches:
                    if anyway or error is None:
                        tree.watches.setdefault((kind, path), []).append((connection, watch))
            if error is not None:
                raise error
            return 0, value

        def in_turn(connection: Connection) -> tuple[int, Any]:
            """Behind this client's writes, which its server may not have applied yet."""
            needs = connection.waiting[-1][0] if connection.waiting else 0
            if needs <= connection.tree.applied:
                return request(connection)
            result: list[Any] = []

            def read() -> Any:
                try:
                    result.append((request(connection)[1], None))
                except NoNodeError as error:
                    result.append((None, error))
                return result[0]

            return needs, read

        return self._ask(in_turn)

    def get_async(self, path: str, watch: Callable[..., None] | None = None) -> Any:
        """(data, stat)."""

        def look(tree: Tree) -> Any:
            node = tree.nodes.get(path)
            if node is None:
                raise NoNodeError
            return node.data, node.stat

        return self._read(look, (("data", path, False),), watch)

    def exists_async(self, path: str, watch: Callable[..., None] | None = None) -> Any:
        """Stat, or None."""

        def look(tree: Tree) -> Any:
            node = tree.nodes.get(path)
            return None if node is None else node.stat

        return self._read(look, (("data", path, True),), watch)

    def get_children_async(self, path: str, watch: Callable[..., None] | None = None) -> Any:
        """Names."""

        def look(tree: Tree) -> Any:
            if path not in tree.names:
                raise NoNodeError
            return list(tree.names[path])

        return self._read(look, (("children", path, False),), watch)

    def create_async(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> Any:
        """The path."""

        def decide(session: int) -> Any:
            self.ensemble.decide(self.ensemble.create(path, data, session if ephemeral else 0))
            return path

        return self._write(decide)

    def set_async(self, path: str, data: bytes, version: int = -1) -> Any:
        """The stat."""

        def decide(_: int) -> Any:
            changes = self.ensemble.set(path, data, version)
            self.ensemble.decide(changes)
            node = changes[-1][1]
            assert node is not None
            return node.stat

        return self._write(decide)

    def delete_async(self, path: str, version: int = -1) -> Any:
        """True."""

        def decide(_: int) -> Any:
            self.ensemble.decide(self.ensemble.delete(path, version))
            return True

        return self._write(decide)

    def ensure_path_async(self, path: str) -> Any:
        """The path, or True if it was there."""

        def decide(_: int) -> Any:
            if path in self.ensemble.state.nodes:
                return True
            at = ""
            for part in path.strip("/").split("/"):
                at = f"{at}/{part}"
                if at not in self.ensemble.state.nodes:
                    self.ensemble.decide(self.ensemble.create(at, b"", 0))
            return path

        return self._write(decide)

    def sync_async(self, path: str) -> Any:
        """The path, once this client's server has everything that is decided now."""

        def request(connection: Connection) -> tuple[int, Any]:
            return len(self.ensemble.decided), path

        return self._ask(request)

    def transaction(self) -> Any:
        """Operations that are carried out together."""
        return Transaction(self)

    def commit(self, operations: list[tuple[Any, ...]]) -> Any:
        """Carry them out."""
        return self._write(partial(self.ensemble.multi, operations))


class Transaction:
    """As kazoo's `TransactionRequest`."""

    def __init__(self, kazoo: SimulatedKazoo) -> None:
        self._kazoo = kazoo
        self._operations: list[tuple[Any, ...]] = []

    def create(self, path: str, value: bytes = b"", *, ephemeral: bool = False) -> None:
        """See `create_async`."""
        self._operations.append(("create", path, value, ephemeral))

    def set_data(self, path: str, value: bytes, version: int = -1) -> None:
        """See `set_async`."""
        self._operations.append(("set", path, value, version))

    def delete(self, path: str, version: int = -1) -> None:
        """See `delete_async`."""
        self._operations.append(("delete", path, version))

    def check(self, path: str, version: int) -> None:
        """Only if the znode has this version."""
        self._operations.append(("check", path, version))

    def commit_async(self) -> Any:
        """The results."""
        return self._kazoo.commit(self._operations)
