"""The tables of the fold-in (CU-6, CU-8, CU-19, CU-21) and the actions of take-over, one by one."""

from __future__ import annotations

import pytest

from flux_lab.papers.protocol.inlet import Consumer, Inlet
from flux_lab.papers.protocol.messages import (
    Ack,
    Csync,
    Data,
    Pause,
    PauseAck,
    Progress,
    Psync,
    Reverse,
    Send,
)
from flux_lab.papers.protocol.outlet import Outlet, Producer
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
    ProtocolError,
    Status,
    other,
)

P, S = Node(1, 0, 0, 0), Node(1, 0, 1, 0)
NEW_P, NEW_S = Node(1, 0, 0, 4), Node(1, 0, 1, 4)
ALL = PROD | MARK_PRIM | MARK_SEC


def outlet(kind: Producer, *, copy: int = 0) -> Outlet:
    peers = (P, None) if kind is Producer.S else (P, S)
    return Outlet(kind, peers, copy=copy, cumulative=False)


def inlet(kind: Consumer) -> Inlet:
    return Inlet(kind, (P, None) if kind is Consumer.S else (P, S))


def put(out: Outlet, *numbers: int) -> None:
    for n in numbers:
        out.buffer.put(f"rows {n}", n, out.evict)


def sent(out: Outlet, d: int) -> list[int]:
    found = []
    while isinstance(message := out.next_message(d, -1), Data):
        found.append(message.batch)
    return found


# ---- initial settings (4.1)


@pytest.mark.parametrize(
    ("kind", "copy", "conn", "evict"),
    [
        (Producer.INGRESS, 0, [SEND | ACK, SEND | ACK], ALL),
        (Producer.S, 0, [SEND, 0], PROD | MARK_PRIM),
        (Producer.S, 1, [ACK, 0], PROD | MARK_PRIM),
        (Producer.F, 0, [SEND, ACK], ALL),
        (Producer.F, 1, [SEND, ACK], ALL),
    ],
)
def test_initial_settings_of_producers(
    kind: Producer, copy: int, conn: list[int], evict: int
) -> None:
    out = outlet(kind, copy=copy)
    assert (out.conn, out.evict) == (conn, evict)


@pytest.mark.parametrize(
    ("kind", "conn"),
    [
        (Consumer.S, [RECV | ACK, 0]),
        (Consumer.EGRESS, [RECV, ACK]),
        (Consumer.F, [RECV, ACK]),
    ],
)
def test_initial_settings_of_consumers(kind: Consumer, conn: list[int]) -> None:
    assert inlet(kind).conn == conn


# ---- normal case


def test_nc_2_the_ingress_keeps_what_it_sent_until_both_acknowledge() -> None:
    out = outlet(Producer.INGRESS)
    put(out, 1)
    assert sent(out, PRIM) == [1]
    assert sent(out, SEC) == [1]
    out.receive(PRIM, Ack(1))
    assert len(out.buffer) == 1
    out.receive(SEC, Ack(1))
    assert len(out.buffer) == 0


def test_nc_2a_where_no_acknowledgement_comes_back_sending_counts() -> None:
    out = outlet(Producer.S)
    put(out, 1)
    assert sent(out, PRIM) == [1]
    assert len(out.buffer) == 0


def test_nc_3_an_f_prod_forgets_what_it_sent_and_the_other_copy_acknowledged() -> None:
    out = outlet(Producer.F)
    put(out, 1)
    sent(out, PRIM)
    assert len(out.buffer) == 1
    out.receive(SEC, Ack(1))
    assert len(out.buffer) == 0


def test_nc_3_an_acknowledgement_waits_where_none_is_expected() -> None:
    out = outlet(Producer.S)
    assert not out.accepts(PRIM, Ack(1))


def test_nc_4_an_s_cons_acknowledges_to_the_sender() -> None:
    assert inlet(Consumer.S).receive(PRIM, Data(1, ""), every=1, attempt=0) == [Send(P, Ack(1))]


@pytest.mark.parametrize("kind", [Consumer.F, Consumer.EGRESS])
def test_nc_5a_a_consumer_acknowledges_to_the_other_copy(kind: Consumer) -> None:
    assert inlet(kind).receive(PRIM, Data(1, ""), every=1, attempt=0) == [Send(S, Ack(1))]


