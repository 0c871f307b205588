"""A site's decisions on leader, view and neighbours, without I/O: `handle(event, now)`.

It registers with whoever leads, follows the view and the controller's log, and keeps a link to
every other site; of two the later one dials. Whoever is gone is missed without any accusation: its
connections are closed, or its session ends. So a site accuses another on two grounds only: a link
that was closed, and a site that could not be reached for as long as a session lives. One that is
slow, or was paused for less than that, has lost nothing by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flux_runtime.protocol.vocabulary import THE_INGRESS, Pair, Shape
from flux_runtime.resume.messages import BEGINNING
from flux_runtime.site import control_messages as control
from flux_runtime.site.control_messages import Introduction, Message
from flux_runtime.site.site_steps import (
    Admitted,
    Become,
    Close,
    Connect,
    Dial,
    DialFailed,
    Disconnect,
    Expelled,
    Extend,
    Fence,
    FollowLeader,
    Introduce,
    LayOut,
    LeaderReached,
    LeaderSaid,
    LeaveLeader,
    LinkClosed,
    NodesNoticed,
    Obey,
    Register,
    Seat,
    SiteIntroduced,
    SiteReached,
    Tell,
)
from flux_runtime.site.steps import Link, Step
from flux_runtime.site.wire import Malformed

AGAIN_S: Final = 0.05
"""From one attempt to reach a site to the next."""


class SiteState:
    """One incarnation of a site, among the others.

    Args:
        shape: of the dataflow, with the collector.
        session_s: how long a site is tried before it is accused.
        resumes: the job runs the resume protocol, where no copy has a number of one before.

    Attributes:
        number: of this site; None until a leader has admitted it.
        epoch: of the newest leader.
        leader: the link to it, once it has admitted this site.
        laid_out: the layout has come.
        position: of the next entry of the controller's log.
        addresses: of all other sites in the view.
        ids: which incarnation has which number, this site's too.
        links: sites, and the links to them.
        broken: sites that the leader is told to be out of reach, and why.
        waiting: links of sites that this site's view does not know yet.
        notices: what nodes have reported and is not known to be recorded.
        told: how many of them the present leader has been told.
    """

    def __init__(self, shape: Shape, *, session_s: float, resumes: bool = True) -> None:
        self.shape = shape
        self.session_s = session_s
        self.resumes = resumes
        self.now = 0.0
        self.number: int | None = None
        self.epoch = 0
        self.leader: Link | None = None
        self.laid_out = False
        self.position = 0
        self.addresses: dict[int, tuple[str, int]] = {}
        self.ids: dict[int, str] = {}
        self.links: dict[int, Link] = {}
        self.broken: dict[int, str] = {}
        self.waiting: dict[Link, tuple[Introduction, bool]] = {}
        self.notices: list[control.AnyNotice] = []
        self.told = 0
        self._patient_until: dict[int, float] = {}
        self._leaders: set[Link] = set()
        self._peers: dict[Link, int] = {}
        self._instructions: list[Step] = []

    @property
    def registered(self) -> bool:
        """Whether a leader has admitted this site."""
        return self.number is not None

    def handle(self, event: Step, now: float) -> tuple[Step, ...]:
        """Take an event; gives what is to be done about it, in this order.

        Args:
            event: one of `site_steps.EVENTS`.
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
        result, self._instructions = tuple(self._instructions), []
        return result

    def _emit(self, instruction: Step) -> None:
        self._instructions.append(instruction)

    def _handle(self, event: Step) -> None:
        match event:
            case LeaderReached(link):
                self._leaders.add(link)
                self._emit(Register(link))
            case Admitted(link, epoch, number):
                self._admitted(link, epoch, number)
            case Expelled():
                self._emit(Fence("the controller has removed this site from the view"))
            case LeaderSaid(link, message):
                if link != self.leader:
                    raise Malformed("no business of a site's")
                self._leader_said(message)
            case SiteReached(link, number):
                self._peers[link] = number
                self._emit(Introduce(link))
            case SiteIntroduced(link, introduction, dialing):
                self.waiting[link] = (introduction, dialing)
                self._seat_waiting()
            case DialFailed(number, address, began, why):
                self._dial_failed(number, address, began, why)
            case LinkClosed(link, why):
                self._link_closed(link, why)
            case NodesNoticed(notices):
                self.notices += notices
                self._tell_notices()
            case _:
                raise TypeError(f"nothing that happens to a site: {event}")

    # ---- the leader

    def _admitted(self, link: Link, epoch: int, number: int) -> None:
        if epoch < self.epoch:
            raise Malformed(f"leader {epoch} after {self.epoch}")
        if self.number not in (None, number):
            raise Malformed(f"this is site {self.number}, not {number}")
        self.epoch = epoch
        if self.number is None:
            self.number = number
            self._emit(Become(number))
        self.leader = link
        self._emit(FollowLeader(link))
        self.told = 0
        self._tell_notices()

    def _leader_said(self, message: Message) -> None:
        match message:
            case control.Sites(sites):
                self._follow(sites)
            case control.Layout():
                if not self.laid_out:
                    self._lay_out(message)
            case control.Log(start, entries):
                self._extend(start, entries)
            case control.Noted(count):
                if count > self.told:
                    raise Malformed(f"{count} notices are recorded, {self.told} were told")
                del self.notices[:count]
                self.told -= count
            case _:
                self._emit(Obey(message))

    def _tell_notices(self) -> None:
        """Tell the leader what nodes have reported, until it is recorded."""
        while self.leader is not None and self.told < len(self.notices):
            new = self.notices[self.told : self.told + control.NOTICES_MAX]
            self.told += len(new)
            self._emit(Tell(self.leader, control.Notices(tuple(map(control.notice_of, new)))))

    def _lay_out(self, layout: control.Layout) -> None:
        """Take up the copies that stand here.

        Raises:
            Malformed: it is no layout of this dataflow, or has this new site go on with a copy.
        """
        copies, base = layout.copies, layout.base
        placed = {(Pair(copy.stage, copy.part), copy.copy) for copy in copies}
        every = {(pair, copy) for pair in self.shape.pairs() for copy in range(self.shape.copies)}
        if not placed <= every or {pair for pair, _ in placed} != set(self.shape.pairs()):
            raise Malformed("a layout of another dataflow")
        mine = [copy for copy in copies if copy.site == self.number]
        begins = base <= BEGINNING if self.resumes else not any(copy.life for copy in mine)
        if mine and not begins:
            raise Malformed(f"site {self.number} is new and has no copy to go on with")
        self.laid_out = True
        self.position = base
        self._emit(LayOut(layout))

    def _extend(self, start: int, entries: Sequence[control.ViewChange]) -> None:
        """Take the entries of the log that are new.

        Raises:
            Malformed: some are missing in between, or name copies that do not exist.
        """
        if not self.laid_out or start > self.position:
            raise Malformed(f"the log from {start} on, at {self.position}")
        pairs = {*self.shape.pairs(), *([THE_INGRESS.pair] if self.resumes else [])}
        for entry in entries:
            if Pair(entry.stage, entry.part) not in pairs:
                raise Malformed(f"a view change of another dataflow: {entry}")
            if isinstance(entry, control.Hosted) == self.resumes:
                raise Malformed(f"a view change of another protocol: {entry}")
        for entry in entries[self.position - start :]:
            self.position += 1
            self._emit(Extend(entry))

    # ---- the other sites

    def _follow(self, sites: Sequence[control.SiteAddress]) -> None:
        """The view: who lives, and where."""
        now = {site.number: (site.host, site.port) for site in sites}
        self.ids = {site.number: site.id for site in sites}
        for number in [n for n in self.addresses if n not in now]:
            del self.addresses[number], self._patient_until[number]
            self.broken.pop(number, None)
            self._emit(Disconnect(number))
            if (link := self.links.pop(number, None)) is not None:
                self._peers.pop(link, None)
                self._emit(Close(link, "removed from the view"))
        for number, address in now.items():
            if number not in self.addresses and number != self.number:
                self.addresses[number] = address
                self._patient_until[number] = self.now + self.session_s
                self._emit(Connect(number))
                if self.number is not None and number < self.number:
                    self._emit(Dial(number, address, 0.0))
        self._seat_waiting()
        self._tell_of_broken()

    def _seat_waiting(self) -> None:
        """Other sites' greetings are answered once this site's view knows them."""
        for link, (introduction, dialing) in list(self.waiting.items()):
            known = self.ids.get(introduction.site)
            if known is None and introduction.site >= max(self.ids, default=-1):
                continue
            del self.waiting[link]
            if known != introduction.id or introduction.site in self.links:
                self._emit(Close(link, f"site {introduction.site} is not, or no more, in the view"))
                continue
            self.links[introduction.site] = link
            self._peers[link] = introduction.site
            self._emit(Seat(link, introduction.site))
            if not dialing:
                self._emit(Introduce(link))

    def _dial_failed(self, number: int, address: tuple[str, int], began: float, why: str) -> None:
        """Try again for as long as a session lives; only then accuse the site."""
        if self.addresses.get(number) != address or number in self.broken:
            return
        if began > self._patient_until[number]:
            self._lost(number, why)
        else:
            self._emit(Dial(number, address, AGAIN_S))

    def _link_closed(self, link: Link, why: str) -> None:
        self.waiting.pop(link, None)
        if link in self._leaders:
            self._leaders.discard(link)
            self._emit(LeaveLeader())
        if link == self.leader:
            self.leader = None
        number = self._peers.pop(link, None)
        if number is not None:
            if self.links.get(number) == link:
                del self.links[number]
            self._lost(number, why)

    def _lost(self, number: int, why: str) -> None:
        """A site that is in the view is out of reach: the controller decides what that means."""
        if number in self.addresses:
            self.broken[number] = why
            self._tell_of_broken()

    def _tell_of_broken(self) -> None:
        """Tell whoever leads, until a view without that site comes: a leader may die over it."""
        if self.leader is not None:
            for number, why in self.broken.items():
                self._emit(Tell(self.leader, control.LinkLost(number, control.reason(why))))

    def validate(self) -> None:
        """The invariants that hold after every step.

        Raises:
            AssertionError: it does not.
        """
        assert self.links.keys() <= self.addresses.keys(), "a link to a site that was removed"
        assert self.broken.keys() <= self.addresses.keys(), "it accuses a site that was removed"
        assert self._patient_until.keys() == self.addresses.keys()
        assert self.number not in self.addresses, "it is its own neighbour"
        assert all(self._peers[link] == number for number, link in self.links.items())
        assert 0 <= self.told <= len(self.notices)
        assert not self._instructions, "instructions are left"
