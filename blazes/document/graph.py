"""A diagram as SVG, laid out in layers from left to right (Sugiyama's method, in small).

A small diagram is drawn with everything that it says. There every edge gets a node of its own for
its label, so that labels take part in the layout and do not cover anything. A large one has only
the names of components, coloured where they wait; edges that leave one component in one colour
share their way. What is too wide goes on in a line below, like text. Edges that close a cycle are
laid out reversed. Sizes are in pixels.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from blazes.document.diagram import ROLES, SEVERITIES, Diagram, Edge, Node
from blazes.document.plain import cells, escape, printable
from blazes.document.svg import picture

DETAILED_MAX: Final = 20
"""Components that are drawn with their paths and their streams' names."""
ENDS_MAX: Final = 100
"""Components that are drawn together with the sources and sinks outside."""
CHARACTER: Final = 6.7
"""Width of a character of the 11 px monospaced font."""
LINE: Final = 15.0
MARGIN: Final = 12.0
GAP_X: Final = 26.0
GAP_Y: Final = 7.0
"""On each side of a box."""
BAND: Final = 1120.0
"""Width of a line of layers, where there have to be several."""
ONE_BAND: Final = 2000.0
"""Up to this width there is one."""
ROWS_MAX: Final = 20
"""Components that stand in one column."""
SPAN_MAX: Final = 10
"""Columns that an edge of a large diagram crosses; a longer one only names where it begins."""
NAMES_MAX: Final = 4
"""Beginnings that are named at one component."""
SWEEPS: Final = 6


@dataclass(slots=True, eq=False)
class Box:
    """A node in the layout: something drawn, the label of an edge, or a bend of a long edge."""

    lines: tuple[str, ...] = ()
    kind: str = "bend"
    rank: int = 0
    tip: str = ""
    band: int = 0
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
        return len(self.lines) * LINE + (4 if self.kind == "bend" else 8)

    @property
    def gap(self) -> float:
        """Room on each side; bends may be close to one another."""
        return GAP_Y if self.lines else 1.0

    @property
    def above(self) -> float:
        """Room for the loops over it."""
        return sum(16 + len(edge.lines) * LINE for edge in self.loops)


@dataclass(frozen=True, slots=True)
class Route:
    """An edge and the boxes that it leads through, from tail to head."""

    edge: Edge
    boxes: tuple[Box, ...]
    label: Box | None


def drawn(diagram: Diagram, *, alone: bool = False) -> str:
    """The diagram as an `<svg>` element; `alone`: as a file of its own."""
    components = sum(node.kind == "component" for node in diagram.nodes)
    detailed = components <= DETAILED_MAX
    nodes: Sequence[Node] = diagram.nodes
    edges: Sequence[Edge] = diagram.edges
    if not detailed:
        nodes, edges = _condensed(diagram, ends=components <= ENDS_MAX)
    boxes = {
        node.id: Box(
            lines=tuple(map(printable, node.lines if detailed else node.lines[:1])),
            kind=node.kind,
            tip="" if detailed else "; ".join(node.lines),
        )
        for node in nodes
    }
    routes = _routes(boxes, edges, step=2 if detailed else 1)
    layers = _layers([*boxes.values(), *dict.fromkeys(b for r in routes for b in r.boxes[1:-1])])
    for sweep in range(SWEEPS):
        _order(layers, forward=sweep % 2 == 0)
    _place(layers)
    everything = [box for layer in layers for box in layer]
    width = max((box.x + box.width / 2 for box in everything), default=0) + MARGIN
    height = max((box.y + box.height / 2 for box in everything), default=0) + MARGIN
    parts = [part for route in routes for part in _edge(route, width)]
    body = [
        '<g font-family="ui-monospace, monospace" font-size="11">',
        *dict.fromkeys(parts),
        *(part for box in boxes.values() for part in (_box(box), *_loops(box))),
        "</g>",
    ]
    return picture(width, height, title=diagram.name, body=body, alone=alone)


