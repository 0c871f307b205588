"""What reports draw with: Unicode where the output can carry it, else ASCII."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Glyphs:
    """One set of drawing characters."""

    line: str
    branch: str
    last: str
    bar: str
    arrow: str
    path: str
    dots: str
    good: str
    bad: str


UNICODE: Final = Glyphs(
    line="─", branch="├─", last="└─", bar="│ ", arrow="─▶", path="→", dots="…", good="✓", bad="✗"
)
ASCII: Final = Glyphs(
    line="-", branch="+-", last="+-", bar="| ", arrow="->", path="->", dots="...", good="+", bad="!"
)
