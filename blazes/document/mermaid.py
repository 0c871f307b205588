"""A diagram as a Mermaid flowchart, for Markdown on code hosts."""

from __future__ import annotations

from typing import Final

from blazes.document.diagram import ROLES, SEVERITIES, Diagram, Node
from blazes.document.palette import PALETTE
from blazes.document.plain import printable

SHAPES: Final = {
    "component": ("[", "]"),
    "source": ("([", "])"),
    "sink": ("([", "])"),
    "order": ("{{", "}}"),
    "seal": ("{{", "}}"),
}


def flowchart(diagram: Diagram) -> str:
    """The flowchart, from left to right; thick lines are replicated streams."""
    lines = ["flowchart LR"]
    lines += [f"  {_node(node)}" for node in diagram.nodes]
    for edge in diagram.edges:
        arrow = "==>" if edge.replicated else "-->"
        text = f'|"{quoted(edge.lines)}"|' if edge.lines else ""
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


def _node(node: Node) -> str:
    opening, closing = SHAPES[node.kind]
    return f'{node.id}{opening}"{quoted(node.lines)}"{closing}:::{node.kind}'


def quoted(lines: tuple[str, ...]) -> str:
    """Lines as the inside of a quoted label: everything but words and spaces as a character code.

    >>> quoted(('say "hi"', "OR[id]"))
    'say #34;hi#34;<br>OR#91;id#93;'
    """
    return "<br>".join("".join(map(_character, printable(line))) for line in lines)


def _character(character: str) -> str:
    return character if character.isalnum() or character in " ,_" else f"#{ord(character)};"
