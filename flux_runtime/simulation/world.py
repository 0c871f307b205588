"""Nodes, links, controller and faults without a clock: the possible next steps, and one performed.

The order of steps is the only freedom; whoever drives the world chooses it (a seed, Hypothesis, the
explorer). Between two steps every node does all its own work and fills its links up to their
capacity. That is no loss of generality for correctness: with links of finite capacity, units that
are not sent yet occur behind full links, and everything that one node does to another is a message.

A crash may cut what a node had on its links at any point: a receiver that learns of the failure
before it has read a message discards it, so every prefix is covered.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, Protocol

from flux_runtime.protocol.controller import (
    Controller,
    DataLoss,
    Destroy,
    Instantiate,
    Order,
    chained,
)
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.ends import Egress, Ingress
from flux_runtime.protocol.messages import (
    Data,
    Emit,
    Instruction,
    Message,
    Move,
    Notice,
    Progress,
    Rows,
    Send,
    Tell,
)
from flux_runtime.protocol.segment import Segment, SegmentState
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Pair, Status
from flux_runtime.simulation.checks import Checks

Machine = Ingress | Egress | Segment


class Step(NamedTuple):
    """One possible next step: what, where, and from where."""

    kind: str
    at: Node | int
    peer: Node | None = None

    def __str__(self) -> str:
        source = f" from {self.peer}" if self.peer is not None else ""
        return f"{self.kind} {self.at}{source}"


class Watcher(Protocol):
    """Hears what happens in a world, to give it a time."""

    def appended(self, src: Node, dst: Node, message: Message) -> None:
        """A message has been written to a link."""

    def moving(self, src: Node, dst: Node, size: int) -> None:
        """A state of `size` bytes has been handed over for transport."""

    def emitted(self, emit: Emit) -> None:
        """A result has left the egress."""


class World:
    """A cluster in some state.

    Args:
        dataflow: what runs.
        batches: the source's input.
        sites: machines that host copies; ingress, egress and controller never fail.
        spares: further machines that host nothing at first.
        link_capacity: rows and progress messages that a link holds; control always fits.
        stories: keep a story per node, for reports.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        batches: Sequence[Rows],
        *,
        sites: int,
        spares: int = 0,
        link_capacity: int = 2,
        stories: bool = False,
        checks: Checks | None = None,
    ) -> None:
        self.dataflow = dataflow
        self.batches = tuple(batches)
        self.capacity = link_capacity
        self.stories = stories
        self.checks = checks or Checks(dataflow, self.batches)
        placement = chained(dataflow.shape, sites)
        self.controller = Controller(dataflow.shape, placement, frozenset(range(sites + spares)))
        egress = dataflow.shape.egress
        self.nodes: dict[Node, Machine] = {
            THE_INGRESS: Ingress(dataflow, story=self._story()),
            egress: Egress(dataflow, story=self._story()),
        }
        self.site: dict[Node, int] = {}
        for (pair, copy), site in placement.items():
            node = Node(*pair, copy, 0)
            self.nodes[node] = Segment(dataflow, node, story=self._story())
            self.site[node] = site
        self.links: dict[tuple[Node, Node], tuple[Message, ...]] = {}
        self.notices: dict[Node, tuple[Notice, ...]] = {}
        self.moves: dict[Node, tuple[Node, SegmentState]] = {}
        self.moved: dict[Node, int] = {}
        self.undetected: tuple[int, ...] = ()
        self.dead_processes: tuple[Node, ...] = ()
        self.position = 0
        self.emitted = 0
        self.watcher: Watcher | None = None
        self._fresh = set(self.nodes)
        self._keys: dict[Node, int] = {}

    def _story(self) -> list[str] | None:
        return [] if self.stories else None

    # ---- copying and comparing, for the explorer

    def clone(self) -> World:
        """An independent copy; nodes are copied when one of the two changes them."""
        new = World.__new__(World)
        new.dataflow, new.batches, new.capacity = self.dataflow, self.batches, self.capacity
        new.stories, new.checks = False, self.checks
        new.controller = self.controller.clone()
        new.nodes, new.site, new.links = self.nodes.copy(), self.site.copy(), self.links.copy()
        new.notices, new.moves = self.notices.copy(), self.moves.copy()
        new.moved, new.undetected = self.moved.copy(), self.undetected
        new.dead_processes = self.dead_processes
        new.position, new.emitted = self.position, self.emitted
        new.watcher = None
        new._keys = self._keys.copy()
        new._fresh = set()
        self._fresh = set()
        return new

    def _own(self, node: Node) -> Machine:
        """The machine of this node, for changing."""
        self._keys.pop(node, None)
        if node not in self._fresh:
            self.nodes[node] = self.nodes[node].clone()
            self._fresh.add(node)
        return self.nodes[node]

    def key(self, interned: dict[Any, int]) -> tuple[object, ...]:
        """The state as a small hashable value, unique among those that share `interned`."""
        for node, machine in self.nodes.items():
            if node not in self._keys:
                self._keys[node] = interned.setdefault(machine.freeze(), len(interned))
        moves = tuple(
            (x, interned.setdefault(s.freeze(), len(interned)))
            for x, (_, s) in sorted(self.moves.items())
        )
        links = tuple(sorted((k, v) for k, v in self.links.items() if v))
        return (
            tuple(sorted(self._keys.items())),
            interned.setdefault(links, len(interned)),
            interned.setdefault(self.controller.freeze(), len(interned)),
            tuple(sorted(self.notices.items(), key=lambda item: item[0])),
            moves,
            tuple(sorted(self.moved.items())),
            self.undetected,
            self.dead_processes,
            self.position,
            self.emitted,
        )

    # ---- what may happen next

    def steps(self) -> list[Step]:
        """Every step that is possible now, in a fixed order. Faults are not among them."""
        found: list[Step] = []
        ingress = self.nodes[THE_INGRESS]
        assert isinstance(ingress, Ingress)
        if ingress.wants_input and self.position <= len(self.batches):
            found.append(Step("source", THE_INGRESS))
        for (src, dst), messages in self.links.items():
            if messages and dst in self.nodes and self.nodes[dst].accepts(src, messages[0]):
                found.append(Step("deliver", dst, src))
        end = len(self.controller.log)
        for node, machine in self.nodes.items():
            if machine.reads_log and machine_position(machine) < end:
                found.append(Step("log", node))
        found += [Step("notice", node) for node, queue in self.notices.items() if queue]
        found += [Step("install", standby) for standby in self.moves]
        found += [Step("moved", node) for node in self.moved]
        found += [Step("detect", site) for site in self.undetected]
        found += [Step("detect process", node) for node in self.dead_processes]
        return found

    def perform(self, step: Step) -> None:
        """Perform one step.

        Raises:
            ProtocolError: a machine or a checker found a violation.
        """
        at = step.at
        match step.kind:
            case "source":
                ingress = self._own(THE_INGRESS)
                assert isinstance(ingress, Ingress)
                if self.position == len(self.batches):
                    ingress.finish()
                else:
                    self._carry_out(THE_INGRESS, ingress.feed(self.batches[self.position]))
                self.position += 1
                self._settle(THE_INGRESS)
            case "deliver":
                assert isinstance(at, Node)
                assert step.peer is not None
                self._deliver(step.peer, at)
            case "log":
                assert isinstance(at, Node)
                machine = self._own(at)
                self._carry_out(at, machine.log(self.controller.log[machine_position(machine)]))
                self._settle(at)
            case "notice":
                assert isinstance(at, Node)
                first, *rest = self.notices[at]
                self.notices[at] = tuple(rest)
                self.obey(self.controller.notice(first))
            case "install":
                assert isinstance(at, Node)
                _, state = self.moves.pop(at)
                standby = self._own(at)
                assert isinstance(standby, Segment)
                self._carry_out(at, standby.install(state))
                self._settle(at)
            case "moved":
                assert isinstance(at, Node)
                active = self._own(at)
                assert isinstance(active, Segment)
                self._carry_out(at, active.moved(self.moved.pop(at)))
                self._settle(at)
            case "detect":
                assert isinstance(at, int)
                self.undetected = tuple(s for s in self.undetected if s != at)
                self.obey(self.controller.site_failed(at))
            case "detect process":
                assert isinstance(at, Node)
                self.dead_processes = tuple(n for n in self.dead_processes if n != at)
                self.obey(self.controller.copy_failed(at))
            case "crash":
                assert isinstance(at, int)
                self.crash(at)
            case "kill":
                assert isinstance(at, Node)
                self.kill(at)
            case "move":
                assert isinstance(at, Node)
                self._move_away(at)
            case "join":
                assert isinstance(at, int)
                self.obey(self.controller.site_joined(at))
            case _:
                raise ValueError(f"no such step: {step}")

    # ---- faults

    def crash(self, site: int) -> None:
        """A site dies with all its copies; the controller notices later (step `detect`)."""
        for node in [n for n, s in self.site.items() if s == site]:
            self._remove(node)
        self.undetected += (site,)

    def kill(self, node: Node) -> None:
        """One process dies; the controller notices later (step `detect process`)."""
        self._remove(node)
        self.dead_processes += (node,)

    def _move_away(self, node: Node) -> None:
        """UF-11: an induced failure; the new copy goes to the first site that may have it."""
        for site in sorted(self.controller.sites):
            if self.controller.may_move(node.pair, node.copy, site):
                self.obey(self.controller.move(node.pair, node.copy, site))
                return

    def _remove(self, node: Node) -> None:
        del self.nodes[node]
        del self.site[node]
        self._keys.pop(node, None)
        self.notices.pop(node, None)
        self.moved.pop(node, None)
        self.moves.pop(node, None)
        for standby in [x for x, (active, _) in self.moves.items() if active == node]:
            del self.moves[standby]
        for link in [link for link in self.links if link[1] == node]:
            del self.links[link]

    # ---- effects

    def _deliver(self, src: Node, dst: Node) -> None:
        first, *rest = self.links[src, dst]
        if rest:
            self.links[src, dst] = tuple(rest)
        else:
            del self.links[src, dst]
        machine = self._own(dst)
        if isinstance(first, Data) and self.checks.listens(machine, src):
            self.checks.received(machine, src, first)
        self._carry_out(dst, machine.receive(src, first))
        self._settle(dst)
        if src in self.nodes:
            self._fill(src)

    def _settle(self, node: Node) -> None:
        """All the work the node can do by itself, then its links."""
        machine = self.nodes[node]
        if machine.can_work():
            machine = self._own(node)
            while machine.can_work():
                self._carry_out(node, machine.work())
                self._fill(node)
        self._fill(node)

    def _fill(self, node: Node) -> None:
        """Put what may be sent onto links that have room; do the work that this makes room for."""
        machine = self.nodes[node]
        if isinstance(machine, Egress):
            return
        again = True
        while again:
            again = False
            for to in list(machine.boundary.destinations()):
                while self._room(node, to) and machine.has_message(to):
                    machine = self._own_sender(node)
                    message = machine.next_message(to)
                    assert message is not None
                    self._append(node, to, message)
            if machine.can_work():
                machine = self._own_sender(node)
                self._carry_out(node, machine.work())
                again = True

    def _own_sender(self, node: Node) -> Ingress | Segment:
        machine = self._own(node)
        assert not isinstance(machine, Egress)
        return machine

    def _room(self, src: Node, dst: Node) -> bool:
        held = self.links.get((src, dst), ())
        return sum(1 for m in held if isinstance(m, Data | Progress)) < self.capacity

    def _append(self, src: Node, dst: Node, message: Message) -> None:
        if dst in self.nodes:
            self.links[src, dst] = (*self.links.get((src, dst), ()), message)
            if self.watcher is not None:
                self.watcher.appended(src, dst, message)

    def _carry_out(self, node: Node, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            match instruction:
                case Send(to, message):
                    self._append(node, to, message)
                case Tell(notice):
                    self.notices[node] = (*self.notices.get(node, ()), notice)
                case Move(to, state, size):
                    if to in self.nodes:
                        self.moves[to] = (node, state)
                    self.moved[node] = state.version
                    if self.watcher is not None:
                        self.watcher.moving(node, to, size)
                case Emit():
                    self.checks.emitted(self.emitted, instruction)
                    self.emitted += 1
                    if self.watcher is not None:
                        self.watcher.emitted(instruction)
                    egress = self._own(node)
                    assert isinstance(egress, Egress)
                    egress.acknowledged(instruction)
                case _:
                    pass

    def obey(self, orders: Sequence[Order]) -> None:
        """Carry out what the controller orders."""
        for order in orders:
            match order:
                case Instantiate(node, site):
                    if site in self.undetected or not self._alive(site):
                        continue  # created on a site that is dead already: nothing comes of it
                    self.nodes[node] = Segment(
                        self.dataflow, node, standby=True, story=self._story()
                    )
                    self._fresh.add(node)
                    self.site[node] = site
                case Destroy(node):
                    if node in self.nodes:
                        self._remove(node)
                case DataLoss():
                    pass
        self.checks.placement(self)

    def _alive(self, site: int) -> bool:
        return site not in self.undetected

    # ---- reports

    def touched(self) -> set[Node]:
        """Nodes that have changed since this world was cloned."""
        return self._fresh

    def validate(self, only: Collection[Node] | None = None) -> None:
        """The invariants of every node, or of these."""
        chosen = self.nodes if only is None else {n: self.nodes[n] for n in only if n in self.nodes}
        for machine in chosen.values():
            if isinstance(machine, Segment):
                machine.validate()
            else:
                machine.boundary.validate()

    def finished(self) -> None:
        """Check what must hold once nothing can happen any more."""
        self.checks.finished(self)

    def copies(self, pair: Pair) -> list[Segment]:
        """The live, installed copies of a pair."""
        return [
            m
            for n, m in self.nodes.items()
            if isinstance(m, Segment) and n.pair == pair and m.status is not Status.STANDBY
        ]

    def tale(self) -> str:
        """The stories of all nodes and what is under way, for people."""
        lines = [m.boundary.tale() for m in self.nodes.values()]
        lines += [f"link {a}->{b}: {v}" for (a, b), v in self.links.items() if v]
        lines.append(f"controller: {self.controller.current} losses {self.controller.losses}")
        lines += [f"  {i}: {entry}" for i, entry in enumerate(self.controller.log)]
        lines.append(f"source at {self.position}, emitted {self.emitted}")
        return "\n".join(lines)


def machine_position(machine: Machine) -> int:
    """Entries of the controller's log that the machine has handled."""
    return machine.boundary.log_position
