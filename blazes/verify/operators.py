"""The code behind an output interface, with the schemas of what enters it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath

from annotations.dataflow import Component, Dataflow, Endpoint, Implementation, Path, Stream

Schema = Mapping[str, str]
"""Attribute -> Spark SQL type, in order."""


@dataclass(frozen=True, slots=True)
class Operator:
    """How one output of a component is computed.

    Attributes:
        component: its name.
        output: the output interface.
        paths: those that end there, and those that write state which the code reads too.
        code: the implementation; None where records pass through unchanged.
        schemas: input interface -> its columns, for the interfaces that the code reads.
        folder: where a Python module is looked for.
        unset: input interface -> columns that are null in data records (they mark punctuations).
    """

    component: str
    output: str
    paths: tuple[Path, ...]
    code: Implementation | None
    schemas: Mapping[str, Schema] = field(hash=False)
    folder: FilePath = field(default=FilePath(), hash=False)
    unset: Mapping[str, frozenset[str]] = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """`Component.output`."""
        return f"{self.component}.{self.output}"

    @property
    def interfaces(self) -> tuple[str, ...]:
        """The input interfaces, in the order of the file."""
        return tuple(self.schemas)

    @property
    def own(self) -> tuple[Path, ...]:
        """The paths that end at the output."""
        return tuple(path for path in self.paths if path.target == self.output)

    @property
    def writes(self) -> frozenset[str]:
        """Input interfaces whose records are kept."""
        return frozenset(path.source for path in self.paths if path.annotation.kind.writes)

    @property
    def reads(self) -> frozenset[str]:
        """Input interfaces whose records are said to leave nothing behind."""
        return frozenset(self.schemas) - self.writes


def paths_of(component: Component, output: str, code: Implementation | None) -> tuple[Path, ...]:
    """The paths that end at an output, and the writers of shared state that its code reads."""
    own = tuple(path for path in component.paths if path.target == output)
    groups = {
        path.state or ""
        for path in own
        if path.state is not None or not path.annotation.kind.confluent
    }
    text = (code.sql if code else None) or ""
    others = tuple(
        path
        for path in component.paths
        if path.target != output
        and path.annotation.kind.writes
        and (path.state or "") in groups
        and path.source not in {declared.source for declared in own}
        and re.search(rf"(?<!\w){re.escape(path.source)}(?!\w)", text)
    )
    return own + others


def unset_columns(stream: Stream) -> frozenset[str]:
    """Columns that only punctuations fill."""
    if stream.punctuation is None or stream.schema is None:
        return frozenset()
    marks = stream.punctuation
    text = f"{marks.when} {marks.count} {marks.digest or ''}"
    return frozenset(name for name in stream.schema if re.search(rf"\b{re.escape(name)}\b", text))


def entering(dataflow: Dataflow, component: str, interface: str) -> list[Stream]:
    """The streams that enter an input interface."""
    at = Endpoint(component, interface)
    return [stream for stream in dataflow.streams.values() if stream.consumer == at]


def leaving(dataflow: Dataflow, component: str, output: str) -> list[Stream]:
    """The streams that leave an output interface."""
    at = Endpoint(component, output)
    return [stream for stream in dataflow.streams.values() if stream.producer == at]


def in_order(dataflow: Dataflow) -> list[Endpoint]:
    """Every output, after the outputs that feed it as far as the dataflow has no cycles."""
    todo = {
        Endpoint(component.name, path.target): None
        for component in dataflow.components.values()
        for path in component.paths
    }
    feeds = {
        at: {
            stream.producer
            for path in dataflow.components[at.component].paths
            if path.target == at.interface
            for stream in entering(dataflow, at.component, path.source)
            if stream.producer is not None and stream.producer != at
        }
        for at in todo
    }
    order: list[Endpoint] = []
    left = list(todo)
    while left:
        ready = [at for at in left if not feeds[at] & set(left)] or left[:1]
        order += ready
        left = [at for at in left if at not in ready]
    return order


class Unknown(Exception):  # noqa: N818
    """Why an output cannot be run: no code, no schema, or code that does not run on tables."""


def operators_of(
    dataflow: Dataflow, schema_of: Callable[[Operator], Schema]
) -> tuple[dict[Endpoint, Operator], dict[Endpoint, str], dict[str, Schema]]:
    """The code of every output, why there is none, and the schema of every stream.

    Args:
        dataflow: the dataflow.
        schema_of: the columns of what an operator puts out; raises Unknown.
    """
    schemas = {s.name: s.schema for s in dataflow.streams.values() if s.schema}
    operators: dict[Endpoint, Operator] = {}
    reasons: dict[Endpoint, str] = {}
    for at in in_order(dataflow):
        try:
            operator = operator_of(dataflow, at, schemas)
            streams = leaving(dataflow, at.component, at.interface)
            schema = schema_of(operator)
        except Unknown as unknown:
            reasons[at] = str(unknown)
            continue
        operators[at] = operator
        for stream in streams:
            schemas.setdefault(stream.name, schema)
    return operators, reasons, schemas


def operator_of(dataflow: Dataflow, at: Endpoint, schemas: Mapping[str, Schema]) -> Operator:
    """The code of one output, with the schemas of its inputs; Unknown where one is missing."""
    component = dataflow.components[at.component]
    code = component.implementations.get(at.interface)
    if code is not None and code.sql is None and code.python is None:
        bloom = code.bloom is not None
        raise Unknown(
            "Bloom rules are analysed and not executed" if bloom else "it is no SQL and no function"
        )
    paths = paths_of(component, at.interface, code)
    inputs: dict[str, Schema] = {}
    unset: dict[str, frozenset[str]] = {}
    for name in dict.fromkeys(path.source for path in paths):
        streams = entering(dataflow, at.component, name)
        known = [schemas[stream.name] for stream in streams if stream.name in schemas]
        if not known:
            raise Unknown(f"the schema of {at.component}.{name} is not known")
        inputs[name] = known[0]
        unset[name] = frozenset().union(*map(unset_columns, streams))
    if code is None and len(inputs) > 1:
        raise Unknown("it has several inputs and no implementation")
    folder = dataflow.file.parent if dataflow.file else FilePath()
    return Operator(at.component, at.interface, paths, code, inputs, folder, unset)
