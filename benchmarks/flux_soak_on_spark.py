"""Kill what a Flux stage on Spark stands on, many times, and check every record.

    python benchmarks/flux_soak_on_spark.py --kills 20 --seed 1 [--minutes 30]
    python benchmarks/flux_soak_on_spark.py --kills 20 --master standalone

The session job (examples/sessions), compiled, on `local-cluster` or on a standalone master and
workers of its own, with an ensemble of three ZooKeeper servers, all on this machine; files of
packets arrive meanwhile. Faults come in an order that the seed decides, each kind as often in every
twenty: SIGKILL for the Python worker of a site, the `pyspark.daemon` of an executor with a worker,
an executor's JVM with all its sites, the leading controller, a ZooKeeper server, on a standalone
cluster a worker with its executor; a site stopped for longer than its session; a link between two
sites closed. Some of them come two at once. A site fails only while every pair that it has a copy
of has another whole copy that does not fail with it, and no copy moves: no more is promised.

What is committed is compared, record by record and in order, with what plain Python makes of the
same packets. The last line sums up; the status is 0 if all records came exactly once.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sessions_on_spark import executors
from soaked_sessions import SITES, FileEnds, SparkJob
from soaking import Soak, may_fail, view
from spark_processes import (
    SPARK_HOME,
    Standalone,
    application,
    parent,
    standalone,
)

from flux_lab.ensemble import LoopbackEnsemble
from flux_runtime.site.client import DataLost
from flux_runtime.spark.flux.sites import RESTARTS_MAX, WITHIN_S

ROOT = Path(__file__).resolve().parents[1]
SERVERS, EXECUTORS = 3, 3
MASTER = f"local-cluster[{EXECUTORS},4,1024]"
FAULTS = {
    "site killed": 7,
    "daemon killed": 2,
    "executor killed": 3,
    "leader killed": 3,
    "server killed": 3,
    "site paused": 1,
    "link closed": 1,
}
"""How often each comes in twenty."""
ON_STANDALONE = {**FAULTS, "site killed": 6, "Spark worker killed": 1}
CONTROL = ("leader killed", "server killed")
"""May come at the same time as one of the others."""
AT_ONCE = 0.3
"""How often that is so."""


@dataclass(frozen=True)
class Victim:
    """What fails together: these sites, by number, when these processes get a signal."""

    sites: frozenset[int]
    processes: tuple[int, ...]


def moving(status: dict[str, Any]) -> bool:
    """Whether copies of a pair are moved into different executors, now or once all are whole.

    While one of them moves there is only the other one, whose loss is that of the pair.
    """
    executor_of = {site["number"]: site["executor"] for site in status["sites"]}
    pairs: dict[tuple[int, int], set[str]] = {}
    for stage, part, *_, at, _ in status["copies"]:
        pairs.setdefault((stage, part), set()).add(executor_of.get(at, ""))
    together = any(len(executors) < 2 for executors in pairs.values())
    return together and len(set(executor_of.values())) > 1


class SparkSoak(Soak):
    """Faults of what a job on Spark stands on; Spark and the job repair them."""

    def __init__(
        self,
        job: SparkJob,
        ends: FileEnds,
        ensemble: LoopbackEnsemble,
        cluster: Standalone | None,
        *,
        seed: int,
    ) -> None:
        self.weights = FAULTS if cluster is None else ON_STANDALONE
        super().__init__(self.weights, seed=seed, ends=ends)
        self.job = job
        self.ends: FileEnds = ends
        self.ensemble = ensemble
        self.cluster = cluster
        self.next: deque[str] = deque()
        self.failed = 0
        self.app = ""
        self.leaders_killed: deque[float] = deque(maxlen=RESTARTS_MAX - 1)
        self.mended = threading.Event()
        self.mended.set()
        self.until(job.hosting, "sites are started")
        self.client = job.client()

    def tend(self) -> None:
        """Nothing but the job itself repairs anything; it must not end."""
        if self.job.process.poll() is not None:
            raise AssertionError(f"the job has ended\n{self.job.said()}")

    # ---- what may fail

    def victims(self, kind: str) -> list[Victim]:
        """What this may happen to now."""
        status = self.client.status()
        pids = {int(n): int(load["pid"]) for n, load in status["loads"].items()}
        if not pids.keys() >= set(view(status).values()):
            return []  # a new leader has not heard of all of them
        if moving(status):
            return []
        together: dict[int, set[int]] = {}
        for site in status["sites"]:
            together.setdefault(int(site["executor"].rpartition("-")[2]), set()).add(site["number"])
        if kind in ("site killed", "site paused"):
            found = [Victim(frozenset({n}), (pids[n],)) for n in view(status).values()]
        elif kind == "daemon killed":
            workers = {executor: pids[min(sites)] for executor, sites in together.items()}
            found = [
                Victim(frozenset(sites), (parent(workers[executor]), workers[executor]))
                for executor, sites in together.items()
            ]
        else:
            self.app = application(next(iter(together))) or self.app
            if len(executors(self.app)) < EXECUTORS:
                return []
            found = [
                Victim(frozenset(s), (e if kind == "executor killed" else parent(e),))
                for e, s in together.items()
            ]
        real = [v for v in found if min(v.processes) > 1]  # what is orphaned belongs to nobody
        return [victim for victim in real if may_fail(status, set(victim.sites))]

    def links(self) -> list[tuple[int, int]]:
        """Pairs of sites of which either may fail."""
        status = self.client.status()
        if moving(status):
            return []
        free = [n for n in view(status).values() if may_fail(status, {n})]
        return list(itertools.combinations(free, 2))

    # ---- faults

    def one(self) -> None:
        """One fault, or two of different kinds at once."""
        if not self.next:
            kinds = [kind for kind, often in self.weights.items() for _ in range(often)]
            self.draw.shuffle(kinds)
            self.next.extend(kinds)
        kind = self.next.popleft()
        if kind in CONTROL:
            self.control_fault(kind)
        else:
            also = next((k for k in self.next if k in CONTROL), None)
            if also is not None and self.draw.random() < AT_ONCE:
                self.next.remove(also)
            else:
                also = None
            self.site_fault(kind, also)
        time.sleep(self.draw.uniform(0.0, 0.5))

    def site_fault(self, kind: str, also: str | None) -> None:
        """Sites fail; perhaps something of the control plane does so at the same time."""
        if kind == "link closed":
            pair = self.draw.choice(self.until(self.links, "a link may be closed"))
            victim = Victim(frozenset(pair), ())
        else:
            victim = self.draw.choice(self.until(lambda: self.victims(kind), f"{kind}: one may"))
        self.count(kind, f": sites {sorted(victim.sites)}")
        for pid in victim.processes:
            with contextlib.suppress(ProcessLookupError):  # of a daemon that is gone
                os.kill(pid, signal.SIGSTOP if kind == "site paused" else signal.SIGKILL)
        if also is not None:
            time.sleep(self.draw.choice([0.0, 0.05, 0.3]))
            self.control_fault(also)

        def removed() -> bool:
            if kind == "link closed":  # the leader that was asked may have died over it
                self.client.cut(*victim.sites)
            gone = victim.sites - set(view(self.client.status()).values())
            return bool(gone) if kind == "link closed" else gone == victim.sites

        self.until(removed, f"{kind}: {sorted(victim.sites)} removed")
        self.failed += 1 if kind == "link closed" else len(victim.sites)
        if kind == "site paused":
            os.kill(victim.processes[0], signal.SIGCONT)
        elif kind == "Spark worker killed":
            assert self.cluster is not None
            for number, worker in enumerate(self.cluster.workers):
                if worker.pid in victim.processes:
                    self.cluster.restart(number)

    def control_fault(self, kind: str) -> None:
        """The leading controller dies, or a ZooKeeper server, which comes back after a while."""
        if kind == "leader killed":
            self.until(self.leader_may_die, "a controller may die")
            leader = int(self.client.status()["pid"])
            self.count(kind, "")
            self.leaders_killed.append(time.monotonic())
            os.kill(leader, signal.SIGKILL)
            return
        self.until(self.mended.is_set, "all servers serve")
        server, pause_s = self.draw.randint(1, SERVERS), self.draw.uniform(0.0, 2.0)
        self.count(kind, f": {server}")
        self.mended.clear()
        self.ensemble.kill(server)

        def mend() -> None:
            time.sleep(pause_s)
            self.ensemble.restart(server)
            self.mended.set()

        self.ends.start(mend)

    def leader_may_die(self) -> bool:
        """More deaths within a minute mean to the driver that controllers cannot run."""
        oldest = self.leaders_killed[0] if self.leaders_killed else 0.0
        full = len(self.leaders_killed) == self.leaders_killed.maxlen
        return not full or time.monotonic() - oldest > WITHIN_S + 5

    def count(self, kind: str, of: str) -> None:
        """Count a fault, and show it."""
        self.counts[kind] += 1
        self.note(f"{kind}{of}")

    # ---- the run

    def run(self, kills: int, minutes: float) -> None:
        """So many faults, or so many minutes of them, then the end of the input."""
        end = time.monotonic() + 60 * minutes
        self.until(lambda: self.ends.results > 3, "results come")
        while self.kills < kills and time.monotonic() < end:
            self.one()
        self.until(lambda: self.client.status()["whole"], "all pairs are whole again")
        self.until(self.mended.is_set, "all servers serve")
        self.note("no more faults; all is whole")
        self.ends.finish()
        self.until(self.ends.done.is_set, "the end of the output")
        self.note("all records are there")
        self.client.close()
        self.job.stop()
        self.ends.check()

    def tidy(self) -> None:
        """Delete what `local-cluster` has left of the application's executors."""
        if self.app:
            shutil.rmtree(SPARK_HOME / "work" / self.app, ignore_errors=True)

    def told(self) -> str:
        """One line."""
        noted = self.job.noted()
        kinds = Counter(noted.counts)
        unplanned = kinds["site_failed"] - self.failed - kinds["site_sent_elsewhere"]
        took = [event.fields["seconds"] for event in noted.events if event.kind == "recovered"]
        return self.summary(
            f"{kinds['site_joined'] - SITES} sites and {kinds['controller_ended']} controllers "
            f"restarted, {kinds['site_sent_elsewhere']} sites spread, {kinds['move']} copies moved "
            f"apart, {unplanned} sites failed unplanned, whole again after "
            f"{statistics.median(took or [0.0]) * 1e3:.0f} ms (median)"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    add = parser.add_argument
    add("--kills", type=int, default=100, help="how many faults")
    add("--seed", type=int, default=0)
    add("--master", default=MASTER, help=f"{MASTER} if left out; or standalone")
    add("--pace", type=float, default=0.5, help="seconds between files")
    add("--minutes", type=float, default=1e6, help="end after so many at the latest")
    add("--keep", type=Path, help="folder for logs; a temporary one if left out")
    options = parser.parse_args()
    os.environ["PYTHONPATH"] = str(ROOT)
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cluster, master = None, options.master
        if master == "standalone":
            cluster = stack.enter_context(standalone(folder / "spark", workers=EXECUTORS))
            master = cluster.url
        ensemble = stack.enter_context(
            LoopbackEnsemble(folder / "zookeeper", size=SERVERS, heap_mb=96, tick_ms=1000)
        )
        ends = FileEnds(folder / "job", pace_s=options.pace)
        job = SparkJob(folder / "job", master=master, zookeeper=ensemble.hosts)
        stack.callback(job.kill)
        ends.begin()
        soak = SparkSoak(job, ends, ensemble, cluster, seed=options.seed)
        stack.callback(soak.tidy)
        try:
            soak.run(options.kills, options.minutes)
        except BaseException as error:
            what = "LOST" if isinstance(error, DataLost) else "FAILED"
            print(f"{what} with seed {options.seed} after {soak.told()}: {error}\n{job.said()}")
            raise
        print(f"passed with seed {options.seed}: {soak.told()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
