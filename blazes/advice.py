"""Advice: what would repair a component in place of its order, from whom, and at what cost.

A seal is advised on sources only, where producers can punctuate: keys are traced back from the gate
through copied attributes, and forward again by the analysis itself. Every alternative has been put
into the dataflow and analysed again: the labels that it promises are those that come out, no stream
gets worse by it, and what makes no result better is not advised.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from annotations.dataflow import Dataflow, Path, Stream
from annotations.dependencies import closure, minimal_keys
from annotations.file.splits import under
from annotations.gc_pause import gc_paused
from annotations.phrases import listed, tupled
from annotations.vocabulary import AnnotationKind, FunctionalDependency, Key, Label
from blazes.analysis import Analysis, analyze
from blazes.coordination import Entry, Mode, Plan, Strategy, Vote, plan
from blazes.core.deliveries import Delivered
from blazes.core.graph import Output, PathEdge, StreamEdge, in_file_order
from blazes.core.propagation import Propagation
from blazes.core.rule_kinds import Keeps
from blazes.core.rules import BLAZES
from blazes.seals import meets

if TYPE_CHECKING:
    from annotations.dataflow import Refusal

UPSTREAM_MAX: Final = 100
"""Streams that one key is traced back through."""
CANDIDATES_MAX: Final = 24
"""Alternatives of one component that are tried."""
OTHERS_MAX: Final = 6
"""Other components that are looked at where one alone makes no result better."""
WORK_MAX: Final = 30_000
"""Streams that all trials together label; components past that get no advice, and it is said."""
NO_KEY_TYPES: Final = ("array", "map", "struct", "variant")
"""Types whose values are no key of a partition."""
BYTES: Final[Mapping[str, int]] = MappingProxyType(
    {
        **dict.fromkeys(("boolean", "tinyint", "byte"), 1),
        **dict.fromkeys(("smallint", "short"), 2),
        **dict.fromkeys(("int", "integer", "float", "real", "date"), 4),
        **dict.fromkeys(("bigint", "long", "double", "timestamp", "timestamp_ntz"), 8),
    }
)
"""Of a value of these types; those of others differ in length."""


class Needs(enum.IntEnum):
    """Who has to do something, the least first."""

    NOBODY = 0
    """It has to be true already, and only be said."""
    PRODUCERS = 1
    """They send punctuations."""
    OWNER = 2
    """The owner of the code changes a query."""


@dataclass(frozen=True, slots=True)
class Sealing:
    """A source gets a seal."""

    stream: str
    key: Key


@dataclass(frozen=True, slots=True)
class Depending:
    """A functional dependency is declared."""

    fd: FunctionalDependency


@dataclass(frozen=True, slots=True)
class Rewriting:
    """The code of an output is changed so that it splits by a key (SP-1 to SP-22)."""

    component: str
    output: str
    key: Key
    why: Refusal


Change: TypeAlias = Sealing | Depending | Rewriting
Changes: TypeAlias = tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Held:
    """The records that are kept of one stream until a partition is complete."""

    stream: str
    key: Key
    """One partition is held for each open value of it."""
    columns: tuple[str, ...] | None
    """None: the file does not say which the stream has."""
    bytes_per_record: int | None
    """Of the columns of fixed width; None where no column is known."""
    varying: tuple[str, ...]
    """Columns whose values differ in length."""


class Places(enum.Enum):
    """How often ZooKeeper is asked."""

    NONE = "none"
    PER_PARTITION = "per partition"
    PER_PRODUCER_AND_PARTITION = "per producer and partition"
    PER_BATCH = "per batch"


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of an alternative while the job runs."""

    waits_for: tuple[str, ...]
    """The streams whose slowest producer is waited for."""
    held: tuple[Held, ...]
    registrations: Places
    look_ups: Places
    order: Places
    """Places in the order that are written."""
    latency: str
    """The longest wait of a record, in words."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """Changes that make the order of a component, or some of it, unnecessary."""

    changes: Changes
    needs: Needs
    who: tuple[str, ...]
    """The streams whose producers, or the components whose owner, has to do something."""
    must_hold: tuple[str, ...]
    """Assumptions that have to be true, and no file states."""
    gives: Mapping[str, Key]
    """Inner stream -> a key that it is sealed on by these changes."""
    cost: Cost
    verdict: Label
    """Of the whole dataflow without any order."""
    labels: Mapping[str, Label]
    """Stream -> label without any order."""
    results: Mapping[str, tuple[Label, Label]]
    """Result that gets better -> its label before and after."""
    orders: int
    """Paths of the whole plan that are still ordered."""
    elsewhere: tuple[str, ...]
    """The other components that it makes changes for, without which no result gets better."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Repairs of one component, cheapest first, beside the order that the plan has."""

    component: str
    order: Cost
    alternatives: tuple[Alternative, ...] = ()
    counted_twice: tuple[str, ...] = ()
    """Sources that would be sealed, and whose copies would be counted as they have no `id`."""


