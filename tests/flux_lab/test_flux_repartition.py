"""Flux-LB: the skew buffer, moves of partitions (LB-1 to LB-9)."""

from __future__ import annotations

import random
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import pytest

from flux_lab.repartition import (
    Item,
    LoadConsumer,
    LoadProducer,
    MoveOrder,
    MoveRound,
    PartPaused,
    PartState,
    PausePart,
    Restart,
)
from flux_lab.skew_buffer import SkewBuffer
from flux_runtime.protocol.vocabulary import ProtocolError


def test_a_slow_partition_blocks_no_other() -> None:
    buffer = SkewBuffer(4)
    for part, item in (("a", 1), ("a", 2), ("b", 3), ("b", 4)):
        assert buffer.insert(part, item)
    assert not buffer.insert("c", 5)
    found = [buffer.retrieve(lambda part: part != "a") for _ in range(3)]
    assert found == [("b", 3), ("b", 4), None]
    assert buffer.retrieve(lambda part: True) == ("a", 1)


def test_lb_4_a_stalled_partition_goes_on_gathering() -> None:
    buffer = SkewBuffer(4)
    buffer.insert("a", 1)
    buffer.stall("a")
    buffer.insert("a", 2)
    assert buffer.retrieve(lambda part: True) is None
    buffer.resume("a")
    assert buffer.retrieve(lambda part: True) == ("a", 1)


class Log:
    """Remembers the items of every partition, in order."""

    def __init__(self) -> None:
        self.seen: dict[Any, list[Any]] = {}

    def process(self, part: Any, item: Any) -> None:
        self.seen.setdefault(part, []).append(item)

    def get_partition_state(self, part: Any) -> list[Any]:
        return self.seen.pop(part, [])

    def install_partition_state(self, part: Any, state: list[Any]) -> None:
        assert part not in self.seen
        self.seen[part] = state


