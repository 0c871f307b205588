"""The report of a run, as one value, as JSON and as a document.

Built from a run folder that has been read back, and from the table of metrics, which says what to
do about a value that is not as it should be.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from blazes.document import blocks as b
from blazes.report.progress import BAD_EVENTS, amount, duration, event_text

if TYPE_CHECKING:
    from flux_runtime.observe.metrics import Metric
    from flux_runtime.observe.reader import Run, Sample
    from flux_runtime.observe.stages import Stage

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
COLUMNS: Final = {
    "batches": 2,
    "rows_in": 0,
    "rows_out": 1,
    "released_partitions": 1,
    "open_partitions": 0,
    "quarantined_partitions": 0,
    "late_records": 0,
    "dead_letters": 0,
}
"""Metric -> what is left out first where there is no room."""


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


def document(
    report: RunReport,
    *,
    charts: Sequence[b.Charts] = (),
    stages: Mapping[str, Stage] | None = None,
    dead_letters: Mapping[str, Mapping[str, int]] | None = None,
) -> b.Document:
    """The document of `blazes report`.

    Args:
        report: of the run.
        charts: of the run.
        stages: its Flux stages at the end, by name.
        dead_letters: unit -> reason -> how many.
    """
    blocks: list[b.Block] = []
    if report.error:
        blocks += b.section("Error", [b.paragraph(report.error, role="bad")])
    if report.hints:
        hints = (
            b.Entry(
                _hint_value(hint), (b.paragraph(b.Span(f"{hint.means} {hint.remedy}", "prose")),)
            )
            for hint in report.hints
        )
        blocks += b.section("To look at", [b.Entries(tuple(hints), "below")])
    if report.units:
        blocks += b.section("Units", [_units(report)])
    shapes = tuple((unit, rates) for unit, rates in report.rates.items() if len(rates) > 2)
    blocks += [b.Charts("Rows per second", bars=shapes), *charts]
    if stages:
        blocks += b.section("Flux stages", [_stages(stages)])
    if report.coordination:
        blocks += b.section("Coordination", [b.Paragraph(report.coordination, "list")])
    if dead_letters:
        rows = tuple(
            (unit, reason, amount(number))
            for unit, reasons in dead_letters.items()
            for reason, number in reasons.items()
        )
        table = b.Table(("unit", "reason", "records"), rows, right=["records"])
        blocks += b.section("Dead letters", [table])
    if report.events:
        events = [b.Paragraph(report.telling, "verbatim")] if report.telling else []
        blocks += b.section("Events", [b.paragraph(f"{counts(report)}."), *events])
    title = f"{report.name}: {report.folder.name}"
    return b.Document(title, tuple(blocks), lead=headline(report))


def _hints(units: Mapping[str, Sample], metrics: Mapping[str, Metric]) -> Iterable[Hint]:
    for name in TROUBLE:
        for unit, sample in units.items():
            value = sample.values.get(name, 0)
            if not isinstance(value, Mapping) and value:
                yield Hint(unit, name, value, metrics[name].help, metrics[name].runbook)


def _hint_value(hint: Hint) -> str:
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


def _units(report: RunReport) -> b.Table:
    """A row for each unit."""
    titles = {
        name: name.removesuffix("_partitions").replace("_", " ")
        for name in COLUMNS
        if any(values.get(name) for values in report.units.values())
    }
    rows = tuple(
        (unit, *(amount(values[name]) if name in values else "" for name in titles))
        for unit, values in report.units.items()
    )
    spare = {title: COLUMNS[name] for name, title in titles.items() if COLUMNS[name]}
    return b.Table(("unit", *titles.values()), rows, right=[*titles.values()], spare=spare)


def _stages(stages: Mapping[str, Stage]) -> b.Table:
    heads = ("rows", "batches", "failures", "recoveries", "longest", "moves", "lost")
    rows = tuple(
        (
            name,
            f"{stage.values.get('rows', 0):,.0f}",
            f"{stage.values.get('batches', 0):,.0f}",
            str(stage.failures),
            str(stage.recoveries),
            f"{max(stage.recoveries_s) * 1000:,.0f} ms" if stage.recoveries_s else "",
            str(stage.moves),
            str(stage.losses),
        )
        for name, stage in stages.items()
    )
    return b.Table(("stage", *heads), rows, right=heads)


def counts(report: RunReport) -> str:
    """How many events of which kind."""
    counts = (f"{kind.replace('_', ' ')} ({n})" for kind, n in report.events.items())
    return ", ".join(counts)


def _coordination(plan: Mapping[str, Any]) -> Iterable[str]:
    stages = plan.get("stages")
    for stage in stages if isinstance(stages, list) else []:
        if stage["kind"] in ("seal", "order") or "assumes" in stage:
            yield f"{stage['name']}: {stage.get('assumes', stage['description'])}"
