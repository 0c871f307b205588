"""Comparing what a job committed with what it should have: exactly, duplicates included."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """What two multisets of rows do not have in common."""

    expected: int
    """How many rows there should be."""
    missing: tuple[Hashable, ...]
    unexpected: tuple[Hashable, ...]

    @property
    def equal(self) -> bool:
        """True where every row is there, as often as it should be, and no other."""
        return not self.missing and not self.unexpected

    def __str__(self) -> str:
        if self.equal:
            return f"exactly the expected {self.expected:,} rows"
        parts = []
        for name, rows in (("missing", self.missing), ("unexpected", self.unexpected)):
            if rows:
                shown = ", ".join(map(str, rows[:2])) + (", ..." if len(rows) > 2 else "")
                parts.append(f"{len(rows):,} {name}: {shown}")
        return f"not the expected {self.expected:,} rows; " + "; ".join(parts)


def difference(expected: Iterable[Hashable], got: Iterable[Hashable]) -> Difference:
    """How `got` differs from `expected`, as multisets.

    >>> print(difference([("a", 1), ("b", 2)], [("a", 1), ("b", 2), ("b", 2)]))
    not the expected 2 rows; 1 unexpected: ('b', 2)
    """
    should, did = Counter(expected), Counter(got)
    return Difference(
        expected=should.total(),
        missing=tuple(sorted((should - did).elements(), key=repr)),
        unexpected=tuple(sorted((did - should).elements(), key=repr)),
    )
