"""Test the annotations: run the components' own code in many orders and try to refute them.

Each component's SQL or Python runs, on local Spark, on generated records and on the data of the
sources, in permuted orders, other micro-batches, with repeated records; Python functions run with
the rights and the environment of whoever starts this. A refuted claim comes with
the smallest input that was found and the two outcomes. Nothing is ever proved by this.

Claims take turns, those first on which the verdict of the analysis rests, so that each gets its
share of the time.

exit status: 0 where all claims were tested and none was refuted; 1 where one was refuted; 3 where
none was refuted and not all were tested (inconclusive); 2 for a bad file or bad usage.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import logging
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from annotations.diagnostics import did_you_mean
from blazes.cli import CommandError, options
from blazes.cli.execution import limits_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMATS = ("text", "json")
EXIT: Final = {"not refuted": 0, "refuted": 1, "inconclusive": 3}
"""Result of all claims together -> exit status."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_file(parser)
    parser.add_argument(
        "components", metavar="COMPONENT", nargs="*", help="test only these (default: all)"
    )
    parser.add_argument(
        "--tries", type=positive, default=300, metavar="N", help="cases per claim (default: 300)"
    )
    parser.add_argument(
        "--time",
        type=positive,
        default=60,
        metavar="SECONDS",
        help="after which no job begins, Spark's start aside (default: 60)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="of all choices (default: 1)"
    )
    options.add_output(parser, *FORMATS)


def positive(text: str) -> int:
    """An argparse type: a whole number from 1."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def run(arguments: argparse.Namespace) -> int:
    """Test FILE's claims and print the verdicts."""
    arguments.format = options.format_of(arguments)
    dataflow, _ = options.dataflow_of(arguments, limits_for(arguments.file))
    for name in arguments.components:
        if name not in dataflow.components:
            raise CommandError(
                f"{arguments.file} has no component {name!r}"
                f"{did_you_mean(name, dataflow.components)}",
                remedy="blazes analyze FILE lists the components",
            )
    from blazes.document.screen import bar
    from blazes.verify.show import document
    from blazes.verify.verify import Verifier

    with bar() as progress, session() as spark:
        progress("starting Spark", 0, 0)
        verifier = Verifier(dataflow, spark, seed=arguments.seed, time_s=float(arguments.time))
        report = verifier.report(
            components=arguments.components,
            tries=arguments.tries,
            progress=progress,
        )
    if arguments.format == "json":
        from blazes.report.json_result import dumps
        from blazes.verify.findings import to_json

        text = dumps(to_json(report))
    else:
        text = options.rendered(document(report), arguments)
    options.write(arguments, text)
    return EXIT[report.result.value]


@contextlib.contextmanager
def session() -> Iterator[SparkSession]:
    """A local Spark session for a few records at a time."""
    if importlib.util.find_spec("pyspark") is None:
        raise CommandError(
            "components are run on Spark, and pyspark is not installed",
            remedy="pip install 'blazes[run]'",
        )
    from blazes.verify.spark import CONF
    from flux_runtime.spark.session import start_session

    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # a failing case is counted, not told
    with tempfile.TemporaryDirectory(prefix="blazes-verify-") as folder:
        spark = start_session(
            "verify", master="local[1]", conf=CONF, log=Path(folder) / "spark.log"
        )
        try:
            yield spark
        finally:
            spark.stop()
            sys.stderr.flush()
