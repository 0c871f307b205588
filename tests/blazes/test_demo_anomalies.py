"""The anomalies demonstration on Spark: each replica answers as its arrival order says it must."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from blazes.demo.ads import Size, poor, records, traffic
from blazes.demo.anomalies import COUNTED_BY, Task, data_of, dispute, execute
from blazes.demo.dataflow import ORDERED, SEALED, UNCOORDINATED, WAYS
from blazes.demo.files import land
from blazes.demo.orders import ArrivalOrder, arrival_order

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
