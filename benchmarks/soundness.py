"""What the analysis says of random dataflows, beside what happens when they run.

    python benchmarks/soundness.py [--dataflows 1000] [--inputs 12] [--seed 0] [--processes 1]

Every dataflow is made of components whose annotations are true by construction
(`tests/executable.py`). Each runs in three ways: nothing waits; seals alone are waited for; the
whole plan. An anomaly worse than its stream's label would be a mistake of the analyser, and is
printed. The other way round, a label that no run ever bore out is the price of soundness: it is
counted, by label, of all streams that leave components.
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
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

from annotations.vocabulary import Label, StreamLabel
from blazes.analysis import Analysis, analyze
from blazes.choice import without_seals
from blazes.coordination import Plan, plan
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
    parser.add_argument("--json", type=Path)
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
    for mistake in found.mistakes:
        print(f"MISTAKE {mistake}", file=sys.stderr)
    if arguments.json:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n", encoding="utf-8")
    return int(bool(found.mistakes))


if __name__ == "__main__":
    sys.exit(main())
