"""What the analysis says of random dataflows, beside what happens when they run.

    python benchmarks/soundness.py [--dataflows 1000] [--inputs 12] [--seed 0] [--processes 1]
                                   [--written 0]

Every dataflow is made of components whose annotations are true by construction
(`tests/executable.py`). Each runs in three ways: nothing waits; seals alone are waited for; the
whole plan. An anomaly worse than its stream's label would be a mistake of the analyser, and is
printed. The other way round, a label that no run ever bore out is the price of soundness: it is
counted, by label, of all streams that leave components.

`--written N` draws files, too: a random query with annotations, seals, ids, lineage, replicas and
sinks beside it that know nothing of it. Where anything of the verdict is better than without the
annotations, which the query gives then, a diagnostic has to say so.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import Any

sys.path.insert(0, str(FilePath(__file__).parent.parent))

import yaml

from annotations.dataflow import Path
from annotations.diagnostics import BadInput
from annotations.file import loads
from annotations.vocabulary import (
    AnnotationKind,
    FunctionalDependency,
    Label,
    Repeats,
    StreamLabel,
    Within,
)
from annotations.whitebox.claims import unshown_claims
from annotations.whitebox.ir import Role
from benchmarks.random_queries import Query, random_query
from blazes.analysis import Analysis, analyze
from blazes.choice import without_seals
from blazes.coordination import Plan, Strategy, plan
from blazes.simulate.hunt import Hunt, Hunted, exceeds
from blazes.simulate.network import Refused
from tests.executable import Numbers, Runnable, random_dataflow

WAYS = ("nothing waits", "seals alone", "the whole plan")


@dataclass
class Sound:
    """What a sweep found."""

    dataflows: int = 0
    schedules: int = 0
    refused: int = 0
    labelled: Counter[tuple[str, Label]] = field(default_factory=Counter)
    witnessed: Counter[tuple[str, Label]] = field(default_factory=Counter)
    differed: Counter[tuple[str, Label]] = field(default_factory=Counter)
    mistakes: list[str] = field(default_factory=list)
    """Which dataflow of the seed, in which way, and what differed."""

    def add(self, other: Sound) -> None:
        """Join another sweep's findings to these."""
        self.dataflows += other.dataflows
        self.schedules += other.schedules
        self.refused += other.refused
        self.labelled += other.labelled
        self.witnessed += other.witnessed
        self.differed += other.differed
        self.mistakes += other.mistakes


def ways(runnable: Runnable) -> list[tuple[str, Analysis, Plan | None, dict[str, StreamLabel]]]:
    """(name, analysis, plan, label of each stream) of the three ways to run a dataflow."""
    free, whole = analyze(without_seals(runnable.dataflow)), analyze(runnable.dataflow)
    seals, full = plan(whole, target=Label.DIVERGE), plan(whole)
    return [
        (WAYS[0], free, None, dict(free.labels)),
        (WAYS[1], whole, seals, dict(seals.repaired)),
        (WAYS[2], whole, full, dict(full.repaired)),
    ]


def sweep(
    dataflows: int | Sequence[int], *, inputs: int, seed: int, until: float = float("inf")
) -> Sound:
    """Run so many dataflows, or those of these numbers, each on so many inputs in each way."""
    found = Sound()
    for number in range(dataflows) if isinstance(dataflows, int) else dataflows:
        if time.monotonic() > until:
            break
        rng = random.Random(f"{seed}/{number}")
        runnable = random_dataflow(rng)
        found.dataflows += 1
        for name, analysis, coordination, labels in ways(runnable):
            try:
                network = runnable.network(analysis, coordination)
            except Refused:
                found.refused += 1
                continue
            hunt = Hunt(
                network,
                Numbers(network),
                rng,
                coordinated=coordination is not None,
                schedules=6,
                states=60,
            )
            hunted = hunt.go(inputs_max=inputs, until=until)
            count(found, runnable, name, labels, hunted)
            verbs = {each: verb.name for each, verb in runnable.verbs.items()}
            found.mistakes += [
                f"dataflow {number} {verbs}, {name}: {anomaly.kind} at {anomaly.stream} "
                f"({labels[anomaly.stream].label})"
                for anomaly in hunted.witnesses
                if exceeds(anomaly, labels)
            ]
    return found


# ---- written annotations

SAID = {"BLZ077", "BLZ083", "BLZ084"}
"""What tells of an annotation that the code does not show."""
SINKS = (
    {"format": "delta", "path": "/lake/t"},
    {"format": "kafka", "options": {"topic": "t", "kafka.bootstrap.servers": "h:1"}},
    {"format": "jdbc", "key": ["o1"], "options": {"url": "jdbc:postgresql://h/d", "dbtable": "t"}},
)


