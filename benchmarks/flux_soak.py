"""Kill, pause and cut a running Flux job many times, and check every record.

    python benchmarks/flux_soak.py --kills 100 --seed 1 [--double] [--balance] [--minutes 30]

Four sites, three controllers and an ensemble of three ZooKeeper servers, all on this machine.
Faults come in an order that the seed decides: sites are killed, paused for longer than their
session, or paused briefly; the leading controller is killed or paused; a ZooKeeper server is
killed; a link between two sites is closed; and copies are moved meanwhile. Controllers and
ZooKeeper fail while sites recover. A site fails only while every pair that it has a copy of has
another whole copy, since no more is promised; with `--double` this is not waited for, and a run
that ends with a reported loss counts as passed if everything before it is right. With `--balance`
the policy moves copies too, several at once; a site may then fail while a pair moves, so a reported
loss counts as passed here as well.

Every result is compared with that of a sequential run without failures. The last line sums up; the
status is 0 if all records came exactly once.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from soaking import DEADLINE_S, Ends, Soak, may_fail, view

from flux_lab.ensemble import LoopbackEnsemble
from flux_lab.example import running_example
from flux_lab.local_sites import LocalSites
from flux_runtime.observe.reader import read_run
from flux_runtime.operators.rows import number
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Pair, Shape
from flux_runtime.site.client import Client, DataLost
from flux_runtime.site.config import Balance

SITES, CONTROLLERS, SERVERS = 4, 3, 3
ROWS, KEYS = 24, 300
SESSION_S = 10.0
BALANCE = Balance(policy="load", quiet=0.0, delta_min_s=0.5, moves_max=3)
FAULTS = {
    "site killed": 8,
    "site paused": 1,
    "site held up": 1,
    "leader killed": 2,
    "leader paused": 1,
    "server killed": 2,
    "link closed": 2,
}
"""How often each comes."""


def flow() -> Dataflow:
    """The running example: three partitions of sessions, two of windows."""
    return running_example(Shape(widths=(3, 2), ack_every=4, pool=64, in_hand=4))


def batches(seed: int) -> Iterator[Any]:
    """The source: start and end events, without end."""
    draw = np.random.default_rng(seed)
    ended: dict[int, int] = {}
    for n in range(1 << 40):
        key = draw.integers(0, KEYS, ROWS)
        end = np.empty(ROWS, np.int8)
        for i, k in enumerate(key.tolist()):
            end[i] = ended[k] = 1 - ended.get(k, 1)
        columns = {"src": key % 20, "dst": key // 20, "app": key % 2, "end": end}
        columns["time"] = (n * ROWS + np.arange(ROWS, dtype=np.int64)) * 3
        yield pa.RecordBatch.from_pydict({name: pa.array(v) for name, v in columns.items()})


def expected(seed: int) -> Iterator[tuple[int, Any]]:
    """What a sequential run without failures gives, batch by batch."""
    dataflow = flow()
    operators = {pair: dataflow.operator(pair) for pair in dataflow.shape.pairs()}
    widths = (*dataflow.shape.widths, 1)
    for n, rows in enumerate(batches(seed)):
        inputs: dict[Pair, list[Any]] = {}
        for part, its in dataflow.split(0, number(rows, n), widths[0]).items():
            inputs.setdefault(Pair(0, part), []).append(its)
        for pair, operator in operators.items():
            if its := inputs.get(pair):
                made = operator.process(its[0] if len(its) == 1 else dataflow.merge(its))
                after = dataflow.split(pair.stage + 1, made, widths[pair.stage + 1])
                for part, more in after.items():
                    inputs.setdefault(Pair(pair.stage + 1, part), []).append(more)
        if last := inputs.get(dataflow.shape.egress.pair):
            yield n, dataflow.merge(last)


class FedEnds(Ends):
    """Feeds at a steady pace and checks every result; a thread each."""

    def __init__(self, job: LocalSites, *, seed: int, pace_s: float) -> None:
        super().__init__()
        self.job = job
        self.seed = seed
        self.pace_s = pace_s
        self.start(self._feed, self._read)

    def _feed(self) -> None:
        feeder = self.job.feeder("events", patience_s=DEADLINE_S)
        for n, rows in enumerate(batches(self.seed)):
            if self.enough.is_set():
                break
            feeder.offer(n, 0, rows)
            self.fed = n + 1
            time.sleep(self.pace_s)
        feeder.finish()

    def _read(self) -> None:
        reader = self.job.reader(patience_s=DEADLINE_S)
        awaited = expected(self.seed)
        offset, ended = 0, False
        while not ended:
            offset, found, ended = reader.read(offset, timeout_s=2.0)
            for batch, rows in found:
                want, what = next(awaited)
                if batch != want or not rows.equals(what):
                    raise AssertionError(f"result of batch {batch} where {want} was due\n{rows}")
            if found:
                self.came(len(found), sum(rows.num_rows for _, rows in found))
                reader.commit(offset)
            elif self.waited_s() > DEADLINE_S:
                raise AssertionError(f"no result for {DEADLINE_S:g} s at {offset}")
        left, _ = next(awaited)
        if left < self.fed:
            raise AssertionError(f"it ended without the result of batch {left}")
        self.done.set()


class SitesSoak(Soak):
    """Faults of processes, and what repairs them."""

    def __init__(self, job: LocalSites, ensemble: LoopbackEnsemble, options: Any) -> None:
        ends = FedEnds(job, seed=options.seed, pace_s=options.pace)
        super().__init__(FAULTS, seed=options.seed, ends=ends)
        self.job = job
        self.ensemble = ensemble
        self.double: bool = options.double
        self.client = Client(job.site_config, patience_s=DEADLINE_S)
        self.planned: set[int] = set()
        self.incarnations = SITES

    # ---- what is

    def tend(self) -> None:
        """Start sites and controllers anew that have ended."""
        for site, process in list(self.job.sites.items()):
            if process.poll() is not None:
                if process.pid not in self.planned:
                    self.unplanned += 1
                    self.note(f"site {site} ended by itself, status {process.returncode}")
                self.job.ready(self.job.start_site(site), DEADLINE_S)
                self.incarnations += 1
        for process in [p for p in self.job.controllers if p.poll() is not None]:
            if process.pid not in self.planned:
                self.unplanned += 1
                self.note(f"a controller ended by itself, status {process.returncode}")
            self.job.controllers.remove(process)
            new = self.job.start_controller()
            host, port = self.job.ready(new, DEADLINE_S)
            self.job.addresses[new.pid] = (host, port)

    def may_fail(self, status: dict[str, Any], *sites: int) -> bool:
        """Whether each of these sites has only copies whose partner is whole."""
        numbers = view(status)
        if any(site not in numbers for site in sites):
            return False
        settled = len(numbers) == SITES or not status["whole"]
        return self.double or (settled and all(may_fail(status, {numbers[site]}) for site in sites))

    def leader(self) -> Any:
        """The process of the controller that leads."""

        def found() -> Any:
            address = self.client.finder.leader()
            for process in self.job.controllers:
                if self.job.addresses.get(process.pid) == address and process.poll() is None:
                    return process
            return None

        return self.until(found, "a controller leads")

    # ---- faults

    def one(self) -> None:
        """One fault, and what has to be repaired at once."""
        kind = self.draw.choices(list(FAULTS), list(FAULTS.values()))[0]
        self.counts[kind] += 1
        if kind.startswith("site") or kind == "link closed":
            self.site_fault(kind)
        elif kind.startswith("leader"):
            self.leader_fault(kind)
        else:
            self.server_fault()
        for _ in range(self.draw.choice([0, 0, 1, 2])):
            self.move()
        time.sleep(self.draw.uniform(0.0, 0.6))

    def site_fault(self, kind: str) -> None:
        """A site fails; perhaps something of the control plane does so at the same time."""
        sites = self.draw.sample(range(SITES), 2)[: 2 if kind == "link closed" else 1]
        status = self.until(
            lambda: (s := self.client.status()) and self.may_fail(s, *sites) and s,
            f"sites {sites} may fail",
        )
        numbers = view(status)
        processes = [self.job.sites[site] for site in sites]
        self.planned |= {process.pid for process in processes}
        self.note(f"{kind}: {sites}")
        if kind == "link closed":
            self.client.cut(numbers[sites[0]], numbers[sites[1]])
        elif kind == "site killed":
            os.kill(processes[0].pid, signal.SIGKILL)
        else:
            os.kill(processes[0].pid, signal.SIGSTOP)
        if kind == "site held up":
            time.sleep(self.draw.uniform(0.1, 1.0))
            os.kill(processes[0].pid, signal.SIGCONT)
            return
        if self.draw.random() < 0.25:
            time.sleep(self.draw.choice([0.0, 0.05, 0.3]))
            also = self.draw.choice(["leader killed", "server killed"])
            self.counts[also] += 1
            if also == "leader killed":
                self.leader_fault(also)
            else:
                self.server_fault()
        gone = {numbers[site] for site in sites}

        def removed() -> bool:
            if kind == "link closed":  # the leader that was asked may have died over it
                self.client.cut(numbers[sites[0]], numbers[sites[1]])
            left = {s["number"] for s in self.client.status()["sites"]}
            return bool(gone - left)

        self.until(removed, f"one of {sites} is removed")
        if kind == "site paused":
            os.kill(processes[0].pid, signal.SIGCONT)
        self.until(lambda: any(p.poll() is not None for p in processes), f"{sites}: one ends")
        self.planned -= {p.pid for p in processes if p.poll() is None}
        self.tend()

    def leader_fault(self, kind: str) -> None:
        """The leading controller dies, or is paused until another one leads."""
        process = self.leader()
        self.planned.add(process.pid)
        self.note(kind)
        if kind == "leader killed":
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            self.tend()
            return
        before = self.client.finder.leader()
        os.kill(process.pid, signal.SIGSTOP)
        try:
            self.until(lambda: self.client.finder.leader() not in (None, before), "a new leader")
            time.sleep(self.draw.uniform(0.0, 1.0))
        finally:
            os.kill(process.pid, signal.SIGCONT)
        self.planned.discard(process.pid)

    def server_fault(self) -> None:
        """A ZooKeeper server dies and comes back."""
        server = self.draw.randint(1, SERVERS)
        self.note(f"server {server} killed")
        self.ensemble.kill(server)
        time.sleep(self.draw.uniform(0.0, 2.0))
        self.ensemble.restart(server)

    def move(self) -> None:
        """Some copy moves somewhere, if that is possible now."""
        status = self.client.status()
        stage, part, copy, *_ = self.draw.choice(status["copies"])
        site = self.draw.choice(status["sites"])["number"]
        self.client.move(stage, part, copy, site)
        self.counts["moves asked for"] += 1

    # ---- the run

    def run(self, kills: int, minutes: float) -> None:
        """So many faults, or so many minutes of them, then the end of the input."""
        end = time.monotonic() + 60 * minutes
        self.until(lambda: self.ends.results > 5, "results come")
        while self.kills < kills and time.monotonic() < end:
            self.one()
        self.until(lambda: self.client.status()["whole"], "all pairs are whole again")
        self.ends.enough.set()
        self.until(self.ends.done.is_set, "the end of the output")
        if self.ends.error is not None:
            raise self.ends.error

    def told(self) -> str:
        """One line."""
        moved = Counter(read_run(self.job.run_folder).counts)
        return self.summary(
            f"{moved['move']} moves, {moved['view_change']} view changes, {self.incarnations} "
            f"incarnations of {SITES} sites ({self.unplanned} processes ended unplanned)"
        )


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100, help="how many faults")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--double", action="store_true", help="a pair may lose both copies")
    parser.add_argument("--pace", type=float, default=0.03, help="seconds between batches")
    parser.add_argument(
        "--minutes", type=float, default=1e6, help="end after so many at the latest"
    )
    parser.add_argument("--balance", action="store_true", help="the policy moves copies too")
    parser.add_argument("--keep", type=Path, help="folder for logs; a temporary one if left out")
    options = parser.parse_args()
    here = Path(__file__).resolve().parent
    os.environ["PYTHONPATH"] = os.pathsep.join([str(here), str(here.parent)])
    with contextlib.ExitStack() as stack:
        folder = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ensemble = stack.enter_context(
            LoopbackEnsemble(folder / "zookeeper", size=SERVERS, heap_mb=96, tick_ms=1000)
        )
        job = LocalSites(
            dataflow="flux_soak:flow",
            sites=SITES,
            folder=folder / "job",
            zookeeper=ensemble.hosts,
            controllers=CONTROLLERS,
            settings={"session_timeout_s": SESSION_S},
            controller_settings={"balance": BALANCE if options.balance else False},
        )
        stack.enter_context(job)
        soak = SitesSoak(job, ensemble, options)
        try:
            soak.run(options.kills, options.minutes)
        except DataLost as loss:
            allowed = options.double or options.balance
            print(f"{'reported' if allowed else 'LOST'}: {loss}\nafter {soak.told()}")
            return 0 if allowed else 1
        except BaseException as error:
            print(f"FAILED with seed {options.seed} after {soak.told()}: {error}")
            raise
        print(f"passed with seed {options.seed}: {soak.told()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
