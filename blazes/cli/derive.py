"""Derive the annotations of components from their code, with the lines that make them so.

Beside each derived annotation stands the written one where the two differ. SQL is read as it
stands; Python functions are run to be read, in a process of their own, without Spark and Java, and
only with --execute: without it nothing is known of them. Components without `sql`, `python` and
`bloom` are left out. Of a file of Bloom modules (.bloom, .bud, .rb), the annotations of each module
are printed as YAML.

exit status: 0; 1 with --strict where a written annotation claims more than the code shows, or than
is known of the code (a path that says `why:` is accepted); 2 for a bad file or bad usage.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from annotations.dataflow import Component, Dataflow
from annotations.dataflow import Path as PathThrough
from annotations.diagnostics import did_you_mean
from blazes.cli import CommandError, options
from blazes.cli.execution import add_execute, allowed

if TYPE_CHECKING:
    from annotations.whitebox.code import Code
    from annotations.whitebox.components import Output
    from annotations.whitebox.sandbox import Limits


BLOOM: Final = (".bloom", ".bud", ".rb")
"""What files of Bloom text are called."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    options.add_file(parser)
    parser.add_argument("component", metavar="COMPONENT", nargs="?", help="only this component")
    options.add_output(parser, "text", "json")
    parser.add_argument(
        "--write",
        action="store_true",
        help="write what was derived into FILE, for components that have no annotation",
    )
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 where a claim is not shown by the code"
    )
    add_execute(parser)


def run(arguments: argparse.Namespace) -> int:
    """Derive and print."""
    if arguments.file.endswith(BLOOM):
        return _bloom(arguments)
    execute = allowed(arguments, arguments.file)
    dataflow, _ = options.dataflow_of(arguments, execute)
    wanted = arguments.component
    if wanted is not None and wanted not in dataflow.components:
        near = did_you_mean(wanted, dataflow.components)
        raise CommandError(f"there is no component {wanted}{near}")
    chosen = [wanted] if wanted else list(dataflow.components)
    if arguments.write:
        return _write(arguments, dataflow, chosen, execute)
    from annotations.whitebox.code import Code

    code = Code(dataflow, execute=execute)
    records = [record for name in chosen for record in _derived(code, dataflow.components[name])]
    if not records:
        print("blazes: no component has `sql`, `python` or `bloom` to derive from", file=sys.stderr)
    unread = [name for name in chosen if _python(dataflow.components[name])]
    if unread and execute is None:
        message = f"nothing of {', '.join(unread)} was run to be read; --execute allows it"
        print(f"blazes: {message}", file=sys.stderr)
    if options.format_of(arguments) == "json":
        options.write(arguments, json.dumps(records, indent=2) + "\n")
    else:
        options.write(
            arguments, "\n".join(line for record in records for line in _lines(record)) + "\n"
        )
    return int(arguments.strict and any(record["claims_more"] for record in records))


def _python(component: Component) -> bool:
    """Whether a Python function computes one of its outputs."""
    return any(by.python is not None for by in component.implementations.values())


def _bloom(arguments: argparse.Namespace) -> int:
    """Derive the annotations of the modules of a Bloom file, and print them as YAML."""
    from annotations.whitebox.bloom import read_file
    from annotations.whitebox.bloom.text import as_yaml

    if arguments.write:
        raise CommandError("--write is for dataflow files")
    program = read_file(Path(arguments.file))
    wanted = arguments.component
    if wanted is not None and wanted not in program.modules:
        raise CommandError(f"there is no module {wanted}{did_you_mean(wanted, program.modules)}")
    names = [wanted] if wanted else list(program.modules)
    if options.format_of(arguments) == "text":
        options.write(arguments, as_yaml(program, names))
        return 0
    records = [
        _data(name, output, path)
        for name in names
        for output in program.outputs(name)
        for path in output.paths()
    ]
    options.write(arguments, json.dumps(records, indent=2) + "\n")
    return 0


def _data(component: str, output: Output, path: PathThrough) -> dict[str, Any]:
    """The record of a derived path, as JSON data."""
    return {
        "component": component,
        "path": {"from": path.source, "to": path.target},
        "annotation": str(path.annotation),
        "within": path.within.value,
        "nondeterministic": path.nondeterministic,
        "lineage": None if path.lineage is None else dict(path.lineage),
        "evidence": list(dict.fromkeys(map(str, output.derivation.paths[path.source].evidence))),
        "assumptions": [assumption.text for assumption in output.derivation.assumptions],
        "written": None,
        "why": None,
        "claims_more": False,
    }


def _write(
    arguments: argparse.Namespace,
    dataflow: Dataflow,
    chosen: Sequence[str],
    execute: Limits | None,
) -> int:
    """Write the derived annotations into the file."""
    from annotations.file.insertions import CannotWrite
    from annotations.file.writing import with_annotations

    if options.is_code(arguments.file):
        raise CommandError("--write is for dataflow files", remedy="see `blazes import`")
    options.refuse_module(arguments.file, "--write")
    named = [
        name
        for name in chosen
        if any(path.derived is not None for path in dataflow.components[name].paths)
    ]
    if not named:
        print("blazes: every component has annotations already", file=sys.stderr)
        return 0
    try:
        variants = options.variants_of(arguments)
        text = with_annotations(dataflow, named, variants=variants, execute=execute)
    except CannotWrite as cannot:
        raise CommandError(str(cannot), remedy=cannot.remedy) from None
    arguments.output = arguments.output or arguments.file
    options.write(arguments, text)
    if arguments.output != "-":
        print(f"wrote the annotations of {', '.join(named)} into {arguments.output}")
    return 0


def _derived(code: Code, component: Component) -> Iterator[dict[str, Any]]:
    """The records of the derived paths of a component, as JSON data."""
    from annotations.dependencies import PathDependencies
    from annotations.whitebox import claims

    dependencies = PathDependencies(code.dataflow)
    for output in code.outputs(component):
        written = {
            p.source: p for p in component.paths if p.target == output.name and p.derived is None
        }
        for path in output.paths():
            claim = written.get(path.source)
            derived = claims.annotation_text(path)
            differs = claim is not None and claims.annotation_text(claim) != derived
            more = claim is not None and claims.more_than_shown(
                claim, path, dependencies.of(component, claim)
            )
            yield _data(component.name, output, path) | {
                "written": str(claim.annotation) if claim is not None and differs else None,
                "why": claim.why if claim is not None else None,
                "claims_more": more and claim is not None and claim.why is None,
            }


def _lines(record: dict[str, Any]) -> Iterator[str]:
    ends = f"{record['component']}: {record['path']['from']} -> {record['path']['to']}"
    order = ", within: sequence" if record["within"] == "sequence" else ""
    yield f"{ends}  {record['annotation']}{order}"
    if record["nondeterministic"]:
        yield f"  nondeterministic: {record['nondeterministic']}"
    for line in record["evidence"] or ["each record is treated by itself, and nothing is kept"]:
        yield f"  {line}"
    for line in record["assumptions"]:
        yield f"  assumed: {line}"
    if record["written"]:
        more = "; it claims more than the code shows (BLZ084)" if record["claims_more"] else ""
        why = f" (why: {record['why']})" if record["why"] else ""
        yield f"  written: {record['written']}{why}{more}"
