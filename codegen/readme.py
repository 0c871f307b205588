"""The README of a compiled project."""

from __future__ import annotations

from collections.abc import Iterator

from codegen.explain import coordination as coordination_of
from codegen.explain import explain, once, title
from codegen.model import Guarantee, Sink, Stages, Transform, Unit
from codegen.names import in_backticks
from codegen.needs import needs


def readme(stages: Stages) -> str:
    """Markdown: how to run the job, what coordination is in it and why, where results go."""
    return "\n".join(
        [
            f"# {stages.name}",
            "",
            *origin(stages),
            "",
            "## Run it",
            "",
            *running(stages),
            "",
            "## Coordination",
            "",
            *coordination(stages),
            "",
            "## Results",
            "",
            *results(stages),
            "",
            "## Stages",
            "",
            "```text",
            explain(stages).rstrip(),
            "```",
            "",
        ]
    )


def origin(stages: Stages) -> Iterator[str]:
    """The file that it was compiled from."""
    dataflow = stages.plan.analysis.dataflow
    file = in_backticks(dataflow.file.name) if dataflow.file else "a text"
    yield f"Compiled from {file}, sha256 `{dataflow.sha256}`."
    yield ""
    yield "To change the job, change that and compile again: a file that was edited here is kept as"
    yield "`NAME.orig`, and no longer used."


def running(stages: Stages) -> Iterator[str]:
    """The commands."""
    modules = [function.module for function in stages.functions if function.module]
    yield "```"
    yield "spark-submit job.py                    # on a cluster, or local[*]"
    yield "python job.py --master 'local[*]'      # the same without spark-submit"
    yield "python job.py --available-now          # stop when all that is there is processed"
    yield "python job.py --help                   # folders, ZooKeeper, a fresh start"
    yield "```"
    yield ""
    yield "It needs the package `blazes[run]` and Java 17 or later. Ctrl-C stops it after the"
    yield "running micro-batches; the next start goes on there. Relative paths of sources and sinks"
    yield "start at the folder of the dataflow file, or at `--root`."
    job_needs = needs(stages)
    if job_needs:
        yield ""
        yield "Beside that it needs"
        yield ""
        for need in job_needs:
            of = ", ".join(map(in_backticks, need.streams))
            yield f"- {in_backticks(need.remedy)} ({of}: {need.what})"
    if modules:
        yield ""
        yield "The operator modules beside `job.py` are copies; executors get them too."


def coordination(stages: Stages) -> Iterator[str]:
    """Every coordinated stage with its reason, and what has to be true."""
    coordinated = [
        unit for unit in once(stages) if isinstance(unit, Unit) and coordination_of(unit)
    ]
    for stage in coordinated:
        yield f"- **{coordination_of(stage)} at {title(stage, stages)}**: {stage.description}."
        if stage.why is not None:
            yield f"  Why: {stage.why}."
        if isinstance(stage, Transform) and stage.assumes is not None:
            yield f"  It assumes that {stage.assumes}."
    if not coordinated:
        yield "None: every component gives the same results whatever the order of arrival."
    verdict, after = stages.plan.analysis.verdict, stages.plan.verdict
    yield ""
    yield f"Worst label at a sink, by the file alone: {verdict}; as compiled: {after}."


def results(stages: Stages) -> Iterator[str]:
    """Where each sink writes, and how often a record gets there."""
    sinks = [stage for stage in stages if isinstance(stage, Sink)]
    for stage in sinks:
        yield f"- {in_backticks(stage.name)} {stage.description}."
    if any(stage.guarantee is Guarantee.AT_LEAST_ONCE for stage in sinks):
        yield ""
        yield "At least once: after a crash the last micro-batch can be appended again."
    yield ""
    yield "What a run did is in `runs/latest/`: metrics, events, log and dead letters. `state/` is"
    yield "what a restart goes on from."
