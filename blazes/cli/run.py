"""Compile a dataflow, run the job on Spark, show its progress, and say where the results are.

The job runs the Python functions of the components, with the rights and the environment of whoever
starts this; one without an annotation is run before that as well, to be read.

The job continues where it stopped the last time; --fresh starts over. Ctrl-C lets it finish its
micro-batches and stop, a second one kills it: nothing that was committed is lost either way.

What a run leaves, open partitions and dead letters for example, stands in its last line.

exit status: the job's (1 where it failed, or cannot go on from the state of its last run; 3 where
it went well and left what --fail-on names); 2 for a bad file, bad usage or a machine that cannot
run it.
"""

from __future__ import annotations

import argparse
import contextlib
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from blazes.cli import CommandError
from blazes.cli.execution import limits_for
from blazes.cli.job_process import JobProcess, remedy_for
from blazes.cli.options import add_coordination, add_file
from blazes.cli.projects import TARGET_DIR, add_target_dir
from blazes.cli.state_changes import REFUSED, changes_of, has_run, printed
from blazes.document.plain import printable
from blazes.report.progress import Progress

if TYPE_CHECKING:
    from annotations.dataflow import Dataflow
    from blazes.report.live import View
    from flux_runtime.observe.reader import Run

LOOK_S: Final = 0.2
"""How often the run folder is looked at."""
LOG_LINES: Final = 15
LEFT_SOMETHING: Final = 3
"""The exit status of a job that went well and left what --fail-on names."""
FILE_FORMATS: Final = frozenset({"parquet", "json", "csv", "text", "orc"})
"""Sink formats that are written as files, and can be looked into."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_file(parser)
    add_coordination(parser)
    add_target_dir(parser)
    parser.add_argument(
        "--available-now",
        action="store_true",
        help="process what there is and end; without it the job waits for more until Ctrl-C",
    )
    parser.add_argument(
        "--fresh", action="store_true", help="forget the state and results of earlier runs"
    )
    parser.add_argument("--master", metavar="URL", help="Spark master (default: the file's)")
    parser.add_argument(
        "--zookeeper", metavar="HOSTS", help="embedded, or host:port,... (default: the file's)"
    )
    parser.add_argument(
        "--metrics-port",
        metavar="PORT",
        type=int,
        help="serve metrics for Prometheus on this port of 127.0.0.1",
    )
    parser.add_argument(
        "--fail-on",
        metavar="WORD,...",
        type=fail_on,
        default=(),
        help="exit with 3 where the run leaves any of: open, quarantine (partitions at its end), "
        "dead-letters, late (records that it could not process)",
    )
    parser.add_argument(
        "--no-progress", action="store_true", help="print lines, do not redraw the terminal"
    )


def fail_on(text: str) -> tuple[str, ...]:
    """The words of --fail-on."""
    from flux_runtime.observe.ending import parse_fail_on

    try:
        return parse_fail_on(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True, slots=True)
class Ended:
    """A run that has come to its end."""

    status: int
    run: Run
    seconds: float
    log: Path
    log_end: tuple[str, ...]
    interrupted: bool
    """By the user."""

    @property
    def well(self) -> bool:
        """Whether the job came to an end as it should, whatever it left."""
        return self.status in (0, LEFT_SOMETHING)


def run(arguments: argparse.Namespace) -> int:
    """Compile FILE and run the job to its end."""
    from blazes.cli.doctor import as_text, check_before_run
    from blazes.cli.needs import need_checks, needs_of
    from blazes.document.plain import safe_write
    from codegen.ends import kept_by_fresh
    from flux_runtime.observe.ending import not_emptied
    from flux_runtime.observe.run_folder import RunFolder

    for warning in check_before_run(Path(arguments.target_dir)):
        print(as_text(warning, colour=False, unicode=False), file=sys.stderr)
    dataflow, project = compiled(arguments)
    if arguments.fresh and (left := not_emptied(kept_by_fresh(dataflow.streams.values()))):
        print(f"{dataflow.name}: {left}", file=sys.stderr)
    for warning in check_before_run(project, need_checks(needs_of(project) or ())):
        print(as_text(warning, colour=False, unicode=False), file=sys.stderr)
    if not arguments.fresh and has_run(project / "state"):
        compared = changes_of(project, project / "state")
        safe_write(sys.stderr, printed(compared))
        if not compared.goes_on:
            return REFUSED
    runs = project.resolve() / "runs"
    folder = RunFolder.create(runs, project / "plan.json").path
    job = JobProcess(command_of(arguments, project, folder), log=folder / "log.txt")
    ended = watch(job, folder, name=dataflow.name, progress=not arguments.no_progress)
    safe_write(sys.stdout, "\n".join(tell(arguments, dataflow, project, ended)) + "\n")
    return ended.status


def compiled(arguments: argparse.Namespace) -> tuple[Dataflow, Path]:
    """The dataflow of FILE, and the project that it was compiled to."""
    from blazes.cli.options import job_plan_of
    from blazes.report.json_result import to_json
    from blazes.report.problems import print_problems
    from codegen.project import write
    from codegen.stages import stages

    decided, warnings = job_plan_of(arguments, limits_for(arguments.file))
    result = stages(decided)
    folder = Path(arguments.target_dir) / result.name
    try:
        project = write(result, folder, analysis=to_json(result.plan, warnings=warnings))
    except OSError as failed:
        reason = failed.strerror or str(failed)
        raise CommandError(f"cannot write {failed.filename or folder}: {reason}") from None
    if problems := [*warnings, *project.notes]:
        print_problems(problems, stream=sys.stderr)
    return decided.analysis.dataflow, project.folder


def command_of(arguments: argparse.Namespace, project: Path, folder: Path) -> list[str]:
    """The job as a command line."""
    command = [sys.executable, str(project / "job.py"), "--run-dir", str(folder)]
    command += ["--available-now"] if arguments.available_now else []
    command += ["--fresh"] if arguments.fresh else []
    command += ["--master", arguments.master] if arguments.master else []
    command += ["--zookeeper", arguments.zookeeper] if arguments.zookeeper else []
    if arguments.metrics_port is not None:
        command += ["--metrics-port", str(arguments.metrics_port)]
    command += ["--fail-on", ",".join(arguments.fail_on)] if arguments.fail_on else []
    return command


@dataclass(slots=True)
class Interrupts:
    """Counts requests to stop; `handle` is a signal handler."""

    wanted: int = 0
    done: int = 0
    signals: list[int] = field(default_factory=lambda: [signal.SIGINT, signal.SIGTERM])

    def handle(self, number: int, _frame: FrameType | None) -> None:
        """Count; SIGTERM asks for a gentle stop however often it comes."""
        self.wanted = self.wanted + 1 if number == signal.SIGINT else max(self.wanted, 1)

    @contextlib.contextmanager
    def caught(self) -> Iterator[None]:
        """Within it, Ctrl-C is counted and not raised."""
        before = [signal.signal(number, self.handle) for number in self.signals]
        try:
            yield
        finally:
            for number, handler in zip(self.signals, before, strict=True):
                signal.signal(number, handler)

    def pass_on(self, job: JobProcess, view: View) -> None:
        """Stop the job gently the first time, at once the second."""
        if self.wanted == self.done:
            return
        self.done += 1
        if self.done == 1:
            view.say("Stopping after the micro-batches at work; Ctrl-C again kills the job.")
            job.interrupt()
        else:
            view.say("Killed. Nothing that was committed is lost; the next run continues there.")
            job.kill()


def watch(job: JobProcess, folder: Path, *, name: str, progress: bool) -> Ended:
    """Run the job to its end and show how it goes."""
    from blazes.document.plain import colour_of, width_of
    from blazes.report.live import view_for
    from flux_runtime.observe.reader import Follower

    follower = Follower(folder)
    interrupts = Interrupts()
    started = time.monotonic()
    view = view_for(
        sys.stdout, progress=progress, colour=colour_of(sys.stdout), width=width_of(sys.stdout)
    )

    def show(state: str) -> Run:
        run = follower.poll()
        word = state or ("running" if run.units else "starting Spark")
        seconds = time.monotonic() - started
        view.show(Progress(name, word, seconds, tuple(run.units.values()), run.events))
        return run

    with interrupts.caught(), view:
        job.start()
        while (status := job.poll()) is None:
            interrupts.pass_on(job, view)
            show("stopping" if interrupts.done else "")
            time.sleep(LOOK_S)
        ending = str((follower.poll().summary or {}).get("status", "finished"))
        run = show(ending if status in (0, LEFT_SOMETHING) else "failed")
    return Ended(
        status=status,
        run=run,
        seconds=time.monotonic() - started,
        log=job.log,
        log_end=tuple(job.log_end()),
        interrupted=interrupts.done > 0,
    )


def tell(
    arguments: argparse.Namespace, dataflow: Dataflow, project: Path, ended: Ended
) -> list[str]:
    """How it ended, where everything is and how to go on, as lines."""
    lines = [""]
    if ended.well:
        lines += [headline(dataflow.name, ended), *results(dataflow, project), ""]
    else:
        lines += failure(dataflow.name, ended)
    letters = int(ended.run.total("dead_letters"))
    again = shlex.join(same_again(arguments))
    rows = [
        ("report", f"blazes report {relative(ended.run.folder)}"),
        ("log", str(relative(ended.log))),
    ]
    if letters:
        rows.insert(0, ("dead letters", f"{letters}: blazes dead-letters {project}"))
    if ended.well:
        rows += [("go on", again), ("start over", f"{again} --fresh")]
    return [*lines, *(f"  {name:<13} {text}" for name, text in rows), *what_it_left(ended)]


def what_it_left(ended: Ended) -> list[str]:
    """The results of a run that went well, as the last line; none if there are none."""
    from flux_runtime.observe.ending import Left

    summary = ended.run.summary or {}
    left = Left.from_json(summary.get("left") or {})
    if not ended.well or not str(left):
        return []
    failures = ",".join(summary.get("failed_on") or ())
    because = f"; exit status {ended.status} because of --fail-on {failures}" if failures else ""
    return ["", f"left: {printable(str(left))}{because}"]


def same_again(arguments: argparse.Namespace) -> list[str]:
    """The command line for the same job."""
    command = ["blazes", "run", arguments.file]
    for variant in arguments.variant:
        command += ["--variant", variant]
    for option in ("target_dir", "master", "zookeeper"):
        given = getattr(arguments, option)
        if given and (option, given) != ("target_dir", TARGET_DIR):
            command += [f"--{option.replace('_', '-')}", given]
    command += ["--fail-on", ",".join(arguments.fail_on)] if arguments.fail_on else []
    return [*command, "--available-now"] if arguments.available_now else command


def headline(name: str, ended: Ended) -> str:
    """The outcome of the run, in one line."""
    from blazes.report.progress import amount, duration

    summary = ended.run.summary or {}
    word = "stopped" if summary.get("status") == "stopped" else "finished"
    batches, rows = (amount(ended.run.total(metric)) for metric in ("batches", "rows_in"))
    return f"{name} {word} after {duration(ended.seconds)}: {batches} batches, {rows} rows read"


def results(dataflow: Dataflow, project: Path) -> list[str]:
    """Every sink with its place, and the first rows of the files in it."""
    from blazes.cli.preview import preview

    root = dataflow.file.resolve().parent if dataflow.file else Path.cwd()
    lines = []
    for stream in dataflow.streams.values():
        if stream.consumer is not None:
            continue
        sink = stream.sink
        format = sink.format if sink else "parquet"
        given = sink.path if sink else None
        folder = root / given if given else project / "results" / quote(stream.name, safe="._-")
        if format not in FILE_FORMATS:
            lines += ["", f"  {stream.name}: {format}" + (f" {given}" if given else "")]
            continue
        shown = preview(folder, format)
        lines += ["", f"  {stream.name}: {relative(folder)} ({format}, {shown.size})"]
        lines += [f"    {line}" for line in shown.lines]
    return lines


def failure(name: str, ended: Ended) -> list[str]:
    """Why the job failed, as far as it is known, and what helps."""
    error = str((ended.run.summary or {}).get("error", "")).strip()
    log = ended.log_end
    lines = [f"{name} failed (exit status {ended.status})"]
    if ended.interrupted:
        lines = [f"{name} was killed" if ended.status > 128 else f"{name} was interrupted"]
    elif error:
        lines += [f"  {printable(line)}" for line in error.splitlines()[:LOG_LINES]]
    else:
        lines += ["  the end of its log:"]
        lines += [f"    {printable(line)}" for line in log[-LOG_LINES:]]
    remedy = "" if ended.interrupted else remedy_for([*error.splitlines(), *log])
    return [*lines, *([f"  {remedy}"] if remedy else []), ""]


def relative(path: Path) -> Path:
    """The path as it is shortest to type here."""
    with contextlib.suppress(ValueError):
        return path.resolve().relative_to(Path.cwd())
    return path
