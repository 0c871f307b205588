"""Hosts without sockets: whatever the order of frames, whichever site dies, the output holds."""

from __future__ import annotations

import dataclasses
import itertools
import random
from pathlib import Path
from typing import Any

import pytest

from flux_lab.example import events, running_example
from flux_lab.papers.copies import next_offset
from flux_lab.papers.host import Host
from flux_lab.papers.hosted import entry_hosted
from flux_lab.papers.intake import rebuilt_ingress
from flux_lab.papers.ledger import PapersLedger
from flux_lab.papers.protocol.channels import Envelope, Frame
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.messages import Ack, Avail, CatchUpStart, Csync, Data, Fail
from flux_lab.reference import reference
from flux_runtime.operators import processor_state
from flux_runtime.operators.state_file import PARTS, Restored, file_of, size_of
from flux_runtime.protocol.vocabulary import THE_INGRESS, Node, Pair, Shape
from flux_runtime.site import keeping
from flux_runtime.site.collector import Collector, collected
from flux_runtime.site.control_messages import notice_to_json
from flux_runtime.site.copies import LEADER
from flux_runtime.site.keeping import Keeping
from flux_runtime.site.ledger import Layout
from flux_runtime.site.snapshot import restore, snapshot
from flux_runtime.site.together import together

BATCHES, ROWS = 60, 16


class Cluster:
    """Hosts whose frames are carried one at a time, in an order that a seed decides."""

    def __init__(
        self,
        shape: Shape,
        *,
        sites: int,
        seed: int,
        begin_with: Path | None = None,
        remembering: bool = False,
    ) -> None:
        made = running_example(shape, remembering=remembering)
        if begin_with is not None:
            initial = made.operator
            made = dataclasses.replace(
                made,
                operator=lambda pair: Restored(initial(pair), file_of(begin_with, pair)),
            )
        self.dataflow = collected(made)
        self.random = random.Random(seed)
        self.ledger = PapersLedger(self.dataflow.shape, wanted=sites)
        self.ledger.apply({"e": "leader", "id": "l"})
        self.hosts = {LEADER: Host(self.dataflow, LEADER)}
        self.hosts[LEADER].host_end(THE_INGRESS, Ingress(self.dataflow))
        self.hosts[LEADER].host_end(self.dataflow.shape.egress, Egress(self.dataflow))
        for _ in range(sites):
            self.join()
        for host in self.hosts.values():
            host.lay_out(self.layout.placement)
        self.dead: set[int] = set()
        self.told = 0

    @property
    def layout(self) -> Layout:
        assert self.ledger.layout is not None
        return self.ledger.layout

    def join(self) -> None:
        number = self.ledger.joined
        shares = number % 2 == 0  # as sites without a disk do
        self.hosts[number] = Host(together(self.dataflow) if shares else self.dataflow, number)
        for other in self.hosts:
            self.hosts[other].connect(number)
            self.hosts[number].connect(other)
        if self.ledger.layout is not None:
            layout = self.layout
            self.hosts[number].lay_out(layout.placement, layout.lives, base=layout.at)
            for entry in self.ledger.entries:
                self.hosts[number].extend(entry)
        event = {"e": "joined", "id": str(number), "address": ["x", 1], "host": "h"}
        self.ledger.apply({**event, "executor": str(number % 3)})

    def fail(self, site: int) -> None:
        self.dead.add(site)
        del self.hosts[site]
        self.ledger.apply({"e": "failed", "site": site})

    def step(self) -> bool:
        busy = False
        for site in self.random.sample(sorted(self.hosts), len(self.hosts)):
            host = self.hosts[site]
            while host.position < self.ledger.position and self.random.random() < 0.8:
                host.extend(self.ledger.entries[host.position - self.ledger.base])
                busy = True
            host.trim(self.ledger.base)
            busy |= host.turn(0.0)
            for notice in host.take_notices():
                self.ledger.apply({"e": "noticed", "notice": notice_to_json(notice)})
                busy = True
            for active, standby, state in host.out.moves:
                target = self.hosts.get(host.where.get(standby, 99))
                if target is not None:
                    target.install(standby, state)
                host.moved(active, state.version)
                busy = True
            host.out.moves.clear()
            for peer, mux in host.peers.items():
                if peer == site or self.random.random() < 0.3:
                    busy |= bool(mux.outbox)
                    continue
                while (frame := mux.next_frame()) is not None:
                    busy = True
                    if peer in self.hosts:
                        self.hosts[peer].receive(site, frame)
        return busy or any(h.position < self.ledger.position for h in self.hosts.values())

    def tale(self) -> str:
        lines = [f"controller {getattr(self.ledger.controller, 'current', None)}"]
        for site, host in self.hosts.items():
            lines += [f"site {site}"] + [m.boundary.tale() for m in host.nodes.values()]
            lines += [f"ready {list(host.ready)}"]
            for peer, mux in host.peers.items():
                held = {
                    (str(d), str(s)): q for d, x in mux.inbox.items() for s, q in x.items() if q
                }
                lines.append(f"  from {peer}: {held} out {len(mux.outbox)}")
        return "\n".join(lines)

    def collectors(self) -> list[Collector]:
        pair = Pair(len(self.dataflow.shape.widths) - 1, 0)
        found = [m for h in self.hosts.values() for n, m in h.segments() if n.pair == pair]
        done = [m for m in found if m.status.name == "ACTIVE" and next_offset(m)[1]]
        return [m.operator for m in done if isinstance(m.operator, Collector)]


