"""Partitions on disk: the front receives and acknowledges, the back catches up in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from flux_lab.memory_storage import MemoryStorage
from flux_lab.papers.protocol.back import RUN_UNITS
from flux_lab.papers.protocol.segment import Segment
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import Step, World
from flux_runtime.protocol.spill import Storage
from flux_runtime.protocol.vocabulary import Node, ProtocolError, Shape
from flux_runtime.site.spilling import FileStorage

AP, AS, BP, BS = (Node(stage, 0, copy, 0) for stage in (0, 1) for copy in (0, 1))
BATCHES = 3 * RUN_UNITS


def world(*, widths: tuple[int, ...] = (1, 1), spares: int = 0, pool: int = 8) -> World:
    shape = Shape(widths=widths, pool=pool)
    return World(
        digest_dataflow(shape),
        digest_input(BATCHES, rows=2, keys=6),
        sites=2,
        spares=spares,
    )


def run(w: World, *, until: Callable[[], bool] = lambda: False, keep: tuple[Node, ...] = ()) -> int:
    """Steps in random order; nodes in `keep` stay on disk. Gives how many steps there were."""
    rng = random.Random(1)
    n = 0
    while not until():
        steps = [s for s in w.steps() if not (s.kind == "activate" and s.at in keep)]
        if not steps:
            break
        w.perform(rng.choice(steps))
        n += 1
    return n


def segment(w: World, node: Node) -> Segment:
    found = w.nodes[node]
    assert isinstance(found, Segment)
    return found


def evict(w: World, *nodes: Node) -> None:
    for node in nodes:
        w.perform(Step("evict", node))


@pytest.mark.parametrize("copies", [(AP, AS), (BP, BS)])
def test_sp_3_input_of_a_partition_on_disk_is_received_acknowledged_and_kept(
    copies: tuple[Node, ...],
) -> None:
    w = world()
    evict(w, *copies)
    run(w, keep=copies)
    for node in copies:
        held = segment(w, node)
        assert not held.back.resident
        assert len(held.back.snapshot()[1]) == BATCHES  # more than the pool and the links hold
        assert len(held.back.runs) == BATCHES // RUN_UNITS
    producers = [w.nodes[Node(-1, 0, 0, 0)]] if copies[0].stage == 0 else [w.nodes[AP], w.nodes[AS]]
    for machine in producers:
        producer = machine.boundary.producer
        assert producer is not None
        assert not producer.outlets[0].buffer.entries  # acknowledged: nothing is stuck upstream
    run(w)
    w.finished()


def test_one_copy_on_disk_holds_up_the_other_by_no_more_than_the_pool() -> None:
    """Two copies drift apart by a pool at most, whatever the reason (section 3.4)."""
    w = world()
    evict(w, AP)
    run(w, keep=(AP,))
    waiting = len(segment(w, AP).back.snapshot()[1])
    assert 8 <= waiting < BATCHES
    run(w)
    w.finished()


def test_det_4_results_do_not_depend_on_memory() -> None:
    """All copies are on disk by turns; the checkers compare every unit with a plain run."""
    w = world(widths=(2, 2))
    rng = random.Random(5)
    evicted = 0
    while steps := w.steps():
        w.perform(rng.choice(steps))
        if rng.random() < 0.1:
            evict(w, rng.choice(list(w.site)))
            evicted += 1
    w.finished()
    assert evicted > 50
    storages = [m.back.storage for m in w.nodes.values() if isinstance(m, Segment)]
    assert all(isinstance(s, MemoryStorage) and s.written and not s.runs for s in storages)


def test_xm_2_progress_stays_behind_what_waits() -> None:
    w = world(widths=(2, 2))
    slow = Node(0, 0, 0, 0)
    evict(w, slow)
    run(w, keep=(slow,))
    held = segment(w, slow)
    assert held.back.waiting
    assert held.producer.progress < held.back.first_batch <= BATCHES
    run(w)
    w.finished()


def test_4_4_what_waits_on_disk_travels_with_the_state() -> None:
    w = world(spares=1)
    run(w, until=lambda: w.position > 4)
    evict(w, AS)
    run(w, keep=(AS,), until=lambda: bool(segment(w, AS).back.runs))
    w.kill(AP)
    run(w, keep=(AS,), until=lambda: bool(w.moves))
    ((_, state),) = w.moves.values()
    assert state.waiting
    assert state.waiting == segment(w, AS).back.snapshot()[1]
    assert segment(w, AS).size() > segment(w, AS).back.state_run.size > 0
    run(w, keep=(AS,), until=lambda: w.controller.is_whole)
    w.kill(AS)  # only the new copy knows now what waited
    run(w)
    w.finished()
    assert not w.controller.losses


def test_a_state_on_disk_can_be_moved_while_it_stays_there() -> None:
    w = world(spares=1)
    run(w, until=lambda: w.position > 10)
    evict(w, BS)
    w.kill(BP)
    run(w, keep=(BS,))
    assert not segment(w, BS).back.resident
    assert w.controller.is_whole
    run(w)
    w.finished()


def test_a_segment_without_storage_says_so() -> None:
    plain = Segment(digest_dataflow(Shape(widths=(1,))), AP)
    with pytest.raises(ProtocolError, match="no storage"):
        plain.evict()


@pytest.mark.parametrize("kind", ["memory", "files"])
def test_storages_keep_runs_until_they_are_dropped(kind: str, tmp_path: Path) -> None:
    storage: Storage = MemoryStorage() if kind == "memory" else FileStorage(tmp_path / "spill")
    storage.write(AP, 0, b"state")
    storage.write(AP, 1, b"run")
    storage.write(AS, 0, b"other")
    assert [storage.read(AP, 0), storage.read(AP, 1), storage.read(AS, 0)] == [
        b"state",
        b"run",
        b"other",
    ]
    storage.drop(AP, 0)
    with pytest.raises((KeyError, FileNotFoundError)):
        storage.read(AP, 0)
    assert storage.read(AS, 0) == b"other"


def test_files_of_an_earlier_process_are_not_taken_for_its_own(tmp_path: Path) -> None:
    FileStorage(tmp_path).write(AP, 0, b"old")
    with pytest.raises(FileNotFoundError):
        FileStorage(tmp_path).read(AP, 0)
