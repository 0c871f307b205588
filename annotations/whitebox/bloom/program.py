"""Bloom texts and files: their modules, and what is derived of the outputs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from annotations.dataflow import Position
from annotations.diagnostics import BadInput, Findings
from annotations.whitebox.bloom.library import Library
from annotations.whitebox.bloom.modules import Module
from annotations.whitebox.bloom.plans import Plans
from annotations.whitebox.bloom.tree import Place
from annotations.whitebox.components import Output, derive_output
from annotations.whitebox.inputs import Input
from annotations.whitebox.sql import Query


class Program:
    """The modules of a Bloom text."""

    def __init__(self, library: Library, modules: Mapping[str, Module], file: str) -> None:
        self._library = library
        self.modules = modules
        self.file = file

    def outputs(
        self, name: str, *, inputs: Mapping[str, Input] | None = None
    ) -> tuple[Output, ...]:
        """What was derived of each output of a module; BadInput where its rules are wrong."""
        module = self.modules[name]
        out = Findings(self.file)
        plans = Plans(module, out, inputs)
        found = tuple(
            derive_output(each, query(plans, each), position=module.collections[each].position)
            for each in module.outputs
        )
        if out.errors:
            raise BadInput(out.sorted())
        return found


def query(plans: Plans, name: str) -> Query:
    """The plan of an output, as the other front ends give it."""
    return Query(plan=plans.output(name), open=False)


def read(
    text: str, *, file: str = "<bloom>", folder: Path | None = None, place: Place | None = None
) -> Program:
    """The modules of a text; BadInput with all its mistakes.

    Files that the text requires are looked for in `folder` and those above it. `place` says where
    an offset of the text stands, if not in `file`.
    """
    out = Findings(file)
    library = Library(text, file=file, out=out, folder=folder, place=place)
    modules: dict[str, Module] = {}
    for name in library.own:
        module = library.module(name)
        if module is not None:
            modules[name] = module
    for module in modules.values():
        if not library.incomplete:
            plans = Plans(module, out)
            for output in module.outputs:
                plans.output(output)
    if not modules and not out.errors:
        out.add("BLZ090", "there is no module in the text", Position(file, 1, 1))
    if out.errors:
        raise BadInput(out.sorted())
    return Program(library, modules, file)


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
