"""The steps that a world takes."""

from __future__ import annotations

from typing import NamedTuple

from flux_runtime.protocol.vocabulary import Node


class Step(NamedTuple):
    """One possible next step: what, where, and from where."""

    kind: str
    at: Node | int
    peer: Node | int | None = None

    def __str__(self) -> str:
        source = f" from {self.peer}" if self.peer is not None else ""
        where = f"site {self.at}" if isinstance(self.at, int) else self.at
        return f"{self.kind} {where}{source}"


FAULTS = (
    "crash",
    "kill",
    "move",
    "pause",
    "suspect",
    "close",
    "squeeze",
    "evict",
    "fill disk",
    "join",
)
"""Kinds of steps that `steps` never lists: whoever drives the world decides on them."""
