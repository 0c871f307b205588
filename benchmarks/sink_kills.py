"""Kill jobs around the commits to their sinks, and compare what the sinks have with the truth.

    python benchmarks/sink_kills.py --seed 1 [--only files,delta,s3,kafka,jdbc,derby,appended]
        [--rounds 1] [--when "two drivers"] [--together] [--plant]

For each sink a dataflow is compiled and run on files of rows that the seed decides. Its driver
kills itself with SIGKILL before, inside and after a commit, of a number that the seed decides; or
stands still inside of one while a second driver runs the job to its end on the same state, where
locks do not reach, and goes on then. In the end the sink has each row as often as the sources, or,
where the compiler had said that rows may come again, at least as often and none that is wrong.

`files` are Parquet, `delta` a Delta table on the disk, `s3` one in an object store, `kafka` a topic
of a broker, `jdbc` a table of PostgreSQL (Debian's; left out where it or its driver is not
installed), `derby` one of the database that ships with Spark, which one process at a time can open,
`appended` a table without a transaction, which shows that the attack bites. `--together` gives one
job all sinks, which is faster. Options hold references to a secret, whose value may be in no file
that a job leaves. `--plant` makes the sinks forget what they have, which is to be noticed.

Prints a line for each attack, and all of them as a table. Status 1 if a cell is not as the compiler
had said.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from annotations.file import loads  # noqa: E402
from benchmarks.sink_servers import (  # noqa: E402
    Derby,
    Postgres,
    committed_messages,
    kafka_broker,
    make_topic,
    object_store,
    postgres,
)
from blazes.analysis import analyze  # noqa: E402
from blazes.coordination import Plan, plan  # noqa: E402
from blazes.report.json_result import to_json  # noqa: E402
from codegen.model import Guarantee, Sink  # noqa: E402
from codegen.project import write  # noqa: E402
from codegen.stages import stages  # noqa: E402
from flux_runtime.spark import faults  # noqa: E402

Row = tuple[int, str]

POINTS: Final[Mapping[str, Mapping[str, str]]] = {
    "files": {
        "before": "output-staged", "inside": "output-checked", "after": "output-committed"
    },
    "delta": {"before": "delta-begun", "inside": "delta-written", "after": "delta-committed"},
    "s3": {"before": "delta-begun", "inside": "delta-written", "after": "delta-committed"},
    "kafka": {"before": "topic-begun", "inside": "topic-sent", "after": "topic-committed"},
    "jdbc": {"before": "table-staged", "inside": "table-moved", "after": "table-committed"},
    "derby": {"before": "table-staged", "inside": "table-moved", "after": "table-committed"},
    "appended": {"after": "native-committed"},
}  # fmt: skip
"""Sink -> when -> the place in the code at which the driver kills itself."""
TWO: Final = "two drivers"
MOMENTS: Final = ("before", "inside", "after", TWO)
TITLES: Final[Mapping[str, str]] = {
    "files": "Parquet files",
    "delta": "Delta on a disk",
    "s3": "Delta on S3 (moto)",
    "kafka": "Kafka (noida-db)",
    "jdbc": "JDBC, PostgreSQL",
    "derby": "JDBC, Derby",
    "appended": "JDBC, no transaction",
}
ONE_PROCESS: Final = frozenset({"derby"})
"""Sinks that a second driver cannot even open."""
FILES: Final = 6
"""Of the source; each is a commit."""
BUCKET: Final = "bucket"
SECRET: Final = "SINK_SECRET"
"""Environment variable that options refer to; its value is to be in no file that a job writes."""
PLANT: Final = """
from flux_runtime.spark.ends import sinks
sinks.Claim.is_made = lambda self, note, unit, number, covers: False
"""


@dataclass(frozen=True)
class Ends:
    """The servers of this run."""

    broker: str
    store: Mapping[str, str]
    database: Postgres | None

    def places(self) -> list[str]:
        """The sinks that can be attacked here."""
        return [name for name in POINTS if self.database or name != "jdbc"]


@dataclass(frozen=True)
class Cell:
    """A job of some sinks, in a folder of its own."""

    folder: Path
    sinks: Sequence[str]
    ends: Ends
    planted: bool = False

    @property
    def name(self) -> str:
        """What its tables and topics are called."""
        return self.folder.name.replace("-", "_")

    def made(self, rng: random.Random) -> list[Row]:
        """Write the source and the job; the rows."""
        self.folder.mkdir()
        rows = []
        for number in range(FILES):
            some = [(number, f"k{rng.randrange(4)}") for _ in range(rng.randint(1, 9))]
            file = self.folder / "items" / f"{number}.json"
            file.parent.mkdir(exist_ok=True)
            file.write_text("".join(json.dumps({"id": i, "k": k}) + "\n" for i, k in some))
            os.utime(file, (1_700_000_000 + number,) * 2)
            rows += some
        if "kafka" in self.sinks:
            make_topic(self.ends.broker, self.name)
        decided = self._plan()
        write(stages(decided), self.folder, analysis=to_json(decided))
        if self.planted:
            job = self.folder / "job.py"
            job.write_text(PLANT + job.read_text())
        return rows

    def said(self, sink: str) -> Guarantee:
        """What the compiler says of a sink."""
        return next(
            each.guarantee for each in stages(self._plan()).stages
            if isinstance(each, Sink) and each.name == f"{sink}_out"
        )  # fmt: skip

    def _plan(self) -> Plan:
        dataflow, _ = loads(self._text())
        return plan(analyze(dataflow))

    def _text(self) -> str:
        streams: dict[str, Any] = {
            "items": {
                "to": "Keep.items",
                "schema": {"id": "INT", "k": "STRING"},
                "source": {
                    "format": "json",
                    "path": str(self.folder / "items"),
                    "options": {"maxFilesPerTrigger": "1"},
                },
            }
        }
        for sink in self.sinks:
            streams[f"{sink}_out"] = {"from": "Keep.kept", "sink": self._sink(sink)} | (
                {} if sink == "appended" else {"delivery": "once"}
            )
        conf = {"spark.driver.memory": "1g", "spark.ui.enabled": "false"}
        if self.ends.database is not None:
            conf["spark.jars"] = self.ends.database.jar
        keep = {
            "annotation": {"from": "items", "to": "kept", "label": "CR", "rows": "one"},
            "sql": "SELECT id, k FROM items",
        }
        return json.dumps(
            {
                "name": self.folder.name,  # which tells its notes from those of other jobs
                "components": {"Keep": keep},
                "streams": streams,
                "deployment": {"master": "local[2]", "conf": conf},
            }
        )

    def _sink(self, sink: str) -> dict[str, Any]:
        match sink:
            case "files":
                return {"format": "parquet", "path": str(self.folder / "out")}
            case "delta":
                return {"format": "delta", "path": str(self.folder / "table")}
            case "s3":
                path = f"s3://{BUCKET}/{self.name}"
                options = {**self.ends.store, "AWS_SECRET_ACCESS_KEY": f"${{env:{SECRET}}}"}
                return {"format": "delta", "path": path, "options": options}
            case "kafka":
                options = {"kafka.bootstrap.servers": self.ends.broker, "topic": self.name}
                return {"format": "kafka", "options": options}
            case _:
                database = self._database(sink)
                table = {"dbtable": f"{self.name}_{sink}", "password": f"${{env:{SECRET}}}"}
                return {"format": "jdbc", "options": {**database.options, **table}}

    def _database(self, sink: str) -> Postgres | Derby:
        if sink == "derby" or self.ends.database is None:
            return Derby(self.folder / "database")
        return self.ends.database

    def rows(self, sink: str) -> Counter[Row]:
        """What a sink has, as anybody reads it."""
        match sink:
            case "files":
                import pyarrow.dataset as ds

                files = [str(file) for file in (self.folder / "out").glob("*/*.parquet")]
                table = ds.dataset(files, format="parquet").to_table()
            case "delta" | "s3":
                from deltalake import DeltaTable

                options = dict(self.ends.store)
                path = self._sink(sink)["path"]
                table = DeltaTable(path, storage_options=options).to_pyarrow_table()
            case "kafka":
                values = map(json.loads, committed_messages(self.ends.broker, self.name))
                return Counter((value["id"], value["k"]) for value in values)
            case _:
                found = self._database(sink).query(f'SELECT "id", "k" FROM {self.name}_{sink}')
                return Counter((int(i), k) for i, k in found)
        return Counter((row["id"], row["k"]) for row in table.to_pylist())

    # ---- drivers

    @property
    def secret(self) -> str:
        """What nobody may read in any file."""
        return f"secret-of-{self.name}"

    def leaks(self) -> list[str]:
        """Files in which the secret can be read."""
        files = (file for file in self.folder.rglob("*") if file.is_file())
        return [file.name for file in files if self.secret.encode() in file.read_bytes()]

    def start(self, **environment: str) -> subprocess.Popen[str]:
        """A driver."""
        return subprocess.Popen(
            [sys.executable, "job.py", "--available-now"],
            cwd=self.folder,
            env={**os.environ, **environment, SECRET: self.secret, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, **environment: str) -> tuple[int, str]:
        """A driver's exit status and last words."""
        process = self.start(**environment)
        _, err = process.communicate(timeout=600)
        if self.secret in err:
            raise AssertionError(f"the secret was printed: {err}")
        return process.returncode, err

    def killed_at(self, point: str) -> str:
        """Let a driver kill itself; what is wrong with that."""
        status, err = self.run(**{faults.VARIABLE: point})
        return "" if status in (-signal.SIGKILL, 0) else f"status {status}: {err[-2000:]}"

    def beside_another(self, point: str) -> str:
        """Let a driver stand still while another one does its work; what is wrong with that."""
        older = self.start(**{faults.PAUSE: point})
        stat = Path(f"/proc/{older.pid}/stat")
        while stat.read_text().rpartition(")")[2].split()[0] != "T":
            if older.poll() is not None:
                return f"it did not stop at {point}: {older.communicate()[1][-2000:]}"
            time.sleep(0.05)
        (self.folder / "state" / ".lock").unlink()  # as if locks did not reach
        status, err = self.run()
        older.send_signal(signal.SIGCONT)
        _, last = older.communicate(timeout=600)
        if status:
            return f"the newer driver ended with {status}: {err[-2000:]}"
        if older.returncode == 0:
            return f"the older driver went on as if it were alone: {last[-2000:]}"
        return ""