def written_path(rng: random.Random, name: str, columns: Sequence[str]) -> dict[str, Any]:
    """An annotation that knows nothing of the code."""
    kind = rng.choice(list(AnnotationKind))
    gate = rng.sample(columns, min(len(columns), rng.choice([0, 1, 1, 2])))
    path: dict[str, Any] = {"from": name, "to": "out", "label": kind.name}
    if not kind.confluent:
        path["label"] += f"[{', '.join(gate) or '*'}]"
        path |= {"within": "sequence"} if rng.random() < 0.2 else {}
    path |= {"repeats": rng.choice(list(Repeats)).value} if rng.random() < 0.3 else {}
    path |= {"rows": rng.choice(["one", "many"])} if rng.random() < 0.3 else {}
    copies = {made: rng.choice(columns) for made in ("c1", "c2", *columns)}
    return path | ({"lineage": copies} if rng.random() < 0.3 else {})


def said_of(path: Path) -> dict[str, Any]:
    """The annotation of a path as the code gives it, and nothing else."""
    chance = {"nondeterministic": path.nondeterministic} if path.nondeterministic else {}
    sequence = {"within": "sequence"} if path.within is Within.SEQUENCE else {}
    return {"label": str(path.annotation), **sequence, **chance}


def files(rng: random.Random) -> tuple[str, str]:
    """A file without annotations beside a random query, and the same with them."""
    query = random_query(rng)
    while any(table.role is not Role.STREAM for table in query.schemas.tables):
        query = random_query(rng)
    columns = {table.name: [*dict(table.columns)] for table in query.schemas.tables}
    sealed = rng.choice(sorted({name for names in columns.values() for name in names}))
    streams: dict[str, dict[str, Any]] = {}
    for table in query.schemas.tables:
        stream = {"to": f"Query.{table.name}", "schema": dict(table.columns)}
        if sealed in columns[table.name] and rng.random() < 0.8:
            stream["seal"] = [sealed]
        if rng.random() < 0.3:
            stream["delivery"] = "may-repeat"
            stream |= {"id": [rng.choice(columns[table.name])]} if rng.random() < 0.7 else {}
        streams[f"all_{table.name}"] = stream
    streams["results"] = {"from": "Query.out"}
    components: dict[str, dict[str, Any]] = {"Query": {"sql": _named_alike(query, rng)}}
    if rng.random() < 0.2:
        components["Query"]["Rep"] = True
    if rng.random() < 0.6:
        streams["results"]["to"] = "Later.results"
        by = rng.choice([sealed, "c1"])
        later = {"from": "results", "to": "done", "label": f"OW[{by}]"}
        components["Later"] = {"annotation": later}
        streams["done"] = {"from": "Later.done"}
    if rng.random() < 0.5:
        streams[[*streams][-1]]["sink"] = rng.choice(SINKS)
    file = {"name": "written", "components": components, "streams": streams}
    if query.schemas.fds:
        file["fds"] = [_dependency(each) for each in query.schemas.fds]
    derived = yaml.safe_dump(file, sort_keys=False)
    try:
        shown = {path.source: path for path in loads(derived)[0].components["Query"].paths}
    except BadInput:
        shown = {}
    chance = rng.choice([0.0, 0.5, 1.0])
    components["Query"]["annotation"] = [
        written_path(rng, name, names)
        if name not in shown or rng.random() < chance
        else {"from": name, "to": "out"} | said_of(shown[name])
        for name, names in columns.items()
    ]
    return derived, yaml.safe_dump(file, sort_keys=False)


def _named_alike(query: Query, rng: random.Random) -> str:
    """The query, or an expression of a column that goes by the name of a column."""
    (table, *others) = query.schemas.tables
    numbers = [name for name, kind in table.columns if kind == "INT"]
    if others or not numbers or rng.random() < 0.6:
        return query.text
    of, name = rng.choice(numbers), rng.choice(numbers)
    value = rng.choice([f"{of} % 2", f"max({of})", f"coalesce({of}, 0)", of])
    text = f"SELECT {value} AS {name}, count(*) AS c1 FROM {table.name}"
    return text + (f" GROUP BY {name}" if "max" not in value else "")


def _dependency(fd: FunctionalDependency) -> str:
    sides = ", ".join(sorted(fd.determinant)), ", ".join(sorted(fd.dependent))
    return (" <-> " if fd.injective else " -> ").join(sides)


