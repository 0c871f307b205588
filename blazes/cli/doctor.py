"""Check that this machine can run compiled jobs: Python, Java, packages, memory, ZooKeeper, Spark.

With STATE, check the state folder of a job that does not run, and its results: whose they are, and
whether everything in them is as it was written. Nothing is changed; every finding says what is safe
and how to go on. Where STATE is the folder of a project, check first whether this machine has what
its sources and sinks need, and whether the job goes on from its state.

exit status: 0; 1 where a check fails (a warning does not) or something is damaged; 2 for bad usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from blazes.cli import CommandError, audit, one_of
from blazes.cli.checks import CHECKS, Check, Result, Status, run_check, run_checks
from blazes.cli.projects import state_at

_MARKS: Final = {Status.OK: ("✓", "ok", "32"), Status.WARN: ("!", "warn", "33")}
_FAILED: Final = ("✗", "fail", "31")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "state",
        metavar="STATE",
        nargs="?",
        help="the state of a job, a folder (target/NAME/state) or an address in an object store, "
        "or the folder of its project",
    )
    parser.add_argument(
        "--results",
        metavar="DIR",
        action="append",
        default=[],
        help="with STATE: a folder of results (repeatable; default: those it has written to)",
    )
    parser.add_argument(
        "--quick", action="store_true", help="start neither a ZooKeeper nor a Spark job"
    )
    parser.add_argument(
        "--quiet", action="store_true", help="print only what is not as it should be"
    )
    parser.add_argument(
        "--format", type=one_of("text", "json"), default="text", metavar="text|json"
    )
    parser.add_argument(
        "--target-dir",
        metavar="DIR",
        default="target",
        help="where jobs would be written (default: target)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Do the checks, print each as it ends."""
    if arguments.state is not None:
        return of_job(arguments)
    if arguments.results:
        raise CommandError("--results belongs to a STATE", remedy="name the state folder too")
    folder = Path(arguments.target_dir)
    checks = tuple(check for check in CHECKS if not (arguments.quick and check.starts))
    if arguments.format == "json":
        results = run_checks(checks, folder)
        print(json.dumps(as_object(results), indent=2, ensure_ascii=False))
        return exit_status(results)
    from blazes.document.plain import colour_of, unicode_of

    results = ()
    for check in checks:
        result = run_check(check, folder)
        results = (*results, result)
        if not arguments.quiet or result.finding.status is not Status.OK:
            colour, unicode = colour_of(sys.stdout), unicode_of(sys.stdout)
            print(as_text(result, colour=colour, unicode=unicode), flush=True)
    if not arguments.quiet or exit_status(results):
        print(verdict(results))
    return exit_status(results)


def of_job(arguments: argparse.Namespace) -> int:
    """Check what a project's job needs, and its state where there is one."""
    from blazes.cli.needs import need_checks, needs_of
    from blazes.cli.state_changes import state_checks

    with state_at(arguments.state) as (state, place):
        if isinstance(place, str):
            return audit.run(arguments, state, place=place)
    project = Path(arguments.state)
    checks = () if needs_of(project) is None else state_checks(project)
    results = run_checks((*need_checks(needs_of(project) or ()), *checks), project)
    for result in results:
        problem = result.finding.status is not Status.OK
        if arguments.format == "text" and (problem or not arguments.quiet):
            print(as_text(result, colour=False, unicode=False), flush=True)
    if needs_of(project) is not None and not audit.has_state(project):
        if arguments.format == "json":
            print(json.dumps(as_object(results), indent=2, ensure_ascii=False))
        return exit_status(results)
    state = audit.state_of(project)
    return max(exit_status(results), audit.run(arguments, state, as_object(results)["checks"]))


def check_before_run(folder: Path, checks: Iterable[Check] = CHECKS) -> tuple[Result, ...]:
    """Do the cheap checks before a job is started; the warnings.

    Raises:
        CommandError: naming every check that fails, each with its remedy.
    """
    results = run_checks(tuple(check for check in checks if check.before_run), folder)
    failed = [result for result in results if result.finding.status is Status.FAIL]
    if failed:
        raise CommandError(
            "this machine cannot run the job:\n"
            + "\n".join(as_text(result, colour=False, unicode=False) for result in failed),
            remedy="blazes doctor checks everything",
        )
    return tuple(result for result in results if result.finding.status is Status.WARN)


def as_text(result: Result, *, colour: bool, unicode: bool) -> str:
    """A result for people: one line, and for a problem the remedy on a second one."""
    finding = result.finding
    mark, word, code = _MARKS.get(finding.status, _FAILED)
    sign = mark if unicode else word
    if colour:
        sign = f"\033[{code}m{sign}\033[0m"
    gap = " " * (1 if unicode else 5 - len(word))
    line = f"{sign}{gap}{result.check.name:<10} {finding.found}"
    return line if finding.status is Status.OK else f"{line}\n  {'':>10} {finding.remedy}"


def verdict(results: Iterable[Result]) -> str:
    """The last line."""
    statuses = [result.finding.status for result in results]
    failed, warned = statuses.count(Status.FAIL), statuses.count(Status.WARN)
    if failed:
        return f"{failed} of {len(statuses)} checks failed: jobs will not run here."
    if warned:
        return f"Jobs run here; {warned} of {len(statuses)} checks found something to look at."
    return f"All {len(statuses)} checks passed: jobs run here."


def as_object(results: Iterable[Result]) -> dict[str, object]:
    """The results as JSON data."""
    done = tuple(results)
    return {
        "schema_version": 1,
        "ok": exit_status(done) == 0,
        "checks": [
            {
                "name": result.check.name,
                "why": result.check.why,
                "status": result.finding.status.name.lower(),
                "found": result.finding.found,
                "remedy": "" if result.finding.status is Status.OK else result.finding.remedy,
                "seconds": round(result.seconds, 3),
            }
            for result in done
        ],
    }


def exit_status(results: Iterable[Result]) -> int:
    """1 where a check failed, else 0."""
    return int(any(result.finding.status is Status.FAIL for result in results))
