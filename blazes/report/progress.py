"""A job while it runs, as a document: a line per unit, what waits for what, the last events.

`blazes.report.live` puts it on the screen.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from blazes.document import blocks as b
from blazes.document.plain import printable

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
        """The kind of the event."""

    @property
    def unit(self) -> str | None:
        """To whom."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The details."""


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run at one moment."""

    name: str
    state: str
    """A word or two: `starting Spark`, `running`, `stopping`."""
    elapsed_s: float
    units: Sequence[Sample]
    events: Sequence[Event]


COLUMNS: Final[Mapping[str, int]] = {
    "unit": 0,
    "batches": 3,
    "rows in": 4,
    "rows/s": 1,
    "rows out": 7,
    "open": 1,
    "oldest": 2,
    "released": 5,
    "requests": 8,
    "dead": 2,
    "waits for": 6,
}
"""Column -> where there is no room for all, the highest numbers are left out first."""
WORDS: Final = frozenset({"unit", "waits for"})
"""The columns that hold no numbers."""


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
    rounded = int(seconds)
    for size, small, high, low in (
        (86400, 3600, "d", "h"),
        (3600, 60, "h", "m"),
        (60, 1, "m", "s"),
    ):
        if rounded >= size:
            return f"{rounded // size}{high}{rounded % size // small:02d}{low}"
    return f"{rounded}s"


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


def units(samples: Sequence[Sample]) -> b.Table:
    """A row per unit; columns that are empty in all of them are left out.

    Of more units than `UNITS_SHOWN_MAX`, those with open partitions are shown.
    """
    too_many = len(samples) > UNITS_SHOWN_MAX
    shown = sorted(samples, key=lambda s: -_trouble(s)) if too_many else samples
    texts = [row(sample) for sample in shown[:UNITS_SHOWN_MAX]]
    always = ("unit", "batches")
    titles = [title for title in COLUMNS if title in always or any(line[title] for line in texts)]
    roles = ["warn" if s.values.get("quarantined_partitions") else "" for s in shown]
    return b.Table(
        tuple(titles),
        tuple(
            tuple(b.Span(line[title], role) for title in titles)
            for line, role in zip(texts, roles, strict=False)
        ),
        right=COLUMNS.keys() - WORDS,
        spare=COLUMNS,
        wrap=False,
        more=len(samples) - len(texts),
    )


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


def events(shown: Sequence[Event], alarming: Collection[str] = BAD_EVENTS) -> b.Paragraph:
    """A line for each event; kinds that alarm stand out."""
    lines = (
        b.Span(event_text(event), "warn" if event.kind in alarming else "soft") for event in shown
    )
    return b.paragraph(*lines, form="verbatim")


def document(progress: Progress) -> b.Document:
    """Everything that is shown."""
    blocks: list[b.Block] = [units(progress.units)] if progress.units else []
    blocks += [events(shown)] if (shown := recent(progress.events)) else []
    about = f"{progress.state}, {duration(progress.elapsed_s)}"
    return b.Document(progress.name, tuple(blocks), about=about)


def plain_line(sample: Sample) -> str:
    """A unit in one line without columns."""
    words = {"unit": "{}:", "waits for": "waits for {}"}
    cells_ = row(sample)
    parts = [words.get(title, title + " {}").format(text) for title, text in cells_.items() if text]
    return f"{parts[0]} {', '.join(parts[1:]) or 'nothing yet'}"


def _trouble(sample: Sample) -> float:
    weights = {"quarantined_partitions": 1e6, "open_partitions": 1.0, "waiting_requests": 1.0}
    values = ((sample.values.get(metric, 0), weight) for metric, weight in weights.items())
    return sum(value * weight for value, weight in values if not isinstance(value, Mapping))


def _short(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    text = str(value)
    return text if len(text) <= 60 else text[:59] + "…"
