"""The same machines under one virtual clock: what work, links and moves cost, hence how fast.

Time is in seconds, sizes in bytes. Every site has one processor, which does one step of the
dataflow at a time and shares itself evenly with external processes and with the transport of state,
and one network interface, whose outgoing messages follow one another. Sites can be slowed
(external load), paused, and crashed; links can be closed, which the fault model turns into the
failure of one end. Nothing reads a real clock, and the order of simultaneous events is fixed, so
the same configuration gives the same trace.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flux_runtime.protocol.balancer import Balancer, RequestStatistics, ResetStatistics
from flux_runtime.protocol.balancing import SiteStatistics
from flux_runtime.protocol.controller import DataLoss, Destroy, Instantiate
from flux_runtime.protocol.messages import Ack, Data, Emit, Message
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Status
from flux_runtime.simulation.world import Step, World, machine_position

CONTROL_BYTES = 64
"""Size of a message that carries no rows."""

CHUNK_BYTES = 64 * 1024
"""A state travels in pieces of this size, between which other messages find their way."""

INGRESS_SITE, EGRESS_SITE = -1, -2

CLOSE = "close"
"""Kind of the fault that breaks the connection between two nodes (`Step.at`, `Step.peer`)."""


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What things cost.

    Attributes:
        step: processor seconds to handle any message.
        row: stage -> processor seconds to process one row.
        ack: processor seconds to take or send one acknowledgement, per row it stands for.
        move: processor seconds at either end per byte of a state that moves.
        latency: seconds from one site to another.
        bandwidth: bytes per second of a site's network interface.
        detection: seconds from a crash to the controller's knowing.
        quantum: seconds that every external process of a site runs before a message to the site's
            scheduler is looked at.
        rows: how many rows a payload has.
    """

    step: float = 20e-6
    row: Callable[[int], float]
    ack: float = 0.0
    move: float = 0.0
    latency: float = 100e-6
    bandwidth: float = 12.5e6
    detection: float = 0.01
    quantum: float = 0.0
    rows: Callable[[Any], float]


@dataclass
class Trace:
    """What was observed.

    Attributes:
        emitted: (time, rows, payload) of every result.
        fed: time of every batch that the ingress took.
        moves: (time, from, to, bytes, seconds) of every state that moved.
        rounds: (start, end, moves) of every movement phase of the balancer.
        placed: (time, node, site) of every copy that was created after the start.
        losses: (time, loss) of every loss of data that the controller reported.
        steps: number of steps performed.
    """

    emitted: list[tuple[float, float, Any]] = field(default_factory=list)
    fed: list[float] = field(default_factory=list)
    moves: list[tuple[float, Node, Node, int, float]] = field(default_factory=list)
    rounds: list[tuple[float, float, int]] = field(default_factory=list)
    placed: list[tuple[float, Node, int]] = field(default_factory=list)
    losses: list[tuple[float, DataLoss]] = field(default_factory=list)
    steps: int = 0

    def rate(self, start: float, end: float) -> float:
        """Rows per second that left between two times."""
        return sum(rows for t, rows, _ in self.emitted if start <= t < end) / (end - start)

    def rates(self, end: float, width: float) -> list[tuple[float, float]]:
        """(middle of the interval, rows per second that left in it), `width` seconds each."""
        held = [0.0] * int(end / width)
        for t, rows, _ in self.emitted:
            if t < len(held) * width:
                held[int(t / width)] += rows
        return [((i + 0.5) * width, rows / width) for i, rows in enumerate(held)]


@dataclass
class _Transfer:
    """A state on its way."""

    src: Node
    dst: Node
    size: int
    started: float
    sites: tuple[int, int]
    left: int
    version: int


