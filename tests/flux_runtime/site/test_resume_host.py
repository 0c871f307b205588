"""Hosts of the resume protocol without sockets, in any order of bytes, whichever site dies."""

from __future__ import annotations

import dataclasses
import random
from typing import Any

import pytest

from flux_lab.checks import contents
from flux_lab.example import events, running_example
from flux_lab.reference import reference
from flux_runtime.operators.packing import pack
from flux_runtime.operators.partitioned import Partitioned
from flux_runtime.protocol.vocabulary import END, Node, ProtocolError, Shape
from flux_runtime.resume.controller import Controller
from flux_runtime.resume.flow import Flow, Units
from flux_runtime.resume.messages import (
    Ack,
    Avail,
    Copy,
    Frame,
    LogEntry,
    Notice,
    Resume,
    Snapshot,
    Start,
    UnitRow,
)
from flux_runtime.resume.replica import Replica
from flux_runtime.resume.site import Site
from flux_runtime.site import codec, moving, resume_host
from flux_runtime.site.codec import RowsDecoder, RowsEncoder
from flux_runtime.site.collector import collected
from flux_runtime.site.copies import LEADER
from flux_runtime.site.moving import OnLink
from flux_runtime.site.resume_host import AHEAD_MAX, SNAPSHOT, ResumeHost, Snapshots
from flux_runtime.site.together import Part, together
from flux_runtime.site.units import POSITION_MAX, put_units
from flux_runtime.site.wire import LENGTH, Bundles, Kind, Malformed, bundle_length, frames

BATCHES, ROWS, SITES = 40, 8, 4


class End:
    """One end of a connection: codecs, states, and what is on its way to the other end."""

    def __init__(self) -> None:
        self.encoder, self.decoder = RowsEncoder({}), RowsDecoder()
        self.states, self.out, self.sent = OnLink(), Bundles(), bytearray()


