"""Which faults strike a random run, and when: anywhere, or at a chosen step of a catch-up.

Two kinds: those that take a copy or make others believe that it is gone (`Deaths`), and those that
only slow down (`Troubles`). What is slow is no step of the world: it is drawn less often.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from flux_lab.connections import LEADER
from flux_lab.papers.protocol.segment import Segment
from flux_lab.plans import Plan
from flux_lab.world import Step, World
from flux_runtime.protocol.orders import Phase
from flux_runtime.protocol.vocabulary import Node, Status

PHASES: Final = (
    "announced",
    "started",
    "pausing",
    "moving",
    "installed",
    "moved",
    "folding in",
)
"""The steps of a catch-up, as `phase` tells them apart."""

ROLES: Final = ("standby", "survivor", "producer", "consumer", "other")
"""The roles of copies in the catch-up in hand."""

SLOW: Final = 0.02
"""How often a slow step is drawn, compared with others."""


def phase(world: World) -> str | None:
    """How far the catch-up in hand has come, if there is one."""
    now = world.controller.current
    if now is None:
        return None
    if now.phase is Phase.ANNOUNCED:
        return "announced"
    standby = Node(*now.pair, now.copy, now.attempt)
    if standby in world.moves:
        return "moving"
    machine = world.nodes.get(standby)
    if isinstance(machine, Segment) and machine.status is not Status.STANDBY:
        if now.phase is Phase.MOVED:
            return "folding in" if now.folded else "moved"
        return "installed"
    windows = [
        m.consumer.window
        for n, m in world.nodes.items()
        if n.pair == now.pair and isinstance(m, Segment)
    ]
    return "pausing" if any(windows) else "started"


def role(world: World, node: Node) -> str:
    """The role of a copy in the catch-up in hand."""
    now = world.controller.current
    if now is None:
        return "other"
    if node.pair == now.pair:
        return "standby" if node == Node(*now.pair, now.copy, now.attempt) else "survivor"
    return {-1: "producer", 1: "consumer"}.get(node.stage - now.pair.stage, "other")


def victims(world: World, *, reckless: bool) -> list[Node]:
    """Copies whose death the protocol must mask: the other copy is whole and known to be."""
    result = []
    for node in world.site:
        if node in world.doomed:
            continue
        mate = world.controller.pairs[node.pair].copies[1 - node.copy]
        assert mate is not None
        other = Node(*node.pair, 1 - node.copy, mate.life)
        well = other in world.nodes and other not in world.doomed
        if reckless or (mate.status is Status.ACTIVE and well):
            result.append(node)
    return result


class Deaths:
    """Faults that take copies: half of them at a moment, half at a drawn step of a catch-up."""

    def __init__(self, rng: random.Random, plan: Plan) -> None:
        self.rng = rng
        self.plan = plan
        self.moments: list[int] = []
        self.aims: list[tuple[str, str]] = []
        for n in range(plan.kills):
            if n and rng.random() < 0.5:
                self.aims.append((rng.choice(PHASES), rng.choice(ROLES)))
            else:
                self.moments.append(self._moment())
        self.moments.sort()

    def _moment(self) -> int:
        if self.moments and self.rng.random() < 0.6:
            return self.moments[-1] + self.rng.randrange(120)
        return self.rng.randrange(self.plan.steps)

    def next(self, world: World, taken: int, *, idle: bool) -> Step | None:
        """The fault that strikes now, if any does.

        Args:
            world: as it is.
            taken: steps taken so far.
            idle: nothing else can happen.
        """
        if self.aims and self.aims[0][0] == phase(world) and self.rng.random() < 0.5:
            _, whom = self.aims.pop(0)
            may_die = victims(world, reckless=self.plan.reckless)
            return self._fault(world, [n for n in may_die if role(world, n) == whom] or may_die)
        if self.moments and (taken >= self.moments[0] or idle):
            self.moments.pop(0)
            return self._fault(world, victims(world, reckless=self.plan.reckless))
        if idle:
            self.aims.clear()
        return None

    @property
    def due(self) -> bool:
        """Whether some may still come."""
        return bool(self.moments)

    def _fault(self, world: World, may_die: Sequence[Node]) -> Step | None:
        if not may_die:
            return None
        rng = self.rng
        node = rng.choice(may_die)
        if world.controller.is_whole and rng.random() < 0.15:
            return Step("move", node)
        site = world.site[node]
        site_may_fail = self.plan.reckless or set(world.nodes_on(site)) <= set(
            victims(world, reckless=False)
        )
        if site_may_fail and len(set(world.site.values())) > 2 and rng.random() < 0.4:
            return self._fault_of_site(world, site)
        return self._fault_of_process(world, node)

    def _fault_of_site(self, world: World, site: int) -> Step:
        """It dies, or stands still and is taken for dead, or loses its connection to another."""
        draw = self.rng.random()
        if draw < 0.2:
            return Step("suspect", site)
        if draw < 0.4 and world.network.connections is not None:
            others = sorted({LEADER, *world.site.values()} - {site})
            return Step("close", site, self.rng.choice(others))
        return Step("crash", site)

    def _fault_of_process(self, world: World, node: Node) -> Step:
        """It dies, or is taken for dead and lives on, or loses its link to another."""
        draw = self.rng.random()
        if draw < 0.2:
            return Step("suspect", node)
        peers = sorted({p for link in world.links for p in link if node in link} - {node})
        if draw < 0.4 and peers and world.network.connections is None:
            return Step("close", node, self.rng.choice(peers))
        return Step("kill", node)


class Troubles:
    """Faults that only slow down.

    Attributes:
        counts: kind -> how many there were.
        slow: (kind of slowness, site) -> number of the step until which it lasts.
    """

    KINDS: Final = (
        "pause",
        "squeeze",
        "evict",
        "fill disk",
        "slow site",
        "slow disk",
        "slow view",
        "slow notices",
    )

    def __init__(self, rng: random.Random, plan: Plan) -> None:
        self.rng = rng
        self.counts: dict[str, int] = {}
        self.slow: dict[tuple[str, int], int] = {}
        self.then: Step | None = None
        self.moments = sorted(rng.randrange(plan.steps) for _ in range(plan.troubles))

    def next(self, world: World, taken: int) -> Step | None:
        """The trouble that begins now, if one does that is a step of the world."""
        if self.then is not None:
            step, self.then = self.then, None
            return step
        if not self.moments or taken < self.moments[0] or not world.site:
            return None
        self.moments.pop(0)
        kind = self.rng.choice(self.KINDS)
        node = self.rng.choice(list(world.site))
        site = world.site[node]
        self.counts[kind] = self.counts.get(kind, 0) + 1
        if kind.startswith("slow"):
            self.slow[kind, site] = taken + self.rng.randrange(20, 400)
            return None
        if kind == "fill disk":  # it matters to partitions that are on disk
            self.then = Step(kind, site)
            return Step("squeeze", site)
        return Step(kind, node if kind == "evict" else site)

    def weight(self, world: World, step: Step, taken: int) -> float:
        """How often a step is drawn because of what is slow now."""
        site = world.site.get(step.at) if isinstance(step.at, Node) else None
        if site is None:
            return 1.0
        kinds = ["slow site"]
        kinds += ["slow disk"] if step.kind == "activate" else []
        kinds += ["slow view"] if step.kind == "log" else []
        kinds += ["slow notices"] if step.kind == "notice" else []
        slow = any(self.slow.get((kind, site), 0) > taken for kind in kinds)
        return SLOW if slow else 1.0
