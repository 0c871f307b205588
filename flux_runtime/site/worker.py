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
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from flux_runtime.protocol.messages import Notice
from flux_runtime.protocol.vocabulary import Pair, Status
from flux_runtime.site.codec import entry_from_json, notice_to_json
from flux_runtime.site.collector import Collector, next_offset
from flux_runtime.site.config import Fenced, SiteConfig, SpillTo
from flux_runtime.site.connection import Connection, dial, listen
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

VERSION: Final = 1
LOOK_S: Final = 0.25
LEADER_LOOK_S: Final = 1.0


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
        self.neighbours = Neighbours(self)
        self.readers: dict[Connection, Reader] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.storage = storage
        self.spilling: Spilling | None = None
        self.report = SiteReport(self, idle)
        self.watched: list[int] = []
        shape = self.host.dataflow.shape
        self.collector = Pair(len(shape.widths) - 1, 0)
        self.keeping = Keeping(host, excluded=self.collector.stage)
        if spill is not None:
            self.spilling = Spilling(host, spill, excluded=self.collector.stage)

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
            resume = [[*node, hi] for node, hi in self.host.resume_points().items()]
            self.greet(
                connection,
                {
                    "v": VERSION,
                    "role": "site",
                    "id": self.id,
                    "address": [self.config.reached_at, self.port],
                    "host": self.config.host,
                    "executor": self.config.fate,
                    "epoch": self.epoch,
                    "log": self.host.position,
                    "laid_out": self.laid_out,
                    "resume": resume,
                },
            )
        elif connection.dialing:
            self.greet_site(connection)

    def greet_site(self, connection: Connection) -> None:
        """Tell another site who this one is."""
        me = self.host.me
        greeting = {"v": VERSION, "role": "site", "id": self.id, "site": me}
        self.greet(connection, {**greeting, "view": self.host.position})

    def greeted(self, connection: Connection, link: Link) -> None:
        """Somebody says who it is."""
        said = link.greeting or {}
        if said["v"] != VERSION:
            raise Malformed(f"version {said['v']}")
        match said["role"]:
            case "leader":
                self._leader_greeted(connection, link, said)
            case "site":
                self.neighbours.greeted(connection, link)
            case "client":
                connection.peer = "client"
                self.greet(connection, {"v": VERSION, "role": "site", "site": self.host.me})
            case other:
                raise Malformed(f"no role {other!r}")

    def _leader_greeted(self, connection: Connection, link: Link, said: dict[str, Any]) -> None:
        if said.get("fenced"):
            self.fail(Fenced("the controller has removed this site from the view"))
            return
        if said["epoch"] < self.epoch:
            raise Malformed(f"leader {said['epoch']} after {self.epoch}")
        self.epoch = said["epoch"]
        if not self.registered:
            self.registered = True
            self._become(said["site"])
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

    def controlled(self, connection: Connection, link: Link, message: dict[str, Any]) -> None:
        """A control message of the leader's, or of a client's."""
        if link.site != LEADER:
            self._asked(connection, message)
            return
        match message["c"]:
            case "sites":
                self.neighbours.follow(message["sites"])
            case "layout":
                if not self.laid_out:
                    self.laid_out = True
                    copies = [(Pair(s, p), c, at, life) for s, p, c, at, life in message["layout"]]
                    self.host.lay_out(
                        {(pair, c): at for pair, c, at, _ in copies},
                        {(pair, c): life for pair, c, _, life in copies},
                        base=message["base"],
                    )
            case "log":
                for i, value in enumerate(message["entries"], message["from"]):
                    if i == self.host.position:
                        self.guarded(self.host.extend, *entry_from_json(value))
            case "noted":
                del self.notices[: message["n"]]
                self.told -= message["n"]
            case "trim":
                self.host.trim(message["below"])
            case "commit":
                self._commit(message["offset"])
            case "statistics":
                self.report.controlled(connection, message)
            case "memory":
                if self.spilling is not None:
                    self.spilling.lend(message["bytes"])
                self.tell(connection, {"c": "did", "errand": message["errand"]})
            case "keep":
                self.keeping.ask(message["batch"], message["folder"])
                self.schedule()
            case "watch":
                self.watched.append(int(message["batch"]))
            case "cut":
                if message["site"] != LEADER and message["site"] in self.links:
                    self.links[message["site"]].close("cut on demand")
                self.tell(connection, {"c": "did", "errand": message["errand"]})
            case "stop":
                self.finish()
            case other:
                raise Malformed(f"no command {other!r}")

    def _commit(self, offset: int) -> None:
        for node, segment in self.host.segments():
            if node.pair == self.collector and isinstance(segment.operator, Collector):
                segment.operator.commit(offset)
                self.host.ready[node] = None

    # ---- readers

    def _asked(self, connection: Connection, message: dict[str, Any]) -> None:
        match message:
            case {"c": "read", "offset": int(offset), "max": int(max_bytes)}:
                self.readers[connection] = Reader(offset, max_bytes)
                self.schedule()
            case _:
                raise Malformed("not a question for a site")

    def after_turn(self) -> None:
        """Pass notices on and answer readers."""
        self.notices += self.host.out.notices
        self.host.out.notices.clear()
        leader = self.links.get(LEADER)
        if leader is not None and self.told < len(self.notices):
            new = [notice_to_json(n) for n in self.notices[self.told :]]
            self.told = len(self.notices)
            self.tell(leader, {"c": "notices", "notices": new})
        if self.watched and leader is not None:
            self._look_for_watched(leader)
        why = self.keeping.look()
        if why and leader is not None:  # whoever leads next is asked, and asks, again
            said = f"{self.id} on {self.config.host}: {why}"
            self.tell(leader, {"c": "unkept", "batch": self.keeping.batch, "why": said})
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
                self.tell(leader, {"c": "reached", "batch": batch})

    def _serve(self) -> None:
        here = [s for n, s in self.host.segments() if n.pair == self.collector]
        active = [s for s in here if s.status is not Status.STANDBY]
        for connection, reader in list(self.readers.items()):
            if not active:
                self.tell(connection, {"c": "elsewhere"})
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
