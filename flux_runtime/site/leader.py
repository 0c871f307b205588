"""One term of leading: what the controller does from its election to its end.

The leader records an event before anybody hears of it. It hosts ingress and egress, which a new
leader rebuilds from the journal and from what the copies have received. A closed connection to a
site is reported to it or noticed by it; it then removes the site from the view, which fences it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

import msgspec

from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.protocol.vocabulary import END, Node, Pair
from flux_runtime.site import control_messages as control
from flux_runtime.site.balance import Rounds
from flux_runtime.site.client_service import ClientService
from flux_runtime.site.config import ControllerConfig
from flux_runtime.site.connection import Connection
from flux_runtime.site.control_messages import Message, Role
from flux_runtime.site.host import LEADER, Host
from flux_runtime.site.intake import Intake, rebuild_egress
from flux_runtime.site.journal import Journal
from flux_runtime.site.latency import Latency
from flux_runtime.site.ledger import Event, Ledger
from flux_runtime.site.record import EventRecord
from flux_runtime.site.reports import Reports
from flux_runtime.site.shell import Link, Shell
from flux_runtime.site.snapshot import snapshot
from flux_runtime.site.stage_log import StageLog, StageNumbers
from flux_runtime.site.view_broadcaster import ViewBroadcaster
from flux_runtime.site.wire import Malformed

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

LOOK_S: Final = 0.1
ROSTER_S: Final = 0.3
"""After this a new leader has seen the members."""
LAST_WORDS_S: Final = 0.2
"""So long a leader that ends goes on sending what it has said."""
SETTLED_S: Final = 1.0
"""Sites come one after the other; copies move once no more have come for so long."""
HEARD_S: Final = 0.2
"""A site that has reported so lately may keep the only copy of a pair while the other one moves."""
SNAPSHOT_EVENTS: Final = 1000
"""Events between two snapshots; every failure makes some ten per partition."""


class Leader(Shell):
    """One term of leading.

    Args:
        config: what this process is told.
        ledger: all events before this term.
        record: where events are kept.
        remove: fences a site's identity in ZooKeeper.
        is_member: whether an identity has a seat there.
    """

    role = Role.LEADER

    def __init__(
        self,
        config: ControllerConfig,
        ledger: Ledger,
        record: EventRecord,
        *,
        remove: Callable[[str], None] = lambda _: None,
        is_member: Callable[[str], bool] = lambda _: True,
    ) -> None:
        super().__init__(config, Host(config.made(), LEADER, credits=config.credits))
        self.config: ControllerConfig = config
        self.ledger = ledger
        self.event_record = record
        self.remove = remove
        self.is_member = is_member
        self.id = uuid.uuid4().hex[:12]
        self.clients = ClientService(self)
        journal = Journal(config.folder / "journal", fsync=config.durable == "machine")
        self.intake = Intake(
            self.host,
            journal,
            window=config.window,
            on_taken=self.clients.taken,
            first=config.first,
        )
        self.began = False
        self.since = time.monotonic()
        self.resume: dict[Node, int] = {}
        self.view = ViewBroadcaster(self)
        self.pending: list[tuple[Event, Callable[[], None]]] = []
        self.more = asyncio.Event()
        self.attached: dict[int, Connection] = {}
        self.joining: set[str] = set()
        self.reports = Reports(config.run_folder, config.called)
        self.latency = Latency()
        self.rounds: Rounds | None = None
        self.committed = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.leaving: set[int] = set()
        self.separating = False
        self.joined_at = 0.0
        self.stopping = False
        self.failing: dict[int, float] = {}
        self.run_folder = RunFolder.at(config.run_folder) if config.run_folder else None
        self.stage_log = StageLog(config.run_folder, config.called, self._stage)
        self.batches = 0
        self.intake.on_fed = self.stage_log.fed_now

    # ---- life

    async def run(self) -> None:
        """Lead until the job ends or another process leads."""
        self.tasks = [
            self.loop.create_task(self._recorder()),
            self.loop.create_task(self._look()),
        ]
        for task in self.tasks:
            task.add_done_callback(self._task_done)
        self.happened({"e": "leader", "id": self.id})
        try:
            await self.ended
        finally:
            for task in self.tasks:
                task.cancel()
            self.write()
            await asyncio.sleep(0)
            for connection in list(self.open):
                if connection.transport is not None:
                    connection.transport.close()
            self.open.clear()
            self.intake.journal.close()
            self.stage_log.close()

    def _task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)

    def happened(self, event: Event, then: Callable[[], None] = lambda: None) -> None:
        """Record an event; once it is safe it is applied, and `then` is called."""
        self.pending.append((event, then))
        self.more.set()

    async def _recorder(self) -> None:
        """One write at a time; whatever happens meanwhile goes into the next."""
        while True:
            await self.more.wait()
            self.more.clear()
            pending, self.pending = self.pending, []
            if not pending:
                continue
            events = [event for event, _ in pending]
            await self.loop.run_in_executor(None, self.event_record.append, events)
            for event, then in pending:
                self.ledger.apply(event)
                then()
            self._after_events()
            await self._keep_snapshot()

    async def _keep_snapshot(self) -> None:
        """Once in a while keep the state in place of the events that led to it."""
        ledger = self.ledger
        if ledger.whole and ledger.events - ledger.kept >= SNAPSHOT_EVENTS:
            ledger.kept = ledger.events
            data = snapshot(ledger)
            await self.loop.run_in_executor(None, self.event_record.keep, data)
            self.event("log_trimmed", events=ledger.events, bytes=len(data))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.stage_log.due()
            if self.rounds is not None:
                self.rounds.tick()
            waited = time.monotonic() - self.since
            for number in set(self.ledger.sites) - set(self.attached):
                if waited > self.config.patience_s:
                    self.site_gone(number, "it did not come back to a new controller")
                elif waited > ROSTER_S and not self.is_member(self.ledger.sites[number].id):
                    self.site_gone(number, "it is no member any more")

    def stop(self, then: Callable[[], None]) -> None:
        """End the job. It is recorded, so no follower takes over from a leader that ends."""

        def stopped() -> None:
            then()
            self.broadcast(control.Stop())
            self.loop.call_later(LAST_WORDS_S, self.finish)

        self.stopping = True
        self.happened({"e": "stopped"}, stopped)

    # ---- view changes

    def _after_events(self) -> None:
        """Tell everybody what has changed since the last time, and do what follows from it."""
        self.view.publish()
        self._begin()
        self._recovered()
        self._separate()
        if self.rounds is not None:
            self.rounds.tick()
        self.schedule()

    def _recovered(self) -> None:
        """Note how long failures took; one that took no copy away took no time."""
        controller = self.ledger.controller
        if self.failing and controller is not None and controller.whole:
            took = time.monotonic() - min(self.failing.values())
            self.event("recovered", seconds=round(took, 4), sites=sorted(self.failing))
            self.failing.clear()

    def _separate(self) -> None:
        """Take copies of a pair that share an executor apart, one pair at a time (CT-4)."""
        controller = self.ledger.controller
        settled = time.monotonic() - self.joined_at > SETTLED_S
        if not self.began or not settled or self.separating or controller is None:
            return
        if (move := controller.separation(self.reports.heard(HEARD_S))) is not None:
            (stage, part), copy, site = move
            event = {"e": "move", "stage": stage, "part": part, "copy": copy, "site": site}

            def moved() -> None:
                self.separating = False

            self.separating = True
            self.moving(event, by="placement")
            self.happened(event, moved)

    def _begin(self) -> None:
        """Rebuild ingress and egress once every live site has said what it has received."""
        if self.began or self.ledger.controller is None:
            return
        if set(self.attached) < set(self.ledger.sites):
            return
        live = set(self.host.where)
        hi = {node: n for node, n in self.resume.items() if node in live}
        controller, position = self.ledger.controller, self.ledger.position
        self.intake.begin(self.ledger.leaders, controller, hi, position=position)
        rebuild_egress(self.host, controller, position=position)
        self.began = True
        balance = self.config.balancing
        if balance is not None and self.ledger.shape.copies == 2:
            self.rounds = Rounds(self, balance)
        self.event("leading", epoch=self.ledger.leaders, under_way=len(self.intake.under_way))
        self.schedule()

    def broadcast(self, message: Message) -> None:
        """Tell all sites."""
        for connection in self.attached.values():
            self.tell(connection, message)

    # ---- sites

    def speakers(self, connection: Connection) -> tuple[Role, ...]:
        """Everybody comes to the leader."""
        return (Role.SITE, Role.CLIENT, Role.FOLLOWER)

    def greeted(self, connection: Connection, link: Link, greeting: Message) -> None:
        """A site, a client or a follower says who it is."""
        match greeting:
            case control.Registration():
                self._site_greeted(connection, link, greeting)
            case control.ClientGreeting(source):
                self.clients.greeted(connection, source)
            case control.FollowerGreeting():
                connection.peer = "follower"
                self.greet(connection, Role.FOLLOWER, control.FollowerWelcome())

    def _site_greeted(self, connection: Connection, link: Link, said: control.Registration) -> None:
        identity = said.id
        connection.peer = identity
        gone = said.epoch > 0 and identity not in self.ledger.numbers
        if gone or identity in self.ledger.fenced or said.epoch > self.ledger.leaders:
            self.greet(connection, Role.SITE, control.Expulsion())
            return
        if not self.ledger.leaders:
            connection.close("not leading yet")
            return

        def attach() -> None:
            self.joining.discard(identity)
            number = self.ledger.numbers.get(identity)
            if connection in self.open and number is not None:
                self._attach(connection, link, number)
            elif number is not None:
                self.site_gone(number, "its connection was closed while it joined")

        if identity in self.ledger.numbers:
            attach()
            self._after_events()
        elif identity in self.joining:
            connection.close("it is joining on another connection")
        else:
            self.joining.add(identity)
            event = {"e": "joined", "id": identity, "address": list(said.address)}
            event |= {"host": said.host, "executor": said.executor}
            self.event("site_joined", site=identity)
            self.joined_at = time.monotonic()
            self.happened(event, attach)

    def _attach(self, connection: Connection, link: Link, number: int) -> None:
        if number in self.attached:
            connection.close("the site is connected already")
            return
        said = link.greeting
        assert isinstance(said, control.Registration)
        if said.laid_out and said.position < self.ledger.base:
            self.site_gone(number, "it knows too little of the log")
            return
        self.resume.update({Node(*node): hi for node, hi in said.resume})
        connection.peer = number
        link.site = number
        self.attached[number] = self.links[number] = connection
        self.host.reconnect(number)
        self.greet(connection, Role.SITE, control.Admission(self.ledger.leaders, number))
        self.view.catch_up(connection, said.position)
        self.tell(connection, control.Commit(self.committed))
        if self.rounds is not None:
            self.rounds.joined(number, connection)

    def site_gone(self, number: int, why: str) -> None:
        """Remove a site from the view."""
        record = self.ledger.sites.get(number)
        if record is None or number in self.leaving or self.stopping:
            return
        self.leaving.add(number)
        since = time.monotonic()

        def removed() -> None:
            """Only now: a leader that has been replaced must not fence anybody."""
            self.failing.setdefault(number, since)
            self.event("site_failed", site=record.id, number=number, why=why)
            self.loop.run_in_executor(None, self.remove, record.id)

        self.happened({"e": "failed", "site": number, "why": why}, removed)

    def member_left(self, identity: str) -> None:
        """ZooKeeper says that this incarnation has no session any more."""
        number = self.ledger.numbers.get(identity)
        if number is not None:
            self.site_gone(number, "its ZooKeeper session has ended")

    def lost(self, connection: Connection, link: Link, why: str) -> None:
        """A connection is gone."""
        self.clients.sources.pop(connection, None)
        if link.site is not None and self.attached.get(link.site) is connection:
            del self.attached[link.site]
            self.clients.on_site_gone(link.site)
            self.site_gone(link.site, f"its connection was lost: {why}")

    def offered(self, connection: Connection, link: Link, body: memoryview) -> None:
        """A client's batch."""
        self.clients.offered(connection, link, body)

    def controlled(self, connection: Connection, link: Link, message: Message) -> None:
        """A site or a client says something."""
        if link.role is Role.CLIENT:
            self.clients.asked(connection, message)
            return
        if link.site is None:
            raise Malformed("a site that is not in the view")
        if self.attached.get(link.site) is not connection:
            return
        match message:
            case control.Notices(notices):
                self._noticed(connection, notices)
            case control.LinkLost(site, why):
                self._link_lost(link.site, site, why)
            case control.Report():
                if (record := self.ledger.sites.get(link.site)) is not None:
                    self.reports.add(link.site, record.id, message)
                    self._separate()
            case control.Statistics():
                if self.rounds is not None:
                    self.rounds.answered(link.site, message)
            case control.Done(errand):
                self.clients.on_done(link.site, errand)
            case control.NotKept(batch, why):
                self.clients.unkept = (batch, why)
            case control.Reached(batch):
                self.latency.reached(batch, time.monotonic())

    def _noticed(self, connection: Connection, notices: Sequence[control.Notice]) -> None:
        """Record what nodes report; the site says it again until it hears that it is recorded."""
        pairs = self.ledger.shape.pairs()
        for notice in notices:
            if Pair(notice.stage, notice.part) not in pairs:
                raise Malformed(f"there is no partition {notice.part} of stage {notice.stage}")

        def noted() -> None:
            self.tell(connection, control.Noted(len(notices)))

        events = [{"e": "noticed", "notice": msgspec.to_builtins(notice)} for notice in notices]
        for event in events[:-1]:
            self.happened(event)
        self.happened(events[-1], noted)

    def _link_lost(self, by: int, number: int, why: str) -> None:
        """A link failure is the failure of one end (section 2.1): that which was reported first."""
        if by in self.ledger.sites and by not in self.leaving:
            self.site_gone(number, f"site {by} has lost the connection to it: {why}")

    # ---- turns and reports

    def after_turn(self) -> None:
        """Feed the ingress; pass on what ingress and egress report."""
        for notice in self.host.out.notices:
            self.happened({"e": "noticed", "notice": control.notice_to_json(notice)})
        self.host.out.notices.clear()
        if self.began:
            self.intake.pump()
            self._watch_latency()
            self.clients.read_on()
            if self.intake.ended:
                self.clients.finished()
            while self.host.ready and self.host.turn():
                pass

    def _watch_latency(self) -> None:
        """Have the collector's sites say when they have passed the batch fed last."""
        batch = self.intake.ingress.last
        if batch < END and self.latency.fed(batch, time.monotonic()):
            pair = Pair(len(self.host.dataflow.shape.widths) - 1, 0)
            for _, site, whole in self.ledger.site_of(pair):
                if whole and site in self.attached:
                    self.tell(self.attached[site], control.Watch(batch))

    def status(self) -> control.Status:
        """What the job looks like now."""
        controller = self.ledger.controller
        nodes = controller.nodes() if controller is not None else ()
        return control.Status(
            epoch=self.ledger.leaders,
            pid=os.getpid(),
            began=self.began,
            whole=controller is not None and controller.whole,
            failures=controller.failures if controller else 0,
            sites=tuple(
                control.SiteStatus(site.number, site.id, site.host, site.executor)
                for site in self.ledger.sites.values()
            ),
            copies=tuple((*node, copy.site, copy.status.name) for node, copy in nodes),
            losses=tuple((*loss.pair, control.reason(loss.why)) for loss in self.ledger.losses),
            rows=self.intake.rows,
            under_way=len(self.intake.under_way),
            latency=self.latency.summary(),
            loads=self.reports.newest,
            balance=self.rounds.status() if self.rounds is not None else None,
        )

    def _stage(self) -> tuple[control.Status, StageNumbers]:
        """What the log of the stage says now."""
        if self.began and self.intake.ingress.last < END:
            self.batches = self.intake.ingress.last + 1
        waiting = len(self.intake.waiting)
        return self.status(), StageNumbers(self.batches, waiting, self.committed)

    def moving(self, event: Event, *, by: str) -> None:
        """Note that a move is asked for."""
        where = {"stage": event["stage"], "part": event["part"], "copy": event["copy"]}
        self.event("move", **where, to=event["site"], by=by)

    def event(self, kind: str, **details: Any) -> None:
        """Note an event in the run folder."""
        if self.run_folder is not None:
            self.run_folder.event(kind, self.config.called, **details)
