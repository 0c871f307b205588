#!/usr/bin/env python3
"""Set up this checkout and use it. Needs Python 3.11 or newer and Java 17 or newer.

    python3 start.py              install, then run the examples from end to end
    python3 start.py test         install, then the quick checks: format, lint, types, tests
    python3 start.py test --all   the same, and everything that starts Spark or ZooKeeper
    python3 start.py shell        install, then say how to use it by hand

Everything is installed into .venv of this folder; nothing outside is touched.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = BIN / "python"
STAMP = VENV / "installed.sha256"


def main() -> int:
    """Do what the command line asks for; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", nargs="?", choices=["run", "test", "shell"], default="run")
    parser.add_argument(
        "--all", action="store_true", help="with test: also Spark, clusters, sweeps"
    )
    arguments = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036 - this file is what tells the user
        return refuse(
            f"Python {sys.version.split()[0]} is too old: 3.11 or newer is needed.",
            "install it (Debian: apt install python3.11 python3.11-venv; "
            "macOS: brew install python@3.12) and start this file with it",
        )
    for step in (install, java_problem):
        if status := step():
            return status
    if arguments.what == "test":
        return test(everything=arguments.all)
    if arguments.what == "shell":
        print(f"Ready. Activate it:  source {BIN.relative_to(ROOT)}/activate\nThen:  blazes --help")
        return 0
    return run_examples()


def refuse(problem: str, remedy: str) -> int:
    """Say what is wrong and what to do about it; the exit status for it."""
    print(f"start.py: {problem}\n  remedy: {remedy}", file=sys.stderr)
    return 2


def install() -> int:
    """Install this checkout and the locked versions into .venv, once for every change of them."""
    files = ("pyproject.toml", "flux_lab/pyproject.toml", "constraints.txt")
    locked = b"".join((ROOT / name).read_bytes() for name in files)
    digest = hashlib.sha256(locked + sys.version.encode()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == digest:
        return 0
    print(f"Installing into {VENV} (a few minutes the first time) ...", flush=True)
    if not PYTHON.exists() or not pip_works():
        shutil.rmtree(VENV, ignore_errors=True)
        made = subprocess.run([sys.executable, "-m", "venv", VENV], check=False)
        if made.returncode:
            return refuse(
                "a virtual environment could not be made.",
                "install Python's venv module (Debian: apt install python3-venv) and try again",
            )
    pip = [PYTHON, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    parts = ["-c", "constraints.txt", "-e", ".[dev]", "-e", "./flux_lab"]
    got = subprocess.run([*pip, *parts], cwd=ROOT, check=False)
    if got.returncode:
        return refuse(
            "the packages could not be installed (pip's own message is above).",
            "check the network, the proxy settings and the free disk space (1.5 GB), try again",
        )
    STAMP.write_text(digest)
    return 0


def pip_works() -> bool:
    """Whether .venv can install packages; one that was moved cannot."""
    return subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode == 0


PACKAGES = ("annotations", "blazes", "codegen", "flux_lab", "flux_runtime")
"""Their doctests run with the tests, but in no process that starts Spark: modules that read code
make PySpark choose Connect when they are imported."""


def java_problem() -> int:
    """Nonzero where Java, memory, ports or the installation would stop a run; doctor says why."""
    return subprocess.run([PYTHON, "-m", "blazes", "doctor", "--quick", "--quiet"]).returncode


def run_examples() -> int:
    """Analyze, compile and run word count and the ad network; show report and results."""
    return subprocess.run([PYTHON, ROOT / "examples" / "run_all.py"], cwd=ROOT).returncode


def test(*, everything: bool) -> int:
    """All checks in order; the exit status of the first that fails."""
    pytest = [PYTHON, "-m", "pytest", "-q"]
    types, classes = [PYTHON, "-m", "mypy"], [PYTHON, "-m", "tests.spark_classes"]
    checks = [
        [[PYTHON, "-m", "ruff", "format", "--check", "."]],
        [[PYTHON, "-m", "ruff", "check", "."]],
        [types, classes] if everything else [types],  # each keeps one processor busy
        [[*pytest, "-n", "2", "--dist", "worksteal", *PACKAGES, "tests"]],
    ]
    if everything:
        marked = ["-m", "zookeeper or spark or cluster or slow"]
        in_order = ["-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]  # many only wait
        checks.append([[*pytest, *in_order, *marked]])
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    for together in checks:  # each process would make the bytecode of the package and tests anew
        for check in together:
            print("$", *(str(part).replace(str(ROOT) + os.sep, "") for part in check), flush=True)
        running = [subprocess.Popen(check, cwd=ROOT, env=environment) for check in together]
        if status := max([process.wait() for process in running], key=abs):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