def attack(cell: Cell, when: Sequence[tuple[str, str]], rng: random.Random) -> list[str]:
    """Attack a job and let it end; for each sink one line, `exact`, `rows again` or what is wrong.

    Args:
        cell: the job.
        when: the attacks, one after the other: a sink, and one of `POINTS` or `TWO`.
        rng: decides about numbers.
    """
    truth = Counter(cell.made(rng))
    problems = []
    for number, (sink, moment) in enumerate(when):
        last = max(1, FILES // (2 * len(when)))
        nth = rng.randint(1, last) + (number == 0)
        if moment == TWO:
            problems.append(cell.beside_another(f"{POINTS[sink]['inside']}@{nth}"))
        else:
            problems.append(cell.killed_at(f"{POINTS[sink][moment]}@{nth}"))
    status, err = cell.run()
    if status:
        problems.append(f"status {status}: {err[-2000:]}")
    if leaks := cell.leaks():
        problems.append(f"the secret is in {', '.join(leaks)}")
    lines = []
    for sink in cell.sinks:
        line = "; ".join(filter(None, problems))
        if not line:
            line = compared(cell.rows(sink), truth)
        lines.append(line)
    return lines


def compared(found: Counter[Row], truth: Counter[Row]) -> str:
    """What is to be said of the rows of a sink."""
    if found == truth:
        return "exact"
    missing, more = truth - found, found - truth
    if not missing and more.keys() <= truth.keys():
        return f"rows again: {more.total()} of {truth.total()}"
    return f"wrong: {missing.total()} missing, {more.total()} too many, of {truth.total()}"


def as_said(line: str, said: Guarantee) -> bool:
    """Whether a sink has what the compiler had promised."""
    once = said is Guarantee.EXACTLY_ONCE
    return line == "exact" or (not once and line.startswith("rows again"))


@contextlib.contextmanager
def servers(folder: Path) -> Iterator[Ends]:
    """The servers, until they are not needed any more."""
    with (
        kafka_broker(folder / "broker") as broker,
        object_store(BUCKET) as store,
        postgres() as database,
    ):
        yield Ends(broker, store, database)


def together(folder: Path, ends: Ends, sinks: Sequence[str], seed: int) -> list[tuple[str, str]]:
    """One job with all sinks, attacked once at each; sink and outcome."""
    rng = random.Random(seed)
    moments = ("before", "inside", "after")
    when = [(sink, rng.choice(moments)) for sink in rng.sample(sinks, len(sinks))]
    cell = Cell(folder, sinks, ends)
    return list(zip(sinks, attack(cell, when, rng), strict=True))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--when", choices=MOMENTS)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--plant", action="store_true")
    args = parser.parse_args()
    wrong = 0
    cells: dict[str, dict[str, list[str]]] = {}
    said: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as name, servers(Path(name)) as ends:
        chosen = [each for each in args.only.split(",") if each] or ends.places()
        if absent := set(chosen) - set(ends.places()) | set(POINTS) - set(ends.places()):
            print(f"left out, as PostgreSQL or its driver is not here: {', '.join(sorted(absent))}")
        for round_ in range(args.rounds):
            seed = args.seed + round_
            if args.together:
                exact = [each for each in chosen if each not in ("appended", "derby")]
                for sink, line in together(Path(name) / f"all-{seed}", ends, exact, seed):
                    print(f"{seed:4} {sink:9} {'together':12} {line}", flush=True)
                    wrong += line != "exact"
                continue
            for sink in chosen:
                for moment in (each for each in moments(sink) if args.when in (None, each)):
                    rng = random.Random(f"{seed} {sink} {moment}")
                    folder = Path(name) / f"{sink}-{moment.replace(' ', '-')}-{seed}"
                    cell = Cell(folder, [sink], ends, args.plant)
                    (line,) = attack(cell, [(sink, moment)], rng)
                    fine = as_said(line, cell.said(sink))
                    wrong += not fine
                    said[sink] = cell.said(sink).value
                    note = "" if fine else "   NOT AS SAID"
                    cells.setdefault(sink, {}).setdefault(moment, []).append(line + note)
                    print(f"{seed:4} {sink:9} {moment:12} {said[sink]}: {line}{note}", flush=True)
    if cells:
        print(table(cells, said))
    print("as the compiler had said" if not wrong else f"{wrong} not as the compiler had said")
    return 1 if wrong else 0


def moments(sink: str) -> list[str]:
    """When a sink is attacked."""
    two = "inside" in POINTS[sink] and sink not in ONE_PROCESS
    return [*POINTS[sink], *([TWO] if two else [])]


def table(cells: Mapping[str, Mapping[str, Sequence[str]]], said: Mapping[str, str]) -> str:
    """The outcomes of all attacks in Markdown: a line for each sink, a column for each moment.

    Args:
        cells: sink -> moment -> the outcome of each round.
        said: sink -> what the compiler had said of it.
    """
    rows = [["sink", "the compiler says", *MOMENTS]]
    for sink, outcomes in cells.items():
        columns = (sorted({*outcomes.get(moment, ())}) for moment in MOMENTS)
        rows.append([TITLES[sink], said[sink], *("; ".join(lines) or "–" for lines in columns)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    head, *body = (
        "| " + " | ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) + " |"
        for row in rows
    )
    return "\n".join([head, "|" + "|".join("-" * (width + 2) for width in widths) + "|", *body])


if __name__ == "__main__":
    sys.exit(main())
