"""Show what a run did: its units, what did not go as it should, and what happened when.

FILE is a dataflow file or the folder of its compiled project (then its newest run is shown), or
the folder of a run. As HTML it is one page with charts: throughput, latency, where partitions
stood, and the failures, recoveries, moves and quarantines marked.

exit status: 0; 2 where there is no such run, and for bad usage.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from blazes.cli import CommandError
from blazes.cli.options import add_output, format_of, rendered, write
from blazes.cli.projects import PLAN, add_project, project_of

if TYPE_CHECKING:
    from blazes.cli.run_report import RunReport
    from blazes.document.blocks import Document
    from flux_runtime.observe.reader import Run


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_project(parser)
    parser.add_argument("--list", action="store_true", help="list the runs of the project")
    add_output(parser, "text", "markdown", "html", "json", "prometheus")


def run(arguments: argparse.Namespace) -> int:
    """Print the report."""
    from blazes.cli import run_report
    from flux_runtime.observe.exposition import exposition
    from flux_runtime.observe.metrics import METRICS
    from flux_runtime.observe.reader import read_history, read_run
    from flux_runtime.observe.stages import read_stages

    if arguments.list:
        return list_runs(project_of(arguments))
    folder = run_folder(arguments)
    read = read_run(folder)
    name = folder.resolve().parent.parent.name
    report = run_report.run_report(read, read_history(folder), METRICS, name=name)
    arguments.format = format_of(arguments)
    match arguments.format:
        case "json":
            text = json.dumps(run_report.to_json(report), indent=2, ensure_ascii=False) + "\n"
        case "prometheus":
            text = exposition(read, read_stages(folder, read))
        case _:
            text = rendered(document_of(folder, read, report), arguments)
    write(arguments, text)
    return 0


def document_of(folder: Path, read: Run, report: RunReport) -> Document:
    """The report with all that the run left behind beside its metrics."""
    from blazes.cli.run_charts import run_charts
    from blazes.cli.run_report import document
    from flux_runtime.observe.dead_letters import FOLDER, count, read_dead_letters
    from flux_runtime.observe.reader import read_history
    from flux_runtime.observe.stages import read_stages, site_history, stage_history

    letters: dict[str, dict[str, int]] = {}
    if (quarantine := folder / FOLDER).exists():
        for group in count(read_dead_letters(quarantine.resolve().parent)):
            reasons = letters.setdefault(group.unit, {})
            reasons[group.reason] = reasons.get(group.reason, 0) + group.number
    histories = read_history(folder), stage_history(folder), site_history(folder)
    return document(
        report,
        charts=run_charts(read.events, *histories),
        stages=read_stages(folder, read),
        dead_letters=letters,
    )


def run_folder(arguments: argparse.Namespace) -> Path:
    """The folder of the run that is meant.

    Raises:
        CommandError: there is none.
    """
    from flux_runtime.observe.reader import latest_run
    from flux_runtime.observe.run_folder import EVENTS_FILE, METRICS_FILE

    given = Path(arguments.file)
    if any((given / name).exists() for name in (EVENTS_FILE, METRICS_FILE)):
        return given
    if given.is_dir() and not (given / "runs").exists() and not (given / PLAN).exists():
        raise CommandError(
            f"{given} is neither the folder of a run nor of a compiled project",
            remedy="name the dataflow file, target/NAME, or target/NAME/runs/DATE",
        )
    project = project_of(arguments)
    latest = latest_run(project)
    if latest is None:
        raise CommandError(f"nothing has run in {project}", remedy=f"blazes run {given}")
    return latest


def list_runs(project: Path) -> int:
    """Print a line for each run, the newest first."""
    from blazes.report.progress import amount, duration
    from flux_runtime.observe.reader import read_run

    runs = project / "runs"
    folders = (
        [entry for entry in runs.iterdir() if entry.is_dir() and not entry.is_symlink()]
        if runs.is_dir()
        else []
    )
    for folder in sorted(folders, key=lambda path: path.name, reverse=True):
        read = read_run(folder)
        summary = read.summary or {}
        state = summary.get("status", "finished" if read.summary else "without an end")
        took = duration(summary["wall_s"]) if "wall_s" in summary else ""
        print(f"{folder}  {state:<12} {took:>8}  {amount(read.total('rows_in'))} rows")
    if not folders:
        print("No runs.")
    return 0
