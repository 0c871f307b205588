"""Run the session job on site processes of this machine, without Spark, until Ctrl-C.

    python run.py                              4 sites, 20,000 packets a second
    python run.py --seconds 60 --rate 50000 --controllers 2

Sites that die are started again, as Spark does with its tasks, and come back as standbys. Meanwhile
`blazes top`, `python -m examples.sessions.disturb --kill-site 2`; afterwards `blazes report`, and
`python expected.py --check target/sessions/runs/latest`.
"""

import argparse
import contextlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import operators
import pyarrow as pa
import pyarrow.parquet as pq
from packets import packets

from flux_lab.local_sites import LocalSites
from flux_runtime.observe.exposition import serving
from flux_runtime.observe.run_folder import RunFolder
from flux_runtime.operators.rows import SN, KeySplit, merge, rows_size
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Shape
from flux_runtime.site.config import Balance
from flux_runtime.zookeeper.embedded import EmbeddedZooKeeper

HERE = Path(__file__).resolve().parent
COMMIT_ROWS = 50_000
COMMIT_S = 0.25
"""Results are written to a file and committed when there are so many, or so much time is over."""


def dataflow() -> Dataflow:
    """Sessions in four partitions, statistics in four, every partition a pair."""
    makers = (operators.sessions, operators.statistics)
    return Dataflow(
        shape=Shape(widths=(4, 4), pool=64, ack_every=8, in_hand=4),
        operator=lambda pair: makers[pair.stage](),
        split=KeySplit({0: ("src", "dst"), 1: ("app", "src")}),
        merge=merge,
        rows_size=rows_size,
    )


class Feed(threading.Thread):
    """Offers packets at a steady rate; `count` says how many batches when it is over."""

    def __init__(self, job: LocalSites, stop: threading.Event, args: argparse.Namespace) -> None:
        super().__init__(daemon=True)
        self.job, self.stop, self.args = job, stop, args
        self.count = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        """Until there is enough, or to the end of the batch when it is stopped."""
        try:
            self._run()
        except BaseException as error:
            self.error = error
            raise

    def _run(self) -> None:
        feeder, args = self.job.feeder("packets"), self.args
        began = time.monotonic()
        for batch in packets(args.rows, pairs=args.pairs, seed=args.seed):
            due = began + self.count * args.rows / args.rate
            enough = args.seconds is not None and due - began >= args.seconds
            if enough or self.stop.wait(max(0.0, due - time.monotonic())):
                break
            feeder.offer(self.count, 0, batch)
            self.count += 1
        feeder.finish()


def restart_the_dead(job: LocalSites, over: threading.Event) -> None:
    """As Spark does with tasks: the same place, a new incarnation."""
    while not over.wait(0.5):
        for site, process in list(job.sites.items()):
            if process.poll() is not None and not over.is_set():
                job.start_site(site)


class Results:
    """Writes results to files, each whole or not there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        self.held: list[Any] = []
        self.rows = self.files = 0
        self.at = time.monotonic()

    def add(self, rows: Any) -> None:
        """Take a batch."""
        self.held.append(rows.drop_columns(list(SN)))
        self.rows += rows.num_rows

    def due(self, *, anyway: bool = False) -> bool:
        """Write what is held if it is time; whether everything is on disk now."""
        many = sum(rows.num_rows for rows in self.held) >= COMMIT_ROWS
        if self.held and (anyway or many or time.monotonic() - self.at > COMMIT_S):
            name = self.folder / f"{self.files:08d}.parquet"
            temporary = self.folder / ".writing"
            pq.write_table(pa.Table.from_batches(self.held), temporary)
            temporary.rename(name)
            self.held, self.files, self.at = [], self.files + 1, time.monotonic()
        return not self.held


def read(job: LocalSites, feed: Feed, run: RunFolder, results: Results) -> None:
    """Read results until the end."""
    reader, offset, ended = job.reader(), 0, False
    before, at = 0, time.monotonic()
    while not ended:
        if feed.error is not None:
            raise feed.error
        offset, found, ended = reader.read(offset, timeout_s=0.5)
        for _, rows in found:
            results.add(rows)
        if results.due(anyway=ended):
            reader.commit(offset)
        now = time.monotonic()
        if now - at > 0.5 or ended:
            rows_in = feed.count * feed.args.rows
            run.metrics(
                job.controller_config.app,
                batches=offset,
                rows_in=rows_in,
                rows_out=results.rows,
                rows_per_s=round((rows_in - before) / (now - at), 1),
            )
            before, at = rows_in, now


@contextlib.contextmanager
def sites(args: argparse.Namespace, run: RunFolder) -> Iterator[LocalSites]:
    """The sites and controllers, with ZooKeeper where there are several controllers."""
    paths = [str(HERE), str(HERE.parents[1]), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # where the sites find `dataflow`
    with contextlib.ExitStack() as stack:
        zookeeper = None
        if args.controllers > 1:
            server = EmbeddedZooKeeper(run.path / "zookeeper").start()
            stack.callback(server.stop)
            zookeeper = server.hosts
        balance = Balance(policy=args.balance) if args.balance != "none" else False
        job = LocalSites(
            dataflow="run:dataflow",
            sites=args.sites,
            folder=run.path / "sites",
            run_folder=run.path,
            zookeeper=zookeeper,
            controllers=args.controllers,
            app="sessions",
            controller_settings={"window": 32, "balance": balance},
        )
        yield stack.enter_context(job)


def main() -> int:
    """Run the job."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--sites", type=int, default=4)
    add("--controllers", type=int, default=1, help="more than one needs Java, for ZooKeeper")
    add(
        "--balance",
        choices=("none", "load", "memory", "hybrid"),
        default="none",
        help="by what partitions move off a site, such as one under `disturb --load`",
    )
    add("--rate", type=float, default=20_000, help="packets per second")
    add("--rows", type=int, default=1000, help="packets of a batch")
    add("--pairs", type=int, default=20_000, help="pairs of hosts")
    add("--seconds", type=float, help="how long to send; without it until Ctrl-C")
    add("--seed", type=int, default=0)
    add("--target", type=Path, default=Path("target/sessions"), help="where run folders go")
    add("--metrics-port", type=int, help="serve the metrics on this port of 127.0.0.1")
    args = parser.parse_args()
    run = RunFolder.create(args.target / "runs")
    results = Results(run.path / "results")
    stop, over = threading.Event(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())  # the packets on their way are still read
    with run, serving(run.path, args.metrics_port), sites(args, run) as job:
        run.event("job_started", pid=os.getpid(), sites=args.sites)
        print(f"running; run folder {run.path}", flush=True)
        feed = Feed(job, stop, args)
        feed.start()
        threading.Thread(target=restart_the_dead, args=(job, over), daemon=True).start()
        reading = threading.Thread(target=read, args=(job, feed, run, results), daemon=True)
        reading.start()
        reading.join()
        feed.join()
        over.set()
        job.clients[0].stop()
        given = {"rows": args.rows, "pairs": args.pairs, "seed": args.seed}
        said = json.dumps({"batches": feed.count, **given})
        (run.path / "input.json").write_text(said + "\n")
        status = "stopped" if stop.is_set() else "finished"
        run.event("job_stopped", status=status)
        run.finish({"status": status})
    print(f"{status}: {feed.count * args.rows:,} packets, {results.rows:,} results; {run.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
