"""The two sides of a node: the pool that outlets share, and the merge of inlets."""

from __future__ import annotations

from flux_runtime.protocol.consumer import ConsumerSide
from flux_runtime.protocol.inlet import Consumer
from flux_runtime.protocol.messages import Data, Progress
from flux_runtime.protocol.outlet import Producer
from flux_runtime.protocol.producer import ProducerSide
from flux_runtime.protocol.vocabulary import END, PRIM, THE_INGRESS, Node, Shape


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
