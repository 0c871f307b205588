"""States of a whole world as vectors of small numbers, for the explorer.

A global state is a product of components with few values each, however many combinations of them
there are (`components`), and what a node does is worked out once and then looked up (`reactions`).
A state's code is the exclusive or of 128-bit codes of its components' contents, so it is kept up to
date with every change, and does not depend on the run (an interrupted search can go on in another).

Links never fill here: what a node sends waits on the link instead of in the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from flux_lab.components import (
    OF_A_NODE,
    STEPS,
    Component,
    Components,
    Moving,
    State,
    Values,
)
from flux_lab.papers.protocol.controller import Controller, Destroy, Instantiate, chained
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.segment import Segment
from flux_lab.reaction import (
    NO_MORE_INPUT,
    Machine,
    declares_dead,
    idle_standby,
    machine_position,
)
from flux_lab.reactions import Reactions
from flux_runtime.protocol.dataflow import Dataflow, Rows
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node

UNBOUNDED: Final = 1 << 30
"""Room of a link that never fills."""


class Product:
    """A small world: its initial state, the steps of a state, and what they lead to.

    Args:
        dataflow: what runs.
        batches: the source's input.
        sites: machines that host copies at first.
        spares: further machines.
        parallel_max: catch-ups at once (CT-7).

    Raises:
        ProtocolError: from `after`, `advance` and `finished`, when a machine or a checker finds a
            violation.
    """

    def __init__(
        self,
        dataflow: Dataflow,
        batches: Sequence[Rows],
        *,
        sites: int,
        spares: int,
        parallel_max: int = 1,
    ) -> None:
        self.dataflow = dataflow
        self.batches = tuple(batches)
        self.components = Components()
        self.index = self.components.index
        self.reactions = Reactions(self.components, dataflow, self.batches)
        self.checks = self.reactions.checks
        self.machines = self.reactions.machines
        self.head = self.reactions.head
        self.source = self.components.named("source", THE_INGRESS)
        self.output = self.components.named("output", dataflow.shape.egress)
        self.ingress = self.components.named("node", THE_INGRESS)
        self.placement = chained(dataflow.shape, sites)
        self.sites = frozenset(range(sites + spares))
        self.parallel_max = parallel_max

    def machine(self, component: int, number: int) -> Machine:
        """A machine in this local state; not to be changed."""
        return self.machines[component, number]

    def controller(self, values: Values) -> Controller:
        """The controller in this state; not to be changed."""
        return self.reactions.controllers[values[self.head]]

    # ---- the initial state

    def initial(self) -> State:
        """Everything in place, nothing under way."""
        shape, reactions = self.dataflow.shape, self.reactions
        controller = Controller(shape, self.placement, self.sites, parallel_max=self.parallel_max)
        egress = self.components.named("node", shape.egress)
        values = {
            self.head: reactions.remember_controller(controller),
            self.ingress: reactions.remember(self.ingress, Ingress(self.dataflow)),
            egress: reactions.remember(egress, Egress(self.dataflow)),
        }
        for (pair, copy), site in self.placement.items():
            node = Node(*pair, copy, 0)
            values[self.components.named("node", node)] = reactions.new(node, standby=False)
            place = self.components.named("site", node)
            values[place] = self.components[place].number(site)
        return State(values, self.components.code(values))

    # ---- what may happen next

    def steps(self, values: Values) -> list[int]:
        """The components that can take their step now. Faults are not among them."""
        result = []
        end = len(self.controller(values).log)
        source = self.machines[self.ingress, values[self.ingress]]
        assert isinstance(source, Ingress)
        if source.wants_input and values.get(self.source, 0) <= len(self.batches):
            result.append(self.source)
        components = self.components.all
        for number, value in values.items():
            component = components[number]
            kind = component.kind
            if kind == "link":
                if self._accepts(number, component, values, value):
                    result.append(number)
            elif kind == "node":
                machine = self.machines[number, value]
                if machine.reads_log and machine_position(machine) < end:
                    result.append(number)
                if isinstance(machine, Segment) and not machine.back.resident:
                    result.append(self.components.named("activate", component.at))
                if self._fenced_standby(number, values):
                    result.append(self.components.named("fence", component.at))
            elif kind in STEPS:
                result.append(number)
        return result

    def _accepts(self, number: int, link: Component, values: Values, queue: int) -> bool:
        node = self.index["node", link.at, None]
        state = values.get(node)
        if state is None:
            return False
        result = link.accepted.get((state, queue))
        if result is None:
            assert link.peer is not None
            machine = self.machines[node, state]
            result = machine.accepts(link.peer, link.values[queue][0])
            link.accepted[state, queue] = result
        return result

    def _fenced_standby(self, number: int, values: Values) -> bool:
        doomed = self.index.get(("doomed", self.components[number].at, None))
        return doomed in values and idle_standby(self.machines[number, values[number]])

    def alive(self, values: Values) -> Iterator[Node]:
        """The copies that live."""
        for number in values:
            component = self.components[number]
            if component.kind == "site":
                assert isinstance(component.at, Node)
                yield component.at

    # ---- what a step leads to

    def after(self, state: State, number: int) -> State:
        """The state after this component's step, or after this fault."""
        values = state.values.copy()
        return State(values, self.advance(values, state.code, number))

    def advance(self, values: Values, code: int, number: int) -> int:
        """Change a state by this component's step, or by this fault; gives its new code."""
        components = self.components.all
        for changed, value in self._changes(values, number).items():
            before = values.get(changed, 0)
            if before == value:
                continue
            codes = components[changed].codes
            code ^= codes[before] ^ codes[value]
            if value:
                values[changed] = value
            else:
                del values[changed]
        return code

    def _changes(self, values: Values, number: int) -> Values:
        component = self.components.all[number]
        changes: Values = {}
        match component.kind:
            case "link":
                self._deliver(values, changes, number, component)
            case "node":
                self._read_log(values, changes, number, component)
            case "source":
                position = values.get(number, 0)
                changes[number] = component.number(position + 1)
                more = position < len(self.batches)
                rows = self.batches[position] if more else NO_MORE_INPUT
                self._react(values, changes, self.ingress, "source", number, position, rows)
            case "install":
                changes[number] = 0
                content: Moving = component.values[values[number]]
                self._event(values, changes, "install", number, content.state)
            case "moved":
                changes[number] = 0
                self._event(values, changes, "moved", number, component.values[values[number]])
            case "evict" | "activate":
                node = self.index["node", component.at, None]
                self._react(values, changes, node, component.kind, number, 0, None)
            case "notices":
                changes[number] = component.pop(values[number])
                self._decide(values, changes, "notice", component.values[values[number]][0])
            case "dead process":
                changes[number] = 0
                self._decide(values, changes, "copy_failed", component.at)
            case "dead site":
                changes[number] = 0
                self._decide(values, changes, "site_failed", component.at)
            case _:
                self._fault(values, changes, component)
        return changes

    def _deliver(self, values: Values, changes: Values, number: int, link: Component) -> None:
        queue = values[number]
        changes[number] = link.pop(queue)
        node = self.index["node", link.at, None]
        head = link.first(queue)
        self._react(values, changes, node, "deliver", number, head, link.values[head][0])

    def _read_log(self, values: Values, changes: Values, number: int, node: Component) -> None:
        machine = self.machines[number, values[number]]
        entry = self.controller(values).log[machine_position(machine)]
        assert isinstance(node.at, Node)
        if self.index.get(("doomed", node.at, None)) in values and declares_dead(entry, node.at):
            self._remove(values, changes, node.at)
            return
        entries = self.components[self.components.named("log", 0)]
        self._react(values, changes, number, "log", number, entries.number(entry), entry)

    def _event(self, values: Values, changes: Values, kind: str, number: int, content: Any) -> None:
        node = self.index["node", self.components[number].at, None]
        self._react(values, changes, node, kind, number, values[number], content)

    def _react(
        self,
        values: Values,
        changes: Values,
        node: int,
        kind: str,
        origin: int,
        argument: int,
        content: Any,
    ) -> None:
        """Let a node handle an event, and what it sends arrive where somebody reads it."""
        reaction = self.reactions.of(node, values[node], kind, origin, argument, content)
        changes[node] = reaction.state
        components = self.components.all
        for number, burst in reaction.bursts:
            component = components[number]
            if component.kind == "link" and not self._lives(values, component.at):
                continue
            held = changes[number] if number in changes else values.get(number, 0)
            changes[number] = component.push(held, burst)
        for number, value in reaction.sets:
            component = components[number]
            if component.kind != "install" or self._lives(values, component.at):
                changes[number] = value
        if reaction.emits:
            output = components[self.output]
            left = output.values[values.get(self.output, 0)] or ()
            ordered = self.dataflow.shape.ordered_egress
            for emit in reaction.emits:
                self.checks.emitted(left, emit)
                left = tuple(sorted((*left, emit.batch if ordered else emit), key=repr))
            changes[self.output] = output.number(left)

    def _lives(self, values: Values, node: Node | int) -> bool:
        return self.index["node", node, None] in values

    # ---- the controller

    def _decide(self, values: Values, changes: Values, kind: str, content: Any) -> None:
        """Let the controller handle an event, and carry out its orders."""
        changes[self.head], orders = self.reactions.decision(values[self.head], kind, content)
        for order in orders:
            match order:
                case Instantiate(node, site):
                    if self.index.get(("dead site", site, None)) in values:
                        continue
                    created = self.components.named("node", node)
                    changes[created] = self.reactions.new(node, standby=True)
                    place = self.components.named("site", node)
                    changes[place] = self.components[place].number(site)
                case Destroy(node):
                    if self._lives(values, node):
                        self._remove(values, changes, node)
                case _:
                    pass
        if orders:
            merged = {**values, **changes}
            self.checks.placement(self.view({n: value for n, value in merged.items() if value}))

    # ---- faults

    def fault(self, kind: str, at: Node | int) -> int:
        """The component whose step is this fault: `kill`, `crash`, `suspect` or `evict`."""
        return self.components.named(kind, at)

    def _fault(self, values: Values, changes: Values, fault: Component) -> None:
        at = fault.at
        if isinstance(at, Node):
            if fault.kind == "suspect":  # it goes on until it reads its own failure
                self._flag(changes, "doomed", at)
            else:
                self._remove(values, changes, at)
            if fault.kind != "fence":
                self._flag(changes, "dead process", at)
            return
        for node in [n for n in self.alive(values) if self.site(values, n) == at]:
            self._remove(values, changes, node)
        self._flag(changes, "dead site", at)

    def _flag(self, changes: Values, kind: str, at: Node | int) -> None:
        number = self.components.named(kind, at)
        changes[number] = self.components[number].number(True)

    def site(self, values: Values, node: Node) -> int:
        """Where a copy lives."""
        place = self.index["site", node, None]
        site: int = self.components[place].values[values[place]]
        return site

    def _remove(self, values: Values, changes: Values, node: Node) -> None:
        """The node is gone, with what it had not sent and what was sent to it."""
        for number, value in {**values, **changes}.items():
            component = self.components[number]
            gone = component.at == node and component.kind in OF_A_NODE
            if component.kind == "install" and value:
                moving: Moving = component.values[value]
                gone = gone or moving.origin == node
            if gone:
                changes[number] = 0

    # ---- the end

    def view(self, values: Values) -> View:
        """The state as the checkers see a cluster."""
        nodes: dict[Node, Machine] = {}
        site: dict[Node, int] = {}
        for number, value in values.items():
            component = self.components[number]
            if component.kind == "node" and isinstance(component.at, Node):
                nodes[component.at] = self.machines[number, value]
            elif component.kind == "site" and isinstance(component.at, Node):
                site[component.at] = component.values[value]
        output = self.components[self.output].values[values.get(self.output, 0)] or ()
        controller = self.reactions.controllers[values[self.head]]
        return View(nodes, controller, site, len(output))

    def finished(self, values: Values) -> None:
        """Check what must hold once nothing can happen any more."""
        self.checks.finished(self.view(values))


@dataclass(frozen=True, slots=True)
class View:
    """A state as the checkers see a cluster."""

    nodes: dict[Node, Machine]
    controller: Controller
    site: dict[Node, int]
    emitted: int
