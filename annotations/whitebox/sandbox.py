"""A process of its own for user code that is run to be read: an empty environment, and limits.

What the code gets is `environment`: where Python and the project's modules are, and a home folder
that is gone afterwards. It may take so long and so much memory (`Limits`). `supervisor` watches
over it and ends it with every process that it has started, whether it came to its end, its time is
over, or the user has pressed Ctrl-C.

Around it stand the walls of `confinement`: it reads the project and what Python is made of, but no
hidden file, writes to its home folder alone, and has no network. What a machine cannot close,
`confinement.open_ways` says. It needs Linux.
"""

from __future__ import annotations

import json
import os
import signal
import site
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GRACE_S: Final = 15.0
"""How long after its time the supervisor may take to end everything."""
_ROOT: Final = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of user code. A value of this type means that it may be run at all."""

    seconds: float = 60.0
    """Until it is ended; the same for the time of the processor."""
    memory_mb: int = 4096
    """Address space of each process, in MiB."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How user code ended."""

    status: int | None
    """The exit status of its process, negative: the signal that ended it; None: it was ended."""
    ended_for: str
    """Why it was ended: `time`, `processes`, or `supervisor` where it has ended its supervisor."""
    printed: str
    """The end of what it printed."""
    answer: bytes | None
    """What it wrote for whoever asked; None where it wrote nothing, or did not end well."""


ANSWER_BYTES_MAX: Final = 64 * 2**20


def environment(home: Path | None = None) -> dict[str, str]:
    """The variables that user code sees; nothing else of this process's environment.

    Args:
        home: its home folder, and the one for its temporary files.
    """
    search = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    variables = {
        "PATH": os.defpath,
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": os.pathsep.join([str(_ROOT), *map(os.path.abspath, search)]),
        "PYTHONUNBUFFERED": "1",
    }
    if site.ENABLE_USER_SITE:
        variables["PYTHONUSERBASE"] = site.getuserbase()
    return variables if home is None else variables | {"HOME": str(home), "TMPDIR": str(home)}


def run(
    command: Sequence[str],
    request: Callable[[Path], Mapping[str, Any]],
    *,
    folder: Path,
    limits: Limits,
    projects: Iterable[Path] = (),
) -> Outcome:
    """Run a command to its end, and end everything that it has started.

    Args:
        command: reads the request from its standard input.
        request: what to ask, given the file that the answer is to be written to.
        folder: the one that it runs in.
        limits: what it may take.
        projects: folders whose projects it may read; else that of `folder`.
    """
    with tempfile.TemporaryDirectory(prefix="blazes-read-", ignore_cleanup_errors=True) as scratch:
        base = Path(scratch).resolve()
        home, answer, outcome = base / "home", base / "answer.json", base / "outcome.json"
        home.mkdir()
        (base / "request.json").write_text(json.dumps(request(answer)), encoding="utf-8")
        task = {
            "command": [*_CONFINED, json.dumps(_policy(projects or (folder,), base)), *command],
            "folder": str(folder.resolve()),
            "request": str(base / "request.json"),
            "outcome": str(outcome),
            "seconds": limits.seconds,
            "memory_bytes": limits.memory_mb * 2**20,
        }
        if _supervised(task, home, limits) != 0:
            _end_stragglers(home)
            return Outcome(None, "supervisor", "", None)
        report = json.loads(outcome.read_bytes())
        return Outcome(**report, answer=_answer(answer) if report["status"] == 0 else None)


_CONFINED: Final = (sys.executable, "-I", "-S", str(Path(__file__).with_name("confinement.py")))
_SYSTEM: Final = (
    *("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt/venv"),
    *("/etc/ld.so.cache", "/etc/localtime", "/etc/timezone", "/etc/nsswitch.conf", "/etc/passwd"),
    *("/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu", "/sys/fs/cgroup"),
)


def _policy(folders: Iterable[Path], scratch: Path) -> dict[str, list[str]]:
    """The paths that code may read and write; the links on the way to Python are followed here."""
    python = {sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).resolve())}
    search = [str(_ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    if site.ENABLE_USER_SITE:
        search.append(site.getusersitepackages())
    search += [entry for entry in sys.path[1:] if entry and Path(entry).resolve() != Path.cwd()]
    places = [*_SYSTEM, *python, *filter(None, search)]
    readable = {str(Path(place).resolve()) for place in places}
    listed: set[str] = set()
    for folder in {project_of(start.resolve()) for start in folders}:
        listed.add(str(folder))
        readable |= {str(e) for e in folder.iterdir() if not e.name.startswith(".")}
        readable.discard(str(folder))
    return {
        "readable": sorted(readable),
        "listed": sorted(listed),
        "writable": [str(scratch)],
    }


def project_of(folder: Path) -> Path:
    """The project that a folder belongs to: the nearest above it that has a `pyproject.toml` or a
    repository of its own, but not the home folder or what is above that; else the folder itself."""
    home = Path.home().resolve()
    for candidate in (folder, *folder.parents):
        if home.is_relative_to(candidate):
            break
        if any((candidate / name).exists() for name in ("pyproject.toml", ".git")):
            return candidate
    return folder


def _supervised(task: Mapping[str, Any], home: Path, limits: Limits) -> int:
    """The exit status of the supervisor; not 0 where the code has ended or disturbed it."""
    supervisor = subprocess.Popen(
        [sys.executable, "-I", "-S", str(Path(__file__).with_name("supervisor.py"))],
        cwd="/",
        env=environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert supervisor.stdin is not None
    try:
        with suppress(BrokenPipeError):
            supervisor.stdin.write(json.dumps(task).encode() + b"\n")
            supervisor.stdin.flush()
        with suppress(subprocess.TimeoutExpired):
            supervisor.wait(limits.seconds + GRACE_S)
    finally:
        with suppress(BrokenPipeError):
            supervisor.stdin.close()
        try:
            supervisor.wait(GRACE_S)
        except subprocess.TimeoutExpired:  # the code has stopped it
            supervisor.kill()
            supervisor.wait()
    return supervisor.returncode


def _answer(file: Path) -> bytes | None:
    """The content of a file that user code wrote; None: missing, not a plain file, or too large."""
    if file.is_symlink() or not file.is_file() or file.stat().st_size > ANSWER_BYTES_MAX:
        return None
    return file.read_bytes()


def _end_stragglers(home: Path) -> None:
    """Kill what has this home, after the code has killed what watched over it."""
    mark = f"HOME={home}".encode()
    left = True
    while left:
        left = False
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)
                    left = True


def why(outcome: Outcome, limits: Limits) -> str:
    """How code ended that gave no answer, in words."""
    match outcome:
        case Outcome(ended_for="time"):
            return f"it did not end within {limits.seconds:g} s"
        case Outcome(ended_for="processes"):
            return "it started too many processes"
        case Outcome(ended_for="supervisor"):
            return "it ended the process that watched over it, or disturbed it"
        case Outcome(status=int(status)) if status == -signal.SIGXCPU:
            return f"it took more than {limits.seconds:g} s of the processor"
        case Outcome(status=int(status)) if status < 0:
            return f"it was ended by signal {-status}"
    return f"it ended its process (exit status {outcome.status})"