class Advisor:
    """The advice for a plan, worked out component by component when it is asked for."""

    def __init__(self, decided: Plan) -> None:
        self._plan = decided
        self._ordered = _ordered(decided)
        self._of: dict[str, Advice] = {}
        self._tried_for: dict[str, list[_Trial]] = {}
        self._trials: dict[Changes, _Trial] = {}
        self._plan_of: dict[int, Plan] = {}
        self._work = WORK_MAX
        self.left_out: set[str] = set()
        """Components for which not everything was tried."""

    @property
    def components(self) -> tuple[str, ...]:
        """The components that are ordered, in the order of the dataflow."""
        return tuple(self._ordered)

    def of(self, component: str) -> Advice | None:
        """The advice for a component; None where nothing of it is ordered."""
        if component not in self._ordered:
            return None
        if component not in self._of:
            with gc_paused():
                self._of[component] = self._advise(component)
        return self._of[component]

    def _advise(self, component: str) -> Advice:
        tried = self._tried(component)
        good = [trial for trial in tried if trial.better]
        if not good:
            good = [trial for trial in self._together(component, tried) if trial.better]
        alternatives = sorted(
            (self._alternative(trial, component) for trial in good), key=self._rank
        )
        twice = {name for trial in tried if trial.repeats for name in _sealed(trial.changes)}
        return Advice(
            component, self._order_cost(component), tuple(alternatives), tuple(sorted(twice))
        )

    def _tried(self, component: str) -> list[_Trial]:
        """Tried changes that order less of the component, or would if no record came again."""
        if self._work < 0:
            self.left_out.add(component)
            return []
        if component not in self._tried_for:
            tried = (
                self._try(changes, component)
                for changes in self._candidates.of(self._ordered[component])
            )
            self._tried_for[component] = [
                trial for trial in tried if trial and (trial.repeats or component in trial.fewer)
            ]
        return self._tried_for[component]

    def _together(self, component: str, tried: list[_Trial]) -> Iterator[_Trial]:
        """Each candidate with one for another component, then with one for each of them."""
        helpful = [trial for trial in tried if not trial.worse]
        if not helpful:
            return
        others = [name for name in self._ordered if name != component][:OTHERS_MAX]
        beside = [
            next((trial.changes for trial in self._tried(name) if not trial.worse), ())
            for name in others
        ]
        joined = _joined(change for changes in beside for change in changes)
        for trial in helpful:
            for changes in (*beside, joined):
                both = self._try(_joined((*trial.changes, *changes)), component)
                if both is not None and component in both.fewer and both.better:
                    yield both
                    break

    @cached_property
    def _results(self) -> tuple[str, ...]:
        """The streams by which the dataflow is judged."""
        propagation = self._plan.analysis.propagation
        assert propagation is not None
        return tuple(sink.name for sink in propagation.graph.sinks())

    @cached_property
    def _candidates(self) -> _Candidates:
        propagation = self._plan.analysis.propagation
        assert propagation is not None
        return _Candidates(self._plan, propagation)

    def _try(self, changes: Changes, component: str) -> _Trial | None:
        """The dataflow with the changes, analysed and planned again; None: too much work."""
        trial = self._trials.get(changes)
        if trial is None:
            if self._work < 0:
                self.left_out.add(component)
                return None
            before = self._touched(changes)
            self._work -= len(before.analysis.dataflow.streams)
            trial = self._trials[changes] = _Trial(before, changes)
        return trial

    def _touched(self, changes: Changes) -> Plan:
        """The plan of the part of the dataflow in which these changes can change a label."""
        dataflow = self._plan.analysis.dataflow
        touched = set()
        for change in changes:
            match change:
                case Sealing(name):
                    touched |= _ends(dataflow.streams[name])
                case Rewriting(name):
                    touched.add(name)
                case Depending():
                    return self._plan
        parts = {id(self._parts[name]): self._parts[name] for name in touched}
        if len(parts) != 1:
            return self._plan
        ((key, names),) = parts.items()
        if key not in self._plan_of:
            self._plan_of[key] = self._planned(names)
        return self._plan_of[key]

    def _planned(self, names: set[str]) -> Plan:
        """The plan of these components alone, which are connected with no others."""
        dataflow = self._plan.analysis.dataflow
        if len(names) == len(dataflow.components):
            return self._plan
        components = {name: c for name, c in dataflow.components.items() if name in names}
        streams = {name: s for name, s in dataflow.streams.items() if _ends(s) <= names}
        return replanned(replace(dataflow, components=components, streams=streams), self._plan)

    @cached_property
    def _parts(self) -> Mapping[str, set[str]]:
        """Component -> those that streams connect it with, in one set for all of these."""
        dataflow = self._plan.analysis.dataflow
        parts = {name: {name} for name in dataflow.components}
        for stream in dataflow.streams.values():
            first, *others = sorted((parts[name] for name in _ends(stream)), key=len, reverse=True)
            for other in others:
                if other is not first:
                    first |= other
                    parts |= dict.fromkeys(other, first)
        return parts

    def _alternative(self, trial: _Trial, component: str) -> Alternative:
        needs, who = _needs(trial.changes)
        labels = {name: label.label for name, label in self._plan.analysis.labels.items()}
        labels |= {name: label.label for name, label in trial.after.analysis.labels.items()}
        ordered = (e for e in self._plan.entries if e.strategy is Strategy.ORDER)
        tried = trial.before.analysis.dataflow.components
        return Alternative(
            changes=trial.changes,
            needs=needs,
            who=who,
            must_hold=tuple(_must_hold(self._plan.analysis.dataflow, trial.changes)),
            gives=trial.gives,
            cost=trial.cost,
            verdict=max((labels[name] for name in self._results), default=Label.SEAL),
            labels=labels,
            results=trial.results,
            orders=sum(e.strategy is Strategy.ORDER for e in trial.after.entries)
            + sum(entry.component not in tried for entry in ordered),
            elsewhere=tuple(sorted(trial.fewer - {component})) if len(trial.changes) > 1 else (),
        )

    def _rank(self, alternative: Alternative) -> tuple[object, ...]:
        fds = self._plan.analysis.dataflow.fds
        sealed = [change for change in alternative.changes if isinstance(change, Sealing)]
        return (
            alternative.needs,
            alternative.verdict,
            alternative.orders,
            len(alternative.who),
            len(alternative.cost.held),
            alternative.cost.registrations is not Places.NONE,
            len(alternative.must_hold),
            sum(not self._of_time(change) for change in sealed),
            sum(len(change.key) for change in sealed),
            # What determines more makes smaller partitions: less is held, for a shorter time.
            -sum(len(closure(change.key, fds) - change.key) for change in sealed),
            sorted((change.stream, sorted(change.key)) for change in sealed),
            repr(alternative.changes),
        )

    def _of_time(self, change: Sealing) -> bool:
        """Whether the key has a date or a time in it, which is over some day by itself."""
        schema = self._plan.analysis.dataflow.streams[change.stream].schema or {}
        types = (schema.get(name, "").strip().lower() for name in change.key)
        return any(text.startswith(("date", "timestamp")) for text in types)

    def _order_cost(self, component: str) -> Cost:
        analysis = self._plan.analysis
        declared = analysis.dataflow.components[component]
        on_sites = analysis.replicated[component] or declared.asks_for_sites
        recorded = any(entry.mode is Mode.RECORDED for entry in self._ordered[component])
        places = Places.PER_BATCH if on_sites or not recorded else Places.NONE
        latency = "its batch has a place in the order" if on_sites else "its micro-batch begins"
        return Cost((), (), Places.NONE, Places.NONE, places, latency)


