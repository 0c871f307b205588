"""Which executor a Python worker belongs to, and that one whose daemon has died hosts no site."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

DAEMON = """
import os, signal, sys, time
from flux_runtime.spark.flux.site_task import executor_identity

os.setpgid(0, 0)  # as pyspark.daemon does
daemon = os.getpid()
if os.fork() == 0:
    if sys.argv[1] == "killed":
        while os.getppid() == daemon:
            time.sleep(0.01)
    print(executor_identity(os.getppid()), flush=True)
    os._exit(0)
if sys.argv[1] == "killed":
    os.kill(daemon, signal.SIGKILL)
os.wait()
"""


def said(what: str) -> str:
    """What a worker finds whose daemon lives, or was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", DAEMON, what],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as daemon:
        assert daemon.stdout is not None
        return daemon.stdout.read().strip()  # to the end: of the worker as well


def test_an_executor_is_the_process_that_started_the_daemon() -> None:
    assert said("lives") == f"{socket.gethostname()}-{os.getpid()}"


def test_a_worker_whose_daemon_is_gone_belongs_to_no_executor() -> None:
    assert said("killed") == "None"
