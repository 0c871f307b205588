"""Reads a run folder back, once or while the run goes on; tolerates what a crash tore."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from flux_runtime.observe.metrics import METRICS, Value
from flux_runtime.observe.run_folder import (
    EVENTS_FILE,
    LATEST,
    METRICS_FILE,
    PLAN_FILE,
    SUMMARY_FILE,
)
from flux_runtime.observe.thinned import dropped

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
_NONE: Final[Mapping[tuple[str | None, str], int]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Sample:
    """The metrics of one unit at one moment."""

    t: float
    """Seconds since the epoch."""
    unit: str
    stage: str | None
    values: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened."""

    t: float
    kind: str
    unit: str | None = None
    fields: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)


@dataclass(frozen=True, slots=True)
class Run:
    """A run as it is known at one moment."""

    folder: Path
    units: Mapping[str, Sample]
    """Unit -> its newest metrics, in the order in which the units first reported."""
    events: tuple[Event, ...]
    """In order; those that are not recent may have been thinned."""
    summary: Mapping[str, Any] | None
    """None while the run goes on, and where it ended without one."""
    plan: Mapping[str, Any] | None
    dropped: Mapping[tuple[str | None, str], int] = field(default_factory=lambda: _NONE)
    """(unit, kind) -> how many events have been thinned out of `events`."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Kind -> how many events there were."""
        counts = Counter(event.kind for event in self.events)
        for (_, kind), number in self.dropped.items():
            counts[kind] += number
        return dict(counts)

    @property
    def started(self) -> float | None:
        """Seconds since the epoch of the first sign of life; None where there is none."""
        if self.summary is not None and "started" in self.summary:
            return float(self.summary["started"])
        signs = [event.t for event in self.events[:1]] + [s.t for s in self.units.values()]
        return min(signs, default=None)

    def total(self, metric: str) -> float:
        """The sum of a metric without a label over all units."""
        numbers = (sample.values.get(metric, 0) for sample in self.units.values())
        return sum(number for number in numbers if not isinstance(number, Mapping))


class Follower:
    """Follows a run: every `poll` reads what is new and gives what is known now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._metrics = Tail(folder / METRICS_FILE)
        self._events_tail = Tail(folder / EVENTS_FILE)
        self._units: dict[str, Sample] = {}
        self._events: list[Event] = []
        self._dropped = _NONE

    def poll(self) -> Run:
        """The run as it is known at this moment."""
        for record in self._metrics.records():
            sample = _sample(record)
            if sample is not None:
                self._units[sample.unit] = sample
        self._read_events()
        return Run(
            self.folder,
            dict(self._units),
            tuple(self._events),
            _json_object(self.folder / SUMMARY_FILE),
            _json_object(self.folder / PLAN_FILE),
            self._dropped,
        )

    def _read_events(self) -> None:
        before = self._events_tail.begun
        records = list(self._events_tail.records())
        if self._events_tail.begun != before:  # what has been read is in the thinned file, or gone
            self._events, self._dropped = [], _NONE
        for record in records:
            if counts := {(unit, kind): n for (unit, kind), n in dropped(record)}:
                self._dropped = counts
            elif (event := _event(record)) is not None:
                self._events.append(event)


def read_run(folder: Path) -> Run:
    """The run of a folder."""
    return Follower(folder).poll()


def read_history(folder: Path) -> tuple[Sample, ...]:
    """Every line of the metrics, in the order of time."""
    return tuple(filter(None, map(_sample, Tail(folder / METRICS_FILE).records())))


def latest_run(project: Path) -> Path | None:
    """The newest run folder of `target/NAME`; None where nothing has run."""
    runs = project / "runs"
    latest = runs / LATEST
    if latest.is_dir():
        return latest.resolve()
    if not runs.is_dir():
        return None
    return max((run for run in runs.iterdir() if run.is_dir()), default=None, key=lambda r: r.name)


class Tail:
    """The complete lines of a file that grows; half a line is kept until its end comes.

    A file that was replaced by a thinned one (`thinned`) is read from its beginning.

    Attributes:
        begun: how often it has been read from its beginning.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = 0
        self._half = b""
        self._identity: int | None = None
        self.begun = 0

    def records(self) -> Iterator[Mapping[str, Any]]:
        """The JSON objects that were completed since the last call; other lines are skipped."""
        try:
            with self._file.open("rb") as content:
                status = os.fstat(content.fileno())
                if status.st_ino != self._identity or status.st_size < self._offset:
                    self._identity, self._offset, self._half = status.st_ino, 0, b""
                    self.begun += 1
                content.seek(self._offset)
                new = content.read()
        except FileNotFoundError:
            return
        self._offset += len(new)
        *lines, self._half = (self._half + new).split(b"\n")
        for line in lines:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record


def _sample(record: Mapping[str, Any]) -> Sample | None:
    if not isinstance(record.get("unit"), str):
        return None
    values = {name: record[name] for name in METRICS if name in record}
    return Sample(_number(record.get("t")), record["unit"], record.get("stage"), values)


def _event(record: Mapping[str, Any]) -> Event | None:
    if not isinstance(record.get("kind"), str):
        return None
    fields = {name: record[name] for name in record if name not in ("t", "kind", "unit")}
    return Event(_number(record.get("t")), record["kind"], record.get("unit"), fields)


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _json_object(file: Path) -> Mapping[str, Any] | None:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
