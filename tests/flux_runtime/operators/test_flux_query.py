"""SQL components in Flux segments: answers, changes, what is new, and state that moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from flux_runtime.operators.packing import pack, unpack
from flux_runtime.operators.query import Gives, Query, QueryPlan, tagged
from flux_runtime.operators.rows import number

CLICK, REQUEST = 0, 1
CLICKS = [("id", pa.int64()), ("campaign", pa.string())]
REQUESTS = [("id", pa.int64()), ("who", pa.string())]
COUNTS = [("id", pa.int64()), ("clicks", pa.int64())]

POOR = QueryPlan(
    sql="SELECT who, r.id, count(c.id) AS clicks FROM request r LEFT JOIN click c ON r.id = c.id "
    "GROUP BY who, r.id HAVING count(c.id) < 3",
    inputs={"click": CLICKS, "request": REQUESTS},
    output=[("who", pa.string()), *COUNTS],
    gives=Gives.ANSWERS,
    reads=["request"],
)
COUNT = QueryPlan(
    sql="SELECT id, count(*) AS clicks FROM click GROUP BY id",
    inputs={"click": CLICKS},
    output=COUNTS,
    gives=Gives.CHANGES,
    gate=["id"],
)
THRESHOLD = QueryPlan(
    sql="SELECT id, 3::BIGINT AS clicks FROM click GROUP BY id HAVING count(*) >= 3",
    inputs={"click": CLICKS},
    output=COUNTS,
    gives=Gives.NEW,
)
EACH = QueryPlan(
    sql="SELECT id, length(campaign) AS clicks FROM click WHERE id IS NOT NULL",
    inputs={"click": CLICKS},
    output=COUNTS,
    gives=Gives.RECORDS,
)


def batch(rows: Sequence[tuple[Any, ...]], interface: int, place: int) -> Any:
    schema = pa.schema(CLICKS if interface == CLICK else REQUESTS)
    columns = list(zip(*rows, strict=True))
    table = pa.table([pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)], schema)
    return number(tagged(table, interface), place)


def shown(made: Any) -> list[tuple[Any, ...]]:
    names = [n for n in made.schema.names if not n.startswith("sn_")]
    return [tuple(row[n] for n in names) for row in made.to_pylist()]


def test_requests_are_answered_once_from_what_was_written_before_them() -> None:
    query = Query(POOR)
    assert shown(query.process(batch([(1, "a"), (1, "b"), (2, "a")], CLICK, 0))) == []
    asked = [(1, "x"), (2, "x"), (3, "y")]
    answers = [("x", 1, 2), ("x", 2, 1), ("y", 3, 0)]
    assert shown(query.process(batch(asked, REQUEST, 1))) == answers
    query.process(batch([(1, "c")], CLICK, 2))
    assert shown(query.process(batch([(1, "z"), (2, "z")], REQUEST, 3))) == [("z", 2, 1)]


def test_only_changed_gate_partitions_are_put_out() -> None:
    query = Query(COUNT)
    assert shown(query.process(batch([(1, "a"), (None, "a")], CLICK, 0))) == [(1, 1), (None, 1)]
    assert shown(query.process(batch([(None, "b"), (2, "b")], CLICK, 1))) == [(2, 1), (None, 2)]


def test_without_a_gate_everything_is_put_out() -> None:
    query = Query(replace(COUNT, gate=[]))
    query.process(batch([(1, "a")], CLICK, 0))
    assert shown(query.process(batch([(2, "b")], CLICK, 1))) == [(1, 1), (2, 1)]


def test_what_only_grows_is_put_out_once() -> None:
    query = Query(THRESHOLD)
    assert shown(query.process(batch([(1, "a"), (1, "b")], CLICK, 0))) == []
    assert shown(query.process(batch([(1, "c")], CLICK, 1))) == [(1, 3)]
    assert shown(query.process(batch([(1, "d"), (2, "d")], CLICK, 2))) == []


def test_a_function_of_records_keeps_nothing() -> None:
    query = Query(EACH)
    assert shown(query.process(batch([(1, "ab"), (None, "x")], CLICK, 0))) == [(1, 2)]
    assert query.state_size() == 0


def test_replicas_can_be_told_apart_and_sequence_numbers_differ() -> None:
    made = [Query(EACH, replica=r).process(batch([(1, "ab"), (2, "c")], CLICK, 7)) for r in (1, 2)]
    assert [shown(each) for each in made] == [[(1, 2, 1), (2, 1, 1)], [(1, 2, 2), (2, 1, 2)]]
    places = [
        tuple(row[n] for n in ("sn_batch", "sn_offset", "sn_sub"))
        for each in made
        for row in each.to_pylist()
    ]
    assert len(set(places)) == 4
    assert places == sorted(places)
    assert {place[:2] for place in places} == {(7, 1)}


def test_a_value_that_does_not_fit_is_an_error_and_nothing_else() -> None:
    plan = QueryPlan(
        sql="SELECT id, sum(id) AS clicks FROM click GROUP BY id",
        inputs={"click": CLICKS},
        output=COUNTS,
        gives=Gives.CHANGES,
        gate=["id"],
    )
    with pytest.raises(pa.ArrowInvalid):
        Query(plan).process(batch([(2**62, "a")] * 3, CLICK, 0))


KEYS = st.one_of(st.none(), st.integers(0, 3))
SOME = st.lists(
    st.tuples(st.sampled_from([CLICK, REQUEST]), st.lists(KEYS, min_size=1, max_size=4)),
    max_size=6,
)


@settings(max_examples=20)
@given(SOME, st.integers(0, 6), st.sampled_from([POOR, COUNT, THRESHOLD]))
@example([(CLICK, [None, None, None]), (CLICK, [None])], 1, THRESHOLD)
def test_a_copy_goes_on_where_another_was(
    arrivals: list[tuple[int, list[int | None]]], cut: int, plan: QueryPlan
) -> None:
    arrivals = [a for a in arrivals if a[0] < len(plan.inputs)]
    one, other = Query(plan), Query(plan)
    for place, (interface, ids) in enumerate(arrivals):
        if place == cut:
            other = Query(plan)
            other.install_state(unpack(pack(one.get_state())))
        came = batch([(i, "w") for i in ids], interface, place)
        made = shown(one.process(came))
        if place < cut:
            other.process(came)
        else:
            assert shown(other.process(came)) == made
    assert one.state_size() == other.state_size()


@settings(max_examples=20)
@given(SOME)
def test_counts_are_those_of_a_counter(arrivals: list[tuple[int, list[int | None]]]) -> None:
    query, counted = Query(COUNT), Counter[int | None]()
    for place, (_, ids) in enumerate(arrivals):
        counted.update(ids)
        made = query.process(batch([(i, "w") for i in ids], CLICK, place))
        assert dict(shown(made)) == {i: counted[i] for i in ids}
