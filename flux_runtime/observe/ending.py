"""The remains of a run at its end: partitions that are open or in quarantine, dead letters.

A run that has worked off all that was there has not therefore done all that was asked of it: what
is left is counted in the summary, said in the last line, and an exit status where somebody asked
for one (`--fail-on`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from flux_runtime.observe.gates import UNITS, read_gate
from flux_runtime.observe.metrics import Value
from flux_runtime.sealing.manifest import DamagedError
from flux_runtime.sealing.storage import file_name

FAIL_ON: Final[Mapping[str, str]] = {
    "open": "partitions are open at the end",
    "quarantine": "partitions are in quarantine at the end",
    "dead-letters": "records became dead letters in this run, late ones included",
    "late": "records came late in this run",
}
"""Word of `--fail-on` -> what it stands for."""

FAILED_ON: Final = 3
"""The exit status of a run that leaves what it was to fail on."""

_COUNTERS: Final = ("dead_letters", "late_records")

Units = Mapping[str, Mapping[str, Value]]
"""Unit -> its metrics."""


@dataclass(frozen=True, slots=True)
class Oldest:
    """The partition that has been open for longest."""

    unit: str
    age_s: float
    key: tuple[str, ...] = ()
    waits_for: tuple[str, ...] = ()

    def __str__(self) -> str:
        which = f"{self.unit} [{', '.join(self.key)}]" if self.key else self.unit
        waits = f", waits for {'; '.join(self.waits_for)}" if self.waits_for else ""
        return f"{which}, open for {self.age_s:.0f} s{waits}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The remains of a run."""

    open_partitions: int = 0
    """Without those in quarantine."""
    quarantined_partitions: int = 0
    dead_letters: int = 0
    """Of this run, late records included."""
    late_records: int = 0
    """Of this run."""
    oldest: Oldest | None = field(default=None)

    @property
    def waits(self) -> bool:
        """Whether partitions are left that may still be put out."""
        return self.open_partitions + self.quarantined_partitions > 0

    def to_json(self) -> dict[str, Any]:
        """As JSON data, for the summary."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Left:
        """The reverse of `to_json`."""
        oldest = data.get("oldest")
        if oldest is not None:
            key, waits_for = tuple(oldest["key"]), tuple(oldest["waits_for"])
            oldest = Oldest(oldest["unit"], oldest["age_s"], key, waits_for)
        return Left(**{**data, "oldest": oldest})

    def failures(self, fail_on: Collection[str]) -> tuple[str, ...]:
        """The words among these that apply.

        >>> Left(open_partitions=2, late_records=1).failures({"late", "quarantine"})
        ('late',)
        """
        numbers = {
            "open": self.open_partitions,
            "quarantine": self.quarantined_partitions,
            "dead-letters": self.dead_letters,
            "late": self.late_records,
        }
        return tuple(word for word in FAIL_ON if word in fail_on and numbers[word])

    def __str__(self) -> str:
        parts = []
        if self.open_partitions:
            oldest = f" (the oldest: {self.oldest})" if self.oldest is not None else ""
            parts.append(f"{_number(self.open_partitions, 'open partition')}{oldest}")
        if self.quarantined_partitions:
            parts.append(f"{self.quarantined_partitions} in quarantine")
        if self.dead_letters:
            late = f" ({self.late_records} late)" if self.late_records else ""
            parts.append(f"{_number(self.dead_letters, 'dead letter')}{late}")
        return ", ".join(parts)


def what_is_left(before: Units, after: Units, state: Path) -> Left:
    """The remains of a run, from its units' metrics before and after it.

    Args:
        before: as the units reported before anything was read; their counters go on.
        after: at the end.
        state: the state folder, which knows what a partition waits for.
    """

    def total(name: str) -> int:
        numbers = [_of(values, name) for values in after.values()]
        earlier = [_of(before.get(unit, {}), name) for unit in after]
        return int(sum(numbers) - (sum(earlier) if name in _COUNTERS else 0))

    open_partitions = total("open_partitions")
    return Left(
        open_partitions=open_partitions,
        quarantined_partitions=total("quarantined_partitions"),
        dead_letters=total("dead_letters"),
        late_records=total("late_records"),
        oldest=_oldest(after, state) if open_partitions else None,
    )


def parse_fail_on(text: str) -> tuple[str, ...]:
    """The words of `--fail-on`, separated by commas.

    Raises:
        ValueError: one of them is unknown.

    >>> parse_fail_on("late,open")
    ('open', 'late')
    """
    words = {word.strip() for word in text.split(",")}
    if unknown := sorted(words - FAIL_ON.keys()):
        raise ValueError(f"{unknown[0]!r} is not one of {', '.join(FAIL_ON)}")
    return tuple(word for word in FAIL_ON if word in words)


def _oldest(units: Units, state: Path) -> Oldest | None:
    ages = {unit: _of(values, "oldest_open_partition_s") for unit, values in units.items()}
    unit = max(ages, key=lambda name: ages[name], default=None)
    if unit is None:
        return None
    try:
        partitions = read_gate(state / UNITS / file_name(unit)).partitions
    except (OSError, ValueError, DamagedError):
        partitions = ()
    oldest = next((p for p in partitions if p.contradiction is None), None)
    if oldest is None:
        return Oldest(unit, ages[unit])
    return Oldest(unit, ages[unit], oldest.key, oldest.waits_for)


def _of(values: Mapping[str, Value], name: str) -> float:
    value = values.get(name, 0)
    return 0.0 if isinstance(value, Mapping) else float(value)


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number != 1 else ''}"


def not_emptied(sinks: Iterable[str]) -> str | None:
    """The sentence about sinks whose rows `--fresh` leaves where they are; None: there are none."""
    names = ", ".join(sinks)
    if not names:
        return None
    return (
        f"--fresh does not empty {names}: rows of earlier runs stay there, and the same rows are "
        "written again. Empty them before the start where that is not wanted"
    )
