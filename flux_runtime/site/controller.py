"""`run_controller(config)`: a candidate that follows the record of events until it has to lead."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from flux_runtime.site.config import ControllerConfig
from flux_runtime.site.connection import Connection, dial, listen
from flux_runtime.site.control_messages import FollowerGreeting, Role, decode_greeting, encode
from flux_runtime.site.finding import ZooKeeperFinder
from flux_runtime.site.leader import Leader
from flux_runtime.site.ledger import Ledger
from flux_runtime.site.record import (
    NoRecord,
    ZooKeeperRecord,
    control_log,
    decoded,
    kept_state,
)
from flux_runtime.site.snapshot import restore
from flux_runtime.site.wire import Kind
from flux_runtime.zookeeper.client import Client, connect
from flux_runtime.zookeeper.control import ControlLog, Versioned
from flux_runtime.zookeeper.election import Candidate, Deposed, Elected, Leadership
from flux_runtime.zookeeper.membership import Joined, Left, Roster
from flux_runtime.zookeeper.tail import Trimmed

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

AGAIN_S: Final = 0.2


def run_controller(
    config: ControllerConfig, *, started: Callable[[str, int], None] | None = None
) -> None:
    """Lead the job, or stand by to; returns when the job has been stopped.

    Args:
        config: what this controller is told.
        started: called with the address once connections are accepted.

    Raises:
        SessionProblem: ZooKeeper cannot be reached.
    """
    asyncio.run(control(config, started))


async def control(config: ControllerConfig, started: Callable[[str, int], None] | None) -> None:
    """`run_controller`, on the event loop that runs."""
    watch = asyncio.get_running_loop().create_task(_end_with_parent())
    front = Front()
    port = config.controller[1] if config.controller else 0
    server, port = await listen(front, config.key, bind=config.bind, port=port)
    try:
        if started is not None:
            started(config.reached_at, port)
        if config.zookeeper is None:
            leader = Leader(config, ledger_of(config), NoRecord())
            await front.lead(leader)
            return
        client = await asyncio.get_running_loop().run_in_executor(None, _session, config)
        try:
            name = f"{config.reached_at}:{port}"
            while not await Term(config, client, front, name).run():
                log.info("another controller leads; following it")
        finally:
            client.close()
    finally:
        watch.cancel()
        server.close()


async def _end_with_parent() -> None:
    """A controller whose parent is gone ends at once; another candidate leads."""
    parent = os.getppid()
    while os.getppid() == parent:
        await asyncio.sleep(AGAIN_S)
    log.warning("the parent process is gone")
    os._exit(1)


def ledger_of(config: ControllerConfig) -> Ledger:
    """The state before the first event."""
    balance = config.balancing
    most = 1 if balance is None else balance.moves_max
    return config.hosting.ledger(
        config.load_dataflow(), wanted=config.sites, first=config.first, parallel_max=most
    )


def _session(config: ControllerConfig) -> Client:
    assert config.zookeeper is not None
    return connect(config.zookeeper, session_timeout_s=config.session_timeout_s)


class Front:
    """Accepts connections for whoever leads in this process; refuses them while nobody does."""

    def __init__(self) -> None:
        self.leader: Leader | None = None

    async def lead(self, leader: Leader) -> None:
        """Hand connections to this leader until its term ends."""
        self.leader = leader
        try:
            await leader.run()
        finally:
            self.leader = None

    def opened(self, connection: Connection) -> None:
        """See `Owner`."""
        if self.leader is None:
            connection.close("this controller does not lead")
        else:
            connection.owner = self.leader
            self.leader.opened(connection)

    def received(self, connection: Connection, kind: Kind, body: memoryview) -> None:
        """Nothing comes before `opened`."""

    def turn_over(self, connection: Connection) -> None:
        """See `Owner`."""

    def closed(self, connection: Connection, why: str) -> None:
        """See `Owner`."""

    def writable(self, connection: Connection) -> None:
        """See `Owner`."""


class Watched:
    """A connection that is only watched."""

    def __init__(self) -> None:
        self.greeted = False

    def opened(self, connection: Connection) -> None:
        """Say who is watching."""
        greeting = encode(
            FollowerGreeting(), speaker=Role.FOLLOWER, hearer=Role.LEADER, greeting=True
        )
        connection.send(Kind.GREETING, greeting)
        connection.flush()

    def received(self, connection: Connection, kind: Kind, body: memoryview) -> None:
        """The leader's greeting: it does lead."""
        decode_greeting(body, speakers=(Role.LEADER,), hearer=Role.FOLLOWER)
        self.greeted = True

    def turn_over(self, connection: Connection) -> None:
        """Nothing to do."""

    def closed(self, connection: Connection, why: str) -> None:
        """The leader is gone, or never led."""

    def writable(self, connection: Connection) -> None:
        """Nothing to do."""


