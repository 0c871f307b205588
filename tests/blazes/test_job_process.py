"""Jobs as child processes: small scripts that behave as jobs do, started, stopped and killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from blazes.cli.job_process import FAILURES, JobProcess, remedy_for
from blazes.cli.run import watch

GENTLE = """
    import signal, sys, time
    from pathlib import Path
    from flux_runtime.observe.run_folder import RunFolder
    run = RunFolder.at(Path(sys.argv[1]))
    stopping = []
    signal.signal(signal.SIGINT, lambda *_: stopping.append(1))
    run.event("unit_started", "Count.counts")
    batches = 0
    while not stopping:
        batches += 1
        run.metrics("Count.counts", batches=batches, open_partitions=3)
        time.sleep(0.02)
    print("stopped gently")
    run.finish({"status": "stopped"})
"""
STUBBORN = """
    import signal, subprocess, sys, time
    signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("child", child.pid, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def job(tmp_path: Path) -> Callable[[str], JobProcess]:
    def make(script: str) -> JobProcess:
        file = tmp_path / "job.py"
        file.write_text(textwrap.dedent(script), encoding="utf-8")
        return JobProcess([sys.executable, str(file), str(tmp_path)], log=tmp_path / "log.txt")

    return make


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.02)


def press(*presses: tuple[str, Path, str]) -> subprocess.Popen[bytes]:
    """Send this process signals, each once its file has a line with its text."""
    steps = [
        f"until grep -qs '{text}' '{file}'; do sleep 0.05; done; kill -{name} {os.getpid()}"
        for name, file, text in presses
    ]
    return subprocess.Popen(["sh", "-c", "; ".join(steps)])


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(
    ("script", "status"),
    [("pass", 0), ("raise SystemExit(3)", 3), ("import os; os.kill(os.getpid(), 9)", 137)],
)
def test_the_exit_status_is_the_jobs(
    job: Callable[[str], JobProcess], script: str, status: int
) -> None:
    process = job(script)
    process.start()
    until(lambda: process.poll() is not None)
    assert process.poll() == status


def test_a_gentle_stop(job: Callable[[str], JobProcess]) -> None:
    process = job(GENTLE)
    process.start()
    until(lambda: (process.log.parent / "metrics.jsonl").exists())
    process.interrupt()
    until(lambda: process.poll() is not None)
    assert process.poll() == 0
    assert process.log_end() == ["stopped gently"]


def test_killing_takes_its_children_along(job: Callable[[str], JobProcess]) -> None:
    process = job(STUBBORN)
    process.start()
    until(lambda: process.log_end())
    child = int(process.log_end()[0].split()[1])
    process.interrupt()
    assert process.poll() is None
    process.kill()
    assert process.poll() == 137
    until(lambda: not alive(child))


def test_a_job_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    starter = f"""
        import sys, time
        from pathlib import Path
        from blazes.cli.job_process import JobProcess
        process = JobProcess([sys.executable, "-c", "import time; time.sleep(600)"],
                             log=Path({str(tmp_path / "log.txt")!r}))
        process.start()
        print(process._running.pid, flush=True)
        time.sleep(600)
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(starter)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        pid = int(child.stdout.readline())
        assert alive(pid)
        child.kill()
    until(lambda: not alive(pid))


def test_the_log_without_stack_frames(job: Callable[[str], JobProcess]) -> None:
    process = job(
        """
        print("java.lang.RuntimeException: boom")
        for _ in range(100):
            print("\\tat org.apache.spark.sql.X$.y(X.scala:1)")
        print("\\t... 42 more")
        print("Caused by: java.io.IOException: No space left on device")
        """
    )
    process.start()
    until(lambda: process.poll() is not None)
    assert process.log_end() == [
        "java.lang.RuntimeException: boom",
        "Caused by: java.io.IOException: No space left on device",
    ]
    assert remedy_for(process.log_end()).startswith("The disk is full")


def test_remedies_name_what_is_missing() -> None:
    assert "Install pandas.core" in remedy_for(
        ["ModuleNotFoundError: No module named 'pandas.core'"]
    )
    assert remedy_for(["all is well"]) == ""
    assert all(remedy.endswith(".") for _, remedy in FAILURES)


def test_watching_shows_lines_and_reads_the_run(
    job: Callable[[str], JobProcess], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    slower = GENTLE.replace("while not stopping", "while batches < 20").replace("0.02", "0.1")
    process = job(slower)  # so that it is looked at while it runs
    ended = watch(process, tmp_path, name="wordcount", progress=True)
    assert ended.status == 0
    assert not ended.interrupted
    assert ended.run.units["Count.counts"].values["batches"] == 20
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "wordcount: starting Spark"
    assert "wordcount: running" in printed
    assert printed[-1] == "Count.counts: batches 20, open 3"


def test_ctrl_c_stops_gently_and_its_handler_is_put_back(
    job: Callable[[str], JobProcess], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = signal.getsignal(signal.SIGINT)
    process = job(GENTLE)
    pressed = press(("INT", tmp_path / "metrics.jsonl", "batches"))
    ended = watch(process, tmp_path, name="wordcount", progress=False)
    pressed.wait()
    assert ended.status == 0
    assert ended.interrupted
    assert ended.run.summary is not None
    assert ended.run.summary["status"] == "stopped"
    assert signal.getsignal(signal.SIGINT) is before
    assert "Ctrl-C again kills the job" in capsys.readouterr().out


def test_a_second_ctrl_c_kills(
    job: Callable[[str], JobProcess], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = tmp_path / "log.txt"
    pressed = press(("INT", log, "child"), ("INT", log, "interrupted"))
    ended = watch(job(STUBBORN), tmp_path, name="wordcount", progress=False)
    pressed.wait()
    assert ended.status == 137
    assert "Killed. Nothing that was committed is lost" in capsys.readouterr().out
    child = int(ended.log_end[0].split()[1])
    until(lambda: not alive(child))


def test_sigterm_stops_gently_however_often_it_comes(
    job: Callable[[str], JobProcess], tmp_path: Path
) -> None:
    metrics = tmp_path / "metrics.jsonl"
    pressed = press(("TERM", metrics, "batches"), ("TERM", metrics, "batches"))
    ended = watch(job(GENTLE), tmp_path, name="wordcount", progress=False)
    pressed.wait()
    assert ended.status == 0
