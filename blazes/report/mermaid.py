"""A Mermaid flowchart of a plan, for Markdown on code hosts."""

from __future__ import annotations

from typing import Final

from blazes.coordination import Plan
from blazes.report.diagram import COLOURS, Node, diagram_of
from blazes.report.plain import printable

SHAPES: Final = {
    "component": ("[", "]"),
    "source": ("([", "])"),
    "sink": ("([", "])"),
    "order": ("{{", "}}"),
    "seal": ("{{", "}}"),
}
CLASSES: Final = {
    "order": "fill:#fff0f0,stroke:#c92a2a,color:#000",
    "seal": "fill:#e3fafc,stroke:#0b7285,color:#000",
    "source": "fill:#f8f9fa,stroke:#868e96,color:#000",
    "sink": "fill:#f8f9fa,stroke:#868e96,color:#000",
    "component": "fill:#fff,stroke:#343a40,color:#000",
}


def diagram(plan: Plan) -> str:
    """The flowchart, from left to right; thick lines are replicated streams."""
    drawing = diagram_of(plan)
    lines = ["flowchart LR"]
    lines += [f"  {_node(node)}" for node in drawing.nodes]
    for edge in drawing.edges:
        arrow = "==>" if edge.replicated else "-->"
        text = f'|"{quoted(edge.lines)}"|' if edge.lines else ""
        lines.append(f"  {edge.tail} {arrow}{text} {edge.head}")
    for label, colour in COLOURS.items():
        numbers = [str(i) for i, edge in enumerate(drawing.edges) if edge.label is label]
        if numbers:
            lines.append(f"  linkStyle {','.join(numbers)} stroke:{colour}")
    kinds = {node.kind for node in drawing.nodes}
    lines += [f"  classDef {kind} {style}" for kind, style in CLASSES.items() if kind in kinds]
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