class Term:
    """From following, through being elected, to the end of the job or of the leadership."""

    def __init__(self, config: ControllerConfig, client: Client, front: Front, name: str) -> None:
        self.config = config
        self.client = client
        self.front = front
        self.name = name
        self.loop = asyncio.get_running_loop()
        self.ledger = ledger_of(config)
        self.next = 0
        self.following = True
        self.elected: asyncio.Future[Leadership | None] = self.loop.create_future()
        self.leader: Leader | None = None
        self.deposed = False
        self.seen = False

    async def run(self) -> bool:
        """Gives whether the job has ended."""
        loop = self.loop
        log_, snapshots = await loop.run_in_executor(
            None, control_log, self.client, self.config.app
        )
        known = await loop.run_in_executor(None, kept_state, snapshots)
        if known is not None:
            self.next, state = known
            restore(self.ledger, state)
            self._ended()
        watcher = log_.follow(
            self.next,
            lambda n, e: self._from_thread(self._entry, n, e),
            failed=lambda error: self._from_thread(self._follow_failed, error),
        )
        candidate = await loop.run_in_executor(None, self._candidate)
        roster = await loop.run_in_executor(None, self._roster)
        watch = loop.create_task(self._watch_leader())
        try:
            leadership = await self.elected
            watch.cancel()
            if leadership is None:
                return True
            self.following = False
            await loop.run_in_executor(None, watcher.close)
            for number, entry in await loop.run_in_executor(None, log_.read, self.next):
                self.following = True
                self._entry(number, entry)
                self.following = False
            if self.ledger.stopped:
                return True
            return await self._lead(log_, snapshots, leadership, roster)
        except Trimmed:
            log.info("the log has been trimmed meanwhile; beginning with what is kept of it")
            return False
        finally:
            watch.cancel()
            await loop.run_in_executor(None, _close, watcher, roster, candidate)

    async def _watch_leader(self) -> None:
        """A closed connection to the leader ends its term at once, not with its session.

        A leader that lives on without its node finds its token outdated at its next decision.
        """
        finder = ZooKeeperFinder(self.config, self.client)
        while True:
            address = await self.loop.run_in_executor(None, finder.leader)
            if address is not None and f"{address[0]}:{address[1]}" != self.name:
                watched = Watched()
                with suppress(OSError, TimeoutError):
                    key = self.config.key
                    connection = await dial(watched, key, address, peer="leader", timeout_s=5.0)
                    await connection.gone.wait()
                    if watched.greeted:
                        await self.loop.run_in_executor(None, finder.depose, address)
            await asyncio.sleep(AGAIN_S)

    async def _lead(
        self, log_: ControlLog, snapshots: Versioned, leadership: Leadership, roster: Roster
    ) -> bool:
        def remove(identity: str) -> None:
            for member in list(roster.members.values()):
                if member.name == identity:
                    roster.remove(member)

        def members() -> frozenset[str] | None:
            """While nobody has been seen, the roster has not been read yet."""
            if not self.seen:
                return None
            return frozenset(member.name for member in roster.members.values())

        record = ZooKeeperRecord(log_, snapshots, leadership)
        self.leader = Leader(self.config, self.ledger, record, remove=remove, members=members)
        try:
            await self.front.lead(self.leader)
        except Exception:
            if not self.deposed and candidate_leads(leadership):
                raise
            log.info("the term has ended", exc_info=True)
            return False
        return not self.deposed

    def _candidate(self) -> Candidate:
        def on_event(event: object) -> None:
            self._from_thread(self._election, event)

        return Candidate(self.client, self.config.app, self.name, on_event=on_event)

    def _roster(self) -> Roster:
        def on_event(event: object) -> None:
            self.seen |= isinstance(event, Joined | Left)
            if isinstance(event, Left):
                self._from_thread(self._left, event.member.name)

        return Roster(self.client, self.config.app, on_event=on_event)

    def _from_thread(self, function: Callable[..., None], *args: Any) -> None:
        self.loop.call_soon_threadsafe(function, *args)

    def _entry(self, number: int, entry: bytes) -> None:
        if self.following and number == self.next:
            self.next += 1
            for event in decoded(entry):
                self.ledger.apply(event)
            self._ended()

    def _ended(self) -> None:
        """Nobody takes over from a leader that ends because the job does."""
        if self.ledger.stopped and not self.elected.done():
            self.elected.set_result(None)

    def _follow_failed(self, error: BaseException) -> None:
        if not self.elected.done():
            self.elected.set_exception(error)

    def _election(self, event: object) -> None:
        if isinstance(event, Elected) and not self.elected.done():
            self.elected.set_result(event.leadership)
        elif isinstance(event, Deposed):
            self.deposed = True
            if self.leader is not None:
                self.leader.finish()

    def _left(self, identity: str) -> None:
        if self.leader is not None:
            self.leader.member_left(identity)


def candidate_leads(leadership: Leadership) -> bool:
    """Whether the leadership still holds, as far as this process knows."""
    try:
        leadership.require()
    except Exception:
        return False
    return True


def _close(*closables: Any) -> None:
    for closable in closables:
        closable.close()
