"""The drafts of a dataflow, wired: who feeds which interface, which streams close a cycle."""

from __future__ import annotations

from collections.abc import Mapping
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

    def feeds(self, at: Endpoint) -> tuple[str, ...]:
        """Ids of the stages that an input interface is fed from."""
        found = (self.feed(stream) for stream in self.entering.get(at, ()))
        return tuple(dict.fromkeys(found))

    def feed(self, stream: Stream) -> str:
        """Id of the stage that a consumer of the stream reads."""
        if stream.producer is None:
            return f"source:{stream.name}"
        if stream.name in self.loops:
            return f"channel:{stream.name}"
        if self.drafts[stream.producer].kind is Kind.FUSED:
            return f"transform:{stream.producer}"
        return f"channel:{stream.producer}"


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
    )
