"""Charts as SVG: lines or points over one axis, the paper's numbers as dashed marks."""

# ruff: noqa: E501  (rows of tables stay on one line)

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

WIDTH: Final = 720
HEIGHT: Final = 316
LEFT, RIGHT, TOP, BOTTOM = 78, 16, 34, 78
COLOURS: Final = ("#1b6ca8", "#c8553d", "#3a7d44", "#8a5a9e", "#a67c00", "#5b5b5b")


@dataclass(frozen=True)
class Series:
    """Points joined by a line, or marked one by one where there are few."""

    name: str
    points: tuple[tuple[float, float], ...]
    dots: bool = False


@dataclass(frozen=True)
class Mark:
    """A number of the paper: a dashed line at a height, or at a place on the x axis."""

    name: str
    at: float
    vertical: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart.

    Attributes:
        title: above it.
        x: label of the x axis, with its unit.
        y: label of the y axis, with its unit.
        series: ours.
        marks: the paper's.
        log_x: logarithmic x axis (only positive x).
        log_y: logarithmic y axis (only positive y).
    """

    title: str
    x: str
    y: str
    series: tuple[Series, ...]
    marks: tuple[Mark, ...] = ()
    log_x: bool = False
    log_y: bool = False


class Axis:
    """Maps values to pixels, and chooses round ticks."""

    def __init__(self, values: Sequence[float], low: float, high: float, *, log: bool) -> None:
        self.log = log
        held = [v for v in values if v > 0] if log else [*values, 0.0]
        self.least, self.most = min(held), max(held)
        if self.most <= self.least:
            self.most = self.least * 10 if log else self.least + 1
        self.low, self.high = low, high
        if not log:
            step = _step(self.most - self.least)
            self.least = math.floor(self.least / step) * step
            self.most = math.ceil(self.most / step - 1e-9) * step

    def pixel(self, value: float) -> float:
        """Where a value lies."""
        if self.log:
            value = max(value, self.least)
            part = math.log(value / self.least) / math.log(self.most / self.least)
        else:
            part = (value - self.least) / (self.most - self.least)
        return self.low + part * (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        if not self.log:
            step = _step(self.most - self.least)
            first = math.ceil(self.least / step - 1e-9)
            last = math.floor(self.most / step + 1e-9)
            return [i * step for i in range(first, last + 1)]
        first, last = math.floor(math.log10(self.least)), math.ceil(math.log10(self.most))
        steps = (1,) if last - first > 3 else (1, 2, 5)
        found = [m * 10.0**e for e in range(first, last + 1) for m in steps]
        return [v for v in found if self.least * 0.999 <= v <= self.most * 1.001]


def svg(charts: Sequence[Chart], *, title: str) -> str:
    """The charts, one below the other, as one drawing without links to anywhere."""
    height = HEIGHT * len(charts)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" role="img" aria-label="{escape(title)}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    for index, chart in enumerate(charts):
        parts.append(f'<g transform="translate(0 {index * HEIGHT})">')
        parts += _chart(chart)
        parts.append("</g>")
    return "\n".join([*parts, "</svg>", ""])


def _chart(chart: Chart) -> list[str]:
    points = [p for series in chart.series for p in series.points]
    across = [x for x, _ in points] + [m.at for m in chart.marks if m.vertical]
    up = [y for _, y in points] + [m.at for m in chart.marks if not m.vertical]
    x = Axis(across, LEFT, WIDTH - RIGHT, log=chart.log_x)
    if not chart.log_x:  # time need not start at 0
        x.least = min(across)
    y = Axis(up, HEIGHT - BOTTOM, TOP, log=chart.log_y)
    parts = [f'<text x="{LEFT}" y="18" font-weight="bold">{escape(chart.title)}</text>']
    parts += _axes(chart, x, y)
    for mark in chart.marks:
        parts.append(_mark(mark, x, y))
    for index, series in enumerate(chart.series):
        parts += _series(series, COLOURS[index % len(COLOURS)], x, y)
    return parts + _legend(chart)


def _axes(chart: Chart, x: Axis, y: Axis) -> list[str]:
    bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
    parts = []
    for value in y.ticks():
        at = y.pixel(value)
        parts.append(
            f'<line x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e4e4e4"/>'
        )
        parts.append(
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{_number(value)}</text>'
        )
    for value in x.ticks():
        at = x.pixel(value)
        if at < LEFT - 1:
            continue
        parts.append(
            f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{bottom}" y2="{bottom + 4}" stroke="#444"/>'
        )
        parts.append(
            f'<text x="{at:.1f}" y="{bottom + 17}" text-anchor="middle">{_number(value)}</text>'
        )
    parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{bottom}" y2="{bottom}" stroke="#444"/>')
    middle = (TOP + bottom) / 2
    parts.append(
        f'<text x="{(LEFT + right) / 2}" y="{bottom + 33}" text-anchor="middle">{escape(chart.x)}</text>'
    )
    parts.append(
        f'<text x="16" y="{middle}" text-anchor="middle" transform="rotate(-90 16 {middle})">'
        f"{escape(chart.y)}</text>"
    )
    return parts


def _mark(mark: Mark, x: Axis, y: Axis) -> str:
    if mark.vertical:
        at = x.pixel(mark.at)
        line = f'x1="{at:.1f}" x2="{at:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"'
        right = at > WIDTH * 0.75
        text = f'x="{at + (-4 if right else 4):.1f}" y="{HEIGHT - BOTTOM - 8}"'
        text += ' text-anchor="end"' if right else ""
    else:
        at = y.pixel(mark.at)
        line = f'x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"'
        text = f'x="{WIDTH - RIGHT - 4}" y="{at - 4:.1f}" text-anchor="end"'
    return (
        f'<line {line} stroke="#777" stroke-dasharray="5 4"/>'
        f'<text {text} fill="#555" font-size="11">paper: {escape(mark.name)}</text>'
    )


def _series(series: Series, colour: str, x: Axis, y: Axis) -> list[str]:
    places = [(x.pixel(a), y.pixel(b)) for a, b in series.points]
    path = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
    parts = [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.8"/>']
    if series.dots:
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in places]
    return parts


def _legend(chart: Chart) -> list[str]:
    parts, at, y = [], float(LEFT), HEIGHT - 32
    for index, series in enumerate(chart.series):
        colour = COLOURS[index % len(COLOURS)]
        width = 40 + 6.6 * len(series.name)
        if at + width > WIDTH:
            at, y = float(LEFT), y + 17
        parts.append(
            f'<line x1="{at:.0f}" x2="{at + 18:.0f}" y1="{y}" y2="{y}" stroke="{colour}" '
            'stroke-width="2.5"/>'
            f'<text x="{at + 23:.0f}" y="{y + 4}">{escape(series.name)}</text>'
        )
        at += width
    return parts


def _step(span: float) -> float:
    """A round step that divides the span into about five."""
    raw = span / 5
    unit = 10.0 ** math.floor(math.log10(raw))
    return next(m * unit for m in (1, 2, 2.5, 5, 10) if raw <= m * unit * 1.0001)


def _number(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1e6:g}M" if abs(value) >= 1e6 else f"{value / 1e3:g}K"
    return f"{value:.6g}"
