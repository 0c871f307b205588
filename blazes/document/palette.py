"""The colours of every page and picture, by role, for light and for dark screens.

Text has a contrast of at least 4.5 to 1 on every ground that it stands on, lines and shapes one of
3 to 1 (WCAG 2.2, 1.4.3 and 1.4.11); a test computes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

PALETTE: Final[Mapping[str, tuple[str, str]]] = {
    "paper": ("#ffffff", "#12161c"),
    "shade": ("#f8f9fa", "#1c222b"),
    "ink": ("#1f2328", "#e6e9ed"),
    "soft": ("#57606a", "#a3acb8"),
    "axis": ("#868e96", "#6c7683"),
    "grid": ("#e6e8eb", "#2a313b"),
    "bad": ("#c62828", "#ff7b72"),
    "warn": ("#8a5a00", "#e0b341"),
    "good": ("#2e7d32", "#56c271"),
    "seal": ("#0b7285", "#4fc3cd"),
    "async": ("#247a37", "#56c271"),
    "run": ("#b35900", "#f0a35c"),
    "inst": ("#862e9c", "#d79bea"),
    "diverge": ("#c92a2a", "#ff8a80"),
    "order-ground": ("#fff0f0", "#33191c"),
    "seal-ground": ("#e3fafc", "#0f2a30"),
    "0": ("#1f6fb2", "#5aa9f0"),
    "1": ("#c0492a", "#f0885c"),
    "2": ("#2f7d4f", "#57c08a"),
    "3": ("#8250a8", "#c49bea"),
    "4": ("#8f6200", "#e0b341"),
    "5": ("#5b6570", "#aeb7c2"),
    "6": ("#b03a75", "#f07fb5"),
    "7": ("#0b7a83", "#4fc3cd"),
}
"""Role -> colour on a light screen, on a dark one.

`seal` to `diverge` are the labels of streams by severity; the numbered roles tell series apart."""

GROUNDS: Final = ("paper", "shade", "order-ground", "seal-ground")
"""What text stands on."""
LINES: Final = ("axis",)
"""Lines and shapes that mean something; `grid` only guides the eye."""
SERIES: Final = 8
"""Numbered roles; a ninth series looks like the first."""
TERMINAL: Final[Mapping[str, str]] = {
    "soft": "dim",
    "strong": "bold",
    "bad": "bold red",
    "warn": "yellow",
    "good": "green",
    "seal": "cyan",
    "async": "green",
    "run": "yellow",
    "inst": "magenta",
    "diverge": "bold red",
    "name": "italic",
    "accent": "blue",
}
"""Role -> style on a terminal, whose own palette says what it looks like; others are plain."""


def role(series: int) -> str:
    """The colour of the series with this number."""
    return str(series % SERIES)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21.

    >>> round(contrast("#000000", "#ffffff"))
    21
    """
    high, low = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
