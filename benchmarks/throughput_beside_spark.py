"""Throughput of a Flux stage beside Structured Streaming's own stateful aggregation.

    python benchmarks/throughput_beside_spark.py [--runs 3] [--rows 2000000]

The same rows (app, src, duration, time) into the same windows: the longest and mean duration, and
how many, per app and source and minute. In Flux a `TimeWindow` in partition pairs (and once without
the second copy); in Spark `groupBy(window, app, src).agg(...)` with a watermark, append mode, in
local[2], from parquet files that are all there, in as many micro-batches as Flux has batches of
`--batch` rows. What either needs to start, and its first batch, do not count. Prints rows per
second, medians of runs that take turns, and compares the windows of both. Exit status 1 if they
differ.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from flux_lab.local_sites import LocalSites  # noqa: E402
from flux_runtime.operators import TimeWindow  # noqa: E402
from flux_runtime.operators.rows import SN, KeySplit, merge, rows_size  # noqa: E402
from flux_runtime.protocol.dataflow import Dataflow  # noqa: E402
from flux_runtime.protocol.vocabulary import Shape  # noqa: E402

WINDOW_S = 60
GROUPS = 1000
Windows = dict[tuple[int, int], list[tuple[int, float, float]]]
"""(app, src) -> count, longest and mean of its windows, in the order of time."""


def rows(batches: int, size: int) -> list[Any]:
    """Batches in the order of time; a window has about four rows of each group."""
    found = []
    for number in range(batches):
        draw = np.random.default_rng([1, number])
        group = draw.integers(0, GROUPS, size)
        at = (number * size + np.arange(size)) * WINDOW_S * 1_000_000 // (4 * GROUPS)
        columns = {
            "app": pa.array(group % 5),
            "src": pa.array(group // 5),
            "duration": pa.array(draw.integers(1, 1000, size)),
            "time": pa.array(at.astype("datetime64[us]"), pa.timestamp("us", tz="UTC")),
        }
        found.append(pa.RecordBatch.from_pydict(columns))
    return found


def pairs() -> Dataflow:
    """Every partition twice."""
    return stage(2)


def single() -> Dataflow:
    """Without a second copy."""
    return stage(1)


def stage(copies: int) -> Dataflow:
    """One operator in two partitions, on two sites: as many as Spark has cores."""
    return Dataflow(
        shape=Shape(widths=(2,), copies=copies, pool=64, ack_every=8, in_hand=4),
        operator=lambda _: TimeWindow(
            ["app", "src"],
            "time",
            "duration",
            ["count", "max", "avg"],
            history=WINDOW_S * 1_000_000,
            slide=WINDOW_S * 1_000_000,
        ),
        split=KeySplit({0: ("app", "src")}),
        merge=merge,
        rows_size=rows_size,
    )


def flux(made: str, batches: list[Any]) -> tuple[float, Windows]:
    """Rows per second after the first batch, and the windows."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), str(HERE.parent)])
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalSites(
            dataflow=f"throughput_beside_spark:{made}",
            sites=2,
            folder=Path(folder),
            controller_settings={"window": 32},
        ) as job,
    ):
        reader, first = job.reader(), threading.Event()
        feeder = job.feeder("rows")

        def feed() -> None:
            for number, batch in enumerate(batches):
                feeder.offer(number, 0, batch)
                if number == 0:
                    feeder.flush()
                    first.set()
            feeder.finish()

        thread = threading.Thread(target=feed, daemon=True)
        thread.start()
        first.wait()
        began = time.monotonic()
        tables: list[Any] = []
        offset, ended = 0, False
        while not ended:
            offset, found, ended = reader.read(offset, timeout_s=60.0)
            tables += [out.drop_columns(list(SN)) for _, out in found]
            reader.commit(offset)
        took = time.monotonic() - began
    names = ("app", "src", "count_duration", "max_duration", "avg_duration")
    return sum(b.num_rows for b in batches[1:]) / took, windows(tables, names)


