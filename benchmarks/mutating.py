"""What every list of mutations shares: a copy of the code, tests against it, what noticed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
PYTEST: Final = ("-m", "pytest", "-q", "-x", "--no-header", "-p", "no:cacheprovider")
TESTS_S: Final = 300
"""Tests, or seeds, that take more seconds of a processor do not end."""
WAIT_S: Final = 8 * TESTS_S
"""So long they are waited for, on a machine that has other things to do."""


def run(folder: str | Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in the folder, with the mutated package."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_S,
        preexec_fn=_limit,
    )


def _limit() -> None:
    """In the new process: no more processor time than tests that end need."""
    resource.setrlimit(resource.RLIMIT_CPU, (TESTS_S, TESTS_S + 5))


def copied(folder: Path, places: Mapping[str, str]) -> None:
    """Copy parts of the repository into the folder: where each is -> where it goes."""
    for source, target in places.items():
        if (ROOT / source).is_dir():
            leave = shutil.ignore_patterns("__pycache__", "target")
            shutil.copytree(ROOT / source, folder / target, ignore=leave)
        else:
            shutil.copy(ROOT / source, folder / target)


def noticed(folder: Path, paths: Iterable[str], *options: str) -> str | None:
    """The test that fails; None where all pass."""
    paths = tuple(paths)
    try:
        tested = run(folder, *PYTEST, *options, *paths)
    except subprocess.TimeoutExpired:
        tested = None
    if tested is None or tested.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return f"killed by tests of {Path(paths[0]).name} that do not end"
    if tested.returncode == 1:
        failed = [line for line in tested.stdout.splitlines() if line.startswith("FAILED")]
        return "killed by " + failed[0].split("::")[1].split(" ")[0]
    return "killed at the import of the tests" if tested.returncode else None


def keep(file: Path, found: Mapping[str, str], names: Iterable[str]) -> None:
    """Add what was found to what is known, in the order of the names; others are dropped."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    known.update(found)
    ordered = {name: known[name] for name in names if name in known}
    file.write_text(json.dumps(ordered, indent=1) + "\n", encoding="utf-8")
