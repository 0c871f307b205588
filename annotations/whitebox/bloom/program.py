"""Bloom texts and files: their modules, and what is derived of the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from annotations.dataflow import Position
from annotations.diagnostics import BadInput, Findings
from annotations.whitebox.bloom.library import Library
from annotations.whitebox.bloom.modules import Module
from annotations.whitebox.bloom.plans import Plans
from annotations.whitebox.bloom.tree import Place
from annotations.whitebox.components import Output, derive_output
from annotations.whitebox.sql import Query


@dataclass(frozen=True)
class Program:
    """The modules of a Bloom text."""

    modules: Mapping[str, Module]
    file: str

    def outputs(self, name: str) -> tuple[Output, ...]:
        """What was derived of each output of a module; BadInput where its rules are wrong."""
        module = self.modules[name]
        out = Findings(self.file)
        plans = Plans(module, out)
        result = tuple(
            derive_output(
                output,
                Query(plans.output(output)),
                position=module.collections[output].position,
                by_partition=False,
            )
            for output in module.outputs
        )
        if out.errors:
            raise BadInput(out.sorted())
        return result


def read(
    text: str, *, file: str = "<bloom>", folder: Path | None = None, place: Place | None = None
) -> Program:
    """The modules of a text; BadInput with all its mistakes.

    Files that the text requires are looked for in `folder` and those above it. `place` says where
    an offset of the text stands, if not in `file`.
    """
    out = Findings(file)
    library = Library(text, file=file, out=out, folder=folder, place=place)
    modules = {name: library.module(name) for name in library.own}
    if not library.incomplete:
        for module in modules.values():
            plans = Plans(module, out)
            for output in module.outputs:
                plans.output(output)
    if not modules and not out.errors:
        out.add("BLZ090", "there is no module in the text", Position(file, 1, 1))
    if out.errors:
        raise BadInput(out.sorted())
    return Program(modules, file)


def read_file(path: Path) -> Program:
    """The modules of a file; BadInput with all its mistakes."""
    try:
        text = path.read_text(encoding="utf-8").removeprefix("\ufeff")
    except (OSError, UnicodeDecodeError) as error:
        out = Findings(str(path))
        reason = getattr(error, "strerror", None) or "it is no UTF-8 text"
        out.add("BLZ001", f"{path} cannot be read: {reason}", None)
        raise BadInput(out.sorted()) from None
    return read(text, file=str(path), folder=path.parent)
