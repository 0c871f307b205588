"""The ad network in the ways of Blazes, section VIII-B: uncoordinated, ordered, sealed.

    python benchmarks/ad_network.py [--servers 5 10] [--clicks 40000] [--repeat 1] [--json FILE]

One file (examples/ad_network, query CAMPAIGN, three reporting servers) is compiled with
`--coordination none`, `order` and `least`; the sealed one also runs where each campaign is at one
server ("independent seal"). Printed are the time of the streaming queries, without the start of
Spark and ZooKeeper, the throughput against the uncoordinated job of the same turn, how many
requests the replicas answered differently, and how many answers are missing or wrong.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from measured_job import run
from pyarrow import dataset
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from annotations.file import load
from blazes.choice import Coordination, coordinate
from blazes.demo.ads import poor
from blazes.demo.files import read_records, read_results
from blazes.report.json_result import to_json
from codegen.project import Project, write
from codegen.stages import stages

ROOT: Final = Path(__file__).parents[1]
EXAMPLE: Final = ROOT / "examples" / "ad_network"
WORK: Final = ROOT / "target" / "benchmarks" / "ad_network"
QUERY: Final = "CAMPAIGN"


@dataclass(frozen=True)
class Way:
    """One way to run the dataflow."""

    name: str
    coordination: Coordination
    independent: bool = False
    """Each campaign at one server."""


WAYS: Final = (
    Way("uncoordinated", Coordination.NONE),
    Way("ordered", Coordination.ORDER),
    Way("sealed", Coordination.LEAST),
    Way("independent seal", Coordination.LEAST, independent=True),
)


@dataclass(frozen=True)
class Outcome:
    """One run."""

    way: str
    servers: int
    seconds: float
    cpu_s: float
    disagreements: int
    """Requests that not all replicas answered alike."""
    missing: int
    """Answers that must be given and were not."""
    wrong: int
    """Answers that should not have been given, or came twice."""


def main() -> int:
    """Run everything in turns; 1 where a coordinated run is wrong or its replicas disagree."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--servers", type=int, nargs="+", default=[5, 10])
    parser.add_argument("--clicks", type=int, default=40_000, help="of all servers together")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--json", type=Path, help="write the measurements here")
    options = parser.parse_args()
    found = [
        outcome
        for _ in range(options.repeat)
        for servers in options.servers
        for outcome in turn(servers, options.clicks, options.master)
    ]
    Console().print(table(found, options.clicks))
    if options.json:
        options.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    return int(any(bad(each) for each in found))


def bad(outcome: Outcome) -> bool:
    """True where replicas disagree under coordination, or sealed answers are not the right ones.

    An order makes the replicas agree; what is right still depends on where in it a request stands.
    """
    if outcome.way == "uncoordinated":
        return False
    sealed = outcome.way != "ordered"
    return outcome.disagreements > 0 or (sealed and outcome.missing + outcome.wrong > 0)


def turn(servers: int, clicks: int, master: str) -> Iterator[Outcome]:
    """All ways, one after another, over the same traffic."""
    for way in WAYS:
        root = WORK / f"{servers}{'-independent' if way.independent else ''}"
        if not (root / "data").exists():
            traffic(root, servers, clicks, independent=way.independent)
        project = compiled(way, root / way.name.replace(" ", "-"))
        measured = run(project, root, master)
        yield Outcome(
            way.name,
            servers,
            measured.seconds,
            measured.cpu_s,
            disagreements(project.folder / "state" / "channels"),
            *checked(root / "data", project.folder / "results" / "results"),
        )
        print(f"  ran {way.name}, {servers} servers", file=sys.stderr, flush=True)


def traffic(root: Path, servers: int, clicks: int, *, independent: bool) -> None:
    """Clicks and requests in `root/data`."""
    command = [sys.executable, str(EXAMPLE / "generate.py"), "--data", str(root / "data")]
    command += ["--servers", str(servers), "--clicks", str(clicks)]
    command += ["--independent"] if independent else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def compiled(way: Way, folder: Path) -> Project:
    """What `blazes compile --coordination` makes."""
    dataflow, _ = load(EXAMPLE / "ad_network.yaml", variants={"Report": QUERY})
    decided = coordinate(dataflow, way.coordination)
    return write(stages(decided), folder, analysis=to_json(decided))


def disagreements(channels: Path) -> int:
    """Requests that some replicas answered and others did not."""
    answered: Counter[int] = Counter()
    for channel in channels.glob("Report.response*"):
        rows = dataset.dataset(channel, format="parquet").to_table(columns=["request"])
        answered.update(rows.column("request").to_pylist())
    return sum(replicas % 3 != 0 for replicas in answered.values())


def checked(data: Path, results: Path) -> tuple[int, int]:
    """How many answers are missing, and how many are wrong."""
    clicks = [click for click in read_records(data / "clicks") if not click["sealed"]]
    should = Counter(poor(clicks, list(read_records(data / "requests")), by=("id", "campaign")))
    given = Counter(row["request"] for row in read_results(results))
    return (should - given).total(), (given - should).total()


def table(found: list[Outcome], clicks: int) -> Table:
    """Medians, one row for each way and number of servers."""
    shown = Table(box=SIMPLE_HEAD, title=f"Ad network, {QUERY}, 3 replicas, {clicks} clicks")
    for column in ("servers", "", "seconds", "throughput", "replicas disagree", "missing", "wrong"):
        shown.add_column(column, justify="right" if column else "left")
    for servers, name in dict.fromkeys((each.servers, each.way) for each in found):
        alike = [each for each in found if (each.servers, each.way) == (servers, name)]
        base = [e for e in found if (e.servers, e.way) == (servers, WAYS[0].name)]
        ratios = [b.seconds / e.seconds for b, e in zip(base, alike, strict=True)]
        shown.add_row(
            str(servers),
            name,
            f"{statistics.median(each.seconds for each in alike):.1f}",
            f"{statistics.median(ratios):.2f}",
            str(max(each.disagreements for each in alike)),
            str(max(each.missing for each in alike)),
            str(max(each.wrong for each in alike)),
        )
    return shown


if __name__ == "__main__":
    sys.exit(main())
