"""What Flux costs and how fast it notices, on real site processes of this machine.

    python benchmarks/flux_sites.py throughput [RUNS]
    python benchmarks/flux_sites.py gap [RUNS]
    python benchmarks/flux_sites.py balance [RUNS]
    python benchmarks/flux_sites.py crowded [RUNS]
    python benchmarks/flux_sites.py durable [RUNS]
    python benchmarks/flux_sites.py together [RUNS]

`throughput`: rows per second and CPU per row without replication, in partition pairs, and in
partition pairs and cluster pairs of the papers' protocol, one after another in every run, for two
sizes of a batch; medians and ratios. `gap`: one site is killed while batches come at a steady pace;
the longest time between two results, and the time until all pairs are whole, under both protocols.
`balance`: one site is stopped four fifths of the time; rows per second where copies stay and where
they are balanced. `crowded`: the same, but the site shares one processor with processes that never
wait. `durable`: throughput with a journal that survives the process, and with one that survives the
machine. `together`: CPU per row where the operators of a site run partition by partition, and once
over all that is there.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from flux_lab.example import events, running_example
from flux_lab.local_sites import LocalSites
from flux_lab.papers.hosting import PapersHosting
from flux_runtime.operators.rows import SN
from flux_runtime.protocol.dataflow import Dataflow
from flux_runtime.protocol.vocabulary import Shape
from flux_runtime.site.config import Balance
from flux_runtime.site.hosting import Hosting

SITES = 4
ROWS = 1_474_560
"""Of one run of `throughput`."""
SIZES = (4096, 16_384)
"""Rows of a batch; each stage cuts one into a unit for each of its four partitions."""
PAPERS = "pairs, papers"
CLUSTER = "cluster pairs, papers"
TICKS = os.sysconf("SC_CLK_TCK")


def none() -> Dataflow:
    return _flow(copies=1)


def cluster_pairs() -> Dataflow:
    return _flow(cluster_pairs=True)


def pairs() -> Dataflow:
    return _flow()


def _flow(**how: Any) -> Dataflow:
    shape = Shape(widths=(4, 4), pool=64, ack_every=8, in_hand=4, **how)
    return running_example(shape)


KINDS = {
    "none": (none, False),
    "pairs": (pairs, False),
    PAPERS: (pairs, True),
    CLUSTER: (cluster_pairs, True),
}
"""Dataflows, and whether they run under the papers' protocol."""


