"""Where a leader serves clients: those that feed, those that read results, those that ask."""

from __future__ import annotations

from collections.abc import Callable

from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.site import control_messages as control
from flux_runtime.site.control_messages import Message, Role
from flux_runtime.site.journal import Key
from flux_runtime.site.leader_steps import AnswerStatus, Committed, EndInput, Greet, Term
from flux_runtime.site.steps import Link
from flux_runtime.site.wire import Malformed


class ClientService:
    """The clients of one term of leading.

    Attributes:
        sources: clients, with the source that each feeds, empty if none.
        finishing: those that wait until the end of the input is in the journal.
        ended: it is.
        errands: what sites are to do for clients: number -> site, client.
        unkept: batch after which a site could not write its states, and why.
    """

    def __init__(self, term: Term) -> None:
        self._term = term
        self.sources: dict[Link, str] = {}
        self.finishing: set[Link] = set()
        self.ended = False
        self.errands: dict[int, tuple[int, Link]] = {}
        self.sent = 0
        self.unkept: tuple[int | None, str] = (-1, "")

    def greeted(self, link: Link, source: str, taken: Key | None) -> None:
        """A client says what it feeds; nothing if empty."""
        term = self._term
        self.sources[link] = source
        welcome = control.ClientWelcome(term.ledger.leaders, term.began, taken)
        term.emit(Greet(link, Role.CLIENT, welcome))
        for loss in term.ledger.losses:
            term.tell(link, _loss(loss.pair, loss.why))

    def offer_safe(self, source: str, key: Key) -> None:
        """A batch is safe."""
        for link, fed in self.sources.items():
            if fed == source:
                self._term.tell(link, control.Taken(key))

    def asked(self, link: Link, message: Message) -> None:
        """A client wants something.

        Raises:
            Malformed: what it names does not exist.
        """
        term = self._term
        match message:
            case control.Where():
                term.tell(link, control.Collectors(self._collectors()))
            case control.Commit(offset):
                term.committed = max(term.committed, offset)
                term.emit(Committed(offset))
                term.broadcast(control.Commit(term.committed))
            case control.Keep(batch):
                (after, why), self.unkept = self.unkept, (-1, "")
                term.broadcast(message)
                term.tell(link, control.Keeping(why if after == batch else ""))
            case control.Finish():
                self._finish(link)
            case control.StatusRequest():
                term.emit(AnswerStatus(link))
            case control.Move(stage, part, copy, site):
                if Pair(stage, part) not in term.ledger.shape.pairs():
                    raise Malformed(f"there is no partition {part} of stage {stage}")
                moved = control.Moved()
                term.move(
                    Pair(stage, part), copy, site, by="client", then=lambda: term.tell(link, moved)
                )
            case control.LimitMemory(site, size):
                self._send(link, site, lambda number: control.SetMemory(size, number))
            case control.Disconnect(site, other):
                self._send(link, site, lambda number: control.CutLink(other, number))
            case control.Stop():
                term.stop(lambda: term.tell(link, control.Stopped()))
            case _:
                raise Malformed("not a question for a controller")

    def _finish(self, link: Link) -> None:
        self._term.emit(EndInput())
        if self.ended:
            self._term.tell(link, control.Finished())
        else:
            self.finishing.add(link)

    def input_ended(self) -> None:
        """The end of the input is safe: whoever is told so does not have to say it again."""
        self.ended = True
        for link in self.sources:
            if link in self.finishing:
                self._term.tell(link, control.Finished())

    def _send(self, link: Link, site: int, errand: Callable[[int], Message]) -> None:
        """Have a site do what a client wants, and tell the client when it has, or cannot."""
        to = self._term.attached.get(site)
        if to is None:
            self._term.tell(link, control.Carried(done=False))
            return
        self.sent += 1
        self.errands[self.sent] = (site, link)
        self._term.tell(to, errand(self.sent))

    def on_done(self, site: int, number: int, *, done: bool = True) -> None:
        """A site has done what it was sent for, or is gone.

        Raises:
            Malformed: it was not sent.
        """
        sent, link = self.errands.get(number, (None, None))
        if sent != site or link is None:
            raise Malformed(f"site {site} has not been sent for errand {number}")
        del self.errands[number]
        if link in self.sources:
            self._term.tell(link, control.Carried(done))

    def on_site_gone(self, site: int) -> None:
        """Gives up what this site was sent for."""
        for number in [number for number, (to, _) in self.errands.items() if to == site]:
            self.on_done(site, number, done=False)

    def _collectors(self) -> tuple[tuple[str, int], ...]:
        ledger = self._term.ledger
        return tuple(
            ledger.sites[site].address
            for _, site, active in ledger.site_of(self._term.collector)
            if active and site in ledger.sites
        )

    def on_loss(self, pair: Pair, why: str) -> None:
        """FS-26: both copies of a pair are gone; all clients have to know."""
        for link in self.sources:
            self._term.tell(link, _loss(pair, why))


def _loss(pair: Pair, why: str) -> control.DataLoss:
    return control.DataLoss(pair.stage, pair.part, control.reason(why))
