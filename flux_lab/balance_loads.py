"""The balancer of a stage against generated loads, in virtual time.

    python -m flux_lab.balance_loads 0 40

The product's balancer, policy and collection of statistics move the copies of a modelled stage:
every partition takes the same share of the input, so the slowest site sets the pace, and while a
copy moves the stage stands still. What sites report scatters as it does in operating systems: a
process that has little to do waits for its turn, and the rows that are counted are a sample.

- idle: sites 2 to 25 % busy, which wait for turns as long again. In an hour nothing moves.
- bursts: the same, and something else takes most of a processor for a second. Nothing moves.
- outside: full speed, and something else takes a part of some processors for ten minutes. The pace
  comes to what the papers' policy reaches with exact statistics (`REACHED` of it: copies are whole,
  and a ratio of utilisations that is scarcely too small ends a round); when the load has gone, too.
- skew: full speed, and partitions of different weight. The same.

Always: a pair does not come back to a site within `Worth.rounds` rounds of having left it.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flux_lab.papers.protocol.controller import DataLoss, Order
from flux_lab.share import ShareModel, balance, even
from flux_runtime.protocol.balancer import (
    Balancer,
    Mode,
    RequestStatistics,
    ResetStatistics,
    pair_of,
)
from flux_runtime.protocol.balancing import Part, PlannedMove, SiteStatistics, Thresholds
from flux_runtime.protocol.collection import CollectionTime
from flux_runtime.protocol.vocabulary import Pair
from flux_runtime.protocol.worth import Worth

STEP_S: Final = 0.1
HOUR_S: Final = 3600.0
BEGINS_S: Final = 60.0
ENDS_S: Final = 660.0
REACHED: Final = 0.85
"""Of the pace of the papers' policy."""
TUPLE_S: Final = 45e-6
LOADS: Final = ("idle", "bursts", "outside", "skew")
THRESHOLDS: Final = Thresholds(
    imbalance=1.15, utilisation=0.925, delta_min=1.0, severe=1.5, moves_max=4
)
"""As `flux_runtime.site.config.Balance` has them."""


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A stage and what happens to it.

    Attributes:
        load: one of `LOADS`.
        sites: how many.
        per_site: copies on each.
        offered: input per second, as a multiple of what a processor does; the pace is no higher.
        weight: partition -> its part of the input.
        outside: (site, share of its processor that is left, from, to) of other load.
        noise: seconds that a process waits for its turn, per second that it runs, at most.
        move_s: how long a move takes.
        seconds: how long it runs.
    """

    load: str
    sites: int
    per_site: int
    offered: float
    weight: Mapping[int, float]
    outside: tuple[tuple[int, float, float, float], ...]
    noise: float
    move_s: float
    seconds: float

    def share(self, now: float) -> dict[int, float]:
        """Site -> share of its processor that the stage gets."""
        shares = dict.fromkeys(range(self.sites), 1.0)
        for site, share, begins, ends in self.outside:
            if begins <= now < ends:
                shares[site] = share
        return shares


def scenario(seed: int) -> Scenario:
    """The load of a seed."""
    rng = random.Random(seed)
    load = LOADS[seed % len(LOADS)]
    sites, per_site = rng.choice((3, 4, 6)), rng.choice((4, 6, 8))
    full = load in ("outside", "skew")
    parts = sites * per_site // 2
    weight = {n: rng.choice((0.5, 1.0, 1.0, 2.0)) for n in range(parts)} if load == "skew" else {}
    heaviest = per_site * max([*weight.values(), 1.0])
    outside: list[tuple[int, float, float, float]] = []
    if load == "bursts":
        for _ in range(200):
            begins = rng.uniform(0.0, HOUR_S)
            burst = begins + rng.uniform(0.1, 1.2)
            outside.append((rng.randrange(sites), rng.uniform(0.1, 0.5), begins, burst))
    if load == "outside":
        for site in rng.sample(range(sites), rng.choice((1, 1, sites // 2))):
            outside.append((site, rng.choice((0.11, 0.2, 0.33, 0.5)), BEGINS_S, ENDS_S))
    return Scenario(
        load=load,
        sites=sites,
        per_site=per_site,
        offered=1e9 if full else rng.uniform(0.02, 0.25) / heaviest,
        weight=weight,
        outside=tuple(outside),
        noise=rng.uniform(0.0, 0.2) if full else rng.uniform(0.0, 2.0),
        move_s=rng.choice((0.1, 0.5, 2.0)),
        seconds=1200.0 if full else HOUR_S,
    )


class _Stage:
    """The stage as its balancer's carrier: where copies stand, and what is moving."""

    def __init__(self, plan: Scenario, rng: random.Random) -> None:
        self.plan, self.rng = plan, rng
        self.model = ShareModel(even(plan.sites, plan.per_site, copies=2), weight=plan.weight)
        self.now = 0.0
        self.moving_until = 0.0
        self.failures = 0
        self.losses: tuple[DataLoss, ...] = ()
        self.running = dict.fromkeys(range(plan.sites), 0.0)
        self.wanted = dict.fromkeys(range(plan.sites), 0.0)
        self.input = 0.0
        self.since = 0.0
        self.rates: list[tuple[float, float]] = []

    @property
    def sites(self) -> frozenset[int]:
        """All of them."""
        return frozenset(self.model.parts)

    @property
    def is_whole(self) -> bool:
        """Whether nothing moves."""
        return self.now >= self.moving_until

    def may_move(self, pair: Pair, c: int, site: int) -> bool:
        """One pair at a time, and no two copies on one site."""
        held = {part for part, _ in self.model.parts[site]}
        return self.is_whole and pair.part not in held

    def move(self, pair: Pair, c: int, site: int) -> list[Order]:
        """The copy is on its way."""
        part = (pair.part, c)
        (donor,) = (at for at, held in self.model.parts.items() if part in held)
        self.model.apply([PlannedMove(part, donor, site)])
        self.moving_until = self.now + self.plan.move_s
        self.failures += 1
        return []

    def step(self) -> None:
        """A tenth of a second passes."""
        self.model.share = self.plan.share(self.now)
        pace = min(self.plan.offered, self.model.rate()) if self.is_whole else 0.0
        for site in self.model.parts:
            demand = self.model.load(site) * pace  # of what it gets of its processor
            runs = demand * self.model.share[site]
            waits = (demand - runs) + runs * self.rng.uniform(0.0, self.plan.noise)
            self.running[site] += runs * STEP_S
            self.wanted[site] += min(1.0, runs + waits) * STEP_S
        self.input += pace * STEP_S
        self.rates.append((self.now, pace))
        self.now += STEP_S

    def reset(self) -> None:
        """UF-9: counting begins."""
        self.running = dict.fromkeys(self.running, 0.0)
        self.wanted = dict.fromkeys(self.wanted, 0.0)
        self.input, self.since = 0.0, self.now

    def statistics(self) -> list[SiteStatistics]:
        """The counts of the sites."""
        covered = max(self.now - self.since, 1e-6)
        reports = []
        for site, parts in self.model.parts.items():
            processed: dict[Part, float] = {}
            for part, c in parts:
                rows = self.plan.weight.get(part, 1.0) * self.input / TUPLE_S
                processed[Pair(0, part), c] = max(0.0, self.rng.gauss(rows, rows**0.5))
            wanted = self.wanted[site]
            reports.append(
                SiteStatistics(
                    site=site,
                    utilisation=min(1.0, wanted / covered),
                    processed=processed,
                    available=self.running[site] / wanted if wanted else 1.0,
                    covered_s=covered,
                )
            )
        return reports


