"""The named scenarios of catch-up (FS-6, 7, 14 to 17, 19, 21, 22, 24, 27), with what each expects.

`test_flux_scenarios_can_fail` shows that each of them fails when a rule is taken out.
"""

from __future__ import annotations

from typing import Any

import pytest
from flux_scenes import (
    AP,
    AS,
    BP,
    BS,
    INGRESS,
    at,
    either,
    heads,
    inlet,
    kinds,
    life,
    link,
    logs,
    lose,
    outlet,
    over,
    read_log,
    run,
    segment,
    under_way,
    until,
    window,
    world,
)

from flux_lab.papers.protocol.messages import Csync, Data, Pause, Psync
from flux_lab.reaction import Machine
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import (
    ACK,
    MARK_PRIM,
    MARK_SEC,
    PAUSED,
    PRIM,
    PROD,
    RECV,
    SEC,
    SEND,
    Node,
    Shape,
    Status,
)

BOTH = PROD | MARK_PRIM | MARK_SEC


@pytest.mark.parametrize("dead", [AP, AS])
@pytest.mark.parametrize("csync", ["active first", "standby first"])
@pytest.mark.parametrize("psync", ["active first", "standby first"])
@pytest.mark.parametrize("ack_every", [1, 3])
def test_fs_6_links_start_at_the_second_marker(
    dead: Node, csync: str, psync: str, ack_every: int
) -> None:
    """And the egress pauses only if the active copy's marker comes first."""
    w = world(Shape(widths=(1,), ack_every=ack_every), batches=12, spares=1)
    egress = w.dataflow.shape.egress
    run(w, steps=30)
    active, standby = AP if dead == AS else AS, life(dead, 1)
    lose(w, dead)
    markers = heads(w, Csync, Psync)
    run(w, hold=either(markers, lambda step: step.kind == "source"))
    ends = [(active, INGRESS), (standby, INGRESS), (active, egress), (standby, egress)]
    assert all(isinstance(under_way(w, *end)[0], Csync | Psync) for end in ends)

    to, (first, second) = outlet(w, INGRESS), pick(csync, active, standby)
    w.perform(Step("deliver", INGRESS, first))
    assert to.conn[dead.copy] == 0
    w.perform(Step("deliver", INGRESS, second))
    assert to.conn[dead.copy] == SEND | ACK
    assert to.evict == BOTH

    of, (first, second) = inlet(w, egress), pick(psync, active, standby)
    w.perform(Step("deliver", egress, first))
    assert of.conn[active.copy] == (PAUSED if first == active else RECV)
    assert of.conn[dead.copy] == 0
    w.perform(Step("deliver", egress, second))
    assert (of.conn[active.copy], of.conn[dead.copy]) == (RECV, ACK)
    over(w)
    assert w.controller.is_whole


def pick(order: str, active: Node, standby: Node) -> tuple[Node, Node]:
    return (active, standby) if order == "active first" else (standby, active)


