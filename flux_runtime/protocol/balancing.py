"""Balancing policies: which partition moves from which site to which, from statistics of a round.

Hill climbing without prediction (thesis 4.4.3 to 4.4.5, 5.1): equalise with few moves. A round is a
collection phase of `delta` seconds, then the moves it leads to. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

Part = Hashable


@dataclass(frozen=True, kw_only=True)
class SiteStatistics:
    """The report of one site for a collection phase.

    Attributes:
        site: its number.
        utilisation: U = 1 - idle time / delta, between 0 and 1.
        available: of that time, the part that it had the processor.
        covered_s: length of the phase (delta).
        processed: tuples processed per partition.
        state: bytes of state per partition.
        memory: bytes available to the operator on this site.
        on_disk: partitions whose state has been spilled.
        pending: bytes of input received and not processed yet, per partition.
    """

    site: int
    utilisation: float
    processed: Mapping[Part, float]
    available: float = 1.0
    covered_s: float = 0.0
    state: Mapping[Part, float] = field(default_factory=dict)
    memory: float = float("inf")
    on_disk: frozenset[Part] = frozenset()
    pending: Mapping[Part, float] = field(default_factory=dict)

    @property
    def tuples(self) -> float:
        """T: tuples processed in all."""
        return sum(self.processed.values())

    @property
    def excess(self) -> float:
        """Memory to spare; negative when it is exhausted (AMB-4)."""
        return self.memory - sum(self.state.values())


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """Move this partition from a donor to a receiver."""

    part: Part
    donor: int
    receiver: int


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """When to move at all.

    Attributes:
        imbalance: least ratio of the donor's to the receiver's utilisation (th_imb).
        utilisation: greatest utilisation of a receiver (th_util).
        delta_min: shortest collection phase, in seconds.
        severe: ratio of utilisations above which a donor gives away several partitions in one
            round, each to whoever is then predicted to be idlest.
        moves_max: most such moves in a round; 1 is the papers' policy.
    """

    imbalance: float = 1.2
    utilisation: float = 0.9
    delta_min: float = 0.01
    severe: float = 1.5
    moves_max: int = 1


SIMULATED: Final = Thresholds()
CLUSTER: Final = Thresholds(imbalance=1.15, utilisation=0.925, delta_min=0.25)
"""Settings of the papers' simulation and of their implementation (section 6.4)."""

ROUNDING: Final = 1e-9
"""Relative differences below this are rounding; else like sites would swap a partition for ever."""

Allowed = Callable[[Part, int, int], bool]


Unit = Callable[[Part], Hashable]


def anywhere(part: Part, donor: int, receiver: int) -> bool:
    """No restriction on moves."""
    return True


def itself(part: Part) -> Hashable:
    """Every partition may move in a round, whatever the others do."""
    return part


def after_move(donor: SiteStatistics, receiver: SiteStatistics, n: float) -> tuple[float, float]:
    """Predicted utilisations of donor and receiver if a partition with `n` tuples moves (AMB-3)."""
    t_d, t_r = donor.tuples, receiver.tuples
    u_d, u_r = donor.utilisation, receiver.utilisation
    if t_r <= 0 or u_r <= 0:  # AMB-24
        return u_d * (1 - n / t_d), u_r + u_d * n / t_d
    return u_d * (1 - n / t_d), u_r * (1 + n / t_r)


def _ratio(a: float, b: float) -> float:
    low, high = min(a, b), max(a, b)
    return high / low if low > 0 else float("inf")


