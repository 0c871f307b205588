"""Derive the labels of one component step by step, with the text of every rule that was used."""

from __future__ import annotations

import argparse

from annotations.diagnostics import did_you_mean
from blazes.cli import CommandError, options

FORMATS = ("text", "json")


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_file(parser)
    parser.add_argument("component", metavar="COMPONENT", help="the component to explain")
    options.add_analysis(parser)
    options.add_output(parser, *FORMATS)


def run(arguments: argparse.Namespace) -> int:
    """Explain one component of FILE."""
    arguments.format = options.format_of(arguments)
    plan, _ = options.plan_of(arguments)
    component = arguments.component
    components = plan.analysis.dataflow.components
    if component not in components:
        raise CommandError(
            f"{arguments.file} has no component {component!r}{did_you_mean(component, components)}",
            remedy="blazes analyze FILE lists the components",
        )
    if arguments.format == "json":
        from blazes.report import json_result

        text = json_result.dumps(
            {
                "schema_version": json_result.SCHEMA_VERSION,
                "component": component,
                "derivations": [
                    json_result.derivation_object(derivation)
                    for derivation in plan.analysis.derivations
                    if derivation.component == component
                ],
                "plan": [
                    json_result.entry_object(entry)
                    for entry in plan.entries
                    if entry.component == component
                ],
            }
        )
    else:
        from blazes.report.document import component_document

        text = options.rendered(component_document(plan, component), arguments)
    options.write(arguments, text)
    return 0
