"""One screen about a simulated run, and its pictures.

    python -m flux_lab.report --seed 7 --out DIR
    python -m flux_lab.report --config run.yaml [--seed 7] --out DIR

The seed alone decides everything; a file has the keys of `simulation.scenario.Scenario`. The folder
gets `over-time.svg`, `placement.svg`, `space-time.svg` (if something was recovered), `run.json`
with the numbers, and `run.yaml`, which gives the same run again. The exit code is 1 if a checker
found something.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from blazes.document import charts, placement
from flux_lab import spacetime
from flux_lab.pictures import failure, over_time, placed, quantile
from flux_lab.scenario import (
    VERDICTS,
    Outcome,
    as_keys,
    configured,
    drawn,
    perform,
)
from flux_runtime.protocol.vocabulary import Status


def numbers(outcome: Outcome) -> dict[str, Any]:
    """The numbers of the report: rates per second, times in seconds, sizes in bytes."""
    scenario, trace = outcome.scenario, outcome.trace
    latencies = [took for _, took in outcome.latencies]
    times = [t for t, *_ in trace.emitted]
    recovered = _recovered(outcome)
    rows = sum(rows for _, rows, _ in trace.emitted)
    rates = [rate for _, rate in trace.rates(min(scenario.seconds, outcome.end), 0.25)]
    return {
        "seed": scenario.seed,
        "stages": list(scenario.widths),
        "sites": scenario.sites,
        "spares": scenario.spares,
        "copies": 2 * sum(scenario.widths),
        "seconds": outcome.end,
        "steps": trace.steps,
        "rows": rows,
        "rate": rows / outcome.end if outcome.end else 0.0,
        "rate_lowest_quarter": min(rates[1:], default=0.0),
        "latency": {name: quantile(latencies, part) for name, part in QUANTILES},
        "longest_gap": max((b - a for a, b in pairwise(times)), default=0.0),
        "faults": [{"at": at, "kind": f.kind, "of": hit} for at, f, hit in outcome.struck],
        "standbys": len(trace.placed),
        "recovered": len(recovered),
        "recovery_seconds": recovered,
        "state_moved": sum(size for *_, size, _ in trace.moves),
        "moves": sum(n for *_, n in trace.rounds),
        "not_whole": sum(
            copy is not None and copy.status is not Status.ACTIVE
            for view in outcome.controller.pairs.values()
            for copy in view.copies
        ),
        "losses": [loss.why for _, loss in trace.losses],
        "checked": dict(outcome.looked),
        "violation": outcome.violation,
    }


QUANTILES = (("median", 0.5), ("p90", 0.9), ("p99", 0.99), ("slowest", 1.0))


def _recovered(outcome: Outcome) -> list[float]:
    """From the end of a copy to the time when its successor was folded in everywhere."""
    gone = sorted((at, node) for at, node in outcome.trace.ended)
    result = []
    for at, node in outcome.trace.whole:
        before = [t for t, n in gone if (n.pair, n.copy) == (node.pair, node.copy) and t <= at]
        if before:
            result.append(at - before[-1])
    return result


def screen(outcome: Outcome) -> Group:
    """The report for people."""
    n = numbers(outcome)
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold")
    facts.add_column()
    for name, text in _facts(outcome, n):
        facts.add_row(name, text)
    checks = Table(title="checkers", title_justify="left", box=None, padding=(0, 2))
    for column in ("", "looked", ""):
        checks.add_column(column, justify="right" if column else "left")
    for promise, counted in VERDICTS:
        looked = n["checked"].get(counted, 0)
        reached = "[green]holds[/]" if looked else "[yellow]not reached[/]"
        checks.add_row(promise, f"{looked:,}", reached)
    verdict = "[bold green]no violation[/]"
    if outcome.violation:
        verdict = f"[bold red]violation:[/] {escape(outcome.violation)}"
    return Group(f"[bold]Simulated run, seed {n['seed']}[/]", facts, "", checks, verdict)


def _facts(outcome: Outcome, n: dict[str, Any]) -> list[tuple[str, str]]:
    scenario = outcome.scenario
    latency = ", ".join(f"{name} {_ms(n['latency'][name])}" for name, _ in QUANTILES)
    pairs = " + ".join(map(str, n["stages"]))
    order = "in order" if scenario.ordered else "first come"
    took = n["recovery_seconds"]
    recovery = f"{n['standbys']} standbys, {n['moves']} of them for moves; "
    recovery += f"{n['recovered']} folded in everywhere"
    if took:
        middle = quantile(took, 0.5)
        recovery += f"; from failure to whole: median {_ms(middle)}, longest {_ms(max(took))}"
    if n["not_whole"]:
        recovery += f"; {n['not_whole']} copies without a site that could take them"
    faults = "; ".join(f"{f['at']:.2f} s {f['kind']} of {f['of']}" for f in n["faults"])
    return [
        ("dataflow", f"{pairs} partition pairs, {n['copies']} copies on {n['sites']} sites, "
                     f"{n['spares']} spare; egress {order}"),
        ("ran", f"{n['seconds']:.2f} s of simulated time, {n['steps']:,} steps"),
        ("throughput", f"{n['rows']:,.0f} rows, {n['rate']:,.0f} rows/s; lowest quarter of a "
                       f"second {n['rate_lowest_quarter']:,.0f} rows/s"),
        ("latency", latency),
        ("longest gap", f"{_ms(n['longest_gap'])} without output"),
        ("faults", faults or "none"),
        ("recoveries", recovery),
        ("moves", f"{n['moves']} by the balancer; {n['state_moved'] / 1e6:,.1f} MB of state "
                  "moved in all"),
        ("data loss", "; ".join(n["losses"]) or "none"),
    ]  # fmt: skip


def _ms(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1e3:,.1f} ms"


def write(outcome: Outcome, folder: Path) -> list[Path]:
    """The pictures, the numbers, and the configuration; gives what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    seed = outcome.scenario.seed
    texts = {
        "over-time.svg": charts.draw(over_time(outcome), title=f"Seed {seed} over time"),
        "placement.svg": placement.draw([placed(outcome)], title=f"Seed {seed}: placement"),
        "run.json": json.dumps(numbers(outcome), indent=1) + "\n",
        "run.yaml": yaml.safe_dump(as_keys(outcome.scenario), sort_keys=False),
    }
    diagram = failure(outcome.timed, title=f"Seed {seed}: the first pair that lost a copy")
    if diagram is not None:
        texts["space-time.svg"] = spacetime.draw(diagram)
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    return [folder / name for name in texts]


