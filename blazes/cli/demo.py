"""Show what goes wrong without coordination, on a local Spark.

`blazes demo anomalies` runs the ad network's query CAMPAIGN uncoordinated, ordered and sealed,
under many arrival orders, and prints how many different answers each gave.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from blazes.cli import CommandError, one_of, options
from blazes.demo.anomalies import RUNS


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("what", type=one_of("anomalies"), metavar="anomalies", help="what to show")
    parser.add_argument(
        "--orders",
        type=int,
        default=RUNS,
        metavar="N",
        help=f"runs, each with an arrival order for each of 3 replicas (default: {RUNS})",
    )
    parser.add_argument("--seed", type=int, default=1, help="of traffic and arrival orders")
    parser.add_argument("--master", default="local[2]", help="Spark master (default: local[2])")
    options.add_output(parser, "text", "json")


def run(arguments: argparse.Namespace) -> int:
    """Run the demonstration and print what it found."""
    if arguments.orders < 1:
        raise CommandError(f"--orders {arguments.orders}: at least one run is needed")
    import json
    import tempfile

    from blazes.cli.doctor import as_text, check_before_run
    from blazes.demo import show
    from blazes.demo.anomalies import demonstrate

    for warning in check_before_run(Path(tempfile.gettempdir())):
        print(as_text(warning, colour=False, unicode=False), file=sys.stderr)
    from blazes.document.screen import bar

    with bar() as progress:
        outcome = demonstrate(
            runs=arguments.orders,
            seed=arguments.seed,
            master=arguments.master,
            progress=lambda done, total: progress("running replicas on Spark", done, total),
        )
    arguments.format = options.format_of(arguments)
    if arguments.format == "json":
        text = json.dumps(show.to_json(outcome), indent=2) + "\n"
    else:
        text = options.rendered(show.document(outcome), arguments)
    options.write(arguments, text)
    return 0
