"""The documents about a plan: the analysis, the plan alone, and one component.

The verdict in one sentence; the dataflow; every stream's label before and after the plan; for each
component that waits, why (the derivation as the paper writes it), what the plan does and what would
be cheaper.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from annotations.dataflow import Path, Stream
from annotations.diagnostics import Diagnostic
from annotations.phrases import listed
from annotations.vocabulary import Label
from blazes.analysis import Derivation
from blazes.coordination import Plan, Strategy
from blazes.core.rules import BLAZES, rule_text
from blazes.document import blocks as b
from blazes.document.plain import cells, printable
from blazes.report import words
from blazes.report.findings import (
    Consequence,
    DerivedPath,
    Finding,
    cheaper,
    consequences,
    derived_paths,
    finding,
    tolerated,
)
from blazes.report.index import Index
from blazes.report.notation import derivation_block, label_span, role_of, rules_of
from blazes.report.results import repair_sentence, results

SMALL: Final = 40
"""Above so many components their numbers by label are given."""
NAMES_MAX: Final = 30
WIDEST: Final = 24
"""Cells of a column of the outline."""


@dataclass(frozen=True, eq=False, repr=False)
class Extent:
    """How much is shown of a large dataflow."""

    components: int = SMALL
    """Above so many there is neither a drawing nor a table of streams."""
    items: int = 10
    """Findings in full, and entries of a list."""
    steps: int = 12
    """Of a derivation."""
    drawn: bool = False
    """There is a place for a drawing."""

    @property
    def unlimited(self) -> Extent:
        """The same without limits."""
        return Extent(sys.maxsize, sys.maxsize, sys.maxsize, self.drawn)


EXTENTS: Final = {
    "text": Extent(),
    "markdown": Extent(items=25, steps=sys.maxsize, drawn=True),
    "html": Extent(components=1000, items=100, steps=sys.maxsize, drawn=True),
}
"""By format: a page can be searched and folded, a terminal can not."""


def analysis_document(
    plan: Plan,
    *,
    warnings: Sequence[Diagnostic] = (),
    list_warnings: bool = False,
    extent: Extent = EXTENTS["text"],
) -> b.Document:
    """The document of `blazes analyze`.

    Args:
        plan: of the dataflow.
        warnings: about its file; one says whether it can be compiled.
        list_warnings: they are listed, too.
        extent: how much is shown.
    """
    index = Index.of(plan)
    blocks: list[b.Block] = [_verdict(plan, warnings), *_dataflow(index, extent)]
    sentences = [
        _entry(result.name, f"{result.text}.") for result in results(plan) if not result.plain
    ]
    blocks += _entries("Results, without the plan", sentences, extent)
    blocks += _repairs(plan, extent)
    shown = index.need_coordination()[: extent.items]
    folded = len(shown) > EXTENTS["text"].items
    for name in shown:
        component = finding(index, name)
        blocks.append(b.Heading(component.title, str(component.position or ""), folded=folded))
        if component.why:
            why = (b.Paragraph(component.why, "list"),)
            blocks.append(b.Entries((b.Entry("Why", why, obvious=True),), "aspects"))
        blocks += [
            derivation_block(derivation, most=extent.steps) for derivation in component.derivations
        ]
        blocks.append(_what_to_do(component))
    blocks += _rest(index, shown)
    blocks += _entries(
        "Derived from the code", list(map(_derived, derived_paths(index))), extent, "below"
    )
    further = list(map(_consequence, consequences(index)))
    blocks += _entries("Further down, without coordination", further, extent)
    blocks += _left(index)
    if list_warnings and warnings:
        blocks += b.section("Warnings", [b.Paragraph(tuple(map(str, warnings)), "list")])
    if len(index.components) > extent.components:
        hint = "--all lists every stream; blazes explain FILE COMPONENT derives one."
        blocks.append(b.paragraph(hint, form="aside"))
    return _document(plan, blocks)


def plan_document(
    plan: Plan, *, warnings: Sequence[Diagnostic] = (), extent: Extent = EXTENTS["text"]
) -> b.Document:
    """The document of `blazes plan`: only what has to wait, and for what."""
    index = Index.of(plan)
    blocks: list[b.Block] = [_verdict(plan, warnings), *_repairs(plan, extent)]
    shown = index.need_coordination()[: extent.items]
    for component in (finding(index, name) for name in shown):
        blocks += [
            b.Heading(component.title, str(component.position or "")),
            _what_to_do(component),
        ]
    blocks += [*_rest(index, shown), *_left(index)]
    return _document(plan, blocks)


def component_document(plan: Plan, component: str) -> b.Document:
    """The document of `blazes explain`: every derivation of a component, and what its plan is."""
    index = Index.of(plan)
    declared = index.component(component)
    variant = f", variant {declared.variant}" if declared.variant else ""
    replicated = ", replicated" if plan.analysis.replicated[component] else ""
    blocks: list[b.Block] = []
    for derivation in index.derivations.get(component, ()):
        blocks += [b.Heading(f"{component}.{derivation.output}"), derivation_block(derivation)]
        blocks.append(_rules_used(index, derivation))
    alternatives = cheaper(index, index.advisor.of(component))
    for entry in index.entries.get(component, ()):
        path = entry.path
        first, *more = words.does(index, entry)
        does = b.paragraph(f"{entry.strategy.value}: {first}", *more)
        aspects = [b.Entry("Plan", (does,))]
        if entry.strategy is Strategy.ORDER:
            aspects += _either(alternatives)
            alternatives = ()
        title = f"{path.source} → {path.target}  {path.annotation}"
        blocks += [b.Heading(title, str(path.position or "")), b.Entries(tuple(aspects), "aspects")]
    mine = [_derived(derived) for derived in derived_paths(index) if derived.component == component]
    blocks += _entries("Derived from the code", mine, EXTENTS["text"].unlimited, "below")
    if not index.entries.get(component):
        sentence = "All of its paths are confluent: it is never coordinated."
        blocks.append(b.paragraph(sentence, form="aside"))
    title = f"{component}{variant}{replicated}"
    return b.Document(title, tuple(blocks), lead=declared.description or "")


def _document(plan: Plan, blocks: Sequence[b.Block]) -> b.Document:
    dataflow = plan.analysis.dataflow
    about = [
        str(dataflow.file or ""),
        *(
            f"{instance.name}={instance.variant}"
            for instance in dataflow.components.values()
            if instance.variant
        ),
        "" if plan.analysis.rules == BLAZES else f"rules {plan.analysis.rules}",
        "" if plan.target is Label.ASYNC else f"target {plan.target}",
    ]
    return b.Document(dataflow.name, tuple(blocks), about=", ".join(filter(None, about)))


def _verdict(plan: Plan, warnings: Sequence[Diagnostic]) -> b.Verdict:
    verdict = plan.analysis.verdict
    bad = verdict > plan.target or words.refused(warnings) is not None
    lines = (words.verdict(plan), *words.further(plan, warnings))
    return b.Verdict("✗" if bad else "✓", str(verdict), role_of(verdict), lines)


# ---- the dataflow


def _dataflow(index: Index, extent: Extent) -> Iterator[b.Block]:
    """The drawing and the streams, or their numbers, or both."""
    number = len(index.components)
    yield b.Heading("Dataflow")
    if number > SMALL and extent.items < sys.maxsize:
        yield from _counts(index)
    if number <= extent.components:
        diagram = None
        if extent.drawn:
            from blazes.report.diagram import diagram_of

            diagram = diagram_of(index.plan)
        yield b.Drawing(diagram, tuple(_outline(index)))
        yield b.Heading("Streams")
        yield _streams(index.plan)


def _counts(index: Index) -> Iterator[b.Block]:
    """How many components and streams there are, and how many have which label."""
    analysis = index.plan.analysis
    yield b.paragraph(
        f"{words.number(len(index.components), 'component')}, "
        f"{words.number(len(analysis.labels), 'stream')}, "
        f"{words.number(len(index.sources), 'source')}, "
        f"{words.number(len(index.sinks), 'sink')}; "
        f"{words.number(len(index.need_coordination()), 'component')} to coordinate"
    )
    before = Counter(label.label for label in analysis.labels.values())
    after = Counter(label.label for label in index.plan.repaired.values())
    heads = ("Streams", "With the plan")
    yield b.Table(
        ("Label", *heads),
        tuple(
            (label_span(label), f"{before[label]:,}", f"{after[label]:,}")
            for label in reversed(Label)
            if before[label] or after[label]
        ),
        right=heads,
    )


def _streams(plan: Plan) -> b.Table:
    """Every stream with its label before and after the plan; its ends where there is room."""
    rows = [
        (
            b.code(name),
            b.code(stream.producer) if stream.producer else "outside",
            b.code(stream.consumer) if stream.consumer else "outside",
            label_span(plan.analysis.labels[name]),
            label_span(plan.repaired[name]),
        )
        for name, stream in plan.analysis.dataflow.streams.items()
    ]
    heads = ("Stream", "From", "To", "Label", "With the plan")
    return b.Table(heads, tuple(rows), spare={"From": 1, "To": 1})


def _outline(index: Index) -> Iterator[b.Words]:
    """Components in topological order; each stream stands under the one that produces it."""
    analysis = index.plan.analysis
    names = [*analysis.dataflow.streams, ""]
    widths = (
        min(max(cells(printable(name)) for name in names), WIDEST),
        min(max([cells(str(label)) for label in analysis.labels.values()] + [0]), WIDEST),
    )
    if index.sources:
        yield b.Span("outside", "name")
        yield from _leaving(index, index.sources, widths)
    for name in index.components:
        component = index.component(name)
        head = [b.Span(name, "strong")]
        if analysis.replicated[name]:
            times = f" x{component.replicas}" if component.replicas > 1 else ""
            head.append(b.Span(f"  Rep{times}", "accent"))
        if component.variant:
            head.append(b.Span(f"  {component.variant}", "name"))
        if index.coordinated(name):
            head.append(b.Span(f"  {words.needs(index.coordinated(name))}", "warn"))
        yield tuple(head)
        streams = index.out_of.get(name, ())
        for path in component.paths:
            ends = f" {path.source} → {path.target}  {path.annotation}"
            derived = [b.Span("  derived", "name")] if path.derived is not None else []
            yield (b.Span("│ " if streams else "  ", "soft"), ends, *derived)
        yield from _leaving(index, streams, widths)
    for cycle in analysis.cycles:
        yield b.Span(f"No seal survives in the cycle of {listed(list(cycle))}.", "soft")


def _leaving(index: Index, streams: Sequence[Stream], widths: tuple[int, int]) -> Iterator[b.Words]:
    for stream in streams:
        label = label_span(index.plan.analysis.labels[stream.name])
        last = stream is streams[-1]
        name, shown = printable(stream.name), printable(label.text)
        yield (
            b.Span(("└─" if last else "├─") + " ", "soft"),
            f"{name}{' ' * (widths[0] - cells(name))}  ",
            b.Span(f"{shown}{' ' * (widths[1] - cells(shown))}", label.role),
            b.Span(" Rep" if index.plan.analysis.rep[stream.name] else "    ", "accent"),
            b.Span(" ─▶ ", "soft"),
            str(stream.consumer) if stream.consumer else b.Span("outside", "name"),
        )


# ---- findings


def _what_to_do(component: Finding) -> b.Entries:
    aspects = [b.Entry("Plan", (b.Paragraph(component.does),)), *_either(component.cheaper)]
    rows = tuple(
        (*_path(path, why=True), b.code(path.position) if path.position else "")
        for path in component.paths
    )
    table = b.Table(("Path", "Annotation", "At"), rows, obvious=True)
    return b.Entries((*aspects, b.Entry("Paths", (table,), obvious=True)), "aspects")


def _path(path: Path, *, why: bool = False) -> tuple[b.Words, b.Words]:
    ends = (b.code(path.source), " ", b.TO, " ", b.code(path.target))
    reason = [f" ({path.why})"] if why and path.why else []
    return ends, (b.code(path.annotation), *reason)


def _either(alternatives: Sequence[str]) -> list[b.Entry]:
    items = b.Paragraph(tuple(alternatives), "numbered")
    return [b.Entry("Cheaper", (items,))] if alternatives else []


def _rules_used(index: Index, derivation: Derivation) -> b.Entries:
    """One line for each rule of the derivation: its text, and where it applied."""
    steps = [rule for step in derivation.steps for rule in rules_of(step)]
    used = dict.fromkeys([*steps, *derivation.reconciled])
    rules = index.plan.analysis.rules
    return b.Entries(tuple(_entry(rule, rule_text(rule, rules)) for rule in used))


def _rest(index: Index, shown: Sequence[str]) -> list[b.Block]:
    """The names of the components whose findings are not shown."""
    rest = index.need_coordination()[len(shown) :]
    if not rest:
        return []
    hint = "--all shows them, and blazes explain FILE COMPONENT one of them."
    more = f" and {len(rest) - NAMES_MAX:,} more" if len(rest) > NAMES_MAX else ""
    names = b.paragraph(f"{', '.join(rest[:NAMES_MAX])}{more}.", hint)
    return b.section(f"{words.number(len(rest), 'more component')} to coordinate", [names])


def _entries(
    title: str,
    entries: Sequence[b.Entry],
    extent: Extent,
    form: Literal["beside", "below"] = "beside",
) -> list[b.Block]:
    """A section with what is said about each name; nothing where there is none."""
    shown = tuple(entries[: extent.items])
    block = b.Entries(shown, form, more=len(entries) - len(shown))
    return b.section(title, [block] if shown else [])


def _entry(name: b.Words, *lines: b.Words) -> b.Entry:
    return b.Entry(name, (b.Paragraph(lines),))


def _repairs(plan: Plan, extent: Extent) -> list[b.Block]:
    """The repairs against records that come again."""
    items = [_entry(item.stream, repair_sentence(item)) for item in plan.repairs.items]
    return _entries("Records that come again", items, extent)


def _derived(derived: DerivedPath) -> b.Entry:
    """An annotation that was derived from code, with what in it made it so."""
    ends, annotation = _path(derived.path)
    assert isinstance(ends, tuple)
    assert isinstance(annotation, tuple)
    name = (b.code(derived.component), "  ", *ends, "  ", *annotation)
    return _entry(name, *(b.Span(reason, "prose") for reason in derived.reasons))


def _consequence(consequence: Consequence) -> b.Entry:
    """Where a label gets worse away from its origin."""
    derivation = consequence.derivation
    name = b.code(f"{derivation.component}.{derivation.output}")
    why = (b.Paragraph(consequence.why),)
    return b.Entry(name, why, label_span(derivation.label), str(consequence.position or ""))


def _left(index: Index) -> Iterator[b.Block]:
    """The paths that the plan leaves as they are: tolerated by the target, or not repairable."""
    left = [f"{entry.component} {entry.path} ({entry.cause})" for entry in tolerated(index)]
    yield from _list("Left as it is", left)
    lines = [f"{origin.origin}: {origin.label}, {origin.reason}" for origin in index.plan.inherited]
    yield from _list("Not repairable by coordination", lines)


def _list(title: str, lines: Sequence[str]) -> list[b.Block]:
    more = [f"and {len(lines) - NAMES_MAX:,} more"] if len(lines) > NAMES_MAX else []
    return b.section(title, [b.Paragraph((*lines[:NAMES_MAX], *more), "list")] if lines else [])
