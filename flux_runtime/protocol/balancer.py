"""Balancing mode: rounds of statistics and moves over partition pairs (thesis 5.1; UF-7 to UF-13).

Moves are induced failures, so safety is the business of the fault-tolerance protocol; statistics
affect performance only. A *round number* rises with every transition from balancing to recovery,
and answers that carry an older one are ignored (UF-8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from flux_runtime.protocol.balancing import (
    PlannedMove,
    SiteStatistics,
    Thresholds,
    next_delta,
    plan_round,
)
from flux_runtime.protocol.controller import Controller, Order
from flux_runtime.protocol.vocabulary import Pair


class Mode(Enum):
    """What the balancer is doing."""

    RECOVERING = "recovering"
    COLLECTING = "collecting"
    GATHERING = "gathering"
    MOVING = "moving"


@dataclass(frozen=True, slots=True)
class ResetStatistics:
    """UF-9, to every site: start counting; the answer to the next request covers from here on."""

    round: int


@dataclass(frozen=True, slots=True)
class RequestStatistics:
    """UF-9, to every site: report."""

    round: int


Policy = Callable[[Sequence[SiteStatistics], Thresholds, Callable[..., bool]], list[PlannedMove]]


def by_load(
    sites: Sequence[SiteStatistics], thresholds: Thresholds, allowed: Callable[..., bool]
) -> list[PlannedMove]:
    """The policy of section 6.4."""
    return plan_round(sites, thresholds, allowed=allowed)


class Balancer:
    """Decides, round by round, which copies move; the controller carries the moves out.

    The partitions in the statistics are (pair, copy). Moves of a round are carried out one after
    another, each once the one before is folded in everywhere (UF-12).

    Args:
        controller: knows what is whole, and where copies stand.
        thresholds: when to move, and the shortest collection phase.
        policy: plans a round.
    """

    def __init__(
        self, controller: Controller, thresholds: Thresholds, *, policy: Policy = by_load
    ) -> None:
        self.controller = controller
        self.thresholds = thresholds
        self.policy = policy
        self.mode = Mode.RECOVERING
        self.round = 0
        self.delta = thresholds.delta_min
        self.wakes_at = 0.0
        self.asked_at = 0.0
        self.moving_since = 0.0
        self.gathering = 0.0
        self.answers: dict[int, SiteStatistics] = {}
        self.planned: list[PlannedMove] = []
        self.failures = 0

    def tick(self, now: float) -> list[Order | ResetStatistics | RequestStatistics]:
        """What the time and the controller's state call for; call it after every event."""
        if self.mode is not Mode.RECOVERING and self._failed():
            self.mode = Mode.RECOVERING  # UF-7: a failure aborts balancing at once
            self.round += 1  # UF-8
            self.planned.clear()
        if self.mode is Mode.RECOVERING and self.controller.whole:
            return self._collect(now, moved_for=None)
        if self.mode is Mode.COLLECTING and now >= self.wakes_at:
            self.mode = Mode.GATHERING
            self.asked_at = now
            self.answers.clear()
            return [RequestStatistics(self.round)]
        if self.mode is Mode.MOVING and self.controller.whole:
            return self._next_move(now)
        return []

    def _failed(self) -> bool:
        """Whether something needs recovery that no move of ours explains."""
        if self.mode is Mode.MOVING:
            return self.controller.failures != self.failures or bool(self.controller.losses)
        return not self.controller.whole

    def _collect(
        self, now: float, *, moved_for: float | None
    ) -> list[Order | ResetStatistics | RequestStatistics]:
        self.mode = Mode.COLLECTING
        self.delta = next_delta(
            self.delta, self.thresholds, moved_for=moved_for, gathering=self.gathering
        )
        self.wakes_at = now + self.delta
        return [ResetStatistics(self.round)]

    def statistics(
        self, round_: int, answer: SiteStatistics, now: float
    ) -> list[Order | ResetStatistics | RequestStatistics]:
        """A site has answered; once all have, the moves of the round begin.

        Answers of an earlier round are ignored (UF-8).
        """
        if round_ != self.round or self.mode is not Mode.GATHERING:
            return []
        self.answers[answer.site] = answer
        if set(self.answers) < self.controller.sites:
            return []
        self.gathering = now - self.asked_at
        sites = [self.answers[site] for site in sorted(self.answers)]
        self.planned = self.policy(sites, self.thresholds, self._allowed)
        if not self.planned:
            return self._collect(now, moved_for=None)
        self.mode = Mode.MOVING
        self.moving_since = now
        return self._next_move(now)

    def _allowed(self, part: object, donor: int, receiver: int) -> bool:
        pair, copy = _of(part)
        return self.controller.may_move(pair, copy, receiver)  # UF-10

    def _next_move(self, now: float) -> list[Order | ResetStatistics | RequestStatistics]:
        """UF-11, UF-12: the next move, once all neighbours have folded in the one before."""
        while self.planned:
            move = self.planned.pop(0)
            pair, copy = _of(move.part)
            if self.controller.may_move(pair, copy, move.receiver):
                orders: list[Order | ResetStatistics | RequestStatistics] = []
                orders += self.controller.move(pair, copy, move.receiver)
                self.failures = self.controller.failures
                return orders
        return self._collect(now, moved_for=now - self.moving_since)


def _of(part: object) -> tuple[Pair, int]:
    assert isinstance(part, tuple)
    pair, copy = part
    return pair, copy
