"""Text put into a dataflow file, which stays as it is otherwise.

Comments, order, quotes and anchors stay, because nothing is written anew: lines, and parts of
lines, are inserted where the tree of the file says that something stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from annotations.dataflow import Dataflow
from annotations.diagnostics import BadInput, Findings, Mark
from annotations.file import loads
from annotations.positions import List, Map, Node, read_tree

if TYPE_CHECKING:
    from annotations.whitebox.sandbox import Limits

_OPEN: Final = re.compile(r"\[\s*")


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


def body_of(file: Path) -> tuple[str, str]:
    """The byte order mark that a file begins with, if any, and its text."""
    text = file.read_bytes().decode("utf-8")
    body = text.removeprefix("\ufeff")
    return text[: len(text) - len(body)], body


def read_again(
    body: str, file: Path | None, variants: Mapping[str, str], execute: Limits | None
) -> Dataflow:
    """The dataflow that the changed text says.

    Raises:
        CannotWrite: it says none.
    """
    try:
        written, _ = loads(body, file=str(file), variants=variants, execute=execute)
    except BadInput as bad:
        raise CannotWrite(f"the file would not be read any more: {bad.diagnostics[0]}") from None
    return written


def into_list(body: str, there: List, items: Sequence[str]) -> Insertion | None:
    """Items before those of a list; None where it is written so that none can be put in."""
    opened = _OPEN.match(body, offset_of(body, there.mark))
    if opened is not None:
        return Insertion(opened.end(), ", ".join(items) + (", " if there.items else ""))
    if not there.items:
        return None
    item = offset_of(body, there.items[0].mark)
    before = body[body.rfind("\n", 0, item) + 1 : item]
    if before.strip() != "-":
        return None
    lines = "".join(f"{before}{text}{newline_of(body)}" for text in items)
    return Insertion(item - len(before), lines)


def tree_of(body: str, file: str) -> Node | None:
    """The file as a tree; it has been read before, so that there are no mistakes to find."""
    return read_tree(body, Findings(file, body))


def inserted(body: str, insertions: Iterable[Insertion]) -> str:
    """The text with all insertions in it, each at its offset in the text without them."""
    for insertion in sorted(insertions, reverse=True):
        body = body[: insertion.offset] + insertion.text + body[insertion.offset :]
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