@dataclass
class Outcome:
    """The outcome of a stage under a balancer.

    Attributes:
        moves: (time, round, pair, donor, receiver).
        rates: (time, pace) of every step.
        wrong: what did not hold.
    """

    moves: list[tuple[float, int, Pair, int, int]] = field(default_factory=list)
    rates: list[tuple[float, float]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def pace(self, begins: float, ends: float) -> float:
        """The mean pace between two times."""
        within = [pace for now, pace in self.rates if begins <= now < ends]
        return sum(within) / len(within)


def run(plan: Scenario, seed: int, *, worth: Callable[[], Worth] = Worth) -> Outcome:
    """Run a scenario, and check it."""
    rng = random.Random(seed + 1_000_000)
    stage, policy, outcome = _Stage(plan, rng), worth(), Outcome()

    def moved(moves: Sequence[PlannedMove], took_s: float) -> None:
        for move in moves:
            pair = pair_of(move.part)
            outcome.moves.append((stage.now, policy.round, pair, move.donor, move.receiver))
        policy.note_moves(moves, took_s, pair_of)

    collection = CollectionTime(THRESHOLDS, delta_max=30.0)
    balancer = Balancer(stage, THRESHOLDS, policy=policy, collection=collection, moved=moved)
    while stage.now < plan.seconds:
        for order in balancer.tick(stage.now):
            match order:
                case ResetStatistics():
                    stage.reset()
                case RequestStatistics(number):
                    for report in stage.statistics():
                        balancer.statistics(number, report, stage.now)
                    if balancer.mode is Mode.COLLECTING:
                        stage.reset()
        stage.step()
    outcome.rates = stage.rates
    outcome.wrong += _wrong(plan, outcome)
    return outcome


def _wrong(plan: Scenario, outcome: Outcome) -> list[str]:
    problems = []
    if plan.load in ("idle", "bursts") and outcome.moves:
        problems.append(f"{len(outcome.moves)} moves of what gains nothing")
    if plan.load in ("outside", "skew"):
        for begins, ends in ((BEGINS_S, ENDS_S), (ENDS_S, plan.seconds)):
            late = outcome.pace(ends - 120.0, ends)
            due = _papers_pace(plan, begins)
            if late < REACHED * due:
                problems.append(f"a pace of {late:.3f} at {ends:.0f} s; the papers' is {due:.3f}")
    left: dict[tuple[Pair, int], int] = {}
    for _, round_, pair, donor, receiver in outcome.moves:
        when = left.get((pair, receiver))
        if when is not None and round_ - when < Worth.rounds:
            problems.append(f"{pair} came back to {receiver} after {round_ - when} rounds")
        left[pair, donor] = round_
    return problems


def _papers_pace(plan: Scenario, now: float) -> float:
    """The pace that the papers' policy comes to from an even layout, with exact statistics."""
    parts = even(plan.sites, plan.per_site, copies=2)
    model = ShareModel(copy.deepcopy(parts), share=plan.share(now), weight=plan.weight)
    balance(model, THRESHOLDS, move_seconds=plan.move_s, tuple_seconds=TUPLE_S, copies_apart=True)
    return model.rate()


def main(argv: Sequence[str] | None = None) -> int:
    """Run seeds, and print what became of them."""
    parser = argparse.ArgumentParser(prog="python -m flux_lab.balance_loads")
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("last", type=int, help="the seed after the last")
    arguments = parser.parse_args(argv)
    failed = 0
    for seed in range(arguments.first, arguments.last):
        plan = scenario(seed)
        outcome = run(plan, seed)
        failed += bool(outcome.wrong)
        before, after = outcome.pace(0.0, BEGINS_S), outcome.pace(plan.seconds - 60, plan.seconds)
        shown = f"{len(outcome.moves):>3} moves, pace {before:.3f}, at last {after:.3f}"
        if plan.load == "outside":
            shown += f"; under load {outcome.pace(ENDS_S - 120, ENDS_S):.3f} "
            shown += f"(papers {_papers_pace(plan, BEGINS_S):.3f})"
        print(f"seed {seed:>3} {plan.load:>8}: {shown} {'; '.join(outcome.wrong)}")
    print(f"{arguments.last - arguments.first} runs, {failed} wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