def _ends(stream: Stream) -> set[str]:
    """The components that a stream connects."""
    return {end.component for end in (stream.producer, stream.consumer) if end is not None}


def changed(dataflow: Dataflow, changes: Iterable[Change]) -> Dataflow:
    """The dataflow with the changes made."""
    streams, components = dict(dataflow.streams), dict(dataflow.components)
    fds = list(dataflow.fds)
    for change in changes:
        match change:
            case Sealing(name, key):
                stream = streams[name]
                streams[name] = replace(stream, seals=(*stream.seals, key))
            case Depending(fd):
                fds.append(fd)
            case Rewriting(name, output):
                component = components[name]
                paths = tuple(
                    replace(path, splits=None) if path.target == output else path
                    for path in component.paths
                )
                components[name] = replace(component, paths=paths)
    result = replace(
        dataflow,
        streams=MappingProxyType(streams),
        components=MappingProxyType(components),
        fds=tuple(fds),
    )
    return result if result.fds == dataflow.fds else under(result)


def replanned(dataflow: Dataflow, like: Plan) -> Plan:
    """The plan of a dataflow by the rules and for the target of another plan."""
    analysis = analyze(dataflow, rules=like.analysis.rules)
    return plan(analysis, target=like.target, alternatives=False)


class _Trial:
    """The outcome of some changes."""

    def __init__(self, before: Plan, changes: Changes) -> None:
        self.changes = changes
        self.before = before
        self.after: Final = replanned(changed(before.analysis.dataflow, changes), before)
        self.repeats = _delivered_worse(before.analysis, self.after.analysis)
        """Whether records that come again do harm that they did not do before."""
        self.worse = self.repeats or self._worse()
        was, now = _ordered(before), _ordered(self.after)
        self.fewer: Final = frozenset(
            name for name, entries in was.items() if _paths(now.get(name, ())) < _paths(entries)
        )
        """Components of which less is ordered."""

    def _worse(self) -> bool:
        before, after = self.before.analysis.labels, self.after.analysis.labels
        return (
            any(after[name].label > label.label for name, label in before.items())
            or self.after.verdict > self.before.verdict
            or not _ordered(self.after).keys() <= _ordered(self.before).keys()
        )

    @cached_property
    def results(self) -> Mapping[str, tuple[Label, Label]]:
        """Results that get better; `Seal` is not better than `Async`, which is right as well."""
        propagation = self.before.analysis.propagation
        assert propagation is not None
        before, after = self.before.analysis.labels, self.after.analysis.labels
        names = [sink.name for sink in propagation.graph.sinks()]
        return {
            name: (before[name].label, after[name].label)
            for name in names
            if after[name].label < before[name].label and before[name].label > Label.ASYNC
        }

    @property
    def better(self) -> bool:
        """Some result gets better, and nothing worse."""
        return bool(self.results) and not self.worse

    @property
    def gives(self) -> Mapping[str, Key]:
        """The inner streams that are waited for, with the key they are sealed on."""
        dataflow = self.before.analysis.dataflow
        return {
            name: key
            for entry, name, key in self._new_waits()
            if dataflow.streams[name].producer is not None
        }

    def _new_waits(self) -> Iterator[tuple[Entry, str, Key]]:
        """The streams that are waited for and were not: the entry, the stream, its key."""
        waited = {
            (entry.component, str(entry.path))
            for entry in self.before.entries
            if entry.strategy is Strategy.SEAL
        }
        into: dict[tuple[str, str], list[str]] = {}
        for stream in self.before.analysis.dataflow.streams.values():
            if stream.consumer is not None:
                end = (stream.consumer.component, stream.consumer.interface)
                into.setdefault(end, []).append(stream.name)
        for entry in self.after.entries:
            place = (entry.component, str(entry.path))
            if entry.strategy is Strategy.SEAL and place not in waited:
                for interface, key in entry.seals.items():
                    for name in into.get((entry.component, interface), ()):
                        yield entry, name, key

    @property
    def cost(self) -> Cost:
        """The waits, records held and questions, beyond what the plan costs already."""
        dataflow = self.before.analysis.dataflow
        held = {
            (name, key): _held(dataflow.streams[name], key) for _, name, key in self._new_waits()
        }
        sealed = [dataflow.streams[name] for name in _sealed(self.changes)]
        keys = {key for _, key in held}
        punctuated = sealed or [
            stream
            for stream in dataflow.streams.values()
            if stream.producer is None and keys.intersection(stream.seals)
        ]
        waits = sorted(stream.name for stream in sealed) or sorted({name for name, _ in held})
        vote = any(entry.vote is Vote.UNANIMOUS for entry, _, _ in self._new_waits())
        asks = vote and any(
            stream.lateness is None
            and (stream.producers is None or stream.producers.rule == "registered")
            for stream in punctuated
        )
        names = sorted({tupled(key) for key in keys})
        latency = f"the {' and the '.join(names)} is over" if names else "nothing"
        return Cost(
            tuple(waits),
            tuple(held.values()),
            Places.PER_PRODUCER_AND_PARTITION if asks else Places.NONE,
            Places.PER_PARTITION if asks else Places.NONE,
            Places.NONE,
            latency,
        )


