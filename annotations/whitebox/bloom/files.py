"""The Bloom module that a component names: `bloom: report.bloom#Poor`, or its text in the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from annotations.dataflow import Position
from annotations.diagnostics import CODES, BadInput, Diagnostic, Findings, did_you_mean
from annotations.whitebox.bloom.plans import Plans
from annotations.whitebox.bloom.program import Program, read, read_file
from annotations.whitebox.inputs import Input
from annotations.whitebox.places import Place
from annotations.whitebox.sql import Query


class Named:
    """What `bloom:` of a component says. Everything that is wrong with it is BadInput."""

    def __init__(
        self, said: str, *, folder: Path, place: Place | None, position: Position | None
    ) -> None:
        self.position = position
        program, name = self._found(said, folder, place)
        if name is None:
            modules = ", ".join(program.modules)
            message = f"`bloom` does not say which of the modules {modules} is meant"
            raise self._wrong(message, f"Write `{said.strip()}#{list(program.modules)[-1]}`.")
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

    def _found(self, said: str, folder: Path, place: Place | None) -> tuple[Program, str | None]:
        """The program, and the module of it that is meant; of a text in the file, the last one."""
        if "\n" in said.strip():
            start = self.position or Position("<bloom>", 1, 1)
            here = None if place is None else lambda at: place(at) or start
            program = read(said, file=start.file, folder=folder, place=here)
            return program, list(program.modules)[-1]
        name, _, module = said.strip().partition("#")
        path = folder / name
        if not path.is_file():
            raise self._wrong(f"there is no file {name} beside the dataflow's")
        program = read_file(path)
        only = next(iter(program.modules)) if len(program.modules) == 1 else None
        return program, module or only

    def _wrong(self, message: str, remedy: str | None = None) -> BadInput:
        return BadInput([Diagnostic(CODES["BLZ091"], message, self.position, remedy)])
