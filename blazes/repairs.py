"""Repairs of repeats: the least that keeps every row right where records come again.

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
from annotations.dependencies import closure, within_schema
from annotations.vocabulary import Delivery, Key, Label, Repeats
from blazes.core.deliveries import (
    CORRUPT,
    ONCE,
    REPEAT,
    UNREPAIRED,
    Delivered,
    Deliveries,
    Repairs,
    makes,
)
from blazes.core.graph import PathEdge, StreamEdge, in_file_order
from blazes.core.propagation import Propagation

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
    label: Label
    """The order label of what leaves there."""
    cause: str
    alternatives: tuple[str, ...]
    """Streams where an `id` would help."""


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The repairs of repeats, and the repeats that nothing repairs."""

    items: tuple[Repair, ...] = ()
    unrepaired: tuple[Unrepaired, ...] = ()
    repairs: Repairs = UNREPAIRED


NO_REPAIRS: Final = RepairPlan()


def repaired(
    before: Propagation, again: Callable[[Repairs], Propagation]
) -> tuple[RepairPlan, Propagation]:
    """The least that makes every stream right and every sink what is asked of it; with its labels.

    Args:
        before: the labels without repairs.
        again: finds the labels with them, and whatever else is planned.
    """
    if before.deliveries is None:
        return NO_REPAIRS, again(UNREPAIRED)
    plan = _Planning(before, before.deliveries).plan()
    items = plan.items
    while True:
        # A stream that is right or ordered now may be sealed now, and a gate counts (D7).
        after = again(plan.repairs)
        assert after.deliveries is not None
        repairs, plan = plan.repairs, _Planning(after, after.deliveries).plan()
        items += plan.items
        if plan.repairs == repairs:
            return replace(plan, items=items), after


@dataclass(frozen=True, slots=True)
class _Origin:
    """A path, or a sink (None), with the streams that bring repeats."""

    cause: str
    streams: tuple[StreamEdge, ...]
    path: PathEdge | None = None


