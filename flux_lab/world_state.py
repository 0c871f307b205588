"""Nodes, links, controller and faults without a clock; `world` adds the steps.

The order of steps is the only freedom; whoever drives the world chooses it (a seed, Hypothesis, the
explorer). Between two steps every node does all its own work and fills its links up to their
capacity. That is no loss of generality for correctness: with links of finite capacity, units that
are not sent yet occur behind full links, and everything that one node does to another is a message.

A crash may cut what a node had on its links at any point: a receiver that learns of the failure
before it has read a message discards it, so every prefix is covered.

A site that stops for a while is taken for dead and may come back: its nodes then go on, against the
will of everybody, until they find their own failure in the controller's log and end (fencing).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from flux_lab.checks import Checks
from flux_lab.connections import LEADER
from flux_lab.memory_storage import DiskFullError, SimulatedDisk
from flux_lab.network import Network
from flux_lab.papers.protocol.channels import Envelope
from flux_lab.papers.protocol.controller import (
    Controller,
    DataLoss,
    Destroy,
    Instantiate,
    Order,
    chained,
)
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.messages import (
    AckSource,
    Avail,
    Data,
    Emit,
    Fail,
    Instruction,
    Message,
    Move,
    Notice,
    Send,
    Tell,
)
from flux_lab.papers.protocol.segment import Segment, SegmentState
from flux_lab.reaction import Machine, handle, machine_position, settle
from flux_lab.steps import Step
from flux_runtime.protocol.dataflow import Dataflow, Rows
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node


class Watcher(Protocol):
    """Hears what happens in a world, to give it a time."""

    def appended(self, src: Node, dst: Node, message: Message) -> None:
        """A message has been written to a link."""

    def moving(self, src: Node, dst: Node, size: int) -> None:
        """A state of `size` bytes has been handed over for transport."""

    def emitted(self, emit: Emit) -> None:
        """A result has left the egress."""


class WorldState:
    """A cluster in some state.

    Args:
        dataflow: what runs.
        batches: the source's input.
        sites: machines that host copies; ingress, egress and controller never fail.
        spares: further machines that host nothing at first.
        link_capacity: rows and progress messages that a link holds; control always fits.
        multiplexed: one connection per pair of sites, with so many credits per channel.
        stories: keep a story per node, for reports.

    Attributes:
        undetected: sites that the controller will be told are dead.
        dead_processes: nodes that the controller will be told are dead.
        paused: sites on which nothing happens for now.
        doomed: nodes that live, though they are taken for dead (or will be).
        network: what has been sent.
        squeezed: sites whose memory holds one partition's state, so that partitions take turns.
        disks: site -> where its partitions spill to.
        output: what has left: numbers of batches, or whole units where they leave first come.
        acknowledged: batches that the source knows to be taken.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        batches: Sequence[Rows],
        *,
        sites: int,
        spares: int = 0,
        link_capacity: int = 2,
        multiplexed: bool = False,
        stories: bool = False,
        checks: Checks | None = None,
        parallel_max: int = 1,
    ) -> None:
        self.dataflow = dataflow
        self.batches = tuple(batches)
        self.stories = stories
        self.checks = checks or Checks(dataflow, self.batches)
        placement = chained(dataflow.shape, sites)
        self.network = Network(link_capacity, multiplexed=multiplexed)
        self.disks: dict[int, SimulatedDisk] = {}
        self.squeezed: frozenset[int] = frozenset()
        self.controller = Controller(
            dataflow.shape, placement, frozenset(range(sites + spares)), parallel_max=parallel_max
        )
        egress = dataflow.shape.egress
        self.nodes: dict[Node, Machine] = {
            THE_INGRESS: Ingress(dataflow, story=self._story()),
            egress: Egress(dataflow, story=self._story()),
        }
        self.site: dict[Node, int] = {}
        for (pair, copy), site in placement.items():
            self._host(Node(*pair, copy, 0), site, standby=False)
        self.notices: dict[Node, tuple[Notice, ...]] = {}
        self.moves: dict[Node, tuple[Node, SegmentState]] = {}
        self.moved: dict[Node, int] = {}
        self.undetected: tuple[int, ...] = ()
        self.dead_processes: tuple[Node, ...] = ()
        self.paused: frozenset[int] = frozenset()
        self.doomed: set[Node] = set()
        self.position = 0
        self.output: dict[Emit | int, None] = {}
        self.acknowledged = 0
        self.watcher: Watcher | None = None

    def _story(self) -> list[str] | None:
        return [] if self.stories else None

    def _host(self, node: Node, site: int, *, standby: bool) -> None:
        disk = self.disks.setdefault(site, SimulatedDisk())
        self.nodes[node] = Segment(
            self.dataflow, node, standby=standby, story=self._story(), storage=disk
        )
        self.site[node] = site
        if self.network.connections is not None:
            self.network.connections.where[node] = site

    @property
    def links(self) -> dict[tuple[Node, Node], tuple[Message, ...]]:
        """(from, to) -> messages to be read; with connections, those that have arrived."""
        return self.network.lines

    # ---- faults

    def crash(self, site: int) -> None:
        """A site dies with all its copies; the controller notices later (step `detect`)."""
        if self.network.connections is not None:
            self.network.connections.crash(site)
        for node in self.nodes_on(site):
            self.remove(node)
        self.paused -= {site}
        self.undetected += (site,)

    def kill(self, node: Node) -> None:
        """One process dies; the controller notices later (step `detect process`)."""
        self.remove(node)
        self.dead_processes += (node,)

    def suspect(self, site: int) -> None:
        """A site stands still; the controller will take it for dead, but it comes back."""
        self.paused |= {site}
        self.doomed.update(self.nodes_on(site))
        self.undetected += (site,)

    def close(self, victim: Node, peer: Node) -> None:
        """The link between two nodes breaks with all that is on it: one of its ends must go."""
        self.network.close(victim, peer)
        self.doomed.add(victim)
        self.dead_processes += (victim,)

    def close_connection(self, victim: int, peer: int) -> None:
        """The connection of two sites breaks: one of them must go, and is declared dead."""
        assert self.network.connections is not None
        self.network.connections.close(victim, peer)
        self.doomed.update(self.nodes_on(victim))
        self.undetected += (victim,)

    def squeeze(self, site: int) -> None:
        """A site's memory is taken away: all its partitions go to disk and take turns (SP-1..4)."""
        self.squeezed |= {site}
        for node in self.nodes_on(site):
            self.let(node, "evict", None, None)

    def activate(self, node: Node) -> None:
        """SP-4: a partition's turn; where memory is short, whoever is in it goes first."""
        site = self.site[node]
        for on_site in self.nodes_on(site) if site in self.squeezed else ():
            if on_site != node:
                self.let(on_site, "evict", None, None)
        self.let(node, "activate", None, None)

    def nodes_on(self, site: int) -> list[Node]:
        """The nodes of a site that live."""
        return [node for node, where in self.site.items() if where == site]

    def move_away(self, node: Node) -> None:
        """UF-11: an induced failure; the new copy goes to the first site that may have it."""
        for site in sorted(self.controller.sites):
            if self.controller.may_move(node.pair, node.copy, site):
                self.obey(self.controller.move(node.pair, node.copy, site))
                return

    def bury(self, reader: Node, entry: Fail) -> None:
        """The first node of a site that reads of a failure makes the site forget the dead."""
        read = self.controller.log[: machine_position(self.nodes[reader])]
        of = (entry.pair, entry.copy)
        lives = [e.attempt for e in read if isinstance(e, Avail) and (e.pair, e.copy) == of]
        dead, site = (
            Node(*entry.pair, entry.copy, max(lives, default=0)),
            self.site.get(reader, LEADER),
        )
        self.network.forget(site, dead)
        if dead in self.doomed and self.site[dead] == site:
            self.remove(dead)

    def remove(self, node: Node) -> None:
        """A node is no more, nor what it had under way."""
        self.network.remove(node, self.site[node])
        del self.nodes[node]
        del self.site[node]
        self.doomed.discard(node)
        self.notices.pop(node, None)
        self.moved.pop(node, None)
        self.moves.pop(node, None)
        for standby in [x for x, (active, _) in self.moves.items() if active == node]:
            del self.moves[standby]

    # ---- effects

    def deliver(self, src: Node, dst: Node) -> None:
        """A node reads the head of a link."""
        first, machine = self.network.take(src, dst), self.nodes[dst]
        if isinstance(first, Data) and self.checks.listens(machine, src):
            self.checks.received(machine, src, first)
        self.let(dst, "deliver", src, first)
        if src in self.nodes:
            self._settle(src)

    def arrive(self, arrived: Sequence[Envelope], touched: Sequence[Node]) -> None:
        """Let what has come over a connection be read, and send who got credits back."""
        for envelope in arrived:
            if envelope.dst in self.nodes:
                self.network.append(envelope.src, envelope.dst, envelope.message)
        for node in touched:
            if node in self.nodes:
                self._settle(node)

    def let(self, node: Node, kind: str, peer: Node | None, content: Any) -> None:
        """Let a node handle an event, and do what that enables."""
        try:
            for instruction in handle(self.nodes[node], kind, peer, content):
                self._act(node, instruction)
        except DiskFullError:
            pass  # it stays in memory
        self._settle(node)

    def _settle(self, node: Node) -> None:
        room = self.network.room
        while True:
            try:
                settle(self.nodes[node], lambda i: self._act(node, i), lambda to: room(node, to))
                break
            except DiskFullError:
                continue  # what waits stays in memory
        self.arrive(*self.network.carry_locally(node))

    def _act(self, node: Node, instruction: Instruction) -> None:
        """Carry out what a node asks for."""
        match instruction:
            case Send(to, message):
                self._send(node, to, message)
            case Tell(notice):
                self.notices[node] = (*self.notices.get(node, ()), notice)
            case Move(to, state, size):
                if to in self.nodes:
                    self.moves[to] = (node, state)
                self.moved[node] = state.version
                if self.watcher is not None:
                    self.watcher.moving(node, to, size)
            case Emit():
                self.checks.emitted(self.output, instruction)
                ordered = self.dataflow.shape.ordered_egress
                self.output[instruction.batch if ordered else instruction] = None
                if self.watcher is not None:
                    self.watcher.emitted(instruction)
            case AckSource(batch):
                self.checks.acknowledged(self.acknowledged, batch)
                self.acknowledged += 1

    def _send(self, src: Node, dst: Node, message: Message) -> None:
        if self.network.connections is None and dst not in self.nodes:
            return
        self.network.send(src, dst, message)
        if self.watcher is not None:
            self.watcher.appended(src, dst, message)

    def obey(self, orders: Sequence[Order]) -> None:
        """Carry out what the controller orders."""
        for order in orders:
            match order:
                case Instantiate(node, site):
                    if site in self.undetected:
                        continue  # created on a site that is dead already: nothing comes of it
                    self._host(node, site, standby=True)
                case Destroy(node):
                    if node in self.nodes:
                        self.doomed.add(node)  # it ends when it reads of it
                case DataLoss():
                    pass
        self.checks.placement(self)

    # ---- reports

    @property
    def emitted(self) -> int:
        """How many results have left."""
        return len(self.output)

    def validate(self) -> None:
        """The invariants of every node."""
        for machine in self.nodes.values():
            self.checks.sound(machine)

    def finished(self) -> None:
        """Check what must hold once nothing can happen any more."""
        self.checks.finished(self)
        if self.network.connections is not None:
            self.network.connections.balanced()

    def freeze(self) -> tuple[object, ...]:
        """The state as one hashable value."""
        return (
            tuple((node, machine.freeze()) for node, machine in sorted(self.nodes.items())),
            tuple(sorted((k, v) for k, v in self.links.items() if v)),
            self.controller.freeze(),
            tuple(sorted((k, v) for k, v in self.notices.items() if v)),
            tuple((x, a, s.freeze()) for x, (a, s) in sorted(self.moves.items())),
            tuple(sorted(self.moved.items())),
            tuple(sorted(self.undetected)),
            tuple(sorted(self.dead_processes)),
            tuple(sorted(self.doomed)),
            self.position,
            self.emitted,
        )

    def tale(self, last: Step | None = None) -> str:
        """The stories of all nodes and what is under way, for people.

        Args:
            last: tell only of the nodes that this step concerns, if any.
        """
        nodes = {last.at, last.peer} & self.nodes.keys() if last is not None else set()
        lines = [m.boundary.tale() for n, m in self.nodes.items() if not nodes or n in nodes]
        lines += [f"link {a}->{b}: {v}" for (a, b), v in self.links.items() if v]
        lines.append(f"controller: {self.controller.current} losses {self.controller.losses}")
        lines += [f"  {i}: {entry}" for i, entry in enumerate(self.controller.log)]
        lines.append(f"source at {self.position}, emitted {self.emitted}")
        return "\n".join(lines)
