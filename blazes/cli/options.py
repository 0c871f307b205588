"""Arguments that the commands on dataflow files share, and what they stand for.

Formats are named here and their renderers found through a table, so that a command imports the
one that it prints with.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from annotations.dataflow import Dataflow
from annotations.diagnostics import OF_DELIVERY, Diagnostic, errors_among
from annotations.vocabulary import Label
from blazes.analysis import analyze
from blazes.cli import CommandError, one_of
from blazes.cli.execution import add_execute, allowed
from blazes.coordination import Plan, Strategy, plan
from blazes.core.rules import BLAZES
from blazes.delivery_checks import delivery_findings

if TYPE_CHECKING:
    from annotations.whitebox.sandbox import Limits
    from blazes.document.blocks import Document

RULE_SETS: Final = ("blazes", "icde14")
TARGETS: Final = ("async", "run", "inst", "diverge")
COORDINATIONS: Final = ("least", "order", "none")
SUFFIXES: Final = {
    ".json": "json",
    ".md": "markdown",
    ".mmd": "mermaid",
    ".dot": "dot",
    ".gv": "dot",
    ".html": "html",
    ".sarif": "sarif",
}
"""What `-o` writes where no `--format` is given; any other suffix: text."""


def add_file(parser: argparse.ArgumentParser) -> None:
    """FILE and --variant: which dataflow."""
    parser.add_argument(
        "file",
        metavar="FILE",
        help="the dataflow file (YAML), a module that declares one, or a spark-pipeline.yml",
    )
    parser.add_argument(
        "--variant",
        metavar="C=V",
        action="append",
        default=[],
        help="activate variant V of component C (repeatable)",
    )


def add_analysis(parser: argparse.ArgumentParser) -> None:
    """--rules, --target and --execute: how it is judged."""
    add_execute(parser)
    parser.add_argument(
        "--rules",
        type=one_of(*RULE_SETS),
        default="blazes",
        metavar="|".join(RULE_SETS),
        help="the rule set: this project's (default), or the paper's to the letter",
    )
    parser.add_argument(
        "--target",
        type=one_of(*TARGETS),
        default="async",
        metavar="|".join(TARGETS),
        help="the worst label tolerated at the sinks (default: async)",
    )


def add_coordination(parser: argparse.ArgumentParser) -> None:
    """--coordination: how much of it a job gets."""
    parser.add_argument(
        "--coordination",
        type=one_of(*COORDINATIONS),
        default="least",
        metavar="|".join(COORDINATIONS),
        help="least: what the analysis asks for (default); order: orders in place of seals; none: "
        "for comparison, the results may differ between runs and replicas",
    )


def add_output(parser: argparse.ArgumentParser, *formats: str) -> None:
    """--format and -o: what is printed, and where; the first format is the default."""
    parser.add_argument(
        "--format",
        type=one_of(*formats),
        metavar="|".join(formats),
        help=f"default: {formats[0]}, or what the suffix of -o says",
    )
    parser.add_argument("-o", "--output", metavar="PATH", help="write to PATH, not to stdout")
    parser.set_defaults(formats=formats)


def add_strict(parser: argparse.ArgumentParser) -> None:
    """--strict: fail where coordination is missing."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 where the file as it stands is not within the target",
    )


def format_of(arguments: argparse.Namespace) -> str:
    """The format asked for: by name, by the suffix of -o, else the command's first."""
    if arguments.format:
        return str(arguments.format)
    guess = SUFFIXES.get(Path(arguments.output or "").suffix.lower())
    return str(guess if guess in arguments.formats else arguments.formats[0])


def variants_of(arguments: argparse.Namespace) -> dict[str, str]:
    """The --variant arguments as a mapping; CommandError where one is not C=V, or C comes twice."""
    chosen: dict[str, str] = {}
    for text in arguments.variant:
        component, equals, variant = text.partition("=")
        if not (component and equals and variant):
            raise CommandError(
                f"--variant {text}: expected COMPONENT=VARIANT",
                remedy="for instance --variant Report=CAMPAIGN",
            )
        if chosen.setdefault(component, variant) != variant:
            raise CommandError(f"--variant {component}: at most one variant can be active")
    return chosen


def is_code(file: str) -> bool:
    """True for a Declarative Pipelines project, a script, a notebook or a file of SQL in place of a
    dataflow file."""
    path = Path(file)
    if path.suffix == ".py" and path.is_file() and _declares(path):
        return False
    names = ("spark-pipeline.yml", "spark-pipeline.yaml")
    named = path.name in names or path.suffix in (".py", ".ipynb", ".sql")
    return (named and path.is_file()) or any((path / name).is_file() for name in names)


def refuse_module(file: str, option: str) -> None:
    """Nothing is written into a module in Python; what would be is printed without the option."""
    if Path(file).suffix == ".py":
        raise CommandError(
            f"{option} writes into dataflow files, not into a module",
            remedy=f"leave {option} out, and write what is printed as keywords",
        )


def _declares(path: Path) -> bool:
    """True for a module that declares its dataflow itself."""
    from annotations.file.python_declarations import declares

    return declares(path.read_text(encoding="utf-8", errors="replace"))


