"""Traffic of the demonstrations: arrival orders bring the same messages; answers are counted."""

from __future__ import annotations

import random
from collections import Counter

from blazes.demo.ads import Size, poor, records, traffic
from blazes.demo.files import as_json
from blazes.demo.orders import ArrivalOrder, arrival_order
from blazes.demo.outcome import tally

TRAFFIC = traffic(Size(servers=3, campaigns=4, ads=5, clicks=1500, requests=30), seed=5)


def lines(order: ArrivalOrder) -> Counter[str]:
    return Counter(as_json(line) for b in order.batches for line in (*b.clicks, *b.requests))


def test_every_order_brings_every_message_once() -> None:
    should = Counter(as_json(m.line) for m in (*TRAFFIC.clicks, *TRAFFIC.requests))
    for seed in range(20):
        assert lines(arrival_order(TRAFFIC, random.Random(seed))) == should


def test_orders_differ_in_sequence_and_in_boundaries() -> None:
    orders = [arrival_order(TRAFFIC, random.Random(seed)) for seed in range(10)]
    assert len({order.batches for order in map(hashable, orders)}) == 10
    assert len({len(order.batches) for order in orders}) > 1


def test_clicks_before_a_request_grow_to_those_that_the_right_answer_counts() -> None:
    requests = records(TRAFFIC.requests)
    right = poor(TRAFFIC.click_records(), requests, by=("campaign", "id"))
    order = arrival_order(TRAFFIC, random.Random(0))
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
