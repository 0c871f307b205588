"""Derivations as the paper writes them (section V-A4): premises over a line, conclusion under it.

    Async  CW        Async  OR[id]
    ───────── (p)    ───────────── (R1)
      Async            NDRead[id]
    ─────────────────────────────────── Report, Rep (C2)
                   Inst

A block is a list of lines; blocks stand side by side where they fit the width, else one under
the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from blazes.analysis import Derivation, Step
from blazes.report.glyphs import UNICODE, Glyphs
from blazes.report.plain import cells, printable

Block: TypeAlias = list[str]
GAP = "    "
"""Between blocks that stand side by side."""


def derivation_block(
    derivation: Derivation, *, width: int = 80, glyphs: Glyphs = UNICODE, most: int | None = None
) -> Block:
    """The inference steps of an output interface, reconciled and merged to its label.

    Args:
        derivation: what is drawn.
        width: cells that a line may take; blocks that do not fit are stacked.
        glyphs: what the lines are drawn with.
        most: at most so many steps, those that add something first; None: all.
    """
    steps = list(derivation.steps)
    left_out = 0
    if most is not None and len(steps) > most:
        chosen = sorted(range(len(steps)), key=lambda i: (not steps[i].adds, i))[:most]
        left_out = len(steps) - most
        steps = [steps[i] for i in sorted(chosen)]
    by = name_of(derivation)
    top = arrange([fraction(step, glyphs=glyphs) for step in steps], width=width - cells(by) - 1)
    if left_out:
        top.append(f"{glyphs.dots} and {left_out} more {'paths' if left_out > 1 else 'path'}")
    label = str(derivation.label)
    line = max([cells(label), *map(cells, top)])
    return [*top, f"{glyphs.line * line} {by}", centred(label, line)]


def name_of(derivation: Derivation) -> str:
    """What stands right of the last line: the component, `Rep`, and the rules that added to it."""
    words = [printable(derivation.component)] + (["Rep"] if derivation.rep else [])
    rules = f" ({', '.join(derivation.reconciled)})" if derivation.reconciled else ""
    return ", ".join(words) + rules


def fraction(step: Step, *, glyphs: Glyphs = UNICODE) -> Block:
    """One inference step: input label and annotation, the rule, and what follows."""
    premise = printable(f"{step.input}  {step.path.annotation}")
    conclusion = printable(conclusion_of(step))
    line = max(cells(premise), cells(conclusion))
    rule = f" ({', '.join(rules_of(step))})"
    return [
        centred(premise, line),
        glyphs.line * line + rule,
        centred(conclusion, line),
    ]


def conclusion_of(step: Step) -> str:
    """What a step adds, or, where it adds nothing, the label that leaves the path."""
    if step.adds:
        return ", ".join(str(label) for label in step.adds)
    return str(step.leaves)


def rules_of(step: Step) -> tuple[str, ...]:
    """The rule of a step, and S3 where a seal passes an order-sensitive path."""
    passes = bool(step.leaves.keys) and not step.path.annotation.kind.confluent
    return (step.rule, "S3") if passes else (step.rule,)


def arrange(blocks: Sequence[Block], *, width: int) -> Block:
    """Blocks side by side, in as many rows as the width asks for."""
    rows: list[list[Block]] = []
    used = 0
    for block in blocks:
        needed = max(map(cells, block), default=0) + len(GAP)
        if rows and used + needed <= width + len(GAP):
            rows[-1].append(block)
            used += needed
        else:
            rows.append([block])
            used = needed
    lines: Block = []
    for row in rows:
        lines += beside(row)
    return lines


def beside(blocks: Sequence[Block]) -> Block:
    """Blocks of equal height next to each other."""
    widths = [max(map(cells, block), default=0) for block in blocks]
    return [
        GAP.join(
            line + " " * (width - cells(line)) for line, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in zip(*blocks, strict=True)
    ]


def centred(text: str, width: int) -> str:
    """The text in the middle of so many cells, without spaces after it."""
    return " " * ((width - cells(text)) // 2) + text
