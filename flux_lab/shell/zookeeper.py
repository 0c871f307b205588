"""ZooKeeper as its clients know it: servers that lag, sessions that expire, answers that are lost.

Requests are carried out one after another; every server applies them some time later, and a
client's answers, reads and watches come from the server that it is connected to. So a read may be
old, unless `sync` came first, and a watch late.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
)

from flux_lab.shell.kernel import Kernel, Process

SERVERS: Final = 3
LAG_S: Final = 0.003
LONG_LAG_S: Final = 0.3
MACHINE: Final = "zookeeper"
"""The network's name for the machines of the ensemble, seen from a process."""


class Stat(NamedTuple):
    """Of a znode."""

    version: int
    cversion: int
    numChildren: int  # noqa: N815 - as kazoo has it
    ephemeralOwner: int  # noqa: N815 - as kazoo has it


class Znode(NamedTuple):
    """A znode at one moment."""

    data: bytes
    stat: Stat


Change = tuple[str, Znode | None]
"""A path and what is there from now on."""


class Tree:
    """Znodes, as far as a server has applied what was decided.

    Attributes:
        applied: how many decisions.
        watches: (kind, path) -> (session, callback); kind "data", or "children".
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {"/": Znode(b"", Stat(0, 0, 0, 0))}
        self.names: dict[str, dict[str, None]] = {"/": {}}
        self.applied = 0
        self.watches: dict[tuple[str, str], list[tuple[Connection, Callable[..., None]]]] = {}

    def apply(self, changes: list[Change]) -> list[tuple[Connection, Callable[..., None]]]:
        """Take a decision; gives the watches that it touches off."""
        self.applied += 1
        off: list[tuple[Connection, Callable[..., None]]] = []
        for path, node in changes:
            parent, _, name = path.rpartition("/")
            before = self.nodes.get(path)
            if node is None:
                del self.nodes[path], self.names[path]
                del self.names[parent or "/"][name]
                off += self.watches.pop(("data", path), [])
                off += self.watches.pop(("children", path), [])
                off += self.watches.pop(("children", parent or "/"), [])
                continue
            self.nodes[path] = node
            if before is None:
                self.names[path] = {}
                self.names[parent or "/"][name] = None
                off += self.watches.pop(("data", path), [])
                off += self.watches.pop(("children", parent or "/"), [])
            elif node.stat.version != before.stat.version:
                off += self.watches.pop(("data", path), [])
        return off


class Session:
    """A session, which the ensemble ends when nothing is heard of it for too long."""

    def __init__(self, number: int, timeout_s: float, now: float) -> None:
        self.number = number
        self.timeout_s = timeout_s
        self.heard = now
        self.alive = True


class Ensemble:
    """The servers.

    Attributes:
        decided: all decisions so far, in one order.
        down: servers that answer nobody.
        answers_lost: how many requests were carried out whose answer got lost.
        on_transaction: told the session whose transaction has just been carried out.
    """

    def __init__(self, kernel: Kernel, blocked: Callable[[str, str], float]) -> None:
        self.kernel = kernel
        self.blocked = blocked
        self.state = Tree()
        self.decided: list[list[Change]] = []
        self.servers = [Tree() for _ in range(SERVERS)]
        self.down: dict[int, float] = {}
        self.sessions: dict[int, Session] = {}
        self.connections: list[Connection] = []
        self.lag: dict[int, float] = {}
        self.answers_lost = 0
        self.expired = 0
        self.on_transaction: Callable[[int], None] = lambda _: None
        self._next_session = 1
        self._arrivals = [0.0] * SERVERS

    # ---- deciding

    def decide(self, changes: list[Change]) -> int:
        """Everybody will have these changes; gives how many decisions there are now."""
        self.state.apply(changes)
        self.decided.append(changes)
        now, rng = self.kernel.now, self.kernel.rng
        for number in range(SERVERS):
            slow = self.lag.get(number, 0.0) > now
            when = now + rng.random() * (LONG_LAG_S if slow else LAG_S)
            self._arrivals[number] = when = max(when, self._arrivals[number])
            self.kernel.at(when, self._apply, number)
        return len(self.decided)

    def _apply(self, number: int) -> None:
        server = self.servers[number]
        for connection, watch in server.apply(self.decided[server.applied]):
            if connection.open:
                connection.answer(partial(connection.kazoo.notify, watch))
        for connection in self.connections:
            if connection.server == number:
                connection.go_on()

    def lookup(self, path: str) -> Znode:
        """The znode as decided.

        Raises:
            NoNodeError: there is no such znode.
        """
        node = self.state.nodes.get(path)
        if node is None:
            raise NoNodeError
        return node

    def create(self, path: str, data: bytes, owner: int) -> list[Change]:
        """The changes of a create."""
        parent = path.rpartition("/")[0] or "/"
        above = self.lookup(parent)
        if path in self.state.nodes:
            raise NodeExistsError
        stat = above.stat._replace(
            cversion=above.stat.cversion + 1, numChildren=above.stat.numChildren + 1
        )
        return [(parent, Znode(above.data, stat)), (path, Znode(data, Stat(0, 0, 0, owner)))]

    def set(self, path: str, data: bytes, version: int) -> list[Change]:
        """The changes of a set."""
        node = self.check(path, version)
        return [(path, Znode(data, node.stat._replace(version=node.stat.version + 1)))]

    def delete(self, path: str, version: int) -> list[Change]:
        """The changes of a delete."""
        node = self.check(path, version)
        if node.stat.numChildren:
            raise NotEmptyError
        parent = path.rpartition("/")[0] or "/"
        above = self.lookup(parent)
        stat = above.stat._replace(
            cversion=above.stat.cversion + 1, numChildren=above.stat.numChildren - 1
        )
        return [(path, None), (parent, Znode(above.data, stat))]

    def check(self, path: str, version: int) -> Znode:
        """The znode, if it has this version (-1: any)."""
        node = self.lookup(path)
        if version not in (-1, node.stat.version):
            raise BadVersionError
        return node

    def multi(self, operations: list[tuple[Any, ...]], session: int) -> list[Any]:
        """A transaction: its results, or an error for every operation."""
        nodes, names = dict(self.state.nodes), {p: dict(n) for p, n in self.state.names.items()}
        changes: list[Change] = []
        results: list[Any] = []
        for at, (kind, path, *rest) in enumerate(operations):
            try:
                match kind:
                    case "create":
                        data, ephemeral = rest
                        more = self.create(path, data, session if ephemeral else 0)
                        results.append(path)
                    case "set":
                        more = self.set(path, *rest)
                        results.append(more[-1][1].stat if more[-1][1] else None)
                    case "delete":
                        more = self.delete(path, *rest)
                        results.append(True)
                    case _:
                        more = []
                        self.check(path, *rest)
                        results.append(True)
            except (NoNodeError, NodeExistsError, BadVersionError, NotEmptyError) as error:
                self.state.nodes, self.state.names = nodes, names
                before: list[Any] = [RolledBackError() for _ in range(at)]
                return [*before, error, *(RuntimeInconsistency() for _ in operations[at + 1 :])]
            applied = self.state.applied
            self.state.apply(more)
            self.state.applied = applied
            changes += more
        self.state.nodes, self.state.names = nodes, names
        self.decide(changes)
        self.on_transaction(session)
        return results

    # ---- sessions

    def new_session(self, timeout_s: float) -> Session:
        """A session that lives from now on."""
        session = Session(self._next_session, timeout_s, self.kernel.now)
        self._next_session += 1
        self.sessions[session.number] = session
        self.kernel.after(timeout_s, self._look_at, session)
        return session

    def _look_at(self, session: Session) -> None:
        if not session.alive:
            return
        end = session.heard + session.timeout_s
        if self.quorum_until() > self.kernel.now:  # nobody can decide that a session has ended
            end = self.quorum_until() + session.timeout_s
        if end > self.kernel.now:
            self.kernel.at(end, self._look_at, session)
        else:
            self.expired += 1
            self.end_session(session)

    def end_session(self, session: Session) -> None:
        """It is gone, with everything ephemeral."""
        if not session.alive:
            return
        session.alive = False
        del self.sessions[session.number]
        mine = [p for p, n in self.state.nodes.items() if n.stat.ephemeralOwner == session.number]
        for path in mine:
            self.decide(self.delete(path, -1))
        for connection in list(self.connections):
            if connection.session is session:
                connection.drop()

    def process_of(self, session: int) -> Process | None:
        """The process that a session is of, if it is connected."""
        for connection in self.connections:
            if connection.session.number == session:
                return connection.kazoo.process
        return None

    # ---- servers

    def quorum_until(self) -> float:
        """Until when too few servers are up."""
        until = sorted(self.down.get(number, 0.0) for number in range(SERVERS))
        return until[SERVERS // 2]

    def serves(self, number: int) -> bool:
        """Whether a server answers now."""
        now = self.kernel.now
        return self.down.get(number, 0.0) <= now and self.quorum_until() <= now

    def stop_server(self, number: int, seconds: float) -> None:
        """A server is down for a while; so is the service if too few are left."""
        self.down[number] = max(self.down.get(number, 0.0), self.kernel.now + seconds)
        for connection in list(self.connections):
            if not self.serves(connection.server):
                connection.drop()

    def lose_answers(self, process: Process) -> None:
        """Carry out what a process has asked; its connection breaks before it hears so."""
        for connection in list(self.connections):
            if connection.kazoo.process is process:
                while connection.requests:
                    _, request = connection.requests.popleft()
                    request(connection)
                self.answers_lost += connection.unanswered
                connection.drop()


class Client(Protocol):
    """The receiver behind a connection."""

    process: Process

    def notify(self, watch: Callable[..., None]) -> None:
        """A watch has been touched off."""

    def broken(self, connection: Connection) -> None:
        """The connection has ended."""


class Connection:
    """A client's connection to one server: requests are answered in order.

    Attributes:
        session: that it is part of.
        requests: under way or waiting: (decisions that the server must have applied, request).
        unanswered: requests whose answer is under way.
    """

    def __init__(self, kazoo: Client, ensemble: Ensemble, server: int, session: Session):
        self.kazoo = kazoo
        self.ensemble = ensemble
        self.server = server
        self.session = session
        self.open = True
        self.requests: deque[tuple[int, Callable[[Connection], int]]] = deque()
        self.waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self.unanswered = 0
        self._sent = self._answered = 0.0
        ensemble.connections.append(self)

    @property
    def tree(self) -> Tree:
        """The tree as its server has applied it."""
        return self.ensemble.servers[self.server]

    def send(self, request: Callable[[Connection], tuple[int, Callable[[], None]]]) -> None:
        """Have a request carried out, and answered once the server has applied what it must."""
        kernel = self.ensemble.kernel
        when = kernel.now + kernel.rng.random() * LAG_S
        when = max(when, self._sent, self.ensemble.blocked(self.kazoo.process.machine, MACHINE))
        self._sent = when
        self.unanswered += 1

        def carry_out(connection: Connection) -> int:
            needs, answer = request(connection)
            connection.waiting.append((needs, answer))
            return needs

        self.requests.append((0, carry_out))
        kernel.at(when, self._arrive)

    def _arrive(self) -> None:
        if not self.open or not self.requests:
            return
        self.session.heard = self.ensemble.kernel.now
        _, request = self.requests.popleft()
        request(self)
        self.go_on()

    def go_on(self) -> None:
        """Answer what can be answered by now."""
        while self.waiting and self.waiting[0][0] <= self.tree.applied:
            _, answer = self.waiting.popleft()
            self.answer(answer)
            self.unanswered -= 1

    def answer(self, delivery: Callable[[], None]) -> None:
        """Something goes to the client, behind all that went before."""
        kernel = self.ensemble.kernel
        when = kernel.now + kernel.rng.random() * LAG_S
        when = max(when, self._answered, self.ensemble.blocked(MACHINE, self.kazoo.process.machine))
        self._answered = when
        kernel.at(when, self._come, delivery)

    def _come(self, delivery: Callable[[], None]) -> None:
        blocked = self.ensemble.blocked(MACHINE, self.kazoo.process.machine)
        if blocked > self.ensemble.kernel.now:
            self._answered = max(self._answered, blocked)
            self.ensemble.kernel.at(blocked, self._come, delivery)
        elif self.open:
            self.kazoo.process.received += 1
            delivery()

    def drop(self) -> None:
        """It is broken; the client finds out soon."""
        if self.open:
            self.close()
            self.kazoo.broken(self)

    def close(self) -> None:
        """Nothing passes any more."""
        self.open = False
        self.ensemble.connections.remove(self)
        for watches in self.tree.watches.values():
            watches[:] = [held for held in watches if held[0] is not self]
