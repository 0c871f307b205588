"""Change a dataflow between the runs of its job, and compare what was said with what happens.

    python benchmarks/state_changes.py --seed 1 --rounds 12 [--kills] [--plant MISTAKE]

A dataflow of five components (a partial aggregate in a sealed buffer, a sealed component behind a
transform, a function of single records, a running aggregate, a join that accumulates) runs on real
Spark, round after round on the same state. Before each round the seed decides on records, and on a
change or two: another text of a component or of what is before it, a new column, a sink added,
removed or moved, an option, another width of shuffles. Then `blazes compile` says what follows, and
the job is run:

- Where it was said that the job goes on, it does, and every sink has exactly the rows that the
  texts make: each record and each sealed partition goes through the text of the round in which it
  is processed, whole; what accumulates is of one text from its first record on.
- Where it was refused, the job does not start, and not a file of its state and results is another
  one. The change is taken back, and the next round goes on.

`--kills` has the job killed (SIGKILL) in some rounds before the change comes, so that micro-batches
and releases are under way. `--plant` makes a mistake that has to be noticed: one of `keeps`
(aggregates go on with another text), `buffered` (what was not buffered is not asked for),
`partial` (partial aggregates of another text go on), `column` (whole records are kept across a new
column).

Prints a line for each round and the changes that went on and that were refused. Status 1 if
anything was not as it had been said.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import linecache
import os
import random
import subprocess
import sys
import tempfile
import types
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq
import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from blazes.cli import main as blazes  # noqa: E402
from flux_runtime.spark import changes  # noqa: E402
from flux_runtime.spark.main import Settings, compare, run  # noqa: E402

ITEMS: Final = {
    "k": "BIGINT", "v": "BIGINT", "w": "BIGINT", "p": "STRING", "sealed": "BOOLEAN", "n": "BIGINT",
}  # fmt: skip
EVENTS: Final = {"id": "BIGINT", "k": "BIGINT", "v": "BIGINT"}
SIDES: Final = {"id": "BIGINT", "k": "BIGINT"}
Row = tuple[Any, ...]
PRODUCERS: Final = ("a", "b")
MISTAKES: Final[Mapping[str, tuple[type, str, Callable[..., Any]]]] = {
    "keeps": (changes.Comparison, "text", lambda _, name, *__: planted_change(name)),
    "buffered": (changes.Comparison, "not_buffered", lambda *_: frozenset()),
    "partial": (changes.UnitState, "buffered", lambda *_: None),
    "column": (changes.Comparison, "keeps_column", lambda *_: False),
}
"""Mistake -> what is replaced, and by what."""


def planted_change(name: str) -> changes.Change:
    """A change of a text that goes on, whatever it is of."""
    return changes.Change(name, "another text", True, "planted")


@dataclass(frozen=True, slots=True)
class Texts:
    """What changes between two rounds."""

    total: str = "sum(v)"
    factor: int = 1
    largest: str = "max(v)"
    tag: int = 0
    running: str = "sum(v)"
    matched: str = ""
    more_items: bool = False
    more_events: bool = False
    more_lefts: bool = False
    copy: bool = False
    """Whether the totals go to a second sink."""
    copy_of_tags: bool = False
    copy_of_matches: bool = False
    place: str = "tagged"
    files: int = 3
    width: int = 2

    def dataflow(self) -> dict[str, Any]:
        """The file, as data."""
        items = {**ITEMS, **({"more": "STRING"} if self.more_items else {})}
        events = {**EVENTS, **({"more": "STRING"} if self.more_events else {})}
        lefts = {**SIDES, **({"more": "STRING"} if self.more_lefts else {})}
        sealed = {
            "seal": ["k"],
            "producer": "p",
            "punctuation": {"when": "sealed", "count": "n"},
            "producers": [*PRODUCERS],
            "schema": items,
            "source": source("items", maxFilesPerTrigger=str(self.files)),
        }
        streams: dict[str, Any] = {
            "items": {"to": "Total.item", **sealed},
            "others": {"to": "Clean.item", **sealed},
            "clean": {"from": "Clean.clean", "to": "Largest.clean"},
            "events": {"to": "Tag.event", "schema": events, "source": source("events")},
            "marks": {"to": "Running.event", "schema": EVENTS, "source": source("events")},
            "lefts": {"to": "Match.left", "schema": lefts, "source": source("lefts")},
            "rights": {"to": "Match.right", "schema": SIDES, "source": source("rights")},
            "totals": {"from": "Total.totals"},
            "largest": {"from": "Largest.largest"},
            "running": {"from": "Running.running"},
            "matched": {"from": "Match.matched"},
            "tagged": {
                "from": "Tag.tagged",
                "sink": {"format": "parquet", "path": f"out/{self.place}"},
            },
        }
        if self.copy:
            streams["copied"] = {"from": "Total.totals"}
        if self.copy_of_matches:
            streams["rematched"] = {"from": "Match.matched"}
        if self.copy_of_tags:
            streams["retagged"] = {"from": "Tag.tagged"}
        extra = ", left.more" if self.more_lefts and self.matched else ""
        return {
            "name": "shop",
            "deployment": {"conf": {"spark.sql.shuffle.partitions": str(self.width)}},
            "components": {
                "Total": component(
                    "item", "totals", "OW[k]", f"SELECT k, {self.total} AS s FROM item GROUP BY k"
                ),
                "Clean": component("item", "clean", "CR", self.clean_text()),
                "Largest": component(
                    "clean",
                    "largest",
                    "OW[k]",
                    f"SELECT k, {self.largest} AS s FROM clean GROUP BY k",
                ),
                "Tag": component("event", "tagged", "CR", self.tag_text()),
                "Running": component(
                    "event",
                    "running",
                    "OW[k]",
                    f"SELECT k, count(*) AS n, {self.running} AS s FROM event GROUP BY k",
                ),
                "Match": {
                    "annotation": [
                        {"from": "left", "to": "matched", "label": "CW"},
                        {"from": "right", "to": "matched", "label": "CR"},
                    ],
                    "sql": f"SELECT left.id AS a, right.id AS b{self.matched}{extra} "
                    "FROM left JOIN right ON left.k = right.k",
                },
            },
            "streams": streams,
        }

    def clean_text(self) -> str:
        """The query of `Clean`, which hands on what `Largest` reads."""
        w = ", w" if "w" in self.largest else ""
        return f"SELECT k, v * {self.factor} AS v{w} FROM item"

    def tag_text(self) -> str:
        """The query of `Tag`; a new column comes with the text that reads it."""
        more = ", more" if self.more_events else ""
        return f"SELECT id, v + {self.tag} AS v{more} FROM event"


def source(name: str, **options: str) -> dict[str, Any]:
    """A source of JSON files."""
    return {"format": "json", "path": f"data/{name}", "options": options}


def component(from_: str, to: str, label: str, sql: str) -> dict[str, Any]:
    """A component of one path."""
    return {"annotation": {"from": from_, "to": to, "label": label}, "sql": sql}


MUTATIONS: Final[Mapping[str, Callable[[Texts, random.Random], Texts]]] = {
    "total": lambda t, r: replace(t, total=other(r, t.total, "sum(v)", "max(v)", "min(w)")),
    "factor": lambda t, r: replace(t, factor=t.factor + 1),
    "largest": lambda t, r: replace(
        t, largest=other(r, t.largest, "max(v)", "count(DISTINCT v)", "count(DISTINCT w)")
    ),
    "tag": lambda t, r: replace(t, tag=t.tag + 1),
    "running": lambda t, r: replace(t, running=other(r, t.running, "sum(v)", "max(v)")),
    "matched": lambda t, r: replace(t, matched=other(r, t.matched, "", ", left.k AS k")),
    "column of items": lambda t, r: replace(t, more_items=True),
    "column of events": lambda t, r: replace(t, more_events=True),
    "column of lefts": lambda t, r: replace(t, more_lefts=True),
    "second sink": lambda t, r: replace(t, copy=not t.copy),
    "second sink of tags": lambda t, r: replace(t, copy_of_tags=not t.copy_of_tags),
    "second sink of matches": lambda t, r: replace(t, copy_of_matches=not t.copy_of_matches),
    "place": lambda t, r: replace(t, place=f"tagged-{r.randrange(1000)}"),
    "files": lambda t, r: replace(t, files=t.files % 3 + 1),
    "width": lambda t, r: replace(t, width=t.width % 3 + 1),
}
"""Change -> the texts after it."""


def after(texts: Texts, change: str, random_: random.Random) -> Texts:
    """The texts after a change: one of `MUTATIONS`, or `FIELD=TEXT`."""
    name, _, text = change.partition("=")
    return replace(texts, **{name: text}) if text else MUTATIONS[name](texts, random_)


def other(random_: random.Random, now: str, *of: str) -> str:
    """One that is not the present one."""
    return random_.choice([each for each in of if each != now])


@dataclass
class World:
    """Records that came, and the rows that they have to make."""

    random: random.Random
    folder: Path
    files: int = 0
    next_id: int = 0
    next_key: int = 0
    open: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Key of a partition -> the records that came of it."""
    complete: list[int] = field(default_factory=list)
    """Keys whose last punctuation has come and that no run has released yet."""
    new_events: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    lefts: list[dict[str, Any]] = field(default_factory=list)
    rights: list[dict[str, Any]] = field(default_factory=list)
    expected: dict[str, Counter[Row]] = field(default_factory=dict)
    """Place of a sink -> its rows."""
    instead: dict[tuple[str, Row], set[Row | None]] = field(default_factory=dict)
    """(place, row) -> rows of a killed job that may be there instead; None: nothing."""
    matched: set[Row] = field(default_factory=set)
    """The rows of the join after the round before."""
    ends: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """Key -> punctuations that are still to come."""

    def feed(self, texts: Texts) -> None:
        """Let records come: partitions begin, grow and, some of them, end."""
        more = {"more": f"m{self.files}"} if texts.more_items else {}
        rows: list[dict[str, Any]] = []
        for _ in range(self.random.randint(2, 4)):
            self.next_key += 1
            self.open[self.next_key], self.ends[self.next_key] = [], []
        for key in [*self.open]:
            if key in self.complete:
                continue
            for producer in PRODUCERS:
                if any(end["p"] == producer for end in self.ends[key]):
                    continue
                records = [
                    {
                        "k": key,
                        "v": self.random.randint(1, 9),
                        "w": self.random.randint(10, 99),
                        "p": producer,
                        **more,
                    }
                    for _ in range(self.random.randint(0, 3))
                ]
                self.open[key] += records
                rows += records
                if self.random.random() < 0.6:
                    sent = sum(record["p"] == producer for record in self.open[key])
                    end = {"k": key, "p": producer, "sealed": True, "n": sent}
                    self.ends[key].append(end)
                    rows.append(end)
            if len(self.ends[key]) == len(PRODUCERS):
                self.complete.append(key)
        self.random.shuffle(rows)
        for part in (rows[::2], rows[1::2]):
            self.write("items", part)
        more = {"more": f"m{self.files}"} if texts.more_events else {}
        self.new_events = [
            {"id": self.id(), "k": self.random.randint(1, 3), "v": self.random.randint(1, 9)} | more
            for _ in range(self.random.randint(1, 5))
        ]
        self.write("events", self.new_events)
        self.events += self.new_events
        for name, known in (("lefts", self.lefts), ("rights", self.rights)):
            new = [{"id": self.id(), "k": self.random.randint(1, 4)} for _ in range(2)]
            self.write(name, new)
            known += new

    def id(self) -> int:
        """A number that no other record has."""
        self.next_id += 1
        return self.next_id

    def write(self, name: str, rows: list[dict[str, Any]]) -> None:
        """Add a file to a source."""
        folder = self.folder / "data" / name
        folder.mkdir(parents=True, exist_ok=True)
        self.files += 1
        hidden = folder / f".{self.files:05}.json"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        os.utime(hidden, (1_700_000_000 + self.files,) * 2)  # Spark takes the oldest first
        hidden.rename(folder / f"{self.files:05}.json")

    def processed(self, texts: Texts, killed: Texts | None) -> None:
        """The job has gone on with these texts: note what it has to have put out.

        Args:
            texts: of the job.
            killed: of a job that was killed while it processed the same records; each of its
                commits counts, or none of it.
        """
        for (place, name), row in self.rows(texts).items():
            self.expected.setdefault(place, Counter())[row] += 1
            if killed is not None:
                before = self.rows(killed).get((place, name))
                self.instead.setdefault((place, row), set()).add(before)
        self.matched = self.pairs(texts)
        for key in self.complete:
            del self.open[key], self.ends[key]
        self.complete.clear()
        self.new_events = []

    def rows(self, texts: Texts) -> dict[tuple[str, int], Row]:
        """(place, key or id) -> the row that texts make of what is new and whole."""
        rows: dict[tuple[str, int], Row] = {}
        for key in self.complete:
            if records := self.open[key]:
                rows["totals", key] = (key, value(texts.total, records, 1))
                rows["largest", key] = (key, value(texts.largest, records, texts.factor))
                if texts.copy:
                    rows["copied", key] = rows["totals", key]
        for event in self.new_events:
            rows[f"out/{texts.place}", event["id"]] = tagged(event, texts)
        if texts.copy_of_tags:  # a unit of its own, which begins with the oldest record
            begun = "retagged" in self.expected
            for event in self.new_events if begun else self.events:
                rows["retagged", event["id"]] = tagged(event, texts)
        if texts.copy_of_matches:
            for pair in self.pairs(texts) - self.matched:
                rows["rematched", hash(pair)] = pair
        return rows

    def pairs(self, texts: Texts) -> set[Row]:
        """The rows of the join."""
        return {
            (left["id"], right["id"], *([left["k"]] if texts.matched else []))
            for left in self.lefts
            for right in self.rights
            if left["k"] == right["k"]
        }

    def differences(self, place: str, found: Counter[Row]) -> str:
        """What a sink has that differs from what it should; empty where nothing does."""
        expected = self.expected[place]
        missing, more = expected - found, found - expected
        for row in [*missing]:
            for before in self.instead.get((place, row), ()):
                if before is None or before in more:
                    missing -= Counter([row])
                    more -= Counter([] if before is None else [before])
                    break
        return f"{place}: {dict(missing)} missing, {dict(more)} too many" if missing or more else ""

    def wrong(self, texts: Texts) -> list[str]:
        """What the sinks have that differs from what they should."""
        project = self.folder / "target"
        wrong = []
        for place in self.expected:
            outside = place.startswith("out/")
            found = rows_of(self.folder / place if outside else project / "results" / place)
            wrong += filter(None, [self.differences(place, found)])
        newest: dict[Any, tuple[Any, ...]] = {}
        for key, *row in rows_of(project / "results" / "running"):
            newest[key] = max(newest.get(key, (0,)), tuple(row))
        by_key: dict[int, list[dict[str, Any]]] = {}
        for event in self.events:
            by_key.setdefault(event["k"], []).append(event)
        for key, events in by_key.items():
            of = (len(events), value(texts.running, events, 1))
            if newest.get(key) != of:
                wrong.append(f"running: {key} has {newest.get(key)}, not {of}")
        pairs = Counter(self.pairs(texts))
        matched = rows_of(project / "results" / "matched")
        if matched != pairs:
            wrong.append(f"matched: {dict(pairs - matched)} missing, {dict(matched - pairs)} more")
        return wrong


