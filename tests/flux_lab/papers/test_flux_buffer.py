"""The buffer: BUF-1 to BUF-8, cumulative acknowledgements (BUF-C), invariants BI-1 to BI-6."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flux_lab.papers.protocol.buffer import Buffer
from flux_runtime.protocol.vocabulary import (
    MARK_PRIM,
    MARK_SEC,
    PRIM,
    PROD,
    SEC,
    ProtocolError,
)

ALL = PROD | MARK_PRIM | MARK_SEC


def filled(*numbers: int, evict: int = ALL, cumulative: bool = False) -> Buffer:
    buffer = Buffer(cumulative=cumulative)
    for sn in numbers:
        buffer.put(f"rows {sn}", sn, evict)
    return buffer


def drained(buffer: Buffer, d: int) -> list[int]:
    found = []
    while (unit := buffer.peek(d)) is not None:
        found.append(unit[0])
        buffer.advance(d)
    return found


def test_buf_1_peek_gives_the_first_undelivered_unit_and_changes_nothing() -> None:
    buffer = filled(3, 5)
    before = buffer.freeze(ALL, (True, True))
    assert buffer.peek(PRIM) == (3, "rows 3")
    assert buffer.freeze(ALL, (True, True)) == before


def test_buf_1_peek_skips_what_the_destination_has() -> None:
    buffer = filled(3, 5)
    buffer.ack(3, SEC, ALL)
    assert buffer.peek(SEC) == (5, "rows 5")
    assert buffer.peek(PRIM) == (3, "rows 3")


def test_buf_2_each_destination_has_its_own_cursor() -> None:
    buffer = filled(3, 5)
    buffer.advance(PRIM)
    assert buffer.peek(PRIM) == (5, "rows 5")
    assert buffer.peek(SEC) == (3, "rows 3")


def test_buf_3_put_keeps_a_unit_until_all_marks_are_there() -> None:
    buffer = filled(3)
    buffer.ack(3, PRIM, ALL)
    assert len(buffer) == 1
    buffer.ack(3, SEC, ALL)
    assert len(buffer) == 0


def test_buf_3_a_dangling_number_is_a_duplicate_filter() -> None:
    buffer = Buffer()
    evict = PROD | MARK_PRIM
    buffer.ack(3, PRIM, evict)
    assert not buffer.needs_room(3)
    buffer.put("rows 3", 3, evict)
    assert len(buffer) == 0
    assert buffer.dangling == {}
    assert buffer.peek(PRIM) is None


def test_buf_3_and_bi_5_a_unit_is_produced_once() -> None:
    buffer = filled(3)
    with pytest.raises(ProtocolError, match="twice"):
        buffer.put("again", 3, ALL)


def test_buf_4_an_early_acknowledgement_dangles() -> None:
    buffer = Buffer()
    buffer.ack(7, SEC, ALL)
    assert buffer.dangling == {7: MARK_SEC}
    assert buffer.peek(SEC) is None
    buffer.put("rows 7", 7, ALL)
    assert buffer.peek(SEC) is None
    assert buffer.peek(PRIM) == (7, "rows 7")


def test_buf_5_a_death_marks_everything_and_forgets_what_only_the_dead_had() -> None:
    buffer = filled(1, 2)
    buffer.ack(1, PRIM, ALL)
    buffer.ack(8, SEC, ALL)
    buffer.ack_all(SEC, ALL)
    assert list(buffer.entries) == [2]
    assert buffer.dangling == {}
    buffer.ack(2, PRIM, ALL & ~MARK_SEC)
    assert len(buffer) == 0


def test_buf_5_dangling_numbers_that_the_survivor_has_too_stay() -> None:
    buffer = Buffer()
    buffer.ack(4, PRIM, ALL)
    buffer.ack(4, SEC, ALL)
    buffer.ack_all(SEC, ALL)
    assert list(buffer.dangling) == [4]


def test_buf_6_take_over_resends_what_is_not_acknowledged_and_changes_no_mark() -> None:
    buffer = filled(1, 2, 3)
    drained(buffer, SEC)
    buffer.ack(2, SEC, ALL)
    marks = {sn: e.marks for sn, e in buffer.entries.items()}
    buffer.reset(SEC)
    assert drained(buffer, SEC) == [1, 3]
    assert {sn: e.marks for sn, e in buffer.entries.items()} == marks


def test_buf_7_and_bi_6_fold_in_gives_the_new_copy_what_the_survivor_has_not() -> None:
    buffer = filled(1, 2, 3, evict=PROD | MARK_PRIM)
    buffer.ack_all(SEC, ALL)
    buffer.ack(1, PRIM, PROD | MARK_PRIM)
    buffer.resync(SEC)
    assert {e.marks for e in buffer.entries.values()} == {PROD}  # BI-6
    assert drained(buffer, SEC) == [2, 3]


def test_buf_7_what_the_survivor_acknowledged_early_will_not_be_sent_to_the_new_copy() -> None:
    buffer = filled(1)
    buffer.ack(2, SEC, ALL)
    buffer.resync(PRIM)
    buffer.put("rows 2", 2, ALL)
    assert drained(buffer, PRIM) == [1]


def test_buf_8_swap_exchanges_marks_and_cursors() -> None:
    buffer = filled(1, 2)
    buffer.ack(1, PRIM, ALL)
    drained(buffer, PRIM)
    buffer.swap()
    assert buffer.entries[1].marks == PROD | MARK_SEC
    assert drained(buffer, PRIM) == [1, 2]
    assert drained(buffer, SEC) == []


def test_buf_c_one_acknowledgement_stands_for_all_before_it() -> None:
    buffer = filled(1, 2, 4, cumulative=True)
    buffer.ack(2, PRIM, ALL)
    buffer.ack(4, SEC, ALL)
    assert list(buffer.entries) == [4]


def test_buf_c_a_unit_produced_after_its_acknowledgement_is_marked_at_once() -> None:
    buffer = Buffer(cumulative=True)
    buffer.ack(5, SEC, ALL)
    assert not buffer.needs_room(3)
    buffer.put("rows 3", 3, ALL)
    assert buffer.peek(SEC) is None
    buffer.put("rows 6", 6, ALL)
    assert buffer.peek(SEC) == (6, "rows 6")


def test_buf_c_resync_and_swap_take_the_high_marks_along() -> None:
    buffer = filled(1, 2, 3, cumulative=True)
    buffer.ack(2, PRIM, ALL)
    buffer.resync(SEC)
    assert buffer.hi == [2, 2]
    buffer.ack(3, PRIM, ALL)
    buffer.swap()
    assert buffer.hi == [2, 3]


def test_bi_1_is_checked() -> None:
    buffer = filled(1)
    buffer.entries[1] = buffer.entries[1]._replace(marks=0)
    with pytest.raises(ProtocolError, match="BI-1"):
        buffer.validate(ALL)


def test_bi_3_is_checked() -> None:
    buffer = filled(1)
    buffer.cursor[PRIM] = 1
    buffer.validate(ALL)  # it may be under way
    with pytest.raises(ProtocolError, match="BI-3"):
        buffer.validate(ALL, sent_for_good=(PRIM,))
    buffer.ack(1, PRIM, ALL)
    buffer.validate(ALL, sent_for_good=(PRIM,))


def test_bi_4_a_dangling_number_is_never_sent_and_is_checked() -> None:
    buffer = filled(1)
    buffer.ack(2, SEC, ALL)
    assert buffer.peek(PRIM) == (1, "rows 1")
    buffer.advance(PRIM)
    assert buffer.peek(PRIM) is None
    buffer.dangling[1] = MARK_SEC
    with pytest.raises(ProtocolError, match="BI-4"):
        buffer.validate(ALL)


def test_bi_2_is_checked() -> None:
    buffer = filled(1)
    buffer.ack(1, PRIM, ALL)
    with pytest.raises(ProtocolError, match="BI-2"):
        buffer.validate(PROD | MARK_PRIM)


actions = st.lists(
    st.tuples(st.sampled_from(["put", "ack", "peek"]), st.integers(0, 12), st.integers(0, 1)),
    max_size=60,
)


@given(actions)
@settings(deadline=None)
def test_a_unit_is_delivered_at_most_once_and_gone_when_both_have_it(
    steps: list[tuple[str, int, int]],
) -> None:
    buffer = Buffer()
    put: set[int] = set()
    has: tuple[set[int], set[int]] = (set(), set())
    delivered: tuple[list[int], list[int]] = ([], [])
    for what, sn, d in steps:
        if what == "put" and sn not in put:
            put.add(sn)
            buffer.put(sn, sn, ALL)
        elif what == "ack" and sn not in has[d]:
            has[d].add(sn)
            buffer.ack(sn, d, ALL)
        elif what == "peek" and (unit := buffer.peek(d)) is not None:
            assert unit[0] not in has[d]
            delivered[d].append(unit[0])
            buffer.advance(d)
        buffer.validate(ALL)
    assert set(buffer.entries) == put - (has[0] & has[1])
    assert set(buffer.dangling) == (has[0] | has[1]) - put
    for d in (PRIM, SEC):
        assert len(delivered[d]) == len(set(delivered[d]))
