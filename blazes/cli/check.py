"""Report the mistakes and warnings of dataflow files, and what could not be compiled of them.

Annotations that claim more than the SQL beside them shows are among the warnings (BLZ084). Python
functions are held against theirs, and described where they have none, only with --execute, which
runs them; nothing of the user's code runs without it.

exit status: 0; 1 with --strict where there are warnings, or what `blazes compile` would refuse; 2
where a file cannot be read as a dataflow.
"""

from __future__ import annotations

import argparse
import sys

from annotations.diagnostics import BadInput, Diagnostic
from blazes.cli import CommandError, one_of
from blazes.cli.execution import add_execute, allowed
from blazes.cli.options import compiler_refusals, unshown


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="dataflow files (YAML)")
    parser.add_argument(
        "--format",
        type=one_of("text", "json"),
        default="text",
        metavar="text|json",
        help="default: text",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 where there are warnings"
    )
    add_execute(parser)


def run(arguments: argparse.Namespace) -> int:
    """Check every FILE."""
    from annotations.file import load
    from blazes.report.problems import print_problems

    diagnostics: list[Diagnostic] = []
    refused = False
    for file in arguments.files:
        try:
            execute = allowed(arguments, file)
            dataflow, warnings = load(file, execute=execute)
            diagnostics += (*warnings, *unshown(dataflow, execute), *compiler_refusals(dataflow))
        except BadInput as bad:
            diagnostics += bad.diagnostics
            refused = True
        except OSError as unreadable:
            reason = unreadable.strerror or str(unreadable)
            raise CommandError(f"cannot read {file}: {reason}") from None
    print_problems(diagnostics, format=arguments.format, stream=sys.stdout)
    if refused:
        return 2
    return 1 if arguments.strict and diagnostics else 0
