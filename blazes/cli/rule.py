"""Explain a rule of the analysis (R1, S3, C2, ...) or the code of a message (BLZ010, ...)."""

from __future__ import annotations

import argparse
import sys

from blazes.cli import CommandError, one_of


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("ids", metavar="ID", nargs="*", help="rules and codes, in any case")
    parser.add_argument("--all", action="store_true", help="every rule, then every code")
    parser.add_argument(
        "--format",
        type=one_of("text", "markdown"),
        default="text",
        metavar="text|markdown",
        help="default: text",
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the pages of the rules that were named."""
    from annotations.diagnostics import CODES
    from blazes.document.plain import ASCII, colour_of, safe_write, unicode_of, width_of
    from blazes.report import rules
    from codegen.codes import CODES as OF_THE_COMPILER

    codes = {**CODES, **OF_THE_COMPILER}
    names = rules.ids(codes) if arguments.all else arguments.ids
    if not names:
        raise CommandError("which rule?", remedy=f"one of {', '.join(rules.ids(codes))}, or --all")
    try:
        pages = [rules.page(name, codes=codes) for name in names]
    except KeyError as unknown:
        raise CommandError(str(unknown.args[0]), remedy="blazes rule --all lists them") from None
    if arguments.format == "markdown":
        text = "\n".join(rules.as_markdown(page) for page in pages)
    else:
        width, colour = width_of(sys.stdout, most=100), colour_of(sys.stdout)
        text = "\n".join(rules.as_text(page, width=width, colour=colour) for page in pages)
    safe_write(sys.stdout, text if unicode_of(sys.stdout) else text.translate(ASCII))
    return 0
