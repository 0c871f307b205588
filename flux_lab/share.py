"""The share model: a stage at full speed, its sites' processors shared with external load.

Every partition gets the same input rate, so the slowest site sets the pace: with n partitions and
the share c of its processor left, a site can give each c / n of what one processor does. The other
sites are idle for the remainder. Reproduces nearly all published results on balancing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flux_runtime.protocol.balancing import (
    PlannedMove,
    SiteStatistics,
    Thresholds,
    anywhere,
    next_delta,
    plan_round,
)


@dataclass
class ShareModel:
    """Sites, the partitions on each, and the share of each processor that is left.

    Attributes:
        parts: site -> its partition copies.
        share: site -> share of its processor that the dataflow gets; 1 if not named.
        weight: partition -> its part of the input, relative to the others; 1 if not named.
        time: seconds since the start.
    """

    parts: dict[int, list[tuple[int, int]]]
    share: Mapping[int, float] = field(default_factory=dict)
    weight: Mapping[int, float] = field(default_factory=dict)
    time: float = 0.0

    def load(self, site: int) -> float:
        """Work of a site per unit of input, in units of its processor."""
        work = sum(self.weight.get(part, 1.0) for part, _ in self.parts[site])
        return work / self.share.get(site, 1.0)

    def rate(self) -> float:
        """Throughput per partition, as a multiple of one processor's."""
        return 1.0 / max(self.load(site) for site in self.parts)

    def statistics(self, delta: float, tuple_seconds: float) -> list[SiteStatistics]:
        """The reports that a collection phase of `delta` seconds would give."""
        rate = self.rate()
        per_weight = rate * delta / tuple_seconds
        return [
            SiteStatistics(
                site=site,
                utilisation=self.load(site) * rate,
                processed={p: self.weight.get(p[0], 1.0) * per_weight for p in parts},
            )
            for site, parts in self.parts.items()
        ]

    def apply(self, moves: Sequence[PlannedMove]) -> None:
        """Move partitions."""
        for move in moves:
            self.parts[move.donor].remove(move.part)  # type: ignore[arg-type]
            self.parts[move.receiver].append(move.part)  # type: ignore[arg-type]

    def two_copies(self, part: object, donor: int, receiver: int) -> bool:
        """UF-10: whether the move would put two copies of a partition on one site."""
        return any(held[0] == part[0] for held in self.parts[receiver])  # type: ignore[index]


@dataclass
class Balanced:
    """The result of balancing.

    Attributes:
        moves: number of moves.
        rounds: number of rounds with moves.
        moving: seconds spent in movement phases.
        settled: time after the last move.
        rates: (time, throughput) after every round.
    """

    moves: int = 0
    rounds: int = 0
    moving: float = 0.0
    settled: float = 0.0
    rates: list[tuple[float, float]] = field(default_factory=list)


def balance(
    model: ShareModel,
    thresholds: Thresholds,
    *,
    move_seconds: float,
    tuple_seconds: float = 45e-6,
    copies_apart: bool = False,
    rounds_max: int = 400,
) -> Balanced:
    """Let the policy run until it is content.

    Args:
        model: changed in place.
        thresholds: of the policy.
        move_seconds: how long one move takes; the moves of a round take place side by side.
        tuple_seconds: processor time of one tuple.
        copies_apart: never put two copies of a partition on one site (UF-10).
        rounds_max: give up after this many rounds.
    """
    result = Balanced()
    delta, quiet = thresholds.delta_min, 0

    def allowed(part: object, donor: int, receiver: int) -> bool:
        return not (copies_apart and model.two_copies(part, donor, receiver))

    for _ in range(rounds_max):
        statistics = model.statistics(delta, tuple_seconds)
        model.time += delta
        moves = plan_round(statistics, thresholds, allowed=allowed if copies_apart else anywhere)
        model.apply(moves)
        took = move_seconds * one_after_another(moves)
        model.time += took
        result.rates.append((model.time, model.rate()))
        delta = next_delta(delta, thresholds, moved_for=took if moves else None)
        if not moves:
            quiet += 1
            if quiet > 2:
                break
            continue
        quiet = 0
        result.moves += len(moves)
        result.rounds += 1
        result.moving += took
        result.settled = model.time
    return result


def one_after_another(moves: Sequence[PlannedMove]) -> int:
    """Moves of a round that follow one another: those out of the same donor."""
    donors = [move.donor for move in moves]
    return max((donors.count(donor) for donor in set(donors)), default=0)


def even(sites: int, per_site: int, *, copies: int = 1) -> dict[int, list[tuple[int, int]]]:
    """`per_site` partition copies on each site; two copies of a partition on neighbouring sites."""
    parts: dict[int, list[tuple[int, int]]] = {site: [] for site in range(sites)}
    for n in range(sites * per_site // copies):
        for copy in range(copies):
            parts[(n + copy) % sites].append((n, copy))
    return parts
