"""One run of a network: what is on its way, what every instance holds, and what happens next.

No choice is made here. `steps` lists what can be delivered, `perform` delivers it; who drives a
world decides. Equal choices give equal runs, whatever else.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from annotations.dataflow import Endpoint
from blazes.simulate.network import Manner, Network, Part, Wire, projected
from blazes.verify.records import Row, sort_key

Channel: TypeAlias = tuple[str, int]
"""A stream on its way to one instance of its consumer."""
Bag: TypeAlias = dict[Row, int]
Arrival: TypeAlias = tuple[str, Row]
"""(input interface, record)."""


@dataclass(frozen=True, slots=True)
class Step:
    """A delivery: some records of a channel, as one micro-batch."""

    stream: str
    replica: int
    rows: tuple[tuple[Row, int], ...]
    """Records, each with how many of it; in the order in which they are taken."""


@dataclass(frozen=True, slots=True)
class Event:
    """What an instance did, for the story of a run."""

    kind: str
    """`receives`, `waits`, `orders`, `releases`, `emits`."""
    component: str
    replica: int
    name: str
    """Interface, partition or stream."""
    rows: tuple[Row, ...]


@dataclass
class Instance:
    """What one instance of a component holds, by output."""

    kept: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    """(output, interface) -> records that stay."""
    emitted: dict[str, frozenset[Row]] = field(default_factory=dict)
    """Output -> everything emitted, or, where it changes, the result as it is now."""
    waiting: dict[tuple[str, str], list[Row]] = field(default_factory=dict)
    """(output, interface) -> records of partitions that are not complete."""
    released: dict[str, dict[Row, dict[str, list[Row]]]] = field(default_factory=dict)
    """Output -> key value -> its records by interface."""
    asked: dict[str, list[Arrival]] = field(default_factory=dict)
    """Output -> requests that wait for a partition."""
    held: list[Arrival] = field(default_factory=list)
    """Records whose turn in the order has not come."""
    place: dict[Row, int] = field(default_factory=dict)
    """Gate value -> how far it has followed the order."""

    def clone(self) -> Instance:
        """An instance that goes on from here by itself; records are never changed."""
        released = {
            output: {value: {n: [*rows] for n, rows in its.items()} for value, its in known.items()}
            for output, known in self.released.items()
        }
        return Instance(
            kept={at: [*rows] for at, rows in self.kept.items()},
            emitted=dict(self.emitted),
            waiting={at: [*rows] for at, rows in self.waiting.items()},
            released=released,
            asked={at: [*its] for at, its in self.asked.items()},
            held=[*self.held],
            place=dict(self.place),
        )

    def freeze(self) -> Any:
        """A hashable value: equal for instances that will do the same."""
        return (
            _frozen(self.kept),
            frozenset(self.emitted.items()),
            _frozen(self.waiting),
            repr(self.released),
            repr(self.asked),
            tuple(sorted(self.held, key=repr)),
            tuple(sorted(self.place.items(), key=repr)),
        )


class World:
    """A run.

    Args:
        network: what runs.
        inputs: source stream -> its records, each with how many of it.
        order: what an earlier run recorded: (component, gate value) -> records in order.
    """

    def __init__(
        self,
        network: Network,
        inputs: dict[str, Bag],
        order: dict[tuple[str, Row], list[Arrival]] | None = None,
    ) -> None:
        self.network = network
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
            for replica in network.receivers(wire, 0):
                bag = dict(inputs.get(wire.name, {}))
                if bag:
                    self.pending[wire.name, replica] = bag

    def clone(self) -> World:
        """A run that goes on from here by itself."""
        other = copy.copy(self)
        other.pending = {at: dict(bag) for at, bag in self.pending.items()}
        other.instances = {at: each.clone() for at, each in self.instances.items()}
        other.sent = dict(self.sent)
        other.order = {at: list(its) for at, its in self.order.items()}
        return other

    def freeze(self) -> Any:
        """A hashable value: equal for runs that will end alike under equal choices."""
        return (
            frozenset((at, frozenset(bag.items())) for at, bag in self.pending.items()),
            tuple(each.freeze() for each in self.instances.values()),
            frozenset(self.sent.items()),
            repr(self.order),
        )

    # ---- steps

    def steps(self) -> list[Step]:
        """Every delivery that is possible: one record, all equal ones, a whole channel."""
        found = []
        for (stream, replica), bag in sorted(self.pending.items(), key=lambda each: each[0]):
            rows = sorted(bag.items(), key=lambda each: sort_key(each[0]))
            for row, times in rows:
                for count in dict.fromkeys((1, times)):
                    found.append(Step(stream, replica, ((row, count),)))
            if len(rows) > 1:
                found.append(Step(stream, replica, tuple(rows)))
        return found

    def possible(self, step: Step) -> bool:
        """Whether these records are on their way there."""
        bag = self.pending.get((step.stream, step.replica), {})
        return all(bag.get(row, 0) >= count for row, count in step.rows)

    def due(self, step: Step) -> Step | None:
        """The part of a step whose records are on their way there; None where nothing is."""
        bag = self.pending.get((step.stream, step.replica), {})
        rows = tuple((row, min(count, bag[row])) for row, count in step.rows if row in bag)
        return Step(step.stream, step.replica, rows) if rows else None

    def perform(self, step: Step) -> None:
        """Deliver; every consequence inside the instances happens at once."""
        channel = (step.stream, step.replica)
        bag = self.pending[channel]
        for row, count in step.rows:
            self.delivered += count
            bag[row] -= count
            if not bag[row]:
                del bag[row]
        if not bag:
            del self.pending[channel]
        wire = self.network.wires[step.stream]
        assert wire.consumer is not None
        columns = self._interface(wire.consumer)
        rows = [
            projected(row, wire.columns, columns) for row, count in step.rows for _ in range(count)
        ]
        self._receive(wire.consumer, step.replica, rows)
        self._release()

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
                self._release()
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
            if part.sealed is not None:
                self._await(part, replica, at.interface, rows)
            else:
                self._compute(part, replica, at.interface, rows)

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
        found: list[Row] = []
        for turn in range(max(turns.values(), default=0)):
            now: dict[str, list[Row]] = {}
            for (name, row), times in turns.items():
                if times > turn:
                    now.setdefault(name, []).append(row)
            found += self._evaluate(part, visible | now)
        return found

    def _evaluate(self, part: Part, visible: dict[str, list[Row]]) -> list[Row]:
        inputs = tuple((n, tuple(visible.get(n, ()))) for n in part.operator.interfaces)
        found = self.network.evaluate(part.operator, inputs)
        wanted = self._columns(part) or found.columns
        return [projected(row, found.columns, wanted) for row in found.rows]

    def _columns(self, part: Part) -> tuple[str, ...]:
        return self.network.wires[part.streams[0]].columns if part.streams else ()

    def _emit(self, part: Part, replica: int, rows: Sequence[Row]) -> None:
        if not rows:
            return
        self._note("emits", part.at.component, replica, part.at.interface, rows)
        own = self._columns(part)
        for name in part.streams:
            wire = self.network.wires[name]
            sending = [projected(row, own, wire.columns or own) for row in rows]
            before = self.sent.get((name, replica), frozenset())
            self.sent[name, replica] = before.union(sending)
            if wire.consumer is None:
                continue
            for receiver in self.network.receivers(wire, replica):
                bag = self.pending.setdefault((name, receiver), {})
                for row in sending:
                    bag[row] = bag.get(row, 0) + 1

    # ---- seals

    def _await(self, part: Part, replica: int, interface: str, rows: list[Row]) -> None:
        """SE-4: nothing of an incomplete partition is visible; SE-12: requests wait for it."""
        assert part.sealed is not None
        instance, output = self.instances[part.at.component, replica], part.at.interface
        if interface in part.sealed.keys:
            instance.waiting.setdefault((output, interface), []).extend(rows)
        else:
            instance.asked.setdefault(output, []).extend((interface, row) for row in rows)

    def _release(self) -> None:
        """Release every partition that is complete, and answer what waited for it."""
        changed = True
        while changed:
            changed = False
            for (component, replica), _ in self.instances.items():
                for part in self.network.parts[component]:
                    if part.sealed is not None:
                        for value in self._values(part, replica):
                            if self._complete_here(part, replica, value):
                                self._release_one(part, replica, value)
                                changed = True

    def _values(self, part: Part, replica: int) -> list[Row]:
        """Key values that a partition or a request of an output waits for."""
        assert part.sealed is not None
        instance, output = self.instances[part.at.component, replica], part.at.interface
        found: dict[Row, None] = {}
        for name, key in part.sealed.keys.items():
            for row in instance.waiting.get((output, name), ()):
                found[self._value(part, name, row, key)] = None
        for name, row in instance.asked.get(output, ()):
            found[self._value(part, name, row, self._key(part))] = None
        return sorted(found, key=sort_key)

    def _key(self, part: Part) -> tuple[str, ...]:
        assert part.sealed is not None
        return next(iter(part.sealed.keys.values()))

    def _value(self, part: Part, name: str, row: Row, key: tuple[str, ...]) -> Row:
        """A record's key value; empty where it lacks the key, and so waits for everything."""
        columns = list(part.operator.schemas[name])
        if not set(key) <= set(columns):
            return ()
        return tuple(row[columns.index(each)] for each in key)

    def _release_one(self, part: Part, replica: int, value: Row) -> None:
        assert part.sealed is not None
        instance, output = self.instances[part.at.component, replica], part.at.interface
        known = instance.released.setdefault(output, {})
        first = value not in known
        rows = known.setdefault(value, {})
        for name, key in part.sealed.keys.items():
            mine: list[Row] = []
            others: list[Row] = []
            for row in instance.waiting.get((output, name), ()):
                same = not value or self._value(part, name, row, key) == value
                (mine if same else others).append(row)
            instance.waiting[output, name] = others
            rows.setdefault(name, []).extend(mine)
            if part.sealed.in_sequence:  # SE-11
                rows[name].sort(key=partial(self._rank, part, name))
        asked = instance.asked.get(output, [])
        ready = [(n, r) for n, r in asked if self._value(part, n, r, self._key(part)) == value]
        instance.asked[output] = [each for each in asked if each not in ready]
        self._note("releases", part.at.component, replica, output, [value] if value else [])
        reads = part.operator.reads - part.sealed.keys.keys()
        if reads and not ready:
            return
        visible = self._all_released(known) if not value else dict(rows)
        if reads:
            wanted = [(name, row) for name, row in ready if name in reads]
            self._emit(part, replica, self._answers(part, visible, wanted))
        elif first:
            self._emit(part, replica, self._evaluate(part, visible))

    @staticmethod
    def _all_released(known: dict[Row, dict[str, list[Row]]]) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for rows in known.values():
            for name, its in rows.items():
                found.setdefault(name, []).extend(its)
        return found

    def _rank(self, part: Part, name: str, row: Row) -> Any:
        assert part.sealed is not None
        columns = list(part.operator.schemas[name])
        first = tuple(row[columns.index(n)] for n in part.sealed.order_by if n in columns)
        return sort_key(first), sort_key(row)

    def _complete_here(self, part: Part, replica: int, value: Row) -> bool:
        """SE-1: every producer of the partition has sent all of it, and all of it is here."""
        assert part.sealed is not None
        return all(
            self._complete(wire, replica, key if value else (), value)
            for name, key in part.sealed.keys.items()
            for wire in self.network.entering.get(Endpoint(part.at.component, name), ())
        )

    def _complete(self, wire: Wire, replica: int, names: tuple[str, ...], value: Row) -> bool:
        """Whether nothing with this key value can still come to an instance over a stream.

        This is what punctuations with counts tell a consumer; here it is looked up.
        """
        if _matching(self.pending.get((wire.name, replica), ()), wire.columns, names, value):
            return False
        if wire.producer is None:
            return True
        (part,) = (p for p in self.network.parts[wire.producer.component] if p.at == wire.producer)
        return all(
            self._finished(part, sender, names, value)
            for sender in self.network.senders(wire, replica)
        )

    def _finished(self, part: Part, replica: int, names: tuple[str, ...], value: Row) -> bool:
        """Whether an instance will emit nothing more with this key value from an output."""
        instance, output = self.instances[part.at.component, replica], part.at.interface
        for path in part.operator.own:
            inner = tuple((path.lineage or {}).get(name, name) for name in names)
            columns = tuple(part.operator.schemas[path.source])
            held = [row for name, row in instance.held if name == path.source]
            held += instance.waiting.get((output, path.source), [])
            held += [row for name, row in instance.asked.get(output, ()) if name == path.source]
            if _matching(held, columns, inner, value):
                return False
            for wire in self.network.entering.get(Endpoint(part.at.component, path.source), ()):
                if not self._complete(wire, replica, inner, value):
                    return False
        return True

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
        self, kind: str, component: str, replica: int, name: str, rows: Iterable[Row]
    ) -> None:
        if self.events is not None:
            self.events.append(Event(kind, component, replica, name, tuple(rows)))


def _matching(
    rows: Iterable[Row], columns: tuple[str, ...], names: tuple[str, ...], value: Row
) -> bool:
    """Whether a row has this value; any row, where the columns are not all there."""
    if not names or not set(names) <= set(columns):
        return any(True for _ in rows)
    places = [columns.index(name) for name in names]
    return any(tuple(row[n] for n in places) == value for row in rows)


def _frozen(rows: dict[tuple[str, str], list[Row]]) -> frozenset[Any]:
    return frozenset((at, tuple(its)) for at, its in rows.items() if its)
