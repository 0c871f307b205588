"""Derive the annotations of components from their SQL, with the lines that make them what they are.

Beside each derived annotation stands the written one where the two differ. Components without
`sql` are left out.

exit status: 0; 1 with --strict where a written annotation claims more than the code shows (a path
that says `why:` is accepted); 2 for a bad file or bad usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from annotations.dataflow import Component, Dataflow, Path
from annotations.diagnostics import did_you_mean
from blazes.cli import CommandError, options


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_file(parser)
    parser.add_argument("component", metavar="COMPONENT", nargs="?", help="only this component")
    options.add_output(parser, "text", "json")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 where a claim is not shown by the code"
    )


def run(arguments: argparse.Namespace) -> int:
    """Derive and print."""
    dataflow, _ = options.dataflow_of(arguments)
    wanted = arguments.component
    if wanted is not None and wanted not in dataflow.components:
        near = did_you_mean(wanted, dataflow.components)
        raise CommandError(f"there is no component {wanted}{near}")
    chosen = [wanted] if wanted else list(dataflow.components)
    found = [each for name in chosen for each in _derived(dataflow, dataflow.components[name])]
    if not found:
        print("blazes: no component has `sql` to derive from", file=sys.stderr)
    if options.format_of(arguments) == "json":
        options.write(arguments, json.dumps(found, indent=2) + "\n")
    else:
        options.write(arguments, "\n".join(line for each in found for line in _lines(each)) + "\n")
    return int(arguments.strict and any(each["claims_more"] for each in found))


def _derived(dataflow: Dataflow, component: Component) -> Iterator[dict[str, Any]]:
    """What was derived of each path of a component, as JSON data."""
    from annotations.whitebox.claims import derive_component, more_than_shown

    for output in derive_component(dataflow, component):
        written = {p.source: p for p in component.paths if p.target == output.name}
        for path in output.paths():
            claim = written.get(path.source)
            differs = claim is not None and _said(claim) != _said(path)
            more = claim is not None and more_than_shown(claim, path, dataflow.fds)
            yield {
                "component": component.name,
                "path": {"from": path.source, "to": path.target},
                "annotation": str(path.annotation),
                "within": path.within.value,
                "nondeterministic": path.nondeterministic,
                "lineage": None if path.lineage is None else dict(path.lineage),
                "evidence": [str(each) for each in output.derivation.paths[path.source].evidence],
                "assumptions": [each.text for each in output.derivation.assumptions],
                "written": str(claim.annotation) if claim is not None and differs else None,
                "why": claim.why if claim is not None else None,
                "claims_more": more and claim is not None and claim.why is None,
            }


def _said(path: Path) -> tuple[str, str, bool]:
    return str(path.annotation), path.within.value, path.nondeterministic is not None


def _lines(found: dict[str, Any]) -> Iterator[str]:
    ends = f"{found['component']}: {found['path']['from']} -> {found['path']['to']}"
    order = ", within: sequence" if found["within"] == "sequence" else ""
    yield f"{ends}  {found['annotation']}{order}"
    if found["nondeterministic"]:
        yield f"  nondeterministic: {found['nondeterministic']}"
    for each in found["evidence"] or ["each record is treated by itself, and nothing is kept"]:
        yield f"  {each}"
    for each in found["assumptions"]:
        yield f"  assumed: {each}"
    if found["written"]:
        more = "; it claims more than the code shows" if found["claims_more"] else ""
        why = f" (why: {found['why']})" if found["why"] else ""
        yield f"  written: {found['written']}{why}{more}"
