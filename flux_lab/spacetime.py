"""Space-time diagrams: who told whom what and when. Time runs downwards, everybody has a line.

What happens is seldom spread evenly, so the time axis is not to scale: what follows closely is
pulled apart, and what is quiet is cut short. The labels on the left say what time it is.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot, log2
from typing import Final

from blazes.document.svg import box, extent, line, picture, text

LEFT: Final = 196.0
"""Room for phases and times."""
TOP: Final = 78.0
COLUMN: Final = 96.0
STEP: Final = 9.0
"""Least distance between two times that are different."""
QUIET: Final = 64.0
"""Greatest distance between two times that follow one another."""
SLOWER: Final = 5.0
"""The length by which a stretch of twice the time is longer."""
CLOSE: Final = 15.0
"""Times closer than this are labelled once."""
LABEL: Final = 10.5


@dataclass(frozen=True, kw_only=True)
class Line:
    """Somebody, and how long there was one.

    Attributes:
        name: what the messages call it.
        under: a second line of the heading.
        start: None if it was there from the beginning.
        ready: from when on it did its work; before, the line is dashed.
        end: None if it was there at the end.
        died: whether it was a failure that ended it.
        still: (start, end) of times at which it stood still.
    """

    name: str
    under: str = ""
    start: float | None = None
    ready: float | None = None
    end: float | None = None
    died: bool = False
    still: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """A message.

    Attributes:
        tail: who sent it.
        head: who got it.
        sent: when.
        taken: when it was read; None if it never was.
        name: written at its tail; empty for those that are too many to be named.
        look: the colour; `soft` messages are drawn first and thin.
    """

    tail: str
    head: str
    sent: float
    taken: float | None
    name: str = ""
    look: str = "soft"


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A stretch of time with a name."""

    name: str
    start: float
    end: float


@dataclass(frozen=True, kw_only=True)
class SpaceTime:
    """A diagram.

    Attributes:
        title: above it.
        lines: from left to right.
        arrows: messages between them.
        phases: one after another.
        looks: what colours of arrows mean, for the legend.
        start: where the diagram begins, in seconds.
        end: where it ends.
        origin: the time that is written as 0.
    """

    title: str
    lines: tuple[Line, ...]
    arrows: tuple[Arrow, ...]
    phases: tuple[Phase, ...] = ()
    looks: tuple[tuple[str, str], ...] = ()
    start: float
    end: float
    origin: float = 0.0


def draw(diagram: SpaceTime) -> str:
    """The diagram as one picture."""
    scale = _Scale(diagram)
    x = {held.name: LEFT + (i + 0.5) * COLUMN for i, held in enumerate(diagram.lines)}
    width = LEFT + COLUMN * len(diagram.lines) + 12
    bottom = scale.bottom + 14
    body = [text(12, 22, diagram.title, bold=True, size=13)]
    body += _phases(diagram, scale, width)
    body += _times(scale, diagram.origin, width)
    for held in diagram.lines:
        body += _line(held, x[held.name], scale, bottom)
    soft = [a for a in diagram.arrows if a.look == "soft"]
    loud = [a for a in diagram.arrows if a.look != "soft"]
    taken: list[tuple[float, float, float]] = []
    for arrow in (*soft, *loud):
        body += _arrow(arrow, x, scale)
    for arrow in _first_of_each(loud, x):
        body.append(_name(arrow, x, scale, taken))
    legend, bottom = _legend(diagram, bottom + 28, width)
    return picture(width, bottom + 14, title=diagram.title, body=[*body, *legend])


