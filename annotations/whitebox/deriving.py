"""Components without annotations get those that their code gives.

`annotations.file.reader` calls this for a file that has such components, and imports it only then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from annotations.dataflow import Component, Dataflow, Path, Stream
from annotations.diagnostics import Findings
from annotations.whitebox.code import Code
from annotations.whitebox.components import Output
from annotations.whitebox.derivation import Evidence
from annotations.whitebox.existing import leaves
from annotations.whitebox.ir import Role

CODE_OF_CONSTRUCT: Final[Mapping[str, str]] = MappingProxyType(
    {
        "opaque": "BLZ082",
        "unknown": "BLZ082",
        "mutable-table": "BLZ082",
        "nondeterministic": "BLZ083",
        "set-only": "BLZ085",
        "watermark": "BLZ086",
        "float-sum": "BLZ087",
    }
)
"""What a reader should be told of a construct that was met, beside the annotation it gives."""


def with_derived_paths(code: Code, findings: Findings) -> Dataflow:
    """The dataflow with derived paths in place of the possible ones, and schemas on the streams
    from them.

    Args:
        code: of a dataflow with possible paths.
        findings: gets what should be known of the code.
    """
    dataflow = code.dataflow
    components = {
        name: _derived(code, component, findings) if _unannotated(component) else component
        for name, component in dataflow.components.items()
    }
    if findings.errors:
        return dataflow
    derived = {
        name for name, component in components.items() if component is not dataflow.components[name]
    }
    streams = {name: _typed(code, stream, derived) for name, stream in dataflow.streams.items()}
    return replace(
        dataflow,
        components=MappingProxyType(components),
        streams=MappingProxyType(streams),
    )


def _unannotated(component: Component) -> bool:
    return any(path.derived is not None for path in component.paths)


def _typed(code: Code, stream: Stream, derived: set[str]) -> Stream:
    if stream.schema is not None or stream.producer is None:
        return stream
    if stream.producer.component not in derived:
        return stream
    return replace(stream, schema=code.exact_schema(stream))


def _derived(code: Code, component: Component, findings: Findings) -> Component:
    outputs = list(code.outputs(component))
    paths = [path for output in outputs for path in _in_order(component, output)]
    stateful = {path.target for path in paths if not _record_wise(path)}
    shared = any(
        implementation.bloom is not None for implementation in component.implementations.values()
    )
    if len(stateful) > 1 and not shared:
        # Each output has a query of its own, and so has its state.
        paths = [p if _record_wise(p) else replace(p, state=p.target) for p in paths]
    for output in outputs:
        _tell(component, output, findings)
    _check_read(code.dataflow, component, outputs, findings)
    return replace(component, paths=tuple(paths))


def _record_wise(path: Path) -> bool:
    return path.annotation.kind.confluent and not path.annotation.kind.writes


def _in_order(component: Component, output: Output) -> list[Path]:
    """The paths to an output, in the order in which the file names the inputs."""
    by_source = {path.source: path for path in output.paths()}
    inputs = dict.fromkeys(path.source for path in component.paths)
    return [by_source[source] for source in inputs if source in by_source]


def _check_read(
    dataflow: Dataflow, component: Component, outputs: list[Output], findings: Findings
) -> None:
    """Every stream into the component is read by its code (BLZ041)."""
    read = {source for output in outputs for source in output.derivation.paths}
    others = {
        leaf.name
        for output in outputs
        for leaf in leaves(output.query.plan)
        if leaf.role is Role.MUTABLE
    }
    but = f", but {', '.join(sorted(others))}" if others else ""
    for stream in dataflow.streams.values():
        end = stream.consumer
        if end is not None and end.component == component.name and end.interface not in read:
            message = f"no code of {component.name} reads its input `{end.interface}`{but}"
            remedy = "Correct the name in the stream or in the code, or remove the stream."
            findings.add("BLZ041", message, stream.position, remedy)


def _tell(component: Component, output: Output, findings: Findings) -> None:
    """Report the assumptions and problems of the code of an output."""
    if output.query.problem is not None:
        where = output.query.plan.position or output.position
        meaning = " is taken for the worst" if output.undescribed else ""
        message = f"{component.name} -> {output.name}{meaning}: {output.query.problem}"
        findings.add(output.query.code, message, where, output.query.remedy)
        return
    for evidence in _evidence(output):
        code = CODE_OF_CONSTRUCT.get(evidence.construct)
        if code is not None:
            message = f"{component.name} -> {output.name}: {evidence.text}"
            findings.add(code, message, evidence.position or output.position)
    for assumption in output.derivation.assumptions:
        message = f"{component.name} -> {output.name} assumes: {assumption.text}"
        findings.add("BLZ088", message, assumption.position or output.position)


def _evidence(output: Output) -> Iterator[Evidence]:
    for path in output.derivation.paths.values():
        yield from path.evidence
