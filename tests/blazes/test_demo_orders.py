"""Arrival orders bring the same traffic, in other orders and other micro-batches."""

from __future__ import annotations

import random
from collections import Counter

from blazes.demo.ads import Size, poor, records, traffic
from blazes.demo.files import as_json
from blazes.demo.orders import ArrivalOrder, arrival_order

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