def standing(text: str) -> tuple[dict[tuple[str, str], int], bool]:
    """How bad everything is that a file's verdict says, and whether it tells of an annotation."""
    dataflow, findings = loads(text)
    analysis = analyze(dataflow)
    whole = plan(analysis)
    found = {("free", name): int(each.label) for name, each in analysis.labels.items()}
    for name, stream in dataflow.streams.items():
        if stream.consumer is None:  # inside, repairs may be elsewhere
            found["planned", name] = int(whole.repaired[name].label)
    if all(
        entry.strategy is not Strategy.SEAL for entry in whole.entries
    ):  # a gate drops what comes again
        every = {**analysis.deliveries, **whole.deliveries}
        found |= {("delivery", name): int(each.label) for name, each in every.items()}
    said = {str(each.code.id) for each in (*findings, *unshown_claims(dataflow))}
    return found, bool(said & SAID)


def unsaid(numbers: Sequence[int], seed: int) -> tuple[Counter[str], list[str]]:
    """How written annotations compare with those of the code, and files with something better of
    which nothing is said."""
    found: Counter[str] = Counter()
    wrong = []
    for number in numbers:
        derived, written = files(random.Random(f"{seed}/{number}"))
        try:
            (before, _), (after, said) = standing(derived), standing(written)
        except BadInput as error:
            found[f"refused: {error.diagnostics[0].code.id}"] += 1
            continue
        better = {each for each in before.keys() & after.keys() if after[each] < before[each]}
        found[f"{'better' if better else 'no better'}, {'told' if said else 'not told'}"] += 1
        if better and not said:
            wrong.append(f"file {number}, {sorted(better)}:\n{written}")
    return found, wrong


def swept(numbers: Sequence[int], inputs: int, seed: int) -> tuple[Sound, float]:
    """The sweep of a process, and its CPU time in seconds."""
    began = time.process_time()
    return sweep(numbers, inputs=inputs, seed=seed), time.process_time() - began


def count(
    found: Sound, runnable: Runnable, way: str, labels: dict[str, StreamLabel], hunted: Hunted
) -> None:
    """Add what a hunt found."""
    found.schedules += hunted.schedules
    kinds: dict[str, set[Label]] = {}
    for anomaly in hunted.seen:
        kinds.setdefault(anomaly.stream, set()).add(anomaly.kind)
    for name, stream in runnable.dataflow.streams.items():
        if stream.producer is not None:
            label = labels[name].label
            found.labelled[way, label] += 1
            found.witnessed[way, label] += label in kinds.get(name, ())
            found.differed[way, label] += bool(kinds.get(name))


def table(found: Sound) -> list[dict[str, Any]]:
    """A row for each way and label."""
    return [
        {
            "way": way,
            "label": str(label),
            "streams": found.labelled[way, label],
            "as labelled": found.witnessed[way, label],
            "differed at all": found.differed[way, label],
        }
        for way in WAYS
        for label in Label
        if found.labelled[way, label]
    ]


def main() -> int:
    """Print the table; 1 where the analyser made a mistake."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--dataflows", type=int, default=1000)
    parser.add_argument("--inputs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--written", type=int, default=0, help="files with written annotations")
    parser.add_argument("--json", type=FilePath)
    arguments = parser.parse_args()
    found, cpu_s = Sound(), 0.0
    lots = [range(n, arguments.dataflows, 100) for n in range(100)]
    with ProcessPoolExecutor(arguments.processes) as pool:
        tasks = [pool.submit(swept, lot, arguments.inputs, arguments.seed) for lot in lots]
        for task in as_completed(tasks):
            part, took_s = task.result()
            found.add(part)
            cpu_s += took_s
            print(f"{found.dataflows} of {arguments.dataflows}", end="\r", file=sys.stderr)
    rows = table(found)
    print(f"{found.dataflows} dataflows, {found.schedules:,} schedules, {cpu_s:.0f} s of CPU")
    for row in rows:
        print(
            f"{row['way']:15} {row['label']:8} {row['streams']:6} streams, "
            f"{row['as labelled']:6} as labelled, {row['differed at all']:6} differed at all"
        )
    told, wrong = unsaid(range(arguments.written), arguments.seed)
    print(*(f"written: {count:5} {what}" for what, count in told.most_common()), sep="\n")
    found.mistakes += wrong
    for mistake in found.mistakes:
        print(f"MISTAKE {mistake}", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return int(bool(found.mistakes))


if __name__ == "__main__":
    sys.exit(main())
