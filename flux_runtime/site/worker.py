"""A site: `run_site(config)` hosts copies of partitions until the job ends or it is fenced.

Leader, view and neighbours are the business of `SiteState`; this hands it what happens, carries
out its instructions, and serves readers. It ends when its parent is gone, when it is removed from
the view, and when its ZooKeeper session is lost; a restart is a new incarnation, which takes
standbys.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from flux_runtime.protocol.dataflow import Rows
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.site import control_messages as control
from flux_runtime.site import site_steps as steps
from flux_runtime.site.codec import ROWS, RowsEncoder
from flux_runtime.site.config import Fenced, SiteConfig, SpillTo
from flux_runtime.site.connection import Connection, dial, listen
from flux_runtime.site.control_messages import Message, Results, Role, encode
from flux_runtime.site.copies import LEADER
from flux_runtime.site.finding import Finder, finder
from flux_runtime.site.idle import IdleSelector, run
from flux_runtime.site.keeping import Keeping
from flux_runtime.site.shell import Link, Shell
from flux_runtime.site.site_state import SiteState
from flux_runtime.site.spilling import UNLIMITED, SiteStorage, Spilling
from flux_runtime.site.statistics import SiteReport
from flux_runtime.site.steps import Step
from flux_runtime.site.together import together
from flux_runtime.site.wire import Kind


def send_results(
    connection: Connection,
    encoder: RowsEncoder,
    results: list[tuple[int, Rows]],
    *,
    offset: int,
    ended: bool,
) -> None:
    """Send results, then how far they reach.

    Args:
        connection: to the reader.
        encoder: of that connection.
        results: (batch, rows).
        offset: where the reader is to go on.
        ended: whether nothing comes behind that.
    """
    for batch, rows in results:
        number = encoder.schema_number(rows.schema, connection.out)
        payload = encoder.payload(rows, number)
        connection.send(Kind.RESULTS, ROWS.pack(batch, number), payload)
    answer = encode(Results(offset, ended), speaker=Role.SITE, hearer=Role.CLIENT)
    connection.send(Kind.CONTROL, answer)


log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

LOOK_S: Final = 0.25
AGAIN_S: Final = 0.05
DIAL_TIMEOUT_S: Final = 5.0
"""So long an attempt to connect may take; then it is tried again."""
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
        with finder(config) as of_leader:
            await Worker(config, of_leader, started, idle).run()

    gc.callbacks.append(_freeze)
    try:
        run(main)
    finally:
        gc.callbacks.remove(_freeze)
        gc.unfreeze()


def _freeze(phase: str, info: Mapping[str, int]) -> None:
    """Spare what a full collection has found in use the next one, which would stop the site.

    A collection of four million keys takes 3 s. Counting references still frees such objects; only
    cycles of them, of which a site makes few, stay until it ends.
    """
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


class Reader:
    """A client that waits for results."""

    def __init__(self, offset: int, max_bytes: int) -> None:
        self.offset = offset
        self.max_bytes = max_bytes


def _forget(dialing: asyncio.Task[Connection]) -> None:
    """Nobody waits for this attempt any more; it may have come to its end all the same."""
    if not dialing.cancelled() and dialing.exception() is None:
        dialing.result().close("another leader has been elected")


class Worker(Shell):
    """One incarnation of a site."""

    role = Role.SITE

    def __init__(
        self,
        config: SiteConfig,
        finder: Finder,
        started: Callable[[int], None] | None,
        idle: IdleSelector,
    ) -> None:
        spill = SpillTo(folder=config.spill) if isinstance(config.spill, Path) else config.spill
        storage = None
        if spill is not None:
            limit = UNLIMITED if spill.disk_bytes is None else spill.disk_bytes
            storage = SiteStorage(spill.folder, max_bytes=limit)
        dataflow = (
            config.load_dataflow() if storage is not None else together(config.load_dataflow())
        )
        host = config.hosting.host(dataflow, LEADER - 1, storage)
        super().__init__(config, host)
        self.config: SiteConfig = config
        self.finder = finder
        self.started = started
        self.id = ""
        self.parent = os.getppid() if config.parent is None else config.parent
        shape = self.host.dataflow.shape
        self.state = SiteState(
            shape, session_s=config.session_timeout_s, resumes=config.hosting.resumes
        )
        self.readers: dict[Connection, Reader] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self.port = 0
        self.storage = storage
        self.spilling: Spilling | None = None
        self.watched: list[int] = []
        collecting = len(shape.widths) - 1
        self.keeping = Keeping(host, excluded=collecting)
        if spill is not None:
            self.spilling = Spilling(host, spill, excluded=collecting)
        self.report = SiteReport(self, idle, self.spilling)

    async def run(self) -> None:
        """Until the job ends."""
        server, self.port = await listen(self, self.config.key, bind=self.config.bind)
        join = self.finder.join
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

    def spawn(self, coroutine: Any) -> None:
        """Run until this site ends, or fail with it."""
        task = self.loop.create_task(coroutine)
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
            if self.state.registered and self.finder.confirmed():
                self.report.due()  # who reports may be left with the only copy of a pair

    async def _look_at_memory(self, spilling: Spilling) -> None:
        """Between two accesses the others have their turn."""
        while True:
            await asyncio.sleep(0.0 if spilling.due() else spilling.every_s)
            if self.host.busy:
                self.schedule()

    # ---- the leader

    async def _follow_leader(self) -> None:
        """Keep a connection to whoever leads."""
        since = time.monotonic()
        while True:
            address = await self.loop.run_in_executor(None, self.finder.leader)
            if address is not None:
                with suppress(OSError, asyncio.TimeoutError):
                    connection = await self._dialed(address)
                    if connection is not None:
                        await self._until_replaced(connection, address)
                    if LEADER in self.links or self.state.registered:
                        since = time.monotonic()
            if time.monotonic() - since > self.config.patience_s:
                raise Fenced(f"no controller for {self.config.patience_s:g} s")
            await asyncio.sleep(AGAIN_S)

    async def _dialed(self, address: tuple[str, int]) -> Connection | None:
        """A connection to whoever leads at an address; None if another has been elected meanwhile.

        A machine that is gone does not refuse: nobody answers, for as long as the attempt may last.
        """
        dialing = self.loop.create_task(
            dial(self, self.config.key, address, peer="leader", timeout_s=DIAL_TIMEOUT_S)
        )
        try:
            while not (await asyncio.wait({dialing}, timeout=LEADER_LOOK_S))[0]:
                now = await self.loop.run_in_executor(None, self.finder.leader)
                if now not in (None, address) and not dialing.done():
                    return None
            return dialing.result()
        finally:
            if not dialing.done():
                dialing.cancel()
                dialing.add_done_callback(_forget)

    async def _until_replaced(self, connection: Connection, address: tuple[str, int]) -> None:
        """Until the connection is closed, or another leader has been elected."""
        while not connection.gone.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(connection.gone.wait(), LEADER_LOOK_S)
                return
            now = await self.loop.run_in_executor(None, self.finder.leader)
            if now is not None and now != address:
                connection.close("another leader has been elected")

    # ---- what happens, and what is done about it

    def step(self, event: Step) -> None:
        """Hand an event to the state, and carry out what follows from it."""
        if self.ended.done():
            return
        for instruction in self.state.handle(event, self.loop.time()):
            self._carry_out(instruction)
        self.schedule()

    def _carry_out(self, instruction: Step) -> None:
        match instruction:
            case steps.Tell(link, message):
                self.tell(cast(Connection, link), message)
            case steps.Close(link, why):
                cast(Connection, link).close(why)
            case steps.Register(link):
                self._register(cast(Connection, link))
            case steps.Introduce(link):
                self._introduce(cast(Connection, link))
            case steps.FollowLeader(link):
                self._seat(cast(Connection, link), LEADER)
            case steps.Seat(link, number):
                cast(Connection, link).peer = number
                self._seat(cast(Connection, link), number)
            case steps.Dial(number, address, after_s):
                self.spawn(self._dial(number, address, after_s))
            case steps.Obey(message):
                self._obey(message)
            case steps.Fence(why):
                self.fail(Fenced(why))
            case _:
                self._carry_out_at_host(instruction)

    def _carry_out_at_host(self, instruction: Step) -> None:
        """Handles events that concern the machines of this site."""
        host = self.host
        match instruction:
            case steps.LeaveLeader():
                host.reconnect(LEADER)
            case steps.Become(number):
                self._become(number)
            case steps.Connect(number):
                host.connect(number)
                host.touch_all()
            case steps.Disconnect(number):
                host.disconnect(number)
                host.touch_all()
                self.links.pop(number, None)
            case steps.LayOut(layout):
                placed = {(Pair(copy.stage, copy.part), copy.copy): copy for copy in layout.copies}
                host.lay_out(
                    {which: copy.site for which, copy in placed.items()},
                    {which: copy.life for which, copy in placed.items()},
                    base=layout.base,
                    ingress=layout.ingress,
                    done=layout.done,
                )
            case steps.Extend(change):
                host.extend(control.log_entry(change))
            case _:
                raise TypeError(f"no instruction of a site's: {instruction}")

    def _seat(self, connection: Connection, site: int) -> None:
        self.open[connection].site = site
        self.links[site] = connection

    def _register(self, connection: Connection) -> None:
        self.host.reconnect(LEADER)  # what was under way belonged to another leader
        registration = control.Registration(
            id=self.id,
            address=(self.config.reached_at, self.port),
            host=self.config.host,
            executor=self.config.fate,
            epoch=self.state.epoch,
            position=self.host.position,
            laid_out=self.state.laid_out,
            resume=tuple(self.host.resume_points().items()),
        )
        self.greet(connection, Role.LEADER, registration)

    def _introduce(self, connection: Connection) -> None:
        introduction = control.Introduction(self.id, self.host.me, self.host.position)
        self.greet(connection, Role.SITE, introduction)

    async def _dial(self, number: int, address: tuple[str, int], after_s: float) -> None:
        """Try to reach a site once; from then on its end tells (`lost`)."""
        await asyncio.sleep(after_s)
        began = self.loop.time()
        try:
            connection = await dial(
                self, self.config.key, address, peer=number, timeout_s=DIAL_TIMEOUT_S
            )
            why = await self._opening(connection, began + DIAL_TIMEOUT_S)
        except (TimeoutError, OSError) as error:
            why = type(error).__name__
        if why:
            self.step(steps.DialFailed(number, address, began, why))

    async def _opening(self, connection: Connection, end: float) -> str:
        """Wait until both ends have proved the key; gives why they have not, else nothing."""
        try:
            await asyncio.wait_for(connection.proved.wait(), end - self.loop.time())
        except TimeoutError:
            connection.close("no handshake in time")
        return "" if connection in self.open else connection.why

    # ---- connections

    def opened(self, connection: Connection) -> None:
        """A connection has proved its key; whoever dialed speaks first."""
        super().opened(connection)
        if connection.peer == "leader":
            self.step(steps.LeaderReached(connection))
        elif connection.dialing:
            self.step(steps.SiteReached(connection, connection.peer))

    def speakers(self, connection: Connection) -> tuple[Role, ...]:
        """A site dials leaders and sites, and is dialed by sites and clients."""
        if connection.dialing:
            return (Role.LEADER if connection.peer == "leader" else Role.SITE,)
        return (Role.SITE, Role.CLIENT)

    def greeted(self, connection: Connection, link: Link, greeting: Message) -> None:
        """Somebody says who it is."""
        match greeting:
            case control.Admission(epoch, number):
                self.step(steps.Admitted(connection, epoch, number))
            case control.Expulsion():
                self.step(steps.Expelled())
            case control.Introduction():
                self.step(steps.SiteIntroduced(connection, greeting, connection.dialing))
            case control.ReaderGreeting():
                connection.peer = "client"
                self.greet(connection, Role.CLIENT, control.ReaderWelcome(self.host.me))

    def _become(self, number: int) -> None:
        self.host.become(number)
        if self.started is not None:
            self.started(number)

    def lost(self, connection: Connection, link: Link, why: str) -> None:
        """A connection is gone: the controller decides what that means."""
        self.readers.pop(connection, None)
        self.step(steps.LinkClosed(connection, why))

    # ---- what the leader says

    def controlled(self, connection: Connection, link: Link, message: Message) -> None:
        """A control message of the leader's, or of a client's."""
        if isinstance(message, control.Read):
            self.readers[connection] = Reader(message.offset, message.max_bytes)
            self.schedule()
            return
        self.step(steps.LeaderSaid(connection, message))

    def _obey(self, message: Message) -> None:
        """Handles what the leader wants of this site alone."""
        leader = self.links[LEADER]
        match message:
            case control.Trim(below):
                self.host.trim(below)
            case control.Commit(offset):
                self.host.commit(offset)
            case control.ResetStatistics() | control.RequestStatistics():
                self.report.asked(leader, message)
            case control.SetMemory(size, errand):
                if self.spilling is not None:
                    self.spilling.lend(size)
                self.tell(leader, control.Done(errand))
            case control.Keep(batch, folder):
                self.keeping.ask(batch, folder)
            case control.Ended(batches):
                self.host.last = batches
            case control.Watch(batch):
                if len(self.watched) < WATCHED_MAX:
                    self.watched.append(batch)
            case control.CutLink(site, errand):
                if site in self.links:
                    self.links[site].close("cut on demand")
                self.tell(leader, control.Done(errand))
            case control.Stop():
                self.finish()

    # ---- readers

    def after_turn(self) -> None:
        """Pass notices on and answer readers."""
        if notices := self.host.take_notices():
            self.step(steps.NodesNoticed(notices))
        leader = self.links.get(LEADER)
        if self.watched and leader is not None:
            self._look_for_watched(leader)
        why = self.keeping.look()
        if why and leader is not None:  # whoever leads next is asked, and asks, again
            message = control.reason(f"{self.id} on {self.config.host}: {why}")
            self.tell(leader, control.NotKept(self.keeping.batch, message))
        if (again_s := self.keeping.again_s) is not None:
            self.schedule_within(again_s)
        if self.readers:
            self._serve()

    def _look_for_watched(self, leader: Connection) -> None:
        """Say which of the watched batches the collector has passed."""
        here = self.host.results()
        for batch in [b for b in self.watched if here is None or here.ended or b < here.offset]:
            self.watched.remove(batch)
            if here is not None:
                self.tell(leader, control.Reached(batch))

    def _serve(self) -> None:
        here = self.host.results()
        for connection, reader in list(self.readers.items()):
            if here is None:
                self.tell(connection, control.Elsewhere())
                del self.readers[connection]
                continue
            collector, reached, ended = here
            if reached > reader.offset or ended:
                encoder = self.open[connection].encoder
                results = collector.after(reader.offset, reader.max_bytes)
                cut = bool(results) and results[-1][0] < collector.last
                offset = results[-1][0] + 1 if cut else max(reached, reader.offset)
                send_results(connection, encoder, results, offset=offset, ended=ended and not cut)
                del self.readers[connection]
