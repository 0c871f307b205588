"""A segment's own side of catch-up, event by event (CU-9 to CU-18, AB-6, AB-7, AB-9, CU-14)."""

from __future__ import annotations

import pytest

from flux_lab.papers.protocol.ends import Ingress
from flux_lab.papers.protocol.messages import (
    Ack,
    Avail,
    CatchUpReady,
    CatchUpStart,
    Csync,
    Data,
    Fail,
    FoldInDone,
    Instruction,
    Message,
    Move,
    Pause,
    PauseAck,
    Psync,
    Reverse,
    Send,
    Tell,
)
from flux_lab.papers.protocol.segment import Segment
from flux_lab.workload import digest_dataflow
from flux_runtime.protocol.vocabulary import (
    ACK,
    PAUSED,
    PRIM,
    RECV,
    SEND,
    THE_INGRESS,
    Node,
    Pair,
    ProtocolError,
    Shape,
    Status,
)

ME, MATE, NEW = Node(1, 0, 0, 0), Node(1, 0, 1, 0), Node(1, 0, 1, 3)
P0, P1, S0, S1 = Node(0, 0, 0, 0), Node(0, 1, 0, 0), Node(0, 0, 1, 0), Node(0, 1, 1, 0)
EGRESS = Node(2, 0, 0, 0)
LONE = Node(0, 0, 0, 0)
DATAFLOW = digest_dataflow(Shape(widths=(2, 1)))
ROW = ((0, 0), 1, 5)


def bereft(*, standby: bool = True) -> Segment:
    """The copy of a pair whose other copy has died."""
    segment = Segment(DATAFLOW, ME, story=[])
    segment.log(Fail(ME.pair, 1, 1))
    if standby:
        segment.log(Avail(ME.pair, 1, 3))
    return segment


def sent(out: list[Instruction], kind: type[Message]) -> list[Node]:
    return [i.to for i in out if isinstance(i, Send) and isinstance(i.message, kind)]


def test_cu_9_ready_is_told_with_the_failures_known_and_again_after_each() -> None:
    segment = Segment(DATAFLOW, ME)
    assert segment.log(Fail(ME.pair, 1, 1)) == [Tell(CatchUpReady(ME.pair, 1))]
    assert segment.log(Fail(Pair(7, 7), 0, 2)) == [Tell(CatchUpReady(ME.pair, 2))]


def test_cu_9_not_while_a_producer_is_incomplete() -> None:
    segment = Segment(DATAFLOW, ME)
    segment.log(Fail(P0.pair, 1, 1))
    assert segment.log(Fail(ME.pair, 1, 2)) == []


def test_cu_11_only_live_primaries_are_paused() -> None:
    out = bereft().log(CatchUpStart(ME.pair, 3))
    assert sent(out, Pause) == [P0, P1]


def test_cu_14_links_are_drained_while_one_producer_is_paused_already() -> None:
    segment = bereft()
    segment.log(CatchUpStart(ME.pair, 3))
    segment.receive(P0, PauseAck(3))
    for batch in range(5):
        unit = Data(batch, (ROW,))
        assert segment.accepts(P1, unit), "FS-24: else the pause would never be answered"
        assert segment.receive(P1, unit)[0] == Send(S1, Ack(batch))
    assert not segment.can_work(), "the merge waits for the paused producer"
    moves = [i for i in segment.receive(P1, PauseAck(3)) if isinstance(i, Move)]
    assert [unit.batch for unit in moves[0].state.consumer.inlets[1].queue] == list(range(5))


def paused() -> tuple[Segment, Move]:
    segment = bereft()
    segment.log(CatchUpStart(ME.pair, 3))
    segment.receive(P0, PauseAck(3))
    (move,) = segment.receive(P1, PauseAck(3))
    assert isinstance(move, Move)
    return segment, move


def test_cu_3_and_cu_16_in_pause_nothing_but_the_log_is_read() -> None:
    segment, move = paused()
    assert move.to == NEW
    assert segment.status is Status.PAUSE
    assert not segment.accepts(S0, Data(9, ()))
    assert not segment.can_work()
    assert segment.reads_log


def test_cu_18_markers_go_to_all_neighbours() -> None:
    segment, _ = paused()
    out = segment.moved(3)
    assert sent(out, Csync) == [P0, S0, P1, S1]
    assert sent(out, Psync) == [EGRESS]
    assert not segment.p_fail


def test_cu_17_and_ab_9_the_standby_goes_on_in_the_log_where_the_snapshot_was_taken() -> None:
    _, move = paused()
    standby = Segment(DATAFLOW, NEW, standby=True)
    assert not standby.reads_log  # AB-9
    assert not standby.accepts(S0, Data(0, ()))
    out = standby.install(move.state)
    assert standby.boundary.log_position == 3
    assert sent(out, Csync) == [S0, P0, S1, P1]
    assert standby.status is Status.ACTIVE


def test_ab_6_an_abandoned_attempt_lifts_the_pauses_and_leaves_the_failure_standing() -> None:
    segment, _ = paused()
    out = segment.log(Fail(ME.pair, 1, 2))
    assert sent(out, Csync) == [P0, S0, P1, S1]
    assert sent(out, Psync) == []
    assert segment.p_fail
    assert Tell(CatchUpReady(ME.pair, 2)) in out
    assert segment.moved(3) == []