def job(
    made: Callable[[], Dataflow], folder: str, *, papers: bool = False, **controller: Any
) -> LocalSites:
    here = str(Path(__file__).parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([here, str(Path(here).parent)])
    return LocalSites(
        dataflow=f"flux_sites:{made.__name__}",
        sites=SITES,
        folder=Path(folder),
        settings={"hosting": PapersHosting() if papers else Hosting()},
        controller_settings={"window": 32, **controller},
    )


def cpu_s(running: LocalSites) -> float:
    used = 0.0
    for process in (*running.controllers, *running.sites.values()):
        if process.poll() is None:
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
            used += (int(fields[11]) + int(fields[12])) / TICKS
    return used


def read_all(running: LocalSites, on_results: Callable[[], None]) -> None:
    reader = running.reader()
    offset, ended = 0, False
    while not ended:
        offset, found, ended = reader.read(offset, timeout_s=30.0)
        if found:
            on_results()
        reader.commit(offset)


def feed(running: LocalSites, batches: list[Any], pace_s: float, at: dict[int, Any]) -> None:
    feeder = running.feeder("events")
    began = time.monotonic()
    for i, batch in enumerate(batches):
        at.get(i, lambda: None)()
        time.sleep(max(0.0, began + i * pace_s - time.monotonic()))
        feeder.offer(i, 0, batch)
    feeder.finish()


def throughput(runs: int) -> None:
    found: dict[tuple[int, str], list[tuple[float, float]]] = {}
    for _ in range(runs):
        for size in SIZES:
            whole = [b.drop_columns(list(SN)) for b in events(ROWS // size, size, keys=10_000)]
            for name, (made, papers) in KINDS.items():
                found.setdefault((size, name), []).append(measured(made, whole, papers=papers))
    medians = {n: [statistics.median(x) for x in zip(*v, strict=True)] for n, v in found.items()}
    for (size, name), (rate, cost) in medians.items():
        print(f"batches of {size:6,} {name:22} {rate:10,.0f} rows/s {cost:8.2f} CPU us/row")
    for size in SIZES:
        for one, other in (("pairs", "none"), ("pairs", PAPERS), (PAPERS, CLUSTER)):
            rate = medians[size, one][0] / medians[size, other][0]
            cost = medians[size, other][1] / medians[size, one][1]
            print(
                f"batches of {size:6,} {one} / {other}: {rate:.2f} by throughput, {cost:.2f} by CPU"
            )


def measured(
    made: Callable[[], Dataflow], batches: list[Any], *, papers: bool = False
) -> tuple[float, float]:
    """Rows per second, and microseconds of CPU for each, of all processes."""
    rows = sum(b.num_rows for b in batches)
    with tempfile.TemporaryDirectory() as folder, job(made, folder, papers=papers) as running:
        before, began = cpu_s(running), time.monotonic()
        thread = threading.Thread(target=feed, args=(running, batches, 0.0, {}))
        thread.start()
        read_all(running, lambda: None)
        thread.join()
        took, used = time.monotonic() - began, cpu_s(running) - before
    return rows / took, used / rows * 1e6


def note(times: list[float]) -> None:
    times.append(time.monotonic())


def kill_noting(running: LocalSites, site: int, killed: list[float]) -> None:
    note(killed)
    running.kill(site)


def gap(runs: int) -> None:
    batches = [b.drop_columns(list(SN)) for b in events(200, 256, keys=1000)]
    found: dict[str, list[tuple[float, float, list[float]]]] = {"pairs": [], PAPERS: []}
    for run in range(runs):
        for name, of in found.items():
            of.append(struck(run % SITES, batches, papers=name == PAPERS))
            print(
                f"{name}, site {run % SITES}: gap {of[-1][0] * 1e3:.0f} ms", of[-1][2], flush=True
            )
    for name, of in found.items():
        gaps, steady, recoveries = zip(*of, strict=True)
        took = statistics.median(itertools.chain(*recoveries))
        print(
            f"{name}: median {statistics.median(gaps) * 1e3:.0f} ms, most {max(gaps) * 1e3:.0f} ms "
            f"(steady: {statistics.median(steady) * 1e3:.0f} ms between results); "
            f"recovery: median {took * 1e3:.0f} ms"
        )


def struck(site: int, batches: list[Any], *, papers: bool) -> tuple[float, float, list[float]]:
    """The gap when a site is killed, what lies between results before, and recovery: seconds."""
    with tempfile.TemporaryDirectory() as folder, job(pairs, folder, papers=papers) as running:
        killed: list[float] = []
        times: list[float] = []
        kill = partial(kill_noting, running, site, killed)
        thread = threading.Thread(target=feed, args=(running, batches, 0.025, {100: kill}))
        thread.start()
        read_all(running, partial(note, times))
        thread.join()
        spans = [(b - a, b) for a, b in itertools.pairwise(times)]
        return (
            max(s for s, at in spans if 0 <= at - killed[0] < 3.0),
            statistics.median(s for s, at in spans if at < killed[0]),
            running.recoveries(),
        )


def many() -> Dataflow:
    shape = Shape(widths=(8, 8), pool=64, ack_every=8, in_hand=4)
    return running_example(shape)


@contextmanager
def held_up(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A process is stopped four fifths of the time, as if others had its processor."""
    over = threading.Event()

    def cycle() -> None:
        while not over.wait(0.02):
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.08)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=cycle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


BURN = """
import os, sys
os.sched_setaffinity(0, [int(sys.argv[1])])
while os.getppid() == int(sys.argv[2]):
    sum(range(100_000))
"""
BURNERS = 8


@contextmanager
def crowded_out(running: LocalSites) -> Iterator[None]:
    """The first site has a ninth of one processor; the others may use all."""
    processors = sorted(os.sched_getaffinity(0))
    if len(processors) < 2:
        sys.exit("crowded: needs two processors")
    first = processors[0]
    for task in Path(f"/proc/{running.sites[0].pid}/task").iterdir():
        os.sched_setaffinity(int(task.name), [first])
    burn = [sys.executable, "-c", BURN, str(first), str(os.getpid())]
    burners = [subprocess.Popen(burn) for _ in range(BURNERS)]
    try:
        yield
    finally:
        for process in burners:
            process.kill()
            process.wait()


@contextmanager
def held_up_first(running: LocalSites) -> Iterator[None]:
    with held_up(running.sites[0]):
        yield


Disturbance = Callable[[LocalSites], AbstractContextManager[None]]


def flood(running: LocalSites, batches: list[Any], over: threading.Event) -> None:
    feeder = running.feeder("events")
    for i in itertools.count():
        if over.is_set():
            break
        feeder.offer(i, 0, batches[i % len(batches)])
    feeder.finish()


def loaded(
    balance: Balance | None, disturbed: Disturbance, seconds: float = 20.0
) -> tuple[float, int]:
    """Rows per second under load on one site, and how many copies that site has at the end."""
    batches = [b.drop_columns(list(SN)) for b in events(64, 2048, keys=10_000)]
    with tempfile.TemporaryDirectory() as folder:
        running = job(many, folder, balance=balance or False)
        with running, disturbed(running):
            over = threading.Event()
            threads = [
                threading.Thread(target=flood, args=(running, batches, over)),
                threading.Thread(target=read_all, args=(running, lambda: None)),
            ]
            for thread in threads:
                thread.start()
            client = running.reader()
            time.sleep(seconds)
            before, began = client.status()["rows"], time.monotonic()
            time.sleep(seconds / 2)
            status = client.status()
            rate = (status["rows"] - before) / (time.monotonic() - began)
            over.set()
            for thread in threads:
                thread.join()
            slow = [s["number"] for s in status["sites"] if s["id"].startswith("0.")]
            return rate, sum(at in slow for *_, at, _ in status["copies"])


def balance(runs: int, disturbed: Disturbance = held_up_first) -> None:
    rates: dict[str, list[float]] = {"static": [], "balanced": []}
    for _ in range(runs):
        for name, how in (("static", None), ("balanced", Balance(policy="load"))):
            rate, copies = loaded(how, disturbed)
            rates[name].append(rate)
            print(f"{name}: {rate:,.0f} rows/s, {copies} copies on the loaded site")
    both = {name: statistics.median(found) for name, found in rates.items()}
    print(f"balanced / static: {both['balanced'] / both['static']:.2f}")


def crowded(runs: int) -> None:
    balance(runs, crowded_out)


def durable(runs: int) -> None:
    found: dict[str, list[tuple[float, float]]] = {}
    for rows in (256, 4096):
        whole = [b.drop_columns(list(SN)) for b in events(300_000 // rows, rows, keys=10_000)]
        total = sum(b.num_rows for b in whole)
        for _ in range(runs):
            for how in ("process", "machine"):
                with (
                    tempfile.TemporaryDirectory(dir=Path.cwd()) as folder,
                    job(pairs, folder, durable=how) as running,
                ):
                    began = time.monotonic()
                    thread = threading.Thread(target=feed, args=(running, whole, 0.0, {}))
                    thread.start()
                    read_all(running, lambda: None)
                    thread.join()
                    took = time.monotonic() - began
                    found.setdefault(f"{rows} rows, {how}", []).append((total / took, took))
    for name, measured in found.items():
        rate, took = (statistics.median(column) for column in zip(*measured, strict=True))
        print(f"{name:22} {rate:10,.0f} rows/s, {took:.2f} s")


class Alone:
    """An operator that sites cannot see through, so it is not shared."""

    def __init__(self, operator: Any) -> None:
        self.process = operator.process
        self.get_state = operator.get_state
        self.install_state = operator.install_state
        self.state_size = operator.state_size


def many_alone() -> Dataflow:
    flow = many()
    return dataclasses.replace(flow, operator=lambda pair: Alone(flow.operator(pair)))


def together(runs: int) -> None:
    for rows, count in ((1024, 150), (4096, 60)):
        whole = [b.drop_columns(list(SN)) for b in events(count, rows, keys=10_000)]
        found: dict[str, list[float]] = {}
        for _ in range(runs):
            for made in (many_alone, many):
                with tempfile.TemporaryDirectory() as folder, job(made, folder) as running:
                    before = cpu_s(running)
                    thread = threading.Thread(target=feed, args=(running, whole, 0.0, {}))
                    thread.start()
                    read_all(running, lambda: None)
                    thread.join()
                    used = (cpu_s(running) - before) / (rows * count) * 1e6
                    found.setdefault(made.__name__, []).append(used)
        for name, costs in found.items():
            print(f"{rows} rows, {name:10} {statistics.median(costs):.2f} CPU us/row {costs}")


MEASUREMENTS: dict[str, Callable[[int], None]] = {
    "throughput": throughput,
    "gap": gap,
    "balance": balance,
    "crowded": crowded,
    "durable": durable,
    "together": together,
}


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else ""
    runs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    if what not in MEASUREMENTS:
        sys.exit(__doc__)
    MEASUREMENTS[what](runs)


if __name__ == "__main__":
    main()
