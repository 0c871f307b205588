"""`blazes top`: a running job on one screen, and the same as JSON.

Built from a run folder alone: units, Flux stages with their sites, partitions and copies, what
failed and recovered, and the last events.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from blazes.document import blocks as b
from blazes.document.plain import bars
from blazes.report.progress import BAD_EVENTS, amount, duration, events, recent, units

if TYPE_CHECKING:
    from blazes.report.progress import Event
    from flux_runtime.observe.reader import Sample
    from flux_runtime.observe.stages import Copy, Stage

EVENTS_SHOWN: Final = 6
PARTITIONS_SHOWN: Final = 8
SITES_SHOWN: Final = 24
METER: Final = 10
"""Cells of a bar."""
QUIET: Final = frozenset({"view_change"})
"""Kinds of event that the partitions' table tells better."""
ALARMING: Final = frozenset({*BAD_EVENTS, "site_failed", "data_loss", "disturbed"})
SILENT_S: Final = 3.0
"""A site that has reported nothing for longer is marked."""


@dataclass(frozen=True, slots=True)
class Top:
    """The content of the screen.

    Attributes:
        name: of the dataflow.
        run: name of the run folder.
        state: `running`, `finished`, ...
        elapsed_s: since the run began.
        now: seconds since the epoch.
        units: their newest metrics.
        stages: the Flux stages.
        rates: stage -> its latest throughputs, oldest first.
        events: what happened.
    """

    name: str
    run: str
    state: str
    elapsed_s: float
    now: float
    units: Sequence[Sample]
    stages: Sequence[Stage]
    rates: Mapping[str, Sequence[float]]
    events: Sequence[Event]


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: its name, its copies, and what the busiest copy's site says of it."""

    name: str
    copies: tuple[Copy, ...]
    values: Mapping[str, float]


def letter(stage: int) -> str:
    """The name of an operator of a stage.

    >>> letter(0), letter(27)
    ('A', 'S27')
    """
    return chr(ord("A") + stage) if stage < 26 else f"S{stage}"


def copy_name(copy: Copy) -> str:
    """Operator, partition, `p` or `s` (primary, secondary), and a sign while it is not whole."""
    sign = {"ACTIVE": "", "STANDBY": "~", "PAUSE": "="}.get(copy.status, "?")
    return f"{letter(copy.stage)}{copy.part}{'ps'[copy.copy]}{sign}"


def partitions(stage: Stage) -> list[Partition]:
    """All partitions, the busiest first."""
    numbers: dict[tuple[int, int], dict[str, float]] = {}
    for site in stage.sites:
        for part in site.report.get("parts") or ():
            known = numbers.setdefault(tuple(part["node"][:2]), {})
            for name, value in part.items():
                if isinstance(value, int | float):
                    known[name] = max(known.get(name, 0.0), float(value))
    copies: dict[tuple[int, int], list[Copy]] = {}
    for copy in stage.copies:
        copies.setdefault((copy.stage, copy.part), []).append(copy)
    placed = [
        Partition(f"{letter(at)}{part}", tuple(which), numbers.get((at, part), {}))
        for (at, part), which in sorted(copies.items())
    ]
    return sorted(placed, key=lambda p: -p.values.get("cpu", 0.0))


def headline(stage: Stage) -> str:
    """Whether the stage is as it should be, in a few words."""
    if stage.losses:
        return f"{stage.losses} partitions lost"
    if not stage.sites:
        return "waiting for sites"
    if stage.whole:
        return "whole"
    alone = sum(len(p.copies) < 2 for p in partitions(stage))
    coming = sum(copy.status != "ACTIVE" for copy in stage.copies)
    return f"{alone} partitions with one copy, {coming} copies catching up"


def to_json(top: Top) -> dict[str, Any]:
    """The screen as data."""
    return {
        "schema_version": 1,
        "dataflow": top.name,
        "run": top.run,
        "state": top.state,
        "elapsed_s": round(top.elapsed_s, 3),
        "units": {sample.unit: dict(sample.values) for sample in top.units},
        "stages": {stage.name: _stage_json(stage) for stage in top.stages},
        "events": [
            {"t": e.t, "kind": e.kind, "unit": e.unit, **e.fields}
            for e in _telling(top.events, EVENTS_SHOWN)
        ],
    }


def _stage_json(stage: Stage) -> dict[str, Any]:
    return {
        "state": headline(stage),
        "whole": stage.whole,
        **{name: value for name, value in stage.values.items() if name not in ("t", "failures")},
        "latency_ms": dict(stage.latency_ms),
        "failures": stage.failures,
        "recoveries_s": list(stage.recoveries_s),
        "moves": stage.moves,
        "losses": stage.losses,
        "sites": [
            {
                "site": site.number,
                "host": site.host,
                "executor": site.executor,
                "copies": [copy_name(copy) for copy in stage.hosted(site.number)],
                "report": {k: v for k, v in site.report.items() if type(v) in (int, float)},
            }
            for site in stage.sites
        ],
        "partitions": [
            {
                "partition": partition.name,
                "copies": [{"site": c.site, "status": c.status.lower()} for c in partition.copies],
                **partition.values,
            }
            for partition in partitions(stage)
        ],
    }


def document(top: Top) -> b.Document:
    """The screen."""
    blocks: list[b.Block] = [units(top.units)] if top.units else []
    for stage in top.stages:
        blocks += _stage(top, stage)
    if shown := _telling(top.events, EVENTS_SHOWN):
        blocks.append(events(shown, ALARMING))
    state = b.Span(top.state, "good" if top.state == "running" else "strong")
    about = (state, f"  {duration(top.elapsed_s)}  {top.run}")
    return b.Document(top.name, tuple(blocks), about=about)


