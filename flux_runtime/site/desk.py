"""Where a leader serves clients: those that feed, those that read results, those that ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.site.codec import ROWS
from flux_runtime.site.connection import Connection
from flux_runtime.site.journal import Key
from flux_runtime.site.shell import Link
from flux_runtime.site.wire import Malformed

if TYPE_CHECKING:
    from flux_runtime.site.leader import Leader

VERSION: Final = 1
OFFERS_MAX: Final = 256
"""Offers that wait to be fed; above it clients are not read."""


class Desk:
    """The clients of one term of leading.

    Attributes:
        clients: with the source that each feeds, empty if none.
        finishing: those that wait until the end of the input is in the journal.
        errands: what sites are to do for clients: number -> site, client.
        unkept: batch after which a site could not write its states, and why.
    """

    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self.clients: dict[Connection, str] = {}
        self.finishing: set[Connection] = set()
        self.errands: dict[int, tuple[int, Connection]] = {}
        self.sent = 0
        self.unkept = (-1, "")

    def greeted(self, connection: Connection, said: dict[str, Any]) -> None:
        """A client says what it feeds, if anything."""
        source = str(said.get("source", ""))
        connection.peer = "client"
        self.clients[connection] = source
        taken = self.leader.intake.taken.get(source)
        self.leader.greet(
            connection,
            {
                "v": VERSION,
                "role": "leader",
                "epoch": self.leader.ledger.leaders,
                "ready": self.leader.began,
                "taken": list(taken) if taken else None,
            },
        )
        for loss in self.leader.ledger.losses:
            self.leader.tell(connection, _loss(loss.pair, loss.why))

    def offered(self, connection: Connection, link: Link, body: memoryview) -> None:
        """A client's batch: its key, then rows."""
        source = self.clients[connection]
        batch = int.from_bytes(body[:8], "little", signed=True)
        offset, schema = ROWS.unpack_from(body, 8)
        rows = link.decoder.rows(body[8 + ROWS.size :], schema)
        key: Key = (batch, offset)
        if batch < 0 or offset < 0:
            raise Malformed("offers count from zero")
        if key <= self.leader.intake.taken.get(source, (-1, -1)):
            self.leader.tell(connection, {"c": "taken", "key": list(key)})
        else:
            self.leader.intake.offer(source, key, rows)
            if len(self.leader.intake.waiting) > OFFERS_MAX:
                connection.reading(False)
        self.leader.schedule()

    def taken(self, source: str, key: Key) -> None:
        """A batch is safe."""
        for connection, of in self.clients.items():
            if of == source:
                self.leader.tell(connection, {"c": "taken", "key": list(key)})

    def asked(self, connection: Connection, message: dict[str, Any]) -> None:
        """A client wants something."""
        if connection not in self.clients:
            raise Malformed("neither a site nor a client")
        match message:
            case {"c": "where"}:
                self.leader.tell(connection, {"c": "where", "collectors": self._collectors()})
            case {"c": "commit", "offset": int(offset)}:
                self.leader.committed = max(self.leader.committed, offset)
                self.leader.stage_log.committed(offset)
                self.leader.broadcast({"c": "commit", "offset": self.leader.committed})
            case {"c": "keep", "batch": int(batch), "folder": str()}:
                (of, why), self.unkept = self.unkept, (-1, "")
                self.leader.broadcast(message)
                self.leader.tell(connection, {"c": "keeping", "why": why if of == batch else ""})
            case {"c": "finish"}:
                self.leader.intake.finish()
                self.finishing.add(connection)
            case {"c": "status"}:
                self.leader.tell(connection, {"c": "status", **self.leader.status()})
            case {"c": "move", "stage": int(s), "part": int(p), "copy": int(c), "site": int(to)}:
                event = {"e": "move", "stage": s, "part": p, "copy": c, "site": to}
                self.leader.moving(event, by="client")
                self.leader.happened(event, lambda: self.leader.tell(connection, {"c": "moved"}))
            case {"c": "memory", "site": int(site), "bytes": None | int() as size}:
                self._send(connection, site, {"c": "memory", "bytes": size})
            case {"c": "cut", "site": int(site), "other": int(other)}:
                self._send(connection, site, {"c": "cut", "site": other})
            case {"c": "stop"}:
                self.leader.stop(lambda: self.leader.tell(connection, {"c": "stopped"}))
            case _:
                raise Malformed("not a question for a controller")
        self.leader.schedule()

    def _send(self, connection: Connection, site: int, errand: dict[str, Any]) -> None:
        """Have a site do what a client wants, and tell the client when it has, or cannot."""
        to = self.leader.attached.get(site)
        if to is None:
            self.leader.tell(connection, {"c": "did", "done": False})
            return
        self.sent += 1
        self.errands[self.sent] = (site, connection)
        self.leader.tell(to, {**errand, "errand": self.sent})

    def did(self, number: int, *, done: bool = True) -> None:
        """A site has done what it was sent for, or is gone."""
        _, connection = self.errands.pop(number)
        if connection in self.clients:
            self.leader.tell(connection, {"c": "did", "done": done})

    def gone(self, site: int) -> None:
        """What this site was sent for will not be done."""
        for number in [number for number, (to, _) in self.errands.items() if to == site]:
            self.did(number, done=False)

    def _collectors(self) -> list[list[Any]]:
        pair = Pair(len(self.leader.host.dataflow.shape.widths) - 1, 0)
        found = []
        for _, site, whole in self.leader.ledger.site_of(pair):
            if site in self.leader.ledger.sites and whole:
                found.append(list(self.leader.ledger.sites[site].address))
        return found

    def finished(self) -> None:
        """The end of the input is safe: whoever is told so does not have to say it again."""
        for connection in self.finishing & self.clients.keys():
            self.leader.tell(connection, {"c": "finished"})
        self.finishing.clear()

    def read_on(self) -> None:
        """Read from clients again where there is room for their offers."""
        if len(self.leader.intake.waiting) < OFFERS_MAX // 2:
            for connection in self.clients:
                connection.reading(True)

    def lost_pair(self, pair: Pair, why: str) -> None:
        """FS-26: both copies of a pair are gone; all clients have to know."""
        for connection in self.clients:
            self.leader.tell(connection, _loss(pair, why))


def _loss(pair: Pair, why: str) -> dict[str, Any]:
    return {"c": "data_loss", "stage": pair.stage, "part": pair.part, "why": why}
