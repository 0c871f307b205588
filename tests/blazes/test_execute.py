"""Reading runs nothing of the user's unless it is asked to, and then within limits."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pytest

from annotations.whitebox.confinement import open_ways
from annotations.whitebox.sandbox import Limits
from blazes.cli import COMMANDS, main
from tests.blazes.hostile import ATTACKS, DEEDS, SECRET, SHADOWS, Hostile, drawn, hostile

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
EXECUTE = {"run", "backfill", "verify", "simulate"}
"""Commands that run the user's code by their purpose."""
OTHERS = {"demo": [], "doctor": ["--quick"], "rule": ["BLZ089"], "schema": []}
"""Commands that read nothing of the user's, with arguments."""
READ = {
    "analyze": ["flow.yaml"],
    "plan": ["flow.yaml"],
    "explain": ["flow.yaml", "Score"],
    "check": ["flow.yaml"],
    "import": ["deeds.py"],
    "scan": ["."],
    "compile": ["flow.yaml"],
    "derive": ["flow.yaml"],
    "report": ["flow.yaml"],
    "top": ["flow.yaml", "--once"],
    "seals": ["flow.yaml"],
    "dead-letters": ["flow.yaml"],
}
SAYS = {
    "analyze": "flow.yaml:2:19: BLZ089",
    "check": "flow.yaml:2:19: BLZ089",
    "compile": "flow.yaml:2:19: BLZ509",
    "import": "deeds.py:1:1: BLZ094",
}
"""What is told where code was not run."""
PROJECTS = ("analyze", "plan", "compile", "derive", "report")
"""Commands that take a script or a pipeline in place of a dataflow file."""


