"""What to do about records that come again: the least that keeps every row right.

An *origin* is a path at which repeats corrupt something, or a sink that may take rows again where
none may come again. De-duplicated is the smallest set of streams that cuts every way from a repeat
to an origin, as far down as there is a choice: a minimum cut. A sink is repaired by an upsert or a
transaction of its own, which nothing in front of it replaces (D13). All of this comes before the
order, since what copies do is no race that an order would repair.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Final

from annotations.dataflow import Position
from annotations.delivery import appends_again, repeats_of, replaces_rows, tells_arrival
from annotations.dependencies import closure
from annotations.vocabulary import Key, Label, Repeats
from blazes.deliveries import CORRUPT, ONCE, REPEAT, UNREPAIRED, Delivered, Deliveries, Repairs
from blazes.graph import Graph
from blazes.propagation import Propagation

EXACTLY_ONCE: Final = "once"


class Means(enum.Enum):
    """How repeats are kept from doing harm."""

    DEDUP = "dedup"
    """Records that are known by their id are dropped."""
    UPSERT = "upsert"
    """The sink replaces the row of equal id."""
    TRANSACTION = "transaction"
    """The sink notes which batch it has taken together with the rows."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How long a de-duplication has to remember an id."""

    seal: Key | None = None
    """Until the partition of this key is released."""
    within: str | None = None
    """An interval that the source promises; on the source's own stream, where it is known when a
    record came."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One item of the plan against repeats."""

    means: Means
    stream: str
    id: Key | None
    cause: str
    """The rule of delivery that makes it necessary: D3, D4, D5, D7, D13 or D14."""
    bound: Bound | None = None
    """Of a de-duplication; None: it remembers for ever."""
    component: str | None = None
    """Where repeats would do harm; None: at the sink itself."""
    path: str | None = None
    alternatives: tuple[str, ...] = ()
    """Sources where an id, declared, would do as well or better."""


@dataclass(frozen=True, slots=True)
class Unrepaired:
    """An origin that nothing in this dataflow repairs, as long as records have no id."""

    origin: str
    """`Component: from->to`, or the name of a sink."""
    component: str | None
    """None: a sink."""
    position: Position | None
    label: int
    """The order label of what leaves there, by number."""
    cause: str
    alternatives: tuple[str, ...]
    """Streams where an `id` would help."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What is done about repeats, and what cannot be."""

    items: tuple[Repair, ...] = ()
    unrepaired: tuple[Unrepaired, ...] = ()
    repairs: Repairs = UNREPAIRED


NO_REPAIRS: Final = RepairPlan()


def repaired(
    found: Propagation, again: Callable[[Repairs], Propagation]
) -> tuple[RepairPlan, Propagation]:
    """The least that makes every stream right and every sink what is asked of it; with its labels.

    Args:
        found: the labels without repairs.
        again: finds the labels with them, and whatever else is planned.
    """
    if found.deliveries is None:
        return NO_REPAIRS, again(UNREPAIRED)
    plan = _Planning(found, found.deliveries).plan()
    items = plan.items
    while True:
        # A stream that is right or ordered now may be sealed now, and a gate counts (D7).
        found = again(plan.repairs)
        assert found.deliveries is not None
        before, plan = plan.repairs, _Planning(found, found.deliveries).plan()
        items += plan.items
        if plan.repairs == before:
            return replace(plan, items=items), found


@dataclass(frozen=True, slots=True)
class _Origin:
    """A path (its number) or a sink (its stream), with the streams that bring repeats."""

    cause: str
    streams: tuple[int, ...]
    path: int | None = None


