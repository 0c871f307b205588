"""The charts of a run: throughput, latency, sites and places over time, with the events marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from blazes.document import blocks as b
from blazes.document.charts import Chart, Event, Series
from blazes.document.placement import Lane, Placement, Stay

if TYPE_CHECKING:
    from flux_runtime.observe.reader import Event as Happened
    from flux_runtime.observe.reader import Sample
    from flux_runtime.observe.stages import Line

SERIES_MAX: Final = 8
LANES_MAX: Final = 64
SECONDS: Final = "seconds since the start"
MOVES_NAMED: Final = 6
"""More moves than that are marked without words."""
FAILED: Final = "site_failed"
RECOVERED: Final = "recovered"
MOVE: Final = "move"
LOST: Final = "data_loss"
BAD: Final[Mapping[str, str]] = {
    FAILED: "site failed",
    LOST: "partition lost",
    "partition_quarantined": "partition quarantined",
    "seal_timeout": "seal timed out",
    "late_data": "late record",
    "unit_failed": "unit failed",
    "job_failed": "job failed",
}
"""Kind of event -> what it is called."""


def run_charts(
    events: Sequence[Happened],
    samples: Sequence[Sample],
    stages: Sequence[Line],
    sites: Sequence[Line],
) -> list[b.Charts]:
    """Everything about a run that can be drawn; nothing where there is nothing to draw.

    Args:
        events: what happened.
        samples: every line of the metrics.
        stages: every line of the controllers of Flux stages.
        sites: every line of their sites.
    """
    times = [line.t for some in (stages, samples, events) for line in some]
    began = min(times, default=0.0)
    blocks = []
    for name in dict.fromkeys(line.stage for line in stages):
        lines = [line for line in stages if line.stage == name]
        reports = [line for line in sites if line.stage == name]
        marked = marks(events, name, began)
        charts = [_throughput(lines, marked, began), _latency(lines, marked, began)]
        charts.append(_sites(reports, marked, began))
        drawn = tuple(chart for chart in charts if any(s.points for s in chart.series))
        blocks.append(b.Charts(f"Flux stage {name}", drawn))
        places = _placement(lines, marked, began)
        if places.lanes:
            blocks.append(b.Charts(f"Where {name} ran", (places,)))
    units = [sample for sample in samples if sample.unit not in {line.stage for line in stages}]
    charts = _units(units, marks(events, None, began), began)
    return [*blocks, b.Charts("Units over time", tuple(charts))] if charts else blocks


def marks(events: Iterable[Happened], stage: str | None, began: float) -> tuple[Event, ...]:
    """The events of a stage (None: of no stage) as they are marked on a chart."""
    mine = [e for e in events if e.kind == "disturbed" or _of(e, stage)]
    named = sum(e.kind == MOVE for e in mine) <= MOVES_NAMED
    marked: list[Event] = []
    for event in mine:
        at = event.t - began
        if event.kind == RECOVERED:
            took = float(event.fields.get("seconds", 0.0))
            name = f"whole again in {took * 1000:.0f} ms"
            marked.append(Event(at=at - took, until=at, kind="without a copy", name=name))
        elif event.kind == MOVE:
            where = f"to {event.fields.get('to', '')}" if named else ""
            marked.append(Event(at=at, kind="move", name=where))
        elif event.kind == "disturbed":
            disturbance = str(event.fields.get("what", ""))
            until = at + float(event.fields.get("seconds", 0)) if disturbance != "kill" else None
            kind = "killed on purpose" if disturbance == "kill" else disturbance
            marked.append(Event(at=at, until=until, kind=kind))
        elif event.kind in BAD:
            name = f"site {event.fields['number']} failed" if "number" in event.fields else ""
            marked.append(Event(at=at, kind=BAD[event.kind], name=name, bad=True))
    return tuple(marked)


def _of(event: Happened, stage: str | None) -> bool:
    about_stages = event.kind in (FAILED, RECOVERED, MOVE, LOST)
    return event.unit == stage if stage is not None else not about_stages


def _throughput(lines: Sequence[Line], events: tuple[Event, ...], began: float) -> Chart:
    points = _points(lines, began, lambda line: line.fields.get("rows_per_s"))
    series = (Series("rows numbered by the ingress", points),)
    return Chart(title="Throughput", x=SECONDS, y="rows/s", series=series, events=events)


def _latency(lines: Sequence[Line], events: tuple[Event, ...], began: float) -> Chart:
    """Gaps where nothing was committed."""

    def quantile(name: str) -> Callable[[Line], float | None]:
        return lambda line: (line.fields.get("latency_ms") or {}).get(name, math.nan)

    names = {"p50": "median", "p95": "95 %", "max": "most"}
    series = tuple(Series(t, _points(lines, began, quantile(n))) for n, t in names.items())
    shown = tuple(s for s in series if any(math.isfinite(y) for _, y in s.points))
    return Chart(
        title="Latency, from numbering a batch to committing its results",
        x=SECONDS,
        y="ms",
        series=shown,
        events=events,
        log_y=True,
    )


def _sites(lines: Sequence[Line], events: tuple[Event, ...], began: float) -> Chart:
    by_site: dict[int, list[Line]] = {}
    for line in lines:
        by_site.setdefault(line.fields["number"], []).append(line)
    busiest = sorted(by_site, key=lambda n: -len(by_site[n]))[:SERIES_MAX]

    def cpu(line: Line) -> float:
        return 100 * float(line.fields.get("cpu", 0.0))

    series = tuple(Series(f"site {n}", _points(by_site[n], began, cpu)) for n in sorted(busiest))
    return Chart(title="Processor time of the sites", x=SECONDS, y="% of a core",
                 series=series, events=events)  # fmt: skip


def _placement(lines: Sequence[Line], events: tuple[Event, ...], began: float) -> Placement:
    """Where each copy stood; the two of a partition below one another."""
    end = lines[-1].t - began
    stays: dict[tuple[int, int, int], list[Stay]] = {}
    changes = [line for line in lines if "copies" in line.fields]
    for number, line in enumerate(changes):
        start = line.t - began
        until = changes[number + 1].t - began if number + 1 < len(changes) else end
        for stage, part, copy, _, site, status in line.fields["copies"]:
            stay = Stay(start=start, end=until, place=site, ready=status == "ACTIVE")
            _add(stays.setdefault((stage, part, copy), []), stay)
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    lanes = tuple(
        Lane(name=f"{letters[stage % 26]}{part}{'ps'[copy]}", stays=tuple(stays[stage, part, copy]))
        for stage, part, copy in sorted(stays)[:LANES_MAX]
    )
    moments = tuple(event for event in events if event.until is None)
    return Placement(title="Copies of partitions", x=SECONDS, lanes=lanes, events=moments)


def _add(stays: list[Stay], stay: Stay) -> None:
    """Add a stay, to the last one if nothing has changed."""
    last = stays[-1] if stays else None
    same = last is not None and (last.end, last.place, last.ready) == (
        stay.start,
        stay.place,
        stay.ready,
    )
    if last is not None and same:
        stays[-1] = replace(last, end=stay.end)
    else:
        stays.append(stay)


def _units(samples: Sequence[Sample], events: tuple[Event, ...], began: float) -> list[Chart]:
    by_unit: dict[str, list[Sample]] = {}
    for sample in samples:
        by_unit.setdefault(sample.unit, []).append(sample)

    def chart(title: str, metric: str, y: str) -> Chart:
        series = []
        for unit, mine in by_unit.items():
            points = [
                (s.t - began, float(value))
                for s in mine
                if isinstance(value := s.values.get(metric), int | float)
            ]
            series.append(Series(unit, tuple(points), steps=metric == "open_partitions"))
        most = sorted(series, key=lambda s: -max((v for _, v in s.points), default=0.0))
        drawn = tuple(s for s in most[:SERIES_MAX] if any(v for _, v in s.points))
        return Chart(title=title, x=SECONDS, y=y, series=drawn, events=events)

    charts = [
        chart("Throughput of the units", "rows_per_s", "rows/s"),
        chart("Partitions that wait for their seal", "open_partitions", "partitions"),
    ]
    return [panel for panel in charts if panel.series]


def _points(
    lines: Iterable[Line], began: float, value: Callable[[Line], float | None]
) -> tuple[tuple[float, float], ...]:
    points = [(line.t - began, value(line)) for line in lines]
    return tuple((t, float(v)) for t, v in points if v is not None)
