"""The view of a job while it runs: one line per unit, what waits for what, the last events.

Pure functions from what is known to lines of text, cut to the width of the terminal;
`blazes.report.live` puts them on the screen.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from blazes.document.plain import cells, printable

EVENTS_SHOWN: Final = 4
UNITS_SHOWN_MAX: Final = 24

QUIET_EVENTS: Final = frozenset({"unit_started", "unit_stopped", "batch", "release"})
"""Kinds of event that the table tells better."""
BAD_EVENTS: Final = frozenset(
    {
        "partition_quarantined",
        "late_data",
        "dropped_by_watermark",
        "seal_timeout",
        "job_failed",
        "unit_failed",
        "site_failed",
        "data_loss",
        "sites_begin_again",
        "state_not_kept",
    }
)

Value = float | Mapping[str, float]


class Sample(Protocol):
    """The newest metrics of a unit."""

    @property
    def unit(self) -> str:
        """Its name."""

    @property
    def values(self) -> Mapping[str, Value]:
        """By metric."""


class Event(Protocol):
    """Something that happened."""

    @property
    def t(self) -> float:
        """Seconds since the epoch."""

    @property
    def kind(self) -> str:
        """What kind of thing."""

    @property
    def unit(self) -> str | None:
        """To whom."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The details."""


@dataclass(frozen=True, slots=True)
class Progress:
    """What there is to show at one moment."""

    name: str
    state: str
    """A word or two: `starting Spark`, `running`, `stopping`."""
    elapsed_s: float
    units: Sequence[Sample]
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table, and how important it is where there is no room for all."""

    title: str
    importance: int
    """Columns are left out from the highest number down."""
    right: bool = True


COLUMNS: Final = (
    Column("unit", 0, right=False),
    Column("batches", 3),
    Column("rows in", 4),
    Column("rows/s", 1),
    Column("rows out", 7),
    Column("open", 1),
    Column("oldest", 2),
    Column("released", 5),
    Column("requests", 8),
    Column("dead", 2),
    Column("waits for", 6, right=False),
)


def amount(number: float) -> str:
    """A number in at most five characters.

    >>> [amount(n) for n in (0, 7.25, 999, 12_345, 1_000_000, 2.5e9)]
    ['0', '7.2', '999', '12.3k', '1M', '2.5G']
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            scaled = number / (1e3 if unit == "k" else limit)
            return f"{scaled:.1f}".removesuffix(".0") + unit
    return f"{number:.1f}".removesuffix(".0") if number < 100 else f"{number:.0f}"


def duration(seconds: float) -> str:
    """A time span for people.

    >>> [duration(s) for s in (0.25, 9, 75, 3725, 200_000)]
    ['0.2s', '9s', '1m15s', '1h02m', '2d07h']
    """
    if seconds < 10:
        return f"{seconds:.1f}".removesuffix(".0") + "s"
    whole = int(seconds)
    for size, small, high, low in (
        (86400, 3600, "d", "h"),
        (3600, 60, "h", "m"),
        (60, 1, "m", "s"),
    ):
        if whole >= size:
            return f"{whole // size}{high}{whole % size // small:02d}{low}"
    return f"{whole}s"


