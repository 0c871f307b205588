"""A diagram as a DOT digraph, for Graphviz."""

from __future__ import annotations

from blazes.document.diagram import ROLES, Diagram, Node
from blazes.document.palette import PALETTE
from blazes.document.plain import printable


def digraph(diagram: Diagram) -> str:
    """The digraph, from left to right; thick lines are replicated streams."""
    lines = [
        f"digraph {quoted((diagram.name,))} {{",
        "  rankdir=LR",
        '  node [fontname="Helvetica" fontsize=11]',
        '  edge [fontname="Helvetica" fontsize=10]',
    ]
    lines += [f"  {node.id} [label={quoted(node.lines)} {_style(node)}]" for node in diagram.nodes]
    for edge in diagram.edges:
        colour = PALETTE[edge.role][0]
        style = f'color="{colour}" fontcolor="{colour}"' + (" penwidth=2" * edge.replicated)
        text = f"label={quoted(edge.lines)} " if edge.lines else ""
        lines.append(f"  {edge.tail} -> {edge.head} [{text}{style}]")
    return "\n".join([*lines, "}"]) + "\n"


def _style(node: Node) -> str:
    shape = "hexagon" if node.kind in ("order", "seal") else "box"
    look = "rounded,filled" if node.kind in ("source", "sink") else "filled"
    ground, border = (PALETTE[role][0] for role in ROLES[node.kind])
    return f'shape={shape} style="{look}" fillcolor="{ground}" color="{border}"'


def quoted(lines: tuple[str, ...]) -> str:
    r"""Lines as a double-quoted string in which nothing is an escape or an entity.

    >>> print(quoted(('say "hi" & \\N',)))
    "say \"hi\" &amp; \\N"
    """
    escaped = [
        printable(line).replace("\\", "\\\\").replace('"', '\\"').replace("&", "&amp;")
        for line in lines
    ]
    return '"' + "\\n".join(escaped) + '"'
