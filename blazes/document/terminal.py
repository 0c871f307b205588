"""A document on a terminal of any width, with or without colour or Unicode.

Names reach the terminal through `Text`, never as markup, and without control characters. A blank
line stands between blocks; what follows a heading is set in.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal, Self, TextIO

from rich.box import SIMPLE_HEAD, Box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from blazes.document import blocks as b
from blazes.document.derivation import laid_out
from blazes.document.palette import TERMINAL
from blazes.document.plain import (
    ASCII,
    bars,
    cells,
    colour_of,
    printable,
    unicode_of,
    width_of,
)

INDENT: Final = 2
PROOF: Final = 9
"""Cells that a derivation is set in by, below the words beside it."""
NARROW: Final = 60
LAST_MIN: Final = 24
"""Cells that the last column of a table keeps where it is cut and nothing else is left out."""
PLAIN_BOX: Final = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


@dataclass(frozen=True, eq=False, repr=False)
class Layout:
    """How wide, and with what characters."""

    width: int = 80
    colour: bool = False
    unicode: bool = True
    cut: bool = False
    """Lines that keep their spaces end at the margin, as on a screen that is redrawn."""

    @classmethod
    def of(cls, stream: TextIO, *, most: int = 120, cut: bool = False) -> Self:
        """The layout for what a stream leads to, at most so many columns wide."""
        return cls(width_of(stream, most=most), colour_of(stream), unicode_of(stream), cut)

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

    def shown(self, text: str) -> str:
        """Text as it can be printed here."""
        return printable(text) if self.unicode else printable(text).translate(ASCII)


def text(document: b.Document, layout: Layout | None = None) -> str:
    """The document as text, without spaces at the ends of lines."""
    layout = layout or Layout()
    console = layout.console()
    console.print(Group(*parts(document, layout)), crop=False, no_wrap=None)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().split("\n"))


def picture(document: b.Document, *, title: str, width: int = 80) -> str:
    """What a terminal shows, as SVG, without links to fonts elsewhere."""
    layout = Layout(width=width, colour=True)
    console = layout.console(record=True)
    console.print(Group(*parts(document, layout)))
    svg = console.export_svg(title=title, unique_id="report")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def parts(document: b.Document, layout: Layout) -> list[RenderableType]:
    """The document as what rich prints."""
    found: list[RenderableType] = []
    if document.title:
        title = Text(layout.shown(document.title), style="bold")
        if document.about:
            title.append("  ").append_text(_text(document.about, layout, "dim not bold"))
        found.append(title)
    if document.lead:
        found.append(_text(document.lead, layout, "dim"))
    indent, headed = 0, not found
    for block in document.blocks:
        if isinstance(block, b.Charts) and not (layout.unicode and block.bars):
            continue
        if not headed:
            found.append("")
        headed = isinstance(block, b.Heading)
        indent = INDENT if isinstance(block, b.Heading | b.Charts) else indent
        found += _block(block, layout, indent)
    return found


def _block(block: b.Block, layout: Layout, indent: int) -> Iterator[RenderableType]:
    match block:
        case b.Heading():
            yield _heading(block.text, block.place, layout)
            return
        case b.Verdict(mark, word, role, lines):
            sign = _text(b.Span(f"{mark} {word}", role), layout)
            yield _pairs([(sign, _lines(lines, layout))], least=0)
            return
        case b.Charts():
            yield _heading(block.title, "", layout)
        case b.Paragraph(form="aside"):
            indent = 0
        case b.Derivation():
            indent += PROOF if layout.width >= NARROW else 0
    body = _body(block, layout, indent)
    if isinstance(body, Text) and body.no_wrap and not layout.cut:  # padding would cut it
        yield Text("\n", no_wrap=True, overflow="ignore").join(
            Text(" " * indent).append_text(line) for line in body.split("\n")
        )
    else:
        yield Padding(body, (0, 0, 0, indent)) if indent else body


def _body(block: b.Block, layout: Layout, indent: int, *, nested: bool = False) -> RenderableType:
    match block:
        case b.Paragraph(lines, "numbered") if len(lines) > 1:
            rows = [(f"{n}.", _text(line, layout)) for n, line in enumerate(lines, start=1)]
            return _pairs(rows, gap=1, least=0, style="dim", justify="right")
        case b.Paragraph(lines, form, role):
            return _lines(lines, layout, role, wrap=form != "verbatim")
        case b.Drawing():
            return Group(*(_text(line, layout) for line in block.outline))
        case b.Derivation():
            return _lines(laid_out(block, width=layout.width - indent), layout, wrap=False)
        case b.Charts(bars=series):
            return _pairs([(_text(name, layout), Text(bars(values))) for name, values in series])
        case b.Entries():
            return _entries(block, layout)
        case b.Table(obvious=True):
            return _places(block, layout, layout.width - indent)
        case b.Table():
            return _table(block, layout, layout.width - indent, nested=nested)
    raise AssertionError(block)


def _entries(block: b.Entries, layout: Layout) -> RenderableType:
    rows: list[tuple[Text, RenderableType]] = []
    for entry in block.entries:
        said = [_body(each, layout, INDENT + PROOF, nested=True) for each in entry.body]
        note = [_text(entry.note, layout)] if entry.note else []
        place = [_text(b.Span(entry.place, "soft"), layout)] if entry.place else []
        rows.append((_text(entry.name, layout, "bold"), Group(*note, *said, *place)))
    more = [Text(f"and {block.more:,} more")] if block.more else []
    if block.form == "below":
        return Group(*(Group(name, Padding(said, (0, 0, 0, 2))) for name, said in rows), *more)
    return Group(_pairs(rows), *more)


def _pairs(
    rows: Sequence[tuple[str | Text, RenderableType]],
    *,
    gap: int = 2,
    least: int = 7,
    style: str = "",
    justify: Literal["left", "right"] = "left",
) -> Grid:
    """Paragraphs with a word to their left that says what they are about."""
    grid = Grid.grid(padding=(0, gap, 0, 0))
    grid.add_column(no_wrap=True, style=style, min_width=least, justify=justify)
    grid.add_column(overflow="fold")
    for name, body in rows:
        grid.add_row(name, body)
    return grid


def _table(table: b.Table, layout: Layout, width: int, *, nested: bool) -> RenderableType:
    """A table; its spare columns only where there is room for them."""
    titled = any(table.columns)
    ruled = titled and table.wrap and not nested
    rows = [tuple(_text(cell, layout) for cell in row) for row in table.rows]
    whole = [row for row in rows if len(row) == len(table.columns)]
    widths = [
        max([cells(title) * titled, *(cells(row[n].plain) for row in whole)])
        for n, title in enumerate(table.columns)
    ]
    spare = [table.spare.get(title, 0) for title in table.columns]
    shown = list(range(len(table.columns)))
    gap = 3 if ruled else 2

    def needed() -> int:
        *others, last = (widths[n] for n in shown)
        return sum(others) + gap * len(others) + (last if table.wrap else min(last, LAST_MIN))

    while needed() > width and any(spare[n] for n in shown):
        most = max(spare[n] for n in shown)
        shown = [n for n in shown if spare[n] < most]
    room = width - sum(widths[n] + gap for n in shown[:-1])
    fixed = not table.wrap and room > 0
    overflow: Literal["fold", "ellipsis", "crop"] = "ellipsis" if layout.unicode else "crop"
    grid = Grid(
        box=(SIMPLE_HEAD if layout.unicode else PLAIN_BOX) if ruled else None,
        pad_edge=False,
        padding=(0, 1) if ruled else (0, 2, 0, 0),
        show_edge=False,
        show_header=titled,
        header_style="dim",
    )
    for n in shown:
        grid.add_column(
            layout.shown(table.columns[n]),
            justify="right" if table.columns[n] in table.right else "left",
            no_wrap=not table.wrap,
            overflow="fold" if table.wrap else overflow,
            min_width=widths[n] if fixed and n != shown[-1] else None,
            max_width=room if fixed and n == shown[-1] else None,
        )
    for row in rows:
        if len(row) < len(table.columns):
            row[0].stylize("bold")
            grid.add_row(row[0])
        else:
            grid.add_row(*(row[n] for n in shown))
    return Group(grid, Text(f"and {table.more:,} more")) if table.more else grid


def _places(table: b.Table, layout: Layout, width: int) -> Text:
    """Rows without heads; their last cells, beside one another or, without room, below."""
    rows = [
        (Text("  ").join([_text(cell, layout) for cell in row[:-1]]), _text(row[-1], layout, "dim"))
        for row in table.rows
    ]
    widths = [max(cells(row[n].plain) for row in rows) for n in (0, 1)]
    fits = sum(widths) + 2 <= width
    lines = []
    for row, place in rows:
        gap = " " * (widths[0] - cells(row.plain) + 2) if fits else "\n  "
        lines.append(Text.assemble(row, gap, place) if place else row)
    return Text("\n").join(lines)


def _heading(words: str, place: str, layout: Layout) -> Text:
    """A heading with a line to the right margin, and where it stands in the file."""
    line = layout.shown("─")
    text = Text(f"{line * 2} ", style="dim", no_wrap=True, overflow="ignore")
    text.append(layout.shown(words), style="bold not dim")
    where = f" {layout.shown(place)}" if place else ""
    used = cells(text.plain) + cells(where) + 1
    fits = used + 3 <= layout.width
    fill = layout.width - (used if fits else cells(text.plain) + 1)
    text.append(f" {line * max(fill, 2)}" + (where if fits else ""))
    if where and not fits:
        text.append("\n  " + where.strip())
    return text


def _lines(lines: Iterable[b.Words], layout: Layout, role: str = "", *, wrap: bool = True) -> Text:
    found = [_text(line, layout, TERMINAL.get(role, "")) for line in lines]
    text = Text("\n").join(found)
    if not wrap:
        text.no_wrap, text.overflow = True, "ignore"
        if layout.cut:
            text.overflow = "ellipsis" if layout.unicode else "crop"
    return text


def _text(words: b.Words, layout: Layout, style: str = "") -> Text:
    text = Text(style=style)
    for piece in b.pieces(words):
        shown = "\n" if piece is b.BREAK else layout.shown(piece.text)
        text.append(shown, TERMINAL.get(piece.role))
    return text
