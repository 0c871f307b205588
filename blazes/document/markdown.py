"""A document as Markdown, for pull requests and wikis; graphs as Mermaid drawings in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from blazes.document import blocks as b
from blazes.document import derivation
from blazes.document.diagram import flowchart
from blazes.document.plain import printable

SPECIAL: Final = frozenset(r"\`*_{}[]<>#|~&")
WIDTH: Final = 100
"""Characters of a line of a derivation."""


def page(document: b.Document) -> str:
    """The whole document."""
    parts = [f"# {text(document.title)}"] if document.title else []
    parts += [text(document.lead)] if document.lead else []
    for block in document.blocks:
        parts += _block(block)
    return "\n\n".join(parts) + "\n"


def _block(block: b.Block) -> Iterator[str]:
    match block:
        case b.Heading():
            yield f"## {text(block.text)}"
            if block.place:
                yield code(block.place)
        case b.Verdict(_, word, _, (first, *lines)):
            yield f"**{text(word)}** {text(first)}"
            yield from map(text, lines)
        case b.Paragraph(lines, "list" | "numbered"):
            yield items(map(words, lines))
        case b.Paragraph(lines, "verbatim"):
            yield fenced("\n".join(printable(b.plain(line)) for line in lines), "text")
        case b.Paragraph(lines):
            yield " ".join(map(words, lines))
        case b.Table():
            yield _table(block)
        case b.Entries(entries, "aspects"):
            for entry in entries:
                yield from _aspect(entry)
        case b.Entries(entries):
            yield items(map(_entry, entries))
            if block.more:
                yield f"and {block.more:,} more"
        case b.Derivation():
            yield fenced(derivation.text(block, width=WIDTH), "text")
        case b.Drawing(diagram) if diagram:
            yield fenced(flowchart(diagram).rstrip(), "mermaid")


def _aspect(aspect: b.Entry) -> Iterator[str]:
    """Its name goes before a sentence, and above anything else."""
    parts = [part for block in aspect.body for part in _block(block)]
    if not aspect.obvious:
        match aspect.body[0]:
            case b.Paragraph(form="sentences"):
                parts[0] = f"**{words(aspect.name)}.** {parts[0]}"
            case _:
                parts.insert(0, f"**{words(aspect.name)}:**")
    yield from parts


def _entry(entry: b.Entry) -> str:
    said = [words(x) for block in entry.body if isinstance(block, b.Paragraph) for x in block.lines]
    ended = all(line.endswith(".") for line in said)
    note = f" {text(entry.note.text)}" if entry.note else ""
    place = f" ({code(entry.place)})" if entry.place else ""
    return f"{words(entry.name)}{note}: {(' ' if ended else '; ').join(said)}{place}"


def _table(block: b.Table) -> str:
    wide = len(block.columns)
    rows = [
        [words(cell) for cell in row]
        if len(row) == wide
        else [f"**{words(row[0])}**", *[""] * (wide - 1)]
        for row in block.rows
    ]
    right = [title in block.right for title in block.columns]
    found = table([text(title) for title in block.columns], *rows, right=right)
    return f"{found}\n\nand {block.more:,} more" if block.more else found


def words(given: b.Words) -> str:
    """Words as Markdown."""
    return "".join(map(_piece, b.pieces(given)))


def _piece(piece: b.Span) -> str:
    if piece is b.TO or piece is b.BREAK:
        return "to" if piece is b.TO else " "
    return {"code": code, "prose": prose}.get(piece.role, text)(piece.text)


def text(plain: str) -> str:
    r"""Plain text in which nothing is markup.

    >>> text("OW[*]")
    'OW\\[\\*\\]'
    """
    return "".join(
        f"\\{character}" if character in SPECIAL else character for character in printable(plain)
    )


def prose(sentence: str) -> str:
    r"""Our own words as Markdown: code in backticks stays code, line ends become spaces.

    >>> prose("`OW` or\nOW[*]")
    '`OW` or OW\\[\\*\\]'
    """
    parts = " ".join(sentence.split()).split("`")
    return "`".join(part if number % 2 else text(part) for number, part in enumerate(parts))


def code(plain: str) -> str:
    """A code span, also of text with backticks and bars.

    >>> code("a`b")
    '`` a`b ``'
    """
    shown = printable(plain).replace("|", "\\|")
    if "`" not in shown:
        return f"`{shown}`"
    ticks = "`" * (max(len(run) for run in _runs(shown)) + 1)
    return f"{ticks} {shown} {ticks}"


def _runs(shown: str) -> list[str]:
    return "".join(character if character == "`" else " " for character in shown).split()


def items(lines: Iterable[str]) -> str:
    """A list; its items are Markdown already."""
    return "\n".join(f"- {line}" for line in lines)


def table(*rows: Sequence[str], right: Sequence[bool] = ()) -> str:
    """A table; the first row is its head. Cells are Markdown already."""
    head, *body = rows
    lines = [head, ["--:" if each else "---" for each in right or [False] * len(head)], *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def fenced(block: str, language: str) -> str:
    """A code block, with a fence longer than any in it."""
    longest = max((len(run) for run in _runs(block)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{block}\n{fence}"
