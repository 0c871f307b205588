"""Reads what a job could not process: `state/dead_letters/UNIT/*.jsonl`, one record a line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

FOLDER: Final = "dead_letters"

REASONS: Final[Mapping[str, str]] = {
    "unreadable": "the source's format could not parse it",
    "late": "its partition had been released (SE-5)",
    "unknown_producer": "its producer is not in the partition's set (SE-7)",
    "no_key": "a key attribute is null",
    "bad_key": "its key is not valid UTF-8, or longer than a key may be",
    "no_producer": "it does not say who produced it",
    "bad_producer": "its producer's name is not valid UTF-8, or too long",
    "discarded": "a person discarded its partition (SE-6)",
    "no_count": "a punctuation without a count (SE-1)",
    "behind_watermark": "the watermark had passed where it would have been counted: it came later "
    "than `lateness:` promises",
    "unprocessable": "the component could not process it: a value that left its type, a cast, an "
    "error of a Python operator",
}
"""Reason -> what it means."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record or punctuation that was not processed."""

    stream: str
    unit: str
    reason: str
    rule: str | None
    batch: int | None
    """The micro-batch that it came with."""
    time: float
    """Seconds since the epoch, when it was put aside."""
    record: Mapping[str, Any] | str
    """As it came; text where it could not be parsed."""
    why: str | None = None
    """The error that it met in a component."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many dead letters a unit has for one reason."""

    unit: str
    stream: str
    reason: str
    number: int
    first: float
    last: float


def read_dead_letters(
    state: Path, *, unit: str | None = None, stream: str | None = None, reason: str | None = None
) -> Iterator[DeadLetter]:
    """The dead letters of a state folder, unit by unit, each in the order of time.

    Args:
        state: `target/NAME/state`.
        unit: only of this unit.
        stream: only of this stream.
        reason: only with this reason.
    """
    root = state / FOLDER
    folders = sorted(f for f in root.iterdir() if f.is_dir()) if root.is_dir() else []
    for folder in folders:
        for file in sorted(folder.glob("*.jsonl"), key=lambda f: (f.stat().st_mtime, f.name)):
            for letter in _letters(file):
                if (
                    unit in (None, letter.unit)
                    and stream in (None, letter.stream)
                    and reason in (None, letter.reason)
                ):
                    yield letter


def count(letters: Iterable[DeadLetter]) -> tuple[Count, ...]:
    """Numbers by unit, stream and reason, the largest first."""
    times_of: dict[tuple[str, str, str], list[float]] = {}
    for letter in letters:
        times_of.setdefault((letter.unit, letter.stream, letter.reason), []).append(letter.time)
    counts = [Count(*kind, len(times), min(times), max(times)) for kind, times in times_of.items()]
    return tuple(sorted(counts, key=lambda c: (-c.number, c.unit, c.stream, c.reason)))


def _letters(file: Path) -> Iterator[DeadLetter]:
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            data = json.loads(line)
            yield DeadLetter(
                data["stream"],
                data["unit"],
                data["reason"],
                data.get("rule"),
                data.get("batch"),
                float(data["time"]),
                data["record"],
                data.get("why"),
            )
        except (ValueError, KeyError, TypeError):
            continue  # a line that something else left there
