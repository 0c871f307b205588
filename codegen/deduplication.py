"""A plan against repeats as parts of the job: a dedup becomes a component, a sink gets its repair.

A stream is de-duplicated by a component of its own between its two ends, which keeps the ids that
it has seen in Spark's state, so that they are committed with its output. Where a gate drops known
records before it counts them (D6), nothing is added: its ledger remembers. A table that is to be
upserted gets its key, and one that is to take a batch once says so (`delivery: once`).
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from annotations.dataflow import Component, Endpoint, Implementation, Path, Stream, unused_name
from annotations.diagnostics import Diagnostic
from annotations.vocabulary import Annotation, AnnotationKind, Repeats, Rows
from blazes.analysis import analyze
from blazes.coordination import Plan, plan
from blazes.repairs import Means, Repair
from codegen.codes import CODES
from codegen.ends import is_table, is_transactional

RECORDS: Final = "records"
"""The one input and output of such a component."""


def with_deduplication(decided: Plan, problems: list[Diagnostic]) -> Plan:
    """The plan for the dataflow with a component for each stream that is to be de-duplicated."""
    decided = _with_sinks(decided)
    problems += _unwritable(decided)
    todo = {item.stream: item for item in decided.repairs.items if item.means is Means.DEDUP}
    for known in (dedup for entry in decided.entries for dedup in entry.dedup):
        todo.pop(known.stream, None)
    if not todo:
        return decided
    dataflow = decided.analysis.dataflow
    components, streams = dict(dataflow.components), dict[str, Stream]()
    for name, stream in dataflow.streams.items():
        item = todo.get(name)
        if item is None:
            streams[name] = stream
            continue
        if stream.seals:
            message = f"{name} is sealed, and to be de-duplicated before {item.component} counts"
            problems.append(Diagnostic(CODES["BLZ518"], message, stream.position))
        component = _component(item, stream, components)
        components[component.name] = component
        streams |= dict(_through(stream, component.name, streams.keys() | dataflow.streams.keys()))
    rewritten = replace(
        dataflow, components=MappingProxyType(components), streams=MappingProxyType(streams)
    )
    return plan(analyze(rewritten, rules=decided.analysis.rules), target=decided.target)


def _component(item: Repair, stream: Stream, taken: Container[str]) -> Component:
    path = Path(
        RECORDS,
        RECORDS,
        Annotation(AnnotationKind.CW),
        repeats=Repeats.ABSORB,
        rows=Rows.ONE,
        position=stream.position,
    )
    distinct = Implementation(
        distinct=tuple(sorted(item.id or ())),
        repeat_within=item.bound.within if item.bound is not None else None,
        position=stream.position,
    )
    return Component(
        name=unused_name(f"{stream.name}_once", taken),
        paths=(path,),
        implementations=MappingProxyType({RECORDS: distinct}),
        description=f"Drops the records of {stream.name} that have come before.",
        position=stream.position,
    )


def _through(stream: Stream, component: str, taken: Container[str]) -> Iterator[tuple[str, Stream]]:
    """The stream in two parts, into the component and out of it; a result keeps its name."""
    entry, result = Endpoint(component, RECORDS), Endpoint(component, RECORDS)
    if stream.consumer is None:
        before = replace(stream, consumer=entry, sink=None, delivery=None)
        name = unused_name(f"{stream.name}_again", taken)
        yield name, replace(before, name=name)
        yield stream.name, replace(stream, producer=result)
        return
    yield stream.name, replace(stream, consumer=entry)
    after = Stream(
        unused_name(f"{stream.name}_once", taken),
        result,
        stream.consumer,
        schema=stream.schema,
        position=stream.position,
    )
    yield after.name, after


def _with_sinks(decided: Plan) -> Plan:
    """The plan for the dataflow whose tables are written as the plan asks for."""
    dataflow = decided.analysis.dataflow
    streams = dict(dataflow.streams)
    for item in decided.repairs.items:
        sink = streams[item.stream].sink
        if item.means is Means.DEDUP or sink is None or not is_transactional(sink):
            continue
        if item.means is Means.UPSERT:
            sink = replace(sink, key=tuple(sorted(item.id or ())))
        streams[item.stream] = replace(streams[item.stream], sink=replace(sink, delivery="once"))
    if streams == dataflow.streams:
        return decided
    rewritten = replace(dataflow, streams=MappingProxyType(streams))
    return plan(analyze(rewritten, rules=decided.analysis.rules), target=decided.target)


def _unwritable(decided: Plan) -> Iterator[Diagnostic]:
    """Sinks that would have to replace rows, or to remember which batches they have."""
    streams = decided.analysis.dataflow.streams
    planned = {i.stream: i.means for i in decided.repairs.items if i.means is not Means.DEDUP}
    for name, stream in streams.items():
        if stream.sink is None or not (stream.sink.key or name in planned):
            continue
        means = planned.get(name, Means.UPSERT)
        possible = is_transactional if means is Means.TRANSACTION else is_table
        if possible(stream.sink):
            continue
        message = f"{name} needs a sink of format {stream.sink.format} with {means.value}"
        yield Diagnostic(CODES["BLZ517"], message, stream.sink.position or stream.position)
