"""One model of a mistake, for every front end and every renderer.

A rule of the front end has one home, the `CODES` table: code, severity, title, why it matters and
what to do. `blazes rule CODE` and the reference pages print it.
"""

from __future__ import annotations

import difflib
import enum
from collections.abc import Iterable
from dataclasses import dataclass

from annotations.dataflow import Position


class Severity(enum.IntEnum):
    """How bad a finding is; an `ERROR` stops everything that would come after."""

    NOTE = 1
    WARNING = 2
    ERROR = 3


@dataclass(frozen=True, slots=True)
class Code:
    """A kind of mistake: what every report of it has in common."""

    id: str
    severity: Severity
    title: str
    why: str
    remedy: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One mistake at one place."""

    code: Code
    message: str
    position: Position | None = None
    remedy: str | None = None
    """What to do in this very case; else the code's general remedy."""

    def __str__(self) -> str:
        where = f"{self.position} " if self.position else ""
        return f"{where}{self.code.id} {self.message}\n    {self.remedy or self.code.remedy}"


class BadInput(Exception):
    """The input was refused; `diagnostics` are all of its mistakes, in the order of the file."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("\n".join(map(str, self.diagnostics)))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The nearest known words, as the end of a sentence; empty where none is near.

    >>> did_you_mean("subscrpt", ["subscript", "label"])
    '; did you mean subscript?'
    """
    near = difflib.get_close_matches(word, list(known), n=2, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""
