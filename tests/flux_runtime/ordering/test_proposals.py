"""OR-1 to OR-4 without I/O: losses, repetitions and restarts at every point, one order in the end.

`World` is an ensemble that carries out creates whose answers it loses, or does not, or only after
the process that sent them was replaced.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flux_runtime.ordering.places import (
    CLAIMS_MAX,
    Batch,
    Begin,
    Claims,
    Order,
    OutOfOrder,
    Producer,
    Verdict,
    counting,
    decode,
    encode,
)
from flux_runtime.ordering.proposals import Action, CatchUp, Create, Placed, Proposals, Superseded
from flux_runtime.zookeeper.nodes import DATA_BYTES_MAX

NAMES = ("p", "q")


class Process:
    """A producer's process: its machine, what it has sent, what it has been told."""

    def __init__(self, name: str, number: int) -> None:
        self.machine = Proposals(name, f"{name}{number}", in_flight_max=2, group_max=3)
        self.wire: deque[Claims] = deque()
        self.catching_up = False
        self.placed: list[tuple[Batch, int]] = []
        self.added: list[tuple[int, int]] = []
        self.next: int | None = None
        """The next offset to add; known once it has begun."""


class World(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.places: list[Claims] = []
        self.ghosts: list[Claims] = []
        self.starts = 0
        self.processes: dict[str, Process] = {}
        for name in NAMES:
            self.new(name)

    def new(self, name: str) -> None:
        self.starts += 1
        process = self.processes[name] = Process(name, self.starts)
        self.act(process, process.machine.begin())

    def act(self, process: Process, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Create(claims):
                    process.wire.append(claims)
                    assert len(process.wire) <= 2
                    assert len(claims) <= 3
                case CatchUp():
                    assert not process.wire, "nothing may be under way"
                    process.catching_up = True
                case Placed(batch, place):
                    process.placed.append((batch, place))

    def order(self) -> tuple[Order, dict[str, dict[Batch, int]]]:
        """The order of all places, and where the batches that count are."""
        order, places = Order(), {name: {} for name in NAMES}
        for place, claims in enumerate(self.places):
            for _, batch in counting(claims, order.handle(place, claims)):
                assert batch not in places[batch.producer]
                places[batch.producer][batch] = place
        return order, places

    @rule(name=st.sampled_from(NAMES), sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5))
    def add(self, name: str, sizes: list[int]) -> None:
        process = self.processes[name]
        for size in sizes:
            if process.next is not None and process.machine.unplaced < 10:
                bounds = process.next, process.next + size - 1
                process.added.append(bounds)
                self.act(process, process.machine.add(*bounds))
                process.next += size

    @rule(name=st.sampled_from(NAMES))
    def answer(self, name: str) -> None:
        process = self.processes[name]
        if process.wire:
            claims = process.wire.popleft()
            self.places.append(claims)
            self.act(process, process.machine.answered(claims, len(self.places) - 1))

    @rule(name=st.sampled_from(NAMES), carried_out=st.integers(0, 2), reconnected=st.booleans())
    def lose_the_connection(self, name: str, carried_out: int, reconnected: bool) -> None:
        """A prefix was carried out; with `reconnected`, the last was sent on the new connection."""
        process = self.processes[name]
        sent = list(process.wire)
        late = [sent.pop()] if reconnected and len(sent) > 1 else []
        process.wire.clear()
        self.places += sent[:carried_out]
        for claims in sent:
            self.act(process, process.machine.failed(claims))
        for claims in late:
            self.places.append(claims)
            self.act(process, process.machine.answered(claims, len(self.places) - 1))

    @rule(name=st.sampled_from(NAMES))
    def catch_up(self, name: str) -> None:
        process = self.processes[name]
        if not process.catching_up:
            return
        process.catching_up = False
        order, places = self.order()
        ours = {batch.first: place for batch, place in places[name].items()}
        self.act(process, process.machine.caught_up(order, ours))
        if process.next is None and not process.catching_up and not process.wire:
            process.next = order.next_of(name)

    @rule(name=st.sampled_from(NAMES))
    def restart(self, name: str) -> None:
        """A new process takes over; what the old one had under way may still come."""
        old = self.processes[name]
        self.ghosts += old.wire
        old.wire.clear()
        self.new(name)

    @precondition(lambda self: self.ghosts)
    @rule(data=st.data())
    def a_ghost_arrives(self, data: st.DataObject) -> None:
        self.places.append(self.ghosts.pop(data.draw(st.integers(0, len(self.ghosts) - 1))))

    @invariant()
    def every_producer_is_in_its_own_order_and_once(self) -> None:
        order, places = self.order()
        for name in NAMES:
            offsets = [n for b in places[name] for n in range(b.first, b.last + 1)]
            assert offsets == list(range(order.next_of(name)))

    @invariant()
    def batches_keep_their_bounds(self) -> None:
        """OR-1: whatever company they were in, and however often they were proposed."""
        _, places = self.order()
        for name, process in self.processes.items():
            ours = {(b.first, b.last) for b in places[name] if b.token == process.machine.token}
            assert ours <= set(process.added)

    @invariant()
    def what_a_producer_was_told_is_so(self) -> None:
        _, places = self.order()
        for name, process in self.processes.items():
            assert all(places[name][batch] == place for batch, place in process.placed)
            told = [(batch.first, batch.last) for batch, _ in process.placed]
            assert told == process.added[: len(told)], "in order, and each once"

    def teardown(self) -> None:
        """Without further losses everything that was added counts."""
        if not hasattr(self, "places"):
            return
        self.places += self.ghosts
        for name in NAMES:
            process = self.processes[name]
            for _ in range(100):
                self.catch_up(name)
                self.answer(name)
            assert process.machine.idle
            assert len(process.placed) == len(process.added)
            assert self.order()[0].next_of(name) == process.next
        self.every_producer_is_in_its_own_order_and_once()
        self.batches_keep_their_bounds()
        self.what_a_producer_was_told_is_so()


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def begun(**options: int) -> tuple[Proposals, Order]:
    """A producer's machine that has begun, and the order so far."""
    proposals, order = Proposals("p", "t", **options), Order()
    (create,) = proposals.begin()
    order.handle(0, create.claims)
    assert proposals.answered(create.claims, 0) == [CatchUp()]
    assert proposals.caught_up(order, {}) == []
    return proposals, order


def batches(*bounds: tuple[int, int]) -> tuple[Batch, ...]:
    return tuple(Batch("p", "t", first, last) for first, last in bounds)


def test_a_lone_batch_goes_out_at_once_and_those_that_wait_share_a_place() -> None:
    proposals, _ = begun(in_flight_max=2, group_max=3)
    first, second = batches((0, 9)), batches((10, 19))
    assert proposals.add(0, 9) == [Create(first)]
    assert proposals.add(10, 19) == [Create(second)]
    assert not proposals.waiting
    for start in range(20, 60, 10):
        assert proposals.add(start, start + 9) == []
        assert proposals.waiting
    together = batches((20, 29), (30, 39), (40, 49))
    assert proposals.answered(first, 1) == [Placed(*first, 1), Create(together)]
    alone = batches((50, 59))
    assert proposals.answered(second, 3) == [Placed(*second, 3), Create(alone)]
    assert proposals.unplaced == 4
    assert not proposals.waiting
    assert proposals.answered(together, 4) == [Placed(batch, 4) for batch in together]
    assert proposals.answered(alone, 5) == [Placed(*alone, 5)]
    assert proposals.idle
    assert proposals.add(60, 60) == [Create(batches((60, 60)))]  # idle again: at once


def test_or9_without_groups_every_batch_has_a_place_of_its_own() -> None:
    proposals, _ = begun(in_flight_max=3, group_max=1)
    for n in range(6):
        proposals.add(n, n)
    for n in range(6):
        actions = proposals.answered(batches((n, n)), n + 1)
        following = [Create(batches((n + 3, n + 3)))] if n < 3 else []
        assert actions == [Placed(*batches((n, n)), n + 1), *following]


@pytest.mark.parametrize("groups", [0, CLAIMS_MAX + 1])
def test_a_group_is_neither_empty_nor_larger_than_a_place(groups: int) -> None:
    with pytest.raises(ValueError, match="creates of"):
        Proposals("p", "t", group_max=groups)
    with pytest.raises(ValueError, match="creates of"):
        Proposals("p", "t", in_flight_max=0)
    with pytest.raises(OutOfOrder, match=f"holds {groups} claims"):
        Order().handle(0, batches(*((n, n) for n in range(groups))))


def test_the_largest_group_is_far_below_what_a_znode_holds() -> None:
    at = 2**62
    claims = batches(*((n, n) for n in range(at, at + CLAIMS_MAX)))
    assert len(encode(claims)) < DATA_BYTES_MAX / 20
    assert decode(encode(claims)) == claims
    order = Order(1, {"p": Producer("t", at, 1)})
    assert order.handle(1, claims) == (Verdict.COUNTS,) * CLAIMS_MAX


def test_of_two_starts_with_one_number_the_first_counts() -> None:
    order = Order()
    assert order.handle(0, (Begin("p", "t", 1),)) == (Verdict.BEGUN,)
    assert order.handle(1, (Begin("p", "u", 1),)) == (Verdict.OUTDATED,)
    assert order.handle(2, (Begin("p", "u", 2),)) == (Verdict.BEGUN,)


def test_or3_a_group_whose_answer_was_lost_is_not_repeated_and_the_rest_finds_new_company() -> None:
    proposals, order = begun(in_flight_max=1, group_max=4)
    proposals.add(0, 0)
    for n in range(1, 5):
        proposals.add(n, n)
    (_, create) = proposals.answered(batches((0, 0)), 1)
    order.handle(1, batches((0, 0)))
    proposals.add(5, 5)
    assert proposals.failed(create.claims) == [CatchUp()]
    assert proposals.add(6, 6) == []  # nothing goes out meanwhile
    carried_out = Order.from_json(order.to_json())
    carried_out.handle(2, create.claims)
    lost = copy.deepcopy(proposals)
    together = batches((1, 1), (2, 2), (3, 3), (4, 4))
    assert lost.caught_up(order, {}) == [Create(together)]
    assert proposals.caught_up(carried_out, dict.fromkeys(range(1, 5), 2)) == [
        *(Placed(batch, 2) for batch in together),
        Create(batches((5, 5), (6, 6))),
    ]


def test_every_batch_of_a_place_is_judged_by_what_comes_before_it() -> None:
    order = Order()
    order.handle(0, (Begin("p", "t", 1),))
    order.handle(1, batches((0, 9), (10, 14)))
    again_and_more = batches((0, 9), (10, 14), (15, 15), (16, 19))
    verdicts = order.handle(2, again_and_more)
    assert verdicts == (*[Verdict.REPEATED] * 2, *[Verdict.COUNTS] * 2)
    assert list(counting(again_and_more, verdicts)) == [
        (2, Batch("p", "t", 15, 15)),
        (3, Batch("p", "t", 16, 19)),
    ]
    assert order.handle(3, batches((21, 22), (23, 24))) == (Verdict.AHEAD, Verdict.AHEAD)
    assert order.next_of("p") == 20
    assert order.handle(4, batches((20, 20))) == (Verdict.COUNTS,)
    order.handle(5, (Begin("p", "u", 2),))
    assert order.handle(6, batches((21, 22), (23, 24))) == (Verdict.OUTDATED, Verdict.OUTDATED)


def test_or3_a_process_that_was_replaced_learns_of_it() -> None:
    old, order = begun()
    (create,) = old.add(0, 9)
    order.handle(1, (Begin("p", "new", 2),))
    assert order.handle(2, create.claims) == (Verdict.OUTDATED,)
    old.failed(create.claims)
    with pytest.raises(Superseded):
        old.caught_up(order, {})


def test_or4_a_place_is_never_skipped() -> None:
    order = Order()
    with pytest.raises(OutOfOrder):
        order.handle(1, (Begin("p", "t", 1),))


def test_or1_a_batch_never_changes() -> None:
    order = Order()
    order.handle(0, (Begin("p", "t", 1),))
    order.handle(1, batches((0, 9)))
    before = order.to_json()
    for overlapping in (batches((5, 14)), batches((0, 9), (10, 12), (11, 14))):
        with pytest.raises(OutOfOrder, match="other bounds"):
            order.handle(2, overlapping)
        assert order.to_json() == before
    proposals = Proposals("p", "t")
    with pytest.raises(OutOfOrder):
        proposals.add(1, 0)


@given(st.text(), st.text(), st.integers(0), st.lists(st.integers(0), min_size=1, max_size=9))
def test_claims_survive_their_encoding(name: str, token: str, first: int, more: list[int]) -> None:
    ends = itertools.accumulate(more, lambda end, n: end + n + 1, initial=first - 1)
    group = tuple(Batch(name, token, end + 1, last) for end, last in itertools.pairwise(ends))
    for claims in ((Begin(name, token, first),), group):
        assert decode(encode(claims)) == claims


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5)), max_size=30))
def test_the_state_survives_json(moves: list[tuple[str, int]]) -> None:
    order = Order()
    for place, (name, n) in enumerate(moves):
        claim = Begin(name, str(n), place) if n > 3 else Batch(name, "4", n, n)
        order.handle(place, (claim,))
    again = Order.from_json(order.to_json())
    assert (again.at, again.producers) == (order.at, order.producers)
