"""`blazes doctor STATE`: what is damaged in a state folder and its results, and how to go on."""

from __future__ import annotations

import argparse
import fcntl
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from blazes.cli import CommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flux_runtime.observe.audit import Finding


def run(
    arguments: argparse.Namespace, state: Path, needs: object = (), *, place: str | None = None
) -> int:
    """Check the state folder; 1 where something is wrong.

    Args:
        arguments: of the command.
        state: the folder.
        place: the address that it is a copy of.
        needs: what was checked of the project before, as JSON data.
    """
    from blazes.document.plain import colour_of, printable, safe_write, unicode_of
    from flux_runtime.observe.audit import audit, outputs_of

    refuse_running(state)
    results = [Path(folder).absolute() for folder in arguments.results] or outputs_of(state)
    findings = audit(state, results)
    if place is not None:
        findings = tuple(
            replace(finding, place=finding.place.replace(str(state), place)) for finding in findings
        )
    named = place or str(state)
    if arguments.format == "json":
        result = {**as_object(named, results, findings), "needs": needs}
        print(json.dumps(result, indent=2, ensure_ascii=False))
        return int(bool(findings))
    lines: list[str] = []
    for finding in findings:
        mark = "✗" if unicode_of(sys.stdout) else "fail"
        mark = f"\033[31m{mark}\033[0m" if colour_of(sys.stdout) else mark
        lines += [f"{mark} {printable(finding.place)}: {printable(finding.problem)}"]
        lines += [f"    safe: {printable(finding.safe)}", f"    do: {printable(finding.remedy)}"]
    if findings or not arguments.quiet:
        lines.append(verdict(named, results, findings))
    safe_write(sys.stdout, "".join(f"{line}\n" for line in lines))
    return int(bool(findings))


def state_of(given: Path) -> Path:
    """The state folder that a path means: itself, or the one of a compiled project.

    Raises:
        CommandError: there is none.
    """
    from flux_runtime.observe.audit import is_state

    for folder in (given, given / "state"):
        if is_state(folder):
            return folder.absolute()
    raise CommandError(
        f"{given} is not the state folder of a job" if given.is_dir() else f"there is no {given}",
        remedy="name target/NAME/state; without it, blazes doctor checks this machine",
    )


def has_state(project: Path) -> bool:
    """Whether the job of a compiled project has run."""
    from flux_runtime.observe.audit import is_state

    return is_state(project / "state")


def refuse_running(state: Path) -> None:
    """Return if no driver of this machine runs the job.

    Raises:
        CommandError: one does; what it writes meanwhile would look like damage.
    """
    lock = state / ".lock"
    if not lock.exists():
        return
    with lock.open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            raise CommandError(
                f"a job runs on {state}", remedy="stop it first; a state is checked at rest"
            ) from None


def verdict(state: str, results: Sequence[Path], findings: Sequence[Finding]) -> str:
    """The last line."""
    folders = f"{len(results)} folder{'' if len(results) == 1 else 's'} of results"
    if not findings:
        return f"{state} and {folders}: nothing is damaged."
    number = f"{len(findings)} finding{'' if len(findings) == 1 else 's'}"
    return f"{state} and {folders}: {number}. Nothing was changed."


def as_object(
    state: str, results: Sequence[Path], findings: Sequence[Finding]
) -> dict[str, object]:
    """The findings as JSON data."""
    return {
        "schema_version": 1,
        "ok": not findings,
        "state": state,
        "results": [str(folder) for folder in results],
        "findings": [finding.to_json() for finding in findings],
    }
