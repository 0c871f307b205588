"""The gates that the compiler puts where the plan seals: whom they wait for, on which keys.

Who sends is read off the file, whom a gate waits for off the compiled stage, so that a mistake of
the compiler shows. What only running a job needs and the file leaves out is filled in first: a
source, punctuations, who contributes to a partition (one producer, where nothing is said), code.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from annotations.dataflow import (
    Component,
    Dataflow,
    Endpoint,
    External,
    Implementation,
    Producers,
    Punctuation,
    Stream,
)
from annotations.diagnostics import BadInput
from blazes.coordination import Plan, Release
from blazes.verify.operators import Schema
from blazes.verify.records import Row
from codegen.model import Channel, Seal, Source, Stages, Transform, Way
from codegen.stages import stages
from flux_runtime.sealing.tracker import All, One, Registered, Set

PRODUCERS = ("producer-1", "producer-2")
"""Who sends where the file names nobody."""


class NotCompiled(Exception):  # noqa: N818
    """The plan cannot be compiled; the message says why."""


@dataclass(frozen=True, slots=True)
class Feed:
    """The way of records from an origin to an interface: fused, record-wise outputs in between."""

    origin: str
    transforms: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a gate's micro-batches: a source stream, or the output of another gate.

    Attributes:
        name: of the stream, or `Component.output`.
        unit: the other gate's output; None for a source.
        columns: of its records.
        key: what the key's attributes are called there.
        awaited: the compiled producer set.
        sends: who sends, by the file.
        named_in: the column that names the producer.
        id: what identifies a record, where the gate drops what it knows.
    """

    name: str
    unit: Endpoint | None
    columns: tuple[str, ...]
    key: tuple[str, ...]
    awaited: Set
    sends: Producers
    named_in: str | None
    id: tuple[str, ...]

    def value(self, row: Row) -> Row:
        """The key value of a record."""
        return tuple(row[self.columns.index(name)] for name in self.key)

    def producer(self, row: Row) -> str:
        """Who sends a record: whom its column stands for, or anyone."""
        if self.sends.rule == "one":
            return one_of(PRODUCERS, self.value(row))
        named = self.named_in in self.columns
        who = row[self.columns.index(self.named_in)] if self.named_in and named else row
        return one_of(self.sends.members or PRODUCERS, who)

    def members(self, value: Row) -> tuple[str, ...]:
        """Who contributes to a partition."""
        if self.sends.rule == "one":
            return (one_of(PRODUCERS, value),)
        return self.sends.members or PRODUCERS

    def identity(self, row: Row) -> Row | None:
        """A record's id; None where it has none."""
        identity = tuple(row[self.columns.index(name)] for name in self.id)
        return identity if identity and None not in identity else None


@dataclass(frozen=True, slots=True)
class Gate:
    """An output that waits for complete partitions, as it is compiled.

    Attributes:
        at: the output.
        key: attributes, as its inputs name them.
        waits: interface -> where its records come from.
        reads: interfaces of requests.
        origins: by name.
        in_sequence: partitions are handed over sorted.
        order_by: the total key to sort by.
        forward: the key as the output names it, where punctuations leave with partitions.
        counted: what micro-batches have been found to hold.
    """

    at: Endpoint
    key: tuple[str, ...]
    waits: Mapping[str, tuple[Feed, ...]]
    reads: tuple[str, ...]
    origins: Mapping[str, Origin]
    in_sequence: bool
    order_by: tuple[str, ...]
    forward: tuple[str, ...]
    counted: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)


def one_of(names: tuple[str, ...], value: Any) -> str:
    """One of the names for each value: the same in every process."""
    return names[zlib.crc32(repr(value).encode()) % len(names)]


def compiled(plan: Plan) -> Stages:
    """The stages of a plan; NotCompiled where there are none."""
    analysis = replace(plan.analysis, dataflow=completed(plan.analysis.dataflow))
    try:
        return stages(replace(plan, analysis=analysis))
    except BadInput as bad:
        first = bad.diagnostics[0]
        raise NotCompiled(f"the plan cannot be compiled: {first.message} ({first.code})") from None


