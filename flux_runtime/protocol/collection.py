"""How long to collect statistics: long enough to tell partitions apart, no longer (UF-9).

The papers leave the shortest phase to the administrator, and their results depend on it: with too
short a phase only popular partitions are seen, and the policy moves partitions back and forth
(EX-6). Here it tunes itself by two rules.

Sampling error. Arrivals counted over a phase scatter like a Poisson count: n tuples have a standard
error of sqrt(n). A move is carried out only if each partition that is to move has been seen often
enough, and the error of every site's utilisation is below a quarter of the imbalance that is acted
on; until then the phase grows.

Undo detector. A partition that returns to a site it left a few rounds ago says that the phase was
too short in spite of that: the shortest phase doubles. In every other round it decays.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Final

from flux_runtime.protocol.balancing import (
    Part,
    PlannedMove,
    SiteStatistics,
    Thresholds,
    next_delta,
)

TUPLES_MIN: Final = 30.0
"""A count whose relative error, 1 / sqrt(30), is below a fifth."""
GROWTH_MAX: Final = 4.0
"""A phase grows at most so much at once: what was seen is itself a sample."""
DECAY: Final = 0.9
"""Of the shortest phase, per round without an undone move."""


class CollectionTime:
    """The length of the next collection phase, in seconds.

    Args:
        thresholds: `delta_min` is the shortest phase that tuning may come back to.
        tuples_min: tuples of a partition that a move needs; 0 trusts any statistics.
        undo_rounds: a partition that returns within so many rounds was moved on too little
            evidence; 0 switches the detector off.
        delta_max: longest phase. After it a move is made on what there is, since a dataflow may
            have less traffic than the bounds ask for.
    """

    def __init__(
        self,
        thresholds: Thresholds,
        *,
        tuples_min: float = TUPLES_MIN,
        undo_rounds: int = 8,
        delta_max: float = 60.0,
    ) -> None:
        if not 0 < thresholds.delta_min <= delta_max:
            raise ValueError(f"phases from {thresholds.delta_min} to {delta_max} s cannot be")
        self.thresholds = thresholds
        self.tuples_min = tuples_min
        self.undo_rounds = undo_rounds
        self.delta_max = delta_max
        self.delta_min = thresholds.delta_min
        self.delta = thresholds.delta_min
        self.round = 0
        self.left: dict[tuple[Part, int], int] = {}

    def enough(self, sites: Sequence[SiteStatistics], moves: Sequence[PlannedMove]) -> bool:
        """Whether the statistics of this phase carry these moves."""
        return self.delta >= self.delta_max or self._lacking(sites, moves) <= 1.0

    def _lacking(self, sites: Sequence[SiteStatistics], moves: Sequence[PlannedMove]) -> float:
        """How many times longer the phase should have been; at most 1 if it was long enough."""
        if not self.tuples_min:
            return 1.0
        seen = {part: n for site in sites for part, n in site.processed.items()}
        bound = (self.thresholds.imbalance - 1) / 4
        lacking = [self.tuples_min / max(seen[move.part], 1.0) for move in moves]
        lacking += [
            (site.utilisation / sqrt(site.tuples) / bound) ** 2 for site in sites if site.tuples
        ]
        return max(lacking, default=1.0)

    def lengthen(
        self,
        sites: Sequence[SiteStatistics],
        moves: Sequence[PlannedMove],
        *,
        gathering: float = 0.0,
    ) -> float:
        """The next phase, after one that was too short for the moves it suggested (UF-9).

        Args:
            sites: the statistics.
            moves: what they suggested.
            gathering: how long it took to gather them (`T_stat`); no phase is shorter.
        """
        grown = self.delta * min(GROWTH_MAX, max(self._lacking(sites, moves), 1.0))
        self.delta = min(self.delta_max, max(grown, gathering))
        return self.delta

    def next(
        self,
        moves: Sequence[PlannedMove],
        *,
        moved_for: float | None,
        gathering: float = 0.0,
    ) -> float:
        """The next phase, after a round with these moves (UF-9).

        Args:
            moves: that were carried out.
            moved_for: how long they took; None if there were none.
            gathering: how long it took to gather the statistics (`T_stat`).
        """
        self.round += 1
        undone = False
        for move in moves:
            when = self.left.get((move.part, move.receiver))
            undone |= when is not None and self.round - when <= self.undo_rounds
            self.left[move.part, move.donor] = self.round
        self.left = {
            k: when for k, when in self.left.items() if self.round - when < self.undo_rounds
        }
        if undone:
            self.delta_min = min(self.delta_max, 2 * self.delta_min)
        else:
            self.delta_min = max(self.thresholds.delta_min, DECAY * self.delta_min)
        wanted = next_delta(self.delta, self.thresholds, moved_for=moved_for, gathering=gathering)
        self.delta = min(self.delta_max, max(wanted, self.delta_min))
        return self.delta
