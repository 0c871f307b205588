"""The verdicts for people: a line for each claim, and every refutation as two runs side by side."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from blazes.report.layout import INDENT, Layout, heading, named, paragraph, printed
from blazes.report.plain import printable
from blazes.verify.claims import KINDS, Kind
from blazes.verify.experiment import Way
from blazes.verify.findings import Finding, Refutation, Report, Result, Status, tried_as
from blazes.verify.records import Item, Row, shown
from blazes.verify.weights import Weight

STYLES: Final = {
    Status.REFUTED: "bold red",
    Status.STANDS: "green",
    Status.UNTESTED: "yellow",
    Status.UNTESTABLE: "dim",
}
WORDS: Final = {
    Result.REFUTED: "{} refuted",
    Result.INCONCLUSIVE: "inconclusive",
    Result.STANDS: "none refuted",
}
ROWS_MAX: Final = 8
"""Rows of an outcome that are shown."""


def as_text(report: Report, layout: Layout) -> str:
    """What `blazes verify` prints."""
    return printed(parts_of(report, layout), layout)


def parts_of(report: Report, layout: Layout) -> list[RenderableType]:
    """The parts of the report, in order."""
    parts: list[RenderableType] = [_title(report), _verdict(report, layout), ""]
    parts += [heading("Claims", None, layout), _claims(report.findings, layout)]
    for finding in report.refuted:
        parts += ["", *_refuted(finding, layout)]
    if report.notes:
        parts += ["", *(Text(printable(note), style="dim") for note in report.notes)]
    parts += ["", Text(f"{report.seconds:.0f} s; --seed {report.seed} gives the same cases again.")]
    return parts


def _title(report: Report) -> Text:
    text = Text(printable(report.dataflow.name), style="bold")
    text.append(printable(f"  {report.dataflow.file or ''}"), style="dim not bold")
    return text


def _verdict(report: Report, layout: Layout) -> RenderableType:
    result = report.result
    status = {Result.REFUTED: Status.REFUTED, Result.STANDS: Status.STANDS}.get(
        result, Status.UNTESTED
    )
    refuted = report.count(Status.REFUTED)
    mark = Text(f"{_mark(status, layout)} {WORDS[result].format(refuted)}", style=STYLES[status])
    said = [f"{_number(len(report.findings), 'claim')}: {_counts(report)}."]
    untested = [each for each in report.findings if each.status is Status.UNTESTED]
    if untested:
        heavy = sum(each.weight is Weight.VERDICT for each in untested)
        said.append(
            f"Of {_number(len(untested), 'claim')} nobody knows whether "
            f"{'it holds' if len(untested) == 1 else 'they hold'}; the verdict of the analysis "
            f"rests on {heavy or 'none'} of them."
        )
    said.append("Not refuted is not proved: no counterexample was found among the cases that ran.")
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(mark, paragraph(said))
    return Padding(grid, (1, 0, 0, 0))


def _counts(report: Report) -> str:
    """How many claims have each verdict; of the rare ones only if there are any."""
    counts = {status: report.count(status) for status in Status}
    shown = [s for s in Status if counts[s] or s in (Status.REFUTED, Status.STANDS)]
    return ", ".join(f"{counts[status]} {status.value}" for status in shown)


def _mark(status: Status, layout: Layout) -> str:
    if status is Status.UNTESTED:
        return "?"
    if status is Status.UNTESTABLE:
        return "-"
    return layout.glyphs.bad if status is Status.REFUTED else layout.glyphs.good


def _claims(findings: Sequence[Finding], layout: Layout) -> RenderableType:
    """A line for each claim, under its component."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    if any(finding.status is Status.STANDS for finding in findings):
        grid.add_row("", "", Text("not refuted in", style="dim"))
    for component, its in groupby(findings, _component):
        grid.add_row(Text(printable(component), style="bold"))
        own = list(its)
        reasons = {finding.reason for finding in own}
        if len(reasons) == 1 and own[0].status in (Status.UNTESTED, Status.UNTESTABLE):
            grid.add_row(*_line(own[0], layout, about=""))
            continue
        for finding in own:
            grid.add_row(*_line(finding, layout, about=finding.claim.text))
    return Padding(grid, (0, 0, 0, INDENT))


def _component(finding: Finding) -> str:
    operator = finding.claim.operator
    return operator.component if operator else "Functional dependencies"


def _line(finding: Finding, layout: Layout, *, about: str) -> tuple[Text, Text, Text]:
    claim, status = finding.claim, finding.status
    if claim.path is not None and about:
        where = f"{claim.path.source} {layout.glyphs.path} {claim.path.target}"
    else:
        where = claim.operator.output if claim.operator else claim.where
    told = ""
    match status:
        case Status.UNTESTED | Status.UNTESTABLE:
            about = f"{about}; {status.value}: " if about else f"{status.value}: "
            about += finding.reason
        case Status.REFUTED:
            told = "refuted"
        case _ if claim.kind is Kind.FD:
            told = _number(finding.tries, "stream")
        case _:
            told = f"{_number(finding.tries, 'try')}, {tried_as(finding)} ({finding.engine})"
    style = STYLES[status]
    mark = Text(f"{_mark(status, layout)} {printable(where)}", style=style)
    other = "" if status is Status.STANDS else style
    return mark, Text(printable(about), style=other), Text(told, style=other)


