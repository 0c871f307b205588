"""Messages about repeats: assumptions, dangers, and what nothing repairs."""

from __future__ import annotations

from collections.abc import Iterator

from annotations.delivery import counts, may_repeat
from annotations.diagnostics import CODES, Diagnostic
from annotations.vocabulary import AnnotationKind
from blazes.coordination import Plan
from blazes.repairs import Means, Unrepaired


def delivery_findings(plan: Plan) -> Iterator[Diagnostic]:
    """Diagnostics about delivery, in the order of the dataflow."""
    propagation = plan.analysis.propagation
    if propagation is None or propagation.deliveries is None:
        return
    for stream in plan.analysis.dataflow.streams.values():
        advised = counts(stream) and not stream.id  # BLZ074
        if stream.delivery is None and stream.source and may_repeat(stream) and not advised:
            message = (
                f"{stream.name} is read from {stream.source.format}, which may hold a record twice"
            )
            yield Diagnostic(CODES["BLZ070"], message, stream.position)
    for path in propagation.graph.paths:
        declared, rule = path.declared, propagation.deliveries.crossings[path].rule
        if rule.id not in ("D3", "D4") or declared.repeats is not None:
            continue
        if path.kind is not AnnotationKind.CR:
            message = f"{path.component.name} does not say what repeats of {declared.source} do to "
            message += f"{declared.target}: taken for `corrupt`"
            yield Diagnostic(CODES["BLZ071"], message, declared.position)
    for unrepaired in plan.repairs.unrepaired:
        if unrepaired.cause == "D14":
            message = f"the key of the sink of {unrepaired.origin} does not determine its rows"
            yield Diagnostic(CODES["BLZ075"], message, unrepaired.position)
            continue
        if unrepaired.cause == "D7" and _at_the_gate(plan, unrepaired):
            continue  # BLZ074
        harm = f"repeats do harm ({unrepaired.cause}), and have no id to be known by"
        message = f"{unrepaired.origin}: {harm}"
        sources = ", ".join(unrepaired.alternatives)
        remedy = f"Declare an `id` on {sources}." if sources else None
        result = plan.analysis.dataflow.streams.get(unrepaired.origin)
        if result is not None and result.schema is None and not sources:
            remedy = f"Declare the `schema` of {result.name}: its rows are known by all they have."
        yield Diagnostic(CODES["BLZ072"], message, unrepaired.position, remedy)
    for item in plan.repairs.items:
        stream = plan.analysis.dataflow.streams[item.stream]
        if item.means is Means.DEDUP and item.bound is None:
            message = f"the ids of {item.stream} are remembered for ever"
            remedy = None
            if stream.repeat_within is not None:
                message += ": only files tell when a record came, which `repeat_within` needs"
                remedy = "Seal it on a key that the id determines."
            yield Diagnostic(CODES["BLZ073"], message, stream.position, remedy)
        if item.cause == "D14":
            message = f"the key of the sink of {item.stream} does not determine its rows"
            yield Diagnostic(CODES["BLZ075"], message, stream.position)


def _at_the_gate(plan: Plan, unrepaired: Unrepaired) -> bool:
    """Whether the repeats come from sources that enter the sealed component directly."""
    ends = [plan.analysis.dataflow.streams[name].consumer for name in unrepaired.alternatives]
    return all(end is not None and end.component == unrepaired.component for end in ends)
