"""What a seal costs: throughput of the sealed job against the uncoordinated one.

    python benchmarks/sealing.py [clicks] [words] [--repeat 3] [--json FILE]

Both jobs are what the compiler makes of the same dataflow file. The uncoordinated one is compiled
with `--target run` and without the seal: Spark's own groupBy in update mode. Runs take turns. Time
is that of the streaming queries, without the start of Spark and ZooKeeper; CPU is that of all
processes of the job in that time. The results are compared with a plain Spark batch over the same
files. The aim is 0.95 of the uncoordinated throughput.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from workloads import Clicks, Tweets, write_clicks, write_tweets

from annotations.dataflow import Dataflow
from annotations.vocabulary import Label
from annotations.yaml_file import load
from blazes.analysis import analyze
from blazes.coordination import plan
from codegen.project import Project, write
from codegen.stages import stages

HERE: Final = Path(__file__).parent
WORK: Final = HERE.parent / "target" / "benchmarks" / "sealing"
AIM: Final = 0.95
UNCOORDINATED: Final = "uncoordinated"
SEALED: Final = "sealed"


@dataclass(frozen=True)
class Workload:
    """A dataflow, its input, and what must come out."""

    file: str
    write: Callable[[Path], None]
    records: int
    sink: str
    groups: tuple[str, ...]
    value: str
    """The column that grows in an uncoordinated run; its last value of a group is the right one."""
    reference: str
    """Batch SQL over `data`."""
    leftovers: bool
    """True where an uncoordinated run also reports groups that do not belong to the result."""


@dataclass(frozen=True)
class Run:
    """One run of one job."""

    seconds: float
    cpu_s: float
    """Of all its processes in that time."""
    rows_out: int


def workloads(options: argparse.Namespace) -> dict[str, Workload]:
    """The workloads by name, at the size that was asked for."""
    clicks, tweets = Clicks(records=options.clicks), Tweets(records=options.tweets)
    return {
        "clicks": Workload(
            "clicks.yaml",
            lambda folder: write_clicks(folder, clicks),
            clicks.records,
            "poor",
            ("campaign", "id"),
            "clicks",
            "SELECT campaign, id, count(*) AS clicks FROM data WHERE NOT sealed "
            "GROUP BY campaign, id HAVING count(*) < 100",
            leftovers=True,
        ),
        "words": Workload(
            "words.yaml",
            lambda folder: write_tweets(folder, tweets),
            tweets.records,
            "counts",
            ("batch", "word"),
            "frequency",
            "SELECT batch, word, count(*) AS frequency FROM (SELECT batch, "
            "explode(split(text, ' ')) AS word FROM data WHERE NOT sealed) GROUP BY batch, word",
            leftovers=False,
        ),
    }


def main() -> int:
    """Measure what the command line names; 1 where a result is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workloads", nargs="*", metavar="clicks|words")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--clicks", type=int, default=Clicks().records)
    parser.add_argument("--tweets", type=int, default=Tweets().records)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path, help="write the measurements here")
    options = parser.parse_args()
    known = workloads(options)
    if unknown := set(options.workloads) - known.keys():
        parser.error(f"no workload {', '.join(sorted(unknown))}")
    measured = {}
    for name in options.workloads or known:
        measured[name] = measure(name, known[name], options.repeat, options.master)
        Console().print(table(name, known[name], measured[name]))
    if options.json:
        options.json.write_text(json.dumps(measured, default=asdict, indent=1) + "\n")
    return int(any(wrong for found in measured.values() for wrong in found["wrong"].values()))


def measure(name: str, workload: Workload, repeat: int, master: str) -> dict[str, object]:
    """Run both jobs in turns and check every result."""
    folder = WORK / name
    workload.write(folder)
    sealed, _ = load(HERE / workload.file)
    projects = {
        UNCOORDINATED: compiled(unsealed(sealed), Label.RUN, folder / UNCOORDINATED),
        SEALED: compiled(sealed, Label.ASYNC, folder / SEALED),
    }
    runs: dict[str, list[Run]] = {way: [] for way in projects}
    kept = folder / "results"
    shutil.rmtree(kept, ignore_errors=True)
    for turn in range(repeat):
        for way, project in projects.items():
            runs[way].append(run(project, folder, master))
            (kept / way).mkdir(parents=True, exist_ok=True)
            (project.folder / "results" / workload.sink).rename(kept / way / str(turn))
            print(f"  {name} {way}: {runs[way][-1]}", file=sys.stderr, flush=True)
    return {"runs": runs, "wrong": wrong_rows(workload, folder, kept, repeat, master)}


def unsealed(dataflow: Dataflow) -> Dataflow:
    """The dataflow without its seals; what a punctuation is stays known."""
    streams = {
        name: replace(stream, seals=(), producers=None) for name, stream in dataflow.streams.items()
    }
    return replace(dataflow, streams=streams)


