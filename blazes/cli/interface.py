"""The commands as functions: `blazes.analyze(file)` and the like, for programs and notebooks.

A file is what the commands take: a dataflow file, a module that declares one, a script. Mistakes
are raised together, as `annotations.diagnostics.BadInput`.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path

from annotations.dataflow import EMPTY, Dataflow
from annotations.vocabulary import Label
from blazes import analysis, coordination
from blazes.analysis import Analysis
from blazes.cli import main, options
from blazes.cli.execution import limits_for
from blazes.coordination import Plan


def load(
    file: str | Path, *, variants: Mapping[str, str] = EMPTY, execute: bool = False
) -> Dataflow:
    """The dataflow of a file.

    Args:
        file: a dataflow file, a module that declares one, or a script.
        variants: component -> the variant to choose.
        execute: Python functions may be run to be read, as with `--execute`.

    Raises:
        BadInput: every mistake of the file.
    """
    chosen = [f"{component}={variant}" for component, variant in variants.items()]
    limits = limits_for(str(file)) if execute else None
    dataflow, _ = options.dataflow_of(Namespace(file=str(file), variant=chosen), limits)
    return dataflow


def analyze(
    file: str | Path | Dataflow,
    *,
    rules: str = "blazes",
    variants: Mapping[str, str] = EMPTY,
    execute: bool = False,
) -> Analysis:
    """The labels of every stream, as `blazes analyze` derives them; arguments as for `load`."""
    if not isinstance(file, Dataflow):
        file = load(file, variants=variants, execute=execute)
    return analysis.analyze(file, rules=rules)


def plan(
    file: str | Path | Dataflow,
    *,
    rules: str = "blazes",
    target: str = "Async",
    variants: Mapping[str, str] = EMPTY,
    execute: bool = False,
) -> Plan:
    """The least coordination, as `blazes plan` finds it; `target` is the worst label tolerated."""
    labels = analyze(file, rules=rules, variants=variants, execute=execute)
    return coordination.plan(labels, target=Label.parse(target))


def compile(
    file: str | Path,
    *,
    target_dir: str | Path = "target",
    variants: Mapping[str, str] = EMPTY,
    execute: bool = False,
) -> Path:
    """The folder of the project that a file is compiled to, as `blazes compile` writes it.

    Raises:
        BadInput: every mistake of the file, or what the compiler refuses.
        OSError: the folder cannot be written.
    """
    from blazes.report.json_result import to_json
    from codegen.project import write
    from codegen.stages import stages

    result = stages(plan(file, variants=variants, execute=execute))
    project = write(result, Path(target_dir) / result.name, analysis=to_json(result.plan))
    return project.folder


def run(
    file: str | Path,
    *,
    available_now: bool = False,
    fresh: bool = False,
    target_dir: str | Path = "target",
    master: str | None = None,
    variants: Mapping[str, str] = EMPTY,
) -> int:
    """Compile and run a file, as `blazes run` does; the exit status of the job.

    Args:
        file: a dataflow file, or a module that declares one: `blazes.run(__file__)`.
        available_now: process what there is and end.
        fresh: forget the state and results of earlier runs.
        target_dir: folder of the compiled projects.
        master: of Spark.
        variants: component -> the variant to choose.
    """
    arguments = ["run", str(file), "--target-dir", str(target_dir)]
    arguments += ["--available-now"] if available_now else []
    arguments += ["--fresh"] if fresh else []
    arguments += ["--master", master] if master is not None else []
    for component, variant in variants.items():
        arguments += ["--variant", f"{component}={variant}"]
    return main(arguments)