class Stage:
    """Two producers, three sites, and FIFO links between them; one move at a time."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.where = {part: part % 3 for part in PARTS}
        self.producers = [LoadProducer(n, self.where, capacity=5) for n in (0, 1)]
        self.consumers = [
            LoadConsumer(s, Log(), [p for p in PARTS if p % 3 == s], producers=2) for s in SITES
        ]
        self.inputs = [deque(Item(rng.choice(PARTS), (n, i)) for i in range(60)) for n in (0, 1)]
        self.forward: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self.back: dict[tuple[int, int], deque[Any]] = defaultdict(deque)
        self.states: deque[tuple[int, PartState]] = deque()
        self.round: MoveRound | None = None
        self.moves_left = 8

    def choices(self) -> list[tuple[Callable[..., None], Any]]:
        """What can happen next; nothing once all is delivered and no move is under way."""
        full = [p.buffer.full for p in self.producers]
        found: list[tuple[Callable[..., None], Any]] = []
        found += [(self.take_in, n) for n in (0, 1) if self.inputs[n] and not full[n]]
        found += [(self.send, n) for n in (0, 1) if self.producers[n].buffer.count]
        found += [(self.deliver, link) for link, queue in self.forward.items() if queue]
        found += [(self.answer, link) for link, queue in self.back.items() if queue]
        found += [(self.arrive, None)] if self.states else []
        if self.moves_left and self.round is None:
            found.append((self.move, self.rng.choice(PARTS)))
        return found

    def take_in(self, n: int) -> None:
        self.producers[n].insert(self.inputs[n].popleft())

    def send(self, n: int) -> None:
        found = self.producers[n].next_item([s for s in SITES if len(self.forward[n, s]) < 2])
        if found:
            self.forward[n, found[0]].append(found[1])

    def deliver(self, link: tuple[int, int]) -> None:
        message, consumer = self.forward[link].popleft(), self.consumers[link[1]]
        if isinstance(message, Item):
            consumer.item(message)
        elif (leaving := consumer.paused(message)) is not None:
            self.states.append(leaving)

    def answer(self, link: tuple[int, int]) -> None:
        message, producer = self.back[link].popleft(), self.producers[link[1]]
        if isinstance(message, PausePart):
            site, paused = producer.pause(message)
            self.forward[link[1], site].append(paused)
        else:
            producer.restart(message)

    def arrive(self, _: None) -> None:
        site, state = self.states.popleft()
        restart = self.consumers[site].state(state)
        for n in (0, 1):
            self.back[site, n].append(restart)
        assert self.round is not None
        if self.round.restarted(restart):
            self.round = None

    def move(self, part: int) -> None:
        self.moves_left -= 1
        order = MoveOrder(part, self.where[part], (self.where[part] + 1) % 3)
        self.where[part] = order.destination
        self.round = MoveRound([order])
        assert self.consumers[order.destination].order(order) is None
        pause = self.consumers[order.origin].order(order)
        for n in (0, 1):
            self.back[order.origin, n].append(pause)


PARTS, SITES = list(range(6)), [0, 1, 2]


@pytest.mark.parametrize("seed", range(60))
def test_lb_moves_lose_repeat_and_reorder_nothing(seed: int) -> None:
    rng = random.Random(seed)
    stage = Stage(rng)
    expected = {
        (part, n): [item.value for item in stage.inputs[n] if item.part == part]
        for part in PARTS
        for n in (0, 1)
    }
    while choices := stage.choices():
        happen, what = rng.choice(choices)
        happen(what)
    assert not stage.moves_left
    for (part, n), values in expected.items():
        operator = stage.consumers[stage.where[part]].operator
        assert isinstance(operator, Log)
        assert [value for value in operator.seen.get(part, []) if value[0] == n] == values


def test_lb_1_lb_2_and_lb_3_only_the_origin_of_a_move_has_something_to_do_first() -> None:
    order = MoveOrder("a", 0, 1)
    origin = LoadConsumer(0, Log(), ["a"], producers=1)
    assert LoadConsumer(1, Log(), ["b"], producers=1).order(order) is None
    assert origin.order(order) == PausePart("a")
    assert LoadConsumer(2, Log(), ["c"], producers=1).order(order) is None
    origin.item(Item("a", 1))  # it goes on meanwhile
    with pytest.raises(ProtocolError, match="not its own"):
        origin.order(MoveOrder("b", 0, 1))


def test_lb_6_lb_7_and_lb_8_the_state_arrives_and_producers_send_there() -> None:
    origin = LoadConsumer(0, Log(), ["a"], producers=1)
    destination = LoadConsumer(1, Log(), [], producers=1)
    producer = LoadProducer(0, {"a": 0}, capacity=4)
    origin.order(MoveOrder("a", 0, 1))
    site, paused = producer.pause(PausePart("a"))
    assert site == 0, "behind the data"
    producer.insert(Item("a", 1))
    assert producer.next_item([0, 1]) is None, "it gathers"
    leaving = origin.paused(paused)
    assert leaving == (1, PartState("a", []))
    assert leaving is not None
    restart = destination.state(leaving[1])
    assert restart == Restart("a", 1)
    producer.restart(restart)
    assert producer.next_item([0]) is None
    assert producer.next_item([0, 1]) == (1, Item("a", 1))
    destination.item(Item("a", 1))


def test_lb_5_the_state_leaves_only_when_every_producer_has_paused() -> None:
    consumer = LoadConsumer(0, Log(), ["a"], producers=2)
    assert consumer.order(MoveOrder("a", 0, 1)) == PausePart("a")
    assert consumer.paused(PartPaused("a", 0)) is None
    consumer.item(Item("a", 1))
    assert consumer.paused(PartPaused("a", 1)) == (1, PartState("a", [1]))
    with pytest.raises(ProtocolError, match="not here"):
        consumer.item(Item("a", 2))


def test_lb_9_a_round_is_over_when_every_partition_has_been_restarted() -> None:
    moves = MoveRound([MoveOrder("a", 0, 1), MoveOrder("b", 0, 2)])
    assert not moves.restarted(Restart("a", 1))
    assert moves.restarted(Restart("b", 2))
