"""Whether the code of an output splits by a key: asked for a path when a seal could be used there.

The code is read at the first question (`annotations.whitebox.splitting`), so that a file
whose paths use no seal, and could use none, costs nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from annotations.dataflow import Component, Dataflow, Path, Refusal
from annotations.vocabulary import AnnotationKind, FunctionalDependency, Key

if TYPE_CHECKING:
    from annotations.whitebox.code import Code
    from annotations.whitebox.sandbox import Limits


class OutputSplits:
    """Whether the code of one output splits by a key; equal only to itself.

    Args:
        code: of the dataflow.
        component: whose output.
        output: its name.
        fds: under which the question is asked.
    """

    def __init__(
        self,
        code: Callable[[], Code],
        component: Component,
        output: str,
        fds: tuple[FunctionalDependency, ...],
    ) -> None:
        self._code = code
        self._component = component
        self._output = output
        self._fds = fds
        self._answers: dict[Key, Refusal | None] = {}

    def refusal(self, key: Key) -> Refusal | None:
        """Why a seal on this key is not enough; None: it is."""
        if key not in self._answers:
            self._answers[key] = self._ask(key)
        return self._answers[key]

    def under(self, fds: tuple[FunctionalDependency, ...]) -> OutputSplits:
        """The same question under other dependencies."""
        return OutputSplits(self._code, self._component, self._output, fds)

    def _ask(self, key: Key) -> Refusal | None:
        from annotations.whitebox.existing import leaves
        from annotations.whitebox.splitting import splits

        plan = self._code().plan(self._component, self._output)
        if plan is None:
            return None
        names = sorted({leaf.name for leaf in leaves(plan) if leaf.comes})
        keys = dict.fromkeys(names, sorted(key))
        return splits(plan, keys, fds=self._fds)


def with_splits(
    dataflow: Dataflow, text: str, *, execute: Limits | None = None, before: Code | None = None
) -> Dataflow:
    """The dataflow, with the question on every path that a seal could make deterministic.

    Args:
        dataflow: with all paths.
        text: the file's.
        execute: what functions may take when they are run to be read; None: nothing is run.
        before: the code of the dataflow as it was before its paths were derived, where that was
            read.
    """

    @cache
    def code() -> Code:
        if before is not None:
            return before.of(dataflow)
        from annotations.whitebox.code import Code

        return Code(dataflow, text, execute=execute)

    components = {
        name: _asking(component, code, dataflow.fds)
        for name, component in dataflow.components.items()
    }
    return replace(dataflow, components=MappingProxyType(components))


def under(dataflow: Dataflow) -> Dataflow:
    """The dataflow, its questions asked under its own dependencies."""
    components = {
        name: replace(
            component,
            paths=tuple(
                path
                if path.splits is None
                else replace(path, splits=path.splits.under(dataflow.fds))
                for path in component.paths
            ),
        )
        for name, component in dataflow.components.items()
    }
    return replace(dataflow, components=MappingProxyType(components))


def _asking(
    component: Component, code: Callable[[], Code], fds: tuple[FunctionalDependency, ...]
) -> Component:
    outputs = {
        name: OutputSplits(code, component, name, fds)
        for name, by in component.implementations.items()
        if by.sql is not None or (by.python is not None and _read(component, name))
    }
    if not outputs:
        return component

    alone = Counter(path.target for path in component.paths)

    def asking(path: Path) -> Path:
        gate = path.annotation.gate
        if path.target not in outputs or (gate is not None and gate.attributes is None):
            return path
        if gate is None and path.annotation.kind is AnnotationKind.CR and alone[path.target] == 1:
            return path  # it treats each record by itself
        return replace(path, splits=outputs[path.target])

    return replace(component, paths=tuple(map(asking, component.paths)))


def _read(component: Component, output: str) -> bool:
    """Whether a function has been read already; of one with written paths nothing is known."""
    return any(path.derived is not None for path in component.paths if path.target == output)