class Cluster:
    """Hosts, a controller and a source; everything comes in an order that a seed decides."""

    STEPS = 20_000

    def __init__(self, seed: int) -> None:
        self.random = draw = random.Random(seed)
        dataflow = running_example(Shape(widths=(3, 2)), slide=1, remembering=draw.random() < 0.5)
        self.batches = events(BATCHES, ROWS, keys=7, seed=seed)
        due = reference(dataflow, self.batches)
        self.units = {
            (*pairs, batch): contents(rows)
            for pairs, units in due.units.items()
            for batch, rows in units.items()
        }
        self.output = [(batch, contents(rows)) for batch, rows in due.output]
        self.flow = self.flow_of(collected(dataflow), draw.choice((2, 4, 8)))
        self.hosts: dict[int, ResumeHost] = {}
        self.states: dict[int, Snapshots] = {}
        self.ends: dict[tuple[int, int], End] = {}
        self.log: list[LogEntry] = []
        self.number = 0
        self.fed = self.trimmed = 0
        self.offset = 0
        self.results: list[tuple[int, Any]] = []
        for _ in range(SITES):
            self.join()
        self.lead()

    @staticmethod
    def flow_of(dataflow: Any, window: int) -> Flow:
        return Flow(dataflow=dataflow, collects=True, window=window, ack_every=2)

    # ---- sites

    def host(self, number: int) -> None:
        shares = number % 2 == 0
        dataflow = together(self.flow.dataflow) if shares else self.flow.dataflow
        flow = self.flow_of(dataflow, self.flow.window)
        self.hosts[number] = host = ResumeHost(flow, number, clock=self.random.random)
        self.states[number] = Snapshots(host)
        for other in self.hosts:
            if other != number:
                self.hosts[other].connect(number)
                host.connect(other)
                self.link(number, other)

    def link(self, one: int, other: int) -> None:
        self.ends[one, other], self.ends[other, one] = End(), End()
        self.hosts[one].reconnect(other)
        self.hosts[other].reconnect(one)

    def join(self) -> int:
        number, self.number = self.number, self.number + 1
        self.host(number)
        return number

    def gone(self, number: int) -> None:
        del self.hosts[number], self.states[number]
        for ends in [ends for ends in self.ends if number in ends]:
            del self.ends[ends]
        for host in self.hosts.values():
            host.disconnect(number)

    def lead(self) -> None:
        """RS-21, RS-23: another process leads; its ingress begins behind what all have."""
        if LEADER in self.hosts:
            self.gone(LEADER)
        self.host(LEADER)
        sites = [number for number in self.hosts if number != LEADER]
        self.controller = Controller(self.flow, self.log, sites, LEADER)
        for number in sites:
            for notice in self.hosts[number].site.standing():
                self.controller.notice(notice)
        leader = self.hosts[LEADER]
        while leader.position < len(self.log):
            leader.extend(self.log[leader.position])
        self.fed = self.trimmed
        leader.begin(self.fed)

    # ---- steps

    def step(self) -> None:
        for number in self.random.sample(sorted(self.hosts), len(self.hosts)):
            host = self.hosts[number]
            while host.position < len(self.log) and self.random.random() < 0.7:
                host.extend(self.log[host.position])
            if number == LEADER:
                self.feed(host)
            host.turn(self.random.choice((0.0, 10.0)))
            for notice in host.take_notices():
                self.controller.notice(notice)
            self.write(number, host)
        self.deliver()
        self.read()
        self.check()

    def feed(self, host: ResumeHost) -> None:
        while host.wants_input and self.fed < BATCHES and self.random.random() < 0.8:
            host.feed(self.batches[self.fed])
            self.fed += 1
        self.trimmed = max(self.trimmed, min(self.fed, host.site.low[-1]))

    def write(self, number: int, host: ResumeHost) -> None:
        ends = {there: end for (here, there), end in self.ends.items() if here == number}
        self.states[number].ship({there: end.states for there, end in ends.items()})
        for there, end in ends.items():
            if (piece := end.states.next_piece()) is not None:
                kind, parts = piece
                end.out.add(kind, *parts)
            host.put(there, end.encoder, end.out)
            end.sent += b"".join(map(bytes, end.out.take()))

    def deliver(self) -> None:
        for here, there in self.random.sample(sorted(self.ends), len(self.ends)):
            end, receiver = self.ends[here, there], self.ends[there, here]
            while end.sent and self.random.random() < 0.7:
                length = LENGTH.size + bundle_length(end.sent)
                bundle, end.sent = bytes(end.sent[:length]), end.sent[length:]
                for kind, body in frames(memoryview(bundle)[LENGTH.size :]):
                    if kind is Kind.SCHEMA:
                        receiver.decoder.schema(body)
                    elif kind in (Kind.STATE, Kind.BASE, Kind.PART):
                        self.states[there].take(receiver.states, kind, body)
                    else:
                        self.hosts[there].take(here, kind, body, receiver.decoder)

    def read(self) -> None:
        """A reader asks any copy of the collector."""
        host = self.hosts[self.random.choice(sorted(self.hosts))]
        here = host.results()
        if here is not None and here.offset >= self.offset:
            self.results += here.collector.after(self.offset, 1 << 30)
            self.offset = here.offset
            for other in self.hosts.values():
                other.commit(self.random.randint(0, self.offset))

    def check(self) -> None:
        for host in self.hosts.values():
            host.site.validate()
            parts = {
                (copy.stage, copy.part): replica.operator
                for copy, replica in host.site.replicas.items()
                if isinstance(replica.operator, Part)
            }
            shared = {id(part.shared): part.shared for part in parts.values()}.values()
            held = [part for of in shared for part in of.parts.values()]
            assert sorted(map(id, held)) == sorted(map(id, parts.values())), (
                "of copies that are gone"
            )
        self.controller.validate()

    # ---- faults

    def expendable(self) -> list[int]:
        """Sites that may go: of every pair that has a copy there, another one works elsewhere."""
        members, installed = self.controller.members, self.controller.installed
        return [
            number
            for number in self.controller.sites
            if all(
                any(c in installed and site != number for c, site in of.items())
                for pair, of in members.items()
                if pair.stage >= 0
            )
        ]

    def fault(self) -> None:
        draw = self.random
        kind = draw.choice(("kill", "kill", "move", "break", "lead", "suspect"))
        may_go = self.expendable()
        if kind in ("kill", "suspect") and may_go:
            number = draw.choice(may_go)
            if kind == "kill":
                self.gone(number)
            self.controller.leave(number)  # whoever is taken for dead goes on until it reads so
            self.controller.join(self.join())
        elif kind == "move" and self.controller.installed:
            copy = draw.choice(sorted(self.controller.installed))
            self.controller.move(copy, draw.choice(self.controller.sites))
        elif kind == "break":
            self.link(*draw.sample(sorted(self.hosts), 2))
        elif kind == "lead":
            self.lead()

    def run(self, faults: int) -> None:
        for _ in range(self.STEPS):
            if faults and self.random.random() < 0.05:
                faults -= 1
                self.fault()
            self.step()
            if not faults and self.quiet():
                return
        raise AssertionError(f"stuck at {self.offset}, {self.fed} fed, log {self.log[-5:]}")

    def quiet(self) -> bool:
        works = all(
            copy in self.controller.installed
            for pair in self.flow.segments()
            for copy in self.controller.members[pair]
        )
        replicas = [r for h in self.hosts.values() for r in h.site.replicas.values()]
        return (
            works
            and self.offset == BATCHES
            and all(host.position == len(self.log) for host in self.hosts.values())
            and all(r.done == BATCHES and not r.held for r in replicas)
        )


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """States take several pieces; every copy makes the units of a run of one copy alone."""
    monkeypatch.setattr(moving, "STATE_PIECE_BYTES", 300)
    monkeypatch.setattr(resume_host, "BASE_MIN_BYTES", 0)
    finish = Replica.finish
    Running.cluster = None

    def compared(replica: Replica, units: Units, low: int) -> int:
        cluster, pair = Running.cluster, replica.copy.pair
        assert cluster is not None
        for column, unit in enumerate(units):
            consumer = cluster.flow.downstream[pair.stage][column]
            due = cluster.units.get((pair, consumer, replica.done))
            assert (None if unit is None else contents(unit)) == due, f"{replica.copy} {consumer}"
        return finish(replica, units, low)

    monkeypatch.setattr(Replica, "finish", compared)


