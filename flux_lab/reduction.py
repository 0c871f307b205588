"""Which steps the explorer may take before all others without hiding any behaviour.

Such a step leads to the same state before and after every other step; no other step takes it away,
or adds one that it would not commute with (a persistent set of one). Then it is enough to take it
first, alone.

The rules are claims about the protocol. `broken` checks them in one state; an exploration that
leaves out nothing and checks them in every state proves them for its configuration (`--prove`). A
mistake in the protocol can break a claim instead of a promise, so that the reduced exploration
misses it: then the proof fails. Tests plant mistakes and want each found one way or the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from flux_lab.components import Component, State, Values
from flux_lab.papers.protocol.messages import Ack, Avail, CatchUpStart, Fail, LogEntry
from flux_lab.papers.protocol.segment import Segment
from flux_lab.product import Product
from flux_lab.reaction import Machine, declares_dead, machine_position
from flux_runtime.protocol.vocabulary import Node, Pair, Status

LOCAL: Final = frozenset(("source", "link", "node", "install", "moved"))
"""Components whose steps are those of one node."""

NOTICED: Final = frozenset(("dead process", "dead site"))
"""Components whose steps are the controller's noticing of a failure."""


class Reduction:
    """Finds a step that may be taken first.

    - The source and acknowledgements: links never fill here. (Not the source where a node that is
      taken for dead lives on: whether it is still sent to is seen on its link.)
    - What the dead have sent, and the end of a move that was given up: nobody misses them.
    - The announcement of a standby, which takes the place of a copy known to be dead; a start of
      catch-up, read by a node of another pair; any entry of the log about a pair that the reader
      has no link to, unless it counts failures for a report. (No entry while a catch-up window is
      open, since the reader's place in the log travels with its state.)
    - Whatever happens far from the pairs that may fail.
    - The first failure is noticed at once: until then the controller does nothing, so noticing it
      later is the same as reading the log later. (If a second one would be noticed before it, that
      is the same as the second coming first: the dead do nothing. Not in cluster pairs, where the
      controller ends other copies.)
    - When no more faults come: notices to the controller, whose log is read later anyway (with
      several catch-ups at a time, their order is that of entries in the log); the arrival of the
      state at the standby, which does nothing before and sends only; the end of the move at a copy
      that has read of all failures.
    """

    def __init__(self, product: Product, *, failing: frozenset[Pair], fences: bool) -> None:
        self.product = product
        self.fences = fences
        self.failing = failing
        self.far: dict[int, bool] = {}

    def first(self, values: Values, steps: Sequence[int], *, faults_left: bool) -> int | None:
        """A step that commutes with all others, now and later, if there is one."""
        for number in steps:
            component = self.product.components[number]
            if self.commutes(values, number, component, faults_left=faults_left):
                return number
        return None

    def commutes(self, values: Values, number: int, step: Component, *, faults_left: bool) -> bool:
        """Whether one of the rules holds for this step."""
        match step.kind:
            case "source":
                return not self.fences
            case "link":
                queue = step.values[values[number]]
                if isinstance(queue[0], Ack) or self._far_link(number, step):
                    return True
                return self._void(values, step)
            case "node":
                controller = self.product.controller(values)
                at = step.at
                assert isinstance(at, Node)
                machine = self.product.machine(number, values[number])
                entry = controller.log[machine_position(machine)]
                return self._settled(machine, at, entry) or self._far_node(number, at)
            case "moved" if self._void(values, step):
                return True
            case kind if kind in NOTICED:
                sets = self.product.dataflow.shape.cluster_pairs
                return not sets and not self.product.controller(values).log
        if faults_left or self._undetected(values):
            return False
        controller = self.product.controller(values)
        if step.kind == "moved":
            node = self.product.index["node", step.at, None]
            read = machine_position(self.product.machine(node, values[node]))
            return not any(isinstance(entry, Fail) for entry in controller.log[read:])
        return step.kind == "install" or (step.kind == "notices" and controller.parallel_max == 1)

    def _void(self, values: Values, step: Component) -> bool:
        """Whether the step only removes what means nothing any more: to the reader, or to all."""
        if step.kind not in ("link", "moved"):
            return False
        number = self.product.index["node", step.at, None]
        machine = self.product.machine(number, values[number])
        if step.kind == "link":
            assert step.peer is not None
            return machine.boundary.stale(step.peer) < 0
        assert isinstance(machine, Segment)
        attempt: int = step.values[values[self.product.index["moved", step.at, None]]]
        return machine.consumer.window != attempt

    def _settled(self, machine: Machine, at: Node, entry: LogEntry) -> bool:
        """Whether reading the entry changes nothing that other events depend on."""
        consumer = machine.boundary.consumer
        if consumer is not None and consumer.window:
            return False
        if isinstance(entry, Avail):
            return True
        if isinstance(entry, CatchUpStart):
            return entry.pair != at.pair
        near = abs(entry.pair.stage - at.stage) <= 1 and (
            entry.pair == at.pair or entry.pair.stage != at.stage
        )
        return not near and not (isinstance(machine, Segment) and machine.p_fail)

    def broken(
        self, state: State, steps: Sequence[int], faults: Sequence[int], *, faults_left: bool
    ) -> str | None:
        """The flaw of the claims in this state, if they have one; `steps` and `faults` are all.

        The death of the node that would take the step is left out: taken first, the step only adds
        messages of a dead node to links, which a receiver may discard as if they had never been.
        """
        values, components = state.values, self.product.components
        flagged = [
            number
            for number in steps
            if self.commutes(values, number, components[number], faults_left=faults_left)
        ]
        for other in (*steps, *faults) if flagged else ():
            before = self.product.after(state, other)
            possible = self.product.steps(before.values)
            left = faults_left and other not in faults
            for first in flagged:
                if first == other or self._ends(values, components[other], components[first]):
                    continue
                step, then = components[first], components[other].step
                if {step.kind, components[other].kind} <= NOTICED:
                    continue
                if self._void(values, step):
                    continue
                if first not in possible:
                    return f"{then} takes {step.step} away"
                if not self.commutes(before.values, first, step, faults_left=left):
                    return f"after {then}, {step.step} may commute no more"
                if not self._apart(step, components[other]) and not self._same(
                    state, before, first, other
                ):
                    return f"{step.step} and {then} do not commute"
        return None

    def _same(self, state: State, before: State, first: int, other: int) -> bool:
        """Whether the two steps lead to the same state in either order."""
        one = self.product.after(self.product.after(state, first), other)
        return one.code == self.product.after(before, first).code

    def _apart(self, one: Component, two: Component) -> bool:
        """Steps of two nodes: each changes its own node and lengthens queues of its own."""
        nodes = isinstance(one.at, Node) and isinstance(two.at, Node) and one.at != two.at
        return nodes and {one.kind, two.kind} <= LOCAL

    def _ends(self, values: Values, other: Component, step: Component) -> bool:
        """Whether the other step ends the node that would take this one."""
        product, at = self.product, step.at
        if not isinstance(at, Node):
            return False
        if other.kind == "crash":
            return ("site", at, None) in product.index and product.site(values, at) == other.at
        if other.kind == "node" and product.index.get(("doomed", at, None)) in values:
            node = product.index["node", at, None]
            read = machine_position(product.machine(node, values[node]))
            entry = product.controller(values).log[read]
            return other.at == at and declares_dead(entry, at)
        return other.kind in ("kill", "fence") and other.at == at

    def _undetected(self, values: Values) -> bool:
        components = self.product.components
        return any(components[n].kind in NOTICED for n in values)

    def _far_link(self, number: int, link: Component) -> bool:
        """Whether both ends, and all that the receiver may send to, stay whole."""
        if number not in self.far:
            assert isinstance(link.at, Node)
            assert link.peer is not None
            shape = self.product.dataflow.shape
            concerned = {link.at.pair, link.peer.pair}
            if not shape.outside(link.at.stage):
                concerned |= set(shape.downstream(link.at.stage))
            self.far[number] = not concerned & self.failing
        return self.far[number]

    def _far_node(self, number: int, node: Node) -> bool:
        """Whether the node and all its neighbours stay whole."""
        if number not in self.far:
            shape = self.product.dataflow.shape
            near = {*shape.upstream(node.stage), *shape.downstream(node.stage)}
            self.far[number] = not ({node.pair} | near) & self.failing
        return self.far[number]


def maskable(product: Product, values: Values) -> list[Node]:
    """Copies whose death the protocol must mask: the other copy is whole and known to be."""
    controller, result = product.controller(values), []
    alive = sorted(product.alive(values))
    for node in alive:
        mate = controller.pairs[node.pair].copies[1 - node.copy]
        own = controller.pairs[node.pair].copies[node.copy]
        if mate is None or own is None or mate.status is not Status.ACTIVE:
            continue
        other = Node(*node.pair, 1 - node.copy, mate.life)
        doomed = product.index.get(("doomed", other, None)) in values
        if other in alive and not doomed and own.life == node.life:
            result.append(node)
    return result


def evictable(product: Product, values: Values) -> list[Node]:
    """Copies that can write their state out now."""
    resident = []
    for node in product.alive(values):
        component = product.index["node", node, None]
        machine = product.machine(component, values[component])
        if isinstance(machine, Segment) and machine.status is Status.ACTIVE:
            resident += [node] if machine.back.resident else []
    return sorted(resident)
