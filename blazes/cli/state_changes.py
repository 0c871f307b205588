"""The changes of a compiled job since its last run: whether it goes on from its state.

The job says it itself (`job.py --compare`), in a process of its own, since that reads the functions
that run: their modules are imported. Nothing is started and nothing is changed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from blazes.cli import CommandError
from blazes.cli.checks import Check, Finding, Status

FINGERPRINT: Final = "fingerprint.json"
"""In a state folder: the plan that it was used with."""
REFUSED: Final = 1
"""The exit status of a command that found that a job cannot go on from its state."""


@dataclass(frozen=True, slots=True)
class StateChanges:
    """The changes of a job since its last run, and what follows from them.

    Args:
        state: the folder, or the address that it is a copy of.
        goes_on: whether the job goes on from it.
        changes: as `flux_runtime.spark.changes.Change` has them, the refused ones first.
    """

    state: Path | str
    goes_on: bool
    changes: Sequence[Mapping[str, Any]]

    def lines(self) -> list[str]:
        """For people, without the remedies; nothing where nothing has changed."""
        if not self.changes:
            return []
        word = "the job goes on from" if self.goes_on else "the job cannot go on from"
        lines = [f"{word} {self.state}:"]
        for change in self.changes:
            mark = "goes on" if change["goes_on"] else "refused"
            lines.append(f"  {mark}: {change['name']}: {change['what']}; {change['because']}")
        return lines

    @property
    def remedies(self) -> list[str]:
        """The ways out where the job cannot go on."""
        return [*dict.fromkeys(c["remedy"] for c in self.changes if not c["goes_on"])]

    def to_json(self) -> dict[str, Any]:
        """As JSON data."""
        return {
            "state": str(self.state),
            "goes_on": self.goes_on,
            "changes": [*self.changes],
        }


def printed(compared: StateChanges) -> str:
    """The changes and what is to be done, as a command prints them."""
    to_do = [f"  to do: {remedy}" for remedy in compared.remedies]
    return "".join(f"{line}\n" for line in [*compared.lines(), *to_do])


def has_run(state: Path) -> bool:
    """Whether a folder is a state that knows its plan."""
    return (state / FINGERPRINT).is_file()


def changes_of(project: Path, state: Path) -> StateChanges:
    """Ask a compiled job what has changed since its last run; see `has_run`.

    Raises:
        CommandError: the job cannot say it; with its last line.
    """
    command = [sys.executable, str(project / "job.py"), "--compare", "--state-dir", str(state)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
        return StateChanges(state, bool(answer["goes_on"]), answer["changes"])
    except (ValueError, KeyError, TypeError):
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise CommandError(
            f"{project / 'job.py'} cannot be compared with {state}: {reason}",
            remedy=f"blazes doctor {state} checks the state",
        ) from None


def state_checks(project: Path) -> tuple[Check, ...]:
    """The check of a project that has run: whether its job goes on from its state."""
    if not has_run(project / "state"):
        return ()
    return (Check("changes", "the job goes on from the state of its last run", _look),)


def _look(project: Path) -> Finding:
    own = [file.name for file in project.glob("*.py") if file.name != "job.py"]
    if own:
        not_compared = f"not compared with the state, which would import {', '.join(sorted(own))}"
        command = f"{sys.executable} {project / 'job.py'} --compare"
        return Finding(Status.WARN, not_compared, f"To have it done: {command}")
    try:
        compared = changes_of(project, project / "state")
    except CommandError as error:
        return Finding(Status.FAIL, str(error), error.remedy or "")
    lines = compared.lines() or ["nothing has changed since the last run"]
    status = Status.OK if compared.goes_on else Status.FAIL
    return Finding(status, "\n  ".join(lines), "; ".join(compared.remedies))