@pytest.mark.parametrize("seed", range(4))
def test_fs_7_the_new_copy_gets_what_was_not_acknowledged_at_csync(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    w = world(Shape(widths=(1,)), batches=20, spares=1)
    run(w, steps=25, seed=seed)
    lose(w, AS)
    new = life(AS, 1)
    until(w, lambda: bool(w.moves), seed=seed)
    run(w, hold=at(AP, new), seed=seed)  # input piles up in flight to the copy that moves
    assert kinds(w, INGRESS, AP).count("Data") == 2
    until(w, lambda: "Csync" in kinds(w, AP, INGRESS)[:1], hold=heads(w, Csync), seed=seed)
    unacknowledged = list(outlet(w, INGRESS).buffer.entries)
    got: list[int] = []
    received = w.checks.received

    def note(machine: Machine, src: Node, unit: Data) -> None:
        if machine.boundary.node == new:
            got.append(unit.batch)
        received(machine, src, unit)

    monkeypatch.setattr(w.checks, "received", note)
    over(w)
    assert unacknowledged
    assert got == list(range(unacknowledged[0], 20))


@pytest.mark.parametrize("ack_every", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_fs_14_the_primary_producer_dies_while_its_consumer_pauses(
    ack_every: int, seed: int
) -> None:
    """Its pause-ack is not waited for; the reverse follows the csync; drained tuples travel."""
    shape = Shape(widths=(2, 1), ack_every=ack_every, pool=16)
    w = world(shape, batches=30, spares=2)
    late = Node(0, 0, 0, 0)
    run(w, steps=60, seed=seed)
    lose(w, BS)
    until(w, lambda: window(w, BP) > 0, seed=seed)
    pause = link(BP, late)
    until(w, lambda: inlet(w, BP, 1).conn[PRIM] == PAUSED, hold=pause, seed=seed)
    run(w, hold=either(pause, lambda step: step.kind == "detect process"), seed=seed)
    drained = [unit.batch for unit in inlet(w, BP).queue]
    assert len(drained) > shape.in_hand
    assert not w.moves
    lose(w, late, seen_by=(BP,))
    assert life(BS, 1) in w.moves, "it goes on without the pause-ack of the dead"
    state = w.moves[life(BS, 1)][1]
    assert [unit.batch for unit in state.consumer.inlets[0].queue] == drained
    survivor = Node(0, 0, 1, 0)
    assert "Reverse" not in kinds(w, BP, survivor)
    before = len(under_way(w, BP, survivor))
    w.perform(Step("moved", BP))
    sent = [kind for kind in kinds(w, BP, survivor)[before:] if kind != "Ack"]
    assert sent == ["Csync", "Reverse"]
    over(w)
    assert w.controller.is_whole


@pytest.mark.parametrize("when", ["pausing", "moving"])
def test_fs_15_the_secondary_producer_dies_while_its_consumer_pauses_or_moves(when: str) -> None:
    """The new copy owes the reverse; the surviving producer serves it once both markers are in."""
    w = world(Shape(widths=(1, 1)), batches=30, spares=2)
    new = life(BS, 1)
    run(w, steps=40)
    lose(w, BS)
    if when == "pausing":
        until(w, lambda: window(w, BP) > 0)
        lose(w, AS, seen_by=(BP,))
        assert not w.moves
        until(w, lambda: bool(w.moves))
    else:
        until(w, lambda: bool(w.moves))
        lose(w, AS)
    read_log(w, AP)
    w.perform(Step("install", new))
    read_log(w, new)
    assert kinds(w, new, AP) == ["Csync", "Reverse"]
    survivor = outlet(w, AP)
    for _ in range(2):
        w.perform(Step("deliver", AP, new))
    assert survivor.rev_wait
    assert not survivor.conn[SEC] & SEND
    until(w, lambda: survivor.between_markers() is False)
    assert survivor.conn[SEC] == SEND
    assert not survivor.rev_wait
    over(w)
    assert w.controller.is_whole


# ---- FS-16, FS-17: the standby dies at every point

PHASES = ("before the move", "while pausing", "under way", "before any marker", "between markers")


def phase(w: World, active: Node, standby: Node) -> str:
    """Where the first attempt to bring up the standby is."""
    neighbours = [n for n in w.nodes if abs(n.stage - standby.stage) == 1]
    if standby in w.moves:
        return PHASES[2]
    if segment(w, standby).status is Status.STANDBY:
        return PHASES[1] if window(w, active) else PHASES[0]
    sides = [
        side.ver[label] == 1
        for n in neighbours
        for side in (w.nodes[n].boundary.inlet(standby), w.nodes[n].boundary.outlet(standby))
        if side is not None
        for label in (PRIM, SEC)
    ]
    return PHASES[3] if not any(sides) else PHASES[4]


def standby_dies_everywhere(shape: Shape, dead: Node, *, slow_logs: bool, seed: int) -> set[str]:
    """One run per step of the catch-up: the standby dies after that step."""
    seen: set[str] = set()
    active, standby = dead._replace(copy=1 - dead.copy), life(dead, 1)
    for point in range(1000):
        w = world(shape, batches=6, spares=2)
        run(w, steps=20, seed=seed)
        lose(w, dead)
        run(w, steps=point, seed=seed)
        copy = w.controller.pairs[dead.pair].copies[dead.copy]
        assert copy is not None
        if copy.status is Status.ACTIVE:
            break
        seen.add(phase(w, active, standby))
        lose(w, standby)
        if slow_logs:
            near = [n for n in w.nodes if abs(n.stage - dead.stage) == 1]
            run(w, hold=logs(*near), seed=seed)
        over(w)
        assert w.controller.is_whole
        assert w.controller.pairs[dead.pair].attempts == 2
        assert {c.version for c in copies(w, dead)} == {2}
    return seen


def copies(w: World, node: Node) -> list[Any]:
    return [segment(w, n) for n in w.site if n.pair == node.pair]


EVERYWHERE = [(Shape(widths=(1,)), AP), (Shape(widths=(1, 1)), AS), (Shape(widths=(1, 1)), BS)]


@pytest.mark.parametrize(("shape", "dead"), EVERYWHERE, ids=["pair", "producer", "consumer"])
@pytest.mark.parametrize("seed", range(2))
def test_fs_16_a_standby_that_dies_at_any_point_is_replaced(
    shape: Shape, dead: Node, seed: int
) -> None:
    seen = standby_dies_everywhere(shape, dead, slow_logs=False, seed=seed)
    pauses = {PHASES[1]} if dead.stage > 0 else set()
    assert seen >= {PHASES[0], PHASES[2], PHASES[4]} | pauses


@pytest.mark.parametrize(("shape", "dead"), EVERYWHERE, ids=["pair", "producer", "consumer"])
@pytest.mark.parametrize("seed", range(2))
def test_fs_17_and_neighbours_may_hear_of_it_late(shape: Shape, dead: Node, seed: int) -> None:
    assert standby_dies_everywhere(shape, dead, slow_logs=True, seed=seed)


def test_fs_17_a_marker_that_overtakes_the_announcement_waits_for_it() -> None:
    """AB-2."""
    w = world(Shape(widths=(1, 1)), spares=1)
    run(w, steps=30)
    lose(w, BS)
    slow = logs(AP, AS)
    until(w, lambda: "Csync" in kinds(w, BP, AS)[:1], hold=either(slow, heads(w, Csync)))
    assert Step("deliver", AS, BP) not in w.steps()
    read_log(w, AS)
    assert Step("deliver", AS, BP) in w.steps()
    over(w)
    assert w.controller.is_whole


def test_fs_17_a_marker_of_an_abandoned_attempt_only_lifts_the_pause() -> None:
    """AB-3: the second announcement comes before the first attempt's marker."""
    w = world(Shape(widths=(1, 1)), batches=16, spares=2)
    run(w, steps=30)
    lose(w, BS)
    until(w, lambda: bool(w.moves))
    assert outlet(w, AP).conn[PRIM] == PAUSED
    lose(w, life(BS, 1), seen_by=(AP, AS))
    until(w, lambda: "Csync" in kinds(w, BP, AP), hold=either(link(BP, AP), link(BP, AS)))
    read_log(w, AP)
    assert outlet(w, AP).exp == 2
    while kinds(w, BP, AP)[0] != "Csync":
        w.perform(Step("deliver", AP, BP))
    w.perform(Step("deliver", AP, BP))
    assert outlet(w, AP).conn[PRIM] == SEND
    assert outlet(w, AP).evict == PROD | MARK_PRIM
    assert outlet(w, AP).ver == [0, 0]
    over(w)
    assert w.controller.pairs[BP.pair].attempts == 2


# ---- FS-19, FS-21: trouble downstream of the pair that catches up

DOWNSTREAM = {
    "case 2": ((AS,), ([SEND, ACK], BOTH), ([SEND, ACK], BOTH)),
    "case 3": ((BS, AS), ([SEND, 0], PROD | MARK_PRIM), ([0, ACK], PROD | MARK_SEC)),
    "case 4": ((BP, AS), ([0, ACK], PROD | MARK_SEC), ([SEND, 0], PROD | MARK_PRIM)),
}


@pytest.mark.parametrize("case", DOWNSTREAM)
@pytest.mark.parametrize("seed", range(4))
def test_fs_19_catch_up_with_the_consumers_in_a_survival_case(case: str, seed: int) -> None:
    """The copy that moved turns to acknowledgements (CU-20); the new one has all of it mirrored."""
    dead, old, mirrored = DOWNSTREAM[case]
    w = world(Shape(widths=(1, 1)), batches=24, spares=2)
    run(w, steps=40, seed=seed)
    for node in dead:
        lose(w, node)
    new = life(AS, 1)
    until(w, lambda: new in w.moves, hold=lambda step: step.kind == "install", seed=seed)
    assert outlet(w, AP).conn[SEC] != ACK or case != "case 2"
    if AP in w.moved:
        w.perform(Step("moved", AP))
    if new in w.moves:
        w.perform(Step("install", new))
    assert (outlet(w, AP).conn, outlet(w, AP).evict) == old
    assert (outlet(w, new).conn, outlet(w, new).evict) == mirrored
    over(w)
    assert w.controller.is_whole


@pytest.mark.parametrize("dead", [BP, BS])
def test_fs_21_a_consumer_that_fails_during_the_move_is_found_in_the_log(dead: Node) -> None:
    """AB-9: the new copy reads on where the copy that moved had come to."""
    w = world(Shape(widths=(1, 1)), batches=24, spares=2)
    run(w, steps=40)
    lose(w, AS)
    new = life(AS, 1)
    until(w, lambda: new in w.moves)
    assert segment(w, AP).status is Status.PAUSE
    lose(w, dead, seen_by=(AP,))
    old_label, label = dead.copy, 1 - dead.copy  # PRIM of the one is SEC of the other
    assert outlet(w, AP).status[old_label] is Status.DEAD, "control messages reach it (AMB-29)"
    w.perform(Step("install", new))
    assert outlet(w, new).status[label] is Status.ACTIVE, "the state is from before"
    read_log(w, new)
    assert outlet(w, new).status[label] is not Status.ACTIVE
    assert outlet(w, new).conn[label] == 0
    over(w)
    assert w.controller.is_whole


# ---- FS-22, FS-24


@pytest.mark.parametrize("seed", range(4))
def test_fs_22_late_data_of_the_dead_is_discarded(seed: int) -> None:
    w = world(Shape(widths=(1, 1)), batches=16, spares=1)
    run(w, steps=40, seed=seed)
    until(w, lambda: "Data" in kinds(w, AP, BP), hold=link(AP, BP), seed=seed)
    before = inlet(w, BP).hi
    lose(w, AP, seen_by=(BP,))
    assert "Reverse" in kinds(w, BP, AS)
    while under_way(w, AP, BP):
        w.perform(Step("deliver", BP, AP))
    assert inlet(w, BP).hi == before
    over(w)
    assert w.controller.is_whole


@pytest.mark.parametrize("seed", range(4))
def test_fs_24_pause_acks_may_come_at_very_different_times(seed: int) -> None:
    """CU-14: the consumer drains its links although the merge waits for a paused producer."""
    shape = Shape(widths=(3, 1), pool=6)
    w = world(shape, batches=40, spares=1)
    run(w, steps=60, seed=seed)
    lose(w, BS)
    until(w, lambda: window(w, BP) > 0, seed=seed)
    late = Node(0, 0, 0, 0)
    run(w, hold=lambda step: link(BP, late)(step) and heads(w, Pause)(step), seed=seed)
    assert [inlet(w, BP, j).conn[PRIM] for j in range(3)] == [RECV, PAUSED, PAUSED]
    assert len(inlet(w, BP).queue) > shape.in_hand
    over(w)
    assert w.controller.is_whole
