"""The same machines under one virtual clock: what work, links and moves cost, hence how fast.

Time is in seconds, sizes in bytes. Every site has one processor, which does one step at a time, and
one network interface, whose outgoing messages follow one another. Sites can be slowed (external
load), paused, and crashed; links can be closed, which the fault model turns into the failure of one
end. Nothing reads a real clock, and the order of simultaneous events is fixed, so the same
configuration gives the same trace.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flux_runtime.protocol.messages import Ack, Data, Emit, Message
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node
from flux_runtime.simulation.world import Step, World

CONTROL_BYTES = 64
"""Size of a message that carries no rows."""

INGRESS_SITE, EGRESS_SITE, CONTROLLER_SITE = -1, -2, -3


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What things cost.

    Attributes:
        step: processor seconds to handle any message.
        row: stage -> processor seconds to process one row.
        ack: processor seconds to take or send one acknowledgement, per row it stands for.
        latency: seconds from one site to another.
        bandwidth: bytes per second of a site's network interface.
        detection: seconds from a crash to the controller's knowing.
        rows: how many rows a payload has.
    """

    step: float = 20e-6
    row: Callable[[int], float]
    ack: float = 0.0
    latency: float = 100e-6
    bandwidth: float = 12.5e6
    detection: float = 0.01
    rows: Callable[[Any], float]


@dataclass
class Trace:
    """What was observed.

    Attributes:
        emitted: (time, rows, payload) of every result.
        fed: time of every batch that the ingress took.
        moves: (time, from, to, bytes, seconds) of every state that moved.
        steps: number of steps performed.
    """

    emitted: list[tuple[float, float, Any]] = field(default_factory=list)
    fed: list[float] = field(default_factory=list)
    moves: list[tuple[float, Node, Node, int, float]] = field(default_factory=list)
    steps: int = 0

    def rate(self, start: float, end: float) -> float:
        """Rows per second that left between two times."""
        return sum(rows for t, rows, _ in self.emitted if start <= t < end) / (end - start)


