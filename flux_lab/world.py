"""The possible next steps of a world, and one performed: all the freedom that there is.

Whoever drives a world chooses among them. Faults (`steps.FAULTS`) are performed in the same way,
but never offered.
"""

from __future__ import annotations

from flux_lab.memory_storage import SimulatedDisk
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.messages import Fail
from flux_lab.papers.protocol.segment import Segment
from flux_lab.reaction import (
    NO_MORE_INPUT,
    declares_dead,
    idle_standby,
    machine_position,
)
from flux_lab.steps import Step as Step
from flux_lab.world_state import WorldState
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node


class World(WorldState):
    """A cluster in some state, and the steps that it can take from there."""

    def steps(self) -> list[Step]:
        """Every step that is possible now, in a fixed order. Faults are not among them."""
        return possible(self)

    def perform(self, step: Step) -> None:
        """Perform one step.

        Raises:
            ProtocolError: a machine or a checker found a violation.
        """
        perform(self, step)


def possible(world: WorldState) -> list[Step]:
    """Every step that is possible now, in a fixed order. Faults are not among them."""
    result: list[Step] = []
    ingress = world.nodes[THE_INGRESS]
    assert isinstance(ingress, Ingress)
    if ingress.wants_input and world.position <= len(world.batches):
        result.append(Step("source", THE_INGRESS))
    nodes = world.nodes
    for (src, dst), messages in world.links.items():
        reader = nodes.get(dst)
        if reader is not None and messages and reader.accepts(src, messages[0]):
            result.append(Step("deliver", dst, src))
    end = len(world.controller.log)
    for node, machine in nodes.items():
        if machine.reads_log and machine_position(machine) < end:
            result.append(Step("log", node))
        if isinstance(machine, Segment) and not machine.back.resident:
            result.append(Step("activate", node))
    egress = world.nodes[world.dataflow.shape.egress]
    if isinstance(egress, Egress) and egress.unacked:
        result.append(Step("acknowledge", world.dataflow.shape.egress))
    result += [Step("frame", there, here) for there, here in world.network.frames()]
    result += [Step("install", standby) for standby in world.moves]
    result += [Step("moved", node) for node in world.moved]
    result += [
        Step("fence", node) for node in sorted(world.doomed) if idle_standby(world.nodes[node])
    ]
    if world.paused:
        stopped: set[Node | int] = {n for n, site in world.site.items() if site in world.paused}
        stopped |= world.paused
        result = [step for step in result if step.at not in stopped]
        result += [Step("resume", site) for site in sorted(world.paused)]
    result += [Step("relieve", site) for site in sorted(world.squeezed)]
    result += [Step("free disk", site) for site, disk in world.disks.items() if disk.full]
    result += [Step("notice", node) for node, queue in world.notices.items() if queue]
    result += [Step("detect", site) for site in world.undetected]
    result += [Step("detect process", node) for node in world.dead_processes]
    return result


def perform(world: WorldState, step: Step) -> None:
    """Perform one step.

    Raises:
        ProtocolError: a machine or a checker found a violation.
    """
    at, peer = step.at, step.peer
    if isinstance(at, Node):
        _perform_at(world, step.kind, at, peer)
    else:
        _perform_on(world, step.kind, at, peer)


def _perform_at(world: WorldState, kind: str, at: Node, peer: Node | int | None) -> None:
    """A step of one node."""
    match kind:
        case "source":
            more = world.position < len(world.batches)
            rows = world.batches[world.position] if more else NO_MORE_INPUT
            world.position += 1
            world.let(at, "source", None, rows)
        case "deliver":
            assert isinstance(peer, Node)
            world.deliver(peer, at)
        case "log":
            entry = world.controller.log[machine_position(world.nodes[at])]
            if world.network.connections is not None and isinstance(entry, Fail):
                world.bury(at, entry)
            if at not in world.nodes:
                return  # it was among the buried
            if at in world.doomed and declares_dead(entry, at):
                world.remove(at)
            else:
                world.let(at, "log", None, entry)
        case "notice":
            first, *rest = world.notices[at]
            world.notices[at] = tuple(rest)
            world.obey(world.controller.notice(first))
        case "install":
            world.let(at, "install", None, world.moves.pop(at)[1])
        case "moved":
            world.let(at, "moved", None, world.moved.pop(at))
        case "acknowledge":
            egress = world.nodes[at]
            assert isinstance(egress, Egress)
            world.let(at, "acknowledge", None, egress.unacked[0])
        case "evict":
            world.let(at, kind, None, None)
        case "activate":
            world.activate(at)
        case "detect process":
            world.dead_processes = tuple(n for n in world.dead_processes if n != at)
            world.obey(world.controller.copy_failed(at))
        case "fence":
            world.remove(at)
        case "kill":
            world.kill(at)
        case "suspect":
            world.doomed.add(at)
            world.dead_processes += (at,)
        case "move":
            world.move_away(at)
        case "close":
            assert isinstance(peer, Node)
            world.close(at, peer)
        case _:
            raise ValueError(f"no such step of a node: {kind}")


def _perform_on(world: WorldState, kind: str, site: int, peer: Node | int | None) -> None:
    """A step of a site as a whole."""
    match kind:
        case "frame":
            assert isinstance(peer, int)
            world.arrive(*world.network.carry(site, peer))
        case "close":
            assert isinstance(peer, int)
            world.close_connection(site, peer)
        case "detect":
            world.undetected = tuple(s for s in world.undetected if s != site)
            world.obey(world.controller.site_failed(site))
        case "crash":
            world.crash(site)
        case "pause":
            world.paused |= {site}
        case "suspect":
            world.suspect(site)
        case "resume":
            world.paused -= {site}
        case "squeeze":
            world.squeeze(site)
        case "relieve":
            world.squeezed -= {site}
        case "fill disk":
            world.disks.setdefault(site, SimulatedDisk()).full = True
        case "free disk":
            world.disks[site].full = False
        case "join":
            world.obey(world.controller.site_joined(site))
        case _:
            raise ValueError(f"no such step of a site: {kind}")
