"""The drafts of a dataflow, wired: who feeds which interface, which streams close a cycle."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from annotations.dataflow import Endpoint, Stream
from annotations.diagnostics import Diagnostic
from blazes.coordination import Plan
from codegen.codes import CODES
from codegen.cycles import layout
from codegen.drafts import Draft, Kind, drafts, in_cycle


@dataclass(frozen=True, slots=True)
class Network:
    """Drafts in an order in which each stands after what feeds it, and the streams between."""

    plan: Plan
    drafts: Mapping[Endpoint, Draft]
    entering: Mapping[Endpoint, tuple[Stream, ...]]
    """Input interface -> the streams that enter it, in the order of the file."""
    leaving: Mapping[Endpoint, tuple[Stream, ...]]
    """Output interface -> the streams that leave it."""
    loops: frozenset[str]
    """Names of the streams that close a cycle."""
    channels: frozenset[Endpoint]
    """Outputs that other queries read, at once or through record-wise transforms."""

    def streams_of(self, at: Endpoint) -> tuple[str, ...]:
        """Names of the streams that leave an output, those that close a cycle last."""
        names = (stream.name for stream in self.leaving[at])
        return tuple(sorted(names, key=lambda name: name in self.loops))


def network(plan: Plan, problems: list[Diagnostic]) -> Network:
    """Wire the drafts of a plan; outputs in a cycle keep everything, and need a schema."""
    streams = plan.analysis.dataflow.streams.values()
    found = drafts(plan, problems)
    entering: dict[Endpoint, list[Stream]] = {}
    leaving: dict[Endpoint, list[Stream]] = {}
    for stream in streams:
        if stream.consumer is not None:
            entering.setdefault(stream.consumer, []).append(stream)
        if stream.producer is not None:
            leaving.setdefault(stream.producer, []).append(stream)
    successors: dict[Endpoint, list[tuple[str, Endpoint]]] = {at: [] for at in found}
    for at, draft in found.items():
        for interface in draft.inputs:
            for stream in entering.get(Endpoint(at.component, interface), ()):
                if stream.producer is not None:
                    successors[stream.producer].append((stream.name, at))
    graph = layout(successors)
    for at in found:
        if at in graph.cyclic:
            found[at] = in_cycle(found[at], problems)
    for stream in streams:
        if stream.name in graph.closing and stream.schema is None:
            message = f"stream {stream.name} closes a cycle at {stream.consumer}"
            problems.append(Diagnostic(CODES["BLZ532"], message, stream.position))
    return Network(
        plan,
        {at: found[at] for at in graph.order},
        {at: tuple(each) for at, each in entering.items()},
        {at: tuple(each) for at, each in leaving.items()},
        graph.closing,
        read_by_queries(found, entering, graph.closing),
    )


def read_by_queries(
    found: Mapping[Endpoint, Draft],
    entering: Mapping[Endpoint, Iterable[Stream]],
    loops: frozenset[str],
) -> frozenset[Endpoint]:
    """The outputs of units that a unit reads; a stream that closes a cycle has its own channel."""
    todo = [
        Endpoint(at.component, interface)
        for at, draft in found.items()
        if draft.kind is not Kind.FUSED
        for interface in draft.inputs
    ]
    seen, read = set(todo), set[Endpoint]()
    while todo:
        for stream in entering.get(todo.pop(), ()):
            at = stream.producer
            if at is None or stream.name in loops:
                continue
            if found[at].kind is not Kind.FUSED:
                read.add(at)
                continue
            before = {Endpoint(at.component, each) for each in found[at].inputs} - seen
            seen |= before
            todo += before
    return frozenset(read)
