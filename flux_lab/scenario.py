"""A run under the virtual clock, from a few keys or from a seed, with all checkers on.

    python -m flux_lab.report --seed 7 --out DIR      drawn from the seed
    python -m flux_lab.report --config run.yaml --out DIR

The rows, operators and checkers are those of the random runs (`workload`, `checks`): every lost,
repeated or reordered row changes what comes later. Times are in seconds, sizes in bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from flux_lab.checks import Checks, Cluster
from flux_lab.costs import Costs, Trace
from flux_lab.papers.protocol.controller import Controller
from flux_lab.papers.protocol.messages import Data, Emit
from flux_lab.papers.protocol.segment import Segment
from flux_lab.reaction import Machine
from flux_lab.sweep import victims
from flux_lab.timed import Timed
from flux_lab.workload import DigestOperator, digest_input, merge, split
from flux_lab.world import Step, World
from flux_runtime.protocol.balancer import Balancer
from flux_runtime.protocol.balancing import CLUSTER
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Node, Pair, ProtocolError, Shape

ONCE: Final = ("crash", "kill", "suspect", "close", "join")
"""Faults that happen at a moment; `suspect` is a process that lives and is taken for dead."""
LASTING: Final = ("slow", "short of memory")
"""Faults that a site may suffer for a while: external load, or memory for half of its state."""
VALIDATED_EVERY: Final = 0.1


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of the cluster.

    Attributes:
        at: when.
        kind: one of `ONCE` or `LASTING`.
        site: which site; if left out, one is drawn whose failure can be masked.
        copy: which copy, as `B0p`, for what befalls one; drawn likewise.
        until: when it is over, for what lasts.
        left: share of the processor that is left on a slow site.
    """

    at: float
    kind: str
    site: int | None = None
    copy: str = ""
    until: float | None = None
    left: float = 0.3

    def __post_init__(self) -> None:
        if self.kind not in ONCE + LASTING:
            raise ValueError(f"no such fault: {self.kind}; there are {', '.join(ONCE + LASTING)}")
        if self.kind in LASTING and (self.site is None or self.until is None):
            raise ValueError(f"{self.kind} needs a `site` and a time `until` which it lasts")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One run.

    Attributes:
        seed: decides what is left open: sites that fail, and how rows spread over keys.
        seconds: for which the source gives input.
        widths: partition pairs of every stage.
        sites: machines that host copies at first.
        spares: machines that host nothing at first.
        interval: seconds between two batches.
        rows: rows of a batch.
        keys: different keys.
        state: bytes of state of one copy of every stage, spread over its partitions.
        row_cost: processor seconds per row and copy.
        latency: seconds from one site to another.
        bandwidth: bytes per second of a site's network interface.
        ordered: the egress emits in order.
        pool: units that a producer's buffers hold.
        balance: whether the balancer works.
        parallel_max: most catch-ups at once.
        faults: what is done to the cluster.
    """

    seed: int = 0
    seconds: float = 6.0
    widths: tuple[int, ...] = (4, 4)
    sites: int = 4
    spares: int = 1
    interval: float = 0.02
    rows: int = 16
    keys: int = 48
    state: int = 2_000_000
    row_cost: float = 150e-6
    latency: float = 100e-6
    bandwidth: float = 12.5e6
    ordered: bool = True
    pool: int = 256
    balance: bool = True
    parallel_max: int = 1
    faults: tuple[Fault, ...] = ()

    @property
    def shape(self) -> Shape:
        """The dataflow's shape."""
        return Shape(
            widths=self.widths, ordered_egress=self.ordered, pool=self.pool, in_hand=4
        )  # fmt: skip

    @property
    def memory(self) -> float:
        """Bytes of state on a site, if all sites are alike."""
        return 2 * self.state * len(self.widths) / self.sites


def drawn(seed: int) -> Scenario:
    """A scenario from a seed: a dataflow, a cluster, and up to three things that happen to it."""
    rng = random.Random(seed)
    widths = rng.choice(((4,), (4, 4), (6, 4), (4, 4), (8, 8), (3, 3, 3)))
    sites = rng.choice((3, 4, 4, 6))
    faults: list[Fault] = []
    at = 1.0 + rng.random()
    for _ in range(rng.choice((1, 2, 2, 3))):
        kind = rng.choice(("crash", "crash", "kill", "suspect", "close", *LASTING))
        if kind in LASTING:
            ends = at + 1.5 + rng.random()
            faults.append(Fault(at=at, kind=kind, site=rng.randrange(sites), until=ends))
        else:
            faults.append(Fault(at=at, kind=kind))
        at += 1.0 + rng.random()
    return Scenario(
        seed=seed, widths=widths, sites=sites, spares=rng.choice((0, 1, 1)),
        ordered=rng.random() < 0.7, parallel_max=rng.choice((1, 1, 2)),
        interval=0.02 if sum(widths) < 12 else 0.04, faults=tuple(faults),
    )  # fmt: skip


