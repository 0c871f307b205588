"""Faults of a simulated job, and when they strike: half of them while copies are recovered.

Faults of sites strike, in most runs, only sites whose copies are whole elsewhere, on sites that
nothing has struck: the job then has to lose nothing. In the others they strike anywhere, and a loss
may be reported. Leaders, ZooKeeper, links and disks fail at any time in both.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from flux_lab.shell import checks
from flux_lab.shell.cluster import PATIENCE_S, SESSION_S, Cluster
from flux_lab.shell.kernel import Process
from flux_lab.shell.zookeeper import MACHINE, SERVERS
from flux_runtime.protocol.vocabulary import LABELS, Status, other
from flux_runtime.site.client import Client
from flux_runtime.site.leader import Leader
from flux_runtime.site.ledger import apart, crowded

LOOK_S: Final = 0.03
AT_ONCE_S: Final = 0.1
"""Two faults that are no further apart than this meet the same recovery."""
LONG_S: Final = 2.0 * SESSION_S
"""So long a process is stopped, or cut off, that its session ends."""
STAYS_S: Final = 1.0
"""A leader that has led for so long has been heard by all who can."""


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """How many faults strike a run.

    Attributes:
        count: of all kinds together.
        gap_s: about how long from one to the next.
        among_input: the source goes on only as faults strike.
        reckless: sites may be struck whose copies are nowhere else.
        kinds: what may strike, with weights.
    """

    count: int
    gap_s: float
    among_input: bool
    reckless: bool
    kinds: dict[str, float]


def fault_plan_of(rng: random.Random) -> FaultPlan:
    """Draw the faults of a run: some kinds are left out of each, so that others are dense."""
    drawn = {kind: rng.choice((0.0, 1.0, 1.0, 4.0)) for kind in KINDS}
    if rng.random() < 0.3:
        drawn |= dict.fromkeys(rng.sample(list(KINDS), len(KINDS) - 3), 0.0)
    return FaultPlan(
        count=rng.choice((0, 2, 4, 8, 8, 12)),
        gap_s=rng.choice((0.05, 0.3, 1.0)),
        among_input=rng.random() < 0.7,
        reckless=rng.random() < 0.15,
        kinds=drawn,
    )


class Faults:
    """Strikes a cluster until all faults have struck.

    Attributes:
        struck: kind -> how many.
        mid_recovery: how many while some copy was missing.
        mid_record: leaders that were struck with an event on its way into the record.
        aim: the only site that may be struck; None: any.
    """

    def __init__(self, cluster: Cluster, plan: FaultPlan) -> None:
        self.cluster = cluster
        self.kernel = cluster.kernel
        self.rng = cluster.kernel.rng
        self.plan = plan
        self.left = plan.count if any(plan.kinds.values()) else 0
        self.struck: Counter[str] = Counter()
        self.mid_recovery = 0
        self.mid_record = 0
        self.aim: Process | None = None
        self.cluster.struck = 0.2 if plan.among_input and self.left else 1.0
        self._next = self.kernel.now + self.rng.random() * 2
        self._last_effect = self.kernel.now
        self._leads: Leader | None = None
        self._leads_since = self._last_led = self.kernel.now
        self.kernel.after(LOOK_S, self._look)

    def _look(self) -> None:
        if self.rng.random() < 0.2:
            checks.always(self.cluster)
        if not self.left:
            self.cluster.struck = 1.0
            self.kernel.at(max(self.kernel.now, self._last_effect), self._calm)
            return
        self.kernel.after(LOOK_S, self._look)
        self._follow_leader()
        ledger = self.cluster.ledger
        early = ledger is None or ledger.controller is None
        if self.kernel.now < self._next or (early and self.rng.random() < 0.98):
            return
        recovering = ledger is not None and not early and not ledger.is_whole
        if not recovering and self.rng.random() < 0.85 and self.kernel.now < self._next + 1.0:
            return  # most strike while something is under way
        kind = self.rng.choices(list(self.plan.kinds), list(self.plan.kinds.values()))[0]
        if kind.startswith("leader") and self.rng.random() < 0.5:
            self._arm(kind)
        else:
            self._strike(kind)

    def _follow_leader(self) -> None:
        """When somebody led last who stayed: sites give up where nobody does for long."""
        of, now = self.leader(), self.kernel.now
        leader = None if of is None else of[0]
        if leader is not self._leads:
            self._leads, self._leads_since = leader, now
        elif leader is not None and now - self._leads_since >= STAYS_S:
            self._last_led = now

    def _strike(self, kind: str) -> bool:
        if kind.startswith("leader") and self.kernel.now - self._last_led > PATIENCE_S / 2:
            return False
        ledger = self.cluster.ledger
        recovering = ledger is not None and ledger.controller is not None and not ledger.is_whole
        if not self.left or not KINDS[kind](self):
            return False
        self.left -= 1
        self.struck[kind] += 1
        self.mid_recovery += recovering
        gap_s = AT_ONCE_S if self.rng.random() < 0.4 else self.plan.gap_s
        self._next = self.kernel.now + self.rng.random() * 2 * gap_s
        if self.plan.among_input:
            self.cluster.struck = 1 - self.left / self.plan.count
        return True

    def _arm(self, kind: str) -> None:
        """Strike when the next record has been carried out, and nobody knows."""
        ensemble = self.cluster.ensemble

        def strike() -> None:
            self.mid_record += self._strike(kind)

        def carried_out(session: int) -> None:
            of = self.leader()
            if of is not None and ensemble.process_of(session) is of[1]:
                ensemble.on_transaction = lambda _: None
                self.kernel.at(self.kernel.now, strike)

        ensemble.on_transaction = carried_out
        self._next = self.kernel.now + 0.3

    def _calm(self) -> None:
        self.cluster.struck = 1.0
        self.cluster.calm = True

    def _lasts(self, seconds: float) -> float:
        self._last_effect = max(self._last_effect, self.kernel.now + seconds)
        return seconds

    # ---- victims

    def _vulnerable(self, process: Process) -> bool:
        """Whether this site may go: its copies are whole elsewhere, on sites that are well."""
        cluster = self.cluster
        if self.plan.reckless:
            return True
        ledger = cluster.ledger
        if ledger is None or ledger.controller is None:
            return True
        well = {
            worker.host.me
            for site, worker in cluster.workers.items()
            if site not in cluster.gone and site.alive and worker.state.registered
        } & set(ledger.sites)
        worker = cluster.workers.get(process)
        me = None if worker is None else ledger.numbers.get(worker.id)  # it may not know it yet
        if me is None:
            return True
        controller = ledger.controller
        if any(apart(controller, pair, c) for pair, _ in crowded(controller) for c in LABELS):
            return False  # the one that stays may move to a site that is about to go
        for node, copy in controller.nodes():
            if copy.site == me:
                mate = controller.pairs[node.pair].copies[other(node.copy)]
                if mate is None or mate.status is not Status.ACTIVE or mate.site not in well - {me}:
                    return False
        return True

    def _site(self) -> Process | None:
        """A site that may go, noted as gone."""
        cluster = self.cluster
        able = [
            process
            for process in cluster.sites.values()
            if process.alive
            and process not in cluster.gone
            and self.aim in (None, process)
            and self._vulnerable(process)
        ]
        if not able:
            return None
        process = self.rng.choice(able)
        cluster.gone.add(process)
        return process

    def leader(self) -> tuple[Leader, Process] | None:
        """Who leads, as far as it knows, and its process."""
        for leader in reversed(self.cluster.leaders):
            process = self.cluster.leader_process[leader]
            if process.alive and not leader.ended.done():
                return leader, process
        return None

    def _note(self, text: str) -> bool:
        self.cluster.note(text)
        return True

    # ---- sites

    def kill_site(self) -> bool:
        """SIGKILL: its connections are closed."""
        if (process := self._site()) is None:
            return False
        process.kill()
        return self._note(f"{process.name} is killed")

    def lose_machine(self) -> bool:
        """The machine is gone: nobody hears anything."""
        if (process := self._site()) is None:
            return False
        self.cluster.network.dead_machines.add(process.machine)
        process.kill()
        return self._note(f"the machine of {process.name} is gone")

    def stop_site(self) -> bool:
        """SIGSTOP for longer than a session lives: a zombie comes back."""
        if (process := self._site()) is None:
            return False
        process.stop(self._lasts(LONG_S * (0.7 + self.rng.random())))
        return self._note(f"{process.name} is stopped until {process.stopped_until:.3f}")

    def cut_site_off(self) -> bool:
        """A site does not reach ZooKeeper, or is not reached by it, or both."""
        if (process := self._site()) is None:
            return False
        self._cut(process.machine, MACHINE, LONG_S * (0.7 + self.rng.random()))
        return self._note(f"{process.name} is cut off from ZooKeeper")

    def reset_link(self) -> bool:
        """The connections between two sites break, or that of a site to the leader."""
        if (process := self._site()) is None:
            return False
        cluster = self.cluster
        others = [p for p in cluster.sites.values() if p.alive and p is not process]
        leader = self.leader()
        if leader is not None:
            others.append(leader[1])
        if not others:
            cluster.gone.discard(process)
            return False
        other_end = self.rng.choice(others)
        if other_end in cluster.sites.values():
            cluster.gone.discard(process)  # one of the two stays
            if other_end in cluster.gone or not self._vulnerable(other_end):
                return False
            cluster.gone |= {process, other_end}
        if not cluster.network.reset_between(process.machine, other_end.machine):
            cluster.gone -= {process, other_end}
            return False
        self.kernel.after(3.0, self._one_is_left, process, other_end)
        return self._note(f"{process.name} and {other_end.name} lose their connection")

    def _one_is_left(self, *ends: Process) -> None:
        """One of the two has been removed by now, if anybody leads; the other is well."""
        ledger, workers = self.cluster.ledger, self.cluster.workers
        here = {workers[end].host.me for end in ends if end in workers}
        if len(here) > 1 and ledger is not None and here <= set(ledger.sites):
            self.kernel.after(1.0, self._one_is_left, *ends)
            return
        self.cluster.gone -= set(ends)

    # ---- controllers

    def kill_leader(self) -> bool:
        """SIGKILL."""
        if (of := self.leader()) is None:
            return False
        of[1].kill()
        return self._note(f"the leader {of[1].name} is killed")

    def lose_leader(self) -> bool:
        """The leader's machine is gone: nobody hears anything."""
        if (of := self.leader()) is None:
            return False
        self.cluster.network.dead_machines.add(of[1].machine)
        of[1].kill()
        return self._note(f"the machine of the leader {of[1].name} is gone")

    def depose_leader(self) -> bool:
        """Its connections to the other controllers break, which depose it; it lives on."""
        if (of := self.leader()) is None:
            return False
        network, leader = self.cluster.network, of[1]
        others = [p for p in self.cluster.controllers.values() if p.alive and p is not leader]
        if not sum(network.reset_between(leader.machine, other.machine) for other in others):
            return False
        return self._note(f"the other controllers lose their connections to {leader.name}")

    def stop_leader(self) -> bool:
        """SIGSTOP, in half of all cases for longer than its session lives."""
        if (of := self.leader()) is None:
            return False
        of[1].stop(self._lasts(self.rng.choice((0.3, LONG_S)) * (0.7 + self.rng.random())))
        return self._note(f"the leader {of[1].name} is stopped until {of[1].stopped_until:.3f}")

    def cut_leader_off(self) -> bool:
        """The leader does not reach ZooKeeper, or is not reached by it, or both."""
        if (of := self.leader()) is None:
            return False
        self._cut(of[1].machine, MACHINE, LONG_S * self.rng.random())
        return self._note(f"the leader {of[1].name} is cut off from ZooKeeper")

    def expire_leader(self) -> bool:
        """The leader's session ends; it finds out later than the others."""
        if (of := self.leader()) is None:
            return False
        ensemble = self.cluster.ensemble
        sessions = {c.session for c in ensemble.connections if c.kazoo.process is of[1]}
        for session in sorted(sessions, key=lambda session: session.number):
            ensemble.end_session(session)
        return bool(sessions) and self._note(f"the session of the leader {of[1].name} has ended")

    def lose_answers(self) -> bool:
        """Carry out what the leader has asked ZooKeeper, without it hearing so."""
        if (of := self.leader()) is None:
            return False
        self.cluster.ensemble.lose_answers(of[1])
        return self._note(f"answers to the leader {of[1].name} are lost")

    def kill_candidate(self) -> bool:
        """SIGKILL of any controller."""
        alive = [p for p in self.cluster.controllers.values() if p.alive]
        if not alive:
            return False
        process = self.rng.choice(alive)
        process.kill()
        return self._note(f"{process.name} is killed")

    # ---- the rest

    def lose_power(self) -> bool:
        """All controllers are gone at once, with what their disk had not got yet."""
        if self.cluster.plan.durable != "machine":
            return False
        for process in self.cluster.controllers.values():
            process.kill()
        self.cluster.disk.lose_power()
        return self._note("the controllers' machine loses power")

    def fill_disk(self) -> bool:
        """The journal's disk is full for a while."""
        self.cluster.disk.full = True
        self.kernel.after(self._lasts(2 * self.rng.random()), self._free_disk)
        return self._note("the disk is full")

    def _free_disk(self) -> None:
        self.cluster.disk.full = False
        self.cluster.note("the disk is free")

    def stop_server(self) -> bool:
        """A server of the ensemble, or too many for it to decide, for less than a session.

        In between sessions have time to be renewed, as many outages are no longer one.
        """
        if self.kernel.now < self.cluster.ensemble.quorum_until() + SESSION_S / 2:
            return False
        first = self.rng.randrange(SERVERS)
        seconds = self._lasts(SESSION_S * 0.4 * self.rng.random())
        for number in range(first, first + self.rng.choice((1, 2))):
            self.cluster.ensemble.stop_server(number % SERVERS, seconds)
        return self._note(f"servers of ZooKeeper are down for {seconds:.3f} s")

    def slow_server(self) -> bool:
        """A server of the ensemble lags: reads are old and watches late."""
        number = self.rng.randrange(SERVERS)
        self.cluster.ensemble.lag[number] = self.kernel.now + self._lasts(3 * self.rng.random())
        return self._note(f"server {number} of ZooKeeper lags")

    def cut_link(self) -> bool:
        """Between two processes nothing passes for a while, in one direction or both."""
        if (ends := self._two()) is None:
            return False
        one, two = ends
        self._cut(one.machine, two.machine, 0.4 * SESSION_S * self.rng.random())
        return self._note(f"{one.name} and {two.name} do not reach each other")

    def slow_link(self) -> bool:
        """Between two processes everything takes long."""
        if (ends := self._two()) is None:
            return False
        one, two = ends
        until = self.kernel.now + self._lasts(3 * self.rng.random())
        for link in ((one.machine, two.machine), (two.machine, one.machine)):
            self.cluster.network.slow[link] = until
        return self._note(f"{one.name} and {two.name} are far apart")

    def hold_up(self) -> bool:
        """A process gets no processor for less than a session, or little for the whole run."""
        processes = [*self.cluster.sites.values(), *self.cluster.controllers.values()]
        process = self.rng.choice(processes)
        if self.rng.random() < 0.3:
            process.slow = self.rng.choice((3.0, 10.0))
        else:
            process.stop(self._lasts(0.4 * SESSION_S * self.rng.random()))
        return self._note(f"{process.name} is held up")

    def kill_driver(self) -> bool:
        """The clients die and begin again."""
        driver = self.cluster.driver
        if driver is None or not driver.alive or self.cluster.outcome.fed:
            return False
        driver.kill()
        return self._note("the clients are killed")

    def reset_clients(self) -> bool:
        """The clients lose their connections to the leader, and find the same one again."""
        driver, of = self.cluster.driver, self.leader()
        if driver is None or of is None:
            return False
        if not self.cluster.network.reset_between(driver.machine, of[1].machine):
            return False
        return self._note("the clients lose their connections to the leader")

    def move(self) -> bool:
        """A copy is moved, as balancing does it; the site of the other one is spared meanwhile."""
        if (of := self.leader()) is None:
            return False
        leader = of[0]
        ledger, cluster = leader.state.ledger, self.cluster
        controller = ledger.controller
        if not leader.state.began or controller is None or not controller.is_whole:
            return False
        pair, copy = self.rng.choice(ledger.shape.pairs()), self.rng.randrange(2)
        mate = controller.pairs[pair].copies[other(copy)]
        near = [p for p, w in cluster.workers.items() if mate and w.host.me == mate.site]
        if not near or near[0] in cluster.gone:
            return False
        cluster.gone.add(near[0])
        site = self.rng.choice(list(ledger.sites))

        def errand(client: Client) -> None:
            client.move(*pair, copy, site)
            self.kernel.after(1.0, self._one_is_left, *near)

        cluster.errands.append(errand)
        return self._note(f"copy {copy} of {pair} is to move to site {site}")

    def _two(self) -> tuple[Process, Process] | None:
        cluster = self.cluster
        processes = [*cluster.sites.values(), *cluster.controllers.values(), cluster.driver]
        alive = [p for p in processes if p is not None and p.alive]
        if len(alive) < 2:
            return None
        one, two = self.rng.sample(alive, 2)
        return one, two

    def _cut(self, one: str, two: str, seconds: float) -> None:
        self._lasts(seconds)
        for here, there in self.rng.choice(
            (((one, two),), ((two, one),), ((one, two), (two, one)))
        ):
            self.cluster.network.block(here, there, seconds)


KINDS: Final[dict[str, Callable[[Faults], bool]]] = {
    "site killed": Faults.kill_site,
    "site's machine lost": Faults.lose_machine,
    "site stopped": Faults.stop_site,
    "site cut off": Faults.cut_site_off,
    "link reset": Faults.reset_link,
    "leader killed": Faults.kill_leader,
    "leader's machine lost": Faults.lose_leader,
    "leader deposed": Faults.depose_leader,
    "leader stopped": Faults.stop_leader,
    "leader cut off": Faults.cut_leader_off,
    "leader's answers lost": Faults.lose_answers,
    "controller killed": Faults.kill_candidate,
    "power lost": Faults.lose_power,
    "disk full": Faults.fill_disk,
    "server stopped": Faults.stop_server,
    "server slow": Faults.slow_server,
    "link cut": Faults.cut_link,
    "link slow": Faults.slow_link,
    "process held up": Faults.hold_up,
    "clients killed": Faults.kill_driver,
    "clients' links reset": Faults.reset_clients,
    "copy moved": Faults.move,
}
"""Every kind of fault."""