def compiled(dataflow: Dataflow, target: Label, folder: Path) -> Project:
    """The project that `blazes compile --target` makes."""
    return write(stages(plan(analyze(dataflow), target=target)), folder)


def run(project: Project, root: Path, master: str) -> Run:
    """One run of a job from scratch, as a process of its own."""
    shutil.rmtree(project.folder / "results", ignore_errors=True)
    run_dir = project.folder / "run"
    shutil.rmtree(run_dir, ignore_errors=True)
    command = [sys.executable, project.job, "--available-now", "--fresh", "--root", root]
    command += ["--master", master, "--run-dir", run_dir]
    job = subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True)
    with Cpu(job.pid) as cpu:
        _, told = job.communicate()
    if job.returncode:
        sys.exit(f"{project.job} failed:\n{told}")
    summary = json.loads((run_dir / "summary.json").read_text())
    rows = sum(unit["rows_out"] for unit in summary["units"].values())
    spent = cpu.between(summary["finished"] - summary["seconds"], summary["finished"])
    return Run(summary["seconds"], round(spent, 1), rows)


class Cpu(threading.Thread):
    """CPU time of all processes of a session, those that have ended too. Linux; else 0."""

    def __init__(self, session: int) -> None:
        super().__init__(daemon=True)
        self._session = session
        self._seen: dict[int, float] = {}
        self._samples = [(time.time(), 0.0)]
        """(time, user and system seconds so far)."""
        self._end = threading.Event()

    def between(self, start: float, end: float) -> float:
        """Seconds of CPU from one time to another."""
        return self._until(end) - self._until(start)

    def _until(self, instant: float) -> float:
        return max(spent for at, spent in self._samples if at <= instant or spent == 0.0)

    def __enter__(self) -> Cpu:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self.join()

    def run(self) -> None:
        """Look every quarter of a second until the end."""
        while not self._end.wait(0.25):
            for file in Path("/proc").glob("[0-9]*/stat"):
                try:
                    values = file.read_text().rpartition(") ")[2].split()
                except OSError:
                    continue
                if int(values[3]) == self._session:
                    ticks = int(values[11]) + int(values[12])
                    self._seen[int(file.parent.name)] = ticks / os.sysconf("SC_CLK_TCK")
            self._samples.append((time.time(), sum(self._seen.values())))


def wrong_rows(
    workload: Workload, folder: Path, kept: Path, repeat: int, master: str
) -> dict[str, int]:
    """Rows that are missing or should not be there, for each way, over all runs.

    Of an uncoordinated run the last value of each group counts, and groups that it reported on the
    way though they do not belong to the result are not counted as wrong: nothing takes them back.
    """
    from flux_runtime.spark.session import start_session

    session = start_session("reference", master=master, conf={}, log=folder / "reference.log")
    session.read.parquet(str(folder / "data")).createOrReplaceTempView("data")
    right = session.sql(workload.reference).cache()
    wrong = dict.fromkeys((UNCOORDINATED, SEALED), 0)
    for way in wrong:
        for turn in range(repeat):
            files = session.read.option("recursiveFileLookup", "true")
            got = files.parquet(str(kept / way / str(turn))).select(*right.columns)
            if way == UNCOORDINATED:
                got = got.groupBy(*workload.groups).agg({workload.value: "max"})
                got = got.toDF(*workload.groups, workload.value).select(*right.columns)
            if way == UNCOORDINATED and workload.leftovers:
                got = got.join(right.select(*workload.groups), list(workload.groups), "left_semi")
            wrong[way] += got.exceptAll(right).count() + right.exceptAll(got).count()
    session.stop()
    return wrong


def table(name: str, workload: Workload, measured: Mapping[str, object]) -> Table:
    """The measurements of a workload; medians, with the range behind them."""
    runs, wrong = measured["runs"], measured["wrong"]
    assert isinstance(runs, dict)
    assert isinstance(wrong, dict)
    title = f"{name}: {workload.records:,} records; aim: {AIM} of the uncoordinated throughput"
    shown = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for heading in ("", "s", "range", "records/s", "ratio", "CPU s", "rows out", "wrong"):
        shown.add_column(heading, justify="right" if heading else "left", no_wrap=True)
    base = median(run.seconds for run in runs[UNCOORDINATED])
    for way, of_way in runs.items():
        seconds = [run.seconds for run in of_way]
        middle = median(seconds)
        shown.add_row(
            way,
            f"{middle:.1f}",
            f"{min(seconds):.1f}-{max(seconds):.1f}",
            f"{workload.records / middle:,.0f}",
            f"{base / middle:.2f}",
            f"{median(run.cpu_s for run in of_way):.0f}",
            f"{of_way[-1].rows_out:,}",
            str(wrong[way]),
        )
    return shown


def median(values: Sequence[float]) -> float:
    """The median of any iterable."""
    return statistics.median(values)


if __name__ == "__main__":
    sys.exit(main())
