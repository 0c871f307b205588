"""Line charts of a run: values over time with events marked, or over any other axis.

`draw` puts charts below one another into one picture. The reports of simulated runs, of real runs
and of the experiments use the same charts.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from blazes.document.palette import SERIES, role
from blazes.document.plain import escape
from blazes.document.svg import Axis, box, extent, line, number, stacked, text

WIDTH: Final = 720.0
PLOT: Final = 196.0
"""Height of the area of a plot."""
LEFT: Final = 78.0
RIGHT: Final = 16.0
TOP: Final = 38.0
LEGEND: Final = 18.0
"""Height of a row of the legend, and of a row of labels of events."""
GAP: Final = 12.0
DOTS_MAX: Final = 40


@dataclass(frozen=True)
class Series:
    """Points joined by a line; marked one by one (`dots`), joined by steps, or drawn as bars.

    A value that is not finite leaves a gap.
    """

    name: str
    points: tuple[tuple[float, float], ...]
    dots: bool = False
    steps: bool = False
    bars: bool = False


@dataclass(frozen=True)
class Mark:
    """A value to compare with: a dashed line at a height, or at a place on the x axis."""

    name: str
    at: float
    vertical: bool = False


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something that happened, at a time or over one.

    Attributes:
        at: place on the x axis.
        until: where it ended; None for a moment.
        kind: what the legend calls all events of this kind, and what gives them their colour.
        name: written at the event where there is room, and shown when it is pointed at.
        bad: drawn in the colour of failures.
    """

    at: float
    until: float | None = None
    kind: str
    name: str = ""
    bad: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart.

    Attributes:
        title: above it.
        x: label of the x axis, with its unit.
        y: label of the y axis, with its unit.
        series: the values.
        marks: values to compare with.
        events: what happened.
        names: (place, words) in place of numbers on the x axis.
        log_x: logarithmic x axis (only positive x).
        log_y: logarithmic y axis (only positive y).
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    events: tuple[Event, ...] = ()
    names: tuple[tuple[float, str], ...] = ()
    log_x: bool = False
    log_y: bool = False


def draw(charts: Sequence[Chart], *, title: str) -> str:
    """The charts, one below the other, as one picture."""
    return stacked(WIDTH, map(panel, charts), title=title)


def panel(chart: Chart) -> tuple[list[str], float]:
    """The parts of a chart, and its height."""
    frame = _Frame(chart)
    parts = [text(LEFT, 20, chart.title, bold=True, size=13)]
    parts += frame.bands()
    parts += frame.axes()
    for index, series in enumerate(chart.series):
        parts += frame.bars(series, index) if series.bars else frame.line(series, role(index))
    parts += [frame.mark(mark, place) for mark, place in frame.marks()]
    parts += frame.flags()
    legend, height = frame.legend()
    return [*parts, *legend], height


