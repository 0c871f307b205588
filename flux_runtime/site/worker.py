"""A site: `run_site(config)` hosts copies of partitions until the job ends or it is fenced.

It registers with whoever leads, keeps one connection to every other site, reads the controller's
log, and tells the controller of closed connections. It ends when its parent is gone, when it is
removed from the view, and when its ZooKeeper session is lost; a restart is a new incarnation, which
takes standbys.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from flux_runtime.protocol.messages import Notice
from flux_runtime.protocol.vocabulary import Pair, Status
from flux_runtime.site import control_messages as control
from flux_runtime.site.collector import Collector, next_offset
from flux_runtime.site.config import Fenced, SiteConfig, SpillTo
from flux_runtime.site.connection import Connection, dial, listen
from flux_runtime.site.control_messages import Message, Role
from flux_runtime.site.finding import Finder, finder
from flux_runtime.site.host import LEADER, Host
from flux_runtime.site.idle import IdleSelector, run
from flux_runtime.site.keeping import Keeping
from flux_runtime.site.neighbours import AGAIN_S, DIAL_TIMEOUT_S, Neighbours
from flux_runtime.site.results import send_results
from flux_runtime.site.shell import Link, Shell
from flux_runtime.site.spilling import UNLIMITED, SiteStorage, Spilling
from flux_runtime.site.statistics import SiteReport
from flux_runtime.site.together import together
from flux_runtime.site.wire import Malformed

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

LOOK_S: Final = 0.25
LEADER_LOOK_S: Final = 1.0
WATCHED_MAX: Final = 4096
"""Batches that are watched at once; a leader watches far fewer."""


def run_site(config: SiteConfig, *, started: Callable[[int], None] | None = None) -> None:
    """Host copies of partitions until the controller ends the job.

    Args:
        config: what this site is told.
        started: called with the site's number once it is registered.

    Raises:
        Fenced: this incarnation must not go on; start a new one.
        SessionProblem: ZooKeeper cannot be reached.
    """

    async def main(idle: IdleSelector) -> None:
        with finder(config) as found:
            await Worker(config, found, started, idle).run()

    run(main)


class Reader:
    """A client that waits for results."""

    def __init__(self, offset: int, max_bytes: int) -> None:
        self.offset = offset
        self.max_bytes = max_bytes


class Worker(Shell):
    """One incarnation of a site."""

    role = Role.SITE

    def __init__(
        self,
        config: SiteConfig,
        found: Finder,
        started: Callable[[int], None] | None,
        idle: IdleSelector,
    ) -> None:
        spill = SpillTo(folder=config.spill) if isinstance(config.spill, Path) else config.spill
        storage = None
        if spill is not None:
            limit = UNLIMITED if spill.disk_bytes is None else spill.disk_bytes
            storage = SiteStorage(spill.folder, max_bytes=limit)
        dataflow = config.made() if storage is not None else together(config.made())
        host = Host(dataflow, LEADER - 1, credits=config.credits, storage=storage)
        super().__init__(config, host)
        self.config: SiteConfig = config
        self.found = found
        self.started = started
        self.id = ""
        self.parent = os.getppid() if config.parent is None else config.parent
        self.registered = False
        self.laid_out = False
        self.epoch = 0
        self.notices: list[Notice] = []
        self.told = 0
        self.neighbours = Neighbours(self, introduce=self.greet_site, spawn=self.spawn)
        self.readers: dict[Connection, Reader] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.storage = storage
        self.spilling: Spilling | None = None
        self.watched: list[int] = []
        shape = self.host.dataflow.shape
        self.collector = Pair(len(shape.widths) - 1, 0)
        self.keeping = Keeping(host, excluded=self.collector.stage)
        if spill is not None:
            self.spilling = Spilling(host, spill, excluded=self.collector.stage)
        self.report = SiteReport(self, idle, self.spilling)

    async def run(self) -> None:
        """Until the job ends."""
        server, self.port = await listen(self, self.config.key, bind=self.config.bind)
        join = self.found.join
        self.id = await self.loop.run_in_executor(None, join, self.config, self.port, self._fence)
        self.spawn(self._follow_leader())
        self.spawn(self._watch_parent())
        if self.spilling is not None:
            self.spawn(self._look_at_memory(self.spilling))
        try:
            await self.ended
        finally:
            for task in self.tasks:
                task.cancel()
            server.close()
            self.write()
            for connection in list(self.open):
                if connection.transport is not None:
                    connection.transport.close()
            self.open.clear()
            if self.storage is not None:
                self.storage.close()
            await asyncio.sleep(0)

    def spawn(self, made: Any) -> None:
        """Run until this site ends, or fail with it."""
        task = self.loop.create_task(made)
        self.tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self.fail(task.exception() or RuntimeError())

    def _fence(self, why: str) -> None:
        """From any thread: this incarnation must not go on."""
        self.loop.call_soon_threadsafe(self.fail, Fenced(why))

    async def _watch_parent(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            if os.getppid() != self.parent:
                self.fail(Fenced("the parent process is gone"))
            if self.registered:
                self.report.due()

    async def _look_at_memory(self, spilling: Spilling) -> None:
        """Between two accesses the others have their turn."""
        while True:
            await asyncio.sleep(0.0 if spilling.due() else spilling.every_s)
            if self.host.ready:
                self.schedule()

    # ---- the leader

    async def _follow_leader(self) -> None:
        """Keep a connection to whoever leads."""
        since = time.monotonic()
        while True:
            address = await self.loop.run_in_executor(None, self.found.leader)
            if address is not None:
                with suppress(OSError, asyncio.TimeoutError):
                    connection = await dial(
                        self,
                        self.config.key,
                        address,
                        peer="leader",
                        timeout_s=DIAL_TIMEOUT_S,
                    )
                    await self._until_replaced(connection, address)
                    if LEADER in self.links or self.registered:
                        since = time.monotonic()
            if time.monotonic() - since > self.config.patience_s:
                raise Fenced(f"no controller for {self.config.patience_s:g} s")
            await asyncio.sleep(AGAIN_S)

    async def _until_replaced(self, connection: Connection, address: tuple[str, int]) -> None:
        """Until the connection is closed, or another leader has been elected."""
        looked = time.monotonic()
        while connection.transport is not None and not connection.transport.is_closing():
            await asyncio.sleep(AGAIN_S)
            if time.monotonic() - looked > LEADER_LOOK_S:
                looked = time.monotonic()
                now = await self.loop.run_in_executor(None, self.found.leader)
                if now is not None and now != address:
                    connection.close("another leader has been elected")

    def opened(self, connection: Connection) -> None:
        """A connection has proved its key; whoever dialed speaks first."""
        super().opened(connection)
        if connection.peer == "leader":
            self.host.reconnect(LEADER)  # what was under way belonged to another leader
            registration = control.Registration(
                id=self.id,
                address=(self.config.reached_at, self.port),
                host=self.config.host,
                executor=self.config.fate,
                epoch=self.epoch,
                position=self.host.position,
                laid_out=self.laid_out,
                resume=tuple(self.host.resume_points().items()),
            )
            self.greet(connection, Role.LEADER, registration)
        elif connection.dialing:
            self.greet_site(connection)

    def greet_site(self, connection: Connection) -> None:
        """Tell another site who this one is."""
        introduction = control.Introduction(self.id, self.host.me, self.host.position)
        self.greet(connection, Role.SITE, introduction)

    def speakers(self, connection: Connection) -> tuple[Role, ...]:
        """A site dials leaders and sites, and is dialed by sites and clients."""
        if connection.dialing:
            return (Role.LEADER if connection.peer == "leader" else Role.SITE,)
        return (Role.SITE, Role.CLIENT)

    def greeted(self, connection: Connection, link: Link, greeting: Message) -> None:
        """Somebody says who it is."""
        match greeting:
            case control.Admission(epoch, number):
                self._admitted(connection, link, epoch, number)
            case control.Expulsion():
                self.fail(Fenced("the controller has removed this site from the view"))
            case control.Introduction():
                self.neighbours.greeted(connection, link)
            case control.ReaderGreeting():
                connection.peer = "client"
                self.greet(connection, Role.CLIENT, control.ReaderWelcome(self.host.me))

    def _admitted(self, connection: Connection, link: Link, epoch: int, number: int) -> None:
        if epoch < self.epoch:
            raise Malformed(f"leader {epoch} after {self.epoch}")
        if self.registered and number != self.host.me:
            raise Malformed(f"this is site {self.host.me}, not {number}")
        self.epoch = epoch
        if not self.registered:
            self.registered = True
            self._become(number)
        link.site = LEADER
        self.links[LEADER] = connection
        self.told = 0
        self.schedule()

    def _become(self, number: int) -> None:
        mine = self.host.peers.pop(self.host.me)
        self.host.me = number
        self.host.peers[number] = mine
        if self.started is not None:
            self.started(number)

    def lost(self, connection: Connection, link: Link, why: str) -> None:
        """A connection is gone: the controller decides what that means."""
        self.readers.pop(connection, None)
        if connection.peer == "leader":
            self.host.reconnect(LEADER)
        elif isinstance(connection.peer, int):
            self.neighbours.lost(connection.peer, why)

    # ---- what the leader says

    def controlled(self, connection: Connection, link: Link, message: Message) -> None:
        """A control message of the leader's, or of a client's."""
        if isinstance(message, control.Read):
            self.readers[connection] = Reader(message.offset, message.max_bytes)
            self.schedule()
            return
        if link.site != LEADER:
            raise Malformed("no business of a site's")
        match message:
            case control.Sites(sites):
                self.neighbours.follow(sites)
            case control.Layout(copies, base):
                if not self.laid_out:
                    self._lay_out(copies, base)
            case control.Log(start, entries):
                self._extend(start, entries)
            case control.Noted(count):
                if count > self.told:
                    raise Malformed(f"{count} notices are recorded, {self.told} were told")
                del self.notices[:count]
                self.told -= count
            case control.Trim(below):
                self.host.trim(below)
            case control.Commit(offset):
                self._commit(offset)
            case control.ResetStatistics() | control.RequestStatistics():
                self.report.asked(connection, message)
            case control.SetMemory(size, errand):
                if self.spilling is not None:
                    self.spilling.lend(size)
                self.tell(connection, control.Done(errand))
            case control.Keep(batch, folder):
                self.keeping.ask(batch, folder)
                self.schedule()
            case control.Watch(batch):
                if len(self.watched) < WATCHED_MAX:
                    self.watched.append(batch)
            case control.CutLink(site, errand):
                if site in self.links:
                    self.links[site].close("cut on demand")
                self.tell(connection, control.Done(errand))
            case control.Stop():
                self.finish()

    def _lay_out(self, copies: Sequence[control.PlacedCopy], base: int) -> None:
        """Take up the copies that stand here.

        Raises:
            Malformed: it is no layout of this dataflow, or has this new site go on with a copy.
        """
        placed = {(Pair(copy.stage, copy.part), copy.copy): copy for copy in copies}
        shape = self.host.dataflow.shape
        every = {(pair, copy) for pair in shape.pairs() for copy in range(shape.copies)}
        if not placed.keys() <= every or {pair for pair, _ in placed} != set(shape.pairs()):
            raise Malformed("a layout of another dataflow")
        if any(copy.life for copy in copies if copy.site == self.host.me):
            raise Malformed(f"site {self.host.me} is new and has no copy to go on with")
        self.laid_out = True
        self.host.lay_out(
            {which: copy.site for which, copy in placed.items()},
            {which: copy.life for which, copy in placed.items()},
            base=base,
        )

    def _extend(self, start: int, entries: Sequence[control.ViewChange]) -> None:
        """Take the entries of the log that are new.

        Raises:
            Malformed: some are missing in between, or name copies that do not exist.
        """
        if not self.laid_out or start > self.host.position:
            raise Malformed(f"the log from {start} on, at {self.host.position}")
        shape = self.host.dataflow.shape
        pairs = shape.pairs()
        for entry in entries:
            copy = 0 if isinstance(entry, control.Started) else entry.copy
            if Pair(entry.stage, entry.part) not in pairs or copy >= shape.copies:
                raise Malformed(f"a view change of another dataflow: {entry}")
        for entry in entries[self.host.position - start :]:
            self.guarded(self.host.extend, *control.log_entry(entry))

    def _commit(self, offset: int) -> None:
        for node, segment in self.host.segments():
            if node.pair == self.collector and isinstance(segment.operator, Collector):
                segment.operator.commit(offset)
                self.host.ready[node] = None

    # ---- readers

    def after_turn(self) -> None:
        """Pass notices on and answer readers."""
        self.notices += self.host.out.notices
        self.host.out.notices.clear()
        leader = self.links.get(LEADER)
        if leader is not None and self.told < len(self.notices):
            new = self.notices[self.told : self.told + control.NOTICES_MAX]
            self.told += len(new)
            self.tell(leader, control.Notices(tuple(map(control.notice_of, new))))
        if self.watched and leader is not None:
            self._look_for_watched(leader)
        why = self.keeping.look()
        if why and leader is not None:  # whoever leads next is asked, and asks, again
            said = control.reason(f"{self.id} on {self.config.host}: {why}")
            self.tell(leader, control.NotKept(self.keeping.batch, said))
        if self.readers:
            self._serve()

    def _look_for_watched(self, leader: Connection) -> None:
        """Say which of the watched batches the collector has passed."""
        here = [s for n, s in self.host.segments() if n.pair == self.collector]
        active = [next_offset(s) for s in here if s.status is not Status.STANDBY]
        reached, ended = active[0] if active else (0, True)
        for batch in [b for b in self.watched if ended or b < reached]:
            self.watched.remove(batch)
            if active:
                self.tell(leader, control.Reached(batch))

    def _serve(self) -> None:
        here = [s for n, s in self.host.segments() if n.pair == self.collector]
        active = [s for s in here if s.status is not Status.STANDBY]
        for connection, reader in list(self.readers.items()):
            if not active:
                self.tell(connection, control.Elsewhere())
                del self.readers[connection]
                continue
            reached, ended = next_offset(active[0])
            if reached > reader.offset or ended:
                encoder = self.open[connection].encoder
                collector = active[0].operator
                assert isinstance(collector, Collector)
                found = collector.after(reader.offset, reader.max_bytes)
                cut = bool(found) and found[-1][0] < collector.last
                offset = found[-1][0] + 1 if cut else max(reached, reader.offset)
                send_results(connection, encoder, found, offset=offset, ended=ended and not cut)
                del self.readers[connection]
