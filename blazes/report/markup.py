"""Text inside HTML and SVG."""

from __future__ import annotations

from typing import Final

ENTITIES: Final = str.maketrans(
    {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
)


def escape(text: str) -> str:
    """The text, in which nothing is markup; right in elements and in quoted attributes.

    >>> escape('<a "b">')
    '&lt;a &quot;b&quot;&gt;'
    """
    return text.translate(ENTITIES)