def test_nc_5_data_needs_recv_and_waits_at_the_head_of_the_link() -> None:
    into = inlet(Consumer.F)
    assert into.accepts(PRIM, Data(1, ""), room=True)
    assert not into.accepts(SEC, Data(1, ""), room=True)
    assert not into.accepts(PRIM, Data(1, ""), room=False)


def test_a_repeated_unit_is_an_error() -> None:
    into = inlet(Consumer.F)
    into.receive(PRIM, Data(1, ""), every=1, attempt=0)
    with pytest.raises(ProtocolError):
        into.receive(PRIM, Data(1, ""), every=1, attempt=0)


def test_xm_2_progress_is_told_once_nothing_else_is_to_be_sent() -> None:
    out = outlet(Producer.F)
    put(out, 3)
    assert out.next_message(PRIM, 5) == Data(3, "rows 3")
    assert out.next_message(PRIM, 5) == Progress(5)
    assert out.next_message(PRIM, 5) is None
    assert out.next_message(SEC, 5) is None


def test_buf_c_every_third_unit_is_acknowledged_and_progress_flushes() -> None:
    into = inlet(Consumer.F)
    sends = [into.receive(PRIM, Data(n, ""), every=3, attempt=0) for n in (1, 2, 3, 4)]
    assert sends == [[], [], [Send(S, Ack(3))], []]
    assert into.receive(PRIM, Progress(9), every=3, attempt=0) == [Send(S, Ack(4))]


# ---- take-over


def test_to_1_a_dead_copy_is_not_waited_for() -> None:
    out = outlet(Producer.INGRESS)
    put(out, 1, 2)
    out.receive(PRIM, Ack(1))
    assert out.fail(SEC)
    assert list(out.buffer.entries) == [2]
    assert out.evict == PROD | MARK_PRIM
    assert not out.fail(SEC)


def test_to_6_a_producer_whose_consumer_died_goes_on_taking_acknowledgements() -> None:
    out = outlet(Producer.F)
    put(out, 1, 2)
    out.receive(SEC, Ack(1))
    assert out.fail(PRIM)
    assert (out.status[PRIM], out.conn) == (Status.DEAD, [0, ACK])
    assert sent(out, PRIM) == []
    assert list(out.buffer.entries) == [2]
    out.receive(SEC, Ack(2))
    assert len(out.buffer) == 0


def test_to_2_and_to_2a_the_egress_turns_to_the_other_copy_behind_its_acknowledgements() -> None:
    into = inlet(Consumer.EGRESS)
    assert into.fail(PRIM, window=False) == [Send(S, Reverse())]
    assert into.conn == [0, RECV]


def test_to_2_no_reverse_where_the_secondary_died() -> None:
    into = inlet(Consumer.EGRESS)
    assert into.fail(SEC, window=False) == []
    assert into.conn == [RECV, 0]


def test_to_3_an_s_prod_resends_what_is_not_acknowledged_and_filters_what_is() -> None:
    out = outlet(Producer.S, copy=1)
    put(out, 1, 2)
    out.receive(PRIM, Ack(1))
    out.receive(PRIM, Ack(4))
    out.receive(PRIM, Reverse())
    put(out, 3, 4)
    assert sent(out, PRIM) == [2, 3]
    assert out.r_done


def test_to_5_and_to_5a_a_consumer_whose_primary_died_turns_to_the_secondary() -> None:
    into = inlet(Consumer.F)
    assert into.fail(PRIM, window=False) == [Send(S, Reverse())]
    assert into.conn == [0, RECV]


def test_to_5b_in_the_window_the_reverse_is_owed() -> None:
    into = inlet(Consumer.F)
    assert into.fail(PRIM, window=True) == []
    assert into.rev_owed
    assert into.reverse_to(SEC) == [Send(S, Reverse())]
    assert not into.rev_owed


def test_to_5c_a_pause_that_waits_for_the_dead_is_lifted() -> None:
    into = inlet(Consumer.F)
    into.fail(SEC, window=False)
    into.avail(SEC, NEW_S)
    into.receive(PRIM, Psync(4), every=1, attempt=0)
    assert into.conn[PRIM] == PAUSED
    into.fail(SEC, window=False)
    assert into.conn == [RECV, 0]