def dataflow_of(
    arguments: argparse.Namespace, execute: Limits | None
) -> tuple[Dataflow, tuple[Diagnostic, ...]]:
    """The dataflow of FILE and the warnings about it; BadInput with all of its mistakes.

    `execute`: what Python code may take that is run to be read; None: nothing of the user's runs.
    """
    from annotations.file import load

    if is_code(arguments.file):
        from annotations.file import importing

        return importing.load(Path(arguments.file), execute=execute)
    try:
        return load(arguments.file, variants=variants_of(arguments), execute=execute)
    except OSError as unreadable:
        reason = unreadable.strerror or str(unreadable)
        raise CommandError(f"cannot read {arguments.file}: {reason}") from None


def plan_of(arguments: argparse.Namespace) -> tuple[Plan, tuple[Diagnostic, ...]]:
    """The plan for FILE under --rules and --target, and the warnings about the file.

    What `blazes compile` would refuse is among them, the only errors.
    """
    execute = allowed(arguments, arguments.file)
    dataflow, warnings = dataflow_of(arguments, execute)
    analysis = analyze(dataflow, rules=arguments.rules)
    if arguments.rules != BLAZES:
        warnings = tuple(warning for warning in warnings if warning.code.id not in OF_DELIVERY)
    else:
        warnings = (*warnings, *unshown(dataflow, execute))
    result = plan(analysis, target=Label.parse(arguments.target))
    usual = arguments.rules == BLAZES and result.target is Label.ASYNC
    refused = compiler_refusals(dataflow, result if usual else None)
    return result, (*warnings, *delivery_findings(result), *refused)


def warn(warnings: Sequence[Diagnostic]) -> None:
    """Warnings go before the report, to stderr, with their source lines."""
    if warnings:
        from blazes.report.problems import print_problems

        print_problems(warnings, stream=sys.stderr)
        print(file=sys.stderr)


def unshown(dataflow: Dataflow, execute: Limits | None) -> Sequence[Diagnostic]:
    """Written annotations that the code of their components does not show."""
    implementations = (c.implementations.values() for c in dataflow.components.values())
    if not any(by.sql or by.bloom or (by.python and execute) for i in implementations for by in i):
        return ()
    from annotations.whitebox.claims import unshown_claims

    return unshown_claims(dataflow, execute=execute)


def compiler_refusals(dataflow: Dataflow, decided: Plan | None = None) -> tuple[Diagnostic, ...]:
    """The refusals and warnings of `blazes compile`; `decided` is its plan, where it is known."""
    if not (dataflow.has_sources or dataflow.has_code):
        return ()
    from codegen.judge import refusals

    refused = refusals(decided or plan(analyze(dataflow)))
    errors = errors_among(refused)
    return tuple(
        replace(diagnostic, message=f"compile refuses this: {diagnostic.message}")
        if diagnostic in errors
        else diagnostic
        for diagnostic in refused
    )


def job_plan_of(
    arguments: argparse.Namespace, execute: Limits | None
) -> tuple[Plan, tuple[Diagnostic, ...]]:
    """The plan that FILE is compiled with under --coordination, and the warnings about the file."""
    from blazes.choice import Coordination, coordinate

    dataflow, warnings = dataflow_of(arguments, execute)
    result = coordinate(dataflow, Coordination(arguments.coordination))
    return result, (*warnings, *delivery_findings(result))


def status(result: Plan, warnings: Iterable[Diagnostic] = (), *, strict: bool) -> int:
    """The exit status: 1 where the plan cannot reach the target, or, strictly, where it has to.

    Strictly, it is 1 as well where the dataflow could not be compiled.
    """
    if result.verdict > result.target or result.repairs.unrepaired:
        return 1
    if strict and errors_among(warnings):
        return 1
    ordered = any(entry.strategy is Strategy.ORDER for entry in result.entries)
    above = result.analysis.verdict > result.target
    return int(strict and (ordered or above or bool(result.repairs.items)))


def write(arguments: argparse.Namespace, text: str) -> None:
    """Put a finished report where -o says, whole or not at all, else on stdout."""
    from blazes.document.plain import safe_write

    if getattr(arguments, "output", None) in (None, "", "-"):
        safe_write(sys.stdout, text)
        return
    put(Path(arguments.output), text)


def put(target: Path, text: str) -> None:
    """Write a file whole or not at all, and the folders that it lies in."""
    part = target.with_name(target.name + ".part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except OSError as failed:
        reason = failed.strerror or str(failed)
        raise CommandError(f"cannot write {target}: {reason}") from None


def rendered(document: Document, arguments: argparse.Namespace) -> str:
    """The document in the format asked for, laid out for where it goes."""
    if arguments.format == "markdown":
        from blazes.document import markdown

        return markdown.page(document)
    if arguments.format == "html":
        from blazes.document import html

        return html.page(document)
    from blazes.document import terminal

    if getattr(arguments, "output", None) not in (None, "", "-"):
        return terminal.text(document)
    return terminal.text(document, terminal.Layout.of(sys.stdout))
