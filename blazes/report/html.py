"""The report as one HTML page that needs nothing else: no script, font or picture from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from annotations.dataflow import Position
from annotations.diagnostics import Diagnostic
from annotations.vocabulary import StreamLabel
from blazes.analysis import Derivation, Step
from blazes.coordination import Plan
from blazes.report import notation, words
from blazes.report.diagram import diagram_of
from blazes.report.findings import Finding, consequences, derived_paths, finding, tolerated
from blazes.report.index import Index
from blazes.report.page import (
    bullets,
    document,
    folded,
    label_class,
    paragraphs,
    scrolling,
    shown,
    table,
)
from blazes.report.results import repair_sentence, results
from blazes.report.svg import svg

LARGE: Final = 40
"""Above so many components the drawing has their names only, and the table of streams is folded."""
MOST: Final = 100
"""Findings in full."""


def page(plan: Plan, *, warnings: Sequence[Diagnostic] = (), everything: bool = False) -> str:
    """The whole page."""
    title = f"{plan.analysis.dataflow.name}: {plan.analysis.verdict}"
    return document(title, _body(Index.of(plan), warnings, everything))


def _body(index: Index, warnings: Sequence[Diagnostic], everything: bool) -> Iterator[str]:
    plan = index.plan
    dataflow = plan.analysis.dataflow
    chosen = [f"{c.name}={c.variant}" for c in dataflow.components.values() if c.variant]
    about = [
        str(dataflow.file or ""),
        *chosen,
        f"rules {plan.analysis.rules}",
        f"target {plan.target}",
    ]
    yield f"<h1>{shown(dataflow.name)}</h1>"
    yield f'<p class="about">{shown(", ".join(part for part in about if part))}</p>'
    verdict = StreamLabel(plan.analysis.verdict) if plan.analysis.verdict.value > 1 else None
    label = _label(verdict) if verdict else '<span class="label">Seal</span>'
    yield f'<p class="verdict">{label} {shown(words.verdict(plan))}</p>'
    for said in words.further(plan, warnings):
        yield f"<p>{shown(said)}</p>"
    large = len(index.components) > LARGE
    drawing = svg(diagram_of(plan, names_only=large))
    yield f"<h2>Dataflow</h2>\n{scrolling(drawing, 'Drawing of the dataflow', drawing=True)}"
    yield "<h2>Streams</h2>"
    count = words.number(len(index.components), "component")
    said = f"{count}, {words.number(len(dataflow.streams), 'stream')}"
    yield folded(said, _streams(plan)) if large and not everything else _streams(plan)
    told = [each.sentence for each in results(plan) if not each.plain]
    if told:
        yield f"<h2>Results, without the plan</h2>\n{bullets(told[:MOST])}"
    if plan.repairs.items:
        lines = [repair_sentence(each) for each in plan.repairs.items[:MOST]]
        yield f"<h2>Records that come again</h2>\n{bullets(lines)}"
    names = index.need_coordination()
    for name in names if everything else names[:MOST]:
        yield from _finding(finding(index, name))
    if not everything and len(names) > MOST:
        yield f"<h2>{words.number(len(names) - MOST, 'more component')} to coordinate</h2>"
    yield from _rest(index, warnings)


def _streams(plan: Plan) -> str:
    rows = [
        [
            *map(
                shown, (name, str(stream.producer or "outside"), str(stream.consumer or "outside"))
            ),
            _label(plan.analysis.labels[name]),
            _label(plan.repaired[name]),
        ]
        for name, stream in plan.analysis.dataflow.streams.items()
    ]
    return table("Streams", ["Stream", "From", "To", "Label", "With the plan"], rows)


def _finding(found: Finding) -> Iterator[str]:
    yield f"<h2>{shown(found.title)} {_at(found.position)}</h2>"
    yield paragraphs(found.why)
    for derivation in found.derivations:
        yield _proof(derivation)
    yield f"<dl><dt>Plan<dd>{paragraphs(found.does)}"
    if found.cheaper:
        yield f"<dt>Cheaper<dd>{bullets(found.cheaper)}"
    rows = [
        [
            f"{shown(path.source)} &rarr; {shown(path.target)}",
            shown(str(path.annotation)),
            _at(path.position),
        ]
        for path in found.paths
    ]
    name = f"Paths of {found.title}"
    yield f"<dt>Paths<dd>{table(name, ['Path', 'Annotation', 'Where'], rows)}</dl>"


def _proof(derivation: Derivation) -> str:
    steps = "".join(map(_step, derivation.steps))
    by = shown(notation.name_of(derivation))
    proof = (
        f'<div class="step"><div class="over premises">{steps}</div><span class="rule">{by}</span>'
        f'<div class="under">{_label(derivation.label)}</div></div>'
    )
    name = f"Derivation of {derivation.component}.{derivation.output}"
    return f'<div class="proof">{scrolling(proof, name)}</div>'


def _step(step: Step) -> str:
    premise = f"{_label(step.input)} {shown(str(step.path.annotation))}"
    return (
        f'<div class="step"><div class="over">{premise}</div>'
        f'<span class="rule">({shown(", ".join(notation.rules_of(step)))})</span>'
        f'<div class="under">{shown(notation.conclusion_of(step))}</div></div>'
    )


def _rest(index: Index, warnings: Sequence[Diagnostic]) -> Iterator[str]:
    further = list(consequences(index))[:MOST]
    if further:
        yield "<h2>Further down, without coordination</h2>\n<dl>"
        for each in further:
            name = shown(f"{each.derivation.component}.{each.derivation.output}")
            yield f"<dt>{name} {_label(each.derivation.label)} {_at(each.position)}"
            yield f"<dd>{paragraphs(each.why)}"
        yield "</dl>"
    derived = list(derived_paths(index))[:MOST]
    if derived:
        yield "<h2>Derived from the code</h2>\n<dl>"
        for found in derived:
            path = found.path
            ends = f"{shown(path.source)} &rarr; {shown(path.target)}"
            yield f"<dt>{shown(found.component)} {ends} {shown(str(path.annotation))}"
            yield f"<dd>{paragraphs(found.reasons)}"
        yield "</dl>"
    left = [f"{each.component} {each.path} ({each.cause})" for each in tolerated(index)][:MOST]
    if left:
        yield f"<h2>Left as it is</h2>\n{bullets(left)}"
    inherited = [f"{each.origin}: {each.label}, {each.reason}" for each in index.plan.inherited]
    if inherited:
        yield f"<h2>Not repairable by coordination</h2>\n{bullets(inherited[:MOST])}"
    if warnings:
        yield f"<h2>Warnings</h2>\n{bullets(map(str, warnings))}"


def _label(label: StreamLabel) -> str:
    return f'<span class="label {label_class(label.label)}">{shown(str(label))}</span>'


def _at(position: Position | None) -> str:
    return f'<span class="at">{shown(str(position))}</span>' if position else ""