@pytest.mark.parametrize("kind", [Consumer.F, Consumer.EGRESS])
@pytest.mark.parametrize(("new", "node"), [(PRIM, NEW_P), (SEC, NEW_S)])
def test_fs_26_nobody_reads_a_copy_whose_source_died_before_its_marker(
    kind: Consumer, new: int, node: Node
) -> None:
    into = inlet(kind)
    into.fail(new, window=False)
    into.avail(new, node)
    into.receive(new, Psync(node.life), every=1, attempt=0)
    assert into.fail(other(new), window=False) == []
    assert not into.accepts(new, Progress(8), room=True)


def test_to_7_a_reverse_makes_an_f_prod_serve_both() -> None:
    out = outlet(Producer.F)
    put(out, 1, 2)
    sent(out, PRIM)
    out.receive(SEC, Ack(1))
    out.receive(SEC, Reverse())
    assert out.conn == [SEND, SEND]
    assert sent(out, SEC) == [2]
    assert len(out.buffer) == 0


def test_to_7_a_reverse_from_the_dead_is_ignored() -> None:
    out = outlet(Producer.F)
    out.fail(SEC)
    out.receive(SEC, Reverse())
    assert out.evict == PROD | MARK_PRIM
    assert out.conn == [SEND, 0]


@pytest.mark.parametrize(("kind", "d"), [(Producer.S, PRIM), (Producer.F, SEC)])
def test_to_3_and_to_7_begin_with_the_first_unit_not_acknowledged_wherever_the_cursor_stood(
    kind: Producer, d: int
) -> None:
    out = outlet(kind, copy=1)
    put(out, 1, 2)
    out.buffer.cursor[d] = 2
    out.told[d] = 2
    out.evict &= ~MARK_SEC
    out.receive(d, Reverse())
    assert out.evict == PROD | MARK_PRIM | (MARK_SEC if kind is Producer.F else 0)
    assert sent(out, d) == [1, 2]


@pytest.mark.parametrize(("kind", "d"), [(Producer.S, PRIM), (Producer.F, SEC)])
def test_xm_2_a_new_source_tells_its_progress_whatever_it_told_before(
    kind: Producer, d: int
) -> None:
    out = outlet(kind, copy=1)
    out.told[d] = 5
    out.receive(d, Reverse())
    assert out.next_message(d, 5) == Progress(5)


def test_cu_0_a_link_to_a_standby_is_ignored_whatever_it_was_used_for() -> None:
    out, into = outlet(Producer.F), inlet(Consumer.F)
    out.avail(PRIM, NEW_S)
    into.avail(PRIM, NEW_S)
    assert (out.status[PRIM], out.conn[PRIM], out.exp) == (Status.STANDBY, 0, NEW_S.life)
    assert (into.status[PRIM], into.conn[PRIM], into.exp) == (Status.STANDBY, 0, NEW_S.life)


def test_to_9_and_to_9f_take_over_is_complete_where_no_reverse_is_due() -> None:
    assert outlet(Producer.S, copy=0).taken_over()
    assert not outlet(Producer.S, copy=1).taken_over()
    waiting = outlet(Producer.F)
    assert not waiting.taken_over()
    waiting.fail(SEC)
    assert waiting.taken_over()


# ---- fold-in at producers


def ready_for(kind: Producer, standby: int) -> Outlet:
    out = outlet(kind)
    out.fail(standby)
    out.avail(standby, NEW_P if standby == PRIM else NEW_S)
    return out


@pytest.mark.parametrize("standby", [PRIM, SEC])
@pytest.mark.parametrize("active_first", [True, False])
def test_cu_6_cu_6a_and_cu_6b_the_ingress_starts_the_standby_at_the_second_marker(
    standby: int, active_first: bool
) -> None:
    out = ready_for(Producer.INGRESS, standby)
    put(out, 1, 2)
    active = 1 - standby
    sent(out, active)
    out.receive(active, Ack(1))
    order = [active, standby] if active_first else [standby, active]
    assert not out.csync(order[0], 4)
    assert out.conn[standby] == 0
    assert out.csync(order[1], 4)
    assert out.conn == [SEND | ACK, SEND | ACK]
    assert out.evict == ALL
    assert sent(out, standby) == [2]


