"""What a seal costs: throughput and CPU of sealed jobs beside uncoordinated ones.

    python benchmarks/sealing.py [clicks] [visits] [scores] [words] [latency]
        [--keys 100 1000 10000] [--registered] [--turns 3] [--quick] [--json FILE]

`clicks` is an SQL aggregate, `visits` a join of two sealed streams, `scores` a component in Python,
`words` an SQL aggregate of many groups; `latency` runs `clicks` and measures the time from the last
punctuation of N partitions, sealed at once, to their output (`seal_latency.py`). All producers take
part in every partition, and the file lists them; with `--registered` the job asks ZooKeeper who
takes part in each partition, which costs two requests for every partition.

Both jobs are what the compiler makes of the same file; the uncoordinated one with `--target run`
and without the seal. It puts out results that are not final and holds its state for ever; nothing
else that Spark offers does the work without coordination. Jobs run in turns, each as processes of
its own. Time is that of the streaming queries, without the start of Spark and ZooKeeper; CPU is
that of all processes of the job in that time, and what of it Java spent on compiling stands beside
it: in short runs it is half. A ratio is the median of the ratios of the turns. Every result is
compared with a plain Spark batch over the same files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from measured_job import Run, run
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from seal_latency import latencies, latency_table
from workloads import (
    LAG,
    PRODUCERS,
    STEPS_OPEN,
    Clicks,
    Size,
    Tweets,
    Visits,
    partitions,
    write_input,
)

from annotations.dataflow import Dataflow, Producers
from annotations.file import load
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.coordination import plan
from blazes.report.json_result import to_json
from codegen.project import Project, write
from codegen.stages import stages

HERE: Final = Path(__file__).parent
WORK: Final = HERE.parent / "target" / "benchmarks" / "sealing"
STEPS_MIN: Final = STEPS_OPEN + LAG + 1
THROUGHPUT_MIN: Final = 0.95
CPU_MAX: Final = 1.1
"""The aims, relative to the uncoordinated job."""

UNCOORDINATED: Final = "uncoordinated"
SEALED: Final = "sealed"
LATENCY: Final = "latency"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A dataflow, and what must come out."""

    file: str
    size: Callable[[argparse.Namespace, int], Size]
    """The input for so many keys in a micro-batch."""
    keys: bool = True
    """Whether it is measured at several numbers of keys."""
    sink: str
    groups: tuple[str, ...] = ()
    """Where an uncoordinated run puts groups out again when they change."""
    grows: str = ""
    """The column that only grows meanwhile; its last value of a group is the right one."""
    leftovers: bool = False
    """Whether an uncoordinated run also puts out groups that do not belong to the result."""
    reference: str
    """Batch SQL over views of the input's folders."""
    counterpart: str


