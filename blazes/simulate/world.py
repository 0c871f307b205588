"""One run of a network: what is on its way, what every instance holds, and what happens next.

No choice is made here. `steps` lists what can be delivered, `perform` delivers it; who drives a
world decides. Equal choices give equal runs, whatever else.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from annotations.dataflow import Endpoint
from blazes.simulate.compiled import Feed
from blazes.simulate.gate import Enveloped, Omniscient, Put, Running
from blazes.simulate.messages import Item, Kind, Message, rank
from blazes.simulate.network import Manner, Network, Part, projected
from blazes.verify.records import Row, sort_key

Channel: TypeAlias = tuple[str, int]
"""A stream on its way to one instance of its consumer."""
Bag: TypeAlias = dict[Any, int]
"""Items, each with how many of it."""
Arrival: TypeAlias = tuple[str, Row]
"""(input interface, record)."""


@dataclass(frozen=True, slots=True)
class Step:
    """A delivery: some records of a channel, as one micro-batch."""

    stream: str
    replica: int
    rows: tuple[tuple[Item, int], ...]
    """Records, each with how many of it; in the order in which they are taken."""


@dataclass(frozen=True, slots=True)
class Event:
    """An act of an instance, for the story of a run."""

    kind: str
    """`receives`, `waits`, `orders`, `releases`, `emits`."""
    component: str
    replica: int
    name: str
    """Interface, partition or stream."""
    rows: tuple[Item, ...]


@dataclass
class Instance:
    """The state of one instance of a component, by output."""

    kept: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    """(output, interface) -> records that stay."""
    emitted: dict[str, frozenset[Row]] = field(default_factory=dict)
    """Output -> everything emitted, or, where it changes, the result as it is now."""
    held: list[Arrival] = field(default_factory=list)
    """Records whose turn in the order has not come."""
    place: dict[Row, int] = field(default_factory=dict)
    """Gate value -> how far it has followed the order."""

    def clone(self) -> Instance:
        """An instance that goes on from here by itself; records are never changed."""
        return Instance(
            kept={at: [*rows] for at, rows in self.kept.items()},
            emitted=dict(self.emitted),
            held=[*self.held],
            place=dict(self.place),
        )

    def freeze(self) -> Any:
        """A hashable value: equal for instances that will do the same."""
        return (
            _frozen(self.kept),
            frozenset(self.emitted.items()),
            tuple(sorted(self.held, key=repr)),
            tuple(sorted(self.place.items(), key=repr)),
        )


class World:
    """A run.

    Args:
        network: what runs.
        inputs: source stream -> its records, each with how many of it.
        order: what an earlier run recorded: (component, gate value) -> records in order.
        oracle: gates know everything; nobody has to tell them.
    """

    def __init__(
        self,
        network: Network,
        inputs: dict[str, Bag],
        order: dict[tuple[str, Row], list[Arrival]] | None = None,
        *,
        oracle: bool = False,
    ) -> None:
        self.network = network
        self.inputs = inputs
        self.oracle = oracle
        self.gates: dict[tuple[Endpoint, int], Running | Omniscient] = {}
        self.released: dict[tuple[Endpoint, int], Counter[Arrival]] = {}
        """Gated output and instance -> (waiting input, record) -> how often it was handed over."""
        self.promised: dict[tuple[Channel, Message], int] = {}
        """Punctuation -> its count."""
        self.pending: dict[Channel, Bag] = {}
        self.instances = {
            (name, n): Instance()
            for name in network.parts
            for n in range(network.replicas.get(name, 1))
        }
        self.sent: dict[Channel, frozenset[Row]] = {}
        """(stream, instance of the producer) -> everything sent."""
        self.order = {} if order is None else {at: list(its) for at, its in order.items()}
        self.delivered = 0
        """Records so far."""
        self.events: list[Event] | None = None
        for wire in network.sources:
            if wire.name in network.delivered and inputs.get(wire.name):
                for replica in network.receivers(wire, 0):
                    self.pending[wire.name, replica] = dict(inputs[wire.name])
        self.announced = partitions(network, inputs)
        self._announce()

    def clone(self) -> World:
        """A run that goes on from here by itself; of a network without gates."""
        other = copy.copy(self)
        other.pending = {at: dict(bag) for at, bag in self.pending.items()}
        other.instances = {at: instance.clone() for at, instance in self.instances.items()}
        other.sent = dict(self.sent)
        other.order = {at: list(its) for at, its in self.order.items()}
        return other

    def freeze(self) -> Any:
        """A hashable value: equal for runs that will end alike under equal choices."""
        return (
            frozenset((at, frozenset(bag.items())) for at, bag in self.pending.items()),
            tuple(instance.freeze() for instance in self.instances.values()),
            frozenset(self.sent.items()),
            repr(self.order),
        )

    # ---- steps

    def steps(self) -> list[Step]:
        """Every delivery that is possible: one record, all equal ones, a whole channel."""
        possible = []
        for (stream, replica), bag in sorted(self.pending.items(), key=lambda entry: entry[0]):
            rows = sorted(bag.items(), key=lambda entry: rank(entry[0]))
            for row, times in rows:
                for count in dict.fromkeys((1, times)):
                    possible.append(Step(stream, replica, ((row, count),)))
            if len(rows) > 1:
                possible.append(Step(stream, replica, tuple(rows)))
        return possible

    def possible(self, step: Step) -> bool:
        """Whether these records are on their way there."""
        bag = self.pending.get((step.stream, step.replica), {})
        return all(adverse(row) or bag.get(row, 0) >= count for row, count in step.rows)

    def due(self, step: Step) -> Step | None:
        """The part of a step whose records are on their way there; None where nothing is."""
        bag = self.pending.get((step.stream, step.replica), {})
        rows = tuple(
            (row, count if adverse(row) else min(count, bag[row]))
            for row, count in step.rows
            if row in bag or adverse(row)
        )
        return Step(step.stream, step.replica, rows) if rows else None

    def perform(self, step: Step) -> None:
        """Deliver; every consequence inside the instances happens at once."""
        channel = (step.stream, step.replica)
        bag = self.pending.get(channel, {})
        items = []
        for item, count in step.rows:
            items += [item] * count
            if not adverse(item):
                self.delivered += count
                bag[item] -= count
                if not bag[item]:
                    del bag[item]
        if not bag:
            self.pending.pop(channel, None)
        if step.stream in self.network.intakes:
            self._intake(channel, items)
            return
        wire = self.network.wires[step.stream]
        assert wire.consumer is not None
        columns = self._interface(wire.consumer)
        rows = [projected(row, wire.columns, columns) for row in items if isinstance(row, tuple)]
        self._receive(wire.consumer, step.replica, rows)

    def _interface(self, at: Endpoint) -> tuple[str, ...]:
        for part in self.network.parts[at.component]:
            if at.interface in part.operator.schemas:
                return tuple(part.operator.schemas[at.interface])
        return ()

    def rest(self) -> bool:
        """With nothing on its way: let ordered instances go on; False where nothing is left."""
        for (component, replica), instance in self.instances.items():
            if instance.held:
                self._force(component, replica)
                return True
        for part in self.network.gated:
            for replica in range(self.network.replicas[part.at.component]):
                gate = self._gate(part, replica)
                if isinstance(gate, Omniscient) and gate.waits:
                    self._hand_over(part, replica, gate.put())
                    return True
        return False

    # ---- arrival

    def _receive(self, at: Endpoint, replica: int, rows: list[Row]) -> None:
        self._note("receives", at.component, replica, at.interface, rows)
        ordered = self.network.ordered.get(at.component)
        if ordered is not None and at.interface in ordered.inputs:
            self.instances[at.component, replica].held += [(at.interface, row) for row in rows]
            self._follow(at.component, replica)
        else:
            self._process(at, replica, rows)

    def _process(self, at: Endpoint, replica: int, rows: list[Row]) -> None:
        for part in self.network.parts[at.component]:
            if at.interface not in part.operator.schemas:
                continue
            if part.gate is None:
                self._compute(part, replica, at.interface, rows)
            elif at.interface in part.gate.reads:  # SE-12
                columns = tuple(part.operator.schemas[at.interface])
                self._gate(part, replica).ask(at.interface, rows, columns)
                self._release(part, replica)

    def _compute(self, part: Part, replica: int, interface: str, rows: list[Row]) -> None:
        instance, output = self.instances[part.at.component, replica], part.at.interface
        if interface in part.keeps:
            instance.kept.setdefault((output, interface), []).extend(rows)
        if part.manner is Manner.ANSWERING and interface in part.keeps:
            return
        visible = {name: instance.kept.get((output, name), []) for name in part.keeps}
        if part.manner is Manner.ANSWERING:
            arrivals = [(interface, row) for row in rows]
            self._emit(part, replica, self._answers(part, visible, arrivals))
            return
        if interface not in part.keeps:
            visible[interface] = rows
        result = self._evaluate(part, visible)
        if part.manner is Manner.RECORD_WISE:
            self._emit(part, replica, result)
            return
        before = instance.emitted.get(output, frozenset())
        now = frozenset(result)
        instance.emitted[output] = before | now if part.manner is Manner.GROWING else now
        self._emit(part, replica, sorted(now - before, key=sort_key))

    def _answers(
        self, part: Part, visible: dict[str, list[Row]], asked: list[Arrival]
    ) -> list[Row]:
        """The answers to requests, as many to equal ones as if they had come one by one.

        How many answers there are must not depend on which requests met in a micro-batch: who
        reads the answers may count them.
        """
        turns = Counter(asked)
        answers: list[Row] = []
        for turn in range(max(turns.values(), default=0)):
            now: dict[str, list[Row]] = {}
            for (name, row), times in turns.items():
                if times > turn:
                    now.setdefault(name, []).append(row)
            answers += self._evaluate(part, visible | now)
        return answers

    def _evaluate(self, part: Part, visible: dict[str, list[Row]]) -> list[Row]:
        inputs = tuple((n, tuple(visible.get(n, ()))) for n in part.operator.interfaces)
        output = self.network.evaluate(part.operator, inputs)
        wanted = self._columns(part) or output.columns
        return [projected(row, output.columns, wanted) for row in output.rows]

    def _columns(self, part: Part) -> tuple[str, ...]:
        return self.network.wires[part.streams[0]].columns if part.streams else ()

    def _emit(
        self, part: Part, replica: int, rows: Sequence[Row], released: Sequence[Row] = ()
    ) -> None:
        self._send(part, replica, rows, released)
        if not rows:
            return
        self._note("emits", part.at.component, replica, part.at.interface, rows)
        own = self._columns(part)
        for name in part.streams:
            wire = self.network.wires[name]
            sending = [projected(row, own, wire.columns or own) for row in rows]
            before = self.sent.get((name, replica), frozenset())
            self.sent[name, replica] = before.union(sending)
            if name in self.network.delivered:
                for receiver in self.network.receivers(wire, replica):
                    self._put_on_way((name, receiver), sending)

    # ---- gates

    def _gate(self, part: Part, replica: int) -> Running | Omniscient:
        """The gate of an instance."""
        place = (part.at, replica)
        if place not in self.gates:
            assert part.gate is not None
            running = Running(part.gate, self.network.inputs_of(part))
            self.gates[place] = (
                Omniscient(running, self.announced[part.at]) if self.oracle else running
            )
        return self.gates[place]

    def _intake(self, channel: Channel, items: Sequence[Item]) -> None:
        """A micro-batch for a gate, and every release that follows."""
        intake = self.network.intakes[channel[0]]
        at, replica = intake.part.at, channel[1]
        self._note("receives", at.component, replica, intake.name, items)
        gate = self._gate(intake.part, replica)
        running = gate.judge if isinstance(gate, Omniscient) else gate
        sent: list[Enveloped] = []
        for item in items:
            match item:
                case Message(Kind.PUNCTUATION):
                    sent.append(running.punctuation(item, self.promised.get((channel, item), 0)))
                case Message(Kind.REPEAT):
                    sent.append(running.record(intake.name, item.value))
                case Message(Kind.STRANGER):
                    sent.append(running.record(intake.name, item.value, "stranger"))
                case Message(Kind.AGAIN) if running.complete(item.value):
                    sent += self._again(channel, running, item.value)
                case Message():
                    pass
                case _:
                    sent.append(running.record(intake.name, item))
        if sent:
            gate.take(intake.name, sent)
        for item in items:
            if isinstance(item, Message) and item.kind is Kind.REGISTRATION:
                running.register(intake.name, item.value)
            elif isinstance(item, Message) and item.kind is Kind.CRASH:
                running.crash(intake.name)
        self._release(intake.part, replica)

    def _again(self, channel: Channel, running: Running, value: Row) -> Iterator[Enveloped]:
        """All that a source said of a partition."""
        intake = self.network.intakes[channel[0]]
        for row, times in self.inputs.get(intake.origin.name, {}).items():
            if intake.origin.value(row) == value:
                yield from [running.record(intake.name, row)] * times
        for (at, message), count in self.promised.items():
            if at == channel and message.value == value:
                yield running.punctuation(message, count)

    def _release(self, part: Part, replica: int) -> None:
        gate = self._gate(part, replica)
        for put in () if isinstance(gate, Omniscient) else gate.releases():
            self._hand_over(part, replica, put)

    def _hand_over(self, part: Part, replica: int, put: Put) -> None:
        """The effect of a release: the component sees whole partitions, and answers requests."""
        gate = part.gate
        assert gate is not None
        counted = self.released.setdefault((part.at, replica), Counter())
        for name, rows in put.whole.items():
            counted.update((name, row) for row in rows)
        self._note("releases", part.at.component, replica, part.at.interface, put.released)
        visible: dict[str, list[Row]] = {}
        for interface, feeds in gate.waits.items():
            columns = tuple(part.operator.schemas[interface])
            rows = visible[interface] = []
            for feed in feeds:
                for name, origin in self.network.inputs_of(part).items():
                    if origin.name == feed.origin:
                        visible_rows = put.visible.get(name, [])
                        rows += self._through(feed, origin.columns, visible_rows, columns)
            if gate.in_sequence:  # SE-11
                rows.sort(key=partial(self._rank, part, interface))
        if gate.reads and put.asked:
            self._emit(part, replica, self._answers(part, visible, put.asked))
        elif not gate.reads:
            self._emit(part, replica, self._evaluate(part, visible), put.released)

    def _through(
        self, feed: Feed, columns: tuple[str, ...], rows: Sequence[Row], wanted: tuple[str, ...]
    ) -> list[Row]:
        """Records after the transforms of a feed, which are fused into the gate."""
        for at in feed.transforms:
            part = self.network.part(at)
            (interface,) = part.operator.interfaces
            inner = tuple(part.operator.schemas[interface])
            rows = self._evaluate(part, {interface: [projected(r, columns, inner) for r in rows]})
            columns = self._columns(part) or inner
        return [projected(row, columns, wanted) for row in rows]

    def _rank(self, part: Part, name: str, row: Row) -> Any:
        assert part.gate is not None
        columns = list(part.operator.schemas[name])
        first = tuple(row[columns.index(n)] for n in part.gate.order_by if n in columns)
        return sort_key(first), sort_key(row)

    def _send(self, part: Part, replica: int, rows: Sequence[Row], released: Sequence[Row]) -> None:
        """To the gates that wait for this output: its records, and punctuations after them."""
        for channel, intake, taker in self.network.takers(part.at, replica):
            origin, place = intake.origin, (channel, taker)
            own = [projected(row, self._columns(part), origin.columns) for row in rows]
            self._put_on_way(place, own)
            assert part.gate is not None
            for value in released if part.gate.forward else ():
                named = dict(zip(part.gate.forward, value, strict=True))
                there = tuple(named[name] for name in origin.key)
                message = Message(Kind.PUNCTUATION, there, str(origin.unit))
                self.promised[place, message] = sum(origin.value(row) == there for row in own)
                self._put_on_way(place, [message])

    def _put_on_way(self, channel: Channel, items: Iterable[Item]) -> None:
        bag = self.pending.setdefault(channel, {})
        for item in items:
            bag[item] = bag.get(item, 0) + 1
        if not bag:
            del self.pending[channel]

    def _announce(self) -> None:
        """The input that sources send to gates: records, and a punctuation for each partition."""
        for channel, intake in self.network.intakes.items():
            origin = intake.origin
            if origin.unit is not None:
                continue
            bag = self.inputs.get(origin.name, {})
            sent: Counter[tuple[str, Row]] = Counter()
            for row, times in bag.items():
                sent[origin.producer(row), origin.value(row)] += times
            for replica in range(self.network.replicas[intake.part.at.component]):
                place = (channel, replica)
                self._put_on_way(place, [r for r, times in bag.items() for _ in range(times)])
                for value in self.announced[intake.part.at]:
                    for producer in origin.members(value):
                        message = Message(Kind.PUNCTUATION, value, producer)
                        self.promised[place, message] = sent[producer, value]
                        self._put_on_way(place, [message])
                    if origin.sends.rule == "registered":
                        self._put_on_way(place, [Message(Kind.REGISTRATION, value)])

    def mischief(self, rng: random.Random) -> Step | None:
        """A step of which nothing may come; None where this choice has none."""
        channel = rng.choice(list(self.network.intakes))
        intake = self.network.intakes[channel]
        origin = intake.origin
        kinds = [Kind.CRASH]
        rows = list(self.inputs.get(origin.name, {}))
        if origin.unit is None and rows:
            kinds.append(Kind.AGAIN)
            if origin.sends.rule != "one":
                kinds.append(Kind.STRANGER)
            if origin.id:
                kinds.append(Kind.REPEAT)
        kind = rng.choice(kinds)
        value: Row = ()
        if kind is not Kind.CRASH:
            row = rng.choice(rows)
            value = row if kind.of_record else origin.value(row)
            if kind is Kind.REPEAT and origin.identity(row) is None:
                return None
        replica = rng.randrange(self.network.replicas[intake.part.at.component])
        return Step(channel, replica, ((Message(kind, value), 1),))

    # ---- order

    def _gate_value(self, component: str, interface: str, row: Row) -> Row:
        ordered = self.network.ordered[component]
        if ordered.gate is None:
            return ()
        part = next(p for p in self.network.parts[component] if interface in p.operator.schemas)
        columns = list(part.operator.schemas[interface])
        return tuple(row[columns.index(name)] for name in ordered.gate)

    def _follow(self, component: str, replica: int) -> None:
        """Process what the order says is next (OR-4); what it does not know yet gets a place."""
        instance = self.instances[component, replica]
        going = True
        while going:
            going = False
            for arrival in list(instance.held):
                value = self._gate_value(component, *arrival)
                places = self.order.setdefault((component, value), [])
                place = instance.place.get(value, 0)
                if place == len(places):
                    places.append(arrival)
                    self._note("orders", component, replica, arrival[0], [arrival[1]])
                if place < len(places) and places[place] == arrival:
                    instance.held.remove(arrival)
                    instance.place[value] = place + 1
                    self._process(Endpoint(component, arrival[0]), replica, [arrival[1]])
                    going = True

    def _force(self, component: str, replica: int) -> None:
        """Skip places whose records do not come in this run, until one does."""
        instance = self.instances[component, replica]
        arrival = instance.held[0]
        value = self._gate_value(component, *arrival)
        places = self.order.setdefault((component, value), [])
        place = instance.place.get(value, 0)
        waiting = [a for a in instance.held if self._gate_value(component, *a) == value]
        later = [n for n in range(place, len(places)) if places[n] in waiting]
        instance.place[value] = later[0] if later else len(places)
        self._follow(component, replica)

    # ---- the story

    def _note(
        self, kind: str, component: str, replica: int, name: str, rows: Iterable[Item]
    ) -> None:
        if self.events is not None:
            self.events.append(Event(kind, component, replica, name, tuple(rows)))


def adverse(item: Item) -> bool:
    """Whether it is the adversary's, and so always possible."""
    return isinstance(item, Message) and item.kind.adverse


