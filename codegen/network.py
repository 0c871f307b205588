"""The drafts of a dataflow, wired: who feeds which interface, which streams close a cycle.

Then it is known which confluent components Spark runs by itself, and which keep their inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from annotations.dataflow import Endpoint, Stream
from annotations.diagnostics import Diagnostic
from blazes.coordination import Plan
from codegen.codes import CODES
from codegen.cycles import layout
from codegen.drafts import Draft, Kind, drafts, folder_of, in_cycle
from codegen.operators import STATEFUL, STREAMS_ONLY, named_attributes

if TYPE_CHECKING:
    from annotations.whitebox.code import Code


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
    drafted = drafts(plan, problems)
    entering: dict[Endpoint, list[Stream]] = {}
    leaving: dict[Endpoint, list[Stream]] = {}
    for stream in streams:
        if stream.consumer is not None:
            entering.setdefault(stream.consumer, []).append(stream)
        if stream.producer is not None:
            leaving.setdefault(stream.producer, []).append(stream)
    successors: dict[Endpoint, list[tuple[str, Endpoint]]] = {at: [] for at in drafted}
    for at, draft in drafted.items():
        for interface in draft.inputs:
            for stream in entering.get(Endpoint(at.component, interface), ()):
                if stream.producer is not None:
                    successors[stream.producer].append((stream.name, at))
    graph = layout(successors)
    for at in drafted:
        if at in graph.cyclic:
            drafted[at] = in_cycle(drafted[at], problems)
    for stream in streams:
        if stream.name in graph.closing and stream.schema is None:
            message = f"stream {stream.name} closes a cycle at {stream.consumer}"
            problems.append(Diagnostic(CODES["BLZ532"], message, stream.position))
    return Network(
        plan,
        {at: drafted[at] for at in graph.order},
        {at: tuple(ends) for at, ends in entering.items()},
        {at: tuple(ends) for at, ends in leaving.items()},
        graph.closing,
        read_by_queries(drafted, entering, graph.closing),
    )


def read_by_queries(
    drafted: Mapping[Endpoint, Draft],
    entering: Mapping[Endpoint, Iterable[Stream]],
    loops: frozenset[str],
) -> frozenset[Endpoint]:
    """The outputs of units that a unit reads; a stream that closes a cycle has its own channel."""
    todo = [
        Endpoint(at.component, interface)
        for at, draft in drafted.items()
        if draft.kind is not Kind.FUSED
        for interface in draft.inputs
    ]
    seen, read = set(todo), set[Endpoint]()
    while todo:
        for stream in entering.get(todo.pop(), ()):
            at = stream.producer
            if at is None or stream.name in loops:
                continue
            if drafted[at].kind is not Kind.FUSED:
                read.add(at)
                continue
            before = {Endpoint(at.component, interface) for interface in drafted[at].inputs} - seen
            seen |= before
            todo += before
    return frozenset(read)


def with_kept_inputs(net: Network, code: Callable[[], Code]) -> Network:
    """The network in which code that Spark does not run over a stream has its inputs kept.

    In append mode Spark's own state takes projections, filters, inner joins, unions and generators.
    DISTINCT, GROUP BY without a watermark, outer and semi joins and the like it refuses when the
    query starts. The answers of a confluent component only ever grow, so that it can keep its
    inputs and give what follows from them, once. An ordered one is computed again, where Spark
    refuses it, of all the records of what has changed.

    Args:
        net: with the kinds that the plan gives.
        code: gives the dataflow's code.
    """

    folder = folder_of(net.plan.analysis.dataflow)

    def with_records(draft: Draft) -> Draft:
        by = draft.implementation
        if by is None or (by.sql is None and by.python is None):
            return draft
        if draft.kind is Kind.FLUX and draft.confluent and by.sql is not None:
            return replace(draft, as_set=bool(draft.reads) or _gives_sets(code(), draft))
        if by.python is not None and (STATEFUL | STREAMS_ONLY) & named_attributes(
            by.python, folder
        ):
            return draft
        if draft.kind is Kind.ORDER:
            return replace(draft, from_records=not_streaming(code(), draft) is not None)
        native = draft.kind is Kind.NATIVE and draft.confluent and draft.appends
        if not native or draft.reads or any(path.nondeterministic for path in draft.own):
            return draft
        if not_streaming(code(), draft) is None or not _gives_sets(code(), draft):
            return draft
        return replace(draft, kind=Kind.ACCUMULATING)

    return replace(net, drafts={at: with_records(draft) for at, draft in net.drafts.items()})


def _gives_sets(code: Code, draft: Draft) -> bool:
    from codegen.streaming import gives_sets

    plan = code.plan(draft.component, draft.output)
    return plan is not None and gives_sets(plan)


def not_streaming(code: Code, draft: Draft) -> str | None:
    """The construct in an output's code that Spark does not run over a stream, if one shows."""
    from codegen.streaming import refused

    by = draft.implementation
    if by is None or (by.sql is None and by.python is None):
        return None
    plan = code.plan(draft.component, draft.output)
    return None if plan is None else refused(by.sql, plan, appends=draft.appends)