class _Planning:
    def __init__(self, propagation: Propagation, deliveries: Deliveries) -> None:
        self._propagation = propagation
        self._graph = propagation.graph
        self._deliveries = deliveries
        self._after, self._begins = self._flow()
        self._reached: dict[StreamEdge, set[StreamEdge]] = {}
        self._sinks: list[Repair] = []
        self._keyless: list[_Origin] = []
        """Sinks whose key does not determine a row, and whose rows have no id; cycles that begin
        repeats themselves."""
        self._upserted: set[str] = set()
        self._transactional: set[str] = set()

    def plan(self) -> RepairPlan:
        """All items: de-duplications in the order of the file, then those of sinks."""
        origins = [*self._at_paths(), *self._in_cycles(), *self._at_sinks()]
        reached = self._reached_uncut()
        hopeless = self._keyless
        hopeless += [origin for origin in origins if not reached.isdisjoint(origin.streams)]
        curable = [origin for origin in origins if reached.isdisjoint(origin.streams)]
        cut = in_file_order(self._cut(curable))
        items = [self._dedup(stream, curable) for stream in cut]
        before = self._deliveries.repairs
        return RepairPlan(
            (*items, *self._sinks),
            tuple(self._unrepaired(origin) for origin in hopeless),
            Repairs(
                before.deduplicated.union(stream.name for stream in cut),
                before.upserted | self._upserted,
                before.transactional | self._transactional,
            ),
        )

    # ---- origins

    def _at_paths(self) -> Iterator[_Origin]:
        for path in self._graph.paths:
            crossing = self._deliveries.crossings[path]
            if crossing.origin:
                bring = (s for s in path.input.streams if self._base(s) is REPEAT)
                yield _Origin(crossing.rule.id, tuple(bring), path)

    def _in_cycles(self) -> Iterator[_Origin]:
        """Cycles that are corrupt by themselves: what goes round hides where it began.

        Ids are lost in a cycle, so that only what enters it can be de-duplicated.
        """
        for cycle in self._graph.cycles:
            paths = [path for source in cycle.inputs for path in source.paths]
            into = [path for output in cycle.outputs for path in output.feeding()]
            inputs = in_file_order((*cycle.inputs, *(path.input for path in into)))
            entering = [stream for source in inputs for stream in source.streams]
            inner = cycle.streams
            outside = [stream for stream in entering if stream not in inner]
            corrupt = {stream for stream in entering if self._base(stream) is CORRUPT}
            if corrupt.isdisjoint(inner) or not corrupt.isdisjoint(outside):
                continue
            if any(self._deliveries.crossings[path].origin for path in into):
                continue
            at = next((path for path in paths if self._would_harm(path)), None)
            if at is None:
                continue
            cause = "D5" if at.shape.nondeterministic else "D4" if at.shape.writes else "D3"
            bring = tuple(stream for stream in outside if self._repeats(stream))
            origin = _Origin(cause, bring, at)
            again = any(stream.declared.delivery == "may-repeat" for stream in inner)
            if again or any(map(self._makes, (*paths, *into))):
                self._keyless.append(origin)
            else:
                yield origin

    def _makes(self, path: PathEdge) -> bool:
        return makes(path, ordered=path in self._propagation.ordered)

    def _would_harm(self, path: PathEdge) -> bool:
        return repeats_of(path.declared) is Repeats.CORRUPT or path.shape.nondeterministic

    def _at_sinks(self) -> Iterator[_Origin]:
        """Sinks that miss what is asked of them; those that a repair of their own helps get it."""
        repairs = self._deliveries.repairs
        for stream, before in self._deliveries.before_sink.items():
            if stream.name in repairs.upserted:
                continue
            declared = stream.declared
            key = declared.sink.key if declared.sink is not None else ()
            determines = self._deliveries.determines
            wrong_key = bool(key) and not determines(declared, key, before.id)
            asked = declared.delivery == EXACTLY_ONCE
            again = appends_again(declared) and stream.name not in repairs.transactional
            missed = asked and self._base(stream) > ONCE
            if before.base > REPEAT or not (wrong_key or missed):
                continue
            cause = "D14" if wrong_key else "D13" if again else "D1"
            upserts = declared.sink is not None and replaces_rows(declared.sink)
            if (again or wrong_key) and upserts and before.id is not None:
                self._upserted.add(stream.name)
                self._sinks.append(Repair(Means.UPSERT, stream.name, before.id, cause))
                continue
            if wrong_key:
                self._keyless.append(_Origin(cause, (stream,)))
                continue
            if again:
                self._transactional.add(stream.name)
                self._sinks.append(Repair(Means.TRANSACTION, stream.name, None, cause))
            if before.base is REPEAT:
                yield _Origin(cause, (stream,))

    def _base(self, stream: StreamEdge) -> Delivery:
        return self._deliveries.streams[stream].base

    def _before(self, stream: StreamEdge) -> Delivered:
        """The delivery of a stream; of a result, as it reaches its sink."""
        return self._deliveries.before_sink.get(stream, self._deliveries.streams[stream])

    # ---- ways from repeats to origins

    def _flow(self) -> tuple[dict[StreamEdge, set[StreamEdge]], set[StreamEdge]]:
        """For each stream the streams that it sends repeats to, and the streams that begin them."""
        after: dict[StreamEdge, set[StreamEdge]] = {s: set() for s in self._graph.streams}
        begins = {
            stream
            for stream in self._graph.streams
            if self._repeats(stream)
            and (stream.producer is None or stream.declared.delivery == "may-repeat")
        }
        for path, crossing in self._deliveries.crossings.items():
            if crossing.leaves.base is not REPEAT:
                continue
            behind = set(path.output.streams)
            if path.state is not None and path.shape.writes:
                for output in path.state.outputs:
                    behind.update(output.streams)
            if crossing.rule.id == "D2":
                begins |= behind
            for stream in path.input.streams:
                if self._repeats(stream):
                    after[stream] |= behind
        return after, begins

    def _repeats(self, stream: StreamEdge) -> bool:
        return self._before(stream).base is REPEAT

    def _has_id(self, stream: StreamEdge) -> bool:
        return self._before(stream).id is not None

    def _reached_uncut(self) -> set[StreamEdge]:
        """The streams to which repeats come without passing a stream that has an id."""
        without = {stream for stream in self._after if not self._has_id(stream)}
        return self._reach(self._begins & without, without)

    def _reach(self, begin: Iterable[StreamEdge], among: Container[StreamEdge]) -> set[StreamEdge]:
        """The streams that repeats come to from these, among some streams only."""
        reached = set(begin)
        todo = list(reached)
        while todo:
            new = {s for s in self._after[todo.pop()] if s not in reached and s in among}
            reached |= new
            todo.extend(new)
        return reached

    def _cut(self, origins: Iterable[_Origin]) -> set[StreamEdge]:
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
        for stream, behind in self._after.items():
            if not self._repeats(stream):
                continue
            known = self._before(stream).id
            if known is None:
                network.add_edge((stream, "in"), (stream, "out"))
            else:
                late = self._propagation.stream_labels[stream].label > Label.RUN
                unbounded = self._bound(stream, known) is None
                cost = (count + late) * count + unbounded
                network.add_edge((stream, "in"), (stream, "out"), capacity=cost)
            network.add_edges_from(((stream, "out"), (other, "in")) for other in behind)
        network.add_edges_from(("begin", (stream, "in")) for stream in self._begins)
        network.add_edges_from(((stream, "out"), "end") for stream in ends)
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
            for stream in self._graph.streams
            if (stream, "out") in behind_cut
            and (stream, "in") in network
            and (stream, "in") not in behind_cut
        }

    # ---- items

    def _dedup(self, stream: StreamEdge, origins: Iterable[_Origin]) -> Repair:
        behind = self._behind(stream)
        origin = next(o for o in origins if not behind.isdisjoint(o.streams))
        known, path = self._before(stream).id, origin.path
        assert known is not None
        return Repair(
            Means.DEDUP,
            stream.name,
            known,
            origin.cause,
            bound=self._bound(stream, known),
            component=None if path is None else path.component.name,
            path=None if path is None else str(path.declared),
        )

    def _behind(self, stream: StreamEdge) -> set[StreamEdge]:
        """The streams that repeats of a stream come to, and itself; found once."""
        if stream not in self._reached:
            self._reached[stream] = self._reach([stream], self._after)
        return self._reached[stream]

    def _bound(self, stream: StreamEdge, known: Key) -> Bound | None:
        fds = within_schema(stream.declared.schema, self._graph.dataflow.fds)
        determined = closure(known, fds)
        keys = self._propagation.stream_labels[stream].keys
        fitting = [key for key in keys if key <= determined]
        if fitting:
            return Bound(seal=min(fitting, key=lambda key: (len(key), sorted(key))))
        declared = stream.declared
        if declared.repeat_within is None or not tells_arrival(declared):
            return None
        return Bound(within=declared.repeat_within)

    def _unrepaired(self, origin: _Origin) -> Unrepaired:
        path = origin.path
        if path is None:
            stream = origin.streams[0]
            name, position = stream.name, stream.declared.position
            label = self._propagation.stream_labels[stream].label
        else:
            name, position = path.place, path.declared.position
            label = self._propagation.verdicts[path.output].label.label
        sources = tuple(
            stream.name
            for stream in in_file_order(self._begins)
            if not self._has_id(stream)
            and stream.producer is None
            and not self._behind(stream).isdisjoint(origin.streams)
        )
        component = None if path is None else path.component.name
        return Unrepaired(name, component, position, label, origin.cause, sources)
