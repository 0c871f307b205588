"""Balancing mode: rounds of statistics and moves over partition pairs (thesis 5.1; UF-7 to UF-13).

Moves are induced failures, so safety is the business of the fault-tolerance protocol; statistics
affect performance only. A *round number* rises with every transition from balancing to recovery,
and answers that carry an older one are ignored (UF-8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from flux_runtime.protocol.balancing import (
    PlannedMove,
    SiteStatistics,
    Thresholds,
    plan_round,
)
from flux_runtime.protocol.collection import CollectionTime
from flux_runtime.protocol.orders import DataLoss, Order
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.protocol.worth import Policy


class Mode(Enum):
    """The balancer's phase."""

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


Answer = Order | ResetStatistics | RequestStatistics


class Carrier(Protocol):
    """Carries moves out, and knows what is whole: the controller, or whoever asks it to."""

    @property
    def sites(self) -> frozenset[int]:
        """That may host copies."""
        ...

    @property
    def losses(self) -> tuple[DataLoss, ...]:
        """Pairs without a copy."""
        ...

    @property
    def failures(self) -> int:
        """Rises with every failure."""
        ...

    @property
    def is_whole(self) -> bool:
        """See `Controller.is_whole`."""
        ...

    def may_move(self, pair: Pair, c: int, site: int) -> bool:
        """See `Controller.may_move`."""
        ...

    def move(self, pair: Pair, c: int, site: int) -> list[Order]:
        """See `Controller.move`; where it takes time, `is_whole` is false meanwhile."""
        ...


class Balancer:
    """Decides, round by round, which copies move; the controller carries the moves out.

    The partitions in the statistics are (pair, copy). Of each pair one copy moves in a round at
    most, and as many pairs at once as the controller lets be without a partner; a round ends when
    all its moves are folded in everywhere (UF-12).

    Args:
        controller: knows what is whole, and where copies stand.
        thresholds: when to move, and the shortest collection phase.
        policy: plans a round.
        collection: how long phases last; tunes itself if left out.
        moved: told the moves of a round once they are folded in, and how many seconds they took.
    """

    def __init__(
        self,
        controller: Carrier,
        thresholds: Thresholds,
        *,
        policy: Policy = plan_round,
        collection: CollectionTime | None = None,
        moved: Callable[[Sequence[PlannedMove], float], None] | None = None,
    ) -> None:
        self.controller = controller
        self.thresholds = thresholds
        self.policy = policy
        self.moved = moved
        self.mode = Mode.RECOVERING
        self.round = 0
        self.collection = collection or CollectionTime(thresholds)
        self.wakes_at = 0.0
        self.asked_at = 0.0
        self.moving_since = 0.0
        self.gathering = 0.0
        self.asked: frozenset[int] = frozenset()
        self.answers: dict[int, SiteStatistics] = {}
        self.planned: list[PlannedMove] = []
        self.made: list[PlannedMove] = []
        self.failures = 0

    def tick(self, now: float) -> list[Answer]:
        """Instructions due by the time and the controller's state; call it after every event."""
        if self.mode is not Mode.RECOVERING and self._failed():
            self.mode = Mode.RECOVERING  # UF-7: a failure aborts balancing at once
            self.round += 1  # UF-8
            self.planned.clear()
        if self.mode is Mode.RECOVERING and self.controller.is_whole:
            return self._collect(now, self.collection.delta)
        if self.mode is Mode.COLLECTING and now >= self.wakes_at:
            self.mode = Mode.GATHERING
            self.asked_at = now
            self.asked = self.controller.sites
            self.answers.clear()
            return [RequestStatistics(self.round)]
        if self.mode is Mode.GATHERING:
            return self._gather(now)
        if self.mode is Mode.MOVING:
            return self._move(now)
        return []

    def _failed(self) -> bool:
        """Whether something needs recovery that no move of ours explains."""
        if self.controller.failures != self.failures or self.controller.losses:
            return True
        return self.mode is not Mode.MOVING and not self.controller.is_whole

    def _collect(self, now: float, delta: float) -> list[Answer]:
        self.mode = Mode.COLLECTING
        self.failures = self.controller.failures
        self.wakes_at = now + delta
        return [ResetStatistics(self.round)]

    def statistics(self, round_: int, answer: SiteStatistics, now: float) -> list[Answer]:
        """A site has answered; once all have, the moves of the round begin.

        Answers of an earlier round are ignored (UF-8).
        """
        if round_ != self.round or self.mode is not Mode.GATHERING:
            return []
        self.answers[answer.site] = answer
        return self._gather(now)

    def _gather(self, now: float) -> list[Answer]:
        """UF-9: wait for every site that was asked and is still there, then plan the moves.

        A site that joins meanwhile has counted nothing yet: it takes part in the next round. One
        that has not answered for as long as the longest phase is slow: the round goes on without
        it, among the others. Its answer would be of another time than theirs, and is ignored.
        """
        asked = self.asked & self.controller.sites
        if not asked <= self.answers.keys():
            if now - self.asked_at < self.collection.delta_max:
                return []
            asked &= self.answers.keys()
            self.round += 1  # UF-9: an answer that comes later is of another round
            if len(asked) < 2:  # nobody to move anything between
                return self._collect(now, self.collection.delta)
        self.gathering = now - self.asked_at  # T_stat
        sites = [self.answers[site] for site in sorted(asked)]
        self.planned = self.policy(sites, self.thresholds, allowed=self._allowed, unit=pair_of)
        if self.planned and not self.collection.enough(sites, self.planned):
            delta = self.collection.lengthen(sites, self.planned, gathering=self.gathering)
            self.planned.clear()
            return self._collect(now, delta)
        self.mode = Mode.MOVING
        self.moving_since = now
        self.made.clear()
        return self._move(now)

    def _allowed(self, part: object, donor: int, receiver: int) -> bool:
        pair, copy = _of(part)
        return self.controller.may_move(pair, copy, receiver)  # UF-10

    def _move(self, now: float) -> list[Answer]:
        """UF-11: what may move now; UF-12: the round is over when all of it has folded in."""
        orders: list[Answer] = []
        for move in list(self.planned):
            pair, copy = _of(move.part)
            if self.controller.may_move(pair, copy, move.receiver):
                orders += self.controller.move(pair, copy, move.receiver)
                self.planned.remove(move)
                self.made.append(move)
        self.failures = self.controller.failures
        if orders or not self.controller.is_whole:
            return orders
        moved_for = now - self.moving_since if self.made else None
        self.planned.clear()
        if self.moved is not None and moved_for is not None:
            self.moved(self.made, moved_for)
        delta = self.collection.next(self.made, moved_for=moved_for, gathering=self.gathering)
        return self._collect(now, delta)


def _of(part: object) -> tuple[Pair, int]:
    assert isinstance(part, tuple)
    pair, copy = part
    return pair, copy


def pair_of(part: object) -> Pair:
    """The pair that a part of the statistics is a copy of."""
    return _of(part)[0]
