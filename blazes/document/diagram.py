"""A graph of components and streams as data: nodes and edges, which others lay out or write.

`graph` draws it as SVG; `mermaid` and `dot` write it for other programs to draw.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Node:
    """A component, an external source or sink, or a coordination point."""

    id: str
    kind: str
    """`component`, `source`, `sink`, `order` or `seal`."""
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream, or the last piece of it behind a coordination point (then without lines)."""

    tail: str
    head: str
    lines: tuple[str, ...]
    role: str
    """Of the palette: the severity of its label."""
    replicated: bool


@dataclass(frozen=True, slots=True)
class Diagram:
    """What is drawn, in a stable order."""

    name: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


ROLES: Final = {
    "component": ("paper", "ink"),
    "source": ("shade", "axis"),
    "sink": ("shade", "axis"),
    "order": ("order-ground", "diverge"),
    "seal": ("seal-ground", "seal"),
}
"""Kind of node -> the roles of its ground and of its border."""
SEVERITIES: Final = ("seal", "async", "run", "inst", "diverge")
"""Roles of edges, in the order of severity."""
