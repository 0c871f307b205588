"""Names as a sentence has them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

NAMES_MAX: Final = 5
"""So many things are named in a sentence."""


def listed(words: Iterable[str], *, most: int | None = None) -> str:
    """Words as a sentence lists them: all, or the first `most` and how many more there are.

    >>> listed(["a", "b", "c"]), listed([]), listed(["a", "b", "c"], most=1)
    ('a, b and c', '', 'a and 2 more')
    """
    names = list(words)
    if most is not None and len(names) > most:
        names[most:] = [f"{len(names) - most:,} more"]
    *before, last = names or [""]
    return f"{', '.join(before)} and {last}" if before else last


def tupled(attributes: Iterable[str]) -> str:
    """Attributes of which one value each makes a partition.

    >>> tupled({"word", "batch"}), tupled({"id"})
    ('(batch, word)', 'id')
    """
    names = sorted(attributes)
    return names[0] if len(names) == 1 else f"({', '.join(names)})"


def number(count: int, noun: str) -> str:
    """A count with its noun.

    >>> number(1, "stream"), number(100000, "stream")
    ('1 stream', '100,000 streams')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
