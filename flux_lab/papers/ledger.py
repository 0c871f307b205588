"""Membership and copies under the papers' protocol, as a function of the recorded events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flux_lab.papers.hosted import entry_hosted, notice_of
from flux_lab.papers.protocol.controller import Controller, DataLoss, Instantiate, Order, PairView
from flux_lab.papers.protocol.messages import Avail, Notice
from flux_runtime.protocol.vocabulary import Node, Pair
from flux_runtime.site.control_messages import Hosted
from flux_runtime.site.ledger import Event, Layout, Ledger, apart, lay_out


class SpreadController(Controller):
    """A controller that keeps copies apart by executor where it can (CT-4)."""

    __slots__ = ("executor_of",)

    def __init__(self, *args: Any, executor_of: dict[int, tuple[str, str]], **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.executor_of = executor_of

    def place(self, pair: Pair, c: int) -> int | None:
        """As the protocol says, among the sites of other executors if there are any."""
        every = self.sites
        self.targets = tuple(target for target in self.targets if target[2] in every)
        if not any((of, copy) == (pair, c) for of, copy, _ in self.targets):
            self.sites = apart(self, pair, c) or every
        try:
            return super().place(pair, c)
        finally:
            self.sites = every

    def may_move(self, pair: Pair, c: int, site: int) -> bool:
        """As the protocol says, and not into the executor of the other copy if there are others."""
        if not super().may_move(pair, c, site):
            return False
        elsewhere = apart(self, pair, c)
        return not elsewhere or site in elsewhere

    def notice(self, notice: Notice | Hosted) -> list[Order]:
        """As the protocol says; `Hosted`, as sites tell it."""
        return super().notice(notice_of(notice) if isinstance(notice, Hosted) else notice)

    @property
    def catching_up(self) -> set[Pair]:
        """Pairs a copy of which catches up."""
        return {now.pair for now in self.in_hand}


class PapersLedger(Ledger):
    """The state that all events so far add up to."""

    controller: SpreadController | None

    def _since(self, position: int) -> int:
        """How many entries from there on some site must have read before all was whole."""
        return self.position - position

    def _new_leader(self) -> None:
        """Catch-ups in hand are given up: the markers that the ends had read went with the leader.

        Killing the standby is always allowed, and leaves every neighbour with two copies that are
        either whole or dead; from that, ingress and egress can be rebuilt.
        """
        if self.controller is not None:
            for now in self.controller.in_hand:
                self._note(self.controller.copy_failed(Node(*now.pair, now.copy, now.attempt)))

    def _lay_out(self) -> None:
        placement = lay_out(self.shape, list(self.sites.values()))
        self.layout = self.later = Layout(0, placement, {})
        self.controller = self._controller(placement)

    def _controller(self, placement: dict[tuple[Pair, int], int]) -> SpreadController:
        return SpreadController(
            self.shape,
            placement,
            frozenset(self.sites),
            parallel_max=self.parallel_max,
            executor_of=self.executor_of,
        )

    def take_up(self, pairs: dict[Pair, PairView], failures: int, numbers: Sequence[int]) -> None:
        """Go on with copies that are whole, as `snapshot` has kept them.

        Args:
            pairs: the copies.
            failures: how many there have been.
            numbers: see `ResumeLedger.numbers_given`.
        """
        self.controller = self._controller(
            {
                (pair, c): copy.site
                for pair, v in pairs.items()
                for c, copy in enumerate(v.copies)
                if copy
            }
        )
        self.controller.pairs, self.controller.failures = pairs, failures

    def _move(self, event: Event) -> None:
        pair, copy, site = Pair(event["stage"], event["part"]), event["copy"], event["site"]
        if self.controller is not None and self.controller.may_move(pair, copy, site):
            self.moves += 1
            self._note(self.controller.move(pair, copy, site))

    def _note(self, orders: Sequence[Order]) -> None:
        """Add what the controller has decided to the entries."""
        assert self.controller is not None
        at = {o.node: o.site for o in orders if isinstance(o, Instantiate)}
        new, self.controller.log = self.controller.log, ()
        for entry in new:
            site = None
            if isinstance(entry, Avail):
                site = at[Node(*entry.pair, entry.copy, entry.attempt)]
            self.entries.append(entry_hosted(entry, site))
        self.losses += [order for order in orders if isinstance(order, DataLoss)]
