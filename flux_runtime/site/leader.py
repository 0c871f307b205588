"""One term of leading: what a controller does from its election to its end.

All decisions are those of `LeaderState`. This hands it what happens, connections, messages, time,
and carries out its instructions. It hosts the ingress, which goes on from the journal when another
process leads.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable
from typing import Any, Final, cast

from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.protocol.vocabulary import END, Pair
from flux_runtime.site import control_messages as control
from flux_runtime.site import leader_steps as steps
from flux_runtime.site.codec import OFFER
from flux_runtime.site.config import ControllerConfig
from flux_runtime.site.connection import Connection
from flux_runtime.site.control_messages import Message, Role
from flux_runtime.site.copies import LEADER
from flux_runtime.site.journal import Journal, Key
from flux_runtime.site.leader_state import LeaderState
from flux_runtime.site.ledger import Event, Ledger
from flux_runtime.site.record import EventRecord
from flux_runtime.site.shell import Link, Shell
from flux_runtime.site.stage_log import Reports, StageLog, StageNumbers
from flux_runtime.site.steps import Step
from flux_runtime.site.wire import Malformed

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

LOOK_S: Final = 0.1
DRAIN_S: Final = 0.2
"""Seconds in which a leader that ends goes on sending what it has said."""
OFFERS_MAX: Final = 256
"""Offers that wait to be fed; above it clients are not read."""


class Leader(Shell):
    """One term of leading.

    Args:
        config: what this process is told.
        ledger: all events before this term.
        record: where events are kept.
        remove: fences a site's identity in ZooKeeper.
        members: identities that have a seat there; None: not known yet.
    """

    role = Role.LEADER

    def __init__(
        self,
        config: ControllerConfig,
        ledger: Ledger,
        record: EventRecord,
        *,
        remove: Callable[[str], None] = lambda _: None,
        members: Callable[[], frozenset[str] | None] = lambda: None,
    ) -> None:
        super().__init__(config, config.hosting.host(config.load_dataflow(), LEADER))
        self.config: ControllerConfig = config
        self.state = LeaderState(
            ledger,
            patience_s=config.patience_s,
            balance=config.balancing,
            now=self.loop.time(),
        )
        self.event_record = record
        self.remove = remove
        self.members = members
        journal = Journal(config.folder / "journal", fsync=config.durable == "machine")
        self.intake = config.hosting.intake(
            self.host,
            journal,
            window=config.window,
            on_taken=lambda source, key: self.step(steps.OfferSafe(source, key)),
            first=config.first,
        )
        self.unrecorded: list[Event] = []
        self.unkept: steps.KeepState | None = None
        self.more = asyncio.Event()
        self.feeding = False
        self.fed = -1
        self.reports = Reports(config.run_folder, config.called)
        self.run_folder = RunFolder.at(config.run_folder) if config.run_folder else None
        self.stage_log = StageLog(config.run_folder, config.called, self._stage)
        self.batches = 0
        self.intake.on_fed = self.stage_log.fed_now

    # ---- life

    async def run(self) -> None:
        """Lead until the job ends or another process leads."""
        tasks = [self.loop.create_task(self._recorder()), self.loop.create_task(self._look())]
        for task in tasks:
            task.add_done_callback(self._task_done)
        try:
            self.step(steps.Elected(uuid.uuid4().hex[:12]))
            await self.ended
        finally:
            for task in tasks:
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

    def step(self, event: Step) -> None:
        """Hand an event to the state, and carry out what follows from it."""
        if self.ended.done():
            return
        for instruction in self.state.handle(event, self.loop.time()):
            self._carry_out(instruction)
        self.schedule()

    async def _recorder(self) -> None:
        """One write at a time; whatever happens meanwhile goes into the next."""
        while True:
            await self.more.wait()
            self.more.clear()
            events, self.unrecorded = self.unrecorded, []
            if events:
                await self.loop.run_in_executor(None, self.event_record.append, events)
                self.step(steps.Recorded(len(events)))
            if (keep := self.unkept) is not None:
                self.unkept = None
                await self.loop.run_in_executor(None, self.event_record.keep, keep.state)
                self.event("log_trimmed", events=keep.events, bytes=len(keep.state))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            self.stage_log.due()
            self.step(steps.Tick(self.members()))

    def member_left(self, identity: str) -> None:
        """ZooKeeper says that this incarnation has no session any more."""
        self.guarded(self.step, steps.MemberLeft(identity))

    # ---- instructions

    def _carry_out(self, instruction: Step) -> None:
        match instruction:
            case steps.Tell(link, message):
                self.tell(cast(Connection, link), message)
            case steps.Greet(link, hearer, greeting):
                self.greet(cast(Connection, link), hearer, greeting)
            case steps.Close(link, why):
                cast(Connection, link).close(why)
            case steps.Record(event):
                self.unrecorded.append(event)
                self.more.set()
            case steps.KeepState():
                self.unkept = instruction
                self.more.set()
            case steps.Fence(identity):
                self.loop.run_in_executor(None, self.remove, identity)
            case steps.Note(kind, details):
                self.event(kind, **details)
            case steps.NoteLoss(pair, why):
                self._note_loss(pair, why)
            case steps.KeepReport(site, identity, report):
                self.reports.add(site, identity, report)
            case steps.Committed(offset):
                self.stage_log.committed(offset)
            case steps.AnswerStatus(link):
                self.tell(cast(Connection, link), self.status())
            case steps.EndInput():
                self.intake.finish()
            case steps.End():
                self.loop.call_later(DRAIN_S, self.finish)
            case _:
                self._carry_out_at_host(instruction)

    def _carry_out_at_host(self, instruction: Step) -> None:
        """Handles events that concern ingress and egress, and the sites that they speak to."""
        host = self.host
        match instruction:
            case steps.Connect(site):
                host.connect(site)
            case steps.Disconnect(site):
                host.disconnect(site)
                self.links.pop(site, None)
            case steps.Attach(link, site):
                connection = cast(Connection, link)
                connection.peer = site
                self.open[connection].site = site
                self.links[site] = connection
                host.reconnect(site)
            case steps.LayOut(layout):
                host.lay_out(
                    layout.placement,
                    layout.lives,
                    base=layout.at,
                    ingress=layout.ingress,
                    done=layout.done,
                )
            case steps.Extend(entry):
                host.extend(entry)
            case steps.TrimLog(below):
                host.trim(below)
            case steps.RebuildEnds():
                self._rebuild_ends(instruction)
            case _:
                raise TypeError(f"no instruction of a leader's: {instruction}")

    def _rebuild_ends(self, request: steps.RebuildEnds) -> None:
        self.intake.begin(
            request.epoch, request.controller, request.received, position=request.position
        )
        self.feeding = True
        self.event("leading", epoch=request.epoch, under_way=len(self.intake.under_way))

    def _note_loss(self, pair: Pair, why: str) -> None:
        log.error("partition %s of stage %s has lost both copies: %s", pair.part, pair.stage, why)
        under_way = [number for number, _, _ in self.intake.under_way]
        self.event(
            "data_loss",
            stage=pair.stage,
            part=pair.part,
            why=why,
            lost="the state of this partition and what it had received and not passed on",
            batches_not_everywhere=[under_way[0], under_way[-1]] if under_way else [],
        )

    # ---- connections

    def speakers(self, connection: Connection) -> tuple[Role, ...]:
        """Everybody comes to the leader."""
        return (Role.SITE, Role.CLIENT, Role.FOLLOWER)

    def greeted(self, connection: Connection, link: Link, greeting: Message) -> None:
        """A site, a client or a follower says who it is."""
        match greeting:
            case control.Registration(identity):
                connection.peer = identity
                self.step(steps.SiteRegistered(connection, greeting))
            case control.ClientGreeting(source):
                connection.peer = "client"
                taken = self.intake.taken.get(source)
                self.step(steps.ClientGreeted(connection, source, taken))
            case control.FollowerGreeting():
                connection.peer = "follower"
                self.step(steps.FollowerGreeted(connection))

    def controlled(self, connection: Connection, link: Link, message: Message) -> None:
        """A site or a client says something."""
        if link.role is Role.CLIENT:
            self.step(steps.ClientSaid(connection, message))
        elif link.site is None:
            raise Malformed("a site that is not in the view")
        else:
            self.step(steps.SiteSaid(connection, message))

    def lost(self, connection: Connection, link: Link, why: str) -> None:
        """A connection is gone."""
        self.step(steps.LinkClosed(connection, why))

    def offered(self, connection: Connection, link: Link, body: memoryview) -> None:
        """A client's batch: its key, then rows."""
        source = self.state.clients.sources.get(connection)
        if source is None or len(body) < OFFER.size:
            raise Malformed("not an offer of a client's")
        batch, offset, schema = OFFER.unpack_from(body)
        rows = link.decoder.rows(body[OFFER.size :], schema)
        key: Key = (batch, offset)
        if not (0 <= batch < END and 0 <= offset < END):
            raise Malformed("offers count from zero")
        if key <= self.intake.taken.get(source, (-1, -1)):
            self.tell(connection, control.Taken(key))
        elif not self.intake.takes(source, key):
            self.tell(connection, control.Refusal("the input has ended: somebody finished"))
        else:
            self.intake.offer(source, key, rows)
            if len(self.intake.waiting) > OFFERS_MAX:
                connection.reading(False)
        self.schedule()

    # ---- turns and reports

    def after_turn(self) -> None:
        """Feed the ingress; pass on what ingress and egress report."""
        if notices := self.host.take_notices():
            self.step(steps.EndsNoticed(notices))
        if not self.feeding:
            return
        self.intake.pump()
        if self.fed < self.intake.last < END:
            self.fed = self.intake.last
            self.step(steps.Fed(self.fed))
        if self.intake.ended and not self.state.clients.ended:
            self.step(steps.InputEnded(self.intake.batches))
        if len(self.intake.waiting) < OFFERS_MAX // 2:
            for client in self.state.clients.sources:
                cast(Connection, client).reading(True)
        while self.host.busy and self.host.turn():
            pass

    def status(self) -> control.Status:
        """The state of the job now."""
        under_way = len(self.intake.under_way)
        return self.state.status(pid=os.getpid(), rows=self.intake.rows, under_way=under_way)

    def _stage(self) -> tuple[control.Status, StageNumbers]:
        """The log of the stage as it is now."""
        if self.feeding and self.intake.last < END:
            self.batches = self.intake.last + 1
        waiting = len(self.intake.waiting)
        return self.status(), StageNumbers(self.batches, waiting, self.state.committed)

    def event(self, kind: str, **details: Any) -> None:
        """Note an event in the run folder."""
        if self.run_folder is not None:
            self.run_folder.event(kind, self.config.called, **details)