def partitions(network: Network, inputs: Mapping[str, Bag]) -> dict[Endpoint, dict[Row, None]]:
    """Gated output -> the partitions of which all its producers have to know."""
    known: dict[Endpoint, dict[Row, None]] = {}
    for part in network.gated:
        assert part.gate is not None
        known[part.at] = {}
        for name, bag in inputs.items() if part.gate.reads else ():  # empty ones are asked for too
            columns = network.wires[name].columns
            if set(part.gate.key) <= set(columns):
                places = [columns.index(attribute) for attribute in part.gate.key]
                values = (tuple(row[n] for n in places) for row in bag)
                known[part.at] |= {value: None for value in values if None not in value}
    grown = True
    while grown:
        before = sum(map(len, known.values()))
        for intake in network.intakes.values():
            mine, origin = known[intake.part.at], intake.origin
            if origin.unit is None:
                rows = inputs.get(origin.name, {})
                mine |= {v: None for v in map(origin.value, rows) if None not in v}
                continue
            theirs, unit = known[origin.unit], network.part(origin.unit).gate
            assert unit is not None
            if unit.forward:
                there = [unit.forward.index(name) for name in origin.key]
                mine |= {tuple(value[n] for n in there): None for value in theirs}
                here = [origin.key.index(name) for name in unit.forward]
                theirs |= {tuple(value[n] for n in here): None for value in mine}
        grown = sum(map(len, known.values())) > before
    return known


def _frozen(rows: dict[tuple[str, str], list[Row]]) -> frozenset[Any]:
    return frozenset((at, tuple(its)) for at, its in rows.items() if its)
