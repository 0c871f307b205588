"""The blocks of a document: plain values that every renderer lays out in its own way.

Texts are data, never markup: a renderer escapes them. Arrows, bars and marks are written in
Unicode; where a terminal lacks the characters they are replaced.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from blazes.document.charts import Chart
    from blazes.document.diagram import Diagram
    from blazes.document.placement import Placement


@dataclass(frozen=True, eq=False, repr=False)
class Span:
    """A piece of text with a role.

    The role is a colour of the palette; or `code`, a name or an expression of the user's file; or
    `prose`, a sentence of our own with code between backticks.
    """

    text: str
    role: str = ""
    to: str = ""
    """The address of what it names: a page leads there."""


Words: TypeAlias = str | Span | tuple[str | Span, ...]
TO: Final = Span("→")
"""Between the ends of a path."""
BREAK: Final = Span("\n")
"""Ends a line within a paragraph or a cell."""


def code(text: object) -> Span:
    """A name or an expression of the user's file."""
    return Span(str(text), "code")


def pieces(words: Words) -> tuple[Span, ...]:
    """The pieces that words consist of."""
    parts = words if isinstance(words, tuple) else (words,)
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def plain(words: Words) -> str:
    """The words without their roles."""
    return "".join(piece.text for piece in pieces(words))


@dataclass(frozen=True, eq=False, repr=False)
class Heading:
    """Begins a section; a page with many `folded` ones shows each only when it is opened."""

    text: str
    place: str = ""
    """Where in a file the thing stands."""
    folded: bool = False


@dataclass(frozen=True, eq=False, repr=False)
class Verdict:
    """The answer in a word or two, with its mark, and what it means."""

    mark: str
    text: str
    role: str
    lines: tuple[str, ...]


Form: TypeAlias = Literal["sentences", "aside", "list", "numbered", "verbatim"]


@dataclass(frozen=True, eq=False, repr=False)
class Paragraph:
    """Text: sentences, each a line of a terminal; items; or lines that keep their spaces.

    An `aside` is about the document itself: how it was made, how to see more.
    """

    lines: tuple[Words, ...]
    form: Form = "sentences"
    role: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Table:
    """A table; a row with one cell only is the heading of those below it."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Words, ...], ...]
    right: Collection[str] = ()
    """Columns of numbers, whose last digits stand below one another."""
    spare: Mapping[str, int] = field(default_factory=dict)
    """Column -> where there is no room for all, the highest numbers are left out first."""
    wrap: bool = True
    """Cells may take several lines on a terminal; else the last column is cut."""
    obvious: bool = False
    """What the columns hold is seen without heads; the last one is a place."""
    more: int = 0
    """Rows that are left out."""


@dataclass(frozen=True, eq=False, repr=False)
class Entry:
    """A name, and what is said about it."""

    name: Words
    body: tuple[Block, ...]
    note: Span | None = None
    """Stands beside the name."""
    place: str = ""
    """Where in a file the thing stands."""
    obvious: bool = False
    """The name says nothing new where it does not stand in a column of its own."""


@dataclass(frozen=True, eq=False, repr=False)
class Entries:
    """Names with what is said about them.

    Either things, `beside` what is said or, where names are long, with it `below`; or the `aspects`
    of the one thing that a section is about.
    """

    entries: tuple[Entry, ...]
    form: Literal["beside", "below", "aspects"] = "beside"
    more: int = 0
    """Entries that are left out."""


@dataclass(frozen=True, eq=False, repr=False)
class Derivation:
    """Premises over their conclusion; premises are labels and annotations, or derivations again."""

    premises: tuple[Span | Derivation, ...]
    by: str
    """Stands beside the line: the rule."""
    conclusion: Span
    more: int = 0
    """Premises that are left out."""


@dataclass(frozen=True, eq=False, repr=False)
class Drawing:
    """A graph, and the same as lines of text for where nothing can be drawn."""

    diagram: Diagram | None
    outline: tuple[Words, ...]


@dataclass(frozen=True, eq=False, repr=False)
class Charts:
    """Charts, one below the other, under a title."""

    title: str
    panels: tuple[Chart | Placement, ...] = ()
    bars: tuple[tuple[str, tuple[float, ...]], ...] = ()
    """(name, values) for lines of small bars, where there is no room for pictures."""


Block: TypeAlias = Heading | Verdict | Paragraph | Table | Entries | Derivation | Drawing | Charts


@dataclass(frozen=True, eq=False, repr=False)
class Document:
    """A whole document; without a title nothing is said above its blocks."""

    title: str
    blocks: tuple[Block, ...]
    about: Words = ""
    """Beside the title: which file, how it was judged."""
    lead: str = ""
    """A sentence below the title."""


def paragraph(*lines: Words, form: Form = "sentences", role: str = "") -> Paragraph:
    """A paragraph of these lines."""
    return Paragraph(lines, form, role)


def aspects(*pairs: tuple[str, Sequence[Block]]) -> Entries:
    """The aspects of the thing that a section is about."""
    return Entries(tuple(Entry(name, tuple(body)) for name, body in pairs), "aspects")


def section(title: str, blocks: Iterable[Block]) -> list[Block]:
    """A heading with what stands under it; nothing where nothing would."""
    body = list(blocks)
    return [Heading(title), *body] if body else []