class Running:
    """The cluster under test."""

    cluster: Cluster | None = None


def run(seed: int, *, of: type[Cluster] = Cluster) -> Cluster:
    Running.cluster = cluster = of(seed)
    cluster.run(faults=seed % 9)
    assert [(batch, contents(rows)) for batch, rows in cluster.results] == cluster.output
    return cluster


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("seed", range(12))
def test_whatever_fails_the_results_are_those_of_one_copy_alone(seed: int) -> None:
    run(seed)


class Attacked(Cluster):
    """A cluster with a site in the view that has no copies, and says what others should say."""

    STRANGER = 1 << 20

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.encoders: dict[int, tuple[RowsEncoder, RowsDecoder]] = {}

    def step(self) -> None:
        super().step()
        for number, host in self.hosts.items():
            codecs = self.encoders.setdefault(number, (RowsEncoder({}), RowsDecoder()))
            out = Bundles()
            put_units(self.drawn(host), codecs[0], out)
            bundle = b"".join(map(bytes, out.take()))[LENGTH.size :]
            for kind, body in frames(memoryview(bundle)):
                if kind is Kind.SCHEMA:
                    codecs[1].schema(body)
                else:
                    host.take(self.STRANGER, kind, body, codecs[1])

    def drawn(self, host: ResumeHost) -> Frame:
        """Units of batches that come next, acknowledgements and resumes of others' copies."""
        draw, flow = self.random, self.flow
        stage = draw.randrange(flow.last + 1)
        slot = draw.randrange(len(flow.upstream[stage]))
        batch = max(1, draw.randint(-3, 3) + self.offset)
        rows = draw.choice((None, self.batches[0]))
        part = draw.randrange(len(flow.pairs(stage)))
        known = [copy for of in host.site.members.values() for copy in of if copy.stage >= 0]
        unknown = Copy(*draw.choice(flow.segments()), draw.randrange(1, 99))
        copy = draw.choice([*known, unknown])
        producer = Copy(*draw.choice(flow.upstream[copy.stage]), draw.randrange(1, 99))
        return Frame(
            host.position,
            (UnitRow(stage, slot, batch, (part,), (rows,)),),
            (Ack(copy, batch),),
            (Resume(copy, producer, draw.choice((None, 0, batch))),),
        )


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize("seed", range(4))
def test_what_is_not_a_sites_to_say_changes_nothing(seed: int) -> None:
    run(seed, of=Attacked)


def at_once(self: ResumeHost, sender: int, frame: Frame) -> None:
    self._carry_out(self.site.receive(frame))


def silent(self: ResumeHost, site: int) -> None:
    self.disconnect(site)
    self.connect(site)


begin = ResumeHost.begin
process_parts = Partitioned.process_parts


def too_late(self: ResumeHost, fed: int) -> None:
    begin(self, fed + 1)


def swapped(self: Partitioned, parts: Any) -> Any:
    return process_parts(self, parts)[::-1]


