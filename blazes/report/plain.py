"""Text that is safe to print: no control characters from names, no colour where none is wanted."""

from __future__ import annotations

import os
import shutil
import unicodedata
from typing import TextIO


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