class _Planning:
    def __init__(self, found: Propagation, deliveries: Deliveries) -> None:
        self._found = found
        self._graph: Graph = found.graph
        self._deliveries = deliveries
        self._after, self._begins = self._flow()
        self._reached: dict[int, set[int]] = {}
        self._sinks: list[Repair] = []
        self._keyless: list[_Origin] = []
        """Sinks whose key does not determine a row, and whose rows have no id; cycles that begin
        repeats themselves."""
        self._upserted: set[int] = set()
        self._transactional: set[int] = set()

    def plan(self) -> RepairPlan:
        """All items: de-duplications in the order of the file, then those of sinks."""
        origins = [*self._at_paths(), *self._in_cycles(), *self._at_sinks()]
        reached = self._reached_uncut()
        hopeless = self._keyless
        hopeless += [each for each in origins if not reached.isdisjoint(each.streams)]
        curable = [each for each in origins if reached.isdisjoint(each.streams)]
        cut = self._cut(curable)
        items = [self._dedup(stream, curable) for stream in sorted(cut)]
        before = self._deliveries.repairs
        return RepairPlan(
            (*items, *self._sinks),
            tuple(self._unrepaired(each) for each in hopeless),
            Repairs(
                before.deduplicated | cut,
                before.upserted | self._upserted,
                before.transactional | self._transactional,
            ),
        )

    # ---- origins

    def _at_paths(self) -> Iterator[_Origin]:
        for path, crossing in enumerate(self._deliveries.crossings):
            if crossing is not None and crossing.origin:
                streams = self._graph.input_streams[self._graph.path_input[path]]
                bring = tuple(s for s in streams if self._deliveries.streams[s].base is REPEAT)
                yield _Origin(crossing.rule.id, bring, path)

    def _in_cycles(self) -> Iterator[_Origin]:
        """Cycles that are corrupt by themselves: what goes round hides where it began.

        Ids are lost in a cycle, so that only what enters it can be de-duplicated.
        """
        graph, deliveries = self._graph, self._deliveries
        in_cycles = {stream for cycle in graph.cycles for stream in graph.streams_in(cycle)}
        for cycle in graph.cycles:
            paths = [path for source in sorted(cycle.inputs) for path in graph.input_paths[source]]
            into = {path for output in cycle.outputs for path in graph.feeding(output)}
            sources = sorted(cycle.inputs | {graph.path_input[path] for path in into})
            entering = [s for source in sources for s in graph.input_streams[source]]
            inner = graph.streams_in(cycle)
            outside = [s for s in entering if s not in inner]
            wrong = {s for s in entering if deliveries.streams[s].base is CORRUPT}
            if not wrong.intersection(inner) or wrong.intersection(outside):
                continue
            if any(self._is_origin_or_corrupted(path, in_cycles) for path in into):
                continue
            at = next((path for path in paths if self._would_harm(path)), None)
            if at is None:
                continue
            kind = graph.paths[at].annotation.kind
            cause = "D5" if graph.paths[at].nondeterministic else "D4" if kind.writes else "D3"
            bring = tuple(s for s in outside if self._repeats(s))
            origin = _Origin(cause, bring, at)
            again = any(graph.streams[s].delivery == "may-repeat" for s in inner)
            if again or any(
                repeats_of(graph.paths[path]) is Repeats.MAKE for path in (*paths, *into)
            ):
                self._keyless.append(origin)
            else:
                yield origin

    def _is_origin_or_corrupted(self, path: int, in_cycles: Container[int]) -> bool:
        """Whether a path says itself why it is corrupt: it is an origin, or gets wrong rows from
        outside of its cycle."""
        crossing = self._deliveries.crossings[path]
        if crossing is None:
            return False
        streams = self._graph.input_streams[self._graph.path_input[path]]
        outside = (self._deliveries.streams[s] for s in streams if s not in in_cycles)
        return crossing.origin or any(each.base is CORRUPT for each in outside)

    def _would_harm(self, path: int) -> bool:
        declared = self._graph.paths[path]
        return repeats_of(declared) is Repeats.CORRUPT or declared.nondeterministic is not None

    def _at_sinks(self) -> Iterator[_Origin]:
        """Sinks that miss what is asked of them; those that a repair of their own helps get it."""
        repairs = self._deliveries.repairs
        for number, before in self._deliveries.before_sink.items():
            if number in repairs.upserted:
                continue
            stream = self._graph.streams[number]
            delivered = self._deliveries.streams[number]
            key = stream.sink.key if stream.sink is not None else ()
            wrong_key = bool(key) and not self._deliveries.determines(key, before.id)
            asked = stream.delivery == EXACTLY_ONCE
            again = appends_again(stream) and number not in repairs.transactional
            if before.base > REPEAT or not (wrong_key or (asked and delivered.base > ONCE)):
                continue
            cause = "D14" if wrong_key else "D13" if again else "D1"
            upserts = stream.sink is not None and replaces_rows(stream.sink)
            if (again or wrong_key) and upserts and before.id is not None:
                self._upserted.add(number)
                self._sinks.append(Repair(Means.UPSERT, stream.name, before.id, cause))
                continue
            if wrong_key:
                self._keyless.append(_Origin(cause, (number,)))
                continue
            if again:
                self._transactional.add(number)
                self._sinks.append(Repair(Means.TRANSACTION, stream.name, None, cause))
            if before.base is REPEAT:
                yield _Origin(cause, (number,))

    def _before(self, stream: int) -> Delivered:
        """The delivery of a stream; of a result, as it reaches its sink."""
        return self._deliveries.before_sink.get(stream, self._deliveries.streams[stream])

    # ---- ways from repeats to origins

    def _flow(self) -> tuple[list[set[int]], set[int]]:
        """For each stream the streams that it sends repeats to, and the streams that begin them."""
        graph, deliveries = self._graph, self._deliveries
        after: list[set[int]] = [set() for _ in graph.streams]
        begins = {
            number
            for number, stream in enumerate(graph.streams)
            if self._repeats(number)
            and (stream.producer is None or stream.delivery == "may-repeat")
        }
        for path, crossing in enumerate(deliveries.crossings):
            if crossing is None or crossing.leaves.base is not REPEAT:
                continue
            behind = set(graph.output_streams[graph.path_output[path]])
            group = graph.path_group[path]
            if group >= 0 and path in graph.group_writers[group]:
                for output in graph.group_outputs[group]:
                    behind.update(graph.output_streams[output])
            if crossing.rule.id == "D2":
                begins |= behind
            for stream in graph.input_streams[graph.path_input[path]]:
                if self._repeats(stream):
                    after[stream] |= behind
        return after, begins

    def _repeats(self, stream: int) -> bool:
        return self._before(stream).base is REPEAT

    def _has_id(self, stream: int) -> bool:
        return self._before(stream).id is not None

    def _reached_uncut(self) -> set[int]:
        """The streams to which repeats come without passing a stream that has an id."""
        without = {stream for stream in range(len(self._after)) if not self._has_id(stream)}
        return self._reach(self._begins & without, without)

    def _reach(self, begin: Iterable[int], among: Container[int]) -> set[int]:
        """The streams that repeats come to from these, among some streams only."""
        reached = set(begin)
        todo = list(reached)
        while todo:
            new = {s for s in self._after[todo.pop()] if s not in reached and s in among}
            reached |= new
            todo.extend(new)
        return reached

    def _cut(self, origins: Iterable[_Origin]) -> set[int]:
        """The smallest set of streams with ids on all ways to the origins.

        Of equal ones first that which leaves the order as it is, then that with fewer ids to
        remember for ever, then the last.
        """
        ends = {stream for origin in origins for stream in origin.streams}
        if not ends:
            return set()
        import networkx as nx

        network: Any = nx.DiGraph()
        count = len(self._graph.streams) + 1
        for stream, behind in enumerate(self._after):
            if self._repeats(stream):
                if (known := self._before(stream).id) is not None:
                    late = Label.RUN < self._found.stream_label[stream] <= Label.DIVERGE
                    unbounded = self._bound(stream, known) is None
                    cost = (count + late) * count + unbounded
                    network.add_edge((stream, 0), (stream, 1), capacity=cost)
                else:
                    network.add_edge((stream, 0), (stream, 1))
                network.add_edges_from(((stream, 1), (other, 0)) for other in behind)
        network.add_edges_from(("begin", (stream, 0)) for stream in self._begins)
        network.add_edges_from(((stream, 1), "end") for stream in ends)
        left = nx.algorithms.flow.preflow_push(network, "begin", "end")
        behind_cut: set[Any] = {"end"}
        todo: list[Any] = ["end"]
        while todo:
            node = todo.pop()
            for before in left.predecessors(node):
                edge = left[before][node]
                if before not in behind_cut and edge["flow"] < edge["capacity"]:
                    behind_cut.add(before)
                    todo.append(before)
        return {
            stream
            for stream in range(len(self._graph.streams))
            if (stream, 1) in behind_cut
            and (stream, 0) in network
            and (stream, 0) not in behind_cut
        }

    # ---- items

    def _dedup(self, stream: int, origins: Iterable[_Origin]) -> Repair:
        graph = self._graph
        behind = self._behind(stream)
        origin = next(each for each in origins if not behind.isdisjoint(each.streams))
        known = self._before(stream).id
        assert known is not None
        component, path = self._place(origin)
        return Repair(
            Means.DEDUP,
            graph.streams[stream].name,
            known,
            origin.cause,
            bound=self._bound(stream, known),
            component=component,
            path=path,
        )

    def _behind(self, stream: int) -> set[int]:
        """The streams that repeats of a stream come to, and itself; found once."""
        if stream not in self._reached:
            self._reached[stream] = self._reach([stream], range(len(self._after)))
        return self._reached[stream]

    def _place(self, origin: _Origin) -> tuple[str | None, str | None]:
        if origin.path is None:
            return None, None
        component = self._graph.components[self._graph.component_of(origin.path)]
        return component.name, str(self._graph.paths[origin.path])

    def _bound(self, stream: int, known: Key) -> Bound | None:
        found, graph = self._found, self._graph
        keys = found.interpreter.labels.values[found.stream_label[stream]].keys
        determined = closure(known, graph.dataflow.fds)
        fitting = [key for key in keys if key <= determined]
        if fitting:
            return Bound(seal=min(fitting, key=lambda key: (len(key), sorted(key))))
        declared = graph.streams[stream]
        if declared.repeat_within is None or not tells_arrival(declared):
            return None
        return Bound(within=declared.repeat_within)

    def _unrepaired(self, origin: _Origin) -> Unrepaired:
        graph = self._graph
        if origin.path is None:
            number = origin.streams[0]
            name, position = graph.streams[number].name, graph.streams[number].position
            label = self._found.stream_label[number]
        else:
            name, position = graph.place_of(origin.path), graph.paths[origin.path].position
            label = self._found.verdicts[graph.path_output[origin.path]][0]
        component, _ = self._place(origin)
        sources = tuple(
            graph.streams[s].name
            for s in sorted(self._begins)
            if not self._has_id(s)
            and graph.streams[s].producer is None
            and not self._behind(s).isdisjoint(origin.streams)
        )
        return Unrepaired(name, component, position, label, origin.cause, sources)
