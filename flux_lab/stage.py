"""The papers' simulated stage: many mini-partitions without replication, as a fluid in queues.

The platform of the ICDE paper and of chapter 4 of the thesis (specification, section 8.1): all
producers are alike, so what they hold for a partition is one number. Tuples flow from the skew
buffer over short links into the consumers in steps of a fixed length; what a site does with a disk
blocks it. Decisions are the product's own: the balancing policies, and `Spill` for rotation. Times
in seconds, sizes in bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from flux_runtime.protocol.balancing import SIMULATED, PlannedMove, SiteStatistics, Thresholds
from flux_runtime.protocol.collection import CollectionTime
from flux_runtime.protocol.spill import PagePool, ReadIn, Spill, SpillAction, WriteOut

Numbers = npt.NDArray[Any]
Policy = Callable[[Sequence[SiteStatistics], Thresholds], list[PlannedMove]]


def fixed(thresholds: Thresholds) -> CollectionTime:
    """Collection phases as in the papers: never shorter than `delta_min`, and nothing tuned."""
    return CollectionTime(thresholds, tuples_min=0, undo_rounds=0)


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The simulated cluster.

    Attributes:
        machines: sites, each with a producer and a consumer.
        tuple_seconds: processor time of one tuple, at the producer and at the consumer.
        tuple_bytes: size of a tuple.
        skew_buffer: tuples that each producer's transient skew buffer holds.
        link: tuples that the link between two machines holds (two packets of 1 KB).
        handling: processor seconds to quiesce or to install one tuple of state.
        point_to_point: bytes per second between two machines, for state.
        cross_section: bytes per second between all machines, for state.
        disk: bytes per second of a disk.
        seek: seconds before every random access to it.
        page: bytes of the buffers in which input of partitions on disk is written.
    """

    machines: int = 32
    tuple_seconds: float = 45.5e-6
    tuple_bytes: float = 80.0
    skew_buffer: int = 2048
    link: float = 2 * 1024 / 80
    handling: float = 0.2e-6
    point_to_point: float = 250e6 / 8
    cross_section: float = 500e6 / 8
    disk: float = 20e6
    seek: float = 5e-3
    page: float = 8192.0

    def read_or_write(self, size: float) -> float:
        """Seconds that a disk takes for `size` bytes in one piece."""
        return self.seek + size / self.disk

    @property
    def spooling(self) -> float:
        """Seconds per tuple to write input of partitions on disk, a page at a time."""
        return self.read_or_write(self.page) * self.tuple_bytes / self.page

    @property
    def peak(self) -> float:
        """Tuples per second that all machines process when nothing disturbs them."""
        return self.machines / self.tuple_seconds


@dataclass
class Second:
    """One second: tuples processed, and the sum of their latencies."""

    tuples: float = 0.0
    latency: float = 0.0


@dataclass
class Observed:
    """The observations of a run.

    Attributes:
        seconds: one entry per second.
        moves: (time, move) of every partition that was installed at its new site.
        moving: seconds in movement phases: of every round, its longest move from pause to restart.
        rounds: number of rounds with moves.
    """

    seconds: list[Second] = field(default_factory=list)
    moves: list[tuple[float, PlannedMove]] = field(default_factory=list)
    moving: float = 0.0
    rounds: int = 0

    def rate(self, start: int, end: int) -> float:
        """Tuples per second between two times."""
        return sum(s.tuples for s in self.seconds[start:end]) / (end - start)

    def latency(self, start: int, end: int) -> float:
        """Mean latency of a tuple processed between two times."""
        tuples = sum(s.tuples for s in self.seconds[start:end])
        return sum(s.latency for s in self.seconds[start:end]) / tuples if tuples else 0.0


@dataclass
class _Moving:
    """A move and how far it is: ordered, draining, fetching, extracted, arrived, done."""

    move: PlannedMove
    part: int
    phase: str = "ordered"
    mark: float = 0.0
    left: float = 0.0
    paused: float = 0.0
    took: float = 0.0


