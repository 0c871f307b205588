"""How reports for a terminal are laid out: width, colour, characters, headings, paragraphs.

Names reach the terminal through `Text`, never as markup, and without control characters.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, TypeAlias

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from annotations.dataflow import Position
from annotations.vocabulary import Label, StreamLabel
from blazes.report.glyphs import ASCII, UNICODE, Glyphs
from blazes.report.plain import cells, printable

STYLES: Final = {
    Label.SEAL: "cyan",
    Label.ASYNC: "green",
    Label.RUN: "yellow",
    Label.INST: "magenta",
    Label.DIVERGE: "bold red",
}
INDENT: Final = 2

Rows: TypeAlias = list[tuple[str, RenderableType]]
"""Paragraphs, each with the word that stands left of it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """How wide, with what characters, and how much."""

    width: int = 80
    colour: bool = False
    unicode: bool = True
    everything: bool = False
    """List everything, however large the dataflow is."""

    @property
    def glyphs(self) -> Glyphs:
        """What lines are drawn with."""
        return UNICODE if self.unicode else ASCII

    def console(self, *, record: bool = False) -> Console:
        """A console of this layout that prints into memory."""
        return Console(
            file=io.StringIO(),
            width=self.width,
            force_terminal=self.colour,
            color_system="auto" if self.colour else None,
            no_color=not self.colour,
            legacy_windows=False,
            highlight=False,
            markup=False,
            emoji=False,
            record=record,
        )


def printed(parts: Iterable[RenderableType], layout: Layout) -> str:
    """The parts as text, without spaces at the ends of lines."""
    console = layout.console()
    for part in parts:
        console.print(part, crop=False, no_wrap=None)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))


def label_text(label: StreamLabel) -> Text:
    """A label in the colour of its severity."""
    return Text(printable(str(label)), style=STYLES[label.label])


def heading(title: str, position: Position | None, layout: Layout) -> RenderableType:
    """A heading with a line to the right margin, and where it stands in the file."""
    line = layout.glyphs.line
    text = Text(line * 2 + " ", style="dim", no_wrap=True, overflow="ignore")
    text.append(printable(title), style="bold not dim")
    where = f" {printable(str(position))}" if position else ""
    used = cells(text.plain) + cells(where) + 1
    fits = used + 3 <= layout.width
    fill = layout.width - (used if fits else cells(text.plain) + 1)
    text.append(f" {line * max(fill, 2)}" + (where if fits else ""))
    if where and not fits:
        text.append("\n  " + where.strip())
    return text


def padded(text: str, width: int) -> str:
    """The text, filled up to so many cells."""
    shown = printable(text)
    return shown + " " * (width - cells(shown))


def named(rows: Rows) -> RenderableType:
    """Paragraphs with a word to their left that says what they are about."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="bold", min_width=7)
    grid.add_column(overflow="fold")
    for name, body in rows:
        grid.add_row(name, body)
    return Padding(grid, (0, 0, 0, INDENT))


def paragraph(sentences: Iterable[str]) -> Text:
    """One paragraph for each sentence."""
    return Text("\n".join(printable(line) for line in sentences), style="not bold")