def _condensed(diagram: Diagram, *, ends: bool) -> tuple[list[Node], list[Edge]]:
    """Components only, of the kind of what they wait for; one edge where several were alike."""
    names = {node.id: node.lines[0] for node in diagram.nodes}
    points = {node.id: node for node in diagram.nodes if node.kind in ("order", "seal")}
    waits = {edge.tail: edge.head for edge in diagram.edges if edge.tail in points}
    kinds = {head: points[point].kind for point, head in waits.items()}
    nodes = [
        Node(node.id, kinds.get(node.id, node.kind), node.lines)
        for node in diagram.nodes
        if node.id not in points and (ends or node.kind == "component")
    ]
    drawn = {node.id for node in nodes}
    alike: dict[tuple[str, str], Edge] = {}
    for edge in diagram.edges:
        head = waits.get(edge.head, edge.head)
        if edge.tail not in drawn or head not in drawn:
            continue
        before = alike.get((edge.tail, head))
        lines = (f"from {names[edge.tail]}",) if edge.tail != head else ()
        outer = Edge(edge.tail, head, lines, edge.role, edge.replicated)
        if before is None or SEVERITIES.index(edge.role) > SEVERITIES.index(before.role):
            alike[edge.tail, head] = outer
    return nodes, list(alike.values())


def _routes(boxes: dict[str, Box], edges: Sequence[Edge], *, step: int) -> list[Route]:
    """Rank the boxes and give every edge the boxes of its label and its bends."""
    straight = [edge for edge in edges if edge.tail != edge.head]
    for edge in edges:
        if edge.tail == edge.head:
            boxes[edge.tail].loops.append(edge)
    turned = _closing(boxes, straight)
    ends = [(e.head, e.tail) if i in turned else (e.tail, e.head) for i, e in enumerate(straight)]
    _rank(boxes, ends, step)
    shared: dict[tuple[object, ...], Box] = {}
    routes = []
    far: dict[str, list[Edge]] = {}
    for index, (edge, (left, right)) in enumerate(zip(straight, ends, strict=True)):
        start, end = boxes[left], boxes[right]
        if step == 1 and end.rank - start.rank > SPAN_MAX:
            far.setdefault(edge.head, []).append(edge)
            continue
        way: tuple[object, ...] = (index,) if step > 1 else (edge.tail, edge.role, index in turned)
        middle = [
            shared.setdefault((*way, rank), Box(rank=rank))
            for rank in range(start.rank + 1, end.rank)
        ]
        label = None
        if step > 1:
            label = middle[-1] if index not in turned else middle[0]
            label.lines = tuple(map(printable, edge.lines))
        chain = [start, *middle, end]
        for one, next_one in pairwise(chain):
            if next_one not in one.after:
                one.after.append(next_one)
                next_one.before.append(one)
        path = tuple(reversed(chain)) if index in turned else tuple(chain)
        routes.append(Route(edge, path, label))
    for head, joined in far.items():
        end = boxes[head]
        lines = [line for edge in joined for line in edge.lines]
        more = [f"and {len(lines) - NAMES_MAX} more"] if len(lines) > NAMES_MAX else []
        start = Box((*lines[:NAMES_MAX], *more), "far", end.rank - 1, tip="; ".join(lines))
        boxes[f"far {head}"] = start
        start.after.append(end)
        end.before.append(start)
        worst = max(joined, key=lambda edge: SEVERITIES.index(edge.role))
        routes.append(Route(worst, (start, end), None))
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


