"""Text put into a dataflow file, which stays as it is otherwise.

Comments, order, quotes and anchors stay, because nothing is written anew: lines, and parts of
lines, are inserted where the tree of the file says that something stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from annotations.diagnostics import Findings, Mark
from annotations.positions import Map, Node, read_tree


class CannotWrite(Exception):  # noqa: N818
    """Something cannot be put into the file; the message says why, `remedy` what to do."""

    def __init__(
        self, message: str, *, remedy: str = "copy what `blazes derive` prints into the file"
    ) -> None:
        self.remedy = remedy
        super().__init__(message)


class Insertion(NamedTuple):
    """A text, and where it goes; the offset counts characters."""

    offset: int
    text: str


def tree_of(body: str, file: str) -> Node | None:
    """The file as a tree; it has been read before, so that there are no mistakes to find."""
    return read_tree(body, Findings(file, body))


def inserted(body: str, insertions: Iterable[Insertion]) -> str:
    """The text with all insertions in it, each at its offset in the text without them."""
    for each in sorted(insertions, reverse=True):
        body = body[: each.offset] + each.text + body[each.offset :]
    return body


def below(node: Node | None, key: str) -> Node | None:
    """The value of a key of a mapping; None where there is none."""
    return node.entries[key][1] if isinstance(node, Map) and key in node.entries else None


def newline_of(text: str) -> str:
    """How lines end in the text."""
    return "\r\n" if "\r\n" in text else "\n"


def first_key(text: str, mapping: Map, name: str) -> tuple[int, str]:
    """The offset of the first key that stands in the mapping itself, and the text before it."""
    starts = [key.mark for key, _ in mapping.entries.values()]
    after = [mark for mark in starts if _order(mark) >= _order(mapping.mark)]
    if not after:
        raise CannotWrite(f"the keys of {name} come from elsewhere in the file")
    mark = min(after, key=_order)
    return offset_of(text, mark), text.split("\n")[mark.line][: mark.column]


def offset_of(text: str, mark: Mark) -> int:
    """Where a mark is in the text."""
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: mark.line]) + mark.column


def _order(mark: Mark) -> tuple[int, int]:
    return mark.line, mark.column
