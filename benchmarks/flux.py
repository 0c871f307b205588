"""The experiments of the Flux papers: the paper's number beside ours, and the figures.

    python benchmarks/flux.py [EX-1 ...|all] [--quick] [--json FILE] [--figures DIR]

The exit code is 1 if a shape check fails that is not known to differ from the paper.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from flux_experiments import CATALOGUE
from flux_experiments.experiment import Experiment, Result, Row, failed, to_json
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from flux_runtime.observe.charts import draw


def shape(row: Row, *, quick: bool) -> str:
    """What the shape check of a row says."""
    if row.holds is None:
        return ""
    if quick and not row.quick:
        return "(full size only)"
    return "ok" if row.holds else "differs" if row.differs else "FAILS"


def table(experiment: Experiment, result: Result, *, quick: bool) -> Table:
    """One experiment for people."""
    made = Table(title=escape(f"{experiment.id}  {experiment.title}  ({experiment.source})"),
                 title_justify="left")  # fmt: skip
    for column in ("", "paper", "ours", "shape", "remark"):
        made.add_column(column, justify="right" if column in ("paper", "ours") else "left")
    for row in result.rows:
        paper = "" if row.paper is None else f"{row.paper}"
        made.add_row(
            escape(row.what), paper, f"{row.ours:.4g}", shape(row, quick=quick), escape(row.differs)
        )
    return made


def main() -> int:
    """Run the experiments named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", default=["all"], help="EX-1 ... EX-16, MTTF, SCALE, all")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--json", type=Path, help="write all numbers to this file")
    parser.add_argument("--figures", type=Path, help="draw an SVG per experiment into this folder")
    args = parser.parse_args()
    known = {experiment.id: experiment for experiment in CATALOGUE}
    names = list(known) if "all" in args.ids else [name.upper() for name in args.ids]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such experiment: {', '.join(unknown)}; there are {', '.join(known)}")
    console = Console(width=None if sys.stdout.isatty() else 150)
    made, wrong = [], 0
    for name in names:
        started = time.perf_counter()
        result = known[name].run(args.quick)
        console.print(table(known[name], result, quick=args.quick))
        for remark in (*result.remarks, *(f"derived: {text}" for text in known[name].derived)):
            console.print(escape(f"  {remark}"))
        wrong += len(failed(result, quick=args.quick))
        made.append(to_json(known[name], result, time.perf_counter() - started))
        if args.figures and result.charts:
            args.figures.mkdir(parents=True, exist_ok=True)
            drawing = draw(result.charts, title=f"{name} {known[name].title}")
            (args.figures / f"{name}.svg").write_text(drawing, encoding="utf-8")
    if args.json:
        args.json.write_text(json.dumps(made, indent=1), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
