"""The effect of repeats on paths that do not declare it, read off the SQL beside the annotation."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from annotations.dataflow import Component, Dataflow, Path
from annotations.delivery import may_repeat

if TYPE_CHECKING:
    from annotations.whitebox.code import Code


def with_repeats(dataflow: Dataflow, text: str) -> Dataflow:
    """The dataflow, with `repeats` and `rows` on written paths that do not have them.

    Where no record may come again, nothing is read.

    Args:
        dataflow: with all paths.
        text: the file's.
    """
    streams = dataflow.streams.values()
    inner = any(stream.producer and stream.delivery == "may-repeat" for stream in streams)
    silent = [
        component
        for component in dataflow.components.values()
        if any(map(_silent, component.paths))
    ]
    if not silent or not (inner or any(map(may_repeat, streams))):
        return dataflow
    from annotations.whitebox.code import Code

    code = Code(dataflow, text)
    completed = {
        component.name: _completed(component, code) for component in silent if _has_sql(component)
    }
    return replace(dataflow, components=MappingProxyType({**dataflow.components, **completed}))


def _silent(path: Path) -> bool:
    return path.repeats is None and path.derived is None


def _has_sql(component: Component) -> bool:
    return any(by.sql is not None for by in component.implementations.values())


def _completed(component: Component, code: Code) -> Component:
    known = {
        (source, output.name): path
        for output in code.outputs(component)
        for source, path in output.derivation.paths.items()
    }

    def complete(path: Path) -> Path:
        shown = known.get((path.source, path.target))
        if shown is None or not _silent(path):
            return path
        return replace(path, repeats=shown.repeats, rows=shown.rows)

    return replace(component, paths=tuple(map(complete, component.paths)))