def completed(dataflow: Dataflow) -> Dataflow:
    """The dataflow with what a job needs; one instance of each component, whatever it asks for."""
    components = {name: with_code(component) for name, component in dataflow.components.items()}
    streams = {name: with_source(stream) for name, stream in dataflow.streams.items()}
    return replace(dataflow, components=components, streams=streams)


def with_code(component: Component) -> Component:
    """The component with something to compute outputs by that has several inputs, or an order."""
    codes = dict(component.implementations)
    for output in dict.fromkeys(path.target for path in component.paths):
        own = [path for path in component.paths if path.target == output]
        inputs = dict.fromkeys(path.source for path in own)
        if len(inputs) > 1 or not all(path.annotation.kind.confluent for path in own):
            names = ", ".join(f"`{name}`" for name in inputs)
            codes.setdefault(output, Implementation(sql=f"SELECT * FROM {names}"))
    return replace(component, implementations=codes, replicas=1)


def with_source(stream: Stream) -> Stream:
    """A stream from outside with a source, and with producers that keep what its seals promise."""
    if stream.producer is not None:
        return stream
    source = stream.source or External("rate")
    if not stream.seals:
        return replace(stream, source=source)
    return replace(
        stream,
        source=source,
        punctuation=stream.punctuation or Punctuation("false", "0"),
        producers=stream.producers or Producers("one"),
        producer_column=stream.producer_column or "producer",
    )


def gates_of(stages: Stages, dataflow: Dataflow, schemas: Mapping[str, Schema]) -> dict[str, Gate]:
    """Output -> its gate, each after those that feed it.

    Args:
        made: the compiled stages.
        dataflow: the dataflow as the file has it.
        schemas: stream -> its columns.
    """
    gates: dict[str, Gate] = {}
    for stage in stages:
        if isinstance(stage, Seal):
            waits = {
                name: tuple(feed for id in ids for feed in feeds(stages, id))
                for name, ids in stage.waits.items()
            }
            names = dict.fromkeys(feed.origin for its in waits.values() for feed in its)
            gates[stage.name] = Gate(
                Endpoint(stage.component, stage.output),
                stage.key,
                waits,
                tuple(stage.reads),
                {name: origin_of(name, stage, gates, dataflow, schemas) for name in names},
                stage.release is Release.SORTED,
                stage.order_by,
                stage.forward,
            )
    return gates


def feeds(stages: Stages, id: str) -> Iterator[Feed]:
    """The ways on which records come to the reader of a stage."""
    match stages[id]:
        case Source(name=name) | Seal(name=name):
            yield Feed(name)
        case Channel(inputs=units):
            yield from (feed for unit in units for feed in feeds(stages, unit))
        case Transform(way=Way.RECORD_WISE) as fused:
            for upstream in fused.inputs:
                for feed in feeds(stages, upstream):
                    at = Endpoint(fused.component, fused.output)
                    yield replace(feed, transforms=(*feed.transforms, at))
        case other:
            raise NotCompiled(f"a gate waits for {other.name}, which announces no partitions")


def origin_of(
    name: str,
    stage: Seal,
    before: Mapping[str, Gate],
    dataflow: Dataflow,
    schemas: Mapping[str, Schema],
) -> Origin:
    """An origin of a gate, by the compiled stage, and by the file what comes from there."""
    stream = dataflow.streams.get(name)
    unit = before[name].at if stream is None else None
    if stream is None:
        stream = next(s for s in dataflow.streams.values() if s.producer == unit)
    return Origin(
        name,
        unit,
        tuple(schemas[stream.name]),
        stage.renamed.get(name, stage.key),
        rule_of(stage.producers.get(name)),
        stream.producers or Producers("one"),
        stream.producer_column,
        stage.dedup.get(name, ()),
    )


def rule_of(producers: Producers | None) -> Set:
    """Whom the tracker waits for."""
    match producers:
        case Producers(rule="all", members=members):
            return All(members)
        case Producers(rule="registered"):
            return Registered()
        case _:
            return One()
