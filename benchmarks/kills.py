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
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SESSIONS = HERE.parent / "examples" / "sessions"
sys.path[:0] = [str(SESSIONS), str(HERE.parent)]

import expected  # noqa: E402
from packets import packets  # noqa: E402

from flux_lab.local_sites import LocalSites  # noqa: E402
from flux_runtime.operators.rows import SN  # noqa: E402

SITES = 4
AFTER_S = 12.0
"""How long after a kill the longest gap is looked for, and at least the time to the next."""
WARM_S = 8.0


@dataclass
class Run:
    """What was seen of one job.

    Attributes:
        times: when results came.
        kills: when a worker was killed.
        rows: the results.
        recoveries_s: how long each took, until every pair was whole.
        batches: how many batches of packets went in.
    """

    times: list[float] = field(default_factory=list)
    kills: list[float] = field(default_factory=list)
    rows: list[tuple[int, int, float, float]] = field(default_factory=list)
    recoveries_s: list[float] = field(default_factory=list)
    batches: int = 0

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


def at_each(kills: int, kill: Callable[[int], None], whole: Callable[[int], bool]) -> None:
    """Kill so often, each time after a while in which everything went well again."""
    time.sleep(WARM_S)
    for number in range(kills):
        kill(number)
        time.sleep(AFTER_S)
        while not whole(number + 1):
            time.sleep(0.1)


def flux(args: argparse.Namespace) -> Run:
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
        enough = threading.Event()

        def feed() -> None:
            began = time.monotonic()
            for batch in packets(args.rows, pairs=args.pairs):
                due = began + seen.batches * args.rows / args.rate
                if enough.wait(max(0.0, due - time.monotonic())):
                    break
                feeder.offer(seen.batches, 0, batch)
                seen.batches += 1
            feeder.finish()

        def kill(number: int) -> None:
            site = number % SITES
            seen.kills.append(time.monotonic())
            job.kill(site)
            job.sites[site].wait()
            job.start_site(site)

        def kills() -> None:
            at_each(args.kills, kill, lambda number: len(job.recoveries()) >= number)
            enough.set()

        threads = [threading.Thread(target=task, daemon=True) for task in (feed, kills)]
        for thread in threads:
            thread.start()
        offset, ended = 0, False
        while not ended:
            offset, found, ended = reader.read(offset, timeout_s=30.0)
            seen.add(row for _, rows in found for row in as_rows(rows.drop_columns(list(SN))))
            reader.commit(offset)
        for thread in threads:
            thread.join()
        seen.recoveries_s = job.recoveries()
    return seen


def settled(times: list[float]) -> bool:
    """True where what had piled up while Spark started is done: results come as often as ever."""
    spans = [b - a for a, b in itertools.pairwise(times)]
    return len(spans) >= 5 and spans[-1] <= 1.5 * min(spans)


def as_rows(rows: Any) -> Iterator[tuple[int, int, float, float]]:
    columns = [rows.column(name).to_pylist() for name in expected.COLUMNS]
    yield from zip(*columns, strict=True)


def spark(args: argparse.Namespace) -> Run:
    """The job on Structured Streaming."""
    import sessions_on_spark as on_spark

    seen = Run()
    done: set[int] = set()
    every = max(1, round(args.rate * args.file_s / args.rows))

    def each(frame: Any, batch: int) -> None:
        rows = [tuple(row) for row in frame.select("ended", *expected.COLUMNS).collect()]
        if batch not in done:  # foreachBatch may come again with the same
            done.add(batch)
            seen.add(row[1:] for row in sorted(rows))  # type: ignore[misc]

    session = on_spark.session("local-cluster[2,1,1024]", partitions=2)
    try:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            pace_s = args.rows * every / args.rate
            files = on_spark.Files(folder / "in", args.rows, every, pace_s, args.pairs)
            query = on_spark.query(session, folder, each)
            app = session.sparkContext.applicationId
            files.start()

            def alive() -> bool:
                if not query.isActive:
                    raise SystemExit(f"the query has ended: {query.exception()}")
                return len(on_spark.executors(app)) == 2

            while not settled(seen.times):
                alive()
                time.sleep(0.1)

            def kill(number: int) -> None:
                seen.kills.append(time.monotonic())
                on_spark.kill(on_spark.executors(app)[number % 2])

            def whole(number: int) -> bool:
                return alive() and seen.times[-1] > seen.kills[number - 1]

            at_each(args.kills, kill, whole)
            files.enough.set()
            files.join()
            query.processAllAvailable()
            query.stop()
            seen.batches = files.batches
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
    add("--only", choices=("flux", "spark"))
    args = parser.parse_args()
    wrong = False
    medians: dict[str, float] = {}
    for name, run in (("flux", flux), ("spark", spark)):
        if args.only not in (None, name):
            continue
        seen = run(args)
        want = [*expected.statistics(seen.batches, args.rows, pairs=args.pairs, seed=0)]
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