def blazes(flow: Hostile, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command, run in the folder of the dataflow by a user with a secret."""
    return subprocess.run(
        [sys.executable, "-m", "blazes", *arguments],
        cwd=flow.folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )


Command = Callable[..., tuple[int, str]]


@pytest.fixture
def command(
    flow: Hostile, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    """A command in the folder of the dataflow, in this process: its status and what it says."""
    monkeypatch.setenv(SECRET, SECRET)

    def run(*arguments: str) -> tuple[int, str]:
        with contextlib.chdir(flow.folder):
            status = main(arguments)
        return status, "".join(capsys.readouterr())

    return run


def environment() -> dict[str, str]:
    return os.environ | {SECRET: SECRET, "PYTHONPATH": str(ROOT)}


@pytest.fixture
def flow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hostile]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "scratch"))
    made = hostile(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def seconds(tmp_path_factory: pytest.TempPathFactory) -> int:
    """A limit for code that does not end: short, and enough to begin as busy as the machine is."""
    flow = hostile(tmp_path_factory.mktemp("begins"))
    flow.write("deeds", "environment")
    began = time.monotonic()
    blazes(flow, "check", "flow.yaml", "--execute")
    flow.end()
    return max(6, 3 * round(time.monotonic() - began))


def test_every_command_either_reads_or_says_that_it_runs_code() -> None:
    assert {*READ, *EXECUTE, *OTHERS} == set(COMMANDS)


@pytest.mark.parametrize("command", READ)
def test_reading_runs_nothing(command: str, flow: Hostile) -> None:
    flow.write("deeds", "writes", "environment", "session")
    for name in SHADOWS:
        flow.write(name, "writes")
    before = sorted(flow.folder.iterdir())
    ended = blazes(flow, command, *READ[command])
    assert "Traceback" not in ended.stderr
    assert flow.done() == set()
    assert sorted(flow.folder.iterdir()) == before
    if command in SAYS:
        told = ended.stdout + ended.stderr
        assert "--execute" in told
        assert SAYS[command] in told


def test_a_project_is_not_run_to_be_read(flow: Hostile, command: Command) -> None:
    flow.write("deeds", "writes")
    (flow.folder / "spark-pipeline.yml").write_text(
        "name: p\nstorage: file:///tmp/p\nlibraries: [{glob: {include: deeds.py}}]\n"
    )
    for name, project in product(PROJECTS, ("deeds.py", "spark-pipeline.yml", ".")):
        assert command(name, project)[0] == 2
    assert flow.done() == set()


def test_the_observer_sees_what_is_not_held_back(flow: Hostile) -> None:
    """The same module run as Python would run it: each thing that the tests look for is there."""
    file = flow.write("deeds", "environment", "session", "deaf daemon", "writes")
    home = {"HOME": str(flow.folder.parent)}
    done = subprocess.run([sys.executable, str(file)], cwd=flow.folder, env=environment() | home)
    assert done.returncode == 0
    assert {"environment", "session", "deaf daemon", "writes"} <= flow.done()
    began = time.monotonic()
    while len(flow.processes()) != 2 and time.monotonic() < began + 60.0:  # the daemon forks twice
        time.sleep(0.01)
    assert len(flow.processes()) == 2
    assert "leaked" in flow.done()


def test_every_attack_succeeds_without_walls(flow: Hostile) -> None:
    """So that the next test is about the walls, and not about attacks that never work."""
    file = flow.write("deeds", *ATTACKS)
    home = flow.folder.parent / "home"
    home.mkdir()
    done = subprocess.run(
        [sys.executable, str(file)], cwd=flow.folder, env=environment() | {"HOME": str(home)}
    )
    assert done.returncode == 0
    assert flow.done() == set(ATTACKS)


@pytest.mark.skipif(bool(open_ways()), reason=f"not closed here: {', '.join(open_ways())}")
@pytest.mark.parametrize("when", ["import", "call", "exit"])
def test_no_attack_gets_through_the_walls(when: str, flow: Hostile) -> None:
    flow.write("deeds", "environment", *ATTACKS, when=when)
    ended = blazes(flow, "check", "flow.yaml", "--execute")
    assert "Traceback" not in ended.stderr
    assert flow.done() == ({"environment"} if when != "exit" else set())
    assert (flow.outside / "secret").read_text() == SECRET


def check_executed(flow: Hostile, *deeds: str, when: str) -> str:
    """Run a hostile module to be read; what the command said."""
    flow.write("deeds", *deeds, when=when)
    ended = blazes(flow, "check", "flow.yaml", "--execute")
    told = ended.stdout + ended.stderr
    assert flow.processes() == []
    assert ended.returncode == 0, told
    assert "Traceback" not in told
    assert "leaked" not in flow.done()
    assert when == "exit" or deeds[0] in flow.done()
    return told


@pytest.mark.parametrize(
    ("deeds", "says"),
    [
        (("environment", "session", "deaf daemon"), "0 mistakes"),
        (("double fork", "imitates", "exits"), "it ended its process (exit status 0)"),
        (("no environment", "memory"), "out of memory: it may take 1024 MiB"),
        (("forges",), "makes no sense"),
        (
            ("own subreaper", "forges the outcome", "kills who watches"),
            "PermissionError",
        ),
    ],
    ids=lambda each: each[0] if isinstance(each, tuple) else "",
)
def test_what_may_run_ends_within_limits_and_leaves_nothing(
    deeds: tuple[str, ...], says: str, flow: Hostile
) -> None:
    told = check_executed(flow, *deeds, when="import")
    if says != "0 mistakes":
        assert "BLZ093" in told
        assert says in told
    else:
        assert "BLZ093" not in told


def test_time_and_processes_are_limited(seconds: int, flow: Hostile) -> None:
    flow.limit(seconds)
    late = f"it did not end within {seconds} s"
    assert late in check_executed(flow, "thread", "patches", when="import")
    told = check_executed(flow, "multiplies", when="import")
    assert "it started too many processes" in told or late in told


@pytest.mark.parametrize("deed", DEEDS)
def test_every_deed_ends_within_limits_and_leaves_nothing(
    deed: str, seconds: int, flow: Hostile
) -> None:
    flow.limit(seconds)
    check_executed(flow, deed, when="import")


@pytest.mark.parametrize("seed", range(4))
def test_deeds_together_end_within_limits_and_leave_nothing(
    seed: int, seconds: int, flow: Hostile
) -> None:
    flow.limit(seconds)
    deeds, when = drawn(seed)
    check_executed(flow, *deeds, when=when)


def interrupted(flow: Hostile, number: int) -> int:
    """Begin to read a module that waits, end the command with a signal; its exit status."""
    flow.write("deeds", "double fork", "sleeps")
    (flow.folder / "pyproject.toml").write_text("[tool.blazes]\nexecute-seconds = 3600\n")
    command = [sys.executable, "-m", "blazes", "check", "flow.yaml", "--execute"]
    with subprocess.Popen(
        command, cwd=flow.folder, env=environment(), stderr=subprocess.DEVNULL
    ) as running:
        while "sleeps" not in flow.done() or len(flow.processes()) < 3:
            assert running.poll() is None
            time.sleep(0.05)
        running.send_signal(number)
        status = running.wait(timeout=60)
    until = time.monotonic() + 60  # those of a command that was killed are ended a moment later
    while flow.processes() and time.monotonic() < until:
        time.sleep(0.05)
    assert flow.processes() == []
    return status


@pytest.fixture
def own_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a command makes temporary ones."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_a_command_that_is_ended_takes_the_code_with_all_that_it_started(
    number: int, status: int, flow: Hostile, own_temporary: Path
) -> None:
    """By Ctrl-C, and when it is killed; nothing is left of its folder either."""
    assert interrupted(flow, number) == status
    until = time.monotonic() + 60
    while list(own_temporary.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)
    assert list(own_temporary.iterdir()) == []


# ---- what the configuration says


@pytest.mark.parametrize(
    ("option", "configured", "runs"),
    [
        ((), "", False),
        ((), "execute = true", True),
        ((), "execute = false", False),
        (("--execute",), "execute = false", True),
        (("--no-execute",), "execute = true", False),
    ],
)
def test_the_option_decides_and_else_the_configuration(
    option: tuple[str, ...], configured: str, runs: bool, flow: Hostile, command: Command
) -> None:
    flow.write("deeds", "environment")
    (flow.folder / "pyproject.toml").unlink()
    (flow.folder.parent / "pyproject.toml").write_text(f"[tool.blazes]\n{configured}\n")
    status, told = command("check", "flow.yaml", *option)
    assert status == 0
    assert ("environment" in flow.done()) is runs
    assert ("BLZ089" in told) is not runs


def test_an_answer_that_was_kept_is_no_permission(
    flow: Hostile, command: Command, tmp_path: Path
) -> None:
    """What a command says does not depend on what was run on this machine before."""
    code = flow.folder / "deeds.py"
    body = "class Keep:\n    def __getattr__(self, name):\n        return lambda r: r.distinct()\n"
    code.write_text(f"{body}def score(clicks):\n    return Keep().one(clicks)\n")
    os.utime(code, (1e9, 1e9))
    assert "BLZ089" not in command("check", "flow.yaml", "--execute")[1]
    assert len(list((tmp_path / "cache").rglob("*.json"))) == 1
    assert "BLZ089" in command("check", "flow.yaml")[1]


def test_a_function_that_can_be_followed_need_not_be_run(flow: Hostile, command: Command) -> None:
    flow.write("deeds", "writes")
    code = flow.folder / "deeds.py"
    code.write_text("def score(clicks):\n    return clicks.distinct()\n")
    told = command("derive", "flow.yaml")[1]
    assert "OW" not in told
    assert "CW" in told
    assert flow.done() == set()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[tool.blazes]\nexecutes = true\n", "unknown key 'executes'; did you mean execute or"),
        ("[tool.blazes]\nexecute = 1\n", "execute is 1, which is not true or false"),
        ("[tool.blazes]\nexecute-seconds = -1\n", "which is not a number of seconds"),
        ("[tool.blazes]\nexecute-memory-mb = 1.5\n", "which is not a whole number of MiB"),
        ("[tool]\nblazes = 1\n", "tool.blazes is not a table"),
        ("[tool.blazes\n", "pyproject.toml: "),
    ],
)
def test_a_wrong_configuration_is_refused(
    text: str, says: str, flow: Hostile, command: Command
) -> None:
    (flow.folder / "pyproject.toml").write_text(text)
    status, told = command("check", "flow.yaml")
    assert status == 2
    assert says in told


def test_a_function_that_cannot_be_described_is_not_compiled(
    flow: Hostile, command: Command
) -> None:
    """Told with the place of what failed; nobody is asked to vouch for it."""
    (flow.folder / "deeds.py").write_text("def score(clicks):\n    return clicks.count()\n")
    (flow.folder / "pyproject.toml").unlink()
    for options, place in (((), "flow.yaml:2:19"), (("--execute",), "deeds.py:2:1")):
        status, told = command("compile", "flow.yaml", *options)
        assert status == 2
        assert f"{place}: BLZ509 nothing is known of Score.scores: " in told
        assert "`why:`" not in told
        assert not (flow.folder / "target").exists()
    (flow.folder / "deeds.py").write_text("def score(clicks):\n    return clicks.distinct()\n")
    assert command("compile", "flow.yaml", "--execute")[0] == 0


def test_claims_about_functions_are_checked_where_they_may_be_run(
    flow: Hostile, command: Command
) -> None:
    (flow.folder / "deeds.py").write_text(
        "def score(clicks):\n    return clicks.groupBy('id').count()\n"
    )
    text = flow.dataflow.read_text()
    label = "{annotation: {from: clicks, to: scores, label: CW}, python:"
    flow.dataflow.write_text(text.replace("{python:", label))
    assert "BLZ084" not in command("check", "flow.yaml")[1]
    assert "BLZ084" in command("check", "flow.yaml", "--execute")[1]
    status, told = command("derive", "flow.yaml", "--strict")
    assert status == 1
    assert "deeds:score was not run" in told


def test_the_limits_are_those_that_the_pages_state() -> None:
    page = (ROOT / "docs" / "how-to" / "python-components.md").read_text(encoding="utf-8")
    assert f"execute-seconds = {Limits().seconds:g}" in page
    assert f"execute-memory-mb = {Limits().memory_mb}" in page
