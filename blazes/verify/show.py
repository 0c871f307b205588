"""The verdicts for people: a line for each claim, and every refutation as two runs side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Final

from blazes.document import blocks as b
from blazes.verify.claims import KINDS, Kind
from blazes.verify.experiment import Way
from blazes.verify.findings import Finding, Refutation, Report, Result, Status, tried_as
from blazes.verify.records import Item, Row, shown
from blazes.verify.weights import Weight

ROLES: Final = {
    Status.REFUTED: "bad",
    Status.STANDS: "good",
    Status.UNTESTED: "warn",
    Status.UNTESTABLE: "soft",
}
MARKS: Final = {
    Status.REFUTED: "✗",
    Status.STANDS: "✓",
    Status.UNTESTED: "?",
    Status.UNTESTABLE: "-",
}
WORDS: Final = {
    Result.REFUTED: "{} refuted",
    Result.INCONCLUSIVE: "inconclusive",
    Result.STANDS: "none refuted",
}
ROWS_MAX: Final = 8
"""Rows of an outcome that are shown."""


def document(report: Report) -> b.Document:
    """The document of `blazes verify`."""
    blocks = [_verdict(report), *b.section("Claims", [_claims(report.findings)])]
    for finding in report.refuted:
        blocks += _refuted(finding)
    if report.notes:
        blocks.append(b.Paragraph(report.notes, "aside", "soft"))
    again = f"{report.seconds:.0f} s; --seed {report.seed} gives the same cases again."
    blocks.append(b.paragraph(again, form="aside"))
    return b.Document(report.dataflow.name, tuple(blocks), about=str(report.dataflow.file or ""))


def _verdict(report: Report) -> b.Verdict:
    result = report.result
    status = {Result.REFUTED: Status.REFUTED, Result.STANDS: Status.STANDS}.get(
        result, Status.UNTESTED
    )
    sentences = [f"{_number(len(report.findings), 'claim')}: {_counts(report)}."]
    untested = [finding for finding in report.findings if finding.status is Status.UNTESTED]
    if untested:
        heavy = sum(finding.weight is Weight.VERDICT for finding in untested)
        sentences.append(
            f"Of {_number(len(untested), 'claim')} nobody knows whether "
            f"{'it holds' if len(untested) == 1 else 'they hold'}; the verdict of the analysis "
            f"rests on {heavy or 'none'} of them."
        )
    sentences.append(
        "Not refuted is not proved: no counterexample was found among the cases that ran."
    )
    word = WORDS[result].format(report.count(Status.REFUTED))
    return b.Verdict(MARKS[status], word, ROLES[status], tuple(sentences))


def _counts(report: Report) -> str:
    """How many claims have each verdict; of the rare ones only if there are any."""
    counts = {status: report.count(status) for status in Status}
    shown = [s for s in Status if counts[s] or s in (Status.REFUTED, Status.STANDS)]
    return ", ".join(f"{counts[status]} {status.value}" for status in shown)


def _claims(findings: Sequence[Finding]) -> b.Table:
    """A line for each claim, under its component."""
    rows: list[tuple[b.Words, ...]] = []
    for component, its in groupby(findings, _component):
        rows.append((component,))
        own = list(its)
        reasons = {finding.reason for finding in own}
        if len(reasons) == 1 and own[0].status in (Status.UNTESTED, Status.UNTESTABLE):
            rows.append(_line(own[0], about=""))
            continue
        rows += [_line(finding, about=finding.claim.text) for finding in own]
    return b.Table(("output", "claim", "not refuted in"), tuple(rows))


def _component(finding: Finding) -> str:
    operator = finding.claim.operator
    return operator.component if operator else "Functional dependencies"


def _line(finding: Finding, *, about: str) -> tuple[b.Words, b.Words, b.Words]:
    claim, status = finding.claim, finding.status
    if claim.path is not None and about:
        where = f"{claim.path.source} → {claim.path.target}"
    else:
        where = claim.operator.output if claim.operator else claim.where
    tries = ""
    match status:
        case Status.UNTESTED | Status.UNTESTABLE:
            about = f"{about}; {status.value}: " if about else f"{status.value}: "
            about += finding.reason
        case Status.REFUTED:
            tries = "refuted"
        case _ if claim.kind is Kind.FD:
            tries = _number(finding.tries, "stream")
        case _:
            tries = f"{_number(finding.tries, 'try')}, {tried_as(finding)} ({finding.engine})"
    role = ROLES[status]
    other = "" if status is Status.STANDS else role
    return b.Span(f"{MARKS[status]} {where}", role), b.Span(about, other), b.Span(tries, other)


def _refuted(finding: Finding) -> Iterator[b.Block]:
    claim, refutation = finding.claim, finding.refutation
    assert refutation is not None
    about = KINDS[claim.kind]
    yield b.Heading(claim.where.replace("->", "→"), str(claim.position or ""))
    source = "found in the data" if refutation.recorded else f"found by {refutation.found_by}"
    confirmed = "" if refutation.recorded else ", confirmed by Spark"
    count = f"{_number(refutation.case.records, 'record')}, {source}{confirmed}."
    aspects: list[tuple[str, Sequence[b.Block]]] = [
        ("Claim", [b.paragraph(claim.text)]),
        ("Refuted", [b.paragraph(about.broken)]),
        ("Input", [*_records(refutation), b.paragraph(count, role="soft")]),
    ]
    if claim.kind is Kind.KEY:
        names, rows = refutation.difference.columns, refutation.difference.only_second
        lines = _emitted(rows, names, _telling(names, rows), none="nothing")
        aspects.append(("Output", [b.paragraph(*lines)]))
    elif claim.kind is not Kind.FD:
        aspects.append(("Output", list(_side_by_side(finding, refutation))))
    aspects.append(("Instead", [b.paragraph(b.Span(about.remedy, "prose"))]))
    yield b.aspects(*aspects)


def _records(refutation: Refutation) -> Iterator[b.Block]:
    """The records as a table of what differs, and what is the same in all of them."""
    items = list(enumerate(refutation.items, 1))
    for interface, its in groupby(items, lambda placed: placed[1].interface):
        yield from _table(interface, refutation.columns[interface], list(its))


def _table(
    interface: str, names: tuple[str, ...], items: list[tuple[int, Item]]
) -> Iterator[b.Block]:
    first = items[0][1].row
    places = list(range(len(names)))
    if len(names) > 6:
        differ = [n for n in places if any(item.row[n] != first[n] for _, item in items)]
        places = differ or [n for n in places if first[n] is not None][:6]
    rows: list[tuple[b.Words, ...]] = [
        (
            b.Span(str(number), "strong"),
            b.Span(f"{item.times} times" if item.times > 1 else "", "name"),
            *(shown(item.row[n]) for n in places),
        )
        for number, item in items
    ]
    heads = ("", interface, *(names[n] for n in places))
    yield b.Table(heads, tuple(rows), right=[""])
    same = [
        f"{name} {shown(first[n])}"
        for n, name in enumerate(names)
        if n not in places and first[n] is not None
    ]
    if same:
        yield b.paragraph("and the same in all: " + ", ".join(same), role="soft")


def _side_by_side(finding: Finding, refutation: Refutation) -> Iterator[b.Block]:
    """Both runs: how the records came, and what was emitted that the other run did not emit."""
    difference = refutation.difference
    sides = (difference.only_first, difference.only_second)
    places = _telling(difference.columns, [*sides[0], *sides[1]])
    none = "nothing more" if difference.both else "nothing"
    one, other = (_emitted(rows, difference.columns, places, none=none) for rows in sides)
    batches = tuple(b.Span(_batches(way), "soft") for way in refutation.ways)
    lines = zip_longest(one, other, fillvalue=b.Span(""))
    yield b.Table(KINDS[finding.claim.kind].ways, (batches, *lines))
    if difference.both:
        yield b.paragraph(f"and {_number(difference.both, 'row')} that both emitted", role="soft")


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
    rows: Sequence[Row], names: tuple[str, ...], places: tuple[int, ...], *, none: str
) -> list[b.Span]:
    lines = [", ".join(f"{names[n]} {shown(row[n])}" for n in places) for row in rows[:ROWS_MAX]]
    if len(rows) > ROWS_MAX:
        lines.append(f"and {len(rows) - ROWS_MAX} more")
    return [b.Span(line, "bad") for line in lines] or [b.Span(none, "soft")]


def _number(count: int, thing: str) -> str:
    """A number of things.

    >>> _number(1, "record"), _number(2, "try")
    ('1 record', '2 tries')
    """
    plural = thing[:-1] + "ies" if thing.endswith("y") else thing + "s"
    return f"{count} {thing if count == 1 else plural}"
