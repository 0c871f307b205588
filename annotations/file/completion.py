"""Lineage and repeats of written paths that do not say them: read off the SQL beside them, or, of
other code, taken for granted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from annotations.dataflow import Component, Dataflow, Endpoint, Path, Reason, Stream
from annotations.delivery import numbered
from annotations.dependencies import within
from annotations.phrases import listed

if TYPE_CHECKING:
    from annotations.whitebox.code import Code
    from annotations.whitebox.components import Output
    from annotations.whitebox.sandbox import Limits


def completed(
    dataflow: Dataflow, text: str, *, execute: Limits | None = None, code: Code | None = None
) -> Dataflow:
    """The dataflow, with `lineage`, `repeats` and `rows` on written paths that do not have them.

    Where no stream has a seal, and nothing is said of how often records come, nothing is read. What
    is written beside code that is not read is among what the paths assume.

    Args:
        dataflow: with all paths.
        text: the file's.
        execute: what functions may take when they are run to be read; None: nothing is run.
        code: of the dataflow, read by the same rules, where it is at hand already.
    """
    streams = dataflow.streams.values()
    again = any(map(numbered, streams))
    travels = any(stream.seals or stream.id for stream in streams)
    silent = [
        component
        for component in dataflow.components.values()
        if any(
            (by.sql is not None and _silent(path, again, travels))
            or (by.python is not None and execute is not None and _claimed(path))
            for path in component.paths
            if (by := component.implementations.get(path.target)) is not None
        )
    ]
    described: set[Endpoint] = set()
    if silent:
        if code is None:
            from annotations.whitebox.code import Code

            code = Code(dataflow, text, execute=execute)
        complete = {}
        for component in silent:
            outputs = list(code.outputs(component))
            ends = (Endpoint(component.name, o.name) for o in outputs if o.query.problem is None)
            described.update(ends)
            complete[component.name] = _completed(component, outputs, again)
        dataflow = _with(dataflow, complete)
    dataflow = _with(dataflow, _assumed(dataflow, described))
    return _with(dataflow, _renewed(dataflow) if dataflow.fds else {})


def _with(dataflow: Dataflow, changed: Mapping[str, Component]) -> Dataflow:
    if not changed:
        return dataflow
    return replace(dataflow, components=MappingProxyType({**dataflow.components, **changed}))


def _assumed(dataflow: Dataflow, described: Collection[Endpoint]) -> dict[str, Component]:
    """Components of code that is not read, with what is taken for granted of it."""

    def is_unread(component: Component, path: Path) -> bool:
        by = component.implementations.get(path.target)
        other = by is not None and by.sql is None and by.bloom is None
        return other and _claimed(path) and Endpoint(component.name, path.target) not in described

    unread = [c for c in dataflow.components.values() if any(is_unread(c, p) for p in c.paths)]
    enters: dict[Endpoint | None, set[str]] = {}
    leaves: dict[Endpoint | None, set[str]] = {}
    for name, attributes in (_sealed(dataflow) if unread else {}).items():
        stream = dataflow.streams[name]
        enters.setdefault(stream.consumer, set()).update(attributes)
        leaves.setdefault(stream.producer, set()).update(attributes)

    def with_reason(component: Component, path: Path) -> Path:
        if not is_unread(component, path):
            return path
        before = enters.get(Endpoint(component.name, path.source), set())
        after = leaves.get(Endpoint(component.name, path.target), set())
        copied = before & after if path.lineage is None else set[str]()
        copies = f" and copies {listed(sorted(copied))} unchanged" if copied else ""
        text = f"{component.name} {path} is {path.annotation}{copies} (its code is not read)"
        return replace(path, assumed=(*path.assumed, Reason(text, path.position)))

    return {
        component.name: replace(
            component, paths=tuple(with_reason(component, path) for path in component.paths)
        )
        for component in unread
    }


def _renewed(dataflow: Dataflow) -> dict[str, Component]:
    """Components, with the promise that a dependency of what they take holds of what they make.

    Nothing is promised where one record is copied with all attributes of the dependency.
    """
    enters: dict[Endpoint | None, set[str]] = {}
    leaves: dict[Endpoint | None, set[str]] = {}
    for stream in dataflow.streams.values():
        enters.setdefault(stream.consumer, set()).update(stream.schema or ())
        if stream.consumer is not None:
            leaves.setdefault(stream.producer, set()).update(stream.schema or ())

    def promised(component: Component, path: Path) -> Iterator[Reason]:
        before = enters.get(Endpoint(component.name, path.source), set())
        after = leaves.get(Endpoint(component.name, path.target), set())
        lineages = [other.lineage for other in component.paths if other.target == path.target]
        for fd in within(before & after, dataflow.fds):
            names = fd.determinant | fd.dependent
            if not any(
                lineage is None or all(lineage.get(name) == name for name in names)
                for lineage in lineages
            ):
                text = f"{fd} holds of the rows that {component.name} makes, too"
                yield Reason(text, path.position)

    return {
        component.name: replace(
            component,
            paths=tuple(
                replace(path, assumed=(*path.assumed, *promised(component, path)))
                for path in component.paths
            ),
        )
        for component in dataflow.components.values()
    }


def _claimed(path: Path) -> bool:
    """Whether somebody wrote the annotation, without a reason."""
    return path.annotated and path.derived is None and path.why is None


def _sealed(dataflow: Dataflow) -> dict[str, set[str]]:
    """Stream -> attributes of the seals that may be on it."""
    sealed = {name: set[str]().union(*s.seals) for name, s in dataflow.streams.items()}
    produced: dict[Endpoint, list[Stream]] = {}
    for stream in dataflow.streams.values():
        if stream.producer is not None:
            produced.setdefault(stream.producer, []).append(stream)
    todo = [name for name, attributes in sealed.items() if attributes]
    while todo:
        stream = dataflow.streams[todo.pop()]
        if stream.consumer is None or stream.consumer.component not in dataflow.components:
            continue
        component = dataflow.components[stream.consumer.component]
        for path in component.paths:
            if path.source != stream.consumer.interface:
                continue
            copies = path.lineage
            if copies is None:
                copies = {name: name for name in sealed[stream.name]}
            passed = {name for name, copied in copies.items() if copied in sealed[stream.name]}
            for later in produced.get(Endpoint(component.name, path.target), ()):
                new = {a for a in passed if later.schema is None or a in later.schema}
                if new - sealed[later.name]:
                    sealed[later.name] |= new
                    todo.append(later.name)
    return sealed


def _silent(path: Path, again: bool, travels: bool) -> bool:
    if path.derived is not None:
        return False
    return (again and path.repeats is None) or (travels and _copies_unsaid(path))


def _copies_unsaid(path: Path) -> bool:
    """Whether the code says what the path copies: nobody else does, nor answers for it."""
    return path.lineage is None and path.why is None


def _completed(component: Component, outputs: Sequence[Output], again: bool) -> Component:
    known = {
        (path.source, path.target): (path, output) for output in outputs for path in output.paths()
    }

    def filled(path: Path) -> Path:
        if path.derived is not None or (path.source, path.target) not in known:
            return path
        shown, output = known[path.source, path.target]
        if again and path.repeats is None:
            path = replace(path, repeats=shown.repeats, rows=shown.rows)
        if _copies_unsaid(path) and output.query.problem is None:
            path = replace(path, lineage=shown.lineage)
        return path

    return replace(component, paths=tuple(map(filled, component.paths)))
