"""The sites of a Flux stage as tasks of Spark, and their controllers beside the driver.

Each site is a Spark job of one task, which ends with the stage. Spark's own retry is not enough: in
local mode it has none, and where it gives up it ends all tasks of a stage. So a site's job that
ends early is submitted again here, and the others never notice; Spark's settings stay as they are.

Every run has sites, controllers, a key and a membership of its own: what lasts is the operators'
states at some batch, and the recorded order after it.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Final, cast

from pyspark import InheritableThread, SparkContext

import flux_runtime
from flux_runtime.operators.components import Components
from flux_runtime.site.client import Client, DataLost, Unreachable
from flux_runtime.site.config import Balance, Config, ControllerConfig
from flux_runtime.site.key import JobKey
from flux_runtime.spark.context import file_name
from flux_runtime.spark.flux.site_task import (
    CROWDED,
    PACKAGES,
    STOPPED,
    SiteTask,
    examine,
    host_site,
    own_address,
)
from flux_runtime.zookeeper.access import Ensemble
from flux_runtime.zookeeper.client import connect
from flux_runtime.zookeeper.errors import ZooKeeperProblem
from flux_runtime.zookeeper.nodes import app_path, delete

CONTROLLERS: Final = 2
"""A leader and a follower that can take over at once."""
PATIENCE_S: Final = 300.0
"""How long all sites may take to be there."""
ROOM_S: Final = 60.0
"""How long executors may take to be there."""
EARLY_S: Final = 5.0
EARLY_MAX: Final = 6
"""A site that ends so early so often, before the stage ever ran, has something wrong with it."""
AGAIN_S: Final = 0.3
SPREAD_S: Final = 2.0
POLL_S: Final = 0.05
STOP_S: Final = 5.0
CANCEL_S: Final = 20.0
WHY_S: Final = 3.0
RESTARTS_MAX: Final = 5
WITHIN_S: Final = 60.0

PYTHON_ERROR: Final = re.compile(r"(?!org\.|java\.|Caused)[\w.]*(Error|Exception): ")

OnEvent = Callable[..., None]


class SitesFailed(RuntimeError):  # noqa: N818 - what happened
    """The sites of a Flux stage cannot run; the message says why and what to do."""


class Sites:
    """The sites of one stage, from `start` to `stop`.

    Args:
        spark: where they run.
        name: of the unit.
        components: what they compute.
        first: number of the first batch that they are fed.
        count: how many there are.
        of_job: how many the job has in all.
        balance: policy by which partitions move off busy sites, or `none`.
        memory_bytes: of state that a site keeps in memory; None: all of it.
        app: name of this run's application in ZooKeeper.
        zookeeper: the ensemble.
        folder: for the key, the seats and the ingress' journal: new, and shared with executors.
        run_folder: where the controllers write events, reports, and beside them their logs.
        on_event: takes note of an event: kind and fields.
        stopping: set when the job ends; from then on nothing is started any more.
    """

    def __init__(
        self,
        spark: SparkContext,
        *,
        name: str,
        components: Components,
        first: int,
        count: int,
        of_job: int,
        balance: str,
        memory_bytes: int | None,
        app: str,
        zookeeper: Ensemble,
        folder: Path,
        run_folder: Path,
        on_event: OnEvent,
        stopping: threading.Event,
    ) -> None:
        self.name = name
        self.error: BaseException | None = None
        self._spark = spark
        self._count = count
        self._of_job = of_job
        self._folder = folder
        self._run_folder = run_folder
        self._on_event = on_event
        self._group = f"flux-{app}"
        self._log = file_name(name)
        self._stopping = stopping
        self._ran = False
        self._threads: list[threading.Thread] = []
        self._controllers: list[subprocess.Popen[bytes]] = []
        self._restarts: list[float] = []
        self._started = 0
        self._whys: Queue[str] = Queue()
        key, address = JobKey.fresh(), own_address(zookeeper.hosts)
        common: dict[str, Any] = {
            "key": key,
            "dataflow": components,
            "app": app,
            "zookeeper": zookeeper,
            "bind": address,
        }
        self.config = Config(**common)
        self._task = SiteTask(
            components=components,
            app=app,
            zookeeper=zookeeper,
            key=str(folder / "key"),
            seats=str(folder / "seats"),
            memory_bytes=memory_bytes,
        )
        self._controller = ControllerConfig(
            **common,
            sites=count,
            folder=folder,
            run_folder=run_folder,
            stage=name,
            first=first,
            balance=Balance(policy=cast(Any, balance)) if balance != "none" else False,
        )

    def start(self) -> None:
        """Start controllers and sites; they are there some seconds later."""
        self._folder.mkdir(parents=True)
        key = Path(self._task.key)
        key.touch(mode=0o600)
        key.write_text(self.config.key.to_hex())
        self._check_room()
        if self._stopping.is_set():
            return
        for _ in range(CONTROLLERS):
            self._start_controller()
        for number in range(self._count):
            thread = InheritableThread(
                target=self._keep, args=(number,), name=f"{self._group}-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        for task in (self._watch, self._spread):
            other = threading.Thread(target=task, name=f"{self._group}{task.__name__}", daemon=True)
            self._threads.append(other)
            other.start()

    def stop(self) -> None:
        """End sites and controllers; cancel what does not end."""
        self._stopping.set()
        if self._ran:
            with contextlib.suppress(Exception), Client(self.config, patience_s=5.0) as client:
                client.stop()
            self._controllers_ended()
        for controller in self._controllers:
            controller.kill()
            controller.wait()
        end = time.monotonic() + (STOP_S if self._ran else 0.0)
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):  # a site that was just starting
            self._spark.cancelJobGroup(self._group)
            for thread in self._threads:
                thread.join(CANCEL_S)
        Path(self._task.key).unlink(missing_ok=True)

    def _controllers_ended(self) -> None:
        """Wait a moment until the leader has told the sites, and all have ended."""
        end = time.monotonic() + STOP_S
        while time.monotonic() < end and any(c.poll() is None for c in self._controllers):
            time.sleep(POLL_S)

    def there(self) -> bool:
        """Wait until all sites are there; False if the stage ends before that."""
        while self.error is None and not self._stopping.is_set() and not self._ran:
            with contextlib.suppress(Unreachable), Client(self.config, patience_s=1.0) as client:
                client.leader()
                self._ran = True
        return self._ran

    def why_a_site_ended(self) -> str:
        """The last word of the first site to end, if it comes soon."""
        with contextlib.suppress(Empty):
            return self._whys.get(timeout=WHY_S)
        return ""

    # ---- sites

    def _check_room(self) -> None:
        """Wait for slots, and refuse to start where the sites would leave none to the job."""
        began = time.monotonic()
        noted = False
        while (slots := task_slots(self._spark)) <= self._of_job:
            if time.monotonic() > began + ROOM_S:
                raise SitesFailed(too_few(self.name, slots, self._of_job))
            if not noted:
                noted = True
                self._on_event("waiting_for_slots", slots=slots, sites=self._of_job)
            if self._stopping.wait(AGAIN_S):
                return
        numbers = self._spark.parallelize(range(self._count), self._count)
        try:
            problems = numbers.mapPartitions(partial(examine, self._task)).collect()
        except Exception as error:  # before `examine` itself could run
            problems = [f"a task on an executor failed: {brief(error)}{PACKAGES}"]
        if problems:
            raise SitesFailed(f"{self.name}: sites cannot run: {'; '.join(sorted(set(problems)))}")

    def _keep(self, number: int) -> None:
        """Submit a site's job whenever it has ended, until the stage ends."""
        self._spark.setJobGroup(self._group, f"site {number} of {self.name}")
        early = 0
        while not self._stopping.is_set():
            began = time.monotonic()
            why = self._host(number)
            if why == STOPPED or self._stopping.is_set():
                return
            early = early + 1 if time.monotonic() - began < EARLY_S and why != CROWDED else 0
            if early >= EARLY_MAX and not self._ran:
                self.error = SitesFailed(f"{self.name}: site {number} cannot run: {why}")
                return
            if why != CROWDED:
                self._on_event("site_ended", site=number, why=why)
                self._whys.put(f"site {number} ended with {why}")
            self._stopping.wait(AGAIN_S)

    def _room(self, executors: int) -> int:
        """Sites that an executor is to hold at most."""
        return -(-self._count // max(1, executors))

    def _spread(self) -> None:
        """Let sites go to executors that came later than they (see `spreading`)."""
        while not self._stopping.wait(SPREAD_S):
            executors = executor_count(self._spark)
            room = self._room(executors)
            elsewhere = task_slots(self._spark) * (executors - 1) // max(1, executors)
            if not self._ran or elsewhere < self._of_job - room:
                continue
            seats = Path(self._task.seats)
            with contextlib.suppress(Unreachable, DataLost, ZooKeeperProblem):
                number = send_one_site_away(self.config, seats, sites=self._count, room=room)
                if number is not None:
                    self._on_event("site_sent_elsewhere", site=number)

    def _host(self, number: int) -> str:
        room = self._room(executor_count(self._spark))
        try:
            (why,) = (
                self._spark.parallelize([number], 1)
                .mapPartitions(partial(host_site, self._task, room))
                .collect()
            )
        except Exception as error:
            return brief(error)
        return str(why)

    # ---- controllers

    def _start_controller(self) -> None:
        number = self._started
        self._started += 1
        path = [str(Path(flux_runtime.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        with (self._run_folder / f"{self._log}-controller-{number}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "flux_runtime.site.process"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path))},
                start_new_session=True,  # Ctrl-C is for the driver, which ends it in order
            )
        assert process.stdin is not None
        process.stdin.write(pickle.dumps(self._controller))
        process.stdin.close()
        self._controllers.append(process)

    def _watch(self) -> None:
        """Start controllers that died again, and wait for the sites."""
        began = time.monotonic()
        while not self._stopping.wait(AGAIN_S):
            for controller in list(self._controllers):
                if controller.poll() is not None and not self._stopping.is_set():
                    self._controllers.remove(controller)
                    self._replace(controller)
            if not self._ran and time.monotonic() - began > PATIENCE_S and self.error is None:
                self.error = SitesFailed(
                    f"{self.name}: its {self._count} sites were not all there within "
                    f"{PATIENCE_S:g} s; look for tasks that wait or fail in Spark's log, and give "
                    "the application more cores, or the deployment section fewer `sites`"
                )

    def _replace(self, controller: subprocess.Popen[bytes]) -> None:
        now = time.monotonic()
        self._restarts = [at for at in self._restarts if at > now - WITHIN_S]
        self._on_event("controller_ended", pid=controller.pid, status=controller.returncode)
        if len(self._restarts) >= RESTARTS_MAX:
            self.error = SitesFailed(
                f"{self.name}: controllers have died {len(self._restarts) + 1} times in a minute; "
                f"see {self._run_folder}"
            )
            return
        self._restarts.append(now)
        self._start_controller()


def too_few(stage: str, slots: int, sites: int) -> str:
    """Advice where the sites would leave no slot to the rest of the job."""
    return (
        f"{stage}: each of the job's {sites} sites takes a task slot for as long as the job runs, "
        f"and there are {slots} in all after {ROOM_S:g} s: give the application at least "
        f"{sites + 1} cores (spark.executor.instances, spark.executor.cores, spark.cores.max; with "
        "spark.dynamicAllocation.enabled, spark.dynamicAllocation.minExecutors), or set fewer "
        "`sites` in the deployment section"
    )


def task_slots(spark: SparkContext) -> int:
    """How many tasks can run at once in all executors that are there."""
    context: Any = spark._jsc.sc()
    profile = context.resourceProfileManager().defaultResourceProfile()
    return int(context.maxNumConcurrentTasks(profile))


def executor_count(spark: SparkContext) -> int:
    """How many executors there are; the driver counts in local mode only."""
    context: Any = spark._jsc.sc()
    known = int(context.getExecutorMemoryStatus().size())
    return known if context.isLocal() else known - 1


def brief(error: BaseException) -> str:
    """The error that a Spark job failed of, in a line: the last one in Python, else Spark's own."""
    lines = [line.strip(" :\t") for line in str(error).splitlines()]
    python = [line for line in lines if PYTHON_ERROR.match(line)]
    if python:
        return python[-1][:300]
    spark = [line.rpartition("Exception: ")[2] for line in lines if "Exception: " in line]
    message = (spark or [line for line in lines if line] or [type(error).__name__])[0]
    return message.partition(". ")[0][:300]


AWAY_S: Final = 5.0


def send_one_site_away(config: Config, seats: Path, *, sites: int, room: int) -> int | None:
    """Have a site leave an executor that holds too many; its place, or None if all is well.

    While an executor is missing, its sites come back in those that are left, perhaps all in one,
    whose loss would then take both copies of every pair. A site that is sent away from there comes
    back in another executor, and the leader takes the copies of pairs apart (`Ledger`, CT-4).

    Args:
        config: how the stage is reached.
        seats: where sites say which executor they are in.
        sites: how many the stage has.
        room: how many an executor is to hold at most.

    Raises:
        Unreachable: no controller answers.
        DataLost: a pair has lost both copies.
        ZooKeeperProblem: ZooKeeper cannot be reached.
    """
    taken = Counter(seat.parent.name for seat in seats.glob("*/*"))
    if max(taken.values(), default=0) <= room:
        return None
    with Client(config, patience_s=AWAY_S) as client:
        identity = site_to_move(client.status(), sites=sites, room=room)
    if identity is None:
        return None
    assert config.zookeeper is not None
    with connect(config.zookeeper) as zookeeper:  # this fences it, as the leader would
        delete(zookeeper, [f"{app_path(config.app, 'sites')}/{identity}"])
    return int(identity.partition(".")[0])


def site_to_move(status: dict[str, Any], *, sites: int, room: int) -> str | None:
    """The identity of a site that had better be in another executor.

    None while anything recovers: until its copies are elsewhere, a pair has only one.
    """
    if not status["whole"] or len(status["sites"]) < sites:
        return None
    together: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for site in status["sites"]:
        together.setdefault((site["host"], site["executor"]), []).append(site)
    fullest = max(together.values(), key=len)
    if len(fullest) <= room:
        return None
    copies = Counter(at for *_, at, _ in status["copies"])
    identity: str = min(fullest, key=lambda site: copies[site["number"]])["id"]
    return identity
