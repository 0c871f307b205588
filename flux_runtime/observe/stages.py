"""Reads back what a run tells of its Flux stages: sites, copies of partitions, throughput, latency.

Three files of the run folder are the source: `stages.jsonl` (controllers), `sites.jsonl` (sites)
and `events.jsonl`. `StagesFollower` reads them while the run goes on, `read_stages` once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from flux_runtime.observe.reader import Run, Tail
from flux_runtime.observe.run_folder import SITES_FILE, STAGES_FILE

_EMPTY: Final[Mapping[str, Any]] = MappingProxyType({})
MOVE: Final = "move"
FAILED: Final = "site_failed"
RECOVERED: Final = "recovered"
LOST: Final = "data_loss"


@dataclass(frozen=True, slots=True)
class Site:
    """A site that is in the view.

    Attributes:
        number: its number in this run; a restarted site has a new one.
        id: what it calls itself.
        host: machine.
        executor: what it shares its fate with there.
        t: when it last reported, seconds since the epoch; None: not yet.
        report: what it reported.
    """

    number: int
    id: str
    host: str
    executor: str
    t: float | None = None
    report: Mapping[str, Any] = field(default_factory=lambda: _EMPTY)

    def value(self, name: str) -> float:
        """A number of its report; 0 where it is missing."""
        value = self.report.get(name, 0.0)
        return float(value) if isinstance(value, int | float) else 0.0


@dataclass(frozen=True, slots=True)
class Copy:
    """One copy of a partition: stage, number, which copy, incarnation, where, how it is."""

    stage: int
    part: int
    copy: int
    life: int
    site: int
    status: str


@dataclass(frozen=True, slots=True)
class Stage:
    """A Flux stage at one moment.

    Attributes:
        name: of the stage.
        t: when its controller last wrote, seconds since the epoch.
        values: numbers of that line.
        latency_ms: quantile -> from numbering a batch to committing its results.
        whole: whether every partition has both copies.
        sites: that are in the view.
        copies: of all partitions.
        failures: how many sites have failed.
        moves: how many moves were ordered.
        recoveries: how often all pairs were made whole again.
        recoveries_s: how long recoveries took, of those whose events are still there.
        losses: partitions that lost both copies.
    """

    name: str
    t: float
    values: Mapping[str, float]
    latency_ms: Mapping[str, float]
    whole: bool
    sites: tuple[Site, ...]
    copies: tuple[Copy, ...]
    failures: int
    moves: int
    recoveries: int
    recoveries_s: tuple[float, ...]
    losses: int

    def hosted(self, site: int) -> Iterator[Copy]:
        """The copies that stand on a site."""
        return (copy for copy in self.copies if copy.site == site)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a file: when, whose, what."""

    t: float
    stage: str
    fields: Mapping[str, Any]


class StagesFollower:
    """Follows the Flux stages of a run: every `poll` reads what is new."""

    def __init__(self, folder: Path) -> None:
        self._stages = Tail(folder / STAGES_FILE)
        self._sites = Tail(folder / SITES_FILE)
        self._line: dict[str, Line] = {}
        self._placed: dict[str, tuple[list[Any], list[Any]]] = {}
        self._reports: dict[tuple[str, int], Line] = {}

    def poll(self, run: Run | None = None) -> Mapping[str, Stage]:
        """Every stage by name, with what the events of the run tell of it."""
        for line in _lines(self._stages):
            self._line[line.stage] = line
            if "copies" in line.fields:
                self._placed[line.stage] = (line.fields["sites"], line.fields["copies"])
        for line in _lines(self._sites):
            if isinstance(number := line.fields.get("number"), int):
                self._reports[line.stage, number] = line
        return {name: self._stage(line, run) for name, line in self._line.items()}

    def _stage(self, line: Line, run: Run | None) -> Stage:
        sites, copies = self._placed.get(line.stage, ([], []))
        mine = [event for event in run.events if event.unit == line.stage] if run else []
        counts = Counter(event.kind for event in mine)
        for (unit, kind), number in run.dropped.items() if run else ():
            counts[kind] += number if unit == line.stage else 0
        fields = line.fields
        return Stage(
            name=line.stage,
            t=line.t,
            values={k: v for k, v in fields.items() if type(v) in (int, float)},
            latency_ms=fields.get("latency_ms") or {},
            whole=bool(fields.get("whole")),
            sites=tuple(self._site(line.stage, site) for site in sites),
            copies=tuple(Copy(*copy) for copy in copies),
            failures=counts[FAILED],
            moves=counts[MOVE],
            recoveries=counts[RECOVERED],
            recoveries_s=tuple(
                float(event.fields["seconds"]) for event in mine if event.kind == RECOVERED
            ),
            losses=len(fields.get("losses") or ()),
        )

    def _site(self, stage: str, site: Mapping[str, Any]) -> Site:
        report = self._reports.get((stage, site["number"]))
        return Site(
            site["number"],
            site["id"],
            site["host"],
            site["executor"],
            report.t if report else None,
            report.fields if report else _EMPTY,
        )


def read_stages(folder: Path, run: Run | None = None) -> Mapping[str, Stage]:
    """The Flux stages of a run folder."""
    return StagesFollower(folder).poll(run)


def stage_history(folder: Path) -> tuple[Line, ...]:
    """Every line that the controllers wrote, in the order of time."""
    return tuple(_lines(Tail(folder / STAGES_FILE)))


def site_history(folder: Path) -> tuple[Line, ...]:
    """Every report of a site, in the order of time; `number` says of which."""
    return tuple(_lines(Tail(folder / SITES_FILE)))


def _lines(tail: Tail) -> Iterable[Line]:
    for record in tail.records():
        stage, t = record.get("stage"), record.get("t")
        if isinstance(stage, str) and isinstance(t, int | float):
            yield Line(float(t), stage, record)
