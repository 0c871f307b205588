"""A drawing as SVG, laid out in layers from left to right (Sugiyama's method, in small).

Every edge gets a node of its own for its label, so that labels take part in the layout and do not
cover anything. Edges that close a cycle are laid out reversed. Sizes are in pixels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from annotations.vocabulary import Label
from blazes.report.diagram import Diagram, Edge
from blazes.report.markup import escape
from blazes.report.page import label_class
from blazes.report.plain import cells, printable

CHARACTER: Final = 6.7
"""Width of a character of the 11 px monospaced font."""
LINE: Final = 15.0
MARGIN: Final = 12.0
GAP_X: Final = 26.0
GAP_Y: Final = 14.0
SWEEPS: Final = 6


@dataclass(slots=True)
class Box:
    """A node in the layout: something drawn, the label of an edge, or a bend of a long edge."""

    id: str
    lines: tuple[str, ...] = ()
    kind: str = "bend"
    rank: int = 0
    x: float = 0.0
    y: float = 0.0
    loops: list[Edge] = field(default_factory=list)
    before: list[Box] = field(default_factory=list)
    after: list[Box] = field(default_factory=list)

    @property
    def width(self) -> float:
        """Room for the longest line."""
        longest = max(map(cells, self.lines), default=0)
        return longest * CHARACTER + (0 if self.kind == "bend" else 20)

    @property
    def height(self) -> float:
        """Room for all lines."""
        return len(self.lines) * LINE + (4 if self.kind == "bend" else 12)

    @property
    def above(self) -> float:
        """Room for the loops over it."""
        return sum(16 + len(edge.lines) * LINE for edge in self.loops)


@dataclass(frozen=True, slots=True)
class Route:
    """An edge and the boxes that it leads through, from tail to head."""

    edge: Edge
    boxes: tuple[Box, ...]
    label: Box


def svg(diagram: Diagram) -> str:
    """The drawing as an `<svg>` element without links to anywhere."""
    boxes = {
        node.id: Box(node.id, tuple(map(printable, node.lines)), node.kind)
        for node in diagram.nodes
    }
    routes = _routes(boxes, diagram.edges)
    every = {id(box): box for route in routes for box in route.boxes}
    layers = _layers([*boxes.values(), *(b for b in every.values() if b.kind == "bend")])
    for sweep in range(SWEEPS):
        _order(layers, forward=sweep % 2 == 0)
    _place(layers)
    width = max((box.x + box.width / 2 for layer in layers for box in layer), default=0) + MARGIN
    height = max((box.y + box.height / 2 for layer in layers for box in layer), default=0) + MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escape(printable(diagram.name))}" font-family="monospace" font-size="11">',
        *map(_marker, Label),
        *(_edge(route) for route in routes),
        *(part for box in boxes.values() for part in (_box(box), *_loops(box))),
        "</svg>",
    ]
    return "\n".join(parts)


def _routes(boxes: Mapping[str, Box], edges: Sequence[Edge]) -> list[Route]:
    """Rank the boxes and give every edge the boxes of its label and its bends."""
    straight = [edge for edge in edges if edge.tail != edge.head]
    for edge in edges:
        if edge.tail == edge.head:
            boxes[edge.tail].loops.append(edge)
    turned = _closing(boxes, straight)
    ends = [(e.head, e.tail) if i in turned else (e.tail, e.head) for i, e in enumerate(straight)]
    _rank(boxes, ends)
    routes = []
    for index, (edge, (left, right)) in enumerate(zip(straight, ends, strict=True)):
        start, end = boxes[left], boxes[right]
        middle = [Box(f"e{index}.{rank}", rank=rank) for rank in range(start.rank + 1, end.rank)]
        label = middle[-1] if index not in turned else middle[0]
        label.lines = tuple(map(printable, edge.lines))
        chain = [start, *middle, end]
        for one, next_one in pairwise(chain):
            one.after.append(next_one)
            next_one.before.append(one)
        path = tuple(reversed(chain)) if index in turned else tuple(chain)
        routes.append(Route(edge, path, label))
    return routes


def _closing(boxes: Mapping[str, Box], edges: Sequence[Edge]) -> set[int]:
    """The edges that lead back to a box on the depth-first path to them: they close a cycle."""
    leaving: dict[str, list[tuple[int, str]]] = {name: [] for name in boxes}
    for index, edge in enumerate(edges):
        leaving[edge.tail].append((index, edge.head))
    state: dict[str, int] = {}
    closing: set[int] = set()
    for root in boxes:
        if root in state:
            continue
        state[root] = 1
        stack = [(root, iter(leaving[root]))]
        while stack:
            name, rest = stack[-1]
            for index, head in rest:
                if state.get(head) == 1:
                    closing.add(index)
                elif head not in state:
                    state[head] = 1
                    stack.append((head, iter(leaving[head])))
                    break
            else:
                state[name] = 2
                stack.pop()
    return closing


def _rank(boxes: Mapping[str, Box], ends: Sequence[tuple[str, str]]) -> None:
    """Longest path from the left, two ranks to a step; then sources move next to what they feed."""
    waiting = dict.fromkeys(boxes, 0)
    leaving: dict[str, list[str]] = {name: [] for name in boxes}
    for left, right in ends:
        leaving[left].append(right)
        waiting[right] += 1
    entered = {right for _, right in ends}
    ready = [name for name, count in waiting.items() if not count]
    while ready:
        name = ready.pop()
        for right in leaving[name]:
            boxes[right].rank = max(boxes[right].rank, boxes[name].rank + 2)
            waiting[right] -= 1
            if not waiting[right]:
                ready.append(right)
    for name, box in boxes.items():
        if name not in entered and leaving[name]:
            box.rank = min(boxes[right].rank for right in leaving[name]) - 2


def _layers(boxes: Sequence[Box]) -> list[list[Box]]:
    layers: list[list[Box]] = [[] for _ in range(max((box.rank for box in boxes), default=0) + 1)]
    for box in boxes:
        layers[box.rank].append(box)
    return [layer for layer in layers if layer]


def _order(layers: Sequence[list[Box]], *, forward: bool) -> None:
    """Sort each layer by the mean place of its neighbours in the layer before (or after)."""
    for layer, fixed in _pairs(layers, forward):
        place = {id(box): index for index, box in enumerate(fixed)}
        mean: dict[int, float] = {}
        for index, box in enumerate(layer):
            near = [place[id(b)] for b in (box.before if forward else box.after) if id(b) in place]
            mean[id(box)] = sum(near) / len(near) if near else float(index)
        layer.sort(key=lambda box: mean[id(box)])


def _pairs(layers: Sequence[list[Box]], forward: bool) -> list[tuple[list[Box], list[Box]]]:
    """Each layer with the one that it is arranged after."""
    if forward:
        return list(zip(layers[1:], layers, strict=False))
    return list(zip(reversed(layers[:-1]), reversed(layers), strict=False))


def _place(layers: Sequence[list[Box]]) -> None:
    """Columns from left to right; in each, boxes as near to their neighbours as there is room."""
    x = MARGIN
    for layer in layers:
        width = max(box.width for box in layer)
        for box in layer:
            box.x = x + width / 2
        x += width + GAP_X
        _stack(layer, [0.0] * len(layer))
    for sweep in range(SWEEPS):
        for layer, _ in _pairs(layers, sweep % 2 == 0):
            wanted = []
            for box in layer:
                near = [other.y for other in (*box.before, *box.after)]
                wanted.append(sum(near) / len(near) if near else box.y)
            _stack(layer, wanted)
    top = min((box.y - box.height / 2 - box.above for layer in layers for box in layer), default=0)
    for layer in layers:
        for box in layer:
            box.y += MARGIN - top


def _stack(layer: Sequence[Box], wanted: Sequence[float]) -> None:
    """Put boxes at the heights wanted, in order, moved apart where they would touch."""
    bottom = float("-inf")
    for box, y in zip(layer, wanted, strict=True):
        box.y = max(y, bottom + GAP_Y + box.above + box.height / 2)
        bottom = box.y + box.height / 2
    shift = sum(y - box.y for box, y in zip(layer, wanted, strict=True)) / len(layer)
    for box in layer:
        box.y += shift


def _marker(label: Label) -> str:
    return (
        f'<marker id="{label.name}" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        f'markerHeight="8" markerUnits="userSpaceOnUse" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" class="{label_class(label)}"/></marker>'
    )


def _edge(route: Route) -> str:
    """A smooth line through the boxes of a route, under the label."""
    first, *_, last = route.boxes
    right = 1 if first.x < last.x else -1
    points = [(first.x + right * first.width / 2, first.y)]
    for box in route.boxes[1:-1]:
        y = box.y + (box.height / 2 if box.lines else 0)
        points += [(box.x - right * box.width / 2, y), (box.x + right * box.width / 2, y)]
    points.append((last.x - right * last.width / 2, last.y))
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x, y), (to_x, to_y) in pairwise(points):
        bend = (x + to_x) / 2
        path += f"C{bend:.1f} {y:.1f} {bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}"
    line = _line(path, route.edge)
    top = route.label.y - route.label.height / 2
    return line + _text(route.label.lines, route.label.x, top, label_class(route.edge.label))


def _loops(box: Box) -> list[str]:
    parts = []
    top = box.y - box.height / 2
    for edge in box.loops:
        lines = tuple(map(printable, edge.lines))
        left, right = box.x - 18, box.x + 18
        over = top - 20
        path = (
            f"M{left:.1f} {top:.1f}C{left:.1f} {over:.1f} {right:.1f} {over:.1f} "
            f"{right:.1f} {top:.1f}"
        )
        parts.append(_line(path, edge))
        top -= 16 + len(lines) * LINE
        parts.append(_text(lines, box.x, top, label_class(edge.label)))
    return parts


def _line(path: str, edge: Edge) -> str:
    width = 2.4 if edge.replicated else 1.2
    return (
        f'<path d="{path}" class="{label_class(edge.label)}" stroke-width="{width}" '
        f'marker-end="url(#{edge.label.name})"/>'
    )


def _box(box: Box) -> str:
    x, y = box.x - box.width / 2, box.y - box.height / 2
    round_corners = {"component": 2, "order": 10, "seal": 10}.get(box.kind, box.height / 2)
    rectangle = (
        f'<rect class="{box.kind}" x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" '
        f'height="{box.height:.1f}" rx="{round_corners:.0f}"/>'
    )
    return rectangle + _text(box.lines, box.x, y + 6)


def _text(lines: Sequence[str], x: float, top: float, colour: str | None = None) -> str:
    """Lines in the middle; those in the colour of a label have a halo, as they lie on its line."""
    extra = "" if colour is None else f' class="halo {colour}"'
    return "".join(
        f'<text x="{x:.1f}" y="{top + LINE * (index + 0.75):.1f}" text-anchor="middle"{extra}>'
        f"{escape(line)}</text>"
        for index, line in enumerate(lines)
    )