class _Frame:
    """The axes of a chart and what is drawn along them."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        self.labels, rows = _labels(chart)
        self.top = TOP + rows * LEGEND
        self.bottom = self.top + PLOT
        self.right = WIDTH - RIGHT
        points = [p for series in chart.series for p in series.points]
        self.x = Axis(_across(chart), LEFT, self.right, log=chart.log_x, zero=False)
        up = [y for _, y in points] + [m.at for m in chart.marks if not m.vertical]
        self.y = Axis(up, self.bottom, self.top, log=chart.log_y)

    def axes(self) -> list[str]:
        parts = []
        for value in self.y.ticks():
            at = self.y.pixel(value)
            parts.append(line(LEFT, at, self.right, at, colour="grid"))
            parts.append(text(LEFT - 7, at + 4, number(value), anchor="end", colour="soft"))
        names = self.chart.names or [(value, number(value)) for value in self.x.ticks(8)]
        for value, words in names:
            at = self.x.pixel(value)
            parts.append(line(at, self.bottom, at, self.bottom + 4, colour="axis"))
            parts.append(text(at, self.bottom + 17, words, anchor="middle", colour="soft"))
        parts.append(line(LEFT, self.bottom, self.right, self.bottom, colour="axis"))
        middle = (LEFT + self.right) / 2
        parts.append(text(middle, self.bottom + 34, self.chart.x, anchor="middle"))
        middle = (self.top + self.bottom) / 2
        parts.append(text(18, middle, self.chart.y, anchor="middle", turn=-90))
        return parts

    def line(self, series: Series, colour: str) -> list[str]:
        parts: list[str] = []
        run: list[tuple[float, float]] = []
        for x, y in (*series.points, (math.nan, math.nan)):
            if math.isfinite(y) and not (self.chart.log_y and y <= 0):
                if series.steps and run:
                    run.append((self.x.pixel(x), run[-1][1]))
                run.append((self.x.pixel(x), self.y.pixel(y)))
                continue
            if len(run) > 1:
                path = " ".join(f"{a:.1f},{b:.1f}" for a, b in run)
                parts.append(f'<polyline points="{path}" class="s-{colour}" stroke-width="1.8"/>')
            if (series.dots and len(run) <= DOTS_MAX) or len(run) == 1:
                parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" class="f-{colour}"/>'
                          for a, b in run]  # fmt: skip
            run = []
        return parts

    def bars(self, series: Series, index: int) -> list[str]:
        """A bar per point, beside those of the other series."""
        count = sum(other.bars for other in self.chart.series)
        wide = 0.7 / count
        parts = []
        for x, y in series.points:
            left = self.x.pixel(x + (index - count / 2) * wide)
            right = self.x.pixel(x + (index + 1 - count / 2) * wide)
            top = self.y.pixel(y)
            parts.append(box(left + 1, top, right - left - 2, self.bottom - top,
                             colour=role(index), tip=f"{series.name}: {number(y)}"))  # fmt: skip
            shown = number(float(f"{y:.3g}"))
            parts.append(text((left + right) / 2, top - 4, shown, anchor="middle", size=11))
        return parts

    # ---- marks

    def marks(self) -> list[tuple[Mark, float]]:
        """Marks, and where their words go, so that no two are on top of each other."""
        places: list[tuple[Mark, float]] = []
        flat = sorted((m for m in self.chart.marks if not m.vertical), key=lambda m: -m.at)
        below = -math.inf
        for mark in flat:
            below = max(self.y.pixel(mark.at) - 4, below + 13, self.top - 5)
            places.append((mark, below))
        taken: list[tuple[float, float, float]] = []
        lowest = self.bottom - (22 if below > self.bottom - 24 else 8)
        for mark in sorted((m for m in self.chart.marks if m.vertical), key=lambda m: m.at):
            at, wide, row = self.x.pixel(mark.at), extent(mark.name, 11) + 8, lowest
            left = at - wide if at + wide > self.right else at
            while any(row == r and left < b and a < left + wide for a, b, r in taken):
                row -= 14
            taken.append((left, left + wide, row))
            places.append((mark, row))
        return places

    def mark(self, mark: Mark, place: float) -> str:
        if mark.vertical:
            at = self.x.pixel(mark.at)
            drawn = line(at, self.top, at, self.bottom, colour="axis", dash="5 4")
            right = at + extent(mark.name, 11) + 8 > self.right
            x, anchor = at + (-4 if right else 4), "end" if right else "start"
        else:
            at = self.y.pixel(mark.at)
            drawn = line(LEFT, at, self.right, at, colour="axis", dash="5 4")
            x, anchor = self.right - 4, "end"
        return drawn + text(x, place, mark.name, anchor=anchor, size=11, colour="soft", halo=True)

    # ---- events

    def bands(self) -> list[str]:
        """Events that last, behind everything."""
        parts = []
        for event in self.chart.events:
            if event.until is not None:
                left, right = self._inside(event.at), self._inside(event.until)
                parts.append(
                    box(left, self.top, max(right - left, 1.5), self.bottom - self.top,
                        colour=_colour(self.chart, event), tip=event.name or event.kind, see=0.14)
                )  # fmt: skip
        return parts

    def flags(self) -> list[str]:
        """Events that are moments, and the labels of all."""
        parts = []
        for event in self.chart.events:
            colour = _colour(self.chart, event)
            at = self._inside(event.at)
            if event.until is None:
                tip = f"<title>{escape(event.name or event.kind)}</title>"
                parts.append(line(at, self.top, at, self.bottom, colour=colour, dash="2 3"))
                path = f"M{at - 4:.1f} {self.top - 7:.1f}h8l-4 7z"
                parts.append(f'<path d="{path}" class="f-{colour}">{tip}</path>')
        for event, x, row in self.labels:
            parts.append(text(x, TOP + row * LEGEND + 6, event.name, size=11,
                              colour=_colour(self.chart, event)))  # fmt: skip
        return parts

    def _inside(self, value: float) -> float:
        return min(max(self.x.pixel(value), LEFT), self.right)

    # ---- legend

    def legend(self) -> tuple[list[str], float]:
        """Names of series and of kinds of events, and the height of all."""
        kinds = {event.kind: event for event in reversed(self.chart.events)}
        entries = [(series.name, role(i), "line") for i, series in enumerate(self.chart.series)]
        entries += [
            (kind, _colour(self.chart, event), "flag" if event.until is None else "band")
            for kind, event in reversed(kinds.items())
        ]
        entries = [entry for entry in entries if entry[0]]
        parts, x, y = [], LEFT, self.bottom + 54
        for name, colour, look in entries:
            wide = 36 + extent(name)
            if x > LEFT and x + wide > WIDTH:
                x, y = LEFT, y + LEGEND
            if look == "line":
                parts.append(line(x, y - 4, x + 18, y - 4, colour=colour, width=2.5))
            elif look == "flag":
                parts.append(f'<path d="M{x + 5:.1f} {y - 8:.1f}h8l-4 7z" class="f-{colour}"/>')
            else:
                parts.append(box(x, y - 9, 18, 10, colour=colour, see=0.3))
            parts.append(text(x + 23, y, name))
            x += wide
        return parts, (y if entries else self.bottom + 38) + GAP


def _across(chart: Chart) -> list[float]:
    across = [x for series in chart.series for x, _ in series.points]
    if any(series.bars for series in chart.series):
        across += [min(across) - 0.5, max(across) + 0.5]
    return across + [m.at for m in chart.marks if m.vertical]


def _labels(chart: Chart) -> tuple[list[tuple[Event, float, int]], int]:
    """Which events are named where: beside one another, or in up to three rows; and the rows."""
    x = Axis(_across(chart), LEFT, WIDTH - RIGHT, log=chart.log_x, zero=False)
    labels: list[tuple[Event, float, int]] = []
    ends = [0.0, 0.0, 0.0]
    for event in sorted((e for e in chart.events if e.name), key=lambda e: e.at):
        wide = extent(event.name, 11)
        left = min(max(x.pixel(event.at) - 4, LEFT), WIDTH - wide - 4)
        row = next((r for r, end in enumerate(ends) if left > end), None)
        if row is not None:
            ends[row] = left + wide + 8
            labels.append((event, left, row))
    rows = max((row + 1 for _, _, row in labels), default=0)
    return [(event, left, rows - 1 - row) for event, left, row in labels], rows


def _colour(chart: Chart, event: Event) -> str:
    if event.bad:
        return "bad"
    kinds = list(dict.fromkeys(e.kind for e in chart.events if not e.bad))
    return role(SERIES - 1 - kinds.index(event.kind) % SERIES)  # series count from the other end
