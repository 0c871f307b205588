"""Random jobs under random faults: everything from one seed, so that a failure can be run again."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from flux_lab.checks import ViolationError
from flux_lab.shell.checks import at_the_end
from flux_lab.shell.cluster import Cluster, Plan, plan_of, substituted
from flux_lab.shell.faults import FaultPlan, Faults, fault_plan_of
from flux_lab.shell.kernel import Kernel
from flux_runtime.site.config import Balance
from flux_runtime.site.spilling import PAGE_BYTES

FAULTS_S: Final = 60.0
"""Virtual seconds in which all faults have struck."""
STEP_S: Final = 0.2
QUIET_S: Final = 90.0
"""Virtual seconds after the last fault in which the job has to come to its end."""
FEW: Final = 20
"""Fewer runs than this are not worth starting processes for."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A region of the jobs and faults that seeds draw from.

    Attributes:
        kinds: kinds of faults with their weights, in place of the drawn ones; None: as drawn.
        faults: other options of the `FaultPlan` that are not drawn.
        plan: options of the `Plan` that are not drawn.
    """

    kinds: Mapping[str, float] | None = None
    faults: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] = field(default_factory=dict)

    def of(self, plan: Plan, fault_plan: FaultPlan) -> tuple[Plan, FaultPlan]:
        """The drawn plans, moved into this region."""
        kinds = fault_plan.kinds if self.kinds is None else dict(self.kinds)
        return replace(plan, **self.plan), replace(fault_plan, kinds=kinds, **self.faults)


LEADERS: Final = {"site killed": 1.0, "leader killed": 1.0, "leader deposed": 1.0}
DISKS: Final = {"power lost": 2.0, "disk full": 2.0, "leader killed": 1.0, "site killed": 1.0}
LINKS: Final = {"link reset": 2.0, "link cut": 1.0, "leader killed": 1.0, "leader deposed": 1.0}
ZOMBIES: Final = {"leader stopped": 4.0, "leader killed": 1.0, "leader cut off": 1.0} | {
    "leader's answers lost": 1.0,
    "site stopped": 0.5,
    "site cut off": 0.5,
}
BUSY: Final = {"process held up": 1.0, "link slow": 1.0, **LEADERS}
SILENCE: Final = {"site's machine lost": 1.0, "leader's machine lost": 1.0, "leader killed": 0.5}
SERVERS: Final = {"server slow": 2.0, "leader's answers lost": 2.0, "leader killed": 2.0} | {
    "site killed": 2.0,
    "process held up": 1.0,
}
CLIENTS: Final = {"clients killed": 2.0, "clients' links reset": 2.0, "leader deposed": 1.0}
KEPT: Final = {"leader killed": 1.0, "leader deposed": 1.0, "server slow": 1.0, "link slow": 1.0}
"""Faults that cost no site: whoever moves of its own accord may lose nothing by them."""
EAGER: Final = Balance(policy="load", imbalance=1.01, quiet=0.0, delta_min_s=0.1, delta_max_s=0.5)

RESUME: Final = {
    "any": Setting(),
    "leaders": Setting(kinds=LEADERS, faults={"count": 8}),
    "losses": Setting(kinds=LEADERS, faults={"count": 8, "reckless": True}),
    "links": Setting(kinds=LINKS, faults={"count": 8}),
    "accusations": Setting(
        kinds={"link reset": 2.0, "leader killed": 1.0, "leader deposed": 1.0},
        faults={"count": 14, "gap_s": 0.0},
    ),
    "zombies": Setting(
        kinds=ZOMBIES,
        faults={"count": 8, "among_input": True},
        plan={"batches": 16, "gap_s": 0.0, "window": 16, "journal_bytes": 600},
    ),
    "silence": Setting(kinds=SILENCE, faults={"count": 4, "gap_s": 0.3}),
    "slow record": Setting(
        kinds={"server slow": 1.0, "link reset": 1.0},
        faults={"count": 12, "among_input": True, "gap_s": 0.05},
        plan={"batches": 16, "gap_s": 0.0, "window": 16},
    ),
    "servers": Setting(kinds=SERVERS, faults={"count": 5, "gap_s": 0.05}),
    "ends": Setting(
        kinds={"process held up": 2.0, "leader killed": 1.0, "leader deposed": 1.0},
        faults={"count": 12, "among_input": True, "gap_s": 0.05},
        plan={"batches": 4, "gap_s": 0.0, "window": 16, "credits": 1},
    ),
    "feeding": Setting(
        kinds=BUSY,
        faults={"count": 12, "among_input": True, "gap_s": 0.05},
        plan={"batches": 16, "gap_s": 0.0, "window": 16, "journal_bytes": 600},
    ),
    "clients": Setting(kinds=CLIENTS, faults={"count": 12}, plan={"batches": 16}),
    "later start": Setting(faults={"count": 8}, plan={"batches": 16, "first": 5}),
    "disks": Setting(kinds=DISKS, faults={"count": 8}, plan={"journal_bytes": 1500}),
    "moves": Setting(kinds={"copy moved": 4.0, **LEADERS}, faults={"count": 12}),
    "balance": Setting(
        kinds=KEPT,
        faults={"count": 8},
        plan={"balance": EAGER, "late_sites": 2, "gap_s": 0.5},
    ),
    "large states": Setting(
        kinds={"copy moved": 2.0, "site killed": 1.0, "link slow": 2.0, **LEADERS},
        faults={"count": 12, "among_input": True},
        plan={"remembering": True, "batches": 16, "rows": 8},
    ),
    "spilling": Setting(plan={"memory_bytes": 2 * PAGE_BYTES, "late_sites": 1, "batches": 16}),
    "large states on disk": Setting(
        kinds={"copy moved": 2.0, "site killed": 1.0, "link slow": 2.0, **LEADERS},
        faults={"count": 12, "among_input": True},
        plan={"memory_bytes": 2 * PAGE_BYTES, "remembering": True, "batches": 16, "rows": 8},
    ),
}
"""Regions by name: everything that is drawn, and those where some things happen more often."""
SETTINGS: Final = RESUME | {
    f"{name}, papers": replace(setting, plan={**setting.plan, "papers": True})
    for name, setting in RESUME.items()
}
"""The regions, and those of jobs that run the papers' protocol."""


