"""Ingress and egress (NC-1, NC-6, NC-7), and the two sides of every node between them."""

from __future__ import annotations

import random

import pytest

from flux_lab.checks import Checks
from flux_lab.papers.protocol.consumer import ConsumerSide
from flux_lab.papers.protocol.ends import Egress, Ingress
from flux_lab.papers.protocol.inlet import Consumer
from flux_lab.papers.protocol.messages import AckSource, Data, Emit, Progress
from flux_lab.papers.protocol.outlet import Producer
from flux_lab.papers.protocol.producer import ProducerSide
from flux_lab.sweep import victims
from flux_lab.workload import digest_dataflow, digest_input
from flux_lab.world import Step, World
from flux_runtime.protocol.vocabulary import END, PRIM, THE_INGRESS, Node, ProtocolError, Shape

AP, AS = Node(0, 0, 0, 0), Node(0, 0, 1, 0)
ROWS = (((0, 0), 1, 5),)


def test_nc_1_and_nc_6_a_batch_is_acknowledged_once_it_is_in_the_buffer() -> None:
    ingress = Ingress(digest_dataflow(Shape(widths=(1,), pool=2)))
    assert [ingress.feed(ROWS) for _ in range(2)] == [[AckSource(0)], [AckSource(1)]]
    assert ingress.feed(ROWS) == [], "the pool is full: the source keeps it"
    assert not ingress.wants_input
    with pytest.raises(ProtocolError, match="no room"):
        ingress.feed(ROWS)
    for peer in (AP, AS):
        assert ingress.next_message(peer) == Data(0, ROWS)
    for d in (0, 1):
        assert ingress.boundary.producer is not None
        outlet = ingress.boundary.producer.outlets[0]
        outlet.buffer.ack(0, d, outlet.evict)
    assert ingress.work() == [AckSource(2)]
    assert ingress.wants_input


def test_xm_3_the_end_of_the_input_is_known_when_all_of_it_has_been_sent() -> None:
    ingress = Ingress(digest_dataflow(Shape(widths=(2,))))
    ingress.feed((((0, 0), 1, 5), ((0, 1), 2, 5)))
    ingress.finish()
    assert not ingress.wants_input
    assert [ingress.next_message(AP) for _ in range(3)] == [
        Data(0, (((0, 1), 2, 5),)),
        Progress(END),
        None,
    ]


def egress(results_max: int) -> Egress:
    made = Egress(digest_dataflow(Shape(widths=(1,), in_hand=8, results_max=results_max)))
    for batch in range(4):
        made.receive(AP, Data(batch, ROWS))
    return made


def emitted(made: Egress) -> list[Emit]:
    out: list[Emit] = []
    while made.can_work():
        out += [i for i in made.work() if isinstance(i, Emit)]
    return out


def test_nc_7_results_stay_until_the_destination_acknowledges_them_and_not_too_many() -> None:
    made = egress(2)
    first = emitted(made)
    assert [e.batch for e in first] == [0, 1]
    assert made.work() == [], "the destination is to acknowledge something first"
    assert made.again() == first, "a destination that comes back gets what it may have lost"
    made.acknowledged(first[0])
    assert [e.batch for e in emitted(made)] == [2]
    assert [e.batch for e in made.unacked] == [1, 2]


def test_nc_7_a_destination_that_acknowledges_nothing_gets_each_result_once() -> None:
    made = egress(0)
    assert [e.batch for e in emitted(made)] == [0, 1, 2, 3]
    assert made.again() == []


def test_nc_7_a_negative_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="keeps -1 results"):
        Shape(widths=(1,), results_max=-1)


@pytest.mark.parametrize("seed", range(6))
def test_nc_7_a_slow_destination_stops_the_flow_and_loses_nothing(seed: int) -> None:
    shape = Shape(widths=(2, 2), results_max=1 + seed % 3, pool=4)
    dataflow, rows = digest_dataflow(shape), digest_input(10, rows=2, keys=5)
    checks = Checks(dataflow, rows, states=True)
    world = World(dataflow, rows, sites=3, spares=1, link_capacity=2, checks=checks)
    rng = random.Random(seed)
    slow, kills = 400, 2
    for n in range(20_000):
        steps = [s for s in world.steps() if n > slow or s.kind != "acknowledge"]
        if not steps and n < slow:
            assert world.emitted == shape.results_max, "it waits for the destination"
            slow = n
            continue
        if not steps:
            break
        may_die = victims(world, reckless=False)
        if kills and n > slow and may_die and rng.random() < 0.05:
            kills -= 1
            world.perform(Step("kill", rng.choice(may_die)))
        else:
            world.perform(rng.choice(steps))
    world.finished()
    assert slow < 400


def held(pool: int, units: list[int]) -> list[int]:
    """Units that the outlets of an ingress hold after these have been offered to each."""
    producer = ProducerSide(Shape(widths=(len(units),), pool=pool), Producer.INGRESS, THE_INGRESS)
    for i, n in enumerate(units):
        for batch in range(n):
            producer.offer(batch, {i: "rows"})
            producer.admit()
            producer.pending = ()
    return [len(outlet.buffer) for outlet in producer.outlets]


def test_uf_1_one_consumer_may_take_the_room_that_others_do_not_use() -> None:
    assert held(20, [50, 0]) == [18, 0]
    assert held(20, [5, 12]) == [5, 12]


def test_uf_2_and_uf_3_every_connection_has_a_reserve_without_being_asked() -> None:
    assert held(20, [50, 50, 50]) == [16, 2, 2], "two connections per pair (AMB-23)"


def side(width: int, *, ordered: bool = True) -> ConsumerSide:
    shape = Shape(widths=(width, 1), ordered_egress=ordered)
    kind = Consumer.F if ordered else Consumer.EGRESS
    return ConsumerSide(shape, kind, Node(1, 0, 0, 0))


def test_xm_1_a_batch_leaves_when_every_producer_has_sent_its_part_or_has_none() -> None:
    consumer = side(3)
    consumer.receive(0, PRIM, Data(4, "a"))
    consumer.receive(1, PRIM, Data(4, "b"))
    assert not consumer.ready()
    assert consumer.take() is None
    consumer.receive(2, PRIM, Progress(3))
    assert consumer.take() is None
    consumer.receive(2, PRIM, Data(5, "c"))
    assert consumer.take() == (4, ["a", "b"])
    assert consumer.take() is None, "the first two may still have a part of batch 5"
    consumer.receive(0, PRIM, Progress(END))
    consumer.receive(1, PRIM, Progress(5))
    assert consumer.complete() == 4
    assert consumer.take() == (5, ["c"])
    assert consumer.complete() == 5


def test_xm_1_without_order_whatever_is_there_leaves() -> None:
    consumer = side(2, ordered=False)
    consumer.receive(1, PRIM, Data(7, "b"))
    assert consumer.take() == (7, ["b"])
    assert consumer.take() is None
