"""The experiments of the Flux papers: the paper's number beside ours, and the figures.

    python benchmarks/flux.py [EX-1 ...|all] [--quick] [--results DIR] [--figures DIR]

With `--results`, a JSON file per experiment is written as soon as it is done; `flux_page.py` makes
docs/reference/experiments.md of them. The exit code is 1 if a shape check fails that is not known
to differ from the paper.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

from flux_experiments import CATALOGUE
from flux_experiments.experiment import Experiment, Result, failed, shown, to_json
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from blazes.document.charts import draw


def table(experiment: Experiment, result: Result, *, quick: bool) -> Table:
    """One experiment for people."""
    made = Table(title=escape(f"{experiment.id}  {experiment.title}  ({experiment.source})"),
                 title_justify="left")  # fmt: skip
    for column in ("", "paper", "ours", "shape", "remark"):
        made.add_column(column, justify="right" if column in ("paper", "ours") else "left")
    for row in result.rows:
        made.add_row(
            escape(row.what), shown(row.paper), shown(row.ours), row.shape(quick=quick),
            escape(row.differs),
        )  # fmt: skip
    return made


def main() -> int:
    """Run the experiments named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", default=["all"], help="EX-1 ... EX-16, MTTF, SCALE, all")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument("--results", type=Path, help="write a JSON file per experiment here")
    parser.add_argument("--figures", type=Path, help="draw an SVG per experiment into this folder")
    args = parser.parse_args()
    known = {experiment.id: experiment for experiment in CATALOGUE}
    names = list(known) if "all" in args.ids else [name.upper() for name in args.ids]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"no such experiment: {', '.join(unknown)}; there are {', '.join(known)}")
    console = Console(width=None if sys.stdout.isatty() else 150)
    wrong = 0
    for name in names:
        started = time.process_time()
        result = known[name].run(args.quick)
        console.print(table(known[name], result, quick=args.quick))
        for remark in (*result.remarks, *(f"derived: {text}" for text in known[name].derived)):
            console.print(escape(f"  {remark}"))
        wrong += len(failed(result, quick=args.quick))
        if args.results:
            args.results.mkdir(parents=True, exist_ok=True)
            kept = to_json(known[name], result, time.process_time() - started, quick=args.quick)
            (args.results / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
        if args.figures and result.charts:
            args.figures.mkdir(parents=True, exist_ok=True)
            drawing = draw(result.charts, title=f"{name} {known[name].title}")
            (args.figures / f"{name}.svg").write_text(drawing, encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