class _Candidates:
    """Changes that may repair ordered paths: found by walking back, for the analysis to judge."""

    def __init__(self, decided: Plan, propagation: Propagation) -> None:
        self._plan = decided
        self._propagation = propagation
        self._dataflow = decided.analysis.dataflow
        self._rules = propagation.interpreter.rules
        graph = propagation.graph
        self._cyclic = {stream for cycle in graph.cycles for stream in cycle.streams}
        self._edges = {id(path.declared): path for path in graph.paths}

    def of(self, entries: Iterable[Entry]) -> list[Changes]:
        """Those of a component: for each of its paths alone, and for all of them together."""
        options_of = [list(self._of_path(self._edges[id(entry.path)])) for entry in entries]
        candidates = [changes for options in options_of for changes in options]
        some = [options for options in options_of if options]
        if len(some) > 1:
            shared = [options[:3] for options in some[:4]]
            candidates += [
                _joined(change for changes in choice for change in changes)
                for choice in product(*shared)
            ]
        return list(dict.fromkeys(candidates))[:CANDIDATES_MAX]

    def _of_path(self, path: PathEdge) -> Iterator[Changes]:
        gate = path.shape.gate
        assert gate is not None
        if gate.attributes is None or path in self._propagation.unprotected:
            return
        needed = self._needed(path)
        for key in self._keys(path, needed):
            changes = self._traced(path, needed, key)
            if changes:
                yield _joined(changes)
        yield from self._by_dependency(path, needed)

    def _keys(self, path: PathEdge, needed: list[StreamEdge]) -> list[Key]:
        """The minimal keys that fit the path, and those that the streams have already."""
        interpreter, gate = self._propagation.interpreter, path.shape.gate
        assert gate is not None
        fds = interpreter.dependencies(path.shape)
        reachable = closure(gate.attributes or (), fds)
        minimal = minimal_keys(gate, reachable, fds, rules=self._rules.name)
        there = [key for key in self._common(needed) if interpreter.compatible(path.shape, key)]
        return list(dict.fromkeys([*minimal, *there]))

    def _common(self, needed: list[StreamEdge]) -> list[Key]:
        """The keys that all of these streams are sealed on, the smallest first."""
        keys = [self._propagation.stream_labels[stream].keys for stream in needed]
        common = frozenset.intersection(*keys) if keys else frozenset()
        return sorted(common, key=lambda key: (len(key), sorted(key)))

    def _needed(self, path: PathEdge) -> list[StreamEdge]:
        """The streams that have to be sealed: of the rendezvous; of a writer its own too."""
        inputs = {other.input for other in meets(self._propagation, path)}
        if not inputs or path.kind is AnnotationKind.OW:
            inputs.add(path.input)
        return in_file_order(stream for source in inputs for stream in source.streams)

    def _by_dependency(self, path: PathEdge, needed: list[StreamEdge]) -> Iterator[Changes]:
        """The dependency that would make the seals that there are fit the gate."""
        gate, interpreter = path.shape.gate, self._propagation.interpreter
        if self._rules.name != BLAZES or gate is None or not gate.attributes:
            return
        for key in self._common(needed):
            if interpreter.compatible(path.shape, key):
                continue
            missing = key - closure(gate.attributes, interpreter.dependencies(path.shape))
            yield (Depending(FunctionalDependency(gate.attributes, missing)),)

    def _traced(self, path: PathEdge, needed: list[StreamEdge], key: Key) -> list[Change]:
        """The seals on sources by which these streams are sealed on the key; empty: there are none.

        Copied attributes are followed under their older names; through a path that waits the seal
        goes on where the key is compatible with its gate (S3).
        """
        result: list[Change] = []
        if not self._passes(path, key, result):
            return []
        todo = [(stream, key) for stream in needed]
        seen = set(todo)
        while todo:
            edge, wanted = todo.pop()
            stream = edge.declared
            if edge in self._cyclic or not _has(stream, wanted) or len(seen) > UPSTREAM_MAX:
                return []
            if wanted in self._propagation.stream_labels[edge].keys:
                continue
            if edge.producer is None:
                if stream.label is not None or self._single_records(stream, wanted):
                    return []
                result.append(Sealing(stream.name, wanted))
                continue
            for before in self._before(edge.producer, wanted, result):
                if before is None:
                    return []
                if before not in seen:
                    seen.add(before)
                    todo.append(before)
        return result

    def _before(
        self, output: Output, key: Key, changes: list[Change]
    ) -> Iterator[tuple[StreamEdge, Key] | None]:
        """The streams that have to be sealed for an output to be; None: it cannot be."""
        for path in output.paths:
            older = _older(path.declared, key)
            if older is None:
                yield None
                return
            inputs = {path.input}
            if path.shape.ordered:
                keeps = self._rules.keeps(path.kind)
                if keeps is Keeps.NONE or not self._passes(path, older, changes):
                    yield None
                    return
                inputs |= {other.input for other in meets(self._propagation, path)}
            for stream in in_file_order(s for source in inputs for s in source.streams):
                yield stream, older

    def _passes(self, path: PathEdge, key: Key, changes: list[Change]) -> bool:
        """Whether a path can wait for the key, perhaps once its code is changed."""
        interpreter = self._propagation.interpreter
        if not interpreter.compatible(path.shape, key):
            return False
        refusal = interpreter.refusal(path.shape, key)
        if refusal is not None:
            changes.append(Rewriting(path.component.name, path.declared.target, key, refusal))
        return True

    def _single_records(self, stream: Stream, key: Key) -> bool:
        """Whether every partition would be one record: the key determines the stream's id."""
        return bool(stream.id) and closure(key, self._dataflow.fds) >= frozenset(stream.id)


