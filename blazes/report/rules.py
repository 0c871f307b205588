"""A rule of the analysis, or a code of the front end, as a page with fixed headings.

`blazes rule R2` and `docs/reference/` print these pages; their contents are the rule tables
(`blazes.core.rules`), the table of codes (`annotations.diagnostics`) and examples that are run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from annotations.diagnostics import CODES, Code, did_you_mean
from annotations.vocabulary import Label
from blazes.core.rules import RULES, Condition, Inference, P, Reconciliation, Rule
from blazes.document.blocks import Span, plain
from blazes.document.derivation import centred
from blazes.document.plain import cells
from blazes.report.examples import IN_WORDS, diagnosed, examples

SIDE: Final = {
    Condition.ALWAYS: "",
    Condition.NONDETERMINISTIC: "declared nondeterministic",
    Condition.SEAL_DOES_NOT_FIT: "not compatible(g, k)",
    Condition.SEAL_DOES_NOT_FIT_OR_STATE_IS_OPEN: "not compatible(g, k), or the state is open",
    Condition.SEAL_FITS_BUT_STATE_IS_OPEN: "compatible(g, k), but the state is open",
}
"""Side conditions; a state is open where a writer of it is not sealed compatibly with g."""
STATEMENT: Final = 66
"""Longest line of a rule's premises or conclusion."""
BOLD: Final = "\033[1m{}\033[0m"


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with paragraphs and blocks, which are printed as they are."""

    heading: str
    text: str = ""
    blocks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Page:
    """The content of the page of one rule or code."""

    id: str
    title: str
    sections: tuple[Section, ...]


def ids(codes: Mapping[str, Code] = CODES) -> list[str]:
    """Every rule, then every code."""
    return [*RULES, *codes]


def page(name: str, *, codes: Mapping[str, Code] = CODES) -> Page:
    """The page of a rule or code, in any case; KeyError with a suggestion for another name."""
    known = {id.lower(): id for id in ids(codes)}
    canonical = known.get(name.lower())
    if canonical is None:
        raise KeyError(f"no rule or code {name!r}{did_you_mean(name.upper(), ids(codes))}")
    return code_page(codes[canonical]) if canonical in codes else _rule_page(RULES[canonical])


def _rule_page(rule: Rule) -> Page:
    return Page(
        rule.id,
        f"{rule.when}: {rule.adds}",
        (
            Section("What it does", rule.text, ("\n".join(statement(rule)),)),
            Section("Why it matters", rule.why),
            Section("Example", rule.example, tuple(examples(rule.id))),
            Section("Source", f"{rule.source} (rule sets: {', '.join(rule.sets)})"),
        ),
    )


def code_page(code: Code) -> Page:
    """The page of a code, of the front end or of the compiler."""
    sections = (Section("Example", IN_WORDS.get(code.id, ""), tuple(diagnosed(code.id))),)
    return Page(
        code.id,
        f"{code.title} ({code.severity.name.lower()})",
        (
            Section("What it does", f"Reports in a dataflow file: {code.title}."),
            Section("Why it matters", code.why),
            *(section for section in sections if section.text or section.blocks),
            Section("What to do", code.remedy),
        ),
    )


def statement(rule: Rule) -> list[str]:
    """A rule as the paper prints it: premises over the line, conclusion under it."""
    premise, conclusion = rule.when, rule.adds
    if isinstance(rule, Inference) and rule is not P:
        premise = _premise(rule)
    elif isinstance(rule, Reconciliation):
        conclusion = f"Rep ? {rule.replicated} : {rule.single}"
    over, under = textwrap.wrap(premise, STATEMENT), textwrap.wrap(conclusion, STATEMENT)
    width = max(map(cells, [*over, *under]))
    return [
        *(plain(centred((Span(line),), width)) for line in over),
        f"{'─' * width} ({rule.id})",
        *(plain(centred((Span(line),), width)) for line in under),
    ]


def _premise(rule: Inference) -> str:
    """Labels, annotations and side condition of a rule of inference."""
    labels = [str(label) + ("[k]" if label is Label.SEAL else "") for label in sorted(rule.labels)]
    kinds = [kind.name + ("" if kind.confluent else "[g]") for kind in sorted(rule.kinds)]
    entered = "any label" if len(labels) == len(Label) else _one_of(labels)
    return "   ".join(part for part in (entered, _one_of(kinds), SIDE[rule.condition]) if part)


def _one_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{{{', '.join(words)}}}"


def as_text(page: Page, *, width: int = 80, colour: bool = False) -> str:
    """A page for a terminal."""
    bold = BOLD.format if colour else str
    return "\n".join(_text(page, width, bold)) + "\n"


def _text(page: Page, width: int, bold: Callable[[str], str]) -> Iterator[str]:
    title = textwrap.wrap(f"{page.id}  {page.title}", width)
    yield from (bold(line) for line in title)
    for section in page.sections:
        yield ""
        yield bold(section.heading)
        if section.text:
            yield from textwrap.wrap(
                section.text, width, initial_indent="  ", subsequent_indent="  "
            )
        for block in section.blocks:
            yield ""
            yield from (f"    {line}".rstrip() for line in block.splitlines())


def as_markdown(page: Page) -> str:
    """A page as a section of a Markdown document."""
    from blazes.document.markdown import fenced, prose

    parts = [f"## {page.id}: {prose(page.title)}"]
    for section in page.sections:
        parts.append(f"**{section.heading}.** {prose(section.text)}".rstrip())
        parts += [fenced(block, "text") for block in section.blocks]
    return "\n\n".join(parts) + "\n"
