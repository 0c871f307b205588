"""Print the coordination plan alone: who waits for whom, in what order, with what vote.

exit status: 0 where the plan reaches the target; 1 where it cannot, because nondeterminism is
inherited, and with --strict wherever the file as it stands is not within the target or `blazes
compile` would refuse it; 2 for a bad file or bad usage.
"""

from __future__ import annotations

import argparse

from annotations.gc_pause import gc_paused
from blazes.cli import options

FORMATS = ("text", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_file(parser)
    options.add_analysis(parser)
    options.add_output(parser, *FORMATS)
    options.add_strict(parser)
    parser.add_argument(
        "--all", action="store_true", help="list everything, however large the dataflow is"
    )


def run(arguments: argparse.Namespace) -> int:
    """Plan FILE and print the plan."""
    with gc_paused():
        return _run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    arguments.format = options.format_of(arguments)
    plan, warnings = options.plan_of(arguments)
    if arguments.format == "json":
        from blazes.advice import Advisor
        from blazes.report import json_result

        result = json_result.to_json(plan, warnings=warnings, advisor=Advisor(plan))
        for field in ("streams", "derivations"):
            del result[field]
        text = json_result.dumps(result)
    else:
        from blazes.report.document import EXTENTS, plan_document

        options.warn(warnings)
        extent = EXTENTS["text"].unlimited if arguments.all else EXTENTS["text"]
        text = options.rendered(plan_document(plan, warnings=warnings, extent=extent), arguments)
    options.write(arguments, text)
    return options.status(plan, warnings, strict=arguments.strict)
