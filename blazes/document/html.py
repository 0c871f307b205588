"""A document as one HTML page that needs nothing else: no script, font or picture from outside.

It follows the light or dark mode of the screen and reads on a phone: what is wider scrolls by
itself, never the page. Every element is closed, so that the page is XML, too; nothing has an id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from blazes.document import blocks as b
from blazes.document import charts, graph, placement, svg
from blazes.document.palette import PALETTE
from blazes.document.plain import escape

TALL: Final = 40
"""Rows above which a table scrolls by itself, below its head."""
LEGEND: Final = (
    "Lines have the colour of their label; thick ones are replicated. What waits has round "
    "corners: red for an order, blue for a seal."
)
STYLE: Final = """
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: var(--ink);
  background: var(--paper) }
main { max-width: 74rem; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere }
h1 { margin: 0; font-size: 1.7rem } .about, .soft, .note { color: var(--soft) } .about { margin: 0 }
h2 { margin: 2.5rem 0 .8rem; padding-bottom: .2rem; border-bottom: 1px solid var(--grid);
  font-size: 1.25rem }
.at { color: var(--soft); font: 400 .8rem ui-monospace, monospace; margin-left: .5rem }
a { color: inherit; text-decoration: underline dotted; text-underline-offset: .2em }
p, ul, ol, dl { max-width: 46rem } p { margin: .5rem 0 } ul, ol { padding-left: 1.4rem }
code, pre { font: .85em/1.45 ui-monospace, monospace }
.verdict { font-size: 1.1rem; padding: .6rem 1rem; border-left: 4px solid; background: var(--shade);
  margin-top: 1rem }
.label { font-weight: 600; white-space: nowrap } .strong { font-weight: 600 }
.scroll { overflow: auto; max-width: 100%; position: relative }
.tall { max-height: 75vh } .tall th { position: sticky; top: 0; background: var(--paper) }
:focus-visible, .scroll:focus { outline: 2px solid var(--0); outline-offset: 2px }
figure { margin: 1rem 0 0 }
.drawing { border: 1px solid var(--grid); border-radius: 4px; max-height: 85vh }
.drawing > svg, .charts > svg { display: block; max-width: none }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal }
th { text-align: left; color: var(--soft); font-weight: 400; white-space: nowrap }
tbody th { color: var(--ink) }
th, td { padding: .25rem 1.2rem .25rem 0; border-bottom: 1px solid var(--grid);
  vertical-align: top }
tr > :last-child { padding-right: .2rem } .right { text-align: right }
dt { font-weight: 600; margin-top: .8rem } dd { margin: 0 0 0 1rem }
dd > :first-child { margin-top: 0 } pre { margin: .5rem 0; padding: .5rem .8rem;
  background: var(--shade) }
details { margin: .4rem 0 } summary { cursor: pointer } summary h2 { display: inline; border: 0;
  font-size: 1.05rem } figure summary, figcaption { color: var(--soft);
  font-size: .9rem } dl + details { margin-top: 2rem }
.proof { margin: 1rem 0; padding-bottom: .3rem; font: .85rem ui-monospace, monospace;
  overflow-wrap: normal }
.step { display: inline-grid; grid-template-columns: auto auto }
.over { border-bottom: 1px solid var(--ink); text-align: center; padding: 0 .4rem; grid-area: 1/1;
  white-space: nowrap }
.premises { display: flex; flex-wrap: wrap; gap: .5rem 2rem; align-items: end }
.rule { color: var(--soft); padding-left: .4rem; grid-area: 1/2; align-self: end;
  transform: translateY(.7em); white-space: nowrap }
.under { text-align: center; padding: 0 .4rem; grid-area: 2/1 }
@media (max-width: 40rem) { main { margin: 1rem auto } dd { margin-left: .5rem }
  td code, td:last-child { overflow-wrap: anywhere } td:first-child { min-width: 6rem }
  th, td { padding-right: .6rem } th { white-space: normal }
  h2 .at { display: block; margin-left: 0 } .spare { display: none } .tall { max-height: none } }