def configured(keys: Mapping[str, Any], *, seed: int | None = None) -> Scenario:
    """A scenario from the keys of a file, the same as the fields of `Scenario`.

    Raises:
        ValueError: a key that is not known, or a value that cannot be.
    """
    known = {f.name for f in fields(Scenario)}
    if unknown := sorted(set(keys) - known):
        raise ValueError(
            f"unknown keys: {', '.join(unknown)}; there are {', '.join(sorted(known))}"
        )
    values = dict(keys)
    try:
        if "widths" in values:
            values["widths"] = tuple(values["widths"])
        values["faults"] = tuple(Fault(**fault) for fault in values.get("faults", ()))
        scenario = Scenario(**values)
    except TypeError as cause:
        raise ValueError(str(cause)) from cause
    return scenario if seed is None else replace(scenario, seed=seed)


def as_keys(scenario: Scenario) -> dict[str, Any]:
    """The keys of a file that gives the same run, without what is as usual."""
    usual = asdict(Scenario())
    keys = {k: v for k, v in asdict(scenario).items() if v != usual[k]}
    if "widths" in keys:
        keys["widths"] = list(keys["widths"])
    if "faults" in keys:
        blank = asdict(Fault(at=0.0, kind="crash"))
        keys["faults"] = [
            {k: v for k, v in fault.items() if k == "at" or v != blank[k] or k == "kind"}
            for fault in keys["faults"]
        ]
    return keys


class Counting(Checks):
    """All checkers; keeps count of what each has looked at."""

    def __init__(self, dataflow: Dataflow, batches: Sequence[Any]) -> None:
        super().__init__(dataflow, batches, states=True)
        self.looked: Counter[str] = Counter()

    def received(self, machine: Machine, src: Node, unit: Data) -> None:
        """Loss-free, dup-free, in order."""
        self.looked["receipts"] += 1
        super().received(machine, src, unit)

    def emitted(self, before: Any, emit: Emit) -> None:
        """Exactly once at the egress."""
        self.looked["results"] += 1
        super().emitted(before, emit)

    def acknowledged(self, before: int, batch: int) -> None:
        """Each batch of the source once."""
        self.looked["batches"] += 1
        super().acknowledged(before, batch)

    def agrees(self, segment: Segment) -> None:
        """Copies agree."""
        self.looked["states"] += 1
        super().agrees(segment)

    def bounded(self, machine: Machine) -> None:
        """Bounded buffers."""
        self.looked["buffers"] += 1
        super().bounded(machine)

    def placement(self, cluster: Cluster) -> None:
        """No two copies on one site."""
        self.looked["placements"] += 1
        super().placement(cluster)

    def finished(self, cluster: Cluster) -> None:
        """Nothing left behind."""
        self.looked["ends"] += 1
        super().finished(cluster)


VERDICTS: Final = (
    ("nothing lost, repeated, or out of order at any copy", "receipts"),
    ("each result left once, with the rows of a sequential run", "results"),
    ("each batch of the source acknowledged once", "batches"),
    ("each copy in the state of a sequential run", "states"),
    ("buffers bounded", "buffers"),
    ("no two copies of a partition on one site", "placements"),
    ("at the end: no deadlock, nothing left behind, pairs whole", "ends"),
)
"""(promise of the checkers, what they look at)."""


@dataclass
class Outcome:
    """The outcome of a run.

    Attributes:
        scenario: what ran.
        timed: the clock, with its trace and history.
        looked: how often each checker looked.
        struck: (time, fault, what it hit).
        violation: what a checker found; empty if all is well.
    """

    scenario: Scenario
    timed: Timed
    looked: Counter[str]
    struck: list[tuple[float, Fault, str]] = field(default_factory=list)
    violation: str = ""

    @property
    def trace(self) -> Trace:
        """The observations."""
        return self.timed.trace

    @property
    def controller(self) -> Controller:
        """The controller as it ended."""
        return self.timed.world.controller

    @property
    def latencies(self) -> list[tuple[float, float]]:
        """(time, seconds since its batch was due) of every result."""
        due = self.scenario.interval
        held = zip(self.trace.emitted, self.trace.batches, strict=True)
        return [(t, t - batch * due) for (t, rows, _), batch in held if rows]

    @property
    def end(self) -> float:
        """When the last result left."""
        return max((t for t, *_ in self.trace.emitted), default=self.scenario.seconds)


