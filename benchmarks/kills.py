"""The session job under load, a worker killed: Flux beside Spark Structured Streaming.

    python benchmarks/kills.py [--kills 3] [--rate 2000] [--only flux|spark]

The same packets (examples/sessions) at the same rate through both: four Flux sites, one of which is
killed with SIGKILL, and two Spark executors (local-cluster), one of which is killed. Prints the gap
in the output (the longest time from one result to the next after a kill, beside the usual time
between results) and, for Flux, the time until every pair is whole again; medians over the kills.
The output of both is compared, record by record, with what it must be. Exit status 1 if it differs.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SESSIONS = HERE.parent / "examples" / "sessions"
sys.path[:0] = [str(SESSIONS), str(HERE.parent)]

import expected  # noqa: E402
from packets import packets  # noqa: E402

from flux_runtime.operators.rows import SN  # noqa: E402
from flux_runtime.site.local import LocalSites  # noqa: E402

SITES = 4
AFTER_S = 12.0
"""How long after a kill the longest gap is looked for, and the time from one kill to the next."""
WARM_S = 8.0


@dataclass
class Run:
    """What was seen of one job.

    Attributes:
        times: when results came.
        kills: when a worker was killed.
        rows: the results.
    """

    times: list[float] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    rows: list[tuple[int, int, float, float]] = field(default_factory=list)
    recoveries_s: list[float] = field(default_factory=list)

    def gaps_s(self) -> list[float]:
        """After each kill, the longest time from one result to the next."""
        spans = list(itertools.pairwise(self.times))
        return [
            max((b - a for a, b in spans if b > kill and a < kill + AFTER_S), default=float("inf"))
            for kill in self.kills
        ]

    def usual_s(self) -> float:
        """The median time between results before the first kill."""
        spans = [b - a for a, b in itertools.pairwise(self.times) if b < self.kills[0]]
        return statistics.median(spans[len(spans) // 3 :])

    def add(self, rows: Iterator[tuple[int, int, float, float]]) -> None:
        """Results that have come now."""
        more = list(rows)
        if more:
            self.times.append(time.monotonic())
            self.rows += more


def at_each(kills: int, began: float, every_s: float, kill: Callable[[int], None]) -> None:
    """Kill so often."""
    for number in range(kills):
        time.sleep(max(0.0, began + WARM_S + number * every_s - time.monotonic()))
        kill(number)


def flux(args: argparse.Namespace, batches: int) -> Run:
    """The job on site processes."""
    seen = Run()
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SESSIONS), str(HERE.parent)])
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalSites(
            dataflow="run:dataflow",
            sites=SITES,
            folder=Path(folder),
            controller_settings={"window": 32},
        ) as job,
    ):
        feeder, reader = job.feeder("packets"), job.reader()
        began = time.monotonic()

        def feed() -> None:
            stream = islice(packets(args.rows, pairs=args.pairs), batches)
            for number, batch in enumerate(stream):
                time.sleep(max(0.0, began + number * args.rows / args.rate - time.monotonic()))
                feeder.offer(number, 0, batch)
            feeder.finish()

        def kill(number: int) -> None:
            site = number % SITES
            seen.kills.append(time.monotonic())
            job.kill(site)
            job.sites[site].wait()
            job.start_site(site)

        threads = [
            threading.Thread(target=feed, daemon=True),
            threading.Thread(target=at_each, args=(args.kills, began, AFTER_S, kill), daemon=True),
        ]
        for thread in threads:
            thread.start()
        offset, ended = 0, False
        while not ended:
            offset, found, ended = reader.read(offset, timeout_s=30.0)
            seen.add(row for _, rows in found for row in as_rows(rows.drop_columns(list(SN))))
            reader.commit(offset)
        for thread in threads:
            thread.join()
        events = job.events()
        seen.recoveries_s = [e["seconds"] for e in events if e["kind"] == "recovered"]
    return seen


def as_rows(rows: Any) -> Iterator[tuple[int, int, float, float]]:
    columns = [rows.column(name).to_pylist() for name in expected.COLUMNS]
    yield from zip(*columns, strict=True)


def spark(args: argparse.Namespace, batches: int) -> Run:
    """The job on Structured Streaming."""
    import sessions_on_spark as on_spark

    seen = Run()
    done: set[int] = set()
    every = max(1, round(args.rate * args.file_s / args.rows))

    def each(frame: Any, batch: int) -> None:
        rows = [tuple(row) for row in frame.select("ended", *expected.COLUMNS).collect()]
        if batch not in done:  # foreachBatch may come again with the same
            done.add(batch)
            seen.add(tuple(row[1:]) for row in sorted(rows))  # type: ignore[misc]

    session = on_spark.session("local-cluster[2,1,1024]", partitions=2)
    try:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            rows = args.rows * every
            total = -(-batches // every)
            files = on_spark.Files(folder / "in", total, rows, rows / args.rate, args.pairs)
            query = on_spark.query(session, folder, each)
            app = session.sparkContext.applicationId
            files.start()
            while not seen.times and query.isActive:
                time.sleep(0.1)

            def kill(number: int) -> None:
                alive = on_spark.executors(app)
                seen.kills.append(time.monotonic())
                on_spark.kill(alive[number % len(alive)])

            at_each(args.kills, time.monotonic(), args.spark_every_s, kill)
            files.join()
            query.processAllAvailable()
            query.stop()
    finally:
        session.stop()
    return seen


def main() -> int:
    """Measure, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--kills", type=int, default=3)
    add("--rate", type=float, default=2000, help="packets per second")
    add("--rows", type=int, default=50, help="of a batch of Flux")
    add("--file-s", type=float, default=0.5, help="a file for Spark every so often")
    add("--pairs", type=int, default=500)
    add("--spark-every-s", type=float, default=AFTER_S)
    add("--only", choices=("flux", "spark"))
    args = parser.parse_args()
    seconds = WARM_S + args.kills * AFTER_S
    every = max(1, round(args.rate * args.file_s / args.rows))
    batches = int(seconds * args.rate / args.rows) // every * every
    want = list(expected.statistics(batches, args.rows, pairs=args.pairs, seed=0))
    wrong = False
    medians: dict[str, float] = {}
    for name, run in (("flux", flux), ("spark", spark)):
        if args.only not in (None, name):
            continue
        seen = run(args, batches)
        exact = sorted(seen.rows) == sorted(want)
        if name == "flux":
            exact = seen.rows == want
        wrong |= not exact
        gaps = seen.gaps_s()
        medians[name] = statistics.median(gaps)
        print(
            f"{name:6} gap: median {medians[name] * 1e3:,.0f} ms of "
            f"{[round(gap * 1e3) for gap in gaps]}, usually {seen.usual_s() * 1e3:,.0f} ms between "
            f"results; {len(seen.rows):,} records, {'exact' if exact else 'WRONG'}"
        )
        if seen.recoveries_s:
            took = [round(s * 1e3) for s in seen.recoveries_s]
            print(f"{name:6} whole again after: median {statistics.median(took):,.0f} ms of {took}")
    if len(medians) == 2:
        print(f"Spark's gap / Flux's gap: {medians['spark'] / medians['flux']:.0f}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
