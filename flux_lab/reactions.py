"""Reactions of nodes and controller to events, worked out once on the real machines.

What a machine does depends on its own state and one event alone. So each such reaction is computed
the first time, with all checkers, and looked up from then on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from flux_lab.checks import Checks
from flux_lab.components import Components, Moving
from flux_lab.memory_storage import MemoryStorage
from flux_lab.papers.protocol.controller import Controller, Order
from flux_lab.papers.protocol.messages import (
    AckSource,
    Data,
    Emit,
    Instruction,
    Move,
    Send,
    Tell,
)
from flux_lab.papers.protocol.segment import Segment
from flux_lab.reaction import Machine, handle, settle
from flux_runtime.protocol.dataflow import Dataflow, Rows
from flux_runtime.protocol.vocabulary import Node


@dataclass(frozen=True, slots=True)
class Reaction:
    """A node's next state and its effects, for an event in a local state.

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


class Reactions:
    """The machines in every state met so far, and what they did.

    Raises:
        ProtocolError: from all that works something out, when a machine or a checker finds a
            violation.
    """

    def __init__(self, components: Components, dataflow: Dataflow, batches: Sequence[Rows]) -> None:
        self.components = components
        self.dataflow = dataflow
        self.checks = Checks(dataflow, batches, states=True)
        self.machines: dict[tuple[int, int], Machine] = {}
        self.controllers: dict[int, Controller] = {}
        self.head = components.named("controller", 0)
        self.known: dict[tuple[int, int, str, int, int], Reaction] = {}
        self.decisions: dict[tuple[int, str, Any], tuple[int, tuple[Order, ...]]] = {}

    def remember(self, component: int, machine: Machine) -> int:
        """The number of the machine's state; a new one is examined."""
        number = self.components[component].number(machine.freeze())
        if (component, number) not in self.machines:
            self.checks.sound(machine)
            self.machines[component, number] = machine
        return number

    def remember_controller(self, controller: Controller) -> int:
        """The number of the controller's state."""
        number = self.components[self.head].number(controller.freeze())
        self.controllers.setdefault(number, controller)
        return number

    def new(self, node: Node, *, standby: bool) -> int:
        """The number of a copy's initial state."""
        segment = Segment(self.dataflow, node, standby=standby, storage=MemoryStorage())
        return self.remember(self.components.named("node", node), segment)

    def of(
        self, node: int, before: int, kind: str, origin: int, argument: int, content: Any
    ) -> Reaction:
        """The reaction of a node to an event.

        Args:
            node: its component.
            before: the number of its state.
            kind: of the event, as `local.handle` names it.
            origin: the component that the event comes from.
            argument: with `origin`, tells events apart.
            content: of the event.
        """
        key = (node, before, kind, origin, argument)
        result = self.known.get(key)
        if result is None:
            result = self.known[key] = self._work_out(node, before, kind, origin, content)
        return result

    def _work_out(self, node: int, before: int, kind: str, origin: int, content: Any) -> Reaction:
        machine = self.machines[node, before].clone()
        done: list[Instruction] = []
        peer = self.components[origin].peer
        if kind == "deliver" and isinstance(content, Data):
            assert peer is not None
            if self.checks.listens(machine, peer):
                self.checks.received(machine, peer, content)
        done += handle(machine, kind, peer, content)
        settle(machine, done.append, lambda to: True)
        return self._effects(node, machine, done)

    def _effects(self, node: int, machine: Machine, done: Sequence[Instruction]) -> Reaction:
        components, at = self.components, machine.boundary.node
        bursts: dict[int, list[Any]] = {}
        sets: list[tuple[int, int]] = []
        emits: list[Emit] = []
        for instruction in done:
            match instruction:
                case Send(to, message):
                    bursts.setdefault(components.link(at, to), []).append(message)
                case Tell(notice):
                    bursts.setdefault(components.named("notices", at), []).append(notice)
                case Move(to, state, _):
                    arriving, leaving = (
                        components.named("install", to),
                        components.named("moved", at),
                    )
                    moving = Moving(at, state.freeze(), state)
                    sets.append((arriving, components[arriving].number(moving)))
                    sets.append((leaving, components[leaving].number(state.version)))
                case Emit():
                    emits.append(instruction)
                case AckSource(batch):
                    self.checks.acknowledged(batch, batch)
        return Reaction(
            self.remember(node, machine),
            tuple((n, components[n].number(tuple(queue))) for n, queue in bursts.items()),
            tuple(sets),
            tuple(emits),
        )

    def decision(self, before: int, kind: str, content: Any) -> tuple[int, tuple[Order, ...]]:
        """The controller's next state and its orders after an event."""
        key = (before, kind, content)
        result = self.decisions.get(key)
        if result is None:
            controller = self.controllers[before].clone()
            orders = tuple(getattr(controller, kind)(content))
            result = self.decisions[key] = (self.remember_controller(controller), orders)
        return result