def plan_round(
    sites: Sequence[SiteStatistics],
    thresholds: Thresholds = SIMULATED,
    *,
    allowed: Allowed = anywhere,
    unit: Unit = itself,
) -> list[PlannedMove]:
    """The processing-load policy: pair the most with the least utilised site, working inwards.

    For each pair the largest partition that reduces the ratio of utilisations moves (AMB-22); the
    first pair that is balanced, or whose receiver is too busy, ends the round.

    Args:
        sites: what they reported.
        thresholds: when to move at all.
        allowed: (partition, donor, receiver) -> whether that move is possible.
        unit: what a partition belongs to; of each unit only one partition moves in a round (with
            two copies of each: the pair, so that one of them always stays where it is).
    """
    average = sum(s.utilisation for s in sites) / len(sites)
    order = sorted(sites, key=lambda s: (-s.utilisation, s.site))
    moves: list[PlannedMove] = []
    moved: set[Hashable] = set()

    def once(part: Part, donor: int, receiver: int) -> bool:
        return unit(part) not in moved and allowed(part, donor, receiver)

    for k in range(len(order) // 2):
        donor, receiver = order[k], order[-1 - k]
        if donor.utilisation < average or not _worth_it(donor, receiver, thresholds):
            break
        step = _best(donor, receiver, once)
        if step is not None:
            moves.append(step[0])
            moved.add(unit(step[0].part))
            order[k], order[-1 - k] = step[1], step[2]
    for _ in range(thresholds.moves_max - 1 if moves else 0):
        order.sort(key=lambda s: (-s.utilisation, s.site))
        donor, receiver = order[0], order[-1]
        if _ratio(donor.utilisation, receiver.utilisation) <= thresholds.severe:
            break
        step = _best(donor, receiver, once) if _worth_it(donor, receiver, thresholds) else None
        if step is None:
            break
        moves.append(step[0])
        moved.add(unit(step[0].part))
        order[0], order[-1] = step[1], step[2]
    return moves


def _worth_it(donor: SiteStatistics, receiver: SiteStatistics, thresholds: Thresholds) -> bool:
    return (
        receiver.utilisation <= thresholds.utilisation
        and donor.utilisation > receiver.utilisation
        and _ratio(donor.utilisation, receiver.utilisation) >= thresholds.imbalance
    )


def _best(
    donor: SiteStatistics, receiver: SiteStatistics, allowed: Allowed
) -> tuple[PlannedMove, SiteStatistics, SiteStatistics] | None:
    """The largest partition that reduces the imbalance, and both sites as they would be then."""
    now = _ratio(donor.utilisation, receiver.utilisation)
    for part, n in sorted(donor.processed.items(), key=lambda item: (-item[1], repr(item[0]))):
        u_d, u_r = after_move(donor, receiver, n)
        better = _ratio(u_d, u_r) < now * (1 - ROUNDING)
        if u_r > 1 + ROUNDING or not better or not allowed(part, donor.site, receiver.site):
            continue
        move = PlannedMove(part, donor.site, receiver.site)
        return move, _without(donor, part, u_d), _with(receiver, part, n, u_r)
    return None


def _without(site: SiteStatistics, part: Part, utilisation: float) -> SiteStatistics:
    processed = {p: n for p, n in site.processed.items() if p != part}
    return replace(site, utilisation=utilisation, processed=processed)


def _with(site: SiteStatistics, part: Part, n: float, utilisation: float) -> SiteStatistics:
    return replace(site, utilisation=utilisation, processed={**site.processed, part: n})


def plan_memory_round(
    sites: Sequence[SiteStatistics], *, allowed: Allowed = anywhere, unit: Unit = itself
) -> list[PlannedMove]:
    """The memory policy: pair the site with the least memory to spare with that with the most.

    Partitions in memory go first, large before small; those on disk need I/O before they can move.
    """
    average = sum(s.excess for s in sites) / len(sites)
    order = sorted(sites, key=lambda s: (s.excess, s.site))
    moves: list[PlannedMove] = []
    moved: set[Hashable] = set()
    for k in range(len(order) // 2):
        donor, receiver = order[k], order[-1 - k]
        if donor.excess >= average:
            break
        now = abs(receiver.excess - donor.excess)
        for part, size in sorted(
            donor.state.items(), key=lambda item: (item[0] in donor.on_disk, -item[1])
        ):
            then = abs((receiver.excess - size) - (donor.excess + size))
            once = unit(part) not in moved and allowed(part, donor.site, receiver.site)
            if then < now and once:
                moved.add(unit(part))
                moves.append(PlannedMove(part, donor.site, receiver.site))
                break
    return moves


def plan_hybrid_round(
    sites: Sequence[SiteStatistics],
    thresholds: Thresholds = SIMULATED,
    *,
    allowed: Allowed = anywhere,
    unit: Unit = itself,
) -> list[PlannedMove]:
    """Memory while any partition is on disk; else load, to receivers whose memory has room."""
    if any(site.on_disk for site in sites):
        return plan_memory_round(sites, allowed=allowed, unit=unit)
    room = {site.site: site.excess for site in sites}
    size = {part: bytes_ for site in sites for part, bytes_ in site.state.items()}

    def fits(part: Part, donor: int, receiver: int) -> bool:
        return room[receiver] >= size.get(part, 0.0) and allowed(part, donor, receiver)

    moves = []
    for move in plan_round(sites, thresholds, allowed=fits, unit=unit):
        if room[move.receiver] >= size.get(move.part, 0.0):
            room[move.receiver] -= size.get(move.part, 0.0)  # moves of a round add up
            moves.append(move)
    return moves


def next_delta(
    delta: float,
    thresholds: Thresholds,
    *,
    moved_for: float | None,
    gathering: float = 0.0,
    tuples_seen: float | None = None,
    tuples_needed: float = 30.0,
) -> float:
    """Length of the next collection phase.

    As long as the last movement took, so that about half of the time at most goes into moves; half
    as long as before where nothing moved; never below `delta_min`, nor below what gathering the
    statistics took when that exceeded `delta` (UF-9).

    Args:
        delta: length of the last phase.
        thresholds: gives `delta_min`.
        moved_for: how long the moves took; None if there were none.
        gathering: how long it took to gather the statistics.
        tuples_seen: tuples that the median partition processed in the last phase. If given, the
            phase grows until there are `tuples_needed`, so that partitions can be told apart
            (the authors leave tuning to the administrator).
        tuples_needed: see `tuples_seen`.
    """
    wanted = moved_for if moved_for is not None else delta / 2
    if gathering > delta:
        wanted = max(wanted, gathering)
    if tuples_seen is not None and tuples_seen < tuples_needed:
        wanted = max(wanted, delta * min(4.0, tuples_needed / max(tuples_seen, 1.0)))
    return max(wanted, thresholds.delta_min)