@media print { .scroll { max-height: none } }
"""


def page(document: b.Document) -> str:
    """The whole page."""
    verdicts = (block.text for block in document.blocks if isinstance(block, b.Verdict))
    title = ": ".join(filter(None, [document.title, next(verdicts, "")]))
    body = "\n".join(_body(document))
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        '<meta name="color-scheme" content="light dark"/>\n'
        f"<title>{escape(title)}</title>\n<style>{_colours()}{STYLE}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )


def _colours() -> str:
    """The palette as variables and classes, for the page and the pictures in it."""
    light, dark = (
        ";".join(f"--{role}:{colours[n]}" for role, colours in PALETTE.items()) for n in (0, 1)
    )
    classes = "".join(f".c-{role}{{color:var(--{role})}}" for role in PALETTE)
    media = f"@media (prefers-color-scheme: dark){{:root{{{dark}}}}}"
    return f":root{{color-scheme:light dark;{light}}}{media}{classes}{svg.style()}"


def _body(document: b.Document) -> Iterator[str]:
    yield f"<h1>{escape(document.title)}</h1>"
    if document.about:
        yield f'<p class="about">{_words(document.about)}</p>'
    if document.lead:
        yield f"<p>{escape(document.lead)}</p>"
    folded, title = False, document.title
    for block in document.blocks:
        if isinstance(block, b.Heading | b.Charts) and folded:
            yield "</details>"
            folded = False
        if isinstance(block, b.Heading):
            title, folded = block.text, block.folded
            at = f'<span class="at">{escape(block.place)}</span>' if block.place else ""
            heading = f"<h2>{escape(block.text)}{at}</h2>"
            yield f"<details><summary>{heading}</summary>" if folded else heading
        else:
            yield from _block(block, title)
    if folded:
        yield "</details>"


def _block(block: b.Block, title: str) -> Iterator[str]:
    match block:
        case b.Verdict(_, word, role, (first, *lines)):
            label = f'<span class="label">{escape(word)}</span>'
            body = "".join(f"<p>{escape(line)}</p>" for line in lines)
            yield f'<div class="verdict c-{role}"><p>{label}</p>'
            yield f'<div class="c-ink"><p>{escape(first)}</p>{body}</div></div>'
        case b.Paragraph(lines, "verbatim"):
            yield _verbatim(lines, title)
        case b.Paragraph(lines, "list" | "numbered" as form):
            tag = "ol" if form == "numbered" and len(lines) > 1 else "ul"
            yield f"<{tag}>{''.join(f'<li>{_words(line)}</li>' for line in lines)}</{tag}>"
        case b.Paragraph(lines, form, role):
            name = "note" if form == "aside" else f"c-{role}" if role else ""
            look = f' class="{name}"' if name else ""
            yield "".join(f"<p{look}>{_words(line)}</p>" for line in lines)
        case b.Table():
            yield from _table(block, title)
        case b.Entries():
            yield from _entries(block, title)
        case b.Derivation():
            yield _scroll(_fraction(block), title, "proof")
        case b.Drawing(diagram, outline) if diagram:
            yield f"<figure>{_scroll(graph.drawn(diagram), title, 'drawing')}"
            body = _verbatim(outline, f"{title} as text")
            yield f"<figcaption>{LEGEND}</figcaption>"
            yield f"<details><summary>The same as text</summary>{body}</details></figure>"
        case b.Charts(heading, panels):
            drawn = [
                charts.panel(panel) if isinstance(panel, charts.Chart) else placement.panel(panel)
                for panel in panels
            ]
            if drawn:
                picture = svg.stacked(charts.WIDTH, drawn, title=heading, alone=False)
                yield f"<h2>{escape(heading)}</h2>\n{_scroll(picture, heading, 'charts')}"


def _scroll(inside: str, name: str, kind: str = "") -> str:
    """A part that may be wider than the screen: it scrolls by itself, by keyboard, too."""
    look = f"scroll {kind}".strip()
    return (
        f'<div class="{look}" tabindex="0" role="group" aria-label="{escape(name)}">{inside}</div>'
    )


def _table(table: b.Table, name: str) -> Iterator[str]:
    looks = []
    for title in table.columns:
        names = ["right"] * (title in table.right) + ["spare"] * (title in table.spare)
        looks.append(f'class="{" ".join(names)}"' if names else "")
    head = "".join(
        f'<th scope="col" {look}>{escape(title)}</th>' if title else "<td></td>"
        for title, look in zip(table.columns, looks, strict=True)
    )
    rows = []
    for row in table.rows:
        if len(row) < len(table.columns):
            spans = f'colspan="{len(table.columns)}" scope="rowgroup"'
            cells = f"<th {spans}>{_words(row[0])}</th>"
        else:
            cells = "".join(
                f"<td {look}>{_words(cell)}</td>" for cell, look in zip(row, looks, strict=True)
            )
        rows.append(f"<tr>{cells}</tr>\n")
    body = f"<thead><tr>{head}</tr></thead>\n<tbody>{''.join(rows)}</tbody>"
    yield _scroll(
        f"<table>{body}</table>".replace(" >", ">"), name, "tall" if len(rows) > TALL else ""
    )
    if table.more:
        yield f"<p>and {table.more:,} more</p>"


def _entries(block: b.Entries, title: str) -> Iterator[str]:
    yield "<dl>"
    for entry in block.entries:
        note = f" {_words(entry.note)}" if entry.note else ""
        place = f'<span class="at">{escape(entry.place)}</span>' if entry.place else ""
        inside = "".join(part for inner in entry.body for part in _block(inner, title))
        yield f"<dt>{_words(entry.name)}{note}{place}</dt><dd>{inside}</dd>"
    yield "</dl>"
    if block.more:
        yield f"<p>and {block.more:,} more</p>"


def _fraction(derivation: b.Derivation) -> str:
    nested = isinstance(derivation.premises[0], b.Derivation)
    parts = [
        _fraction(part) if isinstance(part, b.Derivation) else _words(part)
        for part in derivation.premises
    ]
    more = f" and {derivation.more} more" if derivation.more else ""
    top = f'<div class="premises">{"".join(parts)}{more}</div>' if nested else " ".join(parts)
    return (
        f'<div class="step"><div class="over">{top}</div>'
        f'<span class="rule">{escape(derivation.by)}</span>'
        f'<div class="under">{_words(derivation.conclusion)}</div></div>'
    )


def _verbatim(lines: Iterable[b.Words], title: str) -> str:
    return _scroll(f"<pre>{chr(10).join(map(_words, lines))}</pre>", title)


def _words(words: b.Words) -> str:
    return "".join(map(_piece, b.pieces(words)))


def _piece(piece: b.Span) -> str:
    text = escape(piece.text)
    if piece is b.BREAK:
        return "<br/>"
    if piece.role == "prose":
        return "".join(f"<code>{x}</code>" if n % 2 else x for n, x in enumerate(text.split("`")))
    if piece.role == "code":
        text = f"<code>{text}</code>"
        return f'<a href="{escape(piece.to)}">{text}</a>' if piece.to else text
    if piece.role in PALETTE:
        return f'<span class="label c-{piece.role}">{text}</span>'
    return f'<span class="{piece.role}">{text}</span>' if piece.role else text
