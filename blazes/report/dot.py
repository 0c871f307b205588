"""A DOT digraph of a plan, for Graphviz."""

from __future__ import annotations

from typing import Final

from blazes.coordination import Plan
from blazes.report.diagram import COLOURS, diagram_of
from blazes.report.plain import printable

STYLES: Final = {
    "component": 'shape=box style="filled" fillcolor="white"',
    "source": 'shape=box style="rounded,filled" fillcolor="#f8f9fa" color="#868e96"',
    "sink": 'shape=box style="rounded,filled" fillcolor="#f8f9fa" color="#868e96"',
    "order": 'shape=hexagon style="filled" fillcolor="#fff0f0" color="#c92a2a"',
    "seal": 'shape=hexagon style="filled" fillcolor="#e3fafc" color="#0b7285"',
}


def digraph(plan: Plan) -> str:
    """The digraph, from left to right; thick lines are replicated streams."""
    drawing = diagram_of(plan)
    lines = [
        f"digraph {quoted((drawing.name,))} {{",
        "  rankdir=LR",
        '  node [fontname="Helvetica" fontsize=11]',
        '  edge [fontname="Helvetica" fontsize=10]',
    ]
    lines += [
        f"  {node.id} [label={quoted(node.lines)} {STYLES[node.kind]}]" for node in drawing.nodes
    ]
    for edge in drawing.edges:
        colour = COLOURS[edge.label]
        style = f'color="{colour}" fontcolor="{colour}"' + (" penwidth=2" * edge.replicated)
        text = f"label={quoted(edge.lines)} " if edge.lines else ""
        lines.append(f"  {edge.tail} -> {edge.head} [{text}{style}]")
    return "\n".join([*lines, "}"]) + "\n"


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
