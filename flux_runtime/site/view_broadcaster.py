"""What a leader has told everybody of the events so far: layout, sites, view changes, losses.

Sites follow what they are told; a site that connects anew is told all that it may have missed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING

from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.site import control_messages as control
from flux_runtime.site.connection import Connection
from flux_runtime.site.ledger import Layout

if TYPE_CHECKING:
    from flux_runtime.site.leader import Leader

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())


class ViewBroadcaster:
    """Compares the ledger with what has been told."""

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._laid_out = False
        self._sites: set[int] = set()
        self._position = 0
        self._losses = 0

    def publish(self) -> None:
        """Tell everybody what has changed since the last time."""
        layout = self._leader.ledger.layout
        if layout is not None and not self._laid_out:
            self._publish_layout(layout)
        if set(self._leader.ledger.sites) != self._sites:
            self._publish_sites(set(self._leader.ledger.sites))
        self._publish_log()
        losses = self._leader.ledger.losses
        for loss in losses[self._losses :]:
            self._publish_loss(loss.pair, loss.why)
        self._losses = len(losses)

    def catch_up(self, connection: Connection, position: int) -> None:
        """Tell a site that has connected: all sites, the layout, the log from a position on."""
        leader, ledger = self._leader, self._leader.ledger
        leader.tell(connection, self._of_sites())
        if ledger.layout is not None:
            leader.tell(connection, _of_layout(ledger.layout))
            for piece in self._of_log(max(position, ledger.base)):
                leader.tell(connection, piece)

    def _publish_layout(self, layout: Layout) -> None:
        leader, ledger = self._leader, self._leader.ledger
        self._laid_out = True
        self._position = layout.at
        leader.host.lay_out(layout.placement, layout.lives, base=layout.at)
        leader.event("laid_out", sites=len(ledger.sites), one_executor=ledger.one_executor)
        if ledger.one_executor:
            log.warning(
                "all sites are of one executor: pairs protect against the loss of worker "
                "processes, not of the executor"
            )
        leader.broadcast(_of_layout(layout))

    def _publish_sites(self, sites: set[int]) -> None:
        leader = self._leader
        for number in self._sites - sites:
            leader.host.disconnect(number)
            connection = leader.attached.pop(number, None)
            leader.links.pop(number, None)
            leader.reports.forget(number)
            leader.clients.on_site_gone(number)
            if connection is not None:
                connection.close("removed from the view")
        for number in sites - self._sites:
            leader.host.connect(number)
        self._sites = sites
        leader.broadcast(self._of_sites())

    def _publish_log(self) -> None:
        leader, ledger = self._leader, self._leader.ledger
        new = ledger.entries[max(0, self._position - ledger.base) :]
        if new:
            for piece in self._of_log(self._position):
                leader.broadcast(piece)
            self._position = ledger.position
            for entry, site in new:
                leader.host.extend(entry, site)
                leader.event("view_change", entry=control.entry_to_json(entry, site))
        if leader.host.base < ledger.base:
            leader.host.trim(ledger.base)
            leader.broadcast(control.Trim(ledger.base))

    def _publish_loss(self, pair: Pair, why: str) -> None:
        log.error("partition %s of stage %s has lost both copies: %s", pair.part, pair.stage, why)
        under_way = [number for number, _, _ in self._leader.intake.under_way]
        self._leader.event(
            "data_loss",
            stage=pair.stage,
            part=pair.part,
            why=why,
            lost="the state of this partition and what it had received and not passed on",
            batches_not_everywhere=[under_way[0], under_way[-1]] if under_way else [],
        )
        self._leader.clients.on_loss(pair, why)

    def _of_sites(self) -> control.Sites:
        sites = self._leader.ledger.sites.values()
        return control.Sites(
            tuple(control.SiteAddress(site.number, site.id, *site.address) for site in sites)
        )

    def _of_log(self, start: int) -> Iterator[control.Log]:
        ledger = self._leader.ledger
        entries = [control.view_change(*entry) for entry in ledger.entries[start - ledger.base :]]
        return control.pieces(entries, start)


def _of_layout(layout: Layout) -> control.Layout:
    placed = [
        control.PlacedCopy(*pair, copy, site, layout.lives.get((pair, copy), 0))
        for (pair, copy), site in layout.placement.items()
    ]
    return control.Layout(tuple(placed), layout.at)