def seeds(count: int) -> list[Any]:
    """So many seeds: half of them are drawn by default, all of them before a change lands."""
    half = count // 2
    return [*range(half), *(pytest.param(n, marks=pytest.mark.slow) for n in range(half, count))]


@pytest.mark.parametrize("seed", seeds(8))
def test_a_site_dies_and_another_comes_at_any_moment_and_the_output_is_that_of_a_sequential_run(
    seed: int,
) -> None:
    draw = random.Random(seed)
    shape = Shape(
        widths=(3, 2),
        ack_every=draw.choice([1, 3]),
        in_hand=draw.choice([1, 4]),
        pool=draw.choice([16, 64]),
    )
    cluster = Cluster(shape, sites=4, seed=seed)
    batches = events(BATCHES, ROWS, keys=40, seed=seed)
    expected = dict(reference(running_example(shape), batches).output)
    kill_at = sorted(draw.sample(range(5, BATCHES), 2))
    ingress = cluster.hosts[LEADER].nodes[THE_INGRESS]
    assert isinstance(ingress, Ingress)
    fed, steps = 0, 0
    while True:
        steps += 1
        if fed < BATCHES and ingress.wants_input:
            cluster.hosts[LEADER].feed(batches[fed])
            fed += 1
        elif fed == BATCHES and ingress.wants_input:
            ingress.finish()
            cluster.hosts[LEADER].touch_all()
        whole = cluster.ledger.controller is not None and cluster.ledger.controller.is_whole
        if kill_at and fed >= kill_at[0] and whole:
            kill_at.pop(0)
            cluster.fail(draw.choice(sorted(set(cluster.hosts) - {LEADER})))
            cluster.join()
        busy = cluster.step()
        if not busy and fed == BATCHES and not ingress.wants_input and not kill_at:
            break
        assert steps < 20_000, cluster.tale()
    found = cluster.collectors()
    assert len(found) == 2, "both copies of the collector are whole again"
    for collector in found:
        got = dict(zip(collector.batches, collector.rows, strict=True))
        assert list(got) == list(expected)
        assert all(got[b].equals(expected[b]) for b in expected)
    assert cluster.ledger.losses == []


@pytest.mark.parametrize("seed", seeds(4))
def test_or_5_a_run_that_begins_with_kept_states_puts_out_what_the_one_before_would_have(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "BASE_MIN_BYTES", 0)
    monkeypatch.setattr(keeping, "PAUSE_RATIO", -1.0)
    monkeypatch.setattr(processor_state, "PART_BYTES", 500)
    shape = Shape(widths=(3, 2), ack_every=3, in_hand=4, pool=64)
    pairs = [Pair(stage, part) for stage, n in enumerate(shape.widths) for part in range(n)]
    draw = random.Random(seed)
    batches = events(BATCHES, ROWS, keys=40, seed=seed)
    expected = dict(reference(running_example(shape), batches).output)
    ends = [0, *sorted(draw.sample(range(1, BATCHES), 2)), BATCHES]
    got: dict[int, Any] = {}
    before: Path | None = None
    in_parts = 0
    for run, (first, end) in enumerate(itertools.pairwise(ends)):
        cluster = Cluster(shape, sites=4, seed=seed + run, begin_with=before, remembering=True)
        leader = cluster.hosts[LEADER]
        assert cluster.ledger.controller is not None
        ingress = rebuilt_ingress(
            cluster.dataflow, cluster.ledger.controller, {}, [], position=0, first=first
        )
        leader.host_end(THE_INGRESS, ingress)
        folder = tmp_path / str(run)
        kept = {n: Keeping(h, excluded=2) for n, h in cluster.hosts.items() if n != LEADER}
        at, failed = first, False
        beforehand = draw.randrange(first, end)
        for steps in itertools.count():
            assert steps < 20_000, cluster.tale()
            if at < end and ingress.wants_input:
                leader.feed(batches[at])
                at += 1
            elif at == end:
                for each in kept.values():
                    each.ask(end - 1, str(folder))
                at += 1
            if first < beforehand <= at < end:
                for each in kept.values():
                    each.ask(None, str(folder))
                    each.look()
            if not failed and at > (first + end) // 2:
                cluster.fail(gone := draw.choice(sorted(kept)))
                del kept[gone]
                failed = True
            busy = cluster.step()
            if at > end:
                for each in kept.values():
                    each.look()
                if not busy and size_of(folder, pairs) is not None:
                    break
        ingress.finish()
        leader.touch_all()
        while cluster.step():
            pass
        for number in kept:
            for node, segment in cluster.hosts[number].segments():
                if node.stage == 1:
                    begun = Restored(
                        cluster.dataflow.operator(node.pair), file_of(folder, node.pair)
                    )
                    assert begun.get_state()["by_key"] == segment.operator.get_state()["by_key"]
        in_parts += sum(file.read_bytes().startswith(PARTS) for file in folder.glob("1-?"))
        collector = cluster.collectors()[0]
        got |= zip(collector.batches, collector.rows, strict=True)
        before = folder
    assert list(got) == list(expected)
    assert all(got[b].equals(expected[b]) for b in expected)
    assert in_parts > 2
    for each in kept.values():  # the feeder has given up, and fed on
        each.ask(ends[-2] - 1, str(tmp_path / "late"))
        each.look()
    assert not (tmp_path / "late").exists()
    (tmp_path / "full").write_text("no folder")
    for number, each in kept.items():  # nothing can be written, and they go on
        reached = {s.complete() for _, s in cluster.hosts[number].segments()}
        each.ask(max(reached), str(tmp_path / "full"))
        assert "Error: " in each.look()
        assert not each.look(), "said once"


