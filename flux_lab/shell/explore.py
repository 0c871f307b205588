"""Every moment of a crash and of a change of leader in small jobs, and every delivery held up.

    python -m flux_lab.shell explore leader-and-crash
    python -m flux_lab.shell explore --list

A run cannot be copied, so it is run anew for every choice, with all draws alike: everything takes
equally long, which leaves one schedule. What departs from it is a list of choices, each at a
number of events from the beginning: a fault, or a link on which everything is held up while
others go on. Every list up to the length that a configuration says is run to its end and judged as
in the sweep. That is a bound on the departures, as of preemptions in CHESS: within it all is tried.

A fault is tried at one of several moments between which it makes no difference. Of a process that
is killed all is lost but what it has sent and written, so one moment for every number of those
will do; of a machine that is lost, what has arrived; whoever only ceases to lead goes on with what
it has received too.
In a state that was met before, as far as what the job says of itself tells, the same is not tried
again, unless all is to be tried (`--full`).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from hashlib import blake2b
from random import Random
from typing import Any, Final, NamedTuple

from flux_lab.papers.host import Host
from flux_lab.shell.checks import at_the_end
from flux_lab.shell.cluster import Cluster, Plan
from flux_lab.shell.faults import KINDS, FaultPlan, Faults
from flux_lab.shell.kernel import Kernel, Process, Timer
from flux_lab.shell.network import Endpoint
from flux_lab.shell.sweep import outcome_of, simulated
from flux_lab.shell.zookeeper import MACHINE, Connection
from flux_runtime.protocol.vocabulary import Shape
from flux_runtime.resume.replica import Replica
from flux_runtime.site.resume_host import ResumeHost

HELD_S: Final = 0.05
"""So long a link is held up: some twenty messages and their answers pass elsewhere."""
SITE: Final = ("site killed", "site's machine lost")
LEADER: Final = ("leader killed", "leader's machine lost", "leader deposed", "leader expired")
STRIKE: Final = {**KINDS, "leader expired": Faults.expire_leader}
HELD: Final = "link held"
NO_FAULTS: Final = FaultPlan(count=0, gap_s=1.0, among_input=False, reckless=False, kinds={})


class Choice(NamedTuple):
    """A departure from the schedule: before which event, what, and where (site, or link)."""

    at: int
    kind: str
    where: Any = None


class Configuration(NamedTuple):
    """A small job, and what may depart from its schedule: at most one of each group, in any order.

    Attributes:
        groups: kinds of faults; `HELD` may occur more than once.
    """

    groups: tuple[tuple[str, ...], ...]
    widths: tuple[int, ...] = (1,)
    batches: int = 1
    sites: int = 2
    papers: bool = False

    def plan(self) -> Plan:
        """The job."""
        return Plan(
            shape=Shape(widths=self.widths, ack_every=1, in_hand=1, pool=8),
            batches=self.batches,
            rows=2,
            keys=2,
            gap_s=0.0,
            sites=self.sites,
            executors=self.sites,
            controllers=2,
            window=4,
            credits=4,
            snapshot_events=1000,
            kept_entries=512,
            slack_entries=256,
            journal_bytes=64 << 20,
            durable="process",
            papers=self.papers,
        )


RESUME: Final = {
    "crash": Configuration((SITE,)),
    "leader": Configuration((LEADER,)),
    "crash-two-batches": Configuration((SITE,), batches=2, sites=3),
    "leader-two-batches": Configuration((LEADER,), batches=2, sites=3),
    "held": Configuration(((HELD,),)),
    "held-twice": Configuration(((HELD,), (HELD,))),
    "held-and-crash": Configuration(((HELD,), SITE)),
    "held-and-leader": Configuration(((HELD,), LEADER)),
    "leader-killed-and-crash": Configuration((LEADER[:1], SITE[:1])),
    "machines-lost": Configuration((LEADER[1:2], SITE[1:])),
    "leader-deposed-and-crash": Configuration((LEADER[2:3], SITE[:1])),
    "leader-expired-and-crash": Configuration((LEADER[3:], SITE[:1])),
}
CONFIGURATIONS: Final = RESUME | {
    f"{name}-papers": job._replace(papers=True) for name, job in RESUME.items()
}
"""The jobs by name, those of the resume protocol and those of the papers' protocol."""