class Timed:
    """Runs a world under a virtual clock.

    Args:
        world: the cluster, in its initial state.
        costs: what steps, links and moves cost.
        interval: seconds between the source's batches; 0 feeds as fast as the ingress takes them.
        faults: (time, step) of crashes and kills.
        load: (site, time) -> share of its processor that the flow gets.
    """

    def __init__(
        self,
        world: World,
        costs: Costs,
        *,
        interval: float = 0.0,
        faults: tuple[tuple[float, Step], ...] = (),
        load: Callable[[int, float], float] = lambda site, time: 1.0,
    ) -> None:
        self.world = world
        self.costs = costs
        self.interval = interval
        self.faults = sorted(faults, key=lambda fault: fault[0])
        self.load = load
        self.now = 0.0
        self.trace = Trace()
        self.queue: list[tuple[float, int, str, Any]] = []
        self.count = 0
        self.arrivals: dict[tuple[Node, Node], deque[float]] = {}
        self.interface: dict[int, float] = {}
        self.working: set[int] = set()
        self.due: dict[tuple[str, Any], float] = {}
        world.watcher = self

    # ---- what the world tells

    def _site(self, node: Node) -> int:
        if node == THE_INGRESS:
            return INGRESS_SITE
        return EGRESS_SITE if node == self.world.dataflow.shape.egress else self.world.site[node]

    def _transmit(self, site: int, size: float) -> float:
        """When `size` bytes written now have arrived."""
        start = max(self.now, self.interface.get(site, 0.0))
        self.interface[site] = start + size / self.costs.bandwidth
        return self.interface[site] + self.costs.latency

    def appended(self, src: Node, dst: Node, message: Message) -> None:
        """A message has been written to a link: it arrives behind what was written before."""
        here, there = self._site(src), self._site(dst)
        size = CONTROL_BYTES
        if isinstance(message, Data):
            size += self.world.dataflow.rows_size(message.rows)
        arrives = self.now if here == there else self._transmit(here, size)
        line = self.arrivals.setdefault((src, dst), deque())
        line.append(max(arrives, line[-1] if line else 0.0))
        self._at(line[-1], "look", None)

    def moving(self, src: Node, dst: Node, size: int) -> None:
        """A state is on its way; it shares the sender's network interface."""
        arrives = self._transmit(self._site(src), size)
        self.due["moved", src] = self.due["install", dst] = arrives
        self.trace.moves.append((self.now, src, dst, size, arrives - self.now))
        self._at(arrives, "look", None)

    def emitted(self, emit: Emit) -> None:
        """A result has left."""
        self.trace.emitted.append((self.now, self.costs.rows(emit.rows), emit.rows))

    # ---- the clock

    def _at(self, time: float, kind: str, what: Any) -> None:
        self.count += 1
        heapq.heappush(self.queue, (time, self.count, kind, what))

    def run(self, until: float) -> Trace:
        """Let time pass until then, or until nothing happens any more."""
        for time, step in self.faults:
            self._at(time, "fault", step)
        self._at(0.0, "look", None)
        while self.queue and self.queue[0][0] <= until:
            self.now, _, kind, what = heapq.heappop(self.queue)
            if kind == "fault":
                self._perform(what)
                self.due["detect", what.at] = self.now + self.costs.detection
                self.due["detect process", what.at] = self.now + self.costs.detection
                self._at(self.now + self.costs.detection, "look", None)
            elif kind == "done":
                site, step = what
                self.working.discard(site)
                self._finish(step)
            while self.queue and self.queue[0][0] <= self.now and self.queue[0][2] == "look":
                heapq.heappop(self.queue)
            self._look()
        return self.trace

    def _finish(self, step: Step) -> None:
        """The processor has done its work: the effects show now, if the step is still possible."""
        if isinstance(step.at, Node) and step.at not in self.world.nodes:
            return
        machine = self.world.nodes[step.at] if isinstance(step.at, Node) else None
        if step.kind == "deliver" and machine is not None and step.peer is not None:
            line = self.world.links.get((step.peer, step.at), ())  # type: ignore[arg-type]
            if not line or not machine.accepts(step.peer, line[0]):
                return
        self._perform(step)

    def _perform(self, step: Step) -> None:
        self.trace.steps += 1
        if step.kind == "deliver":
            self.arrivals[step.peer, step.at].popleft()  # type: ignore[index]
        if step.kind == "source":
            self.trace.fed.append(self.now)
        self.world.perform(step)
        if step.kind in ("crash", "kill"):
            for link in [k for k in self.arrivals if k[1] not in self.world.nodes]:
                del self.arrivals[link]

    def _look(self) -> None:
        """Start what can start: one step per idle processor, the one that has waited longest."""
        chosen: dict[int, tuple[float, Step]] = {}
        for step in self.world.steps():
            since = self._since(step)
            if since > self.now:
                continue
            if step.kind in ("notice", "detect", "detect process", "moved", "install"):
                self._perform(step)
                self._at(self.now, "look", None)
                return
            assert isinstance(step.at, Node)
            site = self._site(step.at)
            if site in self.working:
                continue
            if site not in chosen or since < chosen[site][0]:
                chosen[site] = (since, step)
        for site, (_, step) in chosen.items():
            share = self.load(site, self.now)
            if share <= 0:
                self._at(self.now + 0.01, "look", None)  # paused: look again later
                continue
            self.working.add(site)
            self._at(self.now + self._cost(step) / share, "done", (site, step))

    def _since(self, step: Step) -> float:
        """Since when the step has been possible; in the future if it is not yet."""
        match step.kind:
            case "deliver":
                return self.arrivals[step.peer, step.at][0]  # type: ignore[index]
            case "source":
                return self._wake(("source", self.world.position), self._next_batch())
            case "log":
                position = self.world.nodes[step.at].boundary.log_position  # type: ignore[index]
                return self._wake(("log", (step.at, position)), None)
            case "notice":
                return self._wake(("notice", (step.at, id(self.world.notices[step.at]))), None)  # type: ignore[index]
            case _:
                return self._wake((step.kind, step.at), self.now)

    def _wake(self, key: tuple[str, Any], when: float | None) -> float:
        """The time remembered for this step; the first time it is seen, a latency from now."""
        if key not in self.due:
            self.due[key] = self.now + self.costs.latency if when is None else when
            self._at(self.due[key], "look", None)
        return self.due[key]

    def _next_batch(self) -> float:
        return max(self.now, self.world.position * self.interval) if self.interval else self.now

    def _cost(self, step: Step) -> float:
        cost = self.costs.step
        if step.kind == "source":
            return 0.0
        if step.kind == "deliver":
            message = self.world.links[step.peer, step.at][0]  # type: ignore[index]
            assert isinstance(step.at, Node)
            if isinstance(message, Data):
                rows = self.costs.rows(message.rows)
                acks = 1 if self.world.dataflow.shape.copies == 2 else 0
                cost += rows * (self.costs.row(step.at.stage) + acks * self.costs.ack)
            elif isinstance(message, Ack):
                cost += self.costs.ack
        return cost
