"""What the named scenarios share: small worlds, held back steps, and looking inside."""

from __future__ import annotations

import random
from collections.abc import Callable

from flux_lab.checks import Checks
from flux_lab.papers.protocol.inlet import Inlet
from flux_lab.papers.protocol.messages import Message
from flux_lab.papers.protocol.outlet import Outlet
from flux_lab.papers.protocol.segment import Segment
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Shape

Held = Callable[[Step], bool]
AP, AS, BP, BS = Node(0, 0, 0, 0), Node(0, 0, 1, 0), Node(1, 0, 0, 0), Node(1, 0, 1, 0)
INGRESS = THE_INGRESS


def world(shape: Shape, *, batches: int = 8, spares: int = 0, sites: int = 2) -> World:
    dataflow, rows = digest_dataflow(shape), digest_input(batches, rows=2, keys=6)
    return World(
        dataflow,
        rows,
        checks=Checks(dataflow, rows, states=True),
        sites=sites,
        spares=spares,
        link_capacity=2,
    )


def nothing_held(step: Step) -> bool:
    return False


def run(w: World, *, hold: Held = nothing_held, steps: int = 100_000, seed: int = 0) -> World:
    """Random steps other than those held back, until there are none."""
    rng = random.Random(seed)
    for _ in range(steps):
        possible = [step for step in w.steps() if not hold(step)]
        if not possible:
            break
        w.perform(rng.choice(possible))
        w.validate()
    return w


def until(w: World, done: Callable[[], bool], *, hold: Held = nothing_held, seed: int = 0) -> None:
    """Random steps until it is so; it has to come."""
    rng = random.Random(seed)
    while not done():
        possible = [step for step in w.steps() if not hold(step)]
        assert possible, f"it never comes\n{w.tale()}"
        w.perform(rng.choice(possible))
        w.validate()


def over(w: World) -> None:
    """Go on to the end, and check what must hold there."""
    run(w)
    w.finished()


def at(*nodes: Node) -> Held:
    return lambda step: step.at in nodes


def link(src: Node, dst: Node) -> Held:
    """Reading the link from one node to another."""
    return lambda step: step.kind == "deliver" and (step.peer, step.at) == (src, dst)


def logs(*nodes: Node) -> Held:
    """Reading the controller's log at these nodes."""
    return lambda step: step.kind == "log" and step.at in nodes


def heads(w: World, *kinds: type) -> Held:
    """Reading a message of these kinds."""

    def hold(step: Step) -> bool:
        line = w.links.get((step.peer, step.at), ())  # type: ignore[arg-type]
        return step.kind == "deliver" and isinstance(line[0], kinds)

    return hold


def either(*held: Held) -> Held:
    return lambda step: any(hold(step) for hold in held)


def under_way(w: World, src: Node, dst: Node) -> tuple[Message, ...]:
    return w.links.get((src, dst), ())


def kinds(w: World, src: Node, dst: Node) -> list[str]:
    return [type(message).__name__ for message in under_way(w, src, dst)]


def segment(w: World, node: Node) -> Segment:
    found = w.nodes[node]
    assert isinstance(found, Segment)
    return found


def outlet(w: World, node: Node, part: int = 0) -> Outlet:
    producer = w.nodes[node].boundary.producer
    assert producer is not None
    return producer.outlets[part]


def inlet(w: World, node: Node, part: int = 0) -> Inlet:
    consumer = w.nodes[node].boundary.consumer
    assert consumer is not None
    return consumer.inlets[part]


def window(w: World, node: Node) -> int:
    return segment(w, node).consumer.window


def lose(w: World, node: Node, *, seen_by: tuple[Node, ...] = ()) -> None:
    """Kill a copy, let the controller know, and let these nodes read of it."""
    w.kill(node)
    w.perform(Step("detect process", node))
    for reader in seen_by:
        read_log(w, reader)


def read_log(w: World, node: Node) -> None:
    """Let a node read all there is of the log."""
    while Step("log", node) in w.steps():
        w.perform(Step("log", node))


def life(node: Node, attempt: int) -> Node:
    return node._replace(life=attempt)