def _refuted(finding: Finding, layout: Layout) -> Iterator[RenderableType]:
    claim, refutation = finding.claim, finding.refutation
    assert refutation is not None
    about = KINDS[claim.kind]
    where = claim.where.replace("->", layout.glyphs.path)
    yield heading(where, claim.position, layout)
    source = "found in the data" if refutation.recorded else f"found by {refutation.found_by}"
    confirmed = "" if refutation.recorded else ", confirmed by Spark"
    rows: list[tuple[str, RenderableType]] = [("Claim", Text(printable(claim.text)))]
    rows.append(("Refuted", paragraph([about.broken])))
    count = refutation.case.records
    rows.append(("Input", _records(refutation)))
    rows.append(("", Text(f"{_number(count, 'record')}, {source}{confirmed}.", style="dim")))
    if claim.kind is Kind.KEY:
        rows.append(("Output", _rows(refutation, refutation.difference.only_second)))
    elif claim.kind is not Kind.FD:
        rows.append(("Output", _side_by_side(finding, refutation, layout)))
    rows.append(("Instead", paragraph([about.remedy])))
    yield named(rows)


def _records(refutation: Refutation) -> RenderableType:
    """The records as a table of what differs, and what is the same in all of them."""
    lines: list[RenderableType] = []
    items = list(enumerate(refutation.items, 1))
    for interface, its in groupby(items, lambda each: each[1].interface):
        some = list(its)
        names = refutation.columns[interface]
        lines.append(_table(interface, names, some, repeated=any(i.times > 1 for _, i in some)))
    return Group(*lines)


def _table(
    interface: str, names: tuple[str, ...], items: list[tuple[int, Item]], *, repeated: bool
) -> RenderableType:
    wide = len(names) > 6
    places = range(len(names))
    if wide:
        first = items[0][1].row
        differ = [n for n in places if any(item.row[n] != first[n] for _, item in items)]
        places_shown = differ or [n for n in places if first[n] is not None][:6]
    else:
        places_shown = list(places)
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(justify="right", style="bold")
    grid.add_column(style="italic", overflow="fold")
    for _ in places_shown:
        grid.add_column(overflow="fold")
    head = [Text(printable(names[n]), style="dim") for n in places_shown]
    grid.add_row("", Text(printable(interface), style="italic"), *head)
    for number, item in items:
        times = f"{item.times} times" if repeated and item.times > 1 else ""
        cells = [Text(printable(shown(item.row[n]))) for n in places_shown]
        grid.add_row(str(number), times, *cells)
    same = [
        f"{names[n]} {shown(items[0][1].row[n])}"
        for n in places
        if n not in places_shown and items[0][1].row[n] is not None
    ]
    if not same:
        return grid
    rest = Text(printable("and the same in all: " + ", ".join(same)), style="dim")
    return Group(grid, Padding(rest, (0, 0, 0, 3)))


def _side_by_side(finding: Finding, refutation: Refutation, layout: Layout) -> RenderableType:
    """Both runs: how the records came, and what was emitted that the other run did not emit."""
    about, difference = KINDS[finding.claim.kind], refutation.difference
    grid = Table.grid(padding=(0, 4, 0, 0))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    grid.add_row(*(Text(name, style="bold") for name in about.ways))
    grid.add_row(*(Text(_batches(way), style="dim") for way in refutation.ways))
    sides = (difference.only_first, difference.only_second)
    columns = _telling(difference.columns, [*sides[0], *sides[1]])
    none = "nothing more" if difference.both else "nothing"
    grid.add_row(*(_emitted(rows, difference.columns, columns, none=none) for rows in sides))
    if difference.both:
        both = f"and {_number(difference.both, 'row')} that both emitted"
        return Group(grid, Text(both, style="dim"))
    return grid


def _batches(way: Way) -> str:
    """The micro-batches: `records 1 2, then 3`."""
    parts = [" ".join(str(n + 1) for n in batch) for batch in way.batches]
    return f"records {', then '.join(parts)}"


def _telling(columns: tuple[str, ...], rows: Sequence[Row]) -> tuple[int, ...]:
    """Columns to show of an outcome: all of a few, else those that are not null or differ."""
    if len(columns) <= 6 or not rows:
        return tuple(range(len(columns)))
    differ = [n for n in range(len(columns)) if len({row[n] for row in rows}) > 1]
    return tuple(differ or range(6))


def _emitted(
    rows: Sequence[Row], names: tuple[str, ...], columns: tuple[int, ...], *, none: str = "nothing"
) -> Text:
    if not rows:
        return Text(none, style="dim")
    lines = [", ".join(f"{names[n]} {shown(row[n])}" for n in columns) for row in rows[:ROWS_MAX]]
    if len(rows) > ROWS_MAX:
        lines.append(f"and {len(rows) - ROWS_MAX} more")
    return Text(printable("\n".join(lines), keep="\n"), style="red")


def _rows(refutation: Refutation, rows: Sequence[Row]) -> Text:
    names = refutation.difference.columns
    return _emitted(rows, names, _telling(names, rows))


def _number(count: int, thing: str) -> str:
    """A number of things.

    >>> _number(1, "record"), _number(2, "try")
    ('1 record', '2 tries')
    """
    plural = thing[:-1] + "ies" if thing.endswith("y") else thing + "s"
    return f"{count} {thing if count == 1 else plural}"


@contextlib.contextmanager
def progress() -> Iterator[Callable[[str, int, int], None]]:
    """A bar on stderr while claims are tested, where that is a terminal."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, of: bar.update(
            task, description=printable(what), completed=done, total=of or None
        )
