"""How the state of a seal grows: a day of a million partitions in fast motion. Flat is the aim.

    python benchmarks/seal_growth.py [tracker] [job] [--released 1000000] [--open 100000]
        [--batches 240] [--json FILE] [--picture FILE.svg]

`tracker` is the tracker with its durable state alone (`tracker_growth.py`), `job` a real job on
Spark with a channel between two sealed units, producers registered in ZooKeeper, and a partition
that is stuck from the start (`job_growth.py`).
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from typing import Final

from job_growth import Sample, samples
from tracker_growth import Mark, marks

from blazes.document.charts import Chart, Series, draw
from blazes.document.charts import Mark as Line

WORK: Final = Path(__file__).parents[1] / "target" / "benchmarks" / "seal_growth"
BATCH_MS_MAX: Final = 10.0
"""The aim for the tracker's part of a small micro-batch."""
RSS_MB_MAX: Final = 300.0
"""The aim for the memory of its process."""
KINDS: Final = ("tracker", "job")
CPU_MEANS: Final = 20
"""Points of the line of the job's CPU; each is the mean of the looks since the one before."""


def main() -> int:
    """Measure what the command line names, and draw it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("kinds", nargs="*", metavar="|".join(KINDS), help="both without a name")
    add("--released", type=int, default=1_000_000, help="partitions, for the tracker")
    add("--open", type=int, default=100_000, help="partitions that stay open, for the tracker")
    add("--groups", type=int, nargs="+", default=[100, 1000], help="in a small micro-batch")
    add("--marks", type=int, default=10, help="at which the tracker is measured")
    add("--batches", type=int, default=240, help="micro-batches of the job")
    add("--partitions", type=int, default=50, help="that each micro-batch of the job opens")
    add("--master", default="local[2]")
    add("--json", type=Path, help="write the measurements here")
    add("--picture", type=Path, default=WORK / "growth.svg")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"neither tracker nor job: {', '.join(sorted(unknown))}")
    WORK.mkdir(parents=True, exist_ok=True)
    found: dict[str, object] = {}
    charts: list[Chart] = []
    if not options.kinds or "tracker" in options.kinds:
        of_tracker = _in_own_process(options)
        found["tracker"] = [asdict(mark) for mark in of_tracker]
        charts += tracker_charts(of_tracker, options.open)
    if not options.kinds or "job" in options.kinds:
        of_job = samples(
            WORK / "job",
            batches=options.batches,
            partitions=options.partitions,
            master=options.master,
        )
        found["job"] = [asdict(sample) for sample in of_job]
        charts += job_charts(of_job)
    options.picture.write_text(draw(charts, title="Growth of the state of a seal"))
    print(f"drawn in {options.picture}")
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _in_own_process(options: argparse.Namespace) -> list[Mark]:
    """The tracker's marks, in a process whose memory holds nothing else."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as processes:
        return processes.submit(
            marks,
            WORK / "tracker",
            released=options.released,
            stay_open=options.open,
            sizes=options.groups,
            count=options.marks,
        ).result()


def tracker_charts(measured: Sequence[Mark], stay_open: int) -> Iterator[Chart]:
    """Time, memory and disk over the partitions that were released."""
    x = "partitions released"
    sizes = measured[0].batch_ms
    yield Chart(
        title=f"A small micro-batch at the tracker, {stay_open:,} partitions open",
        x=x,
        y="ms",
        series=tuple(
            Series(
                f"{groups:,} groups",
                tuple((mark.released, mark.batch_ms[groups]) for mark in measured),
                dots=True,
            )
            for groups in sizes
        ),
        marks=(Line(f"aim: {BATCH_MS_MAX:g} ms", BATCH_MS_MAX),),
    )
    yield Chart(
        title="Memory of its process",
        x=x,
        y="MB",
        series=(Series("resident", tuple((m.released, m.rss_mb) for m in measured), dots=True),),
        marks=(Line(f"aim: {RSS_MB_MAX:g} MB", RSS_MB_MAX),),
    )
    yield Chart(
        title="Its state on disk",
        x=x,
        y="MB",
        series=(Series("MB", tuple((m.released, m.mb) for m in measured), dots=True),),
    )
    yield Chart(
        title="Files of its state",
        x=x,
        y="files",
        series=(Series("files", tuple((m.released, m.files) for m in measured), dots=True),),
    )


def job_charts(measured: Sequence[Sample]) -> Iterator[Chart]:
    """The same of the job, over the micro-batches of its first unit."""
    x = "micro-batches"

    def of(name: str, values: Iterator[float]) -> Series:
        batches = (sample.batches for sample in measured)
        return Series(name, tuple(zip(batches, values, strict=True)))

    window = max(1, len(measured) // CPU_MEANS)
    cpu = [
        ((a.batches + b.batches) / 2, (b.cpu_s - a.cpu_s) / (b.batches - a.batches))
        for a, b in zip(measured[:-window:window], measured[window::window], strict=False)
        if b.batches > a.batches
    ]
    areas = measured[-1].mb
    yield Chart(
        title="A job on Spark: time for a micro-batch",
        x=x,
        y="s",
        series=(
            of("time", (sample.batch_s for sample in measured)),
            Series(f"CPU, means of {window} looks", tuple(cpu)),
        ),
    )
    yield Chart(
        title="Memory of its processes",
        x=x,
        y="MB",
        series=(
            of("Python", (sample.python_mb for sample in measured)),
            of("Java", (sample.java_mb for sample in measured)),
        ),
    )
    yield Chart(
        title="State on disk, one partition stuck from the start",
        x=x,
        y="MB",
        series=tuple(of(area, (sample.mb[area] for sample in measured)) for area in areas),
    )
    yield Chart(
        title="Files of the state",
        x=x,
        y="files",
        series=tuple(of(area, (sample.files[area] for sample in measured)) for area in areas),
    )
    yield Chart(
        title="Nodes in ZooKeeper",
        x=x,
        y="znodes",
        series=(
            of("znodes", (sample.znodes for sample in measured)),
            of("partitions released", (sample.released for sample in measured)),
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
