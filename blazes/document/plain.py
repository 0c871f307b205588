"""Text that is safe to print: no control characters from names, no colour where none is wanted."""

from __future__ import annotations

import itertools
import os
import shutil
import unicodedata
from collections.abc import Sequence
from typing import Final, TextIO

ENTITIES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
)
ASCII: Final = str.maketrans(
    {"─": "-", "├": "+", "└": "+", "│": "|", "▶": ">", "→": "->", "…": "...", "✓": "+", "✗": "!"}
    | {"█": "#", "░": "."}
)
"""What documents draw with -> what stands for it on a terminal without the characters."""
BARS: Final = "▁▂▃▄▅▆▇█"


def printable(text: str, *, keep: str = "") -> str:
    r"""The text with control characters escaped, so that no name can drive a terminal.

    >>> printable("a\x1b[31m")
    'a\\x1b[31m'
    """
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() or character in keep else escaped(character)
        for character in text
    )


def escaped(character: str) -> str:
    r"""A character as Python writes it.

    >>> escaped("\n")
    '\\n'
    """
    return character.encode("unicode_escape").decode("ascii")


def cells(text: str) -> int:
    """How many cells of a terminal the text takes; wide characters take two.

    >>> cells("計数 a")
    6
    """
    if text.isascii():
        return len(text)
    return sum(
        0
        if unicodedata.combining(character)
        else 2
        if unicodedata.east_asian_width(character) in "WF"
        else 1
        for character in text
    )


def cut(text: str, width: int) -> str:
    """The text, not wider than `width` cells.

    >>> cut("counting", 6), cut("counts", 6)
    ('count…', 'counts')
    """
    if cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[:-1]
    return text + "…"


def colour_of(stream: TextIO) -> bool:
    """True where colours are wanted: a terminal, and no NO_COLOR in the environment."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def unicode_of(stream: TextIO) -> bool:
    """True where the stream can carry the characters that reports draw with."""
    try:
        "─├▶×≠…".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def safe_write(stream: TextIO, text: str) -> None:
    """Write text; what the stream's encoding lacks is escaped, not refused."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, errors="backslashreplace").decode(encoding))


def width_of(stream: TextIO, *, most: int = 120) -> int:
    """Columns to lay out for: the terminal's (at most `most`), or COLUMNS, else 80."""
    if stream.isatty():
        return min(shutil.get_terminal_size().columns, most)
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdigit() and int(columns) > 0 else 80


def escape(text: str) -> str:
    """Printable text in which nothing is markup; right in elements and in quoted attributes.

    >>> escape('<a "b">')
    '&lt;a &quot;b&quot;&gt;'
    """
    return printable(text).translate(ENTITIES)


def bars(values: Sequence[float], number: int = 40) -> str:
    """A series as small bars; of a long one, the mean of each part.

    >>> bars([0, 1, 2, 7])
    '▁▂▃█'
    """
    if len(values) > number:
        edges = [len(values) * at // number for at in range(number + 1)]
        parts = [values[a:b] for a, b in itertools.pairwise(edges)]
        values = [sum(part) / len(part) for part in parts]
    most = max(values, default=0)
    if most <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)
