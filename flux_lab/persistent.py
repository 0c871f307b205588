"""A node whose own steps are all that need be tried in a state (a persistent set of several).

Steps of different nodes commute. So if nothing that happens elsewhere can bring a node a new event
that would come before those at hand, it does not matter when the others go on: it is enough to try
the node's own steps, and to let all others follow. That is so when every link to the node has a
message at hand that the node takes now, or will never carry one again (but acknowledgements, which
commute with all).

Only where no faults are left, and only for nodes of pairs that stay whole: what the controller may
still add to the log does not concern these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from flux_lab.components import State, Values
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.messages import Fail
from flux_lab.papers.protocol.segment import Segment
from flux_lab.product import Product
from flux_lab.reaction import Machine, machine_position
from flux_lab.reduction import NOTICED, Reduction
from flux_runtime.protocol.vocabulary import END, THE_INGRESS, Node, Pair, Status


class Persistent:
    """Finds such a node.

    Args:
        product: the states.
        failing: pairs that faults concern.
    """

    def __init__(self, product: Product, *, failing: frozenset[Pair]) -> None:
        self.product = product
        self.failing = failing
        self.shape = product.dataflow.shape

    def steps(self, values: Values, steps: Sequence[int]) -> list[int]:
        """The steps of one such node; all, if there is none."""
        components = self.product.components.all
        by_node: dict[Node, list[int]] = {}
        for number in steps:
            component = components[number]
            if not isinstance(component.at, Node) or component.kind in NOTICED:
                return list(steps)
            by_node.setdefault(component.at, []).append(number)
        chosen = [
            (len(own), node)
            for node, own in by_node.items()
            if len(own) < len(steps) and node.pair not in self.failing
        ]
        for _, node in sorted(chosen):
            own = by_node[node]
            kinds = {components[number].kind for number in own}
            if kinds <= {"link", "node"} and self._all_at_hand(values, node, own):
                return own
        return list(steps)

    def broken(self, state: State, steps: Sequence[int], reduction: Reduction) -> str | None:
        """The flaw of the choice in this state, if it has one.

        Asked where no faults are left and nothing commutes. Whatever is done elsewhere, the same of
        the node's steps must be possible afterwards, and still be enough.
        """
        own, components = self.steps(state.values, steps), self.product.components
        node = components[own[0]].at if own else None
        if len(own) == len(steps) or not isinstance(node, Node):
            return None
        for other in set(steps) - set(own):
            values = state.values.copy()
            self.product.advance(values, state.code, other)
            possible = self.product.steps(values)
            while (first := reduction.first(values, possible, faults_left=False)) is not None:
                self.product.advance(values, 0, first)
                possible = self.product.steps(values)
            here = [number for number in possible if components[number].at == node]
            if set(here) != set(own):
                return f"{components[other].step} changes what {node} can do"
            if not self._all_at_hand(values, node, here):
                return f"after {components[other].step}, {node} may get other steps"
        return None

    def _all_at_hand(self, values: Values, node: Node, own: Sequence[int]) -> bool:
        product = self.product
        for peer in self._senders(values, node):
            if peer is None:
                return False
            link = product.index.get(("link", node, peer))
            if link in own:
                continue
            if link in values or not self._silent(values, peer, node):
                return False
        return True

    def _senders(self, values: Values, node: Node) -> Iterator[Node | None]:
        """Neighbours that may send what does not commute; None for one that does not live yet."""
        for pair in self.shape.upstream(node.stage):
            if pair in self.failing or set(self.shape.downstream(node.stage)) & self.failing:
                yield from self._copies(values, pair)
        for pair in self.shape.downstream(node.stage):
            if pair in self.failing:
                yield from self._copies(values, pair)

    def _copies(self, values: Values, pair: Pair) -> Iterator[Node | None]:
        if self.shape.outside(pair.stage):
            yield THE_INGRESS if pair.stage < 0 else self.shape.egress
            return
        for c, copy in enumerate(self.product.controller(values).pairs[pair].copies):
            gone = copy is None or copy.status is Status.DEAD
            yield None if gone or copy is None else Node(*pair, c, copy.life)

    def _silent(self, values: Values, peer: Node, node: Node) -> bool:
        """Whether the peer will send the node nothing but acknowledgements any more."""
        number = self.product.index["node", peer, None]
        if number not in values:
            return False
        machine = self.product.machine(number, values[number])
        if isinstance(machine, Segment) and (machine.status is not Status.ACTIVE or machine.p_fail):
            return False
        log = self.product.controller(values).log
        if any(isinstance(entry, Fail) for entry in log[machine_position(machine) :]):
            return False
        return node.stage < peer.stage or self._has_told_all(machine, node)

    def _has_told_all(self, machine: Machine, node: Node) -> bool:
        """Whether a producer has nothing more for this consumer, and has said so or need not."""
        outlet = machine.boundary.outlet(node)
        if outlet is None or isinstance(machine, Egress):
            return False
        d = machine.boundary.label(node)
        ended = machine.boundary.producer is not None and machine.boundary.producer.progress >= END
        if isinstance(machine, Ingress):
            ended = machine.last >= END
        return ended and not machine.has_message(node) and outlet.buffer.peek(d) is None
