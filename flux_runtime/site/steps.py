"""Parts of the tables of events and instructions of a state machine."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, fields

Link = Hashable
"""A connection, whatever it is made of: a state compares links and hands them back."""


@dataclass(frozen=True, slots=True)
class Step:
    """An event or an instruction."""


def table(events: tuple[type[Step], ...], instructions: tuple[type[Step], ...]) -> Iterator[str]:
    """Both tables as lines of Markdown."""
    for head, kinds in (("event", events), ("instruction", instructions)):
        yield f"| {head} | fields | what it is |"
        yield "|---|---|---|"
        for kind in kinds:
            names = ", ".join(f"`{field.name}`" for field in fields(kind))
            (summary,) = (kind.__doc__ or "").splitlines()
            yield f"| `{kind.__name__}` | {names} | {summary} |"
        yield ""
