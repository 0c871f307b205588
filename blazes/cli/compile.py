"""Compile a dataflow to a coordinated PySpark project: job.py, plan.json, README.md.

A project file that was edited since it was written is kept beside the new one as NAME.orig. A
Python function without an annotation is refused, unless --execute is given, which runs it, and so
finds out what it does.

Where the job has run, what follows for its state is said: what goes on, what cannot, why, and what
to do. Python functions are imported for that, so it takes --execute where the dataflow has some.

exit status: 0; 1 where the job cannot go on from the state of its last run; 2 for a bad file, one
that cannot be compiled, or bad usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from annotations.diagnostics import BadInput
from blazes.cli import CommandError, one_of, options
from blazes.cli.execution import add_execute, allowed
from blazes.cli.projects import add_target_dir, state_at
from blazes.cli.state_changes import REFUSED, changes_of, has_run, printed

if TYPE_CHECKING:
    from codegen.bundle import Bundle
    from codegen.judge import Judgement
    from codegen.model import Stages

FORMATS = ("text", "json")
NOT_COMPARED = (
    "the job has run, and was not compared with its state, which would import its Python "
    "functions of sinks or sites: --execute allows that. The job compares itself before it starts"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_file(parser)
    options.add_coordination(parser)
    add_execute(parser)
    add_target_dir(parser)
    parser.add_argument(
        "--state-dir",
        metavar="DIR|ADDRESS",
        help="state to compare the job with, a folder or s3://BUCKET/FOLDER (default: that of the "
        "project)",
    )
    parser.add_argument(
        "-o", "--output", metavar="DIR", help="folder of this project (default: TARGET_DIR/NAME)"
    )
    parser.add_argument(
        "--bundle",
        action="store_true",
        help="also write bundle/ in the project's folder: the job, an archive of the packages that "
        "it needs, and how to start it with spark-submit, Docker, Kubernetes or systemd",
    )
    parser.add_argument(
        "--check-with-spark",
        action="store_true",
        help="start Spark, and have it analyse the SQL of every component on empty tables",
    )
    parser.add_argument(
        "--explain",
        action="store_true",
        help="print the stages, what each does and why; write nothing",
    )
    parser.add_argument(
        "--format",
        type=one_of(*FORMATS),
        default="text",
        metavar="|".join(FORMATS),
        help="default: text",
    )


def run(arguments: argparse.Namespace) -> int:
    """Compile FILE, or explain what it would be compiled to."""
    from blazes.document.plain import safe_write, width_of
    from blazes.report.json_result import to_json
    from codegen.explain import explain
    from codegen.judge import judged
    from codegen.needs import install_command, needs, submit_option
    from codegen.project import write
    from codegen.stages import lowered

    limits = allowed(arguments, arguments.file)
    decided, warnings = options.job_plan_of(arguments, limits)
    judgement = judged(decided)
    warnings = (*warnings, *judgement.warnings)
    result = lowered(judgement)
    if arguments.check_with_spark:
        check_with_spark(judgement)
    if arguments.explain:
        if arguments.format == "json":
            text = as_json({"dataflow": result.name, "stages": result.to_json()})
        else:
            text = explain(result, width=width_of(sys.stdout, most=100))
        safe_write(sys.stdout, text)
        return 0
    folder = Path(arguments.output or Path(arguments.target_dir) / result.name)
    try:
        project = write(result, folder, analysis=to_json(result.plan, warnings=warnings))
    except OSError as failed:
        reason = failed.strerror or str(failed)
        raise CommandError(f"cannot write {failed.filename or folder}: {reason}") from None
    problems = [*warnings, *project.notes]
    if problems:
        from blazes.report.problems import print_problems

        print_problems(problems, stream=sys.stderr)
    bundled = bundle_of(result, project.folder) if arguments.bundle else None
    compared = None
    with state_at(arguments.state_dir or project.folder / "state") as (state, place):
        if has_run(state):
            if result.imported_at_once and limits is None:
                print(NOT_COMPARED, file=sys.stderr)
            else:
                compared = replace(changes_of(project.folder, state), state=place)
    job_needs = needs(result)
    if arguments.format == "json":
        listed = [need.to_json() for need in job_needs]
        written = {"folder": str(project.folder), "files": list(project.files), "needs": listed}
        beside = {} if compared is None else {"state": compared.to_json()}
        if bundled is not None:
            beside["bundle"] = {"folder": str(bundled.folder), "packages": dict(bundled.packages)}
        text = as_json({"dataflow": result.name, **written, **beside})
    else:
        text = f"{project.job}\n" + ("" if bundled is None else f"{bundled.folder}\n")
        safe_write(sys.stderr, "" if compared is None else printed(compared))
        for need in filter(None, (install_command(job_needs), submit_option(job_needs))):
            safe_write(sys.stderr, f"the job needs: {need}\n")
    safe_write(sys.stdout, text)
    return 0 if compared is None or compared.goes_on else REFUSED


def bundle_of(stages: Stages, project: Path) -> Bundle:
    """Write the bundle of a project.

    Raises:
        CommandError: it cannot be written.
    """
    from codegen.bundle import BundleError, write_bundle

    try:
        return write_bundle(stages, project)
    except BundleError as error:
        raise CommandError(str(error)) from None
    except OSError as failed:
        reason = failed.strerror or str(failed)
        raise CommandError(f"cannot write {failed.filename or project}: {reason}") from None


def check_with_spark(judgement: Judgement) -> None:
    """Have Spark analyse the code of a plan that can be compiled; BadInput with what it refuses."""
    from blazes.cli.spark_check import spark_problems
    from blazes.cli.verify import session

    with session() as spark:
        problems = spark_problems(judgement, spark)
    if problems:
        raise BadInput(problems)


def as_json(value: dict[str, object]) -> str:
    """One versioned object as JSON text."""
    return json.dumps({"schema_version": 1, **value}, indent=2, ensure_ascii=False) + "\n"
