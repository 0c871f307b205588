"""What repeats do on paths whose author did not say it: read off the SQL beside the annotation."""

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
    inner = any(each.producer and each.delivery == "may-repeat" for each in streams)
    silent = [each for each in dataflow.components.values() if any(map(_silent, each.paths))]
    if not silent or not (inner or any(map(may_repeat, streams))):
        return dataflow
    from annotations.whitebox.code import Code

    code = Code(dataflow, text)
    told = {each.name: _told(each, code) for each in silent if _has_sql(each)}
    return replace(dataflow, components=MappingProxyType({**dataflow.components, **told}))


def _silent(path: Path) -> bool:
    return path.repeats is None and path.derived is None


def _has_sql(component: Component) -> bool:
    return any(by.sql is not None for by in component.implementations.values())


def _told(component: Component, code: Code) -> Component:
    known = {
        (source, output.name): path
        for output in code.outputs(component)
        for source, path in output.derivation.paths.items()
    }

    def told(path: Path) -> Path:
        shown = known.get((path.source, path.target))
        if shown is None or not _silent(path):
            return path
        return replace(path, repeats=shown.repeats, rows=shown.rows)

    return replace(component, paths=tuple(map(told, component.paths)))
