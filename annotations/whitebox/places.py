"""Where a character of a query stands in the file that holds the query."""

from __future__ import annotations

from collections.abc import Callable

from annotations.dataflow import Position
from annotations.positions import place_at

Place = Callable[[int], Position | None]
"""Turns an offset in the query's text into a position in the file."""


def placer(query: str, text: str, start: Position) -> Place:
    """Positions in the file for offsets in a query that begins at `start` of the file's `text`.

    The characters of both are laid side by side, so that indentation, folded lines, quotes and
    escapes do not matter; where they differ for good, everything stands at `start`.
    """
    offsets = _aligned(query, text, _index(text, start))

    def place(offset: int) -> Position:
        at = offsets.get(offset)
        if at is None:
            return start
        mark = place_at(text, at)
        return Position(start.file, mark.line + 1, mark.column + 1)

    return place


def _index(text: str, start: Position) -> int:
    lines = text.split("\n")
    if start.line > len(lines):
        return len(text)
    return sum(len(line) + 1 for line in lines[: start.line - 1]) + start.column - 1


def _aligned(query: str, text: str, at: int) -> dict[int, int]:
    """Offset in the query -> offset in the file; empty where the two do not fit."""
    if text[at : at + 1] in ("|", ">"):
        at = text.find("\n", at) + 1
    elif text[at : at + 1] in ('"', "'") and text[at : at + 1] != query[:1]:
        at += 1
    offsets: dict[int, int] = {}
    for offset, letter in enumerate(query):
        if letter.isspace():
            continue
        while at < len(text) and text[at].isspace():
            at += 1
        if at < len(text) and text[at] != letter and text[at] in ("\\", "'"):
            at += 1
        if at >= len(text) or text[at] != letter:
            return {}
        offsets[offset] = at
        at += 1
        if letter == "'" and text[at : at + 1] == "'" and query[offset + 1 : offset + 2] != "'":
            at += 1
    return offsets
