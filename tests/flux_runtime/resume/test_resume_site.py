"""The resume protocol rule by rule: events in, what comes out; orders that chance rarely makes."""

from __future__ import annotations

import pytest

from flux_lab.workload import digest_dataflow
from flux_runtime.protocol.vocabulary import Pair, ProtocolError, Shape
from flux_runtime.resume.controller import Controller
from flux_runtime.resume.flow import Flow
from flux_runtime.resume.messages import (
    Ack,
    Avail,
    Copy,
    Fail,
    Frame,
    Installed,
    Load,
    LogEntry,
    Lost,
    Owed,
    Resume,
    Snapshot,
    Start,
    Transfer,
    UnitRow,
    Void,
)
from flux_runtime.resume.site import Site

INGRESS, EGRESS = Copy(-1, 0, 1), Copy(1, 0, 2)
A1, A2, A3 = Copy(0, 0, 3), Copy(0, 0, 4), Copy(0, 0, 5)
START = Start(((INGRESS, 0), (EGRESS, 0), (A1, 1), (A2, 2)), 0)
FLOW = Flow(dataflow=digest_dataflow(Shape(widths=(1,))), window=4, ack_every=1)


def row(key: int) -> tuple[tuple[tuple[int, int], int, int], ...]:
    return (((key, 0), 0, key),)


def site(number: int, *entries: LogEntry) -> Site:
    """A site that has read these entries after the start, and has loaded what it was told to."""
    made = Site(FLOW, number, story=[])
    for entry in (START, *entries):
        for instruction in made.log(entry):
            if isinstance(instruction, Load):
                made.load(instruction.copy, instruction.at)
    made.flush()
    return made


def feed(at: Site, *batches: int) -> None:
    """Batches arrive from the ingress, and are processed."""
    rows = tuple(UnitRow(0, 0, batch, (0,), (row(batch),)) for batch in batches)
    at.receive(Frame(at.position, rows))
    while (work := at.next_input()) is not None:
        operator = at.replicas[work.copy].operator
        assert operator is not None
        at.produced(work.copy, FLOW.split(0, operator.process(work.units[0])))


def test_rs_1_a_copy_waits_for_the_slowest_consumer() -> None:
    one = site(1)
    feed(one, *range(1, 9))
    assert one.replicas[A1].done == FLOW.window
    one.receive(Frame(1, acks=(Ack(EGRESS, 2),)))
    feed(one)
    assert one.replicas[A1].done == FLOW.window + 2


def test_rs_3_a_gap_is_not_filled_and_not_passed_over() -> None:
    one = site(1)
    feed(one, 1, 3)
    assert one.replicas[A1].done == 1
    feed(one, 1, 2, 3)
    assert one.replicas[A1].done == 3


def test_rs_4_acknowledgements_ride_on_units_and_wait_for_nothing_when_idle() -> None:
    one = site(1)
    one.receive(Frame(1, resumes=(Resume(EGRESS, A1, 0),)))
    feed(one, 1)
    ((there, frame),) = one.flush(idle=False)
    assert (there, frame.acks) == (0, (Ack(A1, 1),))
    assert [unit.batch for unit in frame.units] == [1]
    assert one.flush() == []


def test_rs_5_an_older_acknowledgement_changes_nothing() -> None:
    one = site(1)
    one.receive(Frame(1, acks=(Ack(EGRESS, 3),)))
    one.receive(Frame(1, acks=(Ack(EGRESS, 2),)))
    assert one.acked[1] == {EGRESS: 3}


def test_rs_7_a_consumer_is_served_after_what_it_has() -> None:
    one = site(1)
    feed(one, 1, 2, 3)
    one.receive(Frame(1, resumes=(Resume(EGRESS, A1, 1),)))
    ((_, frame),) = one.flush()
    assert [unit.batch for unit in frame.units] == [2, 3]


def test_rs_7_what_is_released_cannot_be_served() -> None:
    one = site(1)
    feed(one, 1, 2)
    one.receive(Frame(1, acks=(Ack(EGRESS, 2),)))
    one.flush()
    one.acked[1][EGRESS] = 0
    with pytest.raises(ProtocolError, match="resume below what is released"):
        one.receive(Frame(1, resumes=(Resume(EGRESS, A1, 0),)))


def test_rs_8_a_new_consumer_pins_what_it_needs() -> None:
    ends = site(0)
    for batch in (1, 2, 3):
        ends.produced(INGRESS, (row(batch),))
    ends.receive(Frame(1, acks=(Ack(A1, 2), Ack(A2, 1))))
    ends.log(Avail(A3, 3, A2))
    ends.log(Fail(A2))
    ends.receive(Frame(3, acks=(Ack(A1, 3),)))
    ends.flush()
    assert [units for _, units in ends.replicas[INGRESS].after(1)] == [(row(2),), (row(3),)]


