"""Where things were over time: one lane per thing, coloured by the site it stood on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from blazes.document.charts import GAP, LEFT, LEGEND, RIGHT, WIDTH, Event
from blazes.document.palette import role
from blazes.document.svg import Axis, box, extent, line, number, stacked, text

TOP: Final = 50.0
LANES_HIGH: Final = 420.0
"""Lanes share about this height; with few of them they are thicker."""
THICKEST: Final = 18.0
THINNEST: Final = 4.0


@dataclass(frozen=True, kw_only=True)
class Stay:
    """A thing stood at a place for some time.

    Attributes:
        start: when it came.
        end: when it went.
        place: where it was; a number, which also gives the colour.
        ready: False while it was there and of no use yet, say while its state was on its way.
    """

    start: float
    end: float
    place: int
    ready: bool = True


@dataclass(frozen=True, kw_only=True)
class Lane:
    """One thing and where it was; where it was nowhere, its lane is empty."""

    name: str
    stays: tuple[Stay, ...]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """A chart of places over time.

    Attributes:
        title: above it.
        x: label of the x axis, with its unit.
        lanes: from above.
        events: what happened, as vertical lines; the `bad` ones stand out.
        place: what a place is called, before its number.
    """

    title: str
    x: str
    lanes: tuple[Lane, ...]
    events: tuple[Event, ...] = ()
    place: str = "site"


def draw(charts: Sequence[Placement], *, title: str) -> str:
    """The charts, one below the other, as one picture."""
    return stacked(WIDTH, map(panel, charts), title=title)


def panel(chart: Placement) -> tuple[list[str], float]:
    """The parts of a chart, and its height."""
    thick = min(THICKEST, max(THINNEST, LANES_HIGH / max(len(chart.lanes), 1)))
    bottom = TOP + thick * len(chart.lanes) + 4
    stays = [stay for lane in chart.lanes for stay in lane.stays]
    ends = [time for stay in stays for time in (stay.start, stay.end)]
    left = LEFT - 22
    x = Axis(ends, left, WIDTH - RIGHT, zero=False)
    parts = [text(left, 20, chart.title, bold=True, size=13)]
    for value in x.ticks(8):
        at = x.pixel(value)
        parts.append(line(at, TOP, at, bottom + 4, colour="grid"))
        parts.append(text(at, bottom + 17, number(value), anchor="middle", colour="soft"))
    every = max(1, round(13 / thick))
    for index, lane in enumerate(chart.lanes):
        top = TOP + index * thick
        if index % every == 0:
            parts.append(text(left - 6, top + thick / 2 + 4, lane.name, anchor="end", size=11))
        parts += [_stay(chart, lane, stay, x, top, thick) for stay in lane.stays]
    for event in chart.events:
        at = x.pixel(event.at)
        colour = "bad" if event.bad else "soft"
        parts.append(line(at, TOP - 4, at, bottom, colour=colour, width=1.4, dash="3 3"))
    parts += _names(chart, x)
    parts.append(line(left, bottom, WIDTH - RIGHT, bottom, colour="axis"))
    parts.append(text((left + WIDTH) / 2, bottom + 34, chart.x, anchor="middle"))
    legend, height = _legend(chart, stays, left, bottom + 54)
    return [*parts, *legend], height + GAP


def _stay(chart: Placement, lane: Lane, stay: Stay, x: Axis, top: float, thick: float) -> str:
    left, right = x.pixel(stay.start), x.pixel(stay.end)
    gap = 2.0 if thick > 8 else 0.5
    where = f"{chart.place} {stay.place}"
    tip = f"{lane.name} on {where}, {stay.start:.3f} to {stay.end:.3f}"
    drawn = box(left, top + gap / 2, max(right - left, 1.0), thick - gap, colour=role(stay.place),
                tip=tip if stay.ready else f"{tip}, not ready",
                see=1 if stay.ready else 0.3)  # fmt: skip
    if stay.ready and thick > 11 and right - left > 16:
        middle = (left + right) / 2
        words = str(stay.place)
        drawn += text(middle, top + thick / 2 + 4, words, colour="paper", anchor="middle", size=11)
    return drawn


def _names(chart: Placement, x: Axis) -> list[str]:
    parts, taken = [], 0.0
    for event in sorted(chart.events, key=lambda e: e.at):
        wide = extent(event.name, 11)
        at = min(x.pixel(event.at) - 3, WIDTH - wide - 4)
        if event.name and at > taken:
            colour = "bad" if event.bad else "soft"
            parts.append(text(at, TOP - 7, event.name, size=11, colour=colour))
            taken = at + wide + 6
    return parts


def _legend(
    chart: Placement, stays: Sequence[Stay], left: float, y: float
) -> tuple[list[str], float]:
    places = sorted({stay.place for stay in stays})
    entries = [(f"{chart.place} {place}", role(place), 1.0) for place in places]
    if any(not stay.ready for stay in stays):
        entries.append(("pale: state on its way", role(places[0]), 0.3))
    parts, x = [], left
    for name, colour, see in entries:
        wide = 34 + extent(name)
        if x > left and x + wide > WIDTH:
            x, y = left, y + LEGEND
        parts.append(box(x, y - 10, 16, 12, colour=colour, see=see))
        parts.append(text(x + 21, y, name))
        x += wide
    return parts, y
