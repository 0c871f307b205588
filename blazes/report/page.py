"""One HTML page: the shell, the colours and the few blocks that every report is made of.

A page needs nothing else: no script, font or picture from outside. Its colours are roles, which the
style sheet gives a value on a light and on a dark screen; what is wide scrolls by itself and can be
reached with the keyboard, so that the page reads on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from annotations.vocabulary import Label
from blazes.report.markup import escape
from blazes.report.plain import printable

PALETTE: Final[Mapping[str, tuple[str, str]]] = {
    "ink": ("#1f2328", "#e6e9ed"),
    "soft": ("#57606a", "#a3acb8"),
    "line": ("#d9dce0", "#3a424d"),
    "edge": ("#57606a", "#8b949e"),
    "back": ("#ffffff", "#12161c"),
    "box": ("#ffffff", "#1c222b"),
    "outside": ("#f1f3f5", "#262d37"),
    "order": ("#fff0f0", "#3a1d20"),
    "seal": ("#e3fafc", "#12313a"),
    "label-seal": ("#0b7285", "#66d9e8"),
    "label-async": ("#2b7a3b", "#69db7c"),
    "label-run": ("#a34f00", "#ffa94d"),
    "label-inst": ("#862e9c", "#e599f7"),
    "label-diverge": ("#c92a2a", "#ff8787"),
}
"""Role -> colour on a light screen, on a dark one. Text keeps a contrast of 4.5 to its ground."""

_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--back); overflow-wrap: anywhere }
h1 { margin-bottom: 0; line-height: 1.2 }
h2 { margin-top: 2.4rem; border-bottom: 1px solid var(--line); line-height: 1.3 }
.about, .at, caption, th { color: var(--soft) } .about { margin-top: .2rem }
.at, code { font-family: monospace; font-size: 13px; font-weight: 400 }
.verdict { font-size: 1.1rem } .label { font-weight: 600; white-space: nowrap }
.scroll { overflow: auto; max-height: 85vh } .drawing { border: 1px solid var(--line) }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal }
th { text-align: left; font-weight: 400; background: var(--back); position: sticky; top: 0 }
th, td { padding: .2rem 1.2rem .2rem 0; border-bottom: 1px solid var(--line) }
.numbers :is(th, td):not(:first-child) { text-align: right }
dt { font-weight: 600; margin-top: .8rem } dd { margin: 0 } summary { cursor: pointer }
pre { overflow-x: auto; font-size: 13px; line-height: 1.45 }
.proof { margin: 1rem 0; font: 14px monospace }
.step { display: inline-grid; grid-template-columns: auto auto; vertical-align: bottom }
.over { border-bottom: 1px solid var(--ink); text-align: center; padding: 0 .4rem; grid-area: 1/1 }
.premises { display: flex; flex-wrap: wrap; gap: .5rem 2rem; align-items: end }
.rule { font-size: 12px; color: var(--soft); padding-left: .4rem; grid-area: 1/2;
  align-self: end; transform: translateY(.6em) }
.under { text-align: center; padding: 0 .4rem; grid-area: 2/1 }
.drawing text { fill: var(--ink) }
rect.component { fill: var(--box); stroke: var(--edge) }
rect.source, rect.sink { fill: var(--outside); stroke: var(--edge) }
rect.order { fill: var(--order); stroke: var(--label-diverge) }
rect.seal { fill: var(--seal); stroke: var(--label-seal) }
.halo { paint-order: stroke; stroke: var(--back); stroke-width: 4px }
@media (max-width: 40rem) { body { margin-top: 1rem } ul { padding-left: 1.2rem } }
"""


def _style() -> str:
    light, dark = (
        "; ".join(f"--{role}: {colours[screen]}" for role, colours in PALETTE.items())
        for screen in (0, 1)
    )
    labels = "".join(
        f".{label_class(label)} {{ color: var(--{label_class(label)}) }}\n"
        f".drawing text.{label_class(label)} {{ fill: var(--{label_class(label)}) }}\n"
        f"path.{label_class(label)} {{ stroke: var(--{label_class(label)}); fill: none }}\n"
        f"marker path.{label_class(label)} {{ fill: var(--{label_class(label)}); stroke: none }}\n"
        for label in Label
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}{_STYLE}{labels}"
    )


def document(title: str, body: Iterable[str]) -> str:
    """The whole page; the title is text, the body markup."""
    content = "\n".join(body)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{shown(title)}</title>\n<style>{_style()}</style>\n</head>\n"
        f"<body>\n<main>\n{content}\n</main>\n</body>\n</html>\n"
    )


def label_class(label: Label) -> str:
    """The class, and the role, of a label's colour.

    >>> label_class(Label.RUN)
    'label-run'
    """
    return f"label-{label.name.lower()}"


def shown(text: str) -> str:
    """Text as markup, without control characters."""
    return escape(printable(text))


def scrolling(content: str, name: str, *, drawing: bool = False) -> str:
    """Something wide, in a frame that scrolls and that the keyboard reaches."""
    kind = "scroll drawing" if drawing else "scroll"
    return (
        f'<div class="{kind}" role="region" tabindex="0" aria-label="{shown(name)}">{content}</div>'
    )


def table(
    name: str, head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = False
) -> str:
    """A table; the head is text, the cells are markup, numbers stand to the right."""
    titles = "".join(f'<th scope="col">{shown(cell)}</th>' for cell in head)
    lines = "\n".join(f"<tr>{''.join(f'<td>{c}</td>' for c in row)}</tr>" for row in rows)
    kind = ' class="numbers"' if numbers else ""
    return scrolling(
        f"<table{kind}><thead><tr>{titles}</tr></thead>\n<tbody>{lines}</tbody></table>", name
    )


def bullets(lines: Iterable[str]) -> str:
    """A list of texts."""
    return f"<ul>{''.join(f'<li>{shown(line)}</li>' for line in lines)}</ul>"


def paragraphs(lines: Iterable[str]) -> str:
    """A paragraph for each text."""
    return "".join(f"<p>{shown(line)}</p>" for line in lines)


def folded(summary: str, content: str) -> str:
    """Something long that is shown when it is asked for."""
    return f"<details><summary>{shown(summary)}</summary>\n{content}\n</details>"