def perform(scenario: Scenario) -> Outcome:
    """Run it to the end of its input, and until nothing happens any more."""
    dataflow = _dataflow(scenario)
    count = int(scenario.seconds / scenario.interval)
    batches = digest_input(count, rows=scenario.rows, keys=scenario.keys, salt=scenario.seed)
    checks = Counting(dataflow, batches)
    world = World(
        dataflow, batches, sites=scenario.sites, spares=scenario.spares, link_capacity=8,
        stories=True, checks=checks, parallel_max=scenario.parallel_max,
    )  # fmt: skip
    lasting = [fault for fault in scenario.faults if fault.kind in LASTING]
    short = [fault for fault in lasting if fault.kind == "short of memory"]

    def memory(site: int, now: float) -> float:
        return scenario.memory * (0.5 if _now(short, "short of memory", site, now) else 100.0)

    timed = Timed(
        world,
        Costs(
            row=lambda stage: scenario.row_cost if stage < len(scenario.widths) else 0.0,
            latency=scenario.latency, bandwidth=scenario.bandwidth, rows=len,
        ),
        interval=scenario.interval,
        load=lambda site, now: min((f.left for f in _now(lasting, "slow", site, now)), default=1.0),
        balancer=Balancer(world.controller, CLUSTER) if scenario.balance else None,
        balance_from=0.5,
        memory=memory if short else None,
        history=True,
    )  # fmt: skip
    outcome = Outcome(scenario, timed, checks.looked)
    draw = random.Random(scenario.seed)
    for fault in scenario.faults:
        timed.at(fault.at, lambda one: _strike(outcome, one, draw), fault)
    timed.at(VALIDATED_EVERY, lambda _: _validate(timed), None)
    try:
        _to_the_end(outcome)
    except ProtocolError as cause:
        outcome.violation = str(cause)
    return outcome


def _to_the_end(outcome: Outcome) -> None:
    """Until all that is due has left, and recovery and repair are over."""
    timed, seconds = outcome.timed, outcome.scenario.seconds
    world = timed.world
    limit = 4 * seconds + 30
    until = seconds
    while True:
        timed.run(until)
        settled = world.controller.is_whole or not any(
            world.controller.clone().place(pair, c) is not None
            for pair, c in world.controller.incomplete()
        )
        moving = any(timed.transfers.values())
        if (settled and not moving and not world.steps()) or until > limit:
            break
        until += 0.25
    world.validate()
    world.finished()


def _validate(timed: Timed) -> None:
    timed.world.validate()
    timed.at(timed.now + VALIDATED_EVERY, lambda _: _validate(timed), None)


def _now(faults: Sequence[Fault], kind: str, site: int, now: float) -> list[Fault]:
    """The faults that a site suffers at a time."""
    return [
        fault
        for fault in faults
        if (fault.kind, fault.site) == (kind, site) and fault.at <= now < (fault.until or 0)
    ]


def _strike(outcome: Outcome, fault: Fault, draw: random.Random) -> None:
    """Do it, to a site or copy whose failure the protocol must mask."""
    timed, world = outcome.timed, outcome.timed.world
    if fault.kind in LASTING or fault.kind == "join":
        if fault.kind == "join":
            site = fault.site if fault.site is not None else max(world.controller.sites) + 1
            timed.fault(Step("join", site))
            outcome.struck.append((timed.now, fault, f"site {site}"))
        else:
            outcome.struck.append((timed.now, fault, f"site {fault.site}"))
        return
    safe = set(victims(world, reckless=False))
    if fault.kind == "crash":
        sites = sorted(set(world.site.values()))
        masked = [s for s in sites if set(world.nodes_on(s)) <= safe]
        if fault.site is not None:
            masked = [fault.site]
        if masked and (len(sites) > 2 or fault.site is not None):
            site = draw.choice(masked)
            timed.fault(Step("crash", site))
            outcome.struck.append((timed.now, fault, f"site {site}"))
        return
    named = [n for n in world.site if str(n).partition("'")[0] == fault.copy]
    nodes = named or sorted(n for n in safe if fault.site in (None, world.site[n]))
    if not nodes:
        return
    node = draw.choice(nodes)
    if fault.kind == "close":
        peers = sorted({p for link in world.links for p in link if node in link} - {node})
        if peers:
            timed.fault(Step("close", node, draw.choice(peers)))
    else:
        timed.fault(Step(fault.kind, node))
    outcome.struck.append((timed.now, fault, str(node)))


class _Heavy(DigestOperator):
    """Has more state than it looks."""

    size = 0

    def state_size(self) -> int:
        """The size that the scenario says."""
        return self.size


def _dataflow(scenario: Scenario) -> Dataflow:
    def operator(pair: Pair) -> DigestOperator:
        result = _Heavy(every=1 if pair.stage == 0 else 2, spread=scenario.keys)
        result.size = scenario.state // scenario.widths[pair.stage]
        return result

    return Dataflow(
        shape=scenario.shape, operator=operator, split=split, merge=merge,
        rows_size=lambda rows: 40 * len(rows),
    )  # fmt: skip
