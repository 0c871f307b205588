"""What a run did, as one value with three renderings: text, Markdown, JSON.

Built from a run folder that has been read back, and from the table of metrics, which says what to
do about a value that is not as it should be.
"""

from __future__ import annotations

import itertools
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from blazes.report.plain import cells, printable
from blazes.report.progress import BAD_EVENTS, Event, Sample, amount, duration, event_text

TROUBLE: Final = (
    "quarantined_partitions",
    "dead_letters",
    "late_records",
    "dropped_by_watermark",
    "zookeeper_session_losses",
    "open_partitions",
)
"""Metrics that should be zero when a run ends, the worst first."""
EVENTS_LISTED: Final = 20
COLUMNS: Final = (
    "batches",
    "rows_in",
    "rows_out",
    "released_partitions",
    "open_partitions",
    "quarantined_partitions",
    "late_records",
    "dead_letters",
)
BARS: Final = "▁▂▃▄▅▆▇█"
BARS_SHOWN: Final = 40


class Metric(Protocol):
    """A row of the table of metrics."""

    @property
    def help(self) -> str:
        """What it means."""

    @property
    def runbook(self) -> str:
        """What to do."""


class Run(Protocol):
    """A run folder that has been read back."""

    @property
    def folder(self) -> Path:
        """Where it is."""

    @property
    def units(self) -> Mapping[str, Sample]:
        """The newest metrics of each unit."""

    @property
    def events(self) -> Sequence[Event]:
        """What happened, in order, as far as it is still there."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many events of each kind there were."""

    @property
    def summary(self) -> Mapping[str, Any] | None:
        """How it ended; None where it did not come to an end of its own."""

    @property
    def plan(self) -> Mapping[str, Any] | None:
        """plan.json of the compiled project."""

    @property
    def started(self) -> float | None:
        """Seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class Hint:
    """A value that is not as it should be."""

    unit: str
    metric: str
    value: float
    means: str
    remedy: str


@dataclass(frozen=True, slots=True)
class RunReport:
    """Everything that a report of a run says."""

    name: str
    folder: Path
    state: str
    """`finished`, `stopped`, `failed`, or `without an end`: running, or killed."""
    started: float | None
    wall_s: float | None
    units: Mapping[str, Mapping[str, Any]]
    rates: Mapping[str, tuple[float, ...]]
    """Unit -> rows per second over the run."""
    hints: tuple[Hint, ...]
    events: Mapping[str, int]
    """Kind -> how many."""
    telling: tuple[str, ...]
    """The last events that tell of trouble, one line each."""
    coordination: tuple[str, ...]
    """What waited for what, one line for each sealed or ordered unit."""
    error: str | None


def run_report(
    run: Run, history: Iterable[Sample], metrics: Mapping[str, Metric], *, name: str
) -> RunReport:
    """The report of a run.

    Args:
        run: the run folder, read back.
        history: every line of its metrics.
        metrics: the table of metrics.
        name: of the dataflow.
    """
    summary = run.summary or {}
    rates: dict[str, list[float]] = {}
    for sample in history:
        rate = sample.values.get("rows_per_s", 0.0)
        if not isinstance(rate, Mapping):
            rates.setdefault(sample.unit, []).append(rate)
    last = max([0.0, *(event.t for event in run.events)])
    wall_s = summary.get("wall_s", last - run.started if run.started and last else None)
    bad = [event for event in run.events if event.kind in BAD_EVENTS]
    return RunReport(
        name=name,
        folder=run.folder,
        state=str(summary.get("status", "finished" if run.summary else "without an end")),
        started=run.started,
        wall_s=None if wall_s is None else round(float(wall_s), 3),
        units={unit: dict(sample.values) for unit, sample in run.units.items()},
        rates={unit: tuple(values) for unit, values in rates.items()},
        hints=tuple(_hints(run.units, metrics)),
        events=dict(run.counts),
        telling=tuple(map(event_text, bad[-EVENTS_LISTED:])),
        coordination=tuple(_coordination(run.plan or {})),
        error=summary.get("error"),
    )


def to_json(report: RunReport) -> dict[str, Any]:
    """The report as JSON data."""
    return {
        "schema_version": 1,
        "dataflow": report.name,
        "run": str(report.folder),
        "state": report.state,
        "started": report.started,
        "wall_s": report.wall_s,
        "units": report.units,
        "hints": [
            {name: getattr(hint, name) for name in ("unit", "metric", "value", "means", "remedy")}
            for hint in report.hints
        ],
        "events": report.events,
        "coordination": report.coordination,
        "error": report.error,
    }


def to_markdown(report: RunReport) -> str:
    """The report as Markdown."""
    parts = [f"# {_md(report.name)}: {report.folder.name}", "", f"{headline(report)}", ""]
    if report.error:
        parts += ["## Error", "", f"    {printable(report.error)}", ""]
    if cells_ := table(report):
        heading, *rows = cells_
        parts += ["## Units", "", "| " + " | ".join(heading) + " |"]
        parts += ["|---" + "|--:" * (len(heading) - 1) + "|"]
        parts += ["| " + " | ".join(map(_md, row)) + " |" for row in rows] + [""]
    if report.coordination:
        parts += ["## Coordination", ""]
        parts += [*(f"- {_md(line)}" for line in report.coordination), ""]
    if report.hints:
        parts += ["## To look at", ""]
        for hint in report.hints:
            parts += [f"- **{_md(what(hint))}**: {_md(hint.means)} {_md(hint.remedy)}"]
        parts += [""]
    if report.events:
        parts += ["## Events", "", _md(counts(report)) + ".", ""]
        parts += [f"- {_md(line)}" for line in report.telling]
    return "\n".join(parts).rstrip() + "\n"


def to_text(report: RunReport, *, width: int = 80, unicode: bool = True) -> str:
    """The report for a terminal."""
    parts = [printable(f"{report.name}: {headline(report)}")]
    if report.error:
        parts += ["", *_wrapped(printable(report.error), width, "  ")]
    if rows := table(report):
        widths = [max(cells(row[at]) for row in rows) for at in range(len(rows[0]))]
        parts += [""]
        for row in rows:
            padded = [row[0] + " " * (widths[0] - cells(row[0]))]
            padded += [text.rjust(wide) for text, wide in zip(row[1:], widths[1:], strict=True)]
            parts += ["  ".join(padded).rstrip()]
    shapes = {unit: bars(rates) for unit, rates in report.rates.items() if len(rates) > 2}
    if shapes and unicode:
        parts += ["", "rows per second:"]
        parts += [f"  {printable(unit)}  {shape}" for unit, shape in shapes.items()]
    if report.coordination:
        parts += [""]
    for line in report.coordination:
        parts += _wrapped(line, width, "  ", first="")
    for hint in report.hints:
        parts += ["", printable(what(hint))]
        parts += _wrapped(f"{hint.means} {hint.remedy}", width, "  ")
    if report.events:
        parts += ["", *_wrapped(f"Events: {counts(report)}.", width, "")]
        parts += [f"  {line}" for line in report.telling]
    return "\n".join(parts) + "\n"


def bars(values: Sequence[float], number: int = BARS_SHOWN) -> str:
    """A series as small bars; of a long one, the mean of each part.

    >>> bars([0, 1, 2, 7])
    '▁▂▃█'
    """
    if len(values) > number:
        edges = [len(values) * at // number for at in range(number + 1)]
        parts = [values[a:b] for a, b in itertools.pairwise(edges)]
        values = [sum(part) / len(part) for part in parts]
    most = max(values, default=0)
    if most <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[round(value / most * (len(BARS) - 1))] for value in values)


def _hints(units: Mapping[str, Sample], metrics: Mapping[str, Metric]) -> Iterable[Hint]:
    for name in TROUBLE:
        for unit, sample in units.items():
            value = sample.values.get(name, 0)
            if not isinstance(value, Mapping) and value:
                yield Hint(unit, name, value, metrics[name].help, metrics[name].runbook)


def what(hint: Hint) -> str:
    """Whose value it is, and the value."""
    return f"{hint.unit}: {hint.metric} = {amount(hint.value)}"


def headline(report: RunReport) -> str:
    """How the run went, in a line."""
    when = "" if report.started is None else time.strftime(" %Y-%m-%d %H:%M:%S", _local(report))
    took = "" if report.wall_s is None else f", {duration(report.wall_s)}"
    rows = sum(values.get("rows_in", 0) for values in report.units.values())
    return f"{report.state}{when and ', started' + when}{took}, {amount(rows)} rows read"


def _local(report: RunReport) -> time.struct_time:
    assert report.started is not None
    return time.localtime(report.started)


def table(report: RunReport) -> list[list[str]]:
    """A heading and a row for each unit."""
    columns = [
        name for name in COLUMNS if any(values.get(name) for values in report.units.values())
    ]
    if not report.units:
        return []
    heading = ["unit", *(name.removesuffix("_partitions").replace("_", " ") for name in columns)]
    rows = [
        [printable(unit), *(amount(values[n]) if n in values else "" for n in columns)]
        for unit, values in report.units.items()
    ]
    return [heading, *rows]


def counts(report: RunReport) -> str:
    """How many events of which kind."""
    counts = (f"{kind.replace('_', ' ')} ({n})" for kind, n in report.events.items())
    return printable(", ".join(counts))


def _coordination(plan: Mapping[str, Any]) -> Iterable[str]:
    stages = plan.get("stages")
    for stage in stages if isinstance(stages, list) else []:
        if stage["kind"] in ("seal", "order") or "assumes" in stage:
            yield printable(f"{stage['name']}: {stage.get('assumes', stage['description'])}")


def _wrapped(text: str, width: int, indent: str, *, first: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        max(width, 30),
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
    )


def _md(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace("|", "\\|").replace("*", "\\*")