def _older(path: Path, key: Key) -> Key | None:
    """The key under the names that its attributes have before the path; None: one is new."""
    if path.lineage is None:
        return key
    if not all(name in path.lineage for name in key):
        return None
    return frozenset(path.lineage[name] for name in key)


def _has(stream: Stream, key: Key) -> bool:
    """Whether the stream can have the key: as far as its schema says, of types that can be one."""
    if stream.schema is None:
        return True
    return key <= stream.schema.keys() and not any(
        stream.schema[name].strip().lower().startswith(NO_KEY_TYPES) for name in key
    )


def _joined(changes: Iterable[Change]) -> Changes:
    return tuple(dict.fromkeys(changes))


def _sealed(changes: Iterable[Change]) -> list[str]:
    names = (change.stream for change in changes if isinstance(change, Sealing))
    return list(dict.fromkeys(names))


def _ordered(decided: Plan) -> dict[str, tuple[Entry, ...]]:
    """Component -> its ordered paths, in the order of the dataflow."""
    orders: dict[str, list[Entry]] = {}
    for entry in decided.entries:
        if entry.strategy is Strategy.ORDER:
            orders.setdefault(entry.component, []).append(entry)
    return {name: tuple(entries) for name, entries in orders.items()}


def _paths(entries: Iterable[Entry]) -> Counter[str]:
    """How often which path; several of a component may have the same ends."""
    return Counter(str(entry.path) for entry in entries)


