"""The anomalies demonstration: its traffic, what replicas answer on Spark, and the tally."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from blazes.demo.ads import Size, poor, records, traffic
from blazes.demo.anomalies import COUNTED_BY, Task, data_of, dispute, execute
from blazes.demo.dataflow import ORDERED, SEALED, UNCOORDINATED, WAYS
from blazes.demo.files import as_json, land
from blazes.demo.orders import ArrivalOrder, arrival_order
from blazes.demo.outcome import tally

SIZE = Size(servers=3, campaigns=4, ads=4, clicks=1600, requests=40)
TRAFFIC = traffic(SIZE, seed=3)
ORDERS = [arrival_order(TRAFFIC, random.Random(f"3/{replica}")) for replica in range(2)]
RIGHT = frozenset(poor(TRAFFIC.click_records(), records(TRAFFIC.requests), by=COUNTED_BY))


def predicted(order: ArrivalOrder) -> frozenset[int]:
    """What a replica must say that answers each request from what it has by then."""
    requests = records(TRAFFIC.requests)
    return frozenset(r["request"] for r in requests if 0 < order.clicks_before(r)[1] < 100)


@pytest.mark.spark
def test_every_way_gives_the_answers_that_its_arrival_order_makes(tmp_path: Path) -> None:
    from flux_runtime.spark.session import start_session

    for replica, order in enumerate(ORDERS):
        land(data_of(tmp_path, 0, replica), order.files())
    tasks = [Task(way, 0, replica) for way in WAYS for replica in range(2)]
    session = start_session("test", master="local[2]", conf={}, log=tmp_path / "log.txt")
    try:
        said = execute(session, tmp_path, TRAFFIC, tasks, lambda done, of: None)
    finally:
        session.stop()
    raced, one_order = [predicted(order) for order in ORDERS], predicted(ORDERS[0])
    assert raced[0] != raced[1]
    assert [said[Task(UNCOORDINATED, 0, replica)] for replica in range(2)] == raced
    assert [said[Task(ORDERED, 0, replica)] for replica in range(2)] == [one_order] * 2
    assert [said[Task(SEALED, 0, replica)] for replica in range(2)] == [RIGHT] * 2


def test_the_example_is_a_request_that_replicas_of_one_run_disputed() -> None:
    found = dispute([[predicted(order) for order in ORDERS]], [ORDERS], TRAFFIC, RIGHT)
    assert found is not None
    assert {witness.poor for witness in found.witnesses} == {True, False}
    assert found.right == (found.request["request"] in RIGHT) == (0 < found.clicks < 100)
    for witness in found.witnesses:
        assert witness.poor == (0 < witness.clicks < 100)
        assert witness.clicks <= found.clicks


def test_there_is_no_example_where_nobody_disagreed() -> None:
    assert dispute([[RIGHT, RIGHT]], [ORDERS], TRAFFIC, RIGHT) is None


MESSAGES = traffic(Size(servers=3, campaigns=4, ads=5, clicks=1500, requests=30), seed=5)


def lines(order: ArrivalOrder) -> Counter[str]:
    return Counter(as_json(line) for b in order.batches for line in (*b.clicks, *b.requests))


def test_every_order_brings_every_message_once() -> None:
    should = Counter(as_json(m.line) for m in (*MESSAGES.clicks, *MESSAGES.requests))
    for seed in range(20):
        assert lines(arrival_order(MESSAGES, random.Random(seed))) == should


def test_orders_differ_in_sequence_and_in_boundaries() -> None:
    orders = [arrival_order(MESSAGES, random.Random(seed)) for seed in range(10)]
    assert len({order.batches for order in map(hashable, orders)}) == 10
    assert len({len(order.batches) for order in orders}) > 1


def test_clicks_before_a_request_grow_to_those_that_the_right_answer_counts() -> None:
    requests = records(MESSAGES.requests)
    right = poor(MESSAGES.click_records(), requests, by=("campaign", "id"))
    order = arrival_order(MESSAGES, random.Random(0))
    last = ArrivalOrder((type(order.batches[0])(
        tuple(line for b in order.batches for line in b.clicks),
        tuple(line for b in order.batches for line in b.requests),
    ),))  # fmt: skip
    assert {r["request"] for r in requests if 0 < last.clicks_before(r)[1] < 100} == right
    for request in requests:
        assert order.clicks_before(request)[1] <= last.clicks_before(request)[1]


def hashable(order: ArrivalOrder) -> ArrivalOrder:
    return ArrivalOrder(
        tuple(
            type(b)(tuple(map(as_json, b.clicks)), tuple(map(as_json, b.requests)))
            for b in order.batches
        )
    )


YES = frozenset({1, 2})


def test_equal_answers_count_as_one_output() -> None:
    found = tally([(YES, YES, YES)] * 4, right=YES)
    assert (found.outputs, found.requests, found.replicas_disagreed, found.wrong) == (1, 0, 0, 0)
    assert (found.runs, found.replicas) == (4, 3)


def test_replicas_that_agree_may_still_differ_from_run_to_run() -> None:
    found = tally([(YES, YES), (frozenset(), frozenset())], right=YES)
    assert found.replicas_disagreed == found.requests_by_replica == 0
    assert found.requests_by_run == found.requests == 2
    assert found.wrong == 4


def test_a_request_that_replicas_dispute_counts_once_however_often() -> None:
    found = tally([(YES, frozenset({1}))] * 3, right=YES)
    assert found.replicas_disagreed == 3
    assert found.requests_by_replica == found.requests == 1
    assert found.requests_by_run == 0


def test_answers_that_agree_can_all_be_wrong() -> None:
    found = tally([(frozenset({3}),) * 2], right=YES)
    assert found.outputs == 1
    assert found.wrong == 6
