"""The decisions of one term of leading, without any I/O: `handle(event, now)` gives instructions.

The leader records an event before anybody hears of it: what follows from an event is in
`Record`'s continuation, and happens when `Recorded` has come. Membership, layout and view changes
are the ledger's; clients are served by a `ClientService`, the view is told by a `View`, rounds of
balancing are run by `Rounds`. All of them put their instructions where this state does (`emit`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from flux_runtime.protocol.vocabulary import Node, Pair
from flux_runtime.site import control_messages as control
from flux_runtime.site.balance import Rounds
from flux_runtime.site.client_service import ClientService
from flux_runtime.site.config import Balance
from flux_runtime.site.control_messages import Message, Role
from flux_runtime.site.latency import Latency
from flux_runtime.site.leader_steps import (
    Attach,
    ClientGreeted,
    ClientSaid,
    Close,
    Disconnect,
    Elected,
    End,
    EndsNoticed,
    Fed,
    Fence,
    FollowerGreeted,
    Greet,
    InputEnded,
    KeepReport,
    KeepState,
    LinkClosed,
    MemberLeft,
    Note,
    NoteLoss,
    OfferSafe,
    RebuildEnds,
    Record,
    Recorded,
    SiteRegistered,
    SiteSaid,
    Tell,
    Tick,
)
from flux_runtime.site.ledger import Event, Ledger, separation
from flux_runtime.site.snapshot import snapshot
from flux_runtime.site.steps import Link, Step
from flux_runtime.site.view import View
from flux_runtime.site.wire import Malformed

MEMBERSHIP_GRACE_S: Final = 0.3
"""After this a new leader has seen the members."""
LAYOUT_QUIET_S: Final = 1.0
"""Sites come one after the other; copies move once no more have come for so long."""
REPORT_FRESH_S: Final = 0.2
"""A site that has reported so lately may keep the only copy of a pair while the other one moves."""
SNAPSHOT_EVENTS: Final = 1000
"""Events between two snapshots; every failure makes some ten per partition."""
STORY_STEPS: Final = 20
"""Events that an error tells of."""


class LeaderState:
    """One term of leading.

    Args:
        ledger: all events before this term.
        patience_s: how long sites may take to come back to a new leader.
        balance: whether, and how, copies move to even out load.
        now: when the term began, in seconds.

    Attributes:
        attached: sites that are connected, and their links.
        site_of: the same the other way round.
        joining: identities whose joining is being recorded.
        leaving: numbers of sites whose failure is being recorded, or has been.
        pending: what is being recorded, and what follows from it.
        resume: what each copy of the first stage has received.
        leading: the term has been recorded, so that its epoch is its own.
        began: ingress and egress have been rebuilt.
        failing: sites that have failed, and when, until all pairs are whole again.
        committed: the offset below which results are where they belong.
        batches: of the input, once it has ended.
        reports: what each site has reported last; `heard_at`: when.
        story: the last events with the instructions that they led to.
    """

    def __init__(
        self, ledger: Ledger, *, patience_s: float, balance: Balance | None, now: float
    ) -> None:
        self.ledger = ledger
        self.patience_s = patience_s
        self.balance = balance
        self.now = self.since = now
        self.joined_at = 0.0
        self.attached: dict[int, Link] = {}
        self.site_of: dict[Link, int] = {}
        self.joining: set[str] = set()
        self.leaving: set[int] = set()
        self.pending: deque[tuple[Event, Callable[[], None]]] = deque()
        self.resume: dict[Node, int] = {}
        self.leading = False
        self.began = False
        self.separating = False
        self.stopping = False
        self.failing: dict[int, float] = {}
        self.committed = 0
        self.batches: int | None = None
        self.reports: dict[int, control.Report] = {}
        self.heard_at: dict[int, float] = {}
        self.latency = Latency()
        self.view = View(self)
        self.clients = ClientService(self)
        self.rounds: Rounds | None = None
        self.story: deque[tuple[Step, tuple[Step, ...]]] = deque(maxlen=STORY_STEPS)
        self._instructions: list[Step] = []
        self._open: set[Link] = set()

    # ---- the one mutator

    def handle(self, event: Step, now: float) -> tuple[Step, ...]:
        """Take an event; gives what is to be done about it, in this order.

        Args:
            event: one of `leader_steps.EVENTS`.
            now: seconds, of any clock that does not go back.

        Raises:
            Malformed: whoever said this is to blame; nothing has changed.
        """
        self.now = now
        try:
            self._handle(event)
        except Malformed:
            self._instructions.clear()
            raise
        except Exception as error:
            error.add_note(self.tale(event))
            raise
        result, self._instructions = tuple(self._instructions), []
        self.story.append((event, result))
        return result

    def tale(self, event: Step) -> str:
        """Events of late, for people."""
        lines = [
            f"{before} -> {', '.join(map(str, instructions))}"
            for before, instructions in self.story
        ]
        return "\n".join(["the leader's last steps:", *lines, f"{event} -> error"])

    def emit(self, instruction: Step) -> None:
        """Have something done."""
        self._instructions.append(instruction)

    def tell(self, link: Link, message: Message) -> None:
        """Have a control message sent."""
        self.emit(Tell(link, message))

    def broadcast(self, message: Message) -> None:
        """Have a control message sent to all sites."""
        for link in self.attached.values():
            self.tell(link, message)

    def record(self, event: Event, then: Callable[[], None] = lambda: None) -> None:
        """Have an event recorded; once it is safe it is applied, and `then` is called."""
        self.pending.append((event, then))
        self.emit(Record(event))

    def _handle(self, event: Step) -> None:
        match event:
            case Elected(leader):
                self.record({"e": "leader", "id": leader}, self._leads)
            case Recorded(count):
                self._recorded(count)
            case Tick(members):
                self._tick(members)
            case SiteRegistered(link, registration):
                self._site_registered(link, registration)
            case ClientGreeted(link, source, taken):
                self.clients.greeted(link, source, taken)
            case FollowerGreeted(link):
                self.emit(Greet(link, Role.FOLLOWER, control.FollowerWelcome()))
            case SiteSaid(link, message):
                self._site_said(link, message)
            case ClientSaid(link, message):
                self.clients.asked(link, message)
            case LinkClosed(link, why):
                self._link_closed(link, why)
            case MemberLeft(identity):
                number = self.ledger.numbers.get(identity)
                if number is not None:
                    self._site_gone(number, "its ZooKeeper session has ended")
            case EndsNoticed(notices):
                for notice in notices:
                    self.record({"e": "noticed", "notice": control.notice_to_json(notice)})
            case Fed(batch):
                self._watch(batch)
            case OfferSafe(source, key):
                self.clients.offer_safe(source, key)
            case InputEnded(batches):
                self.batches = batches
                self.clients.input_ended()
                if self.ledger.resumes:
                    self.broadcast(control.Ended(batches))
            case _:
                raise TypeError(f"nothing that happens to a leader: {event}")

    # ---- the record

    def _leads(self) -> None:
        self.leading = True

    def _recorded(self, count: int) -> None:
        for _ in range(count):
            event, then = self.pending.popleft()
            self.ledger.apply(event)
            then()
        self._after_events()
        ledger = self.ledger
        if ledger.is_whole and ledger.events - ledger.kept >= SNAPSHOT_EVENTS:
            ledger.kept = ledger.events
            self.emit(KeepState(snapshot(ledger), ledger.events))

    def _after_events(self) -> None:
        """Tell everybody what has changed since the last time, and do what follows from it."""
        self.view.publish()
        self._begin()
        self._note_recovery()
        self._separate()
        if self.rounds is not None:
            self.rounds.tick()

    def _begin(self) -> None:
        """Rebuild ingress and egress once every live site has said what it has received."""
        ledger = self.ledger
        if self.began or ledger.controller is None or set(self.attached) < set(ledger.sites):
            return
        self.began = True
        self.emit(
            RebuildEnds(ledger.leaders, ledger.controller, dict(self.resume), ledger.position)
        )
        if self.balance is not None and ledger.shape.copies == 2:
            self.rounds = Rounds(self, self.balance)

    def _note_recovery(self) -> None:
        """Note how long failures took; one that took no copy away took no time."""
        if self.failing and self.ledger.is_whole:
            took = self.now - min(self.failing.values())
            self.note("recovered", seconds=round(took, 4), sites=sorted(self.failing))
            self.failing.clear()

    def _separate(self) -> None:
        """Take copies of a pair that share an executor apart, one pair at a time (CT-4)."""
        controller = self.ledger.controller
        settled = self.now - self.joined_at > LAYOUT_QUIET_S
        if not self.began or not settled or self.separating or controller is None:
            return
        heard = {n for n, at in self.heard_at.items() if at > self.now - REPORT_FRESH_S}
        if (move := separation(controller, heard)) is not None:
            (stage, part), copy, site = move

            def moved() -> None:
                self.separating = False

            self.separating = True
            self.move(Pair(stage, part), copy, site, by="placement", then=moved)

    def move(self, pair: Pair, copy: int, site: int, *, by: str, then: Callable[[], None]) -> None:
        """UF-11: have a copy move, once that has been recorded, if it is possible then."""
        event = {"e": "move", "stage": pair.stage, "part": pair.part, "copy": copy, "site": site}
        self.note("move", stage=pair.stage, part=pair.part, copy=copy, to=site, by=by)
        self.record(event, then)

    def stop(self, then: Callable[[], None]) -> None:
        """End the job. It is recorded, so no follower takes over from a leader that ends."""

        def stopped() -> None:
            then()
            self.broadcast(control.Stop())
            self.emit(End())

        self.stopping = True
        self.record({"e": "stopped"}, stopped)

    def note(self, kind: str, **details: object) -> None:
        """Have an event noted in the run folder."""
        self.emit(Note(kind, details))

    def lost(self, pair: Pair, why: str) -> None:
        """FS-26: both copies of a pair are gone; all clients have to know."""
        self.emit(NoteLoss(pair, why))
        self.clients.on_loss(pair, why)

    # ---- time

    def _tick(self, members: frozenset[str] | None) -> None:
        if self.rounds is not None:
            self.rounds.tick()
        waited = self.now - self.since
        for number in set(self.ledger.sites) - set(self.attached):
            if waited > self.patience_s:
                self._site_gone(number, "it did not come back to a new controller")
            elif waited > MEMBERSHIP_GRACE_S and members is not None:
                self._ask_for_seat(number, members)

    def _ask_for_seat(self, number: int, members: frozenset[str]) -> None:
        if self.ledger.sites[number].id not in members:
            self._site_gone(number, "it is no member any more")

    def _watch(self, batch: int) -> None:
        """Have the collector's sites say when they have passed the batch fed last."""
        if self.latency.fed(batch, self.now):
            for _, site, active in self.ledger.site_of(self.collector):
                if active and site in self.attached:
                    self.tell(self.attached[site], control.Watch(batch))

    @property
    def collector(self) -> Pair:
        """The pair with the results."""
        return Pair(len(self.ledger.shape.widths) - 1, 0)

    # ---- sites

    def _site_registered(self, link: Link, registration: control.Registration) -> None:
        self._open.add(link)
        ledger, identity = self.ledger, registration.id
        gone = registration.epoch > 0 and identity not in ledger.numbers
        if not self.leading:  # until then the epoch is that of the leader before
            self.emit(Close(link, "not leading yet"))
        elif registration.epoch > ledger.leaders:
            # what this leader knows of the site is out of date
            self.emit(Close(link, "this leader has been replaced"))
        elif gone or identity in ledger.fenced:
            self.emit(Greet(link, Role.SITE, control.Expulsion()))
        elif ledger.numbers.get(identity) in self.leaving:  # what was on its way to it is lost
            self.emit(Close(link, "its failure is being recorded"))
        elif identity in ledger.numbers:
            self._attach(link, registration, ledger.numbers[identity])
            self._after_events()
        elif identity in self.joining:
            self.emit(Close(link, "it is joining on another connection"))
        else:
            self._join(link, registration)

    def _join(self, link: Link, registration: control.Registration) -> None:
        def joined() -> None:
            self.joining.discard(registration.id)
            number = self.ledger.numbers.get(registration.id)
            if link in self._open and number is not None:
                self._attach(link, registration, number)
            elif number is not None:
                self._site_gone(number, "its connection was closed while it joined")

        self.joining.add(registration.id)
        self.joined_at = self.now
        self.note("site_joined", site=registration.id)
        event = {"e": "joined", "id": registration.id, "address": list(registration.address)}
        self.record(event | {"host": registration.host, "executor": registration.executor}, joined)

    def _attach(self, link: Link, registration: control.Registration, number: int) -> None:
        if number in self.attached:
            self.emit(Close(link, "the site is connected already"))
            return
        if registration.laid_out and registration.position < self.ledger.base:
            self._site_gone(number, "it knows too little of the log")
            return
        self.resume.update({Node(*node): hi for node, hi in registration.resume})
        self.attached[number] = link
        self.site_of[link] = number
        self.emit(Attach(link, number))
        self.emit(Greet(link, Role.SITE, control.Admission(self.ledger.leaders, number)))
        self.view.catch_up(link, registration.position)
        self.tell(link, control.Commit(self.committed))
        if self.ledger.resumes and self.batches is not None:
            self.tell(link, control.Ended(self.batches))
        if self.rounds is not None:
            self.rounds.joined(number, link)

    def detach(self, number: int) -> None:
        """A site has left the view."""
        self.emit(Disconnect(number))
        self.reports.pop(number, None)
        self.heard_at.pop(number, None)
        self.clients.on_site_gone(number)
        link = self.attached.pop(number, None)
        if link is not None:
            del self.site_of[link]
            self.emit(Close(link, "removed from the view"))

    def _site_gone(self, number: int, why: str) -> None:
        """Remove a site from the view."""
        record = self.ledger.sites.get(number)
        if record is None or number in self.leaving or self.stopping:
            return
        self.leaving.add(number)
        since = self.now

        def removed() -> None:
            """Only now: a leader that has been replaced must not fence anybody."""
            self.failing.setdefault(number, since)
            self.note("site_failed", site=record.id, number=number, why=why)
            self.emit(Fence(record.id))

        self.record({"e": "failed", "site": number, "why": why}, removed)

    def _link_closed(self, link: Link, why: str) -> None:
        self._open.discard(link)
        self.clients.sources.pop(link, None)
        number = self.site_of.pop(link, None)
        if number is not None:
            del self.attached[number]
            self.clients.on_site_gone(number)
            self._site_gone(number, f"its connection was lost: {why}")

    def _site_said(self, link: Link, message: Message) -> None:
        number = self.site_of.get(link)
        if number is None:
            return  # it has been removed, and does not know it yet
        match message:
            case control.Notices(notices):
                self._noticed(link, notices)
            case control.LinkLost(site, why):
                self._link_lost(number, site, why)
            case control.Report():
                if (record := self.ledger.sites.get(number)) is not None:
                    self.reports[number] = message
                    self.heard_at[number] = self.now
                    self.emit(KeepReport(number, record.id, message))
                    self._separate()
            case control.Statistics():
                if self.rounds is not None:
                    self.rounds.answered(number, message)
            case control.Done(errand):
                self.clients.on_done(number, errand)
            case control.NotKept(batch, why):
                self.clients.unkept = (batch, why)
            case control.Reached(batch):
                self.latency.reached(batch, self.now)

    def _noticed(self, link: Link, notices: tuple[control.Notice, ...]) -> None:
        """Record what nodes report; the site says it again until it hears that it is recorded."""
        pairs = self.ledger.shape.pairs()
        for notice in notices:
            if Pair(notice.stage, notice.part) not in pairs:
                raise Malformed(f"there is no partition {notice.part} of stage {notice.stage}")
            if isinstance(notice, control.Hosted) == self.ledger.resumes:
                raise Malformed(f"a notice of another protocol: {notice}")
        events = [{"e": "noticed", "notice": msgspec.to_builtins(notice)} for notice in notices]
        for event in events[:-1]:
            self.record(event)
        self.record(events[-1], lambda: self.tell(link, control.Noted(len(notices))))

    def _link_lost(self, by: int, number: int, why: str) -> None:
        """A link failure is the failure of one end (section 2.1): that which was reported first."""
        if by in self.ledger.sites and by not in self.leaving:
            self._site_gone(number, f"site {by} has lost the connection to it: {why}")

    # ---- what it looks like

    def status(self, *, pid: int, rows: int, under_way: int) -> control.Status:
        """The state of the job now.

        Args:
            pid: of this process.
            rows: that this term has fed.
            under_way: batches that some copy may lack.
        """
        controller, ledger = self.ledger.controller, self.ledger
        nodes = controller.nodes() if controller is not None else ()
        return control.Status(
            epoch=ledger.leaders,
            pid=pid,
            began=self.began,
            whole=ledger.is_whole,
            failures=controller.failures - ledger.moves if controller else 0,
            sites=tuple(
                control.SiteStatus(site.number, site.id, site.host, site.executor)
                for site in ledger.sites.values()
            ),
            copies=tuple((*node, copy.site, copy.status.name) for node, copy in nodes),
            losses=tuple((*loss.pair, control.reason(loss.why)) for loss in ledger.losses),
            rows=rows,
            under_way=under_way,
            latency=self.latency.summary(),
            loads=self.reports,
            balance=self.rounds.status() if self.rounds is not None else None,
        )

    def validate(self) -> None:
        """The invariants that hold after every step.

        Raises:
            AssertionError: it does not.
        """
        ledger = self.ledger
        assert self.site_of == {link: site for site, link in self.attached.items()}
        assert self.leading or not self.attached, "it hears sites before its term is recorded"
        assert set(self.attached) <= set(ledger.sites), "it hears a site that has been removed"
        assert set(self.site_of) <= self._open, "it hears a link that has been closed"
        assert {s.id: n for n, s in ledger.sites.items()} == ledger.numbers
        assert not ledger.fenced.keys() & ledger.numbers.keys(), "a fenced site is back"
        assert not self.joining & ledger.numbers.keys(), "a site joins that has joined"
        assert set(self.reports) <= set(ledger.sites), "reports of a site that is gone"
        assert not self._instructions, "instructions are left"
        for site, _ in self.clients.errands.values():
            assert site in self.attached, f"site {site} is gone and has an errand"