def tagged(event: dict[str, Any], texts: Texts) -> Row:
    """The row that `Tag` makes of a record."""
    more = (event.get("more"),) if texts.more_events else ()
    return (event["id"], event["v"] + texts.tag, *more)


def value(text: str, records: list[dict[str, Any]], factor: int) -> int | None:
    """An aggregate of records, as its text says."""
    column = "w" if "w" in text else "v"
    values = [record[column] * (factor if column == "v" else 1) for record in records]
    if text.startswith("count"):
        return len({*values})
    of = {"sum": sum, "max": max, "min": min}[text[:3]]
    return of(values) if values else None


def rows_of(folder: Path) -> Counter[Row]:
    """The rows of a sink; NULL where a file has not a column."""
    rows: Counter[Row] = Counter()
    for file in sorted(folder.rglob("*.parquet")) if folder.is_dir() else []:
        rows.update(tuple(row.values()) for row in pq.ParquetFile(file).read().to_pylist())
    return rows


POINTS: Final = (
    "output-staged", "output-committed", "native-committed", "batch-processed", "release-logged",
    "release-processed", "batch-begun", "chunk-written", "ingested",
)  # fmt: skip
"""Where a job is killed."""


class Trial:
    """A dataflow that is changed and run, again and again.

    Args:
        folder: a new one.
        random_: what decides.
        log: takes a line for each round.
        planted: whether the comparison in this process has a mistake.
    """

    def __init__(
        self,
        folder: Path,
        random_: random.Random,
        log: Callable[[str], None],
        *,
        planted: bool = False,
    ) -> None:
        self.planted = planted
        self.world = World(random_, folder)
        self.random = random_
        self.folder = folder
        self.log = log
        self.texts = Texts()
        self.outcomes: Counter[tuple[str, bool]] = Counter()
        """(change, whether it went on) -> rounds."""
        self.said: dict[str, Any] = {}
        """What `blazes compile` said last."""

    def round(self, names: list[str], *, kill: bool = False) -> list[str]:
        """Let records come, make changes, run the job; what is wrong."""
        world = self.world
        world.feed(self.texts)
        killed_with = None
        if kill:
            killed_with = self.texts
            point = f"{self.random.choice(POINTS)}@{self.random.randint(1, 4)}"
            self.kill(point)
            moving = ("place", "second sink of tags", "second sink of matches")
            names = [name for name in names if name not in moving]
        texts = self.texts
        for name in names:
            texts = after(texts, name, self.random)
        settings, build = self.compiled(texts)
        said = self.said.get("state", {"goes_on": True, "changes": []})
        if self.planted:  # `blazes compile` asks a process without the mistake
            said = json.loads(printed(lambda: compare(build, settings)))
        before = contents(self.folder)
        with contextlib.redirect_stderr(io.StringIO()):
            status = run(build, settings)
        words = f"{', '.join(names) or 'nothing'}{' after a kill' if kill else ''}: "
        words += "goes on" if said["goes_on"] else "refused"
        self.log(words)
        for change in said["changes"]:
            mark = "+" if change["goes_on"] else "-"
            self.log(f"    {mark} {change['name']}: {change['what']}; {change['because']}")
        if said["goes_on"] != (status == 0):
            return [f"{words}, and the job ended with status {status}"]
        for name in names:
            self.outcomes[name.partition("=")[0], said["goes_on"]] += 1
        if not said["goes_on"]:
            changed = {name for name, _ in contents(self.folder) ^ before}
            if changed:
                return [f"{words}, and {sorted(changed)[:3]} changed"]
            settings, build = self.compiled(self.texts)  # back to the plan before
            with contextlib.redirect_stderr(io.StringIO()):
                status = run(build, settings)
            if status != 0:
                return [f"{words}, and the plan before does not run any more"]
        else:
            self.texts = texts
        world.processed(self.texts, killed_with)
        return [f"{words}, and {wrong}" for wrong in world.wrong(self.texts)]

    def summary(self) -> list[str]:
        """In how many rounds with a change the job went on, and was refused; a line for each."""
        counts = {
            name: [self.outcomes[name, goes_on] for goes_on in (True, False)] for name in MUTATIONS
        }
        return [f"{name}: went on {on}, refused {off}" for name, (on, off) in counts.items()]

    def compiled(self, texts: Texts) -> tuple[Settings, Callable[[Any], None]]:
        """Compile the dataflow; how to run it."""
        file = self.folder / "shop.yaml"
        file.write_text(yaml.safe_dump(texts.dataflow(), sort_keys=False))
        project = self.folder / "target"
        arguments = ["compile", str(file), "-o", str(project), "--format", "json"]
        self.said = json.loads(printed(lambda: blazes(arguments)))
        linecache.clearcache()
        module = types.ModuleType("job")
        code = compile((project / "job.py").read_text(), str(project / "job.py"), "exec")
        exec(code, vars(module))
        settings = Settings(
            name="shop",
            folder=project,
            data=project,
            root=self.folder,
            state=project / "state",
            store=None,
            run_dir=None,
            available_now=True,
            fresh=False,
            master="local[2]",
            zookeeper="embedded",
            zookeeper_access={},
            trigger=None,
            conf={
                "spark.sql.shuffle.partitions": str(texts.width),
                "spark.driver.memory": "1g",
                "spark.sql.warehouse.dir": (self.folder / "warehouse").as_uri(),
            },
        )
        return settings, vars(module)["build"]

    def kill(self, point: str) -> None:
        """Run the job of the present plan until it kills itself."""
        self.compiled(self.texts)
        command = [sys.executable, "target/job.py", "--available-now", "--master", "local[2]"]
        subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "BLAZES_CRASH_AT": point},
            capture_output=True,
            check=False,
        )