def _delivered_worse(before: Analysis, after: Analysis) -> bool:
    """Whether records of any stream come worse than before, or are held back for good."""
    once = Delivered()
    return not set(after.withheld) <= set(before.withheld) or any(
        delivery.label > before.deliveries.get(name, once).label
        for name, delivery in after.deliveries.items()
    )


def _needs(changes: Changes) -> tuple[Needs, tuple[str, ...]]:
    rewritten = [change.component for change in changes if isinstance(change, Rewriting)]
    if rewritten:
        return Needs.OWNER, tuple(dict.fromkeys(rewritten))
    sealed = _sealed(changes)
    return (Needs.PRODUCERS if sealed else Needs.NOBODY), tuple(sorted(sealed))


def _must_hold(dataflow: Dataflow, changes: Changes) -> Iterator[str]:
    """Assumptions that have to be true for the changes to be right, and no file states."""
    ends: dict[Key, list[str]] = {}
    for change in changes:
        match change:
            case Sealing(name, key):
                if dataflow.streams[name].schema is None:
                    yield f"{name} has {listed(sorted(key))}"
                ends.setdefault(key, []).append(name)
            case Depending(fd):
                yield f"each {tupled(fd.determinant)} has only one {tupled(fd.dependent)}"
            case Rewriting():
                pass
    for key, names in ends.items():
        names.sort()
        yield f"each {tupled(key)} ends, and each producer of {listed(names)} knows when it is over"


def _held(stream: Stream, key: Key) -> Held:
    if stream.schema is None:
        return Held(stream.name, key, None, None, ())
    widths = {name: _width(text) for name, text in stream.schema.items()}
    return Held(
        stream.name,
        key,
        tuple(stream.schema),
        sum(width for width in widths.values() if width is not None),
        tuple(name for name, width in widths.items() if width is None),
    )


def _width(text: str) -> int | None:
    """The bytes of a value of a type; None where they differ from value to value."""
    plain = text.strip().lower()
    if plain.startswith("decimal"):
        digits = plain.partition("(")[2].partition(",")[0].rstrip(")").strip()
        return 8 if not digits or (digits.isdigit() and int(digits) <= 18) else 16
    return BYTES.get(plain)
