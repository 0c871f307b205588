"""Diagnostics for people, with the source line and a caret, and as JSON.

    examples/wordcount/dataflow.yaml:8:48: BLZ103 unknown key 'subscrpt'; did you mean subscript?
      |
    8 |       - {from: words, to: counts, label: OW, subscrpt: [word]}
      |                                              ^
      = a path has the keys from, to, label, ...

Plain text with a few escape sequences: a refused file is answered without importing rich.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TextIO

from annotations.dataflow import Position
from annotations.diagnostics import Diagnostic, Severity
from blazes.document.plain import cells, colour_of, printable, safe_write

COLOURS: Final = {Severity.NOTE: "36", Severity.WARNING: "33", Severity.ERROR: "31"}
LINE_WIDTH: Final = 100
"""A longer source line is cut to this many characters around the mistake."""


def print_problems(
    diagnostics: Sequence[Diagnostic], *, format: str | None = None, stream: TextIO | None = None
) -> None:
    """Print diagnostics: to stdout where JSON or SARIF was asked for, else to stderr."""
    if format == "json":
        safe_write(stream or sys.stdout, problems_json(diagnostics) + "\n")
    elif format == "sarif":
        from blazes.report import sarif

        safe_write(stream or sys.stdout, sarif.dumps(sarif.problems(diagnostics)))
    else:
        output = stream or sys.stderr
        safe_write(output, problems_text(diagnostics, colour=colour_of(output)))


def problems_json(diagnostics: Iterable[Diagnostic]) -> str:
    """The object that a command prints for a refused file, as JSON text."""
    return json.dumps(
        {"schema_version": 1, "diagnostics": [as_object(diagnostic) for diagnostic in diagnostics]},
        indent=2,
        ensure_ascii=False,
    )


def as_object(diagnostic: Diagnostic) -> dict[str, Any]:
    """One diagnostic as JSON data; file, line and column are null where there is no position."""
    position = diagnostic.position
    return {
        "code": diagnostic.code.id,
        "severity": diagnostic.code.severity.name.lower(),
        "message": diagnostic.message,
        "remedy": diagnostic.remedy or diagnostic.code.remedy,
        "file": position.file if position else None,
        "line": position.line if position else None,
        "column": position.column if position else None,
    }


def problems_text(diagnostics: Sequence[Diagnostic], *, colour: bool = False) -> str:
    """Every diagnostic with its source line, and how many there are."""
    sources = Sources()
    blocks = [
        problem_text(diagnostic, sources=sources, colour=colour) for diagnostic in diagnostics
    ]
    return "\n\n".join([*blocks, count(diagnostics)]) + "\n" if blocks else ""


def count(diagnostics: Iterable[Diagnostic]) -> str:
    """How many of each severity, the worst first.

    >>> count([])
    'no mistakes'
    """
    words = {Severity.ERROR: "mistake", Severity.WARNING: "warning", Severity.NOTE: "note"}
    number = Counter(diagnostic.code.severity for diagnostic in diagnostics)
    counts = [
        f"{number[severity]} {word}{'s' if number[severity] > 1 else ''}"
        for severity, word in words.items()
        if number[severity]
    ]
    return ", ".join(counts) or "no mistakes"


def problem_text(diagnostic: Diagnostic, *, sources: Sources, colour: bool = False) -> str:
    """One diagnostic: position, code, message; the line with a caret; the remedy."""

    def paint(text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if colour else text

    strong = COLOURS[diagnostic.code.severity]
    position = diagnostic.position
    where = f"{paint(printable(str(position)), '1')}: " if position else ""
    message = printable(diagnostic.message, keep="\n")
    lines = [f"{where}{paint(diagnostic.code.id, '1;' + strong)} {message}"]
    gutter = " "
    source = sources.line(position) if position else None
    if position and source is not None:
        text, offset = excerpt(source, position.column)
        number = str(position.line)
        gutter = " " * len(number)
        bar = paint("|", "2")
        lines += [
            f"{gutter} {bar}",
            f"{paint(number, '2')} {bar} {text}".rstrip(),
            f"{gutter} {bar} {' ' * offset}{paint('^', '1;' + strong)}",
        ]
    remedy = printable(diagnostic.remedy or diagnostic.code.remedy, keep="\n")
    if remedy:
        lines += [f"{gutter} = {line}" for line in remedy.splitlines()]
    return "\n".join(lines)


def excerpt(line: str, column: int) -> tuple[str, int]:
    r"""The line as it is shown, cut around the column, and the caret's offset in screen cells.

    >>> excerpt("a:\tb", 4)
    ('a: b', 3)
    """
    at = min(max(column - 1, 0), len(line))
    start = max(0, at - LINE_WIDTH // 2) if len(line) > LINE_WIDTH else 0
    end = start + LINE_WIDTH
    before = ("..." if start else "") + printable(line[start:at].replace("\t", " "))
    after = printable(line[at:end].replace("\t", " ")) + ("..." if end < len(line) else "")
    return (before + after).rstrip(), cells(before)


class Sources:
    """The lines of the files that diagnostics point into, each file read once."""

    def __init__(self, texts: Mapping[str, str] | None = None) -> None:
        """Lines of files; `texts` are those that are known without reading."""
        self._lines = {file: text.split("\n") for file, text in (texts or {}).items()}

    def line(self, position: Position) -> str | None:
        """The line that a position points at; None where it cannot be read."""
        lines = self._lines.get(position.file)
        if lines is None:
            try:
                text = Path(position.file).read_text(encoding="utf-8-sig", errors="replace")
            except (OSError, ValueError):
                text = ""
            lines = self._lines[position.file] = text.split("\n")
        return lines[position.line - 1] if 0 < position.line <= len(lines) and any(lines) else None
