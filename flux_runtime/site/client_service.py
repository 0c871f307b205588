"""Where a leader serves clients: those that feed, those that read results, those that ask."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from flux_runtime.protocol.vocabulary import END, Pair
from flux_runtime.site import control_messages as control
from flux_runtime.site.codec import OFFER
from flux_runtime.site.connection import Connection
from flux_runtime.site.control_messages import Message, Role
from flux_runtime.site.journal import Key
from flux_runtime.site.shell import Link
from flux_runtime.site.wire import Malformed

if TYPE_CHECKING:
    from flux_runtime.site.leader import Leader

OFFERS_MAX: Final = 256
"""Offers that wait to be fed; above it clients are not read."""


class ClientService:
    """The clients of one term of leading.

    Attributes:
        sources: clients, with the source that each feeds, empty if none.
        finishing: those that wait until the end of the input is in the journal.
        errands: what sites are to do for clients: number -> site, client.
        unkept: batch after which a site could not write its states, and why.
    """

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.sources: dict[Connection, str] = {}
        self.finishing: set[Connection] = set()
        self.errands: dict[int, tuple[int, Connection]] = {}
        self.sent = 0
        self.unkept = (-1, "")

    def greeted(self, connection: Connection, source: str) -> None:
        """A client says what it feeds; nothing if empty."""
        connection.peer = "client"
        self.sources[connection] = source
        welcome = control.ClientWelcome(
            epoch=self.leader.ledger.leaders,
            ready=self.leader.began,
            taken=self.leader.intake.taken.get(source),
        )
        self.leader.greet(connection, Role.CLIENT, welcome)
        for loss in self.leader.ledger.losses:
            self.leader.tell(connection, _loss(loss.pair, loss.why))

    def offered(self, connection: Connection, link: Link, body: memoryview) -> None:
        """A client's batch: its key, then rows."""
        source = self.sources.get(connection)
        if source is None or len(body) < OFFER.size:
            raise Malformed("not an offer of a client's")
        batch, offset, schema = OFFER.unpack_from(body)
        rows = link.decoder.rows(body[OFFER.size :], schema)
        key: Key = (batch, offset)
        if not (0 <= batch < END and 0 <= offset < END):
            raise Malformed("offers count from zero")
        if key <= self.leader.intake.taken.get(source, (-1, -1)):
            self.leader.tell(connection, control.Taken(key))
        elif not self.leader.intake.takes(source, key):
            self.leader.tell(connection, control.Refusal("the input has ended: somebody finished"))
        else:
            self.leader.intake.offer(source, key, rows)
            if len(self.leader.intake.waiting) > OFFERS_MAX:
                connection.reading(False)
        self.leader.schedule()

    def taken(self, source: str, key: Key) -> None:
        """A batch is safe."""
        for connection, of in self.sources.items():
            if of == source:
                self.leader.tell(connection, control.Taken(key))

    def asked(self, connection: Connection, message: Message) -> None:
        """A client wants something.

        Raises:
            Malformed: what it names does not exist.
        """
        leader = self.leader
        match message:
            case control.Where():
                leader.tell(connection, control.Collectors(self._collectors()))
            case control.Commit(offset):
                leader.committed = max(leader.committed, offset)
                leader.stage_log.committed(offset)
                leader.broadcast(control.Commit(leader.committed))
            case control.Keep(batch):
                (of, why), self.unkept = self.unkept, (-1, "")
                leader.broadcast(message)
                leader.tell(connection, control.Keeping(why if of == batch else ""))
            case control.Finish():
                leader.intake.finish()
                self.finishing.add(connection)
            case control.StatusRequest():
                leader.tell(connection, leader.status())
            case control.Move(stage, part, copy, site):
                if Pair(stage, part) not in leader.ledger.shape.pairs():
                    raise Malformed(f"there is no partition {part} of stage {stage}")
                event = {"e": "move", "stage": stage, "part": part, "copy": copy, "site": site}
                leader.moving(event, by="client")
                leader.happened(event, lambda: leader.tell(connection, control.Moved()))
            case control.LimitMemory(site, size):
                self._send(connection, site, lambda number: control.SetMemory(size, number))
            case control.Disconnect(site, other):
                self._send(connection, site, lambda number: control.CutLink(other, number))
            case control.Stop():
                leader.stop(lambda: leader.tell(connection, control.Stopped()))
            case _:
                raise Malformed("not a question for a controller")
        leader.schedule()

    def _send(self, connection: Connection, site: int, errand: Callable[[int], Message]) -> None:
        """Have a site do what a client wants, and tell the client when it has, or cannot."""
        to = self.leader.attached.get(site)
        if to is None:
            self.leader.tell(connection, control.Carried(done=False))
            return
        self.sent += 1
        self.errands[self.sent] = (site, connection)
        self.leader.tell(to, errand(self.sent))

    def on_done(self, site: int, number: int, *, done: bool = True) -> None:
        """A site has done what it was sent for, or is gone.

        Raises:
            Malformed: it was not sent.
        """
        sent, connection = self.errands.get(number, (None, None))
        if sent != site or connection is None:
            raise Malformed(f"site {site} has not been sent for errand {number}")
        del self.errands[number]
        if connection in self.sources:
            self.leader.tell(connection, control.Carried(done))

    def on_site_gone(self, site: int) -> None:
        """What this site was sent for will not be done."""
        for number in [number for number, (to, _) in self.errands.items() if to == site]:
            self.on_done(site, number, done=False)

    def _collectors(self) -> tuple[tuple[str, int], ...]:
        pair = Pair(len(self.leader.host.dataflow.shape.widths) - 1, 0)
        found = []
        for _, site, whole in self.leader.ledger.site_of(pair):
            if site in self.leader.ledger.sites and whole:
                found.append(self.leader.ledger.sites[site].address)
        return tuple(found)

    def finished(self) -> None:
        """The end of the input is safe: whoever is told so does not have to say it again."""
        for connection in self.finishing & self.sources.keys():
            self.leader.tell(connection, control.Finished())
        self.finishing.clear()

    def read_on(self) -> None:
        """Read from clients again where there is room for their offers."""
        if len(self.leader.intake.waiting) < OFFERS_MAX // 2:
            for connection in self.sources:
                connection.reading(True)

    def on_loss(self, pair: Pair, why: str) -> None:
        """FS-26: both copies of a pair are gone; all clients have to know."""
        for connection in self.sources:
            self.leader.tell(connection, _loss(pair, why))


def _loss(pair: Pair, why: str) -> control.DataLoss:
    return control.DataLoss(pair.stage, pair.part, control.reason(why))
