"""Whether moves are worth what they cost: the hysteresis of balancing by load.

A move costs output: the pair stands still while its state travels, and has no second copy. It gains
output only where a site is as busy as it can be and holds the others up; how much is worked out
from the processor that each site gets (`SiteStatistics.available`), so that a site which something
else keeps busy is no receiver. Moves are carried out once as much output has been lost to the
imbalance as they will cost (as one rents skis until the rent has come to their price): what is over
sooner moves nothing, and moves cost no more than was lost before. A pair that has left a site does
not come back within `rounds` rounds.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from flux_runtime.protocol.balancing import (
    Allowed,
    Part,
    PlannedMove,
    SiteStatistics,
    Thresholds,
    Unit,
    anywhere,
    itself,
    plan_round,
)

EVIDENCE_S: Final = 0.5
"""Seconds of wanting the processor after which half of what is believed of a site is measured."""
FORGET: Final = 0.8
"""Of the evidence, what is left after a round: load from outside comes and goes."""
MOVE_S: Final = 1.0
"""What a move costs at least: while it lasts, the pair has no second copy."""
AVAILABLE_MIN: Final = 0.01


class Policy(Protocol):
    """Plans a round: `plan_round`, `plan_hybrid_round`, `Worth`, or one's own."""

    def __call__(
        self,
        sites: Sequence[SiteStatistics],
        thresholds: Thresholds,
        *,
        allowed: Allowed,
        unit: Unit,
    ) -> list[PlannedMove]:
        """The moves of a round, from what all sites reported."""
        ...


@dataclass
class _Processor:
    """How much of the processor a site has got, of what it wanted: both in seconds, fading."""

    got_s: float = 0.0
    wanted_s: float = 0.0

    @property
    def available(self) -> float:
        """The share that it gets when it wants it; 1 as long as little is known."""
        share = (self.got_s + EVIDENCE_S) / (self.wanted_s + EVIDENCE_S)
        return max(AVAILABLE_MIN, min(1.0, share))


@dataclass
class Worth:
    """A policy of load that plans as another does, and makes the moves that are worth it.

    Args:
        plan: the other policy.
        busy: while no site is busier than this, nothing is lost to an imbalance.
        gain_min: least part of a site's pace that a move has to gain.
        rounds: so long a pair does not come back to a site.
    """

    plan: Policy = plan_round
    busy: float = 0.8
    gain_min: float = 0.01
    rounds: int = 20
    round: int = 0
    lost_s: float = 0.0
    """Seconds of output that the imbalance has cost so far, against sites that are equally busy."""
    move_s: float = MOVE_S
    """The time that a move takes, as measured."""
    processors: dict[int, _Processor] = field(default_factory=dict)
    left: dict[tuple[Hashable, int], int] = field(default_factory=dict)
    """(unit, site) -> the round in which it went from there."""

    def __call__(
        self,
        sites: Sequence[SiteStatistics],
        thresholds: Thresholds,
        *,
        allowed: Allowed = anywhere,
        unit: Unit = itself,
    ) -> list[PlannedMove]:
        """The moves of a round, from what all sites reported."""
        possible = self.possible(allowed, unit)
        return self.weigh(sites, self._planned(sites, thresholds, possible, unit))

    def _planned(
        self, sites: Sequence[SiteStatistics], thresholds: Thresholds, possible: Allowed, unit: Unit
    ) -> list[PlannedMove]:
        """The other policy's moves; where none leaves the busiest site, without the idlest ones.

        A policy that pairs the busiest with the idlest site gives up where the partners of all that
        the one has stand on the other.
        """
        order = sorted(sites, key=lambda site: (-site.utilisation, site.site))
        first: list[PlannedMove] = []
        for last in range(len(order), 1, -1):
            moves = self.plan(order[:last], thresholds, allowed=possible, unit=unit)
            if any(move.donor == order[0].site for move in moves):
                return moves
            first = first or moves
        return first

    def may_go(self, unit: Hashable, site: int) -> bool:
        """Whether a unit may go to a site, as far as it has not just left it."""
        when = self.left.get((unit, site))
        return when is None or self.round - when >= self.rounds

    def possible(self, allowed: Allowed, unit: Unit) -> Allowed:
        """The moves that are possible, without those that go back."""

        def both(part: Part, donor: int, receiver: int) -> bool:
            return self.may_go(unit(part), receiver) and allowed(part, donor, receiver)

        return both

    def weigh(
        self, sites: Sequence[SiteStatistics], moves: Sequence[PlannedMove]
    ) -> list[PlannedMove]:
        """Those of the moves, from the first, whose cost has been lost to the imbalance already."""
        self.round += 1
        self._learn(sites)
        worth = self._gainful(sites, moves)
        if not worth:
            self.lost_s /= 2
            return []
        available = {site: processor.available for site, processor in self.processors.items()}
        pace = max(site.utilisation for site in sites)
        even = sum(s.utilisation * available[s.site] for s in sites) / sum(available.values())
        self.lost_s += (1 - even / pace) * max(site.covered_s for site in sites)
        return worth[: int(self.lost_s / max(self.move_s, MOVE_S))]

    def note_moves(self, moves: Sequence[PlannedMove], took_s: float, unit: Unit) -> None:
        """Moves have been carried out, one beside the other."""
        if moves:
            self.lost_s = max(0.0, self.lost_s - len(moves) * max(self.move_s, MOVE_S))
            self.move_s += (took_s / len(moves) - self.move_s) / 2
        for move in moves:
            self.left[unit(move.part), move.donor] = self.round
        self.left = {k: when for k, when in self.left.items() if self.round - when < self.rounds}

    def _learn(self, sites: Sequence[SiteStatistics]) -> None:
        known = self.processors
        self.processors = {site.site: known.get(site.site, _Processor()) for site in sites}
        for site in sites:
            processor, wanted_s = self.processors[site.site], site.utilisation * site.covered_s
            processor.got_s = FORGET * processor.got_s + wanted_s * site.available
            processor.wanted_s = FORGET * processor.wanted_s + wanted_s

    def _gainful(
        self, sites: Sequence[SiteStatistics], moves: Sequence[PlannedMove]
    ) -> list[PlannedMove]:
        """The moves that let a busy site go faster.

        Of several sites that are as busy as they can be the pace comes up when the last of them has
        given something away; so each counts by itself.
        """
        available = {site: processor.available for site, processor in self.processors.items()}
        work = {s.site: s.utilisation * available[s.site] for s in sites}
        of_part = {
            (site.site, part): work[site.site] * rows / site.tuples
            for site in sites
            for part, rows in site.processed.items()
            if site.tuples > 0
        }
        gainful = []
        for move in moves:
            donor, receiver = move.donor, move.receiver
            moved = of_part.get((donor, move.part), 0.0)
            before = work[donor] / available[donor]
            after = max(
                (work[donor] - moved) / available[donor],
                (work[receiver] + moved) / available[receiver],
            )
            if before >= self.busy and 1 - after / before >= self.gain_min:
                gainful.append(move)
                work[donor] -= moved
                work[receiver] += moved
        return gainful