@pytest.mark.parametrize("active_first", [True, False])
def test_cu_19_the_f_prod_whose_primary_is_active_goes_on_at_once(active_first: bool) -> None:
    out = ready_for(Producer.F, SEC)
    out.receive(PRIM, Pause(4))
    assert out.conn[PRIM] == PAUSED
    put(out, 1)
    for d in (PRIM, SEC) if active_first else (SEC, PRIM):
        out.csync(d, 4)
        if d == PRIM:
            assert out.conn[PRIM] == SEND
        elif not active_first:
            assert out.conn[SEC] == 0, "no acknowledgements before the active copy's marker"
    assert out.conn == [SEND, ACK]
    assert out.evict == ALL
    assert sent(out, PRIM) == [1]
    assert len(out.buffer) == 1


@pytest.mark.parametrize("active_first", [True, False])
def test_cu_19_the_f_prod_whose_primary_is_new_starts_it_at_the_second_marker(
    active_first: bool,
) -> None:
    out = ready_for(Producer.F, PRIM)
    put(out, 1, 2)
    out.receive(SEC, Ack(1))
    order = (SEC, PRIM) if active_first else (PRIM, SEC)
    out.csync(order[0], 4)
    assert out.conn == [0, ACK]
    assert out.csync(order[1], 4)
    assert out.conn == [SEND, ACK]
    assert sent(out, PRIM) == [2]


def test_cu_12_a_pause_is_answered_in_order_with_the_data() -> None:
    out = outlet(Producer.F)
    put(out, 1)
    assert out.receive(PRIM, Pause(4)) == PauseAck(4)
    assert sent(out, PRIM) == []


def test_ab_2_a_marker_waits_for_its_announcement() -> None:
    assert not outlet(Producer.F).accepts(PRIM, Csync(4))
    assert ready_for(Producer.F, SEC).accepts(PRIM, Csync(4))
    assert not inlet(Consumer.F).accepts(PRIM, Psync(4), room=True)


def test_ab_3_a_marker_of_an_abandoned_attempt_only_lifts_the_pause() -> None:
    out = ready_for(Producer.F, SEC)
    out.receive(PRIM, Pause(4))
    out.fail(SEC)
    out.avail(SEC, Node(1, 0, 1, 5))
    assert not out.csync(PRIM, 4)
    assert out.conn == [SEND, 0]
    assert out.evict == PROD | MARK_PRIM


def test_ab_4_and_ab_8_a_marker_whose_standby_died_does_not_extend_the_eviction_set() -> None:
    out = ready_for(Producer.F, SEC)
    out.receive(PRIM, Pause(4))
    out.fail(SEC)
    out.csync(PRIM, 4)
    assert out.conn == [SEND, 0]
    assert out.evict == PROD | MARK_PRIM


def test_ab_5_a_reverse_between_the_markers_waits_for_the_second() -> None:
    out = ready_for(Producer.F, PRIM)
    put(out, 1)
    out.csync(SEC, 4)
    out.receive(SEC, Reverse())
    assert out.conn[SEC] == ACK
    out.csync(PRIM, 4)
    assert out.conn == [SEND, SEND]
    assert sent(out, PRIM) == sent(out, SEC) == [1]
    assert len(out.buffer) == 0


def test_ab_5_a_waiting_reverse_counts_when_the_standby_dies() -> None:
    out = ready_for(Producer.F, PRIM)
    out.csync(SEC, 4)
    out.receive(SEC, Reverse())
    out.fail(PRIM)
    assert out.conn == [0, SEND]


def test_ab_5_a_waiting_reverse_dies_with_its_sender() -> None:
    out = ready_for(Producer.F, SEC)
    out.csync(SEC, 4)
    out.receive(SEC, Reverse())
    out.fail(SEC)
    out.avail(SEC, Node(1, 0, 1, 5))
    out.csync(PRIM, 5)
    out.csync(SEC, 5)
    assert out.conn == [SEND, ACK]


@pytest.mark.parametrize("late", [False, True])
def test_fs_26_nobody_sends_to_a_copy_whose_source_died_before_its_marker(late: bool) -> None:
    out = ready_for(Producer.F, SEC)
    put(out, 1)  # it waits for P, which has paused the link; S has it not in its state
    out.csync(SEC, 4)
    if not late:
        out.receive(SEC, Reverse())
    out.fail(PRIM)
    if late:
        out.receive(SEC, Reverse())
    put(out, 2)
    assert sent(out, SEC) == [], "1 has gone, and was not in the state"