def waits_for(values: Mapping[str, Value]) -> str:
    """The producers that votes are missing of, the worst first.

    >>> waits_for({"votes_missing": {"ads-1": 2, "ads-2": 40}})
    'ads-2 (40), ads-1 (2)'
    """
    missing = values.get("votes_missing", {})
    if not isinstance(missing, Mapping):
        return ""
    worst = sorted(missing.items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{producer} ({number:.0f})" for producer, number in worst if number)


def row(sample: Sample) -> dict[str, str]:
    """The cells of a unit's line, by column title."""
    values = sample.values

    def number(metric: str) -> float | None:
        value = values.get(metric)
        return None if value is None or isinstance(value, Mapping) else value

    def shown(metric: str) -> str:
        value = number(metric)
        return "" if value is None else amount(value)

    def unless_zero(metric: str) -> str:
        return shown(metric) if number(metric) else ""

    quarantined = number("quarantined_partitions")
    oldest = number("oldest_open_partition_s")
    reasons = [f"{amount(quarantined)} quarantined"] if quarantined else []
    reasons += [waits_for(values)] if waits_for(values) else []
    return {
        "unit": printable(sample.unit),
        "batches": shown("batches"),
        "rows in": shown("rows_in"),
        "rows/s": shown("rows_per_s"),
        "rows out": shown("rows_out"),
        "open": shown("open_partitions"),
        "oldest": duration(oldest) if oldest else "",
        "released": shown("released_partitions"),
        "requests": unless_zero("waiting_requests"),
        "dead": unless_zero("dead_letters"),
        "waits for": printable("; ".join(reasons)),
    }


def table(samples: Sequence[Sample], width: int) -> list[str]:
    """A heading and a line per unit, none longer than `width`; columns that are empty are left out.

    Where there are more units than `UNITS_SHOWN_MAX`, those with open partitions come first and
    the last line says how many are not shown.
    """
    shown = sorted(samples, key=lambda s: -_trouble(s)) if _too_many(samples) else list(samples)
    rows = [row(sample) for sample in shown[:UNITS_SHOWN_MAX]]
    columns = [
        column
        for column in COLUMNS
        if column.title in ("unit", "batches") or any(line[column.title] for line in rows)
    ]
    while len(columns) > 1 and sum(_widths(columns, rows)) + 2 * (len(columns) - 1) > width:
        least = max(columns, key=lambda column: column.importance)
        if least.title == "waits for" and _room_for_waits(columns, rows, width) >= 16:
            break
        columns.remove(least)
    lines = [_line({c.title: c.title for c in columns}, columns, rows, width)]
    lines += [_line(line, columns, rows, width) for line in rows]
    if _too_many(samples):
        lines.append(f"and {len(samples) - UNITS_SHOWN_MAX} more units")
    return lines


def event_text(event: Event) -> str:
    """An event in one line."""
    clock = time.strftime("%H:%M:%S", time.localtime(event.t))
    details = ", ".join(f"{name}={_short(value)}" for name, value in event.fields.items())
    words = [event.kind.replace("_", " "), event.unit or "", details]
    return printable(f"{clock}  " + "  ".join(word for word in words if word))


def recent(events: Iterable[Event], number: int = EVENTS_SHOWN) -> list[Event]:
    """The last events that the table does not tell."""
    telling = [event for event in events if event.kind not in QUIET_EVENTS]
    return telling[-number:]


def screen(progress: Progress, width: int) -> list[str]:
    """Everything that is shown, as lines of at most `width` columns."""
    head = f"{printable(progress.name)}: {progress.state}, {duration(progress.elapsed_s)}"
    lines = [head]
    if progress.units:
        lines += ["", *table(progress.units, width)]
    shown = recent(progress.events)
    if shown:
        lines += ["", *map(event_text, shown)]
    return [cut(line, width) for line in lines]


def plain_line(sample: Sample) -> str:
    """A unit in one line without columns."""
    words = {"unit": "{}:", "waits for": "waits for {}"}
    cells_ = row(sample)
    parts = [words.get(title, title + " {}").format(text) for title, text in cells_.items() if text]
    return f"{parts[0]} {', '.join(parts[1:]) or 'nothing yet'}"


def cut(text: str, width: int) -> str:
    """The text, not wider than `width` cells.

    >>> cut("counting", 6), cut("counts", 6)
    ('count…', 'counts')
    """
    if cells(text) <= width:
        return text
    while text and cells(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _trouble(sample: Sample) -> float:
    weights = {"quarantined_partitions": 1e6, "open_partitions": 1.0, "waiting_requests": 1.0}
    found = ((sample.values.get(metric, 0), weight) for metric, weight in weights.items())
    return sum(value * weight for value, weight in found if not isinstance(value, Mapping))


def _too_many(samples: Sequence[Sample]) -> bool:
    return len(samples) > UNITS_SHOWN_MAX


def _widths(columns: Sequence[Column], rows: Sequence[Mapping[str, str]]) -> list[int]:
    return [
        max([len(column.title), *(cells(line[column.title]) for line in rows)])
        for column in columns
    ]


def _room_for_waits(
    columns: Sequence[Column], rows: Sequence[Mapping[str, str]], width: int
) -> int:
    others = [column for column in columns if column.title != "waits for"]
    return width - sum(_widths(others, rows)) - 2 * len(others)


def _line(
    texts: Mapping[str, str],
    columns: Sequence[Column],
    rows: Sequence[Mapping[str, str]],
    width: int,
) -> str:
    parts = []
    for column, wide in zip(columns, _widths(columns, rows), strict=True):
        text = texts[column.title]
        gap = " " * (wide - cells(text))
        parts.append(gap + text if column.right else text + gap)
    return cut("  ".join(parts).rstrip(), width)


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
