"""States of a whole world as vectors of small numbers, for the explorer.

A global state is a product: one component per node, link, queue of notices, state under way. Each
component has few values, however many combinations of them there are. So values are numbered when
they are first met, and what a node does in a local state with an event is worked out once, on the
real machine, with all checkers, and then looked up. A state is a mapping from component to number;
its code is the exclusive or of 128-bit codes of its components' contents, so it is kept up to date
with every change, and does not depend on the run (an interrupted search can go on in another).

Links never fill here: what a node sends waits on the link instead of in the buffer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from flux_runtime.protocol.controller import Controller, Destroy, Instantiate, Order, chained
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.ends import Egress, Ingress
from flux_runtime.protocol.messages import (
    AckSource,
    Data,
    Emit,
    Instruction,
    Move,
    Rows,
    Send,
    Tell,
)
from flux_runtime.protocol.segment import Segment, SegmentState
from flux_runtime.protocol.storage import MemoryStorage
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node
from flux_runtime.simulation.checks import Checks
from flux_runtime.simulation.local import (
    NO_MORE_INPUT,
    Machine,
    declares_dead,
    handle,
    idle_standby,
    machine_position,
    settle,
)
from flux_runtime.simulation.world import Step

UNBOUNDED: Final = 1 << 30
"""Room of a link that never fills."""

Values = dict[int, int]
"""Component -> number of its value; components that hold nothing are left out."""


class State(NamedTuple):
    """A global state and its code."""

    values: Values
    code: int


@dataclass(slots=True)
class Component:
    """One component: its values by number (0 is nothing), and the step it may take."""

    kind: str
    at: Node | int
    peer: Node | None
    step: Step
    numbers: dict[Any, int] = field(default_factory=dict)
    values: list[Any] = field(default_factory=lambda: [None])
    codes: list[int] = field(default_factory=lambda: [0])
    heads: dict[int, int] = field(default_factory=dict)
    rest: dict[int, int] = field(default_factory=dict)
    longer: dict[tuple[int, int], int] = field(default_factory=dict)
    accepted: dict[tuple[int, int], bool] = field(default_factory=dict)

    def number(self, value: Any) -> int:
        """The number of a value, new or met before."""
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = len(self.values)
            self.values.append(value)
            text = repr((self.kind, self.at, self.peer, value))
            self.codes.append(int.from_bytes(blake2b(text.encode(), digest_size=16).digest()))
        return found

    # ---- queues: tuples of messages

    def first(self, number: int) -> int:
        """The queue of the head alone."""
        found = self.heads.get(number)
        if found is None:
            found = self.heads[number] = self.number(self.values[number][:1])
        return found

    def pop(self, number: int) -> int:
        """The queue without its head."""
        found = self.rest.get(number)
        if found is None:
            shorter = self.values[number][1:]
            found = self.rest[number] = self.number(shorter) if shorter else 0
        return found

    def push(self, number: int, burst: int) -> int:
        """The queue with another one behind it."""
        if not number:
            return burst
        found = self.longer.get((number, burst))
        if found is None:
            found = self.number(self.values[number] + self.values[burst])
            self.longer[number, burst] = found
        return found


@dataclass(frozen=True, slots=True)
class Reaction:
    """What a node does with an event in a local state: its next state and its effects.

    Attributes:
        state: number of its next local state.
        bursts: (queue, number of what is appended to it).
        sets: (component, value) that are overwritten.
        emits: what leaves.
    """

    state: int
    bursts: tuple[tuple[int, int], ...]
    sets: tuple[tuple[int, int], ...]
    emits: tuple[Emit, ...]


class Product:
    """A small world: its initial state, the steps of a state, and what they lead to.

    Raises:
        ProtocolError: from `after` and `finished`, when a machine or a checker finds a violation.
    """

    def __init__(
        self, dataflow: Dataflow, batches: Sequence[Rows], *, sites: int, spares: int
    ) -> None:
        self.dataflow = dataflow
        self.batches = tuple(batches)
        self.checks = Checks(dataflow, self.batches, states=True)
        self.components: list[Component] = []
        self.index: dict[tuple[str, Any, Any], int] = {}
        self.machines: dict[tuple[int, int], Machine] = {}
        self.controllers: dict[int, Controller] = {}
        self.reactions: dict[tuple[int, int, str, int, int], Reaction] = {}
        self.decisions: dict[tuple[int, str, Any], tuple[int, tuple[Order, ...]]] = {}
        self.source = self.component("source", THE_INGRESS)
        self.output = self.component("output", dataflow.shape.egress)
        self.head = self.component("controller", 0)
        self.ingress = self.component("node", THE_INGRESS)
        self.placement = chained(dataflow.shape, sites)
        self.sites = frozenset(range(sites + spares))

    # ---- components

    def component(self, kind: str, at: Node | int, peer: Node | None = None) -> int:
        """The number of a component, new or met before."""
        found = self.index.get((kind, at, peer))
        if found is None:
            found = self.index[kind, at, peer] = len(self.components)
            step = Step(STEPS.get(kind, kind), at, peer)
            self.components.append(Component(kind, at, peer, step))
        return found

    def link(self, src: Node, dst: Node) -> int:
        """The component of the link from one node to another."""
        return self.component("link", dst, src)

    def machine(self, component: int, number: int) -> Machine:
        """A machine in this local state; not to be changed."""
        return self.machines[component, number]

    def _remember(self, component: int, machine: Machine) -> int:
        """The number of the machine's state; a new one is examined."""
        number = self.components[component].number(machine.freeze())
        if (component, number) not in self.machines:
            self.checks.sound(machine)
            self.machines[component, number] = machine
        return number

    def controller(self, values: Values) -> Controller:
        """The controller in this state; not to be changed."""
        return self.controllers[values[self.head]]

    def _remember_controller(self, controller: Controller) -> int:
        number = self.components[self.head].number(controller.freeze())
        self.controllers.setdefault(number, controller)
        return number

    def state(self, values: Values) -> State:
        """The state with its code, worked out afresh."""
        code = 0
        for component, number in values.items():
            code ^= self.components[component].codes[number]
        return State(values, code)

    # ---- the initial state

    def initial(self) -> State:
        """Everything in place, nothing under way."""
        shape = self.dataflow.shape
        values = {
            self.head: self._remember_controller(Controller(shape, self.placement, self.sites)),
            self.ingress: self._remember(self.ingress, Ingress(self.dataflow)),
        }
        egress = self.component("node", shape.egress)
        values[egress] = self._remember(egress, Egress(self.dataflow))
        for (pair, copy), site in self.placement.items():
            node = Node(*pair, copy, 0)
            values[self.component("node", node)] = self._new(node, standby=False)
            place = self.component("site", node)
            values[place] = self.components[place].number(site)
        return self.state(values)

    def _new(self, node: Node, *, standby: bool) -> int:
        segment = Segment(self.dataflow, node, standby=standby, storage=MemoryStorage())
        return self._remember(self.component("node", node), segment)

    # ---- what may happen next

    def steps(self, values: Values) -> list[int]:
        """The components that can take their step now. Faults are not among them."""
        found = []
        end = len(self.controller(values).log)
        source = self.machines[self.ingress, values[self.ingress]]
        assert isinstance(source, Ingress)
        if source.wants_input and values.get(self.source, 0) <= len(self.batches):
            found.append(self.source)
        components = self.components
        for number, value in values.items():
            component = components[number]
            kind = component.kind
            if kind == "link":
                if self._accepts(number, component, values, value):
                    found.append(number)
            elif kind == "node":
                machine = self.machines[number, value]
                if machine.reads_log and machine_position(machine) < end:
                    found.append(number)
                if self._fenced_standby(number, values):
                    found.append(self.component("fence", component.at))
            elif kind in STEPS:
                found.append(number)
        return found

    def _accepts(self, number: int, link: Component, values: Values, queue: int) -> bool:
        node = self.index["node", link.at, None]
        state = values.get(node)
        if state is None:
            return False
        found = link.accepted.get((state, queue))
        if found is None:
            assert link.peer is not None
            machine = self.machines[node, state]
            found = machine.accepts(link.peer, link.values[queue][0])
            link.accepted[state, queue] = found
        return found

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
        values, component = state.values, self.components[number]
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
        return self._changed(state, changes)

    def _changed(self, state: State, changes: Values) -> State:
        values, code = state.values.copy(), state.code
        for number, value in changes.items():
            before = values.get(number, 0)
            if before == value:
                continue
            codes = self.components[number].codes
            code ^= codes[before] ^ codes[value]
            if value:
                values[number] = value
            else:
                values.pop(number, None)
        return State(values, code)

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
        entries = self.components[self.component("log", 0)]
        self._react(values, changes, number, "log", number, entries.number(entry), entry)

    def _event(self, values: Values, changes: Values, kind: str, number: int, what: Any) -> None:
        node = self.index["node", self.components[number].at, None]
        self._react(values, changes, node, kind, number, values[number], what)

    def _react(
        self,
        values: Values,
        changes: Values,
        node: int,
        kind: str,
        origin: int,
        argument: int,
        what: Any,
    ) -> None:
        """Let a node handle an event: worked out once per local state and event."""
        before = values[node]
        key = (node, before, kind, origin, argument)
        reaction = self.reactions.get(key)
        if reaction is None:
            reaction = self.reactions[key] = self._work_out(node, before, kind, origin, what)
        changes[node] = reaction.state
        components = self.components
        for number, burst in reaction.bursts:
            component = components[number]
            if component.kind == "link" and self.index["node", component.at, None] not in values:
                continue  # nobody reads it any more
            held = changes[number] if number in changes else values.get(number, 0)
            changes[number] = component.push(held, burst)
        for number, value in reaction.sets:
            component = components[number]
            if component.kind == "install" and self.index["node", component.at, None] not in values:
                continue
            changes[number] = value
        if reaction.emits:
            output = components[self.output]
            before_ = output.values[values.get(self.output, 0)] or ()
            ordered = self.dataflow.shape.ordered_egress
            for emit in reaction.emits:
                self.checks.emitted(before_, emit)
                before_ = tuple(sorted((*before_, emit.batch if ordered else emit), key=repr))
            changes[self.output] = output.number(before_)

    def _work_out(self, node: int, before: int, kind: str, origin: int, what: Any) -> Reaction:
        """Run the real machine."""
        machine = self.machines[node, before].clone()
        at = machine.boundary.node
        done: list[Instruction] = []
        peer = self.components[origin].peer
        if kind == "deliver" and isinstance(what, Data):
            assert peer is not None
            if self.checks.listens(machine, peer):
                self.checks.received(machine, peer, what)
        done += handle(machine, kind, peer, what)
        settle(machine, done.append, lambda to: True)
        bursts: dict[int, list[Any]] = {}
        sets: list[tuple[int, int]] = []
        emits: list[Emit] = []
        for instruction in done:
            match instruction:
                case Send(to, message):
                    bursts.setdefault(self.link(at, to), []).append(message)
                case Tell(notice):
                    bursts.setdefault(self.component("notices", at), []).append(notice)
                case Move(to, state, _):
                    arriving, leaving = self.component("install", to), self.component("moved", at)
                    moving = Moving(at, state.freeze(), state)
                    sets.append((arriving, self.components[arriving].number(moving)))
                    sets.append((leaving, self.components[leaving].number(state.version)))
                case Emit():
                    emits.append(instruction)
                case AckSource(batch):
                    self.checks.acknowledged(batch, batch)
        return Reaction(
            self._remember(node, machine),
            tuple((n, self.components[n].number(tuple(queue))) for n, queue in bursts.items()),
            tuple(sets),
            tuple(emits),
        )

    # ---- the controller

    def _decide(self, values: Values, changes: Values, kind: str, what: Any) -> None:
        """Let the controller handle an event, and carry out its orders."""
        key = (values[self.head], kind, what)
        found = self.decisions.get(key)
        if found is None:
            controller = self.controllers[values[self.head]].clone()
            orders = tuple(getattr(controller, kind)(what))
            found = self.decisions[key] = (self._remember_controller(controller), orders)
        changes[self.head], orders = found
        for order in orders:
            match order:
                case Instantiate(node, site):
                    if self.index.get(("dead site", site, None)) in values:
                        continue
                    changes[self.component("node", node)] = self._new(node, standby=True)
                    place = self.component("site", node)
                    changes[place] = self.components[place].number(site)
                case Destroy(node):
                    if self.index["node", node, None] in values:
                        self._remove(values, changes, node)
                case _:
                    pass
        if orders:
            self.checks.placement(self.view(self._changed(State(values, 0), changes).values))

    # ---- faults

    def fault(self, kind: str, at: Node | int) -> int:
        """The component whose step is this fault: `kill`, `crash` or `suspect`."""
        return self.component(kind, at)

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
        number = self.component(kind, at)
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
        return View(nodes, self.controller(values), site, len(output))

    def finished(self, values: Values) -> None:
        """Check what must hold once nothing can happen any more."""
        self.checks.finished(self.view(values))


class Moving:
    """A state under way from one node; equal if the contents are."""

    __slots__ = ("content", "origin", "state")

    def __init__(self, origin: Node, content: tuple[object, ...], state: SegmentState) -> None:
        self.origin = origin
        self.content = content
        self.state = state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Moving) and (self.origin, self.content) == (
            other.origin,
            other.content,
        )

    def __hash__(self) -> int:
        return hash((self.origin, self.content))

    def __repr__(self) -> str:
        return repr((self.origin, self.content))


@dataclass(frozen=True, slots=True)
class View:
    """A state as the checkers see a cluster."""

    nodes: dict[Node, Machine]
    controller: Controller
    site: dict[Node, int]
    emitted: int


STEPS: Final = {
    "link": "deliver",
    "node": "log",
    "notices": "notice",
    "install": "install",
    "moved": "moved",
    "dead process": "detect process",
    "dead site": "detect",
}
"""Kind of component -> its step; others only hold a value, or are faults."""

OF_A_NODE: Final = frozenset(("node", "site", "link", "notices", "install", "moved", "doomed"))
"""Components that end with their node."""