def told_once(self: Site) -> list[Notice]:
    return []


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize(
    ("owner", "name", "mistake", "of", "seed"),
    [
        (ResumeHost, "_read", at_once, Attacked, 0),
        (ResumeHost, "reconnect", silent, Cluster, 6),
        (ResumeHost, "begin", too_late, Cluster, 0),
        (Partitioned, "process_parts", swapped, Cluster, 11),
        (Part, "leave", lambda _: None, Cluster, 5),
        (Site, "standing", told_once, Cluster, 7),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_planted_mistake_is_found(
    owner: Any,
    name: str,
    mistake: Any,
    of: type[Cluster],
    seed: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owner, name, mistake)
    monkeypatch.setattr(Cluster, "STEPS", 1500)
    with pytest.raises((AssertionError, LookupError, ProtocolError)):
        _ = [run(number, of=of) for number in range(seed, seed + 5)]


# ---- one host alone


SMALL = Flow(dataflow=collected(running_example(Shape(widths=(2, 2)), slide=1)), collects=True)
START = Start(
    ((Copy(-1, 0, 1), LEADER), *((Copy(*p, 2 + i), i % 2) for i, p in enumerate(SMALL.segments()))),
    0,
)


def begun(number: int) -> ResumeHost:
    host = ResumeHost(SMALL, number)
    host.extend(START)
    return host


def sent(host: ResumeHost, sender: int, frame: Frame) -> None:
    out, decoder = Bundles(), RowsDecoder()
    put_units(frame, RowsEncoder({}), out)
    for kind, body in frames(memoryview(b"".join(map(bytes, out.take()))[LENGTH.size :])):
        host.take(sender, kind, body, decoder)


def test_units_that_nobody_can_send_yet_are_not_kept() -> None:
    host = begun(0)  # copies 0 of both stages; those of partition 1 stand on site 1
    for batch in range(1, 100):
        sent(host, 1, Frame(1, (UnitRow(1, 1, batch, (0,), (None,)),)))
    replica = host.site.replica(1, 0)
    assert replica is not None
    assert sorted(replica.rows) == [*range(1, SMALL.window + 1)]


def test_frames_from_far_ahead_of_the_log_are_refused() -> None:
    host = begun(0)
    for _ in range(AHEAD_MAX):
        sent(host, 1, Frame(2))
    with pytest.raises(Malformed, match="ahead of the log"):
        sent(host, 1, Frame(2))


def test_rs_24_the_site_of_the_donor_answers_for_a_copy_until_it_has_its_state() -> None:
    host, copy = begun(0), Copy(1, 1, 9)
    host.extend(Avail(copy, 2, Copy(1, 1, 5)))
    for sender, done in ((3, 1), (1, 2), (2, 3)):
        sent(host, sender, Frame(2, acks=(Ack(copy, done),)))
        assert host.site.acked[1][copy] == (0 if sender == 3 else done)


NEWCOMER = Copy(0, 0, 9)
STATE = Snapshot(NEWCOMER, 2, 3, None, ((None, None),), (Ack(Copy(1, 0, 4), 2),))


@pytest.mark.parametrize(
    "flaw",
    [
        {"copy": Copy(0, 0, 8)},
        {"position": -1},
        {"position": POSITION_MAX + 1},
        {"position": True},
        {"done": END},
        {"done": "3"},
        {"held": [(None, None)]},
        {"held": ((None, None),) * (SMALL.window + 1)},
        {"held": ((None,),)},
        {"held": (None,)},
        {"acked": [Ack(Copy(1, 0, 4), 2)]},
        {"acked": ((1, 2),)},
        {"acked": (Ack((1, 0, 4), 2),)},  # type: ignore[arg-type]
        {"acked": (Ack(Copy(9, 0, 4), 2),)},
        {"acked": (Ack(Copy(1, 0, 4), -1),)},
    ],
    ids=str,
)
def test_a_state_with_a_flaw_is_refused(flaw: dict[str, Any]) -> None:
    host = begun(1)
    name = Node(0, 0, 0, NEWCOMER.number)
    snapshots = Snapshots(host)
    data = pack(dataclasses.replace(STATE, **flaw), classes=SNAPSHOT)
    with pytest.raises(Malformed, match="the state of A0p'9"):
        snapshots.take(OnLink(), Kind.STATE, memoryview(codec.STATE.pack(*name, len(data)) + data))
    whole = pack(STATE, classes=SNAPSHOT)
    snapshots.take(OnLink(), Kind.STATE, memoryview(codec.STATE.pack(*name, len(whole)) + whole))
    assert host.site.ahead == [STATE]
    with pytest.raises(Malformed, match="waits for the log"):
        snapshots.take(
            OnLink(), Kind.STATE, memoryview(codec.STATE.pack(*name, len(whole)) + whole)
        )
