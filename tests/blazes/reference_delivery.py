"""The rules of delivery once more, as plainly as possible, on top of the plain order labels.

Everything is worked out anew in every sweep, from names and sets, until neither an order label nor
a delivery changes. It shares the vocabulary with the analyser and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

from reference import CW, DIVERGE, INST, OR, OW, RUN, Node, PathId, Reference, determined, merge

from annotations.dataflow import Component, Path, Stream
from annotations.vocabulary import Key, Label, Repeats, Rows, StreamLabel
from blazes.analysis import Analysis

FILES = ("avro", "csv", "json", "orc", "parquet", "text", "xml")
SOURCES = (*FILES, "delta", "binaryfile", "iceberg", "table", "rate", "rate-micro-batch")
SEVERITY = ("Once", "Repeat[id]", "Repeat", "Corrupt")
ALL: Key = frozenset({"all attributes"})


@dataclass(frozen=True)
class Came:
    """`how` is Once, Repeat or Corrupt."""

    how: str = "Once"
    id: Key | None = None

    @property
    def label(self) -> str:
        return "Repeat[id]" if self.how == "Repeat" and self.id is not None else self.how


def worse(*hows: str) -> str:
    return max(hows, key=SEVERITY.index, default="Once")


def seen_between_paths(analysis: Analysis) -> set[str]:
    """Which of D10 to D14 show: there are ids and repeats to carry, or sinks that decide."""
    seen = {"D10", "D11", "D12"} if analysis.deliveries else set()
    for stream in analysis.dataflow.streams.values():
        if stream.consumer is None and stream.sink is not None and stream.sink.format not in FILES:
            seen.add("D14" if stream.sink.key else "D13")
    return seen


@dataclass
class DeliveryReference(Reference):
    """All labels and deliveries of one dataflow under `blazes`, without orders and repairs."""

    came: dict[str, Came] = field(default_factory=dict)
    rules_of_delivery: dict[PathId, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.came = {name: Came() for name in self.dataflow.streams}
        self.rep = self._replication()
        self.edges = set(self._edges())
        self.reach = {node: self._reach(node) for edge in self.edges for node in edge}
        before: object = None
        while before != (self.labels, self.came):
            before = (dict(self.labels), dict(self.came))
            self.own.update(dict.fromkeys(self.own, Label.ASYNC))
            self._sweep()

    def _source(self, stream: Stream) -> StreamLabel:
        says = stream.delivery
        if says is None and stream.source is not None:
            says = "once" if stream.source.format in SOURCES else "may-repeat"
        how = "Repeat" if says == "may-repeat" else "Once"
        self.came[stream.name] = self._on(stream, Came(how, frozenset(stream.id) or None), False)
        return super()._source(stream)

    # ---- paths

    def _entering(self, component: Component, path: Path) -> list[Stream]:
        return self.entering(component.name, path.source)

    def _waits(self, at: PathId, component: Component, path: Path) -> bool:
        """What enters is held back until its partition is complete."""
        label = self.input(component.name, path.source)
        sealed = path.annotation.kind in (OR, OW) and self.fits(label, component, path)
        if sealed and (not self._shared(component, path) or self.writers_fit(component, path)):
            return True
        group = self.group(component, path)
        return path.annotation.kind.writes and any(
            reader.annotation.kind is OR
            and reader.target == path.target
            and self.protected(where, component, reader)
            for where, reader in (self.members(component, group) if group else ())
        )

    def _hands_on(self, component: Component, path: Path) -> bool:
        """A seal goes through the path to an order-sensitive one, as far as the graph tells."""
        if not path.annotation.kind.confluent:
            return False
        if not self.input(component.name, path.source).keys:
            return False
        seen: set[str] = set()
        todo = [(component.name, path.target)]
        while todo:
            end = todo.pop()
            for name, stream in self.dataflow.streams.items():
                if not stream.producer or not stream.consumer or name in seen:
                    continue
                if (stream.producer.component, stream.producer.interface) != end:
                    continue
                seen.add(name)
                consumer = self.dataflow.components[stream.consumer.component]
                for behind in consumer.paths:
                    if behind.source == stream.consumer.interface:
                        if not behind.annotation.kind.confluent:
                            return True
                        todo.append((consumer.name, behind.target))
        return False

    def _by_promise(self, stream: Stream, seen: frozenset[str] = frozenset()) -> bool:
        """No punctuation counts the records of the stream's partitions, or of those before it."""
        if stream.seals:
            return stream.punctuation is None and stream.lateness is not None
        if stream.producer is None or stream.name in seen:
            return False
        component = self.dataflow.components[stream.producer.component]
        return any(
            self._by_promise(before, seen | {stream.name})
            for path in component.paths
            if path.target == stream.producer.interface
            for before in self._entering(component, path)
        )

    def _shared(self, component: Component, path: Path) -> bool:
        group = self.group(component, path)
        return group is not None and len(self.members(component, group)) > 1

    def _behind(self, at: PathId, component: Component, path: Path) -> tuple[str, Came, bool]:
        """The rule, what leaves the path, and whether the order label gets worse."""
        came = [self.came[each.name] for each in self._entering(component, path)]
        how = worse(*(each.how for each in came))
        known = came[0].id if len(came) == 1 else None
        kind = path.annotation.kind
        waits = self._waits(at, component, path)
        copied = [
            stream
            for stream in self._entering(component, path)
            if self.came[stream.name].how == "Repeat"
        ]
        by_promise = [stream for stream in copied if self._by_promise(stream)]
        bare = [s for s in copied if self.came[s.name].id is None or s in by_promise]
        counts = len(by_promise) < len(copied)
        repeats = path.repeats
        if repeats is None:
            repeats = Repeats.PASS if kind.name == "CR" else Repeats.CORRUPT
        through = self._renamed(known, path) if path.rows is not Rows.MANY else None
        if waits and kind is OW and path.rows is Rows.ONE:
            assert path.annotation.gate is not None
            through = self._renamed(path.annotation.gate.attributes, path)
        wrong = Came("Corrupt")
        if how == "Corrupt":
            return "D9", wrong, True
        if how == "Repeat":
            if path.nondeterministic is not None:
                return "D5", wrong, True
            if waits and counts and not bare:
                return "D6", Came("Once", through), False
            absorbed = repeats is Repeats.ABSORB and bool(bare)
            if counts and (waits or (absorbed and self._hands_on(component, path))):
                digests = [each.punctuation and each.punctuation.digest for each in bare]
                if all(digests):
                    return "D7", Came("Once", through), False
                return "D7", wrong, True
            if kind is OR and self.protected(at, component, path):
                return "D8", Came("Repeat", through), False
            if repeats is Repeats.CORRUPT:
                return ("D4" if kind.writes else "D3"), wrong, True
        if repeats is Repeats.MAKE and not waits:
            return "D2", Came("Repeat", ALL), False
        return "D1", Came("Once" if repeats is Repeats.ABSORB else how, through), False

    def _renamed(self, known: Key | None, path: Path) -> Key | None:
        if known is None or path.lineage is None:
            return known
        copies = [[out for out, of in path.lineage.items() if of == name] for name in sorted(known)]
        images = [frozenset(chosen) for chosen in product(*copies)]
        return min(images, key=sorted, default=None)

    def _path(
        self, at: PathId, component: Component, path: Path
    ) -> tuple[list[StreamLabel], list[Label], set[str]]:
        found, owned, why = super()._path(at, component, path)
        rule, _, harm = self._behind(at, component, path)
        self.rules_of_delivery[at] = rule
        rep = self.rep[component.name]
        if harm and path.annotation.kind.writes:
            found.append(DIVERGE if rep else RUN)
            why.add("C1")
        elif harm:
            found.append(INST if rep else RUN)
        return found, owned, why

    def _state(self, component: Component, output: str) -> tuple[set[str], set[Label]]:
        faults, own = super()._state(component, output)
        for at, path in self._writers_shown(component, output):
            if self._behind(at, component, path)[2]:
                faults.add("tainted")
        return faults, own

    def _writers_shown(self, component: Component, output: str) -> list[tuple[PathId, Path]]:
        return [
            (at, path)
            for group in {self.group(component, path) for path in component.paths} - {None}
            if group is not None and output in self.shown(component, group)
            for at, path in self.members(component, group)
            if path.annotation.kind in (CW, OW)
        ]

    # ---- outputs and streams

    def _leave(self, node: Node, label: StreamLabel, own: Label) -> None:
        super()._leave(node, label, own)
        _, name, output = node
        component = self.dataflow.components[name]
        ending = [
            ((name, number), path)
            for number, path in enumerate(component.paths)
            if path.target == output
        ]
        behind = [self._behind(at, component, path)[1] for at, path in ending]
        how = worse(*(each.how for each in behind))
        known = behind[0].id if len(behind) == 1 else None
        if len(behind) > 1 and all(path.rows is Rows.JOINED for _, path in ending):
            ids = [each.id for each in behind]
            if None not in ids:
                known = frozenset().union(*(each for each in ids if each is not None))
                known = ALL if known >= ALL else known
        for at, path in self._writers_shown(component, output):
            written = self._behind(at, component, path)[1].how
            if path.target != output and written != "Once":
                how, known = worse(how, written), None
        if self.cyclic(node) or how == "Corrupt":
            known = None
        for stream in self.dataflow.streams.values():
            if stream.producer and (stream.producer.component, stream.producer.interface) == (
                name,
                output,
            ):
                self.came[stream.name] = self._on(stream, Came(how, known), self.rep[name])

    def _on(self, stream: Stream, came: Came, rep: bool) -> Came:
        """What is on a stream of what leaves its producer; order labels of sinks get worse."""
        how, known = came.how, came.id
        names = None if stream.schema is None else frozenset(stream.schema)
        if known == ALL:
            known = names
        if known is not None and names is not None and not known <= names:
            known = None
        to_replicas = stream.consumer is not None and self.rep[stream.consumer.component]
        if known is not None and rep and not to_replicas:
            known |= {"replica"}
        if stream.producer and stream.consumer and stream.delivery == "may-repeat":
            how = worse(how, "Repeat")
        if stream.producer and stream.consumer is None and stream.sink and how != "Corrupt":
            if stream.sink.key:
                if known is not None and known <= determined(
                    frozenset(stream.sink.key), self.dataflow, names
                ):
                    how = "Once"
                else:
                    how = "Corrupt" if how == "Repeat" else how
                    self.labels[stream.name] = merge(
                        [self.labels[stream.name], DIVERGE if rep else RUN]
                    )
            elif (stream.sink.delivery or "") == "may-repeat" or (
                stream.sink.delivery is None and stream.sink.format not in FILES
            ):
                how = "Repeat"
        return Came(how, None if how == "Corrupt" else known)