def click_size(options: argparse.Namespace, keys: int, records: int) -> Clicks:
    """Clicks with about the same number of groups at every number of keys."""
    campaigns = partitions(keys, options.steps)
    return Clicks(
        records=records,
        campaigns=campaigns,
        ads=max(2, 10_000 // keys),
        steps=options.steps,
    )


WORKLOADS: Final = {
    "clicks": Workload(
        file="clicks.yaml",
        size=lambda options, keys: click_size(options, keys, options.clicks),
        sink="poor",
        groups=("campaign", "id"),
        grows="clicks",
        leftovers=True,
        reference="SELECT campaign, id, count(*) AS clicks FROM data WHERE NOT sealed "
        "GROUP BY campaign, id HAVING count(*) < 100",
        counterpart="Spark's groupBy in update mode",
    ),
    "visits": Workload(
        file="visits.yaml",
        size=lambda options, keys: Visits(
            records=options.visits,
            campaigns=partitions(keys, options.steps),
            steps=options.steps,
        ),
        sink="matched",
        reference="SELECT campaign, view, page, ad FROM views JOIN clicks USING (campaign, view) "
        "WHERE NOT views.sealed AND NOT clicks.sealed",
        counterpart="Spark's stream-stream inner join",
    ),
    "scores": Workload(
        file="scores.yaml",
        size=lambda options, keys: click_size(options, keys, options.scores),
        sink="scored",
        groups=("campaign", "id"),
        grows="risk",
        reference="SELECT campaign, id, sum((id * 7919L) % 101) AS risk FROM data "
        "WHERE NOT sealed GROUP BY campaign, id",
        counterpart="the same function, then Spark's groupBy in update mode",
    ),
    "words": Workload(
        file="words.yaml",
        size=lambda options, _: Tweets(records=options.tweets, steps=options.steps),
        keys=False,
        sink="counts",
        groups=("batch", "word"),
        grows="frequency",
        reference="SELECT batch, word, count(*) AS frequency FROM (SELECT batch, "
        "explode(split(text, ' ')) AS word FROM data WHERE NOT sealed) GROUP BY batch, word",
        counterpart="Spark's groupBy in update mode",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The runs of a workload at one number of keys."""

    keys: int | None
    """In a micro-batch, on average; None: as the workload has it."""
    records: int
    runs: dict[str, list[Run]]
    wrong: dict[str, int]

    def ratios(self, of: Callable[[Run], float]) -> list[float]:
        """Sealed to uncoordinated, turn by turn."""
        pairs = zip(self.runs[SEALED], self.runs[UNCOORDINATED], strict=True)
        return [of(sealed) / of(uncoordinated) for sealed, uncoordinated in pairs]

    @property
    def throughput(self) -> list[float]:
        """Of the sealed job relative to the uncoordinated one, in each turn."""
        return [1 / ratio for ratio in self.ratios(lambda run: run.seconds)]

    @property
    def cpu(self) -> list[float]:
        """The same of the CPU."""
        return self.ratios(lambda run: run.cpu_s)


def main() -> int:
    """Measure what the command line names; 1 where a result is wrong."""
    options = _options()
    found: dict[str, object] = {}
    wrong = 0
    for name in options.workloads:
        if name == LATENCY:
            latency = latencies(
                WORK / name, options, partial(compiled_sealed, registered=options.registered)
            )
            Console().print(latency_table(latency))
            found[name] = [asdict(each) for each in latency]
            wrong += sum(each.wrong for each in latency)
            continue
        workload = WORKLOADS[name]
        measured = [
            measure(name, workload, keys, options)
            for keys in (options.keys if workload.keys else [None])
        ]
        Console().print(table(name, workload, measured))
        found[name] = {
            "counterpart": workload.counterpart,
            "measured": [
                {**asdict(each), "throughput": each.throughput, "cpu": each.cpu}
                for each in measured
            ],
        }
        wrong += sum(sum(each.wrong.values()) for each in measured)
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(wrong > 0)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    known = [*WORKLOADS, LATENCY]
    add = parser.add_argument
    add("workloads", nargs="*", metavar="|".join(known), help="all of them without a name")
    add("--keys", type=int, nargs="+", default=[100, 1000, 10_000], help="in a micro-batch")
    add("--registered", action="store_true", help="producers are looked up for each partition")
    add("--turns", type=int, default=3)
    add("--steps", type=int, default=20, help="micro-batches")
    add("--clicks", type=int, default=12_000_000)
    add("--visits", type=int, default=1_000_000)
    add("--scores", type=int, default=4_000_000)
    add("--tweets", type=int, default=400_000)
    add("--rounds", type=int, default=6, help="of partitions sealed at once, for the latency")
    add("--at-once", type=int, nargs=2, default=[100, 10_000], help="partitions in such a round")
    add("--quick", action="store_true", help="one turn of a tenth, without the most keys")
    add("--master", default="local[2]")
    add("--json", type=Path, help="write the measurements here")
    options = parser.parse_args()
    if unknown := set(options.workloads) - set(known):
        parser.error(f"no workload {', '.join(sorted(unknown))}")
    if options.steps < STEPS_MIN:
        parser.error(f"at least {STEPS_MIN} steps: partitions are open for several")
    options.workloads = options.workloads or known
    if options.quick:
        options.turns, options.steps, options.rounds = 1, 12, 3
        options.keys = sorted(options.keys)[:-1] or options.keys
        for size in ("clicks", "visits", "scores", "tweets"):
            setattr(options, size, getattr(options, size) // 10)
    return options


def measure(
    name: str, workload: Workload, keys: int | None, options: argparse.Namespace
) -> Measured:
    """Run both jobs in turns and check every result."""
    folder = WORK / name / ("" if keys is None else str(keys))
    size = workload.size(options, keys or 0)
    write_input(folder, size)
    projects = {
        UNCOORDINATED: compiled(
            unsealed(dataflow_of(workload.file)), Label.RUN, folder / UNCOORDINATED
        ),
        SEALED: compiled_sealed(workload.file, folder / SEALED, registered=options.registered),
    }
    runs: dict[str, list[Run]] = {way: [] for way in projects}
    results = folder / "results"
    shutil.rmtree(results, ignore_errors=True)
    for turn in range(options.turns):
        for way, project in projects.items():
            runs[way].append(run(project, folder, options.master))
            (results / way).mkdir(parents=True, exist_ok=True)
            (project.folder / "results" / workload.sink).rename(results / way / str(turn))
            print(f"  {name} {keys or ''} {way}: {runs[way][-1]}", file=sys.stderr, flush=True)
    wrong = wrong_rows(workload, folder, results, options)
    return Measured(keys=keys, records=size.records, runs=runs, wrong=wrong)


def dataflow_of(file: str) -> Dataflow:
    """A dataflow of this folder."""
    dataflow, _ = load(HERE / file)
    return dataflow


def unsealed(dataflow: Dataflow) -> Dataflow:
    """The dataflow without its seals; what a punctuation is stays known."""
    streams = {
        name: replace(stream, seals=(), producers=None) for name, stream in dataflow.streams.items()
    }
    return replace(dataflow, streams=streams)


def compiled_sealed(file: str, folder: Path, *, registered: bool) -> Project:
    """The sealed job of a dataflow of this folder."""
    dataflow = dataflow_of(file)
    return compiled(dataflow if registered else listed(dataflow), Label.ASYNC, folder)


def listed(dataflow: Dataflow) -> Dataflow:
    """The dataflow with a list of producers, in place of their registrations."""
    streams = {
        name: replace(stream, producers=stream.producers and Producers("all", PRODUCERS))
        for name, stream in dataflow.streams.items()
    }
    return replace(dataflow, streams=streams)


def compiled(dataflow: Dataflow, target: Label, folder: Path) -> Project:
    """The project that `blazes compile --target` makes."""
    decided = plan(analyze(dataflow), target=target)
    return write(stages(decided), folder, analysis=to_json(decided))


def wrong_rows(
    workload: Workload, folder: Path, results: Path, options: argparse.Namespace
) -> dict[str, int]:
    """Rows that are missing or should not be there, for each way, over all turns.

    Of the groups that an uncoordinated run puts out again, the last value counts; groups that it
    put out on the way though they do not belong to the result are not counted as wrong: nothing
    takes them back.
    """
    from flux_runtime.spark.session import start_session

    session = start_session(
        "reference", master=options.master, conf={}, log=folder / "reference.log"
    )
    for name in ("data", "views", "clicks"):
        if (folder / name).is_dir():
            session.read.parquet(str(folder / name)).createOrReplaceTempView(name)
    right = session.sql(workload.reference).cache()
    wrong = dict.fromkeys((UNCOORDINATED, SEALED), 0)
    for way in wrong:
        for turn in range(options.turns):
            files = session.read.option("recursiveFileLookup", "true")
            rows = files.parquet(str(results / way / str(turn))).select(*right.columns)
            if way == UNCOORDINATED and workload.groups:
                rows = rows.groupBy(*workload.groups).agg({workload.grows: "max"})
                rows = rows.toDF(*workload.groups, workload.grows).select(*right.columns)
                if workload.leftovers:
                    belonging = right.select(*workload.groups)
                    rows = rows.join(belonging, list(workload.groups), "left_semi")
            wrong[way] += rows.exceptAll(right).count() + right.exceptAll(rows).count()
    session.stop()
    return wrong


def table(name: str, workload: Workload, measured: Sequence[Measured]) -> Table:
    """The measurements of a workload; medians, with the range behind them."""
    title = (
        f"{name}: {measured[0].records:,} records; uncoordinated: {workload.counterpart}\n"
        f"aims: throughput at least {THROUGHPUT_MIN}, CPU at most {CPU_MAX} of the uncoordinated"
    )
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("keys", "", "s", "records/s", "ratio", "CPU s", "compiling", "ratio", "rows",
                    "wrong"):  # fmt: skip
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    for each in measured:
        for way, runs in each.runs.items():
            seconds = [run.seconds for run in runs]
            sealed = way == SEALED
            shown.add_row(
                "" if sealed or each.keys is None else f"{each.keys:,}",
                way,
                spread(seconds, 1),
                f"{each.records / statistics.median(seconds):,.0f}",
                spread(each.throughput, 2) if sealed else "",
                spread([run.cpu_s for run in runs], 0),
                f"{statistics.median(run.compiling_s for run in runs):.0f}",
                spread(each.cpu, 2) if sealed else "",
                f"{runs[-1].rows_out:,}",
                str(each.wrong[way]),
            )
    return shown


def spread(values: Iterable[float], digits: int) -> str:
    """The median, and the range where there is one."""
    found = sorted(values)
    middle = f"{statistics.median(found):.{digits}f}"
    if len(found) == 1:
        return middle
    return f"{middle} ({found[0]:.{digits}f}-{found[-1]:.{digits}f})"


if __name__ == "__main__":
    sys.exit(main())
