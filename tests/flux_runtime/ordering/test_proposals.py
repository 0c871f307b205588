"""OR-1 to OR-4 without I/O: losses, repetitions and restarts at every point, one order in the end.

`World` is an ensemble that carries out creates whose answers it loses, or does not, or only after
the process that sent them was replaced.
"""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from flux_runtime.ordering.places import (
    Batch,
    Begin,
    Claim,
    Order,
    OutOfOrder,
    Verdict,
    decode,
    encode,
)
from flux_runtime.ordering.proposals import Action, CatchUp, Create, Placed, Proposals, Superseded

NAMES = ("p", "q")


class Process:
    """A producer's process: its machine, what it has sent, what it has been told."""

    def __init__(self, name: str, number: int) -> None:
        self.machine = Proposals(name, f"{name}{number}", in_flight_max=4)
        self.wire: deque[Claim] = deque()
        self.catching_up = False
        self.placed: list[tuple[Batch, int]] = []
        self.next: int | None = None
        """The next offset to add; known once it has begun."""
        self.read_to = 0


class World(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.places: list[Claim] = []
        self.ghosts: list[Claim] = []
        self.starts = 0
        self.processes: dict[str, Process] = {}
        self.zombies: list[Process] = []
        for name in NAMES:
            self.new(name)

    def new(self, name: str) -> None:
        self.starts += 1
        process = self.processes[name] = Process(name, self.starts)
        self.act(process, process.machine.begin())

    def act(self, process: Process, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Create(claim):
                    process.wire.append(claim)
                case CatchUp():
                    assert not process.wire, "nothing may be under way"
                    process.catching_up = True
                case Placed(batch, place):
                    process.placed.append((batch, place))

    def order(self, to: int | None = None) -> tuple[Order, dict[str, dict[int, int]]]:
        order, places = Order(), {name: {} for name in NAMES}
        for place, claim in enumerate(self.places[:to]):
            if order.handle(place, claim) is Verdict.COUNTS:
                assert isinstance(claim, Batch)
                places[claim.producer][claim.first] = place
        return order, places

    @rule(name=st.sampled_from(NAMES), size=st.integers(1, 3))
    def add(self, name: str, size: int) -> None:
        process = self.processes[name]
        if process.next is not None and process.machine.unplaced < 8:
            self.act(process, process.machine.add(process.next, process.next + size - 1))
            process.next += size

    @rule(name=st.sampled_from(NAMES))
    def answer(self, name: str) -> None:
        process = self.processes[name]
        if process.wire:
            claim = process.wire.popleft()
            self.places.append(claim)
            self.act(process, process.machine.answered(claim, len(self.places) - 1))

    @rule(name=st.sampled_from(NAMES), carried_out=st.integers(0, 4), reconnected=st.booleans())
    def lose_the_connection(self, name: str, carried_out: int, reconnected: bool) -> None:
        """A prefix was carried out; with `reconnected`, the last was sent on the new connection."""
        process = self.processes[name]
        sent = list(process.wire)
        late = [sent.pop()] if reconnected and len(sent) > 1 else []
        process.wire.clear()
        self.places += sent[:carried_out]
        for claim in sent:
            self.act(process, process.machine.failed(claim))
        for claim in late:
            self.places.append(claim)
            self.act(process, process.machine.answered(claim, len(self.places) - 1))

    @rule(name=st.sampled_from(NAMES))
    def catch_up(self, name: str) -> None:
        process = self.processes[name]
        if not process.catching_up:
            return
        process.catching_up = False
        order, places = self.order()
        self.act(process, process.machine.caught_up(order, places[name]))
        if process.next is None and not process.catching_up and not process.wire:
            process.next = order.next_of(name)

    @rule(name=st.sampled_from(NAMES))
    def restart(self, name: str) -> None:
        """A new process takes over; what the old one had under way may still come."""
        old = self.processes[name]
        self.ghosts += old.wire
        old.wire.clear()
        self.zombies.append(old)
        self.new(name)

    @precondition(lambda self: self.ghosts)
    @rule(data=st.data())
    def a_ghost_arrives(self, data: st.DataObject) -> None:
        self.places.append(self.ghosts.pop(data.draw(st.integers(0, len(self.ghosts) - 1))))

    @invariant()
    def every_producer_is_in_its_own_order_and_once(self) -> None:
        order, places = self.order()
        for name in NAMES:
            batches = [self.places[place] for place in places[name].values()]
            offsets = [n for b in batches for n in range(b.first, b.last + 1)]
            assert offsets == list(range(order.next_of(name)))

    @invariant()
    def what_a_producer_was_told_is_so(self) -> None:
        _, places = self.order()
        for name, process in self.processes.items():
            assert all(places[name][b.first] == place for b, place in process.placed)

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
            assert self.order()[0].next_of(name) == process.next
        self.every_producer_is_in_its_own_order_and_once()
        self.what_a_producer_was_told_is_so()


TestWorld = World.TestCase
TestWorld.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


def test_or3_a_process_that_was_replaced_learns_of_it() -> None:
    old = Proposals("p", "old")
    old.begin()
    order = Order()
    order.handle(0, Begin("p", "old", 1))
    old.answered(Begin("p", "old", 1), 0)
    assert old.caught_up(order, {}) == []
    (create,) = old.add(0, 9)
    order.handle(1, Begin("p", "new", 2))
    assert order.handle(2, create.claim) is Verdict.OUTDATED
    old.failed(create.claim)
    with pytest.raises(Superseded):
        old.caught_up(order, {})


def test_or4_a_place_is_never_skipped() -> None:
    order = Order()
    with pytest.raises(OutOfOrder):
        order.handle(1, Begin("p", "t", 1))


def test_or1_a_batch_never_changes() -> None:
    order = Order()
    order.handle(0, Begin("p", "t", 1))
    order.handle(1, Batch("p", "t", 0, 9))
    with pytest.raises(OutOfOrder, match="other bounds"):
        order.handle(2, Batch("p", "t", 5, 14))
    proposals = Proposals("p", "t")
    with pytest.raises(OutOfOrder):
        proposals.add(1, 0)


@given(st.text(), st.text(), st.integers(0), st.integers(0))
def test_claims_survive_their_encoding(name: str, token: str, first: int, more: int) -> None:
    for claim in (Begin(name, token, first), Batch(name, token, first, first + more)):
        assert decode(encode(claim)) == claim


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 5)), max_size=30))
def test_the_state_survives_json(moves: list[tuple[str, int]]) -> None:
    order = Order()
    for place, (name, n) in enumerate(moves):
        claim = Begin(name, str(n), place) if n > 3 else Batch(name, "4", n, n)
        order.handle(place, claim)
    again = Order.from_json(order.to_json())
    assert (again.at, again.producers) == (order.at, order.producers)
