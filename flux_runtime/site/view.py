"""The leader's view changes, as told to everybody: layout, sites, losses.

Sites follow what they are told; a site that connects anew is told all that it may have missed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from flux_runtime.site import control_messages as control
from flux_runtime.site.leader_steps import Connect, Extend, LayOut, Term, TrimLog
from flux_runtime.site.ledger import Layout
from flux_runtime.site.steps import Link

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())


class View:
    """Compares the ledger with what has been told."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._laid_out = False
        self._sites: set[int] = set()
        self._position = 0
        self._trimmed = 0
        self._losses = 0

    def publish(self) -> None:
        """Tell everybody what has changed since the last time."""
        term, ledger = self._term, self._term.ledger
        if ledger.layout is not None and not self._laid_out:
            self._publish_layout(ledger.layout)
        if set(ledger.sites) != self._sites:
            self._publish_sites(set(ledger.sites))
        self._publish_log()
        for loss in ledger.losses[self._losses :]:
            term.lost(loss.pair, loss.why)
        self._losses = len(ledger.losses)

    def catch_up(self, link: Link, position: int) -> None:
        """Tell a site that has connected: all sites, the layout, the log from a position on."""
        term, ledger = self._term, self._term.ledger
        term.tell(link, self._of_sites())
        if ledger.layout is not None:
            term.tell(link, _of_layout(ledger.layout))
            for piece in self._of_log(max(position, ledger.base)):
                term.tell(link, piece)

    def _publish_layout(self, layout: Layout) -> None:
        term, ledger = self._term, self._term.ledger
        self._laid_out = True
        self._position = self._trimmed = layout.at
        term.emit(LayOut(layout))
        term.note("laid_out", sites=len(ledger.sites), one_executor=ledger.one_executor)
        if ledger.one_executor:
            log.warning(
                "all sites are of one executor: pairs protect against the loss of worker "
                "processes, not of the executor"
            )
        term.broadcast(_of_layout(layout))

    def _publish_sites(self, sites: set[int]) -> None:
        term = self._term
        for number in sorted(self._sites - sites):
            term.detach(number)
        for number in sorted(sites - self._sites):
            term.emit(Connect(number))
        self._sites = sites
        term.broadcast(self._of_sites())

    def _publish_log(self) -> None:
        term, ledger = self._term, self._term.ledger
        new = ledger.entries[max(0, self._position - ledger.base) :]
        if new:
            for piece in self._of_log(self._position):
                term.broadcast(piece)
            self._position = ledger.position
            for entry in new:
                term.emit(Extend(entry))
                term.note("view_change", entry=control.entry_to_json(entry))
        if self._laid_out and self._trimmed < ledger.base:
            self._trimmed = ledger.base
            term.emit(TrimLog(ledger.base))
            term.broadcast(control.Trim(ledger.base))

    def _of_sites(self) -> control.Sites:
        sites = self._term.ledger.sites.values()
        return control.Sites(
            tuple(control.SiteAddress(site.number, site.id, *site.address) for site in sites)
        )

    def _of_log(self, start: int) -> Iterator[control.Log]:
        ledger = self._term.ledger
        entries = [control.view_change(entry) for entry in ledger.entries[start - ledger.base :]]
        return control.pieces(entries, start)


def _of_layout(layout: Layout) -> control.Layout:
    placed = [
        control.PlacedCopy(*pair, copy, site, layout.lives.get((pair, copy), 0))
        for (pair, copy), site in layout.placement.items()
    ]
    return control.Layout(tuple(placed), layout.at, layout.ingress, layout.done)
