"""The parts of every picture: text, lines, boxes, and axes with round numbers.

A picture has no links to anywhere and no ids. Its colours are roles of the palette; `style` says
what each is on a light and on a dark screen: within a picture that is a file of its own, or once in
the page that has the picture. Sizes are in pixels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from blazes.document.palette import PALETTE
from blazes.document.plain import escape


def stacked(
    width: float, panels: Iterable[tuple[list[str], float]], *, title: str, alone: bool = True
) -> str:
    """A whole picture of parts with their heights, one below the other."""
    body, y = [], 0.0
    for parts, height in panels:
        body += [f'<g transform="translate(0 {y:.0f})">', *parts, "</g>"]
        y += height
    return picture(width, y, title=title, body=body, alone=alone)


def picture(
    width: float, height: float, *, title: str, body: Iterable[str], alone: bool = True
) -> str:
    """A whole picture.

    Args:
        width: in pixels.
        height: in pixels.
        title: what is said of it to those who do not see it.
        body: its parts.
        alone: it is a file of its own, not part of a page.
    """
    ground = f'<rect width="{width:.0f}" height="{height:.0f}" class="f-paper"/>'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="picture" '
            f'viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" '
            f'role="img" aria-label="{escape(title)}" '
            'font-family="system-ui, sans-serif" font-size="12">',
            *([f"<style>{style()}</style>", ground] if alone else []),
            *body,
            "</svg>",
            "",
        ]
    )


def style() -> str:
    """The style sheet of the roles, for pictures and for the page around them."""
    halo = ".picture .halo{stroke-width:3.5px;paint-order:stroke;stroke-linejoin:round}"
    halo += '.picture [class^="s-"]{fill:none}'
    light = halo + "".join(_rules(name, colours[0]) for name, colours in PALETTE.items())
    dark = "".join(_rules(name, colours[1]) for name, colours in PALETTE.items())
    return f"{light}@media (prefers-color-scheme: dark){{{dark}}}"


def _rules(name: str, colour: str) -> str:
    around = f".picture .halo{{stroke:{colour}}}" if name == "paper" else ""
    return around + (f".picture .f-{name}{{fill:{colour}}}.picture .s-{name}{{stroke:{colour}}}")


def text(
    x: float,
    y: float,
    words: str,
    *,
    colour: str = "ink",
    anchor: str = "start",
    size: float = 12,
    bold: bool = False,
    turn: float = 0,
    halo: bool = False,
) -> str:
    """Words with their baseline at a place, turned by so many degrees.

    With a halo they stay readable on top of lines.
    """
    more = f' font-size="{size:g}"' if size != 12 else ""
    more += ' font-weight="600"' if bold else ""
    more += f' text-anchor="{anchor}"' if anchor != "start" else ""
    more += f' transform="rotate({turn:g} {x:.1f} {y:.1f})"' if turn else ""
    around = " halo" if halo else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="f-{colour}{around}"{more}>{escape(words)}</text>'


def line(
    x1: float, y1: float, x2: float, y2: float, *, colour: str, width: float = 1, dash: str = ""
) -> str:
    """A straight line."""
    more = f' stroke-width="{width:g}"' if width != 1 else ""
    more += f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="s-{colour}"{more}/>'
    )


def box(
    x: float, y: float, width: float, height: float, *, colour: str, tip: str = "", see: float = 1
) -> str:
    """A filled rectangle, with words that show when it is pointed at."""
    more = f' fill-opacity="{see:g}"' if see != 1 else ""
    size = f'x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"'
    start = f'<rect {size} class="f-{colour}"{more}'
    return f"{start}><title>{escape(tip)}</title></rect>" if tip else f"{start}/>"


def extent(words: str, size: float = 12) -> float:
    """About how wide words are."""
    narrow = sum(character in "iljtfr.,:;'|!()[] " for character in words)
    return size * (0.62 * (len(words) - narrow) + 0.36 * narrow)


class Axis:
    """Maps values to pixels, and chooses round ticks.

    Args:
        values: that have to find room.
        low: the pixel of the least value.
        high: the pixel of the greatest.
        log: logarithmic; only positive values count.
        zero: 0 belongs to a linear axis in any case.
    """

    def __init__(
        self,
        values: Sequence[float],
        low: float,
        high: float,
        *,
        log: bool = False,
        zero: bool = True,
    ) -> None:
        self.log = log
        held = [v for v in values if math.isfinite(v) and (v > 0 or not log)]
        held += [0.0] if (zero or not held) and not log else []
        self.least, self.most = (min(held), max(held)) if held else (1.0, 10.0)
        if self.most <= self.least:
            self.most = self.least * 10 if log else self.least + 1
        self.low, self.high = low, high
        if not log and zero:
            step = round_step(self.most - self.least)
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

    def ticks(self, about: int = 5) -> list[float]:
        """Round values along the axis, about so many."""
        if not self.log:
            step = round_step(self.most - self.least, about)
            first = math.ceil(self.least / step - 1e-9)
            last = math.floor(self.most / step + 1e-9)
            return [i * step for i in range(first, last + 1)]
        first, last = math.floor(math.log10(self.least)), math.ceil(math.log10(self.most))
        steps = (1,) if last - first > 3 else (1, 2, 5)
        multiples = [m * 10.0**e for e in range(first, last + 1) for m in steps]
        return [v for v in multiples if self.least * 0.999 <= v <= self.most * 1.001]


def round_step(span: float, about: int = 5) -> float:
    """A round step that divides the span into about so many."""
    raw = span / about
    unit = 10.0 ** math.floor(math.log10(raw))
    return next(m * unit for m in (1, 2, 2.5, 5, 10) if raw <= m * unit * 1.0001)


def number(value: float) -> str:
    """A tick as people write it: 1,500, 20K, 3M."""
    if abs(value) >= 10_000:
        return f"{value / 1e6:g}M" if abs(value) >= 1e6 else f"{value / 1e3:g}K"
    return f"{value:,.0f}" if value == int(value) and abs(value) >= 1000 else f"{value:.6g}"
