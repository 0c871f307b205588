"""Bloom texts and files: their modules, and what is derived of the outputs.

A component names one of them: `bloom: report.bloom#Poor`, or its text in the dataflow file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from annotations.dataflow import Position
from annotations.diagnostics import CODES, BadInput, Diagnostic, Findings, did_you_mean
from annotations.whitebox import places
from annotations.whitebox.bloom.library import Library
from annotations.whitebox.bloom.modules import Module
from annotations.whitebox.bloom.plans import Plans
from annotations.whitebox.bloom.tree import Place
from annotations.whitebox.components import Output, derive_output
from annotations.whitebox.inputs import Input
from annotations.whitebox.sql import Query


@dataclass(frozen=True)
class Program:
    """The modules of a Bloom text."""

    modules: Mapping[str, Module]
    file: str

    def outputs(self, name: str) -> tuple[Output, ...]:
        """The derivation of each output of a module; BadInput where its rules are wrong."""
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


class Named:
    """The module that `bloom:` of a component names; all that is wrong with it is BadInput."""

    def __init__(
        self, text: str, *, folder: Path, place: places.Place | None, position: Position | None
    ) -> None:
        self.position = position
        program, name = self._found(text, folder, place)
        if name is None:
            modules = ", ".join(program.modules)
            message = f"`bloom` does not say which of the modules {modules} is meant"
            raise self._wrong(message, f"Write `{text.strip()}#{list(program.modules)[-1]}`.")
        if name not in program.modules:
            near = did_you_mean(name, program.modules)
            raise self._wrong(f"there is no module {name} in {program.file}{near}")
        self.file, self.module = program.file, program.modules[name]

    def query(self, output: str, inputs: Mapping[str, Input]) -> Query:
        """The plan of an output of the module."""
        if output not in self.module.outputs:
            near = did_you_mean(output, self.module.outputs)
            raise self._wrong(f"the module {self.module.name} has no output `{output}`{near}")
        out = Findings(self.file)
        plan = Plans(self.module, out, inputs).output(output)
        if out.errors:
            raise BadInput(out.sorted())
        return Query(plan)

    def _found(
        self, text: str, folder: Path, place: places.Place | None
    ) -> tuple[Program, str | None]:
        """The program, and the module of it that is meant; of a text in the file, the last one."""
        if "\n" in text.strip():
            start = self.position or Position("<bloom>", 1, 1)
            here = None if place is None else lambda at: place(at) or start
            program = read(text, file=start.file, folder=folder, place=here)
            return program, list(program.modules)[-1]
        name, _, module = text.strip().partition("#")
        path = folder / name
        if not path.is_file():
            raise self._wrong(f"there is no file {name} beside the dataflow's")
        program = read_file(path)
        only = next(iter(program.modules)) if len(program.modules) == 1 else None
        return program, module or only

    def _wrong(self, message: str, remedy: str | None = None) -> BadInput:
        return BadInput([Diagnostic(CODES["BLZ091"], message, self.position, remedy)])