class _Scale:
    """Time to pixels: monotone, with bounded distances between the times that occur."""

    def __init__(self, diagram: SpaceTime) -> None:
        named = {
            t for arrow in diagram.arrows if arrow.look != "soft" for t in _times_of(arrow)
        } | {t for phase in diagram.phases for t in (phase.start, phase.end)}
        named |= {
            t for held in diagram.lines for t in (held.start, held.end, held.ready) if t is not None
        }
        soft = {t for arrow in diagram.arrows if arrow.look == "soft" for t in _times_of(arrow)}
        inside = {t for t in named | soft if diagram.start <= t <= diagram.end}
        self.times = sorted(inside | {diagram.start, diagram.end})
        gaps = sorted(b - a for a, b in pairwise(self.times))
        usual = gaps[len(gaps) // 2] or 1e-9
        self.places = [TOP]
        for a, b in pairwise(self.times):
            least = STEP if a in named or b in named else STEP / 3
            wanted = STEP + SLOWER * log2(max((b - a) / usual, 1e-9))
            self.places.append(self.places[-1] + min(QUIET, max(least, wanted)))
        self.labels = [t for t in self.times if t in named]

    @property
    def bottom(self) -> float:
        return self.places[-1]

    def at(self, time: float) -> float:
        index = bisect.bisect_left(self.times, time)
        if index == 0:
            return self.places[0]
        if index == len(self.times):
            return self.places[-1]
        before, after = self.times[index - 1], self.times[index]
        part = (time - before) / (after - before)
        return self.places[index - 1] + part * (self.places[index] - self.places[index - 1])


def _times_of(arrow: Arrow) -> tuple[float, ...]:
    return (arrow.sent,) if arrow.taken is None else (arrow.sent, arrow.taken)


def _phases(diagram: SpaceTime, scale: _Scale, width: float) -> list[str]:
    parts = []
    for index, phase in enumerate(diagram.phases):
        top, bottom = scale.at(phase.start), scale.at(phase.end)
        if index % 2 == 0:
            parts.append(box(8, top, width - 16, bottom - top, colour="shade"))
        parts.append(
            text(
                14,
                min(top + 13, (top + bottom) / 2 + 4),
                phase.name,
                size=11,
                bold=True,
                colour="soft",
            )
        )
    return parts


def _times(scale: _Scale, origin: float, width: float) -> list[str]:
    parts, last = [], -1e9
    for time in scale.labels:
        at = scale.at(time)
        if at - last >= CLOSE:
            words = f"{(time - origin) * 1e3:,.2f} ms"
            parts.append(text(LEFT - 10, at + 4, words, anchor="end", size=10, colour="soft"))
            parts.append(line(LEFT - 6, at, width - 12, at, colour="grid"))
            last = at
    return parts


def _line(held: Line, x: float, scale: _Scale, bottom: float) -> list[str]:
    parts = [
        text(x, TOP - 26, held.name, anchor="middle", bold=True),
        text(x, TOP - 12, held.under, anchor="middle", size=10.5, colour="soft"),
    ]
    top = scale.places[0] - 6 if held.start is None else scale.at(held.start)
    end = bottom if held.end is None else scale.at(held.end)
    ready = top if held.ready is None else scale.at(held.ready)
    if held.start is not None and held.ready is None:
        ready = end
    if ready > top:
        parts.append(line(x, top, x, ready, colour="ink", width=1.4, dash="3 4"))
    parts.append(line(x, ready, x, end, colour="ink", width=1.6))
    for start, stop in held.still:
        parts.append(box(x - 4, scale.at(start), 8, scale.at(stop) - scale.at(start),
                         colour="4", tip=f"{held.name} stands still", see=0.75))  # fmt: skip
    if held.died:
        parts += [
            line(x - 7, end - 7, x + 7, end + 7, colour="bad", width=3),
            line(x - 7, end + 7, x + 7, end - 7, colour="bad", width=3),
        ]
    return parts


def _ends(arrow: Arrow, x: Mapping[str, float], scale: _Scale) -> tuple[float, float, float, float]:
    """From where to where: x and y of the tail, x and y of the head."""
    start, end = x[arrow.tail], x[arrow.head]
    above = scale.at(arrow.sent)
    if arrow.taken is None:  # it got half the way
        return start, above, (start + end) / 2, above + 5
    return start, above, end, scale.at(arrow.taken)


def _first_of_each(arrows: Sequence[Arrow], x: Mapping[str, float]) -> list[Arrow]:
    """Of the same message to several, the one that goes farthest carries the name."""
    farthest: dict[tuple[str, str, float], Arrow] = {}
    for arrow in arrows:
        key = (arrow.name, arrow.tail, arrow.sent)
        before = farthest.get(key)
        length = abs(x[arrow.head] - x[arrow.tail])
        if arrow.name and (before is None or length > abs(x[before.head] - x[before.tail])):
            farthest[key] = arrow
    return list(farthest.values())


def _arrow(arrow: Arrow, x: Mapping[str, float], scale: _Scale) -> list[str]:
    start, above, end, below = _ends(arrow, x, scale)
    soft = arrow.look == "soft"
    length = hypot(end - start, below - above) or 1.0
    back, side = (5, 2.5) if soft else (8, 4)
    u, v = (end - start) / length, (below - above) / length
    near = [f"{end:.1f} {below:.1f}"]
    for sign in (1, -1):
        a = end - back * u + sign * side * v
        near.append(f"{a:.1f} {below - back * v - sign * side * u:.1f}")
    see = ' opacity="0.55"' if soft else ""
    width = 0.9 if soft else 1.7
    look = arrow.look
    return [
        f"<g{see}>"
        + line(start, above, end - back * u, below - back * v, colour=look, width=width)
        + f'<path d="M{"L".join(near)}z" class="f-{look}"/></g>'
    ]


def _name(
    arrow: Arrow,
    x: Mapping[str, float],
    scale: _Scale,
    taken: list[tuple[float, float, float]],
) -> str:
    """The label, near the tail, moved along the arrow until it covers no other label."""
    start, above, end, below = _ends(arrow, x, scale)
    wide = extent(arrow.name, LABEL)
    middle, y = start, above
    for part in (0.3, 0.4, 0.5, 0.6, 0.7, 0.2, 0.85, 0.12):
        middle, y = start + (end - start) * part, above + (below - above) * part - 3
        if all(abs(y - b) > 10 or abs(middle - a) > (wide + w) / 2 + 4 for a, b, w in taken):
            break
    taken.append((middle, y, wide))
    halo = box(middle - wide / 2 - 1, y - 8.5, wide + 2, 10.5, colour="paper", see=0.72)
    return halo + text(middle, y, arrow.name, anchor="middle", size=LABEL, colour=arrow.look)


def _legend(diagram: SpaceTime, y: float, width: float) -> tuple[list[str], float]:
    parts, x = [], 14.0
    still = any(held.still for held in diagram.lines)
    entries: Sequence[tuple[str, str]] = (
        *diagram.looks,
        *([("", "stands still")] if still else []),
    )
    for look, words in entries:
        wide = 40 + extent(words, 11)
        if x > 14 and x + wide > width:
            x, y = 14.0, y + 17
        if look:
            parts.append(line(x, y - 4, x + 20, y - 4, colour=look, width=2.2))
        else:
            parts.append(box(x + 6, y - 11, 8, 13, colour="4", see=0.75))
        parts.append(text(x + 26, y, words, size=11))
        x += wide
    return parts, y
