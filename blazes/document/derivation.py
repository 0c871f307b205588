"""Derivations as the paper writes them (section V-A4): premises over a line, conclusion under it.

    Async  CW        Async  OR[id]
    ───────── (p)    ───────────── (R1)
      Async            NDRead[id]
    ─────────────────────────────────── Report, Rep (C2)
                   Inst

Steps stand side by side where they fit the width, else one under the other.
"""

from __future__ import annotations

from collections.abc import Sequence

from blazes.document.blocks import Derivation, Span, plain
from blazes.document.plain import cells, printable

GAP = "    "
"""Between steps that stand side by side."""
Line = tuple[Span, ...]


def laid_out(derivation: Derivation, *, width: int = 80) -> list[Line]:
    """The lines of a derivation; each is as wide as its pieces, none has spaces at its end."""
    by = Span(f" {printable(derivation.by)}")
    words = [part for part in derivation.premises if isinstance(part, Span)]
    steps = [laid_out(part) for part in derivation.premises if isinstance(part, Derivation)]
    top = _arranged(steps, width=width - _cells([by])) if steps else []
    premise = tuple(piece for part in words for piece in (Span("  "), part))[1:]
    if derivation.more:
        paths = "paths" if derivation.more > 1 else "path"
        top.append((Span(f"… and {derivation.more} more {paths}"),))
    line = max(map(_cells, [*top, premise, (derivation.conclusion,)]))
    top += [centred(premise, line)] if premise else []
    return [*top, (Span("─" * line, "soft"), by), centred((derivation.conclusion,), line)]


def text(derivation: Derivation, *, width: int = 80) -> str:
    """The same as text."""
    return "\n".join(plain(line) for line in laid_out(derivation, width=width))


def centred(spans: Line, width: int) -> Line:
    """The words in the middle of so many cells, without spaces after them."""
    shown = tuple(Span(printable(span.text), span.role) for span in spans)
    return (Span(" " * ((width - _cells(shown)) // 2)), *shown)


def _cells(line: Sequence[Span]) -> int:
    return sum(cells(printable(span.text)) for span in line)


def _arranged(blocks: Sequence[list[Line]], *, width: int) -> list[Line]:
    """Blocks side by side, in as many rows as the width asks for."""
    rows: list[list[list[Line]]] = []
    used = 0
    for block in blocks:
        needed = max(map(_cells, block)) + len(GAP)
        if rows and used + needed <= width + len(GAP):
            rows[-1].append(block)
            used += needed
        else:
            rows.append([block])
            used = needed
    return [line for row in rows for line in _beside(row)]


def _beside(blocks: Sequence[list[Line]]) -> list[Line]:
    widths = [max(map(_cells, block)) for block in blocks]
    lines = []
    for row in zip(*blocks, strict=True):
        *before, last = zip(row, widths, strict=True)
        line: Line = ()
        for part, width in before:
            line += (*part, Span(" " * (width - _cells(part)) + GAP))
        lines.append((*line, *last[0]))
    return lines