def test_rs_10_what_comes_from_a_site_ahead_waits_for_the_log() -> None:
    """A donor acknowledges after its snapshot; who does not know of the snapshot must not hear."""
    ends = site(0)
    for batch in (1, 2):
        ends.produced(INGRESS, (row(batch),))
    ends.receive(Frame(1, acks=(Ack(A1, 2),)))
    ends.receive(Frame(2, acks=(Ack(A2, 2),)))  # it has read the next entry and sent its state
    ends.flush()
    assert len(ends.replicas[INGRESS].held) == 2
    ends.log(Avail(A3, 3, A2))
    ends.flush()
    assert ends.acked[0] == {A1: 2, A2: 2, A3: 0}
    assert len(ends.replicas[INGRESS].held) == 2


def test_rs_12_a_snapshot_is_taken_between_two_batches() -> None:
    two = site(2)
    two.receive(Frame(1, (UnitRow(0, 0, 1, (0,), (row(1),)),)))
    work = two.next_input()
    assert work is not None
    assert two.log(Avail(A3, 3, A2)) == [Owed(3, A3, A2)]
    assert two.take_state(A3) == []
    (transfer,) = two.produced(A2, (row(1),))
    assert isinstance(transfer, Transfer)
    assert (transfer.site, transfer.snapshot.done) == (3, 1)
    assert transfer.snapshot.held == ((row(1),),)


def test_rs_12_what_the_donor_knows_of_consumers_travels() -> None:
    """A consumer asked the standby early, and got further by another copy since (RS-2)."""
    three = site(3, Avail(A3, 3, A2))
    three.receive(Frame(2, resumes=(Resume(EGRESS, A3, 1),)))
    snapshot = Snapshot(A3, 2, 3, (), (), (Ack(EGRESS, 3),))
    assert three.receive(snapshot) == [Installed(A3)]
    assert all(not frame.units for _, frame in three.flush())


def test_rs_14_a_copy_whose_donor_is_gone_before_its_state_came_is_void() -> None:
    three = site(3, Avail(A3, 3, A2))
    assert three.log(Fail(A2)) == [Void(A3)]
    assert three.receive(Snapshot(A3, 2, 0, (), (), ())) == []
    assert three.replicas == {}
    assert three.standing() == [Void(A3)]


def test_rs_14_a_donor_may_die_once_its_state_has_come() -> None:
    three = site(3, Avail(A3, 3, A2))
    assert three.receive(Snapshot(A3, 2, 0, (), (), ())) == [Installed(A3)]
    assert three.log(Fail(A2)) == []
    assert three.standing() == [Installed(A3)]


def test_rs_16_a_consumer_asks_another_copy_for_what_it_lacks() -> None:
    ends = site(0)
    ends.receive(Frame(1, (UnitRow(1, 0, 1, (0,), (row(1),)),)))
    ends.log(Fail(A1))
    frames = dict(ends.flush())
    assert frames[2].resumes == (Resume(EGRESS, A2, 1),)


def test_rs_18_to_rs_20_the_controller_heals_moves_and_begins_anew() -> None:
    log: list[LogEntry] = []
    controller = Controller(FLOW, log, (1, 2, 3), ends=0)
    assert log == [START]
    for copy in (A1, A2):
        controller.notice(Installed(copy))
    controller.leave(1)
    assert log[1:] == [Fail(A1), Avail(A3, 3, A2)]
    controller.leave(2)  # the only donor
    assert log[3:] == [Fail(A2)]
    controller.notice(Void(A3))
    assert log[4:6] == [Fail(A3), Lost(Pair(0, 0))]
    assert isinstance(log[6], Start)
    ((copy, _),) = [(c, s) for c, s in log[6].copies if c.stage == 0]
    controller.notice(Installed(copy))
    controller.join(4)
    standby = log[-1]
    assert isinstance(standby, Avail)
    controller.notice(Installed(standby.copy))
    controller.join(5)
    controller.move(copy, 5)
    moved = log[-1]
    assert isinstance(moved, Avail)
    assert moved.donor == copy
    controller.notice(Installed(moved.copy))
    assert log[-1] == Fail(copy)


def test_a_flow_that_is_no_flow_is_refused() -> None:
    dataflow = digest_dataflow(Shape(widths=(1, 1)))
    with pytest.raises(ValueError, match=r"stages \[1\] must read stages before them"):
        Flow(dataflow=dataflow, inputs=((-1,), (1,), (0,)))
    with pytest.raises(ValueError, match=r"stages \[0\] must be read"):
        Flow(dataflow=dataflow, inputs=((-1,), (-1,), (1,)))
    with pytest.raises(ValueError, match="must be positive"):
        Flow(dataflow=dataflow, window=0)
    with pytest.raises(ValueError, match="only the papers' protocol"):
        Flow(dataflow=digest_dataflow(Shape(widths=(1, 1), cluster_pairs=True)))