@pytest.mark.parametrize("kind", [Producer.INGRESS, Producer.F])
@pytest.mark.parametrize("new", [PRIM, SEC])
def test_fs_26_once_both_markers_are_there_the_old_copy_may_die(kind: Producer, new: int) -> None:
    out = ready_for(kind, new)
    out.csync(other(new), 4)
    out.csync(new, 4)
    out.fail(other(new))
    put(out, 1)
    if kind is Producer.F and new == SEC:
        out.receive(SEC, Reverse())
    assert sent(out, new) == [1]


def test_cu_17_an_outlet_seen_from_the_other_copy() -> None:
    out = outlet(Producer.F)
    put(out, 1)
    sent(out, PRIM)
    out.fail(SEC)
    out.avail(SEC, NEW_S)
    out.swap()
    assert out.peers == [NEW_S, P]
    assert out.status == [Status.STANDBY, Status.ACTIVE]
    assert out.conn == [0, ACK]
    assert out.evict == PROD | MARK_SEC


def test_cu_20_after_the_move_secondaries_are_acknowledgers_again() -> None:
    out = outlet(Producer.F)
    out.receive(SEC, Reverse())
    out.sync(standby=False)
    assert out.conn == [SEND, ACK]
    assert not out.r_done


def test_cu_7_the_new_s_prod_waits_for_acknowledgements() -> None:
    out = outlet(Producer.S, copy=0)
    out.sync(standby=True)
    assert out.conn[PRIM] == ACK


# ---- fold-in at consumers


@pytest.mark.parametrize("standby", [PRIM, SEC])
@pytest.mark.parametrize("active_first", [True, False])
def test_cu_8_and_cu_8b_the_egress_hears_the_survivor_and_acknowledges_to_the_new_copy(
    standby: int, active_first: bool
) -> None:
    into = inlet(Consumer.EGRESS)
    into.fail(standby, window=False)
    into.avail(standby, NEW_P if standby == PRIM else NEW_S)
    active = 1 - standby
    for d in (active, standby) if active_first else (standby, active):
        into.psync(d, 4)
        if active_first and d == active:
            assert into.conn[active] == PAUSED
            assert not into.accepts(active, Data(1, ""), room=True)
        elif d != active:
            assert into.conn[standby] == (ACK if active_first else 0)
    assert into.conn[active] == RECV
    assert into.conn[standby] == ACK
    assert into.met()


@pytest.mark.parametrize("standby", [PRIM, SEC])
@pytest.mark.parametrize("active_first", [True, False])
def test_cu_21_afterwards_every_f_cons_hears_prim_and_acknowledges_to_sec(
    standby: int, active_first: bool
) -> None:
    into = inlet(Consumer.F)
    into.fail(standby, window=False)
    into.avail(standby, NEW_P if standby == PRIM else NEW_S)
    before = into.conn[SEC]
    order = (1 - standby, standby) if active_first else (standby, 1 - standby)
    into.psync(order[0], 4)
    if order[0] == PRIM:
        assert into.conn == [PAUSED, before]
    else:
        assert into.conn[SEC] == before
    into.psync(order[1], 4)
    assert into.conn == [RECV, ACK]
    assert into.met()


def test_ab_3_a_secondary_that_stopped_for_an_abandoned_attempt_is_asked_to_send_again() -> None:
    into = inlet(Consumer.F)
    into.fail(PRIM, window=False)
    into.avail(PRIM, NEW_P)
    into.fail(PRIM, window=False)
    assert into.psync(SEC, 4) == [Send(S, Reverse())]
    assert into.conn == [0, RECV]


def test_ab_4_a_secondary_that_stopped_is_asked_again_when_the_standby_dies() -> None:
    into = inlet(Consumer.F)
    into.fail(PRIM, window=False)
    into.avail(PRIM, NEW_P)
    into.psync(SEC, 4)
    assert into.sec_stopped
    assert into.fail(PRIM, window=False) == [Send(S, Reverse())]


def test_cu_13_the_answer_to_an_abandoned_pause_does_not_count() -> None:
    into = inlet(Consumer.F)
    into.receive(PRIM, PauseAck(3), every=1, attempt=4)
    assert into.conn[PRIM] == RECV
    into.receive(PRIM, PauseAck(4), every=1, attempt=4)
    assert into.conn[PRIM] == PAUSED


def test_cu_17_an_inlet_seen_from_the_other_copy_owes_the_reverse_for_a_dead_primary() -> None:
    into = inlet(Consumer.F)
    into.fail(SEC, window=True)
    into.swap()
    assert into.peers == [S, P]
    assert into.conn == [0, ACK]
    assert into.rev_owed
