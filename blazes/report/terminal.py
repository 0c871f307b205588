"""The report for people, laid out for a terminal of any width, with or without colour.

The verdict in one sentence; the dataflow in text; every stream's label before and after the plan;
for each component that waits, why (the derivation as the paper writes it), what the plan does and
what would be cheaper. Names are printed through `Text`, never as markup.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from rich.box import SIMPLE_HEAD, Box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from annotations.dataflow import Path, Stream
from annotations.diagnostics import Diagnostic
from annotations.phrases import listed
from annotations.vocabulary import Label
from blazes.analysis import Derivation
from blazes.coordination import Entry, Plan, Strategy
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
from blazes.report.layout import (
    INDENT,
    STYLES,
    Layout,
    Rows,
    heading,
    label_text,
    named,
    padded,
    paragraph,
    printed,
)
from blazes.report.notation import derivation_block, rules_of
from blazes.report.plain import cells, printable
from blazes.report.results import repair_sentence, results
from blazes.rules import BLAZES

PLAIN_BOX: Final = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
LARGE: Final = 40
"""Above so many components the dataflow and its streams are counted instead of listed."""
MOST_FINDINGS: Final = 10
MOST_NAMES: Final = 30
MOST_STEPS: Final = 12


def analysis_report(
    plan: Plan, *, layout: Layout | None = None, warnings: Sequence[Diagnostic] = ()
) -> str:
    """What `blazes analyze` prints; of the warnings only that the dataflow cannot be compiled."""
    layout = layout or Layout()
    return printed(analysis_parts(Index.of(plan), layout, warnings), layout)


def picture(plan: Plan, *, title: str, width: int = 80) -> str:
    """What `blazes analyze` prints on a terminal, as SVG, without links to fonts elsewhere."""
    layout = Layout(width=width, colour=True)
    console = layout.console(record=True)
    for part in analysis_parts(Index.of(plan), layout):
        console.print(part)
    svg = console.export_svg(title=title, unique_id="report")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def plan_report(
    plan: Plan, *, layout: Layout | None = None, warnings: Sequence[Diagnostic] = ()
) -> str:
    """What `blazes plan` prints: only what has to wait, and for what."""
    layout = layout or Layout()
    index = Index.of(plan)
    parts: list[RenderableType] = [_title(plan), _verdict(plan, layout, warnings)]
    parts += _repairs(plan, layout)
    shown = _shown(index.need_coordination(), layout)
    for found in (finding(index, name) for name in shown):
        parts += ["", heading(found.title, found.position, layout), _what_to_do(found, layout)]
    parts += _rest(index, shown, layout)
    parts += _tolerated(index) + _inherited(plan)
    return printed(parts, layout)


def component_report(plan: Plan, component: str, *, layout: Layout | None = None) -> str:
    """What `blazes explain` prints: every derivation of a component, and what its plan is."""
    layout = layout or Layout()
    index = Index.of(plan)
    declared = index.component(component)
    variant = f", variant {declared.variant}" if declared.variant else ""
    replicated = ", replicated" if plan.analysis.replicated[component] else ""
    parts: list[RenderableType] = [
        Text(printable(f"{component}{variant}{replicated}"), style="bold"),
        Text(printable(declared.description or ""), style="dim"),
    ]
    if not declared.description:
        parts.pop()
    for derivation in index.derivations.get(component, ()):
        parts += ["", heading(f"{component}.{derivation.output}", None, layout)]
        parts += [_proof(derivation, layout, most=None), "", _rules_used(index, derivation)]
    alternatives = cheaper(index, index.advisor.of(component))
    for entry in index.entries.get(component, ()):
        title = f"{entry.path.source} {layout.glyphs.path} {entry.path.target}"
        does = list(words.does(index, entry))
        rows: Rows = [("Plan", paragraph([f"{entry.strategy.value}: {does[0]}", *does[1:]]))]
        if entry.strategy is Strategy.ORDER:
            rows += _either(alternatives)
            alternatives = ()
        parts += ["", heading(f"{title}  {entry.path.annotation}", entry.path.position, layout)]
        parts += [named(rows)]
    mine = [each for each in derived_paths(index) if each.component == component]
    parts += _derived(mine, replace(layout, everything=True))
    if not index.entries.get(component):
        parts += ["", Text("All of its paths are confluent: it is never coordinated.")]
    return printed(parts, layout)


def analysis_parts(
    index: Index, layout: Layout, warnings: Sequence[Diagnostic] = ()
) -> list[RenderableType]:
    """The parts of the analysis report, in order."""
    plan = index.plan
    small = layout.everything or len(index.components) <= LARGE
    parts: list[RenderableType] = [_title(plan), _verdict(plan, layout, warnings), ""]
    if small:
        parts += [heading("Dataflow", None, layout), _dataflow(index, layout), ""]
        parts += [heading("Streams", None, layout), _streams(plan, layout)]
    else:
        parts += [heading("Dataflow", None, layout), _counts(index)]
    parts += _results(plan, layout)
    parts += _repairs(plan, layout)
    shown = _shown(index.need_coordination(), layout)
    for name in shown:
        parts += ["", *_finding(finding(index, name), layout)]
    parts += _rest(index, shown, layout)
    parts += _derived(list(derived_paths(index)), layout)
    parts += _consequences(list(consequences(index)), layout)
    parts += _tolerated(index) + _inherited(plan)
    if not small:
        parts += ["", Text("--all lists every stream; blazes explain FILE COMPONENT derives one.")]
    return parts


def _title(plan: Plan) -> Text:
    dataflow = plan.analysis.dataflow
    variants = [
        f"{component.name}={component.variant}"
        for component in dataflow.components.values()
        if component.variant
    ]
    about = [
        str(dataflow.file or ""),
        *variants,
        "" if plan.analysis.rules == BLAZES else f"rules {plan.analysis.rules}",
        "" if plan.target is Label.ASYNC else f"target {plan.target}",
    ]
    text = Text(printable(dataflow.name), style="bold")
    text.append(printable("  " + ", ".join(part for part in about if part)), style="dim not bold")
    return text


def _verdict(plan: Plan, layout: Layout, warnings: Sequence[Diagnostic] = ()) -> RenderableType:
    bad = plan.analysis.verdict > plan.target or words.refused(warnings) is not None
    mark = layout.glyphs.bad if bad else layout.glyphs.good
    sign = Text(f"{mark} {plan.analysis.verdict}", style=STYLES[plan.analysis.verdict])
    lines = [words.verdict(plan), *words.further(plan, warnings)]
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(sign, paragraph([printable(line) for line in lines]))
    return Padding(grid, (1, 0, 0, 0))


def _dataflow(index: Index, layout: Layout) -> RenderableType:
    """Components in topological order; each stream stands under the one that produces it."""
    analysis = index.plan.analysis
    names = [*analysis.dataflow.streams, ""]
    columns = (
        min(max(map(cells, names)), 24),
        min(max([cells(str(label)) for label in analysis.labels.values()] + [0]), 24),
    )
    lines: list[Text] = []
    if index.sources:
        lines.append(Text("outside", style="italic"))
        lines += _out(index, index.sources, columns, layout)
    for name in index.components:
        component = index.component(name)
        head = Text(printable(name), style="bold")
        if analysis.replicated[name]:
            times = f" x{component.replicas}" if component.replicas > 1 else ""
            head.append(f"  Rep{times}", style="blue not bold")
        if component.variant:
            head.append(printable(f"  {component.variant}"), style="italic not bold")
        if index.coordinated(name):
            head.append(f"  {words.needs(index.coordinated(name))}", style="yellow not bold")
        lines.append(head)
        streams = index.out_of.get(name, ())
        lines += [_path(path, layout, last=not streams) for path in component.paths]
        lines += _out(index, streams, columns, layout)
    for cycle in analysis.cycles:
        named = listed([printable(name) for name in cycle])
        lines.append(Text(f"No seal survives in the cycle of {named}.", style="dim"))
    return Padding(Group(*lines), (0, 0, 0, INDENT))


def _path(path: Path, layout: Layout, *, last: bool) -> Text:
    text = Text("  " if last else layout.glyphs.bar, style="dim")
    arrow = layout.glyphs.path
    text.append(printable(f" {path.source} {arrow} {path.target}  {path.annotation}"))
    if path.derived is not None:
        text.append("  derived", style="italic")
    return text


def _out(
    index: Index, streams: Sequence[Stream], columns: tuple[int, int], layout: Layout
) -> list[Text]:
    lines = []
    for stream in streams:
        label = index.plan.analysis.labels[stream.name]
        last = stream is streams[-1]
        text = Text((layout.glyphs.last if last else layout.glyphs.branch) + " ", style="dim")
        text.append(padded(stream.name, columns[0]), style="not dim")
        text.append("  ")
        text.append(padded(str(label), columns[1]), style=f"not dim {STYLES[label.label]}")
        text.append(" Rep" if index.plan.analysis.rep[stream.name] else "    ", style="blue")
        text.append(f" {layout.glyphs.arrow} ")
        target = printable(str(stream.consumer)) if stream.consumer else "outside"
        text.append(target, style="not dim" if stream.consumer else "not dim italic")
        lines.append(text)
    return lines


def _streams(plan: Plan, layout: Layout) -> RenderableType:
    """Every stream with its label before and after the plan; its ends where there is room."""
    analysis = plan.analysis
    table = Table(
        box=SIMPLE_HEAD if layout.unicode else PLAIN_BOX,
        pad_edge=False,
        padding=(0, 1),
        show_edge=False,
        header_style="dim",
    )
    headings = ("Stream", "From", "To", "Label", "With the plan")
    rows = [
        (
            Text(printable(name)),
            Text(printable(str(stream.producer or "outside"))),
            Text(printable(str(stream.consumer or "outside"))),
            label_text(analysis.labels[name]),
            label_text(plan.repaired[name]),
        )
        for name, stream in analysis.dataflow.streams.items()
    ]
    needed = (
        INDENT
        - 3
        + sum(
            3 + max([cells(heading), *(cells(row[column].plain) for row in rows)])
            for column, heading in enumerate(headings)
        )
    )
    columns = range(5) if needed <= layout.width else (0, 3, 4)
    for column in columns:
        table.add_column(headings[column], overflow="fold")
    for row in rows:
        table.add_row(*(row[column] for column in columns))
    return Padding(table, (0, 0, 0, INDENT))


def _results(plan: Plan, layout: Layout) -> list[RenderableType]:
    """One sentence for each result that is not simply the same in every run."""
    told = [(each.name, f"{each.text}.") for each in results(plan) if not each.plain]
    return _by_name("Results, without the plan", told, layout)


def _repairs(plan: Plan, layout: Layout) -> list[RenderableType]:
    """What is done about records that come again."""
    told = [(each.stream, repair_sentence(each)) for each in plan.repairs.items]
    return _by_name("Records that come again", told, layout)


def _by_name(title: str, told: Sequence[tuple[str, str]], layout: Layout) -> list[RenderableType]:
    """A section with a sentence for each name; nothing where there is none."""
    if not told:
        return []
    shown = told if layout.everything else told[:MOST_FINDINGS]
    rows: Rows = [(printable(name), paragraph([printable(said)])) for name, said in shown]
    if len(told) > len(shown):
        rows.append(("", paragraph([f"and {len(told) - len(shown):,} more"])))
    return ["", heading(title, None, layout), named(rows)]


def _counts(index: Index) -> RenderableType:
    """How many components and streams there are, and how many have which label."""
    analysis = index.plan.analysis
    text = Text(
        f"{words.number(len(index.components), 'component')}, "
        f"{words.number(len(analysis.labels), 'stream')}, "
        f"{words.number(len(index.sources), 'source')}, "
        f"{words.number(len(index.sinks), 'sink')}; "
        f"{words.number(len(index.need_coordination()), 'component')} to coordinate\n"
    )
    before = Counter(label.label for label in analysis.labels.values())
    after = Counter(label.label for label in index.plan.repaired.values())
    table = Table.grid(padding=(0, 3, 0, 0))
    table.add_row(Text("Label", style="dim"), Text("streams", style="dim"), Text("with the plan"))
    for label in reversed(Label):
        if before[label] or after[label]:
            table.add_row(
                Text(str(label), STYLES[label]), f"{before[label]:,}", f"{after[label]:,}"
            )
    return Padding(Group(text, table), (0, 0, 0, INDENT))


def _shown(names: Sequence[str], layout: Layout) -> Sequence[str]:
    return names if layout.everything else names[:MOST_FINDINGS]


def _rest(index: Index, shown: Sequence[str], layout: Layout) -> list[RenderableType]:
    """The names of the components whose findings are not shown."""
    rest = index.need_coordination()[len(shown) :]
    if not rest:
        return []
    named = ", ".join(rest[:MOST_NAMES])
    more = f" and {len(rest) - MOST_NAMES:,} more" if len(rest) > MOST_NAMES else ""
    title = f"{words.number(len(rest), 'more component')} to coordinate"
    hint = "--all shows them, and blazes explain FILE COMPONENT one of them."
    return [
        "",
        heading(title, None, layout),
        Padding(Text(printable(f"{named}{more}.\n{hint}", keep="\n")), (0, 0, 0, INDENT)),
    ]


def _finding(found: Finding, layout: Layout) -> list[RenderableType]:
    rows: Rows = [("Why", paragraph(found.why))] if found.why else []
    parts: list[RenderableType] = [heading(found.title, found.position, layout), named(rows)]
    for derivation in found.derivations:
        parts += ["", _proof(derivation, layout, most=MOST_STEPS)]
    return [*parts, "", _what_to_do(found, layout)]


def _what_to_do(found: Finding, layout: Layout) -> RenderableType:
    plan: Rows = [("Plan", paragraph(found.does))]
    return named([*plan, *_either(found.cheaper), _paths_row(found, layout)])


def _either(found: Sequence[str]) -> Rows:
    many = len(found) > 1
    lines = [f"{f'{n}. ' if many else ''}{line}" for n, line in enumerate(found, start=1)]
    return [("Cheaper", paragraph(lines))] if lines else []


def _paths_row(found: Finding, layout: Layout) -> tuple[str, RenderableType]:
    """Each path with its place, beside it where there is room, else under it."""
    arrow = layout.glyphs.path
    rows = []
    for path in found.paths:
        why = f" ({path.why})" if path.why else ""
        text = printable(f"{path.source} {arrow} {path.target}  {path.annotation}{why}")
        rows.append((text, printable(str(path.position or ""))))
    widths = [max(map(cells, column)) for column in zip(*rows, strict=True)]
    fits = sum(widths) + 2 <= layout.width - INDENT - 9
    lines = Text(style="not bold")
    for text, place in rows:
        gap = " " * (widths[0] - cells(text) + 2) if fits else "\n  "
        lines.append(text + (gap if place else "")).append(place, "dim").append("\n")
    lines.rstrip()
    return ("Paths", lines)


def _proof(derivation: Derivation, layout: Layout, *, most: int | None) -> RenderableType:
    """A derivation, its labels in the colours of their severity."""
    indent = INDENT + 9 if layout.width >= 60 else INDENT
    block = derivation_block(
        derivation, width=layout.width - indent, glyphs=layout.glyphs, most=most
    )
    text = Text("\n".join(" " * indent + line for line in block), no_wrap=True, overflow="ignore")
    for label in Label:
        text.highlight_regex(rf"\b{label}\b(?:\[[^\]]*\])?", STYLES[label])
    text.highlight_regex(r"\bTaint\b|\bNDRead\[[^\]]*\]", "bold")
    text.highlight_regex(f"{layout.glyphs.line}{{2,}}", "dim")
    return text


def _rules_used(index: Index, derivation: Derivation) -> RenderableType:
    """One line for each rule of the derivation: its text, and where it applied."""
    from blazes.rules import rule_text

    steps = [rule for step in derivation.steps for rule in rules_of(step)]
    used = dict.fromkeys([*steps, *derivation.reconciled])
    rows: Rows = [(rule, paragraph([rule_text(rule, index.plan.analysis.rules)])) for rule in used]
    return named(rows)


def _derived(found: Sequence[DerivedPath], layout: Layout) -> list[RenderableType]:
    """The annotations that were derived from code, with what in it made them so."""
    if not found:
        return []
    parts: list[RenderableType] = ["", heading("Derived from the code", None, layout)]
    shown = found if layout.everything else found[:MOST_FINDINGS]
    arrow = layout.glyphs.path
    lines = Text()
    for each in shown:
        path = each.path
        ends = f"{each.component}  {path.source} {arrow} {path.target}  {path.annotation}"
        lines.append(printable(ends) + "\n", style="bold")
        lines.append("".join(f"  {printable(reason)}\n" for reason in each.reasons))
    lines.rstrip()
    parts.append(Padding(lines, (0, 0, 0, INDENT)))
    if len(found) > len(shown):
        parts.append(Padding(Text(f"and {len(found) - len(shown):,} more"), (0, 0, 0, INDENT)))
    return parts


def _consequences(found: Sequence[Consequence], layout: Layout) -> list[RenderableType]:
    """Where labels get worse away from their origin."""
    if not found:
        return []
    parts: list[RenderableType] = ["", heading("Further down, without coordination", None, layout)]
    shown = found if layout.everything else found[:MOST_FINDINGS]
    rows: Rows = []
    for each in shown:
        name = printable(f"{each.derivation.component}.{each.derivation.output}")
        where = [str(each.position)] if each.position else []
        rows.append(
            (name, Group(label_text(each.derivation.label), paragraph([*each.why, *where])))
        )
    parts.append(named(rows))
    if len(found) > len(shown):
        parts.append(Padding(Text(f"and {len(found) - len(shown):,} more"), (0, 0, 0, INDENT)))
    return parts


def _tolerated(index: Index) -> list[RenderableType]:
    entries: list[Entry] = list(tolerated(index))
    if not entries:
        return []
    names = [f"{entry.component} {entry.path} ({entry.cause})" for entry in entries[:MOST_NAMES]]
    more = f" and {len(entries) - MOST_NAMES:,} more" if len(entries) > MOST_NAMES else ""
    return ["", named([("Left as it is", paragraph([", ".join(names) + more]))])]


def _inherited(plan: Plan) -> list[RenderableType]:
    if not plan.inherited:
        return []
    lines = [f"{each.origin}: {each.label}, {each.reason}" for each in plan.inherited[:MOST_NAMES]]
    if len(plan.inherited) > MOST_NAMES:
        lines.append(f"and {len(plan.inherited) - MOST_NAMES:,} more")
    return ["", named([("Not repairable", paragraph(lines))])]