class Timed:
    """Runs a world under a virtual clock.

    Args:
        world: the cluster, in its initial state.
        costs: what steps, links and moves cost.
        interval: seconds between the source's batches; 0 feeds as fast as the ingress takes them.
        faults: (time, step) of crashes, kills, joins and broken connections.
        load: (site, time) -> share of its processor that the flow gets beside external processes.
        balancer: moves copies between sites; made for the world's controller.
        balance_from: seconds from which on the balancer works.
    """

    def __init__(
        self,
        world: World,
        costs: Costs,
        *,
        interval: float = 0.0,
        faults: tuple[tuple[float, Step], ...] = (),
        load: Callable[[int, float], float] = lambda site, time: 1.0,
        balancer: Balancer | None = None,
        balance_from: float = 0.0,
    ) -> None:
        self.world = world
        self.costs = costs
        self.interval = interval
        self.load = load
        self.balancer = balancer
        self.balance_from = balance_from
        self.now = 0.0
        self.trace = Trace()
        self.queue: list[tuple[float, int, str, Any]] = []
        self.count = 0
        self.arrivals: dict[Node, dict[Node, deque[tuple[float, int]]]] = {}
        self.interface: dict[int, float] = {}
        self.working: dict[int, Step] = {}
        self.transfers: dict[int, int] = {}
        self.broken: set[frozenset[Node]] = set()
        self.log_times: list[float] = []
        self.reported: dict[Node, int] = {}
        self.hosted: dict[int, list[Node]] = {}
        self.best: dict[Node, tuple[tuple[float, int], Step] | None] = {}
        self.busy: dict[int, float] = {}
        self.processed: dict[int, dict[Any, float]] = {}
        self.counting_since = 0.0
        self.round_since: float | None = None
        self.round_moves = 0
        world.watcher = self
        self._host()
        for time, step in sorted(faults, key=lambda fault: fault[0]):
            self._at(time, "fault", step)
        for site in list(self.hosted):
            self._at(0.0, "look", site)
        if balancer is not None:
            self._at(balance_from, "balance", None)

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
        line = self.arrivals.setdefault(dst, {}).setdefault(src, deque())
        arrives = max(arrives, line[-1][0] if line else 0.0)
        self._at(arrives, "arrive", dst)
        line.append((arrives, self.count))

    def moving(self, src: Node, dst: Node, size: int) -> None:
        """A state is on its way; it shares processors and the sender's network interface."""
        sites = (self._site(src), self._site(dst) if dst in self.world.nodes else self._site(src))
        for site in sites:
            self.transfers[site] = self.transfers.get(site, 0) + 1
        version = self.world.moved[src]
        self._carry(_Transfer(src, dst, size, self.now, sites, size, version))

    def emitted(self, emit: Emit) -> None:
        """A result has left."""
        self.trace.emitted.append((self.now, self.costs.rows(emit.rows), emit.rows))

    # ---- the clock

    def _at(self, time: float, kind: str, what: Any) -> None:
        self.count += 1
        heapq.heappush(self.queue, (time, self.count, kind, what))

    def run(self, until: float) -> Trace:
        """Let time pass until then, or until nothing happens any more."""
        while self.queue and self.queue[0][0] <= until:
            self.now, _, kind, what = heapq.heappop(self.queue)
            match kind:
                case "arrive":
                    if what in self.world.nodes:
                        self._stir(what)
                case "done":
                    self._done(*what)
                case "look":
                    self._look(what)
                case "log":
                    for node in list(self.world.nodes):
                        self._stir(node)
                case "source":
                    self._stir(THE_INGRESS)
                case "notice":
                    self._notice(what)
                case "carry":
                    self._carry(what)
                case "fault":
                    self._fault(what)
                case "detect":
                    self._perform(what)
                case "balance":
                    self._balance()
                case "reset":
                    self.busy[what] = 0.0
                    self.processed[what] = {}
                case "answer":
                    self._answer(*what)
        return self.trace

    # ---- the processors

    def share(self, site: int, *, transport: bool = False) -> float:
        """Share of its processor that the dataflow, or the transport of a state, gets now."""
        left = self.load(site, self.now)
        if left <= 0:
            return 0.0
        moving = self.transfers.get(site, 0)
        others = 1 / left - 1
        if transport:
            return 1 / (others + moving + (site in self.working))
        return 1 / (1 + others + moving)

    def _stir(self, node: Node) -> None:
        """What the node could do may have changed."""
        self.best.pop(node, None)
        site = self._site(node)
        if site not in self.working:
            self._look(site)

    def _look(self, site: int) -> None:
        """Let an idle processor start the step that has waited longest."""
        if site in self.working:
            return
        chosen: tuple[tuple[float, int], Step] | None = None
        for node in self.hosted.get(site, ()):
            if node not in self.best:
                self.best[node] = self._candidate(node)
            found = self.best[node]
            if found is not None and (chosen is None or found[0] < chosen[0]):
                chosen = found
        if chosen is None:
            return
        share = self.share(site)
        if share <= 0:
            self._at(self.now + 0.01, "look", site)  # paused: look again later
            return
        self.working[site] = chosen[1]
        took = self._cost(chosen[1]) / share
        self._at(self.now + took, "done", (site, chosen[1], took))

    def _candidate(self, node: Node) -> tuple[tuple[float, int], Step] | None:
        """The node's step that has been possible longest."""
        machine = self.world.nodes[node]
        found: tuple[tuple[float, int], Step] | None = None
        for src, line in self.arrivals.get(node, {}).items():
            if not line or line[0][0] > self.now or (found and line[0] > found[0]):
                continue
            if self.broken and frozenset((src, node)) in self.broken:
                continue
            if machine.accepts(src, self.world.links[src, node][0]):
                found = (line[0], Step("deliver", node, src))
        if machine.reads_log:
            position = machine_position(machine)
            if position < len(self.log_times):
                since = self.log_times[position] + self.costs.latency
                if since <= self.now and (found is None or (since, 0) < found[0]):
                    found = ((since, 0), Step("log", node))
        if node == THE_INGRESS and found is None and self._source_ready():
            found = ((self.now, 0), Step("source", node))
        return found

    def _source_ready(self) -> bool:
        ingress: Any = self.world.nodes[THE_INGRESS]
        if not ingress.wants_input or self.world.position > len(self.world.batches):
            return False
        due = self.world.position * self.interval
        if due > self.now:
            self._at(due, "source", None)
            return False
        return True

    def _done(self, site: int, step: Step, took: float) -> None:
        """The processor has done its work: the effects show now, if the step is still possible."""
        if self.working.get(site) is not step:
            return  # the site crashed meanwhile
        del self.working[site]
        self.busy[site] = self.busy.get(site, 0.0) + took
        assert isinstance(step.at, Node)
        machine = self.world.nodes.get(step.at)
        if machine is not None and self._possible(step, machine):
            self._perform(step)
        self._look(site)

    def _possible(self, step: Step, machine: Any) -> bool:
        if step.kind == "deliver":
            assert step.peer is not None
            assert isinstance(step.at, Node)
            line = self.world.links.get((step.peer, step.at), ())
            return bool(line) and machine.accepts(step.peer, line[0])
        if step.kind == "log":
            return bool(machine.reads_log)
        return bool(machine.wants_input)

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

    # ---- steps

    def _perform(self, step: Step) -> None:
        self.trace.steps += 1
        if step.kind == "deliver":
            self._count(step)
            self.arrivals[step.at][step.peer].popleft()  # type: ignore[index]
        elif step.kind == "source":
            self.trace.fed.append(self.now)
        self.world.perform(step)
        for node in (step.at, step.peer):
            if isinstance(node, Node) and node in self.world.nodes:
                self._report(node)
                self._stir(node)
        self._follow_log()

    def _count(self, step: Step) -> None:
        """Tuples per copy, for the statistics."""
        node = step.at
        assert isinstance(node, Node)
        assert step.peer is not None
        message = self.world.links[step.peer, node][0]
        if isinstance(message, Data) and node in self.world.site:
            held = self.processed.setdefault(self.world.site[node], {})
            key = (node.pair, node.copy)
            held[key] = held.get(key, 0.0) + self.costs.rows(message.rows)

    def _report(self, node: Node) -> None:
        """Notices that the node has written reach the controller a little later."""
        written = len(self.world.notices.get(node, ()))
        for _ in range(written - self.reported.get(node, 0)):
            self._at(self.now + self.costs.latency, "notice", node)
        self.reported[node] = written

    def _notice(self, node: Node) -> None:
        if self.world.notices.get(node):
            self.reported[node] -= 1
            self._perform(Step("notice", node))
            self._balance()

    def _follow_log(self) -> None:
        """New entries of the controller's log: every node reads them, each at its own pace."""
        log = self.world.controller.log
        if len(log) == len(self.log_times):
            return
        self.log_times += [self.now] * (len(log) - len(self.log_times))
        self._host()
        self._at(self.now + self.costs.latency, "log", None)
        seen = len(self.trace.losses)
        self.trace.losses += [(self.now, loss) for loss in self.world.controller.losses[seen:]]

    def _host(self) -> None:
        """Which nodes live where; forget what belonged to nodes that are gone."""
        known = {node for nodes in self.hosted.values() for node in nodes}
        self.hosted = {}
        for node in self.world.nodes:
            site = self._site(node)
            self.hosted.setdefault(site, []).append(node)
            if known and node not in known:
                self.trace.placed.append((self.now, node, site))
        for held in (self.arrivals, self.best, self.reported):
            for node in [n for n in held if n not in self.world.nodes]:
                del held[node]

    # ---- faults

    def _fault(self, fault: Step) -> None:
        if fault.kind == CLOSE:
            self._close(fault)
            return
        if fault.kind == "crash":
            self.working.pop(fault.at, None)  # type: ignore[arg-type]
        self._perform(fault)
        self._host()
        if fault.kind in ("crash", "kill"):
            kind = "detect" if fault.kind == "crash" else "detect process"
            self._at(self.now + self.costs.detection, "detect", Step(kind, fault.at))

    def _close(self, fault: Step) -> None:
        """Section 2.1: nothing gets through any more; one end is then taken to have failed.

        It is the consumer, or the producer where the consumer is the egress or has no partner.
        """
        a, b = fault.at, fault.peer
        assert isinstance(a, Node)
        assert isinstance(b, Node)
        self.broken.add(frozenset((a, b)))
        low, high = sorted((a, b))
        ends = [end for end in (high, low) if end in self.world.site]
        whole = [end for end in ends if self._has_partner(end)]
        if ends:
            self._at(self.now + self.costs.detection, "fault", Step("kill", (whole or ends)[0]))

    def _has_partner(self, node: Node) -> bool:
        copies = self.world.controller.pairs[node.pair].copies
        mate = copies[1 - node.copy]
        return mate is not None and mate.status is Status.ACTIVE

    # ---- states on their way

    def _carry(self, transfer: _Transfer) -> None:
        """Send the next piece of a state, or hand the state over."""
        gone = transfer.src not in self.world.nodes or transfer.dst not in self.world.moves
        if gone or transfer.left <= 0:
            for site in transfer.sites:
                self.transfers[site] -= 1
            took = self.now - transfer.started
            if transfer.dst in self.world.moves:
                self.trace.moves.append(
                    (transfer.started, transfer.src, transfer.dst, transfer.size, took)
                )
                self._perform(Step("install", transfer.dst))
            if self.world.moved.get(transfer.src) == transfer.version:
                self._perform(Step("moved", transfer.src))
            return
        piece = min(CHUNK_BYTES, transfer.left)
        work = piece * self.costs.move
        shares = [self.share(site, transport=True) for site in transfer.sites]
        if min(shares) <= 0:
            self._at(self.now + 0.01, "carry", transfer)
            return
        sent = self._transmit(transfer.sites[0], piece)
        transfer.left -= piece
        self._at(max(sent, self.now + work / min(shares)), "carry", transfer)

    # ---- balancing

    def _balance(self) -> None:
        """Let the balancer act on what the time and the controller's state call for."""
        if self.balancer is not None and self.now >= self.balance_from:
            self._obey(self.balancer.tick(self.now))

    def _obey(self, orders: list[Any]) -> None:
        assert self.balancer is not None
        placing = [o for o in orders if isinstance(o, Instantiate | Destroy | DataLoss)]
        if placing:
            if self.round_since is None:
                self.round_since, self.round_moves = self.now, 0
            self.round_moves += sum(isinstance(order, Instantiate) for order in placing)
            self.world.obey(placing)
            self._host()
            self._follow_log()
        for order in orders:
            if isinstance(order, ResetStatistics):
                if self.round_since is not None:
                    self.trace.rounds.append((self.round_since, self.now, self.round_moves))
                    self.round_since = None
                self.counting_since = self.now
                for site in sorted(self.world.controller.sites):
                    self._at(self.now + self._turn(site), "reset", site)
                self._at(self.balancer.wakes_at, "balance", None)
            elif isinstance(order, RequestStatistics):
                for site in sorted(self.world.controller.sites):
                    answer = (site, order.round, self.counting_since)
                    self._at(self.now + self._turn(site), "answer", answer)

    def _turn(self, site: int) -> float:
        """Seconds until a message to a site's scheduler is looked at."""
        left = self.load(site, self.now)
        others = 1 / left - 1 if left > 0 else 0.0
        return self.costs.latency + others * self.costs.quantum

    def _answer(self, site: int, round_: int, since: float) -> None:
        """UF-9: utilisation and tuples since the reset, as the site saw them."""
        if self.balancer is None or site not in self.world.controller.sites:
            return
        covered = max(self.now - since - self._turn(site), 1e-9)
        here = {(n.pair, n.copy) for n in self.hosted.get(site, ())}
        held = self.processed.get(site, {})
        statistics = SiteStatistics(
            site=site,
            utilisation=min(1.0, self.busy.get(site, 0.0) / covered),
            processed={part: held.get(part, 0.0) for part in sorted(here)},
        )
        self._obey(self.balancer.statistics(round_, statistics, self.now))
