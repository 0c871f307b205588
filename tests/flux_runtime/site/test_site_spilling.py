"""A site's disk: limits, what is left of killed processes, and which partitions stay in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flux_lab.example import events, running_example
from flux_lab.papers.copies import next_offset
from flux_lab.papers.host import Host
from flux_lab.papers.protocol.back import Back
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.segment import Segment
from flux_lab.reference import reference
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Shape
from flux_runtime.site.collector import Collector, collected
from flux_runtime.site.config import SpillTo
from flux_runtime.site.copies import LEADER
from flux_runtime.site.spilling import SiteStorage, Spilling

NODE, OTHER = Node(0, 0, 0, 0), Node(0, 1, 0, 0)


def test_sp_3_a_run_beyond_the_disks_limit_stays_in_memory(tmp_path: Path) -> None:
    storage = SiteStorage(tmp_path, max_bytes=100)
    large = storage.write(NODE, 0, b"a" * 60)
    storage.write(NODE, 1, b"b" * 60)
    small = storage.write(OTHER, 0, b"c" * 10)
    assert storage.bytes == large + small <= 100 < 2 * large
    assert list(storage.held) == [(NODE, 1)]
    assert storage.read(NODE, 1) == b"b" * 60
    storage.drop(NODE, 0)
    assert storage.room(large)
    storage.forget(NODE)
    assert not storage.held
    assert storage.bytes == small
    storage.close()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_cannot_be_written_keeps_runs_in_memory(tmp_path: Path) -> None:
    storage = SiteStorage(tmp_path)
    storage.folder.rmdir()
    storage.write(NODE, 0, b"a")
    assert storage.read(NODE, 0) == b"a"
    assert storage.bytes == 0


def test_what_a_killed_process_has_left_is_swept_and_what_a_live_one_has_is_not(
    tmp_path: Path,
) -> None:
    program = (
        "import os, sys; from pathlib import Path; "
        "from flux_runtime.site.spilling import SiteStorage; "
        f"s = SiteStorage(Path({str(tmp_path)!r})); "
        "(s.folder / 'x.run').write_bytes(b'x'); "
        "sys.stdout.close(); os.kill(os.getpid(), 9)"
    )
    mine = SiteStorage(tmp_path)
    path = os.pathsep.join(["", str(Path(__file__).parents[3])])
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", program], env=environment, check=False, timeout=60)
    assert len(list(tmp_path.glob("*.lock"))) == 2
    other = SiteStorage(tmp_path)
    assert sorted(tmp_path.glob("*.lock")) == sorted(
        storage.folder.with_suffix(".lock") for storage in (mine, other)
    )
    assert mine.folder.is_dir()
    for storage in (mine, other):
        storage.close()


def without_memory(folder: Path, *, partitions: int, clock: Callable[[], float]) -> Spilling:
    """One site with all partitions of one stage and their collector, and no memory for states."""
    dataflow = collected(running_example(Shape(widths=(partitions,), copies=1)))
    host = Host(dataflow, 0, storage=SiteStorage(folder))
    host.lay_out({(pair, 0): 0 for pair in dataflow.shape.pairs()})
    to = SpillTo(folder=folder, memory_bytes=0, gap_s=1.0)
    return Spilling(host, to, excluded=1, clock=clock)


def test_sp_2_partitions_take_turns_and_the_collector_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    spilling = without_memory(tmp_path, partitions=3, clock=lambda: now)
    host = spilling.host
    monkeypatch.setattr(Back, "state_size", lambda _: 5000)
    monkeypatch.setattr(Back, "waiting", property(lambda self: not self.resident))

    def resident() -> list[Node]:
        return [node for node, segment in host.segments() if segment.back.resident]

    def step() -> None:
        nonlocal now
        now += 2.0
        while spilling.due():
            pass

    step()
    assert all(node.stage == 1 for node in resident())
    turns = []
    for _ in range(4):
        step()
        (turn,) = [node for node in resident() if node.stage == 0]
        turns.append(turn.part)
    assert turns == [0, 1, 2, 0], "one that is larger than all of memory is in memory alone"
    spilling.lend(None)
    for _ in range(3):
        step()
    assert len(resident()) == 4
    spilling.storage.close()


@pytest.mark.parametrize("can_work", [True, False])
def test_sp_4_a_partition_that_is_behind_keeps_its_turn_only_while_it_can_work(
    can_work: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    spilling = without_memory(tmp_path, partitions=2, clock=lambda: now)
    host = spilling.host
    monkeypatch.setattr(Back, "state_size", lambda _: 5000)
    monkeypatch.setattr(Back, "waiting", True)
    monkeypatch.setattr(Segment, "can_work", lambda _: can_work)
    turns = []
    for _ in range(6):
        now += 2.0
        while spilling.due():
            pass
        turns += [n.part for n, s in host.segments() if s.back.resident and n.stage == 0]
    assert len(set(turns)) == (1 if can_work else 2)
    spilling.storage.close()


@pytest.mark.parametrize("lifted", [False, True], ids=["to the end", "until memory is given back"])
@pytest.mark.parametrize("pool", [1, 16])
def test_sp_4_whoever_has_its_turn_nobody_waits_for_ever(
    pool: int, lifted: bool, tmp_path: Path
) -> None:
    """One partition at a time, buffers that are soon full, and a merge that needs all of them."""
    shape = Shape(widths=(4, 2), copies=1, ack_every=1, in_hand=1, pool=pool)
    dataflow = collected(running_example(shape))
    batches = events(120, 8, keys=40, seed=pool)
    expected = reference(running_example(shape), batches).output
    source, site = Host(dataflow, LEADER), Host(dataflow, 0, storage=SiteStorage(tmp_path))
    ingress = Ingress(dataflow)
    source.host_end(THE_INGRESS, ingress)
    source.host_end(dataflow.shape.egress, Egress(dataflow))
    source.connect(0)
    site.connect(LEADER)
    for host in (source, site):
        host.lay_out({(pair, 0): 0 for pair in dataflow.shape.pairs()})
    now = 0.0
    to = SpillTo(folder=tmp_path, memory_bytes=0, gap_s=1.0)
    spilling = Spilling(site, to, excluded=2, clock=lambda: now)
    (collector,) = [segment for node, segment in site.segments() if node.stage == 2]
    fed = steps = 0
    while not next_offset(collector)[1]:
        steps += 1
        assert steps < 5000, [m.boundary.tale() for m in site.nodes.values()]
        now += 0.3
        while fed < len(batches) and ingress.wants_input:
            source.feed(batches[fed])
            fed += 1
        if fed == len(batches) and ingress.wants_input:
            ingress.finish()
            source.touch_all()
            if lifted:
                spilling.lend(None)
        while spilling.due():
            pass
        for here, there in ((source, site), (site, source)):
            here.turn(60.0)
            while (frame := here.peers[there.me].next_frame()) is not None:
                there.receive(here.me, frame)
    assert spilling.activations > 0
    assert isinstance(collector.operator, Collector)
    found = dict(zip(collector.operator.batches, collector.operator.rows, strict=True))
    assert list(found) == [batch for batch, _ in expected]
    assert all(found[batch].equals(rows) for batch, rows in expected)
    spilling.storage.close()