class Even(Random):
    """Draws that are all alike; names differ all the same."""

    def random(self) -> float:
        """The middle."""
        return 0.5


@dataclass
class Explored:
    """The result of an exploration.

    Attributes:
        states: distinct states at the moments of a choice, as leaders, sites, clients, record and
            links say of themselves.
        tried: what has been chosen in each of them.
        full: choose at every moment, also in a state where the same has been chosen.
        problem: what was wrong, after which choices; empty: nothing.
    """

    full: bool = False
    runs: int = 0
    events: int = 0
    moments: int = 0
    states: set[bytes] = field(default_factory=set)
    tried: dict[bytes, set[tuple[str, Any]]] = field(default_factory=dict)
    complete: bool = True
    problem: str = ""

    def __str__(self) -> str:
        return (
            f"{self.runs:,} runs, {len(self.states):,} states, {self.moments:,} moments of a "
            f"choice, {self.events:,} events, {'complete' if self.complete else 'NOT complete'}"
        )


def explore(
    configuration: Configuration,
    *,
    full: bool = False,
    seconds_max: float | None = None,
    runs_max: int | None = None,
) -> Explored:
    """Run every list of choices, the shortest first, until one violates something.

    Args:
        configuration: the job and its choices.
        full: tell no states apart: choose the same at every moment.
        seconds_max, runs_max: give up (incomplete) after so much.
    """
    until = time.monotonic() + seconds_max if seconds_max else None
    explored = Explored(full=full)
    level: list[tuple[Choice, ...]] = [()]
    for _ in range(len(configuration.groups) + 1):
        longer: list[tuple[Choice, ...]] = []
        for choices in level:
            if (until and time.monotonic() > until) or explored.runs == runs_max:
                explored.complete = False
                return explored
            run = _Run(configuration, choices, explored)
            explored.problem = run.judged()
            if explored.problem:
                return explored
            longer += [(*choices, choice) for choice in run.next]
        level = longer
    return explored


