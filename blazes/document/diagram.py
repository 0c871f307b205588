"""A graph of components and streams as data, and as text for Mermaid and for Graphviz.

`blazes.document.graph` lays it out as SVG.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from blazes.document.palette import PALETTE
from blazes.document.plain import printable


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
MERMAID_SHAPES: Final = {
    "component": ("[", "]"),
    "source": ("([", "])"),
    "sink": ("([", "])"),
    "order": ("{{", "}}"),
    "seal": ("{{", "}}"),
}


def flowchart(diagram: Diagram) -> str:
    """The Mermaid flowchart, from left to right; thick lines are replicated streams."""
    lines = ["flowchart LR"]
    lines += [f"  {_mermaid_node(node)}" for node in diagram.nodes]
    for edge in diagram.edges:
        arrow = "==>" if edge.replicated else "-->"
        text = f'|"{_in_mermaid(edge.lines)}"|' if edge.lines else ""
        lines.append(f"  {edge.tail} {arrow}{text} {edge.head}")
    for role in SEVERITIES:
        numbers = [str(i) for i, edge in enumerate(diagram.edges) if edge.role == role]
        if numbers:
            lines.append(f"  linkStyle {','.join(numbers)} stroke:{PALETTE[role][0]}")
    kinds = {node.kind for node in diagram.nodes}
    for kind in ("order", "seal", "source", "sink", "component"):
        if kind in kinds:
            ground, border = (PALETTE[role][0] for role in ROLES[kind])
            lines.append(f"  classDef {kind} fill:{ground},stroke:{border},color:#000")
    return "\n".join(lines) + "\n"


def _mermaid_node(node: Node) -> str:
    opening, closing = MERMAID_SHAPES[node.kind]
    return f'{node.id}{opening}"{_in_mermaid(node.lines)}"{closing}:::{node.kind}'


def _in_mermaid(lines: tuple[str, ...]) -> str:
    """Lines as the inside of a quoted label: everything but words and spaces as a character code.

    >>> _in_mermaid(('say "hi"', "OR[id]"))
    'say #34;hi#34;<br>OR#91;id#93;'
    """
    return "<br>".join("".join(map(_character, printable(line))) for line in lines)


def _character(character: str) -> str:
    return character if character.isalnum() or character in " ,_" else f"#{ord(character)};"


def digraph(diagram: Diagram) -> str:
    """The DOT digraph, from left to right; thick lines are replicated streams."""
    lines = [
        f"digraph {_in_dot((diagram.name,))} {{",
        "  rankdir=LR",
        '  node [fontname="Helvetica" fontsize=11]',
        '  edge [fontname="Helvetica" fontsize=10]',
    ]
    lines += [
        f"  {node.id} [label={_in_dot(node.lines)} {_dot_style(node)}]" for node in diagram.nodes
    ]
    for edge in diagram.edges:
        colour = PALETTE[edge.role][0]
        style = f'color="{colour}" fontcolor="{colour}"' + (" penwidth=2" * edge.replicated)
        text = f"label={_in_dot(edge.lines)} " if edge.lines else ""
        lines.append(f"  {edge.tail} -> {edge.head} [{text}{style}]")
    return "\n".join([*lines, "}"]) + "\n"


def _dot_style(node: Node) -> str:
    shape = "hexagon" if node.kind in ("order", "seal") else "box"
    look = "rounded,filled" if node.kind in ("source", "sink") else "filled"
    ground, border = (PALETTE[role][0] for role in ROLES[node.kind])
    return f'shape={shape} style="{look}" fillcolor="{ground}" color="{border}"'


def _in_dot(lines: tuple[str, ...]) -> str:
    r"""Lines as a double-quoted string in which nothing is an escape or an entity.

    >>> print(_in_dot(('say "hi" & \\N',)))
    "say \"hi\" &amp; \\N"
    """
    escaped = [
        printable(line).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
        for line in lines
    ]
    return '"' + "\\n".join(escaped) + '"'
