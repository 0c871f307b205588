"""Report the mistakes and warnings of dataflow files, without analyzing them.

Annotations that claim more than the SQL beside them shows are among the warnings (BLZ084).

exit status: 0; 1 with --strict where there are warnings; 2 where a file is refused.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from annotations.dataflow import Dataflow
from annotations.diagnostics import BadInput, Diagnostic
from blazes.cli import CommandError, one_of


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


def run(arguments: argparse.Namespace) -> int:
    """Check every FILE."""
    from annotations.yaml_file import load
    from blazes.report.problems import print_problems

    found: list[Diagnostic] = []
    refused = False
    for file in arguments.files:
        try:
            dataflow, warnings = load(file)
            found += (*warnings, *_claims(dataflow))
        except BadInput as bad:
            found += bad.diagnostics
            refused = True
        except OSError as unreadable:
            reason = unreadable.strerror or str(unreadable)
            raise CommandError(f"cannot read {file}: {reason}") from None
    print_problems(found, format=arguments.format, stream=sys.stdout)
    if refused:
        return 2
    return 1 if arguments.strict and found else 0


def _claims(dataflow: Dataflow) -> Sequence[Diagnostic]:
    """Written annotations that the SQL or rules of their components do not show."""
    implementations = (c.implementations.values() for c in dataflow.components.values())
    if not any(by.sql or by.bloom for each in implementations for by in each):
        return ()
    from annotations.whitebox.claims import unshown_claims

    return unshown_claims(dataflow)
