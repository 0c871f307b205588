"""Find every streaming job below DIRECTORY: one line each, what it may do on replay, worst first.

Jobs are dataflow files, Declarative Pipelines projects, files of SQL that define datasets of a
pipeline, and Python scripts and notebooks that read or write streams. SQL of Flink and ksqlDB and
models of dbt are named, and not read. Python is followed without
being run, as far as that shows what it does; --execute runs it to be read.

exit status: 0; 1 with --strict where a job may give different answers, or one is not known or read
in part; 2 for bad usage.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from annotations.dataflow import Dataflow
from annotations.diagnostics import BadInput, Diagnostic
from blazes.cli import CommandError, options
from blazes.cli.candidates import candidates, defines_only
from blazes.cli.execution import add_execute, allowed

if TYPE_CHECKING:
    from annotations.whitebox.sandbox import Limits
    from blazes.report.jobs import Job


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("directory", metavar="DIRECTORY", help="the repository, or a part of it")
    options.add_output(parser, "text", "markdown", "html", "sarif")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 where a job is not the same on replay"
    )
    add_execute(parser)


def run(arguments: argparse.Namespace) -> int:
    """Scan DIRECTORY."""
    from blazes.report import jobs as report

    folder = Path(arguments.directory)
    if not folder.is_dir():
        raise CommandError(f"{folder} is no folder", remedy="name the folder of a repository")
    execute = allowed(arguments, arguments.directory)
    scanned = list(_jobs(list(candidates(folder)), execute))
    jobs = report.worst_first(job for job in scanned if job is not None)
    arguments.format = options.format_of(arguments)
    if arguments.format == "sarif":
        options.write(arguments, report.sarif(jobs, folder))
    else:
        document = report.document(jobs, folder, scanned.count(None))
        options.write(arguments, options.rendered(document, arguments))
    return int(arguments.strict and not all(job.same for job in jobs))


def _jobs(files: list[Path], execute: Limits | None) -> Iterator[Job | None]:
    """The job of each file; None for a file that speaks of streams and starts nothing."""
    from annotations.file import importing, load
    from blazes.report.jobs import Job

    code: list[Path] = []
    for file in files:
        if file.suffix == ".py" and defines_only(file.read_bytes()):
            yield None
        elif options.is_code(str(file)):
            code.append(file)
        else:
            try:
                yield _job(file, *load(file, execute=execute))
            except BadInput as bad:
                yield Job(file, None, tuple(bad.diagnostics))
    if not code:
        return
    for file, outcome in zip(code, importing.load_all(code, execute=execute), strict=True):
        if not isinstance(outcome, BadInput):
            yield _job(file, *outcome)
        elif _starts_nothing(outcome.diagnostics[0].message):
            yield None
        else:
            yield Job(file, None, tuple(outcome.diagnostics))


def _starts_nothing(message: str) -> bool:
    """Whether a file is no job: it starts no query, and all of it was read."""
    return "starts no streaming query" in message and "--execute" not in message


def _job(file: Path, dataflow: Dataflow, warnings: tuple[Diagnostic, ...]) -> Job:
    from blazes.analysis import analyze
    from blazes.coordination import plan
    from blazes.report.jobs import Job

    return Job(file, plan(analyze(dataflow)), warnings)
