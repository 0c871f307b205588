"""Each named scenario fails when the rule that it is about is taken out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import test_flux_catch_up_scenarios as catch_up
import test_flux_scenarios as take_over
from flux_scenes import AS, BP, BS

from flux_lab.papers.protocol.boundary import Boundary
from flux_lab.papers.protocol.buffer import Buffer
from flux_lab.papers.protocol.consumer import ConsumerSide
from flux_lab.papers.protocol.controller import Controller
from flux_lab.papers.protocol.inlet import Inlet
from flux_lab.papers.protocol.messages import Send
from flux_lab.papers.protocol.outlet import CSYNC, OnCsync, Outlet, Producer
from flux_lab.papers.protocol.producer import ProducerSide
from flux_lab.papers.protocol.segment import Segment
from flux_runtime.protocol.balancer import Balancer
from flux_runtime.protocol.vocabulary import (
    ACK,
    MARK_OF,
    PAUSED,
    PRIM,
    SEC,
    SEND,
    ProtocolError,
    Status,
)

Plant = Callable[[pytest.MonkeyPatch], None]


def replace(owner: type, name: str, mistake: Callable[..., Any]) -> Plant:
    return lambda patch: patch.setattr(owner, name, mistake)


def after(owner: type, name: str, spoil: Callable[[Any], None]) -> Plant:
    """Do what is right, then spoil it."""
    right = getattr(owner, name)

    def wrong(self: Any, *args: Any, **options: Any) -> Any:
        made = right(self, *args, **options)
        spoil(self)
        return made

    return replace(owner, name, wrong)


def nothing(*_: Any, **__: Any) -> None:
    return None


def forget_what_is_not_acknowledged(buffer: Buffer) -> None:
    buffer.entries.clear()
    buffer.order.clear()


def served_at_its_own_marker(patch: pytest.MonkeyPatch) -> None:
    for label in (PRIM, SEC):
        row = OnCsync(False, now=((label, SEND | ACK),))
        patch.setitem(CSYNC, (Producer.INGRESS, Status.STANDBY, label), row)


def heed_every_reverse(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Boundary, "_stale", lambda self, side, d, peer: 0)
    patch.setattr(Outlet, "reverse", lambda self, d: self._start_sending(d))


def stale_markers_count(patch: pytest.MonkeyPatch) -> None:
    right = Outlet.csync

    def wrong(self: Outlet, d: int, version: int) -> bool:
        self.exp, announced = version, self.exp
        try:
            return right(self, d, version)
        finally:
            self.exp = announced

    patch.setattr(Outlet, "csync", wrong)


def wait_for_the_dead(self: ConsumerSide) -> bool:
    return all(inlet.conn[PRIM] == PAUSED for inlet in self.inlets)


def without_reserve(self: ProducerSide, i: int) -> bool:
    return sum(len(outlet.buffer) for outlet in self.outlets) < self.shape.pool


def never_pause(patch: pytest.MonkeyPatch) -> None:
    """Give up draining: room only for what the merge has use for."""

    def accepts(self: ConsumerSide, j: int, d: int, message: Any) -> bool:
        return self.inlets[j].accepts(
            d, message, room=len(self.inlets[j].queue) < self.shape.in_hand
        )

    patch.setattr(ConsumerSide, "accepts", accepts)


def reverse_without_flush(self: Inlet, d: int) -> list[Any]:
    made: list[Any] = right_reverse_to(self, d)
    return [send for send in made if isinstance(send, Send)][-1:]


right_reverse_to = Inlet.reverse_to


DEAF = replace(Outlet, "reverse", lambda self, d: False)
GREEDY = replace(Buffer, "ack_all", nothing)

CAN_FAIL: dict[str, tuple[Plant, Callable[[], object]]] = {
    "FS-1": (
        replace(Outlet, "taken_over", lambda self: self.r_done),
        take_over.test_fs_1_the_secondary_of_a_dataflow_pair_dies,
    ),
    "FS-2": (
        replace(Inlet, "fail", lambda self, d, **_: []),
        lambda: take_over.test_fs_2_the_primary_dies_with_acknowledgements_in_flight(1),
    ),
    "FS-3": (
        after(Buffer, "reset", lambda buffer: buffer.dangling.clear()),
        take_over.test_fs_3_dangling_numbers_are_never_resent,
    ),
    "FS-4": (
        after(Buffer, "reset", forget_what_is_not_acknowledged),
        take_over.test_fs_4_what_is_not_acknowledged_is_resent_in_order,
    ),
    "FS-5": (
        GREEDY,
        lambda: take_over.test_fs_5_without_a_standby_the_flow_goes_on_in_bounded_buffers(AS),
    ),
    "FS-6": (
        served_at_its_own_marker,
        lambda: catch_up.test_fs_6_links_start_at_the_second_marker(
            AS, "standby first", "active first", 1
        ),
    ),
    "FS-8": (
        after(Segment, "install", lambda segment: setattr(segment, "version", 0)),
        take_over.test_fs_8_after_the_fold_in_the_old_copy_may_die,
    ),
    "FS-9 case 1": (
        GREEDY,
        lambda: take_over.test_fs_9_survival_cases_of_a_producer_and_a_consumer_pair(1, 0),
    ),
    "FS-9 case 2": (
        DEAF,
        lambda: take_over.test_fs_9_survival_cases_of_a_producer_and_a_consumer_pair(2, 0),
    ),
    "FS-9 case 3": (
        after(Outlet, "fail", lambda outlet: setattr(outlet, "conn", [SEND, ACK])),
        lambda: take_over.test_fs_9_survival_cases_of_a_producer_and_a_consumer_pair(3, 0),
    ),
    "FS-9 case 4": (
        DEAF,
        lambda: take_over.test_fs_9_survival_cases_of_a_producer_and_a_consumer_pair(4, 0),
    ),
    "FS-10": (
        heed_every_reverse,
        lambda: take_over.test_fs_10_fs_11_a_consumer_dies_while_a_reverse_is_in_flight(BS),
    ),
    "FS-11": (
        DEAF,
        lambda: take_over.test_fs_10_fs_11_a_consumer_dies_while_a_reverse_is_in_flight(BP),
    ),
    "FS-12": (
        replace(Controller, "place", lambda self, pair, c: self.pairs[pair].copies[1 - c].site),
        lambda: take_over.test_fs_12_one_machine_of_four_in_a_chained_layout(0),
    ),
    "FS-13": (DEAF, take_over.test_fs_13_several_pairs_lose_one_copy_at_the_same_time),
    "FS-14": (
        replace(ConsumerSide, "quiet", wait_for_the_dead),
        lambda: catch_up.test_fs_14_the_primary_producer_dies_while_its_consumer_pauses(1, 0),
    ),
    "FS-15": (
        replace(Outlet, "reverse", lambda self, d: self._start_sending(d)),
        lambda: catch_up.test_fs_15_the_secondary_producer_dies_while_its_consumer_pauses_or_moves(
            "moving"
        ),
    ),
    "FS-16": (
        after(Segment, "_abort", lambda segment: setattr(segment, "p_fail", False)),
        lambda: catch_up.test_fs_16_a_standby_that_dies_at_any_point_is_replaced(
            *catch_up.EVERYWHERE[2], 0
        ),
    ),
    "FS-17 AB-2": (
        replace(Outlet, "accepts", lambda self, d, message: True),
        catch_up.test_fs_17_a_marker_that_overtakes_the_announcement_waits_for_it,
    ),
    "FS-17 AB-3": (
        stale_markers_count,
        catch_up.test_fs_17_a_marker_of_an_abandoned_attempt_only_lifts_the_pause,
    ),
    "FS-18": (
        replace(Controller, "incomplete", lambda self: right_incomplete(self)[::-1]),
        take_over.test_fs_18_a_failure_upstream_goes_before_an_announced_catch_up,
    ),
    "FS-19 CU-20": (
        replace(Outlet, "sync", lambda self, standby: setattr(self, "r_done", False)),
        lambda: catch_up.test_fs_19_catch_up_with_the_consumers_in_a_survival_case("case 2", 0),
    ),
    "FS-19 CU-17": (
        after(Outlet, "swap", lambda o: setattr(o, "evict", o.evict ^ MARK_OF[0] ^ MARK_OF[1])),
        lambda: catch_up.test_fs_19_catch_up_with_the_consumers_in_a_survival_case("case 3", 0),
    ),
    "FS-21": (
        after(Segment, "install", lambda s: setattr(s.boundary, "log_position", 1000)),
        lambda: catch_up.test_fs_21_a_consumer_that_fails_during_the_move_is_found_in_the_log(BP),
    ),
    "FS-22": (
        replace(Boundary, "_stale", lambda self, side, d, peer: 0),
        lambda: catch_up.test_fs_22_late_data_of_the_dead_is_discarded(0),
    ),
    "FS-23 UF-2": (
        replace(ProducerSide, "room", lambda self, i: without_reserve(self, i) and i == 0),
        lambda: take_over.test_fs_23_tiny_buffers_and_a_lagging_replica_do_not_deadlock(True, 0),
    ),
    "FS-23 XM-2": (
        replace(ProducerSide, "told_progress", lambda self: -1),
        take_over.test_fs_23_long_runs_for_one_consumer_do_not_deadlock_the_ordered_merge,
    ),
    "FS-24": (
        never_pause,
        lambda: catch_up.test_fs_24_pause_acks_may_come_at_very_different_times(0),
    ),
    "FS-26": (
        replace(Controller, "_lose", lambda self, pair, c, survivor: []),
        take_over.test_fs_26_a_loss_is_reported_whichever_copy_goes_second,
    ),
    "FS-27": (
        replace(Inlet, "reverse_to", reverse_without_flush),
        lambda: [take_over.test_fs_27_cumulative_acknowledgements(seed) for seed in range(10)],
    ),
    "FS-28": (
        replace(Balancer, "_failed", lambda self: False),
        lambda: take_over.test_fs_28_a_site_fails_in_the_middle_of_a_move(0),
    ),
}

right_incomplete = Controller.incomplete


@pytest.mark.parametrize("name", CAN_FAIL)
def test_the_scenario_fails_without_its_rule(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant, scenario = CAN_FAIL[name]
    plant(monkeypatch)
    with pytest.raises((AssertionError, ProtocolError, pytest.fail.Exception, KeyError)):
        scenario()


def test_fs_7_fails_without_matching_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Buffer, "resync", nothing)
        with pytest.raises((AssertionError, ProtocolError)):
            fs_7_four_times(monkeypatch)


def fs_7_four_times(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        catch_up.test_fs_7_the_new_copy_gets_what_was_not_acknowledged_at_csync(seed, monkeypatch)


def test_every_scenario_is_named() -> None:
    """FS-7 is above, FS-20 in `test_flux_replica_sets`, FS-25 in `test_flux_set_preserving`."""
    named = {int(name.split()[0].removeprefix("FS-")) for name in CAN_FAIL}
    assert named == set(range(1, 29)) - {7, 20, 25}