@pytest.mark.parametrize(("pool", "patient"), [(16, True), (15, False)])
def test_buf_c_units_wait_to_be_acknowledged_together_where_the_pool_has_room_for_them(
    pool: int, patient: bool
) -> None:
    shape = Shape(widths=(1,), ack_every=8, pool=pool, in_hand=8)
    dataflow = running_example(shape)
    source, site = Host(dataflow, LEADER), Host(dataflow, 0)
    ingress = Ingress(dataflow)
    source.host_end(THE_INGRESS, ingress)
    source.connect(0)
    site.connect(LEADER)
    everywhere = {
        (Pair(s, p), c): 0 for s, w in enumerate(shape.widths) for p in range(w) for c in (0, 1)
    }
    for host in (source, site):
        host.lay_out(everywhere)
    assert site.patient is patient
    source.feed(events(1, ROWS)[0])

    def carry(src: Host, dst: Host) -> None:
        while (frame := src.peers[dst.me].next_frame()) is not None:
            dst.receive(src.me, frame)

    def exchange() -> int:
        source.turn(60.0)
        carry(source, site)
        site.turn(60.0)
        carry(site, source)
        source.turn(60.0)
        return source.buffered()

    assert exchange() == (1 if patient else 0), "owed, and kept by the ingress"
    assert exchange() == 0, "acknowledged once nothing happens"


def test_buf_c_what_is_owed_while_the_state_moves_is_acknowledged_before_its_marker() -> None:
    """Else the ingress would send the new copy again what it has got with the state."""
    dataflow = running_example(Shape(widths=(1,), ack_every=8, pool=64, in_hand=8))
    pair = Pair(0, 0)
    leader, site = Host(dataflow, LEADER), Host(dataflow, 0)
    leader.host_end(THE_INGRESS, Ingress(dataflow))
    leader.host_end(dataflow.shape.egress, Egress(dataflow))
    for host in (leader, site):
        for other in {LEADER, 0, 1} - {host.me}:
            host.connect(other)
        host.lay_out({(pair, 0): 0, (pair, 1): 1})

    def carry() -> list[type]:
        """Everything that is under way arrives; gives what came to the ingress."""
        found = []
        for src, dst in ((leader, site), (site, leader)):
            while (frame := src.peers[dst.me].next_frame()) is not None:
                found += [type(e.message) for e in frame.envelopes if e.dst == THE_INGRESS]
                dst.receive(src.me, frame)
        return found

    failed, announced = entry_hosted(Fail(pair, 1, 1)), entry_hosted(Avail(pair, 1, 1), 1)
    for entry in (failed, announced):
        for host in (leader, site):
            host.extend(entry)
    for _ in range(4):
        leader.turn(60.0)
        carry()
        site.turn(60.0)
        carry()
    leader.feed(events(1, ROWS)[0])
    leader.turn(60.0)
    carry()
    site.turn(60.0)
    assert Ack not in carry(), "it is owed"
    for host in (leader, site):
        host.extend(entry_hosted(CatchUpStart(pair, 1)))
    site.turn(60.0)
    ((active, standby, state),) = site.out.moves
    assert standby == Node(*pair, 1, 1)
    for _ in range(3):  # the standby's site has not connected yet
        site.turn(60.0)
        assert Ack not in carry()
    site.moved(active, state.version)
    site.turn(60.0)
    told = carry()
    assert told.index(Ack) < told.index(Csync)