def spark(batches: list[Any], folder: Path, session: Any) -> tuple[float, Windows]:
    """The same for Structured Streaming; batches are files."""
    from pyspark.sql import functions as f

    for number, batch in enumerate(batches):
        pq.write_table(pa.Table.from_batches([batch]), folder / f"{number:06d}.parquet")
        os.utime(folder / f"{number:06d}.parquet", (number, number))
    tables: list[Any] = []

    def each(frame: Any, _: int) -> None:
        tables.append(frame.toArrow())

    stream = (
        session.readStream.schema("app BIGINT, src BIGINT, duration BIGINT, time TIMESTAMP")
        .option("maxFilesPerTrigger", "1")
        .parquet(str(folder))
        .withWatermark("time", "0 seconds")
        .groupBy(f.window("time", f"{WINDOW_S} seconds"), "app", "src")
        .agg(
            f.count("*").alias("n"),
            f.max("duration").alias("most"),
            f.avg("duration").alias("mean"),
        )
        .select("window.start", "app", "src", "n", "most", "mean")
    )
    checkpoint = tempfile.mkdtemp(dir=folder.parent)
    query = (
        stream.writeStream.outputMode("append")
        .option("checkpointLocation", checkpoint)
        .foreachBatch(each)
        .start()
    )
    query.processAllAvailable()
    progress = [p for p in query.recentProgress if p["numInputRows"]]
    query.stop()
    took = sum(p["durationMs"]["triggerExecution"] for p in progress[1:]) / 1000
    rate = sum(p["numInputRows"] for p in progress[1:]) / took
    found = pa.concat_tables(t for t in tables if t.num_rows).sort_by("start")
    return rate, windows([found], ("app", "src", "n", "most", "mean"))


def windows(tables: list[Any], names: tuple[str, ...]) -> Windows:
    """Windows by group."""
    found: Windows = {}
    for table in tables:
        columns = [table.column(name).to_pylist() for name in names]
        for app, src, count, most, mean in zip(*columns, strict=True):
            found.setdefault((app, src), []).append((int(count), float(most), mean))
    return found


def same(one: Windows, other: Windows) -> bool:
    """Whether both closed the same windows; at the end one may be some windows ahead."""
    return one.keys() == other.keys() and all(
        all(
            a[:2] == b[:2] and abs(a[2] - b[2]) < 1e-9
            for a, b in zip(one[g], other[g], strict=False)
        )
        and abs(len(one[g]) - len(other[g])) <= 1 + len(one[g]) // 10
        for g in one
    )


def main() -> int:
    """Measure in turns, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=100_000)
    args = parser.parse_args()
    from sessions_on_spark import session as started

    batches = rows(args.rows // args.batch, args.batch)
    # Flux is fed smaller pieces: it has no reason to wait for many rows
    pieces = [b.slice(at, 8192) for b in batches for at in range(0, b.num_rows, 8192)]
    found: dict[str, list[float]] = {}
    closed: dict[str, Windows] = {}
    session = started("local[2]", partitions=2)
    try:
        for _ in range(args.runs):
            for name in ("spark", "flux pairs", "flux single"):
                with tempfile.TemporaryDirectory() as made:
                    if name == "spark":
                        folder = Path(made) / "in"
                        folder.mkdir()
                        rate, closed[name] = spark(batches, folder, session)
                    else:
                        rate, closed[name] = flux(name.partition(" ")[2], pieces)
                found.setdefault(name, []).append(rate)
    finally:
        session.stop()
    for name, rates in found.items():
        print(
            f"{name:12} {statistics.median(rates):12,.0f} rows/s "
            f"({min(rates):,.0f}-{max(rates):,.0f}), "
            f"{sum(map(len, closed[name].values())):,} windows"
        )
    wrong = False
    for name in ("flux pairs", "flux single"):
        ratio = statistics.median(found[name]) / statistics.median(found["spark"])
        exact = same(closed[name], closed["spark"])
        wrong |= not exact
        print(f"{name} / spark: {ratio:.2f}; windows {'equal' if exact else 'DIFFER'}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