class Stage:
    """One stage of producers and consumers, and the controller that balances it.

    Args:
        platform: the machines.
        per_site: partitions on each machine at first.
        state: bytes of state of a partition.
        weights: share of the input that each partition gets; all the same if None.
        share: (site, time) -> share of a processor that the flow gets.
        memory: (site, time) -> bytes for state; without it everything fits, and nothing spills.
        policy: plans a round; None leaves everything where it is.
        collection: the length of collection phases, and the thresholds of the policy; as in the
            papers' simulation if left out.
        step: seconds that are simulated at once.
        seed: draw the partition of every tuple instead of spreading the input evenly.
    """

    def __init__(
        self,
        platform: Platform,
        *,
        per_site: int,
        state: float,
        weights: Numbers | None = None,
        share: Callable[[int, float], float] = lambda site, time: 1.0,
        memory: Callable[[int, float], float] | None = None,
        policy: Policy | None = None,
        collection: CollectionTime | None = None,
        step: float = 5e-3,
        seed: int | None = None,
    ) -> None:
        self.platform = platform
        self.state = state
        self.share = share
        self.memory = memory
        self.policy = policy
        self.collection = collection or fixed(SIMULATED)
        self.dt = step
        self.draw = None if seed is None else np.random.default_rng(seed)
        m, parts = platform.machines, platform.machines * per_site
        self.weights = np.full(parts, 1 / parts) if weights is None else weights
        self.home = np.arange(parts) % m
        self.buffered, self.inbox, self.pending = (np.zeros(parts) for _ in range(3))
        self.arrived = np.zeros(parts)
        """Sum of the times at which pending tuples came."""
        self.resident = np.ones(parts, bool)
        self.stalled = np.zeros(parts, bool)
        self.free_at = np.zeros(m)
        """When each site's disk, or handling of state, lets it go on."""
        self.consumed: Numbers = np.zeros(m)
        self.shares = np.ones(m)
        self.seen = np.zeros(parts)
        self.idle, self.since = np.zeros(m), np.zeros(m)
        self.work: list[deque[SpillAction]] = [deque() for _ in range(m)]
        self.spills: list[Spill] = []
        self.granted = [0.0] * m
        if memory is not None:
            self.granted = [memory(s, 0.0) for s in range(m)]
            for s in range(m):
                pool = PagePool(self._pages(self.granted[s]), page_bytes=int(platform.page))
                here: dict[Hashable, float] = {}
                here.update((int(p), state) for p in np.flatnonzero(self.home == s))
                self.spills.append(Spill(pool, here))
                self._enlist(s, self.spills[s].check())
        self.now = 0.0
        self.wakes_at = self.collection.delta
        self.answers: dict[int, SiteStatistics] | None = None
        self.moving: list[_Moving] = []
        self.observed = Observed()

    def run(self, until: float) -> Observed:
        """Let time pass."""
        for n in range(round(until / self.dt)):
            self.now = n * self.dt
            second = int(self.now + 1e-9)
            if second == len(self.observed.seconds):
                self.observed.seconds.append(Second())
            for s in range(self.platform.machines):
                self.shares[s] = self.share(s, self.now)
            self._flow(self.observed.seconds[second])
            if self.policy is not None:
                self._control(self.policy)  # sites look at messages between two accesses
            if self.spills:
                self._disks()
        return self.observed

    # ---- tuples

    def _flow(self, second: Second) -> None:
        """Producers fill the skew buffer, links take from it, consumers process."""
        platform, home, m = self.platform, self.home, self.platform.machines
        free = max(platform.skew_buffer * m - float(self.buffered.sum()), 0.0)
        if self.draw is None:
            self.buffered += free * self.weights
        else:
            drawn: Numbers = self.draw.multinomial(int(free), self.weights) * 1.0
            self.buffered += drawn
        ready = np.where(self.stalled, 0.0, self.buffered)
        room = platform.link * m - np.bincount(home, self.inbox, m)
        wanted = np.bincount(home, ready, m)
        taken = ready * np.minimum(1.0, room / np.maximum(wanted, 1e-9))[home]
        self.buffered -= taken
        self.inbox += taken
        self._consume(second)

    def _consume(self, second: Second) -> None:
        """Activated partitions' pending input first, then the links, in the order of arrival."""
        platform, home, m = self.platform, self.home, self.platform.machines
        left = np.clip(self.now + self.dt - np.maximum(self.free_at, self.now), 0.0, self.dt)
        cost = platform.tuple_seconds / self.shares
        late = np.where(self.resident, self.pending, 0.0)
        if self.spills and late.any():
            need = np.bincount(home, late, m) * cost
            part = np.minimum(1.0, left / np.maximum(need, 1e-12))
            done = late * part[home]
            waited = done * self.now - self.arrived * part[home] * (late > 0)
            self.arrived -= self.arrived * part[home] * (late > 0)
            self.pending -= done
            left -= need * part
            self.seen += done
            second.tuples += float(done.sum())
            second.latency += float(waited.sum())
        stay = self.resident
        tuple_cost = np.where(stay, cost[home], platform.spooling)
        need = np.bincount(home, self.inbox * tuple_cost, m).astype(np.float64)
        part = np.minimum(1.0, left / np.maximum(need, 1e-12))
        done = self.inbox * part[home]
        self.inbox -= done
        self.consumed = self.consumed + np.bincount(home, done, m)
        self.idle += left - need * part
        here = np.where(stay, done, 0.0)
        self.seen += here
        second.tuples += float(here.sum())
        second.latency += float((here * cost[home]).sum())
        if self.spills:
            spooled = done - here
            self.pending += spooled
            self.arrived += spooled * self.now

    # ---- disks

    def _disks(self) -> None:
        """Sites do one access after another; between two of them they look at their messages."""
        assert self.memory is not None
        for s, spill in enumerate(self.spills):
            granted = self.memory(s, self.now)
            if granted != self.granted[s]:
                more = self._pages(granted) - self._pages(self.granted[s])
                self.granted[s] = granted
                spill.pool.donate(max(more, 0))
                spill.pool.post_relinquish(max(-more, 0))
                self._enlist(s, spill.check())
            if self.free_at[s] > self.now:
                continue
            if not self.work[s] and spill.inactive and not self._behind(s):
                self._enlist(s, spill.tick(self.now))
            if self.work[s]:
                self._access(s, spill, self.work[s].popleft())

    def _pages(self, size: float) -> int:
        return int(size // self.platform.page)

    def _behind(self, site: int) -> bool:
        """Whether activated partitions still have pending input."""
        return bool(self.pending[(self.home == site) & self.resident].sum() > 1e-6)

    def _enlist(self, site: int, actions: Sequence[SpillAction]) -> None:
        self.work[site].extend(actions)
        for action in actions:
            if isinstance(action, WriteOut):
                assert isinstance(action.part, int)
                self.resident[action.part] = False

    def _access(self, site: int, spill: Spill, action: SpillAction) -> None:
        part: int = action.part  # type: ignore[assignment]
        if self.home[part] != site:
            return  # it has moved away before its turn came
        took = self.platform.read_or_write(action.size)
        if isinstance(action, ReadIn):
            held = self.pending[part] * self.platform.tuple_bytes
            took += self.platform.read_or_write(held) if held else 0.0
            spill.took(took)
            spill.activated_at = self.now + took
            self.resident[part] = True
        self.free_at[site] = self.now + took

    # ---- the controller

    def _control(self, policy: Policy) -> None:
        if self.moving:
            self._movement()
            return
        if self.answers is None:
            if self.now < self.wakes_at:
                return
            self.answers = {}
        for s in range(self.platform.machines):
            if s not in self.answers and self.free_at[s] <= self.now:
                self.answers[s] = self._statistics(s)
        if len(self.answers) < self.platform.machines:
            return
        sites = [self.answers[s] for s in sorted(self.answers)]
        moves = policy(sites, self.collection.thresholds)
        if moves and not self.collection.enough(sites, moves):
            self._collect(self.collection.lengthen(sites, moves))
            return
        self.moving = [_Moving(move, move.part) for move in moves]  # type: ignore[arg-type]
        if not moves:
            self._collect(self.collection.next((), moved_for=None))

    def _collect(self, delta: float) -> None:
        self.wakes_at = self.now + delta
        self.answers = None
        self.seen[:] = 0.0
        self.idle[:] = 0.0
        self.since[:] = self.now

    def _statistics(self, site: int) -> SiteStatistics:
        here = np.flatnonzero(self.home == site)
        covered = max(self.now + self.dt - self.since[site], self.dt)
        out = frozenset(int(p) for p in here if not self.resident[p])
        return SiteStatistics(
            site=site,
            utilisation=float(np.clip(1.0 - self.idle[site] / covered, 0.0, 1.0)),
            processed={int(p): float(self.seen[p]) for p in here},
            state={int(p): self.state for p in here} if self.spills else {},
            memory=self.granted[site] if self.spills else float("inf"),
            on_disk=out,
        )

    def _movement(self) -> None:
        """LB-1 to LB-9 for every move of the round; the round is over with the last restart."""
        sending = sum(moving.phase == "extracted" for moving in self.moving)
        for moving in self.moving:
            self._advance(moving, sending)
        if all(moving.phase == "done" for moving in self.moving):
            took = max(moving.took for moving in self.moving)
            self.observed.moving += took
            self.observed.rounds += 1
            moves = [moving.move for moving in self.moving]
            self.moving = []
            self._collect(self.collection.next(moves, moved_for=took))

    def _advance(self, moving: _Moving, sending: int) -> None:
        """One site at a time handles its end, when it is not blocked."""
        part, origin = moving.part, moving.move.donor
        handling = self.platform.handling * self.state / self.platform.tuple_bytes
        match moving.phase:
            case "ordered" if self.free_at[origin] <= self.now:
                self.stalled[part] = True  # LB-3, LB-4
                moving.paused = self.now
                moving.mark = self.consumed[origin] + self.inbox[self.home == origin].sum()
                moving.phase = "draining"
                if self.spills:  # in-flight tuples go into the spill's output buffers
                    self.pending[part] += self.inbox[part]
                    self.arrived[part] += self.inbox[part] * self.now
                    self.inbox[part] = 0.0
                    moving.phase = "fetching"
            case "draining" if self.consumed[origin] >= moving.mark - 1e-6:
                self.pending[part] += self.inbox[part]  # rounding of the proportional drain
                self.inbox[part] = 0.0
                self._extract(moving, handling)
            case "fetching" if self.free_at[origin] <= self.now:
                if not self.resident[part]:
                    self._access(origin, self.spills[origin], ReadIn(part, self.state))
                else:
                    self._extract(moving, handling)
            case "extracted" if moving.mark <= self.now:
                rate = min(self.platform.point_to_point, self.platform.cross_section / sending)
                moving.left -= rate * self.dt
                if moving.left <= 0:
                    moving.phase = "arrived"
            case "arrived" if self.free_at[moving.move.receiver] <= self.now:
                self._install(moving, handling)

    def _extract(self, moving: _Moving, handling: float) -> None:
        """LB-5, LB-6: the partition is quiesced; its state, and what is pending, leave."""
        origin = moving.move.donor
        self.free_at[origin] = max(self.free_at[origin], self.now) + handling / self.shares[origin]
        moving.mark = float(self.free_at[origin])
        moving.left = self.state + self.pending[moving.part] * self.platform.tuple_bytes
        moving.phase = "extracted"
        if self.spills:
            self.spills[origin].remove(moving.part)

    def _install(self, moving: _Moving, handling: float) -> None:
        """LB-7, LB-8: the partition goes on at its new site."""
        part, receiver = moving.part, moving.move.receiver
        self.free_at[receiver] = self.now + handling / self.shares[receiver]
        self.home[part] = receiver
        self.stalled[part] = False
        self.resident[part] = True
        moving.phase = "done"
        moving.took = self.now - moving.paused
        self.observed.moves.append((self.now, moving.move))
        if self.spills:
            self._enlist(receiver, self.spills[receiver].add(part, self.state))
