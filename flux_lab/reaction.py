"""The reaction of one node: it handles one event, then works and sends as far as it can.

All that happens in a world is such a reaction of one node, a decision of the controller, or a
fault. Both the random runs (`world`) and the exhaustive ones (`product`) are built on it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.messages import Fail, Instruction, LogEntry, Send
from flux_lab.papers.protocol.segment import Segment
from flux_runtime.protocol.vocabulary import Node, Status

Machine = Ingress | Egress | Segment

NO_MORE_INPUT = None
"""The content that the source hands over when it has ended."""


def handle(machine: Machine, kind: str, peer: Node | None, content: Any) -> list[Instruction]:
    """Let the machine handle one event.

    Args:
        machine: changed in place.
        kind: `source`, `deliver`, `log`, `install`, `moved`, `evict`, `activate` or `acknowledge`.
        peer: the far end of the link, for `deliver`.
        content: the batch, message, log entry, state, number of the attempt, or result.

    Raises:
        ProtocolError: the machine found a violation.
    """
    if kind == "deliver":
        assert peer is not None
        return machine.receive(peer, content)
    if kind == "log":
        return machine.log(content)
    if isinstance(machine, Ingress):
        if content is NO_MORE_INPUT:
            machine.finish()
            return []
        return machine.feed(content)
    if isinstance(machine, Egress):
        machine.acknowledged(content)  # NC-7
        return []
    match kind:
        case "install":
            return machine.install(content)
        case "moved":
            return machine.moved(content)
        case "evict":
            machine.evict()  # SP-2: memory was taken away
        case "activate":
            machine.activate()  # SP-4: its turn has come
        case _:
            raise ValueError(f"no such event: {kind}")
    return []


def settle(
    machine: Machine, act: Callable[[Instruction], None], room: Callable[[Node], bool]
) -> None:
    """Do all the work that needs no event, and send whatever there is room for.

    Args:
        machine: changed in place.
        act: carries an instruction out.
        room: whether the link to that node takes one more message.
    """
    while True:
        if not isinstance(machine, Egress):
            for to in list(machine.boundary.destinations()):
                while room(to) and machine.has_message(to):
                    message = machine.next_message(to)
                    assert message is not None
                    act(Send(to, message))
        if not machine.can_work():
            return
        for instruction in machine.work():
            act(instruction)


def machine_position(machine: Machine) -> int:
    """Entries of the controller's log that the machine has handled."""
    return machine.boundary.log_position


def declares_dead(entry: LogEntry, node: Node) -> bool:
    """Whether the entry tells a node, read at its place in the log, that it is taken for dead.

    A node that stopped for a while and comes back finds this in the log, and ends itself (fencing).
    """
    return isinstance(entry, Fail) and (entry.pair, entry.copy) == (node.pair, node.copy)


def idle_standby(machine: Machine) -> bool:
    """Whether the machine has no state yet, and so plays no part."""
    return isinstance(machine, Segment) and machine.status is Status.STANDBY