@dataclass
class Run:
    """The outcome of one run.

    Attributes:
        problem: what was wrong; empty: nothing.
        lost: a loss was reported, where faults may cause one.
        terms: leaders.
        joined: incarnations of sites.
    """

    seed: int
    problem: str = ""
    story: str = ""
    lost: bool = False
    terms: int = 0
    joined: int = 0
    moved: int = 0
    virtual_s: float = 0.0
    events: int = 0
    struck: Counter[str] = field(default_factory=Counter)
    mid_recovery: int = 0
    mid_record: int = 0
    answers_lost: int = 0
    sessions_expired: int = 0
    torn: int = 0


def run(seed: int, setting: str = "any") -> Run:
    """One job from a seed, in one of `SETTINGS`."""
    kernel = Kernel(seed)
    plan, fault_plan = SETTINGS[setting].of(plan_of(kernel.rng), fault_plan_of(kernel.rng))
    cluster = Cluster(kernel, plan, seed, at_the_end)
    done = Run(seed)
    with simulated(cluster, fault_plan) as faults:
        done.problem = outcome_of(cluster, faults)
        if done.problem:
            done.story = f"{plan}\n{fault_plan}\n{cluster.story}"
        _count(done, cluster, faults)
    return done


@contextmanager
def simulated(cluster: Cluster, fault_plan: FaultPlan) -> Iterator[Faults]:
    """A job that begins, under these faults; afterwards nothing is left of it."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        with substituted(cluster):
            faults = Faults(cluster, fault_plan)
            cluster.start()
            yield faults
            cluster.end()
    finally:
        gc.enable()
        logging.disable(level)


def outcome_of(cluster: Cluster, faults: Faults) -> str:
    """Run a job to its end; gives what was wrong, if anything."""
    try:
        _drive(cluster, faults)
        _judge(cluster, reckless=faults.plan.reckless)
    except ViolationError as violation:
        return str(violation)
    except Exception:  # of the simulation itself: no run may go uncounted
        return "the simulation failed\n" + traceback.format_exc()
    return ""


def _drive(cluster: Cluster, faults: Faults) -> None:
    kernel = cluster.kernel
    began = kernel.now

    while not cluster.calm and not cluster.over and not kernel.faults:
        kernel.run(kernel.now + STEP_S)
        if kernel.now - began > FAULTS_S:
            faults.left = 0
    end = kernel.now + QUIET_S
    while not cluster.over and not kernel.faults and kernel.now < end:
        kernel.run(kernel.now + STEP_S)


def _judge(cluster: Cluster, *, reckless: bool) -> None:
    """Whether the job has kept its promises.

    Raises:
        ViolationError: it has not.
    """
    outcome = cluster.outcome
    for process, error in cluster.kernel.faults:
        if isinstance(error, ViolationError):
            raise error
        text = "".join(traceback.format_exception(error)[-6:])
        raise ViolationError(f"{process.name} ended by {error!r}\n{text}")
    if outcome.lost is not None and not reckless:
        raise ViolationError(f"lost although another copy was whole: {outcome.lost}")
    if not cluster.over:
        raise ViolationError(f"stuck: {outcome}")
    if outcome.lost is None and not outcome.ended:
        raise ViolationError(f"stopped before the end: {outcome}")


def _count(done: Run, cluster: Cluster, faults: Faults) -> None:
    done.lost = cluster.outcome.lost is not None
    done.terms = len(cluster.leaders)
    done.joined = cluster.joined
    done.moved = 0 if cluster.ledger is None else cluster.ledger.moves
    done.virtual_s = cluster.kernel.now - 1000.0
    done.events = cluster.kernel.events
    done.struck = faults.struck
    done.mid_recovery, done.mid_record = faults.mid_recovery, faults.mid_record
    done.answers_lost = cluster.ensemble.answers_lost
    done.sessions_expired = cluster.ensemble.expired
    done.torn = cluster.disk.torn


@dataclass
class Totals:
    """The outcome of many runs."""

    runs: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    sums: Counter[str] = field(default_factory=Counter)
    failed: list[Run] = field(default_factory=list)

    def add(self, done: Run) -> None:
        """One more."""
        self.runs += 1
        self.faults += done.struck
        self.sums += Counter(
            losses=done.lost,
            terms=done.terms,
            incarnations=done.joined,
            mid_recovery=done.mid_recovery,
            mid_record=done.mid_record,
            answers_lost=done.answers_lost,
            sessions_expired=done.sessions_expired,
            torn=done.torn,
            events=done.events,
            virtual_s=int(done.virtual_s),
        )
        if done.problem:
            self.failed.append(done)

    def text(self, wall_s: float, cpu_s: float) -> str:
        """For people."""
        sums = self.sums
        return "\n".join(
            (
                f"{self.runs} runs in {wall_s:.1f} s ({cpu_s:.1f} s of processors, "
                f"{cpu_s / max(1, self.runs) * 1e3:.0f} ms each), {sums['events']} events in "
                f"{sums['virtual_s']} virtual seconds: {len(self.failed)} violations",
                f"{sum(self.faults.values())} faults, {sums['mid_recovery']} of them while copies "
                f"were missing; {sums['terms'] - self.runs} changes of leader, "
                f"{sums['mid_record']} with an event on its way into the record; "
                f"{sums['incarnations']} incarnations of sites; {sums['sessions_expired']} "
                f"sessions expired; {sums['answers_lost']} answers of ZooKeeper lost; "
                f"{sums['torn']} files torn; {sums['losses']} losses reported",
                "faults: " + ", ".join(f"{kind} {n}" for kind, n in sorted(self.faults.items())),
            )
        )


def sweep(seeds: range, processes: int = 1, setting: str = "any") -> tuple[Totals, str]:
    """Runs on so many processors: totals, and their text; violations are printed at once."""
    began = time.perf_counter()
    totals = Totals()
    one = partial(run, setting=setting)
    with ExitStack() as stack:
        runs: Iterable[Run] = map(one, seeds)
        if processes > 1 and len(seeds) >= FEW:
            spawn = multiprocessing.get_context("spawn")  # a fork of threads may wait for ever
            pool = stack.enter_context(spawn.Pool(processes, maxtasksperchild=500))
            runs = pool.imap_unordered(one, seeds, chunksize=10)
        for done in runs:
            totals.add(done)
            if done.problem:
                print(f"seed {done.seed}: {done.problem.splitlines()[0]}", flush=True)
    used = os.times()
    cpu = used.user + used.system + used.children_user + used.children_system
    return totals, totals.text(time.perf_counter() - began, cpu)
