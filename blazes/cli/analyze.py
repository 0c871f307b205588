"""Label every stream of a dataflow and say where coordination is needed, why, and what it costs.

exit status: 0 where the plan reaches the target; 1 where it cannot, because nondeterminism is
inherited, and with --strict wherever the file as it stands is not within the target or `blazes
compile` would refuse it; 2 for a bad file or bad usage.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from annotations.diagnostics import Diagnostic
from annotations.gc_pause import gc_paused
from blazes.cli import options
from blazes.coordination import Plan

FORMATS = ("text", "json", "markdown", "mermaid", "dot", "html", "sarif")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_file(parser)
    options.add_analysis(parser)
    options.add_output(parser, *FORMATS)
    options.add_strict(parser)
    parser.add_argument(
        "--all", action="store_true", help="list everything, however large the dataflow is"
    )
    parser.add_argument(
        "--fix",
        action="store_true",
        help="write the first alternative for each ordered component into FILE, show what changed, "
        "and say what is left to do",
    )
    parser.add_argument(
        "--alternative",
        metavar="C=N",
        action="append",
        default=[],
        help="with --fix: alternative N for component C (repeatable), and nothing for others",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="with --fix: show the change, and write nothing"
    )


def run(arguments: argparse.Namespace) -> int:
    """Analyze FILE and print the result."""
    with gc_paused():
        if not arguments.fix:
            return _run(arguments)
        from blazes.cli import fix

        return fix.run(arguments)


def _run(arguments: argparse.Namespace) -> int:
    arguments.format = options.format_of(arguments)
    plan, warnings = options.plan_of(arguments)
    options.write(arguments, render(plan, warnings, arguments))
    return options.status(plan, warnings, strict=arguments.strict)


def render(plan: Plan, warnings: Sequence[Diagnostic], arguments: argparse.Namespace) -> str:
    """The result in the format asked for; only that format's renderer is imported."""
    match arguments.format:
        case "json":
            from blazes.advice import Advisor
            from blazes.report import json_result

            return json_result.dumps(
                json_result.to_json(plan, warnings=warnings, advisor=Advisor(plan))
            )
        case "mermaid":
            from blazes.document.diagram import flowchart
            from blazes.report.diagram import diagram_of

            return flowchart(diagram_of(plan))
        case "dot":
            from blazes.document.diagram import digraph
            from blazes.report.diagram import diagram_of

            return digraph(diagram_of(plan))
        case "sarif":
            from blazes.report import sarif

            return sarif.dumps(sarif.log(plan, warnings=warnings))
        case format:
            from blazes.report.document import EXTENTS, analysis_document

            text = format == "text"
            if text:
                options.warn(warnings)
            extent = EXTENTS[format].unlimited if arguments.all else EXTENTS[format]
            document = analysis_document(
                plan, warnings=warnings, list_warnings=not text, extent=extent
            )
            return options.rendered(document, arguments)