class _Run:
    """One job with these choices; it collects the choices that may come after the last of them."""

    def __init__(
        self, configuration: Configuration, choices: tuple[Choice, ...], explored: Explored
    ) -> None:
        self.kernel = Kernel(0)
        self.kernel.rng = Even(0)
        self.cluster = Cluster(self.kernel, configuration.plan(), 0, at_the_end)
        self.choices = choices
        self.explored = explored
        self.left = list(configuration.groups)
        for choice in choices:
            self.left.remove(next(group for group in self.left if choice.kind in group))
        self.due = list(choices)
        self.next: list[Choice] = []
        self._last: dict[tuple[str, Any], tuple[Process, tuple[int, ...]]] = {}

    def judged(self) -> str:
        """The problem, if any, and what came before it."""
        explored, cluster = self.explored, self.cluster
        with simulated(cluster, NO_FAULTS) as faults:
            self.faults = faults
            self.kernel.look = self._look
            problem = outcome_of(cluster, faults)
        explored.runs += 1
        explored.events += self.kernel.events
        if not problem:
            return ""
        after = ", ".join(map(str, self.choices)) or "nothing"
        return f"{problem}\nafter {after}\n{cluster.story}"

    def _look(self, timer: Timer) -> None:
        at = self.kernel.events
        while self.due and self.due[0].at == at:
            self._depart(self.due.pop(0))
        if self.due or not self.left or self.cluster.outcome.stopped:
            return
        before = len(self.next)
        kinds = {kind: None for group in self.left for kind in group}
        if HELD in kinds:
            self._offer_link(at, timer)
        if leader := self.faults.leader():
            for kind in filter(LEADER.__contains__, kinds):
                self._offer(at, kind, None, leader[1])
        for number, process in self.cluster.sites.items():
            for kind in filter(SITE.__contains__, kinds) if process.alive else ():
                self._offer(at, kind, number, process)
        if len(self.next) > before:
            code = self._code()
            self.explored.states.add(code)
            new = self.next[before:]
            self.explored.moments += len(new)
            if not self.explored.full:
                known = self.explored.tried.setdefault(code, set())
                self.next[before:] = [choice for choice in new if choice[1:] not in known]
                known.update(choice[1:] for choice in new)

    def _offer(self, at: int, kind: str, where: Any, process: Process) -> None:
        """To be tried here, unless it makes no difference since it was last."""
        numbers: tuple[int, ...] = (process.sent, process.arrived)
        if "machine" in kind:
            numbers = (process.arrived,)
        elif "killed" not in kind:
            numbers = (process.sent, process.arrived, process.received)
        if self._last.get((kind, where)) != (process, numbers):
            self._last[kind, where] = (process, numbers)
            self.next.append(Choice(at, kind, where))

    def _offer_link(self, at: int, timer: Timer) -> None:
        """Offer to hold up what is about to come, with all that follows it there."""
        end = getattr(timer.function, "__self__", None)
        link = None
        if timer.function == getattr(end, "_deliver", None) and isinstance(end, Endpoint):
            link = (end.process.machine, end.peer.process.machine)
        elif timer.function == getattr(end, "_come", None) and isinstance(end, Connection):
            link = (MACHINE, end.kazoo.process.machine)
        if link is not None and self.cluster.network.blocked_until(*link) <= self.kernel.now:
            self.next.append(Choice(at, HELD, link))

    def _depart(self, choice: Choice) -> None:
        """Do what was chosen; where it is not possible, nothing happens."""
        if choice.kind == HELD:
            here, there = choice.where
            self.cluster.network.block(here, there, HELD_S)
            return
        self.faults.aim = self.cluster.sites[choice.where] if choice.kind in SITE else None
        STRIKE[choice.kind](self.faults)

    def _code(self) -> bytes:
        """A number for what leaders, sites, clients, record and links say of themselves."""
        cluster = self.cluster
        facts: list[Any] = [vars(cluster.outcome), tuple(self.left)]
        for leader in cluster.leaders:
            process = cluster.leader_process[leader]
            if process.alive and not leader.ended.done():
                state = leader.state
                facts.append(("leader", state.ledger.leaders, state.ledger.events))
                facts.append((state.leading, state.began, len(state.pending), state.committed))
                facts.append((sorted(state.attached), sorted(state.leaving), leader.fed))
        for number, process in cluster.sites.items():
            worker = cluster.workers.get(process)
            facts.append(("site", number, process.alive, worker is None))
            if worker is not None:
                site = worker.state
                facts.append((site.number, site.epoch, site.position, site.laid_out, site.told))
                facts.append((sorted(site.links), sorted(site.broken), len(site.notices)))
                if isinstance(worker.host, Host):
                    facts += [(node, *_positions(its)) for node, its in worker.host.segments()]
                elif isinstance(worker.host, ResumeHost):
                    facts += [_reached(replica) for replica in worker.host.nodes.values()]
        tree = cluster.ensemble
        facts.append([(path, len(znode.data)) for path, znode in sorted(tree.state.nodes.items())])
        facts.append(
            sorted((c.kazoo.process.name, len(c.requests), c.unanswered) for c in tree.connections)
        )
        facts.append({path: len(content.data) for path, content in cluster.disk.files.items()})
        facts.append([server.applied - len(tree.decided) for server in tree.servers])
        facts.append(
            sorted(
                (end.process.name, end.peer.process.name, end.under_way)
                for end in cluster.network.connections
                if end.under_way
            )
        )
        return blake2b(repr(facts).encode(), digest_size=16).digest()


def _reached(replica: Replica) -> tuple[Any, ...]:
    """How far a copy is under the resume protocol."""
    return replica.copy, replica.done, replica.heads, len(replica.held), replica.sources


def _positions(segment: Any) -> tuple[Any, ...]:
    """How far a copy is."""
    inlets = [
        (i.status, i.conn, i.ver, i.hi, i.mark, len(i.queue)) for i in segment.consumer.inlets
    ]
    held = [len(outlet.buffer.entries) for outlet in segment.producer.outlets]
    return segment.status, segment.producer.progress, inlets, held
