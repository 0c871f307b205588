"""The report as Markdown, for pull requests and wikis; the dataflow as a Mermaid drawing in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from annotations.diagnostics import Diagnostic
from blazes.coordination import Plan
from blazes.report import mermaid, words
from blazes.report.findings import (
    Consequence,
    DerivedPath,
    Finding,
    consequences,
    derived_paths,
    finding,
    tolerated,
)
from blazes.report.index import Index
from blazes.report.notation import derivation_block
from blazes.report.plain import printable
from blazes.report.results import repair_sentence, results

LARGE: Final = 40
"""Above so many components there is no drawing and no table of streams."""
MOST: Final = 25
"""Findings in full; the others by name."""
SPECIAL: Final = frozenset(r"\`*_{}[]<>()#+-.!|~&")


def analysis_report(
    plan: Plan, *, warnings: Sequence[Diagnostic] = (), everything: bool = False
) -> str:
    """The whole report."""
    index = Index.of(plan)
    small = everything or len(index.components) <= LARGE
    blocks = [
        f"# {text(plan.analysis.dataflow.name)}",
        f"**{plan.analysis.verdict}** {text(words.verdict(plan))}",
    ]
    blocks += [text(said) for said in words.further(plan, warnings)]
    if small:
        blocks += ["## Dataflow", fenced(mermaid.diagram(plan).rstrip(), "mermaid")]
        blocks += ["## Streams", table(*_streams(plan))]
    else:
        blocks.append(
            f"{words.number(len(index.components), 'component')}, "
            f"{words.number(len(plan.analysis.labels), 'stream')}."
        )
    told = [each for each in results(plan) if not each.plain]
    if told:
        blocks += ["## Results, without the plan", items(each.sentence for each in told[:MOST])]
    if plan.repairs.items:
        blocks.append("## Records that come again")
        blocks.append(items(repair_sentence(each) for each in plan.repairs.items[:MOST]))
    names = index.need_coordination()
    shown = names if everything else names[:MOST]
    for name in shown:
        blocks += _finding(finding(index, name))
    if len(names) > len(shown):
        rest = ", ".join(code(name) for name in names[len(shown) : len(shown) + 100])
        number = words.number(len(names) - len(shown), "more component")
        blocks += [f"## {number} to coordinate", rest]
    further = list(consequences(index))
    if further:
        blocks.append("## Further down, without coordination")
        blocks.append(
            "\n".join(_consequence(each) for each in further[: None if everything else MOST])
        )
        if not everything and len(further) > MOST:
            blocks.append(f"and {len(further) - MOST:,} more")
    blocks += list(_rest(index, warnings, everything))
    return "\n\n".join(blocks) + "\n"


def _streams(plan: Plan) -> Iterator[Sequence[str]]:
    yield ("Stream", "From", "To", "Label", "With the plan")
    for name, stream in plan.analysis.dataflow.streams.items():
        yield (
            code(name),
            code(str(stream.producer)) if stream.producer else "outside",
            code(str(stream.consumer)) if stream.consumer else "outside",
            text(str(plan.analysis.labels[name])),
            text(str(plan.repaired[name])),
        )


def _finding(found: Finding) -> Iterator[str]:
    yield f"## {text(found.title)}"
    if found.position:
        yield code(str(found.position))
    yield items(found.why)
    for derivation in found.derivations:
        yield fenced("\n".join(derivation_block(derivation, width=100)), "text")
    yield f"**Plan.** {text(' '.join(found.does))}"
    if found.cheaper:
        yield "**Cheaper:**\n\n" + items(found.cheaper)
    yield table(
        ("Path", "Annotation", "At"),
        *(
            (
                f"{code(path.source)} to {code(path.target)}",
                code(str(path.annotation)),
                code(str(path.position)) if path.position else "",
            )
            for path in found.paths
        ),
    )


def _consequence(each: Consequence) -> str:
    name = code(f"{each.derivation.component}.{each.derivation.output}")
    where = f" ({code(str(each.position))})" if each.position else ""
    return f"- {name} {text(str(each.derivation.label))}: {text(' '.join(each.why))}{where}"


def _derived(each: DerivedPath) -> str:
    path = each.path
    ends = f"{code(each.component)} {code(path.source)} to {code(path.target)}"
    return f"- {ends} {code(str(path.annotation))}: {prose('; '.join(each.reasons))}"


def _rest(index: Index, warnings: Sequence[Diagnostic], everything: bool) -> Iterator[str]:
    derived = list(derived_paths(index))
    if derived:
        yield "## Derived from the code"
        yield "\n".join(_derived(each) for each in (derived if everything else derived[:MOST]))
        if not everything and len(derived) > MOST:
            yield f"and {len(derived) - MOST:,} more"
    left = [f"{each.component} {each.path} ({each.cause})" for each in tolerated(index)]
    if left:
        yield "## Left as it is\n\n" + items(left)
    if index.plan.inherited:
        yield "## Not repairable by coordination"
        yield items(f"{each.origin}: {each.label}, {each.reason}" for each in index.plan.inherited)
    if warnings:
        yield "## Warnings\n\n" + items(str(each) for each in warnings)


def text(plain: str) -> str:
    r"""Plain text in which nothing is markup.

    >>> text("OW[*]")
    'OW\\[\\*\\]'
    """
    return "".join(
        f"\\{character}" if character in SPECIAL - frozenset("-.()!+") else character
        for character in printable(plain)
    )


def prose(words: str) -> str:
    r"""Our own words as Markdown: code in backticks stays code, line ends become spaces.

    >>> prose("`OW` or\nOW[*]")
    '`OW` or OW\\[\\*\\]'
    """
    parts = " ".join(words.split()).split("`")
    return "`".join(part if number % 2 else text(part) for number, part in enumerate(parts))


def code(plain: str) -> str:
    """A code span, also of text with backticks and bars.

    >>> code("a`b")
    '`` a`b ``'
    """
    shown = printable(plain).replace("|", "\\|")
    if "`" not in shown:
        return f"`{shown}`"
    ticks = "`" * (max(len(run) for run in _runs(shown)) + 1)
    return f"{ticks} {shown} {ticks}"


def _runs(shown: str) -> list[str]:
    return "".join(character if character == "`" else " " for character in shown).split()


def items(lines: Iterable[str]) -> str:
    """A list."""
    return "\n".join(f"- {text(line)}" for line in lines)


def table(*rows: Sequence[str]) -> str:
    """A table; the first row is its head. Cells are Markdown already."""
    head, *body = rows
    lines = [head, ["---"] * len(head), *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def fenced(block: str, language: str) -> str:
    """A code block, with a fence longer than any in it."""
    longest = max((len(run) for run in _runs(block)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{block}\n{fence}"
