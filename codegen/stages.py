"""From a plan to stages: what runs, in topological order, with the reason for each coordination.

What can be compiled is decided in `judge`, `lowering` writes the stages down.
"""

from __future__ import annotations

from annotations.diagnostics import BadInput
from blazes.coordination import Plan
from codegen.ends import source
from codegen.judge import Judgement, judged
from codegen.lowering import Lowering
from codegen.model import Stage, Stages

__all__ = ["Stages", "lowered", "stages"]


def stages(plan: Plan) -> Stages:
    """The stages of a plan; BadInput with everything that cannot be compiled.

    Sources come first, in the order of the file, then streams that close a cycle, then every
    output after what feeds it, each with the channel it is written to, then sinks.
    """
    return lowered(judged(plan))


def lowered(judgement: Judgement) -> Stages:
    """The stages of a plan that has been judged; BadInput for what cannot be compiled."""
    if judgement.problems:
        raise BadInput(judgement.problems)
    net = judgement.net
    streams = judgement.plan.analysis.dataflow.streams.values()
    lowering = Lowering(net, judgement.sealed)
    done: list[Stage] = [source(stream) for stream in streams if stream.producer is None]
    done += [lowering.loop(stream) for stream in streams if stream.name in net.loops]
    for draft in net.drafts.values():
        done += lowering.stages_of(draft)
    done += [lowering.sink(stream) for stream in streams if stream.consumer is None]
    return Stages(judgement.plan, tuple(done))
