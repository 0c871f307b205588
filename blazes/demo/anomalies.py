"""One query, three ways of coordination, many arrival orders, on Spark.

Every run has three replicas of Report, and each replica an arrival order of its own.
*Uncoordinated* replicas answer from what they have. *Sealed* replicas see the same arrival orders,
and wait for whole campaigns. *Ordered* replicas all follow one order, which each run decides anew:
that of its first replica.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blazes.demo import dataflow
from blazes.demo.ads import Size, Traffic, poor, records, traffic
from blazes.demo.dataflow import ORDERED, SEALED, UNCOORDINATED, WAYS
from blazes.demo.files import land, read_results
from blazes.demo.orders import ArrivalOrder, arrival_order
from blazes.demo.outcome import Answers, Dispute, Outcome, Witness, contested, tally

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZE: Final = Size(servers=4, campaigns=6, ads=5, clicks=3000, requests=60)
REPLICAS: Final = 3
RUNS: Final = 5
AT_ONCE: Final = 3
"""Replicas that run at the same time in the one Spark session."""
SMALL_DATA: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}
"""Settings that save planning and compiling where every micro-batch has some hundred records."""
COUNTED_BY: Final = ("campaign", "id")
NOTE: Final = (
    "Each replica is a unit of the runtime that compiled jobs use, with the dataflow's SQL. In a "
    "compiled job replicas take their order from ZooKeeper; here each is handed the same recorded "
    "order instead."
)


@dataclass(frozen=True, slots=True)
class Task:
    """One replica of one run, coordinated in one way."""

    way: str
    run: int
    replica: int
    """Run and replica count from 0."""

    @property
    def name(self) -> str:
        """As a folder name."""
        return f"{self.way}-{self.run}-{self.replica}"


def demonstrate(
    *,
    runs: int = RUNS,
    seed: int = 1,
    size: Size = SIZE,
    master: str = "local[2]",
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> Outcome:
    """Run everything and count the different answers.

    Args:
        runs: of each way; each has `REPLICAS` arrival orders.
        seed: the same seed gives the same traffic and the same arrival orders.
        size: of the traffic.
        master: Spark master.
        progress: called with how many of the replicas' executions are done, and how many there are.
    """
    from flux_runtime.spark.session import start_session

    began = time.monotonic()
    clicks = traffic(size, seed=seed)
    orders = [
        [
            arrival_order(clicks, random.Random(f"{seed}/{run}/{replica}"))
            for replica in range(REPLICAS)
        ]
        for run in range(runs)
    ]
    tasks = [Task(way, run, rep) for run in range(runs) for way in WAYS for rep in range(REPLICAS)]
    with tempfile.TemporaryDirectory(prefix="blazes-demo-") as name:
        folder = Path(name)
        for run, of_run in enumerate(orders):
            for replica, order in enumerate(of_run):
                land(data_of(folder, run, replica), order.files())
        session = start_session(
            "anomalies", master=master, conf=SMALL_DATA, log=folder / "spark.log"
        )
        try:
            answers = execute(session, folder, clicks, tasks, progress)
        finally:
            session.stop()
        engine = f"Spark {session.version}, {master}"
    given = {
        way: [tuple(answers[Task(way, run, rep)] for rep in range(REPLICAS)) for run in range(runs)]
        for way in WAYS
    }
    right = frozenset(poor(clicks.click_records(), records(clicks.requests), by=COUNTED_BY))
    return Outcome(
        seed=seed,
        size=size,
        runs=runs,
        replicas=REPLICAS,
        poor=len(right),
        ways={way: tally(given[way], right=right) for way in WAYS},
        verdicts=dataflow.verdicts(),
        example=dispute(given[UNCOORDINATED], orders, clicks, right),
        note=NOTE,
        engine=engine,
        seconds=time.monotonic() - began,
    )


def data_of(folder: Path, run: int, replica: int) -> Path:
    """Where the files of one arrival order are."""
    return folder / "data" / f"{run}-{replica}"


def execute(
    session: SparkSession,
    folder: Path,
    clicks: Traffic,
    tasks: Sequence[Task],
    progress: Callable[[int, int], None],
) -> dict[Task, Answers]:
    """Run every task, a few at once; the requests that each answered with "poor"."""
    producers = sorted({server for servers in clicks.campaigns.values() for server in servers})
    found: dict[Task, Answers] = {}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = [pool.submit(answer, session, folder, task, producers) for task in tasks]
        try:
            for task, future in zip(tasks, futures, strict=True):
                found[task] = future.result()
                progress(len(found), len(tasks))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    return found


def answer(session: SparkSession, folder: Path, task: Task, producers: Sequence[str]) -> Answers:
    """Run one replica on all of its arrival order, as a job of its own."""
    from flux_runtime.observe.run_folder import RunFolder
    from flux_runtime.sealing.storage import LocalStorage
    from flux_runtime.spark import Job, Producers, Punctuation, sql
    from flux_runtime.spark.runner import run_job

    text = dataflow.query()

    def report(click: DataFrame, request: DataFrame) -> DataFrame:
        return sql(text, click=click, request=request)

    own = folder / "jobs" / task.name
    job = Job(
        root=data_of(folder, task.run, 0 if task.way == ORDERED else task.replica),
        results=own / "results",
    )
    click = job.source(
        "clicks",
        format="json",
        path="clicks",
        options={"maxFilesPerTrigger": "1"},
        schema=dataflow.schema("clicks"),
        producer="server",
        punctuation=Punctuation(when="sealed", count="count"),
    )
    request = job.source(
        "requests",
        format="json",
        path="requests",
        options={"maxFilesPerTrigger": "1"},
        schema=dataflow.schema("requests"),
    )
    unit = f"Report.response.{task.name}"  # Spark wants one name for one query of a session
    if task.way == SEALED:
        answered = job.seal(
            unit,
            report,
            waits={"click": [click]},
            reads={"request": [request]},
            key=("campaign",),
            producers={"clicks": Producers.all(producers)},
        )
    else:
        answered = job.stateful(
            unit,
            report,
            writes={"click": [click]},
            reads={"request": [request]},
            monotone=False,
            ordered=task.way == ORDERED,
        )
    job.sink("answers", [answered], format="json")
    with RunFolder.at(own / "run") as run:
        run_job(
            job,
            session=session,
            state=LocalStorage(own / "state"),
            run=run,
            look_up=None,
            stop=threading.Event(),
            available_now=True,
        )
    return frozenset(row["request"] for row in read_results(own / "results" / "answers"))


def dispute(
    given: Sequence[Sequence[Answers]],
    orders: Sequence[Sequence[ArrivalOrder]],
    clicks: Traffic,
    right: Answers,
) -> Dispute | None:
    """A request that the replicas of one run answered differently, if there is one.

    Of several, the one about the ad with the most clicks: the plainest mistake.
    """
    asked = {request["request"]: request for request in records(clicks.requests)}
    found: list[Dispute] = []
    for number, (answers, of_run) in enumerate(zip(given, orders, strict=True), 1):
        for name in contested(answers):
            request = asked[name]
            witnesses = []
            for replica, (order, said) in enumerate(zip(of_run, answers, strict=True), 1):
                batch, seen = order.clicks_before(request)
                batches = len(order.batches)
                witnesses.append(Witness(replica, batch, batches, seen, name in said))
            total = sum(
                click["id"] == request["id"] and click["campaign"] == request["campaign"]
                for click in clicks.click_records()
            )
            found.append(Dispute(number, request, total, name in right, tuple(witnesses)))
    return max(found, key=lambda each: each.clicks, default=None)