def printed(call: Callable[[], object]) -> str:
    """What a call prints."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        call()
    return output.getvalue()


def contents(folder: Path) -> set[tuple[str, int]]:
    """Files of state and results, and when they were changed."""
    project = folder / "target"
    roots = (project / "state", project / "results", folder / "out")
    return {
        (str(file.relative_to(folder)), file.stat().st_mtime_ns)
        for root in roots
        for file in root.rglob("*")
        if file.is_file()
    }


def main(argv: list[str] | None = None) -> int:
    """Change and run a dataflow as the arguments say; 1 if something was not as it was said."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument(
        "--changes", help="of one round after another: 'tag, total=max(v); running'"
    )
    parser.add_argument("--kills", action="store_true")
    parser.add_argument("--plant", choices=sorted(MISTAKES))
    arguments = parser.parse_args(argv)
    if arguments.plant:
        owner, name, wrong = MISTAKES[arguments.plant]
        setattr(owner, name, wrong)
    random_ = random.Random(arguments.seed)
    given = [part.split(",") for part in (arguments.changes or "").split(";")]
    given = given if arguments.changes else []
    with tempfile.TemporaryDirectory() as folder:
        trial = Trial(
            Path(folder),
            random_,
            lambda line: print(line, flush=True),
            planted=arguments.plant is not None,
        )
        for number in range(len(given) or arguments.rounds):
            names = [name.strip() for name in given[number]] if given else []
            if number and not given:
                names = random_.sample([*MUTATIONS], random_.choice((1, 1, 1, 2, 3)))
            kill = arguments.kills and number > 0 and random_.random() < 0.4
            if wrong := trial.round([name for name in names if name], kill=kill):
                print("\n".join(wrong))
                return 1
    print("\n".join(trial.summary()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