def _rank(boxes: Mapping[str, Box], ends: Sequence[tuple[str, str]], step: int) -> None:
    """Behind what leads to it, in the first column with room; sources next to what they feed."""
    waiting = dict.fromkeys(boxes, 0)
    leaving: dict[str, list[str]] = {name: [] for name in boxes}
    for left, right in ends:
        leaving[left].append(right)
        waiting[right] += 1
    entered = {right for _, right in ends}
    place = {name: number for number, name in enumerate(boxes)}
    taken: Counter[int] = Counter()
    ready = [(0, place[name], name) for name, count in waiting.items() if not count]
    while ready:
        _, _, name = heapq.heappop(ready)
        box = boxes[name]
        while taken[box.rank] >= ROWS_MAX:
            box.rank += step
        taken[box.rank] += 1
        for right in leaving[name]:
            boxes[right].rank = max(boxes[right].rank, box.rank + step)
            waiting[right] -= 1
            if not waiting[right]:
                heapq.heappush(ready, (boxes[right].rank, place[right], right))
    for name, box in boxes.items():
        if name not in entered and leaving[name]:
            box.rank = min(boxes[right].rank for right in leaving[name]) - step


def _layers(boxes: Sequence[Box]) -> list[list[Box]]:
    layers: dict[int, list[Box]] = {}
    for box in boxes:
        layers.setdefault(box.rank, []).append(box)
    return [layers[rank] for rank in sorted(layers)]


def _order(layers: Sequence[list[Box]], *, forward: bool) -> None:
    """Sort each layer by the mean place of its neighbours in the layer before (or after)."""
    for layer, fixed in _pairs(layers, forward):
        place = {box: index for index, box in enumerate(fixed)}
        mean: dict[Box, float] = {}
        for index, box in enumerate(layer):
            near = [place[b] for b in (box.before if forward else box.after) if b in place]
            mean[box] = sum(near) / len(near) if near else float(index)
        layer.sort(key=lambda box: mean[box])


def _pairs(layers: Sequence[list[Box]], forward: bool) -> list[tuple[list[Box], list[Box]]]:
    """Each layer with the one that it is arranged after."""
    if forward:
        return list(zip(layers[1:], layers, strict=False))
    return list(zip(reversed(layers[:-1]), reversed(layers), strict=False))


def _place(layers: Sequence[list[Box]]) -> None:
    """Columns from left to right; in each, boxes as near to their neighbours as there is room."""
    if not layers:
        return
    room = max(sum(2 * box.gap + box.above + box.height for box in layer) for layer in layers)
    for layer in layers:
        _stack(layer, [0.0] * len(layer), room)
    for sweep in range(SWEEPS):
        for layer, _ in _pairs(layers, sweep % 2 == 0):
            wanted = []
            for box in layer:
                near = [other.y for other in (*box.before, *box.after)]
                wanted.append(sum(near) / len(near) if near else box.y)
            _stack(layer, wanted, room)
    widths = [max(box.width for box in layer) + GAP_X for layer in layers]
    bands: list[list[list[Box]]] = [[]]
    folded, x = sum(widths) > ONE_BAND, MARGIN
    for layer, width in zip(layers, widths, strict=True):
        if folded and x + width > BAND and bands[-1]:
            bands.append([])
            x = MARGIN + GAP_X
        bands[-1].append(layer)
        for box in layer:
            box.x, box.band = x + (width - GAP_X) / 2, len(bands) - 1
        x += width
    below = MARGIN
    for band in bands:
        boxes = [box for layer in band for box in layer]
        top = min((box.y - box.height / 2 - box.above for box in boxes), default=0)
        for box in boxes:
            box.y += below - top
        below = max((box.y + box.height / 2 for box in boxes), default=0) + 3 * MARGIN


def _stack(layer: Sequence[Box], wanted: Sequence[float], room: float) -> None:
    """Put boxes at the heights wanted, in order, apart from one another and within the room."""
    bottom = float("-inf")
    for box, y in zip(layer, wanted, strict=True):
        box.y = max(y, bottom + box.gap + box.above + box.height / 2)
        bottom = box.y + box.height / 2 + box.gap
    shift = sum(y - box.y for box, y in zip(layer, wanted, strict=True)) / len(layer)
    low, high = -room / 2, room / 2
    for box in reversed(layer):
        box.y = min(box.y + shift, high - box.gap - box.height / 2)
        high = box.y - box.height / 2 - box.gap - box.above
    for box in layer:
        box.y = max(box.y, low + box.gap + box.above + box.height / 2)
        low = box.y + box.height / 2 + box.gap


