"""The report as one HTML page that needs nothing else: no script, font or picture from outside."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from annotations.dataflow import Position
from annotations.diagnostics import Diagnostic
from annotations.vocabulary import StreamLabel
from blazes.analysis import Derivation, Step
from blazes.coordination import Plan
from blazes.report import notation, words
from blazes.report.diagram import COLOURS, diagram_of
from blazes.report.findings import Finding, consequences, derived_paths, finding, tolerated
from blazes.report.index import Index
from blazes.report.markup import escape
from blazes.report.plain import printable
from blazes.report.results import repair_sentence, results
from blazes.report.svg import svg

LARGE: Final = 40
"""Above so many components there is no drawing and no table of streams."""
MOST: Final = 100
"""Findings in full."""

STYLE: Final = """
:root { color-scheme: light dark; --ink: #212529; --soft: #868e96; --line: #dee2e6; --back: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e9ecef; --soft: #adb5bd; --line: #495057; --back: #16181b } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--back) }
h1 { margin-bottom: 0 } h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
.about, .at { color: var(--soft) } .at, code { font-family: monospace; font-size: 13px }
.verdict { font-size: 1.1rem } .label { font-weight: 600; white-space: nowrap }
.drawing { overflow-x: auto; background: #fff; color: #212529; border: 1px solid var(--line) }
table { border-collapse: collapse } th { text-align: left; color: var(--soft); font-weight: 400 }
th, td { padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid var(--line) }
dt { font-weight: 600; margin-top: .8rem } dd { margin: 0 }
.proof { margin: 1rem 0; font: 14px monospace; overflow-x: auto }
.step { display: inline-grid; grid-template-columns: auto auto; vertical-align: bottom }
.over { border-bottom: 1px solid var(--ink); text-align: center; padding: 0 .4rem; grid-area: 1/1 }
.premises { display: flex; flex-wrap: wrap; gap: .5rem 2rem; align-items: end }
.rule { font-size: 12px; color: var(--soft); padding-left: .4rem; grid-area: 1/2;
  align-self: end; transform: translateY(.6em) }
.under { text-align: center; padding: 0 .4rem; grid-area: 2/1 }
rect.component { fill: #fff; stroke: #343a40 }
rect.source, rect.sink { fill: #f1f3f5; stroke: #868e96 }
rect.order { fill: #fff0f0; stroke: #c92a2a } rect.seal { fill: #e3fafc; stroke: #0b7285 }
.halo { paint-order: stroke; stroke: #fff; stroke-width: 4px }
"""


def page(plan: Plan, *, warnings: Sequence[Diagnostic] = (), everything: bool = False) -> str:
    """The whole page."""
    name = escape(printable(plan.analysis.dataflow.name))
    body = "\n".join(_body(Index.of(plan), warnings, everything))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{name}: {plan.analysis.verdict}</title>\n<style>{STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


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
    yield f"<h1>{_shown(dataflow.name)}</h1>"
    yield f'<p class="about">{_shown(", ".join(part for part in about if part))}</p>'
    verdict = StreamLabel(plan.analysis.verdict) if plan.analysis.verdict.value > 1 else None
    label = _label(verdict) if verdict else '<span class="label">Seal</span>'
    yield f'<p class="verdict">{label} {_shown(words.verdict(plan))}</p>'
    for said in words.further(plan, warnings):
        yield f"<p>{_shown(said)}</p>"
    if everything or len(index.components) <= LARGE:
        yield f'<h2>Dataflow</h2>\n<div class="drawing">{svg(diagram_of(plan))}</div>'
        yield from _streams(plan)
    else:
        count = words.number(len(index.components), "component")
        yield f"<p>{count}, {words.number(len(dataflow.streams), 'stream')}.</p>"
    told = [each.sentence for each in results(plan) if not each.plain]
    if told:
        yield f"<h2>Results, without the plan</h2>\n{_list(told[:MOST])}"
    if plan.repairs.items:
        lines = [repair_sentence(each) for each in plan.repairs.items[:MOST]]
        yield f"<h2>Records that come again</h2>\n{_list(lines)}"
    names = index.need_coordination()
    for name in names if everything else names[:MOST]:
        yield from _finding(finding(index, name))
    if not everything and len(names) > MOST:
        yield f"<h2>{words.number(len(names) - MOST, 'more component')} to coordinate</h2>"
    yield from _rest(index, warnings)


def _streams(plan: Plan) -> Iterator[str]:
    yield "<h2>Streams</h2>\n<table>"
    yield "<tr><th>Stream<th>From<th>To<th>Label<th>With the plan</tr>"
    for name, stream in plan.analysis.dataflow.streams.items():
        ends = [str(stream.producer or "outside"), str(stream.consumer or "outside")]
        cells = [*map(_shown, [name, *ends])]
        labels = [_label(plan.analysis.labels[name]), _label(plan.repaired[name])]
        yield f"<tr>{''.join(f'<td>{cell}' for cell in [*cells, *labels])}</tr>"
    yield "</table>"


def _finding(found: Finding) -> Iterator[str]:
    yield f"<h2>{_shown(found.title)} {_at(found.position)}</h2>"
    yield _paragraphs(found.why)
    for derivation in found.derivations:
        yield _proof(derivation)
    yield f"<dl><dt>Plan<dd>{_paragraphs(found.does)}"
    if found.cheaper:
        yield f"<dt>Cheaper<dd>{_list(found.cheaper)}"
    paths = [
        f"<tr><td>{_shown(path.source)} &rarr; {_shown(path.target)}"
        f"<td>{_shown(str(path.annotation))}<td>{_at(path.position)}</tr>"
        for path in found.paths
    ]
    yield f"<dt>Paths<dd><table>{''.join(paths)}</table></dl>"


def _proof(derivation: Derivation) -> str:
    steps = "".join(map(_step, derivation.steps))
    by = _shown(notation.name_of(derivation))
    return (
        f'<div class="proof"><div class="step"><div class="over premises">{steps}</div>'
        f'<span class="rule">{by}</span>'
        f'<div class="under">{_label(derivation.label)}</div></div></div>'
    )


def _step(step: Step) -> str:
    premise = f"{_label(step.input)} {_shown(str(step.path.annotation))}"
    return (
        f'<div class="step"><div class="over">{premise}</div>'
        f'<span class="rule">({_shown(", ".join(notation.rules_of(step)))})</span>'
        f'<div class="under">{_shown(notation.conclusion_of(step))}</div></div>'
    )


def _rest(index: Index, warnings: Sequence[Diagnostic]) -> Iterator[str]:
    further = list(consequences(index))[:MOST]
    if further:
        yield "<h2>Further down, without coordination</h2>\n<dl>"
        for each in further:
            name = _shown(f"{each.derivation.component}.{each.derivation.output}")
            yield f"<dt>{name} {_label(each.derivation.label)} {_at(each.position)}"
            yield f"<dd>{_paragraphs(each.why)}"
        yield "</dl>"
    derived = list(derived_paths(index))[:MOST]
    if derived:
        yield "<h2>Derived from the code</h2>\n<dl>"
        for shown in derived:
            path = shown.path
            ends = f"{_shown(path.source)} &rarr; {_shown(path.target)}"
            yield f"<dt>{_shown(shown.component)} {ends} {_shown(str(path.annotation))}"
            yield f"<dd>{_paragraphs(shown.reasons)}"
        yield "</dl>"
    left = [f"{each.component} {each.path} ({each.cause})" for each in tolerated(index)][:MOST]
    if left:
        yield f"<h2>Left as it is</h2>\n{_list(left)}"
    inherited = [f"{each.origin}: {each.label}, {each.reason}" for each in index.plan.inherited]
    if inherited:
        yield f"<h2>Not repairable by coordination</h2>\n{_list(inherited[:MOST])}"
    if warnings:
        yield f"<h2>Warnings</h2>\n{_list(map(str, warnings))}"


def _label(label: StreamLabel) -> str:
    return f'<span class="label" style="color:{COLOURS[label.label]}">{_shown(str(label))}</span>'


def _at(position: Position | None) -> str:
    return f'<span class="at">{_shown(str(position))}</span>' if position else ""


def _paragraphs(lines: Iterable[str]) -> str:
    return "".join(f"<p>{_shown(line)}</p>" for line in lines)


def _list(lines: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{_shown(line)}' for line in lines)}</ul>"


def _shown(text: str) -> str:
    return escape(printable(text))
