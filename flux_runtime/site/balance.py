"""Balancing rounds on real sites: asks all sites, has a policy plan, and has moves recorded.

The protocol's `Balancer` keeps the rounds (UF-7 to UF-13) and changes the controller's state when a
move is due. A leader must record an event before it acts on it, so the balancer is given
`RecordedMoves` in the controller's place: a move becomes an event, and counts as under way until
the event has been applied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from flux_runtime.protocol.balancer import (
    Answer,
    Balancer,
    Mode,
    RequestStatistics,
    ResetStatistics,
    pair_of,
)
from flux_runtime.protocol.balancing import (
    Allowed,
    PlannedMove,
    SiteStatistics,
    Thresholds,
    Unit,
    plan_hybrid_round,
    plan_memory_round,
    plan_round,
)
from flux_runtime.protocol.collection import CollectionTime
from flux_runtime.protocol.orders import DataLoss, Order
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.protocol.worth import Policy, Worth
from flux_runtime.site import control_messages as control
from flux_runtime.site.config import Balance
from flux_runtime.site.leader_steps import Term
from flux_runtime.site.ledger import Ledger
from flux_runtime.site.statistics import answered
from flux_runtime.site.steps import Link

log = logging.getLogger(__name__)
log.addHandler(logging.NullHandler())

RecordMove = Callable[[Pair, int, int, Callable[[], None]], None]


class RecordedMoves:
    """The balancer's view of a ledger's controller.

    Args:
        ledger: with a layout.
        record: records a move and calls back when it has been applied.
    """

    def __init__(self, ledger: Ledger, record: RecordMove) -> None:
        assert ledger.controller is not None
        self.ledger = ledger
        self.controller = ledger.controller
        self.record = record
        self.under_way: list[tuple[Pair, int, int]] = []

    @property
    def sites(self) -> frozenset[int]:
        """That may host copies."""
        return frozenset(self.controller.sites)

    @property
    def losses(self) -> tuple[DataLoss, ...]:
        """Pairs without a copy."""
        return self.controller.losses

    @property
    def failures(self) -> int:
        """Failures that no move has caused."""
        return self.controller.failures - self.ledger.moves

    @property
    def is_whole(self) -> bool:
        """Whether nothing is to be recovered, and nothing moves."""
        return self.controller.is_whole and not self.under_way

    def may_move(self, pair: Pair, c: int, site: int) -> bool:
        """As the controller says, with the moves that it has not heard of yet."""
        controller, moving = self.controller, {of for of, _, _ in self.under_way}
        known = controller.catching_up - moving
        return (
            pair not in moving
            and all(of.stage == pair.stage for of in moving)
            and len(known) + len(moving) < controller.parallel_max
            and controller.may_move(pair, c, site)
        )

    def move(self, pair: Pair, c: int, site: int) -> list[Order]:
        """UF-11, once it has been recorded; no orders until then."""
        move = (pair, c, site)
        self.under_way.append(move)
        self.record(pair, c, site, lambda: self.under_way.remove(move))
        return []


class Rounds:
    """Drives the balancer of one term of leading."""

    def __init__(self, term: Term, balance: Balance) -> None:
        self.term = term
        self.balance = balance
        self.made = 0
        self.seen: dict[int, SiteStatistics] = {}
        plan = plan_hybrid_round if balance.policy == "hybrid" else plan_round
        self.worth = Worth(plan, busy=balance.quiet)
        thresholds = Thresholds(
            imbalance=balance.imbalance,
            utilisation=balance.utilisation,
            delta_min=balance.delta_min_s,
            severe=balance.severe,
            moves_max=balance.moves_max,
        )
        self.balancer = Balancer(
            RecordedMoves(term.ledger, self._record),
            thresholds,
            policy=self._plan,
            collection=CollectionTime(thresholds, delta_max=balance.delta_max_s),
            moved=lambda moves, took_s: self.worth.note_moves(moves, took_s, pair_of),
        )

    def tick(self) -> None:
        """Time has passed, or events have been applied."""
        self._tell(self.balancer.tick(self.term.now))

    def answered(self, site: int, answer: control.Statistics) -> None:
        """A site has answered."""
        statistics = answered(site, answer)
        self.seen[site] = statistics
        now = self.term.now
        self._tell(self.balancer.statistics(answer.round, statistics, now))

    def joined(self, site: int, link: Link) -> None:
        """A site has come in the middle of a round: it counts from now on."""
        number = self.balancer.round
        self.term.tell(link, control.ResetStatistics(number))
        if self.balancer.mode is Mode.GATHERING:
            nothing = SiteStatistics(site=site, utilisation=0.0, processed={})
            self._tell(self.balancer.statistics(number, nothing, self.term.now))

    def _tell(self, answers: Sequence[Answer]) -> None:
        for answer in answers:
            match answer:
                case ResetStatistics(number):
                    self.term.broadcast(control.ResetStatistics(number))
                case RequestStatistics(number):
                    self.term.broadcast(control.RequestStatistics(number))

    def _plan(
        self,
        sites: Sequence[SiteStatistics],
        thresholds: Thresholds,
        *,
        allowed: Allowed,
        unit: Unit,
    ) -> list[PlannedMove]:
        """The configured policy; load is moved only where that is worth it."""
        if self.balance.policy == "memory":
            return plan_memory_round(sites, allowed=allowed, unit=unit)
        pressed = any(site.on_disk for site in sites) and self.balance.policy == "hybrid"
        plan: Policy = plan_hybrid_round if pressed else self.worth
        try:
            return plan(sites, thresholds, allowed=allowed, unit=unit)
        except ArithmeticError:  # UF-8: statistics affect performance only
            log.exception("nothing moves in this round")
            return []

    def _record(self, pair: Pair, copy: int, site: int, then: Callable[[], None]) -> None:
        self.made += 1
        self.term.move(pair, copy, site, by="balancer", then=then)

    def status(self) -> control.BalanceStatus:
        """As in the status of the job."""
        return control.BalanceStatus(
            policy=self.balance.policy,
            mode=self.balancer.mode.value,
            round=self.balancer.collection.round,
            collection_s=self.balancer.collection.delta,
            moves=self.made,
            utilisation={site: s.utilisation for site, s in self.seen.items()},
        )