def test_buf_c_what_one_copy_of_a_site_owes_is_acknowledged_with_what_another_does() -> None:
    dataflow = running_example(Shape(widths=(2,), ack_every=8, pool=64, in_hand=8))
    site = Host(dataflow, 0, credits=8)
    site.connect(LEADER)
    site.lay_out({(Pair(0, p), c): 0 for p in range(2) for c in range(2)})
    copies = [node for node, _ in site.segments() if not node.copy]

    def acknowledged(units: list[tuple[Node, int]]) -> dict[Node, int]:
        said = [Envelope(THE_INGRESS, to, Data(n, events(1, ROWS)[0])) for to, n in units]
        site.receive(LEADER, Frame(tuple(said), ()))
        site.turn(60.0)
        frame = site.peers[LEADER].next_frame()
        sent = frame.envelopes if frame is not None else ()
        return {e.src: e.message.batch for e in sent if isinstance(e.message, Ack)}

    few = [(copies[0], n) for n in range(7)] + [(copies[1], 0)]
    assert acknowledged(few) == {}
    assert acknowledged([(copies[0], 7)]) == {copies[0]: 7, copies[1]: 0}


@pytest.mark.parametrize("seed", seeds(4))
def test_ct_1_sites_and_followers_go_on_from_a_trimmed_log(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flux_runtime.site.ledger.KEPT_ENTRIES", 20)
    draw = random.Random(seed)
    shape = Shape(widths=(3, 2), ack_every=3, pool=16, in_hand=4)
    cluster = Cluster(shape, sites=4, seed=seed)
    batches = events(BATCHES, ROWS, keys=40, seed=seed)
    expected = dict(reference(running_example(shape), batches).output)
    ingress = cluster.hosts[LEADER].nodes[THE_INGRESS]
    assert isinstance(ingress, Ingress)
    fed = steps = restored = 0
    while fed < BATCHES or cluster.step():
        steps += 1
        assert steps < 40_000, cluster.tale()
        if fed < BATCHES and ingress.wants_input:
            if fed % 6 == 5 and cluster.ledger.is_whole:
                other = PapersLedger(cluster.ledger.shape, wanted=4)
                restore(other, snapshot(cluster.ledger))
                assert snapshot(other) == snapshot(cluster.ledger)
                cluster.ledger = other  # as a follower that begins with what is kept
                restored += 1
                cluster.fail(draw.choice(sorted(set(cluster.hosts) - {LEADER})))
                cluster.join()
            elif fed % 6 == 5:
                cluster.step()
                continue
            cluster.hosts[LEADER].feed(batches[fed])
            fed += 1
        elif fed < BATCHES:
            cluster.step()
        if fed == BATCHES and ingress.wants_input:
            ingress.finish()
            cluster.hosts[LEADER].touch_all()
    assert restored == BATCHES // 6
    assert cluster.ledger.base > 0, "the log has been trimmed"
    assert all(host.base > 0 for host in cluster.hosts.values())
    assert all(len(host.log) < cluster.ledger.position for host in cluster.hosts.values())
    for collector in cluster.collectors():
        got = dict(zip(collector.batches, collector.rows, strict=True))
        assert list(got) == list(expected)
        assert all(got[b].equals(expected[b]) for b in expected)
    assert len(cluster.collectors()) == 2


def test_fs_26_after_a_loss_no_site_goes_on_with_half_a_copy() -> None:
    """What is promised after a loss is that results may be missing, and never wrong."""
    dataflow = collected(running_example(Shape(widths=(3, 2))))
    ledger = PapersLedger(dataflow.shape, wanted=4)
    for number in range(4):
        event = {"e": "joined", "id": str(number), "address": ["x", number], "host": "h"}
        ledger.apply(event | {"executor": str(number)})
    assert ledger.layout is not None
    pair = Pair(0, 0)
    (_, first, _), (_, second, _) = ledger.site_of(pair)
    ledger.apply({"e": "failed", "site": second, "why": ""})
    ((_, _, whole), (standby, target, half)) = ledger.site_of(pair)
    assert (whole, half) == (True, False), "a standby has been announced"
    host = Host(dataflow, target)
    host.lay_out(ledger.layout.placement, base=ledger.layout.at)
    for entry in ledger.entries:
        host.extend(entry)
    assert standby in host.nodes
    told = ledger.position
    ledger.apply({"e": "failed", "site": first, "why": ""})
    assert pair in {loss.pair for loss in ledger.losses}
    for entry in ledger.entries[told - ledger.base :]:
        host.extend(entry)
    assert ledger.site_of(pair) == []
    assert all(node.pair != pair for node in host.nodes), "it would wait for a state for ever"
    assert all(node.pair != pair for node in host.where)
