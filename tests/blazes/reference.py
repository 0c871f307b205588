"""The analysis once more, written as plainly as possible and with other algorithms.

No numbers, no caches, no order of visits: names, sets, and sweeps over everything until nothing
changes. Cycles are found by walking from every node to every other. It shares the vocabulary with
the analyser, and takes its choice among seals that exclude each other. Beside each label it keeps
what the label would be if nothing were inherited (`own`), so that it can say whether a set of
ordered paths is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, combinations

from annotations.dataflow import Component, Dataflow, Path, Stream
from annotations.vocabulary import (
    ASYNC,
    DIVERGE,
    INST,
    RUN,
    STAR,
    Annotation,
    AnnotationKind,
    Key,
    Label,
    StreamLabel,
    seal,
)
from blazes.core.propagation import Propagation

CR, CW, OR, OW = AnnotationKind

PathId = tuple[str, int]
"""Component and position of the path in it."""
Node = tuple[str, str, str]
"""(`in`, `out` or `state`, component, name)."""


def merge(labels: list[StreamLabel]) -> StreamLabel:
    """Highest severity; seals keep the keys common to all."""
    worst = max(labels, key=lambda each: each.label)
    if worst.label is not Label.SEAL:
        return worst
    keys = frozenset.intersection(*(each.keys for each in labels))
    return StreamLabel(Label.SEAL, keys) if keys else ASYNC


def determined(attributes: Key, dataflow: Dataflow, there: Key | None = None) -> Key:
    """What the attributes determine, of records that have those that are `there`; None: all."""
    known = set(attributes)
    for _ in range(2 * len(dataflow.fds) + 1):
        for fd in dataflow.fds:
            ways = [(fd.determinant, fd.dependent)]
            ways += [(fd.dependent, fd.determinant)] * fd.injective
            for determinant, dependent in ways:
                if determinant <= known and (there is None or determinant <= there):
                    known |= dependent if there is None else dependent & there
    return frozenset(known)


@dataclass
class Reference:
    """All labels of one dataflow, with a given set of paths ordered."""

    dataflow: Dataflow
    rules: str
    ordered: frozenset[PathId] = frozenset()
    dynamic: bool = False
    floor: Reference | None = None
    """The same with every path ordered: what is inherited. Needed for `own` and `enough` alone."""
    handed_on: Mapping[tuple[str, str], Key] = field(default_factory=dict)
    """(Component, output) -> the one key that it hands on, none where it waits for no seal; not
    chosen, but given."""
    labels: dict[str, StreamLabel] = field(default_factory=dict)
    own: dict[str, Label] = field(default_factory=dict)
    """Stream -> its severity if all that is inherited were Async."""
    outputs: dict[Node, StreamLabel] = field(default_factory=dict)
    reconciled: dict[Node, set[str]] = field(default_factory=dict)
    fired: dict[PathId, set[str]] = field(default_factory=dict)
    origins: dict[PathId, str] = field(default_factory=dict)
    """Unordered paths whose race shows, with the rule that found it."""

    def __post_init__(self) -> None:
        self.rep = self._replication()
        self.edges = set(self._edges())
        self.reach = {node: self._reach(node) for edge in self.edges for node in edge}
        for settled in (self.labels, self.own):
            self.own.update(dict.fromkeys(self.own, Label.ASYNC))
            before: dict[str, StreamLabel] | dict[str, Label] | None = None
            while settled != before:
                before = dict(settled)
                self._sweep()
        assert set(self.labels) == set(self.dataflow.streams)

    # ---- the graph

    def paths(self) -> Iterator[tuple[PathId, Component, Path]]:
        for component in self.dataflow.components.values():
            for number, path in enumerate(component.paths):
                yield (component.name, number), component, path

    def group(self, component: Component, path: Path) -> str | None:
        """The state group of a path, as a name; None: it is in none."""
        if path.state is not None:
            return f"named {path.state}"
        return None if path.annotation.kind is CR else "default"

    def members(self, component: Component, group: str) -> list[tuple[PathId, Path]]:
        return [
            ((component.name, number), path)
            for number, path in enumerate(component.paths)
            if self.group(component, path) == group
        ]

    def shown(self, component: Component, group: str) -> set[str]:
        """Outputs that show the state: an OR or OW path, or a path that names the group."""
        return {
            path.target
            for _, path in self.members(component, group)
            if path.state is not None or path.annotation.kind in (OR, OW)
        }

    def _edges(self) -> Iterator[tuple[Node, Node]]:
        for (name, _), component, path in self.paths():
            source, target = ("in", name, path.source), ("out", name, path.target)
            yield source, target
            group = self.group(component, path)
            if self.rules == "blazes" and group is not None and path.annotation.kind.writes:
                for shown in self.shown(component, group):
                    yield source, ("out", name, shown)
        for stream in self.dataflow.streams.values():
            if stream.producer and stream.consumer:
                yield (
                    ("out", stream.producer.component, stream.producer.interface),
                    ("in", stream.consumer.component, stream.consumer.interface),
                )

    def _reach(self, start: Node) -> set[Node]:
        seen: set[Node] = set()
        todo = [start]
        while todo:
            node = todo.pop()
            for source, target in self.edges:
                if source == node and target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen

    def cyclic(self, node: Node) -> bool:
        return node in self.reach.get(node, ())

    def together(self, one: Node, other: Node) -> bool:
        """Both in the same cycle."""
        return other in self.reach.get(one, ()) and one in self.reach.get(other, ())

    def _replication(self) -> dict[str, bool]:
        rep = {name: bool(each.rep) for name, each in self.dataflow.components.items()}
        for _ in range(len(rep) + 1):
            for stream in self.dataflow.streams.values():
                replicated = stream.rep or (stream.producer and rep[stream.producer.component])
                consumer = stream.consumer and self.dataflow.components[stream.consumer.component]
                if replicated and consumer and consumer.rep is not False:
                    rep[consumer.name] = True
        return rep

    # ---- labels

    def _sweep(self) -> None:
        for stream in self.dataflow.streams.values():
            if stream.producer is None:
                self.labels[stream.name] = self._source(stream)
                self.own[stream.name] = Label.ASYNC
                continue
            node = ("out", stream.producer.component, stream.producer.interface)
            inner = stream.consumer is not None and self.together(
                node, ("in", stream.consumer.component, stream.consumer.interface)
            )
            if inner and stream.name not in self.labels:
                self.labels[stream.name], self.own[stream.name] = ASYNC, Label.ASYNC
        for component in self.dataflow.components.values():
            for output in dict.fromkeys(path.target for path in component.paths):
                node = ("out", component.name, output)
                if all(name in self.labels for name in self._needs(node)):
                    label, own = self._output(component, output)
                    self._leave(node, label, own)

    def _source(self, stream: Stream) -> StreamLabel:
        if stream.label is not None and stream.label > Label.ASYNC:
            return StreamLabel(stream.label)
        return seal(*stream.seals) if stream.seals else ASYNC

    def _needs(self, node: Node) -> set[str]:
        """Streams that have to be labelled before the output."""
        inputs = {source for source, target in self.edges if target == node}
        if self.rules == "icde14":
            inputs |= {
                source
                for source, target in self.edges
                if self.together(node, target) and source[0] == "in"
            }
        return {stream.name for _, name, i in inputs for stream in self.entering(name, i)}

    def entering(self, component: str, interface: str) -> list[Stream]:
        return [
            stream
            for stream in self.dataflow.streams.values()
            if stream.consumer
            and (stream.consumer.component, stream.consumer.interface) == (component, interface)
        ]

    def input(self, component: str, interface: str) -> StreamLabel:
        entering = self.entering(component, interface)
        label = merge([self.labels[each.name] for each in entering] or [ASYNC])
        if self.cyclic(("in", component, interface)):
            return merge([label, ASYNC])
        return label

    def own_input(self, component: str, interface: str) -> Label:
        entering = self.entering(component, interface)
        return max((self.own[each.name] for each in entering), default=Label.ASYNC)

    def judged(self, component: str, interface: str, label: StreamLabel, own: Label) -> StreamLabel:
        """The label by which a race is one's own: what no order takes away, and one's own part.

        The label itself will not do: in a cycle a race raises the label of its own input, and then
        no longer fires.
        """
        if label.label is Label.SEAL or self.floor is None:
            return label
        return StreamLabel(max(own, self.floor.input(component, interface).label, Label.ASYNC))

    def _leave(self, node: Node, label: StreamLabel, own: Label) -> None:
        if self.cyclic(node):
            label = merge([label, ASYNC])
        if label.keys and node[1:] in self.handed_on:
            keys = label.keys & {self.handed_on[node[1:]]}
            label = seal(*keys) if keys else ASYNC
        self.outputs[node] = label
        for stream in self.dataflow.streams.values():
            if not stream.producer:
                continue
            if ("out", stream.producer.component, stream.producer.interface) != node:
                continue
            inner = stream.consumer and self.together(
                node, ("in", stream.consumer.component, stream.consumer.interface)
            )
            self.own[stream.name] = own
            self.labels[stream.name] = label
            if label.label <= Label.ASYNC and not inner:
                keys = {
                    key
                    for key in label.keys
                    if stream.schema is None or all(name in stream.schema for name in key)
                } | set(stream.seals)
                self.labels[stream.name] = seal(*keys) if keys else ASYNC

    # ---- rules

    def compatible(self, component: Component, path: Path, key: Key) -> bool:
        assert path.annotation.gate is not None
        gate = path.annotation.gate.attributes
        if gate is None or self.handed_on.get((component.name, path.target)) == frozenset():
            return False
        if self.rules == "blazes":
            return key <= determined(gate, self.dataflow, self.shared(component, path))
        return any(
            frozenset(part) <= determined(key, self.dataflow)
            and key <= determined(frozenset(part), self.dataflow)
            for size in range(1, len(gate) + 1)
            for part in combinations(sorted(gate), size)
        )

    def shared(self, component: Component, path: Path) -> Key | None:
        """The attributes that all declared streams have whose records meet on the path."""
        inputs = {path.source, *(writer.source for _, writer in self.writers(component, path))}
        schemas = [
            frozenset(stream.schema)
            for name in inputs
            for stream in self.entering(component.name, name)
            if stream.schema is not None
        ]
        return frozenset.intersection(*schemas) if schemas else None

    def fits(self, label: StreamLabel, component: Component, path: Path) -> bool:
        return any(self.compatible(component, path, key) for key in label.keys)

    def writers(self, component: Component, path: Path) -> list[tuple[PathId, Path]]:
        """All write paths of the path's state group, itself included."""
        group = self.group(component, path)
        if group is None:
            return []
        return [each for each in self.members(component, group) if each[1].annotation.kind.writes]

    def writers_fit(self, component: Component, path: Path) -> bool:
        return all(
            self.fits(self.input(component.name, writer.source), component, path)
            for _, writer in self.writers(component, path)
        )

    def protected(self, at: PathId, component: Component, path: Path) -> bool:
        """`at` and `path` may differ: a collapsed path stands at the place of a member."""
        if self.rules == "blazes":
            return bool(self.writers(component, path)) and self.writers_fit(component, path)
        source, target = ("in", component.name, path.source), ("out", component.name, path.target)
        if self.together(source, target) and len(self._cycle_members(source)) > 1:
            return False
        others = [
            each
            for number, each in enumerate(component.paths)
            if each.target == path.target and (component.name, number) != at
        ]
        return bool(others) and all(
            self.fits(self.input(component.name, each.source), component, path) for each in others
        )

    def rules_fired(self, component: Component, path: Path, label: StreamLabel) -> set[str]:
        """Section 2.1, row by row, without orders."""
        kind = path.annotation.kind
        severity = label.label
        blazes = self.rules == "blazes"
        fits = kind in (OR, OW) and self.fits(label, component, path)
        fired = set()
        if severity in (Label.ASYNC, Label.RUN) and kind is OR:
            fired.add("R1")
        if severity in (Label.ASYNC, Label.RUN) and kind is OW:
            fired.add("R2")
        if severity is Label.INST and kind in (CW, OW):
            fired.add("R3")
        if severity is Label.DIVERGE and kind in (CW, OW) and blazes:
            fired.add("R3")
        if severity is Label.SEAL and kind is OW and not fits:
            fired.add("R4")
        if severity is Label.SEAL and blazes and kind in (OR, OW):
            open_state = not self.writers_fit(component, path)
            if kind is OR and (not fits or open_state):
                fired.add("S1")
            if kind is OW and fits and open_state:
                fired.add("S2")
        if path.nondeterministic is not None and blazes:
            fired.add("N2" if kind.writes else "N1")
        return fired

    def through(self, component: Component, path: Path, label: StreamLabel) -> StreamLabel:
        """Section 2.2."""
        if label.label is not Label.SEAL:
            return label
        keys: set[Key] = set(label.keys)
        if not path.annotation.kind.confluent:
            if self.rules == "icde14":
                return ASYNC
            keys = {key for key in keys if self.compatible(component, path, key)}
        if path.lineage is not None:
            keys = set(chain.from_iterable(self._copies(key, path) for key in keys))
        return seal(*keys) if keys else ASYNC

    def _copies(self, key: Key, path: Path) -> Iterator[Key]:
        """Sets of output attributes that are, one for one, copies of the key's."""
        lineage = path.lineage or {}
        for names in combinations(sorted(lineage), len(key)):
            if frozenset(lineage[name] for name in names) == key:
                yield frozenset(names)

    def _path(
        self, at: PathId, component: Component, path: Path
    ) -> tuple[list[StreamLabel], list[Label], set[str]]:
        """What a path contributes to the output it ends in: labels, own severities, rules."""
        label = self.input(component.name, path.source)
        own = self.own_input(component.name, path.source)
        rep = self.rep[component.name]
        fired = self.rules_fired(component, path, label)
        found, owned, why = [self.through(component, path, label)], [own], set()
        race = fired & {"R1", "R2", "R4", "S1", "S2"}
        self.origins.pop(at, None)
        if race and at in self.ordered:
            fired -= race
            found = [label if label.label is not Label.SEAL else ASYNC]
            if self.dynamic:
                found.append(RUN)
        elif race & {"R1", "S1"}:
            if not self.protected(at, component, path):
                found.append(INST if rep else RUN)
                why.add("C2")
                self.origins[at] = next(iter(race))
        elif race:
            self.origins[at] = next(iter(race))
        owned += self._own(at, component, path, own)
        if fired & {"R2", "R3", "R4", "S2", "N2"}:
            found.append(DIVERGE if rep else RUN)
            why.add("C1")
        if "N1" in fired:
            found.append(INST if rep else RUN)
        self.fired[at] = fired or {"p"}
        return found, owned, why

    def _own(self, at: PathId, component: Component, path: Path, own: Label) -> list[Label]:
        """What the path's own races, and those before it, come to where it ends."""
        label = self.input(component.name, path.source)
        judged = self.judged(component.name, path.source, label, own)
        fired = self.rules_fired(component, path, judged)
        rep = self.rep[component.name]
        if fired & {"R1", "R2", "R4", "S1", "S2"} and at in self.ordered:
            return [Label.RUN] if self.dynamic else []
        if fired & {"R1", "S1"} and not self.protected(at, component, path):
            return [Label.INST if rep else Label.RUN]
        if fired & {"R2", "R4", "S2"} or ("R3" in fired and own >= Label.INST):
            return [Label.DIVERGE if rep else Label.RUN]
        return []

    def _state(self, component: Component, output: str) -> tuple[set[str], set[Label]]:
        """S4 and S5: faults of the states that the output shows, and which of them are own."""
        faults, own = set(), set()
        if self.rules == "icde14":
            return faults, own
        for group in {self.group(component, path) for path in component.paths} - {None}:
            assert group is not None
            if output not in self.shown(component, group):
                continue
            for at, path in self.members(component, group):
                if not path.annotation.kind.writes:
                    continue
                label = self.input(component.name, path.source)
                mine = self.own_input(component.name, path.source)
                fired = self.rules_fired(component, path, label)
                race = fired & {"R2", "R4", "S2"}
                if race and at in self.ordered:
                    fired -= race
                    faults |= {"unrepeatable"} if self.dynamic else set()
                if fired & {"R2", "R3", "R4", "S2", "N2"}:
                    faults.add("tainted")
                if label.label is Label.RUN:
                    faults.add("unrepeatable")
                own.update(self._own(at, component, path, mine))
                if mine is Label.RUN:
                    own.add(Label.RUN)
        return faults, own

    def _output(self, component: Component, output: str) -> tuple[StreamLabel, Label]:
        node = ("out", component.name, output)
        if self.rules == "icde14" and self.cyclic(node):
            return self._collapsed(node)
        rep = self.rep[component.name]
        labels, owned, why = [], [Label.ASYNC], set()
        for number, path in enumerate(component.paths):
            if path.target == output:
                found, own, rules = self._path((component.name, number), component, path)
                labels += found
                owned += own
                why |= rules
        faults, own_faults = self._state(component, output)
        if "tainted" in faults:
            labels.append(DIVERGE if rep else RUN)
            why |= {"C1"} if "C1" in why else {"C1", "S4"}
        if "unrepeatable" in faults and merge(labels).label < Label.RUN:
            labels.append(RUN)
            why.add("S5")
        self.reconciled[node] = why
        return merge(labels), max(owned + list(own_faults))

    # ---- cycles of icde14

    def _cycle_members(self, node: Node) -> list[tuple[PathId, Component, Path]]:
        return [
            (at, component, path)
            for at, component, path in self.paths()
            if self.together(node, ("in", component.name, path.source))
            and self.together(node, ("out", component.name, path.target))
        ]

    def _collapsed(self, node: Node) -> tuple[StreamLabel, Label]:
        """The cycle through the node as one path."""
        members = self._cycle_members(node)
        inside = {at for at, _, _ in members}
        rep = any(self.rep[component.name] for _, component, _ in members)
        entering: list[StreamLabel] = [ASYNC]
        owned = [Label.ASYNC]
        for _, component, path in members:
            for stream in self.entering(component.name, path.source):
                producer = stream.producer
                if producer is None or not self.together(
                    node, ("out", producer.component, producer.interface)
                ):
                    entering.append(self.labels[stream.name])
                    owned.append(self.own[stream.name])
        saved = dict(self.rep)
        self.rep = dict.fromkeys(self.rep, rep)
        for at, component, path in self.paths():
            target = ("out", component.name, path.target)
            if at not in inside and self.together(node, target):
                found, own, _ = self._path(at, component, path)
                entering += found
                owned += own
        annotations = []
        for at, _, path in members:
            annotation = path.annotation
            if at in self.ordered and not annotation.kind.confluent:
                annotation = Annotation(CW if annotation.kind is OW else CR)
            annotations.append(annotation)
        kind = max(annotation.kind for annotation in annotations)
        gates = {each.gate for each in annotations if each.kind is kind}
        worst = Annotation(kind, gates.pop() if len(gates) == 1 else STAR)
        at, component, path = members[0]
        one = Path(path.source, path.target, worst)
        label, own = merge(entering), max(owned)
        fired = self.rules_fired(component, one, label)
        labels, owned = [label], [own]
        for member in inside:
            self.fired[member] = fired or {"p"}
            self.origins.pop(member, None)
        exposed = bool(fired & {"R1"}) and not self.protected(at, component, one)
        race = fired & {"R1", "R2"}
        if exposed or fired & {"R2"}:
            for member, _, each in members:
                if not each.annotation.kind.confluent and member not in self.ordered:
                    self.origins[member] = next(iter(race))
        if exposed:
            labels.append(INST if rep else RUN)
        if fired & {"R2", "R3"}:
            labels.append(DIVERGE if rep else RUN)
        place = at if len(members) == 1 else ("", -1)
        owned += self._own(place, component, one, own)
        if self.dynamic and any(member in self.ordered for member in inside):
            labels.append(RUN)
            owned.append(Label.RUN)
        self.rep = saved
        return merge(labels), max(owned)

    # ---- what comes of it

    def sinks(self) -> list[str]:
        streams = self.dataflow.streams.values()
        return [each.name for each in streams if each.consumer is None] or list(
            self.dataflow.streams
        )

    @property
    def verdict(self) -> Label:
        return max((self.labels[name].label for name in self.sinks()), default=Label.SEAL)

    def enough(self, target: Label) -> bool:
        """Every sink is within the target, what is inherited aside."""
        return all(self.own[name] <= target for name in self.sinks())


def order_sensitive(dataflow: Dataflow) -> list[PathId]:
    """All paths that could be ordered."""
    return [
        (component.name, number)
        for component in dataflow.components.values()
        for number, path in enumerate(component.paths)
        if not path.annotation.kind.confluent
    ]


def handed_on(propagation: Propagation) -> dict[tuple[str, str], Key]:
    """The keys that the analyser has chosen for outputs that could hand on several."""
    return {(at.component.name, at.name): key for at, key in propagation.handed_on.items()}


def smallest_sets(
    dataflow: Dataflow, rules: str, target: Label, handed_on: Mapping[tuple[str, str], Key]
) -> list[frozenset[PathId]]:
    """All smallest sets of paths that are enough when ordered, by trying every subset."""
    dynamic = target is not Label.ASYNC
    paths = order_sensitive(dataflow)
    floor = Reference(dataflow, rules, frozenset(paths), dynamic, handed_on=handed_on)
    for size in range(len(paths) + 1):
        enough = [
            frozenset(chosen)
            for chosen in combinations(paths, size)
            if Reference(dataflow, rules, frozenset(chosen), dynamic, floor, handed_on).enough(
                target
            )
        ]
        if enough:
            return enough
    return []
