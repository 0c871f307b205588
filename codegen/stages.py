"""From a plan to stages: what runs, in topological order, with the reason for each coordination.

What an output becomes is decided in `drafts`, cycles are found in `network`, `seals` follows the
punctuations, `lowering` writes the stages down. What cannot be compiled is reported at once.
"""

from __future__ import annotations

from annotations.diagnostics import BadInput, Diagnostic
from blazes.coordination import Plan
from codegen.deduplication import with_deduplication
from codegen.ends import source, source_problems
from codegen.lowering import Lowering
from codegen.model import Stage, Stages
from codegen.network import network
from codegen.seals import routes
from codegen.sites import site_problems

__all__ = ["Stages", "stages"]


def stages(plan: Plan) -> Stages:
    """The stages of a plan; BadInput with everything that cannot be compiled.

    Sources come first, in the order of the file, then streams that close a cycle, then every
    output after what feeds it, each with the channel it is written to, then sinks.
    """
    problems: list[Diagnostic] = []
    plan = with_deduplication(plan, problems)
    net = network(plan, problems)
    sealed = routes(net, problems)
    streams = plan.analysis.dataflow.streams.values()
    problems += site_problems(net)
    outside = [stream for stream in streams if stream.producer is None]
    for stream in outside:
        problems += source_problems(stream)
    if problems:
        raise BadInput(sorted(dict.fromkeys(problems), key=place))
    lowering = Lowering(net, sealed)
    found: list[Stage] = [source(stream) for stream in outside]
    found += [lowering.loop(stream) for stream in streams if stream.name in net.loops]
    for draft in net.drafts.values():
        found += lowering.stages_of(draft)
    found += [lowering.sink(stream) for stream in streams if stream.consumer is None]
    return Stages(plan, tuple(found))


def place(problem: Diagnostic) -> tuple[str, int, int]:
    """Where a problem stands in the file; those without a place come first."""
    at = problem.position
    return (at.file, at.line, at.column) if at else ("", 0, 0)
