"""The annotations of Bloom modules, as the `components` of a dataflow file with the reasons."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from annotations.vocabulary import Within
from annotations.whitebox.bloom.program import Program
from annotations.whitebox.components import Output
from annotations.whitebox.derivation import Assumption, DerivedPath, Evidence


def as_yaml(program: Program, names: Iterable[str]) -> str:
    """The annotations of these modules; what a comment says stands in the line that it names."""
    lines = ["components:"]
    for name in names:
        lines += _module(program, name)
    return "\n".join(lines) + "\n"


def _module(program: Program, name: str) -> Iterator[str]:
    outputs = program.outputs(name)
    module = program.modules[name]
    if not any(output.derivation.paths for output in outputs):
        yield f"  # {name} (line {module.position.line}) has no path from an input to an output"
        return
    yield f"  {name}:  # line {module.position.line}"
    yield "    annotation:"
    for output in outputs:
        yield from _output(output)
    assumed = [assumption for output in outputs for assumption in output.derivation.assumptions]
    for assumption in dict.fromkeys(assumed):
        yield f"    # assumed: {_told(assumption)}"


def _output(output: Output) -> Iterator[str]:
    for path in output.paths():
        derived = output.derivation.paths[path.source]
        for reason in _reasons(derived):
            yield f"      # {reason}"
        parts = [f"from: {path.source}", f"to: {path.target}"]
        parts.append(f"label: {path.annotation.kind.name}")
        gate = path.annotation.gate
        if gate is not None and gate.attributes is not None:
            parts.append(f"subscript: [{', '.join(sorted(gate.attributes))}]")
        if path.within is Within.SEQUENCE:
            parts.append("within: sequence")
        if path.nondeterministic is not None:
            reason = path.nondeterministic.replace("'", "''")
            parts.append(f"nondeterministic: '{reason}'")
        yield f"      - {{{', '.join(parts)}}}"


def _reasons(path: DerivedPath) -> Iterator[str]:
    if not path.evidence:
        yield "each fact is treated by itself, and nothing is kept"
    yield from dict.fromkeys(map(_told, path.evidence))


def _told(reason: Assumption | Evidence) -> str:
    return reason.text + (f" (line {reason.position.line})" if reason.position else "")