def main(argv: Sequence[str] | None = None) -> int:
    """Perform a run, print its report, write its pictures."""
    parser = argparse.ArgumentParser(
        prog="python -m flux_lab.report",
        description="Perform a simulated run, print its report, write its pictures.",
    )
    parser.add_argument("--seed", type=int)
    parser.add_argument("--config", type=Path, help="YAML file with the keys of a scenario")
    parser.add_argument("--out", type=Path, required=True, help="folder for pictures and numbers")
    args = parser.parse_args(argv)
    if args.config is None and args.seed is None:
        parser.error("give a --seed, a --config, or both")
    try:
        scenario = drawn(args.seed) if args.config is None else configured(
            yaml.safe_load(args.config.read_text(encoding="utf-8")) or {}, seed=args.seed
        )  # fmt: skip
    except (OSError, ValueError, yaml.YAMLError) as cause:
        parser.error(f"{args.config}: {cause}")
    outcome = perform(scenario)
    console = Console(width=None if sys.stdout.isatty() else 110, highlight=False)
    console.print(screen(outcome))
    for path in write(outcome, args.out):
        console.print(f"  {path}", soft_wrap=True)
    if outcome.violation:
        console.print(escape(outcome.timed.world.tale()))
    return 1 if outcome.violation else 0


if __name__ == "__main__":
    sys.exit(main())