def _edge(route: Route, width: float) -> Iterator[str]:
    """Smooth lines through the boxes of a route, under the label; one in each band."""
    edge, boxes = route.edge, route.boxes
    right = 1 if (boxes[0].band, boxes[0].x) < (boxes[-1].band, boxes[-1].x) else -1
    for one, other in pairwise(boxes):
        y, to_y = (box.y + (box.height / 2 if box is route.label else 0) for box in (one, other))
        x, to_x = one.x + right * one.width / 2, other.x - right * other.width / 2
        if one.kind == "bend" and one.lines:
            yield _line(f"M{one.x - one.width / 2:.1f} {y:.1f}h{one.width:.1f}", edge)
        if one.band == other.band:
            yield _curve(x, y, to_x, to_y, edge)
        else:
            margins = (width - MARGIN / 2, MARGIN / 2)
            leave, enter = margins if right > 0 else margins[::-1]
            yield _curve(x, y, leave, y, edge)
            yield _curve(enter, to_y, to_x, to_y, edge)
        if other is boxes[-1]:
            yield _arrow(to_x, to_y, "h", right, edge.role)
    if route.label is not None:
        top = route.label.y - route.label.height / 2
        yield _text(route.label.lines, route.label.x, top, edge.role, halo=True)


def _loops(box: Box) -> Iterator[str]:
    top = box.y - box.height / 2
    for edge in box.loops:
        left, right, over = box.x - 18, box.x + 18, top - 20
        yield _line(
            f"M{left:.1f} {top:.1f}C{left:.1f} {over:.1f} {right:.1f} {over:.1f} "
            f"{right:.1f} {top:.1f}",
            edge,
        )
        yield _arrow(right, top, "v", 1, edge.role)
        top -= 16 + len(edge.lines) * LINE
        yield _text(tuple(map(printable, edge.lines)), box.x, top, edge.role, halo=True)


def _curve(x: float, y: float, to_x: float, to_y: float, edge: Edge) -> str:
    bend = (x + to_x) / 2
    return _line(
        f"M{x:.1f} {y:.1f}C{bend:.1f} {y:.1f} {bend:.1f} {to_y:.1f} {to_x:.1f} {to_y:.1f}", edge
    )


def _line(path: str, edge: Edge) -> str:
    width = 2.4 if edge.replicated else 1.2
    start = f'<path d="{path}" class="s-{edge.role}" stroke-width="{width}"'
    return (
        f"{start}><title>{escape(', '.join(edge.lines))}</title></path>"
        if edge.lines
        else f"{start}/>"
    )


def _arrow(x: float, y: float, along: str, sign: int, role: str) -> str:
    """A tip at a place; it points along `h` or `v`, forwards or backwards."""
    back = -8 * sign
    path = f"l{back} -4v8z" if along == "h" else f"l-4 {back}h8z"
    return f'<path d="M{x:.1f} {y:.1f}{path}" class="f-{role}"/>'


def _box(box: Box) -> str:
    x, y = box.x - box.width / 2, box.y - box.height / 2
    if box.kind == "far":
        return _text(box.lines, box.x, y + 4, "soft", halo=True)
    ground, border = ROLES[box.kind]
    corners = {"component": 2, "order": 9, "seal": 9}.get(box.kind, box.height / 2)
    size = f'x="{x:.1f}" y="{y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}"'
    tip = f"<title>{escape(box.tip)}</title>" if box.tip else ""
    rectangle = f'<rect {size} rx="{corners:.0f}" class="f-{ground} s-{border}">{tip}</rect>'
    return rectangle + _text(box.lines, box.x, y + 4, "ink")


def _text(lines: Sequence[str], x: float, top: float, role: str, *, halo: bool = False) -> str:
    return "".join(
        f'<text x="{x:.1f}" y="{top + LINE * (index + 0.75):.1f}" text-anchor="middle" '
        f'class="f-{role}{" halo" if halo else ""}">{escape(line)}</text>'
        for index, line in enumerate(lines)
    )
