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

from flux_runtime.protocol.messages import Ack, CatchUpStart
from flux_runtime.protocol.vocabulary import Node, Pair, Status
from flux_runtime.simulation.local import declares_dead, machine_position
from flux_runtime.simulation.product import Component, Product, State, Values

LOCAL: Final = frozenset(("source", "link", "node", "install", "moved"))
"""Components whose steps are those of one node."""


class Reduction:
    """Finds a step that may be taken first.

    - The source and acknowledgements: links never fill here. (Not the source where a node that is
      taken for dead lives on: whether it is still sent to is seen on its link.)
    - A start of catch-up, read by a node of another pair.
    - Whatever happens far from the pairs that may fail.
    - The first failure is noticed at once: until then the controller does nothing, so noticing it
      later is the same as reading the log later.
    - When no more faults come: notices to the controller, whose log is read later anyway; the
      arrival of the state at the standby, which does nothing before and sends only; the end of the
      move at a copy that has read the whole log.
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
                return isinstance(queue[0], Ack) or self._far_link(number, step)
            case "node":
                controller = self.product.controller(values)
                at = step.at
                assert isinstance(at, Node)
                machine = self.product.machine(number, values[number])
                entry = controller.log[machine_position(machine)]
                start = isinstance(entry, CatchUpStart) and entry.pair != at.pair
                return start or self._far_node(number, at)
            case "dead process" | "dead site":
                return not self.product.controller(values).log
        if faults_left or self._undetected(values):
            return False
        if step.kind == "moved":
            node = self.product.index["node", step.at, None]
            read = machine_position(self.product.machine(node, values[node]))
            return read == len(self.product.controller(values).log)
        return step.kind in ("notices", "install")

    def broken(
        self, state: State, steps: Sequence[int], faults: Sequence[int], *, faults_left: bool
    ) -> str | None:
        """What is wrong with the claims in this state, if anything; `steps` and `faults` are all.

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
        return any(components[n].kind in ("dead process", "dead site") for n in values)

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
    controller, found = product.controller(values), []
    alive = sorted(product.alive(values))
    for node in alive:
        mate = controller.pairs[node.pair].copies[1 - node.copy]
        own = controller.pairs[node.pair].copies[node.copy]
        if mate is None or own is None or mate.status is not Status.ACTIVE:
            continue
        other = Node(*node.pair, 1 - node.copy, mate.life)
        doomed = product.index.get(("doomed", other, None)) in values
        if other in alive and not doomed and own.life == node.life:
            found.append(node)
    return found
