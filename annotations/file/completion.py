"""Lineage and repeats of written paths that do not say them, read off the SQL beside them."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from annotations.dataflow import Component, Dataflow, Path
from annotations.delivery import may_repeat

if TYPE_CHECKING:
    from annotations.whitebox.code import Code


def completed(dataflow: Dataflow, text: str) -> Dataflow:
    """The dataflow, with `lineage`, `repeats` and `rows` on written paths that do not have them.

    Where no stream has a seal or an id and no record may come again, nothing is read.

    Args:
        dataflow: with all paths.
        text: the file's.
    """
    streams = dataflow.streams.values()
    again = any(stream.producer and stream.delivery == "may-repeat" for stream in streams)
    again = again or any(map(may_repeat, streams))
    travels = any(stream.seals or stream.id for stream in streams)
    silent = [
        component
        for component in dataflow.components.values()
        if any(_silent(path, again, travels) for path in component.paths) and _has_sql(component)
    ]
    if not silent:
        return dataflow
    from annotations.whitebox.code import Code

    code = Code(dataflow, text)
    complete = {component.name: _completed(component, code, again) for component in silent}
    return replace(dataflow, components=MappingProxyType({**dataflow.components, **complete}))


def _silent(path: Path, again: bool, travels: bool) -> bool:
    if path.derived is not None:
        return False
    return (again and path.repeats is None) or (travels and _copies_unsaid(path))


def _copies_unsaid(path: Path) -> bool:
    """Whether the code says what the path copies: nobody else does, nor answers for it."""
    return path.lineage is None and path.why is None


def _has_sql(component: Component) -> bool:
    return any(by.sql is not None for by in component.implementations.values())


def _completed(component: Component, code: Code, again: bool) -> Component:
    known = {
        (path.source, path.target): (path, output)
        for output in code.outputs(component)
        for path in output.paths()
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
