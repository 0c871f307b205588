"""The Spark task that hosts a site of a Flux stage."""

from __future__ import annotations

import importlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from flux_runtime.operators.components import Components
from flux_runtime.site.config import Fenced, SiteConfig, SpillTo
from flux_runtime.site.key import JobKey
from flux_runtime.site.process import warm_up
from flux_runtime.site.worker import run_site
from flux_runtime.zookeeper.access import Ensemble

NEEDED: Final = ("duckdb", "kazoo", "numpy", "pyarrow")
"""Packages that a site imports."""
PACKAGES: Final = (
    "; the Python of the executors (spark.pyspark.python) needs this project and its packages: "
    "install them there, or ship an environment with spark.archives"
)
CONNECT_S: Final = 10.0

STOPPED: Final = "stopped"
CROWDED: Final = "crowded"
"""Others of this stage are in the executor already; the site is to go to another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteTask:
    """The task's arguments; they show in no log, but travel through Spark, so no secret is in them.

    Attributes:
        components: what the sites compute.
        app: name of this run's application in ZooKeeper.
        zookeeper: the ensemble, with references in place of secrets.
        key: file with the job's key, readable for the user of the job only.
        seats: folder where sites say which executor they are in.
        memory_bytes: of state that stays in memory; None: all of it.
    """

    components: Components
    app: str
    zookeeper: Ensemble
    key: str
    seats: str
    memory_bytes: int | None = None


def host_site(task: SiteTask, room: int, numbers: Iterator[int]) -> Iterator[str]:
    """Host one site until the stage ends; gives why it ended.

    Args:
        task: what it is told.
        room: sites that one executor may hold.
        numbers: the site's number.
    """
    (number,) = numbers
    parent = os.getppid()
    executor = executor_identity(parent)
    if executor is None:  # and must not be used for another task
        os._exit(1)
    if not seated(Path(task.seats), executor, number, room):
        yield CROWDED
        return
    address = own_address(task.zookeeper.hosts)
    warm_up()
    config = SiteConfig(
        key=JobKey.from_hex(Path(task.key).read_text()),
        dataflow=task.components,
        app=task.app,
        zookeeper=task.zookeeper,
        bind=address,
        executor=executor,
        site=number,
        parent=parent,
        spill=spill_to(task.memory_bytes),
    )
    try:
        run_site(config)
    except Fenced as fenced:
        if os.getppid() != parent:  # nobody is left to tell
            os._exit(1)
        yield f"fenced: {fenced}"
        return
    yield STOPPED


def spill_to(memory_bytes: int | None) -> SpillTo | None:
    """Where this site keeps what does not fit: on the disk that Spark uses for its own."""
    if memory_bytes is None:
        return None
    local = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    folder = Path(local.partition(",")[0]) / "flux-spill"
    return SpillTo(folder=folder, memory_bytes=memory_bytes)


def executor_identity(parent: int) -> str | None:
    """The name of this worker's executor on its machine: the process of Java that it belongs to.

    Args:
        parent: the worker's parent process: the daemon that forks Spark's workers and leads their
            process group, or Java itself where there is none (spark.python.use.daemon).

    Returns:
        None if the daemon is gone. Spark goes on to use its workers, but such a one would outlive
        its executor unnoticed.
    """
    if os.getpgrp() == parent:
        return f"{socket.gethostname()}-{_stat(parent)[1]}"
    if _stat(parent)[0] == "java":
        return f"{socket.gethostname()}-{parent}"
    return None


def _stat(process: int) -> tuple[str, int]:
    """Name and parent of a process; none if it is gone."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(errors="replace")
    except OSError:
        return "", 0
    head, _, tail = stat.rpartition(")")
    return head.partition("(")[2], int(tail.split()[1])


def seated(seats: Path, executor: str, number: int, room: int) -> bool:
    """Take a seat in this executor, unless so many sites were there before.

    A site that was restarted leaves its old seat. The seat says the worker's process id.
    """
    for old in seats.glob(f"*/{number}"):
        old.unlink(missing_ok=True)
    here = seats / executor
    here.mkdir(parents=True, exist_ok=True)
    mine = here / str(number)
    mine.write_text(str(os.getpid()))
    taken = sorted((seat.stat().st_mtime_ns, seat.name) for seat in here.iterdir())
    if [name for _, name in taken].index(str(number)) < room:
        return True
    mine.unlink(missing_ok=True)
    return False


def own_address(zookeeper: str) -> str:
    """The address of this machine that faces ZooKeeper, so that all that reach it reach each other.

    Raises:
        OSError: no server of the ensemble answers.
    """
    refusal: OSError | None = None
    for server in zookeeper.partition("/")[0].split(","):
        host, _, port = server.strip().rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), CONNECT_S) as connection:
                address: str = connection.getsockname()[0]
                return address
        except OSError as error:
            refusal = error
    raise refusal or OSError(f"no server in {zookeeper!r}")


def examine(task: SiteTask, numbers: Iterator[int]) -> Iterator[str]:
    """The reason why a site cannot run in this executor; empty if all is well."""
    list(numbers)
    where = socket.gethostname()
    for module in NEEDED:
        try:
            importlib.import_module(module)
        except ImportError as error:
            yield f"on {where} {sys.executable} cannot import {module} ({error}){PACKAGES}"
            return
    if not Path(task.key).is_file():
        yield f"{where} does not see {task.key}: the state folder has to be shared"
    else:
        try:
            tempfile.TemporaryFile(dir=Path(task.key).parent).close()
        except OSError as error:
            yield f"{where} cannot write to the state folder: {error}"
    for component in task.components.stages:
        try:
            component.rehearse()
        except Exception as error:
            yield f"{component.name}: {error}"
    try:
        own_address(task.zookeeper.hosts)
    except OSError as error:
        yield (
            f"{where} does not reach ZooKeeper at {task.zookeeper} ({error}): name an ensemble "
            "under `zookeeper` in the deployment section that driver and executors reach"
        )