def _stage(top: Top, stage: Stage) -> Iterator[b.Block]:
    state = headline(stage)
    values = stage.values
    rates = top.rates.get(stage.name, ())
    shape = f"  {bars(list(rates), 30)}" if len(rates) > 2 else ""
    rate = f"  {amount(values.get('rows_per_s', 0))} rows/s"
    batches = [f"{int(values.get(name, 0)):,} {word}" for name, word in _BATCHES]
    last = f", the last in {_seconds(stage.recoveries_s[-1])}" if stage.recoveries_s else ""
    failures = b.Span(f"failures: {stage.failures}", "warn" if stage.failures else "")
    yield b.paragraph(
        (
            b.Span("Flux stage ", "soft"),
            b.Span(stage.name, "strong"),
            "  ",
            b.Span(state, "good" if state == "whole" else "warn"),
        ),
        (rate, b.Span(shape, "seal"), "   ", *_latency(stage)),
        f"  batches: {', '.join(batches)}",
        ("  ", failures, f", recoveries: {stage.recoveries}{last}, moves: {stage.moves}"),
        form="verbatim",
    )
    yield _sites(top, stage)
    yield _partitions(stage)


_BATCHES: Final = (
    ("batches", "numbered"),
    ("waiting", "waiting"),
    ("under_way", "under way"),
    ("committed", "committed"),
)


def _latency(stage: Stage) -> Iterator[b.Span]:
    yield b.Span("latency ", "soft")
    if not stage.latency_ms:
        yield b.Span("-")
    for name in ("p50", "p95", "max"):
        if name in stage.latency_ms:
            yield b.Span(f"{name} ", "soft")
            yield b.Span(f"{_ms(stage.latency_ms[name])} ")


def _sites(top: Top, stage: Stage) -> b.Table:
    numbers = ("site", "executor", "pid", "rows/s", "cpu", "state", "held", "busy")
    rows: list[tuple[b.Words, ...]] = []
    for site in sorted(stage.sites, key=lambda s: s.number)[:SITES_SHOWN]:
        silent = site.t is None or top.now - site.t > SILENT_S
        busy = site.value("utilisation") if "utilisation" in site.report else site.value("busy")
        texts = (
            str(site.number),
            site.host,
            site.executor,
            f"{site.value('pid'):.0f}",
            amount(site.value("rows_per_s")),
            f"{site.value('cpu'):.0%}",
            _bytes(site.value("state_bytes")),
            amount(site.value("buffered_units")),
            f"{busy:.0%}",
            _meter(busy),
        )
        look = "soft" if silent and top.state == "running" else ""
        copies = tuple(
            b.Span(copy_name(copy) + " ", "" if copy.status == "ACTIVE" else "warn")
            for copy in stage.hosted(site.number)
        )
        rows.append((*(b.Span(text, look) for text in texts), copies))
    names = (numbers[0], "host", *numbers[1:], "", "copies")
    spare = {"pid": 3, "executor": 2, "": 1}
    return b.Table(names, tuple(rows), right=numbers, spare=spare, wrap=False)


def _partitions(stage: Stage) -> b.Table:
    listed = partitions(stage)
    rows = []
    for partition in listed[:PARTITIONS_SHOWN]:
        values = partition.values
        where = "".join(
            f"{copy.site}{'' if copy.status == 'ACTIVE' else ' ' + copy.status.lower()} "
            for copy in partition.copies
        )
        replicated = len(partition.copies) > 1 and all(
            c.status == "ACTIVE" for c in partition.copies
        )
        rows.append(
            (
                partition.name,
                b.Span(where, "" if replicated else "warn"),
                amount(values.get("rows_per_s", 0)),
                f"{values.get('cpu', 0):.1%}",
                _bytes(values.get("state_bytes", 0)),
                amount(values.get("queued_units", 0)),
                amount(values.get("buffered_units", 0)),
                "on disk" if values.get("on_disk") else "",
            )
        )
    numbers = ("rows/s", "cpu", "state", "queued", "held")
    names = ("partition", "at sites", *numbers, "")
    more = max(0, len(listed) - PARTITIONS_SHOWN)
    return b.Table(names, tuple(rows), right=numbers, wrap=False, more=more)


def _telling(events: Sequence[Event], number: int) -> list[Event]:
    return recent([event for event in events if event.kind not in QUIET], number)


def _meter(part: float) -> str:
    full = round(min(max(part, 0.0), 1.0) * METER)
    return "█" * full + "░" * (METER - full)


def _bytes(number: float) -> str:
    """Bytes for people.

    >>> [_bytes(n) for n in (0, 2048, 5_000_000)]
    ['0', '2.0K', '4.8M']
    """
    for unit, size in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if number >= size:
            return f"{number / size:.1f}{unit}"
    return f"{number:.0f}"


def _ms(value: float) -> str:
    """A latency.

    >>> [_ms(v) for v in (0.42, 7.4, 310, 2500)]
    ['0.4 ms', '7.4 ms', '310 ms', '2.5 s']
    """
    if value >= 1000:
        return f"{value / 1000:.1f} s"
    return f"{value:.0f} ms" if value >= 10 else f"{value:.1f} ms"


def _seconds(value: float) -> str:
    return _ms(value * 1000)
