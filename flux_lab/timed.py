"""The same machines under one virtual clock: what work, links and moves cost, hence how fast.

Time is in seconds, sizes in bytes. Every site has one processor, which does one step of the
dataflow at a time and shares itself evenly with external processes and with the transport of state,
and one network interface, whose outgoing messages follow one another. Sites can be slowed
(external load), paused, and crashed; links can be closed, which the fault model turns into the
failure of one end; memory can be taken away, and what does not fit then waits on the site's disk
(`disks`). Nothing reads a real clock, and the order of simultaneous events is fixed, so the same
configuration gives the same trace.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from flux_lab.costs import PAPERS_DISK, Costs, Disk, History, Passed, Trace
from flux_lab.disks import Disks
from flux_lab.papers.protocol.messages import Ack, Data, Emit, Message
from flux_lab.reaction import idle_standby, machine_position
from flux_lab.rounds import Rounds
from flux_lab.world import Step, World
from flux_runtime.protocol.balancer import Balancer
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Pair, Status

CONTROL_BYTES = 64
"""Size of a message that carries no rows."""

CHUNK_BYTES = 64 * 1024
"""A state travels in pieces of this size, between which other messages find their way."""

INGRESS_SITE, EGRESS_SITE = -1, -2

DETECTED = ("crash", "kill", "close", "suspect")
"""Faults that the controller learns of."""


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
        faults: (time, step) of crashes, kills, joins and closed links, as the world names them.
        load: (site, time) -> share of its processor that the flow gets beside external processes.
        balancer: moves copies between sites; made for the world's controller.
        balance_from: seconds from which on the balancer works.
        memory: (site, time) -> bytes for operators' state; without it everything fits.
        disk: what a site's disk takes, where there is a limit to memory.
        history: keep all messages, for pictures.
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
        memory: Callable[[int, float], float] | None = None,
        disk: Disk = PAPERS_DISK,
        history: bool = False,
    ) -> None:
        self.world = world
        self.costs = costs
        self.interval = interval
        self.load = load
        self.now = 0.0
        self.trace = Trace()
        self.history = History() if history else None
        self.flying: dict[tuple[Node, Node], deque[Passed]] = {}
        self.queue: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self.count = 0
        self.arrivals: dict[Node, dict[Node, deque[tuple[float, int]]]] = {}
        self.interface: dict[int, float] = {}
        self.working: dict[int, Step] = {}
        self.transfers: dict[int, int] = {}
        self.log_times: list[float] = []
        self.reported: dict[Node, int] = {}
        self.first = dict(world.site)
        self.whole: set[Node] = set()
        self.hosted: dict[int, list[Node]] = {}
        self.destination = 0.0
        self.best: dict[Node, tuple[tuple[float, int], Step] | None] = {}
        self.rounds = Rounds(self, balancer, balance_from) if balancer is not None else None
        self.disks = Disks(self, memory, disk) if memory is not None else None
        world.watcher = self
        self._host()
        for time, step in sorted(faults, key=lambda fault: fault[0]):
            self.at(time, self.fault, step)
        for site in self.hosted:
            self.at(0.0, self._look, site)

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
        if (src, dst) in self.world.network.closed:
            return
        here, there = self._site(src), self._site(dst)
        size = CONTROL_BYTES
        if isinstance(message, Data):
            size += self.world.dataflow.rows_size(message.rows)
        arrives = self.now if here == there else self._transmit(here, size)
        line = self.arrivals.setdefault(dst, {}).setdefault(src, deque())
        arrives = max(arrives, line[-1][0] if line else 0.0)
        self.at(arrives, self._arrived, dst)
        line.append((arrives, self.count))
        if self.history is not None:
            passed = Passed(src, dst, message, self.now)
            self.history.messages.append(passed)
            self.flying.setdefault((src, dst), deque()).append(passed)

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
        self.trace.batches.append(emit.batch)
        if self.world.dataflow.shape.results_max:  # NC-7
            arrives = self.now + self.costs.latency
            self.destination = max(arrives, self.destination) + self.costs.destination
            self.at(self.destination + self.costs.latency, self._acknowledged)

    def _acknowledged(self, _: None) -> None:
        """The destination has a result, the oldest of those it was given."""
        self.perform(Step("acknowledge", self.world.dataflow.shape.egress))

    # ---- the clock

    def at(self, time: float, action: Callable[[Any], None], argument: Any = None) -> None:
        """Let something happen at a time; what is due at the same time happens in this order."""
        self.count += 1
        heapq.heappush(self.queue, (time, self.count, action, argument))

    def run(self, until: float) -> Trace:
        """Let time pass until then, or until nothing happens any more."""
        while self.queue and self.queue[0][0] <= until:
            self.now, _, action, argument = heapq.heappop(self.queue)
            action(argument)
        return self.trace

    # ---- the processors

    def share(self, site: int) -> float:
        """Share of its processor that the dataflow gets now."""
        left = self.load(site, self.now)
        moving = self.transfers.get(site, 0) if self.costs.turn else 0
        busy = max(self._busy(site), 1) if moving else 1
        return left * busy / (busy + moving)

    def _busy(self, site: int) -> int:
        """Copies on a site that have work."""
        result = 0
        for node in self.hosted.get(site, ()):
            if node not in self.best:
                self.best[node] = self._candidate(node)
            result += self.best[node] is not None
        return result

    def _round(self, site: int) -> float:
        """Seconds of a round of a site's scheduler: a row for every busy copy, turns of transport.

        A turn of transport takes about as long as a row.
        """
        left = max(self.load(site, self.now), 1e-3)
        return (self._busy(site) + self.transfers[site]) * self.costs.row(0) / left

    def _arrived(self, node: Node) -> None:
        if node in self.world.nodes:
            self._stir(node)

    def _stir(self, node: Node) -> None:
        """Look again at what the node can do: it may have changed."""
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
            best = self.best[node]
            if best is not None and (chosen is None or best[0] < chosen[0]):
                chosen = best
        if chosen is None:
            return
        share = self.share(site)
        if share <= 0:
            self.at(self.now + 0.01, self._look, site)  # paused: look again later
            return
        self.working[site] = chosen[1]
        took = self._cost(chosen[1]) / share
        self.at(self.now + took, self._done, (site, chosen[1], took))

    def _candidate(self, node: Node) -> tuple[tuple[float, int], Step] | None:
        """The node's step that has been possible longest."""
        machine = self.world.nodes[node]
        result: tuple[tuple[float, int], Step] | None = None
        for src, line in self.arrivals.get(node, {}).items():
            if not line or line[0][0] > self.now or (result and line[0] > result[0]):
                continue
            if machine.accepts(src, self.world.links[src, node][0]):
                result = (line[0], Step("deliver", node, src))
        if machine.reads_log:
            position = machine_position(machine)
            if position < len(self.log_times):
                since = self.log_times[position] + self.costs.latency
                if since <= self.now and (result is None or (since, 0) < result[0]):
                    result = ((since, 0), Step("log", node))
        if node == THE_INGRESS and result is None and self._source_ready():
            result = ((self.now, 0), Step("source", node))
        return result

    def _source_ready(self) -> bool:
        ingress: Any = self.world.nodes[THE_INGRESS]
        if not ingress.wants_input or self.world.position > len(self.world.batches):
            return False
        due = self.world.position * self.interval
        if due > self.now:
            self.at(due, self._stir, THE_INGRESS)
            return False
        return True

    def _done(self, work: tuple[int, Step, float]) -> None:
        """The processor has done its work: the effects show now, if the step is still possible."""
        site, step, took = work
        if self.working.get(site) is not step:
            return  # the site crashed meanwhile
        del self.working[site]
        if self.rounds is not None:
            self.rounds.worked(site, took)
        assert isinstance(step.at, Node)
        machine = self.world.nodes.get(step.at)
        if machine is not None and self._possible(step, machine):
            self.perform(step)
        self._look(site)

    def _possible(self, step: Step, machine: Any) -> bool:
        if step.kind == "deliver":
            assert isinstance(step.peer, Node)
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

    def perform(self, step: Step) -> None:
        """Perform a step now, and follow what it changes."""
        self.trace.steps += 1
        if step.kind == "deliver":
            self._taken(step)
        elif step.kind == "source":
            self.trace.fed.append(self.now)
        elif step.kind == "log" and self.history is not None:
            assert isinstance(step.at, Node)
            position = machine_position(self.world.nodes[step.at])
            self.history.read.append((self.now, step.at, self.world.controller.log[position]))
        self.world.perform(step)
        for node in (step.at, step.peer):
            if isinstance(node, Node) and node in self.world.nodes:
                self._report(node)
                self._stir(node)
        gone = isinstance(step.at, Node) and step.at not in self.world.nodes
        self.follow(hosts=gone or not isinstance(step.at, Node))

    def _taken(self, step: Step) -> None:
        node, src = step.at, step.peer
        assert isinstance(node, Node)
        assert isinstance(src, Node)
        self.arrivals[node][src].popleft()
        if self.history is not None:
            self.flying[src, node].popleft().taken = self.now
        message = self.world.links[src, node][0]
        if self.rounds is not None and isinstance(message, Data) and node in self.world.site:
            self.rounds.processed(self.world.site[node], node, self.costs.rows(message.rows))

    def _report(self, node: Node) -> None:
        """Notices that the node has written reach the controller a little later."""
        written = len(self.world.notices.get(node, ()))
        for _ in range(written - self.reported.get(node, 0)):
            self.at(self.now + self.costs.latency, self._notice, node)
        self.reported[node] = written

    def _notice(self, node: Node) -> None:
        if self.world.notices.get(node):
            self.reported[node] -= 1
            if self.history is not None:
                sent = self.now - self.costs.latency
                notice = self.world.notices[node][0]
                self.history.notices.append((sent, self.now, node, notice))
            recovering = [now.pair for now in self.world.controller.in_hand]
            self.perform(Step("notice", node))
            self._recovered(recovering)
            if self.rounds is not None:
                self.rounds.tick(None)

    def _recovered(self, before: Sequence[Pair]) -> None:
        """Which of the pairs that were recovering are whole now."""
        for pair in before:
            for c, copy in enumerate(self.world.controller.pairs[pair].copies):
                assert copy is not None
                node = Node(*pair, c, copy.life)
                known = node.life == 0 or node in self.whole or node not in self.world.nodes
                if copy.status is Status.ACTIVE and not known:
                    self.whole.add(node)
                    self.trace.whole.append((self.now, node))

    def follow(self, *, hosts: bool = False) -> None:
        """Follow the controller: nodes come and go, and all read the log at their own pace.

        Args:
            hosts: nodes have come or gone in any case.
        """
        controller = self.world.controller
        grown = len(controller.log) - len(self.log_times)
        if grown or hosts:
            self._host()
        if not grown:
            return
        self.log_times += [self.now] * grown
        if self.history is not None:
            self.history.log += [(self.now, entry) for entry in controller.log[-grown:]]
        self.at(self.now + self.costs.latency, self._log_grew)
        new = controller.losses[len(self.trace.losses) :]
        self.trace.losses += [(self.now, loss) for loss in new]

    def _log_grew(self, _: None) -> None:
        for node in list(self.world.nodes):
            if node in self.world.nodes:
                self._stir(node)
        for node in [n for n in sorted(self.world.doomed) if idle_standby(self.world.nodes[n])]:
            self.perform(Step("fence", node))

    def _host(self) -> None:
        """Which nodes live where; forget what belonged to nodes that are gone."""
        known = {node for nodes in self.hosted.values() for node in nodes}
        self.hosted = {}
        for node in self.world.nodes:
            site = self._site(node)
            self.hosted.setdefault(site, []).append(node)
            if known and node not in known:
                self.trace.placed.append((self.now, node, site))
        self.trace.ended += [(self.now, n) for n in sorted(known - self.world.nodes.keys())]
        for held in (self.arrivals, self.best, self.reported):
            for node in [n for n in held if n not in self.world.nodes]:
                del held[node]

    # ---- faults

    def fault(self, fault: Step) -> None:
        """A fault, and the moment at which the controller learns of it."""
        at = fault.at
        if isinstance(at, Node) and at not in self.world.nodes:
            return
        if isinstance(at, int):
            self.working.pop(at, None)
        if fault.kind == "close":  # what was on the link is gone; a copy is taken to have failed
            assert isinstance(fault.peer, Node)
            assert isinstance(at, Node)
            for src, dst in ((at, fault.peer), (fault.peer, at)):
                self.arrivals.get(dst, {}).pop(src, None)
                self.flying.pop((src, dst), None)
        self.trace.faults.append((self.now, fault))
        self.perform(fault)
        if fault.kind in DETECTED:
            detection = Step("detect" if isinstance(at, int) else "detect process", at)
            self.at(self.now + self.costs.detection, self.perform, detection)

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
                self.perform(Step("install", transfer.dst))
            if self.world.moved.get(transfer.src) == transfer.version:
                self.perform(Step("moved", transfer.src))
            return
        piece = min(CHUNK_BYTES, transfer.left)
        took = 0.0
        if self.costs.turn:
            rounds = piece / self.costs.turn
            took = rounds * max(self._round(site) for site in transfer.sites)
        sent = self._transmit(transfer.sites[0], piece)
        transfer.left -= piece
        self.at(max(sent, self.now + took), self._carry, transfer)