def test_ab_7_a_start_for_another_standby_is_ignored() -> None:
    segment = bereft()
    assert segment.log(CatchUpStart(ME.pair, 2)) == []
    assert not segment.consumer.window


def test_to_5b_and_cu_15_a_reverse_owed_follows_the_marker() -> None:
    segment = bereft()
    segment.log(CatchUpStart(ME.pair, 3))
    assert segment.log(Fail(P0.pair, 0, 2)) == []
    (move,) = segment.receive(P1, PauseAck(3))
    assert isinstance(move, Move)
    to_s0 = [i.message for i in segment.moved(3) if isinstance(i, Send) and i.to == S0]
    assert [type(m).__name__ for m in to_s0] == ["Csync", "Reverse"]


def test_a_state_is_installed_once_and_the_story_is_told() -> None:
    segment, move = paused()
    with pytest.raises(ProtocolError, match=r"(?s)has a state already.*CU-16"):
        segment.install(move.state)


def test_cu_9_not_before_the_egress_has_turned_to_the_survivor() -> None:
    segment = Segment(DATAFLOW, MATE)
    assert segment.log(Fail(ME.pair, 0, 1)) == [], "TO-9: it waits for the reverse"
    assert segment.receive(EGRESS, Reverse()) == [Tell(CatchUpReady(ME.pair, 1))]


def test_nc_1_what_waits_is_admitted_before_the_next_batch_is_processed() -> None:
    segment = Segment(digest_dataflow(Shape(widths=(1,), pool=1, in_hand=2)), Node(0, 0, 1, 0))
    for batch in range(2):
        segment.receive(THE_INGRESS, Data(batch, (ROW,)))
        segment.work()
    producer = segment.producer
    assert [batch for _, batch, _ in producer.pending] == [1], "the pool has room for one"
    assert not segment.can_work()
    segment.receive(Node(1, 0, 0, 0), Ack(0))
    segment.receive(THE_INGRESS, Data(2, (ROW,)))
    segment.work()
    assert list(producer.outlets[0].buffer.entries) == [1]
    assert [batch for _, batch, _ in producer.pending] == [2]


def test_to_4_only_the_failure_of_the_partner_leaves_a_copy_alone() -> None:
    segment = Segment(DATAFLOW, ME)
    segment.log(Fail(P0.pair, 1, 1))
    assert not segment.p_fail
    segment.log(Fail(ME.pair, 1, 2))
    assert segment.p_fail


def test_cu_1_and_cu_10_a_start_before_the_take_over_is_remembered() -> None:
    segment = Segment(DATAFLOW, MATE)
    segment.log(Fail(ME.pair, 0, 1))
    segment.log(Avail(ME.pair, 0, 3))
    assert segment.log(CatchUpStart(ME.pair, 3)) == []
    assert not segment.consumer.window
    assert sent(segment.receive(EGRESS, Reverse()), Pause) == [S0, S1]
    assert segment.consumer.window == 3


def alone() -> tuple[Segment, Move]:
    """The survivor of a dataflow pair, whose state moves."""
    segment = Segment(digest_dataflow(Shape(widths=(1,))), LONE)
    segment.receive(THE_INGRESS, Data(0, (ROW,)))
    segment.work()
    segment.log(Fail(LONE.pair, 1, 1))
    segment.log(Avail(LONE.pair, 1, 3))
    (move,) = segment.log(CatchUpStart(LONE.pair, 3))
    assert isinstance(move, Move)
    return segment, move


def test_cu_2_a_consumer_of_the_ingress_pauses_its_link_by_itself() -> None:
    segment, _ = alone()
    assert segment.consumer.inlets[0].conn[PRIM] == PAUSED
    assert segment.consumer.window == 3


def test_cu_4_cu_5_and_cu_7_the_state_moves_and_both_copies_say_so() -> None:
    segment, move = alone()
    standby = Segment(segment.dataflow, Node(0, 0, 1, 3), standby=True)
    for copy, out in ((standby, standby.install(move.state)), (segment, segment.moved(3))):
        assert [i for i in out if isinstance(i, Send)] == [
            Send(Node(1, 0, 0, 0), Psync(3)),
            Send(THE_INGRESS, Csync(3)),
        ]
        assert (copy.status, copy.version, copy.p_fail) == (Status.ACTIVE, 3, False)
        assert copy.consumer.inlets[0].conn[PRIM] == RECV | ACK
    assert standby.operator.get_state() == segment.operator.get_state()
    assert standby.producer.outlets[0].conn[PRIM] == ACK
    assert segment.producer.outlets[0].conn[PRIM] == SEND


def test_cu_22_the_second_marker_is_told_to_the_controller() -> None:
    ingress = Ingress(digest_dataflow(Shape(widths=(1,))))
    ingress.log(Fail(LONE.pair, 1, 1))
    ingress.log(Avail(LONE.pair, 1, 3))
    assert ingress.receive(LONE, Csync(3)) == []
    done = FoldInDone(LONE.pair, 3, THE_INGRESS)
    assert ingress.receive(Node(0, 0, 1, 3), Csync(3)) == [Tell(done)]
